// SPDX-License-Identifier: MIT
/*
 * Owns progress and sleep: the background thread, the pollers, the wake word.
 *
 * Work runs in the thread that rings or polls. The background thread is there for the time when
 * nobody does. The wake word in the own segment tells peers which of the two it is:
 *
 *	POLLED   a program thread polls; a peer that sends need not wake anybody. The background thread looks every
 *	         millisecond whether that is still true.
 *	SLEEP    nobody polls; a peer that sends swaps SLEEP for BUSY and wakes the futex.
 *	BUSY     the background thread is awake and looks once more before it sleeps.
 *
 *	   poll, nothing armed               tick without a poll, or a CQ was armed
 *	SLEEP, BUSY -----------> POLLED      POLLED -----------> SLEEP
 *
 * An armed CQ means that somebody may wait for an event: then only long polling sets POLLED. Going
 * to SLEEP is always followed by a barrier and one more look at the rings; a sender publishes, has
 * a barrier too, and then reads the word, so one of the two sees the other (barrier.h).
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/shared/born.h"
#include "base/cancel.h"
#include "base/fork.h"
#include "base/time.h"
#include "host/fault.h"
#include "host/heap.h"
#include "base/log.h"
#include "base/mask.h"
#include "base/rcu.h"
#include "base/barrier.h"
#include "host/thread.h"
#include "fabric/fabric.h"
#include "fabric/running.h"
#include "fabric/segment.h"
#include "fabric/state.h"
#include "control/ask/ask.h"
#include "control/show/monitor.h"

enum {
	POLLS_TO_SETTLE = 16, /* polls that make a poller, */
	SETTLE_NS = 100000,   /* within this time */
	POLLS_IF_ARMED =
		4096, /* the same while a CQ is armed: its program may be about to wait for the event */
	POLLS_TO_LOOK = 64,   /* idle polls between two looks for peers that are gone */
	POLLS_TO_YIELD = 256, /* and that mean the peer may be waiting for this very core */
	LOOKS_AT_READER = 16, /* of the background thread before it sleeps for a tick */
	TICK_NS = 1000000,
	SLICE_NS = 100000, /* the shortest that there is */
};

/*
 * Of starting and stopping, and over a fork: of all hosts of the process together. It is what fork() waits
 * for, which must find none of them half started.
 */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * How this thread polls: per thread and host. A thread nearly always polls one host; what it remembers of another is
 * put aside in the place for that host's number, and lost when the next one needs the place.
 */
enum { OTHERS = 4 };

static _Thread_local struct poller {
	uint32_t number;  /* of the fabric */
	uint32_t polls;   /* since a CQ was last armed */
	uint32_t idle;    /* in a row that found nothing */
	uint32_t tick;    /* the tick seen last, */
	uint32_t in_tick; /* and polls in it */
	uint64_t marked;  /* when polls was last a multiple of POLLS_TO_SETTLE, ns */
} poller, others[OTHERS];

static __attribute__((noinline, cold)) void poller_turn(const struct vb_fabric *fabric)
{
	others[poller.number % OTHERS] = poller;
	poller = others[fabric->number % OTHERS];
	if (poller.number != fabric->number)
		poller = (struct poller){ .number = fabric->number };
}

static inline void poller_turn_to(const struct vb_fabric *fabric)
{
	if (__builtin_expect(poller.number != fabric->number, 0))
		poller_turn(fabric);
}

static _Atomic uint32_t *wake_word(struct vb_fabric *fabric)
{
	return &fabric->segment->wake;
}

/* --- receiving -------------------------------------------------------------------------------- */

static __attribute__((noinline, cold)) uint32_t receive_more(struct vb_link *link, bool thorough)
{
	uint32_t received = 0;

	for (; link; link = link->next_receiver)
		received += link->ops->poll(link, thorough);
	return received;
}

/*
 * By all links: the number of packets. Thorough: also notice peers that are gone. There is shm at least, and nearly
 * always no other.
 */
static inline uint32_t receive_all(struct vb_fabric *fabric, bool thorough)
{
	struct vb_link *link = fabric->receivers;
	uint32_t received = link->ops->poll(link, thorough);

	if (__builtin_expect(link->next_receiver != NULL, 0))
		received += receive_more(link->next_receiver, thorough);
	return received;
}

/* What lies unread in all links together. */
static enum vb_link_left links_left(struct vb_fabric *fabric)
{
	enum vb_link_left left = VB_LEFT_NOTHING;

	/* A poller may have noticed that a peer is gone, and frees its rings. */
	vb_read_lock();
	for (struct vb_link *link = fabric->receivers; link; link = link->next_receiver) {
		enum vb_link_left one = link->ops->pending(link);

		left = one > left ? one : left;
	}
	vb_read_unlock();
	return left;
}

static void links_tend(struct vb_fabric *fabric)
{
	for (struct vb_link *link = fabric->receivers; link; link = link->next_receiver)
		if (link->ops->tend)
			link->ops->tend(link);
}

/* Descriptors that became readable: links hear of them before they are polled. */
static void take_descriptors(struct vb_fabric *fabric)
{
	int fd;

	if (__builtin_expect(!atomic_load_explicit(&fabric->watched, memory_order_relaxed), 1))
		return;
	while ((fd = vb_wait_take(&fabric->wait)) >= 0)
		for (struct vb_link *link = fabric->receivers; link; link = link->next_receiver)
			if (link->ops->readable && link->ops->readable(link, fd))
				break;
}

/*
 * A message goes to the program before what is due goes to others: a poller that found one comes
 * back, for the next completion or with an answer that carries the acknowledgement, and does the
 * rest then. The background thread sees to it where the poller does not. Several at once are a
 * stream, whose sender waits for acknowledgements: put off, they would come when it has stopped.
 */
static bool may_put_off(struct vb_fabric *fabric, uint32_t received)
{
	return received == 1 &&
	       atomic_load_explicit(wake_word(fabric), memory_order_relaxed) == VB_WAKE_POLLED;
}

static bool progress_make(struct vb_fabric *fabric, bool thorough)
{
	enum vb_pending pending;
	uint32_t received;
	bool all, worked;

	vb_read_lock();
	received = receive_all(fabric, thorough);
	/* With nothing of its own to do, a thread does what others have left. */
	all = thorough || !received;
	pending = fabric->sink->pending(fabric->card, all);
	worked = pending != VB_PENDING_NONE && !may_put_off(fabric, received);
	if (worked)
		fabric->sink->work(fabric->card, all);
	vb_read_unlock();
	/* To try in vain, because a ring has no room, is not to do something: its reader needs a core. */
	return received || (worked && pending == VB_PENDING_RUNNABLE);
}

bool vb_fabric_progress(struct vb_fabric *fabric)
{
	return progress_make(fabric, true);
}

/* --- pollers ---------------------------------------------------------------------------------- */

/* While POLLED: show the background thread that this tick has seen enough polls. */
static void keep_polled(struct vb_fabric *fabric)
{
	uint32_t tick = atomic_load_explicit(&fabric->tick, memory_order_relaxed);

	if (poller.tick != tick) {
		poller.tick = tick;
		poller.in_tick = 0;
	}
	if (++poller.in_tick == POLLS_TO_SETTLE)
		atomic_store_explicit(&fabric->polled, tick, memory_order_relaxed);
}

/*
 * Whether this thread polls fast enough that peers may count on it: some polls in a row within a
 * short time. A program that mostly looks at memory, and at its CQ now and then, leaves the rings
 * to the background thread.
 */
static bool is_poller(struct vb_fabric *fabric)
{
	uint64_t now, last = poller.marked;

	if (poller.polls % POLLS_TO_SETTLE)
		return false;
	now = poller.marked = vb_now_ns();
	return now - last < SETTLE_NS &&
	       (poller.polls >= POLLS_IF_ARMED ||
		!atomic_load_explicit(&fabric->armed, memory_order_relaxed));
}

static void progress_note_poll(struct vb_fabric *fabric)
{
	uint32_t state = atomic_load_explicit(wake_word(fabric), memory_order_relaxed);

	poller.polls++;
	if (state == VB_WAKE_POLLED) {
		keep_polled(fabric);
		return;
	}
	if (!is_poller(fabric))
		return;
	atomic_store_explicit(&fabric->tick_start, poller.marked, memory_order_relaxed);
	atomic_store_explicit(&fabric->polled,
			      atomic_load_explicit(&fabric->tick, memory_order_relaxed),
			      memory_order_relaxed);
	if (atomic_compare_exchange_strong_explicit(wake_word(fabric), &state, VB_WAKE_POLLED,
						    memory_order_seq_cst, memory_order_seq_cst) &&
	    state != VB_WAKE_BUSY)           /* perhaps a damaged word: vb_peer_wake() */
		vb_wait_wake(&fabric->wait); /* from now on it looks every tick */
}

/*
 * A poller must be quick when its peer is, and must not keep the peer from running when cores are
 * short: after a while without anything it lets others run between looks.
 */
bool vb_fabric_poll(struct vb_fabric *fabric)
{
	bool any;

	poller_turn_to(fabric);
	any = progress_make(fabric, poller.idle % POLLS_TO_LOOK == POLLS_TO_LOOK - 1);
	poller.idle = any ? 0 : poller.idle + 1;
	progress_note_poll(fabric);
	if (__builtin_expect(poller.idle && poller.idle % POLLS_TO_YIELD == 0, 0))
		sched_yield();
	return any;
}

void vb_fabric_armed(struct vb_fabric *fabric, int change)
{
	uint32_t polled = VB_WAKE_POLLED;

	poller_turn_to(fabric);
	poller.polls = 0;
	atomic_fetch_add_explicit(&fabric->armed, change, memory_order_seq_cst);
	if (change > 0 &&
	    atomic_compare_exchange_strong_explicit(wake_word(fabric), &polled, VB_WAKE_SLEEP,
						    memory_order_seq_cst, memory_order_seq_cst)) {
		/* A peer may have sent, seen POLLED and woken nobody: look now. */
		vb_barrier_heavy();
		vb_fabric_progress(fabric);
	}
}

void vb_fabric_unpolled(struct vb_fabric *fabric)
{
	/* A forked child has no segment: what it has was made by its parent. */
	if (!fabric->segment || atomic_load_explicit(&fabric->unpolled, memory_order_relaxed))
		return;
	atomic_store_explicit(&fabric->segment->wants_fence, 1, memory_order_seq_cst);
	/*
	 * A sender that missed wants_fence published before this barrier, so the next scan sees it.
	 */
	vb_barrier_heavy();
	atomic_store_explicit(&fabric->unpolled, true, memory_order_seq_cst);
}

void vb_fabric_freed(struct vb_fabric *fabric, size_t bytes)
{
	if (vb_heap_freed(bytes))
		vb_fabric_kick(fabric); /* it must not sleep beyond that moment */
}

void vb_fabric_kick(struct vb_fabric *fabric)
{
	atomic_store_explicit(&fabric->kicked, true,
			      memory_order_seq_cst); /* seq_cst; pairs with rest() */
	if (atomic_load_explicit(&fabric->resting, memory_order_seq_cst) &&
	    atomic_exchange_explicit(&fabric->resting, false, memory_order_seq_cst)) {
		uint32_t sleeping = VB_WAKE_SLEEP;

		atomic_compare_exchange_strong_explicit(wake_word(fabric), &sleeping, VB_WAKE_BUSY,
							memory_order_seq_cst, memory_order_seq_cst);
		vb_wait_wake(&fabric->wait);
	}
}

/* Per thread: a background thread is one host's. NULL: this is none. */
static _Thread_local struct vb_fabric *background_of;

bool vb_fabric_attends(struct vb_fabric *fabric)
{
	/* List written, state read; pairs with retry_blocked(): state written, list read. */
	atomic_thread_fence(memory_order_seq_cst);
	return background_of == fabric || !fabric->segment ||
	       atomic_load_explicit(wake_word(fabric), memory_order_relaxed) != VB_WAKE_SLEEP;
}

/* --- the background thread -------------------------------------------------------------------- */

/* The links are looked at once, and *left is what that look found. */
static bool nothing_left(struct vb_fabric *fabric, enum vb_link_left *left)
{
	/* Pairs with vb_peer_wake. */
	if (atomic_load_explicit(&fabric->unpolled, memory_order_relaxed))
		atomic_thread_fence(memory_order_seq_cst);
	else
		vb_barrier_heavy();
	return !atomic_load_explicit(&fabric->kicked, memory_order_seq_cst) &&
	       !atomic_load_explicit(&fabric->stop, memory_order_seq_cst) &&
	       atomic_load_explicit(&fabric->segment->asked, memory_order_seq_cst) ==
		       fabric->answered &&
	       fabric->sink->pending(fabric->card, true) != VB_PENDING_RUNNABLE &&
	       (*left = links_left(fabric)) != VB_LEFT_UNREAD;
}

/*
 * Whether a poller does our work. Judged once a tick: a nap that something cut short says nothing
 * about it.
 */
static bool is_polled(struct vb_fabric *fabric, uint64_t now)
{
	if (atomic_load_explicit(wake_word(fabric), memory_order_seq_cst) != VB_WAKE_POLLED)
		return false;
	if (now - atomic_load_explicit(&fabric->tick_start, memory_order_relaxed) < TICK_NS)
		return true;
	if (atomic_load_explicit(&fabric->polled, memory_order_relaxed) !=
	    atomic_load_explicit(&fabric->tick, memory_order_relaxed))
		return false;
	atomic_store_explicit(&fabric->tick_start, now, memory_order_relaxed);
	atomic_fetch_add_explicit(&fabric->tick, 1, memory_order_relaxed);
	return true;
}

/* The deadline of a sleep of a tick at most. */
static uint64_t tick_end(uint64_t until, uint64_t now)
{
	return until < now + TICK_NS ? until : now + TICK_NS;
}

/* The poller looks at the rings; timers and kicks are ours. */
static void nap(struct vb_fabric *fabric, uint64_t until, uint64_t now)
{
	atomic_store_explicit(&fabric->resting, true, memory_order_seq_cst);
	if (until > now && !atomic_load_explicit(&fabric->kicked, memory_order_seq_cst) &&
	    !atomic_load_explicit(&fabric->stop, memory_order_seq_cst))
		vb_wait_sleep(&fabric->wait, VB_WAKE_POLLED, tick_end(until, now));
	atomic_store_explicit(&fabric->resting, false, memory_order_seq_cst);
}

/*
 * A ring may have got room after we last found it full, and its reader have seen us BUSY and not
 * woken us. Trying once more, now that we are seen asleep, either sends or asks for the wake-up
 * anew.
 */
static void retry_blocked(struct vb_fabric *fabric)
{
	atomic_thread_fence(memory_order_seq_cst); /* pairs with vb_fabric_attends() */
	if (fabric->sink->pending(fabric->card, true) != VB_PENDING_BLOCKED)
		return;
	vb_read_lock();
	fabric->sink->work(fabric->card, true);
	vb_read_unlock();
}

/*
 * Whether packets are there and a program thread is in the middle of reading them. That is over in a
 * moment, or it is the copy of a megabyte, or the thread waits for a core: the first few times the
 * background thread looks again at once, afterwards it sleeps. Without that it would take the core
 * that the reader needs.
 */
static bool reader_is_quick(struct vb_fabric *fabric)
{
	if (links_left(fabric) != VB_LEFT_BEING_READ) {
		fabric->looks = 0;
		return false;
	}
	if (fabric->looks == LOOKS_AT_READER)
		return false;
	fabric->looks++;
	sched_yield();
	return true;
}

/*
 * Nobody polls: sleep until a peer, a kick or the next timer wakes us. The reader of a ring may leave
 * packets in it, and wakes nobody: where there is one, for a tick at most.
 */
static void rest(struct vb_fabric *fabric, uint64_t until, uint64_t now)
{
	uint32_t state = atomic_load_explicit(wake_word(fabric), memory_order_seq_cst);
	enum vb_link_left left;

	if (reader_is_quick(fabric))
		return;
	if (state != VB_WAKE_SLEEP &&
	    !atomic_compare_exchange_strong_explicit(wake_word(fabric), &state, VB_WAKE_SLEEP,
						     memory_order_seq_cst, memory_order_seq_cst))
		return;
	atomic_store_explicit(&fabric->resting, true, memory_order_seq_cst);
	retry_blocked(fabric);
	if (until > now && nothing_left(fabric, &left))
		vb_wait_sleep(&fabric->wait, VB_WAKE_SLEEP,
			      left == VB_LEFT_BEING_READ ? tick_end(until, now) : until);
	atomic_store_explicit(&fabric->resting, false, memory_order_seq_cst);
	state = VB_WAKE_SLEEP;
	atomic_compare_exchange_strong_explicit(wake_word(fabric), &state, VB_WAKE_BUSY,
						memory_order_seq_cst, memory_order_seq_cst);
}

/*
 * A thread that runs for some microseconds at a time, beside programs that spin on memory: ask for
 * short slices, so that the scheduler lets it in soon after a wake-up (Linux 6.12; before that the
 * value is not looked at).
 */
static void ask_for_short_slices(void)
{
	/* struct sched_attr, which libc does not declare */
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = { .size = sizeof(attr) };

	if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) || attr.policy != SCHED_OTHER)
		return; /* the program chose another kind of scheduling for all its threads */
	attr.runtime = SLICE_NS;
	syscall(SYS_sched_setattr, 0, &attr, 0);
}

/* Return memory where that is due; the time of what is due next. */
static uint64_t return_heap(uint64_t timer)
{
	uint64_t due = vb_heap_due();

	if (vb_now_ns() < due)
		return due < timer ? due : timer;
	vb_heap_return();
	return timer;
}

/* Pairs with vb_fabric_ask(). */
static void take_questions(struct vb_fabric *fabric)
{
	uint32_t asked = atomic_load_explicit(&fabric->segment->asked, memory_order_acquire);

	if (__builtin_expect(asked == fabric->answered, 1))
		return;
	fabric->answered = asked;
	vb_ask_asked();
}

/*
 * Have the kernel mark a word of our segment when this thread ends: at the latest when the process is
 * killed, and before anybody who waits for that hears of it. It does so for locks that a thread dies
 * with (get_robust_list(2)). The word is a lock that this thread is taking, for ever, so that no list
 * lies in memory that others can write.
 */
static void show_life(struct vb_fabric *fabric)
{
	struct robust_list_head *head = &fabric->life;

	atomic_store_explicit(&fabric->segment->life, (uint32_t)gettid(), memory_order_relaxed);
	head->list.next = &head->list;
	head->futex_offset = 0;
	head->list_op_pending = (struct robust_list *)&fabric->segment->life;
	syscall(SYS_set_robust_list, head, sizeof(*head));
}

static void *background(void *arg)
{
	struct vb_fabric *fabric = arg;

	show_life(fabric);
	atomic_store_explicit(&fabric->thread_id, gettid(), memory_order_release);
	background_of = fabric;
	prctl(PR_SET_NAME, "verbatim");
	ask_for_short_slices();
	while (!atomic_load_explicit(&fabric->stop, memory_order_seq_cst)) {
		bool polled = is_polled(fabric, vb_now_ns()), any;
		uint64_t timer;

		atomic_store_explicit(&fabric->kicked, false, memory_order_seq_cst);
		vb_thread_attend();
		take_descriptors(fabric);
		vb_read_lock();
		any = !polled && receive_all(fabric, true);
		timer = fabric->sink->work(fabric->card, true);
		vb_read_unlock();
		links_tend(fabric);
		take_questions(fabric);
		if (__builtin_expect(vb_heap_due() != UINT64_MAX, 0))
			timer = return_heap(timer);
		if (polled)
			nap(fabric, timer, vb_now_ns());
		else if (!any && fabric->sink->pending(fabric->card, true) != VB_PENDING_RUNNABLE)
			rest(fabric, timer, vb_now_ns());
	}
	return NULL;
}

static void stop_thread(struct vb_fabric *fabric)
{
	vb_registry_watch(fabric->registry, 0);
	atomic_store_explicit(&fabric->stop, true, memory_order_seq_cst);
	vb_fabric_kick(fabric);
	pthread_join(fabric->thread, NULL);
}

/* A descriptor became readable, or the thread is to attend. */
static void wake_self(void *arg)
{
	vb_fabric_kick(arg);
}

static int progress_start_thread(struct vb_fabric *fabric)
{
	static const struct vb_thread_attr attr = { .wake = wake_self };
	pid_t id;
	int ret;

	atomic_store_explicit(&fabric->thread_id, 0, memory_order_relaxed);
	ret = vb_thread_start(&fabric->thread, &attr, background, fabric);
	if (ret)
		return ret;
	while (!(id = atomic_load_explicit(&fabric->thread_id, memory_order_acquire)))
		sched_yield();
	/* Peers name our memory by it, and see by it that the process executes another program. */
	vb_registry_watch(fabric->registry, id);
	return 0;
}

/* --- start, stop, fork ------------------------------------------------------------------------ */

/* No handler of the program runs in a thread that has the lock: one that forks would wait for it. */
static void start_lock_take(sigset_t *before)
{
	vb_signal_block(before);
	pthread_mutex_lock(&start_lock);
}

static void start_lock_give(const sigset_t *before)
{
	pthread_mutex_unlock(&start_lock);
	vb_signal_unblock(before);
}

static void fabric_prepare(void)
{
	pthread_mutex_lock(&start_lock);
}

static void fabric_parent(void)
{
	pthread_mutex_unlock(&start_lock);
}

static void reset_in_child(struct vb_fabric *fabric)
{
	fabric->users = 0;
	atomic_store_explicit(&fabric->sending, 0, memory_order_relaxed);
	atomic_fetch_add_explicit(&fabric->shown.epoch, 1, memory_order_relaxed);
	/* its watcher, if there was one, is the parent's */
	vb_wait_init(&fabric->wait, wake_self, fabric);
	atomic_store_explicit(&fabric->watched, 0, memory_order_relaxed);
	fabric->shown.told = NULL;
	fabric->segment = NULL; /* the mapping was not inherited */
	vb_registry_forked(fabric->registry);
	for (struct vb_link *link = fabric->links; link; link = link->next)
		if (link->ops->forked)
			link->ops->forked(link);
}

static void fabric_forked(void)
{
	struct vb_fabric *fabric, *next;

	pthread_mutex_init(&start_lock, NULL);
	for (fabric = vb_running_begin(); fabric; fabric = next) {
		next = vb_running_next(fabric);
		reset_in_child(fabric);
	}
	vb_running_end();
	vb_running_forked();
}

/* membarrier may be forbidden soon: all threads go over to fences while it still works. */
static void give_up_calls(void)
{
	vb_read_give_up_calls();
	vb_barrier_give_up_calls();
}

/*
 * What is done from here on is done with the filter that there is. Only what the program forbids after
 * it has opened a card keeps us from asking: see vb_fault_is_closing_in().
 */
static void begin_asking(void)
{
	static bool begun; /* under start_lock */

	if (!begun) {
		vb_fault_forget_closing_in();
		vb_fault_on_closing_in(give_up_calls);
	}
	begun = true;
}

/* membarrier works no more: have all senders use a fence. Allowed in signal handlers. */
static void want_fences(void)
{
	for (struct vb_fabric *f = vb_running_begin(); f; f = vb_running_next(f))
		atomic_store_explicit(&f->segment->wants_fence, 1, memory_order_seq_cst);
	vb_running_end();
}

/* The fabric is among those that run: whoever gives membarrier up from here on sets the word again. */
static void ask_barrier(struct vb_fabric *fabric)
{
	_Atomic uint32_t *wants_fence = &fabric->segment->wants_fence;

	if (!vb_barrier_register(want_fences))
		return; /* as in a new segment */
	atomic_store_explicit(wants_fence, 0, memory_order_seq_cst);
	if (!atomic_load_explicit(&vb_barrier_available, memory_order_seq_cst))
		atomic_store_explicit(wants_fence, 1, memory_order_seq_cst);
}

static void links_stop(struct vb_fabric *fabric, const struct vb_link *end)
{
	for (struct vb_link *link = fabric->links; link != end; link = link->next)
		if (link->ops->stop)
			link->ops->stop(link);
}

/* *end: the first that did not start, which is what links_stop() is to be told. */
static int links_start(struct vb_fabric *fabric, struct vb_link **end)
{
	int ret = 0;

	for (*end = fabric->links; *end; *end = (*end)->next) {
		ret = (*end)->ops->start ? (*end)->ops->start(*end) : 0;
		if (ret)
			break;
	}
	return ret;
}

static void links_linger(struct vb_fabric *fabric)
{
	for (struct vb_link *link = fabric->links; link; link = link->next)
		if (link->ops->linger)
			link->ops->linger(link);
}

static int progress_start(struct vb_host *host, const struct vb_sink *sink)
{
	static uint32_t number; /* under start_lock */
	struct vb_fabric *fabric = host->fabric;
	struct vb_slot_info self;
	struct vb_link *end;
	int ret;

	begin_asking();
	fabric->host = host;
	fabric->registry = host->meet;
	fabric->card = host->card;
	fabric->sink = sink;
	fabric->number = ++number;
	vb_links_init(fabric);
	ret = vb_registry_join(fabric->registry, &self);
	if (ret)
		return ret;
	ret = vb_segment_create(fabric, &self);
	if (ret)
		goto leave;
	vb_wait_init(&fabric->wait, wake_self, fabric);
	fabric->wait.word = wake_word(fabric);
	fabric->answered = 0; /* as in the new segment */
	atomic_store_explicit(&fabric->stop, false, memory_order_relaxed);
	atomic_store_explicit(&fabric->kicked, false, memory_order_relaxed);
	atomic_store_explicit(&fabric->resting, false, memory_order_relaxed);
	atomic_store_explicit(&fabric->unpolled, false, memory_order_relaxed);
	atomic_store_explicit(&fabric->armed, 0, memory_order_relaxed);
	vb_running_add(fabric);
	ask_barrier(fabric);
	ret = links_start(fabric, &end);
	if (!ret)
		ret = progress_start_thread(fabric);
	if (ret)
		goto stop_links;
	vb_monitor_start(fabric->registry, &self);
	return 0;

stop_links:
	vb_running_remove(fabric);
	links_stop(fabric, end);
	vb_wait_destroy(&fabric->wait);
	vb_segment_destroy(fabric);
leave:
	vb_registry_leave(fabric->registry);
	vb_registry_close(fabric->registry);
	return ret;
}

int vb_fabric_start(struct vb_host *host, const struct vb_sink *sink)
{
	VB_NO_CANCEL;
	sigset_t before;
	int ret = 0;

	start_lock_take(&before);
	if (!host->fabric->users)
		ret = progress_start(host, sink);
	if (!ret)
		host->fabric->users++;
	start_lock_give(&before);
	if (!ret)
		vb_born_start();
	return ret;
}

static void progress_stop(struct vb_fabric *fabric)
{
	vb_running_remove(fabric);
	stop_thread(fabric);
	links_stop(fabric, NULL);
	vb_wait_destroy(&fabric->wait);
	vb_monitor_stop(fabric->registry);
	vb_registry_leave(fabric->registry);
	vb_segment_destroy(fabric);
	vb_registry_close(fabric->registry);
	vb_heap_return();
	atomic_fetch_add_explicit(&fabric->shown.epoch, 1, memory_order_relaxed);
}

/* Without the lock: it may take a second, in which handlers of the program run. The walk keeps the fabric. */
static void linger(struct vb_fabric *fabric)
{
	for (struct vb_fabric *f = vb_running_begin(); f; f = vb_running_next(f))
		if (f == fabric)
			links_linger(f);
	vb_running_end();
}

void vb_fabric_stop(struct vb_fabric *fabric)
{
	VB_NO_CANCEL;
	sigset_t before;

	start_lock_take(&before);
	if (fabric->users == 1) {
		start_lock_give(&before);
		linger(fabric);
		start_lock_take(&before);
	}
	if (fabric->users && !--fabric->users)
		progress_stop(fabric);
	start_lock_give(&before);
}

/*
 * A program that exits without closing its devices still gives its slots back. What a child has that was
 * forked past libc's fork() is its parent's, whose segment is not mapped here.
 */
static void leave_slot(struct vb_fabric *fabric)
{
	if (!fabric->users || !vb_registry_is_joined(fabric->registry))
		return;
	/*
	 * Acknowledgements that are due. Not where the program exits in a signal handler that came in
	 * the middle of our work: this thread may have locked what is needed for it.
	 */
	if (!vb_read_ongoing()) {
		vb_read_lock();
		fabric->sink->work(fabric->card, true);
		vb_read_unlock();
	}
	links_linger(fabric);
	if (vb_running_goes_on())
		vb_registry_leave(fabric->registry);
}

static void fabric_exit(void)
{
	for (struct vb_fabric *f = vb_running_begin(); f; f = vb_running_next(f))
		leave_slot(f);
	vb_running_end();
}

VB_STAGE(FABRIC, .prepare = fabric_prepare, .parent = fabric_parent, .child = fabric_forked,
	 .exit = fabric_exit);

uint32_t vb_fabric_slot(struct vb_fabric *fabric)
{
	return fabric->segment->slot;
}

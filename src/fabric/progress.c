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
#include "base/rcu.h"
#include "base/barrier.h"
#include "host/signals.h"
#include "host/thread.h"
#include "fabric/fabric.h"
#include "fabric/path.h"
#include "fabric/peer.h"
#include "fabric/reach.h"
#include "fabric/segment.h"
#include "fabric/state.h"
#include "control/show/monitor.h"
#include "fabric/tracer.h"

enum {
	BURST = 64,            /* packets taken from one ring before the next gets its turn, */
	BURST_BYTES = 1 << 20, /* or so much payload: that of one packet may be a megabyte */
	POLLS_TO_SETTLE = 16,  /* polls that make a poller, */
	SETTLE_NS = 100000,    /* within this time */
	POLLS_IF_ARMED =
		4096, /* the same while a CQ is armed: its program may be about to wait for the event */
	POLLS_TO_LOOK = 64,   /* idle polls between two looks for peers that are gone */
	POLLS_TO_YIELD = 256, /* and that mean the peer may be waiting for this very core */
	LOOKS_AT_READER = 16, /* of the background thread before it sleeps for a tick */
	TICK_NS = 1000000,
	SLICE_NS = 100000, /* the shortest that there is */
};

struct vb_fabric vb_fabric = { .start_lock = PTHREAD_MUTEX_INITIALIZER,
			       .peers.table_lock = PTHREAD_MUTEX_INITIALIZER };

/* How this thread polls. */
static _Thread_local struct {
	uint32_t polls;   /* since a CQ was last armed */
	uint32_t idle;    /* in a row that found nothing */
	uint32_t tick;    /* the tick seen last, */
	uint32_t in_tick; /* and polls in it */
	uint64_t marked;  /* when polls was last a multiple of POLLS_TO_SETTLE, ns */
} poller;

static _Atomic uint32_t *wake_word(void)
{
	return &vb_segment_self->wake;
}

/* --- receiving -------------------------------------------------------------------------------- */

static void receive(const struct vb_pkt *pkt)
{
	struct vb_hook *hook = atomic_load_explicit(&vb_fabric_hook, memory_order_acquire);

	if (__builtin_expect(hook && hook->receiving, 0))
		hook->receiving(hook, pkt, vb_fabric.sink->receive);
	else
		vb_fabric.sink->receive(pkt);
}

/*
 * Take packets from one ring, and tell how many; the lock only keeps two threads of ours from
 * reading the same one.
 */
static uint32_t drain(struct vb_peer_rx *rx)
{
	struct vb_grh grh;
	struct vb_pkt pkt;
	struct iovec iov;
	uint64_t bytes = 0;
	bool wake = false;
	uint32_t n;
	int ret = 0;

	if (!vb_trylock(&rx->lock))
		return 0;
	for (n = 0; n < BURST && bytes < BURST_BYTES; n++) {
		ret = vb_ring_peek(&rx->ring, &pkt, &iov, &grh);
		if (ret <= 0 || (n && vb_fabric.sink->delivers_first(&pkt)))
			break;
		bytes += pkt.len;
		receive(&pkt);
		wake |= vb_ring_next(&rx->ring);
	}
	wake |= vb_ring_release(&rx->ring);
	vb_unlock(&rx->lock);
	if (n)
		vb_fabric.sink->received();
	if (ret < 0) {
		vb_warn("process %d sent a malformed packet; its rings are closed",
			(int)rx->peer->pid);
		vb_peer_break(rx->peer);
	}
	if (wake)
		vb_peer_wake(rx->peer);
	return n;
}

/*
 * What lies in the rings: nothing, packets in rings that other threads of ours are reading, or packets
 * in a ring that no thread reads.
 */
enum left { LEFT_NOTHING, LEFT_BEING_READ, LEFT_UNREAD };

static enum left rings_left(void)
{
	_Atomic(struct vb_peer_rx *) *list;
	uint32_t count = vb_peer_inbound(&list);
	enum left left = LEFT_NOTHING;

	for (uint32_t i = 0; i < count; i++) {
		struct vb_peer_rx *rx = atomic_load_explicit(&list[i], memory_order_relaxed);

		if (!vb_ring_pending(&rx->ring))
			continue;
		if (!atomic_load_explicit(&rx->lock.held, memory_order_relaxed))
			return LEFT_UNREAD;
		left = LEFT_BEING_READ;
	}
	return left;
}

/* Take what the peers sent: the number of packets. Thorough: also notice peers that are gone. */
static uint32_t receive_all(bool thorough)
{
	_Atomic(struct vb_peer_rx *) *list;
	uint32_t count, received = 0;

	vb_peer_accept();
	if (thorough &&
	    __builtin_expect(atomic_load_explicit(&vb_peer_missed, memory_order_relaxed), 0))
		vb_peer_accept_missed();
	count = vb_peer_inbound(&list);
	for (uint32_t i = 0; i < count; i++) {
		struct vb_peer_rx *rx = atomic_load_explicit(&list[i], memory_order_relaxed);
		bool gone =
			thorough && rx->peer->generation != vb_registry_generation(rx->peer->slot);

		/* It wrote nothing more once it was gone, so what it wrote is seen now. */
		if (vb_ring_pending(&rx->ring))
			received += drain(rx);
		else if (gone)
			vb_peer_forget(rx);
	}
	return received;
}

/*
 * A message goes to the program before what is due goes to others: a poller that found one comes
 * back, for the next completion or with an answer that carries the acknowledgement, and does the
 * rest then. The background thread sees to it where the poller does not. Several at once are a
 * stream, whose sender waits for acknowledgements: put off, they would come when it has stopped.
 */
static bool may_put_off(uint32_t received)
{
	return received == 1 &&
	       atomic_load_explicit(wake_word(), memory_order_relaxed) == VB_WAKE_POLLED;
}

static bool progress(bool thorough)
{
	enum vb_pending pending;
	uint32_t received;
	bool all, worked;

	vb_read_lock();
	received = receive_all(thorough);
	/* With nothing of its own to do, a thread does what others have left. */
	all = thorough || !received;
	pending = vb_fabric.sink->pending(all);
	worked = pending != VB_PENDING_NONE && !may_put_off(received);
	if (worked)
		vb_fabric.sink->work(all);
	vb_read_unlock();
	/* To try in vain, because a ring has no room, is not to do something: its reader needs a core. */
	return received || (worked && pending == VB_PENDING_RUNNABLE);
}

bool vb_fabric_progress(void)
{
	return progress(true);
}

/* --- pollers ---------------------------------------------------------------------------------- */

/* While POLLED: show the background thread that this tick has seen enough polls. */
static void keep_polled(void)
{
	uint32_t tick = atomic_load_explicit(&vb_fabric.tick, memory_order_relaxed);

	if (poller.tick != tick) {
		poller.tick = tick;
		poller.in_tick = 0;
	}
	if (++poller.in_tick == POLLS_TO_SETTLE)
		atomic_store_explicit(&vb_fabric.polled, tick, memory_order_relaxed);
}

/*
 * Whether this thread polls fast enough that peers may count on it: some polls in a row within a
 * short time. A program that mostly looks at memory, and at its CQ now and then, leaves the rings
 * to the background thread.
 */
static bool is_poller(void)
{
	uint64_t now, last = poller.marked;

	if (poller.polls % POLLS_TO_SETTLE)
		return false;
	now = poller.marked = vb_now_ns();
	return now - last < SETTLE_NS &&
	       (poller.polls >= POLLS_IF_ARMED ||
		!atomic_load_explicit(&vb_fabric.armed, memory_order_relaxed));
}

static void settle(void)
{
	uint32_t state = atomic_load_explicit(wake_word(), memory_order_relaxed);

	poller.polls++;
	if (state == VB_WAKE_POLLED) {
		keep_polled();
		return;
	}
	if (!is_poller())
		return;
	atomic_store_explicit(&vb_fabric.tick_start, poller.marked, memory_order_relaxed);
	atomic_store_explicit(&vb_fabric.polled,
			      atomic_load_explicit(&vb_fabric.tick, memory_order_relaxed),
			      memory_order_relaxed);
	if (atomic_compare_exchange_strong_explicit(wake_word(), &state, VB_WAKE_POLLED,
						    memory_order_seq_cst, memory_order_seq_cst) &&
	    state != VB_WAKE_BUSY)             /* perhaps a damaged word: vb_peer_wake() */
		vb_wait_wake(&vb_fabric.wait); /* from now on it looks every tick */
}

/*
 * A poller must be quick when its peer is, and must not keep the peer from running when cores are
 * short: after a while without anything it lets others run between looks.
 */
bool vb_fabric_poll(void)
{
	bool any = progress(poller.idle % POLLS_TO_LOOK == POLLS_TO_LOOK - 1);

	poller.idle = any ? 0 : poller.idle + 1;
	settle();
	if (__builtin_expect(poller.idle && poller.idle % POLLS_TO_YIELD == 0, 0))
		sched_yield();
	return any;
}

void vb_fabric_armed(int change)
{
	uint32_t polled = VB_WAKE_POLLED;

	poller.polls = 0;
	atomic_fetch_add_explicit(&vb_fabric.armed, change, memory_order_seq_cst);
	if (change > 0 &&
	    atomic_compare_exchange_strong_explicit(wake_word(), &polled, VB_WAKE_SLEEP,
						    memory_order_seq_cst, memory_order_seq_cst)) {
		/* A peer may have sent, seen POLLED and woken nobody: look now. */
		vb_barrier_heavy();
		vb_fabric_progress();
	}
}

void vb_fabric_unpolled(void)
{
	/* A forked child has no segment: what it has was made by its parent. */
	if (!vb_segment_self || atomic_load_explicit(&vb_fabric.unpolled, memory_order_relaxed))
		return;
	atomic_store_explicit(&vb_segment_self->wants_fence, 1, memory_order_seq_cst);
	/*
	 * A sender that missed wants_fence published before this barrier, so the next scan sees it.
	 */
	vb_barrier_heavy();
	atomic_store_explicit(&vb_fabric.unpolled, true, memory_order_seq_cst);
}

void vb_fabric_freed(size_t bytes)
{
	if (vb_heap_freed(bytes))
		vb_fabric_kick(); /* it must not sleep beyond that moment */
}

void vb_fabric_kick(void)
{
	atomic_store_explicit(&vb_fabric.kicked, true,
			      memory_order_seq_cst); /* seq_cst; pairs with rest() */
	if (atomic_load_explicit(&vb_fabric.resting, memory_order_seq_cst) &&
	    atomic_exchange_explicit(&vb_fabric.resting, false, memory_order_seq_cst)) {
		uint32_t sleeping = VB_WAKE_SLEEP;

		atomic_compare_exchange_strong_explicit(wake_word(), &sleeping, VB_WAKE_BUSY,
							memory_order_seq_cst, memory_order_seq_cst);
		vb_wait_wake(&vb_fabric.wait);
	}
}

static _Thread_local bool is_background;

bool vb_fabric_attends(void)
{
	/* List written, state read; pairs with retry_blocked(): state written, list read. */
	atomic_thread_fence(memory_order_seq_cst);
	return is_background || !vb_segment_self ||
	       atomic_load_explicit(wake_word(), memory_order_relaxed) != VB_WAKE_SLEEP;
}

/* --- the background thread -------------------------------------------------------------------- */

/* The rings are looked at once, and *left is what that look found. */
static bool nothing_left(enum left *left)
{
	/* Pairs with vb_peer_wake. */
	if (atomic_load_explicit(&vb_fabric.unpolled, memory_order_relaxed))
		atomic_thread_fence(memory_order_seq_cst);
	else
		vb_barrier_heavy();
	return !atomic_load_explicit(&vb_fabric.kicked, memory_order_seq_cst) &&
	       !atomic_load_explicit(&vb_fabric.stop, memory_order_seq_cst) &&
	       atomic_load_explicit(&vb_segment_self->asked, memory_order_seq_cst) ==
		       vb_fabric.answered &&
	       vb_fabric.sink->pending(true) != VB_PENDING_RUNNABLE &&
	       (*left = rings_left()) != LEFT_UNREAD &&
	       atomic_load_explicit(&vb_segment_self->inbound_epoch, memory_order_seq_cst) ==
		       atomic_load_explicit(&vb_peer_epoch, memory_order_relaxed);
}

/*
 * Whether a poller does our work. Judged once a tick: a nap that something cut short says nothing
 * about it.
 */
static bool is_polled(uint64_t now)
{
	if (atomic_load_explicit(wake_word(), memory_order_seq_cst) != VB_WAKE_POLLED)
		return false;
	if (now - atomic_load_explicit(&vb_fabric.tick_start, memory_order_relaxed) < TICK_NS)
		return true;
	if (atomic_load_explicit(&vb_fabric.polled, memory_order_relaxed) !=
	    atomic_load_explicit(&vb_fabric.tick, memory_order_relaxed))
		return false;
	atomic_store_explicit(&vb_fabric.tick_start, now, memory_order_relaxed);
	atomic_fetch_add_explicit(&vb_fabric.tick, 1, memory_order_relaxed);
	return true;
}

/* The deadline of a sleep of a tick at most. */
static uint64_t tick_end(uint64_t until, uint64_t now)
{
	return until < now + TICK_NS ? until : now + TICK_NS;
}

/* The poller looks at the rings; timers and kicks are ours. */
static void nap(uint64_t until, uint64_t now)
{
	atomic_store_explicit(&vb_fabric.resting, true, memory_order_seq_cst);
	if (until > now && !atomic_load_explicit(&vb_fabric.kicked, memory_order_seq_cst) &&
	    !atomic_load_explicit(&vb_fabric.stop, memory_order_seq_cst))
		vb_wait_sleep(&vb_fabric.wait, VB_WAKE_POLLED, tick_end(until, now));
	atomic_store_explicit(&vb_fabric.resting, false, memory_order_seq_cst);
}

/*
 * A ring may have got room after we last found it full, and its reader have seen us BUSY and not
 * woken us. Trying once more, now that we are seen asleep, either sends or asks for the wake-up
 * anew.
 */
static void retry_blocked(void)
{
	atomic_thread_fence(memory_order_seq_cst); /* pairs with vb_fabric_attends() */
	if (vb_fabric.sink->pending(true) != VB_PENDING_BLOCKED)
		return;
	vb_read_lock();
	vb_fabric.sink->work(true);
	vb_read_unlock();
}

/*
 * Whether packets are there and a program thread is in the middle of reading them. That is over in a
 * moment, or it is the copy of a megabyte, or the thread waits for a core: the first few times the
 * background thread looks again at once, afterwards it sleeps. Without that it would take the core
 * that the reader needs.
 */
static bool reader_is_quick(void)
{
	static unsigned int looks; /* of the background thread, in a row */

	if (rings_left() != LEFT_BEING_READ) {
		looks = 0;
		return false;
	}
	if (looks == LOOKS_AT_READER)
		return false;
	looks++;
	sched_yield();
	return true;
}

/*
 * Nobody polls: sleep until a peer, a kick or the next timer wakes us. The reader of a ring may leave
 * packets in it, and wakes nobody: where there is one, for a tick at most.
 */
static void rest(uint64_t until, uint64_t now)
{
	uint32_t state = atomic_load_explicit(wake_word(), memory_order_seq_cst);
	enum left left;

	if (reader_is_quick())
		return;
	if (state != VB_WAKE_SLEEP &&
	    !atomic_compare_exchange_strong_explicit(wake_word(), &state, VB_WAKE_SLEEP,
						     memory_order_seq_cst, memory_order_seq_cst))
		return;
	atomic_store_explicit(&vb_fabric.resting, true, memory_order_seq_cst);
	retry_blocked();
	if (until > now && nothing_left(&left))
		vb_wait_sleep(&vb_fabric.wait, VB_WAKE_SLEEP,
			      left == LEFT_BEING_READ ? tick_end(until, now) : until);
	atomic_store_explicit(&vb_fabric.resting, false, memory_order_seq_cst);
	state = VB_WAKE_SLEEP;
	atomic_compare_exchange_strong_explicit(wake_word(), &state, VB_WAKE_BUSY,
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
static void take_questions(void)
{
	uint32_t asked = atomic_load_explicit(&vb_segment_self->asked, memory_order_acquire);

	if (__builtin_expect(asked == vb_fabric.answered, 1))
		return;
	vb_fabric.answered = asked;
	if (vb_fabric.sink->asked)
		vb_fabric.sink->asked();
}

/*
 * Have the kernel mark a word of our segment when this thread ends: at the latest when the process is
 * killed, and before anybody who waits for that hears of it. It does so for locks that a thread dies
 * with (get_robust_list(2)). The word is a lock that this thread is taking, for ever, so that no list
 * lies in memory that others can write.
 */
static void show_life(void)
{
	static struct robust_list_head head;

	atomic_store_explicit(&vb_segment_self->life, (uint32_t)gettid(), memory_order_relaxed);
	head.list.next = &head.list;
	head.futex_offset = 0;
	head.list_op_pending = (struct robust_list *)&vb_segment_self->life;
	syscall(SYS_set_robust_list, &head, sizeof(head));
}

static void *background(void *arg)
{
	show_life();
	atomic_store_explicit(&vb_fabric.thread_id, gettid(), memory_order_release);
	is_background = true;
	prctl(PR_SET_NAME, "verbatim");
	ask_for_short_slices();
	while (!atomic_load_explicit(&vb_fabric.stop, memory_order_seq_cst)) {
		bool polled = is_polled(vb_now_ns()), any;
		uint64_t timer;

		atomic_store_explicit(&vb_fabric.kicked, false, memory_order_seq_cst);
		vb_thread_attend();
		vb_read_lock();
		any = !polled && receive_all(true);
		timer = vb_fabric.sink->work(true);
		vb_read_unlock();
		vb_peer_collect();
		take_questions();
		if (__builtin_expect(vb_heap_due() != UINT64_MAX, 0))
			timer = return_heap(timer);
		if (polled)
			nap(timer, vb_now_ns());
		else if (!any && vb_fabric.sink->pending(true) != VB_PENDING_RUNNABLE)
			rest(timer, vb_now_ns());
	}
	return NULL;
}

static void stop_thread(void)
{
	vb_registry_watch(0);
	atomic_store_explicit(&vb_fabric.stop, true, memory_order_seq_cst);
	vb_fabric_kick();
	pthread_join(vb_fabric.thread, NULL);
}

static int start_thread(void)
{
	static const struct vb_thread_attr attr = { .wake = vb_fabric_kick };
	pid_t id;
	int ret;

	atomic_store_explicit(&vb_fabric.thread_id, 0, memory_order_relaxed);
	ret = vb_thread_start(&vb_fabric.thread, &attr, background, NULL);
	if (ret)
		return ret;
	while (!(id = atomic_load_explicit(&vb_fabric.thread_id, memory_order_acquire)))
		sched_yield();
	/* Peers name our memory by it, and see by it that the process executes another program. */
	vb_registry_watch(id);
	return 0;
}

/* A descriptor became readable. */
static void wake_self(void *arg)
{
	vb_fabric_kick();
}

/* --- start, stop, fork ------------------------------------------------------------------------ */

static void fabric_prepare(void)
{
	pthread_mutex_lock(&vb_fabric.start_lock);
}

static void fabric_parent(void)
{
	pthread_mutex_unlock(&vb_fabric.start_lock);
}

static void reset_in_child(void)
{
	if (!vb_fabric.users)
		return;
	vb_fabric.users = 0;
	atomic_store_explicit(&vb_fabric.sending, 0, memory_order_relaxed);
	atomic_fetch_add_explicit(&vb_fabric.epoch, 1, memory_order_relaxed);
	vb_wait_init(&vb_fabric.wait, wake_self,
		     NULL);     /* its watcher, if there was one, is the parent's */
	vb_segment_self = NULL; /* the mapping was not inherited */
	vb_barrier_forget();
	vb_registry_forked();
	vb_tracer_reset(true);
	vb_peer_reset(true);
}

static void fabric_forked(void)
{
	pthread_mutex_init(&vb_fabric.start_lock, NULL);
	reset_in_child();
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

static int start(const struct vb_sink *sink)
{
	struct vb_slot_info self;
	int ret;

	begin_asking();
	ret = vb_registry_join(&self);
	if (ret)
		return ret;
	ret = vb_segment_create(&self);
	if (ret)
		goto leave;
	vb_barrier_register(&vb_segment_self->wants_fence);
	vb_fabric.sink = sink;
	vb_wait_init(&vb_fabric.wait, wake_self, NULL);
	vb_fabric.wait.word = wake_word();
	vb_fabric.answered = 0; /* as in the new segment */
	atomic_store_explicit(&vb_fabric.stop, false, memory_order_relaxed);
	atomic_store_explicit(&vb_fabric.kicked, false, memory_order_relaxed);
	atomic_store_explicit(&vb_fabric.resting, false, memory_order_relaxed);
	atomic_store_explicit(&vb_fabric.unpolled, false, memory_order_relaxed);
	atomic_store_explicit(&vb_fabric.armed, 0, memory_order_relaxed);
	ret = start_thread();
	if (ret)
		goto destroy_segment;
	vb_reach_start();
	vb_monitor_start(&self);
	return 0;

destroy_segment:
	vb_wait_destroy(&vb_fabric.wait);
	vb_segment_destroy();
leave:
	vb_registry_leave();
	vb_registry_close();
	return ret;
}

int vb_fabric_start(const struct vb_sink *sink)
{
	VB_NO_CANCEL;
	int ret = 0;

	pthread_mutex_lock(&vb_fabric.start_lock);
	if (!vb_fabric.users)
		ret = start(sink);
	if (!ret)
		vb_fabric.users++;
	pthread_mutex_unlock(&vb_fabric.start_lock);
	if (!ret)
		vb_born_start();
	return ret;
}

void vb_fabric_stop(void)
{
	VB_NO_CANCEL;
	pthread_mutex_lock(&vb_fabric.start_lock);
	if (vb_fabric.users && !--vb_fabric.users) {
		vb_frame_linger();
		vb_reach_stop();
		stop_thread();
		vb_wait_destroy(&vb_fabric.wait);
		vb_peer_reset(false);
		vb_tracer_reset(false);
		vb_monitor_stop();
		vb_registry_leave();
		vb_segment_destroy();
		vb_registry_close();
		vb_heap_return();
		atomic_fetch_add_explicit(&vb_fabric.epoch, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&vb_fabric.start_lock);
}

/*
 * A program that exits without closing its devices still gives its slot back. What a child has that was
 * forked past libc's fork() is its parent's, whose segment is not mapped here.
 */
static void fabric_exit(void)
{
	if (!vb_fabric.users || !vb_registry_is_joined())
		return;
	/*
	 * Acknowledgements that are due. Not where the program exits in a signal handler that came in
	 * the middle of our work: this thread may have locked what is needed for it.
	 */
	if (!vb_read_ongoing()) {
		vb_read_lock();
		vb_fabric.sink->work(true);
		vb_read_unlock();
	}
	vb_frame_linger();
	vb_registry_leave();
}

VB_STAGE(FABRIC, .prepare = fabric_prepare, .parent = fabric_parent, .child = fabric_forked,
	 .exit = fabric_exit);

bool vb_fabric_is_local(const union ibv_gid *gid)
{
	return vb_fabric.sink->is_local(gid);
}

uint32_t vb_fabric_slot(void)
{
	return vb_segment_self->slot;
}

uint32_t vb_fabric_epoch(void)
{
	return atomic_load_explicit(&vb_fabric.epoch, memory_order_relaxed);
}

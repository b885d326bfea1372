// SPDX-License-Identifier: MIT
/*
 * Owns execution units and the host threads that drive them.
 *
 *   EU 0   ready: T3 T7     list of EUs with work: 2 -> 0
 *   EU 1   -
 *   EU 2   ready: T1
 *
 * A host thread takes the first EU of the list, runs its first thread for a slice, and puts both
 * behind the others. So every EU with work gets an equal share of the host threads, every thread an
 * equal share of its EU, and an EU runs one thread at a time.
 *
 * A host thread with nothing to do opens its box, spins for a moment and then sleeps in a futex.
 * Whoever starts a guest thread puts it right into an open box: the queues and their lock are then
 * touched only by the host thread that takes it out, in whose cache they are. With no box open it
 * goes into the queues.
 *
 *   box:  BUSY --> SPINNING --> SLEEPING        opened under dpa.lock, with the queues seen empty
 *          ^          |            |            whoever fills a queue pokes an open box afterwards,
 *          '--- a thread, or POKED '            so no work waits beside a sleeping host thread
 *
 * The boxes are tried in order, after the one of the host thread that ran the guest thread last:
 * one that has just gone to sleep wakes faster than one that has slept for long.
 *
 * In deterministic mode there is one host thread, which EU comes next and for how many instructions
 * is drawn from the seed, and threads go through the queues.
 */
#include "dpa/internal.h"
#include "base/env.h"
#include "base/log.h"
#include "host/thread.h"
#include "control/record/timeline.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define EUS_DEFAULT   256
#define EUS_MAX       4096
#define SLICE_DEFAULT 100000
#define SPIN_DEFAULT  20
/* Deterministic slices are short and uneven, so that seeds differ in what they interleave. */
#define SLICE_RANDOM 2000
/* How long a slow EU sleeps at once: who stops it waits for that. */
#define SKIP_MAX_NS 1000000

enum box { BOX_BUSY, BOX_SPINNING, BOX_SLEEPING, BOX_POKED }; /* other values: a thread */

/* ---- create, destroy ---- */

static int read_seed(struct vb_dpa *dpa)
{
	const char *text = vb_getenv("VERBATIM_DPA_SEED");
	char *end;

	if (!text || !*text)
		return 0;
	errno = 0;
	dpa->rng = strtoull(text, &end, 0);
	dpa->deterministic = true;
	if (!errno && !*end)
		return 0;
	vb_error("VERBATIM_DPA_SEED=%s is not a number", text);
	return -EINVAL;
}

int vb_dpa_create(const struct vb_dpa_attr *attr, struct vb_dpa **dpa)
{
	static const struct vb_dpa_attr defaults;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct vb_dpa *d;

	attr = attr ? attr : &defaults;
	if (attr->eus > EUS_MAX)
		return -EINVAL;
	d = aligned_alloc(64,
			  (sizeof(*d) + 63) & ~63UL); /* a box lies on a cache line of its own */
	if (!d)
		return -ENOMEM;
	memset(d, 0, sizeof(*d));
	d->neus = attr->eus ? attr->eus : EUS_DEFAULT;
	d->slice = attr->slice ? attr->slice : SLICE_DEFAULT;
	d->spin_us = attr->spin_us == UINT_MAX || cpus < 2 ? 0
		     : attr->spin_us                       ? attr->spin_us
							   : SPIN_DEFAULT;
	d->poll = attr->poll;
	d->poll_arg = attr->poll_arg;
	d->deterministic = attr->deterministic;
	d->rng = attr->seed;
	if (read_seed(d)) {
		free(d);
		return -EINVAL;
	}
	d->rng = d->rng * 2 + 0x9e3779b97f4a7c15ULL; /* any seed, 0 included, starts somewhere */
	d->host_threads = attr->host_threads ? attr->host_threads
					     : (unsigned int)(cpus < 1   ? 1
							      : cpus > 4 ? 4
									 : cpus);
	if (d->host_threads > sizeof(d->workers) / sizeof(d->workers[0]))
		d->host_threads = sizeof(d->workers) / sizeof(d->workers[0]);
	if (d->deterministic)
		d->host_threads = 1;
	d->eus = calloc(d->neus, sizeof(*d->eus));
	if (!d->eus) {
		free(d);
		return -ENOMEM;
	}
	atomic_store_explicit(&d->pool_size, d->neus, memory_order_relaxed);
	vb_ticks_begin();
	pthread_mutex_init(&d->lock, NULL);
	pthread_mutex_init(&d->turn, NULL);
	*dpa = d;
	return 0;
}

/* The lower half of the box tells BOX_SLEEPING from all others: threads lie on cache lines. */
static uint32_t *box_futex(struct worker *w)
{
	return (uint32_t *)&w->box + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 1 : 0);
}

/* ---- boxes ---- */

static bool box_put(struct worker *w, enum box from, uintptr_t value)
{
	uintptr_t expected = from;

	/* Release: what the starter wrote into the thread. Pairs with box_take. */
	if (atomic_load_explicit(&w->box, memory_order_relaxed) != from ||
	    !atomic_compare_exchange_strong_explicit(&w->box, &expected, value,
						     memory_order_seq_cst, memory_order_relaxed))
		return false;
	if (from == BOX_SLEEPING)
		vb_futex_wake(box_futex(w), 1, VB_FUTEX_PRIVATE);
	return true;
}

/* Into some open box; those that still spin come first. False: all are busy. */
static bool box_post(struct vb_dpa *dpa, unsigned int first, uintptr_t value)
{
	unsigned int n = atomic_load_explicit(&dpa->nworkers, memory_order_acquire);

	if (first < n && box_put(&dpa->workers[first], BOX_SPINNING, value))
		return true;
	for (unsigned int i = 0; i < n; i++)
		if (box_put(&dpa->workers[i], BOX_SPINNING, value))
			return true;
	for (unsigned int i = 0; i < n; i++)
		if (box_put(&dpa->workers[i], BOX_SLEEPING, value))
			return true;
	return false;
}

void vb_sched_poke(struct vb_dpa *dpa)
{
	for (unsigned int i = 0; i < atomic_load(&dpa->nworkers); i++)
		if (!box_put(&dpa->workers[i], BOX_SPINNING, BOX_POKED))
			box_put(&dpa->workers[i], BOX_SLEEPING, BOX_POKED);
}

int vb_dpa_destroy(struct vb_dpa *dpa)
{
	pthread_mutex_lock(&dpa->lock);
	if (dpa->nprocesses) {
		pthread_mutex_unlock(&dpa->lock);
		return -EBUSY;
	}
	dpa->quit = true;
	pthread_mutex_unlock(&dpa->lock);
	vb_sched_poke(dpa);
	for (unsigned int i = 0; i < atomic_load(&dpa->nworkers); i++)
		pthread_join(dpa->workers[i].thread, NULL);
	pthread_mutex_destroy(&dpa->lock);
	pthread_mutex_destroy(&dpa->turn);
	free(dpa->pool);
	free(dpa->eus);
	free(dpa);
	return 0;
}

unsigned int vb_dpa_eu_count(const struct vb_dpa *dpa)
{
	return dpa->neus;
}

int vb_dpa_set_pool(struct vb_dpa *dpa, const unsigned int *eus, unsigned int n)
{
	unsigned int *copy, *old;

	if (!n || n > dpa->neus)
		return -EINVAL;
	for (unsigned int i = 0; i < n; i++)
		if (eus[i] >= dpa->neus)
			return -EINVAL;
	copy = malloc(n * sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	memcpy(copy, eus, n * sizeof(*copy));
	pthread_mutex_lock(&dpa->lock);
	old = dpa->pool;
	dpa->pool = copy;
	atomic_store_explicit(&dpa->pool_size, n, memory_order_relaxed);
	pthread_mutex_unlock(&dpa->lock);
	free(old);
	return 0;
}

unsigned int vb_dpa_pool_size(const struct vb_dpa *dpa)
{
	return atomic_load_explicit(&dpa->pool_size, memory_order_relaxed);
}

unsigned int vb_dpa_eus_busy(const struct vb_dpa *dpa)
{
	return atomic_load_explicit(&dpa->busy_eus, memory_order_relaxed);
}

void vb_dpa_show_eus(struct vb_dpa *dpa, _Atomic uint64_t *busy)
{
	dpa->shown_busy = busy;
}

bool vb_dpa_deterministic(const struct vb_dpa *dpa)
{
	return dpa->deterministic;
}

int vb_dpa_eu_counters(struct vb_dpa *dpa, unsigned int eu, struct vb_dpa_eu_counters *out)
{
	if (eu >= dpa->neus)
		return -EINVAL;
	pthread_mutex_lock(&dpa->lock);
	*out = (struct vb_dpa_eu_counters){
		.slices = dpa->eus[eu].slices,
		.instructions = dpa->eus[eu].instructions,
		.busy_ns = vb_ticks_to_ns(dpa->eus[eu].busy_ticks),
	};
	pthread_mutex_unlock(&dpa->lock);
	return 0;
}

/* ---- queues, under dpa.lock ---- */

/* A thread is on the EU (1) or left it (-1). */
static void eu_load(struct vb_dpa *dpa, struct eu *eu, int change)
{
	unsigned int before = eu->load, busy;

	eu->load += (unsigned int)change;
	busy = atomic_load_explicit(&dpa->busy_eus, memory_order_relaxed);
	if (!before != !eu->load)
		atomic_store_explicit(&dpa->busy_eus, eu->load ? busy + 1 : busy - 1,
				      memory_order_relaxed);
}

static void eu_push(struct eu *eu, struct vb_dpa_thread *thread)
{
	thread->run_next = NULL;
	if (eu->tail)
		eu->tail->run_next = thread;
	else
		eu->head = thread;
	eu->tail = thread;
}

static struct vb_dpa_thread *eu_pop(struct eu *eu)
{
	struct vb_dpa_thread *thread = eu->head;

	eu->head = thread->run_next;
	if (!eu->head)
		eu->tail = NULL;
	return thread;
}

/* Into the list of EUs that have something to do, unless it is there or a host thread is on it. */
static void list_push(struct vb_dpa *dpa, struct eu *eu)
{
	if (eu->queued || eu->busy || !eu->head || eu->slow == UINT_MAX)
		return;
	eu->queued = true;
	eu->next = NULL;
	if (dpa->ready_tail)
		dpa->ready_tail->next = eu;
	else
		dpa->ready_head = eu;
	dpa->ready_tail = eu;
	dpa->nready++;
}

static struct eu *list_take(struct vb_dpa *dpa, unsigned int index)
{
	struct eu *before = NULL, *eu = dpa->ready_head;

	for (; index; index--) {
		before = eu;
		eu = eu->next;
	}
	if (before)
		before->next = eu->next;
	else
		dpa->ready_head = eu->next;
	if (dpa->ready_tail == eu)
		dpa->ready_tail = before;
	eu->queued = false;
	dpa->nready--;
	return eu;
}

static uint64_t random_next(struct vb_dpa *dpa)
{
	uint64_t z = dpa->rng += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

/* The EU of a start: of those allowed, an idle one or else the one with the least to do. */
static unsigned int choose_eu(struct vb_dpa_thread *thread)
{
	struct vb_dpa *dpa = thread->process->dpa;
	const unsigned int *allowed = thread->group ? thread->group : dpa->pool; /* NULL: all */
	unsigned int n = thread->group ? thread->group_size : vb_dpa_pool_size(dpa);
	unsigned int first = thread->group ? 0 : dpa->rotor % n;
	unsigned int best = 0, best_at = 0, load = UINT_MAX;

	for (unsigned int i = 0; i < n && load; i++) {
		unsigned int at = (first + i) % n, eu = allowed ? allowed[at] : at;

		if (dpa->eus[eu].load < load) {
			best = eu;
			best_at = at;
			load = dpa->eus[eu].load;
		}
	}
	if (!thread->group)
		dpa->rotor = best_at + 1;
	return best;
}

void vb_sched_ready(struct vb_dpa_thread *thread)
{
	struct vb_dpa *dpa = thread->process->dpa;

	if (atomic_load_explicit(&thread->stop, memory_order_relaxed)) {
		vb_thread_idle(thread, VB_DPA_WHY_STOP);
		return;
	}
	if (vb_debug_holds(thread)) {
		atomic_store_explicit(&thread->state, THREAD_HELD, memory_order_relaxed);
		return;
	}
	thread->eu = choose_eu(thread);
	atomic_store_explicit(&thread->state, THREAD_READY, memory_order_relaxed);
	eu_load(dpa, &dpa->eus[thread->eu], 1);
	eu_push(&dpa->eus[thread->eu], thread);
	list_push(dpa, &dpa->eus[thread->eu]);
}

void vb_sched_hand(struct vb_dpa_thread *thread)
{
	struct vb_dpa *dpa = thread->process->dpa;
	unsigned int last = atomic_load_explicit(&thread->last, memory_order_relaxed);

	vb_note(READY, .name = vb_timeline_name(thread->name), .code = thread->process->number,
		.value = vb_note_run(thread->number, 0));
	if (!dpa->deterministic && !atomic_load_explicit(&dpa->held, memory_order_relaxed) &&
	    box_post(dpa, last, (uintptr_t)thread))
		return;
	pthread_mutex_lock(&dpa->lock);
	vb_sched_ready(thread);
	pthread_mutex_unlock(&dpa->lock);
	box_post(dpa, last, BOX_POKED);
}

void vb_sched_remove(struct vb_dpa_thread *thread)
{
	struct vb_dpa *dpa = thread->process->dpa;
	struct eu *eu = &dpa->eus[thread->eu];
	struct vb_dpa_thread *before = NULL, *t = eu->head;
	unsigned int index = 0;

	for (; t != thread; t = t->run_next)
		before = t;
	if (before)
		before->run_next = thread->run_next;
	else
		eu->head = thread->run_next;
	if (eu->tail == thread)
		eu->tail = before;
	eu_load(dpa, eu, -1);
	if (eu->head || !eu->queued)
		return;
	for (struct eu *e = dpa->ready_head; e != eu; e = e->next)
		index++;
	list_take(dpa, index);
}

void vb_dpa_hold(struct vb_dpa *dpa, bool hold)
{
	pthread_mutex_lock(&dpa->lock);
	atomic_store_explicit(&dpa->held, hold, memory_order_relaxed);
	pthread_mutex_unlock(&dpa->lock);
	vb_sched_poke(dpa);
}

/* ---- host threads ---- */

static void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#else
	__asm__ volatile("" ::: "memory");
#endif
}

/*
 * Close the box, and queue the thread that somebody put into it. Called and returns with dpa.lock.
 */
static void box_take(struct worker *w)
{
	uintptr_t value = atomic_exchange_explicit(&w->box, BOX_BUSY, memory_order_acquire);

	if (value > BOX_POKED)
		vb_sched_ready((struct vb_dpa_thread *)value);
}

/* Until the box is filled, or the spinning has lasted long enough. */
static bool box_spin(struct worker *w)
{
	uint64_t until = vb_machine_ns() + w->dpa->spin_us * 1000ULL;

	do {
		for (unsigned int i = 0; i < 64; i++) {
			if (atomic_load_explicit(&w->box, memory_order_relaxed) != BOX_SPINNING)
				return true;
			cpu_relax();
		}
		if (w->dpa->poll)
			w->dpa->poll(w->dpa->poll_arg);
	} while (vb_machine_ns() < until);
	return false;
}

/* Wait for work with an open box. Called and returns with dpa.lock held. */
static void worker_idle(struct worker *w)
{
	uintptr_t spinning = BOX_SPINNING, value;

	atomic_store_explicit(&w->box, BOX_SPINNING, memory_order_seq_cst);
	pthread_mutex_unlock(&w->dpa->lock);
	if (!w->dpa->spin_us || !box_spin(w)) {
		if (atomic_compare_exchange_strong(&w->box, &spinning, BOX_SLEEPING))
			while (atomic_load_explicit(&w->box, memory_order_relaxed) == BOX_SLEEPING)
				vb_futex_wait_until(vb_time_card(), box_futex(w), BOX_SLEEPING,
						    VB_FUTEX_PRIVATE, VB_NEVER);
	}
	/* The line that the starter wrote, while we take the lock. */
	value = atomic_load_explicit(&w->box, memory_order_relaxed);
	if (value > BOX_POKED)
		__builtin_prefetch(&((struct vb_dpa_thread *)value)->state, 1);
	pthread_mutex_lock(&w->dpa->lock);
	box_take(w);
}

/* Where a slice's end leads. Returns true if the done callback is due. */
static bool after_slice(struct vb_dpa_thread *thread, enum vb_dpa_why why)
{
	struct vb_dpa *dpa = thread->process->dpa;
	struct eu *eu = &dpa->eus[thread->eu];
	bool stop = atomic_load_explicit(&thread->stop, memory_order_relaxed);
	bool held = vb_debug_holds(thread);

	atomic_store_explicit(&thread->cpu.stop, stop || held, memory_order_relaxed);
	if (held)
		vb_debug_out(thread);
	if (why == VB_DPA_WHY_BLOCK && thread->wake) {
		thread->wake = false;
		why = VB_DPA_WHY_BUDGET;
	}
	if (why == VB_DPA_WHY_BUDGET || why == VB_DPA_WHY_STOP || why == VB_DPA_WHY_BLOCK) {
		if (stop) {
			eu_load(dpa, eu, -1);
			vb_thread_idle(thread, VB_DPA_WHY_STOP);
		} else if (why == VB_DPA_WHY_BLOCK) {
			eu_load(dpa, eu, -1);
			atomic_store_explicit(&thread->state, THREAD_BLOCKED, memory_order_relaxed);
		} else if (held) {
			eu_load(dpa, eu, -1);
			atomic_store_explicit(&thread->state, THREAD_HELD, memory_order_relaxed);
		} else {
			atomic_store_explicit(&thread->state, THREAD_READY, memory_order_relaxed);
			eu_push(eu, thread);
		}
		return false;
	}
	eu_load(dpa, eu, -1);
	thread->finishing += !thread->quiet;
	vb_thread_idle(thread, why);
	return !thread->quiet;
}

int vb_dpa_eu_hamper(struct vb_dpa *dpa, unsigned int eu, unsigned int slow)
{
	if (eu >= dpa->neus)
		return -EINVAL;
	pthread_mutex_lock(&dpa->lock);
	dpa->eus[eu].slow = slow > 1 ? slow : 0;
	dpa->eus[eu].skips = 0;
	if (dpa->eus[eu].slow == UINT_MAX && dpa->eus[eu].queued) {
		unsigned int index = 0;

		for (struct eu *e = dpa->ready_head; e != &dpa->eus[eu]; e = e->next)
			index++;
		list_take(dpa, index);
	}
	list_push(dpa, &dpa->eus[eu]);
	pthread_mutex_unlock(&dpa->lock);
	vb_sched_poke(dpa);
	return 0;
}

/*
 * A slow EU has its turn and lets it pass, as often as it is slower. Where nobody else wants the time,
 * it passes asleep. Called and returns with dpa.lock held.
 */
static bool passes(struct vb_dpa *dpa, struct eu *eu)
{
	uint64_t ns = eu->last_ns < SKIP_MAX_NS ? eu->last_ns : SKIP_MAX_NS;

	if (!eu->slow || !eu->skips)
		return false;
	eu->skips--;
	list_push(dpa, eu);
	if (dpa->nready == 1) {
		/* Meanwhile another host thread may run it. */
		pthread_mutex_unlock(&dpa->lock);
		vb_sleep_ns(ns);
		pthread_mutex_lock(&dpa->lock);
	}
	return true;
}

static void count_slice(struct eu *eu, struct vb_dpa_thread *thread, uint64_t instret,
			uint64_t busy)
{
	eu->slices++;
	eu->instructions += thread->cpu.s.instret - instret;
	eu->busy_ticks += thread->busy_ticks - busy;
	if (__builtin_expect(eu->slow, 0)) {
		eu->skips = eu->slow - 1;
		eu->last_ns = vb_ticks_to_ns(thread->busy_ticks - busy);
	}
}

/* One slice of one thread. Called and returns with dpa.lock held. */
static void worker_slice(struct worker *w, struct eu *eu)
{
	struct vb_dpa *dpa = w->dpa;
	struct vb_dpa_thread *thread = eu_pop(eu);
	uint64_t slice = dpa->deterministic ? 1 + random_next(dpa) % SLICE_RANDOM : dpa->slice;
	uint64_t instret = thread->cpu.s.instret, busy = thread->busy_ticks;
	enum vb_dpa_why why;
	bool yielded, done;

	eu->busy = true;
	atomic_store_explicit(&thread->state, THREAD_RUNNING, memory_order_relaxed);
	if (atomic_load_explicit(&thread->last, memory_order_relaxed) != w->index)
		atomic_store_explicit(&thread->last, w->index, memory_order_relaxed);
	pthread_mutex_unlock(&dpa->lock);
	if (dpa->deterministic)
		pthread_mutex_lock(&dpa->turn);
	/* Only a replay depends on where a slice ends. */
	why = vb_thread_run_slice(thread, slice, dpa->deterministic, &yielded);
	if (dpa->deterministic) {
		dpa->retired += thread->cpu.s.instret - instret;
		pthread_mutex_unlock(&dpa->turn);
	}
	pthread_mutex_lock(&dpa->lock);
	eu->busy = false;
	count_slice(eu, thread, instret, busy);
	if (dpa->shown_busy)
		atomic_store_explicit(&dpa->shown_busy[eu - dpa->eus], eu->busy_ticks,
				      memory_order_relaxed);
	done = after_slice(thread, why);
	list_push(dpa, eu);
	if (done) {
		pthread_mutex_unlock(&dpa->lock);
		vb_thread_done(thread, why);
		pthread_mutex_lock(&dpa->lock);
	}
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct vb_dpa *dpa = w->dpa;
	struct eu *eu;

	prctl(PR_SET_NAME, "dpa-eu");
	pthread_mutex_lock(&dpa->lock);
	while (!dpa->quit) {
		if (!dpa->nready || atomic_load_explicit(&dpa->held, memory_order_relaxed)) {
			worker_idle(w);
			continue;
		}
		/* There is more to do than one can: pass the wake on. */
		if (dpa->nready > 1)
			box_post(dpa, UINT_MAX, BOX_POKED);
		eu = list_take(dpa, dpa->deterministic
					    ? (unsigned int)(random_next(dpa) % dpa->nready)
					    : 0);
		if (!passes(dpa, eu))
			worker_slice(w, eu);
	}
	pthread_mutex_unlock(&dpa->lock);
	return NULL;
}

int vb_sched_workers(struct vb_dpa *dpa)
{
	static const struct vb_thread_attr attr = { .stack = 1U << 20, .computes = true };
	int err = 0;

	if (atomic_load_explicit(&dpa->nworkers, memory_order_acquire))
		return 0;
	pthread_mutex_lock(&dpa->lock);
	for (unsigned int i = atomic_load(&dpa->nworkers); i < dpa->host_threads && !err; i++) {
		struct worker *w = &dpa->workers[i];

		w->dpa = dpa;
		w->index = i;
		err = vb_thread_start(&w->thread, &attr, worker_main, w);
		if (!err)
			atomic_store_explicit(&dpa->nworkers, i + 1, memory_order_release);
	}
	/* One is enough to go on. */
	err = atomic_load(&dpa->nworkers) ? 0 : err;
	pthread_mutex_unlock(&dpa->lock);
	return err;
}

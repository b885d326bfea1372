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
 * A host thread with nothing to do spins for a moment and then sleeps in a futex. In deterministic
 * mode there is one host thread, and which EU comes next and for how many instructions is drawn
 * from the seed.
 */
#include "dpa/internal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EUS_DEFAULT   256
#define EUS_MAX       4096
#define SLICE_DEFAULT 100000
#define SPIN_DEFAULT  20
/* Deterministic slices are short and uneven, so that seeds differ in what they interleave. */
#define SLICE_RANDOM 2000

/* ---- create, destroy ---- */

static int read_seed(struct vb_dpa *dpa)
{
	const char *text = getenv("VERBATIM_DPA_SEED");
	char *end;

	if (!text || !*text)
		return 0;
	errno = 0;
	dpa->rng = strtoull(text, &end, 0);
	dpa->deterministic = true;
	return errno || *end ? -EINVAL : 0;
}

int vb_dpa_create(const struct vb_dpa_attr *attr, struct vb_dpa **dpa)
{
	static const struct vb_dpa_attr defaults;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct vb_dpa *d;

	attr = attr ? attr : &defaults;
	if (attr->eus > EUS_MAX)
		return -EINVAL;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->neus = attr->eus ? attr->eus : EUS_DEFAULT;
	d->slice = attr->slice ? attr->slice : SLICE_DEFAULT;
	d->spin_us = attr->spin_us == UINT_MAX || cpus < 2 ? 0
		     : attr->spin_us                       ? attr->spin_us
							   : SPIN_DEFAULT;
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
	pthread_mutex_init(&d->lock, NULL);
	pthread_mutex_init(&d->turn, NULL);
	*dpa = d;
	return 0;
}

static void futex_wait(atomic_uint *word, unsigned int value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int count)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

int vb_dpa_destroy(struct vb_dpa *dpa)
{
	pthread_mutex_lock(&dpa->lock);
	if (dpa->nprocesses) {
		pthread_mutex_unlock(&dpa->lock);
		return -EBUSY;
	}
	dpa->quit = true;
	atomic_fetch_add(&dpa->work, 1);
	pthread_mutex_unlock(&dpa->lock);
	futex_wake(&dpa->work, INT_MAX);
	for (unsigned int i = 0; i < dpa->nworkers; i++)
		pthread_join(dpa->workers[i], NULL);
	pthread_mutex_destroy(&dpa->lock);
	pthread_mutex_destroy(&dpa->turn);
	free(dpa->eus);
	free(dpa);
	return 0;
}

unsigned int vb_dpa_eu_count(const struct vb_dpa *dpa)
{
	return dpa->neus;
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
		.busy_ns = dpa->eus[eu].busy_ns,
	};
	pthread_mutex_unlock(&dpa->lock);
	return 0;
}

/* ---- queues, under dpa.lock ---- */

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
	if (eu->queued || eu->busy || !eu->head)
		return;
	eu->queued = true;
	eu->next = NULL;
	if (dpa->ready_tail)
		dpa->ready_tail->next = eu;
	else
		dpa->ready_head = eu;
	dpa->ready_tail = eu;
	dpa->nready++;
	atomic_fetch_add_explicit(&dpa->work, 1, memory_order_release);
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
	unsigned int n = thread->group ? thread->group_size : dpa->neus, best = 0, load = UINT_MAX;

	for (unsigned int i = 0; i < n && load; i++) {
		unsigned int eu = thread->group ? thread->group[i] : (dpa->rotor + i) % dpa->neus;

		if (dpa->eus[eu].load < load) {
			best = eu;
			load = dpa->eus[eu].load;
		}
	}
	if (!thread->group)
		dpa->rotor = (best + 1) % dpa->neus;
	return best;
}

void vb_sched_ready(struct vb_dpa_thread *thread)
{
	struct vb_dpa *dpa = thread->process->dpa;

	thread->eu = choose_eu(thread);
	thread->state = THREAD_READY;
	dpa->eus[thread->eu].load++;
	eu_push(&dpa->eus[thread->eu], thread);
	list_push(dpa, &dpa->eus[thread->eu]);
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
	eu->load--;
	if (eu->head || !eu->queued)
		return;
	for (struct eu *e = dpa->ready_head; e != eu; e = e->next)
		index++;
	list_take(dpa, index);
}

void vb_sched_kick(struct vb_dpa *dpa)
{
	/* Racy on purpose: a worker that goes to sleep now sees the changed word and comes back by
	 * itself. */
	if (__atomic_load_n(&dpa->sleeping, __ATOMIC_SEQ_CST))
		futex_wake(&dpa->work, 1);
}

void vb_dpa_hold(struct vb_dpa *dpa, bool hold)
{
	pthread_mutex_lock(&dpa->lock);
	dpa->held = hold;
	atomic_fetch_add(&dpa->work, 1);
	pthread_mutex_unlock(&dpa->lock);
	futex_wake(&dpa->work, INT_MAX);
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

/* Until the word changes; dpa.lock is released meanwhile. */
static void worker_idle(struct vb_dpa *dpa)
{
	unsigned int seen = atomic_load_explicit(&dpa->work, memory_order_acquire);
	uint64_t until = vb_dpa_now_ns() + dpa->spin_us * 1000ULL;

	pthread_mutex_unlock(&dpa->lock);
	while (dpa->spin_us && vb_dpa_now_ns() < until) {
		for (unsigned int i = 0; i < 16; i++)
			cpu_relax();
		if (atomic_load_explicit(&dpa->work, memory_order_acquire) != seen) {
			pthread_mutex_lock(&dpa->lock);
			return;
		}
	}
	__atomic_fetch_add(&dpa->sleeping, 1, __ATOMIC_SEQ_CST);
	futex_wait(&dpa->work, seen);
	__atomic_fetch_sub(&dpa->sleeping, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&dpa->lock);
}

/* Where a slice's end leads. Returns true if the done callback is due. */
static bool after_slice(struct vb_dpa_thread *thread, enum vb_dpa_why why)
{
	struct eu *eu = &thread->process->dpa->eus[thread->eu];

	atomic_store_explicit(&thread->cpu.stop, thread->stop, memory_order_relaxed);
	if (why == VB_DPA_WHY_BLOCK && thread->wake) {
		thread->wake = false;
		why = VB_DPA_WHY_BUDGET;
	}
	if (why == VB_DPA_WHY_BUDGET || why == VB_DPA_WHY_STOP || why == VB_DPA_WHY_BLOCK) {
		if (thread->stop) {
			eu->load--;
			vb_thread_idle(thread, VB_DPA_WHY_STOP);
		} else if (why == VB_DPA_WHY_BLOCK) {
			eu->load--;
			thread->state = THREAD_BLOCKED;
		} else {
			thread->state = THREAD_READY;
			eu_push(eu, thread);
		}
		return false;
	}
	eu->load--;
	thread->finishing += !thread->quiet;
	vb_thread_idle(thread, why);
	return !thread->quiet;
}

/* One slice of one thread. Called and returns with dpa.lock held. */
static void worker_slice(struct vb_dpa *dpa)
{
	struct eu *eu = list_take(
		dpa, dpa->deterministic ? (unsigned int)(random_next(dpa) % dpa->nready) : 0);
	struct vb_dpa_thread *thread = eu_pop(eu);
	uint64_t slice = dpa->deterministic ? 1 + random_next(dpa) % SLICE_RANDOM : dpa->slice;
	uint64_t instret = thread->cpu.s.instret, start = vb_dpa_now_ns();
	enum vb_dpa_why why;
	bool yielded, done;

	eu->busy = true;
	thread->state = THREAD_RUNNING;
	pthread_mutex_unlock(&dpa->lock);
	if (dpa->deterministic)
		pthread_mutex_lock(&dpa->turn);
	why = vb_thread_execute(thread, slice, &yielded);
	if (dpa->deterministic)
		pthread_mutex_unlock(&dpa->turn);
	pthread_mutex_lock(&dpa->lock);
	eu->busy = false;
	eu->slices++;
	eu->instructions += thread->cpu.s.instret - instret;
	eu->busy_ns += vb_dpa_now_ns() - start;
	done = after_slice(thread, why);
	list_push(dpa, eu);
	if (done) {
		pthread_mutex_unlock(&dpa->lock);
		vb_thread_done(thread, why);
		pthread_mutex_lock(&dpa->lock);
	}
}

static void *worker(void *arg)
{
	struct vb_dpa *dpa = arg;

	prctl(PR_SET_NAME, "dpa-eu");
	pthread_mutex_lock(&dpa->lock);
	while (!dpa->quit) {
		if (!dpa->nready || dpa->held) {
			worker_idle(dpa);
			continue;
		}
		/* There is more to do than one can: pass the wake on. */
		if (dpa->nready > 1 && __atomic_load_n(&dpa->sleeping, __ATOMIC_RELAXED))
			futex_wake(&dpa->work, 1);
		worker_slice(dpa);
	}
	pthread_mutex_unlock(&dpa->lock);
	return NULL;
}

int vb_sched_workers(struct vb_dpa *dpa)
{
	pthread_attr_t attr;
	sigset_t all, saved;
	int err = 0;

	if (__atomic_load_n(&dpa->nworkers, __ATOMIC_ACQUIRE))
		return 0;
	/* Asynchronous signals are the program's threads' business. */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	sigdelset(&all, SIGTRAP);
	sigdelset(&all, SIGABRT);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 1U << 20);
	pthread_mutex_lock(&dpa->lock);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	for (unsigned int i = dpa->nworkers; i < dpa->host_threads && !err; i++) {
		err = pthread_create(&dpa->workers[i], &attr, worker, dpa);
		if (!err)
			__atomic_store_n(&dpa->nworkers, i + 1, __ATOMIC_RELEASE);
	}
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	/* One is enough to go on. */
	err = dpa->nworkers ? 0 : -err;
	pthread_mutex_unlock(&dpa->lock);
	pthread_attr_destroy(&attr);
	return err;
}

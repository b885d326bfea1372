// SPDX-License-Identifier: MIT
/*
 * Owns snapshots: registers and stacks of threads, each of one moment, while the process goes on.
 *
 *	taker:   thread.snapshot = wanted --> not RUNNING: copy           (all under dpa.lock)
 *	                                  `-> RUNNING: preempt, look again
 *	runner:  about to run, snapshot wanted: copy under dpa.lock, then run
 *
 * A thread that the taker found at rest stays there during the copy: threads of EUs become RUNNING
 * under dpa.lock, and a lent one, which does so without, then looks for a wanted snapshot and waits
 * for the lock.
 */
#include "dpa/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATIENCE_NS 1000000000ULL
#define LOOK_NS     200000

/*
 * Where the stack pointer is in the stack, from there on; below it the thread has run over, and used
 * all of it. Above it there is nothing of ours, and memory is found as it is.
 */
static void copy_stack(struct vb_dpa_thread *thread, struct vb_dpa_snapshot *out)
{
	uint64_t sp = out->state.x[2], base = thread->stack_addr, size = thread->stack_size;
	uint64_t from = sp >= base ? sp - base : 0;

	if (sp >= base + size)
		return;
	out->stack = malloc(size - from);
	if (!out->stack)
		return;
	if (vb_space_read(&thread->process->space, base + from, out->stack, size - from)) {
		free(out->stack);
		out->stack = NULL;
		return;
	}
	out->stack_addr = base + from;
	out->stack_len = size - from;
}

/*
 * Whoever controls an idle thread may be giving it the registers of its next call: then these are
 * of both, and nothing else depends on them.
 */
VB_GUEST_ACCESS static void copy_state(struct vb_dpa_state *to, const struct vb_dpa_state *from)
{
	for (unsigned int i = 0; i < 32; i++)
		to->x[i] = __atomic_load_n(&from->x[i], __ATOMIC_RELAXED);
	to->pc = __atomic_load_n(&from->pc, __ATOMIC_RELAXED);
	to->cause = __atomic_load_n(&from->cause, __ATOMIC_RELAXED);
	to->tval = __atomic_load_n(&from->tval, __ATOMIC_RELAXED);
	to->instret = __atomic_load_n(&from->instret, __ATOMIC_RELAXED);
}

static void copy(struct vb_dpa_thread *thread, struct vb_dpa_snapshot *out)
{
	copy_state(&out->state, &thread->cpu.s);
	copy_stack(thread, out);
	out->taken = true;
}

void vb_dpa_snapshot_self(struct vb_dpa_thread *thread, struct vb_dpa_snapshot *out)
{
	*out = (struct vb_dpa_snapshot){ 0 };
	copy(thread, out);
}

/* Under dpa.lock. */
static void snapshot_answer(struct vb_dpa_thread *thread)
{
	struct vb_dpa_snapshot *wanted =
		atomic_load_explicit(&thread->snapshot, memory_order_relaxed);

	if (!wanted)
		return;
	copy(thread, wanted);
	atomic_store_explicit(&thread->snapshot, NULL, memory_order_relaxed);
}

void vb_snapshot_answer(struct vb_dpa_thread *thread)
{
	struct vb_dpa *dpa = thread->process->dpa;

	pthread_mutex_lock(&dpa->lock);
	snapshot_answer(thread);
	pthread_mutex_unlock(&dpa->lock);
}

/* ---- the taker: visits, under cpus_lock ---- */

struct taking {
	struct vb_dpa_snapshot *list;
	size_t count, room;
	size_t waiting; /* threads that run and have not answered yet */
	uint32_t (*id)(struct vb_dpa_thread *thread);
};

static int count_thread(struct vb_dpa_thread *thread, void *arg)
{
	struct taking *taking = arg;

	(void)thread;
	taking->room++;
	return 0;
}

/* Threads made since they were counted are not in the list. */
static int want(struct vb_dpa_thread *thread, void *arg)
{
	struct vb_dpa *dpa = thread->process->dpa;
	struct taking *taking = arg;

	if (taking->count == taking->room)
		return 1;
	taking->list[taking->count].id =
		taking->id ? taking->id(thread) : vb_dpa_thread_number(thread);
	pthread_mutex_lock(&dpa->lock);
	/* seq_cst: before the load of the state, against vb_thread_run_slice(). */
	atomic_store_explicit(&thread->snapshot, &taking->list[taking->count++],
			      memory_order_seq_cst);
	pthread_mutex_unlock(&dpa->lock);
	return 0;
}

static int snapshot_look(struct vb_dpa_thread *thread, void *arg)
{
	struct vb_dpa *dpa = thread->process->dpa;
	struct taking *taking = arg;

	if (!atomic_load_explicit(&thread->snapshot, memory_order_relaxed))
		return 0;
	pthread_mutex_lock(&dpa->lock);
	if (atomic_load_explicit(&thread->state, memory_order_seq_cst) != THREAD_RUNNING)
		snapshot_answer(thread);
	if (atomic_load_explicit(&thread->snapshot, memory_order_relaxed)) {
		taking->waiting++;
		/* Slices of a replay end where they end; they are short. */
		if (!dpa->deterministic)
			vb_dpa_thread_preempt(thread);
	}
	pthread_mutex_unlock(&dpa->lock);
	return 0;
}

/* It is in a callback: its registers are those of the call. */
static int give_up(struct vb_dpa_thread *thread, void *arg)
{
	struct vb_dpa *dpa = thread->process->dpa;
	struct vb_dpa_snapshot *wanted;

	(void)arg;
	pthread_mutex_lock(&dpa->lock);
	wanted = atomic_load_explicit(&thread->snapshot, memory_order_relaxed);
	if (wanted)
		wanted->late = true;
	snapshot_answer(thread);
	pthread_mutex_unlock(&dpa->lock);
	return 0;
}

/* Threads that ended meanwhile have left nothing. */
static size_t without_gone(struct vb_dpa_snapshot *list, size_t count)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		if (list[i].taken)
			list[n++] = list[i];
	return n;
}

int vb_dpa_snapshots_take(struct vb_dpa_process *process, uint32_t (*id)(struct vb_dpa_thread *),
			  struct vb_dpa_snapshot **list, size_t *count)
{
	uint64_t until = vb_machine_ns() + PATIENCE_NS;
	struct taking taking = { .id = id };

	pthread_mutex_lock(&process->snapshot_lock);
	vb_dpa_threads_each(process, count_thread, &taking);
	taking.list = calloc(taking.room + 1, sizeof(*taking.list));
	if (!taking.list) {
		pthread_mutex_unlock(&process->snapshot_lock);
		return -ENOMEM;
	}
	vb_dpa_threads_each(process, want, &taking);
	for (;;) {
		taking.waiting = 0;
		vb_dpa_threads_each(process, snapshot_look, &taking);
		if (!taking.waiting || vb_machine_ns() >= until)
			break;
		vb_pause_ns(LOOK_NS);
	}
	/* From here on no thread leads to the list. */
	vb_dpa_threads_each(process, give_up, NULL);
	pthread_mutex_unlock(&process->snapshot_lock);
	*list = taking.list;
	*count = without_gone(taking.list, taking.count);
	return 0;
}

void vb_dpa_snapshot_drop(struct vb_dpa_snapshot *snapshot)
{
	free(snapshot->stack);
	snapshot->stack = NULL;
}

void vb_dpa_snapshots_free(struct vb_dpa_snapshot *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		vb_dpa_snapshot_drop(&list[i]);
	free(list);
}

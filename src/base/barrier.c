// SPDX-License-Identifier: MIT
/* Owns the heavy side of barrier.h. */
#include "base/barrier.h"

#include <linux/membarrier.h>
#include <stddef.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/time.h"

enum { SETTLE_NS = 10000000 };

_Atomic bool vb_barrier_available;
static _Atomic bool settled = true; /* all light sides have a fence */

static void (*_Atomic tell_peers)(void); /* NULL: none has been told otherwise */

static bool (*_Atomic forbidden)(void); /* NULL: nothing can be */

void vb_barrier_ask(bool (*is_forbidden)(void))
{
	atomic_store_explicit(&forbidden, is_forbidden, memory_order_release);
}

bool vb_barrier_is_forbidden(void)
{
	bool (*ask)(void) = atomic_load_explicit(&forbidden, memory_order_acquire);

	return ask && ask();
}

/*
 * A store leaves its core within microseconds: after some milliseconds all that was stored before has
 * been seen, and all cores have seen what this thread stored. No architecture promises a time. So this is
 * only for filters that come without notice; where prctl() announces them, membarrier does it while it
 * can (vb_barrier_give_up_calls()).
 */
void vb_barrier_outwait(void)
{
	uint64_t end = vb_machine_ns() + SETTLE_NS;

	atomic_thread_fence(memory_order_seq_cst);
	vb_pause_ns(SETTLE_NS);
	/* A signal may have cut it short, or a filter have forbidden to sleep. */
	while (vb_machine_ns() < end)
		sched_yield();
	atomic_thread_fence(memory_order_seq_cst);
}

bool vb_barrier_register(void (*want_fences)(void))
{
	bool works = !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);

	atomic_store_explicit(&tell_peers, want_fences, memory_order_release);
	atomic_store_explicit(&settled, !works, memory_order_relaxed);
	atomic_store_explicit(&vb_barrier_available, works, memory_order_release);
	return works;
}

/* From now on both sides have a fence; those that had none before may still be at work. */
static void have_fences(void)
{
	void (*want_fences)(void) = atomic_load_explicit(&tell_peers, memory_order_acquire);

	if (want_fences)
		want_fences();
	atomic_store_explicit(&vb_barrier_available, false, memory_order_seq_cst);
}

void vb_barrier_heavy(void)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&settled, memory_order_acquire))
		return;
	if (!vb_barrier_is_forbidden() &&
	    !syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0))
		return;
	have_fences();
	/* Another thread that comes here meanwhile waits, too. */
	vb_barrier_outwait();
	atomic_store_explicit(&settled, true, memory_order_release);
}

void vb_barrier_give_up_calls(void)
{
	if (atomic_load_explicit(&settled, memory_order_acquire))
		return;
	have_fences();
	if (!syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0))
		atomic_store_explicit(&settled, true, memory_order_release);
}

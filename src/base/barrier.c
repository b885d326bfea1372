// SPDX-License-Identifier: MIT
/* Owns the heavy side of barrier.h. */
#include "base/barrier.h"

#include <linux/membarrier.h>
#include <stddef.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"

enum { SETTLE_NS = 10000000 };

_Atomic bool vb_barrier_available;

static _Atomic(_Atomic uint32_t *) wants_fence; /* what peers read; NULL: nobody does */

bool vb_barrier_is_forbidden(void)
{
	return vb_fault_is_closing_in();
}

/*
 * A store leaves its core within microseconds, and every core has a timer: after some milliseconds all
 * that was stored before has been seen, and all cores have seen what this thread stored.
 */
void vb_barrier_settle(void)
{
	uint64_t end = vb_now_ns() + SETTLE_NS;

	atomic_thread_fence(memory_order_seq_cst);
	vb_sleep_ns(SETTLE_NS);
	/* A signal may have cut it short, or a filter have forbidden to sleep. */
	while (vb_clock_replaced == NULL && vb_now_ns() < end)
		sched_yield();
	atomic_thread_fence(memory_order_seq_cst);
}

bool vb_barrier_register(_Atomic uint32_t *wanted)
{
	bool works = !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);

	atomic_store_explicit(wanted, !works, memory_order_relaxed);
	atomic_store_explicit(&wants_fence, wanted, memory_order_relaxed);
	atomic_store_explicit(&vb_barrier_available, works, memory_order_relaxed);
	return works;
}

void vb_barrier_forget(void)
{
	atomic_store_explicit(&wants_fence, NULL, memory_order_relaxed);
}

void vb_barrier_heavy(void)
{
	_Atomic uint32_t *wanted;

	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(&vb_barrier_available, memory_order_relaxed))
		return;
	if (!vb_barrier_is_forbidden() &&
	    !syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0))
		return;
	/* From now on both sides have a fence; those who had none before are waited for. */
	wanted = atomic_load_explicit(&wants_fence, memory_order_relaxed);
	if (wanted)
		atomic_store_explicit(wanted, 1, memory_order_seq_cst);
	atomic_store_explicit(&vb_barrier_available, false, memory_order_seq_cst);
	vb_barrier_settle();
}

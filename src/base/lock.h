/* SPDX-License-Identifier: MIT */
/*
 * The lock of one queue.
 *
 * A queue is nearly always used by one thread at a time, so the uncontended path must be one locked
 * instruction to take and a plain store to release. A holder can be preempted, so a waiter gives
 * its core away after a short spin instead of burning the slice that the holder needs.
 *
 * In a forked child there is none of the parent's other threads, and what one of them had locked
 * nobody unlocks. So a held lock has the mark of its process, which changes in a child: a thread
 * that waits for a lock with an old mark takes it over. What the lock guards may be half changed.
 * It is an object of the parent, on which the child has no effect anyway, or a table that is reset
 * after a fork.
 */
#pragma once

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/public.h"

struct vb_lock {
	_Atomic uint32_t held; /* 0, or the mark of the process whose thread has it */
};

VB_PUBLIC extern uint32_t
	vb_lock_mark; /* not 0; written in a forked child, before it has threads */

#ifdef VB_CHECKS
VB_PUBLIC extern _Thread_local unsigned int vb_locks_held; /* by this thread */
#endif

static inline void vb_cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static inline bool vb_trylock(struct vb_lock *lock)
{
	/*
	 * Pairs with the release store in vb_unlock(). The load first keeps a failing try from
	 * stealing the line.
	 */
	if (atomic_load_explicit(&lock->held, memory_order_relaxed) ||
	    atomic_exchange_explicit(&lock->held, vb_lock_mark, memory_order_acquire))
		return false;
	vb_checked(vb_locks_held++);
	return true;
}

/* After a try that failed: take over what no thread of this process has locked. */
static inline bool vb_lock_inherit(struct vb_lock *lock)
{
	uint32_t mark = atomic_load_explicit(&lock->held, memory_order_relaxed);

	if (!mark || mark == vb_lock_mark ||
	    !atomic_compare_exchange_strong_explicit(&lock->held, &mark, vb_lock_mark,
						     memory_order_acquire, memory_order_relaxed))
		return false;
	vb_checked(vb_locks_held++);
	return true;
}

static inline void vb_lock(struct vb_lock *lock)
{
	for (unsigned int spins = 0; __builtin_expect(!vb_trylock(lock), 0); spins++) {
		if (vb_lock_inherit(lock))
			return;
		if (spins < 64)
			vb_cpu_relax();
		else
			sched_yield();
	}
}

static inline void vb_unlock(struct vb_lock *lock)
{
	vb_checked(vb_locks_held--);
	atomic_store_explicit(&lock->held, 0, memory_order_release);
}

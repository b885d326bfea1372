/* SPDX-License-Identifier: MIT */
/*
 * The lock of one queue.
 *
 * A queue is nearly always used by one thread at a time, so the uncontended path must be one locked instruction to
 * take and a plain store to release. A holder can be preempted, so a waiter gives its core away after a short spin
 * instead of burning the slice that the holder needs.
 */
#pragma once

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct vb_lock {
	_Atomic uint32_t held;
};

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
	/* Pairs with the release store in vb_unlock(). The load first keeps a failing try from stealing the line. */
	return !atomic_load_explicit(&lock->held, memory_order_relaxed) &&
	       !atomic_exchange_explicit(&lock->held, 1, memory_order_acquire);
}

static inline void vb_lock(struct vb_lock *lock)
{
	for (unsigned int spins = 0; __builtin_expect(!vb_trylock(lock), 0); spins++) {
		if (spins < 64)
			vb_cpu_relax();
		else
			sched_yield();
	}
}

static inline void vb_unlock(struct vb_lock *lock)
{
	atomic_store_explicit(&lock->held, 0, memory_order_release);
}

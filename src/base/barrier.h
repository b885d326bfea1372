/* SPDX-License-Identifier: MIT */
/*
 * Asymmetric store-load barrier: a store must be seen before a later load, on a side that does it
 * often (light) and on one that does it rarely (heavy). The main use is a process that sends to one
 * that may fall asleep:
 *
 *	sender:  publish the record; [light]; read the wake word        (millions of times a second)
 *	sleeper: wake word := SLEEP; [heavy]; look at the rings; sleep (when there is nothing to do)
 *
 * With a full barrier on both sides, one of the two sees the other. The sender's would wait for the
 * cache line of the record to arrive, longer than all the rest of a small message. So the sleeper
 * pays for both: membarrier makes every CPU that runs one of our processes pass a full barrier.
 * Where that call is missing on either side, or refused later (a filter), or the sleeper falls asleep after nearly every packet
 * (vb_fabric_unpolled()), the sender uses a real fence: the sleeper asks for it in its segment, or
 * the sender knows of itself that it cannot be reached.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * At start: whether this process can be the heavy side; it must be registered to be reached as the
 * light one. want_fences() has peers use a fence from now on: called where the call is refused later, by any
 * thread, also in a signal handler.
 */
bool vb_barrier_register(void (*want_fences)(void));
void vb_barrier_heavy(void);
/* While membarrier is still allowed: do without it from now on. Allowed in signal handlers. */
void vb_barrier_give_up_calls(void);

/* At start: who knows about the next one. */
void vb_barrier_ask(bool (*is_forbidden)(void));
/* Whether the program is about to forbid system calls, or has done so: membarrier is not called then. */
bool vb_barrier_is_forbidden(void);
/*
 * Once, by the heavy side that was refused the call after light ones went without a fence: wait until
 * all of them are over.
 */
void vb_barrier_outwait(void);

extern _Atomic bool vb_barrier_available;

/* The same between threads of this process. */
static inline void vb_barrier_light_own(void)
{
	if (__builtin_expect(!atomic_load_explicit(&vb_barrier_available, memory_order_relaxed), 0))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
}

/* wants_fence: the heavy side asked for a real one. */
static inline void vb_barrier_light(bool wants_fence)
{
	if (__builtin_expect(wants_fence || !atomic_load_explicit(&vb_barrier_available,
								  memory_order_relaxed),
			     0))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
}

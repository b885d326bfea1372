/* SPDX-License-Identifier: MIT */
/*
 * Where a store must be seen before a later load, by somebody who does it often, against somebody who does it rarely.
 * Mostly a process that sends to one that may fall asleep:
 *
 *	sender: publish the record; [light]; read the wake word        (millions of times a second)
 *	sleeper: wake word := SLEEP; [heavy]; look at the rings; sleep (when there is nothing to do)
 *
 * One of the two sees the other, if both sides have a full barrier. The sender's would wait for the cache line of the
 * record to arrive, longer than all the rest of a small message. So the sleeper pays for both: membarrier makes every
 * CPU that runs one of our processes pass a full barrier. Where one of the two has no such call, the sleeper says so in
 * its segment, or the sender knows it of itself, and the sender uses a real fence. So it does where the sleeper falls
 * asleep after nearly every packet (vb_fabric_unpolled()): interrupting all CPUs each time would cost more than the rest.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "fabric/segment.h"

/* At start: whether this process can be the heavy side; it must be registered to be reached as the light one. */
bool vb_barrier_register(void);
void vb_barrier_heavy(void);

extern bool vb_barrier_available;

/* The same between threads of this process. */
static inline void vb_barrier_light_own(void)
{
	if (__builtin_expect(!vb_barrier_available, 0))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
}

static inline void vb_barrier_light(const struct vb_segment *sleeper)
{
	if (__builtin_expect(atomic_load_explicit(&sleeper->wants_fence, memory_order_relaxed) ||
				     !vb_barrier_available,
			     0))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
}

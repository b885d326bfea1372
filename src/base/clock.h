/* SPDX-License-Identifier: MIT */
/*
 * The clock of card and fabric: monotonic nanoseconds, the same on every CPU and in every process
 * of the host.
 *
 * A test or a simulation may put a clock of its own in the system's place, before the first device
 * is opened. Then all timers, periods and timestamps follow that one. Sleeping is real all the
 * same: whoever moves such a clock forward wakes the background thread (vb_fabric_kick()), which
 * then finds what has become due.
 *
 * The accelerator has clocks of its own (dpa/): the cycle counter that device code reads, and what
 * measures how long the host works for it. Both are about this machine, not about the network.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "base/public.h"

typedef uint64_t vb_clock_source(void);

extern VB_PUBLIC vb_clock_source *_Atomic vb_clock_replaced; /* NULL: the system's clock counts */

static inline uint64_t vb_clock_read(clockid_t id)
{
	vb_clock_source *other = atomic_load_explicit(&vb_clock_replaced, memory_order_relaxed);
	struct timespec ts;

	if (__builtin_expect(other != NULL, 0))
		return other();
	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t vb_now_ns(void)
{
	return vb_clock_read(CLOCK_MONOTONIC);
}

/* Sleep in the middle of the card's work: not a cancellation point. A signal may cut it short. */
void vb_sleep_ns(uint64_t ns);

/* A few milliseconds behind, at a quarter of the price. */
static inline uint64_t vb_now_coarse_ns(void)
{
	return vb_clock_read(CLOCK_MONOTONIC_COARSE);
}

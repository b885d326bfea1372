// SPDX-License-Identifier: MIT
/*
 * Owns the clock behind the busy counters. A slice may last a hundred instructions, and two
 * readings of the system's clock would cost more than it: ticks are the processor's own where it
 * has them, counted as they come and turned into nanoseconds when somebody asks.
 */
#include "dpa/internal.h"

#include <time.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t first_ticks, first_ns;

uint64_t vb_dpa_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static void begin(void)
{
	first_ns = vb_dpa_now_ns();
	first_ticks = vb_dpa_ticks();
}

void vb_dpa_ticks_begin(void)
{
	pthread_once(&once, begin);
}

/* At the rate seen since the first accelerator was made: exact enough soon after, and free. */
uint64_t vb_dpa_ticks_to_ns(uint64_t ticks)
{
	uint64_t ns = vb_dpa_now_ns() - first_ns, passed = vb_dpa_ticks() - first_ticks;

	return passed ? (uint64_t)((double)ticks * (double)ns / (double)passed) : 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * The clocks of what is shown: ticks of the processor where it has a counter that all programs of
 * the host see alike, nanoseconds elsewhere. Cheap enough for every slice of device code.
 */
#pragma once

#include <stdint.h>
#include <time.h>

static inline uint64_t vb_monitor_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static inline uint64_t vb_monitor_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return vb_monitor_now_ns();
#endif
}

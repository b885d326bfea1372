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

/*
 * One moment in both clocks. Who loses the processor between two looks has two moments: the shortest
 * of some tries counts, and one that is short enough ends them.
 */
static inline void vb_monitor_moment(uint64_t *ticks, uint64_t *ns)
{
	uint64_t best = UINT64_MAX;

	*ticks = *ns = 0;
	for (int i = 0; i < 16 && best > 2000; i++) {
		uint64_t before = vb_monitor_now_ns(), at = vb_monitor_ticks();
		uint64_t took = vb_monitor_now_ns() - before;

		if (took >= best)
			continue;
		best = took;
		*ticks = at;
		*ns = before + took / 2;
	}
}

/* SPDX-License-Identifier: MIT */
/* The one clock of the project: monotonic nanoseconds, the same on every CPU and in every process of the host. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline uint64_t vb_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

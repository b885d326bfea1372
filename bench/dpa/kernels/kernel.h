/* SPDX-License-Identifier: MIT */
/* One kernel per file; each returns a checksum that must be the same on every engine. */
#ifndef BENCH_KERNEL_H
#define BENCH_KERNEL_H

#include <stdint.h>

uint64_t kernel(uint64_t rounds);

/* The same numbers everywhere. */
static inline uint64_t kernel_random(uint64_t *s)
{
	uint64_t z = *s += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	return z ^ (z >> 27);
}

#endif

// SPDX-License-Identifier: MIT
/* Copies of 64 bytes to 4 KiB, word by word as a device program's own copy loop does it. */
#include <stddef.h>

#include "kernel.h"

static uint64_t from[512 + 8], to[512 + 8];

static __attribute__((noinline)) void copy(uint64_t *restrict d, const uint64_t *restrict s,
					   size_t words)
{
	for (; words >= 4; words -= 4, d += 4, s += 4) {
		uint64_t a = s[0], b = s[1], c = s[2], e = s[3];

		d[0] = a;
		d[1] = b;
		d[2] = c;
		d[3] = e;
	}
	while (words--)
		*d++ = *s++;
}

uint64_t kernel(uint64_t rounds)
{
	uint64_t seed = 3, sum = 0;

	for (unsigned i = 0; i < 512 + 8; i++)
		from[i] = kernel_random(&seed);
	while (rounds--) {
		for (unsigned words = 8; words <= 512; words *= 2)
			copy(to + (rounds & 7), from + (rounds >> 3 & 7), words);
		sum = sum * 3 + to[rounds & 255];
		from[rounds & 511] ^= sum;
	}
	return sum;
}

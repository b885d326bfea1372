// SPDX-License-Identifier: MIT
/* Branches that depend on data: Collatz lengths, a decision tree, binary search, insertion sort. */
#include "kernel.h"

static uint32_t table[256];

static unsigned collatz(uint64_t n)
{
	unsigned steps = 0;

	while (n != 1) {
		if (n & 1)
			n = 3 * n + 1;
		else
			n >>= 1;
		steps++;
	}
	return steps;
}

static unsigned classify(uint64_t v)
{
	unsigned r = 0;

	if ((v & 0xff) < 100)
		r += (v & 0x100) ? 1 : (v & 0x600) == 0x200 ? 5 : 9;
	else if ((v & 0xff) < 180)
		r += (v >> 11 & 7) > 4 ? 13 : 2;
	if (v >> 40 & 1)
		r ^= 0x20;
	if ((v >> 20 & 0xff) > (v >> 30 & 0xff))
		r += 64;
	return r;
}

static unsigned search(uint32_t v)
{
	unsigned lo = 0, hi = 256;

	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;

		if (table[mid] < v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void insertion(uint32_t *v, unsigned n)
{
	for (unsigned i = 1; i < n; i++) {
		uint32_t x = v[i];
		unsigned k = i;

		for (; k && v[k - 1] > x; k--)
			v[k] = v[k - 1];
		v[k] = x;
	}
}

uint64_t kernel(uint64_t rounds)
{
	uint64_t seed = 11, sum = 0;

	for (unsigned i = 0; i < 256; i++)
		table[i] = (uint32_t)kernel_random(&seed);
	insertion(table, 256);
	while (rounds--) {
		uint32_t v[24];

		sum += collatz(rounds % 5000 + 1);
		for (unsigned i = 0; i < 24; i++) {
			uint64_t x = kernel_random(&seed);

			v[i] = (uint32_t)x;
			sum += classify(x) + search((uint32_t)(x >> 32));
		}
		insertion(v, 24);
		sum = sum * 3 + v[7];
	}
	return sum;
}

// SPDX-License-Identifier: MIT
/* Calls that nest: Fibonacci, Takeuchi, permutations by exchange, a depth-first walk. */
#include "kernel.h"

static __attribute__((noinline)) unsigned fib(unsigned n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static __attribute__((noinline)) int tak(int x, int y, int z)
{
	return y >= x ? z : tak(tak(x - 1, y, z), tak(y - 1, z, x), tak(z - 1, x, y));
}

static __attribute__((noinline)) uint64_t permute(uint8_t *v, unsigned n)
{
	uint64_t sum = 0;

	if (n < 2)
		return (uint64_t)v[0] * 3 + v[1];
	for (unsigned i = 0; i < n; i++) {
		uint8_t t = v[i];

		v[i] = v[n - 1];
		v[n - 1] = t;
		sum = sum * 5 + permute(v, n - 1);
		v[n - 1] = v[i];
		v[i] = t;
	}
	return sum;
}

static __attribute__((noinline)) uint64_t walk(unsigned depth, uint64_t path)
{
	if (!depth)
		return path ^ path >> 7;
	return walk(depth - 1, path * 2) + (path & 1 ? walk(depth - 1, path * 2 + 1) : depth);
}

uint64_t kernel(uint64_t rounds)
{
	uint8_t v[6] = { 3, 1, 4, 1, 5, 9 };
	uint64_t sum = 0;

	while (rounds--) {
		sum += fib(15 + (rounds & 1));
		sum ^= (uint64_t)tak(9, 6, 3 - (int)(rounds & 1));
		sum = sum * 7 + permute(v, 5 + (rounds & 1));
		sum += walk(12, rounds | 1);
	}
	return sum;
}

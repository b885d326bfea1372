// SPDX-License-Identifier: MIT
/* Wide multiplication: powers modulo a 61-bit prime, and a 256-bit product by columns. */
#include "kernel.h"

static const uint64_t prime = (1ull << 61) - 1;

static uint64_t mulmod(uint64_t a, uint64_t b)
{
	unsigned __int128 v = (unsigned __int128)a * b;
	uint64_t r = ((uint64_t)v & prime) + (uint64_t)(v >> 61);

	return r >= prime ? r - prime : r;
}

static uint64_t power(uint64_t a, uint64_t n)
{
	uint64_t r = 1;

	for (; n; n >>= 1, a = mulmod(a, a))
		if (n & 1)
			r = mulmod(r, a);
	return r;
}

static void product(uint64_t r[8], const uint64_t a[4], const uint64_t b[4])
{
	uint64_t carry;

	for (int i = 0; i < 8; i++)
		r[i] = 0;
	for (int i = 0; i < 4; i++) {
		carry = 0;
		for (int k = 0; k < 4; k++) {
			unsigned __int128 v = (unsigned __int128)a[i] * b[k] + r[i + k] + carry;

			r[i + k] = (uint64_t)v;
			carry = (uint64_t)(v >> 64);
		}
		r[i + 4] = carry;
	}
}

uint64_t kernel(uint64_t rounds)
{
	uint64_t a[4] = { 1, 2, 3, 4 }, b[4] = { ~0ull, 5, 7, 11 }, r[8], sum = 0;

	while (rounds--) {
		sum ^= power(sum + rounds + 2, prime - 2 - (rounds & 0xffff));
		for (int n = 0; n < 10; n++) {
			product(r, a, b);
			for (int i = 0; i < 4; i++) {
				a[i] = r[i] ^ sum;
				b[i] = r[i + 4] + (uint64_t)n;
			}
		}
	}
	return sum ^ a[0] ^ b[3];
}

// SPDX-License-Identifier: MIT
/* SHA-256 (FIPS 180-4) of a growing chain; the constants are computed: fractional parts of roots of primes. */
#include "kernel.h"

static uint32_t k[64], start[8];

static uint32_t ror(uint32_t v, int n)
{
	return v >> n | v << (32 - n);
}

/* 32 bits of the fraction of the square (power 2) or cube root of p, by bisection in integers. */
static uint32_t root_fraction(uint32_t p, int power)
{
	uint64_t lo = 0, hi = 1ull << 38; /* 32 fraction bits below a small integer part */

	while (hi - lo > 1) {
		uint64_t mid = (lo + hi) / 2;
		unsigned __int128 v = (unsigned __int128)mid * mid;
		unsigned __int128 bound = (unsigned __int128)p << 64;

		if (power == 3) { /* mid^3 <= p * 2^96, without overflow: compare v with bound *
				     2^32 / mid */
			unsigned __int128 q = mid ? ((unsigned __int128)p << 96) / mid : 0;

			if (!mid || v <= q)
				lo = mid;
			else
				hi = mid;
		} else if (v <= bound) {
			lo = mid;
		} else {
			hi = mid;
		}
	}
	return (uint32_t)lo;
}

static void constants(void)
{
	int found = 0;

	for (uint32_t p = 2; found < 64; p++) {
		int prime = 1;

		for (uint32_t d = 2; d * d <= p; d++)
			if (p % d == 0)
				prime = 0;
		if (!prime)
			continue;
		if (found < 8)
			start[found] = root_fraction(p, 2);
		k[found++] = root_fraction(p, 3);
	}
}

static void block(uint32_t h[8], const uint8_t *p)
{
	uint32_t w[64], s[8];

	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
		       (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
	for (int i = 16; i < 64; i++) {
		uint32_t x = w[i - 15], y = w[i - 2];

		w[i] = w[i - 16] + w[i - 7] + (ror(x, 7) ^ ror(x, 18) ^ x >> 3) +
		       (ror(y, 17) ^ ror(y, 19) ^ y >> 10);
	}
	for (int i = 0; i < 8; i++)
		s[i] = h[i];
	for (int i = 0; i < 64; i++) {
		uint32_t t1 = s[7] + (ror(s[4], 6) ^ ror(s[4], 11) ^ ror(s[4], 25)) +
			      ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
		uint32_t t2 = (ror(s[0], 2) ^ ror(s[0], 13) ^ ror(s[0], 22)) +
			      ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

		s[7] = s[6], s[6] = s[5], s[5] = s[4], s[4] = s[3] + t1;
		s[3] = s[2], s[2] = s[1], s[1] = s[0], s[0] = t1 + t2;
	}
	for (int i = 0; i < 8; i++)
		h[i] += s[i];
}

uint64_t kernel(uint64_t rounds)
{
	static uint8_t data[64 * 16];
	uint32_t h[8];

	constants();
	for (int i = 0; i < 8; i++)
		h[i] = start[i];
	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7);
	while (rounds--) {
		for (unsigned i = 0; i < sizeof(data); i += 64)
			block(h, data + i);
		data[rounds % sizeof(data)] ^= (uint8_t)h[3];
	}
	return (uint64_t)h[0] << 32 | h[7];
}

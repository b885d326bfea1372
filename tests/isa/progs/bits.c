// SPDX-License-Identifier: MIT
/* Integer arithmetic that compilers turn into M and Zb instructions, over edge values. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

static const uint64_t edge[] = { 0,
				 1,
				 2,
				 3,
				 0x7f,
				 0x80,
				 0xffff,
				 0x7fffffff,
				 0x80000000,
				 0xffffffff,
				 1ull << 32,
				 0x7fffffffffffffff,
				 1ull << 63,
				 ~0ull,
				 0x0123456789abcdef,
				 0xfedcba9876543210 };
enum { EDGES = sizeof(edge) / sizeof(edge[0]) };

static uint64_t hash = 14695981039346656037ull;

static void note(uint64_t v)
{
	hash = (hash ^ v) * 1099511628211ull;
}

static void unary(uint64_t a)
{
	uint32_t w = (uint32_t)a;

	note(a ? (uint64_t)__builtin_clzll(a) : 64);
	note(a ? (uint64_t)__builtin_ctzll(a) : 64);
	note(w ? (uint64_t)__builtin_clz(w) : 32);
	note(w ? (uint64_t)__builtin_ctz(w) : 99); /* not 32: qemu 7.2 gets ctzw of zero wrong */
	note((uint64_t)__builtin_popcountll(a));
	note((uint64_t)__builtin_popcount(w));
	note(__builtin_bswap64(a));
	note(__builtin_bswap32(w));
	note((uint64_t)(int64_t)(int8_t)a);
	note((uint64_t)(int64_t)(int16_t)a);
	note((uint16_t)a);
	note((uint64_t)__builtin_parityll(a));
	note(a & (a - 1));
	note(a & -a);
}

static void binary(uint64_t a, uint64_t b)
{
	unsigned n = b & 63, m = b & 31;
	uint32_t w = (uint32_t)a, x = (uint32_t)b;

	note(a & ~b);
	note(a | ~b);
	note(~(a ^ b));
	note(a << n | a >> (-n & 63));
	note(w << m | w >> (-m & 31));
	note((int64_t)a < (int64_t)b ? a : b);
	note((int64_t)a > (int64_t)b ? a : b);
	note(a < b ? a : b);
	note(a > b ? a : b);
	note(a + (b << 3));
	note(a + ((uint64_t)x << 2));
	note(a | 1ull << n);
	note(a & ~(1ull << n));
	note(a ^ 1ull << n);
	note(a >> n & 1);
	note((uint64_t)(((unsigned __int128)a * b) >> 64));
	note((uint64_t)(((__int128)(int64_t)a * (int64_t)b) >> 64));
	if (b) {
		note(a / b);
		note(a % b);
		if (b != ~0ull) {
			note((uint64_t)((int64_t)a / (int64_t)b));
			note((uint64_t)((int64_t)a % (int64_t)b));
		}
	}
	if (x && x != ~0u) {
		note(w / x);
		note(w % x);
		note((uint64_t)((int32_t)w / (int32_t)x));
		note((uint64_t)((int32_t)w % (int32_t)x));
	}
	note((uint64_t)(int64_t)(int32_t)(w * x));
	note((uint64_t)(int64_t)((int32_t)w >> m));
}

/* Overflow, saturation, mixed widths in one expression: where an engine would keep a stale upper half. */
static uint64_t mixed(uint64_t a, uint64_t b)
{
	int32_t s = (int32_t)(a + b);
	uint32_t u = (uint32_t)(a - b);
	int64_t wide = (int64_t)s * (int64_t)(int32_t)u;
	uint64_t r = (uint64_t)wide + u;
	uint64_t o;

	if (__builtin_add_overflow(a, b, &o))
		r ^= o;
	if (__builtin_mul_overflow((int32_t)a, (int32_t)b, &s))
		r += (uint32_t)s;
	for (uint32_t i = u | 1; i; i <<= 3)
		r = r * 3 + (i >> 5);
	return r + (uint64_t)(s < 0 ? -(int64_t)s : s);
}

int main(void)
{
	for (unsigned i = 0; i < EDGES; i++) {
		unary(edge[i]);
		for (unsigned k = 0; k < EDGES; k++) {
			binary(edge[i], edge[k]);
			note(mixed(edge[i], edge[k]));
		}
		printf("%016" PRIx64 "\n", hash);
	}
	return (int)(hash & 63);
}

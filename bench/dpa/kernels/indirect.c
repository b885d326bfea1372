// SPDX-License-Identifier: MIT
/* Calls through pointers: handlers of a message type, a comparison callback, a byte-coded machine.
 */
#include "kernel.h"

struct state {
	uint64_t acc, aux;
};

typedef void (*handler)(struct state *, uint64_t);

static void h_add(struct state *s, uint64_t v)
{
	s->acc += v;
}
static void h_xor(struct state *s, uint64_t v)
{
	s->acc ^= v << 3;
}
static void h_mul(struct state *s, uint64_t v)
{
	s->acc *= v | 1;
}
static void h_swap(struct state *s, uint64_t v)
{
	uint64_t t = s->acc;

	s->acc = s->aux + v;
	s->aux = t;
}
static void h_max(struct state *s, uint64_t v)
{
	s->aux = s->aux > v ? s->aux : v;
}
static void h_shift(struct state *s, uint64_t v)
{
	s->aux = s->aux >> (v & 7) ^ s->acc;
}
static void h_dec(struct state *s, uint64_t v)
{
	s->acc -= s->aux & v;
}
static void h_nop(struct state *s, uint64_t v)
{
	(void)s, (void)v;
}

static const handler table[8] = { h_add, h_xor, h_mul, h_swap, h_max, h_shift, h_dec, h_nop };

static int ascending(uint32_t a, uint32_t b)
{
	return a < b;
}
static int by_low_byte(uint32_t a, uint32_t b)
{
	return (a & 255) < (b & 255);
}

static __attribute__((noinline)) uint32_t best(const uint32_t *v, unsigned n,
					       int (*before)(uint32_t, uint32_t))
{
	uint32_t r = v[0];

	for (unsigned i = 1; i < n; i++)
		if (before(v[i], r))
			r = v[i];
	return r;
}

static uint64_t machine(const uint8_t *code, uint64_t a)
{
	static const void *const op[] = { &&done, &&inc, &&twist, &&fold, &&skip };

#define NEXT goto *op[*code++]
	NEXT;
inc:
	a += 0x1234567;
	NEXT;
twist:
	a ^= a << 9;
	NEXT;
fold:
	a ^= a >> 13;
	NEXT;
skip:
	code += a & 1;
	NEXT;
done:
	return a;
}

uint64_t kernel(uint64_t rounds)
{
	static const uint8_t code[] = { 1, 2, 3, 4, 2, 1, 3, 4, 1, 1, 2, 3, 4, 3, 2, 1, 0 };
	volatile unsigned hide = 0; /* or the compiler would call the two comparisons directly */
	int (*const before[2])(uint32_t, uint32_t) = { ascending, by_low_byte };
	struct state s = { 1, 2 };
	uint32_t v[32];
	uint64_t seed = 13;

	while (rounds--) {
		for (unsigned i = 0; i < 32; i++) {
			v[i] = (uint32_t)kernel_random(&seed);
			table[v[i] >> 5 & 7](&s, v[i]);
			table[i & 7](&s, i);
		}
		s.acc += best(v, 32, before[(rounds & 1) ^ hide]);
		s.acc = machine(code, s.acc);
	}
	return s.acc ^ s.aux;
}

// SPDX-License-Identifier: MIT
/*
 * What each computing instruction yields: the `value` column of ops.def as functions.
 *
 * Written for clarity, not speed, and without looking at how the engine does it: bit loops where
 * the engine would use an x86 instruction.
 */
#include "rv.h"

#define W(v) ((u64)(i64)(i32)(u32)(v))

static u64 rv_div(i64 a, i64 b)
{
	if (!b)
		return ~0ull;
	return b == -1 ? -(u64)a : (u64)(a / b);
}

static u64 rv_rem(i64 a, i64 b)
{
	if (!b)
		return (u64)a;
	return b == -1 ? 0 : (u64)(a % b);
}

static u64 rv_rol64(u64 a, u64 n)
{
	for (n &= 63; n; n--)
		a = a << 1 | a >> 63;
	return a;
}

static u32 rv_rol32(u32 a, u64 n)
{
	for (n &= 31; n; n--)
		a = a << 1 | a >> 31;
	return a;
}

static u64 rv_clz(u64 a, unsigned width)
{
	unsigned n = 0;

	while (n < width && !(a >> (width - 1 - n) & 1))
		n++;
	return n;
}

static u64 rv_ctz(u64 a, unsigned width)
{
	unsigned n = 0;

	while (n < width && !(a >> n & 1))
		n++;
	return n;
}

static u64 rv_cpop(u64 a)
{
	unsigned n = 0;

	for (; a; a >>= 1)
		n += a & 1;
	return n;
}

static u64 rv_orcb(u64 a)
{
	u64 v = 0;

	for (unsigned i = 0; i < 64; i += 8)
		if (a >> i & 0xff)
			v |= 0xffull << i;
	return v;
}

static u64 rv_rev8(u64 a)
{
	u64 v = 0;

	for (unsigned i = 0; i < 64; i += 8)
		v = v << 8 | (a >> i & 0xff);
	return v;
}

/* 64 bits of the 127-bit carry-less product, from bit `shift` up. */
static u64 rv_clmul(u64 a, u64 b, unsigned shift)
{
	u128 v = 0;

	for (unsigned i = 0; i < 64; i++)
		if (b >> i & 1)
			v ^= (u128)a << i;
	return (u64)(v >> shift);
}

#define R(name, opcode, f3, f7, value) \
	case OP_##name:                \
		return value;
#define I(name, opcode, f3, value) \
	case OP_##name:            \
		return value;
#define SH(name, opcode, f3, bits, width, value) \
	case OP_##name:                          \
		return value;
#define U1(name, opcode, f3, imm12, value) \
	case OP_##name:                    \
		return value;
#define LD(...)
#define ST(...)
#define BR(...)
#define AM(...)
#define XX(...)
u64 rv_value(enum rv_op op, u64 a, u64 b)
{
	switch (op) {
#include "ops.def"
	default:
		return 0;
	}
}
#undef R
#undef I
#undef SH
#undef U1
#undef BR
#undef AM

#define R(...)
#define I(...)
#define SH(...)
#define U1(...)
#define AM(...)
#define BR(name, f3, condition) \
	case OP_##name:         \
		return condition;
bool rv_taken(enum rv_op op, u64 a, u64 b)
{
	switch (op) {
#include "ops.def"
	default:
		return false;
	}
}
#undef BR
#undef AM

#define BR(...)
#define AM(name, f5, value32, value64) \
	case OP_##name##_w:            \
		return (u32)(value32); \
	case OP_##name##_d:            \
		return value64;
u64 rv_amo(enum rv_op op, u64 a, u64 b)
{
	switch (op) {
#include "ops.def"
	default:
		return 0;
	}
}

u64 rng_value(struct rng *r)
{
	u64 v = rng_next(r);

	switch (rng_below(r, 8)) {
	case 0:
		return v & 1 ? 0 : ~0ull;
	case 1:
		return 1ull << (v & 63);
	case 2:
		return (1ull << (v & 63)) - 1;
	case 3:
		return (u64)(i64)(i32)(v >> 8); /* a sign-extended word */
	case 4:
		return (u64)(i64)(int8_t)(v >> 8);
	case 5:
		return (v & 1 ? 0x7fffffffull : 0x80000000ull) + (v >> 60) - 8;
	default:
		return v;
	}
}

/* SPDX-License-Identifier: MIT */
/* Numbers of the instructions of insns.h, and the arithmetic that takes more than an operator. */
#pragma once

#include <stdint.h>

enum vb_op {
#define INSN(name, format, match, mask, semantics) VB_OP_##name,
#include "dpa/cpu/insns.h"
#undef INSN
	VB_OP_COUNT,
};

static inline uint64_t mulhu(uint64_t a, uint64_t b)
{
	return (uint64_t)((unsigned __int128)a * b >> 64);
}

static inline uint64_t mulh(int64_t a, int64_t b)
{
	return (uint64_t)((__int128)a * b >> 64);
}

static inline uint64_t mulhsu(int64_t a, uint64_t b)
{
	return mulhu((uint64_t)a, b) - (a < 0 ? b : 0);
}

/*
 * Division never traps on RISC-V: by zero gives all ones (remainder: the dividend), overflow gives
 * the dividend.
 */
static inline uint64_t div_s64(int64_t a, int64_t b)
{
	if (!b)
		return ~0ULL;
	return b == -1 ? 0 - (uint64_t)a : (uint64_t)(a / b);
}

static inline uint64_t rem_s64(int64_t a, int64_t b)
{
	if (!b)
		return (uint64_t)a;
	return b == -1 ? 0 : (uint64_t)(a % b);
}

static inline uint32_t div_s32(int32_t a, int32_t b)
{
	return (uint32_t)div_s64(a, b);
}

static inline uint32_t rem_s32(int32_t a, int32_t b)
{
	return (uint32_t)rem_s64(a, b);
}

static inline uint64_t rotl64(uint64_t a, uint64_t n)
{
	return a << (n & 63) | a >> (-n & 63);
}

static inline uint32_t rotl32(uint32_t a, uint32_t n)
{
	return a << (n & 31) | a >> (-n & 31);
}

static inline uint64_t orc_b(uint64_t a)
{
	/*
	 * The low bit of each byte becomes set if any bit of the byte is; then it is spread over
	 * the byte.
	 */
	const uint64_t low7 = 0x7f7f7f7f7f7f7f7fULL;
	uint64_t bit = ((((a & low7) + low7) | a) & ~low7) >> 7;

	return bit * 0xff;
}

static inline uint64_t clmul(uint64_t a, uint64_t b)
{
	uint64_t r = 0;

	for (unsigned int i = 0; i < 64; i++)
		r ^= (b >> i & 1) ? a << i : 0;
	return r;
}

static inline uint64_t clmulh(uint64_t a, uint64_t b)
{
	uint64_t r = 0;

	for (unsigned int i = 1; i < 64; i++)
		r ^= (b >> i & 1) ? a >> (64 - i) : 0;
	return r;
}

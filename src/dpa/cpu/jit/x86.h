/* SPDX-License-Identifier: MIT */
/*
 * An assembler for the x86-64 instructions that the translator uses. Every function appends to a
 * buffer; the caller makes sure that there is room for the code of one guest instruction before it
 * starts one (code_room).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum x86_reg { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 };
#define NOREG (-1)

/* Condition codes, as in the low bits of jcc, setcc, cmovcc. */
enum x86_cc {
	CC_O,
	CC_NO,
	CC_B,
	CC_AE,
	CC_E,
	CC_NE,
	CC_BE,
	CC_A,
	CC_S,
	CC_NS,
	CC_P,
	CC_NP,
	CC_L,
	CC_GE,
	CC_LE,
	CC_G
};

enum x86_flag {
	X_W = 1,  /* 64-bit operands */
	X_16 = 2, /* 16-bit operands */
	X_F3 = 4,
	X_GUEST = 8, /* guest memory */
	X_LOCK = 16,
	X_BREG = 32, /* the reg operand is a byte: sil, dil need a REX prefix */
	X_BRM = 64,  /* and the same for a register as rm operand */
};

struct code {
	uint8_t *start, *at, *end;
	bool too_far;     /* a displacement does not fit: the code must not run */
	uint32_t changed; /* grows with each instruction that may change rax */
};

/* Register or memory operand. */
struct rm {
	int8_t reg;         /* NOREG: memory */
	int8_t base, index; /* NOREG: none */
	uint8_t scale;      /* 0..3 */
	int32_t disp;
};

static inline struct rm rm_reg(int reg)
{
	return (struct rm){ (int8_t)reg, NOREG, NOREG, 0, 0 };
}

static inline struct rm rm_mem(int base, int32_t disp)
{
	return (struct rm){ NOREG, (int8_t)base, NOREG, 0, disp };
}

static inline struct rm rm_index(int base, int index, unsigned int scale, int32_t disp)
{
	return (struct rm){ NOREG, (int8_t)base, (int8_t)index, (uint8_t)scale, disp };
}

static inline uint32_t code_offset(const struct code *c)
{
	return (uint32_t)(c->at - c->start);
}

static inline void put8(struct code *c, unsigned int byte)
{
	*c->at++ = (uint8_t)byte;
}

static inline void put32(struct code *c, uint32_t word)
{
	memcpy(c->at, &word, 4);
	c->at += 4;
}

static inline void put64(struct code *c, uint64_t word)
{
	memcpy(c->at, &word, 8);
	c->at += 8;
}

static inline void put_modrm(struct code *c, int reg, struct rm rm)
{
	unsigned int r = (unsigned int)(reg & 7) << 3;
	unsigned int mod;

	if (rm.reg != NOREG) {
		put8(c, 0xc0 | r | (rm.reg & 7));
		return;
	}
	if (rm.base == NOREG) { /* [index * scale + disp32] or [disp32] */
		put8(c, 4 | r);
		put8(c, (unsigned int)rm.scale << 6 |
				(rm.index == NOREG ? 4U : (unsigned int)(rm.index & 7)) << 3 | 5);
		put32(c, (uint32_t)rm.disp);
		return;
	}
	mod = rm.disp == 0 && (rm.base & 7) != RBP ? 0 : rm.disp == (int8_t)rm.disp ? 1 : 2;
	if (rm.index != NOREG || (rm.base & 7) == RSP) {
		put8(c, mod << 6 | 4 | r);
		put8(c, (unsigned int)rm.scale << 6 |
				(rm.index == NOREG ? 4U : (unsigned int)(rm.index & 7)) << 3 |
				(rm.base & 7));
	} else {
		put8(c, mod << 6 | r | (rm.base & 7));
	}
	if (mod == 1)
		put8(c, (uint8_t)rm.disp);
	else if (mod == 2)
		put32(c, (uint32_t)rm.disp);
}

/* The reg field of these is part of the opcode, and only the rm operand can change. */
static inline bool has_digit(uint32_t opcode)
{
	return (opcode >= 0x80 && opcode <= 0x83) || opcode == 0xc1 || opcode == 0xc6 ||
	       opcode == 0xc7 || opcode == 0xf6 || opcode == 0xf7 || opcode == 0xff ||
	       opcode == 0x0fba || (opcode >= 0x0f90 && opcode <= 0x0f9f);
}

/* May the instruction change rax? In doubt it may: one that only reads it counts as well. */
static inline bool may_change_rax(uint32_t opcode, int reg, struct rm rm)
{
	if (has_digit(opcode))
		return rm.reg == RAX || (opcode == 0xf7 && reg >= 4); /* multiply, divide */
	return reg == RAX || rm.reg == RAX || opcode == 0x0fb1;       /* cmpxchg */
}

/* Any instruction of the legacy encoding; opcode is 1 to 3 bytes, 0x0f included. */
static inline void ins(struct code *c, unsigned int flags, uint32_t opcode, int reg, struct rm rm)
{
	unsigned int rex = (flags & X_W ? 8U : 0) | (reg >= 8 ? 4U : 0);

	c->changed += may_change_rax(opcode, reg, rm);

	if (flags & X_GUEST) { /* the base register is an offset from guest 0 */
		if (rm.base != NOREG)
			rm.index = rm.base;
		rm.base = R14;
	}

	rex |= (rm.reg == NOREG && rm.index >= 8 ? 2U : 0) |
	       ((rm.reg == NOREG ? rm.base : rm.reg) >= 8 ? 1U : 0);
	if (flags & X_LOCK)
		put8(c, 0xf0);
	if (flags & X_16)
		put8(c, 0x66);
	if (flags & X_F3)
		put8(c, 0xf3);
	if (rex || (flags & X_BREG && reg >= 4) || (flags & X_BRM && rm.reg >= 4))
		put8(c, 0x40 | rex);
	if (opcode > 0xffff)
		put8(c, opcode >> 16);
	if (opcode > 0xff)
		put8(c, opcode >> 8 & 0xff);
	put8(c, opcode & 0xff);
	put_modrm(c, reg, rm);
}

/* VEX encoding, for BMI: map 2 = 0f38, 3 = 0f3a; pp 0 none, 1 66, 2 f3, 3 f2. */
static inline void vex(struct code *c, bool wide, unsigned int map, unsigned int pp,
		       unsigned int opcode, int reg, int vvvv, struct rm rm)
{
	int b = rm.reg == NOREG ? rm.base : rm.reg;

	c->changed += reg == RAX;
	put8(c, 0xc4);
	put8(c, (reg >= 8 ? 0U : 0x80) | (rm.reg == NOREG && rm.index >= 8 ? 0U : 0x40) |
			(b >= 8 ? 0U : 0x20) | map);
	put8(c, (wide ? 0x80U : 0) | (unsigned int)(~vvvv & 15) << 3 | pp);
	put8(c, opcode);
	put_modrm(c, reg, rm);
}

/* ---- moves ---- */

static inline void mov_rr(struct code *c, int to, int from)
{
	if (to != from)
		ins(c, X_W, 0x8b, to, rm_reg(from));
}

static inline void mov_load(struct code *c, int to, struct rm from)
{
	ins(c, X_W, 0x8b, to, from);
}

static inline void mov_store(struct code *c, struct rm to, int from)
{
	ins(c, X_W, 0x89, from, to);
}

/* All 64 bits in the instruction, whatever the value. */
static inline void mov_imm64(struct code *c, int to, uint64_t value)
{
	c->changed += to == RAX;
	put8(c, 0x48 | (to >= 8 ? 1U : 0));
	put8(c, 0xb8U + (unsigned int)(to & 7));
	put64(c, value);
}

/* Leaves the flags alone. */
static inline void mov_imm(struct code *c, int to, uint64_t value)
{
	c->changed += to == RAX;
	if (value <= UINT32_MAX) {
		if (to >= 8)
			put8(c, 0x41);
		put8(c, 0xb8U + (unsigned int)(to & 7));
		put32(c, (uint32_t)value);
	} else if (value == (uint64_t)(int64_t)(int32_t)value) {
		ins(c, X_W, 0xc7, 0, rm_reg(to));
		put32(c, (uint32_t)value);
	} else {
		mov_imm64(c, to, value);
	}
}

static inline void movsxd_rr(struct code *c, int to, int from)
{
	ins(c, X_W, 0x63, to, rm_reg(from));
}

static inline void lea(struct code *c, unsigned int flags, int to, struct rm m)
{
	ins(c, flags, 0x8d, to, m);
}

/* ---- arithmetic; the /n of the immediate forms names the operation ---- */

enum x86_alu { ALU_ADD, ALU_OR, ALU_ADC, ALU_SBB, ALU_AND, ALU_SUB, ALU_XOR, ALU_CMP };

/* reg = reg OP rm */
static inline void alu(struct code *c, unsigned int flags, enum x86_alu op, int reg, struct rm rm)
{
	ins(c, flags, (uint32_t)op * 8 + 3, reg, rm);
}

static inline void alu_imm(struct code *c, unsigned int flags, enum x86_alu op, struct rm rm,
			   int32_t imm)
{
	if (imm == (int8_t)imm) {
		ins(c, flags, 0x83, op, rm);
		put8(c, (uint8_t)imm);
	} else {
		ins(c, flags, 0x81, op, rm);
		put32(c, (uint32_t)imm);
	}
}

enum x86_shift { SH_ROL = 0, SH_ROR = 1, SH_SHL = 4, SH_SHR = 5, SH_SAR = 7 };

static inline void shift_imm(struct code *c, unsigned int flags, enum x86_shift op, int reg,
			     unsigned int count)
{
	ins(c, flags, 0xc1, op, rm_reg(reg));
	put8(c, count);
}

/* to = from shifted by count (BMI2: any registers, flags untouched) */
static inline void shift_reg(struct code *c, bool wide, enum x86_shift op, int to, struct rm from,
			     int count)
{
	vex(c, wide, 2, op == SH_SHL ? 1 : op == SH_SAR ? 2 : 3, 0xf7, to, count, from);
}

static inline void test_rr(struct code *c, unsigned int flags, int a, int b)
{
	ins(c, flags, 0x85, a, rm_reg(b));
}

/* rdx = sign of rax, before a signed division */
static inline void sign_extend_rax(struct code *c, bool wide)
{
	if (wide)
		put8(c, 0x48);
	put8(c, 0x99);
}

static inline void bswap(struct code *c, bool wide, int reg)
{
	c->changed += reg == RAX;
	if (wide || reg >= 8)
		put8(c, 0x40U | (wide ? 8U : 0) | (reg >= 8 ? 1U : 0));
	put8(c, 0x0f);
	put8(c, 0xc8U | (unsigned int)(reg & 7));
}

static inline void setcc(struct code *c, enum x86_cc cc, int reg)
{
	ins(c, X_BRM, 0x0f90 + cc, 0, rm_reg(reg));
}

/* Pad to a multiple of `to`, a power of two, with instructions that do nothing. */
static inline void align(struct code *c, unsigned int to)
{
	static const uint8_t nops[8][8] = {
		{ 0x90 },
		{ 0x66, 0x90 },
		{ 0x0f, 0x1f, 0x00 },
		{ 0x0f, 0x1f, 0x40, 0x00 },
		{ 0x0f, 0x1f, 0x44, 0x00, 0x00 },
		{ 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00 },
		{ 0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00 },
		{ 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00 },
	};
	unsigned int room = (0U - code_offset(c)) & (to - 1);

	while (room) {
		unsigned int n = room < 8 ? room : 8;

		memcpy(c->at, nops[n - 1], n);
		c->at += n;
		room -= n;
	}
}

/* ---- control; targets are patched or known offsets into the same buffer ---- */

/* Returns where the 32-bit displacement is, for patch32. */
static inline uint32_t jcc_forward(struct code *c, enum x86_cc cc)
{
	put8(c, 0x0f);
	put8(c, 0x80U + cc);
	put32(c, 0);
	return code_offset(c) - 4;
}

static inline uint32_t jmp_forward(struct code *c)
{
	put8(c, 0xe9);
	put32(c, 0);
	return code_offset(c) - 4;
}

static inline uint32_t call_forward(struct code *c)
{
	put8(c, 0xe8);
	put32(c, 0);
	return code_offset(c) - 4;
}

static inline void patch32(struct code *c, uint32_t where, uint32_t target)
{
	int64_t disp = (int64_t)target - ((int64_t)where + 4);
	int32_t field = (int32_t)disp;

	if (field == disp)
		memcpy(c->start + where, &field, 4);
	else
		c->too_far = true;
}

static inline void jcc_to(struct code *c, enum x86_cc cc, uint32_t target)
{
	int64_t disp = (int64_t)target - (int64_t)code_offset(c) - 2;

	if (disp == (int8_t)disp) {
		put8(c, 0x70U + cc);
		put8(c, (uint8_t)disp);
	} else {
		patch32(c, jcc_forward(c, cc), target);
	}
}

static inline void jmp_to(struct code *c, uint32_t target)
{
	int64_t disp = (int64_t)target - (int64_t)code_offset(c) - 2;

	if (disp == (int8_t)disp) {
		put8(c, 0xeb);
		put8(c, (uint8_t)disp);
	} else {
		patch32(c, jmp_forward(c), target);
	}
}

static inline void call_to(struct code *c, uint32_t target)
{
	patch32(c, call_forward(c), target);
}

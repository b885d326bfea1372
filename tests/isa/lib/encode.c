// SPDX-License-Identifier: MIT
/*
 * From instruction to bits: the 32-bit forms from ops.def, the 16-bit forms by the rules of the C
 * extension.
 */
#include "rv.h"

#include <stdio.h>

#define TEXT(x) #x

const struct rv_info rv_info[OP_COUNT] = {
#define R(name, opcode, f3, f7, v) \
	[OP_##name] = { TEXT(name), FMT_R, opcode | f3 << 12 | (u32)f7 << 25, 0 },
#define I(name, opcode, f3, v) [OP_##name] = { TEXT(name), FMT_I, opcode | f3 << 12, 0 },
#define SH(name, opcode, f3, b, width, v) \
	[OP_##name] = { TEXT(name), FMT_SH, opcode | f3 << 12 | b, width },
#define U1(name, opcode, f3, imm, v) \
	[OP_##name] = { TEXT(name), FMT_U1, opcode | f3 << 12 | (u32)imm << 20, 0 },
#define LD(name, f3, type)  [OP_##name] = { TEXT(name), FMT_LD, 0x03 | f3 << 12, sizeof(type) },
#define ST(name, f3, bytes) [OP_##name] = { TEXT(name), FMT_ST, 0x23 | f3 << 12, bytes },
#define BR(name, f3, c)     [OP_##name] = { TEXT(name), FMT_BR, 0x63 | f3 << 12, 0 },
#define AM(name, f5, v, w)                                                        \
	[OP_##name##_w] = { TEXT(name) ".w", FMT_AM, 0x202f | (u32)f5 << 27, 4 }, \
	[OP_##name##_d] = { TEXT(name) ".d", FMT_AM, 0x302f | (u32)f5 << 27, 8 },
#define XX(name, format, b) [OP_##name] = { TEXT(name), FMT_##format, b, 0 },
#include "ops.def"
};

u32 rv_encode(const struct rv_insn *i)
{
	const struct rv_info *f = &rv_info[i->op];
	u32 imm = (u32)i->imm, rd = (u32)i->rd << 7, rs1 = (u32)i->rs1 << 15,
	    rs2 = (u32)i->rs2 << 20;

	switch (f->format) {
	case FMT_R:
		return f->bits | rd | rs1 | rs2;
	case FMT_AM: /* imm carries aq and rl */
	case FMT_SC:
		return f->bits | rd | rs1 | rs2 | (imm & 3) << 25;
	case FMT_LR:
		return f->bits | rd | rs1 | (imm & 3) << 25;
	case FMT_I:
	case FMT_LD:
	case FMT_JR:
		return f->bits | rd | rs1 | imm << 20;
	case FMT_CSR:
		return f->bits | rd | rs1 | imm << 20;
	case FMT_SH:
		return f->bits | rd | rs1 | (imm & 63) << 20;
	case FMT_U1:
		return f->bits | rd | rs1;
	case FMT_ST:
		return f->bits | rs1 | rs2 | (imm & 31) << 7 | (imm >> 5 & 127) << 25;
	case FMT_BR:
		return f->bits | rs1 | rs2 | (imm >> 11 & 1) << 7 | (imm >> 1 & 15) << 8 |
		       (imm >> 5 & 63) << 25 | (imm >> 12 & 1) << 31;
	case FMT_U:
		return f->bits | rd | (imm & 0xfffff000);
	case FMT_J:
		return f->bits | rd | (imm >> 12 & 255) << 12 | (imm >> 11 & 1) << 20 |
		       (imm >> 1 & 1023) << 21 | (imm >> 20 & 1) << 31;
	case FMT_F:
	case FMT_N:
		return f->bits | (imm & 0xff) << 20; /* fence: predecessor and successor sets */
	}
	return 0;
}

static bool fits(i64 v, unsigned bits)
{
	return v >= -(1ll << (bits - 1)) && v < 1ll << (bits - 1);
}

static bool low(unsigned r) /* one of x8..x15, all that most 16-bit forms can name */
{
	return r >= 8 && r < 16;
}

#define BIT(v, from, to) ((((u64)(v)) >> (from)&1) << (to))
#define RL(r)            (((r)&7u))

/* Register and small-immediate forms of quadrants 1 and 2. */
static u32 compress_addi(const struct rv_insn *i)
{
	u64 v = (u64)i->imm;

	if (i->rd && i->rd == i->rs1 && i->imm && fits(i->imm, 6))
		return (u32)(0x0001 | i->rd << 7 | (v & 31) << 2 | BIT(v, 5, 12));
	if (!i->rd && !i->rs1 && !i->imm)
		return 0x0001;
	if (i->rd && !i->rs1 && fits(i->imm, 6))
		return (u32)(0x4001 | i->rd << 7 | (v & 31) << 2 | BIT(v, 5, 12));
	if (i->rd == 2 && i->rs1 == 2 && i->imm && fits(i->imm, 10) && !(v & 15))
		return (u32)(0x6101 | BIT(v, 9, 12) | BIT(v, 4, 6) | BIT(v, 6, 5) | BIT(v, 7, 3) |
			     BIT(v, 8, 4) | BIT(v, 5, 2));
	if (low(i->rd) && i->rs1 == 2 && i->imm > 0 && i->imm < 1024 && !(v & 3))
		return (u32)((v >> 4 & 3) << 11 | (v >> 6 & 15) << 7 | BIT(v, 2, 6) | BIT(v, 3, 5) |
			     RL(i->rd) << 2);
	return 0;
}

static u32 compress_alu(const struct rv_insn *i)
{
	u64 v = (u64)i->imm;
	u32 sh = (u32)((v & 31) << 2 | BIT(v, 5, 12)), rl = RL(i->rd) << 7, r2 = RL(i->rs2) << 2;
	bool lr = low(i->rd) && i->rd == i->rs1, lrr = lr && low(i->rs2);

	switch (i->op) {
	case OP_addi:
		return compress_addi(i);
	case OP_addiw:
		return i->rd && i->rd == i->rs1 && fits(i->imm, 6) ? 0x2001 | i->rd << 7 | sh : 0;
	case OP_slli:
		return i->rd && i->rd == i->rs1 && v ? 0x0002 | i->rd << 7 | sh : 0;
	case OP_srli:
		return lr && v ? 0x8001 | rl | sh : 0;
	case OP_srai:
		return lr && v ? 0x8401 | rl | sh : 0;
	case OP_andi:
		return lr && fits(i->imm, 6) ? 0x8801 | rl | sh : 0;
	case OP_sub:
		return lrr ? 0x8c01 | rl | r2 : 0;
	case OP_xor:
		return lrr ? 0x8c21 | rl | r2 : 0;
	case OP_or:
		return lrr ? 0x8c41 | rl | r2 : 0;
	case OP_and:
		return lrr ? 0x8c61 | rl | r2 : 0;
	case OP_subw:
		return lrr ? 0x9c01 | rl | r2 : 0;
	case OP_addw:
		return lrr ? 0x9c21 | rl | r2 : 0;
	case OP_lui:
		return i->rd && i->rd != 2 && fits(i->imm, 18) && i->imm >> 12
			       ? (u32)(0x6001 | i->rd << 7 | (v >> 12 & 31) << 2 | BIT(v, 17, 12))
			       : 0;
	case OP_add:
		if (i->rd && i->rs2 && !i->rs1)
			return 0x8002u | i->rd << 7 | i->rs2 << 2;
		return i->rd && i->rs2 && i->rd == i->rs1 ? 0x9002u | i->rd << 7 | i->rs2 << 2 : 0;
	default:
		return 0;
	}
}

static u32 compress_memory(const struct rv_insn *i)
{
	u64 v = (u64)i->imm;
	bool st = i->op == OP_sw || i->op == OP_sd, wide = i->op == OP_ld || i->op == OP_sd;
	unsigned reg = st ? i->rs2 : i->rd;

	if (i->op != OP_lw && i->op != OP_ld && !st)
		return 0;
	if (i->imm < 0 || v & (wide ? 7 : 3))
		return 0;
	if (i->rs1 == 2 && v < (wide ? 512 : 256) && (st || reg)) {
		u32 f = (wide ? 0x6002u : 0x4002u) | (st ? 0x8000u : 0);

		if (st)
			return f |
			       (u32)(wide ? (v >> 3 & 7) << 10 | (v >> 6 & 7) << 7
					  : (v >> 2 & 15) << 9 | (v >> 6 & 3) << 7) |
			       reg << 2;
		return f | reg << 7 |
		       (u32)(BIT(v, 5, 12) | (wide ? (v >> 3 & 3) << 5 | (v >> 6 & 7) << 2
						   : (v >> 2 & 7) << 4 | (v >> 6 & 3) << 2));
	}
	if (!low(i->rs1) || !low(reg) || v >= (wide ? 256 : 128))
		return 0;
	return (wide ? 0x6000u : 0x4000u) | (st ? 0x8000u : 0) | (u32)(v >> 3 & 7) << 10 |
	       RL(i->rs1) << 7 | (u32)(wide ? (v >> 6 & 3) << 5 : BIT(v, 2, 6) | BIT(v, 6, 5)) |
	       RL(reg) << 2;
}

static u32 compress_flow(const struct rv_insn *i)
{
	u64 v = (u64)i->imm;

	switch (i->op) {
	case OP_jal:
		if (i->rd || !fits(i->imm, 12))
			return 0;
		return (u32)(0xa001 | BIT(v, 11, 12) | BIT(v, 4, 11) | (v >> 8 & 3) << 9 |
			     BIT(v, 10, 8) | BIT(v, 6, 7) | BIT(v, 7, 6) | (v >> 1 & 7) << 3 |
			     BIT(v, 5, 2));
	case OP_jalr:
		if (i->imm || !i->rs1 || i->rd > 1)
			return 0;
		return (i->rd ? 0x9002u : 0x8002u) | i->rs1 << 7;
	case OP_beq:
	case OP_bne:
		if (i->rs2 || !low(i->rs1) || !fits(i->imm, 9))
			return 0;
		return (u32)((i->op == OP_beq ? 0xc001 : 0xe001) | BIT(v, 8, 12) |
			     (v >> 3 & 3) << 10 | RL(i->rs1) << 7 | (v >> 6 & 3) << 5 |
			     (v >> 1 & 3) << 3 | BIT(v, 5, 2));
	case OP_ebreak:
		return 0x9002;
	default:
		return 0;
	}
}

uint16_t rv_compress(const struct rv_insn *i)
{
	u32 c = compress_alu(i);

	if (!c)
		c = compress_memory(i);
	if (!c)
		c = compress_flow(i);
	return (uint16_t)c;
}

const char *rv_text(const struct rv_insn *i, char *buf, size_t size)
{
	const struct rv_info *f = &rv_info[i->op];
	const char *c = i->size == 2 ? "c:" : "";

	switch (f->format) {
	case FMT_R:
	case FMT_AM:
	case FMT_SC:
		snprintf(buf, size, "%s%s x%u, x%u, x%u", c, f->name, i->rd, i->rs1, i->rs2);
		break;
	case FMT_ST:
		snprintf(buf, size, "%s%s x%u, %lld(x%u)", c, f->name, i->rs2, (long long)i->imm,
			 i->rs1);
		break;
	case FMT_BR:
		snprintf(buf, size, "%s%s x%u, x%u, %+lld", c, f->name, i->rs1, i->rs2,
			 (long long)i->imm);
		break;
	default:
		snprintf(buf, size, "%s%s x%u, x%u, %lld", c, f->name, i->rd, i->rs1,
			 (long long)i->imm);
		break;
	}
	return buf;
}

// SPDX-License-Identifier: MIT
/*
 * Register and immediate instructions: every operation, every pair of edge values, every way the
 * operand registers can coincide.
 */
#include "insn.h"

/* Where the three registers coincide. */
enum alias { DISTINCT, RD_RS1, RD_RS2, RS1_RS2, ALL, RD_ZERO, RS1_ZERO, RS2_ZERO, ALIASES };

static void one_r(struct insn_suite *s, enum rv_op op, enum alias alias, u64 a, u64 b)
{
	unsigned base = insn_begin(s, a, b, 32), used = 1u << base, rs1, rs2, rd;

	rs1 = alias == RS1_ZERO ? 0 : insn_reg(s, used);
	used |= 1u << rs1;
	rs2 = alias == RS2_ZERO ? 0 : alias == RS1_RS2 || alias == ALL ? rs1 : insn_reg(s, used);
	used |= 1u << rs2;
	rd = alias == RD_ZERO                  ? 0
	     : alias == RD_RS1 || alias == ALL ? rs1
	     : alias == RD_RS2                 ? rs2
					       : insn_reg(s, used);
	rv_emit(&s->p, OP_ld, rs1, base, 0, 0);
	if (rs2 != rs1)
		rv_emit(&s->p, OP_ld, rs2, base, 0, 8);
	rv_emit(&s->p, op, rd, rs1, rs2, 0)->compress = s->turn & 1;
	insn_about(s);
	rv_emit(&s->p, OP_sd, 0, base, rd, 16);
	rv_emit(&s->p, OP_sd, 0, base, rs1, 24); /* a source must keep its value */
}

static void one_i(struct insn_suite *s, enum rv_op op, enum alias alias, u64 a, i64 imm)
{
	unsigned base = insn_begin(s, a, (u64)imm, 32), used = 1u << base, rs1, rd;

	rs1 = alias == RS1_ZERO ? 0 : insn_reg(s, used);
	used |= 1u << rs1;
	rd = alias == RD_ZERO ? 0 : alias == RD_RS1 || alias == ALL ? rs1 : insn_reg(s, used);
	rv_emit(&s->p, OP_ld, rs1, base, 0, 0);
	rv_emit(&s->p, op, rd, rs1, 0, imm)->compress = s->turn & 1;
	insn_about(s);
	rv_emit(&s->p, OP_sd, 0, base, rd, 16);
	rv_emit(&s->p, OP_sd, 0, base, rs1, 24);
}

static void make_r(struct insn_suite *s)
{
	for (int op = 0; op < OP_COUNT; op++) {
		if (rv_info[op].format != FMT_R)
			continue;
		for (unsigned i = 0; i < insn_edges; i++)
			for (unsigned k = 0; k < insn_edges; k++)
				one_r(s, (enum rv_op)op, (enum alias)((i + k) % 3), insn_edge[i],
				      insn_edge[k]);
		for (int alias = RS1_RS2; alias < ALIASES; alias++)
			for (unsigned i = 0; i < insn_edges; i += 2)
				one_r(s, (enum rv_op)op, (enum alias)alias, insn_edge[i],
				      insn_edge[insn_edges - 1 - i]);
	}
}

/* Shift-like amounts beyond the width: only the low bits count. */
static void make_amounts(struct insn_suite *s)
{
	static const enum rv_op op[] = { OP_sll,  OP_srl,  OP_sra,  OP_sllw, OP_srlw,
					 OP_sraw, OP_rol,  OP_ror,  OP_rolw, OP_rorw,
					 OP_bclr, OP_bext, OP_binv, OP_bset };

	for (unsigned n = 0; n < sizeof(op) / sizeof(op[0]); n++)
		for (u64 b = 0; b < 72; b++) {
			one_r(s, op[n], DISTINCT, 0x8123456789abcdefull, b);
			one_r(s, op[n], RD_RS2, 0x7edcba9876543210ull, ~b);
		}
}

static void make_i(struct insn_suite *s)
{
	static const i64 imm[] = {
		0, 1, -1, 2, 7, 31, 32, -32, -33, 255, 1023, 2047, -2047, -2048
	};

	for (int op = 0; op < OP_COUNT; op++) {
		if (rv_info[op].format != FMT_I)
			continue;
		for (unsigned i = 0; i < insn_edges; i++)
			for (unsigned k = 0; k < sizeof(imm) / sizeof(imm[0]); k++)
				one_i(s, (enum rv_op)op, (enum alias)((i + k) % 2), insn_edge[i],
				      imm[k]);
		one_i(s, (enum rv_op)op, RD_ZERO, 5, 3);
		one_i(s, (enum rv_op)op, RS1_ZERO, 5, -1);
		one_i(s, (enum rv_op)op, RS1_ZERO, 5, 2047);
	}
}

static void make_shift(struct insn_suite *s)
{
	for (int op = 0; op < OP_COUNT; op++) {
		if (rv_info[op].format != FMT_SH)
			continue;
		for (unsigned n = 0; n < 1u << rv_info[op].arg; n++)
			for (unsigned i = n % 3; i < insn_edges; i += 3)
				one_i(s, (enum rv_op)op, (enum alias)((i + n) % 2), insn_edge[i],
				      n);
		one_i(s, (enum rv_op)op, RD_ZERO, 5, 3);
		one_i(s, (enum rv_op)op, RS1_ZERO, 5, 3);
	}
}

static void make_unary(struct insn_suite *s)
{
	for (int op = 0; op < OP_COUNT; op++) {
		if (rv_info[op].format != FMT_U1)
			continue;
		for (unsigned i = 0; i < insn_edges; i++)
			one_i(s, (enum rv_op)op, (enum alias)(i % 2), insn_edge[i], 0);
		for (unsigned bit = 0; bit < 64; bit++) {
			one_i(s, (enum rv_op)op, DISTINCT, 1ull << bit, 0);
			one_i(s, (enum rv_op)op, RD_RS1, ~(1ull << bit), 0);
			one_i(s, (enum rv_op)op, RD_RS1, ~0ull << bit, 0);
		}
		one_i(s, (enum rv_op)op, RD_ZERO, 5, 0);
		one_i(s, (enum rv_op)op, RS1_ZERO, 5, 0);
	}
}

static void make_upper(struct insn_suite *s)
{
	static const i64 imm[] = { 0,        0x1000,   0x1f000,    0x20000,      -0x1000,
				   -0x20000, -0x21000, 0x7ffff000, -0x80000000ll };

	for (unsigned n = 0; n < sizeof(imm) / sizeof(imm[0]); n++)
		for (unsigned rep = 0; rep < 4; rep++)
			for (int auipc = 0; auipc < 2; auipc++) {
				unsigned base = insn_begin(s, 0, (u64)imm[n], 24);
				unsigned rd = rep == 3 ? 0 : insn_reg(s, 1u << base);

				rv_emit(&s->p, auipc ? OP_auipc : OP_lui, rd, 0, 0, imm[n])
					->compress = rep & 1;
				insn_about(s);
				rv_emit(&s->p, OP_sd, 0, base, rd, 16);
			}
}

/* A chain of word operations whose upper halves are read only at its end, or only in its middle. */
static void make_word_chains(struct insn_suite *s)
{
	static const enum rv_op word[] = { OP_addw, OP_subw, OP_mulw, OP_sllw,
					   OP_sraw, OP_rolw, OP_divw, OP_remuw };
	static const enum rv_op wide[] = { OP_srl,  OP_sltu,   OP_mulhu, OP_add_uw,
					   OP_divu, OP_clmulr, OP_xnor,  OP_max };

	for (unsigned i = 0; i < insn_edges; i++)
		for (unsigned n = 0; n < 8; n++) {
			unsigned base =
				insn_begin(s, insn_edge[i], insn_edge[(i + 5) % insn_edges], 48);
			unsigned x = insn_reg(s, 1u << base), y = insn_reg(s, 1u << base | 1u << x);
			unsigned z = insn_reg(s, 1u << base | 1u << x | 1u << y);

			rv_emit(&s->p, OP_ld, x, base, 0, 0);
			rv_emit(&s->p, OP_ld, y, base, 0, 8);
			rv_emit(&s->p, word[n], x, x, y, 0);
			rv_emit(&s->p, word[(n + 3) % 8], x, x, y, 0);
			insn_about(s);
			rv_emit(&s->p, wide[n], z, x, y, 0);
			rv_emit(&s->p, word[(n + 5) % 8], y, x, z, 0);
			rv_emit(&s->p, wide[(n + 2) % 8], z, z, y, 0);
			rv_emit(&s->p, OP_sd, 0, base, x, 16);
			rv_emit(&s->p, OP_sd, 0, base, y, 24);
			rv_emit(&s->p, OP_sd, 0, base, z, 32);
		}
}

const struct insn_group insn_computing[] = {
	{ "register-register", make_r },
	{ "amounts beyond the width", make_amounts },
	{ "immediate", make_i },
	{ "shift by immediate", make_shift },
	{ "one operand", make_unary },
	{ "lui and auipc", make_upper },
	{ "chains of word operations", make_word_chains },
	{ NULL, NULL },
};

// SPDX-License-Identifier: MIT
/*
 * Sequences that compilers make and translators like to treat as one: rotates from shifts, bytes
 * put together into words, branches over one instruction, comparisons kept in registers, pairs of
 * multiply or divide, indexed and absolute addresses. Random choice alone seldom makes them; here
 * each comes with small variations that a careless pattern would take for the real thing.
 */
#include "internal.h"

/* dest = src rotated or extended by two shifts; sometimes the amounts do not add up, which makes it
 * something else. */
static void shift_pair(struct gen *g)
{
	static const enum rv_op left[] = { OP_slli, OP_slliw }, right[] = { OP_srli, OP_srliw };
	static const enum rv_op arith[] = { OP_srai, OP_sraiw },
				join[] = { OP_or, OP_xor, OP_add, OP_addw };
	unsigned w = rng_below(&g->r, 2), width = w ? 32 : 64, n = 1 + rng_below(&g->r, width - 1);
	unsigned src = gen_any(g), a = gen_take(g), b = gen_take(g), m = width - n;

	if (rng_chance(&g->r, 15))
		m = 1 + rng_below(&g->r, width - 1);
	switch (rng_below(&g->r, 3)) {
	case 0: /* rotate */
		gen_emit(g, left[w], a, src, 0, n);
		gen_emit(g, right[w], b, src, 0, m);
		gen_emit(g, join[rng_below(&g->r, 4)], gen_dest(g), a, b, 0);
		break;
	case 1: /* zero or sign extension, or a bit field */
		gen_emit(g, left[w], a, src, 0, n);
		gen_emit(g, rng_chance(&g->r, 50) ? right[w] : arith[w],
			 rng_chance(&g->r, 50) ? a : b, a, 0, rng_chance(&g->r, 70) ? n : m);
		break;
	default: /* the usual zero extension of a word */
		gen_emit(g, OP_slli, a, src, 0, 32);
		gen_emit(g, OP_srli, a, a, 0,
			 rng_chance(&g->r, 70) ? 32 : 32 - 1 - rng_below(&g->r, 4));
		break;
	}
	gen_give(g, a);
	gen_give(g, b);
}

/* A word from its bytes, in either order, with a gap or a repeat now and then. */
static void bytes(struct gen *g)
{
	unsigned p = gen_address(g, 24, false), sum = gen_take(g), b = gen_take(g),
		 n = 2 + rng_below(&g->r, 3);
	bool big = rng_chance(&g->r, 50), loads_first = rng_chance(&g->r, 30);

	gen_emit(g, OP_lbu, sum, p, 0, 0);
	if (big)
		gen_emit(g, OP_slli, sum, sum, 0, 8 * (n - 1));
	for (unsigned i = 1; i < n; i++) {
		unsigned shift = big ? 8 * (n - 1 - i) : 8 * i;

		gen_emit(g, rng_chance(&g->r, 90) ? OP_lbu : OP_lb, b, p, 0,
			 rng_chance(&g->r, 90) ? i : 0);
		if (loads_first && i == 1)
			gen_emit(g, OP_sb, 0, p, gen_any(g), n); /* a store in between */
		if (shift)
			gen_emit(g, rng_chance(&g->r, 50) ? OP_slli : OP_slliw, b, b, 0, shift);
		gen_emit(g, OP_or, sum, sum, b, 0);
	}
	gen_emit(g, OP_addi, gen_dest(g), sum, 0, 0);
	gen_give(g, p);
	gen_give(g, sum);
	gen_give(g, b);
}

/* Two bytes of a halfword exchanged by shifts, or a word reversed; and what only looks like it. */
static void swap(struct gen *g)
{
	static const enum rv_op left[] = { OP_slli, OP_slliw }, right[] = { OP_srli, OP_srliw };
	unsigned p = gen_address(g, 24, false), h = gen_take(g), t = gen_take(g), u = gen_take(g);
	unsigned n = rng_chance(&g->r, 85) ? 8 : 1 + rng_below(&g->r, 15), d;
	bool first = rng_chance(&g->r, 50), in_place = rng_chance(&g->r, 40);

	if (rng_chance(&g->r, 30)) {
		d = rng_chance(&g->r, 50) ? h : t;
		gen_emit(g, OP_rev8, d, gen_any(g), 0, 0);
		gen_emit(g, rng_chance(&g->r, 50) ? OP_srli : OP_srai, d,
			 rng_chance(&g->r, 90) ? d : h, 0, rng_chance(&g->r, 80) ? 32 : 31);
		gen_emit(g, OP_add, gen_dest(g), d, gen_any(g), 0);
	} else {
		gen_emit(g, rng_chance(&g->r, 80) ? OP_lhu : OP_lh, h, p, 0, rng_below(&g->r, 8));
		gen_emit(g, first ? left[rng_below(&g->r, 2)] : right[rng_below(&g->r, 2)], t, h, 0,
			 n);
		d = in_place ? h : u;
		gen_emit(g, first ? right[rng_below(&g->r, 2)] : left[rng_below(&g->r, 2)], d, h, 0,
			 8);
		gen_emit(g, rng_chance(&g->r, 90) ? OP_or : OP_add, rng_chance(&g->r, 50) ? d : t,
			 d, t, 0);
		if (rng_chance(&g->r, 80))
			gen_emit(g, OP_zext_h, d, d, 0, 0);
		else
			gen_emit(g, OP_zext_h, t, t, 0, 0);
		gen_emit(g, OP_sub, gen_dest(g), d, t, 0); /* all of them are wanted */
		gen_emit(g, OP_xor, gen_dest(g), h, gen_any(g), 0);
	}
	gen_give(g, p);
	gen_give(g, h);
	gen_give(g, t);
	gen_give(g, u);
}

/* A branch over one or two instructions: what could become a conditional move, and what could not.
 */
static void skip(struct gen *g)
{
	unsigned rs1 = gen_any(g), rs2 = rng_chance(&g->r, 40) ? 0 : gen_any(g), rd = gen_dest(g);
	int over = rv_label(g->p);

	rv_branch(g->p, gen_pick(g, FMT_BR), rs1, rs2, over);
	switch (rng_below(&g->r, 7)) {
	case 0: /* a move, perhaps of a register that the comparison reads */
		gen_emit(g, OP_add, rd, 0, rng_chance(&g->r, 50) ? rs1 : gen_any(g), 0);
		break;
	case 1:
		gen_emit(g, OP_addi, rd, 0, 0, (i64)rng_below(&g->r, 64) - 32);
		break;
	case 2:
		gen_emit(g, gen_pick(g, FMT_R), rd, rng_chance(&g->r, 60) ? rd : gen_any(g),
			 gen_any(g), 0);
		break;
	case 3:
		gen_emit(g, gen_pick(g, FMT_SH), rd, gen_any(g), 0, 1 + rng_below(&g->r, 31));
		break;
	case 4:
		gen_emit(g, rng_chance(&g->r, 50) ? OP_lw : OP_sw, rd, g->base, gen_any(g),
			 4 * rng_below(&g->r, 60));
		break;
	case 5: /* two that could become two choices */
		gen_emit(g, rng_chance(&g->r, 50) ? OP_xor : OP_addw, rd,
			 rng_chance(&g->r, 60) ? rd : gen_any(g), gen_any(g), 0);
		gen_emit(g, rng_chance(&g->r, 50) ? OP_zext_h : OP_addi,
			 rng_chance(&g->r, 50) ? rd : gen_dest(g), rng_chance(&g->r, 60) ? rd : rs1,
			 0, 0);
		break;
	default:
		gen_emit(g, gen_pick(g, FMT_U1), rd, gen_any(g), 0, 0);
		gen_emit(g, OP_xor, gen_dest(g), rd, gen_any(g), 0);
		break;
	}
	rv_place(g->p, over);
}

/* A comparison kept in a register, then branched on, inverted, or used as a mask. */
static void comparison(struct gen *g)
{
	static const enum rv_op op[] = { OP_slt, OP_sltu, OP_slti, OP_sltiu, OP_sub, OP_xor };
	enum rv_op o = op[rng_below(&g->r, 6)];
	unsigned c = gen_take(g);
	int over = rv_label(g->p);

	gen_emit(g, o, c, gen_any(g), rv_info[o].format == FMT_R ? gen_any(g) : 0,
		 rv_info[o].format == FMT_I ? (i64)rng_below(&g->r, 4) - 1 : 0);
	if (rng_chance(&g->r, 30))
		gen_emit(g, rng_chance(&g->r, 50) ? OP_xori : OP_sltiu, c, c, 0, 1);
	if (rng_chance(&g->r, 50)) {
		rv_branch(g->p, rng_chance(&g->r, 50) ? OP_beq : OP_bne, c, 0, over);
		gen_emit(g, OP_addi, gen_dest(g), gen_any(g), 0, 5);
		rv_place(g->p, over);
	} else {
		rv_place(g->p, over);
		gen_emit(g, OP_sub, c, 0, c, 0);
		gen_emit(g, rng_chance(&g->r, 50) ? OP_and : OP_andn, gen_dest(g), gen_any(g), c,
			 0);
	}
	if (rng_chance(&g->r, 50))
		gen_emit(g, OP_add, gen_dest(g), c, gen_any(g),
			 0); /* the register itself is wanted, too */
	gen_give(g, c);
}

/* Two results of the same operands: high and low product, quotient and remainder. */
static void pair(struct gen *g)
{
	static const enum rv_op op[][2] = { { OP_mulh, OP_mul },    { OP_mulhu, OP_mul },
					    { OP_mulhsu, OP_mul },  { OP_div, OP_rem },
					    { OP_divu, OP_remu },   { OP_divw, OP_remw },
					    { OP_divuw, OP_remuw }, { OP_mul, OP_mulhu },
					    { OP_rem, OP_div } };
	unsigned n = rng_below(&g->r, sizeof(op) / sizeof(op[0])), a = gen_any(g), b = gen_any(g);
	unsigned first = gen_dest(g), second = gen_dest(g);

	/* The first result may fall on an operand of the second. */
	gen_emit(g, op[n][0], rng_chance(&g->r, 25) && a && !(g->busy >> a & 1) ? a : first, a, b,
		 0);
	gen_emit(g, op[n][1], second, rng_chance(&g->r, 90) ? a : b, b, 0);
}

/* base + index, a load through it, and the sum used again or not. */
static void indexed(struct gen *g)
{
	static const enum rv_op sum[] = { OP_add, OP_sh1add, OP_add_uw, OP_sh1add_uw };
	enum rv_op load = gen_pick(g, FMT_LD), store = gen_pick(g, FMT_ST);
	unsigned i = gen_take(g), p = rng_chance(&g->r, 50) ? i : gen_take(g);

	gen_emit(g, OP_andi, i, gen_any(g), 0, 0x70);
	gen_emit(g, sum[rng_below(&g->r, 4)], p, i, g->base, 0);
	gen_emit(g, load, gen_dest(g), p, 0, rng_below(&g->r, 8));
	if (rng_chance(&g->r, 50))
		gen_emit(g, store, 0, p, gen_any(g), -(i64)rng_below(&g->r, 100));
	if (rng_chance(&g->r, 50)) { /* walk on */
		gen_emit(g, OP_addi, p, p, 0, 8);
		gen_emit(g, load, gen_dest(g), p, 0, 0);
	}
	gen_give(g, i);
	gen_give(g, p);
}

/* Addresses known when the text is translated. */
static void absolute(struct gen *g)
{
	unsigned p = gen_take(g);
	struct rv_insn *i;

	if (rng_chance(&g->r, 50)) {
		rv_la(g->p, p, g->middle);
		gen_emit(g, gen_pick(g, FMT_ST), 0, p, gen_any(g),
			 (i64)rng_below(&g->r, 200) - 200);
		gen_emit(g, gen_pick(g, FMT_LD), gen_dest(g), p, 0,
			 (i64)rng_below(&g->r, 200) - 200);
	} else { /* auipc, then the low part in the load */
		i = gen_emit(g, OP_auipc, p, 0, 0, 0);
		i->fix = RV_FIX_HI;
		i->label = g->middle;
		i = gen_emit(g, OP_ld, rng_chance(&g->r, 40) ? p : gen_dest(g), p, 0, 0);
		i->fix = RV_FIX_LO;
		i->label = g->middle;
	}
	gen_give(g, p);
}

void gen_idiom(struct gen *g)
{
	static void (*const make[])(struct gen *) = { shift_pair, bytes, skip,    skip,    swap,
						      comparison, pair,  indexed, absolute };

	make[rng_below(&g->r, sizeof(make) / sizeof(make[0]))](g);
}

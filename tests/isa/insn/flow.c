// SPDX-License-Identifier: MIT
/*
 * Branches and jumps: every condition on every pair of edges, both directions, at the ends of their
 * reach; links, computed targets, the cleared low bit.
 */
#include "insn.h"

/* Result 1 where taken, 2 where not. */
static void one_branch(struct insn_suite *s, enum rv_op op, unsigned n, u64 a, u64 b)
{
	unsigned base = insn_begin(s, a, b, 24), rs1 = insn_reg(s, 1u << base);
	unsigned rs2 = n % 7 == 3 ? rs1 : n % 7 == 5 ? 0 : insn_reg(s, 1u << base | 1u << rs1);
	unsigned rd = insn_reg(s, 1u << base | 1u << rs1 | 1u << rs2);
	int yes = rv_label(&s->p), end = rv_label(&s->p), back = rv_label(&s->p);

	rv_emit(&s->p, OP_ld, rs1, base, 0, 0);
	rv_emit(&s->p, OP_ld, rs2, base, 0, 8);
	if (n & 1) { /* backwards: the target is already behind us */
		rv_jump(&s->p, 0, back);
		rv_place(&s->p, yes);
		rv_emit(&s->p, OP_addi, rd, 0, 0, 1);
		rv_jump(&s->p, 0, end);
		rv_place(&s->p, back);
	}
	rv_branch(&s->p, op, rs1, rs2, yes);
	insn_about(s);
	rv_emit(&s->p, OP_addi, rd, 0, 0, 2);
	if (!(n & 1)) {
		rv_jump(&s->p, 0, end);
		rv_place(&s->p, yes);
		rv_emit(&s->p, OP_addi, rd, 0, 0, 1);
	}
	rv_place(&s->p, end);
	rv_emit(&s->p, OP_sd, 0, base, rd, 16);
}

static void make_branches(struct insn_suite *s)
{
	for (int op = 0; op < OP_COUNT; op++)
		if (rv_info[op].format == FMT_BR)
			for (unsigned i = 0; i < insn_edges; i++)
				for (unsigned k = 0; k < insn_edges; k++)
					one_branch(s, (enum rv_op)op, i + 3 * k, insn_edge[i],
						   insn_edge[k]);
}

static void pad(struct insn_suite *s, unsigned bytes)
{
	for (; bytes >= 4; bytes -= 4)
		rv_emit(&s->p, OP_addi, 0, 0, 0, 0)->compress = false;
	if (bytes)
		rv_emit(&s->p, OP_addi, 0, 0, 0, 0);
}

/*
 * Over `bytes` of padding, forwards then back: the longest distances of each form. Layout leaves
 * out what no longer fits a 16-bit form, so both sides of that limit are met.
 */
static void one_far(struct insn_suite *s, enum rv_op op, unsigned bytes)
{
	unsigned base = insn_begin(s, 7, 7, 32), r = 8 + s->turn % 8, link;
	int far = rv_label(&s->p), home = rv_label(&s->p), end = rv_label(&s->p);

	if (base == r)
		r = 8 + (r + 1) % 8;
	link = insn_reg(s, 1u << base | 1u << r);
	if (op == OP_jal)
		rv_jump(&s->p, s->turn & 1 ? link : 0, far);
	else
		rv_branch(&s->p, op, op == OP_bne ? base : 0, 0, far);
	insn_about(s);
	rv_place(&s->p, home);
	rv_emit(&s->p, OP_addi, r, 0, 0, 3);
	rv_emit(&s->p, OP_sd, 0, base, r, 16);
	rv_jump(&s->p, 0, end);
	pad(s, bytes);
	rv_place(&s->p, far);
	rv_emit(&s->p, OP_sd, 0, base, base, 24);
	if (op == OP_jal)
		rv_jump(&s->p, 0, home);
	else
		rv_branch(&s->p, op, op == OP_bne ? base : 0, 0, home);
	rv_place(&s->p, end);
}

static void make_far(struct insn_suite *s)
{
	/* Around the reach of c.beqz, c.j and beq; the code between adds ten to sixteen bytes. */
	static const unsigned distance[] = { 0,    2,    224,  228,  232,  236,  240,  244,
					     248,  252,  256,  2016, 2020, 2024, 2028, 2032,
					     2036, 2040, 2044, 2048, 3900, 4060 };

	for (unsigned n = 0; n < sizeof(distance) / sizeof(distance[0]); n++)
		for (unsigned turn = 0; turn < 4; turn++) {
			one_far(s, OP_beq, distance[n]);
			one_far(s, OP_bne, distance[n]);
			one_far(s, OP_jal, distance[n]);
		}
	one_far(s, OP_jal, 100000);
	one_far(s, OP_jal, 1000000);
}

/* jalr with every kind of link and offset; the record holds the link and where control came out. */
static void one_jalr(struct insn_suite *s, unsigned n, i64 off, bool odd)
{
	static const uint8_t link_of[] = { 0, 1, 5, 31, 10, 2 };
	unsigned base, ptr, link, mark;
	int target = rv_label(&s->p), end = rv_label(&s->p);

	do
		base = insn_begin(s, (u64)off, n, 32);
	while (1u << base & (1u << 1 | 1u << 2 | 1u << 5 | 1u << 10 | 1u << 31));
	ptr = insn_reg(s, 1u << base);
	link = n % 7 == 6 ? ptr : link_of[n % 6];
	mark = insn_reg(s, 1u << base | 1u << ptr | 1u << link);
	rv_la(&s->p, ptr, target);
	if (off == -2048) {
		rv_emit(&s->p, OP_addi, ptr, ptr, 0, 2047);
		rv_emit(&s->p, OP_addi, ptr, ptr, 0, 1);
	} else if (off) {
		rv_emit(&s->p, OP_addi, ptr, ptr, 0, -off);
	}
	if (odd)
		rv_emit(&s->p, OP_addi, ptr, ptr, 0, 1); /* the low bit is ignored */
	rv_emit(&s->p, OP_addi, mark, 0, 0, 9);
	rv_emit(&s->p, OP_jalr, link, ptr, 0, off);
	insn_about(s);
	rv_emit(&s->p, OP_addi, mark, 0, 0, 8);
	rv_jump(&s->p, 0, end);
	pad(s, n % 3 * 2);
	rv_place(&s->p, target);
	rv_emit(&s->p, OP_sd, 0, base, mark, 16);
	rv_emit(&s->p, OP_sd, 0, base, link, 24);
	rv_place(&s->p, end);
}

static void make_jalr(struct insn_suite *s)
{
	static const i64 off[] = { 0, 2, -2, 100, 2046, -2048, -2046 };

	for (unsigned k = 0; k < sizeof(off) / sizeof(off[0]); k++)
		for (unsigned n = 0; n < 21; n++)
			one_jalr(s, n, off[k], n & 1);
}

/* instret reads the instructions before it, wherever in a block it stands. */
static void make_counter(struct insn_suite *s)
{
	for (unsigned n = 0; n < 40; n++) {
		unsigned base = insn_begin(s, n, 0, 40), r = insn_reg(s, 1u << base), q, l;
		int top = rv_label(&s->p);

		q = insn_reg(s, 1u << base | 1u << r);
		l = insn_reg(s, 1u << base | 1u << r | 1u << q);
		rv_emit(&s->p, OP_addi, l, 0, 0, 3);
		rv_place(&s->p, top);
		pad(s, 2 * (n % 11));
		rv_emit(&s->p, OP_csrrs, r, 0, 0, 0xc02);
		insn_about(s);
		rv_emit(&s->p, OP_sd, 0, base, r, 16);
		rv_emit(&s->p, OP_addi, l, l, 0, -1);
		rv_branch(&s->p, OP_bne, l, 0, top);
		rv_emit(&s->p, OP_csrrs, q, 0, 0, 0xc02);
		rv_emit(&s->p, OP_sd, 0, base, q, 24);
	}
}

const struct insn_group insn_flow[] = {
	{ "branches", make_branches },
	{ "distances", make_far },
	{ "computed jumps", make_jalr },
	{ "instret (not qemu)", make_counter },
	{ NULL, NULL },
};

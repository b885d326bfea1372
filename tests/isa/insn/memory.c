// SPDX-License-Identifier: MIT
/*
 * Loads, stores and atomics: every width at every alignment with edge offsets; every atomic with
 * edge values; LR/SC in all the orders that must or must not succeed.
 */
#include "insn.h"

static const i64 offset[] = { 0, 1, 8, -8, 127, 504, 2047, -2048, -1 };
enum { OFFSETS = sizeof(offset) / sizeof(offset[0]) };

static void one_load(struct insn_suite *s, enum rv_op op, unsigned n, u64 v, i64 off)
{
	unsigned base = insn_begin(s, v, v * 0x9e3779b97f4a7c15ull, 32),
		 ptr = insn_reg(s, 1u << base);
	unsigned rd = n % 4 == 1 ? ptr : n % 4 == 2 ? 0 : insn_reg(s, 1u << base | 1u << ptr);

	rv_emit(&s->p, OP_addi, ptr, base, 0, n % 9);
	if (off == -2048) {
		rv_emit(&s->p, OP_addi, ptr, ptr, 0, 2047);
		rv_emit(&s->p, OP_addi, ptr, ptr, 0, 1);
	} else {
		rv_emit(&s->p, OP_addi, ptr, ptr, 0, -off);
	}
	rv_emit(&s->p, op, rd, ptr, 0, off)->compress = n & 1;
	insn_about(s);
	rv_emit(&s->p, OP_sd, 0, base, rd, 16);
}

static void make_loads(struct insn_suite *s)
{
	for (int op = 0; op < OP_COUNT; op++)
		if (rv_info[op].format == FMT_LD)
			for (unsigned k = 0; k < OFFSETS; k++)
				for (unsigned n = 0; n < 36; n++)
					one_load(s, (enum rv_op)op, n,
						 insn_edge[(n + k) % insn_edges], offset[k]);
}

static void make_stores(struct insn_suite *s)
{
	for (int op = 0; op < OP_COUNT; op++) {
		if (rv_info[op].format != FMT_ST)
			continue;
		for (unsigned k = 0; k < OFFSETS; k++)
			for (unsigned n = 0; n < 18; n++) {
				unsigned base =
					insn_begin(s, insn_edge[(n + k) % insn_edges], ~0ull, 48);
				unsigned ptr = insn_reg(s, 1u << base);
				unsigned v = n % 6 == 5 ? ptr : insn_reg(s, 1u << base | 1u << ptr);

				if (n % 6 == 4)
					v = 0;
				rv_emit(&s->p, OP_ld, v, base, 0, 0);
				rv_emit(&s->p, OP_addi, ptr, base, 0, 20 + n % 9);
				if (offset[k] == -2048) {
					rv_emit(&s->p, OP_addi, ptr, ptr, 0, 2047);
					rv_emit(&s->p, OP_addi, ptr, ptr, 0, 1);
				} else {
					rv_emit(&s->p, OP_addi, ptr, ptr, 0, -offset[k]);
				}
				rv_emit(&s->p, (enum rv_op)op, 0, ptr, v, offset[k]);
				insn_about(s);
			}
	}
}

/* The stack pointer has a path of its own in the translator. */
static void make_stack(struct insn_suite *s)
{
	for (unsigned n = 0; n < 64; n++) {
		unsigned base = insn_begin(s, insn_edge[n % insn_edges], n, 96), v;

		if (base == 2)
			continue;
		v = insn_reg(s, 1u << base | 4);
		rv_emit(&s->p, OP_addi, 2, base, 0, 16 + n % 8);
		rv_emit(&s->p, OP_ld, v, base, 0, 0);
		rv_emit(&s->p, n & 1 ? OP_sd : OP_sw, 0, 2, v, n % 32);
		rv_emit(&s->p, n & 2 ? OP_ld : OP_lw, v, 2, 0, n % 16);
		insn_about(s);
		rv_emit(&s->p, OP_sd, 0, base, v, 72);
		rv_emit(&s->p, OP_sd, 0, base, 2, 80);
	}
}

static void one_amo(struct insn_suite *s, enum rv_op op, unsigned n, u64 a, u64 b)
{
	unsigned base = insn_begin(s, a, b, 48), ptr = insn_reg(s, 1u << base);
	unsigned v = insn_reg(s, 1u << base | 1u << ptr),
		 rd = insn_reg(s, 1u << base | 1u << ptr | 1u << v);

	if (n % 5 == 1)
		rd = v;
	else if (n % 5 == 2)
		rd = ptr;
	else if (n % 5 == 3)
		rd = 0;
	rv_emit(&s->p, OP_ld, v, base, 0, 8);
	rv_emit(&s->p, OP_addi, ptr, base, 0, rv_info[op].arg == 4 ? (i64)(n % 2) * 4 : 0);
	if (n % 7 == 6)
		v = ptr; /* the address is the operand */
	rv_emit(&s->p, op, rd, ptr, v, n % 4);
	insn_about(s);
	rv_emit(&s->p, OP_sd, 0, base, rd, 16);
	rv_emit(&s->p, OP_sd, 0, base, v, 24);
	rv_emit(&s->p, OP_sd, 0, base, ptr, 32);
}

static void make_amo(struct insn_suite *s)
{
	for (int op = 0; op < OP_COUNT; op++)
		if (rv_info[op].format == FMT_AM)
			for (unsigned i = 0; i < insn_edges; i++)
				for (unsigned k = 0; k < insn_edges; k++)
					one_amo(s, (enum rv_op)op, i * 3 + k, insn_edge[i],
						insn_edge[k]);
}

/* lr; sc. Kinds: pair, twice sc, sc elsewhere, sc after another lr elsewhere, nothing reserved. */
static void one_reserve(struct insn_suite *s, unsigned kind, bool wide, u64 a, u64 b)
{
	unsigned base = insn_begin(s, a, b, 64), v = insn_reg(s, 1u << base), other;
	unsigned rd = insn_reg(s, 1u << base | 1u << v);
	enum rv_op lr = wide ? OP_lr_d : OP_lr_w, sc = wide ? OP_sc_d : OP_sc_w;

	other = insn_reg(s, 1u << base | 1u << v | 1u << rd);
	rv_emit(&s->p, OP_ld, v, base, 0, 8);
	rv_emit(&s->p, OP_addi, other, base, 0, 8);
	rv_emit(&s->p, OP_addi, rd, 0, 0, -1);
	if (kind != 4)
		rv_emit(&s->p, lr, rd, base, 0, kind & 3);
	rv_emit(&s->p, OP_sd, 0, base, rd, 16);
	rv_emit(&s->p, OP_addi, rd, 0, 0, -1);
	if (kind == 3)
		rv_emit(&s->p, lr, rd, other, 0, 0);
	/* The stores above were to other places, so by the model (and qemu) the reservation stands.
	 */
	rv_emit(&s->p, sc, rd, kind == 2 ? other : base, v, kind & 3);
	insn_about(s);
	rv_emit(&s->p, OP_sd, 0, base, rd, 24);
	if (kind == 1) {
		rv_emit(&s->p, OP_addi, v, v, 0, 1);
		rv_emit(&s->p, sc, rd, base, v, 0);
		rv_emit(&s->p, OP_sd, 0, base, rd, 32);
	}
	/* Leave nothing reserved to the next case. */
	rv_emit(&s->p, sc, 0, other, 0, 0);
	rv_emit(&s->p, OP_sd, 0, base, 0, 8);
}

static void make_reserve(struct insn_suite *s)
{
	for (unsigned kind = 0; kind < 5; kind++)
		for (unsigned i = 0; i < insn_edges; i++)
			for (int wide = 0; wide < 2; wide++)
				one_reserve(s, kind, wide, insn_edge[i],
					    insn_edge[(i * 5 + 3) % insn_edges]);
}

static void make_fences(struct insn_suite *s)
{
	for (unsigned set = 0; set < 256; set += 5) {
		unsigned base = insn_begin(s, set, 0, 24), v = insn_reg(s, 1u << base);

		rv_emit(&s->p, OP_ld, v, base, 0, 0);
		rv_emit(&s->p, OP_sd, 0, base, v, 16);
		rv_emit(&s->p, set % 3 ? OP_fence : OP_fence_i, 0, 0, 0, set % 3 ? set : 0);
		insn_about(s);
		rv_emit(&s->p, OP_sd, 0, base, v, 8);
	}
}

const struct insn_group insn_memory[] = {
	{ "loads", make_loads }, { "stores", make_stores },        { "stack pointer", make_stack },
	{ "atomics", make_amo }, { "reservations", make_reserve }, { "fences", make_fences },
	{ NULL, NULL },
};

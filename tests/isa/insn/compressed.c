// SPDX-License-Identifier: MIT
/*
 * The 16-bit forms: every form with every immediate it can hold, over all registers it can name.
 * That a form exists for what is emitted here is checked when the suite is made, so none is
 * silently left out.
 */
#include "insn.h"

#include <stdio.h>
#include <stdlib.h>

/* Emit the instruction in its 16-bit form; the test is wrong if there is none. */
static void emit_c(struct insn_suite *s, enum rv_op op, unsigned rd, unsigned rs1, unsigned rs2,
		   i64 imm)
{
	const struct rv_insn *i = rv_emit(&s->p, op, rd, rs1, rs2, imm);
	char buf[64];

	if (!rv_compress(i)) {
		fprintf(stderr, "no 16-bit form: %s\n", rv_text(i, buf, sizeof(buf)));
		exit(99);
	}
	insn_about(s);
}

static unsigned pick_base(struct insn_suite *s, u64 a, u64 b, size_t size, unsigned avoid)
{
	unsigned base;

	do
		base = insn_begin(s, a, b, size);
	while (avoid >> base & 1);
	return base;
}

/* rd op= imm, over a range of registers. */
static void sweep(struct insn_suite *s, enum rv_op op, bool low, i64 from, i64 to, i64 skip)
{
	unsigned n = 0;

	for (i64 imm = from; imm <= to; imm++)
		for (unsigned rep = 0; rep < 2 && imm != skip; rep++, n++) {
			unsigned rd = low ? 8 + n % 8 : 1 + n % 31;
			unsigned base = pick_base(s, insn_edge[n % insn_edges], 0, 24, 1u << rd);

			rv_emit(&s->p, OP_ld, rd, base, 0, 0);
			emit_c(s, op, rd, rd, 0, imm);
			rv_emit(&s->p, OP_sd, 0, base, rd, 16);
		}
}

static void make_immediates(struct insn_suite *s)
{
	sweep(s, OP_addi, false, -32, 31, 0);
	sweep(s, OP_addiw, false, -32, 31, 99);
	sweep(s, OP_slli, false, 1, 63, 99);
	sweep(s, OP_srli, true, 1, 63, 99);
	sweep(s, OP_srai, true, 1, 63, 99);
	sweep(s, OP_andi, true, -32, 31, 99);
	for (i64 imm = -32; imm < 32; imm++) { /* c.li and c.lui */
		unsigned rd = 1 + (unsigned)(imm + 32) % 31,
			 base = pick_base(s, 5, 0, 24, 1u << rd);

		emit_c(s, OP_addi, rd, 0, 0, imm);
		rv_emit(&s->p, OP_sd, 0, base, rd, 16);
		if (!imm || rd == 2)
			continue;
		base = pick_base(s, 5, 0, 24, 1u << rd);
		emit_c(s, OP_lui, rd, 0, 0, imm * 4096);
		rv_emit(&s->p, OP_sd, 0, base, rd, 16);
	}
}

static void make_stack_adjust(struct insn_suite *s)
{
	for (i64 imm = -512; imm < 512; imm += 16) {
		unsigned base = pick_base(s, 0x1000, 0, 24, 4);

		if (!imm)
			continue;
		rv_emit(&s->p, OP_ld, 2, base, 0, 0);
		emit_c(s, OP_addi, 2, 2, 0, imm);
		rv_emit(&s->p, OP_sd, 0, base, 2, 16);
	}
	for (i64 imm = 4; imm < 1024; imm += 4) {
		unsigned rd = 8 + (unsigned)imm / 4 % 8,
			 base = pick_base(s, 0x7ffffffffffffff0ull, 0, 24, 4 | 1u << rd);

		rv_emit(&s->p, OP_ld, 2, base, 0, 0);
		emit_c(s, OP_addi, rd, 2, 0, imm);
		rv_emit(&s->p, OP_sd, 0, base, rd, 16);
	}
}

static void make_registers(struct insn_suite *s)
{
	static const enum rv_op op[] = { OP_sub, OP_xor, OP_or, OP_and, OP_subw, OP_addw };

	for (unsigned o = 0; o < sizeof(op) / sizeof(op[0]); o++)
		for (unsigned rd = 8; rd < 16; rd++)
			for (unsigned rs2 = 8; rs2 < 16; rs2++) {
				unsigned base = pick_base(s, insn_edge[(rd + rs2) % insn_edges],
							  insn_edge[(rd * rs2) % insn_edges], 24,
							  1u << rd | 1u << rs2);

				rv_emit(&s->p, OP_ld, rd, base, 0, 0);
				rv_emit(&s->p, OP_ld, rs2, base, 0, 8);
				emit_c(s, op[o], rd, rd, rs2, 0);
				rv_emit(&s->p, OP_sd, 0, base, rd, 16);
			}
	for (unsigned rd = 1; rd < 32; rd++)
		for (unsigned rs2 = 1; rs2 < 32; rs2++)
			for (int move = 0; move < 2; move++) { /* c.mv, c.add */
				unsigned base = pick_base(s, insn_edge[rd % insn_edges],
							  insn_edge[(rd + rs2) % insn_edges], 24,
							  1u << rd | 1u << rs2);

				rv_emit(&s->p, OP_ld, rd, base, 0, 0);
				rv_emit(&s->p, OP_ld, rs2, base, 0, 8);
				emit_c(s, OP_add, rd, move ? 0 : rd, rs2, 0);
				rv_emit(&s->p, OP_sd, 0, base, rd, 16);
			}
}

/* Load and store forms: every offset, both through sp and through a low register. */
static void one_access(struct insn_suite *s, bool wide, bool store, unsigned ptr, unsigned reg,
		       i64 off)
{
	unsigned base = pick_base(s, 0x8899aabbccddeeffull, 0x1122334455667788ull, 24 + 16,
				  1u << ptr | 1u << reg);

	if (reg == ptr && store)
		return;
	rv_emit(&s->p, OP_ld, reg, base, 0, 8);
	rv_emit(&s->p, OP_addi, ptr, base, 0, store ? 24 - off : -off);
	if (store)
		emit_c(s, wide ? OP_sd : OP_sw, 0, ptr, reg, off);
	else
		emit_c(s, wide ? OP_ld : OP_lw, reg, ptr, 0, off);
	rv_emit(&s->p, OP_sd, 0, base, reg, 16);
}

static void make_memory(struct insn_suite *s)
{
	for (int kind = 0; kind < 4; kind++) {
		bool wide = kind & 1, store = kind & 2;
		unsigned step = wide ? 8 : 4;

		for (unsigned off = 0; off < (wide ? 256u : 128u); off += step) {
			one_access(s, wide, store, 8 + off / step % 8, 8 + off / step / 3 % 8, off);
			one_access(s, wide, store, 15 - off / step % 8, 8 + off / step % 8, off);
		}
		for (unsigned off = 0; off < (wide ? 512u : 256u); off += step)
			one_access(s, wide, store, 2, 1 + off / step % 31, off);
	}
}

/* c.jr, c.jalr through every register; c.j and c.beqz/c.bnez are among the distances of flow.c. */
static void make_jumps(struct insn_suite *s)
{
	for (unsigned rs = 1; rs < 32; rs++)
		for (unsigned link = 0; link < 2; link++) {
			unsigned base = pick_base(s, rs, link, 32, 1u << rs | 2);
			unsigned mark = insn_reg(s, 1u << base | 1u << rs | 2);
			int to = rv_label(&s->p);

			rv_la(&s->p, rs, to);
			rv_emit(&s->p, OP_addi, mark, 0, 0, 1);
			emit_c(s, OP_jalr, link, rs, 0, 0);
			rv_emit(&s->p, OP_addi, mark, 0, 0, 2);
			rv_place(&s->p, to);
			rv_emit(&s->p, OP_sd, 0, base, mark, 16);
			rv_emit(&s->p, OP_sd, 0, base, link ? 1 : rs, 24);
		}
	for (unsigned r = 8; r < 16; r++)
		for (unsigned n = 0; n < 8; n++) {
			unsigned base =
				pick_base(s, n & 1 ? 0 : insn_edge[n], 0, 24, 1u << r | 1u << 20);
			int to = rv_label(&s->p);

			rv_emit(&s->p, OP_ld, r, base, 0, 0);
			rv_emit(&s->p, OP_addi, 20, 0, 0, 1);
			rv_branch(&s->p, n & 2 ? OP_beq : OP_bne, r, 0, to);
			insn_about(s);
			rv_emit(&s->p, OP_addi, 20, 0, 0, 2);
			rv_place(&s->p, to);
			rv_emit(&s->p, OP_sd, 0, base, 20, 16);
		}
}

const struct insn_group insn_compressed[] = {
	{ "16-bit immediates", make_immediates },
	{ "16-bit stack adjustments", make_stack_adjust },
	{ "16-bit register forms", make_registers },
	{ "16-bit loads and stores", make_memory },
	{ "16-bit jumps", make_jumps },
	{ NULL, NULL },
};

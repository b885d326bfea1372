// SPDX-License-Identifier: MIT
/*
 * Owns sequences that reverse bytes, which programs that read packets are full of and the host does
 * in one instruction.
 *
 *   rev8 a, b            mov   a32, b32        srai: extended when somebody asks
 *   srli a, a, 32        bswap a32
 *
 *   slli t, h, 8         t                     h is less than 2^16; t and d in either order, and
 *   srli d, h, 8         mov   d, h            either may be h
 *   or   d, d, t         rol   d16, 8
 *   zext.h d, d
 *
 * Nothing in them can stop, so nobody sees what d was in between; t stays what it is. They are
 * inside of one block, so nobody enters in between.
 */
#include "dpa/cpu/jit/code.h"

/* The instruction `n` further on in this block; NULL: there is none. */
static const struct vb_insn *ahead(const struct tx *tx, unsigned int n)
{
	const struct vb_text *text = tx->jit->text;
	uint32_t i = tx->index;

	if (tx->left <= n)
		return NULL;
	for (; n; n--) {
		if (tx->a.marks[i] & MARK_SELECT)
			return NULL;
		i += vb_insn_len(text->base[pc_of(tx, i)]) / 2;
	}
	return tx->a.marks[i] & MARK_SELECT ? NULL : &text->insns[i];
}

static bool mapped(const struct tx *tx, unsigned int reg)
{
	return tx->gen->host[reg] != NOREG;
}

static unsigned int emit_word_swap(struct tx *tx, const struct vb_insn *insn)
{
	const struct vb_insn *next = ahead(tx, 1);
	unsigned int rd = insn->rd;
	int d;

	if (!next || (next->op != VB_OP_SRLI && next->op != VB_OP_SRAI) || next->imm != 32 ||
	    next->rd != rd || next->rs1 != rd || rd == 2 || rd == VB_CPU_SINK)
		return 0;
	d = dst(tx, rd);
	ins(&tx->c, 0, 0x8b, d, operand32(tx, insn->rs1));
	bswap(&tx->c, false, d);
	if (next->op == VB_OP_SRAI)
		finish_word(tx, rd, d);
	else
		finish(tx, rd, d, false);
	return 2;
}

static bool is_left(const struct vb_insn *insn)
{
	return insn->op == VB_OP_SLLI || insn->op == VB_OP_SLLIW;
}

/* Shifts of one register by a byte, one to the left and one to the right, into two others. */
static bool are_shifts(const struct vb_insn *a, const struct vb_insn *b)
{
	return is_left(a) != is_left(b) && a->imm == 8 && b->imm == 8 && a->rs1 == b->rs1 &&
	       (is_left(a) || a->op == VB_OP_SRLI || a->op == VB_OP_SRLIW) &&
	       (is_left(b) || b->op == VB_OP_SRLI || b->op == VB_OP_SRLIW) && a->rd != b->rd &&
	       a->rd != a->rs1;
}

static unsigned int emit_half_swap(struct tx *tx, const struct vb_insn *a)
{
	const struct vb_insn *b = ahead(tx, 1), *join = ahead(tx, 2), *end = ahead(tx, 3);
	const struct vb_insn *other;
	int d;

	if (!b || !join || !end || bits_of(tx, a->rs1) > 16 || !are_shifts(a, b) ||
	    join->op != VB_OP_OR || end->op != VB_OP_ZEXT_H)
		return 0;
	if ((join->rs1 != a->rd || join->rs2 != b->rd) &&
	    (join->rs1 != b->rd || join->rs2 != a->rd))
		return 0;
	if ((join->rd != a->rd && join->rd != b->rd) || end->rd != join->rd ||
	    end->rs1 != join->rd || a->rd == 2 || b->rd == 2 || a->rd == VB_CPU_SINK ||
	    b->rd == VB_CPU_SINK || !mapped(tx, a->rs1) || !mapped(tx, a->rd) || !mapped(tx, b->rd))
		return 0;
	d = tx->gen->host[join->rd];
	other = join->rd == a->rd ? b : a;
	if (other->rd != a->rs1)
		emit_alu(tx, other);
	mov_rr(&tx->c, d, tx->gen->host[a->rs1]);
	ins(&tx->c, X_16, 0xc1, SH_ROL, rm_reg(d));
	put8(&tx->c, 8);
	finish(tx, join->rd, d, true);
	note_bits(tx, join->rd, 16);
	if (other->rd == a->rs1)
		emit_alu(tx, other);
	return 4;
}

unsigned int emit_swap(struct tx *tx, const struct vb_insn *insn)
{
	switch (insn->op) {
	case VB_OP_REV8:
		return emit_word_swap(tx, insn);
	case VB_OP_SLLI:
	case VB_OP_SLLIW:
	case VB_OP_SRLI:
	case VB_OP_SRLIW:
		return insn->imm == 8 ? emit_half_swap(tx, insn) : 0;
	default:
		return 0;
	}
}

// SPDX-License-Identifier: MIT
/*
 * Owns constants that a loop reads and somebody made before it: amounts of shifts and rotates, bases of
 * tables, bounds. What is written before the loop is only a guess at what the loop finds, since it can
 * be entered from elsewhere. So between the two copies of a loop (emit_twice.c) they are compared:
 *
 *   head:  first copy           knows nothing
 *          cmp  n, 13           the guess
 *          jne  head            wrong: all turns are made by the first copy
 *   back:  second copy          n is 13: rolw d, s, n becomes one instruction
 */
#include "dpa/cpu/jit/code.h"

#define LOOK_BACK 512 /* halfwords before the loop */
#define LOOKS     4   /* for each halfword of the text, so that a text of loops costs no more */
#define GUESSES   6   /* for a loop */

static const struct vb_insn *emit_guess_insn_at(const struct tx *tx, uint32_t i)
{
	return tx->a.marks[i] & MARK_START ? &tx->jit->text->insns[i] : NULL;
}

/* The instruction before i that writes reg, in this function; UINT32_MAX: none is near. */
static uint32_t written_before(struct tx *tx, uint32_t i, unsigned int reg)
{
	for (unsigned int n = 0; n < LOOK_BACK && i-- > 0 && tx->looks < LOOKS * tx->a.n; n++) {
		const struct vb_insn *insn = emit_guess_insn_at(tx, i);

		tx->looks++;
		if (insn && insn->rd == reg)
			return i;
		if (insn && (insn->op >= VB_OP_ILLEGAL ||
			     (insn->op == VB_OP_JALR && insn->rd == VB_CPU_SINK)))
			break;
	}
	return UINT32_MAX;
}

/* lui, auipc, li */
static bool first_part(const struct tx *tx, uint32_t i, uint64_t *value)
{
	const struct vb_insn *insn = &tx->jit->text->insns[i];

	*value = (uint64_t)(int64_t)insn->imm;
	if (insn->op == VB_OP_AUIPC)
		*value += pc_of(tx, i);
	return insn->op == VB_OP_LUI || insn->op == VB_OP_AUIPC ||
	       ((insn->op == VB_OP_ADDI || insn->op == VB_OP_ADDIW) && insn->rs1 == 0);
}

static bool guess(struct tx *tx, uint32_t head, unsigned int reg, uint64_t *value)
{
	uint32_t i = written_before(tx, head, reg);
	const struct vb_insn *insn;

	if (i == UINT32_MAX)
		return false;
	insn = &tx->jit->text->insns[i];
	if ((insn->op == VB_OP_ADDI || insn->op == VB_OP_ADDIW) && insn->rs1 == reg) {
		i = written_before(tx, i, reg);
		if (i == UINT32_MAX || !first_part(tx, i, value))
			return false;
		*value += (uint64_t)(int64_t)insn->imm;
		if (insn->op == VB_OP_ADDIW)
			*value = (uint64_t)(int64_t)(int32_t)*value;
	} else if (!first_part(tx, i, value)) {
		return false;
	}
	return *value == (uint64_t)(int64_t)(int32_t)*value;
}

/* Operands of which it helps to know the value: amounts, and others that have no host register. */
static uint32_t helped(const struct tx *tx, const struct vb_insn *insn)
{
	uint32_t a = tx->gen->host[insn->rs1] == NOREG ? 1U << insn->rs1 : 0;
	uint32_t b = tx->gen->host[insn->rs2] == NOREG ? 1U << insn->rs2 : 0;

	switch (insn->op) {
	case VB_OP_SLL:
	case VB_OP_SRL:
	case VB_OP_SRA:
	case VB_OP_SLLW:
	case VB_OP_SRLW:
	case VB_OP_SRAW:
	case VB_OP_ROL:
	case VB_OP_ROLW:
	case VB_OP_ROR:
	case VB_OP_RORW:
		return 1U << insn->rs2;
	case VB_OP_ADD:
		return a | b;
	case VB_OP_SH1ADD:
	case VB_OP_SH2ADD:
	case VB_OP_SH3ADD:
	case VB_OP_BEQ:
	case VB_OP_BNE:
	case VB_OP_BLT:
	case VB_OP_BGE:
	case VB_OP_BLTU:
	case VB_OP_BGEU:
		return b;
	default:
		return insn->op >= VB_OP_LB && insn->op <= VB_OP_SD ? a : 0;
	}
}

/* Registers that the blocks read and do not write, and that are worth a guess. */
static uint32_t candidates(const struct tx *tx, uint32_t first, uint32_t last)
{
	const struct vb_text *text = tx->jit->text;
	uint32_t wanted = 0, written = 1U << 2 | 1; /* x0 and sp are known well enough */

	for (uint32_t k = first; k <= last; k++) {
		uint32_t i = tx->a.blocks[k].index;

		for (unsigned int n = tx->a.blocks[k].count; n; n--) {
			const struct vb_insn *insn = &text->insns[i];

			wanted |= helped(tx, insn);
			written |= insn->rd == VB_CPU_SINK ? 0 : 1U << insn->rd;
			i += vb_insn_len(text->base[pc_of(tx, i)]) / 2;
		}
	}
	return wanted & ~written;
}

/* Behind the first copy: compare, and note in facts what holds from here on. */
void emit_guesses(struct tx *tx, uint32_t first, uint32_t last, struct fact *facts)
{
	uint32_t head = tx->a.blocks[first].index, regs = candidates(tx, first, last);
	uint64_t value;

	for (unsigned int n = 0; regs && n < GUESSES && !tx->failed; regs &= regs - 1) {
		unsigned int reg = (unsigned int)__builtin_ctz(regs);

		if (facts[reg].known || !guess(tx, head, reg, &value))
			continue;
		alu_imm(&tx->c, X_W, ALU_CMP, operand64(tx, reg), (int32_t)value);
		jcc_to(&tx->c, CC_NE, tx->offsets[head]);
		facts[reg] = (struct fact){ .known = true, .word = true, .value = value };
		n++;
	}
}

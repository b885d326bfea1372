// SPDX-License-Identifier: MIT
/*
 * Owns short forward branches over one plain instruction or two: what a compiler writes for a choice when
 * the machine has no conditional move. The host has one, and a choice that depends on data costs a
 * branch half of its predictions.
 *
 *      beq  a, b, 1f          rdx = c ^ d
 *      xor  c, c, d    =>     compare a, b
 *   1:                        cmovne c, rdx
 *                             r15 += 1 if equal: one instruction less was executed
 *
 * A second instruction is a second choice by the same condition, which the first one left alone.
 */
#include "dpa/cpu/jit/code.h"

bool select_op(unsigned int op)
{
	switch (op) {
	case VB_OP_LUI:
	case VB_OP_ADDI:
	case VB_OP_XORI:
	case VB_OP_ORI:
	case VB_OP_ANDI:
	case VB_OP_SLLI:
	case VB_OP_SRLI:
	case VB_OP_SRAI:
	case VB_OP_ADD:
	case VB_OP_SUB:
	case VB_OP_XOR:
	case VB_OP_OR:
	case VB_OP_AND:
	case VB_OP_ADDIW:
	case VB_OP_ADDW:
	case VB_OP_SUBW:
	case VB_OP_ZEXT_H:
		return true;
	default:
		return false;
	}
}

/* The host's two-operand operation for an instruction of select_op. */
static enum x86_alu alu_of(unsigned int op)
{
	switch (op) {
	case VB_OP_XORI:
	case VB_OP_XOR:
		return ALU_XOR;
	case VB_OP_ORI:
	case VB_OP_OR:
		return ALU_OR;
	case VB_OP_ANDI:
	case VB_OP_AND:
		return ALU_AND;
	case VB_OP_SUB:
	case VB_OP_SUBW:
		return ALU_SUB;
	default:
		return ALU_ADD;
	}
}

/* rdx = what the instruction would write */
static void emit_value(struct tx *tx, const struct vb_insn *insn)
{
	struct code *c = &tx->c;

	if (insn->op == VB_OP_LUI || (insn->op == VB_OP_ADDI && insn->rs1 == 0)) {
		mov_imm(c, RDX, (uint64_t)(int64_t)insn->imm);
		return;
	}
	if (insn->op == VB_OP_ZEXT_H) {
		ins(c, 0, 0x0fb7, RDX, operand32(tx, insn->rs1));
		return;
	}
	mov_rr(c, RDX, src64(tx, insn->rs1, RDX));
	switch (insn->op) {
	case VB_OP_SLLI:
		shift_imm(c, X_W, SH_SHL, RDX, (unsigned int)insn->imm);
		break;
	case VB_OP_SRLI:
		shift_imm(c, X_W, SH_SHR, RDX, (unsigned int)insn->imm);
		break;
	case VB_OP_SRAI:
		shift_imm(c, X_W, SH_SAR, RDX, (unsigned int)insn->imm);
		break;
	case VB_OP_ADDI:
	case VB_OP_XORI:
	case VB_OP_ORI:
	case VB_OP_ANDI:
	case VB_OP_ADDIW:
		alu_imm(c, X_W, alu_of(insn->op), rm_reg(RDX), insn->imm);
		break;
	default:
		alu(c, X_W, alu_of(insn->op), RDX, operand64(tx, insn->rs2));
		break;
	}
	if (insn->op == VB_OP_ADDIW || insn->op == VB_OP_ADDW || insn->op == VB_OP_SUBW)
		movsxd_rr(c, RDX, RDX);
}

/* Compare for the branch. The result is the condition under which it is not taken; *carry: CF or
 * its inverse tells. */
static enum x86_cc emit_select_emit_condition(struct tx *tx, const struct vb_insn *branch,
					      bool *carry)
{
	static const uint8_t not_taken[] = { CC_NE, CC_E, CC_GE, CC_L, CC_AE, CC_B };
	bool equality = branch->op == VB_OP_BEQ || branch->op == VB_OP_BNE;

	*carry = branch->op == VB_OP_BLTU || branch->op == VB_OP_BGEU;
	if (equality && branch->rs2 == 0) { /* below one is zero */
		alu_imm(&tx->c, X_W, ALU_CMP, operand64(tx, branch->rs1), 1);
		*carry = true;
		return branch->op == VB_OP_BEQ ? CC_AE : CC_B;
	}
	emit_compare(tx, branch->rs1, branch->rs2);
	return not_taken[branch->op - VB_OP_BEQ];
}

void emit_select(struct tx *tx, const struct vb_insn *branch, const struct vb_insn *insn)
{
	struct code *c = &tx->c;
	unsigned int rd = insn->rd;
	enum x86_cc keep;
	bool carry;
	int d;

	emit_value(tx, insn);
	operand64(tx, rd); /* its old value may stay: extended, if it was pending */
	/*
	 * Extensions leave the flags alone, but come before the compare to be sure that nothing
	 * else does not.
	 */
	operand64(tx, branch->rs1);
	operand64(tx, branch->rs2);
	keep = emit_select_emit_condition(tx, branch, &carry);
	d = dst(tx, rd);
	if (tx->gen->host[rd] == NOREG)
		mov_load(c, d, slot(rd));
	ins(c, X_W, 0x0f40U + keep, d, rm_reg(RDX));
	if (tx->gen->host[rd] == NOREG)
		mov_store(c, slot(rd), d);
	if (carry) { /* taken is CF: add it; taken is its inverse: subtract CF - 1 */
		alu_imm(c, X_W, keep == CC_AE ? ALU_ADC : ALU_SBB, rm_reg(R15),
			keep == CC_AE ? 0 : -1);
	} else {
		setcc(c, keep ^ 1, RAX);
		ins(c, X_BRM, 0x0fb6, RAX, rm_reg(RAX));
		alu(c, X_W, ALU_ADD, R15, rm_reg(RAX));
	}
	tx->facts[rd] = (struct fact){ 0 };
}

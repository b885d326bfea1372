// SPDX-License-Identifier: MIT
/*
 * Owns what is known of how large the value of a register can be: less than 2^n, along the straight
 * line (fact.below). A 32-bit operation of the host clears the upper half; where the result is less
 * than 2^31, that is its sign extension already.
 *
 *   lhu   a, 0(p)      a < 2^16
 *   slliw b, a, 8      b < 2^24: shl b32, 8, and nothing to extend
 *   srli  a, a, 8      a < 2^8
 *   or    a, a, b      a < 2^24
 */
#include "dpa/cpu/jit/code.h"

#define WHOLE 64U /* nothing is known */

static unsigned int length_of(uint64_t value)
{
	return value ? WHOLE - (unsigned int)__builtin_clzll(value) : 1;
}

unsigned int bits_of(const struct tx *tx, unsigned int reg)
{
	const struct fact *fact = &tx->facts[reg];

	if (reg == 0)
		return 1;
	if (fact->known)
		return length_of(fact->value);
	return fact->below && !(tx->pending >> reg & 1) ? fact->below : WHOLE;
}

static unsigned int smaller(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

static unsigned int larger(unsigned int a, unsigned int b)
{
	return a > b ? a : b;
}

static unsigned int shifted_right(unsigned int bits, int32_t by)
{
	return bits > (unsigned int)by ? bits - (unsigned int)by : 1;
}

/* A result of 64 bits. */
static unsigned int whole_result(const struct vb_insn *insn, unsigned int a, unsigned int b)
{
	unsigned int imm = insn->imm >= 0 ? length_of((uint64_t)insn->imm) : WHOLE;

	switch (insn->op) {
	case VB_OP_LBU:
		return 8;
	case VB_OP_LHU:
		return 16;
	case VB_OP_LWU:
		return 32;
	case VB_OP_SLT:
	case VB_OP_SLTU:
	case VB_OP_SLTI:
	case VB_OP_SLTIU:
	case VB_OP_BEXT:
	case VB_OP_BEXTI:
		return 1;
	case VB_OP_ANDI:
		return smaller(a, imm);
	case VB_OP_AND:
	case VB_OP_MINU:
		return smaller(a, b);
	case VB_OP_OR:
	case VB_OP_XOR:
	case VB_OP_MAXU:
		return larger(a, b);
	case VB_OP_ORI:
	case VB_OP_XORI:
		return larger(a, imm);
	case VB_OP_ADDI:
		return insn->imm ? larger(a, imm) + 1 : a;
	case VB_OP_ADD:
		return !insn->rs1 ? b : !insn->rs2 ? a : larger(a, b) + 1;
	case VB_OP_MUL:
		return a + b;
	case VB_OP_SLLI:
		return a + (unsigned int)insn->imm;
	case VB_OP_SRLI:
		return shifted_right(a, insn->imm);
	case VB_OP_SRL:
		return a;
	case VB_OP_ZEXT_H:
		return smaller(a, 16);
	case VB_OP_ADD_UW:
		return insn->rs2 ? larger(smaller(a, 32), b) + 1 : smaller(a, 32);
	default:
		return WHOLE;
	}
}

/* A result of 32 bits, whose sign is extended: it must not reach the sign. */
static unsigned int word_result(const struct vb_insn *insn, unsigned int a, unsigned int b)
{
	unsigned int imm = insn->imm >= 0 ? length_of((uint64_t)insn->imm) : WHOLE, bits = WHOLE;

	switch (insn->op) {
	case VB_OP_ADDIW:
		bits = insn->imm ? larger(a, imm) + 1 : a;
		break;
	case VB_OP_ADDW:
		bits = larger(a, b) + 1;
		break;
	case VB_OP_MULW:
		bits = a + b;
		break;
	case VB_OP_SLLIW:
		bits = a + (unsigned int)insn->imm;
		break;
	case VB_OP_SRLIW:
		bits = shifted_right(smaller(a, 32), insn->imm);
		break;
	case VB_OP_SRAIW:
	case VB_OP_SRLW:
	case VB_OP_SRAW:
		bits = a;
		break;
	default:
		break;
	}
	return bits < 32 ? bits : WHOLE;
}

/* The result is less than 2^n, whatever the operands are; 64: nothing is known. */
unsigned int result_bits(const struct tx *tx, const struct vb_insn *insn)
{
	unsigned int a = bits_of(tx, insn->rs1), b = bits_of(tx, insn->rs2);
	bool word = (insn->op >= VB_OP_ADDIW && insn->op <= VB_OP_SRAW) || insn->op == VB_OP_MULW;
	unsigned int bits = word ? word_result(insn, a, b) : whole_result(insn, a, b);

	return bits < WHOLE ? bits : WHOLE;
}

/* An instruction with this result was emitted. */
void note_bits(struct tx *tx, unsigned int rd, unsigned int bits)
{
	if (rd == VB_CPU_SINK || bits >= WHOLE || tx->pending >> rd & 1)
		return;
	tx->facts[rd].below = (uint8_t)bits;
	if (bits < 32)
		tx->facts[rd].word = true;
}

/* As finish_word, where the host's 32-bit operation has cleared the upper half. */
void finish_bits(struct tx *tx, unsigned int rd, int reg, unsigned int bits)
{
	if (bits < 32)
		finish(tx, rd, reg, true);
	else
		finish_word(tx, rd, reg);
}

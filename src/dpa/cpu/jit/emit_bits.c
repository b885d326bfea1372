// SPDX-License-Identifier: MIT
/* Owns the translation of Zba, Zbb, Zbs and, where the host multiplies without carries, Zbc. */
#include "dpa/cpu/jit/code.h"

static void emit_slli_uw(struct tx *tx, const struct vb_insn *insn, unsigned int n)
{
	int d = dst(tx, insn->rd);

	ins(&tx->c, 0, 0x8b, d, operand32(tx, insn->rs1));
	if (n)
		shift_imm(&tx->c, X_W, SH_SHL, d, n);
	finish(tx, insn->rd, d, false);
}

/* rd = (rs1 << n) + rs2, rs1 whole or zero-extended from 32 bits */
static void emit_shadd(struct tx *tx, const struct vb_insn *insn, unsigned int n, bool uw)
{
	int d = dst(tx, insn->rd), a, b;

	if (uw && insn->rs2 == 0) { /* zext.w, and slli.uw by another name */
		emit_slli_uw(tx, insn, n);
		return;
	}
	uw = uw && bits_of(tx, insn->rs1) > 32;
	if (uw) {
		ins(&tx->c, 0, 0x8b, RAX, operand32(tx, insn->rs1));
		a = RAX;
	} else {
		a = src64(tx, insn->rs1, RAX);
	}
	if (n && is_imm32(tx, insn->rs2)) {
		lea(&tx->c, X_W, d, rm_index(NOREG, a, n, (int32_t)tx->facts[insn->rs2].value));
		finish(tx, insn->rd, d, false);
		return;
	}
	b = src64(tx, insn->rs2, RDX);
	lea(&tx->c, X_W, d, rm_index(b, a, n, 0));
	finish(tx, insn->rd, d, false);
}

/* andn, orn, xnor: rs2 (or the result) is inverted */
static void emit_inverted(struct tx *tx, const struct vb_insn *insn)
{
	int d = dst(tx, insn->rd), a, b;

	if (insn->op == VB_OP_ANDN) {
		b = src64(tx, insn->rs2, RDX);
		vex(&tx->c, true, 2, 0, 0xf2, d, b,
		    operand64(tx, insn->rs1)); /* andn d, b, a: ~b & a */
	} else if (insn->op == VB_OP_ORN) {
		mov_rr(&tx->c, RDX, src64(tx, insn->rs2, RDX));
		ins(&tx->c, X_W, 0xf7, 2, rm_reg(RDX)); /* not */
		alu(&tx->c, X_W, ALU_OR, RDX, operand64(tx, insn->rs1));
		d = RDX;
	} else {
		a = src64(tx, insn->rs1, RAX);
		mov_rr(&tx->c, RAX, a);
		alu(&tx->c, X_W, ALU_XOR, RAX, operand64(tx, insn->rs2));
		ins(&tx->c, X_W, 0xf7, 2, rm_reg(RAX));
		d = RAX;
	}
	finish(tx, insn->rd, d, false);
}

/* lzcnt, tzcnt, popcnt: defined for zero as RISC-V defines them */
static void emit_count(struct tx *tx, const struct vb_insn *insn, uint32_t opcode, bool word)
{
	int d = dst(tx, insn->rd);

	ins(&tx->c, X_F3 | (word ? 0 : X_W), opcode, d,
	    word ? operand32(tx, insn->rs1) : operand64(tx, insn->rs1));
	finish(tx, insn->rd, d, true);
}

/* cc: take rs2 if it holds for rs1 compared with rs2 */
static void emit_minmax(struct tx *tx, const struct vb_insn *insn, enum x86_cc cc)
{
	int a = src64(tx, insn->rs1, RAX), b = src64(tx, insn->rs2, RDX);
	int d = dst(tx, insn->rd) == b ? RAX : dst(tx, insn->rd);

	mov_rr(&tx->c, d, a);
	alu(&tx->c, X_W, ALU_CMP, d, rm_reg(b));
	ins(&tx->c, X_W, 0x0f40 + cc, d, rm_reg(b));
	finish(tx, insn->rd, d, tx->facts[insn->rs1].word && tx->facts[insn->rs2].word);
}

static void emit_extend(struct tx *tx, const struct vb_insn *insn, uint32_t opcode,
			unsigned int flags)
{
	int d = dst(tx, insn->rd);

	ins(&tx->c, flags, opcode, d, operand32(tx, insn->rs1));
	finish(tx, insn->rd, d, true);
}

static void emit_rotate_imm(struct tx *tx, const struct vb_insn *insn, bool word)
{
	int d = dst(tx, insn->rd);

	vex(&tx->c, !word, 3, 3, 0xf0, d, 0,
	    word ? operand32(tx, insn->rs1) : operand64(tx, insn->rs1)); /* rorx */
	put8(&tx->c, (uint8_t)insn->imm);
	if (word)
		finish_word(tx, insn->rd, d);
	else
		finish(tx, insn->rd, d, false);
}

/*
 * There is no rotate by any register but cl, which is taken: two shifts. The second counts the
 * other way.
 */
static void emit_rotate_reg(struct tx *tx, const struct vb_insn *insn, bool left, bool word)
{
	const struct fact *amount = &tx->facts[insn->rs2];
	struct vb_insn known = *insn;
	struct rm a;
	int n;

	if (amount->known) {
		known.imm = (int32_t)((left ? -amount->value : amount->value) & (word ? 31 : 63));
		emit_rotate_imm(tx, &known, word);
		return;
	}
	a = word ? operand32(tx, insn->rs1) : operand64(tx, insn->rs1);
	n = src32(tx, insn->rs2, RDX);
	shift_reg(&tx->c, !word, left ? SH_SHL : SH_SHR, RAX, a, n);
	mov_rr(&tx->c, RDX, n);
	ins(&tx->c, 0, 0xf7, 3, rm_reg(RDX)); /* neg */
	shift_reg(&tx->c, !word, left ? SH_SHR : SH_SHL, RDX, a, RDX);
	alu(&tx->c, word ? 0 : X_W, ALU_OR, RAX, rm_reg(RDX));
	if (word)
		finish_word(tx, insn->rd, RAX);
	else
		finish(tx, insn->rd, RAX, false);
}

/*
 * bts, btr, btc with a register operand count modulo 64, as RISC-V does. /n and opcode differ for
 * immediates.
 */
static void emit_bit(struct tx *tx, const struct vb_insn *insn, uint32_t opcode, int digit,
		     bool immediate)
{
	int d = dst(tx, insn->rd), n = NOREG;

	if (!immediate)
		n = src32(tx, insn->rs2, RDX);
	if (d == n && insn->rs1 != insn->rs2)
		d = RAX;
	mov_rr(&tx->c, d, src64(tx, insn->rs1, d));
	if (immediate) {
		ins(&tx->c, X_W, 0x0fba, digit, rm_reg(d));
		put8(&tx->c, (uint8_t)insn->imm);
	} else {
		ins(&tx->c, X_W, opcode, n, rm_reg(d));
	}
	finish(tx, insn->rd, d, false);
}

static void emit_bext(struct tx *tx, const struct vb_insn *insn, bool immediate)
{
	int n;

	if (immediate) {
		mov_rr(&tx->c, RAX, src64(tx, insn->rs1, RAX));
		if (insn->imm)
			shift_imm(&tx->c, X_W, SH_SHR, RAX, (unsigned int)insn->imm);
	} else {
		n = src32(tx, insn->rs2, RDX);
		shift_reg(&tx->c, true, SH_SHR, RAX, operand64(tx, insn->rs1), n);
	}
	alu_imm(&tx->c, 0, ALU_AND, rm_reg(RAX), 1);
	finish(tx, insn->rd, RAX, true);
}

/* Each byte becomes all ones if any of its bits is set. */
static void emit_orc_b(struct tx *tx, const struct vb_insn *insn)
{
	struct rm a = operand64(tx, insn->rs1);
	struct code *c = &tx->c;

	/*
	 * The high bit of each byte: adding 0x7f carries into it from any lower bit, and never out.
	 */
	mov_imm(c, RDX, 0x7f7f7f7f7f7f7f7fULL);
	mov_rr(c, RAX, RDX);
	alu(c, X_W, ALU_AND, RAX, a);
	alu(c, X_W, ALU_ADD, RAX, rm_reg(RDX));
	alu(c, X_W, ALU_OR, RAX, a);
	vex(c, true, 2, 0, 0xf2, RAX, RDX, rm_reg(RAX)); /* andn */
	/* From 0x80 to 0xff in each byte: twice it (the carry out goes) minus its 128th part. */
	mov_rr(c, RDX, RAX);
	shift_imm(c, X_W, SH_SHR, RDX, 7);
	alu(c, X_W, ALU_ADD, RAX, rm_reg(RAX));
	alu(c, X_W, ALU_SUB, RAX, rm_reg(RDX));
	finish(tx, insn->rd, RAX, false);
}

/* Halves of the 128-bit product without carries, or the 64 bits from its bit 63 on. */
static bool emit_zbc(struct tx *tx, const struct vb_insn *insn)
{
	struct code *c = &tx->c;

	if (insn->op < VB_OP_CLMUL || insn->op > VB_OP_CLMULR || !tx->jit->has_clmul)
		return false;
	ins(c, X_16 | X_W, 0x0f6e, 0, operand64(tx, insn->rs1)); /* movq xmm0 */
	ins(c, X_16 | X_W, 0x0f6e, 1, operand64(tx, insn->rs2));
	ins(c, X_16, 0x0f3a44, 0, rm_reg(1)); /* pclmulqdq xmm0, xmm1 */
	put8(c, 0);
	if (insn->op != VB_OP_CLMULH)
		ins(c, X_16 | X_W, 0x0f7e, 0, rm_reg(RAX)); /* movq */
	if (insn->op != VB_OP_CLMUL) {
		ins(c, X_16 | X_W, 0x0f3a16, 0, rm_reg(RDX)); /* pextrq */
		put8(c, 1);
	}
	if (insn->op == VB_OP_CLMULR) { /* shld */
		ins(c, X_W, 0x0fa4, RAX, rm_reg(RDX));
		put8(c, 1);
	}
	finish(tx, insn->rd, insn->op == VB_OP_CLMUL ? RAX : RDX, false);
	return true;
}

static bool emit_zba(struct tx *tx, const struct vb_insn *insn)
{
	switch (insn->op) {
	case VB_OP_ADD_UW:
		emit_shadd(tx, insn, 0, true);
		return true;
	case VB_OP_SH1ADD:
	case VB_OP_SH2ADD:
	case VB_OP_SH3ADD:
		emit_shadd(tx, insn, 1 + insn->op - VB_OP_SH1ADD, false);
		return true;
	case VB_OP_SH1ADD_UW:
	case VB_OP_SH2ADD_UW:
	case VB_OP_SH3ADD_UW:
		emit_shadd(tx, insn, 1 + insn->op - VB_OP_SH1ADD_UW, true);
		return true;
	case VB_OP_SLLI_UW:
		emit_slli_uw(tx, insn, (unsigned int)insn->imm);
		return true;
	default:
		return false;
	}
}

static bool emit_zbs(struct tx *tx, const struct vb_insn *insn)
{
	switch (insn->op) {
	case VB_OP_BCLR:
	case VB_OP_BCLRI:
		emit_bit(tx, insn, 0x0fb3, 6, insn->op == VB_OP_BCLRI);
		return true;
	case VB_OP_BINV:
	case VB_OP_BINVI:
		emit_bit(tx, insn, 0x0fbb, 7, insn->op == VB_OP_BINVI);
		return true;
	case VB_OP_BSET:
	case VB_OP_BSETI:
		emit_bit(tx, insn, 0x0fab, 5, insn->op == VB_OP_BSETI);
		return true;
	case VB_OP_BEXT:
	case VB_OP_BEXTI:
		emit_bext(tx, insn, insn->op == VB_OP_BEXTI);
		return true;
	default:
		return false;
	}
}

/* Counts, minimum and maximum. */
static bool emit_numbers(struct tx *tx, const struct vb_insn *insn)
{
	switch (insn->op) {
	case VB_OP_CLZ:
	case VB_OP_CLZW:
		emit_count(tx, insn, 0x0fbd, insn->op == VB_OP_CLZW);
		return true;
	case VB_OP_CTZ:
	case VB_OP_CTZW:
		emit_count(tx, insn, 0x0fbc, insn->op == VB_OP_CTZW);
		return true;
	case VB_OP_CPOP:
	case VB_OP_CPOPW:
		emit_count(tx, insn, 0x0fb8, insn->op == VB_OP_CPOPW);
		return true;
	case VB_OP_MAX:
		emit_minmax(tx, insn, CC_L);
		return true;
	case VB_OP_MAXU:
		emit_minmax(tx, insn, CC_B);
		return true;
	case VB_OP_MIN:
		emit_minmax(tx, insn, CC_G);
		return true;
	case VB_OP_MINU:
		emit_minmax(tx, insn, CC_A);
		return true;
	default:
		return false;
	}
}

bool emit_bits(struct tx *tx, const struct vb_insn *insn)
{
	int d = dst(tx, insn->rd);

	if (insn->op < VB_OP_ADD_UW || insn->op > VB_OP_CLMULR)
		return false;
	if (insn->rd == VB_CPU_SINK)
		return true;
	switch (insn->op) {
	case VB_OP_ANDN:
	case VB_OP_ORN:
	case VB_OP_XNOR:
		emit_inverted(tx, insn);
		return true;
	case VB_OP_SEXT_B:
		emit_extend(tx, insn, 0x0fbe, X_W | X_BRM);
		return true;
	case VB_OP_SEXT_H:
		emit_extend(tx, insn, 0x0fbf, X_W);
		return true;
	case VB_OP_ZEXT_H:
		emit_extend(tx, insn, 0x0fb7, 0);
		return true;
	case VB_OP_ROL:
	case VB_OP_ROLW:
		emit_rotate_reg(tx, insn, true, insn->op == VB_OP_ROLW);
		return true;
	case VB_OP_ROR:
	case VB_OP_RORW:
		emit_rotate_reg(tx, insn, false, insn->op == VB_OP_RORW);
		return true;
	case VB_OP_RORI:
	case VB_OP_RORIW:
		emit_rotate_imm(tx, insn, insn->op == VB_OP_RORIW);
		return true;
	case VB_OP_ORC_B:
		emit_orc_b(tx, insn);
		return true;
	case VB_OP_REV8:
		mov_rr(&tx->c, d, src64(tx, insn->rs1, RAX));
		bswap(&tx->c, true, d);
		finish(tx, insn->rd, d, false);
		return true;
	default:
		return emit_numbers(tx, insn) || emit_zba(tx, insn) || emit_zbs(tx, insn) ||
		       emit_zbc(tx, insn);
	}
}

// SPDX-License-Identifier: MIT
/*
 * Owns the translation of arithmetic: constants, add to xor, shifts, multiply and divide, 64 and 32
 * bits.
 */
#include "dpa/cpu/jit/code.h"

/* ---- copies and constants ---- */

/* auipc rd; jalr rd, rd: a call in two instructions. lui or auipc rd; addi rd, rd: a constant. The
 * second overwrites rd, knows the first's value, and nothing can stop in between. */
static bool is_first_half(const struct tx *tx, const struct vb_insn *insn)
{
	const struct vb_insn *next = &tx->jit->text->insns[tx->next];

	return tx->left >= 2 && next->rd == insn->rd && next->rs1 == insn->rd && insn->rd != 2 &&
	       (next->op == VB_OP_JALR || next->op == VB_OP_ADDI || next->op == VB_OP_ADDIW);
}

/* lui, auipc */
static void emit_upper(struct tx *tx, const struct vb_insn *insn, uint64_t value)
{
	if (!is_first_half(tx, insn)) {
		write_const(tx, insn->rd, value);
		return;
	}
	tx->pending &= ~(1U << insn->rd);
	tx->facts[insn->rd] = (struct fact){ .known = true, .value = value };
	notes_void(tx); /* they may speak of what rd was */
}

/* rd = rs1 + imm; what is known of rs1 holds for rd, moved by imm. */
static void emit_addi(struct tx *tx, unsigned int rd, unsigned int rs1, int32_t imm)
{
	struct fact fact = tx->facts[rs1];
	int d = dst(tx, rd), a;
	int64_t drift;
	bool flags;

	if (rd == VB_CPU_SINK)
		return;
	if (rs1 == 0 || fact.known) {
		write_const(tx, rd, (rs1 ? fact.value : 0) + (uint64_t)(int64_t)imm);
		return;
	}
	if (imm == 0 && tx->pending >> rs1 & 1 && rd != 2 && tx->gen->host[rd] != NOREG) {
		mov_rr(&tx->c, d, tx->gen->host[rs1]);
		tx->pending |= 1U << rd;
		tx->facts[rd] = (struct fact){ 0 };
		return;
	}
	if (rd == rs1 && tx->gen->host[rd] == NOREG) {
		alu_imm(&tx->c, X_W, ALU_ADD, slot(rd), imm);
		flags = true;
	} else {
		a = src64(tx, rs1, d);
		if (imm == 0)
			d = a; /* finish() moves it */
		else if (a == d)
			alu_imm(&tx->c, X_W, ALU_ADD, rm_reg(d), imm);
		else
			lea(&tx->c, X_W, d, rm_mem(a, imm));
		flags = imm && a == d;
	}
	if (rd == rs1 && tx->gen->host[rd] == NOREG && rd != 2) {
		tx->facts[rd].word = false;
		tx->facts[rd].below = 0;
	} else if (rd == rs1 && tx->gen->host[rd] == NOREG) {
		mov_load(&tx->c, RAX, slot(rd));
		finish(tx, rd, RAX, false);
	} else {
		finish(tx, rd, d, imm == 0 && fact.word);
	}
	if (flags)
		note_zero(tx, rd);
	drift = (int64_t)fact.drift + imm;
	tx->facts[rd].window = fact.window;
	if (fact.checked && drift < DRIFT_MAX && drift > -DRIFT_MAX) {
		tx->facts[rd].checked = true;
		tx->facts[rd].drift = (int32_t)drift;
		tx->facts[rd].stub = fact.stub;
	} else {
		tx->facts[rd].checked = false;
	}
}

/* ---- two operands ---- */

/*
 * and, or, xor of two sign-extended words is the sign-extended and, or, xor: pending may stay
 * pending.
 */
static bool both_words(const struct tx *tx, unsigned int a, unsigned int b)
{
	bool pending = tx->pending >> a & 1 || tx->pending >> b & 1;

	return pending && (tx->pending >> a & 1 || tx->facts[a].word || a == 0) &&
	       (tx->pending >> b & 1 || tx->facts[b].word || b == 0);
}

/* sltu x, rd, .. is next: it asks for the carry, which lea does not tell. */
static bool wants_carry(const struct tx *tx, const struct vb_insn *insn)
{
	const struct vb_insn *next = &tx->jit->text->insns[tx->next];

	return tx->left >= 2 && next->op == VB_OP_SLTU && next->rs1 == insn->rd;
}

static void emit_binary(struct tx *tx, const struct vb_insn *insn, enum x86_alu op, bool word)
{
	unsigned int rs1 = insn->rs1, rs2 = insn->rs2, flags = word ? 0 : X_W;
	int d = dst(tx, insn->rd), hb = tx->gen->host[rs2];
	bool logic = op == ALU_AND || op == ALU_OR || op == ALU_XOR, result_word = word;
	unsigned int bits = result_bits(tx, insn);
	bool with_flags;
	struct rm b;
	int a;

	if (logic && both_words(tx, rs1, rs2)) {
		flags = 0;
		result_word = true;
	}
	if (op != ALU_SUB && d == hb && rs1 != rs2) { /* commutes: make d the first operand */
		unsigned int swap = rs1;

		rs1 = rs2;
		rs2 = swap;
	} else if (d == hb && rs1 != rs2) {
		d = RAX;
	}
	/*
	 * d is not rs2's register by now, unless it is rs1's as well: rs1 may be fetched right into
	 * it.
	 */
	a = flags ? src64(tx, rs1, d) : src32(tx, rs1, d);
	b = flags ? operand64(tx, rs2) : operand32(tx, rs2);
	with_flags = op != ALU_ADD || a == d || b.reg == NOREG || wants_carry(tx, insn);
	if (with_flags) {
		mov_rr(&tx->c, d, a);
		alu(&tx->c, flags, op, d, b);
	} else {
		lea(&tx->c, flags, d, rm_index(a, b.reg, 0, 0));
	}
	if (result_word)
		finish_bits(tx, insn->rd, d, bits);
	else
		finish(tx, insn->rd, d, logic && tx->facts[rs1].word && tx->facts[rs2].word);
	if (!with_flags)
		return;
	note_zero(tx, insn->rd);
	if (op == ALU_ADD && flags)
		note_carry(tx, insn->rd, rs1, rs2);
}

static void emit_logic_imm(struct tx *tx, const struct vb_insn *insn, enum x86_alu op)
{
	bool pending = tx->pending >> insn->rs1 & 1, word = tx->facts[insn->rs1].word;
	int d = dst(tx, insn->rd), a = pending ? src32(tx, insn->rs1, d) : src64(tx, insn->rs1, d);

	/* A positive mask clears the upper half whatever it was. */
	if (op == ALU_AND && insn->imm >= 0) {
		if (insn->imm == 0xff) {
			ins(&tx->c, X_BRM, 0x0fb6, d, rm_reg(a)); /* movzx */
		} else {
			if (d != a)
				ins(&tx->c, 0, 0x8b, d, rm_reg(a));
			alu_imm(&tx->c, 0, op, rm_reg(d), insn->imm);
		}
		finish(tx, insn->rd, d, true);
		if (insn->imm != 0xff)
			note_zero(tx, insn->rd);
		return;
	}
	mov_rr(&tx->c, d, a);
	if (op == ALU_XOR && insn->imm == -1)
		ins(&tx->c, pending ? 0 : X_W, 0xf7, 2, rm_reg(d)); /* not */
	else
		alu_imm(&tx->c, pending ? 0 : X_W, op, rm_reg(d), insn->imm);
	if (pending)
		finish_word(tx, insn->rd, d);
	else
		finish(tx, insn->rd, d, word);
	if (op != ALU_XOR || insn->imm != -1) /* "not" leaves the flags alone */
		note_zero(tx, insn->rd);
}

/* ---- shifts ---- */

static void emit_shift_imm(struct tx *tx, const struct vb_insn *insn, enum x86_shift op, bool word)
{
	int d = dst(tx, insn->rd);
	int a = word ? src32(tx, insn->rs1, d) : src64(tx, insn->rs1, d);
	unsigned int n = (unsigned int)insn->imm, bits = result_bits(tx, insn);
	bool with_lea = !word && op == SH_SHL && n >= 1 && n <= 3 && a != d;

	if (with_lea) {
		lea(&tx->c, X_W, d, n == 1 ? rm_index(a, a, 0, 0) : rm_index(NOREG, a, n, 0));
	} else {
		mov_rr(&tx->c, d, a);
		if (n)
			shift_imm(&tx->c, word ? 0 : X_W, op, d, n);
	}
	if (word && !(op == SH_SHR && n)) {
		finish_bits(tx, insn->rd, d, n ? bits : 64);
	} else if (word) { /* a right shift leaves the sign bit clear, and the upper half with it */
		finish(tx, insn->rd, d, true);
	} else {
		finish(tx, insn->rd, d, n >= 33 && op != SH_SHL);
	}
	if (n && !with_lea)
		note_zero(tx, insn->rd);
}

static void emit_shift_reg(struct tx *tx, const struct vb_insn *insn, enum x86_shift op, bool word)
{
	int d = dst(tx, insn->rd), count;
	struct vb_insn known = *insn;
	struct rm a;

	if (tx->facts[insn->rs2].known) {
		known.imm = (int32_t)(tx->facts[insn->rs2].value & (word ? 31 : 63));
		emit_shift_imm(tx, &known, op, word);
		return;
	}
	count = src32(tx, insn->rs2, RDX);
	a = word ? operand32(tx, insn->rs1) : operand64(tx, insn->rs1);
	shift_reg(&tx->c, !word, op, d, a, count);
	if (word)
		finish_word(tx, insn->rd, d);
	else
		finish(tx, insn->rd, d, false);
}

/* ---- comparisons into a register ---- */

/* d = the condition, without a look at what d was; a plain move leaves the flags alone. */
static void set_flag(struct tx *tx, unsigned int rd, enum x86_cc cc)
{
	int d = dst(tx, rd);

	mov_imm(&tx->c, d, 0);
	setcc(&tx->c, cc, d);
	finish(tx, rd, d, true);
}

static void emit_set_imm(struct tx *tx, const struct vb_insn *insn, enum x86_cc cc)
{
	bool is_zero = insn->op == VB_OP_SLTIU && insn->imm == 1;

	if (is_zero && !zero_is_noted(tx, insn->rs1))
		emit_compare(tx, insn->rs1, 0);
	else if (!is_zero) /* the slot of an unmapped register can be compared where it is */
		alu_imm(&tx->c, X_W, ALU_CMP, operand64(tx, insn->rs1), insn->imm);
	set_flag(tx, insn->rd, is_zero ? CC_E : cc);
}

static void emit_set(struct tx *tx, const struct vb_insn *insn, enum x86_cc cc)
{
	bool not_zero = insn->op == VB_OP_SLTU && insn->rs1 == 0;

	if (not_zero && !zero_is_noted(tx, insn->rs2))
		emit_compare(tx, insn->rs2, 0);
	else if (!not_zero && !(insn->op == VB_OP_SLTU && carry_is_noted(tx, insn->rs1, insn->rs2)))
		emit_compare(tx, insn->rs1, insn->rs2);
	set_flag(tx, insn->rd, not_zero ? CC_NE : cc);
}

/* ---- multiply, divide ---- */

static void emit_mul(struct tx *tx, const struct vb_insn *insn, bool word)
{
	unsigned int rs1 = insn->rs1, rs2 = insn->rs2;
	unsigned int bits = result_bits(tx, insn);
	int d = dst(tx, insn->rd), a;
	struct rm b;

	if (rs1 == 0 || rs2 == 0) {
		write_const(tx, insn->rd, 0);
		return;
	}
	if (!word && product_is_noted(tx, rs1, rs2)) {
		finish(tx, insn->rd, RAX, false);
		return;
	}
	if (tx->gen->host[rs2] == d) {
		rs1 = insn->rs2;
		rs2 = insn->rs1;
	}
	b = word ? operand32(tx, rs2) : operand64(tx, rs2);
	a = word ? src32(tx, rs1, d) : src64(tx, rs1, d);
	mov_rr(&tx->c, d, a);
	ins(&tx->c, word ? 0 : X_W, 0x0faf, d, b);
	if (word)
		finish_bits(tx, insn->rd, d, bits);
	else
		finish(tx, insn->rd, d, false);
}

static void emit_mulh(struct tx *tx, const struct vb_insn *insn)
{
	struct rm b;

	mov_rr(&tx->c, RAX, src64(tx, insn->rs1, RAX));
	b = operand64(tx, insn->rs2);
	ins(&tx->c, X_W, 0xf7, insn->op == VB_OP_MULH ? 5 : 4, b); /* imul, mul: rdx = high half */
	if (insn->op == VB_OP_MULHSU) { /* unsigned product minus rs2 where rs1 is negative */
		mov_rr(&tx->c, RAX, src64(tx, insn->rs1, RAX));
		shift_imm(&tx->c, X_W, SH_SAR, RAX, 63);
		alu(&tx->c, X_W, ALU_AND, RAX, b);
		alu(&tx->c, X_W, ALU_SUB, RDX, rm_reg(RAX));
	}
	finish(tx, insn->rd, RDX, false);
	if (insn->op != VB_OP_MULHSU)
		note_product(tx, insn->rd, insn->rs1, insn->rs2);
}

/* The operands that x86 would fault on, or answer differently, are left to the interpreter. */
static void emit_div(struct tx *tx, const struct vb_insn *insn, bool sign, bool remainder,
		     bool word)
{
	unsigned int flags = word ? 0 : X_W;
	uint32_t stub, site;
	struct rm b;
	int a;

	if (insn->rd == 2 || insn->rs2 == 0) {
		emit_execute(tx, insn);
		return;
	}
	if (!word) { /* for the extension only; the values are fetched below */
		operand64(tx, insn->rs1);
		operand64(tx, insn->rs2);
	}
	a = src32(tx, insn->rs2, RAX);
	if (sign) {
		lea(&tx->c, flags, RDX, rm_mem(a, 1));
		alu_imm(&tx->c, flags, ALU_CMP, rm_reg(RDX), 1);
	} else {
		test_rr(&tx->c, flags, a, a);
	}
	site = add_site(tx);
	stub = add_stub(tx, STUB_EXECUTE, jcc_forward(&tx->c, sign ? CC_BE : CC_E));
	b = operand32(tx, insn->rs2);
	a = src32(tx, insn->rs1, RAX);
	mov_rr(&tx->c, RAX, a);
	if (sign)
		sign_extend_rax(&tx->c, !word);
	else
		ins(&tx->c, 0, 0x33, RDX, rm_reg(RDX));
	ins(&tx->c, flags, 0xf7, sign ? 7 : 6, b);
	if (word)
		finish_word(tx, insn->rd, remainder ? RDX : RAX);
	else
		finish(tx, insn->rd, remainder ? RDX : RAX, false);
	if (tx->failed)
		return;
	tx->stubs[stub].site = site;
	stub_returns(tx, stub);
}

/* ---- dispatch ---- */

/* addiw of a constant */
static uint64_t word_sum(const struct tx *tx, const struct vb_insn *insn)
{
	uint64_t a = insn->rs1 ? tx->facts[insn->rs1].value : 0;

	return (uint64_t)(int64_t)(int32_t)((uint32_t)a + (uint32_t)insn->imm);
}

static bool emit_alu_word(struct tx *tx, const struct vb_insn *insn)
{
	unsigned int bits = result_bits(tx, insn);
	int d = dst(tx, insn->rd), a;

	switch (insn->op) {
	case VB_OP_ADDIW:
		if (insn->rs1 == 0 || tx->facts[insn->rs1].known) { /* li in two instructions */
			write_const(tx, insn->rd, word_sum(tx, insn));
			return true;
		}
		a = src32(tx, insn->rs1, d);
		if (insn->imm == 0) { /* sext.w */
			movsxd_rr(&tx->c, d, a);
			finish(tx, insn->rd, d, true);
			return true;
		}
		if (a == d)
			alu_imm(&tx->c, 0, ALU_ADD, rm_reg(d), insn->imm);
		else
			lea(&tx->c, 0, d, rm_mem(a, insn->imm));
		finish_bits(tx, insn->rd, d, bits);
		if (a == d)
			note_zero(tx, insn->rd);
		return true;
	case VB_OP_ADDW:
		emit_binary(tx, insn, ALU_ADD, true);
		return true;
	case VB_OP_SUBW:
		emit_binary(tx, insn, ALU_SUB, true);
		return true;
	case VB_OP_SLLIW:
		emit_shift_imm(tx, insn, SH_SHL, true);
		return true;
	case VB_OP_SRLIW:
		emit_shift_imm(tx, insn, SH_SHR, true);
		return true;
	case VB_OP_SRAIW:
		emit_shift_imm(tx, insn, SH_SAR, true);
		return true;
	case VB_OP_SLLW:
		emit_shift_reg(tx, insn, SH_SHL, true);
		return true;
	case VB_OP_SRLW:
		emit_shift_reg(tx, insn, SH_SHR, true);
		return true;
	case VB_OP_SRAW:
		emit_shift_reg(tx, insn, SH_SAR, true);
		return true;
	default:
		return false;
	}
}

static bool emit_muldiv(struct tx *tx, const struct vb_insn *insn)
{
	switch (insn->op) {
	case VB_OP_MUL:
	case VB_OP_MULW:
		emit_mul(tx, insn, insn->op == VB_OP_MULW);
		return true;
	case VB_OP_MULH:
	case VB_OP_MULHU:
	case VB_OP_MULHSU:
		emit_mulh(tx, insn);
		return true;
	case VB_OP_DIV:
	case VB_OP_DIVU:
	case VB_OP_REM:
	case VB_OP_REMU:
		emit_div(tx, insn, insn->op == VB_OP_DIV || insn->op == VB_OP_REM,
			 insn->op >= VB_OP_REM, false);
		return true;
	case VB_OP_DIVW:
	case VB_OP_DIVUW:
	case VB_OP_REMW:
	case VB_OP_REMUW:
		emit_div(tx, insn, insn->op == VB_OP_DIVW || insn->op == VB_OP_REMW,
			 insn->op >= VB_OP_REMW, true);
		return true;
	default:
		return false;
	}
}

static bool emit_alu_reg(struct tx *tx, const struct vb_insn *insn)
{
	switch (insn->op) {
	case VB_OP_ADD:
		if (insn->rs1 == 0 || insn->rs2 == 0)
			emit_addi(tx, insn->rd, insn->rs1 ? insn->rs1 : insn->rs2, 0);
		else if (is_imm32(tx, insn->rs2))
			emit_addi(tx, insn->rd, insn->rs1, (int32_t)tx->facts[insn->rs2].value);
		else if (is_imm32(tx, insn->rs1))
			emit_addi(tx, insn->rd, insn->rs2, (int32_t)tx->facts[insn->rs1].value);
		else
			emit_binary(tx, insn, ALU_ADD, false);
		return true;
	case VB_OP_SUB:
		emit_binary(tx, insn, ALU_SUB, false);
		return true;
	case VB_OP_XOR:
		emit_binary(tx, insn, ALU_XOR, false);
		return true;
	case VB_OP_OR:
		emit_binary(tx, insn, ALU_OR, false);
		return true;
	case VB_OP_AND:
		emit_binary(tx, insn, ALU_AND, false);
		return true;
	case VB_OP_SLL:
		emit_shift_reg(tx, insn, SH_SHL, false);
		return true;
	case VB_OP_SRL:
		emit_shift_reg(tx, insn, SH_SHR, false);
		return true;
	case VB_OP_SRA:
		emit_shift_reg(tx, insn, SH_SAR, false);
		return true;
	case VB_OP_SLT:
		emit_set(tx, insn, CC_L);
		return true;
	case VB_OP_SLTU:
		emit_set(tx, insn, CC_B);
		return true;
	default:
		return false;
	}
}

bool emit_alu(struct tx *tx, const struct vb_insn *insn)
{
	bool arithmetic = insn->op <= VB_OP_AUIPC ||
			  (insn->op >= VB_OP_ADDI && insn->op <= VB_OP_SRAW) ||
			  (insn->op >= VB_OP_MUL && insn->op <= VB_OP_REMUW);

	if (!arithmetic)
		return false;
	if (insn->rd == VB_CPU_SINK) /* without a result there is nothing to do */
		return true;
	switch (insn->op) {
	case VB_OP_LUI:
		emit_upper(tx, insn, (uint64_t)(int64_t)insn->imm);
		return true;
	case VB_OP_AUIPC:
		emit_upper(tx, insn, pc_of(tx, tx->index) + (uint64_t)(int64_t)insn->imm);
		return true;
	case VB_OP_ADDI:
		emit_addi(tx, insn->rd, insn->rs1, insn->imm);
		return true;
	case VB_OP_SLTI:
		emit_set_imm(tx, insn, CC_L);
		return true;
	case VB_OP_SLTIU:
		emit_set_imm(tx, insn, CC_B);
		return true;
	case VB_OP_XORI:
		emit_logic_imm(tx, insn, ALU_XOR);
		return true;
	case VB_OP_ORI:
		emit_logic_imm(tx, insn, ALU_OR);
		return true;
	case VB_OP_ANDI:
		emit_logic_imm(tx, insn, ALU_AND);
		return true;
	case VB_OP_SLLI:
		emit_shift_imm(tx, insn, SH_SHL, false);
		return true;
	case VB_OP_SRLI:
		emit_shift_imm(tx, insn, SH_SHR, false);
		return true;
	case VB_OP_SRAI:
		emit_shift_imm(tx, insn, SH_SAR, false);
		return true;
	default:
		return emit_alu_reg(tx, insn) || emit_alu_word(tx, insn) || emit_muldiv(tx, insn);
	}
}

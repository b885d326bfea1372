// SPDX-License-Identifier: MIT
/*
 * Owns the translation of LR, SC and the AMOs on guest memory.
 *
 *   amoswap, amoadd       xchg, lock xadd
 *   amoand, or, xor to x0 lock and, or, xor
 *   other amo             rax = old; again: rdx = old OP rs2; lock cmpxchg; jne again
 *   lr                    load, and remember address, width and value in the cpu
 *   sc                    lock cmpxchg against the value, if address and width are the remembered
 *
 * A misaligned address, and one that is not below the limit, is the interpreter's, as is the rare
 * instruction whose operands find no free register. Everything is written in the order in which
 * the interpreter does it, so that a fault leaves the same state.
 */
#include "dpa/cpu/jit/code.h"

/* The operand in memory, and the stubs for operands that are not plain. */
struct place {
	struct rm m;
	uint32_t outside, misaligned; /* UINT32_MAX: there is none */
};

static bool is_word(const struct vb_insn *insn)
{
	return insn->op < VB_OP_LR_D;
}

static unsigned int width(const struct vb_insn *insn)
{
	return is_word(insn) ? 0 : X_W;
}

static int value(struct tx *tx, const struct vb_insn *insn)
{
	return is_word(insn) ? src32(tx, insn->rs2, RDX) : src64(tx, insn->rs2, RDX);
}

/* Where the operand is in guest memory, once its address is in a register. */
static void emit_atomic_check_alignment(struct tx *tx, const struct vb_insn *insn, struct place *p)
{
	p->misaligned = UINT32_MAX;
	if (p->m.base == NOREG)
		return;
	ins(&tx->c, X_BRM, 0xf6, 0, rm_reg(p->m.base)); /* test base, mask */
	put8(&tx->c, is_word(insn) ? 3 : 7);
	p->misaligned = add_stub(tx, STUB_EXECUTE, jcc_forward(&tx->c, CC_NE));
}

static bool known_misaligned(const struct tx *tx, const struct vb_insn *insn)
{
	const struct fact *fact = &tx->facts[insn->rs1];

	return fact->known && fact->value & (is_word(insn) ? 3 : 7);
}

/* The address is in rax, or a constant. False: nothing was emitted, the interpreter does it. */
static bool emit_atomic_find_place(struct tx *tx, const struct vb_insn *insn, struct place *p)
{
	if (known_misaligned(tx, insn) ||
	    !guest_address(tx, insn, is_word(insn) ? 4 : 8, true, &p->m, &p->outside))
		return false;
	emit_atomic_check_alignment(tx, insn, p);
	return true;
}

/* The address is in the base's own register, or a constant: rax and rdx are free. */
static bool find_place_free(struct tx *tx, const struct vb_insn *insn, struct place *p)
{
	if (known_misaligned(tx, insn) ||
	    !guest_address_in_place(tx, insn, is_word(insn) ? 4 : 8, &p->m, &p->outside))
		return false;
	emit_atomic_check_alignment(tx, insn, p);
	return true;
}

/* reg holds the result; the stubs come back behind it. */
static void emit_atomic_end(struct tx *tx, const struct vb_insn *insn, const struct place *p,
			    uint32_t site, int reg)
{
	if (is_word(insn))
		finish_word(tx, insn->rd, reg);
	else
		finish(tx, insn->rd, reg, false);
	complete_stub(tx, p->outside, site, false);
	complete_stub(tx, p->misaligned, site, false);
}

static bool emit_exchange(struct tx *tx, const struct vb_insn *insn, bool add)
{
	struct place p;
	uint32_t site;

	mov_rr(&tx->c, RDX, value(tx, insn));
	if (!emit_atomic_find_place(tx, insn, &p))
		return false;
	site = add_site(tx);
	ins(&tx->c, (add ? X_LOCK : 0) | X_GUEST | width(insn), add ? 0x0fc1 : 0x87, RDX, p.m);
	emit_atomic_end(tx, insn, &p, site, RDX);
	return true;
}

/* Nobody wants the old value. */
static bool emit_logic_only(struct tx *tx, const struct vb_insn *insn, enum x86_alu op)
{
	int v = value(tx, insn);
	struct place p;
	uint32_t site;

	if (!emit_atomic_find_place(tx, insn, &p))
		return false;
	site = add_site(tx);
	ins(&tx->c, X_LOCK | X_GUEST | width(insn), (uint32_t)op * 8 + 1, v, p.m);
	emit_atomic_end(tx, insn, &p, site, v);
	return true;
}

/* take: minimum or maximum, the condition under which the old value stays; NOCC: op */
#define NOCC (-1)

static bool emit_loop(struct tx *tx, const struct vb_insn *insn, enum x86_alu op, int take)
{
	unsigned int w = width(insn);
	struct code *c = &tx->c;
	uint32_t site, again;
	struct place p;
	struct rm b;

	b = w ? operand64(tx, insn->rs2) : operand32(tx, insn->rs2);
	if (!find_place_free(tx, insn, &p))
		return false;
	site = add_site(tx);
	ins(c, X_GUEST | w, 0x8b, RAX, p.m);
	again = code_offset(c);
	if (take == NOCC) {
		mov_rr(c, RDX, RAX);
		alu(c, w, op, RDX, b);
	} else {
		ins(c, w, 0x8b, RDX, b);
		alu(c, w, ALU_CMP, RAX, rm_reg(RDX));
		ins(c, w, 0x0f40U + (unsigned int)take, RDX, rm_reg(RAX)); /* cmov */
	}
	confine_again(tx, &p.m);
	add_site(tx);
	ins(c, X_LOCK | X_GUEST | w, 0x0fb1, RDX, p.m); /* cmpxchg: rax is the old value if not */
	jcc_to(c, CC_NE, again);
	emit_atomic_end(tx, insn, &p, site, RAX);
	return true;
}

static bool emit_logic(struct tx *tx, const struct vb_insn *insn, enum x86_alu op)
{
	return insn->rd == VB_CPU_SINK ? emit_logic_only(tx, insn, op)
				       : emit_loop(tx, insn, op, NOCC);
}

/* rax = reserved_addr of LR and SC: the low bits of an aligned address hold the width. */
static void load_tag(struct tx *tx, const struct vb_insn *insn, const struct place *p)
{
	int32_t wide = !is_word(insn);

	if (p->m.base == NOREG)
		mov_imm(&tx->c, RAX, (uint64_t)(p->m.disp + wide));
	else if (wide || p->m.base != RAX)
		lea(&tx->c, X_W, RAX, rm_mem(p->m.base, wide));
}

static bool emit_lr(struct tx *tx, const struct vb_insn *insn)
{
	struct place p;
	uint32_t site;

	if (!emit_atomic_find_place(tx, insn, &p))
		return false;
	site = add_site(tx);
	ins(&tx->c, X_GUEST | width(insn), 0x8b, RDX, p.m);
	load_tag(tx, insn, &p);
	mov_store(&tx->c, FIELD(reserved_addr), RAX);
	mov_store(&tx->c, FIELD(reserved_value), RDX);
	emit_atomic_end(tx, insn, &p, site, RDX);
	return true;
}

/*
 * The base of an SC is needed twice: in its own register, or copied to rdx, if the new value does
 * not need that.
 */
static bool sc_place(struct tx *tx, const struct vb_insn *insn, struct place *p)
{
	if (tx->facts[insn->rs1].known || tx->gen->host[insn->rs1] != NOREG)
		return find_place_free(tx, insn, p);
	if (tx->gen->host[insn->rs2] == NOREG || known_misaligned(tx, insn) ||
	    !guest_address(tx, insn, is_word(insn) ? 4 : 8, false, &p->m, &p->outside))
		return false;
	ins(&tx->c, 0, 0x8b, RDX, rm_reg(RAX));
	p->m.base = RDX;
	emit_atomic_check_alignment(tx, insn, p);
	return true;
}

static bool emit_sc(struct tx *tx, const struct vb_insn *insn)
{
	struct code *c = &tx->c;
	uint32_t site, over;
	struct place p;
	int v;

	v = value(tx, insn);
	if (!sc_place(tx, insn, &p))
		return false;
	load_tag(tx, insn, &p);
	alu(c, X_W, ALU_CMP, RAX, FIELD(reserved_addr));
	ins(c, X_W, 0xc7, 0, FIELD(reserved_addr)); /* whatever comes, it is used up */
	put32(c, UINT32_MAX);
	over = jcc_forward(c, CC_NE);
	mov_load(c, RAX, FIELD(reserved_value));
	site = add_site(tx);
	ins(c, X_LOCK | X_GUEST | width(insn), 0x0fb1, v, p.m);
	patch32(c, over, code_offset(c));
	setcc(c, CC_NE, RAX); /* "not equal" came here from either */
	ins(c, X_BRM, 0x0fb6, RAX, rm_reg(RAX));
	emit_atomic_end(tx, insn, &p, site, RAX);
	return true;
}

static bool emit_kind(struct tx *tx, const struct vb_insn *insn)
{
	switch (is_word(insn) ? insn->op : insn->op - VB_OP_LR_D + VB_OP_LR_W) {
	case VB_OP_LR_W:
		return emit_lr(tx, insn);
	case VB_OP_SC_W:
		return emit_sc(tx, insn);
	case VB_OP_AMOSWAP_W:
	case VB_OP_AMOADD_W:
		return emit_exchange(tx, insn,
				     insn->op == VB_OP_AMOADD_W || insn->op == VB_OP_AMOADD_D);
	case VB_OP_AMOXOR_W:
		return emit_logic(tx, insn, ALU_XOR);
	case VB_OP_AMOAND_W:
		return emit_logic(tx, insn, ALU_AND);
	case VB_OP_AMOOR_W:
		return emit_logic(tx, insn, ALU_OR);
	case VB_OP_AMOMIN_W:
		return emit_loop(tx, insn, ALU_CMP, CC_L);
	case VB_OP_AMOMAX_W:
		return emit_loop(tx, insn, ALU_CMP, CC_G);
	case VB_OP_AMOMINU_W:
		return emit_loop(tx, insn, ALU_CMP, CC_B);
	default:
		return emit_loop(tx, insn, ALU_CMP, CC_A);
	}
}

bool emit_atomic(struct tx *tx, const struct vb_insn *insn)
{
	if (insn->op < VB_OP_LR_W || insn->op > VB_OP_AMOMAXU_D)
		return false;
	flush_fence(tx);
	if (insn->rd == 2 || !emit_kind(tx, insn))
		emit_execute(tx, insn);
	return true;
}

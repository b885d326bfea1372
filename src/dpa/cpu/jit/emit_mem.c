// SPDX-License-Identifier: MIT
/*
 * Owns the translation of loads, stores and fences.
 *
 *   cmp base, limit             if nothing said so before on this straight line; never for sp
 *   jae stub                    windows, device pages, wild pointers
 *   mov eax, base32             the low half and nothing else: whatever base is, the access stays in
 *   mov reg, [r14 + rax + imm]  the 4 GiB behind r14 and the guards; the MMU decides the rest
 *
 * The compare is for correctness: it tells what a window serves from what memory does. The copy is
 * for isolation. What is believed of a register saves compares, never a copy: that is only left out
 * between accesses through one register that follow each other in the host code (emit_reuse.c).
 *
 * A stub whose compare vouches for later accesses as well must not come back: behind it they would
 * go unchecked. It then leaves for the interpreter, which returns to translated code at the next
 * leader.
 */
#include "dpa/cpu/jit/code.h"

_Static_assert(VB_CPU_LIMIT_MAX + DRIFT_MAX + 4096 <= VB_CPU_SPAN,
	       "a base that drifted out of memory on either side is not in it again as 32 bits");

/*
 * Compare the base with the limit, unless what is known of it makes that superfluous. *stub is the
 * one to complete once the access is emitted, UINT32_MAX if there is none. certain: whoever gets
 * past the instruction has touched memory there; an SC may fail and get past without.
 */
static void check_base(struct tx *tx, unsigned int rs1, int32_t imm, bool certain, uint32_t *stub)
{
	struct fact *fact = &tx->facts[rs1];
	struct rm base = operand64(tx, rs1);

	*stub = UINT32_MAX;
	if (rs1 == 2 && tx->jit->sp_checked)
		return;
	if (fact->checked && fact->drift < DRIFT_MAX && fact->drift > -DRIFT_MAX) {
		tx->stubs[fact->stub].kind = STUB_LEAVE;
		/*
		 * The MMU let it pass, so base + imm is in guest memory: the drift counts from
		 * there.
		 */
		if (certain)
			fact->drift = -imm;
		return;
	}
	alu_imm(&tx->c, X_W, ALU_CMP, rax_is_noted(tx, rs1) ? rm_reg(RAX) : base,
		(int32_t)tx->jit->limit);
	*stub = add_stub(tx, STUB_EXECUTE, jcc_forward(&tx->c, CC_AE));
	if (tx->failed)
		return;
	/* Where windows were seen, every access checks for itself, so that its stub can come back.
	 */
	if (__atomic_load_n(&tx->jit->extra[tx->index], __ATOMIC_RELAXED) & EXTRA_WINDOW)
		fact->window = true;
	fact->checked = !fact->window;
	fact->drift = certain ? -imm : 0;
	fact->stub = *stub;
}

/* A constant address: in memory as a whole, or the interpreter's. */
static bool constant_address(const struct tx *tx, uint64_t addr, unsigned int size, struct rm *m)
{
	if (addr > tx->jit->limit - size)
		return false;
	*m = rm_mem(NOREG, (int32_t)addr);
	return true;
}

/*
 * The low half of the base in a scratch register; the only way to a register that may be an index
 * into guest memory.
 */
static void confine(struct tx *tx, int to, struct rm base)
{
	ins(&tx->c, 0, 0x8b, to, base);
}

/*
 * Address operand of an access of `size` bytes, made from rax. False: nothing was emitted, leave
 * the instruction to the interpreter.
 */
bool guest_address(struct tx *tx, const struct vb_insn *insn, unsigned int size, bool certain,
		   struct rm *m, uint32_t *stub)
{
	unsigned int rs1 = insn->rs1;
	bool in_rax, low;
	uint32_t before;

	*stub = UINT32_MAX;
	if (rs1 == 0)
		return false;
	if (tx->facts[rs1].known)
		return constant_address(tx, tx->facts[rs1].value + (uint64_t)(int64_t)insn->imm,
					size, m);
	in_rax = rax_is_noted(tx, rs1);
	low = low_is_noted(tx, rs1, &before);
	check_base(tx, rs1, insn->imm, certain, stub);
	if (tx->failed)
		return false;
	*m = rm_mem(RAX, insn->imm);
	/* No compare of its own: then the stub of the compare before has become one that leaves. */
	if (!low || *stub != UINT32_MAX ||
	    (before != UINT32_MAX && tx->stubs[before].kind != STUB_LEAVE))
		confine(tx, RAX, in_rax ? rm_reg(RAX) : operand32(tx, rs1));
	return true;
}

/*
 * The same where rax and rdx are needed for something else: the base stays in its own register,
 * whose upper half is cleared. It was compared right before, so that changes nothing.
 */
bool guest_address_in_place(struct tx *tx, const struct vb_insn *insn, unsigned int size,
			    struct rm *m, uint32_t *stub)
{
	unsigned int rs1 = insn->rs1;
	int base = tx->gen->host[rs1];

	*stub = UINT32_MAX;
	if (rs1 == 0)
		return false;
	if (tx->facts[rs1].known)
		return constant_address(tx, tx->facts[rs1].value, size, m);
	if (base == NOREG)
		return false;
	tx->facts[rs1].checked = false;
	check_base(tx, rs1, 0, false, stub);
	confine(tx, base, rm_reg(base));
	*m = rm_mem(base, 0);
	return !tx->failed;
}

/* Once more, where a jump may have come in between. */
void confine_again(struct tx *tx, const struct rm *m)
{
	if (m->base != NOREG)
		confine(tx, m->base, rm_reg(m->base));
}

/* window: a plain load or store, which a window can serve */
void complete_stub(struct tx *tx, uint32_t stub, uint32_t site, bool window)
{
	if (stub == UINT32_MAX || tx->failed)
		return;
	tx->stubs[stub].site = site;
	tx->stubs[stub].window = window;
	stub_returns(tx, stub);
}

static const struct {
	uint32_t opcode;
	unsigned int flags, size;
} load_forms[] = {
	[VB_OP_LB - VB_OP_LB] = { 0x0fbe, X_W, 1 }, [VB_OP_LH - VB_OP_LB] = { 0x0fbf, X_W, 2 },
	[VB_OP_LW - VB_OP_LB] = { 0x63, X_W, 4 },   [VB_OP_LD - VB_OP_LB] = { 0x8b, X_W, 8 },
	[VB_OP_LBU - VB_OP_LB] = { 0x0fb6, 0, 1 },  [VB_OP_LHU - VB_OP_LB] = { 0x0fb7, 0, 2 },
	[VB_OP_LWU - VB_OP_LB] = { 0x8b, 0, 4 },
};

/* Is the next instruction an access through the same register? Then rax is worth keeping. */
static bool run_goes_on(const struct tx *tx, const struct vb_insn *insn)
{
	const struct vb_insn *next = &tx->jit->text->insns[tx->next];

	return tx->left >= 2 && next->op >= VB_OP_LB && next->op <= VB_OP_SD &&
	       next->rs1 == insn->rs1 && insn->rd != insn->rs1;
}

static void emit_load(struct tx *tx, const struct vb_insn *insn)
{
	unsigned int kind = (unsigned int)insn->op - VB_OP_LB;
	int d = dst(tx, insn->rd);
	uint32_t stub, site;
	struct rm m;

	flush_fence(tx);
	if (insn->rd == 2 || !guest_address(tx, insn, load_forms[kind].size, true, &m, &stub)) {
		emit_execute(tx, insn);
		return;
	}
	if (d == RAX && run_goes_on(tx, insn))
		d = RDX;
	site = add_site(tx);
	ins(&tx->c, load_forms[kind].flags | X_GUEST, load_forms[kind].opcode, d, m);
	finish(tx, insn->rd, d, insn->op != VB_OP_LD && insn->op != VB_OP_LWU);
	complete_stub(tx, stub, site, true);
	if (d != RAX && m.base == RAX && insn->rd != insn->rs1)
		note_low(tx, insn->rs1, stub);
}

/* v: host register of the value; rs2 == 0: zero */
static void store_value(struct tx *tx, const struct vb_insn *insn, unsigned int flags, int v,
			struct rm m)
{
	unsigned int size = 1U << (insn->op - VB_OP_SB);

	flags |= size == 8 ? X_W : size == 2 ? X_16 : 0;
	if (insn->rs2) {
		ins(&tx->c, flags | (size == 1 ? X_BREG : 0), size == 1 ? 0x88 : 0x89, v, m);
		return;
	}
	ins(&tx->c, flags, size == 1 ? 0xc6 : 0xc7, 0, m);
	for (unsigned int i = 0; i < (size == 8 ? 4 : size); i++)
		put8(&tx->c, 0);
}

static void emit_store(struct tx *tx, const struct vb_insn *insn)
{
	uint32_t stub, site;
	struct rm m;
	int v = RDX;

	if (insn->rs2) /* first: its extension must not come between the note and the access */
		v = insn->op == VB_OP_SD ? src64(tx, insn->rs2, RDX) : src32(tx, insn->rs2, RDX);
	if (!guest_address(tx, insn, 1U << (insn->op - VB_OP_SB), true, &m, &stub)) {
		emit_execute(tx, insn);
		return;
	}
	site = add_site(tx);
	store_value(tx, insn, X_GUEST, v, m);
	complete_stub(tx, stub, site, true);
	if (m.base == RAX)
		note_low(tx, insn->rs1, stub);
}

void full_fence(struct tx *tx)
{
	ins(&tx->c, X_LOCK, 0x83, ALU_OR, rm_mem(RSP, 0));
	put8(&tx->c, 0);
}

/* Before a load, and before code that may load. Flags are lost. */
void flush_fence(struct tx *tx)
{
	if (tx->fence)
		full_fence(tx);
	tx->fence = false;
}

/*
 * Out of line: the base is not below the limit. If the window used last holds the access, make it
 * right here, between the same two marks, and with the same fence, that cpu/access.c makes;
 * otherwise ask the interpreter.
 */
void emit_window(struct tx *tx, const struct stub *stub)
{
	struct site note = tx->gen->sites[stub->site];
	const struct vb_insn *insn = &tx->jit->text->insns[note.index];
	bool load = insn->op <= VB_OP_LWU;
	unsigned int kind = (unsigned int)insn->op - VB_OP_LB;
	int d = dst(tx, insn->rd), base = tx->gen->host[insn->rs1], v = tx->gen->host[insn->rs2];
	struct code *c = &tx->c;
	uint32_t miss;

	ins(c, 0, 0xc7, 0, FIELD(accessing));
	put32(c, 1);
	if (vb_access_fences())
		full_fence(tx);
	if (base == NOREG)
		mov_load(c, RAX, slot(insn->rs1));
	lea(c, X_W, RAX, rm_mem(base == NOREG ? RAX : base, insn->imm));
	alu(c, X_W, ALU_SUB, RAX, FIELD(window_tag));
	alu(c, X_W, ALU_CMP, RAX, load ? FIELD(window_load) : FIELD(window_store));
	miss = jcc_forward(c, CC_AE);
	zero_unless_below(tx, RAX);
	alu(c, X_W, ALU_ADD, RAX, FIELD(window_host));
	tx->index = note.index;
	tx->left = note.left;
	tx->pending = note.pending;
	add_site(tx);
	if (load)
		ins(c, load_forms[kind].flags, load_forms[kind].opcode, d, rm_mem(RAX, 0));
	else
		store_value(tx, insn, 0, v == NOREG ? RDX : v, rm_mem(RAX, 0));
	ins(c, 0, 0xc7, 0, FIELD(accessing));
	put32(c, 0);
	if (load && insn->rd != VB_CPU_SINK && tx->gen->host[insn->rd] == NOREG)
		mov_store(c, slot(insn->rd), d);
	jmp_to(c, stub->back);
	patch32(c, miss, code_offset(c));
	ins(c, 0, 0xc7, 0, FIELD(accessing));
	put32(c, 0);
}

/*
 * x86 keeps all orders but store before load. fence.tso asks for just the others. What is left is put
 * off up to the next load: stores keep their order without it. So a loop that only stores, and has a
 * fence in each turn (emit_twice.c), executes one when it ends.
 */
static void emit_fence(struct tx *tx, const struct vb_insn *insn)
{
	unsigned int mode = (unsigned int)insn->imm >> 8 & 15,
		     pred = (unsigned int)insn->imm >> 4 & 15, succ = (unsigned int)insn->imm & 15;

	if (mode == 8 || !(pred & 5) || !(succ & 10))
		return;
	tx->fence = true;
}

bool emit_mem(struct tx *tx, const struct vb_insn *insn)
{
	switch (insn->op) {
	case VB_OP_FENCE:
		emit_fence(tx, insn);
		return true;
	case VB_OP_FENCE_I: /* text cannot change */
		return true;
	default:
		break;
	}
	if (insn->op >= VB_OP_LB && insn->op <= VB_OP_LWU)
		emit_load(tx, insn);
	else if (insn->op >= VB_OP_SB && insn->op <= VB_OP_SD)
		emit_store(tx, insn);
	else
		return false;
	return true;
}

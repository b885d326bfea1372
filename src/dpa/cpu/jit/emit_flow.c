// SPDX-License-Identifier: MIT
/*
 * Owns the translation of control transfer.
 *
 *   jal ra, f    ra = return address          ret     rax = ra; ret
 *                call f
 *                cmp rax, return address      jalr    rax = target
 *                jne dispatch                         jmp table[target]
 *
 * The host's return stack is a guess that is checked where it lands: rax says where the guest wants
 * to go. Links are made and used through x1 and x5, as the calling convention and its millicode
 * helpers do.
 */
#include "dpa/cpu/jit/code.h"

static bool is_link(unsigned int reg)
{
	return reg == 1 || reg == 5;
}

/* Halfword of a direct target, UINT32_MAX: not an instruction that can be entered. */
static uint32_t target_index(const struct tx *tx, uint64_t pc)
{
	uint64_t index = (pc - tx->jit->text->lo) / 2;

	return index < tx->a.n && tx->a.marks[index] & MARK_LEADER ? (uint32_t)index : UINT32_MAX;
}

/* The compare of a branch; the result is the condition under which it is taken. */
static enum x86_cc emit_flow_emit_condition(struct tx *tx, const struct vb_insn *insn)
{
	static const uint8_t codes[] = { CC_E, CC_NE, CC_L, CC_GE, CC_B, CC_AE };
	static const uint8_t turned[] = { CC_E, CC_NE, CC_G, CC_LE, CC_A, CC_BE };
	unsigned int kind = (unsigned int)insn->op - VB_OP_BEQ;
	bool turn = insn->rs1 == 0; /* zero is cheaper as the second operand */
	unsigned int a = turn ? insn->rs2 : insn->rs1, b = turn ? 0 : insn->rs2;

	if (b || insn->op > VB_OP_BNE || !zero_is_noted(tx, a))
		emit_compare(tx, a, b);
	return turn ? turned[kind] : codes[kind];
}

static void emit_branch(struct tx *tx, const struct vb_insn *insn)
{
	enum x86_cc cc;
	uint64_t pc = pc_of(tx, tx->index) + (uint64_t)(int64_t)insn->imm;
	uint32_t target = target_index(tx, pc);
	uint32_t stub;
	bool back, exit;

	back = tx->twice.pass != ONCE && target == tx->twice.head;
	if (back && tx->twice.pass == FIRST)
		tx->twice.fence = tx->fence;
	exit = tx->twice.pass != ONCE && target != UINT32_MAX && tx->pending &&
	       (target < tx->twice.head || target > tx->twice.last);
	if (!exit && (!back || tx->twice.pass == FIRST || !tx->twice.fence))
		flush_fence(tx);
	/* Words are compared before they are extended, which leaves the flags alone. */
	cc = emit_flow_emit_condition(tx, insn);
	if (back) {
		emit_jump_back(tx, cc);
		return;
	}
	if (exit) { /* rarely: the other way has nothing to extend for it */
		stub = add_stub(tx, STUB_EXIT, jcc_forward(&tx->c, cc));
		if (!tx->failed)
			tx->stubs[stub].index = (int32_t)target;
		return;
	}
	if (target != UINT32_MAX)
		flush_pending(tx);
	if (target == UINT32_MAX) {
		stub = add_stub(tx, STUB_LEAVE, jcc_forward(&tx->c, cc));
		if (tx->failed)
			return;
		tx->stubs[stub].index = (int32_t)tx->index + insn->imm / 2;
		tx->stubs[stub].left = 0;
	} else if (target <= tx->index && tx->offsets[target]) {
		jcc_to(&tx->c, cc, tx->offsets[target]);
	} else {
		add_fixup(tx, jcc_forward(&tx->c, cc), target);
	}
}

/* Before a host call: is there room on the host stack? */
static void check_predictor(struct tx *tx)
{
	uint32_t stub;

	alu(&tx->c, X_W, ALU_CMP, RSP,
	    rm_mem(RBP, (int32_t)offsetof(struct vb_cpu, pred_limit) - STATE_BIAS));
	stub = add_stub(tx, STUB_RESET, jcc_forward(&tx->c, CC_B));
	stub_returns(tx, stub);
}

/*
 * Where a host ret lands: is it where the guest returns to? Falls into the block of the return
 * address.
 */
static void check_return(struct tx *tx)
{
	alu_imm(&tx->c, X_W, ALU_CMP, rm_reg(RAX), (int32_t)pc_of(tx, tx->next));
	jcc_to(&tx->c, CC_NE, tx->thunks.dispatch);
	/* The block of the return address may be missing; then there is nothing to fall into. */
	if (tx->next >= tx->a.n || !(tx->a.marks[tx->next] & MARK_START))
		emit_leave(tx, pc_of(tx, tx->next), 0);
}

/* jal, and jalr to an address that auipc made just before. */
static void emit_direct(struct tx *tx, unsigned int rd, uint64_t pc)
{
	uint32_t target = target_index(tx, pc);

	if (rd != VB_CPU_SINK || tx->twice.pass == ONCE || target != tx->twice.head)
		flush_pending(tx);
	write_const(tx, rd, pc_of(tx, tx->next));
	if (target == UINT32_MAX) {
		emit_leave(tx, pc, 0);
		return;
	}
	if (rd == VB_CPU_SINK && tx->twice.pass != ONCE && target == tx->twice.head) {
		emit_jump_always(tx);
		return;
	}
	if (is_link(rd)) {
		check_predictor(tx);
		add_fixup(tx, call_forward(&tx->c), target);
		check_return(tx);
	} else if (target <= tx->index && tx->offsets[target]) {
		jmp_to(&tx->c, tx->offsets[target]);
	} else if (target != tx->next) {
		add_fixup(tx, jmp_forward(&tx->c), target);
	}
}

/*
 * rax = target: through the table, or away. One piece, in which nothing else is emitted: what is
 * looked up was compared in the instructions right before, and is 0 where the host only guesses
 * that it passed.
 */
void emit_table_jump(struct tx *tx, bool call)
{
	const struct vb_text *text = tx->jit->text;

	alu_imm(&tx->c, X_W, ALU_AND, rm_reg(RAX), -2);
	lea(&tx->c, X_W, RDX, rm_mem(RAX, -(int32_t)text->lo));
	alu_imm(&tx->c, X_W, ALU_CMP, rm_reg(RDX), (int32_t)(text->hi - text->lo));
	jcc_to(&tx->c, CC_AE, tx->thunks.miss);
	zero_unless_below(tx, RDX);
	ins(&tx->c, X_GUEST, 0xff, call ? 2 : 4, rm_index(NOREG, RDX, 2, tx->epoch->table_disp));
}

static void emit_jalr(struct tx *tx, const struct vb_insn *insn)
{
	bool call = is_link(insn->rd);

	flush_pending(tx);
	mov_rr(&tx->c, RAX, src64(tx, insn->rs1, RAX));
	if (insn->rd == VB_CPU_SINK && is_link(insn->rs1) && insn->imm == 0) {
		put8(&tx->c, 0xc3);
		return;
	}
	if (insn->imm)
		alu_imm(&tx->c, X_W, ALU_ADD, rm_reg(RAX), insn->imm);
	if (insn->rd != VB_CPU_SINK) {
		/* write_const may need rax for a register in memory; the value fits the short form.
		 */
		write_const(tx, insn->rd, pc_of(tx, tx->next));
	}
	if (call)
		check_predictor(tx);
	emit_table_jump(tx, call);
	if (call)
		check_return(tx);
}

bool emit_flow(struct tx *tx, const struct vb_insn *insn)
{
	uint64_t imm;

	switch (insn->op) {
	case VB_OP_JAL:
	case VB_OP_JALR:
		flush_fence(tx);
		if (insn->rd == 2) /* a return address in sp: nobody does that */
			break;
		imm = (uint64_t)(int64_t)insn->imm;
		if (insn->op == VB_OP_JAL)
			emit_direct(tx, insn->rd, pc_of(tx, tx->index) + imm);
		else if (tx->facts[insn->rs1].known)
			emit_direct(tx, insn->rd, (tx->facts[insn->rs1].value + imm) & ~1ULL);
		else
			emit_jalr(tx, insn);
		return true;
	case VB_OP_BEQ:
	case VB_OP_BNE:
	case VB_OP_BLT:
	case VB_OP_BGE:
	case VB_OP_BLTU:
	case VB_OP_BGEU:
		emit_branch(tx, insn);
		return true;
	case VB_OP_ECALL:
	case VB_OP_EBREAK:
	case VB_OP_ILLEGAL:
	case VB_OP_NOFETCH:
		break;
	default:
		return false;
	}
	/* The interpreter executes this one, and says what it means. */
	flush_pending(tx);
	flush_fence(tx);
	emit_leave(tx, pc_of(tx, tx->index), tx->left);
	return true;
}

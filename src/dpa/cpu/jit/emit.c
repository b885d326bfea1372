// SPDX-License-Identifier: MIT
/*
 * Owns the making of host code, block by block in address order, and what the emitters of single
 * instructions share.
 *
 * A W instruction leaves its 32-bit result in the host register without extending it ("pending"):
 * many results are only read as words again. The extension is made up when somebody reads all 64
 * bits, at the latest before control can leave for code that knows nothing of it. A site records
 * what was pending, so that traps see the exact values.
 *
 * Facts about registers hold along a straight line and are dropped at every leader.
 */
#include "dpa/cpu/jit/code.h"

#include <stdlib.h>

#define ROOM 512 /* more than the code of one guest instruction */

uint64_t pc_of(const struct tx *tx, uint32_t index)
{
	return tx->jit->text->lo + 2 * (uint64_t)index;
}

/* ---- notes ---- */

static void *emit_grow(struct tx *tx, void *array, size_t *max, size_t n, size_t size)
{
	void *grown;

	if (n < *max)
		return array;
	*max = *max ? 2 * *max : 4096;
	grown = realloc(array, *max * size);
	if (!grown) {
		tx->failed = true;
		*max = n; /* the array stays as it was; emit_all gives up before the next note */
		return array;
	}
	return grown;
}

uint32_t add_site(struct tx *tx)
{
	struct generation *gen = tx->gen;

	gen->sites = emit_grow(tx, gen->sites, &tx->sites_max, gen->nsites, sizeof(*gen->sites));
	if (tx->failed)
		return 0;
	gen->sites[gen->nsites] = (struct site){ .host = code_offset(&tx->c),
						 .index = tx->index,
						 .pending = tx->pending,
						 .left = tx->left & 127 };
	return (uint32_t)gen->nsites++;
}

uint32_t add_stub(struct tx *tx, enum stub_kind kind, uint32_t from)
{
	tx->stubs = emit_grow(tx, tx->stubs, &tx->stubs_max, tx->nstubs, sizeof(*tx->stubs));
	if (tx->failed)
		return 0;
	tx->stubs[tx->nstubs] = (struct stub){
		.kind = (uint8_t)kind,
		.from = from,
		.left = (uint8_t)tx->left,
		.pending = tx->pending,
		.index = (int32_t)tx->index,
		.fence = tx->fence,
	};
	return (uint32_t)tx->nstubs++;
}

/* The stub comes back here. */
void stub_returns(struct tx *tx, uint32_t stub)
{
	if (tx->failed)
		return;
	tx->stubs[stub].back = code_offset(&tx->c);
	notes_void(tx);
}

void add_fixup(struct tx *tx, uint32_t from, uint32_t index)
{
	tx->fixups = emit_grow(tx, tx->fixups, &tx->fixups_max, tx->nfixups, sizeof(*tx->fixups));
	if (!tx->failed)
		tx->fixups[tx->nfixups++] = (struct fixup){ from, index };
}

/* ---- operands ---- */

struct rm slot(unsigned int reg)
{
	return rm_mem(RBP, (int32_t)reg * 8 - STATE_BIAS);
}

static void flush_one(struct tx *tx, unsigned int reg)
{
	uint32_t from = code_offset(&tx->c);

	if (tx->pending >> reg & 1) {
		movsxd_rr(&tx->c, tx->gen->host[reg], tx->gen->host[reg]);
		notes_move(tx, from);
		tx->pending &= ~(1U << reg);
		tx->facts[reg].word = true;
	}
}

void flush_pending(struct tx *tx)
{
	for (unsigned int reg = 1; tx->pending; reg++)
		flush_one(tx, reg);
}

/* Before code that takes these as they are. */
void flush_except(struct tx *tx, uint32_t keep)
{
	for (uint32_t some = tx->pending & ~keep; some; some &= some - 1)
		flush_one(tx, (unsigned int)__builtin_ctz(some));
}

/* Is the register, once extended, the sign extension of its low half? */
bool is_word_here(const struct tx *tx, unsigned int reg)
{
	return reg == 0 || tx->pending >> reg & 1 || tx->facts[reg].word;
}

/* A host register with the value: its own, or the scratch register. Flags are lost for x0. */
static int source(struct tx *tx, unsigned int reg, int scratch)
{
	uint32_t from;

	if (reg == 0) {
		ins(&tx->c, 0, 0x33, scratch, rm_reg(scratch));
		return scratch;
	}
	if (tx->gen->host[reg] != NOREG)
		return tx->gen->host[reg];
	from = code_offset(&tx->c);
	if (rax_is_noted(tx, reg))
		mov_rr(&tx->c, scratch, RAX);
	else
		mov_load(&tx->c, scratch, slot(reg));
	if (scratch == RDX) /* what is noted is flags and rax */
		notes_move(tx, from);
	return scratch;
}

int src64(struct tx *tx, unsigned int reg, int scratch)
{
	flush_one(tx, reg);
	return source(tx, reg, scratch);
}

int src32(struct tx *tx, unsigned int reg, int scratch)
{
	return source(tx, reg, scratch);
}

/* The slot of x0 holds zero. */
struct rm operand32(struct tx *tx, unsigned int reg)
{
	return tx->gen->host[reg] != NOREG ? rm_reg(tx->gen->host[reg]) : slot(reg);
}

struct rm operand64(struct tx *tx, unsigned int reg)
{
	flush_one(tx, reg);
	return operand32(tx, reg);
}

/* Is the register known to hold what an immediate operand can? */
bool is_imm32(const struct tx *tx, unsigned int reg)
{
	const struct fact *fact = &tx->facts[reg];

	return fact->known && fact->value == (uint64_t)(int64_t)(int32_t)fact->value;
}

/*
 * Flags of rs1 - rs2. A register in memory is an operand like any other. Sign extension keeps every
 * order, signed and unsigned, so two words are compared as words if that saves an extension.
 */
void emit_compare(struct tx *tx, unsigned int rs1, unsigned int rs2)
{
	bool words = (tx->pending >> rs1 | tx->pending >> rs2) & 1 && is_word_here(tx, rs1) &&
		     is_word_here(tx, rs2);
	struct rm a = words ? operand32(tx, rs1) : operand64(tx, rs1);
	struct rm b = words ? operand32(tx, rs2) : operand64(tx, rs2);
	unsigned int flags = words ? 0 : X_W;

	if (rs2 == 0 && a.reg != NOREG) {
		test_rr(&tx->c, flags, a.reg, a.reg);
	} else if (rs2 == 0) {
		alu_imm(&tx->c, flags, ALU_CMP, a, 0);
	} else if (is_imm32(tx, rs2)) {
		alu_imm(&tx->c, flags, ALU_CMP, a, (int32_t)tx->facts[rs2].value);
	} else if (b.reg != NOREG) {
		ins(&tx->c, flags, 0x39, b.reg, a); /* cmp a, b */
	} else {
		alu(&tx->c, flags, ALU_CMP, source(tx, rs1, RAX), b);
	}
}

/*
 * Behind "cmp reg, bound; jae": nothing for who comes here rightly. The host guesses which way the
 * jump goes, but not what a conditional move does, so what it reads ahead of time is within the
 * bound, too.
 */
void zero_unless_below(struct tx *tx, int reg)
{
	ins(&tx->c, X_W, 0x0f40 + CC_AE, reg, slot(0));
}

/* ---- results ---- */

/* Where to make the value of rd; finish() puts it into its place. */
int dst(struct tx *tx, unsigned int rd)
{
	return tx->gen->host[rd] != NOREG ? tx->gen->host[rd] : RAX;
}

/* sp is known to be below the limit everywhere; when it is not any more, the interpreter goes on.
 */
static void check_sp(struct tx *tx)
{
	uint32_t stub;

	if (!tx->jit->sp_checked)
		return;
	if (tx->gen->host[2] == NOREG)
		mov_load(&tx->c, RAX, slot(2));
	alu_imm(&tx->c, X_W, ALU_CMP, rm_reg(tx->gen->host[2] == NOREG ? RAX : tx->gen->host[2]),
		(int32_t)tx->jit->limit);
	stub = add_stub(tx, STUB_LEAVE, jcc_forward(&tx->c, CC_AE));
	if (tx->failed)
		return;
	tx->stubs[stub].index = (int32_t)tx->next;
	tx->stubs[stub].left = (uint8_t)(tx->left - 1);
}

void finish(struct tx *tx, unsigned int rd, int reg, bool word)
{
	if (rd == VB_CPU_SINK)
		return;
	if (tx->gen->host[rd] == NOREG)
		mov_store(&tx->c, slot(rd), reg);
	else
		mov_rr(&tx->c, tx->gen->host[rd], reg);
	tx->pending &= ~(1U << rd);
	tx->facts[rd] = (struct fact){ .word = word };
	if (rd == 2)
		check_sp(tx);
	else if (tx->gen->host[rd] == NOREG && reg == RAX)
		note_rax(tx, rd);
}

/* reg holds a 32-bit result, the upper half is zero or worthless. */
void finish_word(struct tx *tx, unsigned int rd, int reg)
{
	if (rd == VB_CPU_SINK)
		return;
	if (tx->gen->host[rd] == NOREG || rd == 2) {
		movsxd_rr(&tx->c, reg, reg);
		finish(tx, rd, reg, true);
		return;
	}
	mov_rr(&tx->c, tx->gen->host[rd], reg);
	tx->pending |= 1U << rd;
	tx->facts[rd] = (struct fact){ .word = false };
}

void write_const(struct tx *tx, unsigned int rd, uint64_t value)
{
	int reg = dst(tx, rd);

	if (rd == VB_CPU_SINK)
		return;
	if (tx->gen->host[rd] == NOREG && value == (uint64_t)(int64_t)(int32_t)value && rd != 2) {
		ins(&tx->c, X_W, 0xc7, 0, slot(rd));
		put32(&tx->c, (uint32_t)value);
		tx->facts[rd] = (struct fact){ 0 };
	} else {
		mov_imm(&tx->c, reg, value);
		finish(tx, rd, reg, false);
	}
	tx->facts[rd].known = true;
	tx->facts[rd].value = value;
	tx->facts[rd].word = value == (uint64_t)(int64_t)(int32_t)value;
}

/* ---- leaving translated code ---- */

void emit_execute(struct tx *tx, const struct vb_insn *insn)
{
	uint32_t site;

	flush_fence(tx);
	site = add_site(tx);
	mov_imm(&tx->c, RAX, site);
	call_to(&tx->c, tx->thunks.execute);
	if (insn->rd == VB_CPU_SINK)
		return;
	tx->pending &= ~(1U << insn->rd);
	tx->facts[insn->rd] = (struct fact){ 0 };
	if (insn->rd == 2)
		check_sp(tx);
}

/* Here and now. Pending registers are flushed by whoever calls it. */
void emit_leave(struct tx *tx, uint64_t pc, uint32_t left)
{
	if (left)
		alu_imm(&tx->c, X_W, ALU_ADD, rm_reg(R15), (int32_t)left);
	mov_imm(&tx->c, RAX, pc);
	jmp_to(&tx->c, tx->thunks.leave);
}

static void emit_stub(struct tx *tx, const struct stub *stub)
{
	patch32(&tx->c, stub->from, code_offset(&tx->c));
	if (stub->fence)
		full_fence(tx);
	switch (stub->kind) {
	case STUB_EXECUTE:
		if (stub->window)
			emit_window(tx, stub);
		mov_imm(&tx->c, RAX, stub->site);
		call_to(&tx->c, tx->thunks.execute);
		jmp_to(&tx->c, stub->back);
		break;
	case STUB_LEAVE:
		tx->pending = stub->pending;
		flush_pending(tx);
		emit_leave(tx, tx->jit->text->lo + (uint64_t)(2 * (int64_t)stub->index),
			   stub->left);
		break;
	case STUB_EXIT:
		tx->pending = stub->pending;
		flush_pending(tx);
		add_fixup(tx, jmp_forward(&tx->c), (uint32_t)stub->index);
		break;
	case STUB_RESET:
		mov_load(&tx->c, RSP, FIELD(pred_base));
		jmp_to(&tx->c, stub->back);
		break;
	}
}

/* ---- blocks ---- */

static bool emit_has_room(struct tx *tx)
{
	tx->out_of_room |= tx->c.end - tx->c.at < ROOM || tx->c.too_far;
	tx->failed |= tx->out_of_room;
	return !tx->failed;
}

static void emit_insn(struct tx *tx, const struct vb_insn *insn)
{
	unsigned int bits = insn->rd == VB_CPU_SINK ? 64 : result_bits(tx, insn);

	if (!emit_alu(tx, insn) && !emit_bits(tx, insn) && !emit_mem(tx, insn) &&
	    !emit_atomic(tx, insn) && !emit_flow(tx, insn))
		emit_execute(tx, insn);
	note_bits(tx, insn->rd, bits);
}

/*
 * Whoever comes from elsewhere asks whether many turns are ahead; the jump back does not.
 */
static void begin_loop(struct tx *tx, const struct block *b)
{
	struct generation *gen = tx->gen;
	uint32_t site, stub;
	struct loop loop;

	if (!b->leader || tx->twice.pass == AGAIN || !(tx->a.marks[b->index] & MARK_CHECK) ||
	    !find_loop(tx->jit->text, b, b + 1 == tx->a.blocks + tx->a.nblocks, &loop))
		return;
	gen->loops = emit_grow(tx, gen->loops, &tx->loops_max, gen->nloops, sizeof(*gen->loops));
	if (tx->failed)
		return;
	gen->loops[gen->nloops++] = loop;
	emit_loop_test(tx, &loop);
	tx->left = LOOP_SITE;
	site = add_site(tx);
	tx->left = b->count;
	stub = add_stub(tx, STUB_EXECUTE, jcc_forward(&tx->c, CC_A));
	align(&tx->c, 32);
	if (!tx->failed)
		tx->stubs[stub].site = site;
	stub_returns(tx, stub);
}

static void emit_begin_block(struct tx *tx, const struct block *b)
{
	bool again = tx->twice.pass == AGAIN;

	tx->index = b->index;
	tx->left = b->count;
	tx->bytes.end = 0;
	if (b->leader && !again && tx->a.marks[b->index] & MARK_CHECK) /* loops and functions */
		align(&tx->c, 32);
	if (b->leader && !again) {
		memset(tx->facts, 0, sizeof(tx->facts));
		tx->offsets[b->index] = code_offset(&tx->c);
		notes_void(tx);
	}
	begin_loop(tx, b);
	alu_imm(&tx->c, X_W, ALU_SUB, rm_reg(R15), b->count);
	if (b->check)
		add_stub(tx, STUB_LEAVE, jcc_forward(&tx->c, CC_L));
}

/* Several instructions were emitted at once: where it goes on. */
static uint32_t skip_insns(struct tx *tx, unsigned int n)
{
	const struct vb_text *text = tx->jit->text;
	uint32_t i = tx->index;

	for (; n; n--) {
		forget_low(tx, text->insns[i].rd);
		i += vb_insn_len(text->base[pc_of(tx, i)]) / 2;
	}
	return i;
}

/* A branch and what it skips; *done counts those. Returns where it goes on. */
static uint32_t emit_choice(struct tx *tx, const struct vb_insn *branch, unsigned int *done)
{
	const struct vb_text *text = tx->jit->text;
	uint32_t i = tx->next, end = tx->index + (uint32_t)branch->imm / 2;

	for (; i < end; i += vb_insn_len(text->base[pc_of(tx, i)]) / 2) {
		emit_select(tx, branch, &text->insns[i]);
		forget_low(tx, text->insns[i].rd);
		(*done)++;
	}
	return i;
}

void emit_block(struct tx *tx, const struct block *b)
{
	const struct vb_text *text = tx->jit->text;
	const struct vb_insn *insn = NULL;
	unsigned int swapped;
	uint32_t i = b->index;

	emit_begin_block(tx, b);
	for (unsigned int k = 0; k < b->count && emit_has_room(tx); k++) {
		insn = &text->insns[i];
		tx->index = i;
		tx->left = b->count - k;
		i += vb_insn_len(text->base[pc_of(tx, i)]) / 2;
		tx->next = i;
		if (tx->a.marks[tx->index] & MARK_SELECT) {
			i = emit_choice(tx, insn, &k);
			insn = NULL;
		} else if (tx->bytes.count || ((insn->op == VB_OP_LB || insn->op == VB_OP_LBU) &&
					       plan_bytes(tx, insn))) {
			if (!emit_bytes(tx, insn))
				emit_insn(tx, insn);
			forget_low(tx, insn->rd);
		} else if ((insn->op == VB_OP_REV8 || insn->imm == 8) &&
			   (swapped = emit_swap(tx, insn))) {
			i = skip_insns(tx, swapped);
			k += swapped - 1;
			insn = NULL;
		} else {
			emit_insn(tx, insn);
			forget_low(tx, insn->rd);
		}
	}
	if (tx->failed || tx->twice.ended ||
	    (insn && op_ends_block(insn->op) && (insn->op < VB_OP_BEQ || insn->op > VB_OP_BGEU)))
		return;
	/* Control falls through: to the next block, which must be there and, if others enter it,
	 * expects no pending. */
	if (i >= tx->a.n || !(tx->a.marks[i] & MARK_START)) {
		flush_pending(tx);
		flush_fence(tx);
		emit_leave(tx, pc_of(tx, i), 0);
	} else if (tx->a.marks[i] & MARK_LEADER && tx->twice.pass != AGAIN) {
		flush_pending(tx);
		flush_fence(tx);
	}
}

void emit_all(struct tx *tx)
{
	uint32_t last;

	emit_thunks(tx);
	for (uint32_t k = 0; k < tx->a.nblocks && emit_has_room(tx); k++) {
		if (is_straight_loop(&tx->a, k, &last)) {
			emit_twice(tx, k, last);
			k = last;
		} else {
			emit_block(tx, &tx->a.blocks[k]);
		}
	}
	for (size_t k = 0; k < tx->nstubs && emit_has_room(tx); k++)
		emit_stub(tx, &tx->stubs[k]);
	for (size_t k = 0; k < tx->nfixups && !tx->failed; k++) {
		uint32_t target = tx->offsets[tx->fixups[k].index];

		tx->failed = !target;
		patch32(&tx->c, tx->fixups[k].from, target);
	}
	emit_has_room(tx);
}

// SPDX-License-Identifier: MIT
/*
 * Owns the host code that every translation starts with:
 *
 *   enter(cpu, target)   save the host's registers, load the guest's, go
 *   leave                rax = pc: store the guest's registers, return 0 from enter
 *   miss                 the same, for an indirect jump to an address that has no code
 *   execute              eax = site: let the interpreter do that one; return, or leave with 1
 *   dispatch             rax = target: jump through the table
 *   underflow            where a ret lands when the predictor is empty: dispatch
 *
 * Calls of C code happen on the host thread's own stack, below the predictor's entries.
 */
#include "dpa/cpu/jit/code.h"
#include "dpa/cpu/jit/runtime.h"

static const int8_t saved[] = { RBP, RBX, R12, R13, R14, R15 };
#define NSAVED (sizeof(saved) / sizeof(saved[0]))

static void thunks_push(struct code *c, int reg)
{
	if (reg >= 8)
		put8(c, 0x41);
	put8(c, 0x50U + (unsigned int)(reg & 7));
}

static void pop(struct code *c, int reg)
{
	if (reg >= 8)
		put8(c, 0x41);
	put8(c, 0x58U + (unsigned int)(reg & 7));
}

static void load_guest(struct tx *tx)
{
	for (unsigned int r = 1; r < 32; r++)
		if (tx->gen->host[r] != NOREG)
			mov_load(&tx->c, tx->gen->host[r], slot(r));
	mov_load(&tx->c, R15, FIELD(budget));
}

static void store_guest(struct tx *tx)
{
	for (unsigned int r = 1; r < 32; r++)
		if (tx->gen->host[r] != NOREG)
			mov_store(&tx->c, slot(r), tx->gen->host[r]);
	mov_store(&tx->c, FIELD(budget), R15);
}

/* Back to the host; eax is the result. */
static void emit_exit(struct tx *tx)
{
	struct code *c = &tx->c;

	mov_load(c, RSP, FIELD(host_rsp));
	for (unsigned int i = NSAVED; i-- > 0;)
		pop(c, saved[i]);
	put8(c, 0xc3);
}

static void emit_enter(struct tx *tx)
{
	struct code *c = &tx->c;

	for (unsigned int i = 0; i < NSAVED; i++)
		thunks_push(c, saved[i]);
	lea(c, X_W, RBP, rm_mem(RDI, STATE_BIAS));
	mov_store(c, FIELD(host_rsp), RSP);
	mov_load(c, R14, FIELD(base));
	mov_rr(c, RDX, RSI);
	lea(c, X_W, RAX, rm_mem(RSP, -8)); /* where the call below leaves rsp */
	mov_store(c, FIELD(pred_base), RAX);
	load_guest(tx);
	/*
	 * A call, not a jump: the ret of the guest's outermost function then has its partner, lands
	 * here, and the host's predictor still knows where all our callers are. With a jump each of
	 * their returns is mispredicted.
	 */
	ins(c, 0, 0xff, 2, rm_reg(RDX));
	jmp_to(c, tx->thunks.underflow);
}

static void emit_execute_thunk(struct tx *tx)
{
	struct code *c = &tx->c;
	uint32_t event;

	store_guest(tx);
	lea(c, X_W, RDI, rm_mem(RBP, -STATE_BIAS));
	mov_rr(c, RSI, RAX);
	mov_imm64(c, RDX, (uint64_t)(uintptr_t)tx->gen);
	mov_rr(c, RBX, RSP);
	alu_imm(c, X_W, ALU_AND, rm_reg(RSP), -16);
	mov_imm64(c, RAX, (uint64_t)(uintptr_t)vb_jit_execute);
	ins(c, 0, 0xff, 2, rm_reg(RAX));
	mov_rr(c, RSP, RBX);
	test_rr(c, 0, RAX, RAX);
	event = jcc_forward(c, CC_NE);
	load_guest(tx);
	put8(c, 0xc3);
	patch32(c, event, code_offset(c));
	mov_imm(c, RAX, 1);
	emit_exit(tx);
}

void emit_thunks(struct tx *tx)
{
	struct code *c = &tx->c;

	put8(c, 0xcc); /* so that no thunk has offset 0, which means "none" */
	tx->thunks.miss = code_offset(c);
	ins(c, 0, 0xc6, 0, FIELD(missed));
	put8(c, 1);
	tx->thunks.leave = code_offset(c);
	mov_store(c, FIELD(s.pc), RAX);
	store_guest(tx);
	ins(c, 0, 0x33, RAX, rm_reg(RAX));
	emit_exit(tx);

	tx->thunks.execute = code_offset(c);
	emit_execute_thunk(tx);

	tx->thunks.underflow = code_offset(c);
	mov_imm64(c, RDX, (uint64_t)(uintptr_t)(c->start + tx->thunks.underflow));
	thunks_push(c, RDX);
	tx->thunks.dispatch = code_offset(c);
	emit_table_jump(tx, false);

	tx->thunks.enter = code_offset(c);
	emit_enter(tx);
}

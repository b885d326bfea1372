// SPDX-License-Identifier: MIT
/*
 * The checker of translations: what the contract allows is accepted, and each way to break it is
 * refused with a reason. Every other test has its translations checked, too (bed_main).
 */
#include "hand.h"

/* ---- guest memory ---- */

static struct rm guest(int reg, int32_t disp)
{
	return rm_index(R14, reg, 0, disp);
}

static void low(struct hand *h, int to, int from)
{
	ins(h->c, 0, 0x8b, to, rm_reg(from));
}

static void copy_and_access(struct hand *h)
{
	low(h, RAX, RCX);
	mov_load(h->c, RBX, guest(RAX, 2047));
	mov_store(h->c, guest(RAX, -2048), RSI);
	ins(h->c, X_16, 0x89, RSI, guest(RAX, 0));
	ins(h->c, X_LOCK, 0x0fc1, RDX, guest(RAX, 0));
	low(h, RCX, RCX); /* in place */
	mov_load(h->c, RBX, guest(RCX, 0));
	ins(h->c, 0, 0x8b, RDX, slot(31));
	mov_load(h->c, RBX, guest(RDX, 0));
	mov_load(h->c, RBX, rm_mem(R14, 4096));
	mov_load(h->c, RBX, rm_mem(R14, HAND_LIMIT - 8));
}

/* What the translator once made of lw; add; sc; add; sc; ...; ld. */
static void drifted_base(struct hand *h)
{
	alu_imm(h->c, X_W, ALU_CMP, rm_reg(RCX), HAND_LIMIT);
	jcc_to(h->c, CC_AE, h->tx.thunks.leave);
	mov_load(h->c, RBX, guest(RCX, 0));
}

static void unknown_access(struct hand *h)
{
	low(h, RAX, RCX);
	h->sites[code_offset(h->c) - h->sites[0].host].host--; /* the note is about another place */
	mov_load(h->c, RBX, guest(RAX, 0));
}

static void drifted_copy(struct hand *h)
{
	low(h, RAX, RCX);
	mov_load(h->c, RBX, guest(RAX, 0));
	alu_imm(h->c, X_W, ALU_ADD, rm_reg(RAX), 0x3f000);
	mov_load(h->c, RBX, guest(RAX, 0));
}

static void whole_copy(struct hand *h)
{
	mov_rr(h->c, RAX, RCX);
	mov_load(h->c, RBX, guest(RAX, 0));
}

static void partial_copy(struct hand *h)
{
	RAW(h, "\x66\x8b\xc1"); /* mov ax, cx */
	mov_load(h->c, RBX, guest(RAX, 0));
}

static void conditional_copy(struct hand *h)
{
	ins(h->c, X_W, 0x0f44, RAX, rm_reg(RCX)); /* cmove rax, rcx */
	mov_load(h->c, RBX, guest(RAX, 0));
}

static void copy_of_another(struct hand *h)
{
	low(h, RAX, RCX);
	mov_load(h->c, RBX, guest(RCX, 0));
}

static void jump_behind_copy(struct hand *h)
{
	uint32_t from = jcc_forward(h->c, CC_E);

	low(h, RAX, RCX);
	patch32(h->c, from, code_offset(h->c));
	mov_load(h->c, RBX, guest(RAX, 0));
}

static void leader_behind_copy(struct hand *h)
{
	low(h, RAX, RCX);
	hand_leader(h);
	mov_load(h->c, RBX, guest(RAX, 0));
}

static void call_behind_copy(struct hand *h)
{
	low(h, RCX, RCX);
	mov_imm(h->c, RAX, 3);
	call_to(h->c, h->tx.thunks.execute);
	mov_load(h->c, RBX, guest(RCX, 0));
}

/* What is sealed for the first access is not sealed again for the next: the rest is. */
static void jump_behind_access(struct hand *h)
{
	uint32_t from = jcc_forward(h->c, CC_E);

	low(h, RAX, RCX);
	mov_load(h->c, RBX, guest(RAX, 0));
	patch32(h->c, from, code_offset(h->c));
	mov_load(h->c, RBX, guest(RAX, 8));
}

static void jump_between_accesses(struct hand *h)
{
	uint32_t from = jcc_forward(h->c, CC_E);

	low(h, RAX, RCX);
	mov_load(h->c, RBX, guest(RAX, 0));
	mov_load(h->c, RBX, guest(RAX, 8));
	alu_imm(h->c, X_W, ALU_ADD, rm_reg(RSI), 1);
	patch32(h->c, from, code_offset(h->c));
	alu_imm(h->c, X_W, ALU_ADD, rm_reg(RSI), 1);
	mov_load(h->c, RBX, guest(RAX, 16));
}

static void jump_behind_another_copy(struct hand *h)
{
	uint32_t from = jcc_forward(h->c, CC_E);

	low(h, RAX, RCX);
	mov_load(h->c, RBX, guest(RAX, 0));
	low(h, RDX, RSI);
	mov_load(h->c, RBX, guest(RDX, 0));
	patch32(h->c, from, code_offset(h->c));
	mov_load(h->c, RBX, guest(RAX, 8));
}

static void jump_behind_next_copy(struct hand *h)
{
	uint32_t from = jcc_forward(h->c, CC_E);

	low(h, RAX, RCX);
	mov_load(h->c, RBX, guest(RAX, 0));
	low(h, RAX, RSI);
	patch32(h->c, from, code_offset(h->c));
	mov_load(h->c, RBX, guest(RAX, 0));
}

/* From elsewhere to a copy, and behind the last access: both begin anew. */
static void jumps_around_accesses(struct hand *h)
{
	uint32_t first = jcc_forward(h->c, CC_E), second = jcc_forward(h->c, CC_NE);

	low(h, RAX, RCX);
	mov_load(h->c, RBX, guest(RAX, 0));
	mov_load(h->c, RBX, guest(RAX, 8));
	patch32(h->c, first, code_offset(h->c));
	low(h, RAX, RCX);
	mov_load(h->c, RBX, guest(RAX, 0));
	patch32(h->c, second, code_offset(h->c));
	alu_imm(h->c, X_W, ALU_ADD, rm_reg(RSI), 1);
}

static void exchanged_copy(struct hand *h)
{
	low(h, RAX, RCX);
	ins(h->c, X_LOCK | X_W, 0x0fb1, RDX, guest(RAX, 0)); /* cmpxchg writes rax */
	mov_load(h->c, RBX, guest(RAX, 0));
}

static void far_displacement(struct hand *h)
{
	low(h, RAX, RCX);
	mov_load(h->c, RBX, guest(RAX, 8192));
}

static void scaled(struct hand *h)
{
	low(h, RAX, RCX);
	mov_load(h->c, RBX, rm_index(R14, RAX, 3, 0));
}

static void two_registers(struct hand *h)
{
	low(h, RAX, RCX);
	mov_load(h->c, RBX, rm_index(RSI, RAX, 0, 0));
}

static void constant_too_high(struct hand *h)
{
	mov_load(h->c, RBX, rm_mem(R14, HAND_LIMIT - 7));
}

static void constant_too_low(struct hand *h)
{
	mov_load(h->c, RBX, rm_mem(R14, -8));
}

static void bit_string(struct hand *h)
{
	low(h, RAX, RCX);
	ins(h->c, X_W, 0x0fab, RSI, guest(RAX, 0)); /* bts: the bit may be far away */
}

static void bare_register(struct hand *h)
{
	mov_load(h->c, RBX, rm_mem(RCX, 0));
}

static void rip_relative(struct hand *h)
{
	RAW(h, "\x48\x8b\x1d\x00\x00\x00\x00");
}

static void segment(struct hand *h)
{
	RAW(h, "\x64\x48\x8b\x04\x25\x00\x00\x00\x00"); /* mov rax, fs:[0] */
}

static void segment_of_guest(struct hand *h)
{
	low(h, RAX, RCX);
	RAW(h, "\x65\x49\x8b\x1c\x06"); /* mov rbx, gs:[r14 + rax] */
}

static void short_address(struct hand *h)
{
	low(h, RAX, RCX);
	RAW(h, "\x67\x49\x8b\x1c\x06"); /* mov rbx, [r14d + eax] */
}

static void test_guest_memory(void **state)
{
	(void)state;
	EXPECT(copy_and_access, NULL);
	EXPECT(drifted_base, "no low half");
	EXPECT(unknown_access, "no site");
	EXPECT(drifted_copy, "no low half");
	EXPECT(whole_copy, "no low half");
	EXPECT(partial_copy, "no low half");
	EXPECT(conditional_copy, "no low half");
	EXPECT(copy_of_another, "no low half");
	EXPECT(jump_behind_copy, "into a sequence");
	EXPECT(jump_behind_access, "into a sequence");
	EXPECT(jump_between_accesses, "into a sequence");
	EXPECT(jump_behind_another_copy, "into a sequence");
	EXPECT(jump_behind_next_copy, "into a sequence");
	EXPECT(jumps_around_accesses, NULL);
	EXPECT(leader_behind_copy, "into a sequence");
	EXPECT(call_behind_copy, "into a sequence");
	EXPECT(exchanged_copy, "no low half");
	EXPECT(far_displacement, "displacement");
	EXPECT(scaled, "no low half");
	EXPECT(two_registers, "another register");
	EXPECT(constant_too_high, "constant address");
	EXPECT(constant_too_low, "constant address");
	EXPECT(bit_string, "bit string");
	EXPECT(bare_register, "another register");
	EXPECT(rip_relative, "another register");
	EXPECT(segment, "segment");
	EXPECT(segment_of_guest, "segment");
	EXPECT(short_address, "segment, or an address");
}

/* ---- the cpu and the three registers ---- */

static void slots(struct hand *h)
{
	mov_load(h->c, RAX, slot(0));
	mov_store(h->c, slot(1), RAX);
	mov_store(h->c, slot(31), RAX);
	alu_imm(h->c, X_W, ALU_ADD, slot(20), 5);
	mov_store(h->c, FIELD(reserved_addr), RAX);
	mov_load(h->c, RAX, FIELD(reserved_value));
	RAW(h, "\xf0\x83\x0c\x24\x00"); /* lock or [rsp], 0 */
}

BREAK(write_x0, mov_store(h->c, slot(0), RAX))
BREAK(write_sink, mov_store(h->c, slot(32), RAX))
BREAK(write_across_slots, mov_store(h->c, rm_mem(RBP, -100), RAX))
BREAK(write_base, mov_store(h->c, FIELD(base), RAX))
BREAK(write_host_rsp, mov_store(h->c, FIELD(host_rsp), RAX))
BREAK(write_pred_base, mov_store(h->c, FIELD(pred_base), RAX))
BREAK(write_window_host, mov_store(h->c, FIELD(window_host), RAX))
BREAK(write_window_load, mov_store(h->c, FIELD(window_load), RAX))
BREAK(write_text, mov_store(h->c, FIELD(text), RAX))
BREAK(write_before, mov_store(h->c, rm_mem(RBP, -136), RAX))
BREAK(read_base, mov_load(h->c, RAX, FIELD(base)))
BREAK(read_window_host, mov_load(h->c, RAX, FIELD(window_host)))
BREAK(indexed_cpu, mov_load(h->c, RAX, rm_index(RBP, RCX, 0, 0)))
BREAK(mark_with_2, ins(h->c, 0, 0xc7, 0, FIELD(accessing)); put32(h->c, 2))
BREAK(store_to_stack, mov_store(h->c, rm_mem(RSP, 0), RAX))
BREAK(load_from_stack, mov_load(h->c, RAX, rm_mem(RSP, 8)))
BREAK(fence_elsewhere, RAW(h, "\xf0\x83\x4c\x24\x08\x00"))
BREAK(or_without_lock, RAW(h, "\x83\x0c\x24\x00"))
BREAK(push, RAW(h, "\x50"))
BREAK(pop, RAW(h, "\x58"))
BREAK(prefetch_register, RAW(h, "\x0f\x0d\xc1"))
BREAK(move_rsp, mov_rr(h->c, RSP, RAX))
BREAK(add_rsp, alu_imm(h->c, X_W, ALU_ADD, rm_reg(RSP), 8))
BREAK(tell_rsp, mov_rr(h->c, RAX, RSP))
BREAK(tell_rsp_by_lea, lea(h->c, X_W, RAX, rm_mem(RSP, 0)))
BREAK(tell_rbp, mov_rr(h->c, RAX, RBP))
BREAK(tell_r14, alu(h->c, X_W, ALU_ADD, RAX, rm_reg(R14)))
BREAK(tell_r14_by_lea, lea(h->c, X_W, RAX, rm_index(R14, RCX, 0, 0)))
BREAK(tell_rip, RAW(h, "\x48\x8d\x05\x00\x00\x00\x00"))
BREAK(store_r14, mov_store(h->c, slot(5), R14))
BREAK(write_rbp, mov_rr(h->c, RBP, RAX))
BREAK(write_r14, mov_imm(h->c, R14, 0))
BREAK(write_r14d, ins(h->c, 0, 0x33, R14, rm_reg(R14)))
BREAK(write_spl, RAW(h, "\x40\xb4\x00"))
BREAK(reset_alone, mov_load(h->c, RSP, FIELD(pred_base)))

BREAK(tell_eip, RAW(h, "\x67\x48\x8d\x05\x00\x00\x00\x00"))

static void test_registers(void **state)
{
	(void)state;
	EXPECT(slots, NULL);
	EXPECT(write_x0, "not the guest's");
	EXPECT(write_sink, "not the guest's");
	EXPECT(write_across_slots, "not the guest's");
	EXPECT(write_base, "not the guest's");
	EXPECT(write_host_rsp, "not the guest's");
	EXPECT(write_pred_base, "not the guest's");
	EXPECT(write_window_host, "not the guest's");
	EXPECT(write_window_load, "not the guest's");
	EXPECT(write_text, "not the guest's");
	EXPECT(write_before, "not the guest's");
	EXPECT(read_base, "not the guest's");
	EXPECT(read_window_host, "not the guest's");
	EXPECT(indexed_cpu, "index");
	EXPECT(mark_with_2, "not the guest's");
	EXPECT(store_to_stack, "stack");
	EXPECT(load_from_stack, "stack");
	EXPECT(fence_elsewhere, "stack");
	EXPECT(or_without_lock, "stack");
	EXPECT(push, "do not have");
	EXPECT(pop, "do not have");
	EXPECT(prefetch_register, "do not have");
	EXPECT(move_rsp, "the host's");
	EXPECT(add_rsp, "the host's");
	EXPECT(tell_rsp, "the host's");
	EXPECT(tell_rsp_by_lea, "the host");
	EXPECT(tell_rbp, "the host's");
	EXPECT(tell_r14, "the host's");
	EXPECT(tell_r14_by_lea, "the host");
	EXPECT(tell_rip, "the host");
	EXPECT(tell_eip, "the host");
	EXPECT(store_r14, "the host's");
	EXPECT(write_rbp, "the host's");
	EXPECT(write_r14, "the host's");
	EXPECT(write_r14d, "the host's");
	EXPECT(write_spl, "the host's");
	EXPECT(reset_alone, "nowhere");
}

/* ---- control ---- */

static void look_at_stack(struct hand *h, uint32_t to)
{
	alu(h->c, X_W, ALU_CMP, RSP, FIELD(pred_limit));
	patch32(h->c, jcc_forward(h->c, CC_B), to);
}

/* A call of the first leader, with the stub that resets the stack behind it. */
static void good_call(struct hand *h)
{
	uint32_t check, back;

	alu(h->c, X_W, ALU_CMP, RSP, FIELD(pred_limit));
	check = jcc_forward(h->c, CC_B);
	back = code_offset(h->c);
	call_to(h->c, h->offsets[0]);
	alu_imm(h->c, X_W, ALU_CMP, rm_reg(RAX), 0x10004);
	jcc_to(h->c, CC_NE, h->tx.thunks.dispatch);
	hand_leave(h);
	patch32(h->c, check, code_offset(h->c));
	mov_load(h->c, RSP, FIELD(pred_base));
	jmp_to(h->c, back);
}

static void good_table(struct hand *h)
{
	uint32_t check, back;

	emit_table_jump(&h->tx, false);
	alu(h->c, X_W, ALU_CMP, RSP, FIELD(pred_limit));
	check = jcc_forward(h->c, CC_B);
	back = code_offset(h->c);
	emit_table_jump(&h->tx, true);
	hand_leave(h);
	patch32(h->c, check, code_offset(h->c));
	mov_load(h->c, RSP, FIELD(pred_base));
	jmp_to(h->c, back);
}

BREAK(good_return, put8(h->c, 0xc3))
BREAK(call_unchecked, call_to(h->c, h->offsets[0]))
BREAK(call_of_no_leader, put8(h->c, 0x90); uint32_t at = code_offset(h->c); look_at_stack(h, at);
      call_to(h->c, at))
BREAK(call_of_dispatch, look_at_stack(h, h->offsets[0]); call_to(h->c, h->tx.thunks.dispatch))
BREAK(call_of_enter, look_at_stack(h, h->offsets[0]); call_to(h->c, h->tx.thunks.enter))
BREAK(execute_without_site, mov_rr(h->c, RAX, RCX); call_to(h->c, h->tx.thunks.execute))
BREAK(execute_far_site, mov_imm(h->c, RAX, HAND_SITES); call_to(h->c, h->tx.thunks.execute))
BREAK(jump_of_execute, jmp_to(h->c, h->tx.thunks.execute))
BREAK(jump_of_enter, jmp_to(h->c, h->tx.thunks.enter))
BREAK(jump_of_underflow, jmp_to(h->c, h->tx.thunks.underflow))
BREAK(jump_into_thunk, jmp_to(h->c, h->tx.thunks.leave + 1))
BREAK(jump_out, patch32(h->c, jmp_forward(h->c), 0x70000000))
BREAK(jump_before, RAW(h, "\xe9\x00\x00\x00\x80"))
BREAK(jump_to_end, uint32_t from = jcc_forward(h->c, CC_E);
      patch32(h->c, from, code_offset(h->c) + 5))
BREAK(jump_inside, uint32_t at = code_offset(h->c); mov_imm(h->c, RCX, 0x90909090);
      jmp_to(h->c, at + 1))
BREAK(jump_register, RAW(h, "\xff\xe0"))
BREAK(call_register, RAW(h, "\xff\xd0"))
BREAK(jump_memory, low(h, RAX, RCX); ins(h->c, 0, 0xff, 4, guest(RAX, 0)))
BREAK(return_and_pop, RAW(h, "\xc2\x08\x00"))
BREAK(return_far, RAW(h, "\xcb"))
BREAK(loop_on_rcx, RAW(h, "\xe2\xfe"))
BREAK(jump_if_rcx, RAW(h, "\xe3\xfe"))
BREAK(code_without_end, mov_imm(h->c, RCX, 0); put8(h->c, 0xeb))

/* AMD's processors take 2 bytes of displacement, and execute the other 2 if they do not jump. */
BREAK(short_jcc, RAW(h, "\x66\x0f\x84\x00\x00\x00\x00"))
BREAK(short_jmp, RAW(h, "\x66\xe9\x00\x00\x00\x00"))
BREAK(short_jmp8, RAW(h, "\x66\xeb\x00"))
BREAK(short_call, look_at_stack(h, h->offsets[0]); put8(h->c, 0x66); call_to(h->c, h->offsets[0]))
BREAK(short_return, RAW(h, "\x66\xc3"))
BREAK(rex_far_from_jmp, RAW(h, "\x48\x2e\xe9\x00\x00\x00\x00"))

static void jump_over_check(struct hand *h)
{
	uint32_t from = jcc_forward(h->c, CC_E);

	look_at_stack(h, h->offsets[0]);
	patch32(h->c, from, code_offset(h->c));
	call_to(h->c, h->offsets[0]);
}

static void jump_to_execute(struct hand *h)
{
	uint32_t from = jcc_forward(h->c, CC_E);

	mov_imm(h->c, RAX, 3);
	patch32(h->c, from, code_offset(h->c));
	call_to(h->c, h->tx.thunks.execute);
}

/* The sequence of a table jump with one thing wrong. */
enum {
	T_FINE,
	T_ODD,
	T_BOUND,
	T_LO,
	T_SHORT,
	T_SIGNED,
	T_MISS,
	T_TABLE,
	T_SCALE,
	T_JUMP,
	T_LONG,
	T_GUESS,
	T_FS,
	T_GS,
	T_16
};

static void table_with(struct hand *h, int wrong)
{
	uint32_t from = jcc_forward(h->c, CC_E);

	patch32(h->c, from, code_offset(h->c));
	alu_imm(h->c, X_W, ALU_AND, rm_reg(RAX), wrong == T_ODD ? -1 : -2);
	lea(h->c, wrong == T_SHORT ? 0 : X_W, RDX,
	    rm_mem(RAX, -(int32_t)RV_TEXT + (wrong == T_LO ? 2 : 0)));
	alu_imm(h->c, X_W, ALU_CMP, rm_reg(RDX), wrong == T_BOUND ? 4098 : 4096);
	jcc_to(h->c, wrong == T_SIGNED ? CC_GE : CC_AE,
	       wrong == T_MISS ? h->tx.thunks.leave : h->tx.thunks.miss);
	if (wrong != T_GUESS)
		zero_unless_below(&h->tx, RDX);
	if (wrong == T_JUMP)
		patch32(h->c, from, code_offset(h->c));
	if (wrong == T_LONG)
		mov_rr(h->c, RDX, RCX);
	if (wrong >= T_FS)
		put8(h->c, wrong == T_FS ? 0x64 : wrong == T_GS ? 0x65 : 0x66);
	ins(h->c, X_GUEST, 0xff, 4,
	    rm_index(NOREG, RDX, wrong == T_SCALE ? 3 : 2,
		     h->epoch.table_disp - (wrong == T_TABLE ? 8 : 0)));
}

BREAK(table_fine, table_with(h, T_FINE))
BREAK(table_odd, table_with(h, T_ODD))
BREAK(table_bound, table_with(h, T_BOUND))
BREAK(table_lo, table_with(h, T_LO))
BREAK(table_short, table_with(h, T_SHORT))
BREAK(table_signed, table_with(h, T_SIGNED))
BREAK(table_miss, table_with(h, T_MISS))
BREAK(table_other, table_with(h, T_TABLE))
BREAK(table_scale, table_with(h, T_SCALE))
BREAK(table_jump, table_with(h, T_JUMP))
BREAK(table_long, table_with(h, T_LONG))
BREAK(table_guess, table_with(h, T_GUESS))
BREAK(table_fs, table_with(h, T_FS))
BREAK(table_gs, table_with(h, T_GS))
BREAK(table_16, table_with(h, T_16))

static void test_control(void **state)
{
	(void)state;
	EXPECT(good_call, NULL);
	EXPECT(good_table, NULL);
	EXPECT(good_return, NULL);
	EXPECT(table_fine, NULL);
	EXPECT(call_unchecked, "look at the stack");
	EXPECT(call_of_no_leader, "no leader");
	EXPECT(call_of_dispatch, "nowhere");
	EXPECT(call_of_enter, "nowhere");
	EXPECT(execute_without_site, "without a site");
	EXPECT(execute_far_site, "without a site");
	EXPECT(jump_of_execute, "nowhere");
	EXPECT(jump_of_enter, "nowhere");
	EXPECT(jump_of_underflow, "nowhere");
	EXPECT(jump_into_thunk, "nowhere");
	EXPECT(jump_out, "nowhere");
	EXPECT(jump_before, "nowhere");
	EXPECT(jump_to_end, "nowhere");
	EXPECT(jump_inside, "into an instruction");
	EXPECT(jump_register, "not through the table");
	EXPECT(call_register, "not through the table");
	EXPECT(jump_memory, "not through the table");
	EXPECT(return_and_pop, "return");
	EXPECT(return_far, "return");
	EXPECT(loop_on_rcx, "do not have");
	EXPECT(jump_if_rcx, "do not have");
	EXPECT(code_without_end, "");
	EXPECT(jump_over_check, "over a look at the stack");
	EXPECT(jump_to_execute, "into a sequence");
	EXPECT(table_odd, "not through the table");
	EXPECT(table_bound, "not through the table");
	EXPECT(table_lo, "not through the table");
	EXPECT(table_short, "not through the table");
	EXPECT(table_signed, "not through the table");
	EXPECT(table_miss, "not through the table");
	EXPECT(table_other, "not through the table");
	EXPECT(table_scale, "not through the table");
	EXPECT(table_jump, "into a sequence");
	EXPECT(table_long, "not through the table");
	EXPECT(table_guess, "not through the table");
	EXPECT(table_fs, "prefix");
	EXPECT(table_gs, "prefix");
	EXPECT(table_16, "prefix");
	EXPECT(short_jcc, "prefix");
	EXPECT(short_jmp, "prefix");
	EXPECT(short_jmp8, "prefix");
	EXPECT(short_call, "prefix");
	EXPECT(short_return, "return");
	EXPECT(rex_far_from_jmp, "prefix");
}

/* ---- windows ---- */

enum {
	W_FINE,
	W_FENCE,
	W_NO_FENCE,
	W_NO_MARK,
	W_OTHER_LENGTH,
	W_NO_COMPARE,
	W_SIGNED,
	W_NO_TAG,
	W_MOVED,
	W_TWICE,
	W_WIDE,
	W_MODIFY,
	W_DISP,
	W_JUMP,
	W_KEPT,
	W_MISS,
	W_OUT,
	W_GUESS,
	W_ADDRESS,
};

static void mark(struct hand *h, uint32_t value)
{
	ins(h->c, 0, 0xc7, 0, FIELD(accessing));
	put32(h->c, value);
}

static void window_access(struct hand *h, int wrong, bool store)
{
	if (wrong == W_WIDE)
		RAW(h, "\xf3\x0f\x6f\x00"); /* movdqu xmm0, [rax] */
	else if (wrong == W_MODIFY)
		alu_imm(h->c, X_W, ALU_ADD, rm_mem(RAX, 0), 1);
	else if (store)
		mov_store(h->c, rm_mem(RAX, 0), wrong == W_ADDRESS ? RAX : RSI);
	else
		mov_load(h->c, RSI, rm_mem(RAX, wrong == W_DISP ? 8 : 0));
}

static void window_with(struct hand *h, int wrong, bool store)
{
	uint32_t from = jcc_forward(h->c, CC_E), miss;

	patch32(h->c, from, code_offset(h->c));
	h->fences = wrong == W_FENCE || wrong == W_NO_FENCE;
	if (wrong != W_NO_MARK)
		mark(h, 1);
	if (wrong == W_FENCE)
		RAW(h, "\xf0\x83\x0c\x24\x00");
	if (wrong == W_OUT)
		hand_leave(h);
	mov_load(h->c, RAX, slot(20));
	lea(h->c, X_W, RAX, rm_mem(RAX, 16));
	if (wrong != W_NO_TAG)
		alu(h->c, X_W, ALU_SUB, RAX, FIELD(window_tag));
	if (wrong != W_NO_COMPARE)
		alu(h->c, X_W, ALU_CMP, RAX,
		    store != (wrong == W_OTHER_LENGTH) ? FIELD(window_store) : FIELD(window_load));
	miss = jcc_forward(h->c, wrong == W_SIGNED ? CC_GE : CC_AE);
	if (wrong != W_GUESS)
		zero_unless_below(&h->tx, RAX);
	if (wrong == W_MOVED)
		alu_imm(h->c, X_W, ALU_ADD, rm_reg(RAX), 8);
	alu(h->c, X_W, ALU_ADD, RAX, FIELD(window_host));
	if (wrong == W_JUMP)
		patch32(h->c, from, code_offset(h->c));
	window_access(h, wrong, store);
	if (wrong == W_TWICE)
		window_access(h, wrong, store);
	if (wrong != W_KEPT)
		mark(h, 0);
	hand_leave(h);
	patch32(h->c, miss, code_offset(h->c));
	if (wrong != W_MISS)
		mark(h, 0);
	hand_leave(h);
}

BREAK(window_load_fine, window_with(h, W_FINE, false))
BREAK(window_store_fine, window_with(h, W_FINE, true))
BREAK(window_fence, window_with(h, W_FENCE, true))
BREAK(window_no_fence, window_with(h, W_NO_FENCE, true))
BREAK(window_no_mark, window_with(h, W_NO_MARK, false))
BREAK(window_no_right, window_with(h, W_OTHER_LENGTH, true))
BREAK(window_no_right_to_load, window_with(h, W_OTHER_LENGTH, false))
BREAK(window_no_compare, window_with(h, W_NO_COMPARE, false))
BREAK(window_signed, window_with(h, W_SIGNED, false))
BREAK(window_no_tag, window_with(h, W_NO_TAG, false))
BREAK(window_moved, window_with(h, W_MOVED, false))
BREAK(window_twice, window_with(h, W_TWICE, false))
BREAK(window_wide, window_with(h, W_WIDE, false))
BREAK(window_modify, window_with(h, W_MODIFY, true))
BREAK(window_disp, window_with(h, W_DISP, false))
BREAK(window_jump, window_with(h, W_JUMP, false))
BREAK(window_kept, window_with(h, W_KEPT, false))
BREAK(window_miss, window_with(h, W_MISS, false))
BREAK(window_out, window_with(h, W_OUT, false))
BREAK(window_guess, window_with(h, W_GUESS, false))
BREAK(window_address, window_with(h, W_ADDRESS, true))

/* A mark that no access follows, and a way out of it. */
static void window_left_open(struct hand *h)
{
	mark(h, 1);
	alu(h->c, X_W, ALU_CMP, RAX, FIELD(window_load));
	jcc_to(h->c, CC_AE, h->offsets[0]);
	mark(h, 0);
}

static void window_left_for_host(struct hand *h)
{
	mark(h, 1);
	alu(h->c, X_W, ALU_CMP, RAX, FIELD(window_load));
	jcc_to(h->c, CC_AE, h->tx.thunks.leave);
	mark(h, 0);
}

static void test_windows(void **state)
{
	(void)state;
	EXPECT(window_load_fine, NULL);
	EXPECT(window_store_fine, NULL);
	EXPECT(window_fence, NULL);
	EXPECT(window_no_fence, "without a fence");
	EXPECT(window_no_mark, "not the guest's");
	EXPECT(window_no_right, "without the compare");
	EXPECT(window_no_right_to_load, "without the compare");
	EXPECT(window_no_compare, "marked access");
	EXPECT(window_signed, "without the compare");
	EXPECT(window_no_tag, "without the compare");
	EXPECT(window_moved, "without the compare");
	EXPECT(window_twice, "not complete");
	EXPECT(window_wide, "do not have");
	EXPECT(window_modify, "plain access");
	EXPECT(window_disp, "plain access");
	EXPECT(window_jump, "into a sequence");
	EXPECT(window_kept, "marked access");
	EXPECT(window_miss, "keeps the mark");
	EXPECT(window_out, "marked access");
	EXPECT(window_guess, "without the compare");
	EXPECT(window_address, "its own address");
	EXPECT(window_left_open, "keeps the mark");
	EXPECT(window_left_for_host, "nowhere");
}

/* ---- division, and instructions that have no business here ---- */

enum { D_FINE, D_OTHER, D_NARROW, D_BARE, D_JUMP, D_HIGH, D_SWAP, D_BYTE };

static void divide(struct hand *h, int wrong, bool sign)
{
	unsigned int w = wrong == D_NARROW ? 0 : X_W;
	uint32_t from = jcc_forward(h->c, CC_E);
	int d = wrong == D_OTHER ? RSI : RCX;

	patch32(h->c, from, code_offset(h->c));
	if (sign) {
		lea(h->c, w, RDX, rm_mem(d, 1));
		alu_imm(h->c, w, ALU_CMP, rm_reg(RDX), 1);
	} else {
		test_rr(h->c, w, d, d);
	}
	if (wrong != D_BARE)
		jcc_to(h->c, sign ? CC_BE : CC_E, h->tx.thunks.leave);
	if (wrong == D_JUMP)
		patch32(h->c, from, code_offset(h->c));
	if (wrong == D_SWAP)
		RAW(h, "\x48\x91"); /* xchg rax, rcx */
	else
		mov_rr(h->c, RAX, RBX);
	if (wrong == D_HIGH)
		mov_rr(h->c, RDX, RBX);
	else if (sign)
		sign_extend_rax(h->c, true);
	else
		ins(h->c, 0, 0x33, RDX, rm_reg(RDX));
	ins(h->c, wrong == D_BYTE ? 0 : X_W, wrong == D_BYTE ? 0xf6 : 0xf7, sign ? 7 : 6,
	    rm_reg(RCX));
}

BREAK(div_fine, divide(h, D_FINE, false))
BREAK(idiv_fine, divide(h, D_FINE, true))
BREAK(div_other, divide(h, D_OTHER, false))
BREAK(idiv_other, divide(h, D_OTHER, true))
BREAK(div_narrow, divide(h, D_NARROW, false))
BREAK(idiv_narrow, divide(h, D_NARROW, true))
BREAK(div_bare, divide(h, D_BARE, false))
BREAK(div_jump, divide(h, D_JUMP, false))
BREAK(idiv_jump, divide(h, D_JUMP, true))
BREAK(div_high, divide(h, D_HIGH, false))
BREAK(div_swap, divide(h, D_SWAP, false))
BREAK(div_byte, divide(h, D_BYTE, false))

/* The test is of a guest register, the divisor in guest memory, with the same displacement. */
static void div_of_guest_memory(struct hand *h)
{
	low(h, RCX, RCX);
	mov_load(h->c, RAX, slot(20));
	test_rr(h->c, X_W, RAX, RAX);
	jcc_to(h->c, CC_E, h->tx.thunks.leave);
	mov_rr(h->c, RAX, RBX);
	ins(h->c, 0, 0x33, RDX, rm_reg(RDX));
	ins(h->c, X_W, 0xf7, 6, guest(RCX, slot(20).disp));
}

static void div_of_slot(struct hand *h)
{
	mov_load(h->c, RAX, slot(20));
	test_rr(h->c, X_W, RAX, RAX);
	jcc_to(h->c, CC_E, h->tx.thunks.leave);
	mov_rr(h->c, RAX, RBX);
	ins(h->c, 0, 0x33, RDX, rm_reg(RDX));
	ins(h->c, X_W, 0xf7, 6, slot(20));
}

static void test_division(void **state)
{
	(void)state;
	EXPECT(div_fine, NULL);
	EXPECT(idiv_fine, NULL);
	EXPECT(div_other, "may trap");
	EXPECT(idiv_other, "may trap");
	EXPECT(div_narrow, "may trap");
	EXPECT(idiv_narrow, "may trap");
	EXPECT(div_bare, "may trap");
	EXPECT(div_jump, "into a sequence");
	EXPECT(idiv_jump, "into a sequence");
	EXPECT(div_high, "may trap");
	EXPECT(div_swap, "may trap");
	EXPECT(div_byte, "may trap");
	EXPECT(div_of_guest_memory, "may trap");
	EXPECT(div_of_slot, NULL);
}

static const struct {
	const char *name, *bytes;
	size_t len;
} others[] = {
#define OTHER(name, text)                    \
	{                                    \
		name, text, sizeof(text) - 1 \
	}
	OTHER("rep movsb", "\xf3\xa4"),
	OTHER("movsq", "\x48\xa5"),
	OTHER("stosq", "\x48\xab"),
	OTHER("lodsb", "\xac"),
	OTHER("scasb", "\xae"),
	OTHER("cmpsb", "\xa6"),
	OTHER("xlat", "\xd7"),
	OTHER("syscall", "\x0f\x05"),
	OTHER("sysenter", "\x0f\x34"),
	OTHER("int 0x80", "\xcd\x80"),
	OTHER("int3", "\xcc"),
	OTHER("ud2", "\x0f\x0b"),
	OTHER("hlt", "\xf4"),
	OTHER("cli", "\xfa"),
	OTHER("std", "\xfd"),
	OTHER("popf", "\x9d"),
	OTHER("leave", "\xc9"),
	OTHER("enter", "\xc8\x10\x00\x00"),
	OTHER("iretq", "\x48\xcf"),
	OTHER("in al, dx", "\xec"),
	OTHER("wrgsbase", "\xf3\x48\x0f\xae\xd8"),
	OTHER("rdtsc", "\x0f\x31"),
	OTHER("clflush", "\x0f\xae\x38"),
	OTHER("xbegin", "\xc7\xf8\x00\x00\x00\x00"),
	OTHER("vgather", "\xc4\xe2\xe9\x90\x04\x18"),
	OTHER("maskmovdqu", "\x66\x0f\xf7\xc1"),
	OTHER("fstp", "\xdd\x18"),
	OTHER("mov eax, moffs", "\xa1\x00\x00\x00\x00\x00\x00\x00\x00"),
	OTHER("mov rax, cr0", "\x0f\x20\xc0"),
	OTHER("mov ds, eax", "\x8e\xd8"),
	OTHER("mov eax, fs", "\x8c\xe0"),
	OTHER("pclmulqdq xmm0, [r14 + rax]", "\x8b\xc1\x66\x41\x0f\x3a\x44\x04\x06\x00"),
	OTHER("far jump", "\x8b\xc1\x49\xff\x2c\x06"),
	OTHER("nothing", "\x06"),
	OTHER("lzcnt with VEX, of Knights Corner", "\xc4\xe1\xfa\xbd\xc1"),
	OTHER("popcnt with VEX", "\xc4\xe1\xfa\xb8\xc1"),
	OTHER("tzcnt with VEX", "\xc4\xe1\xfa\xbc\xc1"),
	OTHER("jkzd", "\xc5\xf8\x84\x00\x00\x00\x00"),
	OTHER("repne add", "\xf2\x01\xc8"),
	OTHER("a REX prefix that counts for nothing", "\x48\x66\x01\xc8"),
	OTHER("two prefixes of a kind", "\xf2\xf3\x0f\xb8\xc1"),
	OTHER("xacquire", "\x8b\xc1\xf2\xf0\x41\x0f\xb1\x14\x06"),
};

static void test_other_instructions(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct hand *h = malloc(sizeof(*h));
		char why[160];

		hand_begin(h);
		hand_leader(h);
		hand_raw(h, others[i].bytes, others[i].len);
		hand_leave(h);
		if (hand_verify(h, why, sizeof(why)) != -EBADMSG)
			fail_msg("%s was accepted", others[i].name);
		free(h);
	}
}

/* ---- what surrounds the body ---- */

/* Faults look them up by bisection. */
static void test_sites(void **state)
{
	struct hand *h = malloc(sizeof(*h));
	char why[160];

	(void)state;
	hand_begin(h);
	hand_leader(h);
	hand_leave(h);
	h->sites[500].host = h->sites[499].host;
	assert_int_equal(hand_verify(h, why, sizeof(why)), 0);
	h->sites[500].host--;
	assert_int_equal(hand_verify(h, why, sizeof(why)), -EBADMSG);
	assert_non_null(strstr(why, "order"));
	free(h);
}

/* The last jump of the thunks with a prefix that Zydis does not write out. */
static void test_thunk_prefix(void **state)
{
	struct hand *h = malloc(sizeof(*h));
	char why[160];

	(void)state;
	hand_begin(h);
	h->c->at -= h->c->at[-2] == 0xeb ? 2 : 5;
	assert_true(*h->c->at == 0xeb || *h->c->at == 0xe9);
	put8(h->c, 0x66);
	jmp_to(h->c, h->tx.thunks.underflow);
	hand_leader(h);
	hand_leave(h);
	assert_int_equal(hand_verify(h, why, sizeof(why)), -EBADMSG);
	assert_non_null(strstr(why, "prefix"));
	free(h);
}

static void test_leaders(void **state)
{
	struct hand *h = malloc(sizeof(*h));
	char why[160];

	(void)state;
	hand_begin(h);
	hand_leader(h);
	mov_imm(h->c, RCX, 0x90909090);
	hand_leave(h);
	assert_int_equal(hand_verify(h, why, sizeof(why)), 0);
	h->offsets[1] = h->offsets[0] + 2;
	assert_int_equal(hand_verify(h, why, sizeof(why)), -EBADMSG);
	h->offsets[1] = h->tx.thunks.leave;
	assert_int_equal(hand_verify(h, why, sizeof(why)), -EBADMSG);
	h->offsets[1] = code_offset(h->c);
	assert_int_equal(hand_verify(h, why, sizeof(why)), -EBADMSG);
	h->offsets[1] = 0;
	h->gen.host[31] = R14; /* a guest register in one that is not the guest's */
	assert_int_equal(hand_verify(h, why, sizeof(why)), -EBADMSG);
	h->gen.host[31] = h->gen.host[1];
	assert_int_equal(hand_verify(h, why, sizeof(why)), -EBADMSG);
	free(h);
}

/* Every bit of the thunks matters, but for few that encode the same instruction. */
static void test_thunks(void **state)
{
	struct hand *h = malloc(sizeof(*h));
	unsigned refused = 0, bits = 0;
	char why[160];

	(void)state;
	hand_begin(h);
	hand_leader(h);
	hand_leave(h);
	assert_int_equal(hand_verify(h, why, sizeof(why)), 0);
	for (uint32_t at = 0; at < h->offsets[0]; at++)
		for (unsigned bit = 0; bit < 8; bit++, bits++) {
			h->bytes[at] ^= (uint8_t)(1u << bit);
			refused += hand_verify(h, why, sizeof(why)) != 0;
			h->bytes[at] ^= (uint8_t)(1u << bit);
		}
	assert_in_range(refused, bits - bits / 20, bits);
	h->tx.thunks.enter++;
	assert_int_equal(hand_verify(h, why, sizeof(why)), -EBADMSG);
	free(h);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_guest_memory), cmocka_unit_test(test_registers),
		cmocka_unit_test(test_control),      cmocka_unit_test(test_windows),
		cmocka_unit_test(test_division),     cmocka_unit_test(test_other_instructions),
		cmocka_unit_test(test_leaders),      cmocka_unit_test(test_thunks),
		cmocka_unit_test(test_sites),        cmocka_unit_test(test_thunk_prefix),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
/*
 * What hostile device code may try, and that each try ends in a trap with the exact pc, registers,
 * count and address, while the host's memory stays as it was.
 */
#include "bed.h"

#include <sys/mman.h>

/* Canaries the guest is told the host addresses of. */
static uint64_t canary[512];

static void set_canary(void)
{
	for (unsigned i = 0; i < 512; i++)
		canary[i] = 0xc0ffee00ull + i;
}

static void check_canary(void)
{
	for (unsigned i = 0; i < 512; i++)
		assert_int_equal(canary[i], 0xc0ffee00ull + i);
}

/* A program that does some work, then `op` with x5 = address - imm, in the middle of a block. */
static void access_program(struct rv_prog *p, enum rv_op op, unsigned reg, u64 address, i64 imm)
{
	rv_init(p);
	rv_data(p, NULL, 4096, 16);
	rv_li(p, 7, 0x1111);
	rv_emit(p, OP_addw, 8, 7, 7, 0);
	rv_li(p, reg, address - (u64)imm);
	rv_emit(p, OP_subw, 9, 8, 7, 0);
	rv_emit(p, op, 10, reg, 9,
		rv_info[op].format == FMT_AM || rv_info[op].format == FMT_LR ? 0 : imm);
	rv_emit(p, OP_addi, 8, 8, 0, 1);
	rv_emit(p, OP_addi, 7, 8, 0, 1);
	rv_emit(p, OP_ebreak, 0, 0, 0, 0);
}

static void expect_access_trap(enum rv_op op, unsigned reg, u64 address, i64 imm)
{
	static const i64 no_imm;
	bool load = rv_info[op].format == FMT_LD || rv_info[op].format == FMT_LR;
	bool atomic = rv_info[op].format == FMT_AM || rv_info[op].format == FMT_LR;
	struct bed b = { 0 };

	access_program(&b.p, op, reg, address, atomic ? no_imm : imm);
	bed_expect_trap(&b, load ? VB_DPA_CAUSE_LOAD : VB_DPA_CAUSE_STORE, address);
	bed_close(&b);
}

static void test_wild_pointers(void **state)
{
	static const enum rv_op op[] = { OP_lb, OP_lhu, OP_lw,       OP_ld,        OP_sb,  OP_sh,
					 OP_sw, OP_sd,  OP_amoadd_w, OP_amoswap_d, OP_lr_w };
	static const u64 address[] = {
		0,          8,          0xff8,      0x30000000, 0x3ffffff8,        0x40000000,
		0x7fff0000, 0x7ffffff8, 0x80000000, 0xfffffff8, 1ull << 32,        0x123456789ab0,
		1ull << 47, 1ull << 62, 1ull << 63, ~0ull - 7,  0x7ffffffffffffff8
	};
	static const unsigned reg[] = { 5, 2, 31, 15 };
	static const i64 imm[] = { 0, 2040, -2048, 8 };
	unsigned n = 0;

	(void)state;
	set_canary();
	for (unsigned i = 0; i < sizeof(op) / sizeof(op[0]); i++)
		for (unsigned k = 0; k < sizeof(address) / sizeof(address[0]); k++, n++)
			expect_access_trap(op[i], reg[n % 4], address[k], imm[n / 4 % 4]);
	check_canary();
}

/* The host's own addresses, as they are and relative to the guest's base. */
static void test_host_addresses(void **state)
{
	struct bed probe = { 0 };
	u64 base, heap = (u64)(uintptr_t)malloc(64), stack = (u64)(uintptr_t)&probe;

	(void)state;
	set_canary();
	access_program(&probe.p, OP_ld, 5, 0, 0);
	bed_open(&probe, NULL);
	base = (u64)(uintptr_t)vb_view_lend(
		       vb_dpa_mem_host(probe.process, RV_TEXT, 4, VB_DPA_READ)) -
	       RV_TEXT;
	for (int k = 0; k < 3; k++) {
		u64 host = (k == 0 ? (u64)(uintptr_t)canary : k == 1 ? heap : stack) & ~7ull;

		expect_access_trap(OP_ld, 5, host, 0);
		expect_access_trap(OP_sd, 5, host, 8);
		expect_access_trap(OP_sd, 2, host, 8);
		expect_access_trap(OP_sd, 5, host - base, 0);
		expect_access_trap(OP_amoswap_d, 5, host - base, 0);
		expect_access_trap(OP_ld, 2, host - base, -16);
	}
	bed_close(&probe);
	check_canary();
	free((void *)(uintptr_t)heap);
}

/* A pointer that walks until it leaves the data, with strides that a check per block might miss. */
static void walk(i64 stride, bool unrolled, enum rv_op op)
{
	struct bed b = { 0 };
	struct rv_model m;
	int top = rv_label(&b.p);
	size_t at = rv_data(&b.p, NULL, 3 * 4096, 4096);

	rv_la(&b.p, 5, rv_data_label(&b.p, at + 4096));
	rv_li(&b.p, 6, (u64)stride);
	rv_place(&b.p, top);
	for (int n = 0; n < (unrolled ? 6 : 1); n++) {
		rv_emit(&b.p, op, 7, 5, 8, 0);
		rv_emit(&b.p, OP_add, 5, 5, 6, 0);
		rv_emit(&b.p, OP_addi, 8, 8, 0, 1);
	}
	rv_jump(&b.p, 0, top);
	bed_open(&b, NULL);
	rv_model_init(&m, &b.p);
	assert_int_equal(rv_model_run(&m, ~0ull), RV_FAULT);
	/* A long step may land in the thread's stack, of which the model knows nothing. */
	if (stride > 4096 && vb_view_lend(vb_dpa_mem_host(b.process, m.x[5], 8, VB_DPA_READ)))
		goto out;
	bed_expect_trap(&b, op == OP_ld ? VB_DPA_CAUSE_LOAD : VB_DPA_CAUSE_STORE, m.x[5]);
	/* Everything before the trap has happened, nothing after. */
	assert_memory_equal(
		vb_view_lend(vb_dpa_mem_host(b.process, b.p.data_base, b.p.data_size, VB_DPA_READ)),
		m.mem + (b.p.data_base - RV_TEXT), b.p.data_size);
out:
	rv_model_free(&m);
	bed_close(&b);
}

static void test_walks(void **state)
{
	static const i64 stride[] = { 8,       512,       2048,      4096,     65536,
				      1 << 20, 1ll << 31, 1ll << 33, 1ll << 62 };

	(void)state;
	for (unsigned n = 0; n < sizeof(stride) / sizeof(stride[0]); n++)
		for (int unrolled = 0; unrolled < 2; unrolled++) {
			walk(stride[n], unrolled, OP_sd);
			walk(stride[n], unrolled, OP_ld);
		}
	/* Downwards a small stride would meet text, which may be read; stores must stop there. */
	walk(-8, true, OP_sd);
	walk(-2048, true, OP_sd);
	walk(-(1 << 20), false, OP_ld);
}

static void expect_fetch_trap(u64 target, bool call)
{
	struct bed b = { 0 };
	struct vb_dpa_state *s;

	rv_data(&b.p, "\x13\x05\x15\x00\x82\x80", 6, 16); /* addi a0, a0, 1; ret */
	rv_li(&b.p, 5, target);
	rv_li(&b.p, 6, 77);
	rv_emit(&b.p, OP_jalr, call ? 1 : 0, 5, 0, 0);
	bed_open(&b, NULL);
	bed_reset(&b);
	assert_int_equal(bed_run(&b, UINT64_MAX), VB_DPA_WHY_TRAP);
	s = bed_state(&b);
	assert_int_equal(s->cause, VB_DPA_CAUSE_FETCH);
	assert_int_equal(s->pc, target & ~1ull);
	assert_int_equal(s->tval, target & ~1ull);
	assert_int_equal(s->x[6], 77);
	assert_int_equal(s->instret, b.p.count);
	bed_close(&b);
}

static void test_jumps_out(void **state)
{
	static const u64 target[] = { 0,          2,          0x100,      0x11000,
				      0x11001, /* data */
				      0xfffe,     0x10400,    0x20000000, 0x40000000,
				      0x7ffffffe, 0x80000000, 0xfffffffe, 1ull << 32,
				      1ull << 40, 1ull << 63, ~0ull - 1 };

	(void)state;
	for (unsigned n = 0; n < sizeof(target) / sizeof(target[0]); n++) {
		expect_fetch_trap(target[n], false);
		expect_fetch_trap(target[n], true);
	}
	expect_fetch_trap((u64)(uintptr_t)canary & ~1ull, true);
	expect_fetch_trap((u64)(uintptr_t)&test_jumps_out & ~1ull, true);
}

/* Off the end of text by falling, by a branch, by a jump. */
static void test_fall_off(void **state)
{
	(void)state;
	for (int kind = 0; kind < 3; kind++) {
		struct bed b = { 0 };
		int end = rv_label(&b.p);

		rv_data(&b.p, NULL, 64, 8);
		rv_li(&b.p, 5, 5);
		if (kind == 1)
			rv_branch(&b.p, OP_bne, 5, 0, end);
		else if (kind == 2)
			rv_jump(&b.p, 1, end);
		rv_emit(&b.p, OP_addi, 6, 5, 0, 1);
		rv_place(&b.p, end);
		rv_layout(&b.p);
		bed_expect_trap(&b, VB_DPA_CAUSE_FETCH, RV_TEXT + b.p.text_size);
		bed_close(&b);
	}
}

/* Text that another copy of the engine would happily run: written to data, and over itself. */
static void test_self_modifying(void **state)
{
	struct bed b = { 0 };
	int text = rv_label(&b.p);
	uint8_t after[64];

	(void)state;
	rv_data(&b.p, NULL, 64, 16);
	rv_place(&b.p, text);
	rv_la(&b.p, 5, text);
	rv_li(&b.p, 6, 0x00100513); /* li a0, 1 */
	rv_emit(&b.p, OP_sw, 0, 5, 6, 12);
	rv_emit(&b.p, OP_fence_i, 0, 0, 0, 0);
	rv_emit(&b.p, OP_addi, 10, 0, 0, 2);
	rv_layout(&b.p);
	bed_expect_trap(&b, VB_DPA_CAUSE_STORE, RV_TEXT + 12);
	assert_int_equal(vb_dpa_mem_read(b.process, RV_TEXT, after, b.p.text_size), 0);
	assert_memory_equal(after, b.p.text, b.p.text_size);
	assert_int_not_equal(vb_dpa_mem_write(b.process, RV_TEXT, "xxxx", 4), 0);
	assert_null(vb_view_lend(vb_dpa_mem_host(b.process, RV_TEXT, 4, VB_DPA_WRITE)));
	bed_close(&b);

	rv_data(&b.p, NULL, 64, 16);
	rv_la(&b.p, 5, rv_data_label(&b.p, 0));
	rv_li(&b.p, 6, 0x00008067); /* ret */
	rv_emit(&b.p, OP_sw, 0, 5, 6, 0);
	rv_emit(&b.p, OP_fence_i, 0, 0, 0, 0);
	rv_emit(&b.p, OP_jalr, 1, 5, 0, 0);
	rv_layout(&b.p);
	bed_expect_trap(&b, VB_DPA_CAUSE_FETCH, b.p.data_base);
	bed_close(&b);
}

static void test_stack_overflow(void **state)
{
	struct bed b = { 0 };
	struct vb_dpa_state *s;
	u64 top;

	(void)state;
	/* f: addi sp, -48; sd ra, 40(sp); jal f */
	rv_label(&b.p);
	rv_place(&b.p, 0);
	rv_emit(&b.p, OP_addi, 2, 2, 0, -48);
	rv_emit(&b.p, OP_sd, 0, 2, 1, 40);
	rv_jump(&b.p, 1, 0);
	bed_open(&b, NULL);
	for (int round = 0; round < 3; round++) {
		assert_int_equal(vb_dpa_thread_set_call(b.thread, RV_TEXT, NULL, 0), 0);
		top = bed_state(&b)->x[2];
		assert_int_equal(bed_run(&b, UINT64_MAX), VB_DPA_WHY_TRAP);
		s = bed_state(&b);
		assert_int_equal(s->cause, VB_DPA_CAUSE_STORE);
		assert_int_equal(s->pc, b.p.insn[1].pc);
		assert_int_equal(s->tval, s->x[2] + 40);
		assert_in_range(top - s->tval, 60000, 80000); /* the default stack is 64 KiB */
		assert_int_equal((top - s->x[2]) % 48, 0);
	}
	bed_close(&b);
}

static void test_misaligned_atomics(void **state)
{
	struct bed b;

	(void)state;
	for (int op = 0; op < OP_COUNT; op++) {
		bool sc = rv_info[op].format == FMT_SC, lr = rv_info[op].format == FMT_LR;
		unsigned size = rv_info[op].bits & 0x1000 ? 8 : 4;

		if (rv_info[op].format != FMT_AM && !sc && !lr)
			continue;
		for (unsigned off = 1; off < size; off += size == 8 && off == 1 ? 3 : 1) {
			memset(&b, 0, sizeof(b));
			rv_data(&b.p, NULL, 64, 64);
			rv_la(&b.p, 5, rv_data_label(&b.p, 0));
			rv_emit(&b.p, OP_addi, 5, 5, 0, off);
			rv_emit(&b.p, OP_addi, 7, 0, 0, -1);
			rv_emit(&b.p, (enum rv_op)op, 6, 5, lr ? 0 : 7, 0);
			rv_layout(&b.p);
			bed_expect_trap(&b,
					lr ? VB_DPA_CAUSE_LOAD_MISALIGNED
					   : VB_DPA_CAUSE_STORE_MISALIGNED,
					b.p.data_base + off);
			bed_close(&b);
		}
	}
}

/* Page rights changed under a running program's feet. */
static void test_rights(void **state)
{
	struct bed b = { 0 };
	uint64_t addr = 0, args[1];
	enum vb_dpa_why why;
	int load;

	(void)state;
	rv_emit(&b.p, OP_sd, 0, 10, 10, 8); /* store(a0) */
	rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
	load = rv_label(&b.p);
	rv_place(&b.p, load);
	rv_emit(&b.p, OP_ld, 10, 10, 0, 8);
	rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&b, NULL);
	assert_int_equal(vb_dpa_mem_map(b.process, &addr, 8192, VB_DPA_READ | VB_DPA_WRITE), 0);
	args[0] = addr;
	for (int step = 0; step < 4; step++) {
		static const unsigned rights[] = { VB_DPA_READ | VB_DPA_WRITE, VB_DPA_READ,
						   VB_DPA_READ | VB_DPA_WRITE };
		bool writes = step == 0 || step == 2, reads = step != 3;

		if (step < 3)
			assert_int_equal(vb_dpa_mem_protect(b.process, addr, 8192, rights[step]),
					 0);
		else
			assert_int_equal(vb_dpa_mem_unmap(b.process, addr, 8192), 0);
		assert_int_equal(vb_dpa_thread_set_call(b.thread, RV_TEXT, args, 1), 0);
		assert_int_equal(vb_dpa_thread_run(b.thread, UINT64_MAX, &why), 0);
		assert_int_equal(why, writes ? VB_DPA_WHY_RETURN : VB_DPA_WHY_TRAP);
		assert_true(writes || bed_state(&b)->cause == VB_DPA_CAUSE_STORE);
		assert_true(writes || bed_state(&b)->tval == addr + 8);
		assert_int_equal(vb_dpa_thread_set_call(b.thread, rv_address(&b.p, load), args, 1),
				 0);
		assert_int_equal(vb_dpa_thread_run(b.thread, UINT64_MAX, &why), 0);
		assert_int_equal(why, reads ? VB_DPA_WHY_RETURN : VB_DPA_WHY_TRAP);
		assert_true(!reads || bed_state(&b)->x[10] == addr);
	}
	bed_close(&b);
}

/* A process goes on working after its threads trapped, and others never notice. */
static void test_survivors(void **state)
{
	struct bed a = { 0 }, b = { 0 };

	(void)state;
	access_program(&a.p, OP_sd, 5, 0, 0);
	rv_emit(&b.p, OP_addi, 10, 10, 0, 5);
	rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&a, NULL);
	bed_open(&b, NULL);
	for (uint64_t n = 0; n < 200; n++) {
		uint64_t result;

		bed_expect_trap(&a, VB_DPA_CAUSE_STORE, 0);
		assert_int_equal(vb_dpa_call(b.thread, RV_TEXT, &n, 1, &result), 0);
		assert_int_equal(result, n + 5);
	}
	bed_close(&a);
	bed_close(&b);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wild_pointers),  cmocka_unit_test(test_host_addresses),
		cmocka_unit_test(test_walks),          cmocka_unit_test(test_jumps_out),
		cmocka_unit_test(test_fall_off),       cmocka_unit_test(test_self_modifying),
		cmocka_unit_test(test_stack_overflow), cmocka_unit_test(test_misaligned_atomics),
		cmocka_unit_test(test_rights),         cmocka_unit_test(test_survivors),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

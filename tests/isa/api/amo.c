// SPDX-License-Identifier: MIT
/*
 * Each atomic instruction alone, with its operands in every kind of place: what it computes, where
 * it traps, and what the trap leaves. The address comes in a register, as a constant, or in a
 * register that the translator has no room for.
 */
#include "bed.h"

enum where { REGISTER, CONSTANT, CROWDED, WHERES };

static bool is_atomic(int op)
{
	return rv_info[op].format >= FMT_AM && rv_info[op].format <= FMT_SC;
}

static unsigned size_of(int op)
{
	return rv_info[op].bits & 0x1000 ? 8 : 4;
}

/* Use ten registers so often that others stay without a place of their own. */
static void crowd(struct rv_prog *p)
{
	int top = rv_label(p);

	rv_emit(p, OP_addi, 18, 0, 0, 2);
	rv_place(p, top);
	for (unsigned n = 0; n < 8; n++)
		for (unsigned r = 19; r < 28; r++)
			rv_emit(p, OP_add, r, r, r == 27 ? 19 : r + 1, 0);
	rv_emit(p, OP_addi, 18, 18, 0, -1);
	rv_branch(p, OP_bne, 18, 0, top);
}

/* Put the address of data + offset into reg. */
static void make_base(struct rv_prog *p, enum where where, unsigned reg, i64 offset)
{
	if (where == CROWDED)
		crowd(p);
	rv_la(p, reg, rv_data_label(p, 0));
	if (where != CONSTANT) { /* data + 56 holds the address of data: unknown when translated */
		rv_emit(p, OP_ld, reg, reg, 0, 56);
	}
	if (offset)
		rv_emit(p, OP_addi, reg, reg, 0, offset);
}

static void make_data(struct rv_prog *p)
{
	static const u64 words[8] = { 0x8123456789abcdef, 0x00000000fedcba98, 7 };

	rv_data(p, words, sizeof(words), 64);
	rv_data_word(p, 56, rv_data_label(p, 0));
}

static void run_to_break(struct bed *b)
{
	struct rv_model m;

	bed_open(b, NULL);
	rv_model_init(&m, &b->p);
	assert_int_equal(rv_model_run(&m, ~0ull), RV_FAULT);
	bed_reset(b);
	assert_int_equal(bed_run(b, UINT64_MAX), VB_DPA_WHY_TRAP);
	bed_same(b, &m, "atomic");
	assert_int_equal(bed_state(b)->cause, VB_DPA_CAUSE_BREAKPOINT);
	rv_model_free(&m);
	bed_close(b);
}

/* rd and rs2 as any of: their own, each other, the base, x0, sp. */
static void test_operands(void **state)
{
	static const uint8_t regs[][3] = { { 6, 5, 7 }, { 7, 5, 7 }, { 5, 5, 7 }, { 6, 5, 5 },
					   { 5, 5, 5 }, { 0, 5, 7 }, { 6, 5, 0 }, { 0, 5, 0 },
					   { 2, 5, 7 }, { 6, 2, 7 } };

	(void)state;
	for (int op = 0; op < OP_COUNT; op++) {
		for (unsigned n = 0; is_atomic(op) && n < WHERES * 10; n++) {
			const uint8_t *r = regs[n / WHERES];
			bool lr = rv_info[op].format == FMT_LR, sc = rv_info[op].format == FMT_SC;
			bool wide = size_of(op) == 8;
			struct bed b = { 0 };

			make_data(&b.p);
			make_base(&b.p, n % WHERES, r[1], wide ? 8 : 4);
			if (r[2] == 7)
				rv_li(&b.p, 7, 0xfedcba9876543210);
			rv_emit(&b.p, OP_addw, 7, 7, 0, 0); /* a word whose upper half may wait */
			rv_emit(&b.p, OP_addi, 29, r[1], 0, 0);
			if (sc)
				rv_emit(&b.p, wide ? OP_lr_d : OP_lr_w, 28, r[1], 0, 0);
			rv_emit(&b.p, (enum rv_op)op, r[0], r[1], lr ? 0 : r[2], 0);
			rv_emit(&b.p, wide ? OP_sc_d : OP_sc_w, 30, 29, 7, 0); /* is it reserved? */
			rv_emit(&b.p, OP_ld, 31, 29, 0, wide ? 0 : -4);
			rv_emit(&b.p, OP_ebreak, 0, 0, 0, 0);
			run_to_break(&b);
		}
	}
}

static void test_misaligned(void **state)
{
	(void)state;
	for (int op = 0; op < OP_COUNT; op++) {
		for (unsigned n = 0; is_atomic(op) && n < WHERES * 3; n++) {
			bool lr = rv_info[op].format == FMT_LR;
			u64 offset = n / WHERES == 0 ? 1 : n / WHERES == 1 ? 2 : size_of(op) / 2;
			struct bed b = { 0 };

			make_data(&b.p);
			make_base(&b.p, n % WHERES, 5, (i64)offset);
			rv_emit(&b.p, OP_addw, 7, 5, 5, 0);
			rv_emit(&b.p, (enum rv_op)op, 6, 5, lr ? 0 : 7, 0);
			rv_layout(&b.p);
			bed_expect_trap(&b,
					lr ? VB_DPA_CAUSE_LOAD_MISALIGNED
					   : VB_DPA_CAUSE_STORE_MISALIGNED,
					b.p.data_base + offset);
			bed_close(&b);
		}
	}
}

/* f(address, value): the instruction on a page that may only be read. */
static void test_read_only(void **state)
{
	(void)state;
	for (int op = 0; op < OP_COUNT; op++) {
		bool lr = rv_info[op].format == FMT_LR, sc = rv_info[op].format == FMT_SC;
		struct bed b = { 0 };
		uint64_t addr = 0, args[2], *host;
		size_t at;

		if (!is_atomic(op))
			continue;
		rv_emit(&b.p, OP_addw, 12, 11, 11, 0);
		if (sc)
			rv_emit(&b.p, size_of(op) == 8 ? OP_lr_d : OP_lr_w, 13, 10, 0, 0);
		at = b.p.count;
		rv_emit(&b.p, (enum rv_op)op, 14, 10, lr ? 0 : 12, 0);
		rv_emit(&b.p, OP_addi, 15, 0, 0, 1);
		rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
		bed_open(&b, NULL);
		assert_int_equal(vb_dpa_mem_map(b.process, &addr, 4096, VB_DPA_READ | VB_DPA_WRITE),
				 0);
		host = vb_view_lend(
			vb_dpa_mem_host(b.process, addr, 4096, VB_DPA_READ | VB_DPA_WRITE));
		host[0] = 0x1122334455667788;
		assert_int_equal(vb_dpa_mem_protect(b.process, addr, 4096, VB_DPA_READ), 0);
		args[0] = addr;
		args[1] = 0x7fffffff;
		assert_int_equal(vb_dpa_thread_set_call(b.thread, RV_TEXT, args, 2), 0);
		bed_state(&b)->instret = 0;
		assert_int_equal(bed_run(&b, UINT64_MAX), lr ? VB_DPA_WHY_RETURN : VB_DPA_WHY_TRAP);
		assert_int_equal(host[0], 0x1122334455667788);
		if (!lr) {
			assert_int_equal(bed_state(&b)->cause, VB_DPA_CAUSE_STORE);
			assert_int_equal(bed_state(&b)->tval, addr);
			assert_int_equal(bed_state(&b)->pc, b.p.insn[at].pc);
			assert_int_equal(bed_state(&b)->instret, at);
			assert_int_equal(bed_state(&b)->x[12], ~1ull);
			assert_int_equal(bed_state(&b)->x[14], 0);
		}
		bed_close(&b);
	}
}

/* An SC that nothing is reserved for fails, and touches nothing: not even a wild pointer traps. */
static void test_unreserved(void **state)
{
	static const u64 address[] = { 0, 0x30000000, 0x40000000, 1ull << 33, ~0ull - 7 };

	(void)state;
	for (unsigned n = 0; n < 2 * sizeof(address) / sizeof(address[0]); n++) {
		struct bed b = { 0 };
		uint64_t args[2] = { address[n / 2], 5 };

		rv_emit(&b.p, OP_addi, 14, 0, 0, 0);
		rv_emit(&b.p, n % 2 ? OP_sc_d : OP_sc_w, 14, 10, 11, 0);
		rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
		bed_open(&b, NULL);
		assert_int_equal(vb_dpa_thread_set_call(b.thread, RV_TEXT, args, 2), 0);
		assert_int_equal(bed_run(&b, UINT64_MAX), VB_DPA_WHY_RETURN);
		assert_int_equal(bed_state(&b)->x[14], 1);
		bed_close(&b);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_operands),
		cmocka_unit_test(test_misaligned),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_unreserved),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

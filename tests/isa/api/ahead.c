// SPDX-License-Identifier: MIT
/*
 * A loop that the host makes many turns of at once reads no further than the guest's own would. If it
 * did, the end of mapped memory would be met by accident, and the rest of the run be interpreted.
 * Seen in steps of the engine (count.h): translated code counts none, an interpreted instruction some.
 */
#include "bed.h"

#include "count.h"

enum { PAGE = 4096, SPINS = 1000000 };

/* compare(a, b, end of a): bytes until two differ; then spins and returns how many were equal. */
static void make_compare(struct rv_prog *p, enum rv_op load, int size)
{
	int top = rv_label(p), out = rv_label(p), spin = rv_label(p);

	rv_emit(p, OP_addi, 28, 10, 0, 0);
	rv_place(p, top);
	rv_emit(p, load, 5, 10, 0, 0);
	rv_emit(p, load, 6, 11, 0, 0);
	rv_branch(p, OP_bne, 5, 6, out);
	rv_emit(p, OP_addi, 10, 10, 0, size);
	rv_emit(p, OP_addi, 11, 11, 0, size);
	rv_branch(p, OP_bne, 10, 12, top);
	rv_place(p, out);
	rv_emit(p, OP_lui, 29, 0, 0, (SPINS + 0xfff) & ~0xfff);
	rv_place(p, spin);
	rv_emit(p, OP_addi, 29, 29, 0, -1);
	rv_branch(p, OP_bne, 29, 0, spin);
	rv_emit(p, OP_sub, 10, 10, 28, 0);
	rv_emit(p, OP_jalr, 0, 1, 0, 0);
}

/* Two pages that each have nothing behind them. */
static void map_pages(struct bed *b, u64 pages[2])
{
	for (unsigned i = 0; i < 2; i++) {
		pages[i] = 0x2000000 + i * 0x100000;
		assert_int_equal(
			vb_dpa_mem_map(b->process, &pages[i], PAGE, VB_DPA_READ | VB_DPA_WRITE), 0);
	}
}

static void expect_ahead(enum rv_op load, int size)
{
	struct vb_dpa_thread *thread;
	struct bed b = { 0 };
	u64 pages[2];

	rv_init(&b.p);
	make_compare(&b.p, load, size);
	bed_open(&b, NULL);
	map_pages(&b, pages);
	assert_int_equal(vb_dpa_thread_create(b.process, NULL, &thread), 0);
	/* The difference is near the end of either page, and of both; the bound lies far behind. */
	for (u64 other = 0; other < 64; other += (u64)size) {
		u64 a = pages[0] + PAGE - 400, c = pages[1] + PAGE - 400 - other;
		u64 args[] = { other & 8 ? c : a, other & 8 ? a : c, 0 };
		u64 equal = 400 - (u64)size, result = 0, one = 1;
		struct count count;

		args[2] = args[0] + 40000;
		assert_int_equal(vb_dpa_mem_write(b.process, a + equal, &one, 1), 0);
		count_start(&count);
		assert_int_equal(vb_dpa_call(thread, RV_TEXT, args, 3, &result), 0);
		count_stop(&count);
		assert_int_equal(result, equal);
		if (count.steps > SPINS / 4)
			fail_msg("%d bytes, %d apart: %zu steps", size, (int)other,
				 (size_t)count.steps);
	}
	assert_int_equal(vb_dpa_thread_destroy(thread), 0);
	bed_close(&b);
}

static void test_compares(void **state)
{
	(void)state;
	expect_ahead(OP_lbu, 1);
	expect_ahead(OP_lhu, 2);
	expect_ahead(OP_lw, 4);
	expect_ahead(OP_ld, 8);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_compares) };

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

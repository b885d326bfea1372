// SPDX-License-Identifier: MIT
/*
 * Text that is translated anew while threads run in it. A translator learns from what it sees
 * (targets of computed jumps, registers that matter), so threads are sent to ever new places in the
 * middle of straight code, on several host threads at once, and must compute what the model
 * computes.
 */
#include "bed.h"

enum { FUNCTIONS = 48, LENGTH = 16, SLOT = 128, THREADS = 6, ROUNDS = 12 };

/*
 * jumps(seed, n): n times, pick one of FUNCTIONS * LENGTH entry points by a linear congruence and
 * call it. The functions only compute in x10 (seed) and x12..x17, so that threads do not meet.
 */
static void make_program(struct rv_prog *p)
{
	struct rng r = { 4711 };
	int area = rv_label(p), top = rv_label(p), done = rv_label(p);

	rv_emit(p, OP_addi, 8, 1, 0, 0);
	rv_la(p, 9, area);
	rv_li(p, 18, 6364136223846793005ull);
	rv_place(p, top);
	rv_branch(p, OP_beq, 11, 0, done);
	rv_emit(p, OP_addi, 11, 11, 0, -1);
	rv_emit(p, OP_mul, 10, 10, 18, 0);
	rv_emit(p, OP_addi, 10, 10, 0, 1442);
	rv_emit(p, OP_srli, 5, 10, 0, 40);
	rv_emit(p, OP_addi, 6, 0, 0, FUNCTIONS);
	rv_emit(p, OP_remu, 6, 5, 6, 0);
	rv_emit(p, OP_slli, 6, 6, 0, 7); /* SLOT */
	rv_emit(p, OP_srli, 7, 10, 0, 33);
	rv_emit(p, OP_andi, 7, 7, 0, LENGTH - 1);
	rv_emit(p, OP_sh2add, 6, 7, 6, 0);
	rv_emit(p, OP_add, 6, 6, 9, 0);
	rv_emit(p, OP_jalr, 1, 6, 0, 0);
	rv_jump(p, 0, top);
	rv_place(p, done);
	rv_emit(p, OP_add, 10, 10, 17, 0);
	rv_emit(p, OP_jalr, 0, 8, 0, 0);
	rv_place(p, area);
	for (unsigned f = 0; f < FUNCTIONS; f++) {
		static const enum rv_op op[] = { OP_add, OP_sub,    OP_xor,  OP_mul,
						 OP_rol, OP_sh3add, OP_addw, OP_maxu };

		for (unsigned i = 0; i < LENGTH; i++)
			rv_emit(p, op[rng_below(&r, 8)], 12 + rng_below(&r, 6),
				12 + rng_below(&r, 6), i % 5 ? 12 + rng_below(&r, 6) : 10, 0)
				->compress = false;
		rv_emit(p, OP_add, 10, 10, 12 + f % 6, 0)->compress = false;
		rv_emit(p, OP_jalr, 0, 1, 0, 0)->compress = false;
		for (unsigned pad = LENGTH + 2; pad < SLOT / 4; pad++)
			rv_emit(p, OP_ebreak, 0, 0, 0, 0)->compress = false;
	}
}

/* What jumps(seed, n) returns, and how many instructions it takes. */
static uint64_t expected(const struct rv_prog *p, uint64_t seed, uint64_t n, uint64_t *count)
{
	struct rv_model m;
	uint64_t value;

	rv_model_init(&m, p);
	m.x[10] = seed;
	m.x[11] = n;
	m.x[1] = 4; /* returning there is a fault, and the end */
	assert_int_equal(rv_model_run(&m, ~0ull), RV_FAULT);
	assert_int_equal(m.pc, 4);
	value = m.x[10];
	*count = m.count;
	rv_model_free(&m);
	return value;
}

static void zero_registers(struct vb_dpa_thread *t)
{
	for (unsigned r = 12; r < 18; r++)
		vb_dpa_thread_state(t)->x[r] = 0;
}

static void test_together(void **state)
{
	struct vb_dpa_attr attr = { .eus = 6, .host_threads = 3, .slice = 3000 };
	struct vb_dpa_thread *t[THREADS];
	struct vb_dpa_text_stats stats;
	struct bed b = { 0 };

	(void)state;
	make_program(&b.p);
	bed_open(&b, &attr);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(vb_dpa_thread_create(b.process, NULL, &t[i]), 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t before[THREADS];

		for (unsigned i = 0; i < THREADS; i++) {
			uint64_t args[2] = { round * 100 + i, 300u << (round / 3) };

			assert_int_equal(vb_dpa_thread_set_call(t[i], RV_TEXT, args, 2), 0);
			zero_registers(t[i]);
			before[i] = vb_dpa_thread_state(t[i])->instret;
			assert_int_equal(vb_dpa_thread_start(t[i]), 0);
		}
		for (unsigned i = 0; i < THREADS; i++) {
			uint64_t count,
				want = expected(&b.p, round * 100 + i, 300u << (round / 3), &count);
			enum vb_dpa_why why;

			assert_int_equal(vb_dpa_thread_wait(t[i], -1, &why), 0);
			assert_int_equal(why, VB_DPA_WHY_RETURN);
			assert_int_equal(vb_dpa_thread_state(t[i])->x[10], want);
			assert_int_equal(vb_dpa_thread_state(t[i])->instret - before[i], count);
		}
	}
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(vb_dpa_thread_destroy(t[i]), 0);
	vb_dpa_text_stats(b.process, &stats);
	if (bed_tier == VB_DPA_TIER_JIT) /* or this test would not test what it says */
		assert_true(stats.translations > 1);
	bed_close(&b);
}

/* The same alone, in pieces of every length, so that a new translation is entered from anywhere. */
static void test_in_pieces(void **state)
{
	struct bed b = { 0 };
	struct rv_model m;

	(void)state;
	make_program(&b.p);
	bed_open(&b, NULL);
	bed_reset(&b);
	rv_model_init(&m, &b.p);
	bed_state(&b)->x[10] = m.x[10] = 99;
	bed_state(&b)->x[11] = m.x[11] = 1500;
	for (uint64_t n = 1; m.pc != 4 && n < 2000; n++) {
		enum vb_dpa_why why = bed_run(&b, n);

		if (rv_model_run(&m, m.count + n) == RV_FAULT)
			break; /* returned to 0, where neither can go on */
		assert_int_equal(why, VB_DPA_WHY_BUDGET);
		bed_same(&b, &m, "piece");
	}
	rv_model_free(&m);
	bed_close(&b);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_together),
		cmocka_unit_test(test_in_pieces),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

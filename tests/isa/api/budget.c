// SPDX-License-Identifier: MIT
/*
 * Exactness: stopping after any number of instructions, and trapping at any place, leaves exactly
 * the state the reference model has there. Random programs, random stops.
 */
#include "bed.h"

#include "../gen/gen.h"

/* The generator's programs run to their end in pieces; the state is compared after every piece. */
static void in_pieces(u64 seed, unsigned programs, unsigned longest)
{
	struct rng r = { seed * 77 + longest };
	struct bed b = { 0 };
	struct rv_model m;
	enum vb_dpa_why why;
	char what[64];

	gen_programs(&b.p, seed, programs, GEN_OURS | (seed % 4 ? 0 : GEN_AGAIN));
	bed_open(&b, NULL);
	bed_reset(&b);
	rv_model_init(&m, &b.p);
	do {
		uint64_t n = 1 + rng_below(&r, longest), before = bed_state(&b)->instret;

		snprintf(what, sizeof(what), "seed %llu, stop after %llu", (unsigned long long)seed,
			 (unsigned long long)n);
		why = bed_run(&b, n);
		if (rv_model_run(&m, m.count + n) == RV_EXIT) {
			assert_int_equal(why, VB_DPA_WHY_EXIT);
			break;
		}
		assert_int_equal(why, VB_DPA_WHY_BUDGET);
		assert_int_equal(bed_state(&b)->instret - before, n);
		bed_same(&b, &m, what);
	} while (m.count < 100000000);
	assert_int_equal(bed_state(&b)->instret, m.count);
	assert_int_equal(b.out_size, m.out_size);
	assert_memory_equal(b.out, m.out, m.out_size);
	rv_model_free(&m);
	bed_close(&b);
}

static void test_single_steps(void **state)
{
	(void)state;
	for (u64 seed = 1; seed <= 20; seed++)
		in_pieces(seed, 4, 1);
}

static void test_short_pieces(void **state)
{
	(void)state;
	for (u64 seed = 100; seed < 160; seed++)
		in_pieces(seed, 6, 20);
}

static void test_long_pieces(void **state)
{
	(void)state;
	in_pieces(300, 100, 20000);
	for (u64 seed = 200; seed < 240; seed++)
		in_pieces(seed, 20, 3000);
}

/* Put an instruction that must fault where a random computing one stood. */
static enum vb_dpa_cause plant(struct rv_prog *p, struct rng *r, size_t *where, u64 *tval)
{
	struct rv_insn *i;
	unsigned kind = rng_below(r, 6);
	static const enum rv_op op[] = { OP_ld, OP_sb, OP_lhu, OP_sd, OP_ebreak, OP_amoadd_d };

	do {
		*where = rng_below(r, (unsigned)p->count);
		i = &p->insn[*where];
	} while (rv_info[i->op].format != FMT_R || i->fix);
	i->op = op[kind];
	i->rs1 = 0;
	i->imm = kind >= 4 ? 0 : (i64)rng_below(r, 2048);
	*tval = kind == 4 ? 0 : (u64)i->imm;
	free(p->text);
	p->text = NULL;
	rv_layout(p);
	return kind == 4                ? VB_DPA_CAUSE_BREAKPOINT
	       : kind == 0 || kind == 2 ? VB_DPA_CAUSE_LOAD
					: VB_DPA_CAUSE_STORE;
}

static void test_random_traps(void **state)
{
	unsigned trapped = 0;

	(void)state;
	for (u64 seed = 1000; seed < 1400; seed++) {
		struct rng r = { seed };
		struct bed b = { 0 };
		struct rv_model m;
		enum vb_dpa_cause cause;
		size_t where;
		u64 tval;

		gen_programs(&b.p, seed, 2, GEN_OURS);
		cause = plant(&b.p, &r, &where, &tval);
		rv_model_init(&m, &b.p);
		if (rv_model_run(&m, ~0ull) == RV_FAULT) { /* else the place is never reached */
			if (cause == VB_DPA_CAUSE_BREAKPOINT)
				tval = m.pc;
			bed_expect_trap(&b, cause, tval);
			bed_close(&b);
			trapped++;
		} else {
			rv_free(&b.p);
		}
		rv_model_free(&m);
	}
	assert_true(trapped > 100);
}

/* A loop for every small number of turns and every small budget: the edges of a budget in a block.
 */
static void test_loop_edges(void **state)
{
	struct bed b = { 0 };
	struct rv_model m;
	int top = rv_label(&b.p);

	(void)state;
	rv_emit(&b.p, OP_addi, 5, 0, 0, 9);
	rv_place(&b.p, top);
	rv_emit(&b.p, OP_addi, 6, 6, 0, 3);
	rv_emit(&b.p, OP_xor, 7, 7, 6, 0);
	rv_emit(&b.p, OP_addi, 5, 5, 0, -1);
	rv_branch(&b.p, OP_bne, 5, 0, top);
	rv_emit(&b.p, OP_addi, 8, 7, 0, 1);
	rv_emit(&b.p, OP_ebreak, 0, 0, 0, 0);
	bed_open(&b, NULL);
	for (uint64_t first = 0; first < 40; first++) {
		for (uint64_t then = 0; then < 40; then += 3) {
			enum rv_stop stop;

			rv_model_init(&m, &b.p);
			bed_reset(&b);
			bed_state(&b)->instret = 0;
			bed_run(&b, first);
			stop = rv_model_run(&m, first);
			if (stop == RV_LIMIT) {
				bed_run(&b, then);
				rv_model_run(&m, first + then);
			}
			bed_same(&b, &m, "loop");
			rv_model_free(&m);
		}
	}
	bed_close(&b);
}

/* Long runs are made of pieces whose ends nobody may see: the end of the run is exact all the same.
 */
static void test_several_pieces(void **state)
{
	static const unsigned ends[] = { 19999, 20000, 20001, 20575, 20577, 21024, 40000, 59424 };
	struct bed b = { 0 };
	int top = rv_label(&b.p);

	(void)state;
	rv_place(&b.p, top);
	rv_emit(&b.p, OP_addi, 6, 6, 0, 3);
	rv_emit(&b.p, OP_xor, 7, 7, 6, 0);
	rv_emit(&b.p, OP_slli, 8, 7, 0, 1);
	rv_jump(&b.p, 0, top);
	bed_open(&b, NULL);
	for (unsigned i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		struct rv_model m;

		rv_model_init(&m, &b.p);
		bed_reset(&b);
		bed_state(&b)->instret = 0;
		assert_int_equal(bed_run(&b, ends[i]), VB_DPA_WHY_BUDGET);
		assert_int_equal(bed_state(&b)->instret, ends[i]);
		rv_model_run(&m, ends[i]);
		bed_same(&b, &m, "pieces");
		rv_model_free(&m);
	}
	bed_close(&b);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loop_edges),   cmocka_unit_test(test_single_steps),
		cmocka_unit_test(test_short_pieces), cmocka_unit_test(test_long_pieces),
		cmocka_unit_test(test_random_traps), cmocka_unit_test(test_several_pieces),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
/*
 * Deterministic mode: a race inside the device comes out the same for the same seed, and
 * differently for others; the clocks follow the instruction count.
 */
#include "bed.h"

enum { THREADS = 5, TURNS = 400, LOG = 4096 };

/* The guest's memory: lost updates of a plain counter, and who did what in which order. */
struct trace {
	uint64_t count, next;
	uint64_t cycle[THREADS], time[THREADS], instret[THREADS];
	uint8_t log[LOG];
};

/* race(block, turns, id): unlocked increments, each noted in the log; clocks at the end. */
static void make_race(struct rv_prog *p)
{
	int top = rv_label(p);

	rv_place(p, top);
	rv_emit(p, OP_ld, 5, 10, 0, offsetof(struct trace, count));
	rv_emit(p, OP_addi, 5, 5, 0, 1);
	rv_emit(p, OP_sd, 0, 10, 5, offsetof(struct trace, count));
	rv_emit(p, OP_ld, 6, 10, 0, offsetof(struct trace, next));
	rv_emit(p, OP_add, 7, 6, 10, 0);
	rv_emit(p, OP_sb, 0, 7, 12, offsetof(struct trace, log));
	rv_emit(p, OP_addi, 6, 6, 0, 1);
	rv_emit(p, OP_sd, 0, 10, 6, offsetof(struct trace, next));
	rv_emit(p, OP_addi, 11, 11, 0, -1);
	rv_branch(p, OP_bne, 11, 0, top);
	rv_emit(p, OP_sh3add, 7, 12, 10, 0);
	for (unsigned k = 0; k < 3; k++) {
		rv_emit(p, OP_csrrs, 5, 0, 0, 0xc00 + k);
		rv_emit(p, OP_sd, 0, 7, 5, (i64)(offsetof(struct trace, cycle) + k * 8 * THREADS));
	}
	rv_emit(p, OP_jalr, 0, 1, 0, 0);
}

static void run_race(const struct vb_dpa_attr *attr, struct trace *out)
{
	struct vb_dpa_thread *t[THREADS];
	struct bed b = { 0 };
	uint64_t addr = 0;

	make_race(&b.p);
	bed_open(&b, attr);
	assert_true(vb_dpa_deterministic(b.dpa));
	assert_int_equal(vb_dpa_mem_map(b.process, &addr, sizeof(*out), VB_DPA_READ | VB_DPA_WRITE),
			 0);
	vb_dpa_hold(b.dpa, true);
	for (unsigned i = 0; i < THREADS; i++) {
		uint64_t args[3] = { addr, TURNS, i };

		assert_int_equal(vb_dpa_thread_create(b.process, NULL, &t[i]), 0);
		assert_int_equal(vb_dpa_thread_set_call(t[i], RV_TEXT, args, 3), 0);
		assert_int_equal(vb_dpa_thread_start(t[i]), 0);
	}
	vb_dpa_hold(b.dpa, false);
	for (unsigned i = 0; i < THREADS; i++) {
		enum vb_dpa_why why;

		assert_int_equal(vb_dpa_thread_wait(t[i], -1, &why), 0);
		assert_int_equal(why, VB_DPA_WHY_RETURN);
	}
	assert_int_equal(vb_dpa_mem_read(b.process, addr, out, sizeof(*out)), 0);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(vb_dpa_thread_destroy(t[i]), 0);
	bed_close(&b);
}

static void test_same_seed(void **state)
{
	static struct trace first, again;

	(void)state;
	for (uint64_t seed = 0; seed < 6; seed++) {
		struct vb_dpa_attr attr = { .deterministic = true, .seed = seed, .slice = 200 };

		run_race(&attr, &first);
		for (int round = 0; round < 3; round++) {
			run_race(&attr, &again);
			assert_memory_equal(&first, &again, sizeof(first));
		}
		assert_true(first.count >= TURNS && first.count <= THREADS * TURNS);
	}
}

static void test_other_seeds(void **state)
{
	static struct trace trace[8];
	unsigned different = 0, racy = 0;

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		struct vb_dpa_attr attr = { .deterministic = true, .seed = 100 + i, .slice = 200 };

		run_race(&attr, &trace[i]);
		racy += trace[i].count < THREADS * TURNS;
		for (unsigned k = 0; k < i; k++)
			different += memcmp(trace[k].log, trace[i].log, LOG) != 0;
	}
	/* All pairs may well differ; at least most must, or the seed does nothing. */
	assert_true(different >= 20);
	/* And the race must be there to be found. */
	assert_true(racy > 0);
}

static void test_environment(void **state)
{
	struct vb_dpa_attr attr = { .deterministic = true, .seed = 42 }, plain = { 0 };
	static struct trace a, b;

	(void)state;
	run_race(&attr, &a);
	setenv("VERBATIM_DPA_SEED", "42", 1);
	run_race(&plain, &b);
	assert_memory_equal(&a, &b, sizeof(a));
	run_race(NULL, &b);
	assert_memory_equal(&a, &b, sizeof(a));
	setenv("VERBATIM_DPA_SEED", "43", 1);
	run_race(&plain, &b);
	assert_memory_not_equal(&a, &b, sizeof(a));
	unsetenv("VERBATIM_DPA_SEED");
}

/* cycle and time are one tick an instruction here, so both can be told from instret. */
static void test_clocks(void **state)
{
	struct vb_dpa_attr attr = { .deterministic = true, .seed = 7 };
	static struct trace t;

	(void)state;
	run_race(&attr, &t);
	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(t.instret[i], 10 * TURNS + 5);
		assert_true(t.time[i] > t.cycle[i]);
		assert_true(t.time[i] - t.cycle[i] < 10);
	}
}

/* The interleaving does not depend on the tier. */
static void test_tiers_agree(void **state)
{
	struct vb_dpa_attr attr = { .deterministic = true, .seed = 11, .slice = 300 };
	enum vb_dpa_tier tier = bed_tier;
	static struct trace a, b;

	(void)state;
	run_race(&attr, &a);
	bed_tier = VB_DPA_TIER_INTERP;
	run_race(&attr, &b);
	bed_tier = tier;
	assert_memory_equal(&a, &b, sizeof(a));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_seed),   cmocka_unit_test(test_other_seeds),
		cmocka_unit_test(test_environment), cmocka_unit_test(test_clocks),
		cmocka_unit_test(test_tiers_agree),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

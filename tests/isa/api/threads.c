// SPDX-License-Identifier: MIT
/*
 * Guest threads on execution units: fairness, affinity, stopping and going on, blocking and waking,
 * counters.
 */
#include "bed.h"

#include "../../unit/sim_time.h"

#include <stdatomic.h>

#include <dirent.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

static const int64_t patience = 120 * 1000000000ll; /* only reached when something is broken */

/* Entry points of the one program all tests here use. */
static struct {
	int spin, count, block, yields;
} fn;

/*
 *   spin()    for ever
 *   count(n)  n turns of two instructions, returns n
 *   block(n)  n times ecall 1, which blocks; returns 7
 *   yields(n) n times ecall 2, which yields
 */
static void make_program(struct rv_prog *p)
{
	int top;

	rv_init(p);
	rv_data(p, NULL, 64, 64);
	fn.spin = rv_label(p);
	rv_place(p, fn.spin);
	rv_emit(p, OP_addi, 5, 5, 0, 1);
	rv_jump(p, 0, fn.spin);
	fn.count = rv_label(p);
	rv_place(p, fn.count);
	rv_emit(p, OP_add, 11, 0, 10, 0);
	top = rv_label(p);
	rv_place(p, top);
	rv_emit(p, OP_addi, 11, 11, 0, -1);
	rv_branch(p, OP_bne, 11, 0, top);
	rv_emit(p, OP_jalr, 0, 1, 0, 0);
	for (int k = 1; k <= 2; k++) {
		*(k == 1 ? &fn.block : &fn.yields) = top = rv_label(p);
		rv_place(p, top);
		rv_emit(p, OP_addi, 17, 0, 0, k);
		rv_emit(p, OP_ecall, 0, 0, 0, 0);
		rv_emit(p, OP_addi, 10, 10, 0, -1);
		rv_branch(p, OP_bne, 10, 0, top);
		rv_emit(p, OP_addi, 10, 0, 0, 7);
		rv_emit(p, OP_jalr, 0, 1, 0, 0);
	}
}

static enum vb_dpa_action on_ecall(struct vb_dpa_thread *thread, struct vb_dpa_state *s, void *arg)
{
	(void)thread, (void)arg;
	return s->x[17] == 1 ? VB_DPA_BLOCK : s->x[17] == 2 ? VB_DPA_YIELD : VB_DPA_TRAP;
}

static const struct vb_dpa_ops ops = { .ecall = on_ecall };

struct place {
	struct vb_dpa *dpa;
	struct vb_dpa_process *process;
	struct rv_prog p;
};

static void open_place(struct place *l, const struct vb_dpa_attr *attr)
{
	struct vb_dpa_process_attr pa = { .tier = bed_tier, .ops = &ops };
	uint8_t *image;
	size_t size;

	make_program(&l->p);
	rv_layout(&l->p);
	size = rv_elf_image(&l->p, &image);
	assert_int_equal(vb_dpa_create(attr, &l->dpa), 0);
	assert_int_equal(vb_dpa_process_create(l->dpa, image, size, &pa, &l->process, NULL), 0);
	assert_int_equal(vb_dpa_process_tier(l->process), bed_tier);
	free(image);
}

static void close_place(struct place *l)
{
	assert_int_equal(vb_dpa_process_destroy(l->process), 0);
	assert_int_equal(vb_dpa_destroy(l->dpa), 0);
	rv_free(&l->p);
}

static struct vb_dpa_thread *begin(struct place *l, const struct vb_dpa_thread_attr *attr,
				   int label, uint64_t arg)
{
	struct vb_dpa_thread *t;

	assert_int_equal(vb_dpa_thread_create(l->process, attr, &t), 0);
	assert_int_equal(vb_dpa_thread_set_call(t, rv_address(&l->p, label), &arg, 1), 0);
	return t;
}

static uint64_t instructions(struct vb_dpa_thread *t)
{
	struct vb_dpa_thread_counters c;

	vb_dpa_thread_counters(t, &c);
	return c.instructions;
}

/* One thread among a hundred that spin for ever; on one EU, and on any. */
static void fairness(enum vb_dpa_affinity affinity)
{
	struct vb_dpa_attr attr = { .eus = 4, .host_threads = 2, .slice = 10000 };
	struct vb_dpa_thread_attr ta = { .affinity = affinity, .eu = 2 };
	struct vb_dpa_thread *spinner[100], *worker;
	struct place l;
	enum vb_dpa_why why;

	open_place(&l, &attr);
	for (int i = 0; i < 100; i++) {
		spinner[i] = begin(&l, &ta, fn.spin, 0);
		assert_int_equal(vb_dpa_thread_start(spinner[i]), 0);
	}
	worker = begin(&l, &ta, fn.count, 100000);
	assert_int_equal(vb_dpa_thread_start(worker), 0);
	assert_int_equal(vb_dpa_thread_wait(worker, patience, &why), 0);
	assert_int_equal(why, VB_DPA_WHY_RETURN);
	assert_int_equal(vb_dpa_thread_state(worker)->x[10], 100000);
	assert_int_equal(instructions(worker), 200000 + 2);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(vb_dpa_thread_stop(spinner[i]), 0);
		/* The worker took twenty slices; nobody who shared its EU was left out meanwhile.
		 */
		if (affinity == VB_DPA_AFFINITY_STRICT)
			assert_true(instructions(spinner[i]) >= 10 * 10000);
		assert_int_equal(vb_dpa_thread_destroy(spinner[i]), 0);
	}
	assert_int_equal(vb_dpa_thread_destroy(worker), 0);
	close_place(&l);
}

static void test_fairness_one_eu(void **state)
{
	(void)state;
	fairness(VB_DPA_AFFINITY_STRICT);
}

static void test_fairness_any_eu(void **state)
{
	(void)state;
	fairness(VB_DPA_AFFINITY_NONE);
}

/* Hundreds of threads that each come to their own end, with exact counts. */
static void test_many(void **state)
{
	struct vb_dpa_attr attr = { .host_threads = 3, .slice = 1000 };
	struct vb_dpa_thread *t[300];
	struct place l;
	enum vb_dpa_why why;

	(void)state;
	open_place(&l, &attr);
	assert_int_equal(vb_dpa_eu_count(l.dpa), 256);
	for (unsigned i = 0; i < 300; i++) {
		t[i] = begin(&l, NULL, i % 3 ? fn.count : fn.yields, i + 1);
		assert_int_equal(vb_dpa_thread_start(t[i]), 0);
	}
	for (unsigned i = 0; i < 300; i++) {
		assert_int_equal(vb_dpa_thread_wait(t[i], patience, &why), 0);
		assert_int_equal(why, VB_DPA_WHY_RETURN);
		assert_int_equal(vb_dpa_thread_state(t[i])->x[10], i % 3 ? i + 1 : 7);
		assert_int_equal(instructions(t[i]), i % 3 ? 2 * (i + 1) + 2 : 4 * (i + 1) + 2);
		assert_int_equal(vb_dpa_thread_destroy(t[i]), 0);
	}
	close_place(&l);
}

static uint64_t eu_instructions(struct vb_dpa *dpa, unsigned eu)
{
	struct vb_dpa_eu_counters c;

	assert_int_equal(vb_dpa_eu_counters(dpa, eu, &c), 0);
	return c.instructions;
}

static void test_affinity(void **state)
{
	static const unsigned group[] = { 1, 5 };
	struct vb_dpa_attr attr = { .eus = 8, .host_threads = 2, .slice = 1000 };
	struct vb_dpa_thread_attr strict = { .affinity = VB_DPA_AFFINITY_STRICT, .eu = 6 };
	struct vb_dpa_thread_attr some = { .affinity = VB_DPA_AFFINITY_GROUP,
					   .group = group,
					   .group_size = 2 };
	struct vb_dpa_thread_attr bad = { .affinity = VB_DPA_AFFINITY_STRICT, .eu = 8 };
	struct vb_dpa_thread *t[8];
	struct place l;
	uint64_t total = 0;

	(void)state;
	open_place(&l, &attr);
	assert_int_equal(vb_dpa_thread_create(l.process, &bad, &t[0]), -EINVAL);
	for (int i = 0; i < 8; i++) {
		t[i] = begin(&l, i < 4 ? &strict : &some, fn.count, 5000);
		assert_int_equal(vb_dpa_thread_start(t[i]), 0);
	}
	for (int i = 0; i < 8; i++) {
		assert_int_equal(vb_dpa_thread_wait(t[i], patience, NULL), 0);
		assert_int_equal(vb_dpa_thread_destroy(t[i]), 0);
	}
	assert_int_equal(eu_instructions(l.dpa, 6), 4 * 10002);
	assert_int_equal(eu_instructions(l.dpa, 1) + eu_instructions(l.dpa, 5), 4 * 10002);
	for (unsigned eu = 0; eu < 8; eu++)
		total += eu_instructions(l.dpa, eu);
	assert_int_equal(total, 8 * 10002);
	close_place(&l);
}

/* Stopped again and again in the middle of a long count, which still comes out right to the instruction. */
static void test_stop_and_go_on(void **state)
{
	struct vb_dpa_attr attr = { .eus = 2, .host_threads = 1 };
	struct vb_dpa_thread *t;
	struct place l;
	enum vb_dpa_why why = VB_DPA_WHY_STOP;
	unsigned stops = 0;

	(void)state;
	open_place(&l, &attr);
	t = begin(&l, NULL, fn.count, 3000000);
	while (why == VB_DPA_WHY_STOP && stops < 1000000) {
		vb_dpa_hold(l.dpa, !stops); /* it cannot reach its end between the two starts */
		assert_int_equal(vb_dpa_thread_start(t), 0);
		if (!stops)
			assert_int_equal(vb_dpa_thread_start(t), -EBUSY);
		vb_dpa_hold(l.dpa, false);
		vb_dpa_thread_preempt(t);
		if (stops++ % 2)
			sched_yield();
		assert_int_equal(vb_dpa_thread_stop(t), 0);
		assert_int_equal(vb_dpa_thread_wait(t, 0, &why), 0);
		if (stops == 200) {
			assert_int_equal(vb_dpa_thread_start(t), 0);
			assert_int_equal(vb_dpa_thread_wait(t, patience, &why), 0);
			break;
		}
	}
	assert_int_equal(why, VB_DPA_WHY_RETURN);
	assert_int_equal(vb_dpa_thread_state(t)->x[10], 3000000);
	assert_int_equal(instructions(t), 6000002);
	assert_int_equal(vb_dpa_thread_destroy(t), 0);
	close_place(&l);
}

static void count_poll(void *arg)
{
	atomic_fetch_add((atomic_uint *)arg, 1);
}

/* While guest code runs somebody looks for what it may be waiting for, and the code notices nothing. */
static void test_poll(void **state)
{
	atomic_uint polls = 0;
	struct vb_dpa_attr attr = {
		.eus = 2, .host_threads = 1, .poll = count_poll, .poll_arg = &polls
	};
	struct vb_dpa_thread *t;
	struct place l;
	uint64_t n = 1000000, result;

	(void)state;
	open_place(&l, &attr);
	t = begin(&l, NULL, fn.count, n);
	assert_int_equal(vb_dpa_thread_start(t), 0);
	assert_int_equal(vb_dpa_thread_wait(t, patience, NULL), 0);
	assert_int_equal(vb_dpa_thread_state(t)->x[10], n);
	assert_int_equal(instructions(t), 2 * n + 2);
	assert_true(atomic_load(&polls) >= 2 * n / 100000);
	atomic_store(&polls, 0);
	assert_int_equal(vb_dpa_call(t, rv_address(&l.p, fn.count), &n, 1, &result), 0);
	assert_int_equal(result, n);
	assert_true(atomic_load(&polls) >= 2 * n / 100000);
	assert_int_equal(vb_dpa_thread_destroy(t), 0);
	close_place(&l);
}

/* A wake is never lost, whether it comes before or after the block it ends. */
static void test_block_and_wake(void **state)
{
	struct vb_dpa_attr attr = { .eus = 2, .host_threads = 2 };
	struct vb_dpa_thread *t;
	struct place l;
	enum vb_dpa_why why;

	(void)state;
	open_place(&l, &attr);
	t = begin(&l, NULL, fn.block, 1);
	vb_dpa_thread_wake(t); /* before it even runs */
	assert_int_equal(vb_dpa_thread_start(t), 0);
	assert_int_equal(vb_dpa_thread_wait(t, patience, &why), 0);
	assert_int_equal(why, VB_DPA_WHY_RETURN);
	assert_int_equal(vb_dpa_thread_destroy(t), 0);

	t = begin(&l, NULL, fn.block, 500);
	assert_int_equal(vb_dpa_thread_start(t), 0);
	assert_int_equal(vb_dpa_thread_wait(t, 1000000, &why), -ETIMEDOUT);
	while (vb_dpa_thread_wait(t, 0, &why) == -ETIMEDOUT)
		vb_dpa_thread_wake(t); /* wakes may fall together, so more than 500 may be needed */
	assert_int_equal(why, VB_DPA_WHY_RETURN);
	assert_int_equal(vb_dpa_thread_state(t)->x[10], 7);
	assert_int_equal(instructions(t), 500 * 4 + 2);
	assert_int_equal(vb_dpa_thread_destroy(t), 0);
	close_place(&l);
}

/* The wait ends when the card's time says so: after an hour of it, which passes once worker and caller are asleep. */
static void test_wait_in_simulated_time(void **state)
{
	static struct sim_time sim;
	const uint64_t begun = 1000000000, hour = 3600ull * 1000000000;
	struct vb_dpa_attr attr = { .eus = 1, .host_threads = 1 };
	struct vb_dpa_thread *t;
	struct place l;

	(void)state;
	sim_begin(&sim, begun);
	sim_run(&sim, 2);
	open_place(&l, &attr);
	t = begin(&l, NULL, fn.block, 1);
	assert_int_equal(vb_dpa_thread_start(t), 0);
	assert_int_equal(vb_dpa_thread_wait(t, (int64_t)hour, NULL), -ETIMEDOUT);
	assert_int_equal(vb_now_ns(), begun + hour);
	vb_dpa_thread_wake(t);
	assert_int_equal(vb_dpa_thread_wait(t, -1, NULL), 0);
	assert_int_equal(vb_dpa_thread_destroy(t), 0);
	close_place(&l);
	sim_end(&sim);
}

static void test_refusals(void **state)
{
	struct vb_dpa_thread *t;
	struct place l;
	uint64_t args[9] = { 0 };

	(void)state;
	open_place(&l, NULL);
	t = begin(&l, NULL, fn.spin, 0);
	assert_int_equal(vb_dpa_process_destroy(l.process), -EBUSY);
	assert_int_equal(vb_dpa_destroy(l.dpa), -EBUSY);
	assert_int_equal(vb_dpa_thread_set_call(t, RV_TEXT, args, 9), -EINVAL);
	assert_int_equal(vb_dpa_thread_start(t), 0);
	assert_int_equal(vb_dpa_thread_destroy(t), -EBUSY);
	assert_int_equal(vb_dpa_thread_set_call(t, RV_TEXT, args, 1), -EBUSY);
	assert_int_equal(vb_dpa_thread_wait(t, 1000, NULL), -ETIMEDOUT);
	assert_int_equal(vb_dpa_thread_stop(t), 0);
	assert_int_equal(vb_dpa_thread_stop(t), 0);
	assert_int_equal(vb_dpa_thread_destroy(t), 0);
	close_place(&l);
}

/* State letter of every thread of this process but the calling one: all must come to sleep. */
static bool others_sleep(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	bool sleep = true;

	assert_non_null(d);
	while ((e = readdir(d))) {
		char path[300], line[300], *at;
		FILE *f;

		if (e->d_name[0] == '.' || atoi(e->d_name) == gettid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/stat", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		at = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
		if (at && at[2] != 'S')
			sleep = false;
		fclose(f);
	}
	closedir(d);
	return sleep;
}

static void test_idle_sleeps(void **state)
{
	struct timespec pause = { 0, 20000000 };
	struct vb_dpa_thread *t;
	struct place l;
	int tries = 0;

	(void)state;
	open_place(&l, NULL);
	t = begin(&l, NULL, fn.block, 1);
	assert_int_equal(vb_dpa_thread_start(t), 0);
	do {
		nanosleep(&pause, NULL);
		assert_true(++tries < 500);
	} while (!others_sleep());
	vb_dpa_thread_wake(t);
	assert_int_equal(vb_dpa_thread_wait(t, patience, NULL), 0);
	assert_int_equal(vb_dpa_thread_destroy(t), 0);
	close_place(&l);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fairness_one_eu),
		cmocka_unit_test(test_fairness_any_eu),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_affinity),
		cmocka_unit_test(test_stop_and_go_on),
		cmocka_unit_test(test_poll),
		cmocka_unit_test(test_block_and_wake),
		cmocka_unit_test(test_wait_in_simulated_time),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_idle_sleeps),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

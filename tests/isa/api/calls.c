// SPDX-License-Identifier: MIT
/*
 * Host threads that lend themselves to a call, and what happens to it meanwhile: blocking, waking,
 * stopping, yielding, being called back, all from other host threads.
 */
#include "bed.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static int fn_spin, fn_block, fn_add;

static struct {
	atomic_uint blocks, dones, traps;
	atomic_int last_why;
	atomic_bool wrong, stopped;
} seen;

/* Where the next trap leads to, and how far; pc 0: nowhere. */
static struct {
	uint64_t pc, max;
	struct vb_dpa_state after; /* the state of the last trap that led nowhere */
} divert;

/* spin(): for ever; block(n): n ecalls, then 7; add(a, b) */
static void make_program(struct rv_prog *p)
{
	fn_spin = rv_label(p);
	rv_place(p, fn_spin);
	rv_emit(p, OP_addi, 5, 5, 0, 1);
	rv_jump(p, 0, fn_spin);
	fn_block = rv_label(p);
	rv_place(p, fn_block);
	rv_emit(p, OP_ecall, 0, 0, 0, 0);
	rv_emit(p, OP_addi, 10, 10, 0, -1);
	rv_branch(p, OP_bne, 10, 0, fn_block);
	rv_emit(p, OP_addi, 10, 0, 0, 7);
	rv_emit(p, OP_jalr, 0, 1, 0, 0);
	fn_add = rv_label(p);
	rv_place(p, fn_add);
	rv_emit(p, OP_add, 10, 10, 11, 0);
	rv_emit(p, OP_jalr, 0, 1, 0, 0);
}

static enum vb_dpa_action on_ecall(struct vb_dpa_thread *thread, struct vb_dpa_state *s, void *arg)
{
	(void)thread, (void)s, (void)arg;
	atomic_fetch_add(&seen.blocks, 1);
	return VB_DPA_BLOCK;
}

static void on_trap(struct vb_dpa_thread *thread, const struct vb_dpa_state *s, void *arg)
{
	uint64_t args[2] = { 30, s->cause }, pc = divert.pc;

	(void)arg;
	atomic_fetch_add(&seen.traps, 1);
	divert.pc = 0;
	if (!pc)
		divert.after = *s;
	else if (vb_dpa_thread_divert(thread, pc, args, 2, divert.max))
		atomic_store(&seen.wrong, true);
}

static void on_done(struct vb_dpa_thread *thread, enum vb_dpa_why why, void *arg)
{
	(void)thread;
	if (strcmp(arg, "argument")) /* asserting belongs to the main thread */
		atomic_store(&seen.wrong, true);
	atomic_store(&seen.last_why, (int)why);
	atomic_fetch_add(&seen.dones, 1);
}

static const struct vb_dpa_ops ops = { .ecall = on_ecall, .trap = on_trap, .done = on_done };

struct place {
	struct vb_dpa *dpa;
	struct vb_dpa_process *process;
	struct vb_dpa_thread *thread;
	struct rv_prog p;
};

static void open_place(struct place *l, const struct vb_dpa_attr *attr)
{
	struct vb_dpa_process_attr pa = {
		.tier = bed_tier, .ops = &ops, .ops_arg = (char *)"argument", .name = "calls"
	};
	struct vb_dpa_thread_attr ta = { .user = l, .name = "one" };
	uint8_t *image;
	size_t size;

	memset(&seen, 0, sizeof(seen));
	memset(l, 0, sizeof(*l));
	make_program(&l->p);
	rv_layout(&l->p);
	size = rv_elf_image(&l->p, &image);
	assert_int_equal(vb_dpa_create(attr, &l->dpa), 0);
	assert_int_equal(vb_dpa_process_create(l->dpa, image, size, &pa, &l->process, NULL), 0);
	assert_int_equal(vb_dpa_thread_create(l->process, &ta, &l->thread), 0);
	free(image);
	assert_string_equal(vb_dpa_process_name(l->process), "calls");
	assert_string_equal(vb_dpa_process_ops_arg(l->process), "argument");
	assert_ptr_equal(vb_dpa_thread_user(l->thread), l);
	assert_string_equal(vb_dpa_thread_name(l->thread), "one");
}

static void close_place(struct place *l)
{
	assert_int_equal(vb_dpa_thread_destroy(l->thread), 0);
	assert_int_equal(vb_dpa_process_destroy(l->process), 0);
	assert_int_equal(vb_dpa_destroy(l->dpa), 0);
	rv_free(&l->p);
}

struct helper {
	struct place *l;
	pthread_t self;
	atomic_bool stop;
	bool stops; /* stop the thread instead of waking it */
};

/* Wakes the thread, or stops it, each time it has blocked or until told to end. */
static void *help(void *arg)
{
	struct helper *h = arg;
	unsigned done = 0;

	while (!atomic_load(&h->stop)) {
		if (atomic_load(&seen.blocks) == done) {
			sched_yield();
			continue;
		}
		done = atomic_load(&seen.blocks);
		if (h->stops)
			vb_dpa_thread_stop(h->l->thread);
		else
			vb_dpa_thread_wake(h->l->thread);
	}
	return NULL;
}

static void start_helper(struct helper *h, struct place *l, bool stops)
{
	h->l = l;
	h->stops = stops;
	atomic_store(&h->stop, false);
	assert_int_equal(pthread_create(&h->self, NULL, help, h), 0);
}

static void end_helper(struct helper *h)
{
	atomic_store(&h->stop, true);
	pthread_join(h->self, NULL);
}

/* A call that blocks waits in its own host thread until somebody wakes it. */
static void test_call_blocks(void **state)
{
	uint64_t n = 300, result;
	struct helper h;
	struct place l;

	(void)state;
	open_place(&l, NULL);
	start_helper(&h, &l, false);
	assert_int_equal(vb_dpa_call(l.thread, rv_address(&l.p, fn_block), &n, 1, &result), 0);
	assert_int_equal(result, 7);
	assert_int_equal(atomic_load(&seen.blocks), 300);
	end_helper(&h);
	close_place(&l);
}

/* vb_dpa_thread_run gives a blocked thread back instead. */
static void test_run_blocks(void **state)
{
	enum vb_dpa_why why;
	struct place l;
	uint64_t n = 2;

	(void)state;
	open_place(&l, NULL);
	assert_int_equal(vb_dpa_thread_set_call(l.thread, rv_address(&l.p, fn_block), &n, 1), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(vb_dpa_thread_run(l.thread, UINT64_MAX, &why), 0);
		assert_int_equal(why, VB_DPA_WHY_BLOCK);
		vb_dpa_thread_wake(l.thread);
	}
	assert_int_equal(vb_dpa_thread_run(l.thread, UINT64_MAX, &why), 0);
	assert_int_equal(why, VB_DPA_WHY_RETURN);
	close_place(&l);
}

/* A blocked call that is stopped instead of woken. */
static void test_stop_blocked_call(void **state)
{
	uint64_t n = 5, result = 1234;
	struct helper h;
	struct place l;

	(void)state;
	open_place(&l, NULL);
	start_helper(&h, &l, true);
	assert_int_equal(vb_dpa_call(l.thread, rv_address(&l.p, fn_block), &n, 1, &result), -EINTR);
	assert_int_equal(result, 1234); /* outputs only on success */
	end_helper(&h);
	close_place(&l);
}

static void *stop_soon(void *arg)
{
	struct place *l = arg;

	sched_yield();
	if (vb_dpa_thread_stop(l->thread))
		atomic_store(&seen.wrong, true);
	atomic_store(&seen.stopped, true);
	return NULL;
}

/* A call that spins is stopped from outside, between two instructions, and the same thread is called again. */
static void test_stop_spinning_call(void **state)
{
	uint64_t args[2] = { 30, 12 }, result;
	struct place l;
	pthread_t other;

	(void)state;
	open_place(&l, NULL);
	for (int i = 0; i < 50; i++) {
		enum vb_dpa_why why;

		atomic_store(&seen.stopped, false);
		assert_int_equal(pthread_create(&other, NULL, stop_soon, &l), 0);
		assert_int_equal(
			vb_dpa_thread_set_call(l.thread, rv_address(&l.p, fn_spin), NULL, 0), 0);
		do { /* the stop may also come between two runs, which it then does not touch */
			assert_int_equal(vb_dpa_thread_run(l.thread, 1000000, &why), 0);
			assert_true(why == VB_DPA_WHY_STOP || why == VB_DPA_WHY_BUDGET);
		} while (why == VB_DPA_WHY_BUDGET && !atomic_load(&seen.stopped));
		pthread_join(other, NULL);
		assert_false(atomic_load(&seen.wrong));
		assert_int_equal(vb_dpa_call(l.thread, rv_address(&l.p, fn_add), args, 2, &result),
				 0);
		assert_int_equal(result, 42);
	}
	close_place(&l);
}

/* Stopping one that is queued behind another, and one that is blocked on its EU. */
static void test_stop_waiting(void **state)
{
	struct vb_dpa_attr attr = { .eus = 1, .host_threads = 1 };
	struct vb_dpa_thread *other;
	struct place l;
	enum vb_dpa_why why;
	uint64_t n = 3;

	(void)state;
	open_place(&l, &attr);
	assert_int_equal(vb_dpa_thread_create(l.process, NULL, &other), 0);
	vb_dpa_hold(l.dpa, true); /* nothing leaves the queue */
	assert_int_equal(vb_dpa_thread_set_call(other, rv_address(&l.p, fn_spin), NULL, 0), 0);
	assert_int_equal(vb_dpa_thread_start(other), 0);
	assert_int_equal(vb_dpa_thread_stop(other), 0);
	assert_int_equal(vb_dpa_thread_wait(other, 0, &why), 0);
	assert_int_equal(why, VB_DPA_WHY_STOP);
	vb_dpa_hold(l.dpa, false);
	assert_int_equal(vb_dpa_thread_set_call(other, rv_address(&l.p, fn_block), &n, 1), 0);
	assert_int_equal(vb_dpa_thread_start(other), 0);
	while (!atomic_load(&seen.blocks))
		sched_yield();
	assert_int_equal(vb_dpa_thread_stop(other), 0);
	assert_int_equal(vb_dpa_thread_wait(other, 0, &why), 0);
	assert_int_equal(why, VB_DPA_WHY_STOP);
	assert_int_equal(vb_dpa_thread_destroy(other), 0);
	close_place(&l);
}

/* done comes once per start, after trap; for a return and a trap. */
static void test_callbacks(void **state)
{
	enum vb_dpa_why why;
	uint64_t args[2] = { 1, 2 };
	struct place l;

	(void)state;
	open_place(&l, NULL);
	assert_int_equal(vb_dpa_thread_set_call(l.thread, rv_address(&l.p, fn_add), args, 2), 0);
	assert_int_equal(vb_dpa_thread_start(l.thread), 0);
	assert_int_equal(vb_dpa_thread_wait(l.thread, -1, &why), 0);
	while (atomic_load(&seen.dones) < 1)
		sched_yield();
	assert_int_equal(atomic_load(&seen.last_why), VB_DPA_WHY_RETURN);
	assert_int_equal(atomic_load(&seen.traps), 0);
	assert_int_equal(vb_dpa_thread_set_call(l.thread, 0, NULL, 0), 0);
	assert_int_equal(vb_dpa_thread_start(l.thread), 0);
	assert_int_equal(vb_dpa_thread_wait(l.thread, -1, &why), 0);
	assert_int_equal(why, VB_DPA_WHY_TRAP);
	while (atomic_load(&seen.dones) < 2)
		sched_yield();
	assert_int_equal(atomic_load(&seen.last_why), VB_DPA_WHY_TRAP);
	assert_int_equal(atomic_load(&seen.traps), 1);
	assert_false(atomic_load(&seen.wrong));
	close_place(&l);
}

/* A trap leads to another function, as one run: one done, at its end. */
static void test_divert(void **state)
{
	uint64_t args[2] = { 1, 2 }, result, start;
	enum vb_dpa_why why;
	struct place l;

	(void)state;
	open_place(&l, NULL);
	divert.max = UINT64_MAX;
	divert.pc = rv_address(&l.p, fn_add);
	assert_int_equal(vb_dpa_call(l.thread, 0, args, 2, &result), 0);
	assert_int_equal(result, 30 + VB_DPA_CAUSE_FETCH);
	divert.pc = rv_address(&l.p, fn_add);
	assert_int_equal(vb_dpa_thread_set_call(l.thread, 0, NULL, 0), 0);
	assert_int_equal(vb_dpa_thread_start(l.thread), 0);
	assert_int_equal(vb_dpa_thread_wait(l.thread, -1, &why), 0);
	assert_int_equal(why, VB_DPA_WHY_RETURN);
	assert_int_equal(vb_dpa_thread_state(l.thread)->x[10], 30 + VB_DPA_CAUSE_FETCH);
	assert_int_equal(atomic_load(&seen.dones), 1);
	assert_int_equal(atomic_load(&seen.traps), 2);

	/* The bound is exact, of a started thread and of a lent one; a new call has none. */
	divert.max = 123456;
	for (unsigned int i = 0; i < 2; i++) {
		divert.pc = rv_address(&l.p, fn_spin);
		start = vb_dpa_thread_state(l.thread)->instret;
		assert_int_equal(vb_dpa_thread_set_call(l.thread, 0, NULL, 0), 0);
		if (i) {
			assert_int_equal(vb_dpa_thread_run(l.thread, UINT64_MAX, &why), 0);
		} else {
			assert_int_equal(vb_dpa_thread_start(l.thread), 0);
			assert_int_equal(vb_dpa_thread_wait(l.thread, -1, &why), 0);
		}
		assert_int_equal(why, VB_DPA_WHY_TRAP);
		assert_int_equal(divert.after.cause, VB_DPA_CAUSE_WATCHDOG);
		assert_int_equal(divert.after.instret, start + divert.max);
	}
	assert_int_equal(vb_dpa_thread_set_call(l.thread, rv_address(&l.p, fn_spin), NULL, 0), 0);
	assert_int_equal(vb_dpa_thread_run(l.thread, 200000, &why), 0);
	assert_int_equal(why, VB_DPA_WHY_BUDGET);
	assert_false(atomic_load(&seen.wrong));
	close_place(&l);
}

/* In deterministic mode a call takes its turn among the threads that run. */
static void test_deterministic_call(void **state)
{
	struct vb_dpa_attr attr = { .deterministic = true, .seed = 3, .slice = 500 };
	uint64_t args[2] = { 2, 3 }, result;
	struct vb_dpa_thread *spinner;
	struct place l;

	(void)state;
	open_place(&l, &attr);
	assert_int_equal(vb_dpa_thread_create(l.process, NULL, &spinner), 0);
	assert_int_equal(vb_dpa_thread_set_call(spinner, rv_address(&l.p, fn_spin), NULL, 0), 0);
	assert_int_equal(vb_dpa_thread_start(spinner), 0);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(vb_dpa_call(l.thread, rv_address(&l.p, fn_add), args, 2, &result),
				 0);
		assert_int_equal(result, 5);
	}
	assert_int_equal(vb_dpa_thread_stop(spinner), 0);
	assert_int_equal(vb_dpa_thread_destroy(spinner), 0);
	close_place(&l);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_call_blocks),
		cmocka_unit_test(test_run_blocks),
		cmocka_unit_test(test_stop_blocked_call),
		cmocka_unit_test(test_stop_spinning_call),
		cmocka_unit_test(test_stop_waiting),
		cmocka_unit_test(test_callbacks),
		cmocka_unit_test(test_divert),
		cmocka_unit_test(test_deterministic_call),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

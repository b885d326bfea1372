// SPDX-License-Identifier: MIT
/*
 * A debugger that does anything at any time, against a program that starts, calls, wakes, stops and
 * destroys threads: every result is right, every trap is delivered once, and nothing hangs.
 */
#include "debug.h"

#include <poll.h>
#include <sched.h>

#define HOSTS 3

struct host {
	struct place *l;
	struct rng rng;
	atomic_bool *quit;
	unsigned int wrong, traps, turns;
	pthread_t thread;
};

static void check(struct host *h, bool right)
{
	h->wrong += !right;
}

static bool run_started(struct host *h, struct vb_dpa_thread *t, int label, uint64_t n,
			uint64_t result)
{
	enum vb_dpa_why why;

	return !vb_dpa_thread_set_call(t, at(h->l, label), &n, 1) && !vb_dpa_thread_start(t) &&
	       !vb_dpa_thread_wait(t, -1, &why) && why == VB_DPA_WHY_RETURN &&
	       vb_dpa_thread_state(t)->x[10] == result;
}

static void block_and_wake(struct host *h, struct vb_dpa_thread *t)
{
	uint64_t n = 2;
	enum vb_dpa_why why;

	check(h, !vb_dpa_thread_set_call(t, at(h->l, fn.block), &n, 1) && !vb_dpa_thread_start(t));
	do
		vb_dpa_thread_wake(t);
	while (vb_dpa_thread_wait(t, 100000, &why));
	check(h, why == VB_DPA_WHY_RETURN && vb_dpa_thread_state(t)->x[10] == 7);
}

static void turn(struct host *h, struct vb_dpa_thread *t)
{
	uint64_t n = 1 + rng_below(&h->rng, 300), result;

	switch (rng_below(&h->rng, 7)) {
	case 0:
		check(h, !vb_dpa_call(t, at(h->l, fn.count), &n, 1, &result) && result == n);
		break;
	case 1:
		check(h, !vb_dpa_call(t, at(h->l, fn.yields), &n, 1, &result) && result == 7);
		break;
	case 2:
		check(h, run_started(h, t, fn.pass, n, n));
		break;
	case 3:
		check(h, run_started(h, t, fn.stack, n, n));
		break;
	case 4:
		check(h, vb_dpa_call(t, at(h->l, fn.trap), &n, 1, NULL) == -EFAULT);
		h->traps++;
		break;
	case 5:
		block_and_wake(h, t);
		break;
	default:
		check(h, !vb_dpa_thread_set_call(t, at(h->l, fn.spin), NULL, 0) &&
				 !vb_dpa_thread_start(t));
		for (uint64_t i = 0; i < n % 8; i++)
			sched_yield();
		check(h, !vb_dpa_thread_stop(t));
	}
	h->turns++;
}

static void *host_main(void *arg)
{
	struct host *h = arg;
	struct vb_dpa_thread *t = NULL;

	while (!atomic_load(h->quit)) {
		if (!t && vb_dpa_thread_create(h->l->process, NULL, &t)) {
			check(h, false);
			return NULL;
		}
		turn(h, t);
		if (rng_chance(&h->rng, 10)) {
			check(h, !vb_dpa_thread_destroy(t));
			t = NULL;
		}
	}
	if (t)
		check(h, !vb_dpa_thread_destroy(t));
	return NULL;
}

/* ---- the debugger ---- */

static void change_points(struct place *l, struct vb_dpa_debug *d, struct rng *rng)
{
	const int places[] = { fn.pass_at, fn.count_top, fn.trap, fn.block, fn.spin };
	uint64_t addr = at(l, places[rng_below(rng, 5)]);
	struct vb_dpa_stack stack = { 0 };
	int err;

	assert_int_equal(vb_dpa_debug_break(d, addr, rng_chance(rng, 40)), 0);
	stack.addr = 64 * (uint64_t)rng_below(rng, 100000);
	err = vb_dpa_debug_watch(d, stack.addr, 4096, 1 + rng_below(rng, 3), rng_chance(rng, 50));
	assert_true(!err || err == -ENOENT);
}

static void resume_any(struct vb_dpa_debug *d, struct rng *rng)
{
	struct vb_dpa_resume how[HOSTS + 2];
	uint32_t numbers[HOSTS + 1];
	unsigned int n = vb_dpa_debug_threads(d, numbers, HOSTS + 1), k = 0;

	for (unsigned int i = 0; i < n && i <= HOSTS; i++) {
		struct vb_dpa_state s;

		if (!rng_chance(rng, 60))
			continue;
		/* It may be gone by now. */
		if (vb_dpa_debug_state(d, numbers[i], &s))
			continue;
		how[k++] = (struct vb_dpa_resume){ numbers[i], (enum vb_dpa_go)rng_below(rng, 3),
						   s.pc, s.pc + 4 * rng_below(rng, 3) };
	}
	how[k++] =
		(struct vb_dpa_resume){ .go = rng_chance(rng, 90) ? VB_DPA_GO_ON : VB_DPA_GO_STAY };
	assert_int_equal(vb_dpa_debug_resume(d, how, k), 0);
}

static void debug_once(struct place *l, struct rng *rng)
{
	struct vb_dpa_debug *d = attach(l);
	struct pollfd fd = { .fd = vb_dpa_debug_fd(d), .events = POLLIN };

	for (unsigned int i = rng_below(rng, 40); i > 0; i--) {
		if (rng_chance(rng, 50))
			vb_dpa_debug_hold(d);
		if (!poll(&fd, 1, 1))
			hold(d);
		assert_true(vb_dpa_debug_stopped(d, NULL));
		if (rng_chance(rng, 20))
			change_points(l, d, rng);
		resume_any(d, rng);
	}
	if (rng_chance(rng, 30))
		vb_dpa_debug_hold(d);
	vb_dpa_debug_detach(d);
}

static void storm(const struct vb_dpa_attr *attr, unsigned int rounds)
{
	struct host h[HOSTS];
	atomic_bool quit = false;
	unsigned int traps = 0;
	struct rng rng = { 5 };
	struct place l;

	open_place(&l, attr);
	for (unsigned int i = 0; i < HOSTS; i++) {
		h[i] = (struct host){ .l = &l, .rng = { i + 1 }, .quit = &quit };
		assert_int_equal(pthread_create(&h[i].thread, NULL, host_main, &h[i]), 0);
	}
	for (unsigned int i = 0; i < rounds; i++)
		debug_once(&l, &rng);
	quit = true;
	for (unsigned int i = 0; i < HOSTS; i++) {
		pthread_join(h[i].thread, NULL);
		assert_int_equal(h[i].wrong, 0);
		assert_true(h[i].turns);
		traps += h[i].traps;
	}
	assert_int_equal(l.traps, traps);
	close_place(&l);
}

static void test_storm(void **state)
{
	const char *text = getenv("DEBUG_ROUNDS");
	unsigned int rounds = text ? (unsigned int)atoi(text) : 60;

	(void)state;
	storm(&(struct vb_dpa_attr){ .eus = 2, .host_threads = 2, .slice = 500 }, rounds);
	storm(&(struct vb_dpa_attr){ .deterministic = true }, rounds);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_storm),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

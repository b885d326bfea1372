// SPDX-License-Identifier: MIT
/*
 * Holding the threads of a process and letting them go on: under load, on EUs and on lent host
 * threads, beside other processes, while the host program starts, wakes, stops and destroys them.
 */
#include "debug.h"

#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

/* A thread that goes on gets to run only if the next stop does not come at once. */
static void let_run(void)
{
	usleep(300);
}

/* ---- under load ---- */

#define SPINNERS 12
#define CALLERS  3

struct load {
	struct place *l;
	atomic_bool quit;
	atomic_uint wrong;
	atomic_uint calls;
};

/* Calls, and starts and waits, without an end; every result must be right. */
static void *call_always(void *arg)
{
	struct load *load = arg;
	struct vb_dpa_thread *t;
	uint64_t n = 1, result;
	enum vb_dpa_why why;

	if (vb_dpa_thread_create(load->l->process, NULL, &t)) {
		load->wrong++;
		return NULL;
	}
	while (!load->quit) {
		n = n * 7 % 5000 + 1;
		if (vb_dpa_call(t, at(load->l, fn.count), &n, 1, &result) || result != n)
			load->wrong++;
		if (vb_dpa_thread_set_call(t, at(load->l, fn.pass), &n, 1) ||
		    vb_dpa_thread_start(t) || vb_dpa_thread_wait(t, -1, &why) ||
		    vb_dpa_thread_state(t)->x[10] != n)
			load->wrong++;
		load->calls++;
	}
	if (vb_dpa_thread_destroy(t))
		load->wrong++;
	return NULL;
}

static uint64_t sum_instret(struct vb_dpa_debug *d)
{
	uint32_t numbers[SPINNERS + CALLERS];
	unsigned int n = vb_dpa_debug_threads(d, numbers, SPINNERS + CALLERS);
	struct vb_dpa_state s;
	uint64_t sum = 0;

	assert_in_range(n, SPINNERS, SPINNERS + CALLERS);
	for (unsigned int i = 0; i < n; i++) {
		assert_int_equal(vb_dpa_debug_state(d, numbers[i], &s), 0);
		sum += s.instret;
	}
	return sum;
}

static void under_load(const struct vb_dpa_attr *attr)
{
	struct vb_dpa_thread *spinner[SPINNERS];
	struct load load = { 0 };
	struct vb_dpa_debug *d;
	pthread_t host[CALLERS];
	struct place l;
	uint64_t before = 0, now;

	open_place(&l, attr);
	load.l = &l;
	for (int i = 0; i < SPINNERS; i++)
		start(spinner[i] = begin(&l, fn.spin, 0));
	for (int i = 0; i < CALLERS; i++)
		assert_int_equal(pthread_create(&host[i], NULL, call_always, &load), 0);
	d = attach(&l);
	for (int i = 0; i < 300; i++) {
		unsigned int calls = load.calls;

		assert_int_equal(hold(d).why, VB_DPA_STOP_ASKED);
		now = sum_instret(d);
		for (int k = 0; k < 5; k++)
			sched_yield();
		assert_int_equal(sum_instret(d), now); /* nobody executes */
		assert_true(now >= before);
		before = now;
		go_on(d);
		assert_int_equal(vb_dpa_debug_resume(d, NULL, 0), -EINVAL);
		/* All get on: nobody was left behind. */
		for (int k = 0; i % 50 == 0 && load.calls == calls; k++)
			sched_yield();
	}
	load.quit = true;
	for (int i = 0; i < CALLERS; i++)
		pthread_join(host[i], NULL);
	assert_int_equal(load.wrong, 0);
	vb_dpa_debug_detach(d);
	for (int i = 0; i < SPINNERS; i++)
		end(spinner[i]);
	close_place(&l);
}

static void test_load(void **state)
{
	(void)state;
	under_load(&(struct vb_dpa_attr){ .eus = 4, .host_threads = 2, .slice = 3000 });
}

static void test_load_deterministic(void **state)
{
	(void)state;
	under_load(&(struct vb_dpa_attr){ .eus = 4, .deterministic = true, .seed = 7 });
}

/* Debuggers come and go while threads run; a third of them leave the process held, or with a
 * breakpoint that threads are about to meet. */
static void test_attach(void **state)
{
	struct vb_dpa_thread *spinner[4];
	struct load load = { 0 };
	struct vb_dpa_debug *d, *second;
	pthread_t host[CALLERS];
	struct place l;

	(void)state;
	open_place(&l, &(struct vb_dpa_attr){ .eus = 4, .host_threads = 2, .slice = 3000 });
	load.l = &l;
	for (int i = 0; i < 4; i++)
		start(spinner[i] = begin(&l, fn.spin, 0));
	for (int i = 0; i < CALLERS; i++)
		assert_int_equal(pthread_create(&host[i], NULL, call_always, &load), 0);
	for (int i = 0; i < 1000; i++) {
		d = attach(&l);
		assert_int_equal(vb_dpa_debug_attach(l.process, &second), -EBUSY);
		if (i % 3 == 1)
			vb_dpa_debug_hold(d);
		if (i % 3 == 2) {
			hold(d);
			assert_int_equal(vb_dpa_debug_break(d, at(&l, fn.pass_at), true), 0);
			assert_int_equal(vb_dpa_debug_watch(d, 64, 8, VB_DPA_WATCH_READ, true), 0);
			go_on(d);
			if (i % 2)
				sched_yield();
		}
		vb_dpa_debug_detach(d);
	}
	for (unsigned int calls = load.calls; load.calls < calls + 2 * CALLERS;)
		sched_yield();
	load.quit = true;
	for (int i = 0; i < CALLERS; i++)
		pthread_join(host[i], NULL);
	assert_int_equal(load.wrong, 0);
	for (int i = 0; i < 4; i++)
		end(spinner[i]);
	close_place(&l);
}

/* One host thread, and the process whose thread it ran is held: it is free for the other one. */
static void test_two_processes(void **state)
{
	struct vb_dpa_thread *held, *other;
	struct vb_dpa_debug *d;
	struct place a, b;
	uint64_t instret;

	(void)state;
	open_place(&a, &(struct vb_dpa_attr){ .eus = 1, .host_threads = 1 });
	open_beside(&b, &a);
	start(held = begin(&a, fn.spin, 0));
	d = attach(&a);
	hold(d);
	instret = state_of(d, held).instret;
	other = begin(&b, fn.count, 200000);
	for (int i = 0; i < 3; i++) {
		start(other);
		assert_int_equal(wait_end(other), VB_DPA_WHY_RETURN);
		vb_dpa_thread_set_call(other, at(&b, fn.count), (uint64_t[]){ 200000 }, 1);
	}
	assert_int_equal(vb_dpa_eus_busy(a.dpa), 0);
	assert_int_equal(state_of(d, held).instret, instret);
	do {
		go_on(d);
		let_run();
		hold(d);
	} while (state_of(d, held).instret == instret);
	vb_dpa_debug_detach(d);
	end(held);
	end(other);
	close_beside(&b);
	close_place(&a);
}

/* ---- what the host program does meanwhile ---- */

/* Started, woken and called while the process is held: they wait, and nothing is lost. */
static void begin_held(const struct vb_dpa_attr *attr)
{
	struct vb_dpa_thread *blocked, *started, *called, *late;
	struct vb_dpa_thread_info info;
	struct vb_dpa_debug *d;
	struct caller c;
	struct place l;

	open_place(&l, attr);
	blocked = begin(&l, fn.block, 2);
	started = begin(&l, fn.count, 1000);
	called = make(&l);
	start(blocked);
	d = attach(&l);
	hold(d);
	assert_int_equal(vb_dpa_debug_info(d, vb_dpa_thread_number(started), &info), 0);
	assert_true(info.idle);
	vb_dpa_thread_wake(blocked);
	start(started);
	call_begin(&c, called, at(&l, fn.count), 500);
	late = begin(&l, fn.yields, 10); /* made while it is held */
	start(late);
	do { /* until its host thread has begun the call */
		sched_yield();
		assert_int_equal(vb_dpa_debug_info(d, vb_dpa_thread_number(called), &info), 0);
	} while (info.idle);
	for (int i = 0; i < 50; i++)
		sched_yield();
	assert_int_equal(state_of(d, started).instret, 0);
	assert_int_equal(state_of(d, called).instret, 0);
	assert_int_equal(state_of(d, late).instret, 0);
	assert_false(c.over);
	go_on(d);
	vb_dpa_thread_wake(blocked);
	/* A wake is one bit: if both came before the first block, the second block waits. */
	while (vb_dpa_thread_wait(blocked, 1000000, NULL))
		vb_dpa_thread_wake(blocked);
	assert_int_equal(wait_end(started), VB_DPA_WHY_RETURN);
	assert_int_equal(wait_end(late), VB_DPA_WHY_RETURN);
	call_end(&c);
	assert_int_equal(c.err, 0);
	assert_int_equal(c.result, 500);
	assert_int_equal(vb_dpa_thread_state(started)->instret, 2002);
	assert_int_equal(vb_dpa_thread_state(called)->instret, 1002);
	vb_dpa_debug_detach(d);
	end(blocked);
	end(started);
	end(called);
	end(late);
	close_place(&l);
}

static void test_begin_held(void **state)
{
	(void)state;
	begin_held(NULL);
	begin_held(&(struct vb_dpa_attr){ .deterministic = true });
}

/* Stopped and destroyed while held: on EUs, blocked, on a lent host thread. */
static void destroy_held(const struct vb_dpa_attr *attr)
{
	struct vb_dpa_thread *spin, *blocked, *called, *fresh;
	struct vb_dpa_state s;
	struct vb_dpa_debug *d;
	struct caller c;
	struct place l;
	uint32_t number;

	open_place(&l, attr);
	start(spin = begin(&l, fn.spin, 0));
	start(blocked = begin(&l, fn.block, 1));
	called = make(&l);
	call_begin(&c, called, at(&l, fn.spin), 0);
	d = attach(&l);
	hold(d);
	start(fresh = begin(&l, fn.spin, 0));
	number = vb_dpa_thread_number(spin);
	vb_dpa_thread_halt(fresh);
	end(spin);
	end(blocked);
	end(fresh);
	assert_int_equal(vb_dpa_debug_state(d, number, &s), -ESRCH);
	vb_dpa_thread_stop(called);
	while (!c.over)
		vb_dpa_thread_stop(called); /* it may have begun behind the first one */
	call_end(&c);
	assert_int_equal(c.err, -EINTR);
	end(called);
	assert_int_equal(vb_dpa_debug_threads(d, NULL, 0), 0);
	/* The process goes under its debugger. */
	assert_int_equal(vb_dpa_process_destroy(l.process), 0);
	assert_false(vb_dpa_debug_stopped(d, NULL));
	assert_int_equal(vb_dpa_debug_resume(d, NULL, 0), -EINVAL);
	vb_dpa_debug_hold(d);
	vb_dpa_debug_detach(d);
	assert_int_equal(vb_dpa_destroy(l.dpa), 0);
	rv_free(&l.p);
}

static void test_destroy_held(void **state)
{
	(void)state;
	destroy_held(NULL);
	destroy_held(&(struct vb_dpa_attr){ .deterministic = true });
}

/* The last instructions of a thread that goes away are not held up, and meet no breakpoint. */
static void test_dying(void **state)
{
	struct vb_dpa_debug *d;
	struct vb_dpa_thread *t;
	enum vb_dpa_why why;
	struct place l;

	(void)state;
	open_place(&l, NULL);
	start(t = begin(&l, fn.spin, 0));
	d = attach(&l);
	hold(d);
	assert_int_equal(vb_dpa_debug_break(d, at(&l, fn.spin), true), 0);
	vb_dpa_thread_stop(t);
	for (int i = 0; i < 3; i++) {
		uint64_t instret = state_of(d, t).instret;

		assert_int_equal(vb_dpa_thread_run_dying(t, 1000, &why), 0);
		assert_int_equal(why, VB_DPA_WHY_BUDGET);
		assert_int_equal(state_of(d, t).instret, instret + 1000);
	}
	assert_int_equal(wait_stop(d).why, VB_DPA_STOP_ASKED);
	end(t);
	vb_dpa_debug_detach(d);
	close_place(&l);
}

/* The program ends while its threads are held. */
static void test_exit(void **state)
{
	pid_t child = fork();
	int status;

	(void)state;
	if (!child) {
		static struct place l; /* other threads use it until the end */
		static struct caller c;
		struct vb_dpa_debug *d;

		open_place(&l, NULL);
		start(begin(&l, fn.spin, 0));
		start(begin(&l, fn.block, 1));
		call_begin(&c, make(&l), at(&l, fn.spin), 0);
		d = attach(&l);
		hold(d);
		alarm(100); /* only reached when something is broken */
		exit(23);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 23);
}

/* ---- some stay ---- */

static void test_stay(void **state)
{
	struct vb_dpa_resume how[2] = { { .go = VB_DPA_GO_STAY }, { .go = VB_DPA_GO_ON } };
	struct vb_dpa_thread *stays, *runs, *idle, *new;
	struct vb_dpa_debug *d;
	struct place l;
	uint64_t instret;

	(void)state;
	open_place(&l, NULL);
	start(stays = begin(&l, fn.spin, 0));
	start(runs = begin(&l, fn.spin, 0));
	idle = begin(&l, fn.count, 10);
	d = attach(&l);
	hold(d);
	instret = state_of(d, stays).instret;
	how[0].thread = vb_dpa_thread_number(stays);
	for (int i = 0; i < 20; i++) {
		uint64_t before = state_of(d, runs).instret;

		do {
			assert_int_equal(vb_dpa_debug_resume(d, how, 2), 0);
			let_run();
			hold(d);
		} while (state_of(d, runs).instret == before);
		assert_int_equal(state_of(d, stays).instret, instret);
	}
	/* No entry: it stays, and one that is started then does not begin. New ones do. */
	how[0] = (struct vb_dpa_resume){ vb_dpa_thread_number(runs), VB_DPA_GO_ON };
	assert_int_equal(vb_dpa_debug_resume(d, how, 1), 0);
	start(idle);
	start(new = begin(&l, fn.count, 10));
	assert_int_equal(wait_end(new), VB_DPA_WHY_RETURN);
	hold(d);
	assert_int_equal(state_of(d, idle).instret, 0);
	assert_int_equal(state_of(d, stays).instret, instret);
	/* A debugger that leaves lets them all go, also while others run. */
	assert_int_equal(vb_dpa_debug_resume(d, how, 1), 0);
	vb_dpa_debug_detach(d);
	assert_int_equal(wait_end(idle), VB_DPA_WHY_RETURN);
	vb_dpa_thread_stop(stays);
	assert_true(vb_dpa_thread_state(stays)->instret >= instret);
	end(stays);
	end(runs);
	end(idle);
	end(new);
	close_place(&l);
}

/* A call inside of a call: a callback of one guest thread runs another one, and that is held. */
struct nested {
	struct place *l;
	struct vb_dpa_thread *inner;
	atomic_int err;
};

static int on_store(struct vb_dpa_thread *thread, uint64_t offset, unsigned int size,
		    uint64_t value, void *arg)
{
	struct nested *n = arg;

	(void)thread, (void)offset, (void)size, (void)value;
	n->err = vb_dpa_call(n->inner, at(n->l, fn.spin), NULL, 0, NULL);
	return 0;
}

static const struct vb_dpa_device_ops device = { .store = on_store };

static void test_nested(void **state)
{
	struct vb_dpa_window *page;
	struct nested n;
	struct vb_dpa_debug *d;
	struct caller c;
	struct place l;
	struct vb_dpa_thread *outer;

	(void)state;
	open_place(&l, NULL);
	n = (struct nested){ &l, make(&l), 0 };
	outer = make(&l);
	assert_int_equal(vb_dpa_device_create(l.process, NULL, VB_DPA_WINDOW_BASE + 8, 8, &device,
					      &n, &page),
			 0);
	d = attach(&l);
	call_begin(&c, outer, at(&l, fn.touch) + 4, VB_DPA_WINDOW_BASE + 8);
	hold(d);
	while (!state_of(d, n.inner).instret) {
		go_on(d);
		let_run();
		hold(d);
	}
	go_on(d);
	hold(d);
	go_on(d);
	vb_dpa_thread_halt(outer);
	vb_dpa_thread_stop(n.inner);
	call_end(&c);
	assert_int_equal(n.err, -EINTR);
	assert_int_equal(c.err, -EINTR);
	vb_dpa_debug_detach(d);
	assert_int_equal(vb_dpa_window_destroy(page), 0);
	vb_dpa_thread_stop(outer);
	end(outer);
	end(n.inner);
	close_place(&l);
}

/* Time limits stand still while a process is held, and only then. */
static void test_held_ns(void **state)
{
	struct vb_dpa_debug *d;
	struct place l;
	uint64_t held;

	(void)state;
	open_place(&l, NULL);
	assert_int_equal(vb_dpa_process_held_ns(l.process), 0);
	d = attach(&l);
	assert_int_equal(vb_dpa_process_held_ns(l.process), 0);
	hold(d);
	usleep(2000);
	held = vb_dpa_process_held_ns(l.process);
	assert_true(held >= 2000000);
	usleep(2000);
	assert_true(vb_dpa_process_held_ns(l.process) >= held + 2000000);
	go_on(d);
	held = vb_dpa_process_held_ns(l.process);
	usleep(2000);
	assert_int_equal(vb_dpa_process_held_ns(l.process), held);
	hold(d);
	usleep(2000);
	vb_dpa_debug_detach(d);
	assert_true(vb_dpa_process_held_ns(l.process) >= held + 2000000);
	held = vb_dpa_process_held_ns(l.process);
	usleep(2000);
	assert_int_equal(vb_dpa_process_held_ns(l.process), held);
	close_place(&l);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exit), /* first: it forks */
		cmocka_unit_test(test_load),       cmocka_unit_test(test_load_deterministic),
		cmocka_unit_test(test_attach),     cmocka_unit_test(test_two_processes),
		cmocka_unit_test(test_begin_held), cmocka_unit_test(test_destroy_held),
		cmocka_unit_test(test_dying),      cmocka_unit_test(test_stay),
		cmocka_unit_test(test_nested),     cmocka_unit_test(test_held_ns),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

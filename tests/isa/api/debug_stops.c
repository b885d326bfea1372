// SPDX-License-Identifier: MIT
/*
 * Why threads stop under a debugger: steps, breakpoints, watchpoints, traps; and what it sees of
 * threads and memory, and can change, while they stand.
 */
#include "debug.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- steps ---- */

/* One instruction at a time from begin to end: the same path as without a debugger. */
static void step_through(struct place *l, struct vb_dpa_debug *d, struct vb_dpa_thread *t)
{
	struct vb_dpa_state s = state_of(d, t);
	uint64_t n = s.instret;

	assert_int_equal(s.pc, at(l, fn.count));
	while (s.pc != 0xfffffffffffff000ull) {
		uint64_t pc = s.pc;

		step_only(d, t, 0, 0);
		expect_stop(d, VB_DPA_STOP_STEP, t);
		s = state_of(d, t);
		assert_int_equal(s.instret, ++n);
		if (pc == at(l, fn.count_top) + 4)
			assert_int_equal(s.pc, s.x[11] ? at(l, fn.count_top) : pc + 4);
	}
	assert_int_equal(n, 2 * 50 + 2);
}

static void steps(const struct vb_dpa_attr *attr)
{
	struct vb_dpa_thread *eu, *lent, *other;
	struct vb_dpa_debug *d;
	struct caller c;
	struct place l;
	uint64_t instret;

	open_place(&l, attr);
	start(other = begin(&l, fn.spin, 0));
	d = attach(&l);
	hold(d);
	start(eu = begin(&l, fn.count, 50));
	lent = make(&l);
	call_begin(&c, lent, at(&l, fn.count), 50);
	while (state_of(d, lent).pc != at(&l, fn.count))
		sched_yield();
	instret = state_of(d, other).instret;
	step_through(&l, d, eu);
	step_through(&l, d, lent);
	assert_int_equal(state_of(d, other).instret, instret); /* it stayed */
	go_on(d);
	assert_int_equal(wait_end(eu), VB_DPA_WHY_RETURN);
	call_end(&c);
	assert_int_equal(c.err, 0);
	assert_int_equal(c.result, 50);
	vb_dpa_debug_detach(d);
	end(eu);
	end(lent);
	end(other);
	close_place(&l);
}

static void test_steps(void **state)
{
	(void)state;
	steps(NULL);
	steps(&(struct vb_dpa_attr){ .deterministic = true, .seed = 3 });
}

/* A range: the loop is left once, behind all of its turns, in slices that are shorter. */
static void test_range(void **state)
{
	struct vb_dpa_debug *d;
	struct vb_dpa_thread *t;
	struct vb_dpa_state s;
	struct place l;

	(void)state;
	open_place(&l, &(struct vb_dpa_attr){ .slice = 100 });
	d = attach(&l);
	hold(d);
	start(t = begin(&l, fn.count, 1000));
	step_only(d, t, at(&l, fn.count), at(&l, fn.count_top) + 8);
	expect_stop(d, VB_DPA_STOP_STEP, t);
	s = state_of(d, t);
	assert_int_equal(s.pc, at(&l, fn.count_top) + 8);
	assert_int_equal(s.instret, 2001);
	go_on(d);
	assert_int_equal(wait_end(t), VB_DPA_WHY_RETURN);
	vb_dpa_debug_detach(d);
	end(t);
	close_place(&l);
}

/* Steps over ecalls: those that yield, block, return at once, and end the thread. */
static void test_step_ecalls(void **state)
{
	struct vb_dpa_thread_info info;
	struct vb_dpa_debug *d;
	struct place l;

	(void)state;
	open_place(&l, NULL);
	d = attach(&l);
	for (int i = 0; i < 4; i++) {
		int label = i == 0 ? fn.yields : i == 1 ? fn.block : i == 2 ? fn.calls : fn.leave;
		struct vb_dpa_thread *t;

		hold(d);
		start(t = begin(&l, label, 1));
		for (uint64_t n = 1; n <= 2; n++) {
			step_only(d, t, 0, 0);
			expect_stop(d, VB_DPA_STOP_STEP, t);
			assert_int_equal(state_of(d, t).instret, n);
		}
		assert_int_equal(state_of(d, t).pc, at(&l, label) + 8);
		assert_int_equal(vb_dpa_debug_info(d, vb_dpa_thread_number(t), &info), 0);
		assert_int_equal(info.idle, label == fn.leave);
		go_on(d);
		if (label == fn.block)
			vb_dpa_thread_wake(t);
		assert_int_equal(wait_end(t),
				 label == fn.leave ? VB_DPA_WHY_EXIT : VB_DPA_WHY_RETURN);
		end(t);
	}
	vb_dpa_debug_detach(d);
	close_place(&l);
}

/* ---- breakpoints ---- */

#define PASSERS 4

/* Each of several threads, on EUs and lent, stops once for each pass, and executes it once. */
static void passes(const struct vb_dpa_attr *attr, unsigned int each)
{
	struct vb_dpa_thread *t[PASSERS];
	unsigned int hits[PASSERS] = { 0 }, total = 0;
	struct caller c[PASSERS];
	struct vb_dpa_debug *d;
	struct place l;

	open_place(&l, attr);
	d = attach(&l);
	hold(d);
	assert_int_equal(vb_dpa_debug_break(d, at(&l, fn.pass_at), true), 0);
	assert_int_equal(vb_dpa_debug_break(d, at(&l, fn.pass_at), true), 0);
	for (int i = 0; i < PASSERS; i++) {
		t[i] = i < 2 ? begin(&l, fn.pass, each) : make(&l);
		if (i < 2)
			start(t[i]);
		else
			call_begin(&c[i], t[i], at(&l, fn.pass), each);
	}
	for (; total < PASSERS * each; total++) {
		struct vb_dpa_stopped stop;
		struct vb_dpa_state s;

		go_on(d);
		stop = wait_stop(d);
		assert_int_equal(stop.why, VB_DPA_STOP_BREAK);
		for (int i = 0; i < PASSERS; i++) {
			if (vb_dpa_thread_number(t[i]) != stop.thread)
				continue;
			s = state_of(d, t[i]);
			assert_int_equal(s.pc, at(&l, fn.pass_at));
			assert_int_equal(s.x[12], hits[i]++);
			assert_int_equal(s.instret, 3 * (uint64_t)hits[i] - 1);
		}
	}
	go_on(d);
	for (int i = 0; i < PASSERS; i++) {
		assert_int_equal(hits[i], each);
		if (i < 2) {
			assert_int_equal(wait_end(t[i]), VB_DPA_WHY_RETURN);
			assert_int_equal(vb_dpa_thread_state(t[i])->x[10], each);
		} else {
			call_end(&c[i]);
			assert_int_equal(c[i].err, 0);
			assert_int_equal(c[i].result, each);
		}
		end(t[i]);
	}
	vb_dpa_debug_detach(d);
	close_place(&l);
}

static void test_breaks(void **state)
{
	const char *text = getenv("DEBUG_PASSES");

	(void)state;
	passes(NULL, text ? (unsigned int)atoi(text) : 10000);
	passes(&(struct vb_dpa_attr){ .deterministic = true }, 500);
}

/* Set at the pc of a thread that stands: going on meets it, a step does not. Cleared, none does. */
static void test_break_here(void **state)
{
	struct vb_dpa_debug *d;
	struct vb_dpa_thread *t;
	struct place l;

	(void)state;
	open_place(&l, NULL);
	start(t = begin(&l, fn.spin, 0));
	d = attach(&l);
	hold(d);
	assert_int_equal(vb_dpa_debug_break(d, state_of(d, t).pc, true), 0);
	go_on(d);
	expect_stop(d, VB_DPA_STOP_BREAK, t);
	for (int i = 0; i < 10; i++) {
		uint64_t instret = state_of(d, t).instret;

		step_only(d, t, 0, 0);
		expect_stop(d, VB_DPA_STOP_STEP, t);
		assert_int_equal(state_of(d, t).instret, instret + 1);
	}
	/* Two turns of a loop of two instructions, with both marked. */
	assert_int_equal(vb_dpa_debug_break(d, at(&l, fn.spin), true), 0);
	assert_int_equal(vb_dpa_debug_break(d, at(&l, fn.spin) + 4, true), 0);
	for (int i = 0; i < 4; i++) {
		uint64_t instret = state_of(d, t).instret;

		go_on(d);
		expect_stop(d, VB_DPA_STOP_BREAK, t);
		/* At the first one it stands behind a step: it is met before it is executed. */
		assert_int_equal(state_of(d, t).instret, i ? instret + 1 : instret);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(vb_dpa_debug_break(d, at(&l, fn.spin) + 4 * (uint64_t)i, false),
				 0);
	assert_int_equal(vb_dpa_debug_break(d, at(&l, fn.spin), false), 0);
	go_on(d);
	assert_int_equal(hold(d).why, VB_DPA_STOP_ASKED);
	assert_int_equal(vb_dpa_debug_break(d, 0, true), -EFAULT);
	assert_int_equal(vb_dpa_debug_break(d, at(&l, fn.spin) + 1, true), -EFAULT);
	assert_int_equal(vb_dpa_debug_break(d, 1ull << 40, true), -EFAULT);
	go_on(d);
	assert_int_equal(vb_dpa_debug_break(d, at(&l, fn.spin), true), -EINVAL);
	vb_dpa_debug_detach(d);
	end(t);
	close_place(&l);
}

/* ---- watchpoints ---- */

/* The accesses of fn.touch at addr: by offset, size and kind, in their order. */
static const struct {
	unsigned int offset, size, kind;
} accesses[] = { { 0, 8, 1 }, { 0, 8, 2 }, { 4, 4, 1 }, { 7, 1, 2 }, { 0, 8, 3 } };

static void watch_touch(struct place *l, struct vb_dpa_debug *d, struct vb_dpa_thread *t,
			uint64_t addr, unsigned int offset, unsigned int len, unsigned int watch)
{
	assert_int_equal(vb_dpa_debug_watch(d, addr + offset, len, watch, true), 0);
	assert_int_equal(vb_dpa_thread_set_call(t, at(l, fn.touch), &addr, 1), 0);
	start(t);
	for (unsigned int i = 0; i < 5; i++) {
		struct vb_dpa_stopped stop;

		if (!(accesses[i].kind & watch) || accesses[i].offset >= offset + len ||
		    offset >= accesses[i].offset + accesses[i].size)
			continue;
		go_on(d);
		stop = wait_stop(d);
		assert_int_equal(stop.why, VB_DPA_STOP_WATCH);
		assert_int_equal(stop.thread, vb_dpa_thread_number(t));
		assert_int_equal(stop.watch, watch);
		assert_int_equal(stop.addr, addr + (accesses[i].offset > offset ? accesses[i].offset
										: offset));
		assert_int_equal(state_of(d, t).pc, at(l, fn.touch) + 4 * (i + 1));
	}
	go_on(d);
	assert_int_equal(wait_end(t), VB_DPA_WHY_RETURN);
	assert_int_equal(hold(d).why, VB_DPA_STOP_ASKED);
	assert_int_equal(vb_dpa_debug_watch(d, addr + offset, len, watch, false), 0);
	assert_int_equal(vb_dpa_debug_watch(d, addr + offset, len, watch, false), -ENOENT);
}

static void test_watch(void **state)
{
	static uint64_t host[64];
	struct vb_dpa_window *window;
	struct vb_dpa_debug *d;
	struct vb_dpa_thread *t;
	struct place l;

	(void)state;
	open_place(&l, NULL);
	assert_int_equal(vb_dpa_window_create(l.process, NULL, VB_DPA_WINDOW_BASE, sizeof(host),
					      host, VB_DPA_READ | VB_DPA_WRITE, &window),
			 0);
	d = attach(&l);
	t = make(&l);
	hold(d);
	for (unsigned int watch = 1; watch <= 3; watch++) {
		for (unsigned int offset = 0; offset < 10; offset++) {
			watch_touch(&l, d, t, l.p.data_base + 64, offset, 1, watch);
			watch_touch(&l, d, t, VB_DPA_WINDOW_BASE + 64, offset, 2, watch);
		}
		watch_touch(&l, d, t, VB_DPA_WINDOW_BASE + 64, 0, 8, watch);
	}
	assert_int_equal(vb_dpa_debug_watch(d, 64, 0, VB_DPA_WATCH_READ, true), -EINVAL);
	assert_int_equal(vb_dpa_debug_watch(d, 64, 8, 0, true), -EINVAL);
	assert_int_equal(vb_dpa_debug_watch(d, 64, 8, 4, true), -EINVAL);
	vb_dpa_debug_detach(d);
	end(t);
	close_place(&l);
}

/* Its stack, in a loop and on a lent host thread: each store once, no load. */
static void test_watch_stack(void **state)
{
	struct vb_dpa_thread *t, *other;
	struct vb_dpa_stack stack;
	struct vb_dpa_debug *d;
	struct caller c;
	struct place l;

	(void)state;
	open_place(&l, NULL);
	t = make(&l);
	d = attach(&l);
	hold(d);
	vb_dpa_thread_stack(t, &stack);
	assert_int_equal(
		vb_dpa_debug_watch(d, stack.addr + stack.size - 16, 8, VB_DPA_WATCH_WRITE, true),
		0);
	start(other = begin(&l, fn.stack, 100)); /* has its own */
	call_begin(&c, t, at(&l, fn.stack), 100);
	for (uint64_t i = 0; i < 100; i++) {
		uint64_t value, done;

		go_on(d);
		expect_stop(d, VB_DPA_STOP_WATCH, t);
		assert_int_equal(state_of(d, t).instret, 2 + 4 * i);
		assert_int_equal(vb_dpa_debug_read(d, vb_dpa_thread_number(t),
						   stack.addr + stack.size - 16, &value,
						   sizeof(value), &done),
				 0);
		assert_int_equal(value, 100 - i);
	}
	go_on(d);
	call_end(&c);
	assert_int_equal(c.err, 0);
	assert_int_equal(c.result, 100);
	vb_dpa_debug_detach(d);
	end(t);
	end(other);
	close_place(&l);
}

/* Several threads write what is watched: none of their accesses is lost, one after the other. */
static void test_watch_many(void **state)
{
	struct vb_dpa_thread *t[PASSERS];
	unsigned int hits[PASSERS] = { 0 };
	struct vb_dpa_debug *d;
	struct place l;

	(void)state;
	open_place(&l, NULL);
	d = attach(&l);
	for (int round = 0; round < 50; round++) {
		hold(d);
		assert_int_equal(vb_dpa_debug_watch(d, l.p.data_base, 8, VB_DPA_WATCH_WRITE, true),
				 0);
		for (int i = 0; i < PASSERS; i++)
			start(t[i] = begin(&l, fn.touch, l.p.data_base));
		for (int n = 0; n < 3 * PASSERS; n++) {
			struct vb_dpa_stopped stop;

			go_on(d);
			stop = wait_stop(d);
			assert_int_equal(stop.why, VB_DPA_STOP_WATCH);
			for (int i = 0; i < PASSERS; i++)
				hits[i] += vb_dpa_thread_number(t[i]) == stop.thread;
		}
		go_on(d);
		for (int i = 0; i < PASSERS; i++) {
			assert_int_equal(wait_end(t[i]), VB_DPA_WHY_RETURN);
			assert_int_equal(vb_dpa_thread_state(t[i])->instret, 6);
			assert_int_equal(hits[i], 3 * (round + 1));
			end(t[i]);
		}
	}
	vb_dpa_debug_detach(d);
	close_place(&l);
}

/* ---- traps ---- */

static void traps(const struct vb_dpa_attr *attr)
{
	struct vb_dpa_debug *d;
	struct vb_dpa_thread *t;
	struct caller c;
	struct place l;

	open_place(&l, attr);
	d = attach(&l);
	t = begin(&l, fn.trap, 0);
	start(t);
	expect_stop(d, VB_DPA_STOP_TRAP, t);
	assert_int_equal(l.traps, 0);
	assert_int_equal(state_of(d, t).cause, VB_DPA_CAUSE_LOAD);
	assert_int_equal(state_of(d, t).pc, at(&l, fn.trap));
	go_on(d); /* the process sees it */
	assert_int_equal(wait_end(t), VB_DPA_WHY_TRAP);
	assert_int_equal(l.traps, 1);
	assert_int_equal(l.dones, 1);
	/* The debugger leads the thread elsewhere. */
	vb_dpa_thread_set_call(t, at(&l, fn.trap), NULL, 0);
	start(t);
	expect_stop(d, VB_DPA_STOP_TRAP, t);
	set_pc(d, t, at(&l, fn.trap_after));
	go_on(d);
	assert_int_equal(wait_end(t), VB_DPA_WHY_RETURN);
	assert_int_equal(l.traps, 1);
	assert_int_equal(vb_dpa_thread_state(t)->x[10], 9);
	/* The process has a handler; a step ends where that begins. */
	l.divert = at(&l, fn.trap_after);
	vb_dpa_thread_set_call(t, at(&l, fn.trap), NULL, 0);
	start(t);
	expect_stop(d, VB_DPA_STOP_TRAP, t);
	step_only(d, t, 0, 0);
	expect_stop(d, VB_DPA_STOP_STEP, t);
	assert_int_equal(state_of(d, t).pc, l.divert);
	go_on(d);
	assert_int_equal(wait_end(t), VB_DPA_WHY_RETURN);
	assert_int_equal(l.traps, 2);
	l.divert = 0;
	/* On a lent host thread; and a debugger that leaves lets the trap through. */
	call_begin(&c, t, at(&l, fn.trap), 0);
	expect_stop(d, VB_DPA_STOP_TRAP, t);
	assert_false(c.over);
	vb_dpa_debug_detach(d);
	call_end(&c);
	assert_int_equal(c.err, -EFAULT);
	assert_int_equal(l.traps, 3);
	end(t);
	close_place(&l);
}

static void test_traps(void **state)
{
	(void)state;
	traps(NULL);
	traps(&(struct vb_dpa_attr){ .deterministic = true });
}

static void test_ebreak(void **state)
{
	struct vb_dpa_debug *d;
	struct vb_dpa_thread *t;
	struct place l;

	(void)state;
	open_place(&l, NULL);
	d = attach(&l);
	start(t = begin(&l, fn.ebreak, 0));
	expect_stop(d, VB_DPA_STOP_BREAK, t);
	assert_int_equal(state_of(d, t).cause, VB_DPA_CAUSE_BREAKPOINT);
	set_pc(d, t, at(&l, fn.ebreak) + 4);
	go_on(d);
	assert_int_equal(wait_end(t), VB_DPA_WHY_RETURN);
	assert_int_equal(l.traps, 0);
	vb_dpa_thread_set_call(t, at(&l, fn.ebreak), NULL, 0);
	start(t);
	expect_stop(d, VB_DPA_STOP_BREAK, t);
	go_on(d);
	assert_int_equal(wait_end(t), VB_DPA_WHY_TRAP);
	assert_int_equal(l.traps, 1);
	vb_dpa_debug_detach(d);
	end(t);
	close_place(&l);
}

/* Many trap at a time: each is told once, and delivered once. */
static void test_many_traps(void **state)
{
	struct vb_dpa_thread *t[PASSERS];
	unsigned int told[PASSERS] = { 0 };
	struct vb_dpa_debug *d;
	struct place l;

	(void)state;
	open_place(&l, NULL);
	d = attach(&l);
	for (unsigned int round = 1; round <= 50; round++) {
		hold(d);
		for (int i = 0; i < PASSERS; i++)
			start(t[i] = begin(&l, fn.trap, 0));
		for (int n = 0; n < PASSERS; n++) {
			struct vb_dpa_stopped stop;

			go_on(d);
			stop = wait_stop(d);
			assert_int_equal(stop.why, VB_DPA_STOP_TRAP);
			for (int i = 0; i < PASSERS; i++)
				told[i] += vb_dpa_thread_number(t[i]) == stop.thread;
		}
		go_on(d);
		for (int i = 0; i < PASSERS; i++) {
			assert_int_equal(wait_end(t[i]), VB_DPA_WHY_TRAP);
			assert_int_equal(told[i], round);
			end(t[i]);
		}
		assert_int_equal(l.traps, PASSERS * round);
	}
	/* Stopped by the host program while its trap is kept back: it is not delivered. */
	start(t[0] = begin(&l, fn.trap, 0));
	expect_stop(d, VB_DPA_STOP_TRAP, t[0]);
	end(t[0]);
	go_on(d);
	assert_int_equal(l.traps, PASSERS * 50);
	vb_dpa_debug_detach(d);
	close_place(&l);
}

/* ---- at the same moment ---- */

/* Threads wait at a gate, and then all meet the same thing: each is told once. */
static void meet_together(struct place *l, struct vb_dpa_debug *d, enum vb_dpa_stop why)
{
	_Atomic uint64_t *a =
		vb_view_lend(vb_dpa_mem_host(l->process, l->p.data_base, 24, VB_DPA_WRITE));
	unsigned int told[PASSERS] = { 0 };
	struct vb_dpa_thread *t[PASSERS];
	struct caller c[PASSERS];

	a[1] = 0;
	a[2] = why == VB_DPA_STOP_WATCH ? l->p.data_base : 0;
	for (int i = 0; i < PASSERS; i++) {
		t[i] = i < 2 ? begin(l, fn.gate, l->p.data_base) : make(l);
		if (i < 2)
			start(t[i]);
		else
			call_begin(&c[i], t[i], at(l, fn.gate), l->p.data_base);
	}
	usleep(300); /* so that some are there */
	a[1] = 1;
	for (int n = 0; n < PASSERS; n++) {
		struct vb_dpa_stopped stop = wait_stop(d);

		assert_int_equal(stop.why, why);
		for (int i = 0; i < PASSERS; i++)
			told[i] += vb_dpa_thread_number(t[i]) == stop.thread;
		go_on(d);
	}
	for (int i = 0; i < PASSERS; i++) {
		assert_int_equal(told[i], 1);
		if (i < 2)
			assert_int_equal(wait_end(t[i]), why == VB_DPA_STOP_WATCH
								 ? VB_DPA_WHY_RETURN
								 : VB_DPA_WHY_TRAP);
		else
			call_end(&c[i]);
		end(t[i]);
	}
}

static void test_together(void **state)
{
	struct vb_dpa_debug *d;
	struct place l;

	(void)state;
	open_place(&l, &(struct vb_dpa_attr){ .slice = 1000 });
	d = attach(&l);
	for (unsigned int i = 0; i < 50; i++) {
		meet_together(&l, d, VB_DPA_STOP_TRAP);
		assert_int_equal(l.traps, PASSERS * (i + 1));
	}
	hold(d);
	assert_int_equal(vb_dpa_debug_watch(d, l.p.data_base, 8, VB_DPA_WATCH_WRITE, true), 0);
	go_on(d);
	for (unsigned int i = 0; i < 50; i++)
		meet_together(&l, d, VB_DPA_STOP_WATCH);
	vb_dpa_debug_detach(d);
	close_place(&l);
}

/* ---- looking ---- */

static void test_memory(void **state)
{
	struct vb_dpa_window *window, *own;
	struct vb_dpa_thread *t, *other;
	struct vb_dpa_debug *d;
	uint64_t done = 99, page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint32_t number, number2;
	uint8_t *host, buf[16384];
	struct place l;

	(void)state;
	open_place(&l, NULL);
	host = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(host, MAP_FAILED);
	t = make(&l);
	other = make(&l);
	number = vb_dpa_thread_number(t);
	number2 = vb_dpa_thread_number(other);
	assert_int_equal(vb_dpa_window_create(l.process, NULL, VB_DPA_WINDOW_BASE, 2 * page, host,
					      VB_DPA_READ | VB_DPA_WRITE, &window),
			 0);
	assert_int_equal(vb_dpa_window_create(l.process, t, VB_DPA_WINDOW_BASE + (1 << 20), 100,
					      host, VB_DPA_READ, &own),
			 0);
	d = attach(&l);
	assert_int_equal(vb_dpa_debug_read(d, number, 0, buf, 1, &done), -EINVAL);
	hold(d);
	/* Text can be read, and not written; page 0 neither. */
	assert_int_equal(vb_dpa_debug_read(d, number, RV_TEXT, buf, 8, &done), 0);
	assert_int_equal(done, 8);
	assert_memory_equal(buf, l.p.text, 8);
	assert_int_equal(vb_dpa_debug_write(d, number, RV_TEXT, buf, 8, &done), -EFAULT);
	assert_int_equal(done, 0);
	assert_int_equal(vb_dpa_debug_read(d, number, 8, buf, 8, &done), -EFAULT);
	assert_int_equal(vb_dpa_debug_write(d, number, l.p.data_base, "abcdefgh", 8, &done), 0);
	assert_int_equal(vb_dpa_debug_read(d, number2, l.p.data_base, buf, 8, &done), 0);
	assert_memory_equal(buf, "abcdefgh", 8);
	/* A window, up to its end, and where its memory has gone. */
	assert_int_equal(
		vb_dpa_debug_write(d, number, VB_DPA_WINDOW_BASE + page - 4, "12345678", 8, &done),
		0);
	assert_memory_equal(host + page - 4, "12345678", 8);
	assert_int_equal(
		vb_dpa_debug_read(d, number, VB_DPA_WINDOW_BASE + 2 * page - 8, buf, 16, &done),
		-EFAULT);
	assert_int_equal(done, 8);
	munmap(host + page, page);
	assert_int_equal(vb_dpa_debug_read(d, number, VB_DPA_WINDOW_BASE + page - 4, buf, 8, &done),
			 -EFAULT);
	assert_int_equal(done, 4);
	assert_memory_equal(buf, "1234", 4);
	/* One thread's own; and what may only be read. */
	assert_int_equal(
		vb_dpa_debug_read(d, number, VB_DPA_WINDOW_BASE + (1 << 20), buf, 100, &done), 0);
	assert_int_equal(
		vb_dpa_debug_read(d, number2, VB_DPA_WINDOW_BASE + (1 << 20), buf, 100, &done),
		-EFAULT);
	assert_int_equal(
		vb_dpa_debug_write(d, number, VB_DPA_WINDOW_BASE + (1 << 20), buf, 1, &done),
		-EFAULT);
	assert_int_equal(vb_dpa_debug_read(d, number + 7, RV_TEXT, buf, 1, &done), -ESRCH);
	assert_int_equal(vb_dpa_debug_read(d, number, UINT64_MAX - 3, buf, 8, &done), -EFAULT);
	assert_int_equal(done, 0);
	vb_dpa_debug_detach(d);
	munmap(host, page);
	end(t);
	end(other);
	close_place(&l);
}

static void test_threads(void **state)
{
	struct vb_dpa_thread_attr attr = { .name = "first" };
	struct vb_dpa_thread_info info;
	struct vb_dpa_thread *a, *b;
	struct vb_dpa_state s;
	struct vb_dpa_debug *d;
	uint32_t numbers[4] = { 0 };
	struct place l;

	(void)state;
	open_place(&l, NULL);
	assert_int_equal(vb_dpa_thread_create(l.process, &attr, &a), 0);
	start(b = begin(&l, fn.spin, 0));
	d = attach(&l);
	assert_int_equal(vb_dpa_debug_threads(d, numbers, 4), 0);
	assert_int_equal(vb_dpa_debug_info(d, 1, &info), -EINVAL);
	assert_int_equal(vb_dpa_debug_state(d, 1, &s), -EINVAL);
	hold(d);
	assert_int_equal(vb_dpa_debug_threads(d, numbers, 1), 2);
	assert_int_equal(numbers[1], 0);
	assert_int_equal(vb_dpa_debug_threads(d, numbers, 4), 2);
	assert_int_equal(numbers[0], vb_dpa_thread_number(a));
	assert_int_equal(numbers[1], vb_dpa_thread_number(b));
	assert_int_equal(vb_dpa_debug_info(d, numbers[0], &info), 0);
	assert_string_equal(info.name, "first");
	assert_true(info.idle);
	assert_int_equal(vb_dpa_debug_info(d, numbers[1], &info), 0);
	assert_false(info.idle);
	/* Registers of one that runs can be changed, x0 not; an idle one has none. */
	s = state_of(d, b);
	s.x[0] = s.x[6] = 77;
	assert_int_equal(vb_dpa_debug_set_state(d, numbers[1], &s), 0);
	assert_int_equal(state_of(d, b).x[6], 77);
	assert_int_equal(state_of(d, b).x[0], 0);
	assert_int_equal(vb_dpa_debug_set_state(d, numbers[0], &s), -EINVAL);
	assert_int_equal(vb_dpa_debug_set_state(d, 99, &s), -ESRCH);
	set_pc(d, b, at(&l, fn.trap_after));
	go_on(d);
	assert_int_equal(wait_end(b), VB_DPA_WHY_RETURN);
	assert_int_equal(vb_dpa_thread_state(b)->x[6], 77);
	assert_int_equal(vb_dpa_thread_state(b)->x[10], 9);
	vb_dpa_debug_detach(d);
	end(a);
	end(b);
	close_place(&l);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steps),       cmocka_unit_test(test_range),
		cmocka_unit_test(test_step_ecalls), cmocka_unit_test(test_breaks),
		cmocka_unit_test(test_break_here),  cmocka_unit_test(test_watch),
		cmocka_unit_test(test_watch_stack), cmocka_unit_test(test_watch_many),
		cmocka_unit_test(test_traps),       cmocka_unit_test(test_ebreak),
		cmocka_unit_test(test_many_traps),  cmocka_unit_test(test_memory),
		cmocka_unit_test(test_threads),     cmocka_unit_test(test_together),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

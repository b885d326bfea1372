// SPDX-License-Identifier: MIT
/*
 * The interpreter for observers: it computes what the model does, shows every instruction and every
 * access once and before it happens, with exact registers, whatever stops the observer asks for.
 */
#include "bed.h"

#include "../gen/gen.h"
#include "dpa/internal.h"

struct watch {
	struct bed *b;
	struct rv_model m;
	struct rng r;
	u64 marks, accesses; /* that were let go on */
	u64 stopped_at;      /* instret of the last stop, so that the second visit goes on */
	bool stops;
};

static enum vb_seen decide(struct watch *w, uint64_t instret, u64 *count)
{
	if (w->stops && w->stopped_at != instret && rng_chance(&w->r, 10)) {
		w->stopped_at = instret;
		return VB_SEEN_STOP;
	}
	++*count;
	return w->stops && rng_chance(&w->r, 10) ? VB_SEEN_STOP_BEHIND : VB_SEEN_GO;
}

static enum vb_seen on_mark(struct vb_dpa_thread *thread, void *arg)
{
	struct watch *w = arg;

	assert_ptr_equal(thread, w->b->thread);
	rv_model_run(&w->m, thread->cpu.s.instret);
	bed_same(w->b, &w->m, "at a mark");
	return decide(w, thread->cpu.s.instret, &w->marks);
}

static const struct rv_insn *insn_at(const struct rv_prog *p, u64 pc)
{
	for (size_t i = 0; i < p->count; i++)
		if (p->insn[i].pc == pc)
			return &p->insn[i];
	return NULL;
}

static enum vb_seen on_access(struct vb_dpa_thread *thread, uint64_t addr, unsigned int size,
			      unsigned int kind, void *arg)
{
	const struct vb_dpa_state *s = &thread->cpu.s;
	struct watch *w = arg;
	const struct rv_insn *i;

	rv_model_run(&w->m, s->instret);
	bed_same(w->b, &w->m, "at an access");
	i = insn_at(&w->b->p, s->pc);
	assert_non_null(i);
	switch (rv_info[i->op].format) {
	case FMT_LD:
	case FMT_ST:
		assert_int_equal(kind, rv_info[i->op].format == FMT_LD ? VB_ACCESS_LOAD
								       : VB_ACCESS_STORE);
		assert_int_equal(addr, s->x[i->rs1] + (u64)i->imm);
		break;
	case FMT_LR:
		assert_int_equal(kind, VB_ACCESS_LOAD);
		assert_int_equal(addr, s->x[i->rs1]);
		break;
	default:
		assert_int_equal(kind, VB_ACCESS_LOAD | VB_ACCESS_STORE);
		assert_int_equal(addr, s->x[i->rs1]);
	}
	assert_true(size && size <= 8 && !(size & (size - 1)));
	/* A mark came before and may have stopped already: no second draw at this count. */
	w->accesses++;
	return w->stops && rng_chance(&w->r, 10) ? VB_SEEN_STOP_BEHIND : VB_SEEN_GO;
}

static void run_observed(u64 seed, bool stops, bool late)
{
	struct bed b = { 0 };
	struct watch w = { .b = &b, .r = { seed }, .stopped_at = ~0ULL, .stops = stops };
	struct observe_ops ops = { .mark = on_mark, .access = on_access, .arg = &w };
	u64 unseen = 0;

	gen_programs(&b.p, seed, 6, GEN_OURS);
	bed_open(&b, NULL);
	bed_reset(&b);
	rv_model_init(&w.m, &b.p);
	if (late) { /* it has been running on its own tier before */
		assert_int_equal(bed_run(&b, 100), VB_DPA_WHY_BUDGET);
		unseen = bed_state(&b)->instret;
	}
	assert_int_equal(vb_observe(b.process, OBSERVE_DEBUG, &ops), 0);
	for (size_t i = 0; i < b.p.count; i++)
		assert_int_equal(vb_observe_mark(b.process, OBSERVE_DEBUG, b.p.insn[i].pc, true),
				 0);
	assert_int_equal(bed_run(&b, UINT64_MAX), VB_DPA_WHY_EXIT);
	assert_int_equal(rv_model_run(&w.m, UINT64_MAX), RV_EXIT);
	assert_int_equal(bed_state(&b)->instret, w.m.count);
	assert_int_equal(w.marks, w.m.count - unseen);
	assert_true(w.accesses > 0);
	assert_int_equal(b.out_size, w.m.out_size);
	assert_memory_equal(b.out, w.m.out, w.m.out_size);
	rv_model_free(&w.m);
	bed_close(&b);
}

static void test_every_instruction(void **state)
{
	(void)state;
	for (u64 seed = 1; seed <= 20; seed++)
		run_observed(seed, false, false);
}

static void test_stops(void **state)
{
	(void)state;
	for (u64 seed = 100; seed < 140; seed++)
		run_observed(seed, true, seed % 2);
}

/* A mark sends the thread elsewhere, as one that serves a function does; one that leads to itself ends with the budget. */
static enum vb_seen return_seven(struct vb_dpa_thread *thread, void *arg)
{
	(void)arg;
	thread->cpu.s.x[10] = 7;
	thread->cpu.s.pc = thread->cpu.s.x[1];
	return VB_SEEN_GO;
}

static void test_served_function(void **state)
{
	struct observe_ops ops = { .mark = return_seven };
	struct bed b = { 0 };
	enum vb_dpa_why why;
	uint64_t result;

	(void)state;
	rv_init(&b.p);
	rv_emit(&b.p, OP_addi, 10, 0, 0, 3);
	rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&b, NULL);
	assert_int_equal(vb_observe(b.process, OBSERVE_CHECK, &ops), 0);
	assert_int_equal(vb_observe_mark(b.process, OBSERVE_CHECK, RV_TEXT, true), 0);
	assert_int_equal(vb_observe_mark(b.process, OBSERVE_CHECK, RV_TEXT + 1, true), -EFAULT);
	assert_int_equal(vb_observe_mark(b.process, OBSERVE_CHECK, 0, true), -EFAULT);
	assert_int_equal(vb_dpa_call(b.thread, RV_TEXT, NULL, 0, &result), 0);
	assert_int_equal(result, 7);

	assert_int_equal(vb_dpa_thread_set_call(b.thread, RV_TEXT, NULL, 0), 0);
	bed_state(&b)->x[1] = RV_TEXT;
	assert_int_equal(vb_dpa_thread_run(b.thread, 1000, &why), 0);
	assert_int_equal(why, VB_DPA_WHY_BUDGET);

	assert_int_equal(vb_observe(b.process, OBSERVE_CHECK, NULL), 0);
	assert_int_equal(vb_dpa_call(b.thread, RV_TEXT, NULL, 0, &result), 0);
	assert_int_equal(result, 3);
	bed_close(&b);
}

static enum vb_seen refuse(struct vb_dpa_thread *thread, uint64_t addr, unsigned int size,
			   unsigned int kind, void *arg)
{
	(void)arg;
	(void)size;
	(void)kind;
	thread->cpu.s.cause = VB_DPA_CAUSE_STORE;
	thread->cpu.s.tval = addr + 1;
	return VB_SEEN_STOP;
}

/* What a checker refuses is a trap. */
static void test_refused_access(void **state)
{
	struct observe_ops ops = { .access = refuse };
	struct bed b = { 0 };
	int label;

	(void)state;
	rv_init(&b.p);
	rv_data(&b.p, "12345678", 8, 8);
	label = rv_data_label(&b.p, 0);
	rv_la(&b.p, 5, label);
	rv_emit(&b.p, OP_ld, 6, 5, 0, 0);
	rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&b, NULL);
	assert_int_equal(vb_observe(b.process, OBSERVE_CHECK, &ops), 0);
	assert_int_equal(vb_dpa_call(b.thread, RV_TEXT, NULL, 0, NULL), -EFAULT);
	assert_int_equal(b.traps, 1);
	assert_int_equal(b.at_trap.tval, rv_address(&b.p, label) + 1);
	assert_int_equal(b.at_trap.x[6], 0);
	bed_close(&b);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_instruction),
		cmocka_unit_test(test_stops),
		cmocka_unit_test(test_served_function),
		cmocka_unit_test(test_refused_access),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

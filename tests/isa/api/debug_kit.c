// SPDX-License-Identifier: MIT
/* See debug.h. */
#include "debug.h"

#include <poll.h>

#define PATIENCE_MS 120000 /* only reached when something is broken */

struct fn fn;

static int place_label(struct rv_prog *p)
{
	int label = rv_label(p);

	rv_place(p, label);
	return label;
}

static void emit_return(struct rv_prog *p)
{
	rv_emit(p, OP_jalr, 0, 1, 0, 0);
}

static int emit_calls(struct rv_prog *p, int number)
{
	int top = place_label(p);

	rv_emit(p, OP_addi, 17, 0, 0, number);
	rv_emit(p, OP_ecall, 0, 0, 0, 0);
	rv_emit(p, OP_addi, 10, 10, 0, -1);
	rv_branch(p, OP_bne, 10, 0, top);
	rv_emit(p, OP_addi, 10, 0, 0, 7);
	emit_return(p);
	return top;
}

static void make_program(struct rv_prog *p)
{
	int top;

	rv_init(p);
	rv_data(p, NULL, 4096, 64);
	fn.spin = place_label(p);
	rv_emit(p, OP_addi, 5, 5, 0, 1);
	rv_jump(p, 0, fn.spin);
	fn.count = place_label(p);
	rv_emit(p, OP_add, 11, 0, 10, 0);
	fn.count_top = place_label(p);
	rv_emit(p, OP_addi, 11, 11, 0, -1);
	rv_branch(p, OP_bne, 11, 0, fn.count_top);
	emit_return(p);
	fn.block = emit_calls(p, 1);
	fn.yields = emit_calls(p, 2);
	fn.calls = emit_calls(p, 4);
	fn.leave = emit_calls(p, 3);
	fn.touch = place_label(p);
	rv_emit(p, OP_ld, 5, 10, 0, 0);
	rv_emit(p, OP_sd, 0, 10, 10, 0);
	rv_emit(p, OP_lw, 5, 10, 0, 4);
	rv_emit(p, OP_sb, 0, 10, 10, 7);
	rv_emit(p, OP_amoadd_d, 5, 10, 10, 0);
	emit_return(p);
	fn.stack = place_label(p);
	rv_emit(p, OP_add, 11, 0, 10, 0);
	top = place_label(p);
	rv_emit(p, OP_sd, 0, 2, 11, -16);
	rv_emit(p, OP_ld, 12, 2, 0, -16);
	rv_emit(p, OP_addi, 11, 11, 0, -1);
	rv_branch(p, OP_bne, 11, 0, top);
	emit_return(p);
	fn.trap = place_label(p);
	rv_emit(p, OP_ld, 5, 0, 0, 0);
	fn.trap_after = place_label(p);
	rv_emit(p, OP_addi, 10, 0, 0, 9);
	emit_return(p);
	fn.ebreak = place_label(p);
	rv_emit(p, OP_ebreak, 0, 0, 0, 0);
	rv_emit(p, OP_addi, 10, 0, 0, 9);
	emit_return(p);
	fn.gate = place_label(p);
	rv_emit(p, OP_ld, 5, 10, 0, 8);
	rv_branch(p, OP_beq, 5, 0, fn.gate);
	rv_emit(p, OP_ld, 6, 10, 0, 16);
	rv_emit(p, OP_sd, 0, 6, 10, 0);
	emit_return(p);
	/* What comes before has 4 bytes each, so that tests can name places in it. */
	for (size_t i = 0; i < p->count; i++)
		p->insn[i].compress = false;
	fn.pass = place_label(p);
	rv_emit(p, OP_add, 11, 0, 10, 0);
	top = place_label(p);
	rv_emit(p, OP_addi, 11, 11, 0, -1);
	fn.pass_at = place_label(p);
	rv_emit(p, OP_addi, 12, 12, 0, 1);
	rv_branch(p, OP_bne, 11, 0, top);
	rv_emit(p, OP_add, 10, 0, 12, 0);
	emit_return(p);
}

static enum vb_dpa_action on_ecall(struct vb_dpa_thread *thread, struct vb_dpa_state *s, void *arg)
{
	static const enum vb_dpa_action actions[] = {
		VB_DPA_TRAP, VB_DPA_BLOCK, VB_DPA_YIELD, VB_DPA_EXIT, VB_DPA_CONTINUE,
	};

	(void)thread, (void)arg;
	return s->x[17] < 5 ? actions[s->x[17]] : VB_DPA_TRAP;
}

static void on_trap(struct vb_dpa_thread *thread, const struct vb_dpa_state *s, void *arg)
{
	struct place *l = arg;
	uint64_t cause = s->cause;

	l->traps++;
	if (l->divert)
		vb_dpa_thread_divert(thread, l->divert, &cause, 1, UINT64_MAX);
}

static void on_done(struct vb_dpa_thread *thread, enum vb_dpa_why why, void *arg)
{
	struct place *l = arg;

	(void)thread, (void)why;
	l->dones++;
}

static const struct vb_dpa_ops ops = { .ecall = on_ecall, .trap = on_trap, .done = on_done };

static void open_process(struct place *l, struct vb_dpa *dpa)
{
	struct vb_dpa_process_attr pa = { .tier = bed_tier, .ops = &ops, .ops_arg = l };
	uint8_t *image;
	size_t size;

	memset(l, 0, sizeof(*l));
	l->dpa = dpa;
	make_program(&l->p);
	rv_layout(&l->p);
	size = rv_elf_image(&l->p, &image);
	assert_int_equal(vb_dpa_process_create(l->dpa, image, size, &pa, &l->process, NULL), 0);
	assert_int_equal(vb_dpa_process_tier(l->process), bed_tier);
	free(image);
}

void open_place(struct place *l, const struct vb_dpa_attr *attr)
{
	struct vb_dpa *dpa;

	assert_int_equal(vb_dpa_create(attr, &dpa), 0);
	open_process(l, dpa);
}

void open_beside(struct place *l, const struct place *other)
{
	open_process(l, other->dpa);
}

void close_beside(struct place *l)
{
	assert_int_equal(vb_dpa_process_destroy(l->process), 0);
	rv_free(&l->p);
}

void close_place(struct place *l)
{
	close_beside(l);
	assert_int_equal(vb_dpa_destroy(l->dpa), 0);
}

uint64_t at(const struct place *l, int label)
{
	return rv_address(&l->p, label);
}

struct vb_dpa_thread *make(struct place *l)
{
	struct vb_dpa_thread *t;

	assert_int_equal(vb_dpa_thread_create(l->process, NULL, &t), 0);
	return t;
}

struct vb_dpa_thread *begin(struct place *l, int label, uint64_t arg)
{
	struct vb_dpa_thread *t = make(l);

	assert_int_equal(vb_dpa_thread_set_call(t, at(l, label), &arg, 1), 0);
	return t;
}

void start(struct vb_dpa_thread *t)
{
	assert_int_equal(vb_dpa_thread_start(t), 0);
}

void end(struct vb_dpa_thread *t)
{
	assert_int_equal(vb_dpa_thread_stop(t), 0);
	assert_int_equal(vb_dpa_thread_destroy(t), 0);
}

struct vb_dpa_debug *attach(struct place *l)
{
	struct vb_dpa_debug *d;

	assert_int_equal(vb_dpa_debug_attach(l->process, &d), 0);
	return d;
}

struct vb_dpa_stopped wait_stop(struct vb_dpa_debug *d)
{
	struct pollfd fd = { .fd = vb_dpa_debug_fd(d), .events = POLLIN };
	struct vb_dpa_stopped why;

	assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
	assert_true(vb_dpa_debug_stopped(d, &why));
	return why;
}

struct vb_dpa_stopped hold(struct vb_dpa_debug *d)
{
	vb_dpa_debug_hold(d);
	return wait_stop(d);
}

void expect_stop(struct vb_dpa_debug *d, enum vb_dpa_stop why, const struct vb_dpa_thread *t)
{
	struct vb_dpa_stopped stop = wait_stop(d);

	assert_int_equal(stop.why, why);
	assert_int_equal(stop.thread, t ? vb_dpa_thread_number(t) : 0);
}

static void resume(struct vb_dpa_debug *d, const struct vb_dpa_resume *how, unsigned int n)
{
	assert_int_equal(vb_dpa_debug_resume(d, how, n), 0);
}

void go_on(struct vb_dpa_debug *d)
{
	resume(d, &(struct vb_dpa_resume){ .go = VB_DPA_GO_ON }, 1);
}

void step_only(struct vb_dpa_debug *d, const struct vb_dpa_thread *t, uint64_t from, uint64_t to)
{
	resume(d, &(struct vb_dpa_resume){ vb_dpa_thread_number(t), VB_DPA_GO_STEP, from, to }, 1);
}

struct vb_dpa_state state_of(struct vb_dpa_debug *d, const struct vb_dpa_thread *t)
{
	struct vb_dpa_state s;

	assert_int_equal(vb_dpa_debug_state(d, vb_dpa_thread_number(t), &s), 0);
	return s;
}

void set_pc(struct vb_dpa_debug *d, const struct vb_dpa_thread *t, uint64_t pc)
{
	struct vb_dpa_state s = state_of(d, t);

	s.pc = pc;
	assert_int_equal(vb_dpa_debug_set_state(d, vb_dpa_thread_number(t), &s), 0);
}

enum vb_dpa_why wait_end(struct vb_dpa_thread *t)
{
	enum vb_dpa_why why;

	assert_int_equal(vb_dpa_thread_wait(t, PATIENCE_MS * 1000000ll, &why), 0);
	return why;
}

static void *call_main(void *arg)
{
	struct caller *c = arg;

	c->err = vb_dpa_call(c->thread, c->pc, &c->arg, 1, &c->result);
	c->over = true;
	return NULL;
}

void call_begin(struct caller *c, struct vb_dpa_thread *t, uint64_t pc, uint64_t arg)
{
	*c = (struct caller){ .thread = t, .pc = pc, .arg = arg };
	assert_int_equal(pthread_create(&c->host, NULL, call_main, c), 0);
}

void call_end(struct caller *c)
{
	assert_int_equal(pthread_join(c->host, NULL), 0);
}

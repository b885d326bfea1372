// SPDX-License-Identifier: MIT
/* See bed.h. */
#include "bed.h"

#include <inttypes.h>

enum vb_dpa_tier bed_tier = VB_DPA_TIER_INTERP;

void bed_main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "jit"))
		bed_tier = VB_DPA_TIER_JIT;
	unsetenv("VERBATIM_DPA_TIER");
	unsetenv("VERBATIM_DPA_SEED");
	setenv("VERBATIM_DPA_VERIFY", "abort", 1); /* every translation keeps its contract */
}

static enum vb_dpa_action on_ecall(struct vb_dpa_thread *thread, struct vb_dpa_state *s, void *arg)
{
	struct bed *b = arg;

	(void)thread;
	if (s->x[17] == 93) {
		b->status = (int)s->x[10];
		return VB_DPA_EXIT;
	}
	if (s->x[17] != 64)
		return VB_DPA_TRAP;
	b->out = realloc(b->out, b->out_size + s->x[12] + 1);
	if (vb_dpa_mem_read(b->process, s->x[11], b->out + b->out_size, s->x[12]))
		return VB_DPA_TRAP;
	b->out_size += s->x[12];
	s->x[10] = s->x[12];
	return VB_DPA_CONTINUE;
}

static void on_trap(struct vb_dpa_thread *thread, const struct vb_dpa_state *s, void *arg)
{
	struct bed *b = arg;

	if (thread != b->thread) /* others run on other host threads */
		return;
	b->traps++;
	b->at_trap = *s;
}

static const struct vb_dpa_ops ops = { .ecall = on_ecall, .trap = on_trap };

static void open_bed(struct bed *b, const struct vb_dpa_attr *attr, uint64_t limit)
{
	struct vb_dpa_process_attr pa = {
		.limit = limit, .tier = bed_tier, .ops = &ops, .ops_arg = b, .name = "bed"
	};
	struct vb_dpa_error error = { "" };
	uint8_t *image;
	size_t size;

	if (!b->p.text)
		rv_layout(&b->p);
	size = rv_elf_image(&b->p, &image);
	assert_int_equal(vb_dpa_create(attr, &b->dpa), 0);
	if (vb_dpa_process_create(b->dpa, image, size, &pa, &b->process, &error))
		fail_msg("process: %s", error.text);
	free(image);
	/* A test of the translator must not pass because the interpreter stood in for it. */
	assert_int_equal(vb_dpa_process_tier(b->process), bed_tier);
	assert_int_equal(vb_dpa_thread_create(b->process, NULL, &b->thread), 0);
}

void bed_open(struct bed *b, const struct vb_dpa_attr *attr)
{
	open_bed(b, attr, 0);
}

void bed_open_limit(struct bed *b, uint64_t limit)
{
	open_bed(b, NULL, limit);
}

void bed_close(struct bed *b)
{
	assert_int_equal(vb_dpa_thread_destroy(b->thread), 0);
	assert_int_equal(vb_dpa_process_destroy(b->process), 0);
	assert_int_equal(vb_dpa_destroy(b->dpa), 0);
	rv_free(&b->p);
	free(b->out);
	memset(b, 0, sizeof(*b));
}

struct vb_dpa_state *bed_state(struct bed *b)
{
	return vb_dpa_thread_state(b->thread);
}

void bed_reset(struct bed *b)
{
	struct vb_dpa_state *s = bed_state(b);

	memset(s->x, 0, sizeof(s->x));
	s->pc = RV_TEXT;
}

enum vb_dpa_why bed_run(struct bed *b, uint64_t max)
{
	enum vb_dpa_why why;

	assert_int_equal(vb_dpa_thread_run(b->thread, max, &why), 0);
	return why;
}

void bed_same(struct bed *b, const struct rv_model *m, const char *what)
{
	const struct vb_dpa_state *s = bed_state(b);
	char buf[64] = "";

	if (s->pc != m->pc)
		fail_msg("%s: pc 0x%" PRIx64 ", expected 0x%" PRIx64, what, s->pc, m->pc);
	if (s->instret != m->count)
		fail_msg("%s: pc 0x%" PRIx64 " instret %" PRIu64 ", expected %" PRIu64, what, s->pc,
			 s->instret, m->count);
	if (m->pc - RV_TEXT < m->prog->text_size && m->index[(m->pc - RV_TEXT) / 2] >= 0)
		rv_text(&m->prog->insn[m->index[(m->pc - RV_TEXT) / 2]], buf, sizeof(buf));
	for (int r = 1; r < 32; r++)
		if (s->x[r] != m->x[r])
			fail_msg("%s: before 0x%" PRIx64 " (%s): x%d 0x%" PRIx64
				 ", expected 0x%" PRIx64,
				 what, s->pc, buf, r, s->x[r], m->x[r]);
	assert_int_equal(s->x[0], 0);
}

void bed_expect_trap(struct bed *b, enum vb_dpa_cause cause, uint64_t tval)
{
	struct rv_model m;

	if (!b->dpa)
		bed_open(b, NULL);
	rv_model_init(&m, &b->p);
	assert_int_equal(rv_model_run(&m, ~0ull), RV_FAULT);
	bed_reset(b);
	b->traps = 0;
	m.count += bed_state(b)->instret;
	assert_int_equal(bed_run(b, UINT64_MAX), VB_DPA_WHY_TRAP);
	bed_same(b, &m, "trap");
	if (bed_state(b)->cause != cause || bed_state(b)->tval != tval)
		fail_msg("trap at 0x%" PRIx64 ": %s 0x%" PRIx64 ", expected %s 0x%" PRIx64, m.pc,
			 vb_dpa_cause_name((enum vb_dpa_cause)bed_state(b)->cause),
			 bed_state(b)->tval, vb_dpa_cause_name(cause), tval);
	assert_int_equal(b->traps, 1);
	assert_int_equal(b->at_trap.pc, m.pc);
	assert_memory_equal(b->at_trap.x, bed_state(b)->x, sizeof(m.x));
	rv_model_free(&m);
}

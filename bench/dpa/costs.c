// SPDX-License-Identifier: MIT
/*
 * What the engine itself costs: translating a large program, changing threads, calling a function.
 *
 * A preempted change: two spinning threads share one execution unit with short slices; the same
 * work in one thread is taken off. A yield: two threads that do nothing but yield.
 */
#include "bench.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dpa/dpa.h"
#include "rv.h"

enum { SLICE = 4000, SPINS = 20000000, YIELDS = 200000, CALLS = 200000, ATOMICS = 500000 };
enum { TRANSLATIONS = 100 };

/* CPU time of all threads: only one works at a time here, and others may use the machine. */
static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static enum vb_dpa_action yield(struct vb_dpa_thread *thread, struct vb_dpa_state *state, void *arg)
{
	(void)thread, (void)state, (void)arg;
	return VB_DPA_YIELD;
}

static const struct vb_dpa_ops ops = { .ecall = yield };

struct bed {
	struct vb_dpa *dpa;
	struct vb_dpa_process *process;
	struct vb_dpa_thread *thread[2];
	uint64_t spin, yields, atomics;
};

static void bed_down(struct bed *b)
{
	for (int i = 0; i < 2; i++)
		if (b->thread[i])
			vb_dpa_thread_destroy(b->thread[i]);
	if (b->process)
		vb_dpa_process_destroy(b->process);
	if (b->dpa)
		vb_dpa_destroy(b->dpa);
}

/* atomics(n): LR, SC and an AMO in each turn. */
static int make_atomics(struct rv_prog *p)
{
	int entry = rv_label(p), top = rv_label(p);

	rv_place(p, entry);
	rv_la(p, 11, rv_data_label(p, rv_data(p, NULL, 8, 8)));
	rv_place(p, top);
	rv_emit(p, OP_lr_d, 5, 11, 0, 0);
	rv_emit(p, OP_addi, 5, 5, 0, 1);
	rv_emit(p, OP_sc_d, 6, 11, 5, 0);
	rv_emit(p, OP_amoor_d, 5, 11, 10, 0);
	rv_emit(p, OP_addi, 10, 10, 0, -1);
	rv_branch(p, OP_bne, 10, 0, top);
	rv_emit(p, OP_jalr, 0, 1, 0, 0);
	return entry;
}

/* spin(n): count down; yields(n): the same with an ecall in each turn. */
static int bed_up(struct bed *b)
{
	struct vb_dpa_attr attr = { .eus = 1, .host_threads = 1, .slice = SLICE };
	struct vb_dpa_process_attr pa = { .ops = &ops };
	struct vb_dpa_thread_attr ta = { .affinity = VB_DPA_AFFINITY_STRICT };
	struct rv_prog p;
	uint8_t *image;
	size_t size;
	int top, rc, yields = -1, atomics;

	memset(b, 0, sizeof(*b));
	rv_init(&p);
	for (int k = 0; k < 2; k++) {
		if (k) {
			yields = rv_label(&p);
			rv_place(&p, yields);
		}
		top = rv_label(&p);
		rv_place(&p, top);
		rv_emit(&p, OP_addi, 10, 10, 0, -1);
		if (k)
			rv_emit(&p, OP_ecall, 0, 0, 0, 0);
		rv_branch(&p, OP_bne, 10, 0, top);
		rv_emit(&p, OP_jalr, 0, 1, 0, 0);
	}
	atomics = make_atomics(&p);
	rv_layout(&p);
	size = rv_elf_image(&p, &image);
	b->spin = RV_TEXT;
	b->yields = rv_address(&p, yields);
	b->atomics = rv_address(&p, atomics);
	rv_free(&p);
	rc = vb_dpa_create(&attr, &b->dpa);
	if (!rc)
		rc = vb_dpa_process_create(b->dpa, image, size, &pa, &b->process, NULL);
	for (int i = 0; i < 2 && !rc; i++)
		rc = vb_dpa_thread_create(b->process, &ta, &b->thread[i]);
	free(image);
	return rc;
}

/* Run `threads` threads of a function side by side; the wall time, as one host thread does all the work. */
static double side_by_side(struct bed *b, unsigned threads, uint64_t pc, uint64_t turns,
			   uint64_t *slices)
{
	struct vb_dpa_thread_counters before, after;
	double start;

	*slices = 0;
	for (unsigned i = 0; i < threads; i++)
		vb_dpa_thread_set_call(b->thread[i], pc, &turns, 1);
	vb_dpa_thread_counters(b->thread[0], &before);
	start = now_ns();
	for (unsigned i = 0; i < threads; i++)
		vb_dpa_thread_start(b->thread[i]);
	for (unsigned i = 0; i < threads; i++)
		vb_dpa_thread_wait(b->thread[i], -1, NULL);
	start = now_ns() - start;
	vb_dpa_thread_counters(b->thread[0], &after);
	*slices = (after.slices - before.slices) * threads;
	return start;
}

/* The same number of turns in one thread, on the calling host thread, without slices. */
static int in_one(struct bed *b, uint64_t pc, uint64_t turns, double *time)
{
	enum vb_dpa_why why;
	double start = now_ns();
	int rc = vb_dpa_thread_set_call(b->thread[0], pc, &turns, 1);

	if (!rc)
		rc = vb_dpa_thread_run(b->thread[0], UINT64_MAX, &why);
	*time = now_ns() - start;
	return rc;
}

static int measure_threads(const struct options *o, struct costs *c)
{
	double preempt[MAX_REPS], yields[MAX_REPS], calls[MAX_REPS], atomics[MAX_REPS];
	double alone, both, start;
	unsigned scale = o->quick ? 50 : 1;
	uint64_t slices, one = 1, result;
	struct bed b;
	int rc = bed_up(&b);

	if (!rc) /* once for the translator to learn from */
		rc = in_one(&b, b.spin, SPINS / scale, &alone);
	for (unsigned r = 0; r < o->reps && !rc; r++) {
		rc = in_one(&b, b.spin, SPINS / scale, &alone);
		both = side_by_side(&b, 2, b.spin, SPINS / scale / 2, &slices);
		preempt[r] = slices ? (both - alone) / (double)slices : 0;
		yields[r] = side_by_side(&b, 2, b.yields, YIELDS / scale, &slices) /
			    (2.0 * YIELDS / scale);
		start = now_ns();
		for (unsigned i = 0; i < CALLS / scale && !rc; i++)
			rc = vb_dpa_call(b.thread[0], b.spin, &one, 1, &result);
		calls[r] = (now_ns() - start) / (CALLS / (double)scale);
		if (!rc)
			rc = in_one(&b, b.atomics, ATOMICS / scale, &atomics[r]);
		atomics[r] /= ATOMICS / (double)scale;
	}
	bed_down(&b);
	if (rc) {
		fprintf(stderr, "bench-dpa: threads: %s\n", strerror(-rc));
		return 1;
	}
	c->preempt_ns = median(preempt, o->reps);
	c->yield_ns = median(yields, o->reps);
	c->call_ns = median(calls, o->reps);
	c->atomics_ns = median(atomics, o->reps);
	return 0;
}

struct translated {
	double ms;           /* by the clock, all but the check */
	double load, loaded; /* CPU time of loading in ms, without the check and with it */
	struct vb_dpa_text_stats s;
};

static void keep_least(double *least, double value)
{
	if (*least == 0 || value < *least)
		*least = value;
}

/* Load once, checked or not. */
static int time_load(struct vb_dpa *dpa, const void *image, size_t size, bool check,
		     struct translated *t)
{
	struct vb_dpa_process_attr pa = { .tier = VB_DPA_TIER_JIT };
	struct vb_dpa_process *process;
	struct vb_dpa_error error = { "" };
	double start;
	int rc;

	setenv("VERBATIM_DPA_VERIFY", check ? "1" : "0", 1);
	start = now_ns();
	rc = vb_dpa_process_create(dpa, image, size, &pa, &process, &error);
	keep_least(check ? &t->loaded : &t->load, (now_ns() - start) * 1e-6);
	unsetenv("VERBATIM_DPA_VERIFY");
	if (rc) {
		fprintf(stderr, "bench-dpa: a program to translate: %s\n", error.text);
		return 1;
	}
	vb_dpa_text_stats(process, &t->s);
	if (!check)
		keep_least(&t->ms, (double)t->s.translate_ns * 1e-6);
	vb_dpa_process_destroy(process);
	return 0;
}

/*
 * The smallest times of many loads, with and without the check in turns: the first ones meet cold
 * memory, and others may use the machine; what is left is the work.
 */
static int time_loads(const struct options *o, const void *image, size_t size, struct translated *t)
{
	struct vb_dpa *dpa;
	int rc = 0;

	*t = (struct translated){ 0 };
	if (vb_dpa_create(NULL, &dpa))
		return 1;
	for (unsigned r = 0; r < (o->quick ? o->reps : TRANSLATIONS) && !rc; r++)
		rc = time_load(dpa, image, size, false, t) || time_load(dpa, image, size, true, t);
	vb_dpa_destroy(dpa);
	return rc;
}

/* What the check takes for a program of one instruction. */
static int measure_check(const struct options *o, struct costs *c)
{
	struct translated t;
	struct rv_prog p;
	uint8_t *image;
	size_t size;
	int rc;

	rv_init(&p);
	rv_emit(&p, OP_jalr, 0, 1, 0, 0);
	rv_layout(&p);
	size = rv_elf_image(&p, &image);
	rv_free(&p);
	rc = time_loads(o, image, size, &t);
	free(image);
	c->verify_ms = t.loaded - t.load;
	return rc;
}

static int measure_translation(const struct options *o, struct costs *c)
{
	struct translated t;
	static uint8_t image[8 << 20];
	char path[512];
	size_t size;
	FILE *f;

	snprintf(path, sizeof(path), "%s/bulk.elf", o->files);
	f = fopen(path, "rb");
	if (!f) {
		perror(path);
		return 1;
	}
	size = fread(image, 1, sizeof(image), f);
	fclose(f);
	if (time_loads(o, image, size, &t))
		return 1;
	c->text_kib = (double)t.s.text_bytes / 1024;
	c->translate_ms = t.ms;
	c->translate_ms_per_100k = t.ms * 102400 / (double)t.s.text_bytes;
	c->verify_ms_per_100k = (t.loaded - t.load) * 102400 / (double)t.s.text_bytes;
	c->code_ratio = (double)t.s.code_bytes / (double)t.s.text_bytes;
	return measure_check(o, c);
}

int costs_measure(const struct options *o, struct costs *c)
{
	memset(c, 0, sizeof(*c));
	return measure_translation(o, c) || measure_threads(o, c);
}

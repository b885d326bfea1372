// SPDX-License-Identifier: MIT
/*
 * Functions that walk pointers in straight lines: what a translator believes of a register (below
 * the limit, so far from where it was checked, the same as another) is carried along by moves, small
 * and large steps, and accesses of every kind, among them those that may not touch memory at all, such
 * as an SC without a reservation.
 *
 * Nothing keeps the pointers inside of memory: most functions end with a trap, and where they end, and
 * with what in registers and memory, is the interpreter's to say (api/facts.c). A function takes its
 * registers as it finds them and returns through x1, which it leaves alone.
 */
#include "internal.h"

enum { POINTERS = 5 };

struct walker {
	struct gen *g;
	unsigned p[POINTERS]; /* registers that are used as addresses */
};

static unsigned pointer(struct walker *w)
{
	return w->p[rng_below(&w->g->r, POINTERS)];
}

/* Any register but x1, which holds the way back. */
static unsigned plain(struct walker *w)
{
	unsigned r;

	do
		r = gen_any(w->g);
	while (r == 1);
	return r;
}

/* Whole pages, so that alignment stays; most of them just within what a check may vouch for. */
static i64 big_step(struct rng *r)
{
	static const i32 pages[] = { 0x3f, 0x3f, 0x3f, 0x3e, 0x20, 0x40, 0x41, 0x10, 1, 2, 0x80 };
	i64 step = (i64)pages[rng_below(r, sizeof(pages) / sizeof(pages[0]))] << 12;

	return rng_chance(r, 30) ? -step : step;
}

static i64 small_step(struct rng *r)
{
	static const int16_t step[] = { 8, 16, -8, 4, 2040, 2047, -2048, 0, 1, 1024, -1024 };

	return step[rng_below(r, sizeof(step) / sizeof(step[0]))];
}

/* to = from + a constant: in one instruction, through a register, in either order of operands */
static void move(struct walker *w, unsigned to, unsigned from)
{
	struct gen *g = w->g;
	unsigned t;

	switch (rng_below(&g->r, 5)) {
	case 0:
		gen_emit(g, OP_addi, to, from, 0, small_step(&g->r));
		break;
	case 1:
		gen_emit(g, OP_add, to, from, 0, 0);
		break;
	default:
		do
			t = plain(w);
		while (!t || t == from);
		gen_emit(g, OP_lui, t, 0, 0, big_step(&g->r));
		if (rng_chance(&g->r, 20))
			gen_emit(g, rng_chance(&g->r, 50) ? OP_addiw : OP_addi, t, t, 0,
				 8 * (i64)rng_below(&g->r, 64));
		if (rng_chance(&g->r, 50))
			gen_emit(g, OP_add, to, from, t, 0);
		else
			gen_emit(g, OP_add, to, t, from, 0);
		break;
	}
}

/* Most likely it fails: then it writes its result and touches nothing. */
static void store_conditional(struct walker *w, unsigned base)
{
	struct gen *g = w->g;

	gen_emit(g, rng_chance(&g->r, 40) ? OP_sc_d : OP_sc_w, rng_chance(&g->r, 70) ? 0 : plain(w),
		 base, plain(w), rng_below(&g->r, 4));
}

/* An access that touches memory, or one that only may. */
static void touch(struct walker *w, unsigned base, bool certain)
{
	struct gen *g = w->g;
	unsigned k = rng_below(&g->r, 100), order = rng_below(&g->r, 4);
	bool wide = rng_chance(&g->r, 40);

	if (!certain && k < 70) {
		store_conditional(w, base);
	} else if (k < 40) {
		enum rv_op op = gen_pick(g, FMT_LD);

		gen_emit(g, op, rng_chance(&g->r, 40) ? 0 : plain(w), base, 0, small_step(&g->r));
	} else if (k < 70) {
		gen_emit(g, gen_pick(g, FMT_ST), 0, base, plain(w), small_step(&g->r));
	} else if (k < 80) {
		gen_emit(g, wide ? OP_lr_d : OP_lr_w, rng_chance(&g->r, 50) ? 0 : plain(w), base, 0,
			 order);
	} else if (k < 90) {
		gen_emit(g, wide ? OP_sc_d : OP_sc_w, plain(w), base, plain(w), order);
	} else {
		gen_emit(g, gen_pick(g, FMT_AM), rng_chance(&g->r, 50) ? 0 : plain(w), base,
			 plain(w), order);
	}
}

/* Check, then step after step with something in between that might carry the check on. */
static void walk(struct walker *w)
{
	struct gen *g = w->g;
	unsigned base = pointer(w), n = 1 + rng_below(&g->r, 9), t;
	i64 step = big_step(&g->r);
	bool constant = rng_chance(&g->r, 70), only_sc = rng_chance(&g->r, 60);

	do
		t = plain(w);
	while (!t || t == base);
	touch(w, base, true);
	for (unsigned i = 0; i < n; i++) {
		if (constant) {
			gen_emit(g, OP_lui, t, 0, 0, step);
			gen_emit(g, OP_add, base, base, t, 0);
		} else {
			move(w, base, base);
		}
		if (only_sc)
			store_conditional(w, base);
		else if (rng_chance(&g->r, 90))
			touch(w, base, false);
	}
	touch(w, base, true);
}

/* A reservation, then the pointer goes elsewhere, perhaps comes back, and the SC follows. */
static void reserve(struct walker *w)
{
	struct gen *g = w->g;
	unsigned base = pointer(w), other = pointer(w);
	bool wide = rng_chance(&g->r, 50);
	i64 step = small_step(&g->r) & ~7;

	gen_emit(g, wide ? OP_lr_d : OP_lr_w, rng_chance(&g->r, 50) ? 0 : plain(w), base, 0, 0);
	if (rng_chance(&g->r, 50))
		gen_emit(g, OP_addi, base, base, 0, step);
	if (rng_chance(&g->r, 40))
		touch(w, other, true);
	if (rng_chance(&g->r, 50))
		gen_emit(g, OP_addi, base, base, 0, -step);
	gen_emit(g, wide == rng_chance(&g->r, 90) ? OP_sc_d : OP_sc_w, plain(w), base, plain(w), 0);
	touch(w, base, rng_chance(&g->r, 50));
}

/* Code that is entered from two sides: what was known on one of them is not known behind it. */
static void join(struct walker *w)
{
	struct gen *g = w->g;
	int over = rv_label(g->p);
	unsigned base = pointer(w);

	if (rng_chance(&g->r, 50))
		touch(w, base, true);
	rv_branch(g->p, gen_pick(g, FMT_BR), gen_any(g), gen_any(g), over);
	move(w, base, rng_chance(&g->r, 50) ? base : pointer(w));
	if (rng_chance(&g->r, 50))
		touch(w, base, rng_chance(&g->r, 50));
	rv_place(g->p, over);
	touch(w, base, true);
}

static void function(struct walker *w)
{
	struct gen *g = w->g;
	unsigned n = 2 + rng_below(&g->r, 5);

	for (unsigned i = 0; i < POINTERS; i++)
		do
			w->p[i] = plain(w);
		while (!w->p[i]);
	if (rng_chance(&g->r, 20))
		w->p[0] = 2;
	while (n--)
		switch (rng_below(&g->r, 6)) {
		case 0:
		case 1:
			walk(w);
			break;
		case 2:
			reserve(w);
			break;
		case 3:
			join(w);
			break;
		case 4:
			move(w, pointer(w), pointer(w));
			touch(w, pointer(w), rng_chance(&g->r, 60));
			break;
		default:
			touch(w, pointer(w), true);
			touch(w, pointer(w), rng_chance(&g->r, 60));
			break;
		}
	rv_emit(g->p, OP_jalr, 0, 1, 0, 0);
}

void gen_facts(struct rv_prog *p, u64 seed, unsigned functions, int *labels)
{
	struct gen g = { .p = p, .r = { seed }, .flags = GEN_OURS };
	struct walker w = { .g = &g };

	rv_init(p);
	for (unsigned n = 0; n < functions; n++) {
		labels[n] = rv_label(p);
		rv_place(p, labels[n]);
		function(&w);
	}
	rv_data(p, NULL, RV_PAGE, 16);
	rv_layout(p);
}

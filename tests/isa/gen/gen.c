// SPDX-License-Identifier: MIT
/*
 * The generator: many random programs in one ELF, each a valid, ending program by construction.
 *
 * A program owns one block of data; a random register holds the block's middle ("base") throughout:
 *
 *      -512            -256                      +256              +528    +1040
 *       | initial x1..31 |  scratch, random bytes  | record to write | stack |
 *                        ^ loads, stores and atomics stay in here
 *
 * A program loads all registers, runs a random body, stores all registers, sums its scratch and
 * writes the record. Which register is base, loop counter, link or address differs from program to
 * program, so every register meets every role. `busy` holds those that code being made must not
 * write.
 *
 * Loops have a fixed trip count, calls only go to functions of a greater depth, so every program
 * ends; how many instructions that takes depends on data and is the model's business.
 */
#include "internal.h"

#include <string.h>

static void body(struct gen *g, unsigned nest, int size);
static void local(struct gen *g);

unsigned gen_any(struct gen *g)
{
	return rng_below(&g->r, 32);
}

/* A register that may be written; x0 now and then, where it makes sense. */
unsigned gen_dest(struct gen *g)
{
	unsigned r;

	do
		r = gen_any(g);
	while (g->busy >> r & 1);
	return r;
}

/* A register that can hold something: never x0. */
unsigned gen_take(struct gen *g)
{
	unsigned r;

	do
		r = gen_dest(g);
	while (!r);
	g->busy |= 1u << r;
	return r;
}

void gen_give(struct gen *g, unsigned r)
{
	g->busy &= ~(1u << r);
}

struct rv_insn *gen_emit(struct gen *g, enum rv_op op, unsigned rd, unsigned rs1, unsigned rs2,
			 i64 imm)
{
	struct rv_insn *i = rv_emit(g->p, op, rd, rs1, rs2, imm);

	i->compress = !(g->flags & GEN_NO_COMPRESS) && !rng_chance(&g->r, 20);
	g->left--;
	return i;
}

static i64 imm12(struct gen *g)
{
	i64 v = (i64)(rng_next(&g->r) << 52) >> 52;

	return rng_chance(&g->r, 50) ? v >> 6 : v;
}

enum rv_op gen_pick(struct gen *g, enum rv_format format)
{
	enum rv_op op;

	do
		op = (enum rv_op)rng_below(&g->r, OP_COUNT);
	while (rv_info[op].format != format || (op == OP_ctzw && !(g->flags & GEN_OURS)));
	return op;
}

static void computing(struct gen *g)
{
	static const enum rv_format kind[] = { FMT_R,  FMT_R,  FMT_R,  FMT_I, FMT_I,
					       FMT_SH, FMT_SH, FMT_U1, FMT_U };
	enum rv_format format = kind[rng_below(&g->r, sizeof(kind) / sizeof(kind[0]))];
	unsigned rd = gen_dest(g), rs1 = rng_chance(&g->r, 40) ? rd : gen_any(g);
	enum rv_op op = gen_pick(g, format);
	i64 imm = 0;

	if (format == FMT_I)
		imm = imm12(g);
	else if (format == FMT_SH)
		imm = rng_below(&g->r, 1u << rv_info[op].arg);
	else if (format == FMT_U)
		imm = (i32)(rng_next(&g->r) & 0xfffff000) >> (rng_chance(&g->r, 50) ? 14 : 0) &
		      ~0xfff;
	gen_emit(g, op, rd, rs1, format == FMT_R ? gen_any(g) : 0, imm);
}

/* The forms compilers love and random choice seldom hits: low registers, two operands. */
static void compact(struct gen *g)
{
	static const enum rv_op op[] = { OP_addi, OP_addiw, OP_andi, OP_sub,  OP_xor,
					 OP_or,   OP_and,   OP_subw, OP_addw, OP_slli,
					 OP_srli, OP_srai,  OP_add };
	unsigned n = rng_below(&g->r, sizeof(op) / sizeof(op[0])), rd = 8 + rng_below(&g->r, 8);
	unsigned rs2 = 8 + rng_below(&g->r, 8);
	enum rv_format format = rv_info[op[n]].format;

	if (g->busy >> rd & 1)
		return;
	if (format == FMT_R)
		gen_emit(g, op[n], rd, rd, rs2, 0);
	else
		gen_emit(g, op[n], rd, rd, 0,
			 format == FMT_SH ? rng_below(&g->r, 64) : (i64)rng_below(&g->r, 64) - 32);
}

/* A register that points into the scratch with at least `room` bytes after it; give it back after use. */
unsigned gen_address(struct gen *g, unsigned room, bool aligned)
{
	unsigned r = gen_take(g), mask = aligned ? 0xf8 : 0xff;

	if (rng_chance(&g->r, 50)) { /* constant distance */
		unsigned off = rng_below(&g->r, 2 * SCRATCH - room + 1);

		gen_emit(g, OP_addi, r, g->base, 0, (i64)(aligned ? off & ~7u : off) - SCRATCH);
		return r;
	}
	gen_emit(g, OP_andi, r, gen_any(g), 0, (i64)mask); /* computed distance */
	if (rng_chance(&g->r, 30))
		gen_emit(g, OP_sh1add, r, r, g->base, 0), gen_emit(g, OP_addi, r, r, 0, -SCRATCH);
	else
		gen_emit(g, OP_add, r, r, g->base, 0);
	if (room > 1 && mask == 0xff)
		gen_emit(g, OP_addi, r, r, 0, -(i64)room);
	return r;
}

static void load_store(struct gen *g)
{
	bool load = rng_chance(&g->r, 55);
	enum rv_op op = gen_pick(g, load ? FMT_LD : FMT_ST);
	unsigned size = rv_info[op].arg, r, reg;
	i64 off = (i64)rng_below(&g->r, 2 * SCRATCH - size + 1) - SCRATCH;

	if (rng_chance(&g->r, 60)) { /* straight off base; mostly aligned, as compilers do */
		if (rng_chance(&g->r, 80))
			off &= -(i64)size;
		gen_emit(g, op, load ? gen_dest(g) : 0, g->base, load ? 0 : gen_any(g), off);
		return;
	}
	r = gen_address(g, 24, false);
	reg = load ? rng_chance(&g->r, 30) ? r : gen_dest(g) : gen_any(g);
	gen_emit(g, op, load ? reg : 0, r, load ? 0 : reg, (i64)rng_below(&g->r, 16));
	gen_give(g, r);
}

static void atomic(struct gen *g)
{
	unsigned r = gen_address(g, 8, true), rd = rng_chance(&g->r, 20) ? r : gen_dest(g);
	unsigned order = rng_below(&g->r, 4), value = gen_any(g);
	bool wide = rng_chance(&g->r, 50);

	if (rng_chance(&g->r, 60)) {
		gen_emit(g, gen_pick(g, FMT_AM), rd, r, value, order);
	} else if (rng_chance(&g->r, 70)) { /* a retry loop as compilers emit it */
		unsigned got = gen_take(g), new = gen_take(g);
		int again = rv_label(g->p);

		rv_place(g->p, again);
		gen_emit(g, wide ? OP_lr_d : OP_lr_w, got, r, 0, order);
		gen_emit(g, gen_pick(g, FMT_R), new, got, gen_any(g), 0);
		gen_emit(g, wide ? OP_sc_d : OP_sc_w, new, r, new, order);
		rv_branch(g->p, OP_bne, new, 0, again);
		gen_give(g, got);
		gen_give(g, new);
	} else { /* nothing reserved: must fail and store nothing */
		gen_emit(g, wide ? OP_sc_d : OP_sc_w, 0, r, 0, 0);
		gen_emit(g, wide ? OP_sc_d : OP_sc_w, gen_dest(g), r, value, order);
	}
	gen_give(g, r);
}

static void branch_to(struct gen *g, int label)
{
	unsigned rs1 = gen_any(g), rs2 = rng_chance(&g->r, 30)   ? 0
					 : rng_chance(&g->r, 10) ? rs1
								 : gen_any(g);

	rv_branch(g->p, gen_pick(g, FMT_BR), rs1, rs2, label);
	g->p->insn[g->p->count - 1].compress = !(g->flags & GEN_NO_COMPRESS);
}

static void if_else(struct gen *g, unsigned nest)
{
	int other = rv_label(g->p), end = rv_label(g->p);

	branch_to(g, other);
	body(g, nest + 1, 1 + (int)rng_below(&g->r, 8));
	if (rng_chance(&g->r, 50)) {
		rv_jump(g->p, 0, end);
		rv_place(g->p, other);
		body(g, nest + 1, 1 + (int)rng_below(&g->r, 8));
	} else {
		rv_place(g->p, other);
	}
	rv_place(g->p, end);
}

static void loop(struct gen *g, unsigned nest)
{
	unsigned counter = gen_take(g), n = 1 + rng_below(&g->r, 6), bound = 0;
	int top = rv_label(g->p), test = rv_label(g->p);
	bool test_first = rng_chance(&g->r, 30), up = rng_chance(&g->r, 30);

	if (g->trips * n > 64)
		n = 1;
	g->trips *= n;
	if (up) {
		bound = gen_take(g);
		gen_emit(g, OP_addi, bound, 0, 0, n);
	}
	gen_emit(g, OP_addi, counter, 0, 0, up ? 0 : n + test_first);
	if (test_first && !up)
		rv_jump(g->p, 0, test);
	rv_place(g->p, top);
	body(g, nest + 1, 2 + (int)rng_below(&g->r, 12));
	rv_place(g->p, test);
	gen_emit(g, OP_addi, counter, counter, 0, up ? 1 : -1);
	if (up)
		rv_branch(g->p, rng_chance(&g->r, 50) ? OP_blt : OP_bltu, counter, bound, top);
	else if (rng_chance(&g->r, 50))
		rv_branch(g->p, OP_bne, counter, 0, top);
	else
		rv_branch(g->p, OP_blt, 0, counter, top);
	if (up)
		gen_give(g, bound);
	gen_give(g, counter);
	g->trips /= n;
}

/* A function this place may call: one that spares the busy registers; made later, out of line. */
static struct fn *callee(struct gen *g, int link)
{
	struct fn *f;

	for (unsigned n = 0; n < g->fns; n++) {
		f = &g->fn[n];
		if (f->depth > g->depth && !(g->busy & ~f->busy) &&
		    (link < 0 ? !(g->busy >> f->link & 1) : f->link == (unsigned)link) &&
		    rng_chance(&g->r, 60))
			return f;
	}
	if (g->fns == MAX_FN || g->depth >= 3)
		return NULL;
	f = &g->fn[g->fns++];
	memset(f, 0, sizeof(*f));
	f->label = rv_label(g->p);
	f->depth = g->depth + 1;
	if (link >= 0)
		f->link = (unsigned)link;
	else if (!(g->busy & 2) && rng_chance(&g->r, 60))
		f->link = 1;
	else if (!(g->busy & 32) && rng_chance(&g->r, 40))
		f->link = 5;
	else
		gen_give(g, f->link = gen_take(g));
	f->busy = g->busy | 1u << f->link;
	return f;
}

static void call(struct gen *g)
{
	struct fn *f = callee(g, -1);
	unsigned via;

	if (!f)
		return;
	if (rng_chance(&g->r, 60)) {
		rv_jump(g->p, f->link, f->label);
		return;
	}
	/* Through a pointer; the link register itself may hold it. */
	via = rng_chance(&g->r, 30) ? f->link : gen_take(g);
	rv_la(g->p, via, f->label);
	gen_emit(g, OP_jalr, f->link, via, 0, 0);
	if (via != f->link)
		gen_give(g, via);
}

/* A jump through a table in data, indexed by what a register happens to hold. */
static void table(struct gen *g, unsigned nest)
{
	unsigned r = gen_take(g), cases = rng_chance(&g->r, 50) ? 4 : 2, t;
	size_t at = rv_data(g->p, NULL, 8 * cases, 8);
	int end = rv_label(g->p);

	gen_emit(g, OP_andi, r, gen_any(g), 0, cases - 1);
	t = gen_take(g);
	rv_la(g->p, t, rv_data_label(g->p, at));
	gen_emit(g, OP_sh3add, t, r, t, 0);
	gen_emit(g, OP_ld, t, t, 0, 0);
	gen_emit(g, OP_jalr, 0, t, 0, 0);
	gen_give(g, r);
	gen_give(g, t);
	for (unsigned n = 0; n < cases; n++) {
		int here = rv_label(g->p);

		rv_place(g->p, here);
		rv_data_word(g->p, at + 8 * n, here);
		body(g, nest + 1, 1 + (int)rng_below(&g->r, 5));
		if (n + 1 < cases)
			rv_jump(g->p, 0, end);
	}
	rv_place(g->p, end);
}

/* A computed jump into the middle of straight code: a place no branch, table or call names. */
static void mid_block(struct gen *g)
{
	unsigned r = gen_take(g), t = gen_take(g), steps = rng_chance(&g->r, 50) ? 8 : 4;
	int start = rv_label(g->p);
	struct rv_insn *i;

	gen_emit(g, OP_andi, r, gen_any(g), 0, steps - 1);
	i = gen_emit(g, OP_auipc, t, 0, 0, 0);
	i->fix = RV_FIX_HI;
	i->label = start;
	gen_emit(g, OP_sh2add, t, r, t, 0)->compress = false;
	i = gen_emit(g, OP_jalr, rng_chance(&g->r, 20) ? r : 0, t, 0, 0);
	i->fix = RV_FIX_LO2;
	i->label = start;
	rv_place(g->p, start);
	gen_give(g, r);
	gen_give(g, t);
	for (unsigned n = 0; n < steps; n++) {
		unsigned rd = gen_dest(g);

		gen_emit(g, gen_pick(g, FMT_R), rd, rng_chance(&g->r, 50) ? rd : gen_any(g),
			 gen_any(g), 0)
			->compress = false;
	}
}

static void odds(struct gen *g)
{
	switch (rng_below(&g->r, 4)) {
	case 0:
		gen_emit(g, OP_fence, 0, 0, 0, 0x33);
		break;
	case 1:
		gen_emit(g, OP_fence_i, 0, 0, 0, 0);
		break;
	case 2:
		if (g->flags & GEN_OURS)
			gen_emit(g, OP_csrrs, gen_dest(g), 0, 0, 0xc02);
		break;
	default: /* push and pop through a moving pointer */
		if (!(g->busy & 4)) {
			g->busy |= 4;
			gen_emit(g, OP_addi, 2, g->base, 0, 0);
			gen_emit(g, OP_addi, 2, 2, 0, -32);
			gen_emit(g, OP_sd, 0, 2, gen_any(g), 8 * (i64)rng_below(&g->r, 4));
			gen_emit(g, OP_lw, gen_dest(g), 2, 0, 4 * (i64)rng_below(&g->r, 8));
			gen_emit(g, OP_addi, 2, 2, 0, 32);
			gen_give(g, 2);
		}
		break;
	}
}

static void body(struct gen *g, unsigned nest, int size)
{
	while (size-- > 0 && g->left > 0) {
		unsigned k = rng_below(&g->r, 100);

		if (k < 32)
			computing(g);
		else if (k < 40)
			gen_idiom(g);
		else if (k < 50)
			compact(g);
		else if (k < 70)
			load_store(g);
		else if (k < 75)
			atomic(g);
		else if (k < 78)
			rng_chance(&g->r, 60) ? local(g) : odds(g);
		else if (nest >= 4)
			computing(g);
		else if (k < 85)
			if_else(g, nest);
		else if (k < 89)
			loop(g, nest);
		else if (k < 94)
			call(g);
		else if (k < 97)
			table(g, nest);
		else
			mid_block(g);
	}
}

/* Save the link and a frame pointer as compilers do, so that the body may use both. */
static void enter_frame(struct gen *g, const struct fn *f)
{
	gen_emit(g, OP_addi, 2, 2, 0, -FRAME);
	gen_emit(g, OP_sd, 0, 2, f->link, FRAME - 8);
	g->busy &= ~(1u << f->link);
	g->frame = true;
	if (f->saved) {
		gen_emit(g, OP_sd, 0, 2, f->saved, FRAME - 16);
		gen_emit(g, OP_addi, f->saved, 2, 0, FRAME);
		g->busy |= 1u << f->saved;
	}
}

static void leave_frame(struct gen *g, const struct fn *f)
{
	gen_emit(g, OP_ld, f->link, 2, 0, FRAME - 8);
	if (f->saved)
		gen_emit(g, OP_ld, f->saved, 2, 0, FRAME - 16);
	gen_emit(g, OP_addi, 2, 2, 0, FRAME);
	g->busy |= 1u << f->link;
	g->frame = false;
}

/* A local variable: through sp, or through the frame pointer where there is one. */
static void local(struct gen *g)
{
	bool load = rng_chance(&g->r, 50);
	enum rv_op op = gen_pick(g, load ? FMT_LD : FMT_ST);
	i64 off = (i64)rng_below(&g->r, FRAME - 16 - rv_info[op].arg + 1);

	if (!g->frame)
		return;
	if (g->saved && rng_chance(&g->r, 50))
		gen_emit(g, op, load ? gen_dest(g) : 0, g->saved, load ? 0 : gen_any(g),
			 off - FRAME);
	else
		gen_emit(g, op, load ? gen_dest(g) : 0, 2, load ? 0 : gen_any(g), off);
}

static void make_functions(struct gen *g)
{
	for (unsigned n = 0; n < g->fns; n++) {
		struct fn *f = &g->fn[n], *tail;

		g->busy = f->busy;
		g->depth = f->depth;
		g->trips = 16;
		g->left = 30;
		g->saved = 0;
		rv_place(g->p, f->label);
		if (g->stack && rng_chance(&g->r, 70)) {
			if (!(g->busy & 1u << 8) && rng_chance(&g->r, 60))
				f->saved = 8;
			g->saved = f->saved;
			enter_frame(g, f);
			body(g, 2, 2 + (int)rng_below(&g->r, 14));
			leave_frame(g, f);
		} else {
			body(g, 2, 2 + (int)rng_below(&g->r, 10));
		}
		tail = rng_chance(&g->r, 25) ? callee(g, (int)f->link) : NULL;
		if (tail)
			rv_jump(g->p, 0, tail->label);
		else
			gen_emit(g, OP_jalr, 0, f->link, 0, 0);
	}
}

/* Sum the scratch: x10 points to its start; x11 = sum * 33 + word over 64 words; returns by x1. */
static void make_sum(struct rv_prog *p, int label)
{
	int top = rv_label(p);

	rv_place(p, label);
	rv_emit(p, OP_addi, 12, 0, 0, 64);
	rv_emit(p, OP_addi, 11, 0, 0, 0);
	rv_place(p, top);
	rv_emit(p, OP_ld, 13, 10, 0, 0);
	rv_emit(p, OP_slli, 14, 11, 0, 5);
	rv_emit(p, OP_add, 11, 11, 14, 0);
	rv_emit(p, OP_add, 11, 11, 13, 0);
	rv_emit(p, OP_addi, 10, 10, 0, 8);
	rv_emit(p, OP_addi, 12, 12, 0, -1);
	rv_branch(p, OP_bne, 12, 0, top);
	rv_emit(p, OP_jalr, 0, 1, 0, 0);
}

static void finish(struct gen *g, unsigned number)
{
	struct rv_prog *p = g->p;

	for (unsigned n = 1; n < 32; n++)
		rv_emit(p, OP_sd, 0, g->base, n, RECORD + 8 * n);
	if (g->base != 9)
		rv_emit(p, OP_add, 9, 0, g->base, 0);
	rv_li(p, 10, number);
	rv_emit(p, OP_sd, 0, 9, 10, RECORD);
	rv_emit(p, OP_addi, 10, 9, 0, -SCRATCH);
	rv_jump(p, 1, g->sum);
	rv_emit(p, OP_sd, 0, 9, 11, RECORD + 8 * 32);
	rv_emit(p, OP_addi, 10, 0, 0, 1);
	rv_emit(p, OP_addi, 11, 9, 0, RECORD);
	rv_emit(p, OP_addi, 12, 0, 0, GEN_RECORD);
	rv_emit(p, OP_addi, 17, 0, 0, 64);
	rv_emit(p, OP_ecall, 0, 0, 0, 0);
}

static void one(struct gen *g, unsigned number)
{
	struct rv_prog *p = g->p;
	size_t block = rv_data(p, NULL, BLOCK, 8);
	int skip = rv_label(p);

	g->middle = rv_data_label(p, block + 512);

	for (unsigned n = 0; n < 512 + SCRATCH; n += 8) {
		u64 v = rng_value(&g->r);

		memcpy(p->data + block + n, &v, 8);
	}
	g->fns = g->depth = 0;
	g->trips = 1;
	g->left = 60 + (int)rng_below(&g->r, 120);
	g->busy = 0;
	g->stack = rng_chance(&g->r, 50);
	g->frame = false;
	if (g->stack)
		g->busy |= 4;
	g->base = gen_take(g);
	rv_la(p, g->base, g->middle);
	for (unsigned n = 1; n < 32; n++)
		if (n != g->base)
			rv_emit(p, OP_ld, n, g->base, 0, 8 * (i64)n - 512);
	if (g->stack)
		rv_emit(p, OP_addi, 2, g->base, 0, STACK_TOP);
	body(g, 0, 8 + (int)rng_below(&g->r, 24));
	finish(g, number);
	rv_jump(p, 0, skip);
	make_functions(g);
	rv_place(p, skip);
}

/* Go back to the start until a count in memory is used up. */
static void again(struct rv_prog *p, int start)
{
	static const u64 rounds = 5;
	int end = rv_label(p);

	rv_la(p, 5, rv_data_label(p, rv_data(p, &rounds, 8, 8)));
	rv_emit(p, OP_ld, 6, 5, 0, 0);
	rv_emit(p, OP_addi, 6, 6, 0, -1);
	rv_emit(p, OP_sd, 0, 5, 6, 0);
	rv_branch(p, OP_beq, 6, 0, end);
	rv_la(p, 7, start);
	rv_emit(p, OP_jalr, 0, 7, 0, 0);
	rv_place(p, end);
}

void gen_programs(struct rv_prog *p, u64 seed, unsigned programs, unsigned flags)
{
	struct gen g = { .p = p, .r = { seed }, .flags = flags };
	int start;

	rv_init(p);
	start = rv_label(p);
	rv_place(p, start);
	g.sum = rv_label(p);
	for (unsigned n = 0; n < programs; n++)
		one(&g, n);
	if (flags & GEN_AGAIN)
		again(p, start);
	rv_emit(p, OP_addi, 10, 0, 0, 0);
	rv_emit(p, OP_addi, 17, 0, 0, 93);
	rv_emit(p, OP_ecall, 0, 0, 0, 0);
	make_sum(p, g.sum);
	rv_layout(p);
}

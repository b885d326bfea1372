// SPDX-License-Identifier: MIT
/*
 * Loops that copy, fill, compare or add up memory, which the translator makes many turns of at once, and loops that
 * only look like one: random sizes, orders, counters and ends, over memory that is there, that ends,
 * that may only be read, and that overlaps. Whole and stopped anywhere, against the reference model:
 * registers, count, trap and every byte.
 */
#include "bed.h"

enum { PAGES = 6, WORDS = 8 };

/* Guest registers of the loop. */
enum { TO = 10, FROM = 11, COUNT = 12, BOUND = 13, VALUE = 14, OTHER = 15, LOADED = 20 };

struct shape {
	unsigned size, words; /* of an access, in a turn */
	bool fill;
	enum { COPY, COMPARE, SUM } kind;
	unsigned wrong; /* percent of instructions that do not belong there */
};

static enum rv_op load_op(struct rng *r, unsigned size)
{
	static const enum rv_op op[2][4] = { { OP_lb, OP_lh, OP_lw, OP_ld },
					     { OP_lbu, OP_lhu, OP_lwu, OP_ld } };

	return op[rng_below(r, 2)][__builtin_ctz(size)];
}

static void shuffle(struct rng *r, unsigned *order, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		order[i] = i;
	if (rng_chance(r, 50))
		return;
	for (unsigned i = n; i > 1; i--) {
		unsigned k = rng_below(r, i), swap = order[k];

		order[k] = order[i - 1];
		order[i - 1] = swap;
	}
}

static void make_accesses(struct rv_prog *p, struct rng *r, const struct shape *s, i64 low)
{
	static const enum rv_op store[] = { OP_sb, OP_sh, OP_sw, OP_sd };
	unsigned order[WORDS];

	shuffle(r, order, s->words);
	for (unsigned i = 0; i < s->words && !s->fill; i++)
		rv_emit(p, load_op(r, rng_chance(r, s->wrong) ? 4 : s->size), LOADED + order[i],
			FROM, 0, low + order[i] * s->size);
	shuffle(r, order, s->words);
	for (unsigned i = 0; i < s->words; i++) {
		unsigned from = rng_chance(r, s->wrong) ? rng_below(r, s->words) : order[i];

		rv_emit(p, store[__builtin_ctz(s->size)], 0, TO, s->fill ? VALUE : LOADED + from,
			order[i] * s->size + (rng_chance(r, s->wrong) ? s->size : 0));
	}
	if (rng_chance(r, s->wrong))
		rv_emit(p, OP_xor, OTHER, OTHER, COUNT, 0);
}

/* Both elements, and out of the loop where they differ; or each element added to OTHER. */
static void make_scan(struct rv_prog *p, struct rng *r, const struct shape *s, i64 low, int out)
{
	static const enum rv_op unsigned_op[] = { OP_lbu, OP_lhu, OP_lwu, OP_ld };
	enum rv_op first = load_op(r, s->size);
	bool word = rng_chance(r, 50);
	unsigned order[WORDS];

	if (s->kind == COMPARE) {
		rv_emit(p, first, LOADED, FROM, 0, low);
		rv_emit(p, rng_chance(r, 80) ? first : load_op(r, s->size), LOADED + 1, TO, 0, 0);
		rv_branch(p, rng_chance(r, s->wrong) ? OP_bltu : OP_bne,
			  rng_chance(r, s->wrong) ? OTHER : LOADED, LOADED + 1, out);
		return;
	}
	shuffle(r, order, s->words);
	for (unsigned i = 0; i < s->words; i++) {
		enum rv_op op = rng_chance(r, s->wrong) ? load_op(r, s->size)
							: unsigned_op[__builtin_ctz(s->size)];

		rv_emit(p, op, LOADED + order[i], FROM, 0, low + order[i] * s->size);
		if (rng_chance(r, 50)) /* at once, or behind all loads */
			continue;
		rv_emit(p, word ? OP_addw : OP_add, OTHER, OTHER, LOADED + order[i], 0);
		order[i] = WORDS;
	}
	for (unsigned i = 0; i < s->words; i++)
		if (order[i] < WORDS && !rng_chance(r, s->wrong))
			rv_emit(p, word ^ rng_chance(r, s->wrong) ? OP_addw : OP_add, OTHER,
				LOADED + order[i], OTHER, 0);
}

/* The counter goes down to a bound in steps, or the pointer up to its end. */
static void make_end(struct rv_prog *p, struct rng *r, const struct shape *s, u64 turns, int top)
{
	static const enum rv_op down[] = { OP_bne, OP_bltu, OP_blt, OP_bgeu, OP_bge };
	static const enum rv_op up[] = { OP_bne, OP_bltu, OP_blt, OP_bgeu, OP_bge };
	unsigned n = rng_below(r, 5);
	bool first;

	(void)turns;
	(void)s;
	if (p->insn[p->count - 1].rd != COUNT) { /* TO is the counter */
		first = n < 3;
		rv_branch(p, up[n], first ? TO : BOUND, first ? BOUND : TO, top);
		return;
	}
	first = n == 0 || n >= 3;
	rv_branch(p, down[n], first ? COUNT : BOUND, first ? BOUND : COUNT, top);
}

static void make_steps(struct rv_prog *p, struct rng *r, const struct shape *s, i64 by,
		       bool counted)
{
	i64 stride = s->size * s->words;

	if (rng_chance(r, s->wrong))
		stride += 8;
	rv_emit(p, OP_addi, TO, TO, 0, stride);
	if (!s->fill)
		rv_emit(p, OP_addi, FROM, FROM, 0, stride);
	if (s->kind != SUM && rng_chance(r, 30))
		rv_emit(p, rng_chance(r, 50) ? OP_addi : OP_addiw, OTHER, OTHER, 0, 3);
	if (counted)
		rv_emit(p, rng_chance(r, 30) ? OP_addiw : OP_addi, COUNT, COUNT, 0, by);
}

/* Somewhere in data, near its end, in the text, before all of it, or above the limit. */
static u64 any_place(struct rng *r, u64 data)
{
	switch (rng_below(r, 16)) {
	case 0:
		return data + PAGES * RV_PAGE - rng_below(r, 2000);
	case 1:
		return RV_TEXT + rng_below(r, 64);
	case 2:
		return data - rng_below(r, 600);
	case 3:
		return rng_next(r);
	default:
		return data + rng_below(r, 3 * RV_PAGE) / 2;
	}
}

/*
 * Both registers get their values from data, because where data is depends on how long the program
 * is: [0] to, [1] from, [2] count, [3] bound, [4] value.
 */
static void make_program(struct rv_prog *p, struct rng *r, u64 *where)
{
	struct shape s = { 1U << rng_below(r, 4), 1 + rng_below(r, WORDS), rng_chance(r, 30), COPY,
			   rng_chance(r, 25) ? 8 : 0 };
	bool counted = rng_chance(r, 60);
	i64 by = -(i64)(rng_chance(r, 60) ? s.words : 1 + rng_below(r, 100));
	u64 turns = 1 + rng_below(r, rng_chance(r, 30) ? 30 : 5000 / (s.size * s.words));
	static uint8_t bytes[PAGES * RV_PAGE];
	int top = rv_label(p), again = rv_label(p), out = rv_label(p);
	i64 low = rng_chance(r, 30) ? (i64)rng_below(r, 64) - 32 : 0;

	if (rng_chance(r, 50)) {
		s.fill = false;
		s.kind = rng_chance(r, 50) ? COMPARE : SUM;
		s.words = s.kind == COMPARE ? 1 : s.words;
	}
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = s.kind == COMPARE ? 0x81 : (uint8_t)rng_next(r);
	for (unsigned n = rng_below(r, 6); s.kind == COMPARE && n; n--) /* differences */
		bytes[rng_below(r, sizeof(bytes))] ^= 0x10;
	rv_data(p, bytes, sizeof(bytes), 8);
	where[0] = turns;
	where[1] = counted ? (u64)-by : s.size * s.words;
	where[2] = counted;
	rv_la(p, 9, rv_data_label(p, 0));
	rv_emit(p, OP_addi, 8, 0, 0, 2);
	rv_place(p, again);
	for (unsigned i = 0; i < 5; i++)
		rv_emit(p, OP_ld, TO + i, 9, 0, 8 * i);
	rv_place(p, top);
	if (s.kind == COPY)
		make_accesses(p, r, &s, low);
	else
		make_scan(p, r, &s, low, out);
	make_steps(p, r, &s, by, counted);
	make_end(p, r, &s, turns, top);
	rv_place(p, out);
	rv_emit(p, OP_addi, 8, 8, 0, -1);
	rv_branch(p, OP_bne, 8, 0, again);
	rv_emit(p, OP_ebreak, 0, 0, 0, 0);
	rv_layout(p);
}

static void set_values(struct rv_prog *p, struct rng *r, const u64 *where)
{
	u64 words[5], span = where[0] * where[1];

	words[0] = any_place(r, p->data_base + 64);
	words[1] = rng_chance(r, 20) ? words[0] + rng_below(r, 200) - 100
				     : any_place(r, p->data_base + 64);
	if (where[2]) { /* counted */
		words[3] = rng_chance(r, 70) ? 0 : rng_below(r, 100);
		words[2] = words[3] + span;
	} else {
		words[2] = rng_next(r);
		words[3] = words[0] + span;
	}
	if (rng_chance(r, 5))
		words[2] = rng_value(r);
	if (rng_chance(r, 10))
		words[3] += rng_below(r, 3) - 1U;
	words[4] = rng_next(r);
	memcpy(p->data, words, sizeof(words));
}

static void same_memory(struct bed *b, const struct rv_model *m, const char *what)
{
	static uint8_t have[PAGES * RV_PAGE];

	assert_int_equal(vb_dpa_mem_read(b->process, b->p.data_base, have, sizeof(have)), 0);
	if (memcmp(have, m->mem + (b->p.data_base - RV_TEXT), sizeof(have)))
		fail_msg("%s: memory differs", what);
}

/* How it ends is how it ends: by ebreak, by an access, or, for a loop without end, by the budget. */
static void one_program(u64 seed)
{
	u64 where[3], total = 200000;

	for (unsigned n = 0; n < 3; n++) {
		struct rng r = { seed };
		struct bed b = { 0 };
		struct rv_model m;
		u64 stop = n ? 1 + rng_next(&r) * (n + seed) % total : total;
		enum rv_stop how;
		char what[64];

		snprintf(what, sizeof(what), "seed %llu, stop after %llu", (unsigned long long)seed,
			 (unsigned long long)stop);
		r.s = seed;
		make_program(&b.p, &r, where);
		set_values(&b.p, &r, where);
		bed_open(&b, NULL);
		rv_model_init(&m, &b.p);
		how = rv_model_run(&m, stop);
		bed_reset(&b);
		bed_state(&b)->instret = 0;
		assert_int_equal(bed_run(&b, stop),
				 how == RV_FAULT ? VB_DPA_WHY_TRAP : VB_DPA_WHY_BUDGET);
		bed_same(&b, &m, what);
		same_memory(&b, &m, what);
		if (!n)
			total = m.count ? m.count : 1;
		rv_model_free(&m);
		bed_close(&b);
	}
}

static void test_random_loops(void **state)
{
	const char *seeds = getenv("LOOP_SEEDS");
	u64 n = seeds ? strtoull(seeds, NULL, 0) : 1500;

	(void)state;
	for (u64 seed = 1; seed <= n; seed++)
		one_program(seed);
}

/*
 * The counter is stepped and then loaded: what ends the loop is the word that is copied, as in a copy
 * of a string. Behind the loop, and wherever it is stopped, the register is that word.
 */
static void test_loaded_counter(void **state)
{
	uint64_t words[1024] = { 0 };

	(void)state;
	for (unsigned i = 0; i < 300; i++)
		words[i] = 1000000 - i;
	for (u64 stop = 600; stop < 2400; stop += 111) {
		struct bed b = { 0 };
		struct rv_model m;
		int top = rv_label(&b.p);

		rv_data(&b.p, words, sizeof(words), 8);
		rv_la(&b.p, FROM, rv_data_label(&b.p, 0));
		rv_li(&b.p, TO, 4096);
		rv_emit(&b.p, OP_add, TO, TO, FROM, 0);
		rv_li(&b.p, COUNT, 900);
		rv_place(&b.p, top);
		rv_emit(&b.p, OP_addi, COUNT, COUNT, 0, -1);
		rv_emit(&b.p, OP_ld, COUNT, FROM, 0, 0);
		rv_emit(&b.p, OP_sd, 0, TO, COUNT, 0);
		rv_emit(&b.p, OP_addi, FROM, FROM, 0, 8);
		rv_emit(&b.p, OP_addi, TO, TO, 0, 8);
		rv_branch(&b.p, OP_bne, COUNT, 0, top);
		rv_emit(&b.p, OP_ebreak, 0, 0, 0, 0);
		bed_open(&b, NULL);
		rv_model_init(&m, &b.p);
		bed_reset(&b);
		bed_state(&b)->instret = 0;
		assert_int_equal(bed_run(&b, stop), rv_model_run(&m, stop) == RV_FAULT
							    ? VB_DPA_WHY_TRAP
							    : VB_DPA_WHY_BUDGET);
		bed_same(&b, &m, "a copy up to a zero");
		rv_model_free(&m);
		bed_close(&b);
	}
}

/* ---- loops that do anything ---- */

enum { BODY = 24, REGS = 6, FIRST = 20, POINTERS = 3, POINTER = 10, CONSTANT = 26, CONSTANTS = 3 };

static unsigned any_reg(struct rng *r)
{
	return rng_chance(r, 8) ? 0 : FIRST + rng_below(r, REGS);
}

/* Mostly words, for the upper halves that wait, with a few that read all of a register. */
static void any_insn(struct rv_prog *p, struct rng *r)
{
	static const enum rv_op reg[] = { OP_addw, OP_subw, OP_addw, OP_sllw, OP_mulw,   OP_xor,
					  OP_or,   OP_and,  OP_add,  OP_sltu, OP_sh2add, OP_rorw };
	static const enum rv_op imm[] = { OP_addiw, OP_addiw, OP_addi, OP_andi, OP_xori, OP_slti };
	static const enum rv_op load[] = { OP_lw, OP_lhu, OP_lb, OP_ld, OP_lwu };
	static const enum rv_op store[] = { OP_sw, OP_sb, OP_sd, OP_sh };
	unsigned rd = FIRST + rng_below(r, REGS), pointer = POINTER + rng_below(r, POINTERS);

	if (rng_chance(r, 4)) { /* put off, or not */
		rv_emit(p, OP_fence, 0, 0, 0, rng_chance(r, 70) ? 0x33 : rng_below(r, 256));
		return;
	}
	if (rng_chance(r, 12)) { /* with a constant, if it is one */
		static const enum rv_op op[] = { OP_rolw, OP_rorw, OP_rol,    OP_ror,    OP_sllw,
						 OP_srlw, OP_sraw, OP_sll,    OP_srl,    OP_sra,
						 OP_add,  OP_addw, OP_sh2add, OP_sh3add, OP_sltu };

		rv_emit(p, op[rng_below(r, 15)], rd, any_reg(r), CONSTANT + rng_below(r, CONSTANTS),
			0);
		return;
	}
	switch (rng_below(r, 8)) {
	case 0:
	case 1:
		rv_emit(p, load[rng_below(r, 5)], rd, pointer, 0, (i64)rng_below(r, 64) - 16);
		break;
	case 2:
		rv_emit(p, store[rng_below(r, 4)], 0, pointer, any_reg(r),
			(i64)rng_below(r, 64) - 16);
		break;
	case 3:
	case 4:
		rv_emit(p, imm[rng_below(r, 6)], rd, any_reg(r), 0,
			rng_chance(r, 40) ? 0 : (i64)rng_below(r, 256) - 128);
		break;
	default:
		rv_emit(p, reg[rng_below(r, 12)], rd, any_reg(r), any_reg(r), 0);
		break;
	}
}

/* Pointers stay or walk, at any place of the turn. */
static void any_step(struct rv_prog *p, struct rng *r)
{
	unsigned pointer = POINTER + rng_below(r, POINTERS);

	if (rng_chance(r, 20))
		rv_emit(p, OP_addi, POINTER + rng_below(r, POINTERS), pointer, 0, 8);
	else
		rv_emit(p, OP_addi, pointer, pointer, 0, (i64)rng_below(r, 200) - 80);
}

/* Made before the loop; or something else is, and this stands where nobody comes by. */
static void make_constant(struct rv_prog *p, struct rng *r, unsigned rd)
{
	i64 value = rng_chance(r, 50)   ? (i64)rng_below(r, 64)
		    : rng_chance(r, 50) ? (i64)(int32_t)rng_next(r)
					: (i64)rng_value(r);
	int over = rv_label(p);

	if (rng_chance(r, 70)) {
		rv_li(p, rd, (u64)value);
		return;
	}
	rv_emit(p, OP_ld, rd, 9, 0, 8 * rng_below(r, 200));
	rv_jump(p, 0, over);
	rv_li(p, rd, (u64)value);
	rv_place(p, over);
}

/* x9 is data, x8 counts turns, x18 the loop's entries. Some loops are entered in the middle. */
static void make_any_loop(struct rv_prog *p, struct rng *r)
{
	static const enum rv_op branch[] = { OP_beq, OP_bne, OP_blt, OP_bge, OP_bltu, OP_bgeu };
	static uint8_t bytes[PAGES * RV_PAGE];
	int top = rv_label(p), again = rv_label(p), out = rv_label(p), middle = -1;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)rng_next(r);
	rv_data(p, bytes, sizeof(bytes), 8);
	rv_la(p, 9, rv_data_label(p, 0));
	rv_emit(p, OP_addi, 18, 0, 0, 3);
	rv_place(p, again);
	rv_emit(p, OP_addi, 8, 0, 0, 1 + rng_below(r, 300));
	for (unsigned i = 0; i < REGS; i++)
		rv_emit(p, OP_ld, FIRST + i, 9, 0, 8 * rng_below(r, 200));
	for (unsigned i = 0; i < POINTERS; i++)
		rv_emit(p, OP_addi, POINTER + i, 9, 0, 1024 + rng_below(r, 1000));
	if (rng_chance(r, 50)) /* one of them begins near the end */
		rv_li(p, 15, (PAGES - 1) * RV_PAGE - 1024),
			rv_emit(p, OP_add, POINTER, POINTER, 15, 0);
	for (unsigned i = 0; i < CONSTANTS; i++)
		make_constant(p, r, CONSTANT + i);
	if (rng_chance(r, 30)) {
		middle = rv_label(p);
		rv_jump(p, 0, middle);
	}
	rv_place(p, top);
	for (unsigned n = 2 + rng_below(r, BODY), entry = rng_below(r, n); n; n--) {
		if (middle >= 0 && n == entry + 1)
			rv_place(p, middle);
		if (rng_chance(r, 8))
			rv_branch(p, branch[rng_below(r, 6)], any_reg(r),
				  rng_chance(r, 50) ? any_reg(r)
						    : CONSTANT + rng_below(r, CONSTANTS),
				  out);
		else if (rng_chance(r, 12))
			any_step(p, r);
		else
			any_insn(p, r);
	}
	rv_emit(p, rng_chance(r, 50) ? OP_addi : OP_addiw, 8, 8, 0, -1);
	if (rng_chance(r, 30)) { /* it is left from its inside, and may go on behind that */
		rv_branch(p, OP_beq, 8, 0, out);
		for (unsigned n = rng_below(r, 6); n; n--)
			any_insn(p, r);
		rv_jump(p, 0, top);
	} else {
		rv_branch(p, rng_chance(r, 70) ? OP_bne : OP_blt, rng_chance(r, 70) ? 8 : 0,
			  rng_chance(r, 70) ? 0 : 8, top);
	}
	rv_place(p, out);
	rv_emit(p, OP_add, FIRST, FIRST, FIRST + 1, 0);
	rv_emit(p, OP_addi, 18, 18, 0, -1);
	rv_branch(p, OP_bne, 18, 0, again);
	rv_emit(p, OP_ebreak, 0, 0, 0, 0);
}

static void test_random_bodies(void **state)
{
	const char *seeds = getenv("LOOP_SEEDS");
	u64 last = seeds ? strtoull(seeds, NULL, 0) : 2000;

	(void)state;
	for (u64 seed = 1; seed <= last; seed++) {
		u64 total = 20000;

		for (unsigned n = 0; n < 3; n++) {
			struct rng r = { seed + 1000000 };
			struct bed b = { 0 };
			struct rv_model m;
			u64 stop = n ? 1 + rng_next(&r) * (n + seed) % total : total;
			enum rv_stop how;
			char what[64];

			snprintf(what, sizeof(what), "body %llu, stop after %llu",
				 (unsigned long long)seed, (unsigned long long)stop);
			r.s = seed + 1000000;
			make_any_loop(&b.p, &r);
			bed_open(&b, NULL);
			rv_model_init(&m, &b.p);
			how = rv_model_run(&m, stop);
			bed_reset(&b);
			bed_state(&b)->instret = 0;
			assert_int_equal(bed_run(&b, stop),
					 how == RV_FAULT ? VB_DPA_WHY_TRAP : VB_DPA_WHY_BUDGET);
			bed_same(&b, &m, what);
			same_memory(&b, &m, what);
			total = n || !m.count ? total : m.count;
			rv_model_free(&m);
			bed_close(&b);
		}
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_random_loops),
					    cmocka_unit_test(test_loaded_counter),
					    cmocka_unit_test(test_random_bodies) };

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
/*
 * Bytes that are loaded one by one and put together, which the translator loads at once: random
 * widths, orders, shifts and registers, several of them mixed with each other and with whatever else
 * may stand between, over memory that is there, that ends anywhere in between, and that a window or
 * nobody serves. Whole and stopped anywhere, against the reference model: registers, count and trap.
 */
#include "bed.h"

enum { PAGES = 2, CHAINS = 4, LENGTH = 40, BASE = 10, POOL = 16, REGS = 12 };

/* Instructions that keep their order among themselves. */
struct chain {
	struct step {
		enum rv_op op;
		unsigned rd, rs1, rs2;
		i64 imm;
	} insn[LENGTH];
	unsigned n, done;
};

static void add(struct chain *c, enum rv_op op, unsigned rd, unsigned rs1, unsigned rs2, i64 imm)
{
	if (c->n < LENGTH)
		c->insn[c->n++] = (struct step){ op, rd, rs1, rs2, imm };
}

static unsigned any_reg(struct rng *r)
{
	return POOL + rng_below(r, REGS);
}

/* A value of `size` bytes; now and then something is not as it should be. */
static void make_value(struct chain *c, struct rng *r, unsigned size, i64 at, unsigned wrong)
{
	unsigned sum = any_reg(r), part = any_reg(r), order[8];
	bool big = rng_chance(r, 70), first = true, wide = rng_chance(r, 50);

	for (unsigned i = 0; i < size; i++)
		order[i] = i;
	for (unsigned i = size; i > 1 && rng_chance(r, 60); i--) {
		unsigned k = rng_below(r, i), swap = order[k];

		order[k] = order[i - 1];
		order[i - 1] = swap;
	}
	for (unsigned i = 0; i < size; i++, first = false) {
		unsigned shift = 8 * (big ? size - 1 - order[i] : order[i]);
		unsigned to = first ? sum : part;
		enum rv_op op = rng_chance(r, 30) && shift == 8 * (size - 1) ? OP_lb : OP_lbu;

		add(c, rng_chance(r, wrong) ? OP_lh : op, to,
		    rng_chance(r, wrong) ? BASE + 1 : BASE, 0,
		    at + order[i] + (rng_chance(r, wrong) ? 1 : 0));
		if (shift)
			add(c, wide || shift >= 32 ? OP_slli : OP_slliw, to, to, 0,
			    shift + (rng_chance(r, wrong) ? 1 : 0));
		if (!first)
			add(c, rng_chance(r, wrong) ? OP_add : OP_or, sum, sum, part, 0);
		if (rng_chance(r, 40))
			part = any_reg(r);
	}
	if (rng_chance(r, 40))
		add(c, size == 2 ? OP_zext_h : OP_addiw, rng_chance(r, 50) ? sum : any_reg(r), sum,
		    0, 0);
	add(c, OP_xor, any_reg(r), sum, any_reg(r), 0);
}

/* What stands between: arithmetic, other loads, rarely something that ends a run. */
static void make_noise(struct chain *c, struct rng *r, i64 at)
{
	static const enum rv_op op[] = { OP_add, OP_xor, OP_addw, OP_mulw, OP_or,  OP_sltu,
					 OP_sub, OP_and, OP_mul,  OP_min,  OP_sll, OP_rorw };
	static const enum rv_op load[] = { OP_lw, OP_lhu, OP_ld, OP_lbu, OP_lb };

	for (unsigned n = rng_below(r, 12); n; n--) {
		unsigned what = rng_below(r, 20);

		if (what < 12)
			add(c, op[rng_below(r, 12)], any_reg(r), any_reg(r), any_reg(r), 0);
		else if (what < 14)
			add(c, OP_addi, any_reg(r), 0, 0, (i64)rng_below(r, 200) - 100);
		else if (what < 17)
			add(c, load[rng_below(r, 5)], any_reg(r), BASE + rng_below(r, 2), 0,
			    at + rng_below(r, 24));
		else if (what == 17)
			add(c, OP_divu, any_reg(r), any_reg(r), any_reg(r), 0);
		else if (what == 18)
			add(c, OP_fence, 0, 0, 0, 0x33);
		else
			add(c, OP_sb, 0, BASE + 1, any_reg(r), at + rng_below(r, 8));
	}
	if (rng_chance(r, 10)) /* the base goes with the last byte */
		add(c, OP_lbu, BASE, BASE, 0, at);
}

static void mix(struct rv_prog *p, struct rng *r, struct chain *c, unsigned n)
{
	unsigned left = 0;

	for (unsigned i = 0; i < n; i++)
		left += c[i].n;
	for (unsigned i = 0; left; left--) {
		const struct step *insn;

		for (i = rng_chance(r, 70) ? i : rng_below(r, n); c[i].done == c[i].n;)
			i = (i + 1) % n;
		insn = &c[i].insn[c[i].done++];
		rv_emit(p, insn->op, insn->rd, insn->rs1, insn->rs2, insn->imm);
	}
}

/* [0], [1]: the two bases; then what the other registers begin with. x8 counts turns. */
static void make_program(struct rv_prog *p, struct rng *r)
{
	static uint8_t bytes[PAGES * RV_PAGE];
	unsigned n = 1 + rng_below(r, CHAINS), wrong = rng_chance(r, 30) ? 4 : 0;
	struct chain chains[CHAINS + 1] = { 0 };
	i64 at = (i64)rng_below(r, 64) - 32;
	int top = rv_label(p);

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)rng_next(r);
	rv_data(p, bytes, sizeof(bytes), 8);
	rv_la(p, 9, rv_data_label(p, 0));
	rv_emit(p, OP_addi, 8, 0, 0, 1 + rng_below(r, 5));
	rv_emit(p, OP_ld, BASE, 9, 0, 0);
	rv_emit(p, OP_ld, BASE + 1, 9, 0, 8);
	for (unsigned i = 0; i < REGS; i++)
		rv_emit(p, OP_ld, POOL + i, 9, 0, 16 + 8 * i);
	rv_place(p, top);
	for (unsigned i = 0; i < n; i++, at += 8)
		make_value(&chains[i], r, 2U << rng_below(r, 3), at, wrong);
	if (rng_chance(r, 70))
		make_noise(&chains[n++], r, at - 8);
	mix(p, r, chains, n);
	if (rng_chance(r, 50))
		rv_emit(p, OP_addi, BASE, BASE, 0, (i64)rng_below(r, 40) - 8);
	rv_emit(p, OP_addi, 8, 8, 0, -1);
	rv_branch(p, OP_bne, 8, 0, top);
	rv_emit(p, OP_ebreak, 0, 0, 0, 0);
	rv_layout(p);
}

/* Inside, around either end, or anywhere. */
static u64 any_place(struct rng *r, const struct rv_prog *p)
{
	switch (rng_below(r, 8)) {
	case 0:
	case 1:
	case 2:
		return p->data_base + PAGES * RV_PAGE - rng_below(r, 80);
	case 3:
		return RV_TEXT - 40 + rng_below(r, 80);
	case 4:
		return rng_chance(r, 50) ? rng_next(r) : rng_below(r, 0x50000000);
	default:
		return p->data_base + 200 + rng_below(r, RV_PAGE);
	}
}

static void one_program(u64 seed)
{
	u64 total = 2000;

	for (unsigned n = 0; n < 3; n++) {
		struct rng r = { seed };
		struct bed b = { 0 };
		struct rv_model m;
		u64 stop = n ? 1 + rng_next(&r) * (n + seed) % total : total, where[2];
		enum rv_stop how;
		char what[64];

		snprintf(what, sizeof(what), "seed %llu, stop after %llu", (unsigned long long)seed,
			 (unsigned long long)stop);
		r.s = seed;
		make_program(&b.p, &r);
		where[0] = any_place(&r, &b.p);
		where[1] = any_place(&r, &b.p);
		memcpy(b.p.data, where, sizeof(where));
		bed_open(&b, NULL);
		rv_model_init(&m, &b.p);
		how = rv_model_run(&m, stop);
		bed_reset(&b);
		bed_state(&b)->instret = 0;
		assert_int_equal(bed_run(&b, stop),
				 how == RV_FAULT ? VB_DPA_WHY_TRAP : VB_DPA_WHY_BUDGET);
		bed_same(&b, &m, what);
		if (!n)
			total = m.count ? m.count : 1;
		rv_model_free(&m);
		bed_close(&b);
	}
}

static void test_random_bytes(void **state)
{
	const char *seeds = getenv("BYTES_SEEDS");
	u64 n = seeds ? strtoull(seeds, NULL, 0) : 2500;

	(void)state;
	for (u64 seed = 1; seed <= n; seed++)
		one_program(seed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_random_bytes) };

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

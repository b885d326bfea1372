// SPDX-License-Identifier: MIT
/*
 * Instructions that lean on the one before them: the translator may make one of two (a product's
 * halves, a sum and its carry, a result and the test for zero, a constant in two parts). Short random
 * sequences of just such instructions over few registers, in a loop that enters them at the top or
 * in the middle, whole and stopped anywhere, against the reference model.
 */
#include "bed.h"

enum { BODY = 30, TURNS = 60 };

static const enum rv_op pool[] = {
	OP_mulhu, OP_mulhu, OP_mulh,   OP_mulhsu,    OP_mul,  OP_mul,  OP_mul,    OP_mulw,
	OP_add,   OP_add,   OP_add,    OP_sltu,      OP_sltu, OP_sltu, OP_slt,    OP_sub,
	OP_and,   OP_or,    OP_xor,    OP_addw,      OP_subw, OP_andi, OP_ori,    OP_xori,
	OP_addi,  OP_addiw, OP_sltiu,  OP_slli,      OP_srli, OP_srai, OP_srliw,  OP_lui,
	OP_orc_b, OP_clmul, OP_clmulh, OP_clmulr,    OP_min,  OP_maxu, OP_add_uw, OP_bset,
	OP_binv,  OP_lui,   OP_addi,   OP_sh2add_uw, OP_div,  OP_ld,   OP_lw,     OP_addiw,
};

static unsigned any_reg(struct rng *r)
{
	static const uint8_t regs[] = { 0, 5, 6, 7, 7, 6, 5, 8, 2 };

	return regs[rng_below(r, sizeof(regs))];
}

static i64 any_imm(struct rng *r, enum rv_op op)
{
	static const int16_t imms[] = { -1, 0, 1, 1, 1, -1, 0xff, 0x7f, -2048, 2047 };
	unsigned format = rv_info[op].format;

	if (format == FMT_U)
		return (i64)((int32_t)rng_next(r) & ~0xfff);
	if (format == FMT_SH)
		return rng_below(r, op == OP_srliw ? 32 : 64);
	return imms[rng_below(r, sizeof(imms) / sizeof(imms[0]))];
}

/* One of the pool; now and then the second half that fits the instruction before. */
static void random_op(struct rv_prog *p, struct rng *r)
{
	const struct rv_insn *last = &p->insn[p->count - 1];
	unsigned rd = any_reg(r), a = any_reg(r), b = any_reg(r);
	enum rv_op op = pool[rng_below(r, sizeof(pool) / sizeof(pool[0]))];

	if (rng_chance(r, 40)) {
		a = last->rs1;
		b = last->rs2;
	} else if (rng_chance(r, 40)) {
		a = last->rd;
	}
	if (last->op == OP_lui && rng_chance(r, 60)) {
		op = rng_chance(r, 50) ? OP_addi : OP_addiw;
		rd = a = last->rd;
	} else if ((last->op == OP_mulhu || last->op == OP_mulh) && rng_chance(r, 70)) {
		op = OP_mul;
		a = last->rs2;
		b = last->rs1;
	} else if (last->op == OP_add && rng_chance(r, 50)) {
		op = OP_sltu;
		a = last->rd;
		b = rng_chance(r, 50) ? last->rs1 : last->rs2;
	}
	if (rv_info[op].format == FMT_LD) /* x9 is the data */
		rv_emit(p, op, rd, 9, 0, 8 * (i64)rng_below(r, 4));
	else if (rv_info[op].format == FMT_R)
		rv_emit(p, op, rd, a, b, 0);
	else if (rv_info[op].format == FMT_U)
		rv_emit(p, op, rd, 0, 0, any_imm(r, op));
	else
		rv_emit(p, op, rd, a, 0, any_imm(r, op));
}

/* Skip some instructions if a register is or is not zero, or against another. */
static void random_branch(struct rv_prog *p, struct rng *r, int label)
{
	static const enum rv_op op[] = { OP_beq, OP_bne, OP_blt, OP_bge, OP_bltu, OP_bgeu };
	unsigned a = rng_chance(r, 70) ? p->insn[p->count - 1].rd : any_reg(r);
	unsigned b = rng_chance(r, 70) ? 0 : any_reg(r);

	if (rng_chance(r, 20))
		rv_branch(p, op[rng_below(r, 6)], b, a, label);
	else
		rv_branch(p, op[rng_below(r, rng_chance(r, 60) ? 2 : 6)], a, b, label);
}

static void make_body(struct rv_prog *p, struct rng *r)
{
	int label = -1;
	unsigned left = 0;

	for (unsigned n = 0; n < BODY; n++) {
		if (label >= 0 && !left--) {
			rv_place(p, label);
			label = -1;
		}
		if (label < 0 && n + 6 < BODY && rng_chance(r, 25)) {
			label = rv_label(p);
			left = 1 + rng_below(r, 4);
			random_branch(p, r, label);
		} else {
			random_op(p, r);
		}
	}
	if (label >= 0)
		rv_place(p, label);
}

/*
 * x9 = data, x18 = turns. Every other turn enters the body at `skip` bytes behind its top: nothing
 * in the text shows where that is.
 */
static void make_program(struct rv_prog *p, struct rng *r, bool crowded)
{
	u64 words[6];
	int top = rv_label(p), body = rv_label(p);

	for (unsigned i = 0; i < 5; i++)
		words[i] = rng_value(r);
	words[5] = 4 * rng_below(r, BODY);
	rv_data(p, words, sizeof(words), 8);
	rv_la(p, 9, rv_data_label(p, 0));
	for (unsigned i = 0; i < 4; i++)
		rv_emit(p, OP_ld, 5 + i, 9, 0, 8 * i);
	rv_emit(p, OP_addi, 18, 0, 0, TURNS);
	rv_place(p, top);
	if (crowded) /* ten registers are used so often that the others have to live in memory */
		for (unsigned n = 0; n < 240; n++)
			rv_emit(p, OP_add, 19 + n % 10, 19 + n % 10, 20 + n % 9, 0);
	rv_la(p, 10, body);
	rv_emit(p, OP_andi, 11, 18, 0, 1);
	rv_emit(p, OP_sub, 11, 0, 11, 0);
	rv_emit(p, OP_ld, 12, 9, 0, 40);
	rv_emit(p, OP_and, 12, 12, 11, 0);
	rv_emit(p, OP_add, 10, 10, 12, 0);
	rv_emit(p, OP_jalr, 0, 10, 0, 0);
	rv_place(p, body);
	make_body(p, r);
	rv_emit(p, OP_addi, 18, 18, 0, -1);
	rv_branch(p, OP_bne, 18, 0, top);
	rv_emit(p, OP_ebreak, 0, 0, 0, 0);
	for (unsigned n = 0; n < BODY; n++) /* never reached; makes sp worth a look when written */
		rv_emit(p, OP_ld, 5, 2, 0, 8 * n);
	for (size_t i = 0; i < p->count; i++) /* so that four bytes are one instruction */
		p->insn[i].compress = false;
}

static void one_program(u64 seed)
{
	struct rng r = { seed };
	struct bed b = { 0 };
	struct rv_model m;
	char what[64];
	u64 total;

	make_program(&b.p, &r, seed & 1);
	bed_open(&b, NULL);
	rv_model_init(&m, &b.p);
	assert_int_equal(rv_model_run(&m, ~0ull), RV_FAULT);
	total = m.count;
	rv_model_free(&m);
	for (unsigned n = 0; n < 4; n++) {
		u64 stop = n ? rng_below(&r, (unsigned)total) : total + 1;

		snprintf(what, sizeof(what), "seed %llu, stop after %llu", (unsigned long long)seed,
			 (unsigned long long)stop);
		rv_model_init(&m, &b.p);
		rv_model_run(&m, stop);
		bed_reset(&b);
		bed_state(&b)->instret = 0;
		assert_int_equal(bed_run(&b, stop), n ? VB_DPA_WHY_BUDGET : VB_DPA_WHY_TRAP);
		bed_same(&b, &m, what);
		rv_model_free(&m);
	}
	bed_close(&b);
}

static void test_random_pairs(void **state)
{
	(void)state;
	for (u64 seed = 1; seed <= 600; seed++)
		one_program(seed);
}

/* Loads that fault right behind, and in the middle of, instructions that lean on each other. */
static void test_traps_between(void **state)
{
	static const struct {
		enum rv_op op;
		uint8_t rd, rs1, rs2;
		int16_t imm;
	} pairs[][2] = {
		{ { OP_mulhu, 6, 5, 7, 0 }, { OP_mul, 8, 5, 7, 0 } },
		{ { OP_add, 5, 5, 7, 0 }, { OP_sltu, 6, 5, 7, 0 } },
		{ { OP_addi, 5, 5, 0, -1 }, { OP_sltiu, 6, 5, 0, 1 } },
		{ { OP_addw, 5, 5, 7, 0 }, { OP_sltu, 6, 0, 5, 0 } },
		{ { OP_lui, 5, 0, 0, 0 }, { OP_addiw, 5, 5, 0, -3 } },
		{ { OP_srli, 8, 5, 0, 3 }, { OP_xor, 7, 7, 8, 0 } },
	};

	(void)state;
	for (unsigned n = 0; n < 3 * sizeof(pairs) / sizeof(pairs[0]); n++) {
		struct bed b = { 0 };
		u64 words[2] = { 0x8123456789abcdef, 0xfedcba9876543210 };

		rv_data(&b.p, words, sizeof(words), 8);
		rv_la(&b.p, 9, rv_data_label(&b.p, 0));
		rv_emit(&b.p, OP_ld, 5, 9, 0, 0);
		rv_emit(&b.p, OP_ld, 7, 9, 0, 8);
		for (unsigned i = 0; i < 3; i++) {
			unsigned k = i < n % 3 ? i : i - 1;

			if (i == n % 3)
				rv_emit(&b.p, OP_lw, 5, 0, 0, 16);
			else
				rv_emit(&b.p, pairs[n / 3][k].op, pairs[n / 3][k].rd,
					pairs[n / 3][k].rs1, pairs[n / 3][k].rs2,
					pairs[n / 3][k].imm);
		}
		bed_expect_trap(&b, VB_DPA_CAUSE_LOAD, 16);
		bed_close(&b);
	}
}

/* Bits of two words are a word: is what a right shift leaves one? One by 33 does, and an arithmetic one by 32. */
static void test_shifted(void **state)
{
	static const enum rv_op shift[] = { OP_srli, OP_srai }, logic[] = { OP_and, OP_or, OP_xor };
	u64 words[2] = { 0x8123456789abcdef, 0x12345678 };

	(void)state;
	for (unsigned n = 0; n < 2 * 3 * 3; n++) {
		struct bed b = { 0 };
		struct rv_model m;

		rv_data(&b.p, words, sizeof(words), 8);
		rv_la(&b.p, 9, rv_data_label(&b.p, 0));
		rv_emit(&b.p, OP_ld, 5, 9, 0, 0);
		rv_emit(&b.p, OP_ld, 7, 9, 0, 8);
		rv_emit(&b.p, shift[n % 2], 6, 5, 0, 31 + n / 2 % 3);
		rv_emit(&b.p, OP_addw, 7, 7, 7, 0);
		rv_emit(&b.p, logic[n / 6], 8, 7, 6, 0);
		rv_emit(&b.p, OP_ebreak, 0, 0, 0, 0);
		bed_open(&b, NULL);
		rv_model_init(&m, &b.p);
		assert_int_equal(rv_model_run(&m, ~0ull), RV_FAULT);
		bed_reset(&b);
		bed_state(&b)->instret = 0;
		assert_int_equal(bed_run(&b, UINT64_MAX), VB_DPA_WHY_TRAP);
		bed_same(&b, &m, "shifted");
		rv_model_free(&m);
		bed_close(&b);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_pairs),
		cmocka_unit_test(test_traps_between),
		cmocka_unit_test(test_shifted),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

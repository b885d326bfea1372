// SPDX-License-Identifier: MIT
/*
 * Translations that somebody damaged: what the checker accepts cannot hurt the host, and what it says
 * does not depend on its memo of instructions.
 */
#include "hand.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../gen/gen.h"
#include "dpa/cpu/jit/verify_insn.h"
#include "dpa/internal.h"

/* ---- damaged translations ---- */

enum { MUTANTS = 3000, SECONDS = 2 };

static void check_gen(const struct vb_dpa_process *process, struct verify *v)
{
	const struct vb_jit *jit = process->text.jit;
	const struct epoch *epoch = &jit->epochs[0];
	const struct generation *gen = &jit->gens[0];
	static uint32_t offsets[1 << 17];

	*v = (struct verify){ .code = gen->code,
			      .len = gen->code_used,
			      .host = gen->host,
			      .limit = jit->limit,
			      .text_lo = process->text.lo,
			      .text_len = process->text.hi - process->text.lo,
			      .table = epoch->table_disp,
			      .gen = gen,
			      .sites = gen->sites,
			      .nsites = gen->nsites,
			      .offsets = offsets,
			      .enter = (uint32_t)((const uint8_t *)(uintptr_t)epoch->enter -
						  gen->code),
			      .miss = (uint32_t)((const uint8_t *)epoch->miss - gen->code),
			      .fences = vb_access_fences() };
	v->noffsets = v->text_len / 2;
	assert_in_range(v->noffsets, 1, 1 << 17);
	for (size_t i = 0; i < v->noffsets; i++)
		offsets[i] = epoch->table[i] == epoch->miss
				     ? 0
				     : (uint32_t)((const uint8_t *)epoch->table[i] - gen->code);
}

/* Run what is there now, for a while; the host must live. */
static void survive(struct bed *b, const int *labels, unsigned functions, u64 seed, uint32_t at)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		struct rng r = { seed };
		enum vb_dpa_why why;

		alarm(SECONDS); /* damage may remove the look at the budget */
		for (unsigned n = 0; n < 2 * functions; n++) {
			u64 pc = rv_address(&b->p, labels[n % functions]);

			vb_dpa_thread_set_call(b->thread, pc, NULL, 0);
			for (unsigned i = 2; i < 32; i++)
				bed_state(b)->x[i] =
					rng_chance(&r, 60) ? b->p.data_base + 8 * rng_below(&r, 64)
							   : rng_value(&r);
			vb_dpa_thread_run(b->thread, 20000, &why);
		}
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status) ? WTERMSIG(status) != SIGALRM : WEXITSTATUS(status))
		fail_msg("damage at 0x%x, which was accepted, ended the host: status 0x%x", at,
			 (unsigned)status);
}

static void test_mutants(void **state)
{
	enum { FUNCTIONS = 40 };
	unsigned accepted = 0, mutants = getenv("VERBATIM_TEST_LONG") ? 50 * MUTANTS : MUTANTS;
	int labels[FUNCTIONS];
	struct rng r = { 77 };
	struct bed b = { 0 };
	struct verify v;
	uint8_t *code;
	char why[160];

	(void)state;
	gen_facts(&b.p, 5, FUNCTIONS, labels);
	bed_open_limit(&b, HAND_LIMIT);
	check_gen(b.process, &v);
	assert_int_equal(vb_jit_verify(&v, why, sizeof(why)), 0);
	code = b.process->text.jit->gens[0].code;
	for (unsigned n = 0; n < mutants; n++) {
		uint32_t at = v.enter + rng_below(&r, (unsigned)v.len - v.enter);
		uint8_t old = code[at], new = rng_chance(&r, 50)
						      ? (uint8_t)(old ^ 1u << rng_below(&r, 8))
						      : (uint8_t)rng_next(&r);

		assert_int_equal(mprotect(code, v.len, PROT_READ | PROT_WRITE), 0);
		code[at] = new;
		assert_int_equal(mprotect(code, v.len, PROT_READ | PROT_EXEC), 0);
		if (new != old && !vb_jit_verify(&v, why, sizeof(why)) && accepted++ < mutants / 20)
			survive(&b, labels, FUNCTIONS, n, at);
		assert_int_equal(mprotect(code, v.len, PROT_READ | PROT_WRITE), 0);
		code[at] = old;
		assert_int_equal(mprotect(code, v.len, PROT_READ | PROT_EXEC), 0);
	}
	assert_true(accepted >
		    mutants / 100); /* another constant, another register: there are many */
	bed_close(&b);
}

/* ---- the memo ---- */

enum { MEMO_MUTANTS = 1500, MEMO_STRINGS = 100000 };

/* A byte that changes what the ones behind it mean, one bit, or anything. */
static uint8_t damage(struct rng *r, uint8_t old)
{
	static const uint8_t leading[] = { 0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x2e, 0x64, 0x65, 0x0f,
					   0x40, 0x41, 0x44, 0x48, 0x49, 0x4c, 0xc4, 0xc5, 0x62 };

	if (rng_chance(r, 30))
		return leading[rng_below(r, sizeof(leading))];
	return rng_chance(r, 50) ? (uint8_t)(old ^ 1u << rng_below(r, 8)) : (uint8_t)rng_next(r);
}

/* With the memo and with each instruction decoded in full: the same verdict for the same reason. */
static void test_memo(void **state)
{
	unsigned accepted = 0,
		 mutants = getenv("VERBATIM_TEST_LONG") ? 50 * MEMO_MUTANTS : MEMO_MUTANTS;
	struct rng r = { 78 };
	struct bed b = { 0 };
	char why[160], full[160];
	struct verify v;
	uint8_t *code;
	int labels[6];

	(void)state;
	gen_facts(&b.p, 6, 6, labels);
	bed_open_limit(&b, HAND_LIMIT);
	check_gen(b.process, &v);
	code = malloc(v.len);
	memcpy(code, v.code, v.len);
	assert_int_equal(mprotect(b.process->text.jit->gens[0].code, v.len, PROT_READ | PROT_WRITE),
			 0);
	for (unsigned n = 0; n < mutants; n++) {
		uint32_t at = v.enter + rng_below(&r, (unsigned)v.len - v.enter - 4);
		uint8_t *here = b.process->text.jit->gens[0].code + at;
		int err;

		for (unsigned k = 0, count = 1 + rng_below(&r, 4); k < count; k++)
			here[k] = damage(&r, here[k]);
		why[0] = full[0] = 0;
		v.forget = true;
		err = vb_jit_verify(&v, full, sizeof(full));
		v.forget = false;
		assert_int_equal(vb_jit_verify(&v, why, sizeof(why)), err);
		assert_string_equal(why, full);
		accepted += !err;
		memcpy(here, code + at, 4);
	}
	assert_in_range(accepted, mutants / 100, mutants / 2);
	free(code);
	bed_close(&b);
}

static void same_operand(const struct operand *a, const struct operand *b)
{
	assert_int_equal(a->type, b->type);
	assert_int_equal(a->actions, b->actions);
	assert_int_equal(a->size, b->size);
	assert_int_equal(a->reg, b->reg);
	assert_int_equal(a->index, b->index);
	assert_int_equal(a->scale, b->scale);
}

static void same_insn(const struct insn *x, const struct insn *y)
{
	const struct form *a = x->f, *b = y->f;

	assert_ptr_equal(a->why, b->why);
	for (unsigned k = 0; k < 3; k++)
		same_operand(&a->o[k], &b->o[k]);
	assert_int_equal(a->mnemonic, b->mnemonic);
	assert_int_equal(a->written, b->written);
	assert_int_equal(a->low_bit, b->low_bit);
	assert_int_equal(a->low, b->low);
	assert_int_equal(a->memory, b->memory);
	assert_int_equal(a->kind, b->kind);
	assert_int_equal(a->host, b->host);
	assert_int_equal(a->calm, b->calm);
	assert_int_equal(a->direct, b->direct);
	assert_int_equal(a->lock, b->lock);
	assert_int_equal(a->length, b->length);
	assert_int_equal(insn_disp(x), insn_disp(y));
	assert_int_equal(insn_imm(x), insn_imm(y));
}

/* What Zydis says of an instruction, in full. */
static void same_numbers(const ZydisDecoder *zydis, const uint8_t *bytes, const struct insn *x)
{
	ZydisDecodedInstruction i;
	ZydisDecodedOperand o[ZYDIS_MAX_OPERAND_COUNT];

	assert_true(ZYAN_SUCCESS(ZydisDecoderDecodeFull(zydis, bytes, 15, &i, o)));
	assert_int_equal(x->f->length, i.length);
	for (unsigned k = 0; k < i.operand_count_visible && !x->f->why; k++) {
		if (o[k].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && i.raw.imm[0].size)
			assert_int_equal(insn_imm(x), o[k].imm.value.s);
		if (o[k].type == ZYDIS_OPERAND_TYPE_MEMORY)
			assert_int_equal(insn_disp(x), o[k].mem.disp.value);
	}
}

/* Any bytes: whatever was seen before, the memo says what Zydis says. */
static void test_forms(void **state)
{
	struct memo *memo = memo_create(false), *forget = memo_create(true);
	unsigned strings = getenv("VERBATIM_TEST_LONG") ? 50 * MEMO_STRINGS : MEMO_STRINGS,
		 allowed = 0;
	uint8_t bytes[16] = { 0 };
	struct rng r = { 79 };
	ZydisDecoder zydis;

	(void)state;
	ZydisDecoderInit(&zydis, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (unsigned n = 0; n < strings; n++) {
		struct insn x, y;
		bool valid;

		/* All of it, or something behind a head that was there before. */
		for (unsigned k = rng_chance(&r, 50) ? 0 : rng_below(&r, 8); k < sizeof(bytes); k++)
			bytes[k] = damage(&r, bytes[k]);
		valid = memo_decode(forget, bytes, sizeof(bytes), 0, &x);
		assert_int_equal(memo_decode(memo, bytes, sizeof(bytes), 0, &y), valid);
		if (!valid)
			continue;
		same_insn(&x, &y);
		same_numbers(&zydis, bytes, &y);
		allowed += !y.f->why;
	}
	assert_true(allowed > strings / 100);
	memo_free(memo);
	memo_free(forget);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mutants),
		cmocka_unit_test(test_memo),
		cmocka_unit_test(test_forms),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

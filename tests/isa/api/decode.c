// SPDX-License-Identifier: MIT
/*
 * Which bits are instructions and which are not: every 16-bit pattern, and every combination of the
 * fields that decide about a 32-bit one, against the table of tests/isa/lib and the rules of the C
 * extension. What is not an instruction must trap as illegal, with its pc and its bits; what is one
 * must not.
 */
#include "bed.h"

#include <inttypes.h>

/* ---- what the manual says ---- */

static u32 mask_of(enum rv_op op)
{
	switch (rv_info[op].format) {
	case FMT_R:
		return 0xfe00707f;
	case FMT_SH:
		return rv_info[op].arg == 6 ? 0xfc00707f : 0xfe00707f;
	case FMT_U1:
		return 0xfff0707f;
	case FMT_AM:
	case FMT_SC:
		return 0xf800707f;
	case FMT_LR:
		return 0xf9f0707f;
	case FMT_U:
	case FMT_J:
		return 0x7f;
	case FMT_N:
		return 0xffffffff;
	default:
		return 0x707f;
	}
}

static bool legal32(u32 bits)
{
	if ((bits & 0x7f) == 0x73 && (bits >> 12 & 3)) {
		/* Reads of cycle, time, instret that write nothing: csrrs, csrrc and their immediate forms. */
		return (bits >> 12 & 2) && !(bits >> 15 & 31) && bits >> 20 >= 0xc00 &&
		       bits >> 20 <= 0xc02;
	}
	for (int op = 0; op < OP_COUNT; op++)
		if (rv_info[op].format != FMT_CSR &&
		    (bits & mask_of((enum rv_op)op)) == rv_info[op].bits)
			return true;
	return false;
}

static bool legal16(unsigned h)
{
	unsigned rd = h >> 7 & 31, rs2 = h >> 2 & 31, imm = (h >> 12 & 1) << 5 | rs2;

	switch ((h & 3) << 3 | h >> 13) {
	case 000: /* c.addi4spn, with something to add */
		return h >> 5 & 0xff;
	case 002: /* c.lw c.ld c.sw c.sd */
	case 003:
	case 006:
	case 007:
		return true;
	case 010: /* c.addi, hints included */
	case 012: /* c.li */
	case 015: /* c.j c.beqz c.bnez */
	case 016:
	case 017:
	case 020: /* c.slli */
	case 026: /* c.swsp c.sdsp */
	case 027:
		return true;
	case 011: /* c.addiw */
	case 022: /* c.lwsp c.ldsp */
	case 023:
		return rd;
	case 013: /* c.lui, c.addi16sp */
		return imm;
	case 014: /* the last two of c.subw's row are reserved */
		return (h >> 10 & 7) != 7 || !(h & 0x40);
	case 024: /* c.jr x0 is reserved */
		return rd || rs2 || h >> 12 & 1;
	default: /* float, and what is reserved */
		return false;
	}
}

/* ---- running them ---- */

enum { BATCH = 8192 };

struct batch {
	u32 bits[BATCH];
	unsigned count, size; /* bytes of one instruction */
};

/* Each pattern, then ebreaks to come out at. Registers are zero, so that loads and jumps trap instead. */
static void run_batch(const struct batch *t)
{
	static const u32 stop = 0x90029002;
	struct bed b = { 0 };

	b.p.text_size = t->count * 8;
	b.p.data_base = RV_TEXT + ((b.p.text_size + RV_PAGE - 1) & ~(RV_PAGE - 1));
	b.p.text = malloc(b.p.text_size);
	for (unsigned n = 0; n < t->count; n++) {
		memcpy(b.p.text + 8 * n, &t->bits[n], 4);
		memcpy(b.p.text + 8 * n + t->size, &stop, 4);
		memcpy(b.p.text + 8 * n + 6, &stop, 2);
	}
	bed_open(&b, NULL);
	for (unsigned n = 0; n < t->count; n++) {
		struct vb_dpa_state *s = bed_state(&b);
		u64 pc = RV_TEXT + 8 * n;
		bool legal = t->size == 2 ? legal16(t->bits[n]) : legal32(t->bits[n]), refused;
		enum vb_dpa_why why;

		bed_reset(&b);
		s->pc = pc;
		s->instret = 0;
		why = bed_run(&b, 500);
		refused = why == VB_DPA_WHY_TRAP && s->cause == VB_DPA_CAUSE_ILLEGAL && s->pc == pc;
		if (refused == legal)
			fail_msg(
				"0x%0*x is %s instruction; it ended with %d, cause %d, pc 0x%" PRIx64
				" for 0x%" PRIx64,
				(int)t->size * 2, t->bits[n], legal ? "an" : "no", (int)why,
				(int)s->cause, s->pc, pc);
		if (!refused)
			continue;
		if (s->tval != t->bits[n] || s->instret)
			fail_msg("0x%x: tval 0x%" PRIx64 ", retired %" PRIu64, t->bits[n], s->tval,
				 s->instret);
	}
	bed_close(&b);
}

static void add(struct batch *t, u32 bits, bool last)
{
	if (!last)
		t->bits[t->count++] = bits;
	if (t->count == BATCH || (last && t->count)) {
		run_batch(t);
		t->count = 0;
	}
}

static void test_16_bit(void **state)
{
	static struct batch t = { .size = 2 };

	(void)state;
	for (u32 h = 0; h < 0x10000; h++)
		if ((h & 3) != 3)
			add(&t, h, false);
	add(&t, 0, true);
}

/* opcode x funct3 x funct7 x some rs2: all that tells 32-bit instructions apart. */
static void test_32_bit(void **state)
{
	static const u32 rs2[] = { 0, 1, 2, 4, 5, 7, 24, 31 };
	static struct batch t = { .size = 4 };
	struct rng r = { 1 };

	(void)state;
	for (u32 opcode = 3; opcode < 128; opcode += 4)
		for (u32 f3 = 0; f3 < 8; f3++)
			for (u32 f7 = 0; f7 < 128; f7++) {
				u32 bits = opcode | f3 << 12 | f7 << 25;

				add(&t, bits | (u32)(rng_next(&r) & 0x000f8f80), false);
				add(&t, bits | rs2[rng_below(&r, 8)] << 20, false);
				add(&t,
				    bits | rs2[rng_below(&r, 8)] << 20 |
					    (u32)(rng_next(&r) & 0x000f8f80),
				    false);
			}
	add(&t, 0, true);
}

/* Counters and other control registers, each by each way to name one. */
static void test_csr(void **state)
{
	static struct batch t = { .size = 4 };

	(void)state;
	for (u32 csr = 0; csr < 0x1000; csr++)
		add(&t, csr << 20 | (1 + csr % 7) << 12 | 0x73 | (csr % 3) << 7, false);
	for (u32 csr = 0xbf8; csr < 0xc20; csr++)
		for (u32 f3 = 1; f3 < 8; f3++)
			for (u32 rs1 = 0; rs1 < 3; rs1++)
				add(&t, csr << 20 | f3 << 12 | rs1 << 15 | 0x73 | (rs1 + 4) << 7,
				    false);
	add(&t, 0, true);
}

/* Around the unary and other single points: neighbours of every instruction by one bit. */
static void test_neighbours(void **state)
{
	static struct batch t = { .size = 4 };

	(void)state;
	for (int op = 0; op < OP_COUNT; op++)
		for (int bit = 2; bit < 32; bit++)
			add(&t, (rv_info[op].bits ^ 1u << bit) | 3, false);
	add(&t, 0xffffffff, false);
	add(&t, 0x30200073, false); /* mret */
	add(&t, 0x10200073, false); /* sret */
	add(&t, 0x10500073, false); /* wfi */
	add(&t, 0x12000073, false); /* sfence.vma */
	add(&t, 0, true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_16_bit),
		cmocka_unit_test(test_32_bit),
		cmocka_unit_test(test_csr),
		cmocka_unit_test(test_neighbours),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
/*
 * Owns the way from bits to vb_insn, and the array of them that a text is. Compressed instructions
 * are first rewritten as the 32-bit instruction that they stand for, so there is one decoder and
 * one meaning for both.
 *
 *   bits --(compressed)--> expand --> bucket[opcode, funct3] --> few (match, mask) --> op, operands
 */
#include "dpa/cpu/cpu.h"
#include "dpa/cpu/ops.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum format { FMT_R, FMT_I, FMT_S, FMT_B, FMT_U, FMT_J, FMT_H, FMT_W, FMT_F, FMT_N };

static const struct {
	enum format format;
	uint32_t match, mask;
} table[] = {
#define INSN(name, format, match, mask, semantics) [VB_OP_##name] = { FMT_##format, match, mask },
#include "dpa/cpu/insns.h"
#undef INSN
};

#define BUCKETS     256
#define BUCKET_SIZE 24

static uint8_t buckets[BUCKETS][BUCKET_SIZE]; /* ops, ended by VB_OP_ILLEGAL */
static pthread_once_t buckets_once = PTHREAD_ONCE_INIT;

static unsigned int decode_bucket_of(uint32_t bits)
{
	return (bits >> 2 & 31) << 3 | (bits >> 12 & 7);
}

static void buckets_fill(void)
{
	for (unsigned int b = 0; b < BUCKETS; b++) {
		uint32_t bits = 3 | (b >> 3) << 2 | (b & 7) << 12;
		unsigned int n = 0;

		for (unsigned int op = 0; op < VB_OP_ILLEGAL; op++)
			if (!((bits ^ table[op].match) & table[op].mask & 0x707f) &&
			    n < BUCKET_SIZE - 1)
				buckets[b][n++] = (uint8_t)op;
		buckets[b][n] = VB_OP_ILLEGAL;
	}
}

/* ---- compressed instructions ---- */

/*
 * Bits [from + width) of c, placed at `to`: the immediates of compressed instructions are
 * scattered.
 */
static uint32_t part(uint32_t c, unsigned int from, unsigned int width, unsigned int to)
{
	return (c >> from & ((1U << width) - 1)) << to;
}

static uint32_t sign(uint32_t value, unsigned int bit)
{
	return (value ^ 1U << bit) - (1U << bit);
}

static uint32_t enc_i(uint32_t match, uint32_t rd, uint32_t rs1, uint32_t imm)
{
	return match | rd << 7 | rs1 << 15 | imm << 20;
}

static uint32_t enc_s(uint32_t match, uint32_t rs1, uint32_t rs2, uint32_t imm)
{
	return match | rs1 << 15 | rs2 << 20 | (imm & 31) << 7 | (imm >> 5) << 25;
}

static uint32_t enc_b(uint32_t match, uint32_t rs1, uint32_t rs2, uint32_t imm)
{
	return match | rs1 << 15 | rs2 << 20 | part(imm, 11, 1, 7) | part(imm, 1, 4, 8) |
	       part(imm, 5, 6, 25) | part(imm, 12, 1, 31);
}

static uint32_t enc_j(uint32_t rd, uint32_t imm)
{
	return table[VB_OP_JAL].match | rd << 7 | part(imm, 12, 8, 12) | part(imm, 11, 1, 20) |
	       part(imm, 1, 10, 21) | part(imm, 20, 1, 31);
}

static uint32_t enc_r(uint32_t match, uint32_t rd, uint32_t rs1, uint32_t rs2)
{
	return match | rd << 7 | rs1 << 15 | rs2 << 20;
}

#define M(name) (table[VB_OP_##name].match)

static uint32_t expand_q0(uint32_t c)
{
	uint32_t rs1 = 8 + part(c, 7, 3, 0), r2 = 8 + part(c, 2, 3, 0), imm;
	uint32_t w = part(c, 6, 1, 2) | part(c, 10, 3, 3) | part(c, 5, 1, 6);
	uint32_t d = part(c, 10, 3, 3) | part(c, 5, 2, 6);

	switch (c >> 13) {
	case 0: /* c.addi4spn */
		imm = part(c, 6, 1, 2) | part(c, 5, 1, 3) | part(c, 11, 2, 4) | part(c, 7, 4, 6);
		return imm ? enc_i(M(ADDI), r2, 2, imm) : 0;
	case 2:
		return enc_i(M(LW), r2, rs1, w);
	case 3:
		return enc_i(M(LD), r2, rs1, d);
	case 6:
		return enc_s(M(SW), rs1, r2, w);
	case 7:
		return enc_s(M(SD), rs1, r2, d);
	default: /* floating point, reserved */
		return 0;
	}
}

static uint32_t expand_q1_alu(uint32_t c)
{
	static const uint8_t ops[8] = { VB_OP_SUB,  VB_OP_XOR,  VB_OP_OR,      VB_OP_AND,
					VB_OP_SUBW, VB_OP_ADDW, VB_OP_ILLEGAL, VB_OP_ILLEGAL };
	uint32_t rd = 8 + part(c, 7, 3, 0), shamt = part(c, 2, 5, 0) | part(c, 12, 1, 5);
	unsigned int op;

	switch (c >> 10 & 3) {
	case 0:
		return enc_i(M(SRLI), rd, rd, shamt);
	case 1:
		return enc_i(M(SRAI), rd, rd, shamt);
	case 2:
		return enc_i(M(ANDI), rd, rd, sign(shamt, 5));
	default:
		op = ops[part(c, 5, 2, 0) | part(c, 12, 1, 2)];
		return op == VB_OP_ILLEGAL ? 0
					   : enc_r(table[op].match, rd, rd, 8 + part(c, 2, 3, 0));
	}
}

static uint32_t expand_q1(uint32_t c)
{
	uint32_t rd = part(c, 7, 5, 0), imm = sign(part(c, 2, 5, 0) | part(c, 12, 1, 5), 5);
	uint32_t branch = sign(part(c, 3, 2, 1) | part(c, 10, 2, 3) | part(c, 2, 1, 5) |
				       part(c, 5, 2, 6) | part(c, 12, 1, 8),
			       8);

	switch (c >> 13) {
	case 0:
		return enc_i(M(ADDI), rd, rd, imm);
	case 1:
		return rd ? enc_i(M(ADDIW), rd, rd, imm) : 0;
	case 2:
		return enc_i(M(ADDI), rd, 0, imm);
	case 3:
		if (!imm)
			return 0;
		if (rd != 2)
			return M(LUI) | rd << 7 | imm << 12;
		imm = part(c, 6, 1, 4) | part(c, 2, 1, 5) | part(c, 5, 1, 6) | part(c, 3, 2, 7) |
		      part(c, 12, 1, 9);
		return enc_i(M(ADDI), 2, 2, sign(imm, 9));
	case 4:
		return expand_q1_alu(c);
	case 5:
		imm = part(c, 3, 3, 1) | part(c, 11, 1, 4) | part(c, 2, 1, 5) | part(c, 7, 1, 6) |
		      part(c, 6, 1, 7) | part(c, 9, 2, 8) | part(c, 8, 1, 10) | part(c, 12, 1, 11);
		return enc_j(0, sign(imm, 11));
	case 6:
		return enc_b(M(BEQ), 8 + part(c, 7, 3, 0), 0, branch);
	default:
		return enc_b(M(BNE), 8 + part(c, 7, 3, 0), 0, branch);
	}
}

static uint32_t expand_q2(uint32_t c)
{
	uint32_t rd = part(c, 7, 5, 0), rs2 = part(c, 2, 5, 0);

	switch (c >> 13) {
	case 0:
		return enc_i(M(SLLI), rd, rd, part(c, 2, 5, 0) | part(c, 12, 1, 5));
	case 2:
		return rd ? enc_i(M(LW), rd, 2,
				  part(c, 4, 3, 2) | part(c, 12, 1, 5) | part(c, 2, 2, 6))
			  : 0;
	case 3:
		return rd ? enc_i(M(LD), rd, 2,
				  part(c, 5, 2, 3) | part(c, 12, 1, 5) | part(c, 2, 3, 6))
			  : 0;
	case 4:
		if (c >> 12 & 1) {
			if (rs2)
				return enc_r(M(ADD), rd, rd, rs2);
			return rd ? enc_i(M(JALR), 1, rd, 0) : M(EBREAK);
		}
		if (rs2)
			return enc_r(M(ADD), rd, 0, rs2);
		return rd ? enc_i(M(JALR), 0, rd, 0) : 0;
	case 6:
		return enc_s(M(SW), 2, rs2, part(c, 9, 4, 2) | part(c, 7, 2, 6));
	case 7:
		return enc_s(M(SD), 2, rs2, part(c, 10, 3, 3) | part(c, 7, 3, 6));
	default:
		return 0;
	}
}

/* The 32-bit form of a compressed instruction; 0 (which is illegal) if there is none. */
static uint32_t decode_expand(uint32_t c)
{
	switch (c & 3) {
	case 0:
		return expand_q0(c & 0xffff);
	case 1:
		return expand_q1(c & 0xffff);
	default:
		return expand_q2(c & 0xffff);
	}
}

/* ---- all instructions ---- */

static int32_t immediate(enum format format, uint32_t bits)
{
	switch (format) {
	case FMT_I:
	case FMT_F:
		return (int32_t)bits >> 20;
	case FMT_S:
		return ((int32_t)bits >> 25) * 32 + (int32_t)part(bits, 7, 5, 0);
	case FMT_B:
		return (int32_t)sign(part(bits, 7, 1, 11) | part(bits, 8, 4, 1) |
					     part(bits, 25, 6, 5) | part(bits, 31, 1, 12),
				     12);
	case FMT_U:
		return (int32_t)(bits & 0xfffff000);
	case FMT_J:
		return (int32_t)sign(part(bits, 12, 8, 12) | part(bits, 20, 1, 11) |
					     part(bits, 21, 10, 1) | part(bits, 31, 1, 20),
				     20);
	case FMT_H:
		return (int32_t)part(bits, 20, 6, 0);
	case FMT_W:
		return (int32_t)part(bits, 20, 5, 0);
	default:
		return 0;
	}
}

/* The instruction's line of the table. */
static unsigned int find_op(uint32_t bits)
{
	const uint8_t *candidate = buckets[decode_bucket_of(bits)];

	if ((bits & 3) != 3)
		return VB_OP_ILLEGAL;
	while (*candidate != VB_OP_ILLEGAL &&
	       (bits & table[*candidate].mask) != table[*candidate].match)
		candidate++;
	return *candidate;
}

/*
 * Compressed instructions become the instruction they stand for. Never fails: op is ILLEGAL then.
 */
static void decode_insn(uint32_t bits, struct vb_insn *insn)
{
	bool compressed = (bits & 3) != 3;
	unsigned int op, rd, rs1, rs2;
	enum format format;

	pthread_once(&buckets_once, buckets_fill);
	if (compressed)
		bits = decode_expand(bits);
	op = find_op(bits);
	format = table[op].format;
	/*
	 * Fields that this format does not have, or whose bits select the instruction, are not
	 * registers: x0.
	 */
	rd = format == FMT_S || format == FMT_B || format == FMT_F || format == FMT_N
		     ? 0
		     : bits >> 7 & 31;
	rs1 = format == FMT_U || format == FMT_J || format == FMT_F || format == FMT_N
		      ? 0
		      : bits >> 15 & 31;
	rs2 = format == FMT_R || format == FMT_S || format == FMT_B ? bits >> 20 & 31 : 0;
	insn->op = (uint8_t)op;
	insn->rd = (uint8_t)(rd ? rd : VB_CPU_SINK);
	insn->rs1 = (uint8_t)(table[op].mask >> 15 & 31 ? 0 : rs1);
	insn->rs2 = (uint8_t)(table[op].mask >> 20 & 31 ? 0 : rs2);
	insn->imm = immediate(format, bits);
	insn->handler = vb_interp_handler(op, compressed);
}

/* ---- texts ---- */

/* End of the executable range that holds pc, 0 if none does. */
static uint64_t range_end(const struct vb_text *text, uint64_t pc)
{
	for (unsigned int i = 0; i < text->nranges; i++)
		if (pc >= text->ranges[i].lo && pc < text->ranges[i].hi)
			return text->ranges[i].hi;
	return 0;
}

uint32_t vb_text_bits(const struct vb_text *text, uint64_t pc)
{
	uint64_t end = range_end(text, pc);
	uint16_t low, high;

	if (pc & 1 || end - pc < 2 || !end)
		return 0;
	memcpy(&low, text->base + pc, 2);
	if (vb_insn_len(low) == 2)
		return low;
	if (end - pc < 4 && !range_end(text, pc + 2))
		return 0;
	memcpy(&high, text->base + pc + 2, 2);
	return low | (uint32_t)high << 16;
}

bool vb_text_zeros(const struct vb_text *text, uint64_t pc)
{
	for (unsigned int i = 0; i < text->nranges && !(pc & 1); i++)
		if (pc >= text->ranges[i].hi && pc + 1 < text->ranges[i].end)
			return true;
	return false;
}

static void decode_range(struct vb_text *text, const struct vb_text_range *range)
{
	for (uint64_t pc = (range->lo + 1) & ~1ULL; pc < range->hi && range->hi - pc >= 2;
	     pc += 2) {
		struct vb_insn *insn = &text->insns[(pc - text->lo) / 2];
		uint16_t low;

		memcpy(&low, text->base + pc, 2);
		if (vb_insn_len(low) == 2)
			decode_insn(low, insn);
		else if (range->hi - pc >= 4 || range_end(text, pc + 2))
			decode_insn(vb_text_bits(text, pc), insn);
	}
}

static void text_decode(struct vb_text *text)
{
	size_t n = (text->hi - text->lo) / 2;
	struct vb_insn none = {
		.op = VB_OP_NOFETCH,
		.rd = VB_CPU_SINK,
		.handler = vb_interp_handler(VB_OP_NOFETCH, true),
	};

	/*
	 * Straight-line code that runs off the end arrives at one of the two more, whatever the
	 * last length was.
	 */
	for (size_t i = 0; i < n + 2; i++)
		text->insns[i] = none;
	for (unsigned int i = 0; i < text->nranges; i++)
		decode_range(text, &text->ranges[i]);
}

/* Inaccessible on both sides: a jump that the host only guesses finds no instruction there. */
static struct vb_insn *map_insns(size_t bytes)
{
	size_t len = bytes + 2 * VB_CPU_INSNS_GUARD;
	uint8_t *map =
		mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (map == MAP_FAILED)
		return NULL;
	if (mprotect(map + VB_CPU_INSNS_GUARD, bytes, PROT_READ | PROT_WRITE)) {
		munmap(map, len);
		return NULL;
	}
	return (struct vb_insn *)(map + VB_CPU_INSNS_GUARD);
}

static void unmap_insns(struct vb_insn *insns, size_t bytes)
{
	munmap((uint8_t *)insns - VB_CPU_INSNS_GUARD, bytes + 2 * VB_CPU_INSNS_GUARD);
}

int vb_text_create(struct vb_text *text, const uint8_t *base, struct vb_text_range *ranges,
		   unsigned int nranges)
{
	*text = (struct vb_text){
		.base = base, .ranges = ranges, .nranges = nranges, .lo = UINT64_MAX
	};
	for (unsigned int i = 0; i < nranges; i++) {
		text->lo = ranges[i].lo < text->lo ? ranges[i].lo : text->lo;
		text->hi = ranges[i].hi > text->hi ? ranges[i].hi : text->hi;
		text->bytes += ranges[i].hi - ranges[i].lo;
	}
	if (!nranges)
		text->lo = text->hi = 0;
	/* Both ends even, so that an odd last byte is an entry of its own that traps. */
	text->lo &= ~1ULL;
	text->hi = (text->hi + 1) & ~1ULL;
	if (text->hi - text->lo > VB_CPU_TEXT_MAX)
		return -EFBIG;
	text->insns_bytes = ((text->hi - text->lo) / 2 + 2) * sizeof(struct vb_insn);
	text->insns = map_insns(text->insns_bytes);
	if (!text->insns)
		return -ENOMEM;
	text_decode(text);
	/* Nothing writes it again; a stray write of ours shows at once. */
	mprotect(text->insns, text->insns_bytes, PROT_READ);
	return 0;
}

static bool is_compressed(const struct vb_insn *insn)
{
	return insn->handler == vb_interp_handler(insn->op, true);
}

int vb_text_create_observed(struct vb_text *text, const struct vb_text *of,
			    struct vb_observer *observer)
{
	struct vb_text_range *ranges = malloc((of->nranges + 1) * sizeof(*ranges));
	struct vb_insn *insns = map_insns(of->insns_bytes);

	if (!ranges || !insns) {
		free(ranges);
		if (insns)
			unmap_insns(insns, of->insns_bytes);
		return -ENOMEM;
	}
	memcpy(ranges, of->ranges, of->nranges * sizeof(*ranges));
	for (size_t i = 0; i < of->insns_bytes / sizeof(*insns); i++) {
		insns[i] = of->insns[i];
		insns[i].handler = vb_observed_handler(insns[i].op, is_compressed(&of->insns[i]));
	}
	*text = *of;
	text->ranges = ranges;
	text->insns = insns;
	text->jit = NULL;
	text->observer = observer;
	return 0;
}

int vb_text_mark(struct vb_text *text, uint64_t pc, bool set)
{
	struct vb_insn *insn;
	const void *handler;

	if (!vb_text_holds(text, pc))
		return -EFAULT;
	insn = &text->insns[(pc - text->lo) / 2];
	if (insn->op == VB_OP_NOFETCH)
		return -EFAULT;
	handler = set ? vb_observed_mark_handler()
		      : vb_observed_handler(insn->op, (text->base[pc] & 3) != 3);
	/* Other threads may be fetching it. */
	__atomic_store_n(&insn->handler, handler, __ATOMIC_RELAXED);
	return 0;
}

void vb_text_destroy(struct vb_text *text)
{
	if (text->insns)
		unmap_insns(text->insns, text->insns_bytes);
	free(text->ranges);
	*text = (struct vb_text){ 0 };
}

// SPDX-License-Identifier: MIT
/*
 * Owns the question whether a value that nobody wrote matters. Compilers load and store what they
 * copy, padding and unset members included, and change bit-fields by loading all of them: no bug.
 * So the instructions behind the load are followed, without executing them, as long as they are a
 * straight line:
 *
 *	copied by a store          the destination is as unwritten as the source was
 *	masked, then stored        a bit-field: fine
 *	computed with, compared, an address, an argument, a result: used
 *	a branch on something else, a long way: nothing is known, and nothing is said
 */
#include "dpa/observe/check.h"
#include "dpa/cpu/ops.h"

#define FAR 48 /* instructions */

enum { A0 = 10, ARGUMENTS = 0xff << A0 };

static const char formats[] = {
#define INSN(name, format, match, mask, semantics) [VB_OP_##name] = #format[0],
#include "dpa/cpu/insns.h"
#undef INSN
};

struct taint {
	uint32_t regs;   /* hold it, or what was made of it */
	uint32_t pure;   /* hold it as it is */
	uint32_t stored; /* what they hold went to memory: what remains may be left over */
	unsigned int size;
	bool whole; /* a structure is loaded into argument registers: some members may be unset */
};

static uint32_t reads(const struct vb_insn *i)
{
	switch (formats[i->op]) {
	case 'R':
	case 'S':
	case 'B':
		return (1U << i->rs1 | 1U << i->rs2) & ~1U;
	case 'I':
	case 'H':
	case 'W':
		return 1U << i->rs1 & ~1U;
	default:
		return 0;
	}
}

static unsigned int access_size(unsigned int op)
{
	switch (op) {
	case VB_OP_LB:
	case VB_OP_LBU:
	case VB_OP_SB:
		return 1;
	case VB_OP_LH:
	case VB_OP_LHU:
	case VB_OP_SH:
		return 2;
	case VB_OP_LW:
	case VB_OP_LWU:
	case VB_OP_SW:
	case VB_OP_LR_W:
		return 4;
	default:
		return 8;
	}
}

/* Moves a register as it is, as far as its low bytes go. */
static bool moves(const struct vb_insn *i)
{
	switch (i->op) {
	case VB_OP_ADDI:
	case VB_OP_ADDIW:
		return !i->imm;
	case VB_OP_ADD:
	case VB_OP_OR:
		return !i->rs1 || !i->rs2;
	default:
		return false;
	}
}

/* Part of putting a bit-field together. */
static bool masks(const struct vb_insn *i)
{
	switch (i->op) {
	case VB_OP_AND:
	case VB_OP_ANDI:
	case VB_OP_ANDN:
	case VB_OP_OR:
	case VB_OP_ORI:
	case VB_OP_XOR:
	case VB_OP_XORI:
	case VB_OP_SLLI:
	case VB_OP_SRLI:
	case VB_OP_SRAI:
	case VB_OP_SLLIW:
	case VB_OP_SRLIW:
	case VB_OP_SRAIW:
	case VB_OP_BCLR:
	case VB_OP_BCLRI:
	case VB_OP_BSET:
	case VB_OP_BSETI:
	case VB_OP_RORI:
	case VB_OP_RORIW:
	case VB_OP_SEXT_B:
	case VB_OP_SEXT_H:
	case VB_OP_ZEXT_H:
	case VB_OP_SLLI_UW:
		return true;
	case VB_OP_ADD_UW: /* zext.w */
		return !i->rs2;
	default:
		return false;
	}
}

enum step { STEP_ON, STEP_USED, STEP_UNKNOWN };

static enum step leaves(const struct vb_insn *i, const struct taint *t)
{
	uint32_t live = t->whole ? 0 : t->regs & ~t->stored;

	if (reads(i) & t->regs)
		return STEP_USED;
	if (i->rd != VB_CPU_SINK || i->op == VB_OP_ECALL)
		return live & ARGUMENTS ? STEP_USED : STEP_UNKNOWN;
	return i->op == VB_OP_JALR && live & 1U << A0 ? STEP_USED : STEP_UNKNOWN;
}

static enum step check_flow_store(const struct vb_insn *i, struct taint *t, struct check_thread *to,
				  uint64_t instret)
{
	uint32_t value = 1U << i->rs2;

	if (t->regs & 1U << i->rs1)
		return STEP_USED;
	if (!(t->regs & value))
		return STEP_ON;
	/* A register that a bit-field was made of is left over as well. */
	t->stored |= t->regs;
	if (t->pure & value && access_size(i->op) <= t->size && to->ncopies < CHECK_COPIES)
		to->copies[to->ncopies++] = instret;
	return STEP_ON;
}

static enum step compute(const struct vb_insn *i, struct taint *t)
{
	uint32_t rd = i->rd < 32 ? 1U << i->rd : 0, tainted = reads(i) & t->regs;
	bool pure = tainted && moves(i);

	if (tainted && !pure && !masks(i))
		return STEP_USED;
	t->regs = tainted ? t->regs | rd : t->regs & ~rd;
	t->pure = pure && t->pure & tainted ? t->pure | rd : t->pure & ~rd;
	t->stored &= ~rd;
	return STEP_ON;
}

static enum step check_flow_step(const struct vb_insn *i, struct taint *t, struct check_thread *to,
				 uint64_t instret)
{
	switch (formats[i->op]) {
	case 'S':
		return check_flow_store(i, t, to, instret);
	case 'B':
		return reads(i) & t->regs ? STEP_USED : STEP_UNKNOWN;
	case 'F':
		return STEP_ON;
	case 'J':
	case 'N':
		return i->op == VB_OP_FENCE_I ? STEP_ON : leaves(i, t);
	default:
		return i->op == VB_OP_JALR ? leaves(i, t) : compute(i, t);
	}
}

/*
 * Structures of two words are passed and returned in two registers that follow one another. Nothing
 * else tells them from two words of a structure that are passed one by one.
 */
static bool is_pair(const struct vb_insn *a, const struct vb_insn *b)
{
	int regs = (int)b->rd - (int)a->rd;

	/* The base may be in two registers: the first load may overwrite it. */
	return a->op == VB_OP_LD && b->op == VB_OP_LD && (regs == 1 || regs == -1) &&
	       b->imm - a->imm == 8 * regs;
}

/* Whether the other half was loaded just before. Two steps back may be wrong, which is no harm. */
static bool was_paired(const struct vb_text *text, uint64_t pc, const struct vb_insn *load)
{
	for (unsigned int n = 0; n < 2; n++) {
		if (vb_text_holds(text, pc - 4) &&
		    vb_insn_len((uint16_t)vb_text_bits(text, pc - 4)) == 4)
			pc -= 4;
		else if (vb_text_holds(text, pc - 2))
			pc -= 2;
		else
			return false;
		if (is_pair(load, &text->insns[(pc - text->lo) / 2]))
			return true;
	}
	return false;
}

enum flow vb_flow_follow(struct vb_dpa_thread *thread)
{
	const struct vb_text *text = &thread->process->text;
	uint64_t pc = thread->cpu.s.pc, instret = thread->cpu.s.instret;
	const struct vb_insn *load = &text->insns[(pc - text->lo) / 2], *i = load;
	uint32_t rd = i->rd < 32 ? 1U << i->rd : 0;
	struct taint t = { .regs = rd,
			   .pure = rd,
			   .size = access_size(i->op),
			   .whole = was_paired(text, pc, load) };
	unsigned int copies = thread->check.ncopies;
	enum step how = STEP_ON;

	for (unsigned int n = 1; n < FAR && how == STEP_ON && t.regs; n++) {
		if (i->op == VB_OP_JAL && i->rd == VB_CPU_SINK)
			pc += (uint64_t)(int64_t)i->imm;
		else
			pc += vb_insn_len((uint16_t)vb_text_bits(text, pc));
		if (!vb_text_holds(text, pc))
			break;
		i = &text->insns[(pc - text->lo) / 2];
		if (i->op == VB_OP_JAL && i->rd == VB_CPU_SINK)
			continue;
		t.whole |= is_pair(load, i);
		how = check_flow_step(i, &t, &thread->check, instret + n);
	}
	if (how != STEP_USED)
		return FLOW_OTHER;
	thread->check.ncopies = copies;
	return FLOW_USED;
}

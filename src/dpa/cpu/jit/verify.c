// SPDX-License-Identifier: MIT
/*
 * Owns the check of finished host code against the contract in verify.h.
 *
 *   thunks    compared with a listing (verify_thunks.c)
 *   body      each instruction is of an allowed form, given the few before it; on the way it is noted
 *             where instructions start, where jumps lead, and where none may lead
 *   marks     the notes agree with each other
 *
 * Instructions are decoded, and what is wrong with them whatever their operands are, is found in
 * verify_insn.c. Sequences are recognised from their last instruction, by looking back. No jump may
 * lead inside of one, because who comes from there has not executed what is before it.
 */
#include "dpa/cpu/jit/verify_check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define REACH 4096 /* what a displacement and an operand may add to a low half */

_Static_assert(2 * REACH < VB_CPU_GUARD, "a guard holds it");

enum at {
	AT_START = 1,   /* an instruction */
	AT_TARGET = 2,  /* control may come from elsewhere */
	AT_RESET = 4,   /* control comes from where rsp was reset */
	AT_LEADER = 8,  /* the jump table has it */
	AT_INSIDE = 16, /* of a sequence: neither target nor reset */
	AT_CHECKED =
		32,   /* right behind a look at the stack: no target, but a reset may lead here */
	AT_MISS = 64, /* where a window's compare leads: the end of the mark */
	AT_UNMARK = 128, /* is that */
};

int refuse(struct check *c, uint32_t at, const char *fmt, ...)
{
	va_list args;
	int n = snprintf(c->why, c->size, "at 0x%x: ", at);

	va_start(args, fmt);
	if (n > 0 && (size_t)n < c->size)
		vsnprintf(c->why + n, c->size - (size_t)n, fmt, args);
	va_end(args);
	return -EBADMSG;
}

/* ---- what instructions and operands are ---- */

static bool is(const struct insn *x, ZydisMnemonic mnemonic)
{
	return x->f->mnemonic == mnemonic;
}

/* The k-th operand. */
static bool is_reg(const struct insn *x, unsigned int k, unsigned int reg)
{
	return x->f->o[k].type == ZYDIS_OPERAND_TYPE_REGISTER && x->f->o[k].reg == reg;
}

static bool is_imm(const struct insn *x, unsigned int k, int64_t value)
{
	return x->f->o[k].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && x->f->imm_size &&
	       insn_imm(x) == value;
}

static bool is_mem(const struct insn *x, unsigned int k, unsigned int base, unsigned int index)
{
	const struct operand *o = &x->f->o[k];

	return o->type == ZYDIS_OPERAND_TYPE_MEMORY && o->reg == base && o->index == index;
}

static bool is_field(const struct insn *x, unsigned int k, int disp)
{
	return is_mem(x, k, ZYDIS_REGISTER_RBP, ZYDIS_REGISTER_NONE) && insn_disp(x) == disp;
}

/* A guest register in memory; x0, which is never written, if it is only read. */
static bool is_slot(const struct insn *x, unsigned int k, bool written)
{
	int64_t at = insn_disp(x) + STATE_BIAS;

	return is_mem(x, k, ZYDIS_REGISTER_RBP, ZYDIS_REGISTER_NONE) && at >= (written ? 8 : 0) &&
	       at % 8 + x->f->o[k].size / 8 <= 8 && at < 32 * 8;
}

static int64_t verify_target(const struct insn *x)
{
	return (int64_t)x->at + x->f->length + insn_imm(x);
}

static bool is_mark(const struct insn *x, int64_t value)
{
	return is(x, ZYDIS_MNEMONIC_MOV) && is_field(x, 0, DISP(accessing)) &&
	       x->f->o[0].size == 32 && is_imm(x, 1, value);
}

static bool is_fence(const struct insn *x)
{
	return is(x, ZYDIS_MNEMONIC_OR) && x->f->lock &&
	       is_mem(x, 0, ZYDIS_REGISTER_RSP, ZYDIS_REGISTER_NONE) && insn_disp(x) == 0 &&
	       x->f->o[0].size == 32 && is_imm(x, 1, 0);
}

static bool verify_is_reset(const struct insn *x)
{
	return is(x, ZYDIS_MNEMONIC_MOV) && is_reg(x, 0, ZYDIS_REGISTER_RSP) &&
	       is_field(x, 1, DISP(pred_base));
}

static bool is_stack_check(const struct insn *x)
{
	return is(x, ZYDIS_MNEMONIC_CMP) && is_reg(x, 0, ZYDIS_REGISTER_RSP) &&
	       is_field(x, 1, DISP(pred_limit));
}

/* cmovae reg, x0: what the compare before it let pass, or zero */
static bool is_clamp(const struct insn *x, unsigned int reg)
{
	return is(x, ZYDIS_MNEMONIC_CMOVNB) && is_reg(x, 0, reg) && is_field(x, 1, -STATE_BIAS);
}

/* xor reg, reg */
static bool is_zero(const struct insn *x, unsigned int reg)
{
	return is(x, ZYDIS_MNEMONIC_XOR) && is_reg(x, 0, reg) && is_reg(x, 1, reg);
}

/* op rax, [field] */
static bool is_rax_field(const struct insn *x, ZydisMnemonic mnemonic, int disp)
{
	return is(x, mnemonic) && is_reg(x, 0, ZYDIS_REGISTER_RAX) && is_field(x, 1, disp);
}

/* ---- looking back ---- */

/* The k-th instruction before this one; 0: this one. Before the first there is nothing. */
static const struct insn *past(const struct check *c, unsigned int k)
{
	return &c->past[(c->n - k) % HISTORY];
}

/* Nobody may jump to the latest `count` instructions, this one included. */
static bool seal(struct check *c, unsigned int count)
{
	if (c->n < count)
		return false;
	for (unsigned int k = 0; k < count; k++)
		c->marks[past(c, k)->at] |= AT_INSIDE;
	return true;
}

/* cmp rsp, pred_limit; jb ..., right before the k-th instruction back */
static bool stack_is_checked(struct check *c, unsigned int k)
{
	if (c->n < k + 3 || !is_stack_check(past(c, k + 2)) ||
	    !is(past(c, k + 1), ZYDIS_MNEMONIC_JB))
		return false;
	c->marks[past(c, k + 1)->at] |= AT_INSIDE;
	c->marks[past(c, k)->at] |= AT_CHECKED;
	return true;
}

/* This is [r14 + rdx * 4 + table] of a jmp or call. */
static bool is_table_jump(struct check *c)
{
	const struct insn *x = past(c, 0), *jae = past(c, 2), *cmp = past(c, 3), *lea = past(c, 4),
			  *and = past(c, 5);

	return is_mem(x, 0, ZYDIS_REGISTER_R14, ZYDIS_REGISTER_RDX) && x->f->o[0].scale == 4 &&
	       insn_disp(x) == c->v->table && x->f->o[0].size == 64 &&
	       is_clamp(past(c, 1), ZYDIS_REGISTER_RDX) && is(jae, ZYDIS_MNEMONIC_JNB) &&
	       verify_target(jae) == c->v->miss && is(cmp, ZYDIS_MNEMONIC_CMP) &&
	       is_reg(cmp, 0, ZYDIS_REGISTER_RDX) && is_imm(cmp, 1, (int64_t)c->v->text_len) &&
	       is(lea, ZYDIS_MNEMONIC_LEA) && is_reg(lea, 0, ZYDIS_REGISTER_RDX) &&
	       is_mem(lea, 1, ZYDIS_REGISTER_RAX, ZYDIS_REGISTER_NONE) &&
	       insn_disp(lea) == -(int64_t)c->v->text_lo && is(and, ZYDIS_MNEMONIC_AND) &&
	       is_reg(and, 0, ZYDIS_REGISTER_RAX) && is_imm(and, 1, -2) && seal(c, 5);
}

/* This is an access to [rax]: the window sequence is behind us. */
static int check_window(struct check *c, const struct insn *x)
{
	unsigned int actions = x->f->o[x->f->memory].actions;
	bool store = actions & ZYDIS_OPERAND_ACTION_MASK_WRITE;
	const struct insn *lea = past(c, 6);
	unsigned int k = 7;

	if (insn_disp(x) || (store && actions & ZYDIS_OPERAND_ACTION_MASK_READ))
		return refuse(c, x->at, "not a plain access to a window");
	if (store && gpr(x->f->o[1].reg) == RAX)
		return refuse(c, x->at, "a window that gets its own address");
	if (!is_rax_field(past(c, 1), ZYDIS_MNEMONIC_ADD, DISP(window_host)) ||
	    !is_clamp(past(c, 2), ZYDIS_REGISTER_RAX) || !is(past(c, 3), ZYDIS_MNEMONIC_JNB) ||
	    !is_rax_field(past(c, 4), ZYDIS_MNEMONIC_CMP,
			  store ? DISP(window_store) : DISP(window_load)) ||
	    !is_rax_field(past(c, 5), ZYDIS_MNEMONIC_SUB, DISP(window_tag)) ||
	    !is(lea, ZYDIS_MNEMONIC_LEA) || !is_reg(lea, 0, ZYDIS_REGISTER_RAX))
		return refuse(c, x->at, "an access through rax without the compare of a window");
	if (is(past(c, k), ZYDIS_MNEMONIC_MOV) && is_reg(past(c, k), 0, ZYDIS_REGISTER_RAX) &&
	    is_slot(past(c, k), 1, false))
		k++;
	if (c->v->fences && !is_fence(past(c, k++)))
		return refuse(c, x->at, "a window access without a fence behind its mark");
	if (!is_mark(past(c, k), 1) || !seal(c, k))
		return refuse(c, x->at, "a window access without a mark");
	c->expect = EXPECT_UNMARK;
	return 0;
}

/* The k-th instruction back makes rax and the slot at disp equal. */
static bool rax_is_slot(const struct check *c, unsigned int k, int64_t disp)
{
	const struct insn *x = past(c, k);
	bool load = is_reg(x, 0, ZYDIS_REGISTER_RAX);

	return is(x, ZYDIS_MNEMONIC_MOV) && is_field(x, load, (int)disp) &&
	       is_reg(x, !load, ZYDIS_REGISTER_RAX);
}

/* reg, tested by the k-th instruction back, is the divisor, and stays it up to here. */
static bool is_divisor(struct check *c, unsigned int k, unsigned int reg)
{
	const struct insn *x = past(c, 0);

	if (x->f->o[0].type == ZYDIS_OPERAND_TYPE_REGISTER)
		return gpr(x->f->o[0].reg) == reg && reg != RAX && reg != RDX && seal(c, k);
	/* Other registers may be extended between the two. */
	for (k++; k < HISTORY - 1 && is(past(c, k), ZYDIS_MNEMONIC_MOVSXD) &&
		  gpr(past(c, k)->f->o[0].reg) != RAX;)
		k++;
	return is_slot(x, 0, false) && reg == RAX && rax_is_slot(c, k, insn_disp(x)) && seal(c, k);
}

/*
 * This is div or idiv. Unsigned: test d, d; jz; (rax = dividend;) xor edx, edx. Signed: lea rdx, [d
 * + 1]; cmp rdx, 1; jbe; (rax = dividend;) cqo or cdq: neither 0 nor -1.
 */
static bool is_safe_division(struct check *c)
{
	unsigned int size = past(c, 0)->f->o[0].size, k = 2;
	bool sign = is(past(c, 0), ZYDIS_MNEMONIC_IDIV);
	const struct insn *high = past(c, 1), *test, *lea;
	const struct operand *tested;

	if (size < 32 || (sign ? !is(high, size == 64 ? ZYDIS_MNEMONIC_CQO : ZYDIS_MNEMONIC_CDQ)
			       : !is_zero(high, ZYDIS_REGISTER_EDX)))
		return false;
	if (is_reg(past(c, k), 0, ZYDIS_REGISTER_RAX) ? is(past(c, k), ZYDIS_MNEMONIC_MOV)
						      : is_zero(past(c, k), ZYDIS_REGISTER_EAX))
		k++;
	if (!is(past(c, k++), sign ? ZYDIS_MNEMONIC_JBE : ZYDIS_MNEMONIC_JZ))
		return false;
	test = past(c, k);
	tested = &test->f->o[0];
	if (tested->type != ZYDIS_OPERAND_TYPE_REGISTER || tested->size != size)
		return false;
	if (!sign)
		return is(test, ZYDIS_MNEMONIC_TEST) && is_reg(test, 1, tested->reg) &&
		       is_divisor(c, k, gpr(tested->reg));
	lea = past(c, ++k);
	return is(test, ZYDIS_MNEMONIC_CMP) && gpr(tested->reg) == RDX && is_imm(test, 1, 1) &&
	       is(lea, ZYDIS_MNEMONIC_LEA) && lea->f->o[0].size == size &&
	       gpr(lea->f->o[0].reg) == RDX && lea->f->o[1].index == ZYDIS_REGISTER_NONE &&
	       insn_disp(lea) == 1 && is_divisor(c, k, gpr(lea->f->o[1].reg));
}

/* ---- memory ---- */

/*
 * No jump may lead in between the mov that made this low half and its access here. What earlier
 * accesses through the same low half have sealed is not gone over again: the work stays linear,
 * however many there are.
 */
static void seal_low(struct check *c, unsigned int reg, uint32_t to)
{
	uint32_t from = c->low[reg] > c->sealed[reg] ? c->low[reg] : c->sealed[reg];

	for (uint32_t at = from + 1; at <= to; at++)
		c->marks[at] |= AT_INSIDE;
	c->sealed[reg] = to;
}

/* Guest memory: [r14 + ...]. */
static int check_guest(struct check *c, const struct insn *x, const struct operand *m)
{
	int64_t disp = insn_disp(x), size = m->size / 8;
	unsigned int reg = gpr(m->index);

	if (m->index == ZYDIS_REGISTER_NONE)
		return disp >= 0 && (uint64_t)(disp + size) <= c->v->limit
			       ? 0
			       : refuse(c, x->at, "a constant address outside of guest memory");
	if (m->scale != 1 || reg == 16 || !(c->halves >> reg & 1))
		return refuse(c, x->at, "guest memory through a register that is no low half");
	seal_low(c, reg, x->at);
	if (disp < -REACH || disp + size > REACH)
		return refuse(c, x->at, "a displacement of %lld", (long long)disp);
	return 0;
}

/* The cpu: [rbp + disp]. */
static int check_cpu(struct check *c, const struct insn *x, const struct operand *m)
{
	unsigned int k = (unsigned int)x->f->memory;

	if (m->index != ZYDIS_REGISTER_NONE)
		return refuse(c, x->at, "an index into the cpu");
	if (is_slot(x, k, m->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) ||
	    is_field(x, k, DISP(reserved_addr)) || is_field(x, k, DISP(reserved_value)))
		return 0;
	if (verify_is_reset(x)) {
		c->expect = EXPECT_JMP;
		return 0;
	}
	if (is_rax_field(x, ZYDIS_MNEMONIC_ADD, DISP(window_host)) && c->open) {
		c->expect = EXPECT_ACCESS;
		return 0;
	}
	if (is_stack_check(x) ||
	    (c->open && (is_rax_field(x, ZYDIS_MNEMONIC_SUB, DISP(window_tag)) ||
			 is_rax_field(x, ZYDIS_MNEMONIC_CMP, DISP(window_load)) ||
			 is_rax_field(x, ZYDIS_MNEMONIC_CMP, DISP(window_store)))))
		return 0;
	if (is_mark(x, 0) || (is_mark(x, 1) && !c->open)) {
		c->open = is_mark(x, 1);
		if (!c->open)
			c->marks[x->at] |= AT_UNMARK;
		return 0;
	}
	return refuse(c, x->at, "a field of the cpu that is not the guest's");
}

/* A fault of the access finds its way back to the guest. Sites are in the order of the code. */
static bool is_site(struct check *c, uint32_t at)
{
	while (c->site < c->v->nsites && c->v->sites[c->site].host < at)
		c->site++;
	return c->site < c->v->nsites && c->v->sites[c->site].host == at;
}

static int verify_check_memory(struct check *c, const struct insn *x)
{
	const struct operand *m = &x->f->o[x->f->memory];

	switch (m->reg) {
	case ZYDIS_REGISTER_R14:
		return is_site(c, x->at) ? check_guest(c, x, m)
					 : refuse(c, x->at, "an access that is no site");
	case ZYDIS_REGISTER_RBP:
		return check_cpu(c, x, m);
	case ZYDIS_REGISTER_RSP:
		return is_fence(x) ? 0 : refuse(c, x->at, "the host's stack");
	case ZYDIS_REGISTER_RAX:
		if (c->expect == EXPECT_ACCESS && m->index == ZYDIS_REGISTER_NONE &&
		    is_site(c, x->at))
			return check_window(c, x);
		break;
	default:
		break;
	}
	return refuse(c, x->at, "memory through another register");
}

/* A low half is what a 32-bit mov made, until anything else is written to it. */
static void track_low(struct check *c, const struct insn *x)
{
	c->halves = (c->halves & ~(unsigned int)x->f->written) | x->f->low_bit;
	c->low[x->f->low] = x->at;
}

/* ---- control ---- */

static int check_jump(struct check *c, const struct insn *x)
{
	bool reset = c->expect == EXPECT_JMP;
	int64_t to;

	if (!x->f->direct)
		return x->f->kind == JMP && is_table_jump(c)
			       ? 0
			       : refuse(c, x->at, "an indirect jump that is not through the table");
	to = verify_target(x);
	if (!reset && !c->open && (to == c->leave || to == c->v->miss || to == c->dispatch))
		return 0;
	if (to < c->body || to >= (int64_t)c->v->len)
		return refuse(c, x->at, "a jump into nowhere");
	c->marks[to] |= (uint8_t)((reset ? AT_RESET : AT_TARGET) | (c->open ? AT_MISS : 0));
	return 0;
}

static int check_call(struct check *c, const struct insn *x)
{
	const struct insn *before = past(c, 1);
	int64_t to = verify_target(x);

	if (x->at + x->f->length < c->v->len)
		c->marks[x->at + x->f->length] |= AT_TARGET;
	if (!x->f->direct)
		return is_table_jump(c) && stack_is_checked(c, 5)
			       ? 0
			       : refuse(c, x->at, "an indirect call that is not through the table");
	if (to == c->execute)
		return is(before, ZYDIS_MNEMONIC_MOV) && is_reg(before, 0, ZYDIS_REGISTER_EAX) &&
				       before->f->o[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
				       (uint32_t)insn_imm(before) < c->v->nsites && seal(c, 1)
			       ? 0
			       : refuse(c, x->at, "a call of execute without a site");
	if (to < c->body || to >= (int64_t)c->v->len || !stack_is_checked(c, 0))
		return refuse(c, x->at, "a call into nowhere, or without a look at the stack");
	if (!(c->marks[to] & AT_LEADER))
		return refuse(c, x->at, "a call of something that is no leader");
	return 0;
}

/* Inside of a marked access nothing goes elsewhere, but the jump of its compare. */
static bool leaves_window(const struct check *c, const struct insn *x)
{
	return x->f->kind == JCC
		       ? !is_rax_field(past(c, 1), ZYDIS_MNEMONIC_CMP, DISP(window_load)) &&
				 !is_rax_field(past(c, 1), ZYDIS_MNEMONIC_CMP, DISP(window_store))
		       : x->f->kind != PLAIN;
}

static int check_plain(struct check *c, const struct insn *x)
{
	if ((is(x, ZYDIS_MNEMONIC_DIV) || is(x, ZYDIS_MNEMONIC_IDIV)) && !is_safe_division(c))
		return refuse(c, x->at, "a division that may trap");
	if (x->f->host && !verify_is_reset(x) && !is_stack_check(x))
		return refuse(c, x->at, "a register that is the host's");
	return x->f->memory >= 0 ? verify_check_memory(c, x) : 0;
}

static int check_kind(struct check *c, const struct insn *x)
{
	switch (x->f->kind) {
	case JMP:
	case JCC:
		return check_jump(c, x);
	case CALL:
		return check_call(c, x);
	case RET:
		return 0;
	default:
		return check_plain(c, x);
	}
}

/* In the middle of a sequence, or of a marked access. */
static int check_inside(struct check *c, const struct insn *x)
{
	enum expect expect = c->expect;
	int err;

	if (c->open && leaves_window(c, x))
		return refuse(c, x->at, "the way out of a marked access");
	if ((expect == EXPECT_JMP && !(x->f->kind == JMP && x->f->direct)) ||
	    (expect == EXPECT_UNMARK && !is_mark(x, 0)))
		return refuse(c, x->at, "a sequence is not complete");
	if (expect != ANYTHING)
		c->marks[x->at] |= AT_INSIDE;
	err = check_kind(c, x);
	if (!err && expect == EXPECT_ACCESS && c->expect != EXPECT_UNMARK)
		err = refuse(c, x->at, "a window's address and no access");
	if (c->expect == expect)
		c->expect = ANYTHING;
	return err;
}

static int check_body(struct check *c)
{
	const struct insn *x = NULL;
	int err = 0;

	for (uint32_t at = c->body; at < c->v->len && !err; at += x->f->length) {
		struct insn *now = &c->past[++c->n % HISTORY];

		if (!memo_decode(c->memo, c->v->code, c->v->len, at, now))
			return refuse(c, at, "not an instruction");
		x = now;
		c->marks[at] |= AT_START;
		if (x->f->why)
			err = refuse(c, at, "%s", x->f->why);
		else if (c->open || c->expect != ANYTHING)
			err = check_inside(c, x);
		else if (!x->f->calm)
			err = check_kind(c, x);
		track_low(c, x);
	}
	if (!err && x &&
	    ((x->f->kind != JMP && x->f->kind != RET) || c->open || c->expect != ANYTHING))
		err = refuse(c, x->at, "the code runs off its end");
	return err;
}

/* ---- the whole ---- */

/* They are looked up by bisection when an access faults. */
static int check_sites(struct check *c)
{
	const struct verify *v = c->v;

	for (size_t i = 1; i < v->nsites; i++)
		if (v->sites[i].host < v->sites[i - 1].host)
			return refuse(c, v->sites[i].host, "a site out of order");
	return 0;
}

static int mark_leaders(struct check *c)
{
	const struct verify *v = c->v;

	for (size_t i = 0; i < v->noffsets; i++) {
		if (v->offsets[i] && (v->offsets[i] < c->body || v->offsets[i] >= v->len))
			return refuse(c, v->offsets[i], "a leader outside of the body");
		if (v->offsets[i])
			c->marks[v->offsets[i]] |= AT_TARGET | AT_LEADER;
	}
	return 0;
}

static int check_mark(struct check *c, uint32_t at)
{
	unsigned int m = c->marks[at];

	if ((m & ~(unsigned int)(AT_LEADER | AT_UNMARK)) == (AT_START | AT_TARGET))
		return 0;
	if (m & (AT_TARGET | AT_RESET) && !(m & AT_START))
		return refuse(c, at, "a jump into an instruction");
	if (m & AT_INSIDE && m & (AT_TARGET | AT_RESET))
		return refuse(c, at, "a jump into a sequence");
	if (m & AT_CHECKED && m & AT_TARGET)
		return refuse(c, at, "a jump over a look at the stack");
	if (m & AT_RESET && !(m & AT_CHECKED))
		return refuse(c, at, "a reset of the stack that nobody asked for");
	if (m & AT_MISS && !(m & AT_UNMARK))
		return refuse(c, at, "a window's miss that keeps the mark");
	return 0;
}

/* Only places that something leads to can be wrong, and they are few: look at eight bytes at once. */
static int check_marks(struct check *c)
{
	const uint64_t led_to = 0x0101010101010101ULL * (AT_TARGET | AT_RESET | AT_MISS);
	uint64_t eight;
	int err = 0;

	for (uint32_t at = c->body; at < c->v->len && !err; at += 8) {
		memcpy(&eight, c->marks + at, 8); /* there are as many behind the end */
		for (eight &= led_to; eight && !err; eight &= eight - 1)
			err = check_mark(c, at + (uint32_t)__builtin_ctzll(eight) / 8);
	}
	return err;
}

static int verify_check_all(struct check *c)
{
	static const struct form nothing = { .low = 16, .memory = -1 };
	int err = check_thunks(c);

	for (unsigned int k = 0; k < HISTORY; k++)
		c->past[k].f = &nothing;
	if (!err)
		err = check_sites(c);
	if (!err)
		err = mark_leaders(c);
	if (!err)
		err = check_body(c);
	return err ? err : check_marks(c);
}

int vb_jit_verify(const struct verify *v, char *why, size_t size)
{
	struct check c = { .v = v, .why = why, .size = size };
	int err;

	c.memo = memo_create(v->forget);
	c.marks = calloc(v->len + 8, sizeof(*c.marks));
	if (c.memo && c.marks) {
		err = verify_check_all(&c);
	} else {
		snprintf(why, size, "no memory");
		err = -ENOMEM;
	}
	memo_free(c.memo);
	free(c.marks);
	return err;
}

// SPDX-License-Identifier: MIT
/*
 * Owns the check of finished host code against the contract in verify.h.
 *
 *   thunks    each instruction, written out by Zydis, must read as the listing here says
 *   body      each instruction is of an allowed form, given the few before it; on the way it is noted
 *             where instructions start, where jumps lead, and where none may lead
 *   marks     the notes agree with each other
 *
 * Sequences are recognised from their last instruction, by looking back. No jump may lead inside of
 * one, because who comes from there has not executed what is before it.
 */
#include "dpa/cpu/jit/verify.h"

#include "dpa/cpu/jit/runtime.h"

#include <Zydis/Zydis.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define HISTORY 12   /* longer than any sequence */
#define REACH   4096 /* what a displacement and an operand may add to a low half */

_Static_assert(2 * REACH < VB_CPU_GUARD, "a guard holds it");

enum at {
	AT_START = 1,   /* an instruction */
	AT_TARGET = 2,  /* control may come from elsewhere */
	AT_RESET = 4,   /* control comes from where rsp was reset */
	AT_LEADER = 8,  /* the jump table has it */
	AT_CALLED = 16, /* a call leads here: must be a leader */
	AT_INSIDE = 32, /* of a sequence: neither target nor reset */
	AT_CHECKED =
		64,    /* right behind a look at the stack: no target, but a reset may lead here */
	AT_MISS = 128, /* where a window's compare leads: the end of the mark */
	AT_UNMARK = 256, /* is that */
};

enum expect { ANYTHING, EXPECT_JMP, EXPECT_ACCESS, EXPECT_UNMARK };

struct insn {
	ZydisDecodedInstruction i;
	ZydisDecodedOperand o[ZYDIS_MAX_OPERAND_COUNT];
	uint32_t at;
};

struct check {
	const struct verify *v;
	ZydisDecoder decoder;
	ZydisFormatter formatter;
	uint16_t *marks;      /* enum at of each byte */
	uint32_t line_at[64]; /* of the listing */
	uint32_t body, leave, execute, dispatch;
	struct insn past[HISTORY]; /* ring; the latest at [n % HISTORY] */
	uint32_t n;
	size_t site; /* the first at or behind this instruction */
	uint32_t low
		[16]; /* where a 32-bit mov made the register; 0: its upper half may be anything */
	enum expect expect;
	bool open; /* a window access is marked */
	char *why;
	size_t size;
};

static int refuse(struct check *c, uint32_t at, const char *fmt, ...)
{
	va_list args;
	int n = snprintf(c->why, c->size, "at 0x%x: ", at);

	va_start(args, fmt);
	if (n > 0 && (size_t)n < c->size)
		vsnprintf(c->why + n, c->size - (size_t)n, fmt, args);
	va_end(args);
	return -EBADMSG;
}

static int decode(struct check *c, uint32_t at, struct insn *x)
{
	x->at = at;
	if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&c->decoder, c->v->code + at, c->v->len - at,
						 &x->i, x->o)))
		return refuse(c, at, "not an instruction");
	return 0;
}

static void print(struct check *c, const struct insn *x, char *text, size_t size)
{
	ZydisFormatterFormatInstruction(&c->formatter, &x->i, x->o, x->i.operand_count_visible,
					text, size, x->at, NULL);
}

/* Signs as Zydis writes them. */
static void put_field(int disp, char *to, size_t size)
{
	snprintf(to, size,
		 disp < 0 ? "[rbp-0x%x]"
		 : disp   ? "[rbp+0x%x]"
			  : "[rbp]",
		 (unsigned int)(disp < 0 ? -disp : disp));
}

/* ---- thunks ---- */

#define DISP(field) (int)((int32_t)offsetof(struct vb_cpu, field) - STATE_BIAS)

/*
 * The thunks as Zydis writes them, with names for what differs: {field} of the cpu, {label} and
 * {value}. "store" and "load" stand for one mov for each guest register that has a host register,
 * and {budget}.
 */
static const char *const listing[] = {
	"int3",
	"miss: mov byte ptr {missed}, 0x1",
	"leave: mov {pc}, rax",
	"store",
	"xor eax, eax",
	"mov rsp, {host_rsp}",
	"pop r15",
	"pop r14",
	"pop r13",
	"pop r12",
	"pop rbx",
	"pop rbp",
	"ret",
	"execute: store",
	"lea rdi, {cpu}",
	"mov rsi, rax",
	"mov rdx, {gen}",
	"mov rbx, rsp",
	"and rsp, 0xfffffffffffffff0",
	"mov rax, {vb_jit_execute}",
	"call rax",
	"mov rsp, rbx",
	"test eax, eax",
	"jnz {event}",
	"load",
	"ret",
	"event: mov eax, 0x1",
	"mov rsp, {host_rsp}",
	"pop r15",
	"pop r14",
	"pop r13",
	"pop r12",
	"pop rbx",
	"pop rbp",
	"ret",
	"underflow: mov rdx, {address of underflow}",
	"push rdx",
	"dispatch: and rax, 0xfffffffffffffffe",
	"lea rdx, [rax-{lo}]",
	"cmp rdx, {text}",
	"jnb {miss}",
	"cmovnb rdx, {x0}",
	"jmp [r14+rdx*4-{table}]",
	"enter: push rbp",
	"push rbx",
	"push r12",
	"push r13",
	"push r14",
	"push r15",
	"lea rbp, [rdi+{bias}]",
	"mov {host_rsp}, rsp",
	"mov r14, {base}",
	"mov rdx, rsi",
	"lea rax, [rsp-0x8]",
	"mov {pred_base}, rax",
	"load",
	"call rdx",
	"jmp {underflow}",
};

#define LINES (sizeof(listing) / sizeof(listing[0]))

static const struct {
	const char *name;
	int disp;
} fields[] = {
	{ "missed", DISP(missed) },       { "pc", DISP(s.pc) },
	{ "budget", DISP(budget) },       { "host_rsp", DISP(host_rsp) },
	{ "pred_base", DISP(pred_base) }, { "base", DISP(base) },
	{ "cpu", -STATE_BIAS },           { "x0", -STATE_BIAS },
};

/* A line without its label. */
static const char *line_text(const char *line)
{
	const char *colon = strchr(line, ':');

	return colon ? colon + 2 : line;
}

static uint32_t label_offset(const struct check *c, const char *name, size_t len)
{
	for (size_t i = 0; i < LINES; i++)
		if (!strncmp(listing[i], name, len) && listing[i][len] == ':')
			return c->line_at[i];
	return 0;
}

/* What {name} stands for. */
static void put_name(const struct check *c, const char *name, size_t len, char *to, size_t size)
{
	const struct verify *v = c->v;
	const struct {
		const char *name;
		uint64_t value;
	} values[] = {
		{ "gen", (uintptr_t)v->gen },
		{ "vb_jit_execute", (uintptr_t)vb_jit_execute },
		{ "address of underflow", (uintptr_t)v->code + label_offset(c, "underflow", 9) },
		{ "lo", v->text_lo },
		{ "text", v->text_len },
		{ "table", 0U - (uint64_t)(int64_t)v->table },
		{ "bias", STATE_BIAS },
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (strlen(fields[i].name) == len && !strncmp(fields[i].name, name, len)) {
			put_field(fields[i].disp, to, size);
			return;
		}
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		if (strlen(values[i].name) == len && !strncmp(values[i].name, name, len)) {
			snprintf(to, size, "0x%llx", (unsigned long long)values[i].value);
			return;
		}
	snprintf(to, size, "0x%x", label_offset(c, name, len));
}

/* The instruction at *at reads like this, once names are put in; *at goes on behind it. */
static int expect_text(struct check *c, uint32_t *at, const char *text)
{
	char want[96] = "", have[96];
	struct insn x;
	int err;

	while (*text) {
		size_t n = strlen(want), plain = strcspn(text, "{");
		const char *end = text[plain] ? strchr(text, '}') : NULL;

		snprintf(want + n, sizeof(want) - n, "%.*s", (int)plain, text);
		n = strlen(want);
		if (end)
			put_name(c, text + plain + 1, (size_t)(end - text) - plain - 1, want + n,
				 sizeof(want) - n);
		text = end ? end + 1 : text + plain;
	}
	if (*at >= c->v->len)
		return refuse(c, *at, "the thunks are not complete");
	err = decode(c, *at, &x);
	if (err)
		return err;
	print(c, &x, have, sizeof(have));
	if (strcmp(want, have))
		return refuse(c, *at, "\"%s\" where the thunks have \"%s\"", have, want);
	*at += x.i.length;
	return 0;
}

/* "store" or "load" */
static int expect_registers(struct check *c, uint32_t *at, bool load)
{
	static const char *const names[16] = { "rax", "rcx", "rdx", "rbx", "rsp", "rbp",
					       "rsi", "rdi", "r8",  "r9",  "r10", "r11",
					       "r12", "r13", "r14", "r15" };
	char field[24], text[48];
	int err = 0;

	for (int r = 1; r < 33 && !err; r++) {
		bool last = r == 32; /* the budget */

		if (!last && c->v->host[r] < 0)
			continue;
		put_field(last ? DISP(budget) : r * 8 - STATE_BIAS, field, sizeof(field));
		snprintf(text, sizeof(text), load ? "mov %2$s, %1$s" : "mov %1$s, %2$s", field,
			 names[last ? R15 : c->v->host[r]]);
		err = expect_text(c, at, text);
	}
	return err;
}

/* Where each line is: lengths are as they are, what the lines say is looked at later. */
static int find_lines(struct check *c)
{
	unsigned int registers = 1;
	uint32_t at = 0;
	struct insn x;
	int err = 0;

	for (int r = 1; r < 32; r++)
		registers += c->v->host[r] >= 0;
	for (size_t i = 0; i < LINES && !err; i++) {
		const char *text = line_text(listing[i]);
		unsigned int n = strcmp(text, "store") && strcmp(text, "load") ? 1 : registers;

		c->line_at[i] = at;
		for (; n && !err; n--) {
			err = at < c->v->len ? decode(c, at, &x)
					     : refuse(c, at, "the thunks are not complete");
			at += err ? 0 : x.i.length;
		}
	}
	c->body = at;
	return err;
}

/* Guest registers live in ten of the host's, each in one of its own. */
static int check_map(struct check *c)
{
	uint32_t used = 1U << RAX | 1U << RDX | 1U << RSP | 1U << RBP | 1U << R14 | 1U << R15;

	for (int r = 1; r < 32; r++) {
		int host = c->v->host[r];

		if (host < 0)
			continue;
		if (host > 15 || used >> host & 1)
			return refuse(c, 0, "x%d has host register %d", r, host);
		used |= 1U << host;
	}
	return 0;
}

static int check_thunks(struct check *c)
{
	uint32_t at = 0;
	int err = check_map(c);

	if (!err)
		err = find_lines(c);
	for (size_t i = 0; i < LINES && !err; i++) {
		const char *text = line_text(listing[i]);

		if (!strcmp(text, "store") || !strcmp(text, "load"))
			err = expect_registers(c, &at, *text == 'l');
		else
			err = expect_text(c, &at, text);
	}
	c->leave = label_offset(c, "leave", 5);
	c->execute = label_offset(c, "execute", 7);
	c->dispatch = label_offset(c, "dispatch", 8);
	if (!err && (c->v->miss != label_offset(c, "miss", 4) ||
		     c->v->enter != label_offset(c, "enter", 5)))
		err = refuse(c, 0, "miss or enter are said to be elsewhere");
	return err;
}

/* ---- what instructions and operands are ---- */

static bool is(const struct insn *x, ZydisMnemonic mnemonic)
{
	return x->i.mnemonic == mnemonic;
}

static bool is_reg(const ZydisDecodedOperand *o, ZydisRegister reg)
{
	return o->type == ZYDIS_OPERAND_TYPE_REGISTER && o->reg.value == reg;
}

static bool is_imm(const ZydisDecodedOperand *o, int64_t value)
{
	return o->type == ZYDIS_OPERAND_TYPE_IMMEDIATE && o->imm.value.s == value;
}

static bool is_mem(const ZydisDecodedOperand *o, ZydisRegister base, ZydisRegister index)
{
	return o->type == ZYDIS_OPERAND_TYPE_MEMORY && o->mem.base == base && o->mem.index == index;
}

static bool is_field(const ZydisDecodedOperand *o, int disp)
{
	return is_mem(o, ZYDIS_REGISTER_RBP, ZYDIS_REGISTER_NONE) && o->mem.disp.value == disp;
}

/* A guest register in memory; x0, which is never written, if it is only read. */
static bool is_slot(const ZydisDecodedOperand *o, bool written)
{
	int64_t at = o->mem.disp.value + STATE_BIAS;

	return is_mem(o, ZYDIS_REGISTER_RBP, ZYDIS_REGISTER_NONE) && at >= (written ? 8 : 0) &&
	       at % 8 + o->size / 8 <= 8 && at < 32 * 8;
}

/* Number of the 64-bit register that a register is part of, 16: none of the general ones. */
static unsigned int gpr(ZydisRegister reg)
{
	if (reg >= ZYDIS_REGISTER_RAX && reg <= ZYDIS_REGISTER_R15)
		return (unsigned int)(reg - ZYDIS_REGISTER_RAX);
	if (reg >= ZYDIS_REGISTER_EAX && reg <= ZYDIS_REGISTER_R15D)
		return (unsigned int)(reg - ZYDIS_REGISTER_EAX);
	reg = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
	return reg >= ZYDIS_REGISTER_RAX && reg <= ZYDIS_REGISTER_R15
		       ? (unsigned int)(reg - ZYDIS_REGISTER_RAX)
		       : 16;
}

/* jcc, and not loop or jrcxz, which are of the same category */
static bool is_conditional(const struct insn *x)
{
	return x->i.meta.category == ZYDIS_CATEGORY_COND_BR &&
	       (x->i.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT ? x->i.opcode >> 4 == 7
							    : x->i.opcode >> 4 == 8);
}

static bool is_direct(const struct insn *x)
{
	return (is(x, ZYDIS_MNEMONIC_JMP) || is(x, ZYDIS_MNEMONIC_CALL) || is_conditional(x)) &&
	       x->o[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && x->o[0].imm.is_relative;
}

static int64_t target(const struct insn *x)
{
	return (int64_t)x->at + x->i.length + x->o[0].imm.value.s;
}

static bool is_mark(const struct insn *x, int64_t value)
{
	return is(x, ZYDIS_MNEMONIC_MOV) && is_field(&x->o[0], DISP(accessing)) &&
	       x->o[0].size == 32 && is_imm(&x->o[1], value);
}

static bool is_fence(const struct insn *x)
{
	return is(x, ZYDIS_MNEMONIC_OR) && x->i.attributes & ZYDIS_ATTRIB_HAS_LOCK &&
	       is_mem(&x->o[0], ZYDIS_REGISTER_RSP, ZYDIS_REGISTER_NONE) &&
	       x->o[0].mem.disp.value == 0 && x->o[0].size == 32 && is_imm(&x->o[1], 0);
}

static bool is_reset(const struct insn *x)
{
	return is(x, ZYDIS_MNEMONIC_MOV) && is_reg(&x->o[0], ZYDIS_REGISTER_RSP) &&
	       is_field(&x->o[1], DISP(pred_base));
}

static bool is_stack_check(const struct insn *x)
{
	return is(x, ZYDIS_MNEMONIC_CMP) && is_reg(&x->o[0], ZYDIS_REGISTER_RSP) &&
	       is_field(&x->o[1], DISP(pred_limit));
}

/* cmovae reg, x0: what the compare before it let pass, or zero */
static bool is_clamp(const struct insn *x, ZydisRegister reg)
{
	return is(x, ZYDIS_MNEMONIC_CMOVNB) && is_reg(&x->o[0], reg) &&
	       is_field(&x->o[1], -STATE_BIAS);
}

/* xor reg, reg */
static bool is_zero(const struct insn *x, ZydisRegister reg)
{
	return is(x, ZYDIS_MNEMONIC_XOR) && is_reg(&x->o[0], reg) && is_reg(&x->o[1], reg);
}

/* op rax, [field] */
static bool is_rax_field(const struct insn *x, ZydisMnemonic mnemonic, int disp)
{
	return is(x, mnemonic) && is_reg(&x->o[0], ZYDIS_REGISTER_RAX) && is_field(&x->o[1], disp);
}

/* ---- looking back ---- */

/* The k-th instruction before this one; 0: this one. */
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
	const ZydisDecodedOperand *m = &x->o[0];

	return is_mem(m, ZYDIS_REGISTER_R14, ZYDIS_REGISTER_RDX) && m->mem.scale == 4 &&
	       m->mem.disp.value == c->v->table && m->size == 64 &&
	       is_clamp(past(c, 1), ZYDIS_REGISTER_RDX) && is(jae, ZYDIS_MNEMONIC_JNB) &&
	       is_direct(jae) && target(jae) == c->v->miss && is(cmp, ZYDIS_MNEMONIC_CMP) &&
	       is_reg(&cmp->o[0], ZYDIS_REGISTER_RDX) &&
	       is_imm(&cmp->o[1], (int64_t)c->v->text_len) && is(lea, ZYDIS_MNEMONIC_LEA) &&
	       is_reg(&lea->o[0], ZYDIS_REGISTER_RDX) &&
	       is_mem(&lea->o[1], ZYDIS_REGISTER_RAX, ZYDIS_REGISTER_NONE) &&
	       lea->o[1].mem.disp.value == -(int64_t)c->v->text_lo && is(and, ZYDIS_MNEMONIC_AND) &&
	       is_reg(&and->o[0], ZYDIS_REGISTER_RAX) && is_imm(&and->o[1], -2) && seal(c, 5);
}

/* This is an access to [rax]: the window sequence is behind us. */
static int check_window(struct check *c, const ZydisDecodedOperand *m)
{
	bool store = m->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE;
	const struct insn *x = past(c, 0), *jae = past(c, 3), *lea = past(c, 6);
	unsigned int k = 7;

	if (m->mem.disp.value || (store && m->actions & ZYDIS_OPERAND_ACTION_MASK_READ))
		return refuse(c, x->at, "not a plain access to a window");
	if (!is_rax_field(past(c, 1), ZYDIS_MNEMONIC_ADD, DISP(window_host)) ||
	    !is_clamp(past(c, 2), ZYDIS_REGISTER_RAX) || !is(jae, ZYDIS_MNEMONIC_JNB) ||
	    !is_rax_field(past(c, 4), ZYDIS_MNEMONIC_CMP,
			  store ? DISP(window_store) : DISP(window_load)) ||
	    !is_rax_field(past(c, 5), ZYDIS_MNEMONIC_SUB, DISP(window_tag)) ||
	    !is(lea, ZYDIS_MNEMONIC_LEA) || !is_reg(&lea->o[0], ZYDIS_REGISTER_RAX))
		return refuse(c, x->at, "an access through rax without the compare of a window");
	if (is(past(c, k), ZYDIS_MNEMONIC_MOV) && is_reg(&past(c, k)->o[0], ZYDIS_REGISTER_RAX) &&
	    is_slot(&past(c, k)->o[1], false))
		k++;
	if (c->v->fences && !is_fence(past(c, k++)))
		return refuse(c, x->at, "a window access without a fence behind its mark");
	if (!is_mark(past(c, k), 1) || !seal(c, k))
		return refuse(c, x->at, "a window access without a mark");
	if (target(jae) < c->body || target(jae) >= (int64_t)c->v->len)
		return refuse(c, x->at, "a window's miss leads elsewhere");
	c->marks[target(jae)] |= AT_MISS;
	c->expect = EXPECT_UNMARK;
	return 0;
}

/* The k-th instruction back makes rax and the slot equal. */
static bool rax_is_slot(const struct check *c, unsigned int k, const ZydisDecodedOperand *slot)
{
	const struct insn *x = past(c, k);
	bool load = is_reg(&x->o[0], ZYDIS_REGISTER_RAX);

	return is(x, ZYDIS_MNEMONIC_MOV) && is_field(&x->o[load], (int)slot->mem.disp.value) &&
	       is_reg(&x->o[!load], ZYDIS_REGISTER_RAX);
}

/* reg, tested by the k-th instruction back, is the divisor, and stays it up to here. */
static bool is_divisor(struct check *c, unsigned int k, unsigned int reg)
{
	const ZydisDecodedOperand *divisor = &past(c, 0)->o[0];

	if (divisor->type == ZYDIS_OPERAND_TYPE_REGISTER)
		return gpr(divisor->reg.value) == reg && reg != RAX && reg != RDX && seal(c, k);
	/* Other registers may be extended between the two. */
	for (k++; k < HISTORY - 1 && is(past(c, k), ZYDIS_MNEMONIC_MOVSXD) &&
		  gpr(past(c, k)->o[0].reg.value) != RAX;)
		k++;
	return reg == RAX && rax_is_slot(c, k, divisor) && seal(c, k);
}

/*
 * This is div or idiv. Unsigned: test d, d; jz; (rax = dividend;) xor edx, edx. Signed: lea rdx, [d
 * + 1]; cmp rdx, 1; jbe; (rax = dividend;) cqo or cdq: neither 0 nor -1.
 */
static bool is_safe_division(struct check *c)
{
	const ZydisDecodedOperand *divisor = &past(c, 0)->o[0];
	bool sign = is(past(c, 0), ZYDIS_MNEMONIC_IDIV);
	const struct insn *high = past(c, 1), *test, *lea;
	unsigned int k = 2;

	if (divisor->size < 32 ||
	    (sign ? !is(high, divisor->size == 64 ? ZYDIS_MNEMONIC_CQO : ZYDIS_MNEMONIC_CDQ)
		  : !is_zero(high, ZYDIS_REGISTER_EDX)))
		return false;
	if (is_reg(&past(c, k)->o[0], ZYDIS_REGISTER_RAX) ? is(past(c, k), ZYDIS_MNEMONIC_MOV)
							  : is_zero(past(c, k), ZYDIS_REGISTER_EAX))
		k++;
	if (!is(past(c, k++), sign ? ZYDIS_MNEMONIC_JBE : ZYDIS_MNEMONIC_JZ))
		return false;
	test = past(c, k);
	if (test->o[0].type != ZYDIS_OPERAND_TYPE_REGISTER || test->o[0].size != divisor->size)
		return false;
	if (!sign)
		return is(test, ZYDIS_MNEMONIC_TEST) && is_reg(&test->o[1], test->o[0].reg.value) &&
		       is_divisor(c, k, gpr(test->o[0].reg.value));
	lea = past(c, ++k);
	return is(test, ZYDIS_MNEMONIC_CMP) && gpr(test->o[0].reg.value) == RDX &&
	       is_imm(&test->o[1], 1) && is(lea, ZYDIS_MNEMONIC_LEA) &&
	       lea->o[0].size == divisor->size && gpr(lea->o[0].reg.value) == RDX &&
	       lea->o[1].mem.index == ZYDIS_REGISTER_NONE && lea->o[1].mem.disp.value == 1 &&
	       is_divisor(c, k, gpr(lea->o[1].mem.base));
}

/* ---- forms ---- */

/* Instructions that do nothing but compute, or read and write the operands that they show. */
#define M(name) ZYDIS_MNEMONIC_##name
static const uint16_t plain[] = {
	M(MOV),  M(MOVZX), M(MOVSX),   M(MOVSXD), M(LEA),   M(ADD),       M(ADC),    M(SUB),
	M(SBB),  M(AND),   M(OR),      M(XOR),    M(NOT),   M(NEG),       M(CMP),    M(TEST),
	M(SHL),  M(SHR),   M(SAR),     M(ROL),    M(ROR),   M(SHLX),      M(SHRX),   M(SARX),
	M(RORX), M(SHLD),  M(IMUL),    M(MUL),    M(DIV),   M(IDIV),      M(CDQ),    M(CQO),
	M(ANDN), M(BTS),   M(BTR),     M(BTC),    M(BSWAP), M(LZCNT),     M(TZCNT),  M(POPCNT),
	M(XCHG), M(XADD),  M(CMPXCHG), M(NOP),    M(MOVQ),  M(PCLMULQDQ), M(PEXTRQ),
};
#undef M

static bool is_plain(const struct insn *x)
{
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		if (is(x, (ZydisMnemonic)plain[i]))
			return true;
	return x->i.meta.category == ZYDIS_CATEGORY_SETCC ||
	       x->i.meta.category == ZYDIS_CATEGORY_CMOV;
}

/* Guest memory: [r14 + ...]. */
static int check_guest(struct check *c, const struct insn *x, const ZydisDecodedOperand *m)
{
	int64_t disp = m->mem.disp.value, size = m->size / 8;

	if (m->mem.index == ZYDIS_REGISTER_NONE)
		return disp >= 0 && (uint64_t)(disp + size) <= c->v->limit
			       ? 0
			       : refuse(c, x->at, "a constant address outside of guest memory");
	if (m->mem.scale != 1 || gpr(m->mem.index) == 16 || !c->low[gpr(m->mem.index)])
		return refuse(c, x->at, "guest memory through a register that is no low half");
	for (uint32_t at = x->at; at > c->low[gpr(m->mem.index)]; at--)
		c->marks[at] |= AT_INSIDE;
	if (disp < -REACH || disp + size > REACH)
		return refuse(c, x->at, "a displacement of %lld", (long long)disp);
	return 0;
}

/* The cpu: [rbp + disp]. */
static int check_cpu(struct check *c, const struct insn *x, const ZydisDecodedOperand *m)
{
	bool written = m->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE;

	if (m->mem.index != ZYDIS_REGISTER_NONE)
		return refuse(c, x->at, "an index into the cpu");
	if (is_slot(m, written) || is_field(m, DISP(reserved_addr)) ||
	    is_field(m, DISP(reserved_value)))
		return 0;
	if (is_reset(x)) {
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

static int check_memory(struct check *c, const struct insn *x, const ZydisDecodedOperand *m)
{
	if (m->size > 64)
		return refuse(c, x->at, "an operand of %u bits", m->size);
	if (m->mem.segment == ZYDIS_REGISTER_FS || m->mem.segment == ZYDIS_REGISTER_GS ||
	    x->i.address_width != 64)
		return refuse(c, x->at, "a segment, or an address of another width");
	if (is(x, ZYDIS_MNEMONIC_BTS) || is(x, ZYDIS_MNEMONIC_BTR) || is(x, ZYDIS_MNEMONIC_BTC))
		return refuse(c, x->at, "a bit string in memory");
	switch (m->mem.base) {
	case ZYDIS_REGISTER_R14:
		return is_site(c, x->at) ? check_guest(c, x, m)
					 : refuse(c, x->at, "an access that is no site");
	case ZYDIS_REGISTER_RBP:
		return check_cpu(c, x, m);
	case ZYDIS_REGISTER_RSP:
		return is_fence(x) ? 0 : refuse(c, x->at, "the host's stack");
	case ZYDIS_REGISTER_RAX:
		if (c->expect == EXPECT_ACCESS && m->mem.index == ZYDIS_REGISTER_NONE &&
		    is_site(c, x->at))
			return check_window(c, m);
		break;
	default:
		break;
	}
	return refuse(c, x->at, "memory through another register");
}

/*
 * The three registers that hold addresses of the host are bases of memory operands, and nothing
 * else.
 */
static bool is_private(ZydisRegister reg)
{
	unsigned int n = gpr(reg);

	return n == RSP || n == RBP || n == R14;
}

/*
 * A register that the body may name: the other general ones, vectors, flags; none of the system's.
 */
static bool is_ours(ZydisRegister reg)
{
	return gpr(reg) < 16 ? !is_private(reg)
			     : ZydisRegisterGetClass(reg) == ZYDIS_REGCLASS_XMM ||
				       ZydisRegisterGetClass(reg) == ZYDIS_REGCLASS_FLAGS;
}

static int check_operand(struct check *c, const struct insn *x, const ZydisDecodedOperand *o)
{
	if (o->type == ZYDIS_OPERAND_TYPE_REGISTER)
		return is_ours(o->reg.value) || is_reset(x) || is_stack_check(x)
			       ? 0
			       : refuse(c, x->at, "a register that is the host's");
	if (o->type != ZYDIS_OPERAND_TYPE_MEMORY || is(x, ZYDIS_MNEMONIC_NOP))
		return 0;
	if (o->mem.type != ZYDIS_MEMOP_TYPE_AGEN)
		return check_memory(c, x, o);
	return is_private(o->mem.base) || is_private(o->mem.index) ||
			       o->mem.base == ZYDIS_REGISTER_RIP
		       ? refuse(c, x->at, "an address of the host")
		       : 0;
}

/* A low half is what a 32-bit mov made, until anything else is written to it. */
static void track_low(struct check *c, const struct insn *x)
{
	for (unsigned int k = 0; k < x->i.operand_count; k++) {
		const ZydisDecodedOperand *o = &x->o[k];

		if (o->type == ZYDIS_OPERAND_TYPE_REGISTER && gpr(o->reg.value) < 16 &&
		    o->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE)
			c->low[gpr(o->reg.value)] =
				is(x, ZYDIS_MNEMONIC_MOV) && o->size == 32 ? x->at : 0;
	}
}

/* ---- control ---- */

static int check_jump(struct check *c, const struct insn *x)
{
	bool reset = c->expect == EXPECT_JMP;
	int64_t to;

	if (!is_direct(x))
		return is(x, ZYDIS_MNEMONIC_JMP) && is_table_jump(c)
			       ? 0
			       : refuse(c, x->at, "an indirect jump that is not through the table");
	to = target(x);
	if (!reset && (to == c->leave || to == c->v->miss || to == c->dispatch))
		return 0;
	if (to < c->body || to >= (int64_t)c->v->len)
		return refuse(c, x->at, "a jump into nowhere");
	c->marks[to] |= reset ? AT_RESET : AT_TARGET;
	return 0;
}

static int check_call(struct check *c, const struct insn *x)
{
	const struct insn *before = past(c, 1);

	if (x->at + x->i.length < c->v->len)
		c->marks[x->at + x->i.length] |= AT_TARGET;
	if (!is_direct(x))
		return is_table_jump(c) && stack_is_checked(c, 5)
			       ? 0
			       : refuse(c, x->at, "an indirect call that is not through the table");
	if (target(x) == c->execute)
		return is(before, ZYDIS_MNEMONIC_MOV) &&
				       is_reg(&before->o[0], ZYDIS_REGISTER_EAX) &&
				       before->o[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
				       (uint32_t)before->o[1].imm.value.u < c->v->nsites &&
				       seal(c, 1)
			       ? 0
			       : refuse(c, x->at, "a call of execute without a site");
	if (target(x) < c->body || target(x) >= (int64_t)c->v->len || !stack_is_checked(c, 0))
		return refuse(c, x->at, "a call into nowhere, or without a look at the stack");
	c->marks[target(x)] |= AT_TARGET | AT_CALLED;
	return 0;
}

/* Inside of a marked access nothing goes elsewhere, but the jump of its compare. */
static bool leaves_window(const struct check *c, const struct insn *x)
{
	return is(x, ZYDIS_MNEMONIC_JMP) || is(x, ZYDIS_MNEMONIC_CALL) ||
	       is(x, ZYDIS_MNEMONIC_RET) ||
	       (is_conditional(x) &&
		!is_rax_field(past(c, 1), ZYDIS_MNEMONIC_CMP, DISP(window_load)) &&
		!is_rax_field(past(c, 1), ZYDIS_MNEMONIC_CMP, DISP(window_store)));
}

static int check_plain(struct check *c, const struct insn *x)
{
	int err = 0;

	if (!is_plain(x))
		return refuse(c, x->at, "an instruction that translations do not have");
	if ((is(x, ZYDIS_MNEMONIC_DIV) || is(x, ZYDIS_MNEMONIC_IDIV)) && !is_safe_division(c))
		return refuse(c, x->at, "a division that may trap");
	for (unsigned int k = 0; k < x->i.operand_count && !err; k++)
		err = check_operand(c, x, &x->o[k]);
	return err;
}

static int check_insn(struct check *c, const struct insn *x)
{
	enum expect expect = c->expect;
	int err;

	if (c->open && leaves_window(c, x))
		return refuse(c, x->at, "the way out of a marked access");
	if ((expect == EXPECT_JMP && !(is(x, ZYDIS_MNEMONIC_JMP) && is_direct(x))) ||
	    (expect == EXPECT_UNMARK && !is_mark(x, 0)))
		return refuse(c, x->at, "a sequence is not complete");
	if (expect != ANYTHING)
		c->marks[x->at] |= AT_INSIDE;
	if (is(x, ZYDIS_MNEMONIC_JMP) || is_conditional(x))
		err = check_jump(c, x);
	else if (is(x, ZYDIS_MNEMONIC_CALL))
		err = check_call(c, x);
	else if (is(x, ZYDIS_MNEMONIC_RET))
		err = x->i.length == 1 && x->i.opcode == 0xc3
			      ? 0
			      : refuse(c, x->at, "another kind of return");
	else
		err = check_plain(c, x);
	if (!err && expect == EXPECT_ACCESS && c->expect != EXPECT_UNMARK)
		err = refuse(c, x->at, "a window's address and no access");
	if (c->expect == expect)
		c->expect = ANYTHING;
	track_low(c, x);
	return err;
}

static int check_body(struct check *c)
{
	const struct insn *x = NULL;
	int err = 0;

	for (uint32_t at = c->body; at < c->v->len && !err; at += x->i.length) {
		c->n++;
		x = past(c, 0);
		err = decode(c, at, &c->past[c->n % HISTORY]);
		if (err)
			break;
		c->marks[at] |= AT_START;
		err = check_insn(c, x);
	}
	if (!err && x &&
	    (!(is(x, ZYDIS_MNEMONIC_JMP) || is(x, ZYDIS_MNEMONIC_RET)) || c->open ||
	     c->expect != ANYTHING))
		err = refuse(c, x->at, "the code runs off its end");
	return err;
}

/* ---- the whole ---- */

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

static int check_marks(struct check *c)
{
	for (uint32_t at = c->body; at < c->v->len; at++) {
		unsigned int m = c->marks[at];

		if (m & (AT_TARGET | AT_RESET) && !(m & AT_START))
			return refuse(c, at, "a jump into an instruction");
		if (m & AT_INSIDE && m & (AT_TARGET | AT_RESET))
			return refuse(c, at, "a jump into a sequence");
		if (m & AT_CHECKED && m & AT_TARGET)
			return refuse(c, at, "a jump over a look at the stack");
		if (m & AT_RESET && !(m & AT_CHECKED))
			return refuse(c, at, "a reset of the stack that nobody asked for");
		if (m & AT_CALLED && !(m & AT_LEADER))
			return refuse(c, at, "a call of something that is no leader");
		if (m & AT_MISS && !(m & AT_UNMARK))
			return refuse(c, at, "a window's miss that keeps the mark");
	}
	return 0;
}

int vb_jit_verify(const struct verify *v, char *why, size_t size)
{
	struct check *c = calloc(1, sizeof(*c));
	int err;

	if (c)
		c->marks = calloc(v->len + 1, sizeof(*c->marks));
	if (!c || !c->marks) {
		free(c);
		snprintf(why, size, "no memory");
		return -ENOMEM;
	}
	c->v = v;
	c->why = why;
	c->size = size;
	ZydisDecoderInit(&c->decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	ZydisFormatterInit(&c->formatter, ZYDIS_FORMATTER_STYLE_INTEL);
	ZydisFormatterSetProperty(&c->formatter, ZYDIS_FORMATTER_PROP_HEX_UPPERCASE, ZYAN_FALSE);
	ZydisFormatterSetProperty(&c->formatter, ZYDIS_FORMATTER_PROP_IMM_PADDING, 0);
	ZydisFormatterSetProperty(&c->formatter, ZYDIS_FORMATTER_PROP_DISP_PADDING, 0);
	ZydisFormatterSetProperty(&c->formatter, ZYDIS_FORMATTER_PROP_ADDR_PADDING_ABSOLUTE, 0);
	err = check_thunks(c);
	if (!err)
		err = mark_leaders(c);
	if (!err)
		err = check_body(c);
	if (!err)
		err = check_marks(c);
	free(c->marks);
	free(c);
	return err;
}

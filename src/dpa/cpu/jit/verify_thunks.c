// SPDX-License-Identifier: MIT
/*
 * Owns the check of the thunks: each instruction, written out by Zydis, must read as the listing here
 * says. They are few and always the same, so the plainest way to compare them will do.
 */
#include "dpa/cpu/jit/verify_check.h"

#include <stdio.h>

/* Signs as Zydis writes them. */
static void put_field(int disp, char *to, size_t size)
{
	snprintf(to, size,
		 disp < 0 ? "[rbp-0x%x]"
		 : disp   ? "[rbp+0x%x]"
			  : "[rbp]",
		 (unsigned int)(disp < 0 ? -disp : disp));
}

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

struct thunk_check {
	struct check *c;
	ZydisDecoder decoder;
	ZydisFormatter formatter;
	uint32_t line_at[LINES]; /* of the listing */
};

struct decoded {
	ZydisDecodedInstruction i;
	ZydisDecodedOperand o[ZYDIS_MAX_OPERAND_COUNT];
};

static int verify_thunks_decode(struct thunk_check *t, uint32_t at, struct decoded *x)
{
	const struct verify *v = t->c->v;

	if (at >= v->len)
		return refuse(t->c, at, "the thunks are not complete");
	if (!ZYAN_SUCCESS(
		    ZydisDecoderDecodeFull(&t->decoder, v->code + at, v->len - at, &x->i, x->o)))
		return refuse(t->c, at, "not an instruction");
	return bad_prefix(&x->i) ? refuse(t->c, at, "%s", bad_prefix(&x->i)) : 0;
}

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

static uint32_t label_offset(const struct thunk_check *t, const char *name, size_t len)
{
	for (size_t i = 0; i < LINES; i++)
		if (!strncmp(listing[i], name, len) && listing[i][len] == ':')
			return t->line_at[i];
	return 0;
}

/* What {name} stands for. */
static void put_name(const struct thunk_check *t, const char *name, size_t len, char *to,
		     size_t size)
{
	const struct verify *v = t->c->v;
	const struct {
		const char *name;
		uint64_t value;
	} values[] = {
		{ "gen", (uintptr_t)v->gen },
		{ "vb_jit_execute", (uintptr_t)vb_jit_execute },
		{ "address of underflow", (uintptr_t)v->code + label_offset(t, "underflow", 9) },
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
	snprintf(to, size, "0x%x", label_offset(t, name, len));
}

/* The instruction at *at reads like this, once names are put in; *at goes on behind it. */
static int expect_text(struct thunk_check *t, uint32_t *at, const char *text)
{
	char want[96] = "", have[96];
	struct decoded x;
	int err;

	while (*text) {
		size_t n = strlen(want), plain = strcspn(text, "{");
		const char *end = text[plain] ? strchr(text, '}') : NULL;

		snprintf(want + n, sizeof(want) - n, "%.*s", (int)plain, text);
		n = strlen(want);
		if (end)
			put_name(t, text + plain + 1, (size_t)(end - text) - plain - 1, want + n,
				 sizeof(want) - n);
		text = end ? end + 1 : text + plain;
	}
	err = verify_thunks_decode(t, *at, &x);
	if (err)
		return err;
	ZydisFormatterFormatInstruction(&t->formatter, &x.i, x.o, x.i.operand_count_visible, have,
					sizeof(have), *at, NULL);
	if (strcmp(want, have))
		return refuse(t->c, *at, "\"%s\" where the thunks have \"%s\"", have, want);
	*at += x.i.length;
	return 0;
}

/* "store" or "load" */
static int expect_registers(struct thunk_check *t, uint32_t *at, bool load)
{
	static const char *const names[16] = { "rax", "rcx", "rdx", "rbx", "rsp", "rbp",
					       "rsi", "rdi", "r8",  "r9",  "r10", "r11",
					       "r12", "r13", "r14", "r15" };
	char field[24], text[48];
	int err = 0;

	for (int r = 1; r < 33 && !err; r++) {
		bool last = r == 32; /* the budget */

		if (!last && t->c->v->host[r] < 0)
			continue;
		put_field(last ? DISP(budget) : r * 8 - STATE_BIAS, field, sizeof(field));
		snprintf(text, sizeof(text), load ? "mov %2$s, %1$s" : "mov %1$s, %2$s", field,
			 names[last ? R15 : t->c->v->host[r]]);
		err = expect_text(t, at, text);
	}
	return err;
}

/* Where each line is: lengths are as they are, what the lines say is looked at later. */
static int find_lines(struct thunk_check *t)
{
	unsigned int registers = 1;
	uint32_t at = 0;
	struct decoded x;
	int err = 0;

	for (int r = 1; r < 32; r++)
		registers += t->c->v->host[r] >= 0;
	for (size_t i = 0; i < LINES && !err; i++) {
		const char *text = line_text(listing[i]);
		unsigned int n = strcmp(text, "store") && strcmp(text, "load") ? 1 : registers;

		t->line_at[i] = at;
		for (; n && !err; n--) {
			err = verify_thunks_decode(t, at, &x);
			at += err ? 0 : x.i.length;
		}
	}
	t->c->body = at;
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

static void verify_thunks_setup(struct thunk_check *t)
{
	ZydisFormatter *f = &t->formatter;

	ZydisDecoderInit(&t->decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	ZydisFormatterInit(f, ZYDIS_FORMATTER_STYLE_INTEL);
	ZydisFormatterSetProperty(f, ZYDIS_FORMATTER_PROP_HEX_UPPERCASE, ZYAN_FALSE);
	ZydisFormatterSetProperty(f, ZYDIS_FORMATTER_PROP_IMM_PADDING, 0);
	ZydisFormatterSetProperty(f, ZYDIS_FORMATTER_PROP_DISP_PADDING, 0);
	ZydisFormatterSetProperty(f, ZYDIS_FORMATTER_PROP_ADDR_PADDING_ABSOLUTE, 0);
}

int check_thunks(struct check *c)
{
	struct thunk_check t = { .c = c };
	uint32_t at = 0;
	int err = check_map(c);

	verify_thunks_setup(&t);
	if (!err)
		err = find_lines(&t);
	for (size_t i = 0; i < LINES && !err; i++) {
		const char *text = line_text(listing[i]);

		if (!strcmp(text, "store") || !strcmp(text, "load"))
			err = expect_registers(&t, &at, *text == 'l');
		else
			err = expect_text(&t, &at, text);
	}
	c->leave = label_offset(&t, "leave", 5);
	c->execute = label_offset(&t, "execute", 7);
	c->dispatch = label_offset(&t, "dispatch", 8);
	if (!err && (c->v->miss != label_offset(&t, "miss", 4) ||
		     c->v->enter != label_offset(&t, "enter", 5)))
		err = refuse(c, 0, "miss or enter are said to be elsewhere");
	return err;
}

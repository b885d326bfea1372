// SPDX-License-Identifier: MIT
/* Owns the words for a thread's state: what people read when device code went wrong. */
#include "dpa/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *vb_dpa_cause_name(enum vb_dpa_cause cause)
{
	static const char *const names[] = {
		[VB_DPA_CAUSE_NONE] = "none",
		[VB_DPA_CAUSE_FETCH] = "instruction-access-fault",
		[VB_DPA_CAUSE_ILLEGAL] = "illegal-instruction",
		[VB_DPA_CAUSE_BREAKPOINT] = "breakpoint",
		[VB_DPA_CAUSE_LOAD_MISALIGNED] = "load-misaligned",
		[VB_DPA_CAUSE_LOAD] = "load-access-fault",
		[VB_DPA_CAUSE_STORE_MISALIGNED] = "store-misaligned",
		[VB_DPA_CAUSE_STORE] = "store-access-fault",
		[VB_DPA_CAUSE_ECALL] = "unknown-ecall",
		[VB_DPA_CAUSE_WATCHDOG] = "watchdog",
		[VB_DPA_CAUSE_CHECK] = "check-failed",
	};

	return (unsigned int)cause < sizeof(names) / sizeof(names[0]) && names[cause] ? names[cause]
										      : "unknown";
}

const char *vb_dpa_printable(const char *name, char text[VB_DPA_NAME_TEXT])
{
	static const char hex[] = "0123456789abcdef", more[] = "...";
	size_t n = 0, cut = 0; /* cut: where the dots still fit */

	for (; *name; name++) {
		unsigned char c = (unsigned char)*name;
		bool plain = c >= 0x20 && c < 0x7f && c != '\\';

		if (n + sizeof(more) <= VB_DPA_NAME_TEXT)
			cut = n;
		if (n + (plain ? 1 : 4) >= VB_DPA_NAME_TEXT) {
			memcpy(text + cut, more, sizeof(more));
			return text;
		}
		if (plain) {
			text[n++] = (char)c;
			continue;
		}
		text[n++] = '\\';
		text[n++] = 'x';
		text[n++] = hex[c >> 4];
		text[n++] = hex[c & 15];
	}
	text[n] = 0;
	return text;
}

/* The end of a long path: the name of the file and the number are there. */
static const char *tail(const char *line)
{
	size_t len = strlen(line), most = VB_DPA_NAME_TEXT - 8;

	return len > most ? line + len - most : line;
}

const char *vb_dpa_place(const struct vb_dpa_process *process, const void *elf, size_t len,
			 uint64_t addr, bool returns, char *text, size_t size)
{
	char shown[VB_DPA_NAME_TEXT], line[512];
	uint64_t offset, at = addr - returns; /* the last call of a function is its last line */
	const char *name = vb_dpa_symbol_name(process, at, &offset);
	int n = snprintf(text, size, "0x%08" PRIx64, addr);

	if (name && (size_t)n < size)
		n += snprintf(text + n, size - (size_t)n, " %s+0x%" PRIx64,
			      vb_dpa_printable(name, shown), offset + returns);
	if ((size_t)n < size && !vb_dpa_line(process, elf, len, at, line, sizeof(line)))
		snprintf(text + n, size - (size_t)n, " at %s", vb_dpa_printable(tail(line), shown));
	return text;
}

struct out {
	char *buf;
	size_t len, at; /* at may pass len: what a larger buffer would hold */
};

static void put(struct out *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(struct out *out, const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(out->at < out->len ? out->buf + out->at : NULL,
		      out->at < out->len ? out->len - out->at : 0, fmt, args);
	va_end(args);
	out->at += n > 0 ? (size_t)n : 0;
}

static void put_address(struct out *out, const struct vb_dpa_process *process, const char *what,
			uint64_t addr)
{
	uint64_t offset;
	const char *name = vb_dpa_symbol_name(process, addr, &offset);
	char text[VB_DPA_NAME_TEXT];

	put(out, "  %-4s 0x%016" PRIx64, what, addr);
	if (name)
		put(out, " <%s+0x%" PRIx64 ">", vb_dpa_printable(name, text), offset);
	put(out, "\n");
}

size_t vb_dpa_state_format(const struct vb_dpa_process *process, const struct vb_dpa_state *state,
			   char *buf, size_t len)
{
	static const char abi[32][5] = { "zero", "ra", "sp",  "gp",  "tp", "t0", "t1", "t2",
					 "s0",   "s1", "a0",  "a1",  "a2", "a3", "a4", "a5",
					 "a6",   "a7", "s2",  "s3",  "s4", "s5", "s6", "s7",
					 "s8",   "s9", "s10", "s11", "t3", "t4", "t5", "t6" };
	struct out out = { buf, len, 0 };

	put(&out, "%s: %s, tval 0x%" PRIx64 ", after %" PRIu64 " instructions\n", process->name,
	    vb_dpa_cause_name((enum vb_dpa_cause)state->cause), state->tval, state->instret);
	put_address(&out, process, "pc", state->pc);
	put_address(&out, process, "ra", state->x[1]);
	for (unsigned int i = 0; i < 32; i++)
		put(&out, "  %-4s 0x%016" PRIx64 "%s", abi[i], state->x[i], i % 4 == 3 ? "\n" : "");
	return out.at;
}

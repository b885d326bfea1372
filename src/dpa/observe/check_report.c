// SPDX-License-Identifier: MIT
/*
 * Owns the words of checked mode: a finding as one line for the log and as a block for
 * people, made where it happens and given to whoever made the process
 * (vb_dpa_ops.found), or written to standard error.
 */
#include "dpa/observe/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

enum { FRAMES = 16 };

static const char *const kinds[FIND_KINDS] = {
	[FIND_OVERFLOW] = "heap overflow",
	[FIND_FREED] = "use after free",
	[FIND_NOBODYS] = "use of heap memory that nobody allocated",
	[FIND_UNINIT] = "use of a value that nobody wrote",
	[FIND_DOUBLE_FREE] = "double free",
	[FIND_BAD_FREE] = "free of what is no block",
	[FIND_WRONG_FREE] = "free by the wrong function",
};

static const char *const owners[OWNERS] = {
	[OWNER_MALLOC] = "malloc of the device", [OWNER_HEAP] = "device heap"
};

/* ---- pieces ---- */

static void check_report_put_place(FILE *out, const struct check *c, unsigned int n, uint64_t addr,
				   bool returns)
{
	char text[VB_DPA_PLACE_TEXT];

	vb_dpa_place(c->process, c->elf, c->elf_len, addr, returns, text, sizeof(text));
	fprintf(out, "    #%-2u %s\n", n, text);
}

void vb_report_trace(FILE *out, const struct check *c, const struct trace *trace)
{
	for (unsigned int i = 0; trace->thread && i < trace->depth; i++)
		check_report_put_place(out, c, i, trace->frames[i], true);
}

static void put_deed(FILE *out, const struct check *c, const char *what, const struct trace *trace)
{
	if (trace->thread)
		fprintf(out, "  %s by device thread %u:\n", what, trace->thread);
	else
		fprintf(out, "  %s by the host, %s()\n", what, trace->call);
	vb_report_trace(out, c, trace);
}

/* How the first wrong byte lies to the block. */
static void put_position(FILE *out, const struct finding *f)
{
	const struct block *b = &f->block;

	if (f->bad < b->addr)
		fprintf(out, "%" PRIu64 " bytes before", b->addr - f->bad);
	else if (f->bad - b->addr < b->size)
		fprintf(out, "%" PRIu64 " bytes inside", f->bad - b->addr);
	else
		fprintf(out, "%" PRIu64 " bytes behind the end of", f->bad - b->addr - b->size);
	fprintf(out, " a %sblock of %" PRIu64 " bytes at 0x%" PRIx64 " (%s)",
		b->is_freed ? "freed " : "", b->size, b->addr, owners[b->owner]);
}

static void put_what(FILE *out, const struct finding *f)
{
	const char *access = f->access == VB_ACCESS_LOAD    ? "load"
			     : f->access == VB_ACCESS_STORE ? "store"
							    : "atomic";

	fprintf(out, "%s: ", kinds[f->kind]);
	if (!f->access)
		fprintf(out, "0x%" PRIx64, f->addr);
	else
		fprintf(out, "%s of %" PRIu64 " bytes at 0x%" PRIx64, access, f->size, f->addr);
	if (f->has_block) {
		fprintf(out, ", ");
		put_position(out, f);
	}
}

static void put_stacks(FILE *out, const struct check *c, const struct finding *f)
{
	char name[VB_DPA_NAME_TEXT];
	uint64_t frames[FRAMES];
	unsigned int n;

	if (f->thread) {
		fprintf(out, "  by device thread %u, %s:\n", vb_dpa_thread_number(f->thread),
			vb_dpa_printable(vb_dpa_thread_name(f->thread), name));
		n = vb_dpa_backtrace(f->thread, &f->thread->cpu.s, frames, FRAMES);
		check_report_put_place(out, c, 0, f->thread->cpu.s.pc, false);
		for (unsigned int i = 0; i < n; i++)
			check_report_put_place(out, c, i + 1, frames[i], true);
	} else {
		fprintf(out, "  by the host, %s()\n", f->call);
	}
	if (!f->has_block)
		return;
	put_deed(out, c, "The block was allocated", &f->block.given);
	if (f->block.is_freed)
		put_deed(out, c, "and freed", &f->block.freed);
}

/* ---- where it goes ---- */

void vb_report_give(const struct check *c, enum vb_dpa_found kind, const char *line,
		    const char *text)
{
	const struct vb_dpa_ops *ops = c->process->ops;

	if (ops && ops->found) {
		ops->found(c->process, kind, line, text, c->process->ops_arg);
		return;
	}
	if (kind == VB_DPA_FOUND_KEPT)
		return;
	vb_error("dpa: %s: %s", c->process->name, line);
	if (vb_file_write(STDERR_FILENO, text, strlen(text)) < 0) {
		/* nowhere left to say it */
	}
}

void vb_report_finding(struct check *c, const struct finding *f)
{
	char *line = NULL, *text = NULL;
	size_t len;
	FILE *out;

	out = open_memstream(&line, &len);
	if (!out)
		return;
	put_what(out, f);
	if (fclose(out))
		goto free_line;
	out = open_memstream(&text, &len);
	if (!out)
		goto free_line;
	fprintf(out, "Check of device code, process %s\n  %s\n", c->process->name, line);
	put_stacks(out, c, f);
	if (f->last)
		fprintf(out, "  This is finding %u; no more are shown.\n", CHECK_MAX_PLACES);
	if (!fclose(out))
		vb_report_give(c, f->thread ? VB_DPA_FOUND_BUG : VB_DPA_FOUND_CALL, line, text);
	free(text);
free_line:
	free(line);
}

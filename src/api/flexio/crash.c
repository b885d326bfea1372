// SPDX-License-Identifier: MIT
/*
 * Owns crash data: what the thread was doing that ended its process, in words.
 *
 *	fault --> kept at the guest --> fatal:     published, the first one is the process's
 *	                            `-> recovered: forgotten
 *
 * Registers and stack are copied when the fault happens, because an error handler uses the same
 * stack. The call stack is unwound by the program's own description of its frames (DWARF). Where it
 * has none, every word of the stack that points behind a call instruction is taken for a return
 * address; then a function that has returned may be among them.
 */
#include "internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cancel.h"

enum { FRAMES = 8192, SCANNED = 32, LINES_FIRST = 24, LINES_LAST = 8, RA = 1, SP = 2 };

/* ---- keeping ---- */

void vb_crash_keep(struct guest *guest, struct vb_dpa_thread *thread,
		   const struct vb_dpa_state *state, int status)
{
	struct crash *c;

	/* In an error handler: the fault that it was called for is the one to show. */
	if (guest->crash)
		return;
	c = calloc(1, sizeof(*c));
	if (!c)
		return;
	c->status = status;
	c->kind = guest->kind;
	c->thread_id = guest->thread_id;
	snprintf(c->name, sizeof(c->name), "%s", vb_dpa_thread_name(thread));
	vb_dpa_snapshot_self(thread, &c->snapshot);
	c->snapshot.state = *state;
	c->snapshot.id = guest->thread_id;
	vb_dpa_thread_stack(thread, &c->stack);
	c->events = guest->events;
	guest->crash = c;
}

static bool has_address(const struct crash *c)
{
	switch (c->snapshot.state.cause) {
	case VB_DPA_CAUSE_FETCH:
	case VB_DPA_CAUSE_LOAD_MISALIGNED:
	case VB_DPA_CAUSE_LOAD:
	case VB_DPA_CAUSE_STORE_MISALIGNED:
	case VB_DPA_CAUSE_STORE:
		return true;
	default:
		return false;
	}
}

void vb_crash_publish(struct guest *guest)
{
	struct crash *none = NULL, *c = guest->crash;

	if (c && !process_dead(guest->process)) {
		if (has_address(c))
			vb_address_describe(guest, c, c->address, sizeof(c->address));
		/* Release: pairs with the acquire in flexio_crash_data(). */
		if (atomic_compare_exchange_strong_explicit(&guest->process->crash, &none, c,
							    memory_order_release,
							    memory_order_relaxed))
			guest->crash = NULL;
	}
	vb_crash_forget(guest);
}

static void crash_free(struct crash *c)
{
	if (c)
		vb_dpa_snapshot_drop(&c->snapshot);
	free(c);
}

void vb_crash_forget(struct guest *guest)
{
	crash_free(guest->crash);
	guest->crash = NULL;
}

void vb_crash_free(struct flexio_process *process)
{
	crash_free(atomic_load_explicit(&process->crash, memory_order_relaxed));
}

/* ---- the call stack ---- */

/* A word of the stack as it was. */
static int read_stack(void *arg, uint64_t addr, uint64_t *word)
{
	const struct vb_dpa_snapshot *s = arg;

	if (!s->stack || addr < s->stack_addr || s->stack_len < sizeof(*word) ||
	    addr - s->stack_addr > s->stack_len - sizeof(*word))
		return -EFAULT;
	memcpy(word, (const char *)s->stack + (addr - s->stack_addr), sizeof(*word));
	return 0;
}

/* Whether the instruction before addr is a call, so that addr can be where one returns to. */
static bool follows_call(struct vb_dpa_process *dpa, uint64_t addr)
{
	uint16_t half;
	uint32_t word;

	if (addr & 1 || addr < 4 || !vb_dpa_mem_host(dpa, addr - 4, 4, VB_DPA_EXEC) ||
	    vb_dpa_mem_read(dpa, addr - 4, &word, sizeof(word)))
		return false;
	half = (uint16_t)(word >> 16);
	/* jal ra and jalr ra; c.jalr, whose register is not 0 */
	return (word & 0xfff) == 0xef || (word & 0x7fff) == 0xe7 ||
	       ((half & 0xf07f) == 0x9002 && half & 0x0f80);
}

static unsigned int scan_frames(struct vb_dpa_process *dpa, const struct crash *c, uint64_t *frames)
{
	const struct vb_dpa_snapshot *s = &c->snapshot;
	uint64_t sp = (s->stack_addr + 7) & ~7ULL, word;
	unsigned int n = 0;

	if (follows_call(dpa, s->state.x[RA]))
		frames[n++] = s->state.x[RA];
	for (; n < SCANNED && !read_stack((void *)s, sp, &word); sp += 8)
		if (follows_call(dpa, word) && !(n == 1 && word == frames[0]))
			frames[n++] = word;
	return n;
}

/* ---- words ---- */

/* The end of a long path: the name of the file and the number are there. */
static const char *tail(const char *line)
{
	size_t len = strlen(line), most = VB_DPA_NAME_TEXT - 8;

	return len > most ? line + len - most : line;
}

static void put_place(FILE *out, const struct flexio_process *process, uint64_t addr,
		      uint64_t line_addr)
{
	char text[VB_DPA_NAME_TEXT], line[512];
	uint64_t offset;
	const char *name = vb_dpa_symbol_name(process->dpa, line_addr, &offset);

	fprintf(out, "0x%08llx", (unsigned long long)addr);
	if (name)
		fprintf(out, " %s+0x%llx", vb_dpa_printable(name, text),
			(unsigned long long)(offset + (addr - line_addr)));
	if (!vb_dpa_line(process->dpa, process->app->elf, process->app->elf_size, line_addr, line,
			 sizeof(line)))
		fprintf(out, " at %s", vb_dpa_printable(tail(line), text));
	fprintf(out, "\n");
}

/* Recursion is one line; of a long call stack the ends are shown. */
static void put_list(FILE *out, const struct flexio_process *process, const uint64_t *frames,
		     unsigned int n)
{
	unsigned int end, line = 0;

	for (unsigned int i = 0; i < n; i = end, line++) {
		for (end = i + 1; end < n && frames[end] == frames[i];)
			end++;
		if (line == LINES_FIRST && n - i > LINES_LAST) {
			fprintf(out, "  ... %u more\n", n - i - LINES_LAST);
			end = n - LINES_LAST;
			continue;
		}
		if (end - i > 1)
			fprintf(out, "  #%u to #%u ", i + 1, end);
		else
			fprintf(out, "  #%-2u ", i + 1);
		/* The call is before the address; the last one of a function is its last line. */
		put_place(out, process, frames[i], frames[i] - 1);
	}
}

static void put_frames(FILE *out, const struct flexio_process *process, const struct crash *c)
{
	uint64_t *frames = malloc(FRAMES * sizeof(*frames));
	unsigned int n;
	bool exact;

	if (!frames)
		return;
	n = vb_dpa_unwind(process->dpa, process->app->elf, process->app->elf_size,
			  &c->snapshot.state, read_stack, (void *)&c->snapshot, frames, FRAMES);
	exact = n;
	if (!exact)
		n = scan_frames(process->dpa, c, frames);
	fprintf(out, "Call stack (return addresses%s):\n", exact ? "" : "; some may be old");
	put_list(out, process, frames, n);
	free(frames);
}

/* Only where something is wrong with it. */
static void put_stack(FILE *out, const struct crash *c)
{
	uint64_t sp = c->snapshot.state.x[SP], end = c->stack.addr + c->stack.size;

	if (sp < c->stack.addr)
		fprintf(out,
			"Stack:    sp is %" PRIu64 " bytes below the stack, which has %" PRIu64
			" bytes\n",
			c->stack.addr - sp, c->stack.size);
	else if (sp > end)
		fprintf(out,
			"Stack:    sp is 0x%" PRIx64 ", not in the stack: 0x%" PRIx64
			" to 0x%" PRIx64 "\n",
			sp, c->stack.addr, end);
}

static void put_crash(FILE *out, const struct flexio_process *process, const struct crash *c)
{
	static const char *const kinds[] = { [GUEST_CALL] = "RPC",
					     [GUEST_HANDLER] = "event handler",
					     [GUEST_WORKER] = "worker of a command queue" };
	char registers[4096], text[VB_DPA_NAME_TEXT];

	fprintf(out, "flexio_crash_data: process %s (%u) of %s\n", process->name, process->id,
		process->app->name);
	fprintf(out, "Status:   0x%x, %s\n", (unsigned int)c->status, vb_status_text(c->status));
	fprintf(out, "Thread:   %u, %s, %s\n", c->thread_id, vb_dpa_printable(c->name, text),
		kinds[c->kind]);
	if (c->address[0])
		fprintf(out, "Address:  %s\n", c->address);
	put_stack(out, c);
	fprintf(out, "Place:    ");
	put_place(out, process, c->snapshot.state.pc, c->snapshot.state.pc);
	put_frames(out, process, c);
	vb_events_print(out, process, &c->events, c->snapshot.state.instret);
	vb_dpa_state_format(process->dpa, &c->snapshot.state, registers, sizeof(registers));
	fprintf(out, "Registers:\n%s", registers);
}

flexio_status flexio_crash_data(struct flexio_process *process, const char *outfile)
{
	VB_NO_CANCEL;
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	const struct crash *c;
	struct dump_file file;
	flexio_status status;
	char *text = NULL;
	size_t len = 0;
	FILE *out;

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	/* Pairs with the release in vb_crash_publish(). */
	c = atomic_load_explicit(&process->crash, memory_order_acquire);
	if (!c)
		return fail("process %s has not crashed", process->name);
	out = open_memstream(&text, &len);
	if (!out)
		return fail("process %s: no memory for the crash data", process->name);
	put_crash(out, process, c);
	if (fclose(out)) {
		free(text);
		return fail("process %s: no memory for the crash data", process->name);
	}
	vb_dump_write(STDERR_FILENO, text, len); /* where nobody reads it: the file is left */
	status = vb_dump_open(&file, process, outfile, "crash", 0644)
			 ? vb_dump_close(&file, process, vb_dump_write(file.fd, text, len))
			 : failed();
	free(text);
	return status;
}

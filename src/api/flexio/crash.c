// SPDX-License-Identifier: MIT
/*
 * Owns crash data: what the thread was doing that ended its process, in words.
 *
 *	fault --> kept at the guest --> fatal:     published, the first one is the process's
 *	                            `-> recovered: forgotten
 *
 * Registers and stack are copied when the fault happens, because an error handler uses the same
 * stack. The call stack is unwound by the program's own description of its frames (DWARF). Where it
 * has none, words of the stack that point behind a call instruction are taken for return addresses
 * (dpa/observe/stack.c); then a function that has returned may be among them.
 */
#include "api/flexio/crash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/flexio/process.h"
#include "base/cancel.h"

enum { FRAMES = 8192, LINES_FIRST = 24, LINES_LAST = 8, SP = 2 };

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
	c->num_frames = vb_dpa_backtrace(thread, state, c->frames, ARRAY_SIZE(c->frames));
	guest->crash = c;
}

static bool crash_has_address(const struct crash *c)
{
	switch (c->snapshot.state.cause) {
	case VB_DPA_CAUSE_FETCH:
	case VB_DPA_CAUSE_LOAD_MISALIGNED:
	case VB_DPA_CAUSE_LOAD:
	case VB_DPA_CAUSE_STORE_MISALIGNED:
	case VB_DPA_CAUSE_STORE:
	case VB_DPA_CAUSE_CHECK:
		return true;
	default:
		return false;
	}
}

void vb_crash_publish(struct guest *guest)
{
	struct crash *none = NULL, *c = guest->crash;

	if (c && !process_dead(guest->process)) {
		if (crash_has_address(c))
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

/* ---- words ---- */

static void crash_put_place(FILE *out, const struct flexio_process *process, uint64_t addr,
			    bool returns)
{
	char text[VB_DPA_PLACE_TEXT];

	fprintf(out, "%s\n",
		vb_dpa_place(process->dpa, process->app->elf, process->app->elf_size, addr, returns,
			     text, sizeof(text)));
}

/* Recursion is one line; of a long call stack the ends are shown. */
static void crash_put_list(FILE *out, const struct flexio_process *process, const uint64_t *frames,
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
		crash_put_place(out, process, frames[i], true);
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
	fprintf(out, "Call stack (return addresses%s):\n", exact ? "" : "; some may be old");
	crash_put_list(out, process, exact ? frames : c->frames, exact ? n : c->num_frames);
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

	fprintf(out, "flexio_crash_data: process %s (%x) of %s\n", process->name,
		vb_process_id(process), process->app->name);
	fprintf(out, "Status:   0x%x, %s\n", (unsigned int)c->status, vb_status_text(c->status));
	fprintf(out, "Thread:   %u, %s, %s\n", c->thread_id, vb_dpa_printable(c->name, text),
		kinds[c->kind]);
	if (c->address[0])
		fprintf(out, "Address:  %s\n", c->address);
	put_stack(out, c);
	fprintf(out, "Place:    ");
	crash_put_place(out, process, c->snapshot.state.pc, false);
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

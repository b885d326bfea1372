// SPDX-License-Identifier: MIT
/*
 * Owns crash data: what the thread was doing that ended its process, in words.
 *
 *	fault --> kept at the guest --> fatal:     published, the first one is the process's
 *	                            `-> recovered: forgotten
 *
 * The call stack is read when the fault happens, because an error handler uses the same stack. Code
 * without frame pointers does not say where its frames are: every word of the stack that points
 * behind a call instruction is taken for a return address. So a function that has returned may be
 * among them.
 */
#include "internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FRAMES = 32, RA = 1, SP = 2 };

struct crash {
	int status;
	enum guest_kind kind;
	uint32_t thread_id;
	char name[32];
	struct vb_dpa_state state;
	struct vb_dpa_stack stack;
	unsigned int num_frames;
	uint64_t frames[FRAMES]; /* return addresses, the innermost first */
};

/* ---- keeping ---- */

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

static void read_frames(struct vb_dpa_process *dpa, struct crash *c)
{
	uint64_t end = c->stack.addr + c->stack.size, sp = (c->state.x[SP] + 7) & ~7ULL, word;

	if (follows_call(dpa, c->state.x[RA]))
		c->frames[c->num_frames++] = c->state.x[RA];
	if (sp < c->stack.addr)
		sp = c->stack.addr; /* it has run over */
	for (; sp < end && c->num_frames < FRAMES; sp += 8)
		if (!vb_dpa_mem_read(dpa, sp, &word, sizeof(word)) && follows_call(dpa, word) &&
		    !(c->num_frames == 1 && word == c->frames[0]))
			c->frames[c->num_frames++] = word;
}

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
	c->state = *state;
	vb_dpa_thread_stack(thread, &c->stack);
	read_frames(guest->process->dpa, c);
	guest->crash = c;
}

void vb_crash_publish(struct guest *guest)
{
	struct crash *none = NULL;

	/* Release: pairs with the acquire in flexio_crash_data(). */
	if (guest->crash && !process_dead(guest->process) &&
	    atomic_compare_exchange_strong_explicit(&guest->process->crash, &none, guest->crash,
						    memory_order_release, memory_order_relaxed))
		guest->crash = NULL;
	vb_crash_forget(guest);
}

void vb_crash_forget(struct guest *guest)
{
	free(guest->crash);
	guest->crash = NULL;
}

void vb_crash_free(struct flexio_process *process)
{
	free(atomic_load_explicit(&process->crash, memory_order_relaxed));
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

/* What the address of a load, a store or a jump belongs to. */
static void put_address(FILE *out, const struct flexio_process *process, const struct crash *c)
{
	uint64_t addr = c->state.tval, offset, heap = process->heap.base;
	const char *name = vb_dpa_symbol_name(process->dpa, addr, &offset);
	char text[VB_DPA_NAME_TEXT];

	fprintf(out, "Address:  0x%llx, ", (unsigned long long)addr);
	if (addr < 4096)
		fprintf(out, "near NULL\n");
	else if (c->status == VB_RTOS_STATUS_STACK)
		fprintf(out, "below the stack of the thread (%llu bytes)\n",
			(unsigned long long)c->stack.size);
	else if (addr >= c->stack.addr && addr - c->stack.addr < c->stack.size)
		fprintf(out, "the stack of the thread\n");
	else if (addr >= heap && addr - heap < process->heap.size)
		fprintf(out, "the device heap\n");
	else if (name)
		fprintf(out, "%s+0x%llx of the program\n", vb_dpa_printable(name, text),
			(unsigned long long)offset);
	else if (addr >> 48 == 1 || addr >> 48 == 2)
		fprintf(out, "host address 0x%llx in window %llu: outside of the memory region\n",
			(unsigned long long)(addr & ((1ULL << 48) - 1)),
			(unsigned long long)(addr >> 48) - 1);
	else
		fprintf(out, "no memory of the process\n");
}

static bool has_address(const struct crash *c)
{
	switch (c->state.cause) {
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
	if (has_address(c))
		put_address(out, process, c);
	fprintf(out, "Place:    ");
	put_place(out, process, c->state.pc, c->state.pc);
	fprintf(out, "Call stack (return addresses; some may be old):\n");
	for (unsigned int i = 0; i < c->num_frames; i++) {
		fprintf(out, "  #%-2u ", i + 1);
		/* The call is before the address; the last one of a function is its last line. */
		put_place(out, process, c->frames[i], c->frames[i] - 1);
	}
	vb_dpa_state_format(process->dpa, &c->state, registers, sizeof(registers));
	fprintf(out, "Registers:\n%s", registers);
}

/* ---- the file ---- */

static int try_open(const char *path, int flags)
{
	return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | flags, 0644);
}

/* By the rules of the manual; path: where it is. -1: errno. */
static int open_file(const char *outfile, uint32_t id, const char *suffix, char *path, size_t size)
{
	const char *base = outfile ? outfile : "flexio_dev";
	int fd;

	if (snprintf(path, size, "%s.%u.%s", base, id, suffix) >= (int)size) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = try_open(path, 0);
	if (fd >= 0 || base[0] == '/')
		return fd;
	if (snprintf(path, size, "/tmp/%s.%u.%s", base, id, suffix) >= (int)size) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return try_open(path, O_NOFOLLOW); /* others may write there */
}

static bool write_all(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		text += n;
		len -= (size_t)n;
	}
	return true;
}

static flexio_status write_text(const struct flexio_process *process, const char *outfile,
				const char *text, size_t len)
{
	char path[4096];
	int fd = open_file(outfile, process->id, "crash", path, sizeof(path));
	bool written;

	if (fd < 0)
		return fail("process %s: no file %s for the crash data: %s", process->name, path,
			    strerror(errno));
	written = write_all(fd, text, len);
	if (close(fd) || !written)
		return fail("process %s: the crash data did not fit into %s", process->name, path);
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_crash_data(struct flexio_process *process, const char *outfile)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	const struct crash *c;
	flexio_status status;
	char *text = NULL;
	size_t len = 0;
	FILE *out;

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
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
	fputs(text, stderr);
	status = write_text(process, outfile, text, len);
	free(text);
	return status;
}

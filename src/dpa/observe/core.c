// SPDX-License-Identifier: MIT
/*
 * Owns core files of device processes: ELF for RISC-V in the form of Linux, because gdb reads that.
 *
 *	| header | program headers | notes | pages ...
 *	            PT_NOTE ----------'        ^
 *	            PT_LOAD, one a segment ----'    [ data, zeros inside of it where few ][ zeros ]
 *	                                             <------------ p_filesz ------------->
 *	                                             <----------------- p_memsz ------------------>
 *
 * What a segment holds is decided first, page by page; its bytes are read when they are written. So
 * a process that goes on changes what is in the file, but never its layout. Pages that the program
 * file has bytes for are always written: where a core has none, gdb shows those of the program.
 */
#include "dpa/internal.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef EF_RISCV_RVC
#define EF_RISCV_RVC 1
#endif

enum {
	CHUNK = 65536,        /* what is read and written at a time; a multiple of pages */
	GAP = 16,             /* zero pages that are worth a segment of their own */
	SEGMENTS_MAX = 65000, /* e_phnum has 16 bits */
};

/* ---- notes, as the kernel lays them out for riscv64 ---- */

struct prstatus {
	int32_t signo, code, error;
	int16_t cursig;
	uint64_t sigpend, sighold;
	int32_t pid, ppid, pgrp, sid;
	int64_t times[8];
	uint64_t regs[32]; /* pc, then x1 to x31 */
	int32_t fpvalid;
};

struct prpsinfo {
	char state, sname, zombie, nice;
	uint64_t flag;
	uint32_t uid, gid;
	int32_t pid, ppid, pgrp, sid;
	char fname[16], psargs[80];
};

struct fault_info { /* siginfo_t */
	int32_t signo, error, code;
	uint64_t addr;
	uint8_t rest[104];
};

_Static_assert(sizeof(struct prstatus) == 376, "elf_prstatus of riscv64");
_Static_assert(offsetof(struct prstatus, regs) == 112, "elf_prstatus of riscv64");
_Static_assert(sizeof(struct prpsinfo) == 136, "elf_prpsinfo of riscv64");
_Static_assert(offsetof(struct prpsinfo, fname) == 40, "elf_prpsinfo of riscv64");
_Static_assert(sizeof(struct fault_info) == 128, "siginfo_t");

struct note {
	Elf64_Nhdr header;
	char name[8];
};

struct segment {
	uint64_t addr, memsz, filesz;
	unsigned int rights;
};

struct writer {
	struct vb_dpa_process *process;
	const struct vb_dpa_core *core;
	const struct vb_dpa_snapshot **stacks; /* that have a copy; by address */
	size_t nstacks;
	struct segment *segments;
	size_t nsegments, room;
	uint8_t *notes;
	size_t notes_len;
	int pagemap; /* descriptor, or -1 */
	struct {
		uint64_t at, from, to; /* from at on, the first written pages in a file */
	} filed;
	uint8_t buffer[CHUNK];
};

static void add_note(struct writer *w, uint32_t type, const void *bytes, size_t len)
{
	struct note note = { { 5, (uint32_t)len, type }, "CORE" };

	memcpy(w->notes + w->notes_len, &note, sizeof(note));
	memcpy(w->notes + w->notes_len + sizeof(note), bytes, len);
	w->notes_len += sizeof(note) + len;
}

/* As by the kernel, the signal that ended the process is in all of them. */
static void core_add_thread(struct writer *w, const struct vb_dpa_snapshot *thread)
{
	struct prstatus status = { .signo = w->core->signal,
				   .cursig = (int16_t)w->core->signal,
				   .pid = (int32_t)thread->id };

	status.regs[0] = thread->state.pc;
	memcpy(status.regs + 1, thread->state.x + 1, 31 * sizeof(status.regs[0]));
	add_note(w, NT_PRSTATUS, &status, sizeof(status));
}

static int make_notes(struct writer *w)
{
	const struct vb_dpa_core *core = w->core;
	struct prpsinfo info = { .sname = 'R' };
	struct fault_info fault = { .signo = core->signal, .code = 1 };
	size_t each = sizeof(struct note) + sizeof(struct prstatus);

	w->notes =
		malloc(core->count * each + 2 * sizeof(struct note) + sizeof(info) + sizeof(fault));
	if (!w->notes)
		return -ENOMEM;
	strncpy(info.fname, core->program, sizeof(info.fname) - 1);
	strncpy(info.psargs, core->words, sizeof(info.psargs) - 1);
	if (core->count) {
		info.pid = (int32_t)core->threads[0]->id;
		fault.addr = core->threads[0]->state.tval;
		core_add_thread(w, core->threads[0]);
	}
	add_note(w, NT_PRPSINFO, &info, sizeof(info));
	if (core->signal && core->count)
		add_note(w, NT_SIGINFO, &fault, sizeof(fault));
	for (size_t i = 1; i < core->count; i++)
		core_add_thread(w, core->threads[i]);
	return 0;
}

/* ---- stacks of the snapshots ---- */

static int core_by_address(const void *a, const void *b)
{
	uint64_t x = (*(const struct vb_dpa_snapshot *const *)a)->stack_addr;
	uint64_t y = (*(const struct vb_dpa_snapshot *const *)b)->stack_addr;

	return x < y ? -1 : x > y;
}

static int sort_stacks(struct writer *w)
{
	const struct vb_dpa_core *core = w->core;

	w->stacks = malloc((core->count + 1) * sizeof(struct vb_dpa_snapshot *));
	if (!w->stacks)
		return -ENOMEM;
	for (size_t i = 0; i < core->count; i++)
		if (core->threads[i]->stack)
			w->stacks[w->nstacks++] = core->threads[i];
	qsort(w->stacks, w->nstacks, sizeof(w->stacks[0]), core_by_address);
	return 0;
}

/* The first stack that ends behind addr; they do not overlap. */
static size_t stack_from(const struct writer *w, uint64_t addr)
{
	size_t low = 0, high = w->nstacks;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (w->stacks[middle]->stack_addr + w->stacks[middle]->stack_len > addr)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static bool in_stack(const struct writer *w, uint64_t addr, uint64_t len)
{
	size_t i = stack_from(w, addr);

	return i < w->nstacks && w->stacks[i]->stack_addr < addr + len;
}

/* ---- which pages are written ---- */

static bool core_in_file(const struct writer *w, uint64_t addr, uint64_t len)
{
	const struct elf_program *program = &w->process->program;

	for (unsigned int i = 0; i < program->nsegments; i++) {
		const struct elf_segment *s = &program->segments[i];

		if (s->filesz && addr < s->addr + s->filesz && s->addr < addr + len)
			return true;
	}
	return false;
}

static bool all_zero(const uint8_t *bytes, size_t len)
{
	return !bytes[0] && !memcmp(bytes, bytes + 1, len - 1);
}

/*
 * Whether nobody has ever written the page: reading it would only make the kernel work. Neither in
 * memory (bit 63) nor in swap (bit 62).
 */
static bool untouched(const uint64_t *entries, size_t index)
{
	return entries && !(entries[index] >> 62);
}

/* The same of a page in a file, which others may have written: our page tables do not know. */
static bool untouched_filed(struct writer *w, uint64_t at, bool *filed)
{
	*filed = at >= w->filed.at && at < w->filed.to;
	if (!*filed) {
		w->filed.at = at;
		*filed = vb_space_written(&w->process->space, at, &w->filed.from, &w->filed.to);
		if (!*filed)
			w->filed.to = at;
	}
	return *filed && at < w->filed.from;
}

static bool is_untouched(struct writer *w, uint64_t at, const uint64_t *entries, size_t index)
{
	bool filed, is = untouched_filed(w, at, &filed);

	return filed ? is : untouched(entries, index);
}

/* data[i]: page i of [addr, ...) must be in the file. */
static void look_at_pages(struct writer *w, uint64_t addr, uint8_t *data, size_t count)
{
	uint64_t page = w->process->space.page, entries[512];

	for (size_t i = 0; i < count; i++) {
		uint64_t at = addr + i * page;
		size_t index = i % 512;

		if (!index && w->pagemap >= 0) {
			size_t len = (count - i < 512 ? count - i : 512) * sizeof(entries[0]);
			uint64_t host = (uint64_t)(uintptr_t)(w->process->space.base + at);

			if (pread(w->pagemap, entries, len, (off_t)(host / page * 8)) !=
			    (ssize_t)len) {
				close(w->pagemap);
				w->pagemap = -1;
			}
		}
		if (core_in_file(w, at, page) || in_stack(w, at, page))
			data[i] = 1;
		else if (is_untouched(w, at, w->pagemap >= 0 ? entries : NULL, index))
			data[i] = 0;
		else
			data[i] = !vb_space_read(&w->process->space, at, w->buffer, page) &&
				  !all_zero(w->buffer, page);
	}
}

static int core_add_segment(struct writer *w, const struct segment *segment)
{
	if (w->nsegments == w->room) {
		size_t room = w->room ? 2 * w->room : 64;
		struct segment *more = realloc(w->segments, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->segments = more;
		w->room = room;
	}
	w->segments[w->nsegments++] = *segment;
	return 0;
}

/* From page i on: pages with data and the few without between them, then those without. */
static size_t cut_segment(const uint8_t *data, size_t i, size_t count, size_t *filled)
{
	size_t end = i, at = i;

	while (at < count) {
		size_t zeros = at;

		while (zeros < count && !data[zeros])
			zeros++;
		if (zeros == count || zeros - at >= GAP)
			break;
		at = end = zeros + 1;
	}
	*filled = end - i;
	while (end < count && !data[end])
		end++;
	return end;
}

static int core_add_range(struct writer *w, const struct vb_dpa_range *range)
{
	uint64_t page = w->process->space.page;
	size_t count = range->len / page, filled, end;
	uint8_t *data = malloc(count);
	int err = data ? 0 : -ENOMEM;

	if (!err)
		look_at_pages(w, range->addr, data, count);
	for (size_t i = 0; i < count && !err; i = end) {
		end = cut_segment(data, i, count, &filled);
		err = core_add_segment(w,
				       &(struct segment){ range->addr + i * page, (end - i) * page,
							  filled * page, range->rights });
	}
	free(data);
	return err;
}

static int segment_order(const void *a, const void *b)
{
	const struct segment *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Stacks of threads that are gone, with their memory: under gap, between two segments. */
static int add_gone_stacks(struct writer *w)
{
	uint64_t page = w->process->space.page;
	size_t mapped = w->nsegments, next = 0;
	int err = 0;

	for (size_t i = 0; i < w->nstacks && !err; i++) {
		uint64_t from = w->stacks[i]->stack_addr & ~(page - 1);
		uint64_t end = w->stacks[i]->stack_addr + w->stacks[i]->stack_len;

		while (next < mapped && w->segments[next].addr + w->segments[next].memsz <= from)
			next++;
		if (next < mapped && w->segments[next].addr <= from)
			continue;
		if (next < mapped && w->segments[next].addr < end)
			end = w->segments[next].addr;
		end = (end + page - 1) & ~(page - 1);
		err = core_add_segment(w, &(struct segment){ from, end - from, end - from,
							     VB_DPA_READ | VB_DPA_WRITE });
	}
	if (w->nsegments != mapped)
		qsort(w->segments, w->nsegments, sizeof(w->segments[0]), segment_order);
	return err;
}

static int make_segments(struct writer *w)
{
	struct vb_dpa_range range = { 0 };
	int err = 0;

	w->pagemap = open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC);
	while (!err && vb_dpa_mem_next(w->process, range.addr + range.len, &range))
		err = core_add_range(w, &range);
	if (w->pagemap >= 0)
		close(w->pagemap);
	if (!err)
		err = add_gone_stacks(w);
	return err ? err : w->nsegments > SEGMENTS_MAX ? -E2BIG : 0;
}

/* ---- writing ---- */

static int put(struct writer *w, const void *bytes, size_t len)
{
	return w->core->write(bytes, len, w->core->arg);
}

static uint64_t data_offset(const struct writer *w)
{
	uint64_t page = w->process->space.page;
	uint64_t end = sizeof(Elf64_Ehdr) + (w->nsegments + 1) * sizeof(Elf64_Phdr) + w->notes_len;

	return (end + page - 1) & ~(page - 1);
}

static int put_headers(struct writer *w)
{
	Elf64_Ehdr header = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
					   ELFDATA2LSB, EV_CURRENT },
			      .e_type = ET_CORE,
			      .e_machine = EM_RISCV,
			      .e_version = EV_CURRENT,
			      .e_phoff = sizeof(Elf64_Ehdr),
			      .e_flags = EF_RISCV_RVC,
			      .e_ehsize = sizeof(Elf64_Ehdr),
			      .e_phentsize = sizeof(Elf64_Phdr),
			      .e_phnum = (Elf64_Half)(w->nsegments + 1) };
	uint64_t notes = sizeof(header) + (w->nsegments + 1) * sizeof(Elf64_Phdr);
	Elf64_Phdr note = { .p_type = PT_NOTE, .p_offset = notes, .p_filesz = w->notes_len };
	uint64_t offset = data_offset(w);
	int err = put(w, &header, sizeof(header));

	if (!err)
		err = put(w, &note, sizeof(note));
	for (size_t i = 0; i < w->nsegments && !err; i++) {
		const struct segment *s = &w->segments[i];
		Elf64_Phdr load = { .p_type = PT_LOAD,
				    .p_flags = (s->rights & VB_DPA_READ ? PF_R : 0) |
					       (s->rights & VB_DPA_WRITE ? PF_W : 0) |
					       (s->rights & VB_DPA_EXEC ? PF_X : 0),
				    .p_offset = offset,
				    .p_vaddr = s->addr,
				    .p_filesz = s->filesz,
				    .p_memsz = s->memsz,
				    .p_align = w->process->space.page };

		err = put(w, &load, sizeof(load));
		offset += s->filesz;
	}
	if (!err)
		err = put(w, w->notes, w->notes_len);
	memset(w->buffer, 0, sizeof(w->buffer));
	return err ? err : put(w, w->buffer, data_offset(w) - notes - w->notes_len);
}

/* Into the buffer; what was unmapped meanwhile is zeros. */
static void read_chunk(struct writer *w, uint64_t addr, size_t len)
{
	uint64_t page = w->process->space.page;

	if (vb_space_read(&w->process->space, addr, w->buffer, len))
		for (size_t at = 0; at < len; at += page)
			if (vb_space_read(&w->process->space, addr + at, w->buffer + at, page))
				memset(w->buffer + at, 0, page);
	for (size_t i = stack_from(w, addr); i < w->nstacks; i++) {
		const struct vb_dpa_snapshot *s = w->stacks[i];
		uint64_t from = s->stack_addr > addr ? s->stack_addr : addr;
		uint64_t end = s->stack_addr + s->stack_len;

		if (from >= addr + len)
			break;
		if (end > addr + len)
			end = addr + len;
		if (end <= from)
			continue; /* two overlap: one is of a thread that is gone */
		memcpy(w->buffer + (from - addr),
		       (const uint8_t *)s->stack + (from - s->stack_addr), end - from);
	}
}

static int put_segments(struct writer *w)
{
	int err = 0;

	for (size_t i = 0; i < w->nsegments; i++) {
		const struct segment *s = &w->segments[i];

		for (uint64_t at = 0; at < s->filesz && !err; at += CHUNK) {
			size_t len = s->filesz - at < CHUNK ? s->filesz - at : CHUNK;

			read_chunk(w, s->addr + at, len);
			err = put(w, w->buffer, len);
		}
	}
	return err;
}

int vb_dpa_core_write(struct vb_dpa_process *process, const struct vb_dpa_core *core)
{
	struct writer *w = calloc(1, sizeof(*w));
	int err = w ? 0 : -ENOMEM;

	if (err)
		return err;
	w->process = process;
	w->core = core;
	err = make_notes(w);
	if (!err)
		err = sort_stacks(w);
	if (!err)
		err = make_segments(w);
	if (!err)
		err = put_headers(w);
	if (!err)
		err = put_segments(w);
	free(w->segments);
	free(w->stacks);
	free(w->notes);
	free(w);
	return err;
}

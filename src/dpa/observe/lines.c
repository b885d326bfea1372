// SPDX-License-Identifier: MIT
/*
 * Owns the way from an address to a line of source, by the DWARF that a program was compiled with.
 */
#include "dpa/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef HAVE_LIBDW
#include "dpa/observe/libdw.h"

static int search(const struct libdw *dw, Dwarf *dwarf, uint64_t addr, char *text, size_t size)
{
	Dwarf_Off off = 0, next;
	size_t header;

	for (; !dw->nextcu(dwarf, off, &next, &header, NULL, NULL, NULL); off = next) {
		Dwarf_Line *line;
		Dwarf_Die die;
		const char *file;
		int number;

		if (!dw->offdie(dwarf, off + header, &die) || dw->haspc(&die, addr) <= 0)
			continue;
		line = dw->getsrc_die(&die, addr);
		file = line ? dw->linesrc(line, NULL, NULL) : NULL;
		if (!file || dw->lineno(line, &number))
			return -ENOENT;
		snprintf(text, size, "%s:%d", file, number);
		return 0;
	}
	return -ENOENT;
}

struct vb_dpa_lines {
	struct libdw dw;
	uint64_t bias;
	Elf *file;
	Dwarf *dwarf;
};

struct vb_dpa_lines *vb_dpa_lines_open(const struct vb_dpa_process *process, const void *elf,
				       size_t len)
{
	struct vb_dpa_lines *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->bias = process->program.bias;
	if (vb_libdw_load(&l->dw)) {
		elf_version(EV_CURRENT);
		l->file = elf_memory((char *)(uintptr_t)elf, len);
		l->dwarf = l->file ? l->dw.begin_elf(l->file, DWARF_C_READ, NULL) : NULL;
	}
	if (l->dwarf)
		return l;
	elf_end(l->file);
	free(l);
	return NULL;
}

int vb_dpa_lines_find(struct vb_dpa_lines *l, uint64_t addr, char *text, size_t size)
{
	return search(&l->dw, l->dwarf, addr - l->bias, text, size);
}

void vb_dpa_lines_close(struct vb_dpa_lines *l)
{
	l->dw.end(l->dwarf);
	elf_end(l->file);
	free(l);
}

#else
struct vb_dpa_lines *vb_dpa_lines_open(const struct vb_dpa_process *process, const void *elf,
				       size_t len)
{
	(void)process, (void)elf, (void)len;
	return NULL;
}

int vb_dpa_lines_find(struct vb_dpa_lines *l, uint64_t addr, char *text, size_t size)
{
	(void)l, (void)addr, (void)text, (void)size;
	return -ENOENT;
}

void vb_dpa_lines_close(struct vb_dpa_lines *l)
{
	(void)l;
}
#endif

int vb_dpa_line(const struct vb_dpa_process *process, const void *elf, size_t len, uint64_t addr,
		char *text, size_t size)
{
	struct vb_dpa_lines *l = vb_dpa_lines_open(process, elf, len);
	int err = l ? vb_dpa_lines_find(l, addr, text, size) : -ENOENT;

	if (l)
		vb_dpa_lines_close(l);
	return err;
}

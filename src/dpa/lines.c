// SPDX-License-Identifier: MIT
/*
 * Owns the way from an address to a line of source, by the DWARF that a program was compiled with.
 */
#include "dpa/internal.h"

#include <errno.h>
#include <stdio.h>

#ifdef HAVE_LIBDW
#include "dpa/libdw.h"

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

int vb_dpa_line(const struct vb_dpa_process *process, const void *elf, size_t len, uint64_t addr,
		char *text, size_t size)
{
	struct libdw dw;
	Dwarf *dwarf;
	Elf *file;
	int err = -ENOENT;

	if (!vb_libdw_load(&dw))
		return -ENOENT;
	elf_version(EV_CURRENT);
	file = elf_memory((char *)(uintptr_t)elf, len);
	dwarf = file ? dw.begin_elf(file, DWARF_C_READ, NULL) : NULL;
	if (dwarf) {
		err = search(&dw, dwarf, addr - process->program.bias, text, size);
		dw.end(dwarf);
	}
	elf_end(file);
	return err;
}
#else
int vb_dpa_line(const struct vb_dpa_process *process, const void *elf, size_t len, uint64_t addr,
		char *text, size_t size)
{
	(void)process, (void)elf, (void)len, (void)addr, (void)text, (void)size;
	return -ENOENT;
}
#endif

// SPDX-License-Identifier: MIT
/*
 * Owns the way from an address to a line of source, by the DWARF that a program was compiled with.
 * Used when something went wrong, and only then: libdw is loaded at the first question, so that
 * programs do not carry it.
 */
#include "dpa/internal.h"

#include <errno.h>
#include <stdio.h>

#ifdef HAVE_LIBDW
#include <dlfcn.h>
#include <elfutils/libdw.h>

/* The functions of libdw that are called. */
struct libdw {
	Dwarf *(*begin_elf)(Elf *elf, Dwarf_Cmd cmd, Elf_Scn *group);
	int (*end)(Dwarf *dwarf);
	int (*nextcu)(Dwarf *dwarf, Dwarf_Off off, Dwarf_Off *next, size_t *header,
		      Dwarf_Off *abbrev, uint8_t *address, uint8_t *offset);
	Dwarf_Die *(*offdie)(Dwarf *dwarf, Dwarf_Off off, Dwarf_Die *die);
	int (*haspc)(Dwarf_Die *die, Dwarf_Addr pc);
	Dwarf_Line *(*getsrc_die)(Dwarf_Die *die, Dwarf_Addr pc);
	const char *(*linesrc)(Dwarf_Line *line, Dwarf_Word *mtime, Dwarf_Word *length);
	int (*lineno)(Dwarf_Line *line, int *number);
};

static void *find(void *lib, const char *name, bool *all)
{
	void *function = lib ? dlsym(lib, name) : NULL;

	*all = *all && function;
	return function;
}

/* False: it is not installed. */
static bool load(struct libdw *dw)
{
	void *lib = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
	bool all = true;

	*dw = (struct libdw){
		.begin_elf = find(lib, "dwarf_begin_elf", &all),
		.end = find(lib, "dwarf_end", &all),
		.nextcu = find(lib, "dwarf_nextcu", &all),
		.offdie = find(lib, "dwarf_offdie", &all),
		.haspc = find(lib, "dwarf_haspc", &all),
		.getsrc_die = find(lib, "dwarf_getsrc_die", &all),
		.linesrc = find(lib, "dwarf_linesrc", &all),
		.lineno = find(lib, "dwarf_lineno", &all),
	};
	return all;
}

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

	if (!load(&dw))
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

/* SPDX-License-Identifier: MIT */
/*
 * The functions of libdw that lines.c and unwind.c call. It is loaded at the first question, so that
 * programs do not carry it.
 */
#pragma once

#include <elfutils/libdw.h>
#include <stdbool.h>

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
	Dwarf_CFI *(*getcfi)(Dwarf *dwarf);
	Dwarf_CFI *(*getcfi_elf)(Elf *elf);
	int (*cfi_end)(Dwarf_CFI *cfi);
	int (*cfi_addrframe)(Dwarf_CFI *cfi, Dwarf_Addr pc, Dwarf_Frame **frame);
	int (*frame_info)(Dwarf_Frame *frame, Dwarf_Addr *start, Dwarf_Addr *end, bool *signal);
	int (*frame_cfa)(Dwarf_Frame *frame, Dwarf_Op **ops, size_t *nops);
	int (*frame_register)(Dwarf_Frame *frame, int number, Dwarf_Op memory[3], Dwarf_Op **ops,
			      size_t *nops);
};

/* False: it is not installed. */
bool vb_libdw_load(struct libdw *dw);

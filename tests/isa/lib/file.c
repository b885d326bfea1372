// SPDX-License-Identifier: MIT
/*
 * See file.h.
 *
 *   0      64              64 + 40 * 56         file_add, file_add, ...        at the end
 *   | Ehdr | Phdr ... 40   | contents                                        | Shdr ... |
 */
#include "file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t file_add(struct file *f, const void *bytes, size_t size)
{
	size_t at = (f->size + 15) & ~(size_t)15;

	if (at + size > f->room) {
		f->room = 2 * (at + size);
		f->bytes = realloc(f->bytes, f->room);
		if (!f->bytes) {
			fprintf(stderr, "out of memory\n");
			exit(99);
		}
	}
	memset(f->bytes + f->size, 0, at - f->size);
	if (bytes)
		memcpy(f->bytes + at, bytes, size);
	else
		memset(f->bytes + at, 0, size);
	f->size = at + size;
	return at;
}

Elf64_Phdr *file_segment(struct file *f, unsigned flags, uint64_t addr, size_t offset,
			 uint64_t filesz, uint64_t memsz)
{
	Elf64_Phdr *ph = &f->ph[f->phnum++];

	*ph = (Elf64_Phdr){ .p_type = PT_LOAD,
			    .p_flags = flags,
			    .p_offset = offset,
			    .p_vaddr = addr,
			    .p_filesz = filesz,
			    .p_memsz = memsz,
			    .p_align = 1 };
	return ph;
}

Elf64_Shdr *file_section(struct file *f, unsigned type, size_t offset, uint64_t size)
{
	Elf64_Shdr *sh = &f->sh[f->shnum++];

	*sh = (Elf64_Shdr){ .sh_type = type, .sh_offset = offset, .sh_size = size };
	return sh;
}

static void put(uint8_t *text, size_t *at, uint32_t bits)
{
	memcpy(text + *at, &bits, 4);
	*at += 4;
}

/* beq x0, x0, -distance */
static uint32_t back(size_t distance)
{
	uint32_t imm = 0U - (uint32_t)distance;

	return 0x63 | (imm >> 11 & 1) << 7 | (imm >> 1 & 15) << 8 | (imm >> 5 & 63) << 25 |
	       (imm >> 12 & 1) << 31;
}

size_t file_decoys(uint8_t *text)
{
	size_t n = 0;

	for (unsigned r = 16; r < 26; r++) {
		size_t start = n;

		for (unsigned i = 0; i < 1000; i++)
			put(text, &n, 0x33 | r << 7 | r << 15 | r << 20); /* add r, r, r */
		for (unsigned i = 0; i < 3; i++)
			put(text, &n, back(n - start));
	}
	return n;
}

void file_begin(struct file *f)
{
	memset(f, 0, sizeof(*f));
	file_add(f, NULL, sizeof(Elf64_Ehdr) + sizeof(f->ph));
	file_section(f, SHT_NULL, 0, 0);
}

void file_end(struct file *f, unsigned type, uint64_t entry)
{
	Elf64_Ehdr eh = { .e_type = (uint16_t)type,
			  .e_machine = EM_RISCV,
			  .e_version = 1,
			  .e_entry = entry,
			  .e_phoff = sizeof(eh),
			  .e_ehsize = sizeof(eh),
			  .e_phentsize = sizeof(Elf64_Phdr),
			  .e_phnum = (uint16_t)f->phnum,
			  .e_shentsize = sizeof(Elf64_Shdr) };

	memcpy(eh.e_ident, ELFMAG, SELFMAG);
	eh.e_ident[EI_CLASS] = ELFCLASS64;
	eh.e_ident[EI_DATA] = ELFDATA2LSB;
	eh.e_ident[EI_VERSION] = EV_CURRENT;
	if (f->shnum > 1) {
		eh.e_shnum = (uint16_t)f->shnum;
		eh.e_shoff = file_add(f, f->sh, f->shnum * sizeof(f->sh[0]));
	}
	memcpy(f->bytes, &eh, sizeof(eh));
	memcpy(f->bytes + sizeof(eh), f->ph, sizeof(f->ph));
}

void file_free(struct file *f)
{
	free(f->bytes);
	memset(f, 0, sizeof(*f));
}

/* SPDX-License-Identifier: MIT */
/* ELF files put together by hand: any segments, any sections, for what no linker would write. */
#ifndef ISA_FILE_H
#define ISA_FILE_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

struct file {
	uint8_t *bytes;
	size_t size, room;
	Elf64_Phdr ph[40];
	Elf64_Shdr sh[8];
	unsigned phnum, shnum;
};

/* Append; returns the offset. bytes == NULL: zeros. */
size_t file_add(struct file *f, const void *bytes, size_t size);
/* A PT_LOAD of what is at `offset`. */
Elf64_Phdr *file_segment(struct file *f, unsigned flags, uint64_t addr, size_t offset,
			 uint64_t filesz, uint64_t memsz);
Elf64_Shdr *file_section(struct file *f, unsigned type, size_t offset, uint64_t size);
void file_begin(struct file *f);
/*
 * FILE_DECOYS bytes of text: loops over ten registers which the rest need not use. They get the host's
 * registers, and what comes behind takes the most host code there is.
 */
enum { FILE_DECOYS = 10 * 4 * 1003 };
size_t file_decoys(uint8_t *text);
/* Write the headers; f->bytes and f->size are the file. */
void file_end(struct file *f, unsigned type, uint64_t entry);
void file_free(struct file *f);

#endif

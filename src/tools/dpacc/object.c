// SPDX-License-Identifier: MIT
/*
 * Reading ELF objects, with libelf, and ar archives. What is read here comes from files that may be
 * damaged: every offset is checked against the bytes that are there.
 */
#include "dpacc.h"

#include <ar.h>
#include <gelf.h>
#include <libelf.h>
#include <string.h>

static Elf *open_memory(const void *data, size_t size)
{
	if (elf_version(EV_CURRENT) == EV_NONE || !size)
		return NULL;
	return elf_memory((char *)data, size);
}

/* A decimal number in a field of an ar header; -1 for anything else. */
static long ar_number(const char *field, size_t len)
{
	long value = 0;
	size_t i = 0;

	for (; i < len && field[i] >= '0' && field[i] <= '9'; i++)
		value = value * 10 + (field[i] - '0');
	for (size_t j = i; j < len; j++)
		if (field[j] != ' ')
			return -1;
	return i ? value : -1;
}

/* "name/", or "/OFFSET" into the table of long names, whose entries end in "/\n". */
static const char *ar_name(const struct ar_hdr *header, const char *table, size_t table_size)
{
	const char *name = header->ar_name, *end;
	size_t room = sizeof(header->ar_name);
	long offset;

	if (name[0] == '/') {
		offset = ar_number(name + 1, room - 1);
		if (offset < 0 || (size_t)offset >= table_size)
			return NULL;
		name = table + offset;
		room = table_size - (size_t)offset;
	}
	end = memchr(name, '/', room);
	return end && end > name ? mem_dup(name, (size_t)(end - name)) : NULL;
}

static void add_member(struct member **members, int *n, const char *name, const void *data,
		       size_t size)
{
	/* full at every power of two from 16 */
	if (!*n || (*n >= 16 && !(*n & (*n - 1)))) {
		struct member *more = mem_alloc((*n ? 2 * (size_t)*n : 16) * sizeof(*more));

		if (*n)
			memcpy(more, *members, (size_t)*n * sizeof(*more));
		*members = more;
	}
	(*members)[(*n)++] = (struct member){ name, data, size };
}

/* libelf reads archives from files only, and ours are sections of objects, too. */
int archive_members(const void *data, size_t size, struct member **members, int *n)
{
	const char *at = data, *table = NULL;
	size_t left = size, table_size = 0;

	*n = 0;
	*members = NULL;
	if (left >= SARMAG && !memcmp(at, "!<thin>\n", SARMAG))
		return 0; /* its members are files of their own, and none of dpacc's */
	if (left < SARMAG || memcmp(at, ARMAG, SARMAG))
		return -1;
	for (at += SARMAG, left -= SARMAG; left;) {
		const struct ar_hdr *header = (const struct ar_hdr *)at;
		const char *name;
		long length;

		if (left < sizeof(*header) || memcmp(header->ar_fmag, ARFMAG, 2))
			return -1;
		length = ar_number(header->ar_size, sizeof(header->ar_size));
		at += sizeof(*header);
		left -= sizeof(*header);
		if (length < 0 || (size_t)length > left)
			return -1;
		if (!memcmp(header->ar_name, "// ", 3)) {
			table = at;
			table_size = (size_t)length;
		} else if (memcmp(header->ar_name, "/ ", 2) &&
			   memcmp(header->ar_name, "/SYM64/", 7)) {
			name = ar_name(header, table, table_size);
			if (!name)
				return -1;
			add_member(members, n, name, at, (size_t)length);
		}
		length += length & 1; /* members begin at even offsets */
		at += (size_t)length < left ? (size_t)length : left;
		left -= (size_t)length < left ? (size_t)length : left;
	}
	return 0;
}

int elf_section(const void *data, size_t size, const char *name, const void **section,
		size_t *section_size)
{
	Elf *elf = open_memory(data, size);
	Elf_Scn *scn = NULL;
	size_t names;
	int ret = 0;

	if (!elf || elf_kind(elf) != ELF_K_ELF || elf_getshdrstrndx(elf, &names)) {
		elf_end(elf);
		return -1;
	}
	while (!ret && (scn = elf_nextscn(elf, scn))) {
		GElf_Shdr header;
		const char *found;

		if (!gelf_getshdr(scn, &header)) {
			ret = -1;
			break;
		}
		found = elf_strptr(elf, names, header.sh_name);
		if (!found || strcmp(found, name))
			continue;
		if (header.sh_type == SHT_NOBITS || header.sh_offset > size ||
		    header.sh_size > size - header.sh_offset) {
			ret = -1;
			break;
		}
		*section = (const char *)data + header.sh_offset;
		*section_size = header.sh_size;
		ret = 1;
	}
	elf_end(elf);
	return ret;
}

static bool table_defines(Elf *elf, Elf_Scn *scn, const GElf_Shdr *header, const char *name)
{
	Elf_Data *data = elf_getdata(scn, NULL);
	GElf_Sym symbol;

	for (int i = 0; data && gelf_getsym(data, i, &symbol); i++) {
		const char *found = elf_strptr(elf, header->sh_link, symbol.st_name);

		if (symbol.st_shndx != SHN_UNDEF && found && !strcmp(found, name))
			return true;
	}
	return false;
}

bool elf_defines(const void *data, size_t size, const char *name)
{
	Elf *elf = open_memory(data, size);
	Elf_Scn *scn = NULL;
	bool found = false;

	while (elf && !found && (scn = elf_nextscn(elf, scn))) {
		GElf_Shdr header;

		found = gelf_getshdr(scn, &header) && header.sh_type == SHT_SYMTAB &&
			table_defines(elf, scn, &header, name);
	}
	elf_end(elf);
	return found;
}

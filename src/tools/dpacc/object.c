// SPDX-License-Identifier: MIT
/*
 * Reading ELF objects and ar archives with libelf. What is read here comes from files that may be damaged: every
 * offset that libelf gives is checked against the bytes that are there.
 */
#include "dpacc.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const void *file_read(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	size_t done = 0;
	char *data;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		say("%s: %s", path,
		    fd < 0 || !S_ISDIR(st.st_mode) ? strerror(errno) : "is a folder");
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	data = mem_alloc((size_t)st.st_size + 1);
	while (done < (size_t)st.st_size) {
		ssize_t n = read(fd, data + done, (size_t)st.st_size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	close(fd);
	*size = done;
	return data;
}

static Elf *open_memory(const void *data, size_t size)
{
	if (elf_version(EV_CURRENT) == EV_NONE || !size)
		return NULL;
	return elf_memory((char *)data, size);
}

/* libelf's own view of a member, as a range of the bytes that we have. */
static int add_member(Elf *elf, const void *data, size_t size, struct member *member)
{
	const Elf_Arhdr *header = elf_getarhdr(elf);
	int64_t base = elf_getbase(elf);

	if (!header || !header->ar_name || base < 0 || (size_t)base > size || header->ar_size < 0 ||
	    (size_t)header->ar_size > size - (size_t)base)
		return -1;
	member->name = mem_dup(header->ar_name, strlen(header->ar_name));
	member->data = (const char *)data + base;
	member->size = (size_t)header->ar_size;
	return 0;
}

int archive_members(const void *data, size_t size, struct member **members, int *n)
{
	Elf *archive = open_memory(data, size), *elf;
	int room = 0, ret = 0;
	Elf_Cmd command = ELF_C_READ;

	*n = 0;
	*members = NULL;
	if (!archive || elf_kind(archive) != ELF_K_AR) {
		elf_end(archive);
		return -1;
	}
	while (!ret && (elf = elf_begin(-1, command, archive))) {
		const Elf_Arhdr *header = elf_getarhdr(elf);

		if (*n == room) {
			struct member *more;

			room = room ? 2 * room : 16;
			more = mem_alloc((size_t)room * sizeof(*more));
			if (*n)
				memcpy(more, *members, (size_t)*n * sizeof(*more));
			*members = more;
		}
		/* "/" and "//" are the archive's own tables */
		if (!header)
			ret = -1;
		else if (header->ar_name && header->ar_name[0] != '/')
			ret = add_member(elf, data, size, &(*members)[(*n)++]);
		command = elf_next(elf);
		elf_end(elf);
	}
	elf_end(archive);
	return ret;
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

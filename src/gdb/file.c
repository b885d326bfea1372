// SPDX-License-Identifier: MIT
/*
 * Owns the one file that a debugger can read from us: the device ELF, so that "target remote" alone
 * finds the symbols. Other names do not exist, whatever the host has under them.
 */
#include "gdb/session.h"

#include <stdio.h>
#include <sys/stat.h>

/* The only descriptor. */
#define FILE_NUMBER 3
/* What the protocol calls them. */
enum { FILE_ENOENT = 2, FILE_EBADF = 9, FILE_EINVAL = 22, FILE_EROFS = 30 };

static void gdb_file_refuse(struct session *s, int number)
{
	vb_gdb_printf(s, "F-1,%x", (unsigned int)number);
}

static void gdb_file_open_file(struct session *s, const char *at)
{
	char name[256];
	size_t len = strcspn(at, ",") / 2;
	uint64_t flags, mode;

	if (len >= sizeof(name) || !vb_gdb_get_hex(&at, name, len) || !vb_gdb_get_char(&at, ',') ||
	    !vb_gdb_get_number(&at, &flags) || !vb_gdb_get_char(&at, ',') ||
	    !vb_gdb_get_number(&at, &mode) || *at) {
		gdb_file_refuse(s, FILE_EINVAL);
		return;
	}
	name[len] = '\0';
	if (strlen(name) != len || strcmp(name, s->target->elf_name)) {
		gdb_file_refuse(s, FILE_ENOENT);
	} else if (flags & 3) {
		gdb_file_refuse(s, FILE_EROFS);
	} else {
		s->file_open = true;
		vb_gdb_printf(s, "F%x", FILE_NUMBER);
	}
}

static bool gdb_file_get_file(struct session *s, const char **at)
{
	uint64_t number;

	return vb_gdb_get_number(at, &number) && number == FILE_NUMBER && s->file_open;
}

static void gdb_file_read_file(struct session *s, const char *at)
{
	char head[16];
	uint64_t count, offset;
	size_t n, start;

	if (!gdb_file_get_file(s, &at)) {
		gdb_file_refuse(s, FILE_EBADF);
		return;
	}
	if (!vb_gdb_get_char(&at, ',') || !vb_gdb_get_number(&at, &count) ||
	    !vb_gdb_get_char(&at, ',') || !vb_gdb_get_number(&at, &offset) || *at) {
		gdb_file_refuse(s, FILE_EINVAL);
		return;
	}
	if (offset > s->target->elf_len)
		offset = s->target->elf_len;
	if (count > s->target->elf_len - offset)
		count = s->target->elf_len - offset;
	/* The count stands before the data, and how many bytes fit is known afterwards. */
	vb_gdb_put(s, "F00000000;");
	start = s->out_len;
	n = vb_gdb_put_binary(s, (const char *)s->target->elf + offset, count);
	snprintf(head, sizeof(head), "F%08zx;", n);
	memcpy(s->out + start - strlen(head), head, strlen(head));
}

static void put_be(uint8_t **to, uint64_t value, unsigned int bytes)
{
	while (bytes--)
		*(*to)++ = (uint8_t)(value >> 8 * bytes);
}

/* struct stat of the protocol: big-endian, 64 bytes. */
static void stat_file(struct session *s, const char *at)
{
	uint8_t bytes[64], *to = bytes;

	if (!gdb_file_get_file(s, &at) || *at) {
		gdb_file_refuse(s, FILE_EBADF);
		return;
	}
	put_be(&to, 0, 4); /* device */
	put_be(&to, 1, 4); /* inode */
	put_be(&to, S_IFREG | 0444, 4);
	put_be(&to, 1, 4); /* links */
	put_be(&to, 0, 4); /* user */
	put_be(&to, 0, 4); /* group */
	put_be(&to, 0, 4); /* rdev */
	put_be(&to, s->target->elf_len, 8);
	put_be(&to, 4096, 8);
	put_be(&to, (s->target->elf_len + 511) / 512, 8);
	put_be(&to, 0, 4); /* times */
	put_be(&to, 0, 4);
	put_be(&to, 0, 4);
	vb_gdb_put(s, "F40;");
	vb_gdb_put_binary(s, bytes, sizeof(bytes));
}

static void close_file(struct session *s, const char *at)
{
	if (!gdb_file_get_file(s, &at) || *at) {
		gdb_file_refuse(s, FILE_EBADF);
		return;
	}
	s->file_open = false;
	vb_gdb_put(s, "F0");
}

void vb_gdb_file(struct session *s, const char *at)
{
	if (!strncmp(at, "setfs:", 6))
		vb_gdb_put(s, "F0");
	else if (!strncmp(at, "open:", 5))
		gdb_file_open_file(s, at + 5);
	else if (!strncmp(at, "pread:", 6))
		gdb_file_read_file(s, at + 6);
	else if (!strncmp(at, "fstat:", 6))
		stat_file(s, at + 6);
	else if (!strncmp(at, "close:", 6))
		close_file(s, at + 6);
	else if (!strncmp(at, "readlink:", 9))
		gdb_file_refuse(s, FILE_ENOENT);
	else if (!strncmp(at, "pwrite:", 7) || !strncmp(at, "unlink:", 7))
		gdb_file_refuse(s, FILE_EROFS);
}

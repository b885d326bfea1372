// SPDX-License-Identifier: MIT
/*
 * Owns the answer to: how much memory is left? The machine has a number for it; a control group, and
 * each one above it, may have less. Nothing here allocates.
 */
#include "host/memory/room.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "host/memory/libc.h"

enum { PATH = 512, TEXT = 4096 };

/* Files of a control group. What is cached of files can be had back. */
struct kind {
	const char *limit, *used, *stat, *cached[2];
};

static const struct kind first = {
	"memory.limit_in_bytes",
	"memory.usage_in_bytes",
	"memory.stat",
	{ "\ntotal_inactive_file", "\ntotal_active_file" },
};
static const struct kind second = {
	"memory.max",
	"memory.current",
	"memory.stat",
	{ "\ninactive_file", "\nactive_file" },
};

/* A number at the beginning of a text, after spaces; SIZE_MAX: there is none ("max"). */
static size_t read_number(const char *text)
{
	size_t number = 0;

	while (*text == ' ')
		text++;
	if (*text < '0' || *text > '9')
		return SIZE_MAX;
	for (; *text >= '0' && *text <= '9'; text++)
		number = number * 10 + (size_t)(*text - '0');
	return number;
}

/* The number behind a name; SIZE_MAX: it is not there. */
static size_t room_find_number(const char *text, const char *name)
{
	text = strstr(text, name);
	return text ? read_number(text + strlen(name)) : SIZE_MAX;
}

/* Of one group, without those above it. */
static size_t left_in(const char *dir, const struct kind *kind, size_t swap)
{
	char path[PATH + 64], text[TEXT];
	size_t limit, used, number, left;

	snprintf(path, sizeof(path), "%s/%s", dir, kind->limit);
	libc_read_text(path, text, sizeof(text));
	limit = read_number(text);
	snprintf(path, sizeof(path), "%s/%s", dir, kind->used);
	libc_read_text(path, text, sizeof(text));
	used = read_number(text);
	if (limit > SIZE_MAX / 4 || used > SIZE_MAX / 4)
		return SIZE_MAX; /* no limit, or one that says none */
	left = (limit > used ? limit - used : 0) + swap;
	snprintf(path, sizeof(path), "%s/%s", dir, kind->stat);
	libc_read_text(path, text, sizeof(text));
	for (int i = 0; i < 2; i++) {
		number = room_find_number(text, kind->cached[i]);
		left += number == SIZE_MAX ? 0 : number;
	}
	return left;
}

/* Of a group and all above it. A container may see its own as the root. */
static size_t left_above(const char *root, const char *group, size_t len, const struct kind *kind,
			 size_t swap)
{
	size_t left = SIZE_MAX, n, base = strlen(root);
	char dir[PATH];

	if (base + len >= sizeof(dir))
		return left;
	memcpy(dir, root, base);
	memcpy(dir + base, group, len);
	dir[base + len] = '\0';
	for (;;) {
		n = left_in(dir, kind, swap);
		left = n < left ? n : left;
		if (strlen(dir) <= base)
			return left;
		*strrchr(dir, '/') = '\0';
	}
}

size_t room_in_groups(const char *root, const char *groups, size_t swap)
{
	size_t left = SIZE_MAX, n;
	char dir[PATH];

	while (groups && *groups) {
		size_t line = strcspn(groups, "\n");
		const char *name = memchr(groups, ':', line);
		const char *path = name ? memchr(name + 1, ':', line - (name + 1 - groups)) : NULL;
		bool is_first = path && !strncmp(name, ":memory:", 8);

		if (path && path[1] == '/' && (is_first || path == name + 1)) {
			snprintf(dir, sizeof(dir), "%s%s", root, is_first ? "/memory" : "");
			n = left_above(dir, path + 1, (size_t)(groups + line - path - 1),
				       is_first ? &first : &second, swap);
			left = n < left ? n : left;
		}
		groups += line + (groups[line] == '\n');
	}
	return left;
}

size_t room_left(void)
{
	size_t available, swap, in_groups;
	char text[TEXT];

	libc_read_text("/proc/meminfo", text, sizeof(text));
	available = room_find_number(text, "MemAvailable:");
	swap = room_find_number(text, "SwapFree:");
	if (available == SIZE_MAX || swap == SIZE_MAX)
		return SIZE_MAX;
	libc_read_text("/proc/self/cgroup", text, sizeof(text));
	in_groups = room_in_groups("/sys/fs/cgroup", text, swap * 1024);
	available = (available + swap) * 1024;
	return available < in_groups ? available : in_groups;
}

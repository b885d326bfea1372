// SPDX-License-Identifier: MIT
/*
 * Finds the row of a path. Almost no path has one, so the first letters decide: a path that begins
 * with neither /dev nor /sys costs a few compares, and no system call is made for one that no row
 * covers.
 *
 * A relative path is ours where the directory it starts from and the path make one together, as
 * openat(root, "sys/class") does. The directory is asked for only where the path begins like a part
 * of a row.
 */
#include "redirect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/env.h"
#include "libc.h"
#include "rows.h"

/* --- the tree --------------------------------------------------------------------------------------------------- */

/* First letters of the names in rows, and of nodes: most relative paths begin with another. */
static bool letters[256];

static void note_letters(void)
{
	for (unsigned int i = 0; i < VB_FILES_ROWS; i++)
		for (const char *p = strchr(vb_files_rows[i], '/'); p; p = strchr(p + 1, '/'))
			letters[(unsigned char)p[1]] = true;
	for (unsigned int i = 0; i < VB_FILES_NODES; i++)
		letters[(unsigned char)*vb_files_nodes[i]] = true;
}

/*
 * NULL where `verbatim run` made none. The name is copied once: the program may change its
 * environment, and some write over it. A program that gains rights is not led anywhere.
 */
static const char *tree(void)
{
	static char root[REDIRECT_MAX / 2];
	static atomic_int state; /* 0: not known, 1: there, -1: none */
	int known = atomic_load_explicit(&state, memory_order_acquire);
	const char *name;

	if (!known) {
		name = vb_getenv(VB_FILES_VARIABLE);
		known = name && *name == '/' && strlen(name) < sizeof(root) ? 1 : -1;
		if (known > 0) {
			strcpy(root, name);
			note_letters();
		}
		atomic_store_explicit(&state, known,
				      memory_order_release); /* pairs with the load above */
	}
	return known > 0 ? root : NULL;
}

/*
 * By system calls: they are nothing that the libraries before and behind this one should see. Never
 * unmapped: a child that is forked has it, too. No byte of it is read.
 */
static void map_mark(const char *root)
{
	char path[REDIRECT_MAX];
	long fd;

	strcpy(stpcpy(path, root), VB_FILES_MARK);
	fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	syscall(SYS_mmap, NULL, 1, PROT_NONE, MAP_PRIVATE, fd, 0);
	syscall(SYS_close, fd);
}

__attribute__((constructor)) static void find_tree(void)
{
	const char *root = tree();
	int err = errno;

	if (root)
		map_mark(root);
	errno = err;
}

static atomic_bool nodes_seen;

bool redirect_nodes_seen(void)
{
	return atomic_load_explicit(&nodes_seen, memory_order_relaxed);
}

bool redirect_is_tree(dev_t dev)
{
	const char *root = tree();
	int err = errno;
	struct stat st;
	bool same;

	same = root && !LIBC(stat)(root, &st) && st.st_dev == dev;
	errno = err;
	return same;
}

/*
 * Whether the tree has the row: it has no accelerators where the configuration has no such device.
 */
static __attribute__((noinline)) bool has_row(const char *root, unsigned int row)
{
	static _Atomic signed char answer[VB_FILES_ROWS]; /* 0: not known, 1: yes, -1: no */
	signed char known = atomic_load_explicit(&answer[row], memory_order_relaxed);
	char path[REDIRECT_MAX];
	int err = errno;

	if (!known) {
		strcpy(stpcpy(path, root), vb_files_rows[row]);
		known = syscall(SYS_faccessat, AT_FDCWD, path, F_OK) ? -1 : 1;
		atomic_store_explicit(&answer[row], known, memory_order_relaxed);
		errno = err;
	}
	return known > 0;
}

/* --- paths ------------------------------------------------------------------------------------------------------ */

/* Past slashes and "." that say nothing. */
static const char *skip(const char *path)
{
	while (path[0] == '/' && (path[1] == '/' || (path[1] == '.' && path[2] == '/')))
		path += path[1] == '/' ? 1 : 2;
	return path;
}

/* What is behind the row in a path that it covers, NULL in any other. */
static const char *redirect_behind(const char *path, const char *row)
{
	for (; *row; row++, path++) {
		if (*row == '/')
			path = skip(path);
		if (*path != *row)
			return NULL;
	}
	return *path && *path != '/' ? NULL : path;
}

/*
 * Where what is behind a row leads out of it at once, as in /dev/infiniband/../null, the path
 * without the detour; else NULL. The tree has only rows, and rows are directories, so the name in
 * front of ".." is where it leads.
 */
static const char *leave_row(struct redirect *to, const char *row, const char *rest)
{
	size_t len = (size_t)(strrchr(row, '/') - row);

	rest = skip(rest);
	if (strncmp(rest, "/..", 3) || (rest[3] && rest[3] != '/') ||
	    len + strlen(rest + 3) >= sizeof(to->text))
		return NULL;
	memmove(to->text + len, rest + 3, strlen(rest + 3) + 1); /* it may be in there */
	memcpy(to->text, row, len);
	return to->text;
}

/*
 * Whether the path leads to a PCI device of the machine's own: its address begins with a digit, as do
 * patterns for such addresses (0000*).
 */
static bool is_machines(const char *row, const char *rest)
{
	static const char ours[] = VB_FILES_PCI_DOMAIN ":";

	if (strncmp(row, VB_FILES_MIXED, sizeof(VB_FILES_MIXED) - 1))
		return false;
	rest = skip(rest);
	return *rest == '/' &&
	       ((rest[1] >= '0' && rest[1] <= '9') || (rest[1] >= 'a' && rest[1] <= 'f')) &&
	       strncmp(rest + 1, ours, sizeof(ours) - 1);
}

static void redirect_absolute(struct redirect *to, const char *root, const char *path)
{
	const char *rest, *outside;
	unsigned int row;
	size_t len;

find_row:
	for (row = 0, rest = NULL; row < VB_FILES_ROWS; row++) {
		rest = redirect_behind(path, vb_files_rows[row]);
		if (rest)
			break;
	}
	if (!rest || is_machines(vb_files_rows[row], rest))
		return;
	outside = has_row(root, row) ? leave_row(to, vb_files_rows[row], rest) : NULL;
	if (outside) {
		to->path = path = outside;
		goto find_row;
	}
	len = strlen(root) + strlen(vb_files_rows[row]) + strlen(rest);
	if (len >= sizeof(to->text) || !has_row(root, row))
		return;
	if (!strncmp(vb_files_rows[row], "/dev/", 5))
		atomic_store_explicit(&nodes_seen, true, memory_order_relaxed);
	to->ours = true;
	len -= strlen(rest);
	memmove(to->text + len, rest, strlen(rest) + 1); /* as above */
	memcpy(to->text, root, strlen(root));
	memcpy(to->text + strlen(root), vb_files_rows[row], len - strlen(root));
	to->path = to->text;
	to->name = to->text + strlen(root);
}

/*
 * Whether the first name of the path is one of a row's: of "/sys/class/infiniband" these are sys,
 * class, infiniband.
 */
static bool begins_like_row(const char *path, const char *row)
{
	while (*row) {
		const char *p = path;

		for (row++; *row && *row != '/' && *p == *row; row++)
			p++;
		if ((!*row || *row == '/') && (!*p || *p == '/'))
			return true;
		row += strcspn(row, "/");
	}
	return false;
}

bool redirect_is_node_name(const char *name)
{
	for (unsigned int i = 0; i < VB_FILES_NODES; i++)
		if (!strncmp(name, vb_files_nodes[i], strlen(vb_files_nodes[i])))
			return true;
	return false;
}

static bool begins_like_ours(const char *path)
{
	for (unsigned int i = 0; i < VB_FILES_ROWS; i++)
		if (begins_like_row(path, vb_files_rows[i]))
			return true;
	return redirect_is_node_name(path);
}

/* The name of a directory, as the program knows it; false where it has none that would fit. */
static bool name_directory(int dir, const char *root, char *name, size_t size)
{
	char link[32] = "/proc/thread-self/cwd", digits[12], *p;
	unsigned int n = (unsigned int)dir, count = 0;
	size_t len = strlen(root);
	long ret;

	if (dir != AT_FDCWD) {
		if (dir < 0)
			return false;
		do {
			digits[count++] = (char)('0' + n % 10);
			n /= 10;
		} while (n);
		p = stpcpy(link, "/proc/thread-self/fd/");
		while (count)
			*p++ = digits[--count];
		*p = 0;
	}
	ret = syscall(SYS_readlinkat, AT_FDCWD, link, name, size - 1);
	if (ret <= 0 || (size_t)ret >= size - 1 || *name != '/')
		return false;
	name[ret] = 0;
	if (!strncmp(name, root, len) && name[len] == '/')
		memmove(name, name + len, (size_t)ret - len + 1);
	return true;
}

static __attribute__((noinline)) void redirect_relative(struct redirect *to, const char *root,
							int dir, const char *path)
{
	char name[REDIRECT_MAX];
	int err = errno;
	size_t len;

	if (name_directory(dir, root, name, sizeof(name))) {
		len = strlen(name);
		if (len + 1 + strlen(path) < sizeof(name)) {
			name[len] = '/';
			strcpy(name + len + 1, path);
			redirect_absolute(to, root, skip(name));
		}
	}
	errno = err;
}

void redirect(struct redirect *to, int dir, const char *path)
{
	const char *root = tree(), *p;

	to->ours = false;
	to->path = path;
	if (!root || !path)
		return;
	if (*path != '/') {
		if (letters[(unsigned char)*path] && begins_like_ours(path))
			redirect_relative(to, root, dir, path);
		return;
	}
	p = skip(path);
	if (!strncmp(p + 1, "dev", 3) || !strncmp(p + 1, "sys", 3))
		redirect_absolute(to, root, p);
}

char *redirect_back(char *path)
{
	const char *root = tree();
	size_t len = root ? strlen(root) : 0;

	if (path && len && !strncmp(path, root, len) && path[len] == '/')
		memmove(path, path + len, strlen(path) - len + 1);
	return path;
}

// SPDX-License-Identifier: MIT
/*
 * Removes trees that are in use no more; called by every run (tree_end()).
 *
 * A tree is old where its time was not set for OLD_SECONDS. It is in use where a process has its name
 * in its environment, or its mark mapped: the preload maps that (host/preload/redirect.c), and programs may
 * write over their environment. Both are looked for twice, because the only process that uses a tree
 * may start another one and end while /proc is read; one that is about to become another program may
 * use any. A tree that is found in use gets a new time, so
 * that the next runs do not look again.
 *
 * What is removed is locked first: a run that wants the tree just now sets its time under the lock,
 * and finds under its name that it is gone (use() in tree.c). Half a tree of a run that was killed, and
 * a tree whose removal was interrupted, have names that begin as those of trees and are in no
 * environment.
 *
 * Trees of other PID namespaces are left to runs there: their processes cannot be seen from here. The
 * machine's first namespace sees all.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/time.h"
#include "meet/registry_dir.h"
#include "host/preload/rows.h"
#include "tools/tree.h"

enum {
	OLD_SECONDS = 60, /* longer than any program needs from use() to its start */
	MOST = 64,        /* in one run; the next ones remove the rest */
};

struct old_tree {
	char path[PATH_MAX];
	bool used;
};

/* With one descriptor: there may be no more. */
static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	return remove(path);
}

void tree_remove(const char *path)
{
	if (rmdir(path)) /* an empty one needs no descriptor at all */
		nftw(path, remove_one, 1, FTW_DEPTH | FTW_PHYS);
}

/* --- use ---------------------------------------------------------------------------------------------------------- */

static void mark_used(struct old_tree *list, unsigned int count, const char *path, size_t len)
{
	for (unsigned int i = 0; i < count; i++)
		if (!strncmp(list[i].path, path, len) && !list[i].path[len])
			list[i].used = true;
}

static void tree_old_mark_all(struct old_tree *list, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		list[i].used = true;
}

/* A string of an environment, or a line of a list of mappings. */
static void mark_by_variable(struct old_tree *list, unsigned int count, const char *entry)
{
	static const char name[] = VB_FILES_VARIABLE "=";

	if (!strncmp(entry, name, strlen(name)))
		mark_used(list, count, entry + strlen(name), strlen(entry + strlen(name)));
}

static void mark_by_mapping(struct old_tree *list, unsigned int count, const char *entry)
{
	const char *path = strchr(entry, '/'), *end = path ? strstr(path, VB_FILES_MARK) : NULL;

	if (end)
		mark_used(list, count, path, (size_t)(end - path));
}

/*
 * Marks the trees that a process has in one of its files below /proc. A process that is ours and does
 * not let us look may use any. False: there was nothing to read.
 */
static bool tree_old_look_into(struct old_tree *list, unsigned int count, const char *pid,
			       const char *file, char between,
			       void (*mark)(struct old_tree *list, unsigned int count,
					    const char *entry))
{
	char name[PATH_MAX], *entry = NULL;
	size_t size = 0;
	struct stat st;
	FILE *in;
	bool any;

	snprintf(name, sizeof(name), "/proc/%s/%s", pid, file);
	in = fopen(name, "re");
	if (!in) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
		    (errno == EACCES && !stat(name, &st) && st.st_uid == geteuid()))
			tree_old_mark_all(list, count);
		return true;
	}
	for (any = false; getdelim(&entry, &size, between, in) > 0; any = true)
		mark(list, count, entry);
	free(entry);
	fclose(in);
	return any;
}

/*
 * Whether a process without an environment is on its way from one program to the next: it has memory,
 * but no auxiliary vector yet. Zombies and threads of the kernel have no memory, and read as empty.
 */
static bool is_becoming(const char *pid)
{
	unsigned long type = 1;
	char name[PATH_MAX];
	bool becoming;
	int fd;

	snprintf(name, sizeof(name), "/proc/%s/auxv", pid);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	becoming = fd >= 0 && read(fd, &type, sizeof(type)) == sizeof(type) && !type;
	if (fd >= 0)
		close(fd);
	return becoming;
}

static void tree_old_look_at(struct old_tree *list, unsigned int count, const char *pid)
{
	if (!tree_old_look_into(list, count, pid, "environ", 0, mark_by_variable) &&
	    is_becoming(pid))
		tree_old_mark_all(list, count);
	tree_old_look_into(list, count, pid, "maps", '\n', mark_by_mapping);
}

static void look_for_users(struct old_tree *list, unsigned int count)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	if (!proc)
		tree_old_mark_all(list, count);
	while (proc && (entry = readdir(proc)))
		if (*entry->d_name >= '1' && *entry->d_name <= '9')
			tree_old_look_at(list, count, entry->d_name);
	if (proc)
		closedir(proc);
}

/* --- removing ------------------------------------------------------------------------------------------------------- */

static bool is_old(const struct stat *st)
{
	return st->st_uid == geteuid() && S_ISDIR(st->st_mode) &&
	       st->st_mtim.tv_sec + OLD_SECONDS < (time_t)(vb_wall_ns() / 1000000000u);
}

static void remove_locked(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char gone[PATH_MAX + 8];
	struct stat st;

	if (fd < 0)
		return;
	if (!flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &st) && is_old(&st)) {
		snprintf(gone, sizeof(gone), "%s.gone", path);
		if (!rename(path, gone))
			tree_remove(gone);
	}
	close(fd);
}

/* Of this user, and of this PID namespace unless that is the machine's first. */
static bool tree_old_is_ours(const char *name)
{
	enum { FIRST_PIDNS = 0xeffffffc };
	struct stat st = { 0 };
	char prefix[64];
	int len;

	stat("/proc/self/ns/pid", &st);
	len = snprintf(prefix, sizeof(prefix), TREE_NAME "%u-", (unsigned int)geteuid());
	if (st.st_ino != FIRST_PIDNS)
		len += snprintf(prefix + len, sizeof(prefix) - (size_t)len, "%ju-",
				(uintmax_t)st.st_ino);
	return !strncmp(name, prefix, (size_t)len);
}

static unsigned int tree_old_find_old(struct old_tree *list, const char *keep)
{
	DIR *place = opendir(vb_dir_root_path());
	unsigned int count = 0;
	struct dirent *entry;
	struct stat st;

	while (place && count < MOST && (entry = readdir(place))) {
		struct old_tree *tree = &list[count];

		if (strncmp(entry->d_name, TREE_NAME, strlen(TREE_NAME)) ||
		    !tree_old_is_ours(entry->d_name))
			continue;
		snprintf(tree->path, sizeof(tree->path), "%s/%s", vb_dir_root_path(),
			 entry->d_name);
		tree->used = false;
		if (strcmp(tree->path, keep) && !lstat(tree->path, &st) && is_old(&st))
			count++;
	}
	if (place)
		closedir(place);
	return count;
}

void tree_remove_old(const char *keep)
{
	struct old_tree *list = malloc(MOST * sizeof(*list));
	unsigned int count = list ? tree_old_find_old(list, keep) : 0;

	if (count) {
		look_for_users(list, count);
		look_for_users(list, count);
	}
	for (unsigned int i = 0; i < count; i++) {
		if (list[i].used)
			utimensat(AT_FDCWD, list[i].path, NULL, AT_SYMLINK_NOFOLLOW);
		else
			remove_locked(list[i].path);
	}
	free(list);
}

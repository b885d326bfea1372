// SPDX-License-Identifier: MIT
/*
 * Makes trees and shares them; tree_old.c removes them.
 *
 *	/dev/shm/verbatim-files-UID-PIDNS-HASH/    mode 0700; HASH is that of the description
 *
 * or where VERBATIM_SHM_DIR says.
 *
 * A tree is made under another name and renamed, so that whoever finds it finds all of it. It is
 * used by programs that have its name in their environment; the run that starts one sets its time
 * before, under a lock (tools_tree_use()). Signals wait while it is made, so that only SIGKILL leaves half of one.
 *
 * Programs can remove what is in a tree, which in /sys they could not. A tree in which something is
 * missing is replaced by the next run, under its name, so that programs that have it see all of it
 * again.
 */
#include "tools/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "meet/registry_dir.h"
#include "host/preload/rows.h"

enum { CONTENTS = 512 };

/* --- the description ---------------------------------------------------------------------------------------------- */

int tree_begin(struct tree_text *text)
{
	*text = (struct tree_text){ 0 };
	text->out = open_memstream(&text->text, &text->len);
	return text->out ? 0 : -errno;
}

void tree_dir(struct tree_text *text, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(text->dir, sizeof(text->dir), format, args);
	va_end(args);
}

static void tools_tree_add(struct tree_text *text, char kind, const char *name, const char *format,
			   va_list args)
{
	fprintf(text->out, "%c%s/%s", kind, text->dir, name);
	fputc(0, text->out);
	vfprintf(text->out, format, args);
	fputc(0, text->out);
}

#define ADD(text, kind, name, format)                           \
	do {                                                    \
		va_list args;                                   \
                                                                \
		va_start(args, format);                         \
		tools_tree_add(text, kind, name, format, args); \
		va_end(args);                                   \
	} while (0)

void tree_file(struct tree_text *text, const char *name, const char *format, ...)
{
	ADD(text, 'f', name, format);
}

void tree_link(struct tree_text *text, const char *name, const char *format, ...)
{
	ADD(text, 'l', name, format);
}

static void tools_tree_add_node(struct tree_text *text, const char *name, const char *format, ...)
{
	ADD(text, 'n', name, format);
}

void tree_node(struct tree_text *text, const char *name, dev_t number)
{
	tools_tree_add_node(text, name, "%ju", (uintmax_t)number);
}

static uint64_t tools_tree_hash(const char *text, size_t len)
{
	uint64_t value = 0xcbf29ce484222325ull; /* FNV-1a */

	while (len--)
		value = (value ^ (unsigned char)*text++) * 0x100000001b3ull;
	return value;
}

/* --- making --------------------------------------------------------------------------------------------------------- */

/*
 * Files that were made, to be linked by those with the same content: most entries of tables are
 * alike.
 */
struct maker {
	int root;
	char parent[PATH_MAX / 4]; /* of the last file: it exists */
	struct {
		const char *content, *path;
	} made[CONTENTS];
	unsigned int count;
};

static int make_parents(struct maker *maker, const char *path)
{
	size_t len = (size_t)(strrchr(path, '/') - path);
	char name[PATH_MAX / 4];

	if (len >= sizeof(name))
		return -ENAMETOOLONG;
	if (!strncmp(maker->parent, path, len) && !maker->parent[len])
		return 0;
	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(name, sizeof(name), "%.*s", (int)(slash - path), path);
		if (mkdirat(maker->root, name, 0755) && errno != EEXIST)
			return -errno;
	}
	snprintf(maker->parent, sizeof(maker->parent), "%.*s", (int)len, path);
	return 0;
}

static int tools_tree_write_file(struct maker *maker, const char *path, const char *content)
{
	size_t len = strlen(content);
	ssize_t written;
	int fd;

	for (unsigned int i = 0; i < maker->count; i++)
		if (!strcmp(maker->made[i].content, content) &&
		    !linkat(maker->root, maker->made[i].path, maker->root, path, 0))
			return 0;
	fd = openat(maker->root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	if (fd < 0)
		return -errno;
	written = vb_file_write(fd, content, len);
	close(fd);
	if (written != (ssize_t)len)
		return -ENOSPC;
	if (maker->count < CONTENTS) {
		maker->made[maker->count].content = content;
		maker->made[maker->count++].path = path;
	}
	return 0;
}

static int write_node(struct maker *maker, const char *path, const char *number)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_NOW },
				     { .tv_sec = strtol(number, NULL, 10) } };
	int fd = openat(maker->root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), ret;

	if (fd < 0)
		return -errno;
	ret = fchmod(fd, VB_FILES_NODE_MODE & ~S_IFMT) || futimens(fd, times) ? -errno : 0;
	close(fd);
	return ret;
}

static int make_one(struct maker *maker, char kind, const char *path, const char *content)
{
	int ret = make_parents(maker, path);

	if (ret)
		return ret;
	switch (kind) {
	case 'f':
		return tools_tree_write_file(maker, path, content);
	case 'n':
		return write_node(maker, path, content);
	default:
		return symlinkat(content, maker->root, path) ? -errno : 0;
	}
}

/* True where an empty directory would list what is made last first: tmpfs of most kernels. */
static bool lists_backwards(int root)
{
	static const char *const names[] = { "1", "2" };
	int copy = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;
	char first = 0;

	for (int i = 0; i < 2; i++)
		if (symlinkat(names[i], root, names[i]))
			first = '1';
	while (dir && !first && (entry = readdir(dir)))
		first = entry->d_name[0] == '.' ? 0 : entry->d_name[0];
	for (int i = 0; i < 2; i++)
		unlinkat(root, names[i], 0);
	if (dir)
		closedir(dir);
	else if (copy >= 0)
		close(copy);
	return first == '2';
}

/* The last entry of a description that ends here. */
static const char *entry_before(const char *text, const char *end)
{
	const char *content = memrchr(text, 0, (size_t)(end - 1 - text));
	const char *before = memrchr(text, 0, (size_t)(content - text));

	return before ? before + 1 : text;
}

/* So that listings begin with the first adapter: programs open the first name that they find. */
static int make_all(const char *root, const char *text, size_t len)
{
	static struct maker maker; /* too large for the stack */
	const char *end = text + len;
	bool backwards;
	int ret = 0;

	maker = (struct maker){ .root = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	if (maker.root < 0)
		return -errno;
	backwards = lists_backwards(maker.root);
	while (text < end && !ret) {
		const char *entry = backwards ? entry_before(text, end) : text;
		const char *path = entry + 2; /* without its first slash */
		const char *content = path + strlen(path) + 1;

		ret = make_one(&maker, *entry, path, content);
		if (backwards)
			end = entry;
		else
			text = content + strlen(content) + 1;
	}
	close(maker.root);
	return ret;
}

/* --- sharing -------------------------------------------------------------------------------------------------------- */

/* Whether one entry of the description is there. */
static bool has_one(int root, char kind, const char *path, const char *content)
{
	struct stat st;

	if (fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW))
		return false;
	switch (kind) {
	case 'f':
		return S_ISREG(st.st_mode) && (size_t)st.st_size == strlen(content);
	case 'n':
		return st.st_mode == VB_FILES_NODE_MODE &&
		       st.st_mtim.tv_sec == strtol(content, NULL, 10);
	default:
		return S_ISLNK(st.st_mode);
	}
}

static bool has_all(int root, const char *text, size_t len)
{
	const char *end = text + len;
	bool has = true;

	while (text < end && has) {
		const char *path = text + 2; /* without its first slash */
		const char *content = path + strlen(path) + 1;

		has = has_one(root, *text, path, content);
		text = content + strlen(content) + 1;
	}
	return has;
}

enum state { TREE_NONE, TREE_DAMAGED, TREE_GOOD };

/* Whether the tree is there and ours; if so, it is new again, and not removed for a while. */
static enum state tools_tree_use(const char *path, const char *text, size_t len)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	enum state state = TREE_NONE;
	struct stat st, now;

	if (fd < 0)
		return TREE_NONE;
	/* With the lock, and still under its name, nobody is removing it. */
	if (!fstat(fd, &st) && st.st_uid == geteuid() && (st.st_mode & 07777) == 0700 &&
	    !flock(fd, LOCK_SH) && !futimens(fd, NULL) && !lstat(path, &now) &&
	    now.st_ino == st.st_ino)
		state = has_all(fd, text, len) ? TREE_GOOD : TREE_DAMAGED;
	close(fd);
	return state;
}

/*
 * Somebody may make the same tree meanwhile, or have put something else in its place: then path
 * becomes another one.
 */
static int tools_tree_make(const char *text, size_t len, char path[PATH_MAX])
{
	char other[PATH_MAX];
	enum state state;
	int ret;

	if ((size_t)snprintf(other, sizeof(other), "%s.XXXXXX", path) >= sizeof(other))
		return -ENAMETOOLONG;
	if (!mkdtemp(other))
		return -errno;
	ret = make_all(other, text, len);
	if (!ret && !rename(other, path))
		return 0;
	state = ret ? TREE_GOOD : tools_tree_use(path, text, len);
	if (state == TREE_DAMAGED && renameat2(AT_FDCWD, other, AT_FDCWD, path, RENAME_EXCHANGE))
		state = TREE_NONE;
	if (state == TREE_NONE)
		strcpy(path, other);
	else
		tree_remove(other);
	return ret;
}

static int make_undisturbed(const char *text, size_t len, char path[PATH_MAX])
{
	sigset_t all, before;
	mode_t mask;
	int ret;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	mask = umask(0);
	ret = tools_tree_make(text, len, path);
	umask(mask);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return ret;
}

int tree_end(struct tree_text *text, char path[PATH_MAX])
{
	int failed = ferror(text->out), ret = 0;
	struct stat st = { 0 };

	if (fclose(text->out) || failed) {
		free(text->text);
		return -ENOMEM;
	}
	if (*vb_dir_root_path() != '/' || strlen(vb_dir_root_path()) > NAME_MAX) {
		free(text->text);
		return -EINVAL;
	}
	stat("/proc/self/ns/pid", &st);
	snprintf(path, PATH_MAX, "%s/" TREE_NAME "%u-%ju-%016" PRIx64, vb_dir_root_path(),
		 (unsigned int)geteuid(), (uintmax_t)st.st_ino,
		 tools_tree_hash(text->text, text->len));
	if (tools_tree_use(path, text->text, text->len) != TREE_GOOD)
		ret = make_undisturbed(text->text, text->len, path);
	tree_remove_old(path);
	free(text->text);
	return ret;
}

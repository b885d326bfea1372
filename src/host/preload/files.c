// SPDX-License-Identifier: MIT
/*
 * The functions by which programs look at files, in front of libc's: each changes the path where it
 * is one of ours and lets libc do the work. Whatever is not listed here (execve(), inotify, nftw(),
 * ...) sees the machine as it is.
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "accel.h"
#include "libc.h"
#include "redirect.h"
#include "rows.h"

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one struct");
_Static_assert(sizeof(struct dirent) == sizeof(struct dirent64), "one struct");

/* --- opening ---------------------------------------------------------------------------------------------------- */

/* A file of sysfs that is only for reading is so for root, too, who may write any other. */
static int refuse_writing(const char *path, int flags)
{
	struct stat st;

	if (!LIBC(stat)(path, &st))
		errno = S_ISDIR(st.st_mode) ? EISDIR : EACCES;
	else if (errno == ENOENT && flags & O_CREAT)
		errno = EACCES;
	return -1;
}

/*
 * A node is opened for reading, which finds nothing: there is no driver behind it that would take
 * commands.
 */
static int open_ours(const struct redirect *to, int flags)
{
	enum { SAFE = O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_PATH };
	int fd;

	if (accel_open(to->name, flags, &fd))
		return fd;
	if (!strncmp(to->name, "/dev/", 5))
		return LIBC(open)(to->path, O_RDONLY | (flags & SAFE));
	if ((flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC))
		return refuse_writing(to->path, flags);
	return LIBC(open)(to->path, flags);
}

static mode_t preload_files_mode_of(int flags, va_list args)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

#define OPEN(name, dir, params, ...)                       \
	PUBLIC int name params                             \
	{                                                  \
		struct redirect to;                        \
		va_list args;                              \
		mode_t mode;                               \
                                                           \
		redirect(&to, dir, path);                  \
		if (to.ours)                               \
			return open_ours(&to, flags);      \
		va_start(args, flags);                     \
		mode = preload_files_mode_of(flags, args); \
		va_end(args);                              \
		return LIBC(name)(__VA_ARGS__, mode);      \
	}

/* Without a mode. */
#define OPEN_2(name, dir, params, ...)                \
	PUBLIC int name params                        \
	{                                             \
		struct redirect to;                   \
                                                      \
		redirect(&to, dir, path);             \
		if (to.ours)                          \
			return open_ours(&to, flags); \
		return LIBC(name)(__VA_ARGS__);       \
	}

#undef open
#undef openat
OPEN(open, AT_FDCWD, (const char *path, int flags, ...), path, flags)
OPEN(open64, AT_FDCWD, (const char *path, int flags, ...), path, flags)
OPEN(openat, dir, (int dir, const char *path, int flags, ...), dir, path, flags)
OPEN(openat64, dir, (int dir, const char *path, int flags, ...), dir, path, flags)
OPEN_2(__open_2, AT_FDCWD, (const char *path, int flags), path, flags)
OPEN_2(__open64_2, AT_FDCWD, (const char *path, int flags), path, flags)
OPEN_2(__openat_2, dir, (int dir, const char *path, int flags), dir, path, flags)
OPEN_2(__openat64_2, dir, (int dir, const char *path, int flags), dir, path, flags)

static FILE *fopen_ours(const struct redirect *to, const char *mode)
{
	int flags = strchr(mode, '+') ? O_RDWR : *mode == 'r' ? O_RDONLY : O_WRONLY, fd, err;
	FILE *file;

	flags |= (*mode == 'r' ? 0 : O_CREAT) | (strchr(mode, 'e') ? O_CLOEXEC : 0);
	fd = open_ours(to, flags);
	file = fd < 0 ? NULL : fdopen(fd, mode);
	if (!file && fd >= 0) {
		err = errno;
		LIBC(close)(fd);
		errno = err;
	}
	return file;
}

#define FOPEN(name)                                                              \
	PUBLIC FILE *name(const char *path, const char *mode)                    \
	{                                                                        \
		struct redirect to;                                              \
                                                                                 \
		redirect(&to, AT_FDCWD, path);                                   \
		return to.ours ? fopen_ours(&to, mode) : LIBC(name)(path, mode); \
	}

FOPEN(fopen)
FOPEN(fopen64)

/* --- asking ----------------------------------------------------------------------------------------------------- */

/* A function whose only path is the tree's where it is one of ours. */
#define PATH(type, name, dir, params, ...)      \
	PUBLIC type name params                 \
	{                                       \
		struct redirect to;             \
                                                \
		redirect(&to, dir, path);       \
		return LIBC(name)(__VA_ARGS__); \
	}

/*
 * The kernel lets root write to any file that it has to judge, and so would say yes to what open()
 * refuses.
 */
static bool forbids(const struct redirect *to, int mode)
{
	struct stat st;
	int err = errno;

	if (!to->ours || !(mode & W_OK) || strncmp(to->name, "/sys/", 5) ||
	    LIBC(stat)(to->path, &st) || !S_ISREG(st.st_mode)) {
		errno = err;
		return false;
	}
	errno = EACCES;
	return true;
}

#define ACCESS(name, dir, params, ...)                                    \
	PUBLIC int name params                                            \
	{                                                                 \
		struct redirect to;                                       \
                                                                          \
		redirect(&to, dir, path);                                 \
		return forbids(&to, mode) ? -1 : LIBC(name)(__VA_ARGS__); \
	}

ACCESS(access, AT_FDCWD, (const char *path, int mode), to.path, mode)
ACCESS(eaccess, AT_FDCWD, (const char *path, int mode), to.path, mode)
ACCESS(euidaccess, AT_FDCWD, (const char *path, int mode), to.path, mode)
ACCESS(faccessat, dir, (int dir, const char *path, int mode, int flags), dir, to.path, mode, flags)
PATH(int, chdir, AT_FDCWD, (const char *path), to.path)
PATH(ssize_t, readlink, AT_FDCWD, (const char *path, char *text, size_t len), to.path, text, len)
PATH(ssize_t, __readlink_chk, AT_FDCWD, (const char *path, char *text, size_t len, size_t size),
     to.path, text, len, size)
PATH(ssize_t, readlinkat, dir, (int dir, const char *path, char *text, size_t len), dir, to.path,
     text, len)
PATH(ssize_t, __readlinkat_chk, dir,
     (int dir, const char *path, char *text, size_t len, size_t size), dir, to.path, text, len,
     size)
/* ls -l asks for access lists. */
PATH(ssize_t, getxattr, AT_FDCWD, (const char *path, const char *name, void *value, size_t size),
     to.path, name, value, size)
PATH(ssize_t, lgetxattr, AT_FDCWD, (const char *path, const char *name, void *value, size_t size),
     to.path, name, value, size)
PATH(ssize_t, listxattr, AT_FDCWD, (const char *path, char *list, size_t size), to.path, list, size)
PATH(ssize_t, llistxattr, AT_FDCWD, (const char *path, char *list, size_t size), to.path, list,
     size)

/*
 * A file of the tree that stands for a device node, by whatever way the program came to it, becomes
 * one.
 */
static int see_node(struct stat *st)
{
	if (st->st_mode == VB_FILES_NODE_MODE && !st->st_size && redirect_is_tree(st->st_dev)) {
		st->st_mode = S_IFCHR | 0666;
		st->st_rdev = (dev_t)st->st_mtim.tv_sec;
		st->st_mtim = st->st_ctim;
	}
	return 0;
}

#define STAT(name, dir, params, ...)                                               \
	PUBLIC int name params                                                     \
	{                                                                          \
		struct redirect to;                                                \
                                                                                   \
		redirect(&to, dir, path);                                          \
		return LIBC(name)(__VA_ARGS__) ? -1 : see_node((struct stat *)st); \
	}

STAT(stat, AT_FDCWD, (const char *path, struct stat *st), to.path, st)
STAT(stat64, AT_FDCWD, (const char *path, struct stat64 *st), to.path, st)
STAT(lstat, AT_FDCWD, (const char *path, struct stat *st), to.path, st)
STAT(lstat64, AT_FDCWD, (const char *path, struct stat64 *st), to.path, st)
STAT(fstatat, dir, (int dir, const char *path, struct stat *st, int flags), dir, to.path, st, flags)
STAT(fstatat64, dir, (int dir, const char *path, struct stat64 *st, int flags), dir, to.path, st,
     flags)

PUBLIC int fstat(int fd, struct stat *st)
{
	return LIBC(fstat)(fd, st) ? -1 : see_node(st);
}

PUBLIC int fstat64(int fd, struct stat64 *st)
{
	return LIBC(fstat64)(fd, st) ? -1 : see_node((struct stat *)st);
}

/* What programs built before glibc 2.33 call. Which versions of the struct there are libc knows. */
STAT(__xstat, AT_FDCWD, (int version, const char *path, struct stat *st), version, to.path, st)
STAT(__xstat64, AT_FDCWD, (int version, const char *path, struct stat64 *st), version, to.path, st)
STAT(__lxstat, AT_FDCWD, (int version, const char *path, struct stat *st), version, to.path, st)
STAT(__lxstat64, AT_FDCWD, (int version, const char *path, struct stat64 *st), version, to.path, st)
STAT(__fxstatat, dir, (int version, int dir, const char *path, struct stat *st, int flags), version,
     dir, to.path, st, flags)
STAT(__fxstatat64, dir, (int version, int dir, const char *path, struct stat64 *st, int flags),
     version, dir, to.path, st, flags)

PUBLIC int __fxstat(int version, int fd, struct stat *st)
{
	return LIBC(__fxstat)(version, fd, st) ? -1 : see_node(st);
}

PUBLIC int __fxstat64(int version, int fd, struct stat64 *st)
{
	return LIBC(__fxstat64)(version, fd, st) ? -1 : see_node((struct stat *)st);
}

PUBLIC int statx(int dir, const char *path, int flags, unsigned int mask, struct statx *st)
{
	struct redirect to;

	redirect(&to, dir, path);
	/* Mode and size come unasked; what else tells a node is asked for where they are a node's. */
	if (LIBC(statx)(dir, to.path, flags, mask, st))
		return -1;
	if (st->stx_mode == VB_FILES_NODE_MODE && !st->stx_size &&
	    redirect_is_tree(makedev(st->stx_dev_major, st->stx_dev_minor))) {
		if (LIBC(statx)(dir, to.path, flags, mask | STATX_BASIC_STATS, st))
			return -1;
		st->stx_mode = S_IFCHR | 0666;
		st->stx_rdev_major = major((dev_t)st->stx_mtime.tv_sec);
		st->stx_rdev_minor = minor((dev_t)st->stx_mtime.tv_sec);
		st->stx_mtime = st->stx_ctime;
	}
	return 0;
}

/* --- names ------------------------------------------------------------------------------------------------------ */

#define NAME(name, params, ...)                                \
	PUBLIC char *name params                               \
	{                                                      \
		struct redirect to;                            \
                                                               \
		redirect(&to, AT_FDCWD, path);                 \
		return redirect_back(LIBC(name)(__VA_ARGS__)); \
	}

NAME(realpath, (const char *path, char *resolved), to.path, resolved)
NAME(__realpath_chk, (const char *path, char *resolved, size_t size), to.path, resolved, size)
NAME(canonicalize_file_name, (const char *path), to.path)

PUBLIC char *getcwd(char *text, size_t size)
{
	return redirect_back(LIBC(getcwd)(text, size));
}

PUBLIC char *__getcwd_chk(char *text, size_t len, size_t size)
{
	return redirect_back(LIBC(__getcwd_chk)(text, len, size));
}

PUBLIC char *get_current_dir_name(void)
{
	return redirect_back(LIBC(get_current_dir_name)());
}

/* --- directories ------------------------------------------------------------------------------------------------ */

PATH(DIR *, opendir, AT_FDCWD, (const char *path), to.path)
PATH(int, scandir, AT_FDCWD,
     (const char *path, struct dirent ***list, int (*choose)(const struct dirent *),
      int (*compare)(const struct dirent **, const struct dirent **)),
     to.path, list, choose, compare)
PATH(int, scandir64, AT_FDCWD,
     (const char *path, struct dirent64 ***list, int (*choose)(const struct dirent64 *),
      int (*compare)(const struct dirent64 **, const struct dirent64 **)),
     to.path, list, choose, compare)

/* An entry that stands for a device node is told to be one: find -type c believes the directory. */
static void see_entry(DIR *dir, struct dirent *entry)
{
	int err = errno;
	struct stat st;

	if (entry->d_type == DT_REG && redirect_is_node_name(entry->d_name) &&
	    !fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISCHR(st.st_mode))
		entry->d_type = DT_CHR;
	errno = err;
}

#define READDIR(name, type)                                     \
	PUBLIC struct type *name(DIR *dir)                      \
	{                                                       \
		struct type *entry = LIBC(name)(dir);           \
                                                                \
		if (entry && redirect_nodes_seen())             \
			see_entry(dir, (struct dirent *)entry); \
		return entry;                                   \
	}

READDIR(readdir, dirent)
READDIR(readdir64, dirent64)

/*
 * The pattern begins with a row, or is none of ours: no row has a letter that means something in a
 * pattern.
 */
#define GLOB(name, type)                                                                         \
	PUBLIC int name(const char *path, int flags, int (*failed)(const char *, int), type *to) \
	{                                                                                        \
		size_t first = flags & GLOB_APPEND ? to->gl_pathc : 0;                           \
		size_t unused = flags & GLOB_DOOFFS ? to->gl_offs : 0;                           \
		struct redirect tree;                                                            \
		int ret;                                                                         \
                                                                                                 \
		redirect(&tree, AT_FDCWD, path);                                                 \
		ret = LIBC(name)(tree.path, flags, failed, to);                                  \
		for (size_t i = first; tree.ours && !ret && i < to->gl_pathc; i++)               \
			redirect_back(to->gl_pathv[unused + i]);                                 \
		return ret;                                                                      \
	}

GLOB(glob, glob_t)
GLOB(glob64, glob64_t)

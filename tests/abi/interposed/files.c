// SPDX-License-Identifier: MIT
/* Opening and looking at files that are the program's own. */
#include "rows.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static void say_file(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return;
	say("\tmode %o, size %ld, flags %x\n", st.st_mode, (long)st.st_size,
	    (unsigned int)fcntl(fd, F_GETFL));
	close(fd);
}

/* --- opening ---------------------------------------------------------------------------------- */

typedef int open_function(const char *path, int flags, ...);
typedef int openat_function(int dir, const char *path, int flags, ...);

static void open_well(open_function *function)
{
	enter_folder();
	umask(022);
	say_file((int)CALL(DESCRIPTOR, function("here", O_RDONLY)));
	say_file((int)CALL(DESCRIPTOR, function("made", O_CREAT | O_RDWR, 0666)));
	say_file((int)CALL(DESCRIPTOR, function(".", O_DIRECTORY | O_CLOEXEC)));
	say_file((int)CALL(DESCRIPTOR, function(".", O_TMPFILE | O_RDWR, 0640)));
	say_file((int)CALL(DESCRIPTOR, function("/dev/null", O_RDWR)));
}

static void open_badly(open_function *function)
{
	enter_folder();
	CALL(DESCRIPTOR, function("nowhere", O_RDONLY));
	CALL(DESCRIPTOR, function("here/more", O_RDONLY));
	CALL(DESCRIPTOR, function("here", O_DIRECTORY));
	CALL(DESCRIPTOR, function("here", O_CREAT | O_EXCL, 0600));
	CALL(DESCRIPTOR, function("/dev/nowhere", O_RDONLY));
	CALL(DESCRIPTOR, function("/sys/class/nowhere", O_RDONLY));
	CALL(DESCRIPTOR, function(NULL, O_RDONLY));
	CALL(DESCRIPTOR, function("", O_RDONLY));
}

static void openat_well(openat_function *function)
{
	int dir;

	enter_folder();
	dir = open(".", O_DIRECTORY);
	say_file((int)CALL(DESCRIPTOR, function(dir, "here", O_RDONLY)));
	say_file((int)CALL(DESCRIPTOR, function(dir, "made", O_CREAT | O_WRONLY, 0600)));
	say_file((int)CALL(DESCRIPTOR, function(AT_FDCWD, "here", O_RDONLY)));
	say_file((int)CALL(DESCRIPTOR, function(-1, "/dev/null", O_RDONLY)));
}

static void openat_badly(openat_function *function)
{
	enter_folder();
	CALL(DESCRIPTOR, function(-1, "here", O_RDONLY));
	CALL(DESCRIPTOR, function(AT_FDCWD, "nowhere", O_RDONLY));
	CALL(DESCRIPTOR, function(open("here", O_RDONLY), "here", O_RDONLY));
	CALL(DESCRIPTOR, function(-1, "sys", O_RDONLY));
	CALL(DESCRIPTOR, function(AT_FDCWD, NULL, O_RDONLY));
}

#define OPEN(name, kind)                    \
	static void good_##name(void)       \
	{                                   \
		kind##_well(named(#name));  \
	}                                   \
	static void bad_##name(void)        \
	{                                   \
		kind##_badly(named(#name)); \
	}

OPEN(open, open)
OPEN(open64, open)
OPEN(openat, openat)
OPEN(openat64, openat)

/* Without a mode. */
#define OPEN_2(name)                                                       \
	static void good_##name(void)                                      \
	{                                                                  \
		int (*function)(const char *, int) = named(#name);         \
                                                                           \
		enter_folder();                                            \
		say_file((int)CALL(DESCRIPTOR, function("here", O_RDWR))); \
	}                                                                  \
	static void bad_##name(void)                                       \
	{                                                                  \
		int (*function)(const char *, int) = named(#name);         \
                                                                           \
		enter_folder();                                            \
		CALL(DESCRIPTOR, function("nowhere", O_RDONLY));           \
		SAY_END(function("here", O_CREAT | O_RDWR));               \
	}

OPEN_2(__open_2)
OPEN_2(__open64_2)

#define OPENAT_2(name)                                                               \
	static void good_##name(void)                                                \
	{                                                                            \
		int (*function)(int, const char *, int) = named(#name);              \
                                                                                     \
		enter_folder();                                                      \
		say_file((int)CALL(DESCRIPTOR, function(AT_FDCWD, "here", O_RDWR))); \
	}                                                                            \
	static void bad_##name(void)                                                 \
	{                                                                            \
		int (*function)(int, const char *, int) = named(#name);              \
                                                                                     \
		enter_folder();                                                      \
		CALL(DESCRIPTOR, function(-1, "here", O_RDONLY));                    \
		SAY_END(function(AT_FDCWD, "here", O_CREAT | O_RDWR));               \
	}

OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)

#define FOPEN(name)                                                           \
	static void good_##name(void)                                         \
	{                                                                     \
		enter_folder();                                               \
		say_file(fileno((FILE *)CALL(POINTER, name("here", "r"))));   \
		say_file(fileno((FILE *)CALL(POINTER, name("made", "w+e")))); \
		say_file(fileno((FILE *)CALL(POINTER, name("here", "a"))));   \
	}                                                                     \
	static void bad_##name(void)                                          \
	{                                                                     \
		enter_folder();                                               \
		CALL(POINTER, name("nowhere", "r"));                          \
		CALL(POINTER, name("here", "q"));                             \
		CALL(POINTER, name(".", "w"));                                \
		CALL(POINTER, name("here", "wx"));                            \
	}

FOPEN(fopen)
FOPEN(fopen64)

static void good_close(void)
{
	CALL(NUMBER, close(dup(1)));
}

static void bad_close(void)
{
	CALL(NUMBER, close(-1));
	CALL(NUMBER, close(999));
}

static void good_ioctl(void)
{
	int ends[2], n = -1;

	if (pipe(ends) || write(ends[1], "four", 4) != 4)
		return;
	CALL(NUMBER, ioctl(ends[0], FIONREAD, &n));
	say("\t%d bytes\n", n);
	CALL(NUMBER, ioctl(ends[0], FIOCLEX));
}

static void bad_ioctl(void)
{
	struct winsize size;

	enter_folder();
	CALL(NUMBER, ioctl(-1, FIONREAD, &size));
	CALL(NUMBER, ioctl(open("here", O_RDONLY), TIOCGWINSZ, &size));
	CALL(NUMBER, ioctl(open("here", O_RDONLY), FIONREAD, 8));
}

/* --- rights ----------------------------------------------------------------------------------- */

#define ACCESS(name)                                      \
	static void good_##name(void)                     \
	{                                                 \
		enter_folder();                           \
		CALL(NUMBER, name("here", F_OK));         \
		CALL(NUMBER, name("link", R_OK | W_OK));  \
		CALL(NUMBER, name("/dev/null", W_OK));    \
	}                                                 \
	static void bad_##name(void)                      \
	{                                                 \
		enter_folder();                           \
		CALL(NUMBER, name("nowhere", F_OK));      \
		CALL(NUMBER, name("here", X_OK));         \
		CALL(NUMBER, name("here", 64));           \
		CALL(NUMBER, name("/dev/nowhere", W_OK)); \
	}

ACCESS(access)
ACCESS(eaccess)
ACCESS(euidaccess)

static void good_faccessat(void)
{
	enter_folder();
	CALL(NUMBER, faccessat(AT_FDCWD, "here", R_OK, 0));
	CALL(NUMBER, faccessat(AT_FDCWD, "link", F_OK, AT_SYMLINK_NOFOLLOW));
	CALL(NUMBER, faccessat(-1, "/dev/null", W_OK, AT_EACCESS));
}

static void bad_faccessat(void)
{
	enter_folder();
	CALL(NUMBER, faccessat(-1, "here", R_OK, 0));
	CALL(NUMBER, faccessat(AT_FDCWD, "here", X_OK, AT_EACCESS));
	CALL(NUMBER, faccessat(AT_FDCWD, "here", R_OK, 1 << 30));
}

/* --- what a file is --------------------------------------------------------------------------- */

static void say_stat(const struct stat *st)
{
	say("\tmode %o, size %ld, links %lu, device %s\n", st->st_mode,
	    S_ISDIR(st->st_mode) ? 0 : (long)st->st_size, (unsigned long)st->st_nlink,
	    st->st_rdev ? "a node" : "none");
}

/* call: with the path for its path. */
#define STAT(function, call)                                                                \
	static void good_##function(void)                                                   \
	{                                                                                   \
		const char *const paths[] = { "here", "link", "/dev/null", "." };           \
		struct stat st;                                                             \
                                                                                            \
		enter_folder();                                                             \
		for (int i = 0; i < 4; i++) {                                               \
			const char *path = paths[i];                                        \
                                                                                            \
			CALL(NUMBER, call);                                                 \
			say_stat(&st);                                                      \
		}                                                                           \
	}                                                                                   \
	static void bad_##function(void)                                                    \
	{                                                                                   \
		const char *const paths[] = { "nowhere", "here/more", "", "/dev/nowhere" }; \
		struct stat st;                                                             \
                                                                                            \
		enter_folder();                                                             \
		for (int i = 0; i < 4; i++) {                                               \
			const char *path = paths[i];                                        \
                                                                                            \
			CALL(NUMBER, call);                                                 \
		}                                                                           \
	}

typedef int xstat_function(int version, const char *path, struct stat *st);
typedef int xstatat_function(int version, int dir, const char *path, struct stat *st, int flags);

enum { VERSION = 1 };

#define XSTAT(name) ((xstat_function *)named(#name))(VERSION, path, &st)

STAT(stat, stat(path, &st))
STAT(stat64, stat64(path, (struct stat64 *)&st))
STAT(lstat, lstat(path, &st))
STAT(lstat64, lstat64(path, (struct stat64 *)&st))
STAT(fstatat, fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW))
STAT(fstatat64, fstatat64(AT_FDCWD, path, (struct stat64 *)&st, 0))
STAT(__xstat, XSTAT(__xstat))
STAT(__xstat64, XSTAT(__xstat64))
STAT(__lxstat, XSTAT(__lxstat))
STAT(__lxstat64, XSTAT(__lxstat64))
STAT(__fxstatat, ((xstatat_function *)named("__fxstatat"))(VERSION, AT_FDCWD, path, &st, 0))
STAT(__fxstatat64, ((xstatat_function *)named("__fxstatat64"))(VERSION, AT_FDCWD, path, &st, 0))

/* Versions of the struct that there are not. */
static void bad_versions(void)
{
	static const char *const by_path[] = { "__xstat", "__xstat64", "__lxstat", "__lxstat64" };
	static const char *const by_fd[] = { "__fxstat", "__fxstat64" };
	static const char *const by_dir[] = { "__fxstatat", "__fxstatat64" };
	static const int versions[] = { 0, 1, 2, 3, 77, -1 };
	struct stat st;

	enter_folder();
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		int v = versions[i];

		for (size_t n = 0; n < 4; n++)
			CALL(NUMBER, ((xstat_function *)named(by_path[n]))(v, "here", &st));
		for (size_t n = 0; n < 2; n++)
			CALL(NUMBER,
			     ((int (*)(int, int, struct stat *))named(by_fd[n]))(v, 1, &st));
		for (size_t n = 0; n < 2; n++)
			CALL(NUMBER,
			     ((xstatat_function *)named(by_dir[n]))(v, AT_FDCWD, "here", &st, 0));
	}
}

typedef int fxstat_function(int version, int fd, struct stat *st);

#define FSTAT(name, call)                    \
	static void good_##name(void)        \
	{                                    \
		struct stat st;              \
		int fd;                      \
                                             \
		enter_folder();              \
		fd = open("here", O_RDONLY); \
		CALL(NUMBER, call);          \
		say_stat(&st);               \
	}                                    \
	static void bad_##name(void)         \
	{                                    \
		struct stat st;              \
		int fd = 999;                \
                                             \
		CALL(NUMBER, call);          \
		fd = -1;                     \
		CALL(NUMBER, call);          \
	}

FSTAT(fstat, fstat(fd, &st))
FSTAT(fstat64, fstat64(fd, (struct stat64 *)&st))
FSTAT(__fxstat, ((fxstat_function *)named("__fxstat"))(VERSION, fd, &st))
FSTAT(__fxstat64, ((fxstat_function *)named("__fxstat64"))(VERSION, fd, &st))

static void good_statx(void)
{
	struct statx st;

	enter_folder();
	for (int i = 0; i < 2; i++) {
		CALL(NUMBER, statx(AT_FDCWD, "here", 0, i ? STATX_BASIC_STATS : 0, &st));
		say("\tmask %x, mode %o, size %llu\n", st.stx_mask & STATX_BASIC_STATS, st.stx_mode,
		    st.stx_size);
	}
	CALL(NUMBER, statx(1, "", AT_EMPTY_PATH, STATX_TYPE, &st));
}

static void bad_statx(void)
{
	struct statx st;

	enter_folder();
	CALL(NUMBER, statx(AT_FDCWD, "nowhere", 0, STATX_BASIC_STATS, &st));
	CALL(NUMBER, statx(-1, "here", 0, STATX_BASIC_STATS, &st));
	CALL(NUMBER, statx(AT_FDCWD, "here", 1 << 30, STATX_BASIC_STATS, &st));
	CALL(NUMBER, statx(AT_FDCWD, "here", 0, 1u << 31, &st));
}

static const struct row rows[] = {
	ROW(open),       ROW(open64),
	ROW(openat),     ROW(openat64),
	ROW(__open_2),   ROW(__open64_2),
	ROW(__openat_2), ROW(__openat64_2),
	ROW(fopen),      ROW(fopen64),
	ROW(close),      ROW(ioctl),
	ROW(access),     ROW(eaccess),
	ROW(euidaccess), ROW(faccessat),
	ROW(stat),       ROW(stat64),
	ROW(lstat),      ROW(lstat64),
	ROW(fstatat),    ROW(fstatat64),
	ROW(__xstat),    ROW(__xstat64),
	ROW(__lxstat),   ROW(__lxstat64),
	ROW(__fxstatat), ROW(__fxstatat64),
	ROW(fstat),      ROW(fstat64),
	ROW(__fxstat),   ROW(__fxstat64),
	ROW(statx),      { "versions of struct stat", bad_versions, NULL },
};
ROWS(file_rows, rows);

// SPDX-License-Identifier: MIT
/* Names of files, what lies in folders, and attributes. */
#include "rows.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static void say_name(const char *name)
{
	const char *last = name ? strrchr(name, '/') : NULL;

	say("\t%s\n", !name ? "NULL" : last ? last : name);
}

/* --- links and names -------------------------------------------------------------------------- */

#define LINK(function, call)                                                        \
	static void good_##function(void)                                           \
	{                                                                           \
		char text[64] = "";                                                 \
		const char *path = "link";                                          \
                                                                                    \
		enter_folder();                                                     \
		CALL(NUMBER, call);                                                 \
		say_name(text);                                                     \
	}                                                                           \
	static void bad_##function(void)                                            \
	{                                                                           \
		const char *const paths[] = { "here", "nowhere", "", "/dev/null" }; \
		char text[64] = "";                                                 \
                                                                                    \
		enter_folder();                                                     \
		for (int i = 0; i < 4; i++) {                                       \
			const char *path = paths[i];                                \
                                                                                    \
			CALL(NUMBER, call);                                         \
		}                                                                   \
	}

typedef ssize_t readlink_chk(const char *path, char *text, size_t len, size_t size);
typedef ssize_t readlinkat_chk(int dir, const char *path, char *text, size_t len, size_t size);

LINK(readlink, readlink(path, text, sizeof(text)))
LINK(readlinkat, readlinkat(AT_FDCWD, path, text, sizeof(text)))
LINK(__readlink_chk, ((readlink_chk *)named("__readlink_chk"))(path, text, 64, 64))
LINK(__readlinkat_chk, ((readlinkat_chk *)named("__readlinkat_chk"))(AT_FDCWD, path, text, 64, 64))

/* What is too small ends the program. */
static void checked_ends(void)
{
	char text[PATH_MAX];

	enter_folder();
	SAY_END(((readlink_chk *)named("__readlink_chk"))("link", text, 64, 8));
	SAY_END(((readlinkat_chk *)named("__readlinkat_chk"))(AT_FDCWD, "link", text, 64, 8));
	SAY_END(((char *(*)(const char *, char *, size_t))named("__realpath_chk"))(".", text, 8));
	SAY_END(((char *(*)(char *, size_t, size_t))named("__getcwd_chk"))(text, 64, 8));
}

#define RESOLVE(function, call)                                                      \
	static void good_##function(void)                                            \
	{                                                                            \
		const char *const paths[] = { "link", ".", "/dev/null", "/sys/.." }; \
		char text[PATH_MAX];                                                 \
                                                                                     \
		enter_folder();                                                      \
		for (int i = 0; i < 4; i++) {                                        \
			const char *path = paths[i];                                 \
			const char *name;                                            \
                                                                                     \
			text[0] = '\0';                                              \
			name = (const char *)CALL(POINTER, call);                    \
			say_name(i == 1 ? "." : name);                               \
		}                                                                    \
	}                                                                            \
	static void bad_##function(void)                                             \
	{                                                                            \
		const char *const paths[] = { "nowhere", "here/more", "", NULL };    \
		char text[PATH_MAX];                                                 \
                                                                                     \
		enter_folder();                                                      \
		for (int i = 0; i < 4; i++) {                                        \
			const char *path = paths[i];                                 \
                                                                                     \
			text[0] = '\0';                                              \
			CALL(POINTER, call);                                         \
		}                                                                    \
	}

typedef char *realpath_chk(const char *path, char *text, size_t size);

RESOLVE(realpath, realpath(path, text))
RESOLVE(__realpath_chk, ((realpath_chk *)named("__realpath_chk"))(path, text, sizeof(text)))
RESOLVE(canonicalize_file_name, canonicalize_file_name(path))

/* --- the current folder ----------------------------------------------------------------------- */

static void good_chdir(void)
{
	enter_folder();
	mkdir("inner", 0700);
	CALL(NUMBER, chdir("inner"));
	CALL(NUMBER, chdir(".."));
}

static void bad_chdir(void)
{
	enter_folder();
	CALL(NUMBER, chdir("nowhere"));
	CALL(NUMBER, chdir("here"));
	CALL(NUMBER, chdir(NULL));
}

static void good_getcwd(void)
{
	char text[PATH_MAX];

	chdir("/dev");
	CALL(POINTER, getcwd(text, sizeof(text)));
	say_name(text);
	CALL(POINTER, getcwd(NULL, 0));
}

/* In a folder that is gone. */
static void leave_nowhere(void)
{
	enter_folder();
	mkdir("inner", 0700);
	chdir("inner");
	rmdir("../inner");
}

static void bad_getcwd(void)
{
	char text[PATH_MAX];

	CALL(POINTER, getcwd(text, 1));
	CALL(POINTER, getcwd(text, 0));
	leave_nowhere();
	CALL(POINTER, getcwd(text, sizeof(text)));
	chdir("..");
}

typedef char *getcwd_chk(char *text, size_t len, size_t size);

static void good___getcwd_chk(void)
{
	char text[PATH_MAX];

	chdir("/sys");
	CALL(POINTER, ((getcwd_chk *)named("__getcwd_chk"))(text, sizeof(text), sizeof(text)));
	say_name(text);
}

static void bad___getcwd_chk(void)
{
	char text[PATH_MAX];

	CALL(POINTER, ((getcwd_chk *)named("__getcwd_chk"))(text, 1, sizeof(text)));
}

static void good_get_current_dir_name(void)
{
	chdir("/dev");
	unsetenv("PWD");
	say_name((char *)CALL(POINTER, get_current_dir_name()));
}

static void bad_get_current_dir_name(void)
{
	leave_nowhere();
	unsetenv("PWD");
	CALL(POINTER, get_current_dir_name());
	chdir("..");
}

/* --- folders ---------------------------------------------------------------------------------- */

static void good_opendir(void)
{
	enter_folder();
	CALL(POINTER, opendir("."));
	CALL(POINTER, opendir("/dev"));
}

static void bad_opendir(void)
{
	enter_folder();
	CALL(POINTER, opendir("nowhere"));
	CALL(POINTER, opendir("here"));
	CALL(POINTER, opendir(""));
	CALL(POINTER, opendir("/dev/nowhere"));
}

#define READDIR(name)                             \
	static void good_##name(void)             \
	{                                         \
		DIR *dir;                         \
                                                  \
		enter_folder();                   \
		dir = opendir(".");               \
		for (int i = 0; i < 5; i++)       \
			CALL(POINTER, name(dir)); \
	}                                         \
	static void bad_##name(void)              \
	{                                         \
		DIR *dir = opendir("/");          \
                                                  \
		close(dirfd(dir));                \
		CALL(POINTER, name(dir));         \
	}

READDIR(readdir)
READDIR(readdir64)

#define SCANDIR(name, type, compare)                                 \
	static void good_##name(void)                                \
	{                                                            \
		struct type **list = NULL;                           \
                                                                     \
		enter_folder();                                      \
		CALL(NUMBER, name(".", &list, NULL, compare));       \
		say_name(list[3]->d_name);                           \
	}                                                            \
	static void bad_##name(void)                                 \
	{                                                            \
		struct type **list = NULL;                           \
                                                                     \
		enter_folder();                                      \
		CALL(NUMBER, name("nowhere", &list, NULL, compare)); \
		CALL(NUMBER, name("here", &list, NULL, compare));    \
	}

SCANDIR(scandir, dirent, alphasort)
SCANDIR(scandir64, dirent64, alphasort64)

#define GLOB(name, type)                                              \
	static void good_##name(void)                                 \
	{                                                             \
		type found;                                           \
                                                                      \
		enter_folder();                                       \
		CALL(NUMBER, name("*e*", 0, NULL, &found));           \
		say_name(found.gl_pathv[0]);                          \
		CALL(NUMBER, name("/dev/nul[l]", 0, NULL, &found));   \
	}                                                             \
	static void bad_##name(void)                                  \
	{                                                             \
		type found;                                           \
                                                                      \
		enter_folder();                                       \
		CALL(NUMBER, name("x*", 0, NULL, &found));            \
		CALL(NUMBER, name("x", 1 << 30, NULL, &found));       \
		CALL(NUMBER, name("here/*", GLOB_ERR, NULL, &found)); \
		CALL(NUMBER, name("/dev/nowhere*", 0, NULL, &found)); \
	}

GLOB(glob, glob_t)
GLOB(glob64, glob64_t)

/* --- attributes ------------------------------------------------------------------------------- */

#define GETXATTR(name)                                                            \
	static void good_##name(void)                                             \
	{                                                                         \
		char value[64];                                                   \
                                                                                  \
		enter_folder();                                                   \
		setxattr("here", "user.test", "abc", 3, 0);                       \
		CALL(NUMBER, name("here", "user.test", value, sizeof(value)));    \
		CALL(NUMBER, name("here", "user.test", NULL, 0));                 \
	}                                                                         \
	static void bad_##name(void)                                              \
	{                                                                         \
		char value[64];                                                   \
                                                                                  \
		enter_folder();                                                   \
		CALL(NUMBER, name("here", "user.none", value, sizeof(value)));    \
		CALL(NUMBER, name("nowhere", "user.test", value, sizeof(value))); \
		CALL(NUMBER, name("here", "", value, sizeof(value)));             \
	}

GETXATTR(getxattr)
GETXATTR(lgetxattr)

#define LISTXATTR(name)                                            \
	static void good_##name(void)                              \
	{                                                          \
		char list[256];                                    \
                                                                   \
		enter_folder();                                    \
		setxattr("here", "user.test", "abc", 3, 0);        \
		CALL(NUMBER, name("here", list, sizeof(list)));    \
		CALL(NUMBER, name("here", NULL, 0));               \
	}                                                          \
	static void bad_##name(void)                               \
	{                                                          \
		char list[256];                                    \
                                                                   \
		enter_folder();                                    \
		setxattr("here", "user.test", "abc", 3, 0);        \
		CALL(NUMBER, name("nowhere", list, sizeof(list))); \
		CALL(NUMBER, name("here", list, 1));               \
	}

LISTXATTR(listxattr)
LISTXATTR(llistxattr)

static const struct row rows[] = {
	ROW(readlink),
	ROW(readlinkat),
	ROW(__readlink_chk),
	ROW(__readlinkat_chk),
	ROW(realpath),
	ROW(__realpath_chk),
	ROW(canonicalize_file_name),
	ROW(chdir),
	ROW(getcwd),
	ROW(__getcwd_chk),
	ROW(get_current_dir_name),
	ROW(opendir),
	ROW(readdir),
	ROW(readdir64),
	ROW(scandir),
	ROW(scandir64),
	ROW(glob),
	ROW(glob64),
	ROW(getxattr),
	ROW(lgetxattr),
	ROW(listxattr),
	ROW(llistxattr),
	{ "checked functions", checked_ends, NULL },
};
ROWS(name_rows, rows);

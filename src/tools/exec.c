// SPDX-License-Identifier: MIT
/*
 * Becoming another program, for the subcommands that end in one: its environment, and a clear word where it cannot be
 * executed.
 */
#include "tools/cmd.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/env.h"

int tools_prepend(const char *variable, const char *dir)
{
	const char *before = vb_getenv(variable);
	char *value;
	int ret;

	/* An empty entry would mean the current directory. */
	if (asprintf(&value, "%s%s%s", dir, before && *before ? ":" : "", before ? before : "") < 0)
		return -ENOMEM;
	ret = setenv(variable, value, 1) ? -errno : 0;
	free(value);
	return ret;
}

/* LD_PRELOAD: what the user had, then ours, so that the user's comes first. */
static int put_preload(const char *who)
{
	const char *before = vb_getenv("LD_PRELOAD");
	char file[PATH_MAX], *name, *value;
	int ret = tools_path(file, "lib/libverbatim-preload.so");

	if (ret || access(file, R_OK))
		return ret; /* an installation without it serves programs that ask libraries */
	/* A blank would end the name there. Without a folder it is looked for in LD_LIBRARY_PATH, where that may stand. */
	name = strpbrk(file, " \t\n") ? strrchr(file, '/') + 1 : file;
	ret = tools_show_files(who);
	if (ret || (before && strstr(before, name)))
		return ret;
	if (asprintf(&value, "%s%s%s", before ? before : "", before && *before ? ":" : "", name) <
	    0)
		return -ENOMEM;
	ret = setenv("LD_PRELOAD", value, 1) ? -errno : 0;
	free(value);
	return ret;
}

/* LD_LIBRARY_PATH: ours, then what the user had. */
int tools_put_libraries_first(const char *who)
{
	char dir[PATH_MAX], file[PATH_MAX];
	int ret;

	ret = tools_path(file, "lib/libibverbs.so.1");
	if (!ret)
		ret = tools_path(dir, "lib");
	if (!ret && access(file, R_OK))
		ret = -errno;
	if (ret) {
		tools_missing(who, file, ret);
		return ret;
	}
	if (strpbrk(dir, ":;$")) {
		fprintf(stderr,
			"%s: %s: the loader takes no folder with ':', ';' or '$' in its name; move the installation\n",
			who, dir);
		return -EINVAL;
	}
	ret = tools_prepend("LD_LIBRARY_PATH", dir);
	return ret ? ret : put_preload(who);
}

/* Find the file as execvp(3) will: true with its path where there is one. */
static int find_program(const char *name, char path[PATH_MAX])
{
	const char *dir = vb_getenv("PATH"), *end;

	if (strchr(name, '/')) {
		snprintf(path, PATH_MAX, "%s", name);
		return !access(path, F_OK);
	}
	for (dir = dir ? dir : "/bin:/usr/bin"; *name; dir = end + 1) {
		end = strchrnul(dir, ':');
		if (snprintf(path, PATH_MAX, "%.*s%s%s", (int)(end - dir), dir,
			     end > dir ? "/" : "", name) < PATH_MAX &&
		    !access(path, X_OK))
			return 1;
		if (!*end)
			break;
	}
	return 0;
}

/* An ELF program of this machine that names no loader. */
static bool is_static(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf64_Ehdr head;
	Elf64_Phdr part;
	bool named = true;

	if (fd < 0)
		return false;
	if (read(fd, &head, sizeof(head)) == sizeof(head) &&
	    !memcmp(head.e_ident, ELFMAG, SELFMAG) && head.e_ident[EI_CLASS] == ELFCLASS64 &&
	    head.e_phentsize == sizeof(part)) {
		named = false;
		for (unsigned int i = 0; i < head.e_phnum && !named; i++)
			named = pread(fd, &part, sizeof(part),
				      (off_t)(head.e_phoff + i * sizeof(part))) != sizeof(part) ||
				part.p_type == PT_INTERP;
	}
	close(fd);
	return !named;
}

/* The loader ignores LD_LIBRARY_PATH where the program gains rights, and there is none in a static
 * program; nothing else would say why there is no card. */
static void warn_if_unreached(const char *who, const char *path)
{
	struct stat st;
	int gains;

	if (is_static(path))
		fprintf(stderr,
			"%s: warning: %s is statically linked, so it will not see the card; link it dynamically\n",
			who, path);
	if (stat(path, &st) || !geteuid())
		return;
	gains = ((st.st_mode & S_ISUID) && st.st_uid != geteuid()) ||
		((st.st_mode & S_ISGID) && st.st_gid != getegid()) ||
		getxattr(path, "security.capability", NULL, 0) > 0;
	if (gains)
		fprintf(stderr,
			"%s: warning: %s runs with other rights than yours, so the loader ignores LD_LIBRARY_PATH and it will not see the card; run a copy without set-uid bit and capabilities\n",
			who, path);
}

/* The programs that our documents begin with: where a Debian machine has them from. */
static const char *package_of(const char *program)
{
	return !strncmp(program, "ibv_", 4)  ? "ibverbs-utils"
	       : !strncmp(program, "ib_", 3) ? "perftest"
					     : NULL;
}

static void say_not_found(const char *who, const char *program)
{
	const char *package = package_of(program);

	fprintf(stderr, "%s: %s: not found in PATH", who, program);
	if (package)
		fprintf(stderr, "; on Debian: apt-get install %s", package);
	fprintf(stderr, "\n");
}

int tools_become(const char *who, char **program)
{
	char path[PATH_MAX];
	int found = find_program(program[0], path);
	int err;

	if (found)
		warn_if_unreached(who, path);
	execvp(program[0], program);
	err = errno;
	if (err == ENOENT && found)
		fprintf(stderr, "%s: %s: its interpreter is missing\n", who, path);
	else if (err == ENOENT && !strchr(program[0], '/'))
		say_not_found(who, program[0]);
	else
		fprintf(stderr, "%s: %s: %s\n", who, program[0], strerror(err));
	return err == ENOENT ? CMD_NOT_FOUND : CMD_CANNOT_EXEC;
}

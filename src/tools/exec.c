// SPDX-License-Identifier: MIT
/*
 * Becoming another program, for the subcommands that end in one: its environment, and a clear word
 * where it cannot be executed.
 */
#include "tools/cmd.h"

#include <argp.h>
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

/* Put text behind what the variable, a list with colons, has. 0 or -errno. */
static int exec_append(const char *variable, const char *text)
{
	const char *before = vb_getenv(variable);
	char *value;
	int ret;

	if (asprintf(&value, "%s%s%s", before ? before : "", before && *before ? ":" : "", text) <
	    0)
		return -ENOMEM;
	ret = setenv(variable, value, 1) ? -errno : 0;
	free(value);
	return ret;
}

/*
 * Put a library of ours into LD_PRELOAD, behind what the user had, so that the user's comes first. 1
 * where it was not there before, 0 where it was or is not installed, or -errno.
 */
static int put_library(const char *path)
{
	const char *before = vb_getenv("LD_PRELOAD");
	char file[PATH_MAX], *name;
	int ret = tools_path(file, path);

	if (ret || access(file, R_OK))
		return ret; /* an installation without it serves programs that ask libraries */
	/*
	 * A blank would end the name there. Without a folder it is looked for in LD_LIBRARY_PATH,
	 * where that may stand.
	 */
	name = strpbrk(file, " \t\n") ? strrchr(file, '/') + 1 : file;
	if (before && strstr(before, name))
		return 0;
	ret = exec_append("LD_PRELOAD", name);
	return ret ? ret : 1;
}

/* Whether memory of programs is born shared (src/memory). */
static bool is_memory_wanted(void)
{
	const char *how = vb_getenv("VERBATIM_SHARE");

	return !how || strcmp(how, "off") != 0;
}

/*
 * AddressSanitizer is told not to mind that there are libraries before it, and not to guess the
 * size of thread-local variables; host/preload/sanitizer.c has the reasons and says the same to children
 * that get other options.
 */
static int put_preload(const char *who)
{
	char file[PATH_MAX];
	int ret = tools_path(file, "lib/libverbatim-preload.so");

	if (!ret && !access(file, R_OK))
		ret = tools_show_files(who);
	if (!ret)
		ret = put_library("lib/libverbatim-preload.so");
	if (ret == 1)
		ret = exec_append("ASAN_OPTIONS",
				  "verify_asan_link_order=0:intercept_tls_get_addr=0");
	if (!ret && is_memory_wanted())
		ret = put_library("lib/libverbatim-memory.so");
	return ret < 0 ? ret : 0;
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

enum loader { LOADER_SAME, LOADER_NONE, LOADER_MUSL };

/*
 * Which loader an ELF program of this machine names. What is none, a script, is taken for the
 * usual.
 */
static enum loader find_loader(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	enum loader found = LOADER_SAME;
	char name[PATH_MAX] = "";
	Elf64_Ehdr head;
	Elf64_Phdr part;

	if (fd < 0)
		return found;
	if (pread(fd, &head, sizeof(head), 0) == sizeof(head) &&
	    !memcmp(head.e_ident, ELFMAG, SELFMAG) && head.e_ident[EI_CLASS] == ELFCLASS64 &&
	    head.e_phentsize == sizeof(part)) {
		found = LOADER_NONE;
		for (unsigned int i = 0; i < head.e_phnum && found == LOADER_NONE; i++) {
			if (pread(fd, &part, sizeof(part),
				  (off_t)(head.e_phoff + i * sizeof(part))) != sizeof(part) ||
			    part.p_type == PT_INTERP)
				found = LOADER_SAME;
		}
	}
	if (found == LOADER_SAME && part.p_type == PT_INTERP && part.p_filesz < sizeof(name) &&
	    pread(fd, name, part.p_filesz, (off_t)part.p_offset) > 0 && strstr(name, "/ld-musl-"))
		found = LOADER_MUSL;
	close(fd);
	return found;
}

/* The loader ignores LD_LIBRARY_PATH where the program gains rights, there is none in a static program, and that of musl
 * cannot load our libraries; nothing else would say why there is no card. */
static void warn_if_unreached(const char *who, const char *path)
{
	enum loader loader = find_loader(path);
	struct stat st;
	int gains;

	if (loader == LOADER_NONE)
		fprintf(stderr,
			"%s: warning: %s is statically linked, so it will not see the card; link it dynamically\n",
			who, path);
	if (loader == LOADER_MUSL)
		fprintf(stderr,
			"%s: warning: %s is linked with musl, which cannot load libraries made for glibc: it sees the files of the card, but not libibverbs and the others; build it with glibc\n",
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

int tools_parse_program(int key, char *arg, struct argp_state *state, struct tools_program *program)
{
	switch (key) {
	case 'c':
		program->config = arg;
		return 0;
	case ARGP_KEY_ARG:
		program->argv = &state->argv[state->next - 1];
		state->next = state->argc; /* the rest is the program's */
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which program?");
		return EINVAL;
	}
	return ARGP_ERR_UNKNOWN;
}

int tools_run_program(const char *who, const struct tools_program *program)
{
	if (tools_use_config(who, program->config) || tools_put_libraries_first(who))
		return CMD_FAILED;
	return tools_become(who, program->argv);
}

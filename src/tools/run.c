// SPDX-License-Identifier: MIT
/*
 * verbatim run: becomes the program, with Verbatim's libraries in front of the system's.
 *
 * The program replaces this process, so its exit code, its signals and its place in the process
 * tree are its own: there is nothing in between that could pass them on wrongly.
 */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tools/cmd.h"

struct arguments {
	const char *config;
	char **program;
};

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	switch (key) {
	case 'c':
		args->config = arg;
		return 0;
	case ARGP_KEY_ARG:
		args->program = &state->argv[state->next - 1];
		state->next = state->argc; /* the rest is the program's */
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which program?");
		return EINVAL;
	}
	return ARGP_ERR_UNKNOWN;
}

/* LD_LIBRARY_PATH: ours, then what the user had. */
static int put_libraries_first(void)
{
	const char *before = getenv("LD_LIBRARY_PATH");
	char dir[PATH_MAX], file[PATH_MAX], *value;
	int ret;

	ret = tools_path(file, "lib/libibverbs.so.1");
	if (!ret)
		ret = tools_path(dir, "lib");
	if (!ret && access(file, R_OK))
		ret = -errno;
	if (ret) {
		fprintf(stderr, "verbatim run: %s: %s; is the installation complete?\n",
			ret == -ENAMETOOLONG ? "lib/libibverbs.so.1" : file, strerror(-ret));
		return ret;
	}
	/* An empty entry would mean the current directory. */
	if (asprintf(&value, "%s%s%s", dir, before && *before ? ":" : "", before ? before : "") < 0)
		return -ENOMEM;
	ret = setenv("LD_LIBRARY_PATH", value, 1) ? -errno : 0;
	free(value);
	return ret;
}

/* Find the file as execvp(3) will: true with its path where there is one. */
static int find_program(const char *name, char path[PATH_MAX])
{
	const char *dir = getenv("PATH"), *end;

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

/* The loader ignores LD_LIBRARY_PATH where the program gains rights, and nothing would say why
 * there is no card. */
static void warn_if_privileged(const char *path)
{
	struct stat st;
	int gains;

	if (stat(path, &st) || !geteuid())
		return;
	gains = ((st.st_mode & S_ISUID) && st.st_uid != geteuid()) ||
		((st.st_mode & S_ISGID) && st.st_gid != getegid()) ||
		getxattr(path, "security.capability", NULL, 0) > 0;
	if (gains)
		fprintf(stderr,
			"verbatim run: warning: %s runs with other rights than yours, so the loader ignores LD_LIBRARY_PATH and it will not see the card; run a copy without set-uid bit and capabilities\n",
			path);
}

static int become(char **program)
{
	char path[PATH_MAX];
	int found = find_program(program[0], path);
	int err;

	if (found)
		warn_if_privileged(path);
	execvp(program[0], program);
	err = errno;
	if (err == ENOENT && found)
		fprintf(stderr, "verbatim run: %s: its interpreter is missing\n", path);
	else if (err == ENOENT && !strchr(program[0], '/'))
		fprintf(stderr, "verbatim run: %s: not found in PATH\n", program[0]);
	else
		fprintf(stderr, "verbatim run: %s: %s\n", program[0], strerror(err));
	return err == ENOENT ? CMD_NOT_FOUND : CMD_CANNOT_EXEC;
}

int cmd_run(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "config", 'c', "FILE", 0,
		  "Take the adapters from FILE (default: $VERBATIM_CONFIG)", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse_opt,
		.args_doc = "[--] PROGRAM [ARGUMENT...]",
		.doc = "Run PROGRAM, unmodified, on the adapters of Verbatim."
		       "\vThe exit code is the program's; 125 where Verbatim failed before it started, "
		       "126 where it cannot be executed, 127 where it was not found.\n\n"
		       "Example: verbatim run -- ibv_devinfo -v",
	};
	struct arguments args = { 0 };

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &args);
	if (tools_use_config("verbatim run", args.config) || put_libraries_first())
		return CMD_FAILED;
	return become(args.program);
}

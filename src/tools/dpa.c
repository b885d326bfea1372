// SPDX-License-Identifier: MIT
/*
 * verbatim dpa COMMAND: becomes PREFIX/libexec/verbatim/verbatim-dpa-COMMAND, where the accelerator
 * is installed.
 */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cmd.h"

struct arguments {
	char **command;
};

static error_t tools_dpa_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		args->command = &state->argv[state->next - 1];
		state->next = state->argc; /* the rest is the command's */
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which command?");
		return EINVAL;
	}
	return ARGP_ERR_UNKNOWN;
}

int cmd_dpa(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = tools_dpa_parse_opt,
		.args_doc = "COMMAND [ARGUMENT...]",
		.doc = "Use the Data Path Accelerator of the card."
		       "\vCommands:\n  run        run a bare RISC-V program\n\n"
		       "Example: verbatim dpa run program.elf",
	};
	struct arguments args = { 0 };
	char path[PATH_MAX], relative[NAME_MAX];
	int ret;

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &args);
	snprintf(relative, sizeof(relative), "libexec/verbatim/verbatim-dpa-%s", args.command[0]);
	ret = tools_path(path, relative);
	if (ret) {
		tools_missing("verbatim dpa", path, ret);
		return 1;
	}
	errno = ENOENT;
	if (strspn(args.command[0], "abcdefghijklmnopqrstuvwxyz-") == strlen(args.command[0]))
		execv(path, args.command);
	if (errno != ENOENT)
		fprintf(stderr, "verbatim dpa: %s: %s\n", path, strerror(errno));
	else if (!tools_path(path, "libexec/verbatim/verbatim-dpa-run") && !access(path, X_OK))
		fprintf(stderr, "verbatim dpa: unknown command '%s'\nTry 'verbatim dpa --help'.\n",
			args.command[0]);
	else
		fprintf(stderr,
			"verbatim dpa: this installation has no accelerator (%s is missing)\n",
			path);
	return CMD_USAGE;
}

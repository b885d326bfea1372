// SPDX-License-Identifier: MIT
/*
 * verbatim run: becomes the program, with Verbatim's libraries in front of the system's.
 *
 * The program replaces this process, so its exit code, its signals and its place in the process
 * tree are its own: there is nothing in between that could pass them on wrongly.
 */
#include <argp.h>
#include <errno.h>

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
	if (tools_use_config("verbatim run", args.config) ||
	    tools_put_libraries_first("verbatim run"))
		return CMD_FAILED;
	return tools_become("verbatim run", args.program);
}

// SPDX-License-Identifier: MIT
/*
 * verbatim run: becomes the program, with Verbatim's libraries in front of the system's.
 *
 * The program replaces this process, so its exit code, its signals and its place in the process
 * tree are its own: there is nothing in between that could pass them on wrongly.
 */
#include <argp.h>

#include "tools/cmd.h"

static error_t tools_run_parse_opt(int key, char *arg, struct argp_state *state)
{
	return tools_parse_program(key, arg, state, state->input);
}

int cmd_run(int argc, char **argv)
{
	static const struct argp_option options[] = {
		TOOLS_CONFIG_OPTION,
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = tools_run_parse_opt,
		.args_doc = "[--] PROGRAM [ARGUMENT...]",
		.doc = "Run PROGRAM, unmodified, on the adapters of Verbatim."
		       "\vThe exit code is the program's; 125 where Verbatim failed before it started, "
		       "126 where it cannot be executed, 127 where it was not found.\n\n"
		       "Allocations at page boundaries and mappings of a program that has opened an "
		       "adapter are shared with other processes of the user; VERBATIM_SHARE=off keeps "
		       "them private, VERBATIM_SHARE=all shares large ones of malloc, too.\n\n"
		       "Example: verbatim run -- ibv_devinfo -v",
	};
	struct tools_program program = { 0 };

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &program);
	return tools_run_program("verbatim run", &program);
}

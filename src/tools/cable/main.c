// SPDX-License-Identifier: MIT
/*
 * verbatim cable COMMAND: people's side of the cable, raw Ethernet frames to and from files. A program
 * of its own in libexec/verbatim, which tools/cable.c becomes.
 */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/cable/cable.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "dump", cable_dump },
	{ "replay", cable_replay },
};

enum { NUM_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

struct arguments {
	int command_at;
};

static error_t cable_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		args->command_at = state->next - 1;
		state->next = state->argc; /* the rest is the command's */
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which command? dump or replay");
		return EINVAL;
	}
	return ARGP_ERR_UNKNOWN;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = cable_parse_opt,
		.args_doc = "COMMAND [ARGUMENT...]",
		.doc = "Replay and record the raw Ethernet frames of an adapter's port."
		       "\vCommands:\n"
		       "  dump       print the frames of a port, or write them into a pcap file\n"
		       "  replay     let the frames of a pcap or pcapng file arrive at a port\n\n"
		       "'verbatim cable COMMAND --help' tells more, and so does man verbatim-cable.",
	};
	static char name[64], first[] = "verbatim cable"; /* messages at exit have it, too */
	struct arguments args = { 0 };

	tools_guard_stdio();
	argp_err_exit_status = CMD_USAGE;
	if (argc < 1)
		return CMD_USAGE;
	argv[0] = program_invocation_short_name = first;
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &args);
	argc -= args.command_at;
	argv += args.command_at;
	for (unsigned int i = 0; i < NUM_COMMANDS; i++) {
		if (strcmp(argv[0], commands[i].name))
			continue;
		snprintf(name, sizeof(name), "verbatim cable %s", commands[i].name);
		argv[0] = program_invocation_short_name = name;
		return commands[i].run(argc, argv);
	}
	fprintf(stderr,
		"verbatim cable: unknown command '%s'; there are: dump, replay\n"
		"Try 'verbatim cable --help'.\n",
		argv[0]);
	return CMD_USAGE;
}

// SPDX-License-Identifier: MIT
/*
 * The `verbatim` command: finds the subcommand and hands over.
 */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cmd.h"

static const struct {
	const char *name, *summary;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "run", "run a program on the card", cmd_run },
	{ "sdk", "run a build that names the vendor's paths", cmd_sdk },
	{ "devices", "list the adapters", cmd_devices },
	{ "ps", "list the processes that use the card", cmd_ps },
	{ "stats", "print counters, as text, JSON or for Prometheus", cmd_stats },
	{ "top", "a live view of what the cards do", cmd_top },
	{ "trace", "run a program and record a timeline of it", cmd_trace },
	{ "report", "make a page of a timeline", cmd_report },
	{ "doctor", "check what this machine can do", cmd_doctor },
	{ "gdb", "debug device code", cmd_gdb },
	{ "perf", "profile device code", cmd_perf },
	{ "inject", "make the card fail, for tests", cmd_inject },
	{ "dpa", "run device programs on the card's accelerator", cmd_dpa },
	{ "cable", "replay and record raw Ethernet frames", cmd_cable },
};

enum { NUM_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

/* argp, in libc, looks for it by name. */
__attribute__((visibility("default"))) const char *argp_program_version =
	"verbatim " VERBATIM_VERSION;

struct arguments {
	int command_at; /* index in argv, 0: none */
};

static error_t verbatim_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		args->command_at = state->next - 1;
		state->next = state->argc; /* the rest is the subcommand's */
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_state_help(state, stderr, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK);
		exit(CMD_USAGE);
	}
	return ARGP_ERR_UNKNOWN;
}

/* Edit distance, for words as short as ours. */
static unsigned int verbatim_distance(const char *a, const char *b)
{
	unsigned int row[32];
	size_t len = strlen(b);

	if (len >= 32)
		return 32;
	for (unsigned int j = 0; j <= len; j++)
		row[j] = j;
	for (unsigned int i = 0; a[i]; i++) {
		unsigned int diagonal = row[0];

		row[0] = i + 1;
		for (unsigned int j = 0; j < len; j++) {
			unsigned int change = diagonal + (a[i] != b[j]);
			unsigned int best = row[j] < row[j + 1] ? row[j] + 1 : row[j + 1] + 1;

			diagonal = row[j + 1];
			row[j + 1] = change < best ? change : best;
		}
	}
	return row[len];
}

static int unknown_command(const char *name)
{
	unsigned int best = 0, best_distance = 32;

	for (unsigned int i = 0; i < NUM_COMMANDS; i++) {
		unsigned int d = verbatim_distance(name, commands[i].name);

		if (d < best_distance) {
			best_distance = d;
			best = i;
		}
	}
	fprintf(stderr, "verbatim: unknown command '%s'", name);
	if (best_distance <= 2)
		fprintf(stderr, "; did you mean 'verbatim %s'?", commands[best].name);
	fprintf(stderr, "\nTry 'verbatim --help'.\n");
	return CMD_USAGE;
}

/* "Commands:" below the options, from the table. */
static char *verbatim_help_filter(int key, const char *text, void *input)
{
	char *list = NULL;
	size_t size;
	FILE *f;

	if (key != ARGP_KEY_HELP_POST_DOC)
		return (char *)text;
	f = open_memstream(&list, &size);
	if (!f)
		return (char *)text;
	fprintf(f, "Commands:\n");
	for (unsigned int i = 0; i < NUM_COMMANDS; i++)
		fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].summary);
	fprintf(f, "\n'verbatim COMMAND --help' tells more, and so does man verbatim-COMMAND.");
	fclose(f);
	return list;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = verbatim_parse_opt,
		.args_doc = "COMMAND [ARGUMENT...]",
		.doc = "A programmable RDMA network card in software.\v ",
		.help_filter = verbatim_help_filter,
	};
	struct arguments args = { 0 };
	static char name[64]; /* messages at exit have it, too */

	tools_guard_stdio();
	argp_err_exit_status = CMD_USAGE;
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &args);
	argc -= args.command_at;
	argv += args.command_at;
	for (unsigned int i = 0; i < NUM_COMMANDS; i++) {
		if (strcmp(argv[0], commands[i].name))
			continue;
		snprintf(name, sizeof(name), "verbatim %s", commands[i].name);
		argv[0] = name;
		/* argp takes the name for its messages from here */
		program_invocation_short_name = name;
		return commands[i].run(argc, argv);
	}
	return unknown_command(argv[0]);
}

// SPDX-License-Identifier: MIT
/*
 * verbatim gdb: the debugger of device code. Lists what can be debugged, attaches to it, or starts a program
 * with a debugger on its device code.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/gdb/gdb.h"

enum { OPT_RELAY = 1, OPT_BATCH, OPT_GDB, OPT_ELF };

struct arguments {
	struct gdb_run run;
	const char *config, *elf;
	char **program;
	uint64_t what, relay; /* token or pid; 0: none */
};

static const char who[] = "verbatim gdb";

/* ---- options ---- */

static void add_option(struct arguments *args, const char *option)
{
	char **more = reallocarray(args->run.options, args->run.noptions + 1, sizeof(*more));

	if (!more)
		exit(CMD_FAILED);
	args->run.options = more;
	more[args->run.noptions++] = (char *)option;
}

static error_t parse_argument(struct arguments *args, char *arg, struct argp_state *state)
{
	if (state->quoted && state->next > state->quoted) {
		args->program = &state->argv[state->next - 1];
		state->next = state->argc; /* the rest is the program's */
		return 0;
	}
	if (args->what)
		argp_error(state, "'%s': one process at a time", arg);
	if (!gdb_parse_token(arg, &args->what))
		argp_error(state, "'%s' is neither a token nor a PID; a program stands behind --",
			   arg);
	return 0;
}

static error_t gdb_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	switch (key) {
	case 'c':
		args->config = arg;
		return 0;
	case 'e':
		add_option(args, "-ex");
		add_option(args, arg);
		return 0;
	case 'x':
		add_option(args, "-x");
		add_option(args, arg);
		return 0;
	case 'i':
		add_option(args, "-i");
		add_option(args, arg);
		return 0;
	case OPT_BATCH:
		add_option(args, "-batch");
		return 0;
	case OPT_GDB:
		args->run.gdb = arg;
		return 0;
	case OPT_ELF:
		args->elf = arg;
		return 0;
	case OPT_RELAY:
		gdb_parse_token(arg, &args->relay);
		return 0;
	case ARGP_KEY_ARG:
		return parse_argument(args, arg, state);
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp_option options[] = {
	{ "ex", 'e', "COMMAND", 0, "Let gdb execute COMMAND when it has attached (several)", 0 },
	{ "command", 'x', "FILE", 0, "Let gdb execute the commands of FILE", 0 },
	{ "batch", OPT_BATCH, NULL, 0, "End gdb when these are done", 0 },
	{ "interpreter", 'i', "NAME", 0, "gdb's interface, as mi3", 0 },
	{ "gdb", OPT_GDB, "PROGRAM", 0, "Which gdb (default: $VERBATIM_GDB, gdb-multiarch)", 0 },
	{ "elf", OPT_ELF, "FILE", 0, "Do not debug: write the device ELF to FILE", 0 },
	{ "config", 'c', "FILE", 0, "Of PROGRAM: take the adapters from FILE", 0 },
	{ "relay", OPT_RELAY, "TOKEN", OPTION_HIDDEN, NULL, 0 },
	{ 0 },
};

/* ---- what there is ---- */

/* Print a program's device processes, under a title. */
static void print_entries(pid_t pid, struct vb_gdb_entry *entries, int count, bool *titled)
{
	char command[32];

	if (count > 0 && !*titled)
		printf("%8s %-15s  %-18s  %-8s  %-9s  %s\n", "PID", "COMMAND", "TOKEN", "ADAPTER",
		       "DEBUGGER", "DEVICE PROCESS (APP)");
	*titled |= count > 0;
	tools_command_of(pid, command, sizeof(command));
	for (int i = 0; i < count; i++)
		printf("%8d %-15s  0x%016" PRIx64 "  %-8s  %-9s  %s (%s)\n", (int)pid,
		       tools_printable(command), entries[i].token,
		       tools_printable(entries[i].adapter),
		       entries[i].attached ? "attached"
		       : entries[i].waits  ? "awaited"
					   : "-",
		       tools_printable(entries[i].process), tools_printable(entries[i].app));
}

/* Those of all programs that listen. A program that does not is not woken. */
static int gdb_list(void)
{
	uint32_t *keys = NULL;
	int nkeys = vb_ask_list(&keys);
	bool titled = false;

	for (int i = 0; i < nkeys; i++) {
		struct vb_ask_process program = { .key = keys[i] };
		struct vb_gdb_entry *entries;
		int n = gdb_ask(&program, VB_GDB_LIST, 0, &entries, NULL);

		if (n == -ETIMEDOUT)
			fprintf(stderr, "%s: PID %d: %s\n", who, (int)program.pid, gdb_reason(n));
		print_entries(program.pid, entries, n, &titled);
		if (n >= 0)
			free(entries);
	}
	free(keys);
	if (titled)
		return 0;
	fprintf(stderr,
		"%s: no program of yours listens for debuggers; 'verbatim gdb PID' attaches to any that has device code ('dpa-ps' lists them)\n",
		who);
	return 1;
}

/* A number of at most 32 bits is a pid: tokens have a random upper half. */
static bool find_token(struct arguments *args)
{
	pid_t pid = (pid_t)args->what;
	struct vb_ask_process program = { .pid = pid, .wake = tools_wake, .arg = &pid };
	struct vb_gdb_entry *entries = NULL;
	bool titled = false;
	int count;

	args->run.token = args->what;
	if (args->what >> 32)
		return true;
	count = gdb_ask(&program, VB_GDB_OFFER, 0, &entries, NULL);
	if (count == -ETIMEDOUT || count == -EPERM)
		fprintf(stderr, "%s: PID %d: %s\n", who, (int)pid, gdb_reason(count));
	if (count <= 0)
		fprintf(stderr, "%s: that process has no device process that can be debugged\n",
			who);
	if (count > 1)
		fprintf(stderr, "%s: %" PRIu64 " has %d device processes; take one by its token:\n",
			who, args->what, count);
	if (count > 1)
		print_entries(pid, entries, count, &titled);
	if (count == 1)
		args->run.token = entries[0].token;
	free(entries);
	return count == 1;
}

/* Between gdb's pipe and the program. */
static int relay(uint64_t token)
{
	int fd = gdb_attach(token);

	if (fd < 0) {
		fprintf(stderr, "%s: %s\n", who, gdb_reason(fd));
		return 1;
	}
	signal(SIGINT, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	gdb_relay(STDIN_FILENO, STDOUT_FILENO, fd, -1);
	return 0;
}

int cmd_gdb(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = gdb_parse_opt,
		.args_doc = "\nTOKEN\nPID\n-- PROGRAM [ARGUMENT...]",
		.doc = "Debug device code with gdb: attach to the device process with TOKEN, or to the only one "
		       "of the program PID, or start PROGRAM and stop before its device code executes. "
		       "Without an argument: list what can be attached to."
		       "\vExample: verbatim gdb --ex 'break my_rpc' --ex continue -- ./program",
	};
	struct arguments args = { 0 };
	int code;

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &args);
	signal(SIGCHLD, SIG_DFL); /* who ignores it gets no exit codes */
	if (args.relay)
		code = relay(args.relay);
	else if (args.program)
		code = gdb_program(&args.run, args.config, args.program);
	else if (!args.what)
		code = gdb_list();
	else if (!find_token(&args))
		code = 1;
	else
		code = args.elf ? !!gdb_save_elf(args.run.token, args.elf) : gdb_run(&args.run);
	free(args.run.options);
	return code;
}

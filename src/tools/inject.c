// SPDX-License-Identifier: MIT
/*
 * verbatim inject: faults on demand, in programs that run, or by a script in one that is started.
 */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "meet/registry.h"
#include "card/fault/inject.h"
#include "control/ask/client.h"
#include "tools/cmd.h"

static const char who[] = "verbatim inject";

struct arguments {
	const char *script;
	long pid;                     /* 0: all */
	struct tools_program program; /* without a script: the words of a fault */
};

/* What was done in one program, or why it was not. */
struct round {
	char line[VB_INJECT_LINE + 1];
	unsigned int done, failed;
	pid_t *asked; /* programs, so that none is asked twice */
	unsigned int num_asked;
};

static error_t tools_inject_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;
	char *end;

	switch (key) {
	case 's':
		args->script = arg;
		return 0;
	case 'p':
		errno = 0;
		args->pid = strtol(arg, &end, 10);
		if (errno || *end || args->pid < 1 || args->pid > INT_MAX)
			argp_error(state, "'%s' is not a pid", arg);
		return 0;
	case ARGP_KEY_NO_ARGS:
		return 0;
	case ARGP_KEY_END:
		if (args->script && args->pid)
			argp_error(
				state,
				"--pid is for programs that run, --script for one that is started");
		if (!args->program.argv)
			argp_error(state, args->script ? "which program?" : "which fault?");
		return 0;
	}
	return tools_parse_program(key, arg, state, &args->program);
}

static int run_script(const struct arguments *args)
{
	struct vb_inject *faults;
	char words[512], path[PATH_MAX];
	int ret = vb_inject_read(args->script, &faults, words, sizeof(words));

	if (ret < 0) {
		fprintf(stderr, "%s: %s\n", who, words);
		return CMD_FAILED;
	}
	free(faults);
	if (!realpath(args->script, path) || setenv("VERBATIM_INJECT", path, 1)) {
		fprintf(stderr, "%s: %s: %s\n", who, args->script, strerror(errno));
		return CMD_FAILED;
	}
	return tools_run_program(who, &args->program);
}

/* The words as one line; false where that is no fault, after a message. */
static bool tools_inject_join(char **words, char line[VB_INJECT_LINE + 1])
{
	struct vb_inject fault;
	char why[256];
	size_t len = 0;
	int ret = 0;

	for (int i = 0; words[i] && len <= VB_INJECT_LINE; i++)
		len += (size_t)snprintf(line + len, VB_INJECT_LINE + 1 - len, "%s%s", i ? " " : "",
					words[i]);
	if (len > VB_INJECT_LINE) {
		fprintf(stderr, "%s: too long\n", who);
		return false;
	}
	ret = vb_inject_parse(line, &fault, why, sizeof(why));
	if (!ret && fault.timed) {
		snprintf(why, sizeof(why), "at: times are for scripts");
		ret = -EINVAL;
	}
	if (ret > 0)
		snprintf(why, sizeof(why), "which fault?");
	if (ret)
		fprintf(stderr, "%s: %s\nTry 'verbatim inject --help'.\n", who, why);
	return !ret;
}

static void tools_inject_ask(struct round *round, pid_t pid, bool alone)
{
	struct vb_ask_process program = { .pid = pid, .wake = tools_wake, .arg = &pid };
	struct vb_ask_answer answer;
	int ret = vb_ask_open(&program, VB_INJECT_SERVICE, round->line, &answer);
	char command[32];

	if (ret >= 0)
		close(ret);
	else if (!answer.words[0])
		snprintf(answer.words, sizeof(answer.words), "%s",
			 ret == -ESRCH                             ? "has no card open"
			 : ret == -ETIMEDOUT || ret == -ECONNRESET ? "does not answer"
								   : strerror(-ret));
	/* Of all programs only those count that have the card, or the object, and still run. */
	if (!alone && (ret == -ENODEV || ret == -ENOENT || ret == -ESRCH))
		return;
	tools_command_of(pid, command, sizeof(command));
	if (ret < 0) {
		round->failed++;
		fprintf(stderr, "%s: %d %s: %s\n", who, (int)pid, tools_printable(command),
			tools_printable(answer.words));
	} else {
		round->done++;
		printf("%d %s: %s\n", (int)pid, tools_printable(command), round->line);
	}
}

/* Once, however many hosts the program has. */
static void ask_each(void *arg, const struct vb_slot_info *info)
{
	struct round *round = arg;
	pid_t *asked;

	for (unsigned int i = 0; i < round->num_asked; i++)
		if (round->asked[i] == info->pid)
			return;
	asked = realloc(round->asked, (round->num_asked + 1) * sizeof(*asked));
	if (!asked) {
		round->failed++;
		fprintf(stderr, "%s: no memory\n", who);
		return;
	}
	round->asked = asked;
	asked[round->num_asked++] = info->pid;
	tools_inject_ask(round, info->pid, false);
}

int cmd_inject(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "pid", 'p', "PID", 0, "Only in this program (default: all of yours)", 0 },
		{ "script", 's', "FILE", 0,
		  "Start PROGRAM, with the faults that FILE names and times", 0 },
		TOOLS_CONFIG_OPTION,
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = tools_inject_parse_opt,
		.args_doc = "CARD FAULT...\n--script FILE [--] PROGRAM [ARGUMENT...]",
		.doc = "Make the card fail, to see what a program does then."
		       "\vFaults:\n"
		       "  port 1 down | up\n"
		       "  qp N | all error                 to the error state\n"
		       "  qp N | all next [recv] STATUS    its next send, or receive, ends like that\n"
		       "  fatal                            IBV_EVENT_DEVICE_FATAL\n"
		       "  fail pd|mr|cq|srq|qp|any COUNT   the next creations fail\n"
		       "  eu N stuck | slow FACTOR | normal\n\n"
		       "The exit code is 0 where it was done in some program and failed in none, 1 otherwise, 2 where the command "
		       "line is wrong; with --script as of verbatim run.\n\n"
		       "Examples: verbatim inject mlx5_0 port 1 down\n"
		       "          verbatim inject --pid 4711 mlx5_0 qp 0x1040 next RETRY_EXC_ERR",
	};
	struct arguments args = { 0 };
	struct round round = { 0 };
	int ret = 0;

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &args);
	if (args.script)
		return run_script(&args);
	if (!tools_inject_join(args.program.argv, round.line))
		return CMD_USAGE;
	if (args.pid)
		tools_inject_ask(&round, (pid_t)args.pid, true);
	else
		ret = vb_registry_list(ask_each, &round);
	free(round.asked);
	if (ret < 0)
		fprintf(stderr, "%s: %s\n", who, strerror(-ret));
	else if (!round.done && !round.failed)
		fprintf(stderr, "%s: no program of yours has %s open, or has such an object\n", who,
			args.program.argv[0]);
	return round.done && !round.failed && ret >= 0 ? 0 : 1;
}

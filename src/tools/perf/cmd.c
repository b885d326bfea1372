// SPDX-License-Identifier: MIT
/*
 * verbatim perf: runs a program with profiles of its device code, in a folder of its own, and then
 * becomes libexec/verbatim/verbatim-perf-report, which prints and removes them.
 */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/env.h"
#include "tools/cmd.h"

static const char who[] = "verbatim perf";

struct arguments {
	const char *period, *output, *report;
	bool json;
	struct tools_program program;
};

static error_t perf_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;
	char *end;

	switch (key) {
	case 'j':
		args->json = true;
		return 0;
	case 'o':
		args->output = arg;
		return 0;
	case 'r':
		args->report = arg;
		return 0;
	case 'p':
		errno = 0;
		if (*arg < '0' || *arg > '9' || !strtoull(arg, &end, 10) || *end || errno ||
		    strlen(arg) > 12)
			argp_error(state, "'%s' is not a number of instructions", arg);
		args->period = arg;
		return 0;
	}
	return tools_parse_program(key, arg, state, &args->program);
}

/* In the child: the exit code of what could not be started. */
static int perf_become(const struct arguments *args, const char *dir)
{
	if (setenv("VERBATIM_DPA_PROFILE", dir, 1) ||
	    (args->period && setenv("VERBATIM_DPA_PROFILE_PERIOD", args->period, 1))) {
		fprintf(stderr, "%s: %s\n", who, strerror(errno));
		return CMD_FAILED;
	}
	return tools_run_program(who, &args->program);
}

static volatile sig_atomic_t child;

static void pass_on(int sig)
{
	kill((pid_t)child, sig);
}

/* Who ends the command means the program. What was ignored, below nohup for one, stays so. */
static void guard_signal(int sig)
{
	struct sigaction action = { .sa_handler = pass_on, .sa_flags = SA_RESTART }, before;

	if (!sigaction(sig, NULL, &before) && before.sa_handler != SIG_IGN)
		sigaction(sig, &action, NULL);
}

/* The program's exit code, 128 and the signal where it was killed; -1 where there is none. */
static int perf_run(const struct arguments *args, const char *dir)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN }, interrupt, quit, ended;
	const struct sigaction usual = { .sa_handler = SIG_DFL };
	sigset_t ends, before;
	int status;
	pid_t pid;

	/* Ctrl-C is for the program: its profile is printed all the same. */
	sigaction(SIGINT, &ignore, &interrupt);
	sigaction(SIGQUIT, &ignore, &quit);
	sigaction(SIGCHLD, &usual, &ended); /* who ignores it gets no exit code */
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	sigprocmask(SIG_BLOCK, &ends, &before);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		sigaction(SIGINT, &interrupt, NULL);
		sigaction(SIGQUIT, &quit, NULL);
		sigaction(SIGCHLD, &ended, NULL);
		sigprocmask(SIG_SETMASK, &before, NULL);
		_exit(perf_become(args, dir));
	}
	if (pid > 0) {
		child = pid;
		guard_signal(SIGTERM);
		guard_signal(SIGHUP);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (pid < 0) {
		fprintf(stderr, "%s: %s\n", who, strerror(errno));
		return -1;
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	/* Its number may be another's from here on; the report is short, and removes the folder. */
	sigaction(SIGTERM, &ignore, NULL);
	sigaction(SIGHUP, &ignore, NULL);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int cmd_perf(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "period", 'p', "N", 0, "A sample every N instructions (default: 100003)", 0 },
		{ "output", 'o', "FILE", 0, "Write folded stacks, for flame graphs, to FILE", 0 },
		{ "report", 'r', "FILE", 0, "Print to FILE (default: standard output)", 0 },
		{ "json", 'j', NULL, 0, "Print the profile as JSON", 0 },
		TOOLS_CONFIG_OPTION,
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = perf_parse_opt,
		.args_doc = "[--] PROGRAM [ARGUMENT...]",
		.doc = "Run PROGRAM and print where its device code spent its instructions."
		       "\vThe exit code is the program's, 128 and the number of the signal where one ended it; 125 where "
		       "Verbatim failed.\n\n"
		       "Example: verbatim perf -o stacks.txt -- ./my-flexio-program",
	};
	struct arguments args = { 0 };
	char dir[PATH_MAX], path[PATH_MAX], code[16];
	const char *tmp = vb_getenv("TMPDIR");
	int ret;

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &args);
	ret = tools_path(path, "libexec/verbatim/verbatim-perf-report");
	if (ret || access(path, X_OK)) {
		tools_missing(who, path, ret ? ret : -errno);
		return CMD_FAILED;
	}
	snprintf(dir, sizeof(dir), "%s/verbatim-perf-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(dir)) {
		fprintf(stderr, "%s: %s: %s\n", who, dir, strerror(errno));
		return CMD_FAILED;
	}
	ret = perf_run(&args, dir);
	snprintf(code, sizeof(code), "%d", ret < 0 ? CMD_FAILED : ret);
	execl(path, who, dir, code, args.json ? "json" : "text", args.output ? args.output : "",
	      args.report ? args.report : "", (char *)NULL);
	fprintf(stderr, "%s: %s: %s\n", who, path, strerror(errno));
	return CMD_FAILED;
}

// SPDX-License-Identifier: MIT
/*
 * verbatim trace: runs a program and writes what happened in it as one timeline.
 *
 *	FILE.notes-XXXXXX/PID.N.notes     a file of each process, written by the card (control/record/timeline.h)
 *	             |  when the program has ended
 *	             v
 *	FILE                              Chrome's trace format
 */
#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/trace/trace.h"

enum { FILES_MAX = 4096, KEY_SIZE = 's' };

static const char who[] = "verbatim trace";

struct arguments {
	const char *output, *size;
	struct tools_program program;
};

static volatile pid_t program_pid; /* 0: it has ended */

static void trace_pass_signal(int sig)
{
	int saved = errno;

	if (program_pid > 0)
		kill(program_pid, sig);
	errno = saved;
}

/* --- the program ------------------------------------------------------------------------------ */

static int trace_become_program(const struct arguments *args, const char *dir)
{
	if (setenv("VERBATIM_TRACE", dir, 1) ||
	    (args->size && setenv("VERBATIM_TRACE_MIB", args->size, 1)))
		return CMD_FAILED;
	return tools_run_program(who, &args->program);
}

/*
 * An interrupt at the terminal is sent to the program anyway; others are passed on, for as long as
 * the number is the program's: until it is reaped.
 */
static int trace_wait_for(pid_t pid)
{
	struct sigaction pass = { .sa_handler = trace_pass_signal },
			 ignore = { .sa_handler = SIG_IGN };
	siginfo_t info = { 0 };
	int status = 0;

	program_pid = pid;
	sigaction(SIGINT, &ignore, NULL);
	sigaction(SIGQUIT, &ignore, NULL);
	sigaction(SIGTERM, &pass, NULL);
	sigaction(SIGHUP, &pass, NULL);
	while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) && errno == EINTR)
		;
	program_pid = 0;
	if (waitpid(pid, &status, 0) != pid)
		return CMD_FAILED;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Where our caller ignores the ends of its children, so does the program, but not this one. */
static pid_t start_program(const struct arguments *args, const char *dir)
{
	struct sigaction plain = { .sa_handler = SIG_DFL }, before;
	pid_t child;
	int code;

	sigaction(SIGCHLD, &plain, &before);
	child = fork();
	if (child)
		return child;
	sigaction(SIGCHLD, &before, NULL);
	code = trace_become_program(args, dir);
	fflush(NULL);
	_exit(code);
}

/* --- its notes -------------------------------------------------------------------------------- */

/* Maps a file, and removes its name. */
static bool trace_take_file(int dir, const char *name, struct trace_file *file)
{
	/* Without waiting, whatever the program put there. */
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	void *map = MAP_FAILED;

	unlinkat(dir, name, 0);
	if (fd < 0)
		return false;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0)
		map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return false;
	if (trace_open(file, map, (size_t)st.st_size))
		return true;
	munmap(map, (size_t)st.st_size);
	return false;
}

/* *tried: some process wanted to record. */
static size_t take_files(const char *path, struct trace_file *files, bool *tried)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	size_t count = 0, left = 0;

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		*tried = true;
		if (count == FILES_MAX)
			left += !unlinkat(dirfd(dir), entry->d_name, 0);
		else if (trace_take_file(dirfd(dir), entry->d_name, &files[count]))
			count++;
	}
	if (left)
		fprintf(stderr, "%s: %zu more processes are not shown\n", who, left);
	if (dir)
		closedir(dir);
	rmdir(path);
	return count;
}

static int by_pid(const void *a, const void *b)
{
	const struct trace_file *x = a, *y = b;

	return (x->head->pid > y->head->pid) - (x->head->pid < y->head->pid);
}

/* 0, or the exit code of what went wrong. */
static int write_output(const char *output, const char *dir)
{
	static struct trace_file files[FILES_MAX];
	bool tried = false;
	size_t count = take_files(dir, files, &tried);
	uint64_t lost = 0;
	FILE *out;
	int ret;

	if (!count) {
		fprintf(stderr, "%s: %s, so there is nothing to show\n", who,
			tried ? "nothing could be recorded" : "the program used no card of ours");
		return CMD_FAILED;
	}
	qsort(files, count, sizeof(*files), by_pid);
	out = fopen(output, "we");
	ret = out ? trace_write_json(out, files, count) : -errno;
	if (out && fclose(out) && !ret)
		ret = -errno;
	if (ret) {
		fprintf(stderr, "%s: %s: %s\n", who, output, strerror(-ret));
		return CMD_FAILED;
	}
	for (size_t i = 0; i < count; i++)
		lost += files[i].lost;
	if (lost)
		fprintf(stderr, "%s: %llu later events found no room; --size gives more\n", who,
			(unsigned long long)lost);
	if (isatty(STDERR_FILENO))
		fprintf(stderr,
			"%s: %s: open it at https://ui.perfetto.dev, or make a page of it: verbatim report %s\n",
			who, output, output);
	return 0;
}

/* --- the command ------------------------------------------------------------------------------ */

static error_t trace_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;
	char *end;

	switch (key) {
	case 'o':
		args->output = arg;
		return 0;
	case KEY_SIZE:
		if (strtoul(arg, &end, 10) < 1 || *end || strtoul(arg, NULL, 10) > 16384)
			argp_error(state, "--size: a number of MiB, from 1 to 16384");
		args->size = arg;
		return 0;
	}
	return tools_parse_program(key, arg, state, &args->program);
}

/* A directory beside the output, which the program can reach wherever it goes. */
static char *make_directory(const char *output)
{
	char *absolute, *dir = NULL, cwd[PATH_MAX];

	if (output[0] == '/')
		absolute = strdup(output);
	else if (!getcwd(cwd, sizeof(cwd)) || asprintf(&absolute, "%s/%s", cwd, output) < 0)
		absolute = NULL;
	if (absolute && asprintf(&dir, "%s.notes-XXXXXX", absolute) >= 0 && !mkdtemp(dir)) {
		fprintf(stderr, "%s: %s: %s\n", who, dir, strerror(errno));
		free(dir);
		dir = NULL;
	}
	free(absolute);
	return dir;
}

int cmd_trace(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "output", 'o', "FILE", 0, "Write to FILE (default: verbatim-trace.json)", 0 },
		{ "size", KEY_SIZE, "MIB", 0,
		  "Room for the events of one process, 32 bytes each (default: 64 MiB)", 0 },
		TOOLS_CONFIG_OPTION,
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = trace_parse_opt,
		.args_doc = "[--] PROGRAM [ARGUMENT...]",
		.doc = "Run PROGRAM on the adapters of Verbatim, and write a timeline of what happened: "
		       "calls, doorbells, work requests, packets, completions, device code."
		       "\vThe exit code is the program's, 128 and the signal's number where one ended it; "
		       "125 where Verbatim failed, 126 where the program cannot be executed, 127 where it "
		       "was not found.\n\n"
		       "Example: verbatim trace -o ping.json -- ibv_rc_pingpong localhost",
	};
	struct arguments args = { .output = "verbatim-trace.json" };
	char *dir;
	int code, failed;
	pid_t child;

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &args);
	dir = make_directory(args.output);
	if (!dir)
		return CMD_FAILED;
	child = start_program(&args, dir);
	code = child < 0 ? CMD_FAILED : trace_wait_for(child);
	failed = write_output(args.output, dir);
	free(dir);
	return code ? code : failed;
}

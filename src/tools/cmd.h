/* SPDX-License-Identifier: MIT */
/*
 * What the subcommands of `verbatim` share. Each is one file with one function, listed in
 * verbatim.c.
 */
#pragma once

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

enum {
	CMD_USAGE = 2,         /* the command line is wrong */
	CMD_FAILED = 125,      /* run: Verbatim itself failed, as env(1) and timeout(1) report it */
	CMD_CANNOT_EXEC = 126, /* run: the program is there but cannot be executed */
	CMD_NOT_FOUND = 127,   /* run: there is no such program */
};

/* A program that a subcommand starts: `[--config FILE] [--] PROGRAM [ARGUMENT...]`. */
struct tools_program {
	const char *config; /* or NULL */
	char **argv;
};

#define TOOLS_CONFIG_OPTION                                                          \
	{                                                                            \
		"config", 'c', "FILE", 0,                                            \
			"Take the adapters from FILE (default: $VERBATIM_CONFIG)", 0 \
	}

struct argp_state;

/* That part of a parser of options, which is used with ARGP_IN_ORDER. ARGP_ERR_UNKNOWN: the key is another. */
int tools_parse_program(int key, char *arg, struct argp_state *state,
			struct tools_program *program);
/*
 * Become the program, with our libraries in front of the system's. Returns only where that fails, with
 * the exit code, after a message that begins with who.
 */
int tools_run_program(const char *who, const struct tools_program *program);

/* argv[0] is "verbatim NAME". The return value is the exit code. */
int cmd_cable(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_dpa(int argc, char **argv);
int cmd_gdb(int argc, char **argv);
int cmd_inject(int argc, char **argv);
int cmd_perf(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_sdk(int argc, char **argv);
int cmd_stats(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_trace(int argc, char **argv);

/* What /proc says the process runs, "?" if nothing; the kernel cuts it at 15 characters. */
void tools_command_of(pid_t pid, char *name, size_t size);

/*
 * At the start of main(): closed standard descriptors do no harm, and standard output that was lost
 * ends the program with a message and exit code 1.
 */
void tools_guard_stdio(void);
/* Names and answers are the choice of the program that is asked, and a terminal might obey them: changes text. */
const char *tools_printable(char *text);
/* Standard output has just failed (errno): what that message then says, whatever is called before the end. */
void tools_stdout_failed(void);

/*
 * The path of a file of the tree that this executable stands in: PREFIX/bin/verbatim gives
 * PREFIX/<relative>. The tree may be moved: nothing of it is compiled in. 0, or -errno and what is
 * missing in path.
 */
int tools_path(char path[PATH_MAX], const char *relative);
/* A message that begins with who: that file is missing, and what may be the reason. */
void tools_missing(const char *who, const char *path, int err);

/*
 * Make VERBATIM_CONFIG an absolute path (to file, or to what it is already where file is NULL),
 * because the program may change its directory. 0 or -errno after a message that begins with who.
 */
int tools_use_config(const char *who, const char *file);

/* Put dir before what the variable, a list like PATH, has. 0 or -errno. */
int tools_prepend(const char *variable, const char *dir);

/*
 * LD_LIBRARY_PATH: our libraries, then what the user had. 0 or -errno after a message that begins
 * with who.
 */
int tools_put_libraries_first(const char *who);

/*
 * Make the files that the preload shows, and name them in the environment. -EINVAL: the
 * configuration is bad.
 */
int tools_show_files(const char *who);

/*
 * Execute the program. Returns only where that fails, with the exit code, after a message that
 * begins with who.
 */
int tools_become(const char *who, char **program);

/*
 * For vb_ask_open() of a program by its pid, which arg points to: have it listen. 0, -ESRCH: it has no
 * card open, or -errno.
 */
int tools_wake(void *arg);

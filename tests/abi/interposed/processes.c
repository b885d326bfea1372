// SPDX-License-Identifier: MIT
/* Children, limits, and system calls by number. */
#include "rows.h"

#include <pty.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef pid_t fork_function(void);

static void fork_well(fork_function *function)
{
	pid_t pid;

	errno = UNTOUCHED;
	pid = function();
	if (!pid)
		_exit(errno == UNTOUCHED ? 7 : 8);
	CALL(FLAG, pid > 0);
	say_child(pid);
}

static void fork_badly(fork_function *function)
{
	forbid_children();
	CALL(NUMBER, function());
}

#define FORK(name)                        \
	static void good_##name(void)     \
	{                                 \
		fork_well(named(#name));  \
	}                                 \
	static void bad_##name(void)      \
	{                                 \
		fork_badly(named(#name)); \
	}

FORK(fork)
FORK(_Fork)
FORK(__fork)

static int child(void *arg)
{
	return *(int *)arg;
}

static char stack[65536] __attribute__((aligned(16)));

static void good_clone(void)
{
	int code = 9;

	CALL(FLAG, clone(child, stack + sizeof(stack), SIGCHLD, &code) > 0);
	say("\t%d\n", wait(&code) > 0 ? WEXITSTATUS(code) : -1);
}

static void bad_clone(void)
{
	CALL(NUMBER, clone(NULL, stack + sizeof(stack), SIGCHLD, NULL));
	CALL(NUMBER, clone(child, NULL, SIGCHLD, NULL));
	CALL(NUMBER, clone(child, stack + sizeof(stack), CLONE_THREAD, NULL));
	forbid_children();
	CALL(NUMBER, clone(child, stack + sizeof(stack), SIGCHLD, NULL));
}

/* The rest is said by the one that is left. */
static void good_daemon(void)
{
	CALL(NUMBER, daemon(1, 1));
	say("\tin a session of its own: %s\n", getsid(0) == getpgid(0) ? "yes" : "no");
}

static void bad_daemon(void)
{
	forbid_children();
	CALL(NUMBER, daemon(1, 1));
}

static void good_forkpty(void)
{
	int master;
	pid_t pid = forkpty(&master, NULL, NULL, NULL);

	if (!pid)
		_exit(isatty(0) ? 3 : 4);
	CALL(FLAG, pid > 0);
	say_child(pid);
}

static void bad_forkpty(void)
{
	int master;

	forbid_children();
	CALL(NUMBER, forkpty(&master, NULL, NULL, NULL));
	CALL(NUMBER, close(dup(1)));
}

static void note_child(void)
{
	say("\thandler of a fork\n");
}

static void good___register_atfork(void)
{
	int (*add)(void (*)(void), void (*)(void), void (*)(void), void *) =
		named("__register_atfork");
	pid_t pid;

	CALL(NUMBER, add(note_child, NULL, NULL, NULL));
	pid = fork();
	if (!pid)
		_exit(0);
	say_child(pid);
}

/* --- system calls ----------------------------------------------------------------------------- */

static void good_syscall(void)
{
	pid_t pid;

	CALL(FLAG, syscall(SYS_getpid) == getpid());
	CALL(NUMBER, syscall(SYS_close, dup(1)));
	CALL(FLAG, syscall(SYS_gettid) > 0);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!pid)
		_exit(5);
	say_child(pid);
}

static void bad_syscall(void)
{
	CALL(NUMBER, syscall(9999));
	CALL(NUMBER, syscall(-1));
	CALL(NUMBER, syscall(SYS_close, -1));
	CALL(NUMBER, syscall(SYS_munmap, 1, 1));
	CALL(NUMBER, syscall(SYS_mmap, 0, 0, 0, 0, -1, 0));
	forbid_children();
	CALL(NUMBER, syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
}

/* --- limits ----------------------------------------------------------------------------------- */

static const int limits[] = { RLIMIT_NOFILE, RLIMIT_CORE,  RLIMIT_AS,
			      RLIMIT_DATA,   RLIMIT_FSIZE, RLIMIT_MEMLOCK };
enum { LIMITS = sizeof(limits) / sizeof(limits[0]) };

static void say_limit(int which)
{
	struct rlimit now;

	getrlimit(which, &now);
	say("\t%d: %ld %ld\n", which, (long)now.rlim_cur, (long)now.rlim_max);
}

typedef int setrlimit_function(int which, const struct rlimit *limit);

static void limit_well(setrlimit_function *function)
{
	for (int i = 0; i < LIMITS; i++) {
		struct rlimit limit;

		getrlimit(limits[i], &limit);
		if (limit.rlim_max > 1ul << 40)
			limit.rlim_cur = 1ul << 40;
		CALL(NUMBER, function(limits[i], &limit));
		say_limit(limits[i]);
	}
}

static void limit_badly(setrlimit_function *function)
{
	struct rlimit limit = { 2, 1 };

	CALL(NUMBER, function(RLIMIT_NOFILE, &limit));
	CALL(NUMBER, function(RLIMIT_AS, &limit));
	CALL(NUMBER, function(1000, &limit));
	CALL(NUMBER, function(-1, &limit));
	say_limit(RLIMIT_AS);
}

#define LIMIT(name)                        \
	static void good_##name(void)      \
	{                                  \
		limit_well(named(#name));  \
	}                                  \
	static void bad_##name(void)       \
	{                                  \
		limit_badly(named(#name)); \
	}

LIMIT(setrlimit)
LIMIT(setrlimit64)

typedef int prlimit_function(pid_t pid, int which, const struct rlimit *limit, struct rlimit *old);

static void prlimit_well(prlimit_function *function)
{
	for (int i = 0; i < LIMITS; i++) {
		struct rlimit limit, old;

		CALL(NUMBER, function(0, limits[i], NULL, &limit));
		if (limit.rlim_max > 1ul << 40)
			limit.rlim_cur = 1ul << 40;
		CALL(NUMBER, function(getpid(), limits[i], &limit, &old));
		say_limit(limits[i]);
		CALL(NUMBER, function(0, limits[i], NULL, NULL));
	}
}

static void prlimit_badly(prlimit_function *function)
{
	struct rlimit limit = { 2, 1 }, old;

	CALL(NUMBER, function(0, RLIMIT_AS, &limit, &old));
	CALL(NUMBER, function(0, 1000, NULL, &old));
	CALL(NUMBER, function(-1, RLIMIT_AS, NULL, &old));
}

#define PRLIMIT(name)                        \
	static void good_##name(void)        \
	{                                    \
		prlimit_well(named(#name));  \
	}                                    \
	static void bad_##name(void)         \
	{                                    \
		prlimit_badly(named(#name)); \
	}

PRLIMIT(prlimit)
PRLIMIT(prlimit64)

static const struct row rows[] = {
	ROW(fork),
	ROW(_Fork),
	ROW(__fork),
	ROW(clone),
	ROW(daemon),
	ROW(forkpty),
	ROW_GOOD(__register_atfork),
	ROW(syscall),
	ROW(setrlimit),
	ROW(setrlimit64),
	ROW(prlimit),
	ROW(prlimit64),
};
ROWS(process_rows, rows);

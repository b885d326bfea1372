// SPDX-License-Identifier: MIT
/* Children, limits, and system calls by number. */
#include "rows.h"

#include <grp.h>
#include <linux/capability.h>
#include <pty.h>
#include <sched.h>
#include <stdint.h>
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

/* --- users, groups and rights ----------------------------------------------------------------- */

int capset(cap_user_header_t header, const cap_user_data_t data);

static int put_caps(uint32_t caps)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = { { caps, caps, 0 } };

	return capset(&header, data);
}

static void say_ids(void)
{
	uid_t user[3];
	gid_t group[3];

	getresuid(&user[0], &user[1], &user[2]);
	getresgid(&group[0], &group[1], &group[2]);
	say("\tusers %u %u %u, groups %u %u %u and %d\n", user[0], user[1], user[2], group[0],
	    group[1], group[2], getgroups(0, NULL));
}

enum { OTHER = 65534 };

/* As root it becomes another, as another user it stays what it is; then 0 is refused. */
#define IDS(name, good_call, bad_call)   \
	static void good_##name(void)    \
	{                                \
		CALL(NUMBER, good_call); \
		say_ids();               \
	}                                \
	static void bad_##name(void)     \
	{                                \
		put_caps(0);             \
		CALL(NUMBER, bad_call);  \
		say_ids();               \
	}

static gid_t some_groups[] = { 1, 2, 3 };

IDS(setuid, setuid(geteuid() ? geteuid() : OTHER), setuid(12345))
IDS(setgid, setgid(geteuid() ? getegid() : OTHER), setgid(12345))
IDS(seteuid, seteuid(geteuid() ? geteuid() : OTHER), seteuid((uid_t)-1))
IDS(setegid, setegid(geteuid() ? getegid() : OTHER), setegid((gid_t)-1))
IDS(setreuid, setreuid((uid_t)-1, geteuid() ? geteuid() : OTHER), setreuid(12345, 12345))
IDS(setregid, setregid((gid_t)-1, geteuid() ? getegid() : OTHER), setregid(12345, 12345))
IDS(setresuid, setresuid((uid_t)-1, (uid_t)-1, (uid_t)-1), setresuid(12345, 1, 2))
IDS(setresgid, setresgid((gid_t)-1, (gid_t)-1, (gid_t)-1), setresgid(12345, 1, 2))
IDS(setgroups, setgroups(3, some_groups), setgroups(3, some_groups))
IDS(initgroups, initgroups("root", 7), initgroups("root", 7))

static void good_capset(void)
{
	CALL(NUMBER, put_caps(0));
}

static void bad_capset(void)
{
	struct __user_cap_header_struct header = { 1, 0 };

	put_caps(0);
	CALL(NUMBER, put_caps(1 << CAP_CHOWN));
	CALL(NUMBER, capset(NULL, NULL));
	CALL(NUMBER, capset(&header, NULL));
	say("\t%x\n", header.version);
}

static const struct row rows[] = {
	ROW(setuid),     ROW(setgid),    ROW(seteuid),
	ROW(setegid),    ROW(setreuid),  ROW(setregid),
	ROW(setresuid),  ROW(setresgid), ROW(setgroups),
	ROW(initgroups), ROW(capset),    ROW(fork),
	ROW(_Fork),      ROW(__fork),    ROW(clone),
	ROW(daemon),     ROW(forkpty),   ROW_GOOD(__register_atfork),
	ROW(syscall),    ROW(setrlimit), ROW(setrlimit64),
	ROW(prlimit),    ROW(prlimit64),
};
ROWS(process_rows, rows);

// SPDX-License-Identifier: MIT
/* Handlers and masks. SIGSEGV and SIGBUS are in most of the sets: Verbatim keeps these two for itself. */
#include "rows.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

sighandler_t bsd_signal(int sig, sighandler_t handler);

static const int some[] = { SIGUSR1, SIGSEGV, SIGBUS };
enum { SOME = sizeof(some) / sizeof(some[0]), LIBC_FIRST = 32, LIBC_SECOND = 33 };

static void handler(int sig)
{
}

static void full(sigset_t *set)
{
	memset(set, 0xff, sizeof(*set));
}

static void say_mask(void)
{
	sigset_t now;

	CALL(NUMBER, sigprocmask(SIG_BLOCK, NULL, &now));
	say_set("mask", &now);
}

static void say_action_of(int sig)
{
	struct sigaction now;

	CALL(NUMBER, sigaction(sig, NULL, &now));
	say_action("action", &now);
}

/* --- handlers --------------------------------------------------------------------------------- */

static void good_sigaction(void)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK }, old;

	full(&act.sa_mask);
	for (int i = 0; i < SOME; i++) {
		int sig = some[i];

		CALL(NUMBER, sigaction(sig, &act, &old));
		say_action("before", &old);
		CALL(NUMBER, sigaction(sig, NULL, &old));
		say_action("now", &old);
		act.sa_handler = SIG_DFL;
		CALL(NUMBER, sigaction(sig, &act, NULL));
		say_action_of(sig);
		CALL(NUMBER, sigaction(sig, NULL, NULL));
		act.sa_handler = handler;
	}
}

static void bad_sigaction(void)
{
	static const int numbers[] = { 0, -1, 65, 1000, SIGKILL, SIGSTOP, LIBC_FIRST, LIBC_SECOND };
	struct sigaction act = { .sa_handler = handler }, old;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		CALL(NUMBER, sigaction(numbers[i], &act, &old));
		CALL(NUMBER, sigaction(numbers[i], NULL, NULL));
	}
}

static const char *handler_name(sighandler_t h)
{
	return h == SIG_DFL    ? "SIG_DFL"
	       : h == SIG_IGN  ? "SIG_IGN"
	       : h == SIG_ERR  ? "SIG_ERR"
	       : h == SIG_HOLD ? "SIG_HOLD"
	       : h == handler  ? "handler"
			       : "another";
}

typedef sighandler_t signal_function(int sig, sighandler_t handler);

/* The result is a pointer that is told by name; errno by CALL. */
static void set_one(const char *name, signal_function *function, int sig, sighandler_t h)
{
	sighandler_t before;

	CALL(NUMBER, ((void)(before = function(sig, h)), 0));
	say("\t%s(%d, %s) = %s\n", name, sig, handler_name(h), handler_name(before));
}

static void set_some(const char *name, signal_function *function)
{
	for (int i = 0; i < SOME; i++) {
		set_one(name, function, some[i], handler);
		say_action_of(some[i]);
		set_one(name, function, some[i], SIG_IGN);
		set_one(name, function, some[i], SIG_DFL);
		say_action_of(some[i]);
	}
	siginterrupt(SIGUSR2, 1);
	set_one(name, function, SIGUSR2, handler);
	say_action_of(SIGUSR2);
	siginterrupt(SIGUSR2, 0);
	say_action_of(SIGUSR2);
	set_one(name, function, SIGUSR2, handler);
	say_action_of(SIGUSR2);
}

static void set_wrong(const char *name, signal_function *function)
{
	static const int numbers[] = { 0, -1, 65, SIGKILL, LIBC_FIRST, LIBC_SECOND };

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		set_one(name, function, numbers[i], handler);
	set_one(name, function, SIGUSR1, SIG_ERR);
}

#define SIGNAL(name)                            \
	static void good_##name(void)           \
	{                                       \
		set_some(#name, named(#name));  \
	}                                       \
	static void bad_##name(void)            \
	{                                       \
		set_wrong(#name, named(#name)); \
	}

SIGNAL(signal)
SIGNAL(bsd_signal)
SIGNAL(ssignal)
SIGNAL(sysv_signal)
SIGNAL(__sysv_signal)
SIGNAL(sigset)

static void good_siginterrupt(void)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = SA_RESTART };

	for (int i = 0; i < SOME; i++) {
		CALL(NUMBER, sigaction(some[i], &act, NULL));
		CALL(NUMBER, siginterrupt(some[i], 1));
		say_action_of(some[i]);
		CALL(NUMBER, siginterrupt(some[i], 0));
		say_action_of(some[i]);
	}
}

static void bad_siginterrupt(void)
{
	CALL(NUMBER, siginterrupt(0, 1));
	CALL(NUMBER, siginterrupt(65, 1));
	CALL(NUMBER, siginterrupt(SIGKILL, 1));
	CALL(NUMBER, siginterrupt(LIBC_FIRST, 1));
}

static void good_sigignore(void)
{
	for (int i = 0; i < SOME; i++) {
		CALL(NUMBER, sigignore(some[i]));
		say_action_of(some[i]);
	}
}

static void bad_sigignore(void)
{
	CALL(NUMBER, sigignore(0));
	CALL(NUMBER, sigignore(65));
	CALL(NUMBER, sigignore(SIGSTOP));
	CALL(NUMBER, sigignore(LIBC_SECOND));
}

/* --- masks ------------------------------------------------------------------------------------ */

typedef int mask_function(int how, const sigset_t *set, sigset_t *old);

static void *act_as_user(void *arg)
{
	CALL(NUMBER, setuid(getuid()));
	return arg;
}

/* libc asks every thread to do its part, by signals that none may block. */
static void change_user(void)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, act_as_user, NULL))
		pthread_join(thread, NULL);
}

static void change_mask(mask_function *function)
{
	static const int hows[] = { SIG_BLOCK, SIG_UNBLOCK, SIG_SETMASK };
	sigset_t set, old;

	for (size_t i = 0; i < sizeof(hows) / sizeof(hows[0]); i++) {
		sigemptyset(&set);
		for (int n = 0; n < SOME; n++)
			sigaddset(&set, some[n]);
		CALL(NUMBER, function(hows[i], &set, &old));
		say_set("before", &old);
		CALL(NUMBER, function(hows[i], &set, NULL));
		say_mask();
	}
	full(&set);
	CALL(NUMBER, function(SIG_BLOCK, &set, &old));
	say_set("before", &old);
	say_mask();
	change_user();
	CALL(NUMBER, function(SIG_SETMASK, &set, &old));
	say_mask();
	change_user();
	CALL(NUMBER, function(SIG_BLOCK, NULL, NULL));
	CALL(NUMBER, function(1234, NULL, &old)); /* without a set it does not matter how */
	say_set("asked", &old);
	CALL(NUMBER, function(SIG_UNBLOCK, &set, &old));
	say_mask();
}

/* What is not the kernel's part of a set stays as it was: the caller may have no more. */
static void change_small(mask_function *function)
{
	sigset_t set;

	full(&set);
	CALL(NUMBER, function(SIG_BLOCK, NULL, &set));
	for (size_t i = sizeof(uint64_t); i < sizeof(set); i++)
		if (((unsigned char *)&set)[i] != 0xff) {
			say("\tbyte %zu was written\n", i);
			return;
		}
}

static void change_wrongly(mask_function *function)
{
	sigset_t set, old;

	sigemptyset(&set);
	CALL(NUMBER, function(-1, &set, &old));
	CALL(NUMBER, function(3, &set, NULL));
	full(&set);
	CALL(NUMBER, function(77, &set, &old));
	say_mask();
}

static void good_sigprocmask(void)
{
	change_mask(sigprocmask);
	change_small(sigprocmask);
}

static void bad_sigprocmask(void)
{
	change_wrongly(sigprocmask);
}

static void good_pthread_sigmask(void)
{
	change_mask(pthread_sigmask);
	change_small(pthread_sigmask);
}

static void bad_pthread_sigmask(void)
{
	change_wrongly(pthread_sigmask);
}

#define EACH_SIGNAL(name)                            \
	static void good_##name(void)                \
	{                                            \
		for (int i = 0; i < SOME; i++) {     \
			CALL(NUMBER, name(some[i])); \
			say_mask();                  \
		}                                    \
		CALL(NUMBER, name(SIGKILL));         \
		say_mask();                          \
	}                                            \
	static void bad_##name(void)                 \
	{                                            \
		CALL(NUMBER, name(0));               \
		CALL(NUMBER, name(-1));              \
		CALL(NUMBER, name(65));              \
		CALL(NUMBER, name(LIBC_FIRST));      \
		say_mask();                          \
	}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
EACH_SIGNAL(sighold)
EACH_SIGNAL(sigrelse)

static void good_sigblock(void)
{
	CALL(NUMBER, sigblock((int)(1u << (SIGSEGV - 1) | 1u << (SIGUSR1 - 1))));
	say_mask();
	CALL(NUMBER, sigblock(-1));
	say_mask();
	change_user();
	CALL(NUMBER, sigblock(0));
}

static void good_sigsetmask(void)
{
	CALL(NUMBER, sigsetmask(-1));
	say_mask();
	change_user();
	CALL(NUMBER, sigsetmask((int)(1u << (SIGBUS - 1))));
	say_mask();
	CALL(NUMBER, sigsetmask(0));
	say_mask();
}

/* arg: the end of a pipe to wait at. A thread starts without the two signals that Verbatim keeps. */
static void *say_own_mask(void *arg)
{
	sigset_t now;
	char byte;

	if (read(*(int *)arg, &byte, 1) < 0)
		return NULL;
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	sigdelset(&now, SIGSEGV);
	sigdelset(&now, SIGBUS);
	say_set("thread's mask", &now);
	return arg;
}

static void good_pthread_attr_setsigmask_np(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t set;
	int ends[2];

	full(&set);
	pthread_attr_init(&attr);
	CALL(NUMBER, pthread_attr_setsigmask_np(&attr, &set));
	if (!pipe(ends) && !pthread_create(&thread, &attr, say_own_mask, ends)) {
		change_user();
		close(ends[1]);
		pthread_join(thread, NULL);
	}
	CALL(NUMBER, pthread_attr_setsigmask_np(&attr, NULL));
	CALL(NUMBER, pthread_attr_destroy(&attr));
}

static void good_prctl(void)
{
	char name[16] = "";

	CALL(NUMBER, prctl(PR_SET_NAME, "a name"));
	CALL(NUMBER, prctl(PR_GET_NAME, name));
	say("\t%s\n", name);
	CALL(NUMBER, prctl(PR_GET_DUMPABLE));
	CALL(NUMBER, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CALL(NUMBER, prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
}

static void bad_prctl(void)
{
	CALL(NUMBER, prctl(12345, 0, 0, 0, 0));
	CALL(NUMBER, prctl(PR_SET_DUMPABLE, 77, 0, 0, 0));
	CALL(NUMBER, prctl(PR_GET_NAME, 1, 0, 0, 0));
}

static const struct row rows[] = {
	ROW(sigaction),       ROW(signal),
	ROW(bsd_signal),      ROW(ssignal),
	ROW(sysv_signal),     ROW(__sysv_signal),
	ROW(sigset),          ROW(siginterrupt),
	ROW(sigignore),       ROW(sigprocmask),
	ROW(pthread_sigmask), ROW(sighold),
	ROW(sigrelse),        ROW_GOOD(sigblock),
	ROW_GOOD(sigsetmask), ROW_GOOD(pthread_attr_setsigmask_np),
	ROW(prctl),
};
ROWS(signal_rows, rows);

// SPDX-License-Identifier: MIT
/*
 * Threads that fork while their stack lies in memory that is born shared: coroutines, stacks that the
 * program gave to a thread or to signals. The child goes on where it is, on memory of its own, and
 * nobody else notices.
 *
 * usage: stacks NAME
 */
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "cases.h"

extern pid_t _Fork(void);
extern pid_t __fork(void);

/* --- every call that forks -------------------------------------------------------------------- */

static pid_t by_syscall(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static pid_t by_clone3(void)
{
	uint64_t args[8] = { 0, 0, 0, 0, SIGCHLD };

	return (pid_t)syscall(SYS_clone3, args, sizeof(args));
}

static pid_t by_forkpty(void)
{
	static int before = -1;
	int master = -1;
	pid_t pid = forkpty(&master, NULL, NULL, NULL);

	if (pid > 0) {
		if (before >= 0)
			close(before); /* a terminal that is gone ends its child */
		before = master;
	}
	return pid;
}

/* What libc forks inside itself; the daemon's end is heard by a pipe. */
static pid_t by_daemon(void)
{
	int fds[2];
	char end;
	pid_t pid;

	CHECK(!pipe(fds));
	pid = fork();
	if (!pid) {
		CHECK(!daemon(1, 1));
		close(fds[0]);
		return 0;
	}
	CHECK(pid > 0);
	close(fds[1]);
	CHECK(!read(fds[0], &end, 1));
	close(fds[0]);
	return pid;
}

static pid_t (*const all_calls[])(void) = { fork,      _Fork,      __fork,   by_syscall,
					    by_clone3, by_forkpty, by_daemon };
enum { CALLS = sizeof(all_calls) / sizeof(all_calls[0]) };

/* Frames one above the other, each checked on the way back. */
static int climb(int depth)
{
	volatile char here[2048];
	int sum = 0;

	memset((char *)here, depth, sizeof(here));
	if (depth)
		sum = climb(depth - 1);
	CHECK(are((char *)here, (char)depth, sizeof(here)));
	return sum + depth;
}

static pid_t (*volatile call)(void);

static void fork_on_this_stack(void)
{
	volatile char here[4096];
	pid_t pid;

	for (int i = 0; i < 5; i++) {
		memset((char *)here, i, sizeof(here));
		pid = call();
		CHECK(pid >= 0);
		if (!pid) {
			CHECK(are((char *)here, (char)i, sizeof(here)));
			memset((char *)here, 99, sizeof(here));
			CHECK(climb(40) == 820);
			usleep(1000);
			CHECK(are((char *)here, 99, sizeof(here)));
			_exit(0);
		}
		CHECK(are((char *)here, (char)i, sizeof(here)));
		memset((char *)here, 55, sizeof(here));
		CHECK(climb(40) == 820);
		CHECK(!wait_for(pid));
		CHECK(are((char *)here, 55, sizeof(here)));
	}
}

static void run_on(char *stack, size_t len, void (*function)(void))
{
	ucontext_t here, there;

	CHECK(!getcontext(&there));
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = len;
	there.uc_link = &here;
	makecontext(&there, function, 0);
	CHECK(!swapcontext(&here, &there));
}

static void calls(void)
{
	char *stack = malloc(LARGE);

	CHECK(memory_test_is_shown(stack, LARGE));
	for (int i = 0; i < CALLS; i++) {
		call = all_calls[i];
		run_on(stack, LARGE, fork_on_this_stack);
		CHECK(memory_test_is_shown(stack, LARGE));
	}
	free(stack);
}

/* What lies beside the stack, and the stack itself, stays what it is. */
static void beside(void)
{
	int rw = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
	char *before = mmap(NULL, LARGE, rw, anonymous, -1, 0);
	char *stack = mmap(NULL, LARGE, rw, anonymous, -1, 0);
	char *after = mmap(NULL, LARGE, rw, anonymous, -1, 0);

	call = fork;
	CHECK(stack == before + LARGE && after == stack + LARGE);
	run_on(stack, LARGE, fork_on_this_stack);
	CHECK(memory_test_is_shown(before, 3 * LARGE));
	/* a guard as libraries of coroutines have it, and a page of the stack that is private */
	CHECK(!mprotect(stack, PAGE, PROT_NONE));
	CHECK(mmap(stack + LARGE - 2 * PAGE, PAGE, rw, anonymous | MAP_FIXED, -1, 0) ==
	      stack + LARGE - 2 * PAGE);
	run_on(stack, LARGE, fork_on_this_stack);
	CHECK(memory_test_is_shown(stack + LARGE / 2, LARGE / 4));
}

static void *in_thread(void *arg)
{
	fork_on_this_stack();
	return arg;
}

/* Stacks of threads. Those that come by the old name are seen only when the thread forks. */
static void threads(void)
{
	int (*set_address)(pthread_attr_t *, void *) =
		(int (*)(pthread_attr_t *, void *))dlsym(RTLD_DEFAULT, "pthread_attr_setstackaddr");
	pthread_attr_t attr;
	pthread_t thread;
	void *stack;

	CHECK(set_address);
	for (int i = 0; i < CALLS; i++) {
		call = all_calls[i];
		CHECK(!posix_memalign(&stack, PAGE, LARGE) && !pthread_attr_init(&attr));
		CHECK(!pthread_attr_setstack(&attr, stack, LARGE));
		CHECK(!pthread_create(&thread, &attr, in_thread, NULL));
		CHECK(!pthread_join(thread, NULL));
		CHECK(!posix_memalign(&stack, PAGE, 2 * LARGE) && !pthread_attr_init(&attr));
		CHECK(!pthread_attr_setstacksize(&attr, LARGE));
		CHECK(!set_address(&attr, (char *)stack + 2 * LARGE));
		CHECK(!pthread_create(&thread, &attr, in_thread, NULL));
		CHECK(!pthread_join(thread, NULL));
	}
}

/* --- signals ---------------------------------------------------------------------------------- */

static volatile sig_atomic_t inner;

static void on_outer(int sig)
{
	(void)sig;
	fork_on_this_stack();
}

static void on_inner(int sig)
{
	char here[3000];

	(void)sig;
	memset(here, 77, sizeof(here));
	inner += are(here, 77, sizeof(here));
}

static void raise_inner(void)
{
	CHECK(!raise(SIGUSR2));
}

/* A handler forks on the stack of signals, and meanwhile the next signal comes. */
static void signals(void)
{
	struct sigaction outer_act = { .sa_handler = on_outer, .sa_flags = SA_ONSTACK };
	struct sigaction inner_act = { .sa_handler = on_inner, .sa_flags = SA_ONSTACK };
	stack_t stack = { .ss_sp = malloc(LARGE), .ss_size = LARGE }, now;

	CHECK(!pthread_atfork(raise_inner, raise_inner, raise_inner));
	CHECK(!sigaltstack(&stack, NULL) && !sigaction(SIGUSR1, &outer_act, NULL) &&
	      !sigaction(SIGUSR2, &inner_act, NULL));
	call = fork;
	CHECK(!raise(SIGUSR1));
	CHECK(inner == 10);
	CHECK(!sigaltstack(NULL, &now) && now.ss_sp == stack.ss_sp && !now.ss_flags);
	CHECK(memory_test_is_shown(stack.ss_sp, LARGE));
	/* and from a coroutine, with the stack of signals free */
	inner = 0;
	run_on(malloc(LARGE), LARGE, fork_on_this_stack);
	CHECK(inner == 10);
}

/* --- who asks where he is --------------------------------------------------------------------- */

static void *caller;
static volatile int found;

static void look_back(void)
{
	void *frames[64];
	int count = backtrace(frames, 64);

	for (int i = 0; i < count; i++)
		found += frames[i] == caller;
}

__attribute__((noinline)) static void fork_and_return(void)
{
	pid_t pid;

	caller = __builtin_return_address(0);
	pid = fork();
	if (!pid)
		_exit(found == 2 ? 0 : 1);
	CHECK(pid > 0 && !wait_for(pid) && found == 2);
}

static void call_and_return(void)
{
	fork_and_return();
	CHECK(caller);
}

/* Backtraces in handlers lead to the caller, over the change of stacks. */
static void backtraces(void)
{
	CHECK(!pthread_atfork(look_back, look_back, look_back));
	run_on(malloc(LARGE), LARGE, call_and_return);
	CHECK(found == 2);
}

/* --- two threads on stacks of one block ------------------------------------------------------- */

enum { FORKS = 60 };

static atomic_bool done;
static _Atomic unsigned long turns;

/* Writes its stack all the time; what it has written is what it finds. */
static void turn(void)
{
	volatile unsigned long here[512];

	for (unsigned long n = 1; !atomic_load(&done); n++) {
		for (int i = 0; i < 512; i++)
			here[i] = n + (unsigned long)i;
		CHECK(climb(3) == 6);
		for (int i = 0; i < 512; i++)
			CHECK(here[i] == n + (unsigned long)i);
		atomic_store(&turns, n);
	}
}

static char *block;

static void *turn_in_thread(void *arg)
{
	run_on(block, LARGE, turn);
	return arg;
}

static ucontext_t scheduler, first, second;
static volatile int order;

static void other(void)
{
	CHECK(climb(20) == 210);
	order++;
	CHECK(!swapcontext(&second, &first));
	CHECK(climb(20) == 210);
	order++;
}

/* A child that goes on with both of its coroutines, to their ends. */
static void fork_and_go_on(void)
{
	volatile char here[1000];
	pid_t pid;

	for (int i = 0; i < FORKS; i++) {
		unsigned long before = atomic_load(&turns);

		memset((char *)here, i, sizeof(here));
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			CHECK(!swapcontext(&first, &second));
			CHECK(order == 1 && are((char *)here, (char)i, sizeof(here)));
			return; /* by uc_link: the child's scheduler ends it */
		}
		CHECK(!wait_for(pid));
		while (atomic_load(&turns) == before)
			sched_yield();
	}
}

static void coroutines(void)
{
	ucontext_t *all[2] = { &first, &second };
	pid_t self = getpid();
	pthread_t thread;

	block = malloc(3 * LARGE);
	CHECK(memory_test_is_shown(block, 3 * LARGE));
	CHECK(!pthread_create(&thread, NULL, turn_in_thread, NULL));
	for (int i = 0; i < 2; i++) {
		CHECK(!getcontext(all[i]));
		all[i]->uc_stack.ss_sp = block + (i + 1) * LARGE;
		all[i]->uc_stack.ss_size = LARGE;
		all[i]->uc_link = &scheduler;
	}
	makecontext(&first, fork_and_go_on, 0);
	makecontext(&second, other, 0);
	CHECK(!swapcontext(&scheduler, &first));
	if (getpid() != self) {
		CHECK(!swapcontext(&scheduler, &second) && order == 2);
		_exit(0);
	}
	atomic_store(&done, true);
	CHECK(!pthread_join(thread, NULL));
	CHECK(memory_test_is_shown(block, 3 * LARGE));
}

/* --- clone ------------------------------------------------------------------------------------ */

static int in_clone(void *arg)
{
	CHECK(are(arg, 1, LARGE));
	memset(arg, 2, LARGE);
	CHECK(climb(40) == 820);
	return 42;
}

static char *clone_block;

static void clone_on_this_stack(void)
{
	char *stack = malloc(LARGE);
	int flags[] = { SIGCHLD, SIGCHLD | CLONE_FILES };

	for (int i = 0; i < 6; i++) {
		int pid = clone(in_clone, stack + LARGE, flags[i % 2], clone_block), status;

		CHECK(pid > 0 && climb(40) == 820);
		status = wait_for(pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42 && are(clone_block, 1, LARGE));
		CHECK(memory_test_is_shown(stack, LARGE));
		CHECK(fcntl(memory_test_fd(), F_GETFD) >= 0);
	}
	free(stack);
}

static void clones(void)
{
	char *stack = malloc(LARGE);

	clone_block = malloc(LARGE);
	memset(clone_block, 1, LARGE);
	run_on(stack, LARGE, clone_on_this_stack);
	CHECK(memory_test_is_shown(stack, LARGE));
}

static const struct test_case cases[] = {
	{ "calls", calls, 1 },           { "beside", beside, 1 },         { "threads", threads, 1 },
	{ "signals", signals, 1 },       { "coroutines", coroutines, 1 }, { "clones", clones, 1 },
	{ "backtraces", backtraces, 1 },
};

int main(int argc, char **argv)
{
	return run_case(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}

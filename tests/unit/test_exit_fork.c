// SPDX-License-Identifier: MIT
/*
 * exit() of one thread beside fork() of another: the fork ends as every other one, and its child may use the card. Libraries leave
 * libc's list of fork handlers at exit(), while a walk over that list is under way: those of ours are not among them.
 *
 *	usage: test_exit_fork LIBIBVERBS LATE
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define need(what)                                                                 \
	do {                                                                       \
		if (!(what)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
			_exit(1);                                                  \
		}                                                                  \
	} while (0)

enum { LIMIT = 60, STEP_US = 1000, STEPS = 10000 };

static char **names;
static atomic_bool late;
static pthread_barrier_t begin;
static void *library;

/* Opens the first device and closes it again. */
static void use_card(void)
{
	void **(*get_list)(int *) = (__typeof__(get_list))dlsym(library, "ibv_get_device_list");
	void *(*open)(void *) = (__typeof__(open))dlsym(library, "ibv_open_device");
	int (*close)(void *) = (__typeof__(close))dlsym(library, "ibv_close_device");
	void **list, *context;

	need(get_list && open && close);
	list = get_list(NULL);
	need(list && list[0]);
	context = open(list[0]);
	need(context && !close(context));
}

/* Called by the destructor of LATE, which was loaded last: all others have run. exit() goes no further. */
static void exit_is_late(void)
{
	atomic_store(&late, true);
	for (;;)
		pause();
}

/* Until the destructors have run, and with them what takes fork handlers away. */
static void wait_for_destructors(void)
{
	/* Older versions of libc keep exit() waiting for the fork: this one goes on, then. */
	for (int i = 0; i < STEPS && !atomic_load(&late); i++)
		usleep(STEP_US);
}

static void program_prepare(void)
{
	pthread_barrier_wait(&begin);
	wait_for_destructors();
}

static void *fork_beside(void *arg)
{
	int status = -1;
	pid_t pid = fork();

	need(pid >= 0);
	if (!pid) {
		sigset_t mask;

		alarm(LIMIT);
		need(!pthread_sigmask(SIG_BLOCK, NULL, &mask) && !sigismember(&mask, SIGUSR1));
		use_card();
		_exit(0);
	}
	need(waitpid(pid, &status, 0) == pid);
	_exit(status ? 2 : 0);
}

static void load(void)
{
	void (**at_last)(void);
	void *last;

	library = dlopen(names[0], RTLD_NOW);
	last = dlopen(names[1], RTLD_NOW);
	need(library && last);
	at_last = dlsym(last, "late_exit_call");
	need(at_last);
	*at_last = exit_is_late;
	use_card();
}

/* first: the program's handler is older than those of the library, and so is called after them before a fork. */
static int exit_beside(int first)
{
	int status = -1;
	pid_t pid = fork();

	need(pid >= 0);
	if (!pid) {
		pthread_t thread;

		alarm(LIMIT);
		need(!pthread_barrier_init(&begin, NULL, 2));
		if (!first)
			load();
		need(!pthread_atfork(program_prepare, NULL, NULL));
		if (first)
			load();
		need(!pthread_create(&thread, NULL, fork_beside, NULL));
		pthread_barrier_wait(&begin);
		exit(3);
	}
	need(waitpid(pid, &status, 0) == pid);
	if (status)
		fprintf(stderr, "handler %s: status %x\n", first ? "before" : "after", status);
	return status;
}

int main(int argc, char **argv)
{
	int wrong;

	need(argc == 3);
	names = argv + 1;
	wrong = exit_beside(0);
	wrong |= exit_beside(1);
	return wrong ? 1 : 0;
}

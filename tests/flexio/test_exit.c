// SPDX-License-Identifier: MIT
/*
 * exit() in a signal handler that came in the middle of a call, at each allocation that the call makes: what libflexio does at exit,
 * and what destructors of the program ask it for, waits for no lock that this thread has itself.
 */
#include "bed.h"

#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../programs/common.h"

enum { LIMIT_S = 20, MOST = 200 };

/* libc's own, behind the names that are ours here. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);

static _Atomic(int)
	left; /* allocations of the main thread until the signal comes; 0: it does not */
static pthread_t main_thread;
static bool came;

static void arrive(void)
{
	if (!left || !pthread_equal(pthread_self(), main_thread) || --left)
		return;
	came = true;
	raise(SIGUSR1);
}

__attribute__((visibility("default"))) void *malloc(size_t size)
{
	arrive();
	return __libc_malloc(size);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	arrive();
	return __libc_calloc(n, size);
}

static void exit_in_handler(int sig)
{
	(void)sig;
	exit(3);
}

/* As the code that dpacc makes. */
__attribute__((destructor)) static void destroy_app(void)
{
	if (bed_app)
		flexio_app_destroy(bed_app);
}

static void list_apps(struct flexio_process *process)
{
	struct flexio_app **list;
	uint32_t count = 0;

	(void)process;
	check_eq(flexio_app_get_list(&list, &count), FLEXIO_STATUS_SUCCESS);
}

static void call(struct flexio_process *process)
{
	check_eq(bed_value(process, "add_one", 1), 2);
}

/* 3: it has exited at the nth allocation; 0: there are fewer. */
static int exit_at(int n, int argc, char **argv, bool has_process,
		   void (*function)(struct flexio_process *process))
{
	struct flexio_process *process;
	int status = -1;
	pid_t pid = fork();

	check(pid >= 0, "no process");
	if (!pid) {
		alarm(LIMIT_S);
		main_thread = pthread_self();
		bed_init(argc, argv);
		process = has_process ? bed_process() : NULL;
		signal(SIGUSR1, exit_in_handler);
		left = n;
		function(process);
		left = 0;
		_exit(came ? 3 : 0);
	}
	check_eq(waitpid(pid, &status, 0), pid);
	check(WIFEXITED(status) && (WEXITSTATUS(status) == 3 || !WEXITSTATUS(status)),
	      "at allocation %d: wait status %#x", n, status);
	return WEXITSTATUS(status);
}

static void exit_at_each(int argc, char **argv, bool has_process,
			 void (*function)(struct flexio_process *process))
{
	int n = 1;

	while (n < MOST && exit_at(n, argc, argv, has_process, function))
		n++;
	check(n > 1 && n < MOST, "%d allocations", n);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/exit-XXXXXX";

	/* A sample of each instruction: the calling thread, which runs the call, takes them. */
	check(mkdtemp(dir) && !setenv("VERBATIM_DPA_PROFILE", dir, 1) &&
		      !setenv("VERBATIM_DPA_PROFILE_PERIOD", "1", 1),
	      "no directory for profiles");
	exit_at_each(argc, argv, false, list_apps);
	exit_at_each(argc, argv, true, list_apps);
	exit_at_each(argc, argv, true, call);
	check_eq(nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
	return 0;
}

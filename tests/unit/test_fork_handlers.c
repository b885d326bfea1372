// SPDX-License-Identifier: MIT
/*
 * A program has handlers of forks of its own, and has registered them before it loads libibverbs: they are called in the middle of
 * ours. They close a device before the fork and open it again in parent and child, open one more, or close in the child what the
 * parent has open.
 *
 *	usage: test_fork_handlers LIBIBVERBS
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

enum { LIMIT = 60, FORKS = 20 };

enum mode { NOTHING, REOPENS, ADDS, CLOSES_INHERITED, FORKS_INSIDE, MODES };

static void *(*open_device)(void *);
static int (*close_device)(void *);
static void **list, *context, *added;
static enum mode mode;

static void in_prepare(void)
{
	pid_t pid;
	int status = -1;

	if (mode == REOPENS) {
		need(!close_device(context));
		context = NULL;
	} else if (mode == ADDS) {
		added = open_device(list[0]);
		need(added);
	} else if (mode == FORKS_INSIDE) {
		mode = NOTHING;
		pid = fork();
		if (!pid) {
			added = open_device(list[0]);
			need(added && !close_device(added));
			_exit(0);
		}
		need(waitpid(pid, &status, 0) == pid && !status);
		mode = FORKS_INSIDE;
	}
}

static void in_parent(void)
{
	if (mode == REOPENS)
		context = open_device(list[0]);
	else if (mode == ADDS)
		need(!close_device(added));
}

static void in_child(void)
{
	if (mode == CLOSES_INHERITED)
		need(!close_device(context));
	if (mode == CLOSES_INHERITED || mode == REOPENS)
		context = open_device(list[0]);
	else if (mode == ADDS)
		need(!close_device(added));
}

static void use_card(void)
{
	void *other = open_device(list[0]);
	sigset_t mask;

	need(other && !close_device(other));
	need(!pthread_sigmask(SIG_BLOCK, NULL, &mask) && !sigismember(&mask, SIGUSR1));
}

static void fork_once(void)
{
	int status = -1;
	pid_t pid = fork();

	need(pid >= 0);
	if (!pid) {
		need(context);
		use_card();
		need(mode == ADDS || mode == FORKS_INSIDE || mode == NOTHING ||
		     !close_device(context));
		_exit(0);
	}
	need(waitpid(pid, &status, 0) == pid && status == 0);
	need(context);
	use_card();
}

static atomic_bool done;

/* What the handlers let go for a moment is wanted by others. */
static void *open_often(void *arg)
{
	while (!atomic_load(&done)) {
		void *other = open_device(list[0]);

		need(other && !close_device(other));
	}
	return arg;
}

static int program(const char *name)
{
	void **(*get_list)(int *);
	pthread_t thread;
	void *library;

	need(!pthread_atfork(in_prepare, in_parent, in_child));
	library = dlopen(name, RTLD_NOW);
	need(library);
	get_list = (__typeof__(get_list))dlsym(library, "ibv_get_device_list");
	open_device = (__typeof__(open_device))dlsym(library, "ibv_open_device");
	close_device = (__typeof__(close_device))dlsym(library, "ibv_close_device");
	need(get_list && open_device && close_device);
	list = get_list(NULL);
	need(list && list[0]);
	context = open_device(list[0]);
	need(context);
	for (int i = 0; i < MODES; i++) {
		mode = (enum mode)i;
		fork_once();
	}
	need(!pthread_create(&thread, NULL, open_often, NULL));
	for (int i = 0; i < FORKS; i++) {
		mode = (enum mode)(i % MODES);
		fork_once();
	}
	atomic_store(&done, true);
	need(!pthread_join(thread, NULL));
	mode = NOTHING;
	need(!close_device(context));
	return 0;
}

/* A fork that hangs has its signals blocked: only another process can end it. */
int main(int argc, char **argv)
{
	int status = -1;
	pid_t pid, ended = 0;

	need(argc == 2);
	pid = fork();
	need(pid >= 0);
	if (!pid) {
		setpgid(0, 0);
		exit(program(argv[1]));
	}
	for (int i = 0; i < LIMIT * 100 && !ended; i++) {
		ended = waitpid(pid, &status, WNOHANG);
		usleep(10000);
	}
	kill(-pid, SIGKILL);
	if (!ended)
		fprintf(stderr, "it hangs\n");
	return ended != pid || status;
}

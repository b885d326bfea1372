// SPDX-License-Identifier: MIT
/*
 * A program that knows nothing of verbs when it starts: it blocks all signals and installs a SIGSEGV handler, and only
 * then loads a plug-in that drives mlx4 queues itself. Under `verbatim run` doorbells work all the same, because the
 * preload was there first.
 *
 *	usage: mlx4_late PLUGIN
 */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static sigjmp_buf back;
static volatile int faults;

static void on_segv(int sig)
{
	(void)sig;
	faults++;
	siglongjmp(back, 1);
}

#define need(what)                                                                 \
	do {                                                                       \
		if (!(what)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
			exit(1);                                                   \
		}                                                                  \
	} while (0)

static void own_fault(void)
{
	volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int before = faults;

	if (!sigsetjmp(back, 1))
		*page = 1;
	need(faults == before + 1);
	munmap((void *)page, 4096);
}

int main(int argc, char **argv)
{
	struct sigaction act = { .sa_handler = on_segv }, now;
	void (*run)(void);
	sigset_t all, seen;
	void *plugin;

	need(argc == 2);
	sigfillset(&all);
	need(!sigaction(SIGSEGV, &act, NULL));
	own_fault();
	need(!pthread_sigmask(SIG_SETMASK, &all, NULL));
	plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	if (!plugin)
		fprintf(stderr, "%s\n", dlerror());
	need(plugin);
	*(void **)&run = dlsym(plugin, "late_run");
	need(run);
	run();
	need(!sigaction(SIGSEGV, &act, &now)); /* once more: it must not replace ours */
	need(now.sa_handler == on_segv);
	run();
	need(!pthread_sigmask(SIG_SETMASK, NULL, &seen));
	need(sigismember(&seen, SIGSEGV) == 1);
	sigemptyset(&all);
	need(!pthread_sigmask(SIG_SETMASK, &all, NULL));
	own_fault();
	run();
	return 0;
}

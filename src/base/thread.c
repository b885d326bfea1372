// SPDX-License-Identifier: MIT
/*
 * Owns the start and the end of threads of ours; see thread.h.
 *
 *	pthread_create()  count + 1     by whoever starts it
 *	thread_main()     count - 1     ours does not count while it runs
 *	run() returns     count + 1
 *	libc              count - 1     the last one: exit(0)
 *
 * The program's last thread may end between the first two lines, or the last two: then ours is the one
 * that brings the count to 0, and ends the process as the program's would have.
 */
#include "base/thread.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

const struct vb_thread_attr vb_thread_detached = { .detached = true };

struct start {
	void *(*run)(void *arg);
	void *arg;
	_Atomic unsigned int *count; /* of libc; NULL: it has none that we know */
};

/*
 * libc's count of threads. It is not for programs, but has had its name and type since there is one:
 * libthread_db, and with it every debugger, looks for it.
 */
static _Atomic unsigned int *find_count(void)
{
	static _Atomic(_Atomic unsigned int *) found;
	_Atomic unsigned int *count = atomic_load_explicit(&found, memory_order_relaxed);

	if (!count) {
		count = dlsym(RTLD_DEFAULT, "__nptl_nthreads");
		atomic_store_explicit(&found, count, memory_order_relaxed);
	}
	return count;
}

static void *thread_main(void *arg)
{
	struct start start = *(struct start *)arg;
	void *result = NULL;

	free(arg);
	/* Relaxed, as libc: the count orders nothing. */
	if (!start.count || atomic_fetch_sub_explicit(start.count, 1, memory_order_relaxed) != 1)
		result = start.run(start.arg);
	if (start.count)
		atomic_fetch_add_explicit(start.count, 1, memory_order_relaxed);
	return result;
}

static void block_signals(const struct vb_thread_attr *attr, sigset_t *before)
{
	sigset_t set;

	sigfillset(&set);
	sigdelset(&set, SIGSEGV);
	sigdelset(&set, SIGBUS);
	if (attr->computes) {
		sigdelset(&set, SIGFPE);
		sigdelset(&set, SIGILL);
		sigdelset(&set, SIGTRAP);
	}
	pthread_sigmask(SIG_SETMASK, &set, before);
}

int vb_thread_start(pthread_t *thread, const struct vb_thread_attr *attr, void *(*run)(void *arg),
		    void *arg)
{
	static const struct vb_thread_attr usual;
	struct start *start = malloc(sizeof(*start));
	pthread_attr_t how;
	pthread_t started;
	sigset_t before;
	int err;

	if (!start)
		return -ENOMEM;
	*start = (struct start){ run, arg, find_count() };
	attr = attr ? attr : &usual;
	err = pthread_attr_init(&how);
	if (err)
		goto free_start;
	if (attr->stack)
		pthread_attr_setstacksize(&how, attr->stack);
	if (attr->detached)
		pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
	block_signals(attr, &before);
	err = pthread_create(&started, &how, thread_main, start);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&how);
	if (!err && thread)
		*thread = started;
free_start:
	if (err)
		free(start);
	return -err;
}

// SPDX-License-Identifier: MIT
/*
 * sigaction() and its relatives for programs that load libibverbs with dlopen(): there libc comes
 * before it, but nobody comes before the preload. The work is that of host/signals.c and
 * host/signal_wrappers.c, which are in here, too; only the program's own actions for SIGSEGV and
 * SIGBUS are libverbatim's to keep, once that is loaded (host/fault.c asks for us then). Where
 * ThreadSanitizer's library is there, its functions are called instead.
 */
#include "host/signals.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "host/fault.h"

#define PUBLIC __attribute__((visibility("default")))

typedef int action_function(int sig, const struct sigaction *act, struct sigaction *old);

static _Atomic(action_function *) libverbatim_action;

PUBLIC const struct vb_signal_keeper *verbatim_preload_signals(action_function *action);

/* libverbatim is loaded and introduces itself. */
const struct vb_signal_keeper *verbatim_preload_signals(action_function *action)
{
	atomic_store(&libverbatim_action, action);
	return &vb_signal_keeper;
}

/* Without libverbatim there is nobody who would take the signals. */
int vb_fault_action(int sig, const struct sigaction *act, struct sigaction *old)
{
	action_function *action = atomic_load(&libverbatim_action);

	return action ? action(sig, act, old) : vb_libc_sigaction(sig, act, old);
}

/* --- what only one libc has -------------------------------------------------------------------------------------- */

/*
 * The preload is in every child, and some are programs of another libc (musl): the loader ends a
 * program where a symbol is missing that was named at link time, so these two are looked for.
 */

static _Atomic(action_function *) libc_action;

static action_function *find_action(void)
{
	void *found = dlsym(RTLD_NEXT, "__sigaction");

	if (!found)
		found = dlsym(RTLD_NEXT, "sigaction");
	atomic_store(&libc_action, (action_function *)found);
	return (action_function *)found;
}

static atomic_int aside; /* 0: not known, 1: yes, -1: no */

/* gcc's is a library; clang's is in the program, and so comes first by itself. */
bool vb_signal_stands_aside(void)
{
	int known = atomic_load_explicit(&aside, memory_order_relaxed);

	if (!known) {
		known = dlsym(RTLD_NEXT, "__tsan_init") ? 1 : -1;
		dlerror(); /* that there is none is nothing to the program */
		atomic_store_explicit(&aside, known, memory_order_relaxed);
	}
	return known > 0;
}

int vb_libc_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	action_function *action = atomic_load(&libc_action);

	return (action ? action : find_action())(sig, act, old);
}

/*
 * For this library alone. In glibc it is code that the linker would add here. The handlers are of no
 * library: those of one leave libc's list at exit(), also beside a fork (base/fork.c).
 */
int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	int (*add)(void (*)(void), void (*)(void), void (*)(void), void *);
	int (*other)(void (*)(void), void (*)(void), void (*)(void));

	add = (__typeof__(add))dlsym(RTLD_NEXT, "__register_atfork");
	if (add)
		return add(prepare, parent, child, NULL);
	other = (__typeof__(other))dlsym(RTLD_NEXT, "pthread_atfork");
	return other ? other(prepare, parent, child) : ENOSYS;
}

/* Early, because a signal handler may be the first to ask. */
__attribute__((constructor)) static void signals_start(void)
{
	find_action();
	vb_signal_stands_aside();
	vb_signal_start();
	pthread_atfork(NULL, NULL, vb_signal_forked);
}

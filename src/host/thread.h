/* SPDX-License-Identifier: MIT */
/*
 * Threads of ours in a process that is somebody else's. All of them are started here.
 *
 * They do not keep the process alive. libc counts threads, and the one that ends last calls exit(0). A
 * thread of ours is taken out of that count while it runs, so that the count is that of the program's
 * own threads: the last of these exits as it would without us, whichever it is, and whether or not it
 * ever called us. Nobody has to watch for that.
 *
 * The program's signals are for the program's threads. Ours block all of them but those that an
 * instruction of theirs can raise, so that the kernel gives a signal to a thread of the program, or
 * keeps it for one that waits for it.
 *
 * Not seen is a thread that ends by the system call exit(2) itself, behind libc's back: libc counts it
 * for ever, and our threads then are not the only ones left as far as it knows.
 */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/public.h"

struct vb_thread_attr {
	size_t stack;  /* bytes; 0: as libc has it */
	bool detached; /* it is not joined */
	bool computes; /* SIGFPE, SIGILL and SIGTRAP are not blocked either: it runs code of the program */
	void (*wake)(
		void *arg); /* with the thread's: has it call vb_thread_attend() soon; NULL: it never does */
};

VB_PUBLIC extern const struct vb_thread_attr vb_thread_detached;

/* attr may be NULL, and thread, too, where it is detached. 0 or -errno. */
VB_PUBLIC int vb_thread_start(pthread_t *thread, const struct vb_thread_attr *attr,
			      void *(*run)(void *arg), void *arg);

/* Whether the program has one thread: ours are not counted, and a libc that does not count has more. */
bool vb_thread_program_has_one(void);

/* Whether there are threads of ours, and this is another one and not in another process. */
bool vb_thread_reachable(void);

/*
 * Run act(arg) in every thread of ours, and wait for the end of it: in vb_thread_attend(), or where a
 * thread has none in a handler of SIGSEGV. Allowed in signal handlers. False: a thread did not come to
 * it, for some seconds.
 */
bool vb_thread_run_in_all(void (*act)(void *arg), void *arg);

/*
 * By a thread of ours, now and then, and once it was woken. Without a signal no handler has to return:
 * the program may go on to a filter of system calls that does not let it.
 */
void vb_thread_attend(void);

/* For the handler of SIGSEGV: whether the signal was sent by vb_thread_run_in_all(), and is served. */
bool vb_thread_serve(const siginfo_t *info);

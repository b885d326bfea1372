/* SPDX-License-Identifier: MIT */
/*
 * Users, groups and rights of our threads follow those of the program.
 *
 * To the kernel all of these belong to a thread. libc changes users and groups in every thread, and
 * ends the process where that succeeds in one and fails in another; capabilities and the flags that
 * go with them (PR_SET_KEEPCAPS and its kin) it changes in the calling thread alone. A thread of ours
 * beside a program with one thread would have kept the rights that the program has given up.
 *
 * So the functions of host/rights_wrappers.c, in front of libc's, ask here:
 *
 *	one thread of the program   the system call, as libc makes it where there is one thread; what
 *	                            succeeded is done by our threads as well, and what they cannot do
 *	                            is logged, and ends nothing
 *	more of them                before libc changes all threads, ours get the rights of the one that
 *	                            calls, so that the result is the same in them
 *
 * Rights that only count for execve() (the bounding set, ambient capabilities) follow with the call
 * that changes them. A change past libc's functions is seen when users or groups are changed next.
 */
#pragma once

#include <stdbool.h>

#include "base/public.h"

struct vb_rights_call {
	long number; /* SYS_; 0: rights alone */
	long arg[5];
};

enum vb_rights_when {
	VB_RIGHTS_CHANGE, /* users or groups: make the call */
	VB_RIGHTS_BEFORE, /* libc is about to change users or groups */
	VB_RIGHTS_AFTER,  /* the call has changed other rights of this thread */
};

/*
 * Allowed in signal handlers and in children of vfork(), which have no thread of ours. True: the call
 * was made, and *ret is its result, with errno.
 */
typedef bool vb_rights_hook(enum vb_rights_when when, const struct vb_rights_call *call, int *ret);

VB_PUBLIC bool vb_rights_follow(enum vb_rights_when when, const struct vb_rights_call *call,
				int *ret);

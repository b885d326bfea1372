/* SPDX-License-Identifier: MIT */
/* The steps of a fork (fork_copy.c), for the functions that make children (calls.c). */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Of fork(), by thread: addresses that were found before its handlers ran, while it can still fail.
 * The handlers cannot refuse. That they need more, and cannot have it, is possible only where another
 * handler allocates.
 */
struct memory_reserved {
	char *copy; /* NULL: none, or used */
	size_t len;
	bool failed; /* of the last fork */
};

extern __thread struct memory_reserved memory_reserved;

bool memory_reserve_copy(void);
void memory_drop_reserved(void);

/* Takes the lock, and makes the copy. 0, or -ENOMEM; the lock is held in both cases. */
int memory_prepare(void);
/* In the parent, also where there is no child: drops the copy and the lock. */
void memory_in_parent(void);
/* In the child: what was copied is its own. What has to be given to memory_unlock(). */
sigset_t memory_adopt(bool shares_files);

/* SPDX-License-Identifier: MIT */
/*
 * Owns the list of stream locks that the calling thread holds. stream.c asks it, so that exit() in a signal handler does
 * not take a lock that the interrupted call has.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/*
 * The locks that this thread has, from before it takes one until after it has given it back. libc's own
 * note of a lock's owner is late by some instructions on either side, in which a signal may come.
 */
enum { LOCKS_MAX = 8 }; /* three, and three more in a handler that exits */

static _Thread_local struct {
	pthread_mutex_t *volatile lock[LOCKS_MAX];
	volatile unsigned int count;
} locked __attribute__((tls_model("initial-exec")));

/* This thread has it, below the signal handler in which it exits. */
static inline bool stream_has(const pthread_mutex_t *lock)
{
	for (unsigned int i = 0; i < locked.count && i < LOCKS_MAX; i++)
		if (locked.lock[i] == lock)
			return true;
	return false;
}

/* False: this thread has it already. */
static inline bool stream_lock(pthread_mutex_t *lock)
{
	unsigned int count = locked.count;

	if (stream_has(lock))
		return false;
	/* More than that: the program's handlers left us by jumps, with locks that stay. */
	if (count < LOCKS_MAX)
		locked.lock[count] = lock;
	locked.count = count + 1;
	atomic_signal_fence(memory_order_seq_cst);
	pthread_mutex_lock(lock);
	return true;
}

static inline void stream_unlock(pthread_mutex_t *lock)
{
	pthread_mutex_unlock(lock);
	atomic_signal_fence(memory_order_seq_cst);
	locked.count--;
}

/* SPDX-License-Identifier: MIT */
/*
 * A place to sleep that a futex and descriptors can end.
 *
 *	sleeper: word := asleep; vb_wait_sleep(asleep)      sleeps only while the word still says so
 *	waker:   word := awake; vb_wait_wake()              any process that has the word mapped
 *	fd:      becomes readable --> the watcher thread calls wake()
 *
 * A futex cannot wait for a descriptor, and a sleeper in epoll cannot be woken by another process
 * for the price of a store. So the sleeper always waits for the word, and a second thread, which
 * exists only while there are descriptors, waits for those. A descriptor that was found readable is
 * not watched again before vb_wait_take() has handed it out.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/public.h"

struct vb_wait {
	_Atomic uint32_t *word;
	void (*wake)(
		void *arg); /* a descriptor is readable: changes the word and wakes; any thread */
	void *arg;
	/* descriptors; under the lock */
	pthread_mutex_t lock;
	int epoll, stop; /* -1: no descriptor was ever added */
	pthread_t watcher;
	int *ready; /* found readable, not handed out yet */
	unsigned int num_ready, num_fds;
};

/* word may be NULL at first and set later, before anybody sleeps. */
void vb_wait_init(struct vb_wait *wait, void (*wake)(void *arg), void *arg);
/* Nobody sleeps any more. The descriptors stay open. */
void vb_wait_destroy(struct vb_wait *wait);
/* Sleep while *word is value, until then in the card's time (VB_NEVER). May return early. */
void vb_wait_sleep(struct vb_wait *wait, uint32_t value, uint64_t until);
/* Wake one who sleeps. */
void vb_wait_wake(struct vb_wait *wait);
/* Watch a descriptor: 0 or -errno. */
int vb_wait_add(struct vb_wait *wait, int fd);
void vb_wait_remove(struct vb_wait *wait, int fd);
/*
 * The next descriptor that is readable, or -1. It is watched again from here on: read it until it
 * would block.
 */
int vb_wait_take(struct vb_wait *wait);

/* SPDX-License-Identifier: MIT */
/*
 * A simulated time in the place of the card's (base/time.h). It moves by the test's hand, or by itself when all threads
 * that take part wait for it:
 *
 *	by hand: sim_move()       now += ns, and whatever waits until then has returned from its wait
 *	by itself: sim_run(n)     when n threads wait, and nothing that they wait for has come: now := the earliest deadline
 *
 * No thread may wait in this time with a lock that another one needs to come back from its wait.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"

struct sim_time {
	struct vb_time time; /* first */
	_Atomic uint64_t now;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* whatever is below */
	struct sim_wait *asleep;
	unsigned int count;   /* of them */
	unsigned int threads; /* so many waits move the time; 0: none do */
	bool ended;
	pthread_t driver;
};

/* Begin with this time, by hand. Before the first device is opened. */
void sim_begin(struct sim_time *sim, uint64_t now);
/* Back to the machine's time; all waits end. The struct stays until the process ends. */
void sim_end(struct sim_time *sim);
void sim_move(struct sim_time *sim, uint64_t ns);
/* Let it move by itself when so many threads wait; 0: by hand again. */
void sim_run(struct sim_time *sim, unsigned int threads);
/* Return when so many threads wait, for what has not come so far. */
void sim_settle(struct sim_time *sim, unsigned int threads);

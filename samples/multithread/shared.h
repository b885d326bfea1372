/* SPDX-License-Identifier: MIT */
/* What the host and its workers agree on; all of it in device memory. */
#pragma once

#include <stdint.h>

enum { WORKERS = 16 };

/* One worker's share, on cache lines of its own. */
struct share {
	uint64_t first, end; /* numbers to look at */
	uint64_t primes;
	uint64_t team; /* address of struct team */
	uint64_t pad[4];
};

struct team {
	uint64_t finished; /* workers */
	uint64_t total;
	uint64_t largest; /* under the lock */
	uint64_t lock;    /* struct spinlock_s of the device */
};

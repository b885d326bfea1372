/* SPDX-License-Identifier: MIT */
/* What both halves of storm.c know. */
#pragma once

#include <stdint.h>

enum { MAX_TARGETS = 3 };

/* One per handler, in device memory. A message is a count of one in an inbox, followed by an activation. */
struct cell {
	uint64_t inbox;
	uint64_t handled; /* messages taken out of the inbox */
	uint64_t runs;
	uint64_t end;                     /* how a run ends: 0 return, 1 reschedule, 2 yield */
	uint64_t targets;                 /* how many */
	uint64_t target[MAX_TARGETS];     /* their cells, */
	uint64_t activation[MAX_TARGETS]; /* and their ids */
	uint64_t
		remaining; /* address of the count of messages that may still be sent, by all together */
	uint64_t pad[2];
};

/* A handler that never ends its run by itself. */
struct spinner {
	uint64_t turns;
	uint64_t instructions;
	uint64_t stop;
	uint64_t pad[5];
};

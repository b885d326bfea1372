/* SPDX-License-Identifier: MIT */
/* What host and device agree on. Addresses of the device are numbers on the host. */
#pragma once

#include <stdint.h>

enum {
	FLOWS = 7,
	LOG_DEPTH = 8, /* of both queues */
	DEPTH = 1 << LOG_DEPTH,
	BUFFER = 2048, /* one for each receive WQE */
};

struct queue {
	uint64_t ring, record;
	uint32_t number;
	uint32_t index; /* consumer index of the CQ */
};

struct count {
	uint64_t frames, bytes;
};

struct counter {
	struct queue rq, cq;
	/* The device counts, the host reads. */
	uint64_t frames;          /* in all; written last */
	uint64_t strays;          /* with a tag that no rule has */
	struct count flow[FLOWS]; /* by tag */
};

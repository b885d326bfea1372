/* SPDX-License-Identifier: MIT */
/* What host and device agree on. Addresses of the device are numbers on the host. */
#pragma once

#include <stdint.h>

enum {
	MAX_LANES = 128,
	LOG_DEPTH = 7, /* of all queues */
	DEPTH = 1 << LOG_DEPTH,
	BUFFER = 2048, /* one for each receive WQE */
	BURST = 32,    /* frames that are sent with one doorbell */
};

struct queue {
	uint64_t ring, record;
	uint32_t number;
	uint32_t index; /* consumer index of a CQ, producer index of an SQ or RQ */
};

/* Queues, buffers and one device thread that share nothing with other lanes. */
struct lane {
	struct queue rq, rq_cq, sq, sq_cq;
	uint64_t buffers;
	uint32_t lkey;
	uint32_t pad;
	/* The device counts, the host reads. */
	uint64_t frames, bytes;
	uint64_t failed; /* sends that completed with an error */
	uint64_t spare;
};

/* SPDX-License-Identifier: MIT */
/* What host and device agree on. Addresses of the device are numbers on the host. */
#pragma once

#include <stdint.h>

/* Who the processor is on the network. */
#define OUR_MAC 0x02427e7feb02ull
#define OUR_IP  0x0a070002u /* 10.7.0.2 */

enum {
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

struct processor {
	struct queue rq, rq_cq, sq, sq_cq;
	uint64_t buffers;
	uint32_t lkey;
	uint32_t verbose;
	/* The device counts, the host reads. */
	uint64_t frames; /* in all; written last */
	uint64_t arp, echo, forwarded, ignored;
	uint64_t failed; /* sends that completed with an error */
};

/* SPDX-License-Identifier: MIT */
/* What host and device of the benchmark both know. */
#pragma once

#include <stdint.h>

struct relay {
	uint64_t left; /* triggers to pass on */
	uint64_t done;
	uint32_t next; /* activation id of the other one */
	uint32_t pad;
};

#define DEVICE_GHZ 1.8 /* of __dpa_thread_time */

/* An event handler that says when it began, and what wakes it. */
struct stamps {
	uint64_t seen;  /* when it began */
	uint64_t count; /* events handled */
	uint32_t activation;
	uint32_t cqn; /* its CQ */
	uint64_t ring, dbr;
	uint32_t ci;
	uint32_t pad;
};

enum { RATE_LOG = 6, RATE_BYTES = 64 };

/* A handler that writes: its queues, what it shall do, and what it took. */
struct writer {
	uint64_t sq, cq_ring, cq_dbr;
	uint32_t qpn, cqn;
	uint32_t pi, ci;
	uint64_t from, to;
	uint32_t lkey, rkey;
	uint64_t total;
	uint32_t batch; /* WQEs for each doorbell; the last one makes a completion */
	uint32_t errors;
	uint64_t start, end; /* end: 0 until it is done */
};

/* SPDX-License-Identifier: MIT */
/* What the host tells device code. Addresses of the device are numbers on the host. */
#pragma once

#include <stdint.h>

enum { LOG_DEPTH = 4, DEPTH = 1 << LOG_DEPTH };

struct job {
	/* the queue pair: where its send ring is, and its number */
	uint64_t sq;
	uint32_t qpn, pi;
	/* the completion queue */
	uint64_t cq, cq_dbr;
	uint32_t cqn, ci;
	/* memory here, which the card may touch by its key */
	uint64_t buffer;
	uint32_t lkey;
	/* memory of the other process: a text of text_size bytes, room for an answer, a counter */
	uint32_t rkey;
	uint64_t remote_text, remote_answer, remote_counter;
	uint32_t text_size;
};

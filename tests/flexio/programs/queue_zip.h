/* SPDX-License-Identifier: MIT */
/* What both halves of queue_zip know: a consumer of CQEs, and what it saw. */
#pragma once

#include "queue_work.h"

enum { ZIP_SEEN = 64 };

/* A CQ that is read, with the entry that mini CQEs belong to. */
struct zip_cq {
	struct work_cq cq;
	uint32_t compressed;
	uint32_t behind; /* mini CQEs since the title */
	uint32_t tagged; /* FLOW_TAG: a part of it is in the length's first byte */
	uint32_t spare;
	struct work_cqe title;
	uint64_t arrays; /* entries with mini CQEs */
	uint64_t seen;
	struct work_cqe cqes[ZIP_SEEN]; /* the last ones */
};

/* A burst of sends, rung at once. */
struct zip_burst {
	struct zip_cq send, recv;
	struct work_qp from, to;
	uint64_t buffers;
	uint32_t size, lkey;
	uint32_t nops;
	uint32_t sends, receives; /* completions to wait for */
	uint32_t spare;
	struct work_op ops[WORK_OPS];
};

/* An event handler that reads compressed completions. */
struct zip_handler {
	struct zip_cq recv;
	struct work_qp qp;
	uint64_t buffers;
	uint32_t size, lkey;
	uint64_t bytes, handled;
};

/* An event handler that reads what two senders complete, and what each of them has to know. */
struct zip_watch {
	struct zip_cq send;
	uint32_t qpn[2];
	volatile uint64_t done[2]; /* WQEs of each, in order */
	uint64_t wrong;
};

struct zip_pump {
	struct work_qp qp;
	uint64_t done; /* address of its zip_watch::done */
	uint64_t sent;
	struct work_op op;
};

/* SPDX-License-Identifier: MIT */
/* Senders that keep many queue pairs busy; shared by both halves. */
#pragma once

#include "queue_work.h"

struct flood {
	struct work_cq cq;
	uint64_t qps; /* struct work_qp[number] */
	uint32_t number, rounds, batch;
	uint32_t lkey;
	uint64_t buffer;
	volatile uint32_t stop;
	uint32_t errors;
	uint64_t completions;
	uint64_t sent;
};

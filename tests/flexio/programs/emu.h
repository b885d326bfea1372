/* SPDX-License-Identifier: MIT */
/* What the programs of emulated functions share with their device code. */
#pragma once

#include <stdint.h>

#include "queue_work.h"

/* In host memory: a driver publishes work, the device serves it. */
struct emu_shared {
	uint64_t published;
	uint64_t reserved[7];
	uint64_t served;
};

/* In device memory: one queue of the device. */
struct emu_state {
	struct work_cq cq; /* of doorbells */
	uint32_t emu_id;
	uint32_t msix_cqn; /* 0: nobody is told */
	uint32_t window_id, mkey;
	uint64_t shared; /* host address of struct emu_shared; 0: only count */
	uint64_t runs;   /* of the handler */
	uint64_t cqes;
	uint64_t served;
	uint64_t values; /* doorbell value that was read last, and */
	uint64_t rearm;  /* 1: the handler arms the doorbell itself */
};

/* SPDX-License-Identifier: MIT */
/* What the host and the worker agree on. */
#pragma once

#include <stdint.h>

enum { JOBS = 4, TEXT_SIZE = 48 };

enum job_state { JOB_EMPTY, JOB_READY, JOB_DONE };

/* One job, in host memory. */
struct job {
	uint32_t state; /* READY is written by the host, DONE by the worker, each last */
	uint32_t letters;
	char text[TEXT_SIZE];
};

/* What the worker is started with, in device memory. */
struct worker {
	uint32_t window_id;
	uint32_t mkey;
	uint64_t jobs; /* address on the host */
};

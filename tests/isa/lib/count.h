/* SPDX-License-Identifier: MIT */
/*
 * What a call costs, counted and not timed. Code under test that was compiled with
 * -fsanitize-coverage=trace-pc counts a step for every basic block that it executes; memory counts
 * where it is touched, by page faults, and where it is asked for, by the allocator.
 */
#ifndef ISA_COUNT_H
#define ISA_COUNT_H

#include <stdint.h>

enum { COUNT_DECODED = 200 }; /* steps for an instruction that Zydis decodes: about as long */

struct count {
	uint64_t steps;
	uint64_t touched; /* bytes of pages */
	uint64_t asked;   /* bytes of malloc, calloc and realloc */
};

/* What docs/security.md promises for a file: so much for each of its bytes, and so much besides. */
enum {
	COST_STEPS_EACH = 500,
	COST_STEPS = 16 << 20, /* the pages of the limit, and a gap of 1 MiB in the text */
	COST_BYTES_EACH = 160,
	COST_BYTES = 32 << 20,
	COST_CODE_EACH = 24, /* of the memory, host code */
	COST_CODE = 1 << 20,
};

/* Of the calling thread, from start to stop. */
void count_start(struct count *c);
void count_stop(struct count *c);

#endif

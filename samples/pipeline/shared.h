/* SPDX-License-Identifier: MIT */
/* What the host and the stages agree on; all of it in device memory. */
#pragma once

#include <stdint.h>

enum { STAGES = 4, SLOTS = 8 };

/*
 * The queue in front of a stage: one stage puts numbers in, the next takes them out.
 *
 *	taken <= put <= taken + SLOTS        number n is in slot n % SLOTS
 */
struct stage {
	uint64_t put, taken; /* counters; each is written by one side only */
	uint64_t slot[SLOTS];
	uint32_t index;
	uint32_t previous, next; /* activation ids of the neighbours */
	uint32_t pad;
	uint64_t to;    /* address of the next stage's queue; 0: this is the last one */
	uint64_t total; /* last stage: sum of what arrived; first: numbers to make */
};

/* SPDX-License-Identifier: MIT */
/*
 * Small numbers for objects: queue numbers, keys, domains.
 *
 * A number that was freed is given out again as late as possible, because programs and peers hold
 * on to numbers for a moment longer than to the objects.
 */
#pragma once

#include <stdint.h>

#include "base/lock.h"

struct vb_ids {
	struct vb_lock lock;
	uint64_t *used;        /* bitmap, allocated on first use */
	uint32_t first, count; /* numbers are first ... first + count - 1 */
	uint32_t next;
	uint32_t in_use;
};

#define VB_IDS_INIT(first_, count_)                  \
	{                                            \
		.first = (first_), .count = (count_) \
	}

/* A free number, or -ENOMEM; at most limit are given out at a time. */
int64_t vb_ids_take(struct vb_ids *ids, uint32_t limit);
/*
 * The first of n numbers that follow one another; n is a power of two, and the first a multiple of
 * it.
 */
int64_t vb_ids_take_range(struct vb_ids *ids, uint32_t n, uint32_t limit);
void vb_ids_give(struct vb_ids *ids, uint32_t id);

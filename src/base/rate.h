/* SPDX-License-Identifier: MIT */
/*
 * How often a line of one kind may go into the log: what comes again and again must not fill a
 * disk. A few go out each second; what was held back is counted, and told with the next one.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/time.h"

enum { VB_RATE_LINES = 10 }; /* a second */

/* Of one kind of line; zeroed at first. Races only cost or save a line. */
struct vb_rate {
	_Atomic uint64_t second;
	_Atomic uint32_t lines, held_back;
};

/* True if the line may go out; *held_back of its kind have not since the last one. */
static inline bool vb_rate_allows(struct vb_rate *rate, uint32_t *held_back)
{
	uint64_t now = vb_now_ns() / 1000000000u + 1;
	uint64_t second = atomic_load_explicit(&rate->second, memory_order_relaxed);

	if (second != now &&
	    atomic_compare_exchange_strong_explicit(&rate->second, &second, now,
						    memory_order_relaxed, memory_order_relaxed))
		atomic_store_explicit(&rate->lines, 0, memory_order_relaxed);
	if (atomic_fetch_add_explicit(&rate->lines, 1, memory_order_relaxed) >= VB_RATE_LINES) {
		atomic_fetch_add_explicit(&rate->held_back, 1, memory_order_relaxed);
		return false;
	}
	*held_back = atomic_exchange_explicit(&rate->held_back, 0, memory_order_relaxed);
	return true;
}

/* What the line that goes out says of the others, at its end. */
struct vb_rate_words {
	char text[48];
};

static inline const char *vb_rate_tell(struct vb_rate_words *words, uint32_t held_back)
{
	words->text[0] = 0;
	if (held_back)
		snprintf(words->text, sizeof(words->text), " [%u more like this before]",
			 held_back);
	return words->text;
}

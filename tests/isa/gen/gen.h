/* SPDX-License-Identifier: MIT */
/* Random valid programs; see gen.c for what they look like. */
#ifndef ISA_GEN_H
#define ISA_GEN_H

#include "rv.h"

enum gen_flags {
	/*
	 * With what qemu 7.2 gets wrong, so only between our tiers and the model: the instret
	 * counter (host ticks there), and ctzw (which looks at the upper half when the lower one is
	 * zero).
	 */
	GEN_OURS = 1,
	GEN_NO_COMPRESS = 2,
	GEN_AGAIN = 4, /* all programs five times, on memory as the round before left it */
};

/* Bytes each program writes: its number, x1..x31 at its end, a checksum of its memory. */
#define GEN_RECORD (33 * 8)

/* The variation isa-gen takes for a seed. */
static inline unsigned gen_flags(u64 seed)
{
	static const unsigned flags[8] = {
		[1] = GEN_AGAIN, [3] = GEN_OURS, [6] = GEN_NO_COMPRESS, [7] = GEN_OURS | GEN_AGAIN
	};

	return flags[seed % 8];
}

/* Fill *p with `programs` programs made from `seed`, laid out and ready to write. */
void gen_programs(struct rv_prog *p, u64 seed, unsigned programs, unsigned flags);

/*
 * Fill *p with functions that walk pointers out of memory, to be called one by one with any
 * registers; labels[n] is the entry of each (facts.c).
 */
void gen_facts(struct rv_prog *p, u64 seed, unsigned functions, int *labels);

#endif

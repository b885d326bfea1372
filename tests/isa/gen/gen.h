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
};

/* Bytes each program writes: its number, x1..x31 at its end, a checksum of its memory. */
#define GEN_RECORD (33 * 8)

/* Fill *p with `programs` programs made from `seed`, laid out and ready to write. */
void gen_programs(struct rv_prog *p, u64 seed, unsigned programs, unsigned flags);

#endif

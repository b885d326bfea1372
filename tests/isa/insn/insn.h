/* SPDX-License-Identifier: MIT */
/*
 * Instruction tests: each case is one instruction with chosen operands and one block of data.
 *
 *      0     8     16
 *      | a   | b   | results ... |
 *
 * All blocks are written out at the end and compared one by one.
 */
#ifndef ISA_INSN_H
#define ISA_INSN_H

#include "rv.h"

struct insn_case {
	size_t block, size;
	struct rv_insn insn; /* for the message; label fields unused */
	u64 a, b;
};

struct insn_suite {
	struct rv_prog p;
	struct insn_case *cases;
	size_t count, room;
	unsigned turn; /* rotates the registers, so that each one meets every instruction sooner or
			  later */
};

struct insn_group {
	const char *name;
	void (*make)(struct insn_suite *s);
};

extern const struct insn_group insn_computing[], insn_memory[], insn_flow[], insn_compressed[];

extern const u64 insn_edge[];
extern const unsigned insn_edges;

/* Open a case: data block of `size` bytes starting with a and b. Returns a register that points to it. */
unsigned insn_begin(struct insn_suite *s, u64 a, u64 b, size_t size);
/* The next register in turn that is none of the `n` given and not x0. */
unsigned insn_reg(struct insn_suite *s, unsigned used_mask);
/* Say which instruction the open case is about (the last one emitted). */
void insn_about(struct insn_suite *s);

#endif

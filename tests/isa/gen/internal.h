/* SPDX-License-Identifier: MIT */
/* What the two files of the generator share: the state of a program being made. */
#ifndef ISA_GEN_INTERNAL_H
#define ISA_GEN_INTERNAL_H

#include "gen.h"

enum {
	SCRATCH = 256,
	RECORD = 256,
	STACK = 528,
	STACK_TOP = STACK + 512,
	BLOCK = 512 + STACK_TOP,
	MAX_FN = 6,
	FRAME = 48
};

struct fn {
	int label;
	unsigned link, depth, saved; /* saved: frame pointer, or 0 */
	u32 busy;
};

struct gen {
	struct rv_prog *p;
	struct rng r;
	u32 busy;
	unsigned base, depth,
		trips; /* depth of calls; product of the loop counts around this place */
	int left;      /* instructions this program may still emit, about */
	unsigned flags;
	struct fn fn[MAX_FN];
	unsigned fns;
	int sum;        /* label of the checksum routine */
	int middle;     /* and of the block that base points to */
	bool stack;     /* x2 is a stack pointer throughout this program */
	unsigned saved; /* its frame pointer, or 0 */
	bool frame;     /* the function being made has a frame of FRAME bytes on it */
};

/* A register that may be written, x0 now and then; one that holds something, until given back; any to read. */
unsigned gen_dest(struct gen *g);
unsigned gen_take(struct gen *g);
void gen_give(struct gen *g, unsigned r);
unsigned gen_any(struct gen *g);
struct rv_insn *gen_emit(struct gen *g, enum rv_op op, unsigned rd, unsigned rs1, unsigned rs2,
			 i64 imm);
enum rv_op gen_pick(struct gen *g, enum rv_format format);
/* A register that points into the scratch with at least `room` bytes after it; give it back after use. */
unsigned gen_address(struct gen *g, unsigned room, bool aligned);

/* One of the sequences that compilers make and translators treat specially; idiom.c. */
void gen_idiom(struct gen *g);

#endif

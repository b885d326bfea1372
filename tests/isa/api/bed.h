/* SPDX-License-Identifier: MIT */
/*
 * What the tests of src/dpa share: one process made from a program of tests/isa/lib, one thread,
 * and the print and exit calls. Every test program runs once per tier; the tier is its first
 * argument.
 */
#ifndef ISA_BED_H
#define ISA_BED_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dpa/dpa.h"
#include "rv.h"

struct bed {
	struct vb_dpa *dpa;
	struct vb_dpa_process *process;
	struct vb_dpa_thread *thread;
	struct rv_prog p;
	uint8_t *out; /* what the guest wrote */
	size_t out_size;
	unsigned traps; /* calls of the trap callback */
	struct vb_dpa_state at_trap;
	int status; /* of the exit call */
};

extern enum vb_dpa_tier bed_tier;

/* Take the tier from the command line. Call first in main. */
void bed_main(int argc, char **argv);

/* Lay out b->p (already filled) and make dpa, process and thread from it. attr may be NULL. */
void bed_open(struct bed *b, const struct vb_dpa_attr *attr);
/* The same with this many bytes of guest memory. */
void bed_open_limit(struct bed *b, uint64_t limit);
void bed_close(struct bed *b);

/* All registers zero, pc at the start of text. */
void bed_reset(struct bed *b);
enum vb_dpa_why bed_run(struct bed *b, uint64_t max);

/* The live state of the bed's thread. */
struct vb_dpa_state *bed_state(struct bed *b);
/* Registers, pc and count must equal the model's. */
void bed_same(struct bed *b, const struct rv_model *m, const char *what);

/* Run b->p from zeroed registers; it must trap where the model stops, with this cause and value. */
void bed_expect_trap(struct bed *b, enum vb_dpa_cause cause, uint64_t tval);

#endif

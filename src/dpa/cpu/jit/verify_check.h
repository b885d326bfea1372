/* SPDX-License-Identifier: MIT */
/* A check under way: what the files of the checker share. */
#pragma once

#include "dpa/cpu/jit/runtime.h"
#include "dpa/cpu/jit/verify.h"
#include "dpa/cpu/jit/verify_insn.h"

enum expect { ANYTHING, EXPECT_JMP, EXPECT_ACCESS, EXPECT_UNMARK };

struct check {
	const struct verify *v;
	struct memo *memo;
	uint8_t *marks;                          /* enum at of each byte */
	uint32_t body, leave, execute, dispatch; /* where they begin */
	struct insn past[HISTORY];               /* ring; the latest at [n % HISTORY] */
	uint32_t n;
	size_t site;         /* the first at or behind this instruction */
	unsigned int halves; /* registers that a 32-bit mov made, one bit each */
	uint32_t low[17];    /* and where; [16]: for those that are none */
	uint32_t sealed[16]; /* up to where nothing may lead in between that mov and an access */
	enum expect expect;
	bool open; /* a window access is marked */
	char *why;
	size_t size;
};

/* Displacement of a field of the cpu from rbp. */
#define DISP(field) (int)((int32_t)offsetof(struct vb_cpu, field) - STATE_BIAS)

/* -EBADMSG, with the reason in words. */
int refuse(struct check *c, uint32_t at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* verify_thunks.c: the thunks are what they have to be; fills body, leave, execute, dispatch. */
int check_thunks(struct check *c);

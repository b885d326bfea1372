/* SPDX-License-Identifier: MIT */
/* What the programs of lent.c share: one side of a pair, whose peer is in another process. */
#pragma once

#include <sys/types.h>

#include "hbl.h"

enum { SLOTS = 64, SLOT = 20000, BYTES = SLOTS * SLOT, SKIPPED = 77 };

struct side {
	struct dev dev;
	struct mem mem; /* the first half is sent from, the second written to */
	struct end end;
	struct fifo fifo;
	struct address peer;
};

extern struct side t;

/* lent_side.c */
uint32_t next_number(void); /* the same ones in every run */
void open_side(int number, bool host);
void connect_side(int fd, const struct end_attr *attr);
void close_side(void);
const char *to(uint32_t slot); /* where the peer writes */
/* A write to that slot of the peer's; both completions; the same in turns. */
void post(uint32_t slot, uint32_t size, uint32_t tag, bool ring);
void sent(uint32_t tag);
void received(uint32_t slot, uint32_t size, uint32_t tag);
void to_and_fro(int number, uint32_t rounds);
bool is_off(const char *name); /* a variable of the environment */
pid_t start(void);             /* a child that does not outlive us */

/* lent_broken.c: what goes wrong */
void forged(int number, int fd);
void unfinished(int number, int fd);
void unmapped(int number, int fd);
void given(int number, int fd);
int killed(void);
int gone(void);
int hostile(void);

/* SPDX-License-Identifier: MIT */
/*
 * Two sides that send each other messages, in two processes or in one.
 *
 * Between two processes the child does what the parent's order says until the measurement is over:
 *
 *	parent, core 0                 child, core 1
 *	order ---------- socket -----> order
 *	lead()  <====== verbs ======>  follow()     time is taken in the parent
 *
 * Requests come from `source` and go to the peer's `landing`; received messages go into the node's own buffer.
 */
#pragma once

#include "bench.h"

#include "../../tests/programs/common.h"

enum { PAIR_DEPTH = 128, PAIR_AREA = 2 * BENCH_MAX_BYTES + 65536 };

/* How the other side spends its time. */
enum manner { POLLS_CQ, POLLS_MEMORY, POLLS_BOTH, PASSIVE };
/* What is measured: a message to and fro, one after the other, or many at once. */
enum pattern { PING_PONG, ROUND_TRIP, STREAM };

struct order {
	enum ibv_wr_opcode opcode;
	enum pattern pattern;
	enum manner manner;
	uint32_t bytes;
	uint64_t count;
	bool end; /* no more orders */
};

struct row {
	const char *name;
	enum ibv_wr_opcode opcode;
	enum pattern pattern;
	enum manner manner;
};

/* Which memory source and landing are: of the node's buffer, 1 MiB or 4 KiB of malloc(), or device memory. */
enum memory { MEMORY_NODE, MEMORY_MALLOC, MEMORY_SMALL, MEMORY_DEVICE, MEMORIES };

struct area {
	uint8_t *buf;
	struct ibv_mr *mr;
	struct ibv_dm *dm;
	uint64_t addr; /* as requests of others have it */
};

struct side {
	struct node node;
	enum memory memory;
	struct area source, landing;
	uint64_t remote_addr; /* the peer's landing */
	uint32_t remote_key;
	uint64_t unsignalled;
	bool owed; /* a receive was used and not yet posted again */
};

void side_open(struct side *side, enum memory memory);
void side_close(struct side *side);
/* Two sides of this process. */
void side_join(struct side *a, struct side *b);
/* Connect to the side at the other end of the socket. */
void side_meet(struct side *side, int fd);
/* Whether the device has memory of its own. */
bool side_has_device_memory(void);

void side_post(struct side *side, const struct order *order, bool signalled, uint8_t mark);
void side_post_receive(struct side *side);
void side_await(struct ibv_cq *cq);
/* The whole way of messages through one thread: post, and both completions where there are two; ns per message. */
double side_loop(struct side *a, struct side *b, const struct order *order);

/* Start the second process and connect to it. */
pid_t pair_open(struct side *side, enum memory memory, int *fd);
void pair_close(struct side *side, pid_t pid, int fd);
/* Measure and print a row with that unit. */
void pair_measure(const struct bench *bench, struct side *side, int fd, const struct row *row,
		  uint32_t bytes, const char *unit, const char *name);
/* The second process: its role is `child` and the number of the memory. -1: it is another role. */
int pair_child(const char *role);

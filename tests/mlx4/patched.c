// SPDX-License-Identifier: MIT
/*
 * Doorbells of a program that drives its queue itself, with each setting of VERBATIM_PATCH: all of them execute, and
 * `verbatim ps -v` tells how.
 */
#include "raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RINGS = 500 };

/* By an instruction that is longer than a jump: for a short one there is room or not, as addresses happen to be. */
static void ring_far(struct raw *raw)
{
	__asm__ volatile("movl %0, 0x100(%1)"
			 :
			 : "r"(raw->dv.doorbell_qpn), "r"((uintptr_t)raw->dv.sdb - 0x100)
			 : "memory");
}

static void ring(struct raw *raw)
{
	struct mlx4_cqe cqe;
	struct raw_wqe wqe;

	raw_begin(&wqe, MLX4_OPCODE_NOP, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	check(raw_post(raw, &wqe));
	ring_far(raw);
	raw_expect(&raw->send, raw->node->qp->qp_num, true, &cqe);
	raw_free(raw, &cqe);
}

/* The line on doorbells, below the one of this process and those on its queues. */
static void read_counts(const char *verbatim, unsigned int *patched, unsigned long *traps,
			char *rest)
{
	char command[4096], line[512];
	bool mine = false;
	FILE *f;

	snprintf(command, sizeof(command), "'%s' ps -v", verbatim);
	f = popen(command, "r");
	check(f);
	while (fgets(line, sizeof(line), f)) {
		if (mine && strstr(line, " doorbells: "))
			break;
		if (strtoul(line, NULL, 10))
			mine = strtoul(line, NULL, 10) == (unsigned long)getpid();
	}
	check(mine);
	rest[0] = '\0';
	check(sscanf(line, " doorbells: %u sites patched, %lu traps; %255[^\n]", patched, traps,
		     rest) >= 2);
	pclose(f);
}

int main(int argc, char **argv)
{
	static struct raw raw;
	const char *how = getenv("VERBATIM_PATCH");
	static struct node node;
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address self;
	unsigned int patched;
	unsigned long traps;
	char rest[256];

	check(argc == 2);
	node_open(&node, &attr);
	node_address(&node, &self);
	node_connect(&node, &self);
	raw_open(&raw, &node);
	for (int i = 0; i < RINGS; i++)
		ring(&raw);
	read_counts(argv[1], &patched, &traps, rest);
	if (how && !strcmp(how, "off")) {
		check(patched == 0 && traps == RINGS);
		check(!strcmp(rest, "sites that trap: off 1"), "%s", rest);
	} else {
		check(patched == 1, "%u patched, %lu traps; %s", patched, traps, rest);
		check_eq(traps, how && !strcmp(how, "first") ? 1 : 32);
		check(!rest[0], "%s", rest);
	}
	node_close(&node);
	return 0;
}

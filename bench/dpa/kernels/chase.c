// SPDX-License-Identifier: MIT
/* Pointer chase: one random cycle through 128 KiB, then a lookup tree in an array. */
#include "kernel.h"

enum { NODES = 8192 };

static struct node {
	struct node *next;
	uint64_t value;
} node[NODES];
static uint32_t order[NODES];

uint64_t kernel(uint64_t rounds)
{
	uint64_t seed = 5, sum = 0;
	struct node *at = node;

	for (unsigned i = 0; i < NODES; i++)
		order[i] = i;
	for (unsigned i = NODES - 1; i; i--) {
		unsigned k = (unsigned)(kernel_random(&seed) % (i + 1));
		uint32_t t = order[i];

		order[i] = order[k];
		order[k] = t;
	}
	for (unsigned i = 0; i < NODES; i++) {
		node[order[i]].next = &node[order[(i + 1) % NODES]];
		node[order[i]].value = i;
	}
	while (rounds--)
		for (unsigned i = 0; i < 1000; i++) {
			sum += at->value ^ i;
			at = at->next;
		}
	return sum;
}

// SPDX-License-Identifier: MIT
/*
 * What the card costs in memory: at most 16 MiB resident for an open device, at most 64 KiB for a QP of the usual
 * depth (128 sends, 128 receives, one entry each), measured over a thousand connected ones that were used. Most of that
 * goes back to the system when they are destroyed, although the program has allocated something meanwhile.
 */
#include "common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QPS = 1000 };

/* Instrumented programs keep shadow memory for every byte; the contract is about the plain ones. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INSTRUMENTED 1
#endif
#endif

static uint64_t resident(void)
{
	unsigned long long pages = 0, all;
	FILE *f = fopen("/proc/self/statm", "r");

	check(f && fscanf(f, "%llu %llu", &all, &pages) == 2, "/proc/self/statm");
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void check_given_back(uint64_t before, uint64_t cost)
{
#ifndef INSTRUMENTED
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;

	while (resident() > before + cost / 4) {
		check(now_us() < end, "of %llu KiB %llu are still there",
		      (unsigned long long)cost >> 10,
		      (unsigned long long)(resident() - before) >> 10);
		sleep_ms(20);
	}
#else
	(void)before;
	(void)cost;
#endif
}

int main(void)
{
	static struct ibv_qp *qps[QPS];
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node node;
	struct address self;
	uint64_t before, open_cost, qp_cost;
	char *late;

	attr.cap.max_send_wr = attr.cap.max_recv_wr = 128;
	/* Measured against a process that has already loaded the library and read its configuration's code. */
	before = resident();
	node_open(&node, &attr);
	open_cost = resident() - before;
	before = resident();
	for (int i = 0; i < QPS; i++) {
		struct node side = node;

		qps[i] = side.qp = node_create_qp(&node);
		check(qps[i], "QP %d: %s", i, strerror(errno));
		node_address(&side, &self);
		node_connect(&side, &self);
		check_eq(node_recv(&side, 1, 0, 64), 0);
		check_eq(node_send(&side, 2, 64, 64, IBV_SEND_SIGNALED), 0);
		cq_expect(node.send_cq, 2, IBV_WC_SUCCESS);
		cq_expect(node.recv_cq, 1, IBV_WC_SUCCESS);
	}
	qp_cost = (resident() - before) / QPS;
	printf("open: %llu KiB, one QP: %llu KiB\n", (unsigned long long)open_cost >> 10,
	       (unsigned long long)qp_cost >> 10);
#ifndef INSTRUMENTED
	check(open_cost <= 16u << 20, "open: %llu KiB", (unsigned long long)open_cost >> 10);
	check(qp_cost <= 64u << 10, "QP: %llu bytes", (unsigned long long)qp_cost);
#endif
	/* The C library gives back the end of its heap by itself, up to what is in use. */
	late = malloc(100);
	check(late, "no memory");
	for (int i = 0; i < QPS; i++)
		check_eq(ibv_destroy_qp(qps[i]), 0);
	check_given_back(before, qp_cost * QPS);
	free(late);
	node_close(&node);
	return 0;
}

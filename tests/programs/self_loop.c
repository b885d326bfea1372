// SPDX-License-Identifier: MIT
/*
 * A QP connected to itself: all work requests, and a queue full of them, without a lock that waits for itself. Then
 * two QPs of one context with one CQ for everything.
 */
#include "common.h"

#include <errno.h>
#include <string.h>

static struct node a;
static struct address self;

static void connect_self(enum ibv_qp_type type)
{
	struct node_attr attr = node_attr(type);

	node_open(&a, &attr);
	node_address(&a, &self);
	node_connect(&a, &self);
}

static void messages(void)
{
	for (uint64_t i = 0; i < 2000; i++) {
		uint32_t len = (uint32_t)(i * 37 % 20000);

		pattern_fill(a.buf, len, (uint32_t)i);
		check_eq(node_recv(&a, i, 32768, len), 0);
		check_eq(node_send(&a, i, 0, len, IBV_SEND_SIGNALED), 0);
		cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
		cq_expect(a.recv_cq, i, IBV_WC_SUCCESS);
		check_eq(pattern_check(a.buf + 32768, len, (uint32_t)i), len);
	}
}

static void one_sided(void)
{
	uint64_t *word = (uint64_t *)(a.buf + 40960);

	pattern_fill(a.buf, 8192, 7);
	check_eq(node_rdma(&a, 1, IBV_WR_RDMA_WRITE, 0, 8192, &self, 16384), 0);
	cq_expect(a.send_cq, 1, IBV_WC_SUCCESS);
	check_eq(pattern_check(a.buf + 16384, 8192, 7), 8192);
	memset(a.buf, 0, 8192);
	check_eq(node_rdma(&a, 2, IBV_WR_RDMA_READ, 0, 8192, &self, 16384), 0);
	cq_expect(a.send_cq, 2, IBV_WC_SUCCESS);
	check_eq(pattern_check(a.buf, 8192, 7), 8192);
	*word = 10;
	check_eq(node_rdma(&a, 3, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, &self, 40960), 0);
	cq_expect(a.send_cq, 3, IBV_WC_SUCCESS);
	check_eq(*word, 11);
}

/* 64 sends before the first receive, then the receives: all arrive, in order. */
static void full_queue(void)
{
	for (uint64_t i = 0; i < 64; i++)
		check_eq(node_send(&a, i, i, 1, IBV_SEND_SIGNALED), 0);
	for (uint64_t i = 0; i < 64; i++)
		check_eq(node_recv(&a, 100 + i, 8192 + i, 1), 0);
	for (uint64_t i = 0; i < 64; i++) {
		cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
		cq_expect(a.recv_cq, 100 + i, IBV_WC_SUCCESS);
		check_eq(a.buf[8192 + i], a.buf[i]);
	}
}

/* An error meets requester and responder in the same QP. */
static void failing(void)
{
	check_eq(node_recv(&a, 1, 0, 10), 0);
	check_eq(node_send(&a, 2, 0, 11, IBV_SEND_SIGNALED), 0);
	cq_expect(a.recv_cq, 1, IBV_WC_LOC_LEN_ERR);
	check_eq(qp_get_state(a.qp), IBV_QPS_ERR);
}

int main(void)
{
	connect_self(IBV_QPT_RC);
	messages();
	one_sided();
	full_queue();
	failing();
	node_close(&a);
	connect_self(IBV_QPT_UC);
	messages();
	node_close(&a);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * A thousand QPs in one process, in pairs, all connected at once and all used: numbers are unique, messages come to
 * the right one, and everything can be destroyed again, twice over.
 */
#include "common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS = 500, ROUNDS = 4 };

static struct node hub; /* PD, CQs and buffer for all */
static struct ibv_qp *qps[PAIRS * 2];

static void connect_pair(int i)
{
	struct address at[2];
	struct node side = hub;

	for (int k = 0; k < 2; k++) {
		side.qp = qps[2 * i + k];
		node_address(&side, &at[k]);
	}
	for (int k = 0; k < 2; k++) {
		side.qp = qps[2 * i + k];
		node_connect(&side, &at[!k]);
	}
}

static int compare(const void *x, const void *y)
{
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;

	return a < b ? -1 : a > b;
}

static void check_numbers(void)
{
	uint32_t numbers[PAIRS * 2];

	for (int i = 0; i < PAIRS * 2; i++) {
		numbers[i] = qps[i]->qp_num;
		check(numbers[i] > 1 && numbers[i] < 1u << 24, "qpn %#x", numbers[i]);
	}
	qsort(numbers, PAIRS * 2, sizeof(numbers[0]), compare);
	for (int i = 1; i < PAIRS * 2; i++)
		check(numbers[i] != numbers[i - 1], "qpn %#x twice", numbers[i]);
}

/* Every QP sends to its partner; all receives are posted first, all sends before the first poll. */
static void traffic(int round)
{
	struct node side = hub;
	struct ibv_wc wc;
	uint8_t sent[PAIRS * 2] = { 0 }, got[PAIRS * 2] = { 0 };

	for (int i = 0; i < PAIRS * 2; i++) {
		side.qp = qps[i];
		check_eq(node_recv(&side, (uint64_t)i, 65536 + (size_t)i * 64, 64), 0);
	}
	for (int i = 0; i < PAIRS * 2; i++) {
		side.qp = qps[i];
		pattern_fill(hub.buf + i * 64, 64, (uint32_t)(i + round));
		check_eq(node_send(&side, (uint64_t)i, (size_t)i * 64, 64, IBV_SEND_SIGNALED), 0);
	}
	for (int i = 0; i < PAIRS * 2; i++) {
		check(cq_wait(hub.send_cq, &wc, PATIENCE_MS), "send %d", i);
		check_status(&wc, IBV_WC_SUCCESS);
		check_eq(wc.qp_num, qps[wc.wr_id]->qp_num);
		check_eq(sent[wc.wr_id]++, 0);
		check(cq_wait(hub.recv_cq, &wc, PATIENCE_MS), "receive %d", i);
		check_status(&wc, IBV_WC_SUCCESS);
		check_eq(wc.qp_num, qps[wc.wr_id]->qp_num);
		check_eq(got[wc.wr_id]++, 0);
	}
	for (int i = 0; i < PAIRS * 2; i++)
		check(pattern_check(hub.buf + 65536 + i * 64, 64, (uint32_t)((i ^ 1) + round)) ==
			      64,
		      "message of QP %d", i);
}

int main(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.cap.max_send_wr = attr.cap.max_recv_wr = 16;
	attr.cqe = PAIRS * 2 + 16;
	attr.size = 65536 * 2;
	node_open(&hub, &attr);
	for (int life = 0; life < 2; life++) {
		for (int i = 0; i < PAIRS * 2; i++) {
			qps[i] = node_create_qp(&hub);
			check(qps[i], "QP %d: %s", i, strerror(errno));
		}
		check_numbers();
		for (int i = 0; i < PAIRS; i++)
			connect_pair(i);
		for (int round = 0; round < ROUNDS; round++)
			traffic(round);
		for (int i = 0; i < PAIRS * 2; i++)
			check_eq(ibv_destroy_qp(qps[i]), 0);
	}
	node_close(&hub);
	return 0;
}

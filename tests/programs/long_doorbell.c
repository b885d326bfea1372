// SPDX-License-Identifier: MIT
/*
 * A doorbell that posts a gibibyte: the call that rings does a share of it and returns, the rest is done by whoever makes
 * progress. So neither the caller nor one that waits for it (here a deregistration) waits for all.
 */
#include "common.h"

#include <string.h>

enum { LEN = 32 << 20, COUNT = 32, TRIES = 10 };

/* So many WRITEs to itself, then one of the flag, with one doorbell. */
static void post_all(struct node *node, const struct address *own, uint64_t *flag,
		     const struct ibv_mr *flag_mr)
{
	struct ibv_sge sge = { (uintptr_t)node->buf, LEN, node->mr->lkey };
	struct ibv_sge last = { (uintptr_t)&flag[1], 8, flag_mr->lkey };
	struct ibv_send_wr wr[COUNT + 1] = { 0 }, *bad;

	for (int i = 0; i < COUNT; i++)
		wr[i] = (struct ibv_send_wr){
			.next = &wr[i + 1],
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = { .remote_addr = own->addr + LEN, .rkey = own->rkey },
		};
	wr[COUNT] = (struct ibv_send_wr){
		.wr_id = 1,
		.sg_list = &last,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)&flag[0], .rkey = flag_mr->rkey },
	};
	check_eq(ibv_post_send(node->qp, wr, &bad), 0);
}

int main(void)
{
	static uint64_t flag[2] = { 0, 1 }, other;
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address own;
	struct ibv_mr *mr;
	struct node node;
	int early = 0;

	attr.size = 2 * LEN;
	attr.cap.max_send_wr = COUNT + 1;
	node_open(&node, &attr);
	node_address(&node, &own);
	node_connect(&node, &own);
	mr = ibv_reg_mr(node.pd, flag, sizeof(flag), ACCESS_ALL);
	check(mr);
	/* Under load this thread may sleep at the wrong moment, but not every time. */
	for (int i = 0; i < TRIES && early < 2; i++) {
		struct ibv_mr *unrelated = ibv_reg_mr(node.pd, &other, sizeof(other), 0);

		check(unrelated);
		flag[0] = 0;
		post_all(&node, &own, flag, mr);
		early += !*(volatile uint64_t *)&flag[0];
		check_eq(ibv_dereg_mr(unrelated), 0);
		early += !*(volatile uint64_t *)&flag[0];
		cq_expect(node.send_cq, 1, IBV_WC_SUCCESS);
		check_eq(*(volatile uint64_t *)&flag[0], 1);
	}
	check(early >= 2, "the doorbell did everything, in each of %d tries", TRIES);
	check_eq(ibv_dereg_mr(mr), 0);
	node_close(&node);
	return 0;
}

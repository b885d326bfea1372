// SPDX-License-Identifier: MIT
/*
 * `instructions-bench OPERATION COUNT`: so many operations of one kind, one after the other, in one process and one
 * thread. bench/instructions/run counts the instructions of two such runs; what a run costs beside its operations is
 * in both.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tests/programs/common.h"

enum { BYTES = 8, FRAME_BYTES = 64, LANDING = 4096 };

struct operation {
	const char *name;
	enum ibv_qp_type type;
	enum ibv_wr_opcode opcode;
	bool received; /* the other side has a completion, too */
};

static const struct operation operations[] = {
	{ "SEND", IBV_QPT_RC, IBV_WR_SEND, true },
	{ "WRITE", IBV_QPT_RC, IBV_WR_RDMA_WRITE, false },
	{ "READ", IBV_QPT_RC, IBV_WR_RDMA_READ, false },
	{ "atomic", IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, false },
	{ "UD", IBV_QPT_UD, IBV_WR_SEND, true },
	{ "frame", IBV_QPT_RAW_PACKET, IBV_WR_SEND, true },
};

struct sides {
	struct node a, b;
	struct address peer;
	struct ibv_ah *ah;
	struct ibv_flow *flow;
};

static void reap(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	check(n == 1);
	check_status(&wc, IBV_WC_SUCCESS);
}

/* The two ports of a cable (run has the configuration), and a rule that brings all frames to the second one's queue pair. */
static void open_frames(struct sides *sides)
{
	struct node_attr attr = node_attr(IBV_QPT_RAW_PACKET);
	static const uint8_t head[] = { 2, 17, 34, 51, 68, 85, 2, 17, 34, 51, 68, 102, 0x88, 0xb5 };

	setenv("VERBATIM_TEST_DEVICE", "mlx5_0", 1);
	node_open(&sides->a, &attr);
	setenv("VERBATIM_TEST_DEVICE", "mlx5_1", 1);
	node_open(&sides->b, &attr);
	raw_to_rts(sides->a.qp);
	raw_to_rts(sides->b.qp);
	sides->flow = flow_all(sides->b.qp);
	check(sides->flow);
	memcpy(sides->a.buf, head, sizeof(head));
}

static void open_sides(struct sides *sides, const struct operation *op)
{
	struct node_attr attr = node_attr(op->type);
	struct ibv_ah_attr ah;

	if (op->type == IBV_QPT_RAW_PACKET) {
		open_frames(sides);
		return;
	}
	node_pair(&sides->a, &sides->b, &attr);
	node_address(&sides->b, &sides->peer);
	if (op->type == IBV_QPT_UD) {
		ah_attr_to(&ah, &sides->peer.gid);
		sides->ah = ibv_create_ah(sides->a.pd, &ah);
		check(sides->ah);
	}
}

static void fill_request(struct ibv_send_wr *wr, const struct sides *sides,
			 const struct operation *op)
{
	wr->opcode = op->opcode;
	wr->send_flags = IBV_SEND_SIGNALED;
	if (op->type == IBV_QPT_UD) {
		wr->wr.ud.ah = sides->ah;
		wr->wr.ud.remote_qpn = sides->peer.qpn;
		wr->wr.ud.remote_qkey = TEST_QKEY;
	} else if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.remote_addr = sides->peer.addr + LANDING;
		wr->wr.atomic.rkey = sides->peer.rkey;
		wr->wr.atomic.compare_add = 1;
	} else if (op->type == IBV_QPT_RC) {
		wr->wr.rdma.remote_addr = sides->peer.addr + LANDING;
		wr->wr.rdma.rkey = sides->peer.rkey;
	}
}

static void run(struct sides *sides, const struct operation *op, unsigned long count)
{
	struct ibv_sge sge = { (uintptr_t)sides->a.buf, BYTES, sides->a.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	if (op->type == IBV_QPT_RAW_PACKET)
		sge.length = FRAME_BYTES;
	fill_request(&wr, sides, op);
	for (unsigned long i = 0; i < count; i++) {
		if (op->received)
			check_eq(node_recv(&sides->b, i, LANDING, 1024), 0);
		check_eq(ibv_post_send(sides->a.qp, &wr, &bad), 0);
		reap(sides->a.send_cq);
		if (op->received)
			reap(sides->b.recv_cq);
	}
}

static void close_sides(struct sides *sides)
{
	if (sides->ah)
		check_eq(ibv_destroy_ah(sides->ah), 0);
	if (sides->flow)
		check_eq(ibv_destroy_flow(sides->flow), 0);
	node_close(&sides->a);
	node_close(&sides->b);
}

int main(int argc, char **argv)
{
	const size_t num = sizeof(operations) / sizeof(operations[0]);
	struct sides sides = { 0 };

	for (size_t i = 0; argc == 3 && i < num; i++) {
		if (strcmp(operations[i].name, argv[1]))
			continue;
		open_sides(&sides, &operations[i]);
		run(&sides, &operations[i], strtoul(argv[2], NULL, 0));
		close_sides(&sides);
		return 0;
	}
	fprintf(stderr, "usage: instructions-bench SEND|WRITE|READ|atomic|UD|frame COUNT\n");
	return 2;
}

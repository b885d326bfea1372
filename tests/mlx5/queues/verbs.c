// SPDX-License-Identifier: MIT
/*
 * Commands on queues of verbs: queries show what verbs have set, a queue pair is connected by commands and used by verbs.
 */
#include "hand.h"

#include <string.h>

enum {
	BAD_QP_STATE = 0x10,
	BAD_RES_STATE = 9,
	QPC = 0xc0,
	PATH = QPC + 0xc0,
	CTX = 0x100,
	WQ = CTX + 0x180,
	CQC = 0x80
};

static int on_qp(struct ibv_qp *qp, struct command *c, bool modify)
{
	put_bits(c->in, 0x48, 24, qp->qp_num);
	return modify ? mlx5dv_devx_qp_modify(qp, c->in, 272, c->out, 16)
		      : mlx5dv_devx_qp_query(qp, c->in, 16, c->out, 272);
}

static void connect_by_command(struct node *node, const struct address *peer)
{
	struct command c;

	command_begin(&c, 0x502);
	put_bits(c.in, QPC + 0x490, 3, 7);
	check_eq(on_qp(node->qp, &c, true), 0);
	check_eq(node->qp->state, IBV_QPS_INIT);
	command_begin(&c, 0x503);
	put_bits(c.in, QPC + 0x40, 3, node->mtu);
	put_bits(c.in, QPC + 0x488, 3, 2);
	put_bits(c.in, QPC + 0x4a8, 24, peer->psn);
	put_bits(c.in, QPC + 0xa8, 24, peer->qpn);
	put_bits(c.in, PATH + 0x48, 8, TEST_GID_INDEX);
	memcpy(c.in + (PATH + 0x80) / 8, &peer->gid, 16);
	check_eq(on_qp(node->qp, &c, true), 0);
	command_begin(&c, 0x504);
	put_bits(c.in, QPC + 0x388, 3, 2);
	put_bits(c.in, QPC + 0x38d, 3, 7);
	put_bits(c.in, QPC + 0x390, 3, 7);
	put_bits(c.in, QPC + 0x3c8, 24, TEST_PSN);
	check_eq(on_qp(node->qp, &c, true), 0);
	check_eq(node->qp->state, IBV_QPS_RTS);
	check_eq(on_qp(node->qp, &c, true), EREMOTEIO); /* it is there */
	check_eq(c.out[0], BAD_QP_STATE);
}

static void queue_pairs(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address self;
	struct command c;
	struct node node;

	node_open(&node, &attr);
	node_address(&node, &self);
	connect_by_command(&node, &self);
	check_eq(qp_get_state(node.qp), IBV_QPS_RTS);
	pattern_fill(node.buf, 500, 1);
	check_eq(node_rdma(&node, 4, IBV_WR_RDMA_WRITE, 0, 500, &self, 4096), 0);
	cq_expect(node.send_cq, 4, IBV_WC_SUCCESS);
	check_eq(pattern_check(node.buf + 4096, 500, 1), 500);
	command_begin(&c, 0x50b);
	check_eq(on_qp(node.qp, &c, false), 0);
	check_eq(get_bits(c.out, QPC, 4), 3);
	check_eq(get_bits(c.out, QPC + 0x3e8, 24), node.send_cq->handle);
	check_eq(get_bits(c.out, QPC + 0xa8, 24), self.qpn);
	check_eq(get_bits(c.out, QPC + 0x488, 3), 2);
	check(!memcmp(c.out + (PATH + 0x80) / 8, &self.gid, 16));
	/* Verbs take it to SQD, a command back. */
	check_eq(qp_set_state(node.qp, IBV_QPS_SQD), 0);
	command_begin(&c, 0x50c);
	check_eq(on_qp(node.qp, &c, true), 0);
	check_eq(node_rdma(&node, 5, IBV_WR_RDMA_WRITE, 0, 500, &self, 4096), 0);
	cq_expect(node.send_cq, 5, IBV_WC_SUCCESS);
	command_begin(&c, 0x402);
	check_eq(on_qp(node.qp, &c, false), EINVAL); /* of CQs */
	command_begin(&c, 0x507);
	check_eq(on_qp(node.qp, &c, true), 0);
	check_eq(qp_get_state(node.qp), IBV_QPS_ERR);
	/* Verbs forget what was posted, too. */
	command_begin(&c, 0x50a);
	check_eq(on_qp(node.qp, &c, true), 0);
	check_eq(qp_get_state(node.qp), IBV_QPS_RESET);
	connect_by_command(&node, &self);
	check_eq(node_rdma(&node, 6, IBV_WR_RDMA_WRITE, 0, 500, &self, 4096), 0);
	cq_expect(node.send_cq, 6, IBV_WC_SUCCESS);
	command_begin(&c, 0x402);
	put_bits(c.in, 0x48, 24, node.send_cq->handle);
	check_eq(mlx5dv_devx_cq_query(node.send_cq, c.in, 16, c.out, 272), 0);
	check_eq(get_bits(c.out, CQC + 0x148, 24),
		 get_bits(c.out, CQC + 0x168, 24)); /* all polled */
	node_close(&node);
}

static void other_queues(void)
{
	struct ibv_context *ctx = device_open();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 63, NULL, NULL, 0);
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
	struct ibv_wq_init_attr wq_attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = 16, .max_sge = 1, .pd = pd, .cq = cq
	};
	struct ibv_wq *wq = ibv_create_wq(ctx, &wq_attr);
	struct command c;

	check(pd && cq && srq && wq);
	command_begin(&c, 0x403);
	put_bits(c.in, 0x48, 24, cq->handle);
	put_bits(c.in, 0x60, 32, 2);
	put_bits(c.in, CQC + 0x90, 16, 7);
	check_eq(mlx5dv_devx_cq_modify(cq, c.in, 272, c.out, 16), 0);
	command_begin(&c, 0x402);
	put_bits(c.in, 0x48, 24, cq->handle);
	check_eq(mlx5dv_devx_cq_query(cq, c.in, 16, c.out, 272), 0);
	check_eq(get_bits(c.out, CQC + 0x63, 5), 6);
	check_eq(get_bits(c.out, CQC + 0x90, 16), 7);
	put_bits(c.in, 0x48, 24, cq->handle + 1);
	check_eq(mlx5dv_devx_cq_query(cq, c.in, 16, c.out, 272), EINVAL);
	check_eq(mlx5dv_devx_cq_query(NULL, c.in, 16, c.out, 272), EINVAL);
	check_eq(mlx5dv_devx_cq_query(cq, NULL, 16, c.out, 272), EINVAL);

	command_begin(&c, 0x90d);
	put_bits(c.in, 0x48, 24, srq->handle);
	put_bits(c.in, 0x40, 4, 1);
	put_bits(c.in, 0x80, 64, 1);
	put_bits(c.in, CTX + 0x8, 4, 1);
	put_bits(c.in, WQ + 0x30, 16, 5); /* of which there are none posted: it fires at once */
	check_eq(mlx5dv_devx_srq_modify(srq, c.in, 272, c.out, 16), 0);
	check_eq(event_wait(ctx, PATIENCE_MS), IBV_EVENT_SRQ_LIMIT_REACHED);
	command_begin(&c, 0x90f);
	put_bits(c.in, 0x48, 24, srq->handle);
	check_eq(mlx5dv_devx_srq_query(srq, c.in, 16, c.out, 272), 0);
	check_eq(get_bits(c.out, CTX + 0x8, 4), 1);

	command_begin(&c, 0x909);
	put_bits(c.in, 0x48, 24, wq->wq_num);
	put_bits(c.in, CTX + 0x8, 4, WQ_RDY);
	check_eq(mlx5dv_devx_wq_modify(wq, c.in, 272, c.out, 16), 0);
	check_eq(wq->state, IBV_WQS_RDY);
	check_eq(mlx5dv_devx_wq_modify(wq, c.in, 272, c.out, 16), EREMOTEIO);
	check_eq(c.out[0], BAD_RES_STATE);
	command_begin(&c, 0x90b);
	put_bits(c.in, 0x48, 24, wq->wq_num);
	check_eq(mlx5dv_devx_wq_query(wq, c.in, 16, c.out, 272), 0);
	check_eq(get_bits(c.out, CTX + 0x8, 4), WQ_RDY);
	check_eq(get_bits(c.out, CTX + 0x48, 24), cq->handle);
	check_eq(ibv_destroy_wq(wq), 0);
	check_eq(ibv_destroy_srq(srq), 0);
	check_eq(ibv_destroy_cq(cq), 0);
	check_eq(ibv_dealloc_pd(pd), 0);
	check_eq(ibv_close_device(ctx), 0);
}

int main(void)
{
	queue_pairs();
	other_queues();
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * The first mlx5 adapter driven in two ways, as mlx4.c does it: by ibv_post_send() and ibv_poll_cq(), and by hand with queues
 * that were made by command (DEVX). One thread plays both sides: RDMA writes of 8 bytes to itself.
 */
#include "bench.h"

#include "../../tests/mlx5/queues/hand.h"

enum { BURST = 16 };

static double by_verbs(struct node *node, const struct address *self, uint64_t count)
{
	double start = bench_now();
	struct ibv_wc wc;

	for (uint64_t i = 0; i < count; i++) {
		check_eq(node_rdma(node, i, IBV_WR_RDMA_WRITE, 0, 8, self, 4096), 0);
		while (!ibv_poll_cq(node->send_cq, 1, &wc))
			;
	}
	return (bench_now() - start) / (double)count;
}

static void post_write(struct hand_qp *qp, const struct hand_address *self, bool signalled)
{
	struct wqe wqe;

	wqe_begin(&wqe, MLX5_OPCODE_RDMA_WRITE, signalled ? MLX5_WQE_CTRL_CQ_UPDATE : 0, 0);
	wqe_put_raddr(&wqe, self->addr + 4096, self->rkey);
	wqe_put_data(&wqe, qp->hand->buf, 8, qp->hand->mr->lkey);
	hand_post(qp, &wqe);
}

/* burst WQEs per doorbell, the last with a completion. */
static double by_hand(struct hand_qp *qp, const struct hand_address *self, uint64_t count,
		      uint64_t burst)
{
	double start = bench_now();
	struct mlx5_cqe64 cqe;

	for (uint64_t i = 0; i < count; i += burst) {
		for (uint64_t k = 1; k <= burst; k++)
			post_write(qp, self, k == burst);
		hand_ring(qp);
		while (!hand_poll(qp->send, &cqe))
			;
	}
	return (bench_now() - start) / (double)count;
}

/* A bell that finds nothing posted: the trap, or the call in its place. */
static double bells(struct hand_qp *qp, uint64_t count)
{
	double start = bench_now();

	for (uint64_t i = 0; i < count; i++)
		hand_ring(qp);
	return (bench_now() - start) / (double)count;
}

/* In turns, so that all of them meet the same hours of a shared machine. */
void bench_mlx5(const struct bench *bench)
{
	enum { VERBS, RAW, RAW_BURST, BELL, ROWS };
	static const char *const names[ROWS] = { "mlx5 write, verbs", "mlx5 write, raw",
						 "mlx5 write, raw, 16 per bell", "mlx5 doorbell" };
	uint64_t count = bench->quick ? 160 : 32000;
	struct node_attr attr = node_attr(IBV_QPT_RC);
	double samples[ROWS][BENCH_REPEATS];
	struct hand_address raw_self;
	struct address self;
	struct hand_cq cq;
	struct hand_qp qp;
	struct hand hand;
	struct node node;

	attr.sig_all = true;
	node_open(&node, &attr);
	node_address(&node, &self);
	node_connect(&node, &self);
	hand_open(&hand);
	hand_cq(&hand, &cq, 6);
	hand_qp(&hand, &qp, IBV_QPT_RC, &cq, &cq);
	hand_address(&qp, &raw_self);
	hand_connect(&qp, &raw_self);
	for (int r = -1; r < bench->repeats; r++) {
		double ns[ROWS] = { [VERBS] = by_verbs(&node, &self, count),
				    [RAW] = by_hand(&qp, &raw_self, count, 1),
				    [RAW_BURST] = by_hand(&qp, &raw_self, count, BURST),
				    [BELL] = bells(&qp, count) };

		for (int what = 0; what < ROWS && r >= 0; what++)
			samples[what][r] = ns[what];
	}
	for (int what = 0; what < ROWS; what++)
		bench_print(names[what], "one", 8, "ns", samples[what], bench->repeats);
	hand_qp_end(&qp);
	hand_cq_end(&cq);
	hand_close(&hand);
	node_close(&node);
}

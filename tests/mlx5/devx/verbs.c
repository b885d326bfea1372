// SPDX-License-Identifier: MIT
/*
 * Commands on objects that verbs made: what a query says is what verbs say, and what a command
 * changes verbs see.
 */
#include "commands.h"

static struct command c;

static uint32_t pdn(void)
{
	struct mlx5dv_pd dv;
	struct mlx5dv_obj obj = { .pd = { .in = kit.pd, .out = &dv } };

	assert_ok(mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD));
	return dv.pdn;
}

static int query_qp(struct ibv_qp *qp)
{
	command(&c, 0x50b, 16, 272);
	put_bits(c.in, 0x48, 24, qp->qp_num);
	return mlx5dv_devx_qp_query(qp, c.in, c.inlen, c.out, c.outlen);
}

static int modify_qp(struct ibv_qp *qp)
{
	memset(c.out, 0xa5, sizeof(c.out));
	return mlx5dv_devx_qp_modify(qp, c.in, c.inlen, c.out, c.outlen);
}

static void qp_command(struct ibv_qp *qp, uint16_t opcode, size_t inlen)
{
	command(&c, opcode, inlen, 16);
	put_bits(c.in, 0x48, 24, qp->qp_num);
}

/* RST to RTS and back by command, on a queue pair of ibv_create_qp(); a message in between. */
static void queue_pairs(void **state)
{
	struct ibv_qp_init_attr init = {
		.send_cq = kit.cq,
		.recv_cq = kit.cq,
		.cap = { 4, 4, 1, 1, 16 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(kit.pd, &init);
	struct ibv_qp_attr attr;
	struct ibv_sge sge = { (uintptr_t) "hello", 5, 0 };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE };
	struct ibv_send_wr *bad;
	struct ibv_recv_wr recv = { 0 }, *bad_recv;
	struct ibv_wc wc;
	union ibv_gid gid;
	int n = 0, got;

	(void)state;
	assert_non_null(qp);
	assert_ok(query_qp(qp));
	assert_int_equal(get_bits(c.out, 0xc0, 4), 0);
	assert_int_equal(get_bits(c.out, 0xc0 + 0x28, 24), pdn());
	assert_int_equal(get_bits(c.out, 0xc0 + 0x3e8, 24), kit.cq->handle);
	put_bits(c.in, 0x48, 24, qp->qp_num ^ 1);
	assert_int_equal(mlx5dv_devx_qp_query(qp, c.in, 16, c.out, 272), EINVAL);

	qp_command(qp, 0x503, 272); /* INIT2RTR, in RST */
	assert_int_equal(modify_qp(qp), EREMOTEIO);
	assert_status(&c, 0x10); /* BAD_QP_STATE */
	qp_command(qp, 0x502, 272);
	put_bits(c.in, 0xc0 + 0xc0 + 0x128, 8, 1);
	put_bits(c.in, 0xc0 + 0x13, 2, 3);
	assert_ok(modify_qp(qp));
	assert_int_equal(qp->state, IBV_QPS_INIT);
	assert_ok(ibv_post_recv(qp, &recv, &bad_recv));
	assert_ok(ibv_query_gid(kit.ctx, 1, 0, &gid));
	qp_command(qp, 0x503, 272);
	put_bits(c.in, 0xc0 + 0x40, 3, IBV_MTU_1024);
	put_bits(c.in, 0xc0 + 0x43, 5, 30);
	put_bits(c.in, 0xc0 + 0xa8, 24, qp->qp_num);
	put_bits(c.in, 0xc0 + 0xc0 + 0x128, 8, 1);
	memcpy(c.in + (0xc0 + 0xc0 + 0x80) / 8, gid.raw, 16);
	assert_ok(modify_qp(qp));
	qp_command(qp, 0x504, 272);
	put_bits(c.in, 0xc0 + 0xc0 + 0x40, 5, 14);
	put_bits(c.in, 0xc0 + 0x38d, 3, 7);
	put_bits(c.in, 0xc0 + 0x390, 3, 7);
	assert_ok(modify_qp(qp));
	assert_int_equal(qp->state, IBV_QPS_RTS);
	assert_ok(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN, &init));
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.dest_qp_num, qp->qp_num);
	/* an empty receive takes an empty message */
	sge.length = 0;
	wr.num_sge = 0;
	assert_ok(ibv_post_send(qp, &wr, &bad));
	while (n < 2) {
		got = ibv_poll_cq(kit.cq, 1, &wc);
		assert_true(got >= 0);
		if (got)
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
		n += got;
	}
	assert_ok(query_qp(qp));
	assert_int_equal(get_bits(c.out, 0xc0, 4), 3);
	assert_int_equal(get_bits(c.out, 0xc0 + 0xa8, 24), qp->qp_num);
	assert_memory_equal(c.out + (0xc0 + 0xc0 + 0x80) / 8, gid.raw, 16);
	qp_command(qp, 0x507, 16);
	assert_ok(modify_qp(qp));
	assert_int_equal(qp->state, IBV_QPS_ERR);
	qp_command(qp, 0x50a, 16);
	put_bits(c.in, 0x48, 24, qp->qp_num ^ 1);
	assert_int_equal(modify_qp(qp), EINVAL);
	assert_int_equal(qp->state, IBV_QPS_ERR);
	qp_command(qp, 0x50a, 16);
	assert_ok(modify_qp(qp));
	assert_int_equal(qp->state, IBV_QPS_RESET);
	qp_command(qp, 0x402, 16); /* of another kind */
	assert_int_equal(modify_qp(qp), EINVAL);
	assert_ok(ibv_destroy_qp(qp));
	assert_int_equal(mlx5dv_devx_qp_query(NULL, c.in, 16, c.out, 272), EINVAL);
}

static void completion_queues(void **state)
{
	struct ibv_cq *cq = ibv_create_cq(kit.ctx, 63, NULL, NULL, 0);

	(void)state;
	assert_non_null(cq);
	command(&c, 0x403, 272, 16);
	put_bits(c.in, 0x48, 24, cq->handle);
	put_bits(c.in, 0x60, 32, 3); /* period and count */
	put_bits(c.in, 0x80 + 0x84, 12, 77);
	put_bits(c.in, 0x80 + 0x90, 16, 5);
	assert_ok(mlx5dv_devx_cq_modify(cq, c.in, 272, c.out, 16));
	command(&c, 0x402, 16, 272);
	put_bits(c.in, 0x48, 24, cq->handle);
	assert_ok(mlx5dv_devx_cq_query(cq, c.in, 16, c.out, 272));
	assert_int_equal(1 << get_bits(c.out, 0x80 + 0x63, 5), cq->cqe + 1);
	assert_int_equal(get_bits(c.out, 0x80 + 0x84, 12), 77);
	assert_int_equal(get_bits(c.out, 0x80 + 0x90, 16), 5);
	assert_int_equal(mlx5dv_devx_cq_query(cq, c.in, 16, c.out, 271), EREMOTEIO);
	assert_int_equal(c.out[0], BAD_OUTP_LEN);
	put_bits(c.in, 0x48, 24, cq->handle + 1);
	assert_int_equal(mlx5dv_devx_cq_query(cq, c.in, 16, c.out, 272), EINVAL);
	assert_ok(ibv_destroy_cq(cq));
}

static void receive_queues(void **state)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(kit.pd, &srq_attr);
	struct ibv_wq_init_attr wq_attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = 16, .max_sge = 1, .pd = kit.pd, .cq = kit.cq
	};
	struct ibv_wq *wq = ibv_create_wq(kit.ctx, &wq_attr);
	struct ibv_recv_wr recv = { 0 }, *bad;
	uint32_t number;

	(void)state;
	assert_non_null(srq);
	assert_non_null(wq);
	assert_ok(ibv_get_srq_num(srq, &number));
	for (int i = 0; i < 12; i++) /* the limit is not reached yet */
		assert_ok(ibv_post_srq_recv(srq, &recv, &bad));
	command(&c, 0x90d, 272, 16);
	put_bits(c.in, 0x40, 4, 1);
	put_bits(c.in, 0x48, 24, number);
	put_bits(c.in, 0x80, 64, 1);
	put_bits(c.in, 0x108, 4, 1);
	put_bits(c.in, 0x100 + 0x180 + 0x30, 16, 9);
	assert_ok(mlx5dv_devx_srq_modify(srq, c.in, 272, c.out, 16));
	assert_ok(ibv_query_srq(srq, &srq_attr.attr));
	assert_int_equal(srq_attr.attr.srq_limit, 9);
	command(&c, 0x90f, 16, 272);
	put_bits(c.in, 0x48, 24, number);
	assert_ok(mlx5dv_devx_srq_query(srq, c.in, 16, c.out, 272));
	assert_int_equal(get_bits(c.out, 0x100 + 0x180 + 0x30, 16), 9);
	assert_int_equal(get_bits(c.out, 0x100 + 0x180 + 0x48, 24), pdn());

	command(&c, 0x909, 272, 16);
	put_bits(c.in, 0x48, 24, wq->wq_num);
	put_bits(c.in, 0x108, 4, 1); /* RST to RDY */
	assert_ok(mlx5dv_devx_wq_modify(wq, c.in, 272, c.out, 16));
	assert_int_equal(wq->state, IBV_WQS_RDY);
	assert_int_equal(mlx5dv_devx_wq_modify(wq, c.in, 272, c.out, 16), EREMOTEIO);
	put_bits(c.in, 0x40, 4, 1);
	put_bits(c.in, 0x108, 4, 0); /* and back */
	assert_ok(mlx5dv_devx_wq_modify(wq, c.in, 272, c.out, 16));
	assert_int_equal(wq->state, IBV_WQS_RESET);
	command(&c, 0x90b, 16, 272);
	put_bits(c.in, 0x48, 24, wq->wq_num);
	assert_ok(mlx5dv_devx_wq_query(wq, c.in, 16, c.out, 272));
	assert_int_equal(get_bits(c.out, 0x108, 4), 0);
	assert_int_equal(get_bits(c.out, 0x100 + 0x48, 24), kit.cq->handle);
	assert_ok(ibv_destroy_wq(wq));
	assert_ok(ibv_destroy_srq(srq));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(queue_pairs),
		cmocka_unit_test(completion_queues),
		cmocka_unit_test(receive_queues),
	};

	return cmocka_run_group_tests(tests, kit_open, kit_close);
}

// SPDX-License-Identifier: MIT
/*
 * The states of DCIs and DCTs: which transitions there are, what each needs and takes, what queries say, and how the two are
 * made and not made.
 */
#include "dc.h"

#include <errno.h>
#include <string.h>

static struct dc dc;

#define DCT_INIT (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define DCT_RTR  (IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU)
#define DCI_INIT (IBV_QP_PKEY_INDEX | IBV_QP_PORT)
#define DCI_RTS                                                                           \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | \
	 IBV_QP_SQ_PSN)

static int move(struct ibv_qp *qp, enum ibv_qp_state to, int mask)
{
	struct ibv_qp_attr attr = {
		.qp_state = to,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = dc.gid_index } }
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask);
}

/* Each attribute that is needed is needed, and none that is not known is taken. */
static void needs(struct ibv_qp *qp, enum ibv_qp_state to, int required, int optional)
{
	for (int bit = 1 << 3; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
		if (required & bit)
			check_eq(move(qp, to, required & ~bit), EINVAL);
		else if (!(optional & bit))
			check_eq(move(qp, to, required | bit), EINVAL);
	}
	check_eq(move(qp, to, required), 0);
}

static void refuses(struct ibv_qp *qp, uint32_t states)
{
	for (enum ibv_qp_state to = IBV_QPS_RESET; to <= IBV_QPS_ERR; to++)
		if (states & 1u << to)
			check_eq(move(qp, to, 0), EINVAL);
}

static void target(void)
{
	struct ibv_qp *qp = dct_create(&dc, DC_KEY);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	check(qp != NULL);
	check_eq(qp->qp_num, 0);
	check_eq(qp->state, IBV_QPS_RESET);
	check_eq(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), EINVAL);
	refuses(qp, ~(1u << IBV_QPS_INIT));
	needs(qp, IBV_QPS_INIT, DCT_INIT, 0);
	check_eq(qp->qp_num, 0);
	refuses(qp, ~(1u << IBV_QPS_RTR));
	needs(qp, IBV_QPS_RTR, DCT_RTR, 0);
	check(qp->qp_num != 0);
	check_eq(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	check_eq(attr.qp_state, IBV_QPS_RTR);
	check_eq(attr.path_mtu, IBV_MTU_1024);
	check_eq(attr.ah_attr.grh.sgid_index, dc.gid_index);
	check_eq(init.qp_type, IBV_QPT_DRIVER);
	check(init.srq == dc.srq);
	refuses(qp, ~0u);
	/* What it stands on stays. */
	check_eq(ibv_destroy_srq(dc.srq), EBUSY);
	check_eq(ibv_destroy_cq(dc.recv_cq), EBUSY);
	check_eq(ibv_destroy_qp(qp), 0);
	/* One that never got there. */
	qp = dct_create(&dc, DC_KEY);
	check(qp != NULL);
	check_eq(ibv_destroy_qp(qp), 0);
}

static void initiator(void)
{
	struct dci_attr attr = dci_attr();
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr got;
	struct dci dci;

	dci_create(&dci, &dc, &attr);
	check(dci.qp->qp_num != 0);
	for (int round = 0; round < 2; round++) {
		refuses(dci.qp, ~(1u << IBV_QPS_RESET | 1u << IBV_QPS_INIT));
		needs(dci.qp, IBV_QPS_INIT, DCI_INIT, 0);
		check_eq(move(dci.qp, IBV_QPS_INIT, IBV_QP_PORT), 0);
		refuses(dci.qp, 1u << IBV_QPS_RTS | 1u << IBV_QPS_SQD | 1u << IBV_QPS_SQE);
		needs(dci.qp, IBV_QPS_RTR, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX | IBV_QP_AV);
		refuses(dci.qp, 1u << IBV_QPS_INIT | 1u << IBV_QPS_RTR | 1u << IBV_QPS_SQD |
					1u << IBV_QPS_SQE);
		needs(dci.qp, IBV_QPS_RTS, DCI_RTS, IBV_QP_MIN_RNR_TIMER);
		refuses(dci.qp, 1u << IBV_QPS_INIT | 1u << IBV_QPS_RTR | 1u << IBV_QPS_SQD |
					1u << IBV_QPS_SQE);
		check_eq(move(dci.qp, IBV_QPS_RTS, IBV_QP_MIN_RNR_TIMER), 0);
		check_eq(ibv_query_qp(dci.qp, &got, IBV_QP_STATE, &init), 0);
		check_eq(got.qp_state, IBV_QPS_RTS);
		check_eq(init.qp_type, IBV_QPT_DRIVER);
		check(got.cap.max_send_wr >= 64);
		check_eq(got.cap.max_recv_wr, 0);
		check_eq(move(dci.qp, IBV_QPS_ERR, 0), 0);
		check_eq(move(dci.qp, IBV_QPS_ERR, 0), 0);
		refuses(dci.qp, 1u << IBV_QPS_INIT | 1u << IBV_QPS_RTR | 1u << IBV_QPS_RTS);
		check_eq(move(dci.qp, IBV_QPS_RESET, 0), 0);
	}
	check_eq(ibv_destroy_qp(dci.qp), 0);
}

static void creation(void)
{
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_DRIVER,
					    .send_cq = dc.send_cq,
					    .recv_cq = dc.recv_cq,
					    .cap = { .max_send_wr = 4, .max_send_sge = 1 },
					    .comp_mask = IBV_QP_INIT_ATTR_PD,
					    .pd = dc.pd };
	struct mlx5dv_qp_init_attr direct = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
					      .dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCT } };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad_recv;
	struct ibv_qp *qp;

	/* A DCT without an SRQ, a kind that there is not, DC of another type of queue pair, no kind at all. */
	check(!mlx5dv_create_qp(dc.ctx, &attr, &direct) && errno == EINVAL);
	direct.dc_init_attr.dc_type = 3;
	check(!mlx5dv_create_qp(dc.ctx, &attr, &direct) && errno == EINVAL);
	direct.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
	attr.qp_type = IBV_QPT_RC;
	check(!mlx5dv_create_qp(dc.ctx, &attr, &direct) && errno == EINVAL);
	attr.qp_type = IBV_QPT_DRIVER;
	direct.comp_mask = 0;
	check(!mlx5dv_create_qp(dc.ctx, &attr, &direct) && errno == EINVAL);
	check(!ibv_create_qp_ex(dc.ctx, &attr) && errno == EOPNOTSUPP);
	/* ibv_post_send() has no address of DC, and a DCI receives nothing. */
	direct.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
	qp = mlx5dv_create_qp(dc.ctx, &attr, &direct);
	check(qp != NULL);
	check_eq(dci_to_init(qp), 0);
	check_eq(dci_to_rtr(qp), 0);
	check_eq(move(qp, IBV_QPS_RTS, DCI_RTS), 0);
	check_eq(ibv_post_send(qp, &wr, &bad_send), EINVAL);
	check(ibv_post_recv(qp, &recv, &bad_recv) != 0);
	check_eq(ibv_destroy_qp(qp), 0);
}

int main(void)
{
	dc_open(&dc);
	target();
	initiator();
	creation();
	dc_close(&dc);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * ibv_poll_cq(): CQEs become work completions.
 *
 * This is the data path: nothing is allocated, only the CQ's own lock (and, for an SRQ, that
 * queue's) is taken.
 */
#include "cqe.h"

static inline void wc_requester(struct ibv_wc *wc, const struct mlx5_cqe64 *cqe)
{
	uint8_t wqe_opcode = cqe_wqe_opcode(cqe);

	wc->opcode = send_wc_opcode(wqe_opcode);
	wc->wc_flags = 0;
	switch (wqe_opcode) {
	case MLX5_OPCODE_RDMA_WRITE_IMM:
	case MLX5_OPCODE_SEND_IMM:
		wc->wc_flags = IBV_WC_WITH_IMM;
		break;
	case MLX5_OPCODE_RDMA_READ:
		wc->byte_len = be32toh(cqe->byte_cnt);
		break;
	case MLX5_OPCODE_ATOMIC_CS:
	case MLX5_OPCODE_ATOMIC_FA:
		wc->byte_len = 8;
		break;
	default:
		break;
	}
}

static inline void wc_responder(struct ibv_wc *wc, const struct mlx5_cqe64 *cqe)
{
	uint32_t flags_rqpn = be32toh(cqe->flags_rqpn);

	wc->byte_len = be32toh(cqe->byte_cnt);
	wc->opcode = IBV_WC_RECV;
	wc->wc_flags = cqe_grh_flag(flags_rqpn) | cqe_csum_flag(cqe);
	wc->pkey_index = 0;
	switch (cqe_opcode(cqe)) {
	case MLX5_CQE_RESP_WR_IMM:
		wc->opcode = IBV_WC_RECV_RDMA_WITH_IMM;
		/* fallthrough */
	case MLX5_CQE_RESP_SEND_IMM:
		wc->wc_flags |= IBV_WC_WITH_IMM;
		wc->imm_data = cqe->imm_inval_pkey;
		break;
	case MLX5_CQE_RESP_SEND_INV:
		wc->wc_flags |= IBV_WC_WITH_INV;
		wc->invalidated_rkey = be32toh(cqe->imm_inval_pkey);
		break;
	default:
		break;
	}
	wc->src_qp = flags_rqpn & CQE_QPN_MASK;
	wc->slid = be16toh(cqe->slid);
	wc->sl = (flags_rqpn >> 24) & 0xf;
	wc->dlid_path_bits = cqe->ml_path & 0x7f;
}

static void wc_error(struct ibv_wc *wc, const struct api_qp *qp, const struct mlx5_cqe64 *cqe)
{
	wc->status = cqe_status(cqe);
	wc->vendor_err = cqe_vendor_err(cqe);
	wc->opcode = cqe_wc_opcode(qp, cqe);
	wc->wc_flags = 0;
	wc->byte_len = 0;
}

/* One completion, or false when the ring is empty. */
static inline bool mlx5_poll_one(struct api_cq *cq, struct ibv_wc *wc)
{
	struct api_qp *qp;
	const struct mlx5_cqe64 *cqe = cqe_next(cq, &qp);

	if (!cqe)
		return false;
	wc->wr_id = cqe_retire(qp, cqe);
	wc->qp_num = qp->ibv.qp_num;
	wc->status = IBV_WC_SUCCESS;
	wc->vendor_err = 0;
	switch (cqe_opcode(cqe)) {
	case MLX5_CQE_REQ:
		wc_requester(wc, cqe);
		if (cqe_is_raw(qp, cqe))
			wc->opcode = (enum ibv_wc_opcode)MLX5DV_WC_RAW_WQE;
		break;
	case MLX5_CQE_REQ_ERR:
	case MLX5_CQE_RESP_ERR:
		wc_error(wc, qp, cqe);
		break;
	default:
		wc_responder(wc, cqe);
		break;
	}
	return true;
}

int mlx5_cq_poll(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	return loop_poll(cq, num_entries, wc, mlx5_poll_one);
}

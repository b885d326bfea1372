// SPDX-License-Identifier: MIT
/*
 * How large the rings of an mlx5 QP are, for what the program asked.
 *
 * A send WQE takes whole basic blocks of 64 bytes: control segment, what the transport needs
 * (address, atomic or datagram segment), then data segments or inline data. Every WR is counted
 * with the largest WQE that the QP may post, so that max_send_wr of them always fit. The send ring
 * is rounded up to a power of two, and the program is told what it got.
 */
#include "api/ibverbs/core/loops.h"
#include "mlx5.h"

static_assert(sizeof(struct mlx5_wqe_ctrl_seg) == 16, "control segment");
static_assert(sizeof(struct mlx5_wqe_datagram_seg) == 48, "datagram segment");

enum { INLINE_HEADER = sizeof(struct mlx5_wqe_inl_data_seg) };

/* Bytes of a send WQE before its data, at most. */
static uint32_t send_overhead(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_raddr_seg) +
		       sizeof(struct mlx5_wqe_atomic_seg);
	case IBV_QPT_UC:
		return sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_raddr_seg);
	case IBV_QPT_RAW_PACKET:
		return sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_eth_seg);
	default:
		return sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_datagram_seg);
	}
}

static int size_sq(struct api_sq *sq, enum ibv_qp_type type, uint32_t tso_header,
		   const struct ibv_qp_cap *cap, uint32_t *bytes)
{
	uint32_t overhead = send_overhead(type) + align_up(tso_header, SEG);
	uint32_t data = cap->max_send_sge * SEG, wqe_size;
	uint64_t total;
	int err = loop_check_sq(cap, VB_MAX_INLINE);

	*bytes = 0;
	if (err || !cap->max_send_wr)
		return err;
	if (cap->max_inline_data && align_up(INLINE_HEADER + cap->max_inline_data, SEG) > data)
		data = align_up(INLINE_HEADER + cap->max_inline_data, SEG);
	wqe_size = align_up(overhead + data, MLX5_SEND_WQE_BB);
	total = roundup_pow2((uint32_t)(wqe_size * cap->max_send_wr / MLX5_SEND_WQE_BB));
	/* The index in a WQE has 16 bits; mlx5 has the same limit in basic blocks. */
	if (total > VB_MAX_QP_WR)
		return -vb_refuse_range("max_send_wr in blocks of 64 bytes", total, 0,
					VB_MAX_QP_WR);
	sq->cnt = (uint32_t)total;
	sq->max_post = sq->cnt / (wqe_size / MLX5_SEND_WQE_BB);
	sq->max_gs = (uint16_t)min_u32((wqe_size - overhead) / SEG, VB_MAX_SGE);
	sq->max_inline = min_u32(wqe_size - overhead - INLINE_HEADER, VB_MAX_INLINE);
	*bytes = sq->cnt * MLX5_SEND_WQE_BB;
	return 0;
}

/*
 * Fill in the sizes of both queues, and in qp->cap what the program gets; a positive errno where it
 * asks too much.
 */
int mlx5_qp_size(struct api_qp *qp, const struct ibv_qp_init_attr_ex *attr, const void *direct,
		 struct api_qp_layout *layout)
{
	struct ibv_qp_cap cap = loop_wanted(attr);
	int err;

	err = size_sq(&qp->sq, attr->qp_type, qp->max_tso_header, &cap, &layout->sq_bytes);
	/* The send ring behind it starts on a basic block. */
	if (!err)
		err = loop_size_rq(&qp->rq, &cap, 0, MLX5_SEND_WQE_BB, &layout->rq_bytes);
	if (err)
		return err;
	qp->sq.shift = 6;
	layout->rq_offset = 0;
	layout->sq_offset = layout->rq_bytes;
	loop_grant(qp);
	return 0;
}

void mlx5_qp_card_attr(const struct api_qp *qp, struct vb_qp_attr *attr)
{
	attr->transport_domain = to_mlx5_context(to_context(qp->ibv.context))->transport_domain;
}

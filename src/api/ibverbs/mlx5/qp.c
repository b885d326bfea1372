/* SPDX-License-Identifier: MIT */
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
static_assert(sizeof(struct mlx5_wqe_raddr_seg) == 16, "remote address segment");
static_assert(sizeof(struct mlx5_wqe_atomic_seg) == 16, "atomic segment");
static_assert(sizeof(struct mlx5_wqe_datagram_seg) == 48, "datagram segment");

enum { SEG = 16, INLINE_HEADER = sizeof(struct mlx5_wqe_inl_data_seg) };

/* Bytes of a send WQE before its data, at most. */
static uint32_t send_overhead(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_raddr_seg) +
		       sizeof(struct mlx5_wqe_atomic_seg);
	case IBV_QPT_UC:
		return sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_raddr_seg);
	default:
		return sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_datagram_seg);
	}
}

static int size_sq(struct api_sq *sq, enum ibv_qp_type type, const struct ibv_qp_cap *cap,
		   uint32_t *bytes)
{
	uint32_t overhead = send_overhead(type), data = cap->max_send_sge * SEG, wqe_size;
	uint64_t total;

	*bytes = 0;
	if (cap->max_send_wr > VB_MAX_QP_WR)
		return -vb_refuse_range("max_send_wr", cap->max_send_wr, 0, VB_MAX_QP_WR);
	if (cap->max_send_sge > VB_MAX_SGE)
		return -vb_refuse_range("max_send_sge", cap->max_send_sge, 0, VB_MAX_SGE);
	if (cap->max_inline_data > VB_MAX_INLINE)
		return -vb_refuse_range("max_inline_data", cap->max_inline_data, 0, VB_MAX_INLINE);
	if (!cap->max_send_wr)
		return 0;
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

static int size_rq(struct api_rq *rq, const struct ibv_qp_cap *cap, uint32_t *bytes)
{
	uint32_t wqe_size, total;

	*bytes = 0;
	if (cap->max_recv_wr > VB_MAX_QP_WR)
		return -vb_refuse_range("max_recv_wr", cap->max_recv_wr, 0, VB_MAX_QP_WR);
	if (cap->max_recv_sge > VB_MAX_SGE)
		return -vb_refuse_range("max_recv_sge", cap->max_recv_sge, 0, VB_MAX_SGE);
	if (!cap->max_recv_wr)
		return 0;
	wqe_size = roundup_pow2((cap->max_recv_sge ? cap->max_recv_sge : 1) * SEG);
	total = roundup_pow2(cap->max_recv_wr) * wqe_size;
	if (total < MLX5_SEND_WQE_BB)
		total = MLX5_SEND_WQE_BB; /* the send ring behind it starts on a basic block */
	rq->cnt = total / wqe_size;
	rq->shift = ilog2(wqe_size);
	rq->max_gs = min_u32(wqe_size / SEG, VB_MAX_SGE);
	*bytes = total;
	return 0;
}

/*
 * Fill in the sizes of both queues, and in qp->cap what the program gets; a positive errno where it
 * asks too much.
 */
int mlx5_qp_size(struct api_qp *qp, const struct ibv_qp_init_attr_ex *attr,
		 struct api_qp_layout *layout)
{
	struct ibv_qp_cap cap = loop_wanted(attr);
	int err;

	err = size_sq(&qp->sq, attr->qp_type, &cap, &layout->sq_bytes);
	if (!err)
		err = size_rq(&qp->rq, &cap, &layout->rq_bytes);
	if (err)
		return err;
	qp->sq.shift = 6;
	layout->rq_offset = 0;
	layout->sq_offset = layout->rq_bytes;
	loop_grant(qp);
	return 0;
}

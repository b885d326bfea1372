// SPDX-License-Identifier: MIT
/*
 * How large the rings of an mlx4 QP are, where they lie, and how their WQEs are initialised.
 *
 * A stride holds the largest WQE that the QP may post and is a power of two of at least 64 bytes.
 * Its size is exactly that of the real library, because programs see it through mlx4dv. The card
 * may fetch ahead, so 2 KiB and one WQE of the send ring are never posted. Both rings lie in one
 * buffer, the one with the larger stride first.
 *
 *	| sq: stride 256        | rq: 64 |        | rq: 128 | sq: 64      |
 */
#include "api/ibverbs/core/loops.h"

#include "card/queue/qp.h"
#include "mlx4.h"

enum { FETCH_AHEAD = 2048, LINE = 64, MIN_SQ_SHIFT = 6 };

/* Bytes of a send WQE before its data, not counting the atomic segment. */
static uint32_t data_start(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
		return sizeof(struct mlx4_wqe_ctrl_seg) + sizeof(struct mlx4_wqe_raddr_seg);
	case IBV_QPT_UD:
		return sizeof(struct mlx4_wqe_ctrl_seg) + sizeof(struct mlx4_wqe_datagram_seg);
	default:
		return sizeof(struct mlx4_wqe_ctrl_seg);
	}
}

/*
 * Bytes that inline data of this length takes: each line of 64 bytes has a length field of four
 * bytes. Except for datagrams the first line is counted as if it began with a remote address
 * segment, on raw queues too, as the real library does.
 */
static uint32_t inline_bytes(enum ibv_qp_type type, uint32_t len)
{
	uint32_t header = sizeof(struct mlx4_wqe_inline_seg);
	uint32_t before = data_start(type == IBV_QPT_UD ? IBV_QPT_UD : IBV_QPT_RC) % LINE;

	return len + (len + before + LINE - header - 1) / (LINE - header) * header;
}

/* The largest length of inline data that a WQE of size bytes holds. */
static uint32_t inline_capacity(uint32_t start, uint32_t size)
{
	uint32_t capacity = 0;

	while (start + sizeof(struct mlx4_wqe_inline_seg) < size) {
		uint32_t end = (start | (LINE - 1)) + 1;

		end = min_u32(end, size);
		capacity += end - start - (uint32_t)sizeof(struct mlx4_wqe_inline_seg);
		start = end;
	}
	return capacity;
}

/* Bytes of the largest WQE that is to be posted. */
static uint32_t send_bytes(enum ibv_qp_type type, const struct ibv_qp_cap *cap)
{
	uint32_t data = align_up(inline_bytes(type, cap->max_inline_data), SEG), size;
	uint32_t atomic = sizeof(struct mlx4_wqe_atomic_seg) + sizeof(struct mlx4_wqe_data_seg);

	if (data < cap->max_send_sge * SEG)
		data = cap->max_send_sge * SEG;
	size = data_start(type) + data;
	if (type == IBV_QPT_RC && size < data_start(type) + atomic)
		size = data_start(type) + atomic;
	return size;
}

static int mlx4_qp_size_sq(struct api_sq *sq, enum ibv_qp_type type, const struct ibv_qp_cap *cap,
			   uint32_t *bytes)
{
	uint32_t start = data_start(type), size, spare;
	uint64_t total;
	int err = loop_check_sq(cap, inline_capacity(start, MLX4_WQE_MAX));

	*bytes = 0;
	if (err)
		return err;
	sq->shift = MIN_SQ_SHIFT;
	while (1u << sq->shift < send_bytes(type, cap))
		sq->shift++;
	size = min_u32(1u << sq->shift, MLX4_WQE_MAX);
	spare = (FETCH_AHEAD >> sq->shift) + 1;
	total = roundup_pow2(cap->max_send_wr + spare);
	if (total > VB_MAX_QP_WR)
		return -vb_refuse_range("max_send_wr and the card's read-ahead", total, 0,
					VB_MAX_QP_WR);
	sq->cnt = (uint32_t)total;
	sq->max_post = sq->cnt - spare;
	sq->max_gs = (uint16_t)min_u32((size - start) / SEG, VB_MAX_SGE);
	sq->max_inline = inline_capacity(start, size);
	*bytes = sq->cnt << sq->shift;
	return 0;
}

int mlx4_qp_size(struct api_qp *qp, const struct ibv_qp_init_attr_ex *attr, const void *direct,
		 struct api_qp_layout *layout)
{
	const struct mlx4dv_qp_init_attr *mlx4_attr = direct;
	struct ibv_qp_cap cap = loop_wanted(attr);
	struct mlx4_qp *own = to_mlx4_qp(qp);
	int err = 0;

	if (mlx4_attr && (mlx4_attr->comp_mask & MLX4DV_QP_INIT_ATTR_MASK_INL_RECV))
		own->inl_recv = mlx4_attr->inl_recv_sz;
	/*
	 * The hardware has queues that were not asked for, too: a send ring for what it reads ahead,
	 * and one receive. A work queue only receives, and one with a table does neither.
	 */
	if (!qp->is_wq && !qp->rss)
		err = mlx4_qp_size_sq(&qp->sq, attr->qp_type, &cap, &layout->sq_bytes);
	if (!attr->srq && !qp->rss) {
		cap.max_recv_wr = max_u32(cap.max_recv_wr, 1);
		cap.max_recv_sge = max_u32(cap.max_recv_sge, 1);
	}
	if (!err)
		err = loop_size_rq(&qp->rq, &cap, own->inl_recv, 0, &layout->rq_bytes);
	if (err)
		return err;
	if (qp->rq.shift > qp->sq.shift)
		layout->sq_offset = layout->rq_bytes;
	else
		layout->rq_offset = layout->sq_bytes;
	loop_grant(qp);
	return 0;
}

int mlx4_qp_alloc(struct api_qp *qp)
{
	struct mlx4_qp *own = to_mlx4_qp(qp);

	if (!own->inl_recv || !qp->rq.cnt)
		return 0;
	own->saved = calloc((size_t)qp->rq.cnt * qp->rq.max_gs, sizeof(*own->saved));
	return own->saved ? 0 : -ENOMEM;
}

void mlx4_qp_free(struct api_qp *qp)
{
	free(to_mlx4_qp(qp)->saved);
}

void mlx4_qp_card_attr(const struct api_qp *qp, struct vb_qp_attr *attr)
{
	attr->inl_recv = to_mlx4_qp(qp)->inl_recv;
}

/*
 * Every WQE gets the owner bit of the round before the first, so that the card takes none of them,
 * and all its lines but the first are stamped.
 */
void mlx4_qp_init(struct api_qp *qp)
{
	struct api_sq *sq = &qp->sq;

	for (uint32_t i = 0; i < sq->cnt; i++) {
		struct mlx4_wqe_ctrl_seg *ctrl =
			(struct mlx4_wqe_ctrl_seg *)(sq->buf + ((size_t)i << sq->shift));

		for (uint32_t at = LINE; at < 1u << sq->shift; at += LINE)
			*(uint32_t *)((char *)ctrl + at) = UINT32_MAX;
		ctrl->fence_size = (uint8_t)(min_u32(1u << sq->shift, MLX4_WQE_MAX) / SEG);
		ctrl->owner_opcode = htobe32(1u << 31);
	}
}

// SPDX-License-Identifier: MIT
/*
 * ibv_post_send(): work requests become WQEs (sq.h).
 *
 * A list is posted up to the first work request that cannot be; what was posted before it counts
 * and is rung once.
 */
#include "sq.h"

static int check_tso(const struct api_qp *qp, const struct ibv_send_wr *wr)
{
	if (qp->ibv.qp_type != IBV_QPT_RAW_PACKET)
		return EOPNOTSUPP;
	return wr->tso.hdr && wr->tso.hdr_sz && wr->tso.hdr_sz <= qp->max_tso_header && wr->tso.mss
		       ? 0
		       : EINVAL;
}

/*
 * What the program may not post at all. Opcodes that a transport does not have, but that can be
 * written as a WQE, go to the card, which completes them with an error as hardware does.
 */
static inline int mlx5_send_check_wr(const struct api_qp *qp, const struct ibv_send_wr *wr)
{
	const struct send_op *op;
	int err = send_check_opcode(wr->opcode);

	if (unlikely(err))
		return err;
	op = &send_ops[wr->opcode];
	if (unlikely(wr->num_sge < 0 || wr->num_sge > qp->sq.max_gs))
		return EINVAL;
	if (unlikely((wr->send_flags & IBV_SEND_INLINE) && op->no_inline))
		return EINVAL;
	if (qp->ibv.qp_type == IBV_QPT_UD) {
		/*
		 * wr.ud and wr.rdma share a union: an RDMA request has no address handle there.
		 */
		if (unlikely(op->segs == SEGS_RADDR || op->segs == SEGS_ATOMIC ||
			     (wr->send_flags & IBV_SEND_IP_CSUM)))
			return EINVAL;
		if (unlikely(op->segs != SEGS_INVALIDATE && !wr->wr.ud.ah))
			return EINVAL;
	} else if (unlikely(qp->ibv.qp_type == IBV_QPT_DRIVER)) {
		return EINVAL; /* struct ibv_send_wr has no place for the address */
	} else if (unlikely(op->segs == SEGS_ATOMIC && qp->ibv.qp_type != IBV_QPT_RC)) {
		return EINVAL;
	}
	if (unlikely(op->segs == SEGS_TSO))
		return check_tso(qp, wr);
	return 0;
}

/* The segments between control and data. */
static inline void mlx5_send_put_transport(const struct api_qp *qp, const struct ibv_send_wr *wr,
					   enum send_segs segs, struct sq_cursor *cur)
{
	char *at = cur->pos;
	bool tso = segs == SEGS_TSO;

	if (unlikely(qp->ibv.qp_type == IBV_QPT_RAW_PACKET)) {
		sq_put_eth(&qp->sq, cur, wr->send_flags, tso ? wr->tso.hdr : NULL,
			   tso ? wr->tso.hdr_sz : 0, tso ? wr->tso.mss : 0);
		return;
	}
	if (qp->ibv.qp_type == IBV_QPT_UD) {
		sq_put_datagram(at, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
		cur->pos = at + sizeof(struct mlx5_wqe_datagram_seg);
	} else {
		cur->pos = wqe_put_remote(at, wr, segs);
	}
	cur->ds += (uint32_t)(cur->pos - at) / SEG;
}

static inline int mlx5_send_put_inline(const struct api_sq *sq, struct sq_cursor *cur,
				       const struct ibv_send_wr *wr)
{
	char *header = sq_inline_start(sq, cur);
	uint64_t total = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		total += sge->length;
		if (unlikely(total > sq->max_inline))
			return EINVAL;
		sq_inline_copy(sq, cur, (const void *)(uintptr_t)sge->addr, sge->length);
	}
	sq_inline_end(cur, header, (uint32_t)total);
	return 0;
}

static inline int mlx5_send_put_data(const struct api_sq *sq, struct sq_cursor *cur,
				     const struct ibv_send_wr *wr)
{
	int err = 0;

	if (wr->send_flags & IBV_SEND_INLINE)
		return mlx5_send_put_inline(sq, cur, wr);
	for (int i = 0; i < wr->num_sge && !err; i++)
		err = sq_put_sge(sq, cur, wr->sg_list[i].addr, wr->sg_list[i].length,
				 wr->sg_list[i].lkey);
	return err;
}

static inline __be32 imm_value(const struct ibv_send_wr *wr, enum send_imm imm)
{
	switch (imm) {
	case IMM_DATA:
		return wr->imm_data;
	case IMM_RKEY:
		return htobe32(wr->invalidate_rkey);
	default:
		return 0;
	}
}

static inline int mlx5_send_post_one(struct api_qp *qp, const struct ibv_send_wr *wr)
{
	struct api_sq *sq = &qp->sq;
	struct mlx5_wqe_ctrl_seg *ctrl;
	const struct send_op *op;
	struct sq_cursor cur;
	int err = mlx5_send_check_wr(qp, wr);

	if (unlikely(err))
		return err;
	if (unlikely(!loop_sq_has_room(sq)))
		return ENOMEM;
	op = &send_ops[wr->opcode];
	ctrl = sq_next_wqe(sq);
	ctrl->signature = 0;
	ctrl->dci_stream_channel_id = 0;
	ctrl->fm_ce_se = sq_ctrl_flags(sq, wr->send_flags);
	ctrl->imm = imm_value(wr, op->imm);
	cur.pos = (char *)(ctrl + 1);
	cur.ds = 1;
	if (op->segs != SEGS_INVALIDATE) {
		mlx5_send_put_transport(qp, wr, op->segs, &cur);
		err = mlx5_send_put_data(sq, &cur, wr);
		if (unlikely(err))
			return err;
	}
	sq->slot[sq->cur_post & (sq->cnt - 1)].wr_id = wr->wr_id;
	sq_finish(qp, ctrl, op->opcode, cur.ds);
	return 0;
}

int mlx5_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	return loop_post_send(ibqp, wr, bad_wr, mlx5_send_post_one, sq_ring);
}

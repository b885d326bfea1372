// SPDX-License-Identifier: MIT
/*
 * ibv_post_send() on an mlx4 queue.
 *
 *	stride:  | ctrl | raddr | atomic | data ...           RC, UC
 *	         | ctrl | datagram: address vector | data ... UD
 *
 * Inline data is cut at every line of 64 bytes, each piece behind its own length. The owner bit is
 * stored last, and the lines of the WQE that the card may fetch next are stamped, so that the card
 * never takes a WQE of the last round for a new one.
 */
#include "api/ibverbs/core/loops.h"

#include "card/queue/qp.h"
#include "host/fault.h"
#include "mlx4.h"

enum { LINE = 64, INLINE_HEADER = sizeof(struct mlx4_wqe_inline_seg) };

static bool is_connected(const struct api_qp *qp)
{
	return qp->ibv.qp_type == IBV_QPT_RC || qp->ibv.qp_type == IBV_QPT_UC;
}

/*
 * What the program may not post at all. Opcodes that a transport does not have, but that can be
 * written as a WQE, go to the card, which completes them with an error as hardware does.
 */
static int mlx4_send_check_wr(const struct api_qp *qp, const struct ibv_send_wr *wr)
{
	const struct send_op *op;
	int max_gs = qp->sq.max_gs;
	int err = unlikely(wr->num_sge < 0) ? EINVAL : send_check_opcode(wr->opcode);

	if (unlikely(err))
		return err;
	op = &send_ops[wr->opcode];
	if (unlikely(op->segs == SEGS_TSO))
		return EOPNOTSUPP;
	if (is_connected(qp)) {
		/* Strides have no room for the additional segment of atomics. */
		if (op->segs == SEGS_ATOMIC)
			max_gs--;
		if (unlikely((wr->send_flags & IBV_SEND_INLINE) && op->no_inline))
			return EINVAL;
	} else if (qp->ibv.qp_type == IBV_QPT_UD &&
		   unlikely((wr->send_flags & IBV_SEND_IP_CSUM) || !wr->wr.ud.ah)) {
		return EINVAL;
	}
	return unlikely(wr->num_sge > max_gs) ? ENOMEM : 0;
}

/* --- segments; each returns where the next goes ----------------------------------------------- */

static char *put_datagram(char *at, const struct ibv_send_wr *wr)
{
	struct mlx4_wqe_datagram_seg *seg = (struct mlx4_wqe_datagram_seg *)at;
	const struct mlx4_ah *ah = to_mlx4_ah(to_ah(wr->wr.ud.ah));

	seg->av = ah->av;
	seg->dqpn = htobe32(wr->wr.ud.remote_qpn);
	seg->qkey = htobe32(wr->wr.ud.remote_qkey);
	seg->vlan = 0;
	memcpy(seg->mac, ah->mac, sizeof(seg->mac));
	return (char *)(seg + 1);
}

static char *put_invalidate(char *at, uint32_t rkey)
{
	struct mlx4_wqe_local_inval_seg *seg = (struct mlx4_wqe_local_inval_seg *)at;

	*seg = (struct mlx4_wqe_local_inval_seg){ .mem_key = htobe32(rkey) };
	return (char *)(seg + 1);
}

static char *mlx4_send_put_transport(const struct api_qp *qp, const struct ibv_send_wr *wr,
				     char *at)
{
	enum send_segs segs = send_ops[wr->opcode].segs;

	if (qp->ibv.qp_type == IBV_QPT_UD)
		return put_datagram(at, wr);
	if (!is_connected(qp))
		return at;
	if (segs == SEGS_INVALIDATE)
		return put_invalidate(at, wr->invalidate_rkey);
	return wqe_put_remote(at, wr, segs);
}

/*
 * Writes inline data in pieces, one in each line; the last is padded to 16 bytes. The length of a
 * piece is written when it is known.
 */
static char *mlx4_send_put_inline(const struct api_sq *sq, const struct ibv_send_wr *wr, char *at,
				  int *err)
{
	char *header = at;
	uint64_t total = 0;

	at += INLINE_HEADER;
	for (int i = 0; i < wr->num_sge; i++) {
		const char *from = (const char *)(uintptr_t)wr->sg_list[i].addr;
		size_t len = wr->sg_list[i].length;

		total += len;
		if (unlikely(total > sq->max_inline)) {
			*err = ENOMEM;
			return at;
		}
		while (len) {
			size_t room = LINE - (uintptr_t)at % LINE, n;

			if (room == LINE) { /* the line before is full */
				((struct mlx4_wqe_inline_seg *)header)->byte_count = htobe32(
					MLX4_INLINE_SEG | (uint32_t)(at - header - INLINE_HEADER));
				header = at;
				at += INLINE_HEADER;
				room = LINE - INLINE_HEADER;
			}
			n = len < room ? len : room;
			memcpy(at, from, n);
			at += n;
			from += n;
			len -= n;
		}
	}
	if (!total)
		return header; /* no data, no segment */
	((struct mlx4_wqe_inline_seg *)header)->byte_count =
		htobe32(MLX4_INLINE_SEG | (uint32_t)(at - header - INLINE_HEADER));
	return (char *)(((uintptr_t)at + SEG - 1) & ~(uintptr_t)(SEG - 1));
}

static char *mlx4_send_put_data(const struct ibv_send_wr *wr, char *at, int *err)
{
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];
		struct mlx4_wqe_data_seg *seg = (struct mlx4_wqe_data_seg *)at;

		if (unlikely(sge->length > SEG_MAX_LENGTH)) {
			*err = EINVAL;
			return at;
		}
		seg->lkey = htobe32(sge->lkey);
		seg->addr = htobe64(sge->addr);
		/* Length 0 has a form of its own, because a count of 0 means 2 GiB. */
		seg->byte_count = sge->length ? htobe32(sge->length & ~SEG_MAX_LENGTH)
					      : htobe32(MLX4_INLINE_SEG);
		at = (char *)(seg + 1);
	}
	return at;
}

/* --- posting ---------------------------------------------------------------------------------- */

static uint32_t ctrl_flags(const struct api_qp *qp, unsigned int send_flags, bool invalidates)
{
	/* On raw Ethernet the solicited bit means that frames have no ICRC, which is always so. */
	bool raw = qp->ibv.qp_type == IBV_QPT_RAW_PACKET;

	return (uint32_t)((qp->sq.signal_all || (send_flags & IBV_SEND_SIGNALED)
				   ? MLX4_WQE_CTRL_CQ_UPDATE
				   : 0) |
			  (raw || (send_flags & IBV_SEND_SOLICITED) ? MLX4_WQE_CTRL_SOLICIT : 0) |
			  (send_flags & IBV_SEND_IP_CSUM
				   ? MLX4_WQE_CTRL_IP_HDR_CSUM | MLX4_WQE_CTRL_TCP_UDP_CSUM
				   : 0) |
			  (invalidates ? MLX4_WQE_CTRL_STRONG_ORDER : 0));
}

/* Immediate data, or the key that the peer shall invalidate; a local one has a segment. */
static __be32 ctrl_imm(const struct send_op *op, const struct ibv_send_wr *wr, bool connected)
{
	if (op->imm == IMM_DATA)
		return wr->imm_data;
	return op->imm == IMM_RKEY && op->segs != SEGS_INVALIDATE && connected
		       ? htobe32(wr->invalidate_rkey)
		       : 0;
}

static struct mlx4_wqe_ctrl_seg *mlx4_send_wqe_at(const struct api_sq *sq, uint32_t index)
{
	return (struct mlx4_wqe_ctrl_seg *)(sq->buf +
					    ((size_t)(index & (sq->cnt - 1)) << sq->shift));
}

/*
 * Stamps the WQE behind all that may be posted, so that the card does not take it for a new one
 * when it fetches ahead.
 */
static void mlx4_send_stamp(const struct api_sq *sq, uint32_t index)
{
	struct mlx4_wqe_ctrl_seg *ctrl = mlx4_send_wqe_at(sq, index);
	uint32_t size = (ctrl->fence_size & 0x3fu) * SEG;

	size = size < 1u << sq->shift ? size : 1u << sq->shift;
	for (uint32_t at = LINE; at < size; at += LINE)
		*(uint32_t *)((char *)ctrl + at) = UINT32_MAX;
}

/*
 * A frame's destination, from the frame, for the control segment: without it queues of the same port
 * would not hear the frame. What cannot be read ends with an error of the card.
 */
static void put_destination(struct mlx4_wqe_ctrl_seg *ctrl, const struct ibv_send_wr *wr)
{
	uint8_t mac[6];

	if (!wr->num_sge || wr->sg_list[0].length < sizeof(mac) ||
	    vb_fault_copy(mac, (const void *)(uintptr_t)wr->sg_list[0].addr, sizeof(mac)))
		return;
	memcpy(&ctrl->srcrb_flags16[0], mac, 2);
	memcpy(&ctrl->imm, mac + 2, 4);
}

static int mlx4_send_post_one(struct api_qp *qp, const struct ibv_send_wr *wr)
{
	struct api_sq *sq = &qp->sq;
	struct mlx4_wqe_ctrl_seg *ctrl;
	const struct send_op *op;
	bool connected = is_connected(qp), invalidates;
	int err = mlx4_send_check_wr(qp, wr);
	char *at;

	if (unlikely(err))
		return err;
	if (unlikely(!loop_sq_has_room(sq)))
		return ENOMEM;
	op = &send_ops[wr->opcode];
	invalidates = connected && op->segs == SEGS_INVALIDATE;
	ctrl = mlx4_send_wqe_at(sq, sq->cur_post);
	at = mlx4_send_put_transport(qp, wr, (char *)(ctrl + 1));
	if (!invalidates)
		at = wr->send_flags & IBV_SEND_INLINE ? mlx4_send_put_inline(sq, wr, at, &err)
						      : mlx4_send_put_data(wr, at, &err);
	if (unlikely(err))
		return err;
	ctrl->srcrb_flags = htobe32(ctrl_flags(qp, wr->send_flags, invalidates));
	ctrl->imm = ctrl_imm(op, wr, connected);
	if (qp->ibv.qp_type == IBV_QPT_RAW_PACKET)
		put_destination(ctrl, wr);
	ctrl->fence_size = (uint8_t)((wr->send_flags & IBV_SEND_FENCE ? MLX4_WQE_CTRL_FENCE : 0) |
				     (at - (char *)ctrl) / SEG);
	sq->slot[sq->cur_post & (sq->cnt - 1)].wr_id = wr->wr_id;
	/* Releases the WQE to the card. */
	__atomic_store_n(&ctrl->owner_opcode,
			 htobe32(op->opcode | (sq->cur_post & sq->cnt ? 1u << 31 : 0)),
			 __ATOMIC_RELEASE);
	mlx4_send_stamp(sq, sq->cur_post + sq->cnt - sq->max_post);
	sq->cur_post++;
	sq->head++;
	return 0;
}

static void mlx4_send_ring(struct api_qp *qp)
{
	vb_qp_ring_owned(qp->card);
}

int mlx4_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	return loop_post_send(ibqp, wr, bad_wr, mlx4_send_post_one, mlx4_send_ring);
}

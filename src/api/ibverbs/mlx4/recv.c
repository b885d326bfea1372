// SPDX-License-Identifier: MIT
/*
 * Posting receives on an mlx4 card: to a queue pair's own queue, to a receive WQ, to a shared
 * queue.
 *
 * Each entry of the program's list becomes a segment, with its length unchanged. A list that does
 * not fill the WQE ends in a segment with an invalid key.
 */
#include "api/ibverbs/core/loops.h"
#include "mlx4.h"

static int mlx4_recv_fill_segments(struct mlx5_wqe_data_seg *seg, uint32_t max_gs, uint32_t room,
				   const struct ibv_recv_wr *wr)
{
	uint32_t n = (uint32_t)wr->num_sge;

	if (unlikely(wr->num_sge < 0))
		return EINVAL;
	if (unlikely(n > max_gs))
		return ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		if (unlikely(wr->sg_list[i].length > SEG_MAX_LENGTH))
			return EINVAL;
		seg[i].byte_count = htobe32(wr->sg_list[i].length);
		seg[i].lkey = htobe32(wr->sg_list[i].lkey);
		seg[i].addr = htobe64(wr->sg_list[i].addr);
	}
	if (n < room) {
		seg[n].byte_count = 0;
		seg[n].lkey = htobe32(MLX4_INVALID_LKEY);
		seg[n].addr = 0;
	}
	return 0;
}

/* A WQE that was never posted has no valid segment. */
void mlx4_srq_preset(struct api_srq *srq)
{
	for (uint32_t i = 0; i < srq->wqe_cnt; i++) {
		char *wqe = (char *)srq->buf.ptr + ((size_t)i << srq->wqe_shift);

		for (uint32_t at = SEG; at < 1u << srq->wqe_shift; at += SEG)
			((struct mlx4_wqe_data_seg *)(wqe + at))->lkey = htobe32(MLX4_INVALID_LKEY);
	}
}

int mlx4_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	return loop_post_srq_recv(srq, wr, bad_wr, mlx4_recv_fill_segments);
}

/*
 * With inline receive the card may overwrite the WQE with data. So the list is saved for the poll,
 * which copies the data to it.
 */
static void save_list(struct mlx4_qp *qp, uint32_t index, const struct ibv_recv_wr *wr)
{
	const struct api_rq *rq = &qp->api.rq;
	struct ibv_sge *to = &qp->saved[(size_t)(index & (rq->cnt - 1)) * rq->max_gs];

	for (uint32_t i = 0; i < rq->max_gs; i++)
		to[i] = (int)i < wr->num_sge ? wr->sg_list[i] : (struct ibv_sge){ 0 };
}

int mlx4_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct mlx4_qp *qp = to_mlx4_qp(to_qp(ibqp));
	struct api_rq *rq = &qp->api.rq;
	int err = 0;

	if (likely(!qp->saved))
		return loop_post_recv(ibqp, wr, bad_wr, mlx4_recv_fill_segments);
	for (; wr && !err; wr = wr->next) {
		struct ibv_recv_wr one = *wr, *bad;

		one.next = NULL;
		vb_lock(&qp->post_lock);
		/*
		 * A slot is free to be written only if there is room; the post itself decides that.
		 * Pairs with the release in loop_retire_recv(): the poll has read what was saved
		 * here before.
		 */
		if (wr->num_sge >= 0 && (uint32_t)wr->num_sge <= rq->max_gs &&
		    rq->head - atomic_load_explicit(&rq->tail, memory_order_acquire) < rq->cnt)
			save_list(qp, rq->head, wr);
		err = loop_post_recv(ibqp, &one, &bad, mlx4_recv_fill_segments);
		vb_unlock(&qp->post_lock);
		if (err)
			*bad_wr = wr;
	}
	return err;
}

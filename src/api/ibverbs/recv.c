/* SPDX-License-Identifier: MIT */
/*
 * Posting receives, to a QP's own queue and to an SRQ.
 *
 * A receive WQE is an array of data segments; one that is not full ends in a segment with an
 * invalid key. The card learns of new WQEs from the doorbell record: the doorbell matters only to a
 * QP in the error state, which has nobody who would look, and an SRQ has none.
 */
#include "driver.h"

static_assert(sizeof(struct mlx5_wqe_data_seg) == 16, "data segment");

/* 2 GiB, the most that a segment can hold; written as 0, because the field has 31 bits. */
#define SEG_MAX_LENGTH 0x80000000u

/*
 * Segments of length 0 are left out: a byte count of 0 means 2 GiB. The WQE has room for as many as
 * a power of two gives, which may be more than the program may use.
 */
static int fill_segments(struct mlx5_wqe_data_seg *seg, uint32_t max_gs, uint32_t room,
			 const struct ibv_recv_wr *wr)
{
	uint32_t n = 0;

	if (unlikely(wr->num_sge < 0 || (uint32_t)wr->num_sge > max_gs))
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		if (unlikely(!sge->length))
			continue;
		if (unlikely(sge->length > SEG_MAX_LENGTH))
			return EINVAL;
		seg[n].byte_count = htobe32(sge->length & ~SEG_MAX_LENGTH);
		seg[n].lkey = htobe32(sge->lkey);
		seg[n].addr = htobe64(sge->addr);
		n++;
	}
	if (n < room) {
		seg[n].byte_count = 0;
		seg[n].lkey = htobe32(MLX5_INVALID_LKEY);
		seg[n].addr = 0;
	}
	return 0;
}

static inline bool rq_has_room(const struct api_rq *rq, uint32_t head)
{
	/* Pairs with the release in cqe_retire(). */
	return head - atomic_load_explicit(&rq->tail, memory_order_acquire) < rq->cnt;
}

static inline int rq_post_one(struct api_rq *rq, const struct ibv_recv_wr *wr)
{
	uint32_t index = rq->head & (rq->cnt - 1);
	int err;

	if (unlikely(!rq_has_room(rq, rq->head)))
		return ENOMEM;
	err = fill_segments((struct mlx5_wqe_data_seg *)(rq->buf + (index << rq->shift)),
			    rq->max_gs, 1u << (rq->shift - 4), wr);
	if (unlikely(err))
		return err;
	rq->wrid[index] = wr->wr_id;
	rq->head++;
	return 0;
}

int api_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct api_qp *qp = to_qp(ibqp);
	struct api_rq *rq = &qp->rq;
	int err = 0;

	if (unlikely(ibqp->state == IBV_QPS_RESET || ibqp->srq)) {
		*bad_wr = wr;
		return api_recv_refused(ibqp, wr, EINVAL);
	}
	api_lock(&rq->lock, rq->unlocked);
	for (; wr; wr = wr->next) {
		err = rq_post_one(rq, wr);
		if (unlikely(err)) {
			*bad_wr = wr;
			break;
		}
	}
	/* Releases the WQEs to the card, which reads the record before them. */
	__atomic_store_n(&qp->dbr[MLX5_RCV_DBR], htobe32(rq->head & 0xffff), __ATOMIC_RELEASE);
	api_unlock(&rq->lock, rq->unlocked);

	vb_qp_ring_rq(qp->card);
	return likely(!err) ? 0 : api_recv_refused(ibqp, wr, err);
}

static inline int srq_post_one(struct api_srq *srq, const struct ibv_recv_wr *wr)
{
	struct mlx5_wqe_srq_next_seg *next;
	int err;

	if (unlikely(srq->head == srq->tail))
		return ENOMEM;
	next = (struct mlx5_wqe_srq_next_seg *)((char *)srq->buf.ptr +
						(srq->head << srq->wqe_shift));
	err = fill_segments((struct mlx5_wqe_data_seg *)(next + 1), srq->max_gs,
			    (1u << (srq->wqe_shift - 4)) - 1, wr);
	if (unlikely(err))
		return err;
	srq->wrid[srq->head] = wr->wr_id;
	srq->head = be16toh(next->next_wqe_index);
	srq->posted++;
	return 0;
}

int api_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct api_srq *srq = to_srq(ibsrq);
	__be32 *dbr = srq->dbr_buf.ptr;
	int err = 0;

	vb_lock(&srq->lock);
	for (; wr; wr = wr->next) {
		err = srq_post_one(srq, wr);
		if (unlikely(err)) {
			*bad_wr = wr;
			break;
		}
	}
	__atomic_store_n(dbr, htobe32(srq->posted & 0xffff), __ATOMIC_RELEASE);
	vb_unlock(&srq->lock);
	return likely(!err) ? 0 : api_srq_recv_refused(srq, wr, err);
}

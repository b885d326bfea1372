/* SPDX-License-Identifier: MIT */
/*
 * What posting, polling and sizing have in common in mlx4 and mlx5: the loops and locks. A provider
 * passes what differs as functions, which the compiler inlines (send.c, recv.c, poll.c and qp.c).
 */
#pragma once

#include "objects.h"
#include "wqe.h"

#define always_inline inline __attribute__((always_inline))

/* Whether one more WR fits into the send ring. */
static always_inline bool loop_sq_has_room(struct api_sq *sq)
{
	/* Pairs with the release of tail where a provider's poll retires the WR of a send CQE. */
	return sq->head - atomic_load_explicit(&sq->tail, memory_order_acquire) < sq->max_post;
}

/* ibv_post_send(): post() for each work request, then one ring() for all of them. */
static always_inline int
loop_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr,
	       int (*post)(struct api_qp *qp, const struct ibv_send_wr *wr),
	       void (*ring)(struct api_qp *qp))
{
	struct api_qp *qp = to_qp(ibqp);
	uint32_t before;
	int err = 0;

	/* RESET, INIT and RTR do not send; SQE and ERR do, and flush what is posted. */
	if (unlikely(ibqp->state < IBV_QPS_RTS)) {
		*bad_wr = wr;
		return api_send_refused(qp, wr, EINVAL);
	}
	api_lock(&qp->sq.lock, qp->sq.unlocked);
	before = qp->sq.cur_post;
	for (; wr; wr = wr->next) {
		err = post(qp, wr);
		if (unlikely(err)) {
			*bad_wr = wr;
			break;
		}
	}
	if (likely(qp->sq.cur_post != before))
		ring(qp);
	api_unlock(&qp->sq.lock, qp->sq.unlocked);
	return likely(!err) ? 0 : api_send_refused(qp, wr, err);
}

/*
 * Writes the data segments of a receive WQE: at most max_gs from the program, into a WQE that has
 * room for more. 0 or a positive errno.
 */
typedef int loop_fill_fn(struct mlx5_wqe_data_seg *seg, uint32_t max_gs, uint32_t room,
			 const struct ibv_recv_wr *wr);

static always_inline int loop_post_one_recv(struct api_rq *rq, const struct ibv_recv_wr *wr,
					    loop_fill_fn *fill)
{
	uint32_t index = rq->head & (rq->cnt - 1);
	int err;

	/* Pairs with the release in loop_retire_recv(). */
	if (unlikely(rq->head - atomic_load_explicit(&rq->tail, memory_order_acquire) >= rq->cnt))
		return ENOMEM;
	err = fill((struct mlx5_wqe_data_seg *)(rq->buf + (index << rq->shift)), rq->max_gs,
		   1u << (rq->shift - 4), wr);
	if (unlikely(err))
		return err;
	rq->wrid[index] = wr->wr_id;
	rq->head++;
	return 0;
}

/* ibv_post_recv() */
static always_inline int loop_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr,
					struct ibv_recv_wr **bad_wr, loop_fill_fn *fill)
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
		err = loop_post_one_recv(rq, wr, fill);
		if (unlikely(err)) {
			*bad_wr = wr;
			break;
		}
	}
	/* Releases the WQEs to the card, which reads the record before them. */
	__atomic_store_n(&qp->dbr[DBR_RECV], htobe32(rq->head & 0xffff), __ATOMIC_RELEASE);
	api_unlock(&rq->lock, rq->unlocked);

	vb_qp_ring_rq(qp->card);
	return likely(!err) ? 0 : api_recv_refused(ibqp, wr, err);
}

static always_inline int loop_post_one_srq_recv(struct api_srq *srq, const struct ibv_recv_wr *wr,
						loop_fill_fn *fill)
{
	struct mlx5_wqe_srq_next_seg *next;
	int err;

	if (unlikely(srq->head == srq->tail))
		return ENOMEM;
	next = (struct mlx5_wqe_srq_next_seg *)((char *)srq->buf.ptr +
						(srq->head << srq->wqe_shift));
	err = fill((struct mlx5_wqe_data_seg *)(next + 1), srq->max_gs,
		   (1u << (srq->wqe_shift - 4)) - 1, wr);
	if (unlikely(err))
		return err;
	srq->wrid[srq->head] = wr->wr_id;
	srq->head = be16toh(next->next_wqe_index);
	srq->posted++;
	return 0;
}

/* ibv_post_srq_recv() */
static always_inline int loop_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr,
					    struct ibv_recv_wr **bad_wr, loop_fill_fn *fill)
{
	struct api_srq *srq = to_srq(ibsrq);
	__be32 *dbr = srq->dbr_buf.ptr;
	int err = 0;

	vb_lock(&srq->lock);
	for (; wr; wr = wr->next) {
		err = loop_post_one_srq_recv(srq, wr, fill);
		if (unlikely(err)) {
			*bad_wr = wr;
			break;
		}
	}
	__atomic_store_n(dbr, htobe32(srq->posted & 0xffff), __ATOMIC_RELEASE);
	vb_unlock(&srq->lock);
	return likely(!err) ? 0 : api_srq_recv_refused(srq, wr, err);
}

/*
 * The QP of a CQE, nearly always that of the CQE before. api_cq_clean() clears last_qp before a QP
 * is freed. NULL: the QP was destroyed, and the CQE is skipped.
 */
static always_inline struct api_qp *loop_find_qp(struct api_cq *cq, uint32_t qpn)
{
	if (unlikely(!cq->last_qp || cq->last_qp->ibv.qp_num != qpn))
		cq->last_qp = api_qp_find(to_context(cq->ibv.context), qpn);
	return cq->last_qp;
}

/* A completed receive of an SRQ: its wr_id; the WQE goes back to the free list. */
static always_inline uint64_t loop_retire_srq(struct api_srq *srq, uint16_t index)
{
	uint64_t wr_id = srq->wrid[index & (srq->wqe_cnt - 1)];

	api_srq_free_wqe(srq, index);
	return wr_id;
}

/* A completed receive of a QP's own queue, which completes strictly in order: its wr_id. */
static always_inline uint64_t loop_retire_recv(struct api_rq *rq)
{
	uint32_t tail = atomic_load_explicit(&rq->tail, memory_order_relaxed);
	uint64_t wr_id = rq->wrid[tail & (rq->cnt - 1)];

	/* Pairs with the acquire in loop_post_one_recv(). */
	atomic_store_explicit(&rq->tail, tail + 1, memory_order_release);
	return wr_id;
}

/*
 * ibv_poll_cq(). If the ring is empty, the card is asked once to make progress, because the polling
 * thread also drives receive work. The lock is not held meanwhile, so that other threads can poll.
 */
static always_inline int loop_poll(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc,
				   bool (*poll_one)(struct api_cq *cq, struct ibv_wc *wc))
{
	struct api_cq *cq = to_cq(ibcq);

	for (bool last = false;; last = true) {
		int n = 0;

		api_lock(&cq->lock, cq->unlocked);
		while (n < num_entries && poll_one(cq, &wc[n]))
			n++;
		if (n)
			cq_store_ci(cq);
		api_unlock(&cq->lock, cq->unlocked);
		if (n || last || num_entries <= 0 || !vb_progress(cq->dev))
			return n;
	}
}

/* start_poll(): the CQ stays locked where step() found a CQE. */
static always_inline int loop_start_poll(struct ibv_cq_ex *ibcq,
					 const struct ibv_poll_cq_attr *attr,
					 int (*step)(struct api_cq *cq))
{
	struct api_cq *cq = ex_to_cq(ibcq);
	int err;

	if (unlikely(attr && attr->comp_mask))
		return EINVAL;
	api_lock(&cq->lock, cq->unlocked);
	err = step(cq);
	if (!err)
		return 0;
	api_unlock(&cq->lock, cq->unlocked);
	if (!vb_progress(cq->dev))
		return err;
	api_lock(&cq->lock, cq->unlocked);
	err = step(cq);
	if (err)
		api_unlock(&cq->lock, cq->unlocked);
	return err;
}

/*
 * The capacities asked for. With an SRQ, receives are posted there, and those of the QP are
 * ignored.
 */
static always_inline struct ibv_qp_cap loop_wanted(const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_cap cap = attr->cap;

	if (attr->srq)
		cap.max_recv_wr = cap.max_recv_sge = 0;
	return cap;
}

/* Checks the capacities of a send queue against the limits: 0 or a positive errno. */
static inline int loop_check_sq(const struct ibv_qp_cap *cap, uint32_t max_inline)
{
	if (cap->max_send_wr > VB_MAX_QP_WR)
		return -vb_refuse_range("max_send_wr", cap->max_send_wr, 0, VB_MAX_QP_WR);
	if (cap->max_send_sge > VB_MAX_SGE)
		return -vb_refuse_range("max_send_sge", cap->max_send_sge, 0, VB_MAX_SGE);
	if (cap->max_inline_data > max_inline)
		return -vb_refuse_range("max_inline_data", cap->max_inline_data, 0, max_inline);
	return 0;
}

/*
 * Sizes the receive queue of a QP. A WQE has a power of two of segments, and at least wqe_min
 * bytes; the ring has at least ring_min. 0 or a positive errno.
 */
static inline int loop_size_rq(struct api_rq *rq, const struct ibv_qp_cap *cap, uint32_t wqe_min,
			       uint32_t ring_min, uint32_t *bytes)
{
	uint32_t size;

	*bytes = 0;
	if (cap->max_recv_wr > VB_MAX_QP_WR)
		return -vb_refuse_range("max_recv_wr", cap->max_recv_wr, 0, VB_MAX_QP_WR);
	if (cap->max_recv_sge > VB_MAX_SGE)
		return -vb_refuse_range("max_recv_sge", cap->max_recv_sge, 0, VB_MAX_SGE);
	if (!cap->max_recv_wr)
		return 0;
	size = roundup_pow2(max_u32(cap->max_recv_sge, 1) * SEG);
	rq->max_gs = min_u32(size / SEG, VB_MAX_SGE);
	size = max_u32(size, roundup_pow2(wqe_min));
	*bytes = max_u32(roundup_pow2(cap->max_recv_wr) * size, ring_min);
	rq->cnt = *bytes / size;
	rq->shift = ilog2(size);
	return 0;
}

/* Reports the capacities that the program gets, which may be more than it asked for. */
static always_inline void loop_grant(struct api_qp *qp)
{
	qp->cap = (struct ibv_qp_cap){
		.max_send_wr = qp->sq.max_post,
		.max_recv_wr = qp->rq.cnt,
		.max_send_sge = qp->sq.max_gs,
		.max_recv_sge = qp->rq.max_gs,
		.max_inline_data = qp->sq.max_inline,
	};
}

/* SPDX-License-Identifier: MIT */
/*
 * What posting, polling and sizing have in common in all queue formats: the loops and locks. A format gives what differs
 * as functions, which the compiler puts in line (send.c, poll_ex.c, qp_size.c; mlx4_send.c, mlx4_poll.c, mlx4_qp.c).
 */
#pragma once

#include "driver.h"

#define always_inline inline __attribute__((always_inline))

/* ibv_post_send(): post() one after the other, ring() once for all that were written. */
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

static always_inline struct api_cq *ex_to_cq(struct ibv_cq_ex *cq)
{
	return (struct api_cq *)cq;
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

/* What is asked for; with an SRQ receives are posted there, and what is asked for here does not matter. */
static always_inline struct ibv_qp_cap loop_wanted(const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_cap cap = attr->cap;

	if (attr->srq)
		cap.max_recv_wr = cap.max_recv_sge = 0;
	return cap;
}

/* What the program gets. */
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

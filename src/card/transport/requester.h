/* SPDX-License-Identifier: MIT */
/*
 * What the two halves of the requester share: requester.c, which sends, and completer.c, which
 * takes what comes back. Everything under the send queue's lock.
 */
#pragma once

#include "card/queue/objects.h"
#include "card/transport/sides.h"
#include "fabric/direct.h"

static inline bool vb_sq_has_inflight(const struct vb_sq *sq)
{
	return vb_sender_busy(&sq->sender);
}

/* All that was begun is complete; see SQD. */
static inline bool vb_sq_is_drained(const struct vb_sq *sq)
{
	return !vb_sq_has_inflight(sq) && !sq->sent && !sq->resend && !sq->sender.rnr_until;
}

static inline struct vb_inflight *vb_sq_oldest(const struct vb_sq *sq)
{
	return (struct vb_inflight *)vb_sender_oldest(&sq->sender);
}

static inline struct vb_completion vb_requester_completion(const struct vb_qp *qp, uint16_t index,
							   uint8_t wqe_opcode,
							   enum ibv_wc_status status, uint32_t len)
{
	return (struct vb_completion){
		.status = status,
		.wqe_opcode = wqe_opcode,
		.wqe_index = index,
		.qpn = qp->number,
		.byte_len = len,
		.uidx = qp->init.uidx,
		.real_time = qp->init.real_time,
	};
}

static inline void vb_requester_complete(struct vb_qp *qp, uint16_t index, uint8_t wqe_opcode,
					 enum ibv_wc_status status, uint32_t len)
{
	struct vb_completion c = vb_requester_completion(qp, index, wqe_opcode, status, len);

	if (status != IBV_WC_SUCCESS) {
		qp->sq.erred = true;
		vb_count_status(qp, status, false);
	}
	vb_cq_push(qp->init.send_cq, &c);
}

static inline void vb_requester_forget(struct vb_sq *sq)
{
	vb_sender_forget(&sq->sender);
	sq->again = sq->sender.tail;
	sq->resend = 0;
	sq->transfer.chosen = false;
	sq->failing = IBV_WC_SUCCESS;
}

/* Something is in flight: have the timer look at it. */
static inline void vb_timer_add(struct vb_qp *qp)
{
	if (!qp->timer.set)
		qp->sq.sender.recent = true;
	else if (!qp->sq.sender.rnr_until)
		return;
	vb_alarm_set(&qp->timer, 0);
}

static inline bool vb_wr_is_atomic(const struct vb_wr *wr)
{
	return vb_wr_op_is_atomic(wr->op);
}

/* --- one_sided.c --- */
/*
 * Do our share of the WQE, from sq.to_place on. What is refused the target gets in packets, like the
 * rest: unless it is our own memory that is not there.
 */
enum vb_direct vb_requester_place(struct vb_qp *qp, struct vb_pkt *pkt, const struct iovec *iov,
				  int cnt);

/* --- requester.c --- */
/* The WQE that is being sent ends with an error, after what is in flight before it. */
void vb_requester_fail(struct vb_qp *qp, enum ibv_wc_status status);

/* --- completer.c --- */
/*
 * The receiver is not ready: wait as long as the code says, then send again; false where that was
 * too often.
 */
bool vb_requester_wait_rnr(struct vb_qp *qp, uint8_t code);
/* What a work request ends with that the responder refused. */
enum ibv_wc_status vb_requester_refused(uint8_t syndrome);

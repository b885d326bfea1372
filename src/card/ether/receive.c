// SPDX-License-Identifier: MIT
/*
 * Owns the arrival of raw frames in receive queues: one WQE for each, or strides of one.
 *
 *	WQE of a striding queue, memory:   | frame 0 | frame 1 ..... | 2 | unused |
 *	                         strides:  |    0    |    1     2    | 3 |   4    |
 *	CQEs:                              index 0, 1 stride; 1, 2 strides; 3, 1 stride; filler: 4, 1 stride
 *
 * A frame begins with a stride and lies in one WQE. Where the strides that are left are too few, a
 * CQE without a frame (filler) ends the WQE. The sum over all CQEs of a WQE is its number of
 * strides: by that a program knows that it is done.
 */
#include "card/ether/ether.h"

#include <endian.h>

#include "card/fault/fault.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"
#include "card/queue/receive.h"
#include "card/shown.h"
#include "card/transport/sides.h"
#include "packet/frame/frame.h"

/* Strides for so many bytes of a frame. offset: where in the WQE's memory they go. */
static enum verdict take_strides(struct vb_qp *qp, struct vb_completion *c, uint64_t *offset)
{
	const struct vb_striding *striding = &qp->init.striding;
	uint32_t shift = striding->shift ? 2 : 0, all = 1u << striding->log_count;
	uint32_t need =
		(c->byte_len + shift + (1u << striding->log_bytes) - 1) >> striding->log_bytes;
	static const uint8_t zeros[2];
	struct vb_rq *rq = &qp->rq;
	uint64_t at;

	if (need > all)
		return BAD_LENGTH;
	if (need > all - rq->stride) {
		struct vb_completion filler = {
			.receive = true,
			.op = VB_WR_SEND,
			.qpn = qp->number,
			.uidx = c->uidx,
			.real_time = c->real_time,
			.filler = true,
			.strides = (uint16_t)(all - rq->stride),
			.wqe_index = (uint16_t)rq->stride,
			.wqe_id = rq->wqe_index,
		};
		enum verdict ret;

		rq->stride = 0;
		rq->have_wqe &= VB_WQE_ASKED;
		vb_cq_push(qp->init.recv_cq, &filler);
		ret = take_wqe(qp);
		if (ret != ACCEPT)
			return ret;
	}
	at = (uint64_t)rq->stride << striding->log_bytes;
	if (at + shift + c->byte_len > rq->capacity)
		return BAD_LENGTH;
	c->strides = (uint16_t)need;
	*offset = at + shift;
	return shift ? scatter(qp, at, zeros, shift) : ACCEPT;
}

/* The frame is there; the WQE goes on where it has strides left. */
static void leave_strides(struct vb_qp *qp, struct vb_completion *c)
{
	struct vb_rq *rq = &qp->rq;

	c->wqe_id = rq->wqe_index;
	c->wqe_index = (uint16_t)rq->stride;
	rq->stride += c->strides;
	if (rq->stride < 1u << qp->init.striding.log_count)
		return;
	rq->stride = 0;
	rq->have_wqe &= VB_WQE_ASKED;
}

/* Without its tag, or with its FCS, where the queue is made so. */
static enum verdict scatter_frame(struct vb_qp *qp, const struct vb_frame *f,
				  struct vb_completion *c)
{
	enum { MACS = 12, TAG = 4, FCS = 4 };
	uint32_t skip = qp->init.vlan_strip && f->outer.vlans ? TAG : 0;
	uint32_t body = f->len - skip;
	enum verdict ret = ACCEPT;
	uint64_t at = 0;
	uint32_t fcs;

	c->stripped = skip;
	c->byte_len = body + (qp->init.scatter_fcs ? FCS : 0);
	if (qp->init.striding.log_bytes)
		ret = take_strides(qp, c, &at);
	else if (c->byte_len > qp->rq.capacity)
		ret = BAD_LENGTH;
	if (ret == ACCEPT && skip)
		ret = scatter(qp, at, f->data, MACS);
	if (ret == ACCEPT)
		ret = skip ? scatter(qp, at + MACS, f->data + MACS + TAG, body - MACS)
			   : scatter(qp, at, f->data, body);
	if (ret != ACCEPT || !qp->init.scatter_fcs)
		return ret;
	fcs = htole32(vb_frame_fcs(f->data, f->len));
	return scatter(qp, at + body, (const uint8_t *)&fcs, FCS);
}

void vb_responder_frame(struct vb_qp *qp, const struct vb_frame *frame, struct vb_completion *c)
{
	enum { NO_UIDX = 0xffffff }; /* none was given: CQEs show the queue's number instead */
	enum verdict ret;

	vb_lock(&qp->rq.lock);
	if (!vb_qp_receives(atomic_load_explicit(&qp->state, memory_order_relaxed)))
		goto unlock;
	c->strides = 0; /* it may tell of another queue's copy */
	c->real_time = qp->init.real_time;
	c->qpn = qp->number;
	c->srqn = qp->srqn;
	c->uidx = qp->init.uidx == NO_UIDX ? qp->number : qp->init.uidx;
	ret = take_wqe(qp);
	if (ret == ACCEPT)
		ret = scatter_frame(qp, frame, c);
	if (ret == NOT_READY) {
		qp->rq.dropped++;
	} else if (ret == ACCEPT) {
		qp->rq.traffic.received += frame->len;
		qp->rq.packets++;
		c->receive = true;
		c->op = VB_WR_SEND;
		c->wqe_index = qp->rq.wqe_index;
		if (c->strides)
			leave_strides(qp, c);
		else
			qp->rq.have_wqe &= VB_WQE_ASKED;
		vb_cq_push(qp->init.recv_cq, c);
	} else {
		vb_why_receive(qp, &(struct vb_pkt){ .len = frame->len }, verdicts[ret].status);
		complete(qp, verdicts[ret].status, NULL, 0);
		vb_qp_fail(qp, 0, false);
	}
unlock:
	vb_show_rq(qp);
	vb_unlock(&qp->rq.lock);
}

// SPDX-License-Identifier: MIT
/*
 * Owns sending what the responder owes its peer: responses, refusals, acknowledgements. The
 * responder puts them into struct vb_rq and defers VB_WORK_ACK; they are sent here, in order, while
 * the path has room.
 */
#include "card/memory/keys.h"

#include <errno.h>

#include "base/rcu.h"
#include "card/memory/indirect.h"
#include "card/queue/objects.h"
#include "card/transport/as_frames.h"
#include "card/transport/sides.h"
#include "card/transport/transport.h"

/* A packet of a READ response from an indirect key, whose memory has no address. */
static __attribute__((noinline, cold)) int
send_gathered(struct vb_qp *qp, const struct vb_response *r, struct vb_pkt *pkt)
{
	uint8_t bounce[4096];
	struct iovec iov = { bounce, pkt->len };
	uint64_t sent;
	int ret;

	if (pkt->len > sizeof(bounce) ||
	    vb_indirect_read(qp->card, r->rkey, qp->init.pd->number, r->va + r->sent, bounce,
			     pkt->len, IBV_ACCESS_REMOTE_READ))
		return -EFAULT;
	pkt->iov = &iov;
	sent = vb_roce_time(qp->card);
	ret = vb_path_send(&qp->path, pkt);
	if (!ret && sent)
		vb_roce_answer(qp, pkt, r->psn, r->sent, sent);
	pkt->iov_cnt = 0;
	return ret;
}

/* Send (the rest of) one response; 0 or what the path says. */
static int send_response(struct vb_qp *qp, struct vb_response *r)
{
	do {
		uint32_t left = r->len - r->sent;
		uint32_t chunk = left < qp->path.span ? left : qp->path.span;
		struct iovec iov = { NULL, chunk };
		struct vb_pkt pkt = {
			.op = r->op,
			.transport = qp->transport,
			.syndrome = VB_SYN_ACK,
			.dqpn = qp->attr.dest_qp_num,
			.sqpn = qp->number,
			.psn = vb_psn_add(r->psn, r->sent / qp->path.span),
			.msn = r->msn,
			.original = r->value,
			.iov = &iov,
			.iov_cnt = chunk ? 1 : 0,
			.len = chunk,
		};
		uint64_t sent = vb_roce_time(qp->card);
		int ret;

		pkt.flags = (uint8_t)((r->sent ? 0 : VB_PKT_FIRST) |
				      (r->sent + chunk == r->len ? VB_PKT_LAST : 0));
		if (r->op == VB_PKT_ACK)
			pkt.syndrome = (uint8_t)r->value;
		if (chunk)
			iov.iov_base =
				vb_mr_translate(qp->card, r->rkey, qp->init.pd->number,
						r->va + r->sent, chunk, IBV_ACCESS_REMOTE_READ);
		if (chunk && vb_mr_generation(qp->card, r->rkey) != r->generation)
			ret = -EFAULT;
		else if (chunk && !iov.iov_base)
			ret = send_gathered(qp, r, &pkt);
		else
			ret = vb_path_send(&qp->path, &pkt);
		if (ret == -EFAULT) {
			/* The memory went away, or is another, after the request was accepted. */
			*r = (struct vb_response){ .op = VB_PKT_ACK,
						   .psn = r->psn,
						   .msn = r->msn,
						   .value = VB_SYN_NAK_ACCESS };
			vb_qp_fail(qp, IBV_EVENT_QP_ACCESS_ERR, true);
			return send_response(qp, r);
		}
		if (ret)
			return ret;
		if (__builtin_expect(sent, 0) && (pkt.iov_cnt || !chunk))
			vb_roce_answer(qp, &pkt, r->psn, r->sent, sent);
		r->sent += chunk;
	} while (r->sent < r->len);
	return 0;
}

void vb_responder_answer(struct vb_qp *qp)
{
	struct vb_rq *rq = &qp->rq;
	struct vb_path path;
	int ret = 0;

	vb_read_lock();
	vb_burst_begin(qp->card);
	vb_lock(&rq->lock);
	/* as it is now: modify may replace it, and closes the old one after a grace period */
	path = qp->path;
	while (!ret && rq->resp_head != rq->resp_tail) {
		ret = send_response(qp, &rq->response[rq->resp_head % VB_ANSWERS]);
		if (!ret)
			rq->resp_head++;
	}
	if (!ret && rq->ack_due && !rq->duplicate &&
	    atomic_load_explicit(&rq->acked, memory_order_relaxed) == rq->receiver.epsn)
		rq->ack_due = false; /* it went with a request */
	if (!ret && rq->ack_due) {
		struct vb_response ack = { .op = VB_PKT_ACK,
					   .psn = vb_psn_add(rq->receiver.epsn, 0xffffff),
					   .msn = rq->msn,
					   .value = VB_SYN_ACK };

		ret = send_response(qp, &ack);
		if (!ret) {
			rq->ack_due = rq->duplicate = false;
			atomic_store_explicit(&rq->acked, rq->receiver.epsn, memory_order_relaxed);
		}
	}
	if (ret == -EHOSTDOWN) {
		rq->resp_head = rq->resp_tail;
		rq->ack_due = false;
	}
	vb_unlock(&rq->lock);
	if (ret == -EAGAIN)
		vb_work_block(qp, VB_WORK_ACK);
	vb_burst_flush(&path);
	vb_burst_end();
	vb_read_unlock();
}

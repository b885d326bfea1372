/* SPDX-License-Identifier: MIT */
/*
 * A run: packets of one burst (burst.h) that follow one another and are for the same queue pair.
 * They are taken as one: the queue pair is looked up once, its receive queue and the CQ of its
 * receives are locked once, what tools see of it is written once, and the acknowledgements that
 * they carry are taken once, because the last one stands for all.
 *
 *	packet   A   A   A   A   B   B  ack of B
 *	run     [lock A .......][lock B][sq lock]      the end of a run unlocks: sink.c
 *
 * Each packet is checked, executed and completed by itself: a state that changes in between, a
 * refusal, an event or a CQ that is full has the effect that it would have without a run. States
 * that the program sets wait for the end of the run, as they wait for the end of a packet.
 *
 * A run lasts no longer than the burst, which is short. The CQ is shared with other queues, so its
 * lock is let go of before anything that may take long or logs: vb_run_share().
 */
#pragma once

#include "card/queue/objects.h"
#include "card/shown.h"
#include "card/transport/transport.h"

/* Other queues may use the CQ of the receives. */
static inline void vb_run_share(void)
{
	struct vb_cq *cq = vb_burst.run.cq;

	if (!cq)
		return;
	vb_burst.run.cq = NULL;
	vb_unlock(&cq->lock);
}

/* Complete a receive of qp; false: the CQE is lost (cq.c). rq.lock is held: by a run, or by a caller that has no run. */
static inline bool vb_run_push(struct vb_qp *qp, struct vb_completion *completion)
{
	struct vb_cq *cq = qp->init.recv_cq;

	if (vb_burst.run.qp != qp)
		return vb_cq_push(cq, completion);
	if (!vb_burst.run.cq) {
		vb_lock(&cq->lock);
		vb_burst.run.cq = cq;
	}
	return vb_cq_push_locked(cq, completion);
}

/* Whether a packet is the next one of the run. */
static inline bool vb_run_takes(const struct vb_pkt *pkt)
{
	const struct vb_qp *qp = vb_burst.run.qp;

	return qp && pkt->dqpn == qp->number && pkt->op < VB_PKT_ACK &&
	       pkt->transport == qp->transport;
}

/* An acknowledgement that a packet of the run carries: taken at its end, with no lock held. */
static inline void vb_run_note_ack(const struct vb_pkt *pkt)
{
	struct vb_run *run = &vb_burst.run;
	uint32_t psn = pkt->acked_psn & 0xffffff;

	if (run->acks && run->sqpn == pkt->sqpn && vb_psn_diff(psn, run->acked_psn) <= 0)
		return;
	run->acks = true;
	run->sqpn = pkt->sqpn;
	run->acked_psn = psn;
}

static inline void vb_run_end(void)
{
	struct vb_run run = vb_burst.run;

	if (!run.qp)
		return;
	vb_run_share();
	vb_show_rq(run.qp);
	vb_burst.run = (struct vb_run){ 0 };
	vb_unlock(&run.qp->rq.lock);
	if (run.acks)
		vb_requester_acknowledged(run.qp, run.sqpn, run.acked_psn);
}

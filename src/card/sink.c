// SPDX-License-Identifier: MIT
/*
 * Owns the card's callbacks from the fabric: packets that arrive, deferred work, time. Finds the
 * queue that a packet is for; hbl/sink.c does so for hbl queues.
 *
 *	ring of a peer --> card_receive --> requester, responder --+--> completions
 *	                                                           +--> deferred: answers, flushes --> card_work
 */
#include "card/transport/requester.h"

#include "base/fork.h"
#include "base/util.h"
#include "card/emulation/emulated.h"
#include "card/ether/ether.h"
#include "card/fault/fault.h"
#include "card/hbl/sink.h"
#include "card/memory/keys.h"
#include "card/queue/objects.h"
#include "card/queue/umem.h"
#include "card/transport/dc.h"
#include "card/transport/run.h"
#include "card/transport/transport.h"

static bool card_is_local(struct vb_card *card, const union ibv_gid *gid)
{
	return vb_card_gid_is_local(card, gid);
}

/* --- deferred work ---------------------------------------------------------------------------- */

static void look_drained(struct vb_qp *qp)
{
	bool event = false;

	vb_lock(&qp->sq.lock);
	if (qp->state == IBV_QPS_SQD && qp->drained_event && vb_sq_is_drained(&qp->sq)) {
		qp->drained_event = false;
		event = true;
	}
	vb_unlock(&qp->sq.lock);
	if (event)
		vb_qp_event(qp, IBV_EVENT_SQ_DRAINED);
}

void vb_qp_run_deferred(struct vb_deferred *item, uint32_t what)
{
	struct vb_qp *qp = container_of(item, struct vb_qp, deferred);

	vb_burst_begin(qp->card);
	if (what & VB_WORK_ACK)
		vb_responder_answer(qp);
	if (what & VB_WORK_SEND) {
		vb_lock(&qp->sq.lock);
		vb_requester_run(qp);
		vb_unlock(&qp->sq.lock);
	}
	if (what & VB_WORK_CONNECT)
		vb_dct_serve(qp);
	if (what & (VB_WORK_FLUSH | VB_WORK_FLUSH_SQ))
		vb_qp_flush(qp, what);
	if (what & VB_WORK_DRAINED)
		look_drained(qp);
	vb_burst_end();
}

static uint64_t card_work(struct vb_card *card, bool all)
{
	uint64_t next;

	if (all) {
		vb_burst_begin(card);
		vb_uar_run_deferred(card);
		vb_hbl_fifo_run_deferred(card);
		vb_emulation_run(card);
		vb_alarm_run(card);
		vb_burst_end();
	}
	vb_deferred_run(card, all); /* last: the above may defer */
	if (!all)
		return UINT64_MAX;
	next = vb_alarm_next(card);
	vb_sooner(&next, vb_emulation_next(card));
	return next;
}

static enum vb_pending card_pending(struct vb_card *card, bool all)
{
	return all && vb_function_is_told(card->fabric) ? VB_PENDING_RUNNABLE
							: vb_deferred_pending(card, all);
}

/* --- packets ---------------------------------------------------------------------------------- */

static bool carries_acknowledgement(const struct vb_pkt *pkt)
{
	return (pkt->flags & VB_PKT_ACKS) && vb_transport_type(pkt->transport) == IBV_QPT_RC;
}

/*
 * A program that waits for events sees the order of completions, and expects that of its send before
 * the answer to it. A program that polls wants the answer, and gets it first.
 */
static bool waits_for_sends(const struct vb_qp *qp)
{
	return vb_cq_armed(qp->init.send_cq) || qp->init.send_cq == qp->init.recv_cq;
}

/* A request from another process; begins a run, or goes on with it. */
static void receive_request(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	/* It copies for long, makes a system call or may wait: not with a CQ that others use. */
	if (__builtin_expect(pkt->len > VB_BURST_LONG || pkt->source.lkey ||
				     (pkt->flags & VB_PKT_INVALIDATE),
			     0)) {
		vb_run_share();
		vb_burst_before(pkt->len);
	}
	vb_responder_receive(qp, pkt, NULL, NULL);
}

/* Two ends of DC meet. */
static __attribute__((noinline, cold)) void receive_dc(struct vb_card *card,
						       const struct vb_pkt *pkt)
{
	struct vb_qp *qp;

	if (pkt->op == VB_PKT_COMPARE_SWAP)
		vb_dct_ask(card, pkt);
	else if (pkt->op == VB_PKT_ATOMIC_RESPONSE && (qp = vb_qp_find(card, pkt->dqpn)))
		vb_dci_receive(qp, pkt);
}

/* The queue pair that a request is for; NULL: it was for something else, and is done. */
static struct vb_qp *receive_other(struct vb_card *card, const struct vb_pkt *pkt)
{
	struct vb_qp *qp;

	if (__builtin_expect(pkt->transport == VB_TRANSPORT_HBL, 0)) {
		vb_hbl_receive(card, pkt);
		return NULL;
	}
	if (__builtin_expect(pkt->transport == IBV_QPT_RAW_PACKET, 0)) {
		vb_cable_receive(card, pkt);
		return NULL;
	}
	if (__builtin_expect(pkt->transport == VB_TRANSPORT_DC, 0)) {
		receive_dc(card, pkt);
		return NULL;
	}
	qp = vb_qp_find(card, pkt->dqpn);
	if (!qp)
		return NULL;
	if (pkt->op >= VB_PKT_ACK) {
		vb_requester_receive(qp, pkt);
		return NULL;
	}
	/* Of DC they go to ends of connections, which have numbers of their own. */
	return qp->init.dc ? NULL : qp;
}

static void card_take(struct vb_card *card, const struct vb_pkt *pkt)
{
	struct vb_qp *qp = vb_burst.run.qp;

	vb_note(RECEIVED, .object = pkt->dqpn, .code = pkt->op, .value = pkt->len,
		.extra = (uint64_t)pkt->psn << 32 | pkt->sqpn);
	if (!vb_run_takes(pkt)) {
		vb_run_end();
		qp = receive_other(card, pkt);
		if (!qp)
			return;
	}
	if (!carries_acknowledgement(pkt)) {
		receive_request(qp, pkt);
	} else if (waits_for_sends(qp)) {
		vb_run_end();
		vb_requester_acknowledged(qp, pkt->sqpn, pkt->acked_psn & 0xffffff);
		receive_request(qp, pkt);
	} else {
		receive_request(qp, pkt);
		vb_run_note_ack(pkt);
	}
}

static void card_receive(struct vb_card *card, const struct vb_pkt *pkt)
{
	vb_burst_receive(card);
	card_take(card, pkt);
	vb_burst_taken();
}

/* An acknowledgement may wait for something that carries it; a response is what its peer waits for. */
static void card_received(struct vb_card *card)
{
	bool answers = vb_burst.answers;

	vb_burst.answers = false;
	vb_burst_released();
	vb_run_end();
	vb_burst_received();
	if (answers)
		vb_deferred_run_own(card);
}

static bool card_delivers_first(struct vb_card *card, const struct vb_pkt *pkt)
{
	return vb_burst_is_awaited(pkt->len);
}

/* A forked child has none of its parent's queue pairs. */
static void card_forked(struct vb_card *card)
{
	vb_deferred_forked(card);
	vb_alarm_forked(card);
	vb_flow_forked(card);
	vb_tir_forked(card);
	vb_cable_forked(card);
	vb_tap_forked(card);
	vb_mr_forked(card);
	vb_umem_forked(card);
	vb_hbl_forked(card);
	vb_emulation_forked(card);
	vb_inject_forked(card);
	vb_adapters_forked(card);
}

/*
 * Also cards whose hosts do not run: a thread of the parent that was about to open or list a device had locks of
 * them, too.
 */
static void cards_forked(void)
{
	vb_burst_forked();
	vb_cards_each(card_forked);
}

VB_STAGE(CARDS, .child = cards_forked);

const struct vb_sink vb_card_sink = {
	.is_local = card_is_local,
	.receive = card_receive,
	.received = card_received,
	.delivers_first = card_delivers_first,
	.work = card_work,
	.pending = card_pending,
};

// SPDX-License-Identifier: MIT
/*
 * Owns the responder: requests become memory writes, responder completions and answers.
 *
 * A write names its place in every packet and needs no receive work queue entry; the responder's
 * completion is asked for by the requester's entry, whose tag, index and completion type travel
 * with the packets. Answers are sent later, from the work list, with no lock held that a requester
 * may need.
 */
#include "card/hbl/internal.h"

#include <errno.h>
#include <string.h>

#include "host/fault.h"

/* rq.lock held: an acknowledgement, or the NAK that explains why there is none. */
static void answer_with(struct vb_hbl_qp *qp, uint8_t syndrome, uint32_t psn)
{
	struct vb_hbl_rq *rq = &qp->rq;

	if (rq->syndrome == VB_SYN_ACK || rq->syndrome == VB_SYN_NAK_SEQUENCE ||
	    rq->syndrome == VB_SYN_RNR) {
		rq->syndrome = syndrome;
		rq->nak_psn = psn;
	}
	rq->ack_due = true;
	vb_hbl_work_add(qp, VB_HBL_WORK_ANSWER);
}

static void hbl_responder_refuse(struct vb_hbl_qp *qp, const struct vb_pkt *pkt, uint8_t syndrome)
{
	answer_with(qp, syndrome, pkt->psn);
	vb_hbl_qp_fail(qp, IBV_EVENT_QP_REQ_ERR,
		       syndrome == VB_SYN_NAK_ACCESS ? VB_HBL_SYN_REMOTE_ACCESS
						     : VB_HBL_SYN_REMOTE_REQUEST);
}

/* Whether the packet is one that completes in the CQ. */
static bool completes(const struct vb_pkt *pkt)
{
	return (pkt->flags & VB_PKT_LAST) && (pkt->hbl_entry >> 30 & VB_HBL_COMPLETE_CQ) &&
	       pkt->op != VB_PKT_SEND;
}

static void complete(struct vb_hbl_qp *qp, const struct vb_pkt *pkt)
{
	vb_hbl_cq_fill(qp->res_cq, &(struct vb_hbl_completion){ .qpn = qp->qpn,
								.index = pkt->hbl_entry & 0x3fffff,
								.tag = pkt->hbl_tag,
								.size = pkt->dma_len });
}

/* --- requests: rq.lock held, in order. Where not 0, nothing happened and the packet does not count. --- */

static int hbl_responder_copy_in(char *to, const struct vb_pkt *pkt)
{
	for (uint32_t i = 0; i < pkt->iov_cnt; i++) {
		if (vb_fault_copy(to, pkt->iov[i].iov_base, pkt->iov[i].iov_len))
			return -EFAULT;
		to += pkt->iov[i].iov_len;
	}
	return 0;
}

static bool source_is_readable(const struct vb_pkt *pkt)
{
	for (uint32_t i = 0; i < pkt->iov_cnt; i++)
		if (!vb_fault_readable(pkt->iov[i].iov_base, pkt->iov[i].iov_len))
			return false;
	return true;
}

static int do_write(struct vb_hbl_qp *qp, const struct vb_pkt *pkt)
{
	/*
	 * The peer's work queue may be for writes and rendezvous; the other end of either takes its
	 * writes.
	 */
	const uint32_t takers =
		VB_HBL_WQ_WRITE | VB_HBL_WQ_RECV_RDV | VB_HBL_WQ_SEND_RDV | VB_HBL_WQ_READ_RDV_ENDP;
	char *to = NULL;

	if (!(qp->attr.wq_type & takers)) {
		hbl_responder_refuse(qp, pkt, VB_SYN_NAK_INVALID);
		return -EPROTO;
	}
	if (pkt->len)
		to = vb_hbl_at(qp, pkt->va, pkt->len);
	if (pkt->rkey != qp->attr.local_key || (pkt->len && !to)) {
		hbl_responder_refuse(qp, pkt, VB_SYN_NAK_ACCESS);
		return -EPROTO;
	}
	if (pkt->len && hbl_responder_copy_in(to, pkt)) {
		if (!source_is_readable(pkt))
			return -EFAULT;
		hbl_responder_refuse(qp, pkt, VB_SYN_NAK_ACCESS);
		return -EPROTO;
	}
	if (!(pkt->flags & VB_PKT_LAST))
		return 0;
	if (qp->attr.wq_type & VB_HBL_WQ_RECV_RDV) {
		/* One announced buffer is used: another may be announced. */
		atomic_fetch_add_explicit(&qp->rq.rdv_used, 1, memory_order_release);
		vb_hbl_work_add(qp, VB_HBL_WORK_SEND);
	}
	return 0;
}

static int take_announcement(struct vb_hbl_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_hbl_rq *rq = &qp->rq;
	uint32_t tail = atomic_load_explicit(&rq->rdv_tail, memory_order_relaxed);
	struct vb_hbl_announcement what;

	if (qp->attr.wq_type != VB_HBL_WQ_SEND_RDV || pkt->len != sizeof(what) ||
	    tail - atomic_load_explicit(&qp->sq.rdv_done, memory_order_relaxed) >= qp->wqes) {
		hbl_responder_refuse(qp, pkt, VB_SYN_NAK_INVALID);
		return -EPROTO;
	}
	if (hbl_responder_copy_in((char *)&what, pkt))
		return -EFAULT;
	rq->rdv[tail & (qp->wqes - 1)] = what;
	atomic_store_explicit(&rq->rdv_tail, tail + 1, memory_order_release);
	vb_hbl_work_add(qp, VB_HBL_WORK_SEND);
	return 0;
}

static bool queue_answer(struct vb_hbl_qp *qp, const struct vb_hbl_answer *answer)
{
	struct vb_hbl_rq *rq = &qp->rq;

	if (rq->ans_tail - rq->ans_head >= VB_HBL_MAX_READS)
		return false;
	rq->answer[rq->ans_tail++ % VB_HBL_MAX_READS] = *answer;
	vb_hbl_work_add(qp, VB_HBL_WORK_ANSWER);
	return true;
}

/* 0, or why a READ is refused: also one that was seen before, whatever it says now. */
static uint8_t check_read(struct vb_hbl_qp *qp, const struct vb_pkt *pkt)
{
	if (qp->attr.wq_type != VB_HBL_WQ_READ_RDV_ENDP)
		return VB_SYN_NAK_INVALID;
	if (pkt->rkey != qp->attr.local_key ||
	    (pkt->dma_len && !vb_hbl_at(qp, pkt->va, pkt->dma_len)))
		return VB_SYN_NAK_ACCESS;
	return 0;
}

static int do_read(struct vb_hbl_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_hbl_answer answer = {
		.op = VB_PKT_READ_RESPONSE, .psn = pkt->psn, .va = pkt->va, .len = pkt->dma_len
	};
	uint8_t refusal = check_read(qp, pkt);

	if (refusal) {
		hbl_responder_refuse(qp, pkt, refusal);
		return -EPROTO;
	}
	if (!queue_answer(qp, &answer))
		return -EAGAIN;
	return 0;
}

static int hbl_responder_do_fetch_add(struct vb_hbl_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_hbl_rq *rq = &qp->rq;
	struct vb_hbl_answer answer = { .op = VB_PKT_ATOMIC_RESPONSE, .psn = pkt->psn };
	uint64_t *word = vb_hbl_at(qp, pkt->va, sizeof(*word));

	if (!(qp->attr.wq_type & VB_HBL_WQ_WRITE)) {
		hbl_responder_refuse(qp, pkt, VB_SYN_NAK_INVALID);
		return -EPROTO;
	}
	if (rq->ans_tail - rq->ans_head >= VB_HBL_MAX_READS)
		return -EAGAIN;
	if (pkt->rkey != qp->attr.local_key || !word || (uintptr_t)word % sizeof(*word) ||
	    vb_fault_fetch_add(word, pkt->swap_add, &answer.value)) {
		hbl_responder_refuse(qp, pkt, VB_SYN_NAK_ACCESS);
		return -EPROTO;
	}
	vb_receiver_remember(&rq->receiver, pkt->psn, answer.value);
	queue_answer(qp, &answer);
	return 0;
}

static int hbl_responder_carry_out(struct vb_hbl_qp *qp, const struct vb_pkt *pkt)
{
	switch (pkt->op) {
	case VB_PKT_WRITE:
		return do_write(qp, pkt);
	case VB_PKT_SEND:
		return take_announcement(qp, pkt);
	case VB_PKT_READ:
		return do_read(qp, pkt);
	case VB_PKT_FETCH_ADD:
		return hbl_responder_do_fetch_add(qp, pkt);
	default:
		hbl_responder_refuse(qp, pkt, VB_SYN_NAK_INVALID);
		return -EPROTO;
	}
}

/*
 * The CQ has no place: the peer is asked to wait and to come again with this packet. Nothing of it
 * was done, because a program that sees data in its memory may write there itself before the packet
 * comes again.
 */
static void stall(struct vb_hbl_qp *qp, const struct vb_pkt *pkt)
{
	atomic_store_explicit(&qp->rq.stalled, true, memory_order_relaxed);
	answer_with(qp, VB_SYN_RNR, pkt->psn);
	vb_hbl_work_add(qp, VB_HBL_WORK_STALL);
}

/* The place in the CQ first. */
static int hbl_responder_execute(struct vb_hbl_qp *qp, const struct vb_pkt *pkt)
{
	enum vb_hbl_room room = completes(pkt) ? vb_hbl_cq_reserve(qp->res_cq) : VB_HBL_LOST;
	int ret;

	if (room == VB_HBL_LOST && completes(pkt))
		vb_hbl_recall(qp); /* the peer need not know that completions are lost */
	if (room == VB_HBL_FULL) {
		stall(qp, pkt);
		return -EAGAIN;
	}
	ret = hbl_responder_carry_out(qp, pkt);
	if (room == VB_HBL_ROOM && !ret)
		complete(qp, pkt);
	else if (room == VB_HBL_ROOM)
		vb_hbl_cq_cancel(qp->res_cq);
	return ret;
}

void vb_hbl_responder_look(struct vb_hbl_qp *qp, uint64_t now)
{
	struct vb_hbl_rq *rq = &qp->rq;

	vb_lock(&rq->lock);
	if (!vb_hbl_qp_receives(qp)) {
		atomic_store_explicit(&rq->stalled, false, memory_order_seq_cst);
	} else if (atomic_load_explicit(&rq->stalled, memory_order_seq_cst) &&
		   vb_hbl_cq_look(qp->res_cq, now)) {
		atomic_store_explicit(&rq->stalled, false, memory_order_seq_cst);
		rq->receiver.nak_sent = true;
		answer_with(qp, VB_SYN_NAK_SEQUENCE, rq->receiver.epsn);
		vb_fabric_kick(
			qp->hbl->card
				->fabric); /* whichever thread ran the timers may be done with its work */
	}
	vb_unlock(&rq->lock);
}

/* Seen before: answered again, done again only where that changes nothing. */
static void repeat(struct vb_hbl_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_hbl_answer again = { .op = VB_PKT_ATOMIC_RESPONSE, .psn = pkt->psn };
	struct vb_hbl_rq *rq = &qp->rq;

	if (pkt->op == VB_PKT_READ && !check_read(qp, pkt))
		queue_answer(qp, &(struct vb_hbl_answer){ .op = VB_PKT_READ_RESPONSE,
							  .psn = pkt->psn,
							  .va = pkt->va,
							  .len = pkt->dma_len });
	if (pkt->op == VB_PKT_FETCH_ADD &&
	    vb_receiver_recall(&rq->receiver, pkt->psn, &again.value))
		queue_answer(qp, &again);
	/* A NAK that is due says the same, and more. */
	rq->ack_due = true;
	vb_hbl_work_add(qp, VB_HBL_WORK_ANSWER);
}

static int take_expected(struct vb_hbl_qp *qp, const struct vb_pkt *pkt,
			 struct vb_window_queue *queue)
{
	struct vb_hbl_rq *rq = &qp->rq;
	int ret = hbl_responder_execute(qp, pkt);

	if (ret)
		return ret;
	rq->packets++;
	rq->bytes_received += pkt->len;
	rq->bytes_read += pkt->op == VB_PKT_READ ? pkt->dma_len : 0;
	vb_hbl_show_rq(qp);
	/* A READ takes the PSNs of its response (IBTA 9.7.2). */
	vb_receiver_take(&rq->receiver,
			 pkt->op == VB_PKT_READ ? vb_psn_span(pkt->dma_len, qp->span) : 1);
	atomic_store_explicit(&rq->stalled, false, memory_order_seq_cst);
	answer_with(qp, VB_SYN_ACK, 0);
	if (queue)
		vb_hbl_lent_show(qp, queue);
	return 0;
}

int vb_hbl_responder_receive(struct vb_hbl_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_hbl_rq *rq = &qp->rq;
	struct vb_window_queue *queue;
	int ret = 0;

	vb_lock(&rq->lock);
	if (!vb_hbl_qp_receives(qp))
		goto unlock;
	queue = atomic_load_explicit(&qp->lent, memory_order_relaxed);
	if (queue)
		vb_hbl_lent_take(qp, queue);
	switch (vb_receiver_check(&rq->receiver, pkt->psn)) {
	case VB_ARRIVAL_EXPECTED:
		ret = take_expected(qp, pkt, queue);
		break;
	case VB_ARRIVAL_DUPLICATE:
		repeat(qp, pkt);
		break;
	case VB_ARRIVAL_GAP:
		/* While stalled, what is behind the packet that waits comes again with it. */
		if (!atomic_load_explicit(&rq->stalled, memory_order_seq_cst))
			answer_with(qp, VB_SYN_NAK_SEQUENCE, rq->receiver.epsn);
		break;
	case VB_ARRIVAL_DROP:
		break;
	}
unlock:
	vb_unlock(&rq->lock);
	return ret == -EFAULT ? ret : 0;
}

/* --- answers ---------------------------------------------------------------------------------- */

/* rq.lock held: the next packet to send, if any. */
static bool next_answer(struct vb_hbl_qp *qp, struct vb_pkt *pkt, struct iovec *iov)
{
	struct vb_hbl_rq *rq = &qp->rq;
	struct vb_hbl_answer *answer = &rq->answer[rq->ans_head % VB_HBL_MAX_READS];
	uint32_t left;

	*pkt = (struct vb_pkt){ .iov = iov };
	if (rq->ans_head == rq->ans_tail) {
		bool nak = rq->syndrome != VB_SYN_ACK;

		pkt->op = VB_PKT_ACK;
		pkt->syndrome = rq->syndrome;
		pkt->psn = nak ? rq->nak_psn : vb_psn_add(rq->receiver.epsn, 0xffffff);
		return rq->ack_due;
	}
	pkt->op = answer->op;
	pkt->syndrome = VB_SYN_ACK;
	pkt->psn = vb_psn_add(answer->psn, answer->sent / qp->span);
	pkt->flags = VB_PKT_ONLY;
	pkt->original = answer->value;
	if (answer->op == VB_PKT_ATOMIC_RESPONSE)
		return true;
	left = answer->len - answer->sent;
	pkt->len = left < qp->span ? left : qp->span;
	pkt->flags = (answer->sent ? 0 : VB_PKT_FIRST) | (pkt->len == left ? VB_PKT_LAST : 0);
	iov->iov_base = pkt->len ? vb_hbl_at(qp, answer->va + answer->sent, pkt->len) : NULL;
	iov->iov_len = pkt->len;
	pkt->iov_cnt = pkt->len ? 1 : 0;
	return true;
}

/* rq.lock held: before the packet goes. What arrives from now on needs another acknowledgement. */
static void take_ack(struct vb_hbl_rq *rq)
{
	rq->ack_due = false;
	rq->syndrome = VB_SYN_ACK;
}

/* rq.lock held: there was no room for it. */
static void hbl_responder_put_back(struct vb_hbl_rq *rq, const struct vb_pkt *pkt)
{
	rq->ack_due = true;
	if (pkt->syndrome == VB_SYN_ACK || rq->syndrome != VB_SYN_ACK)
		return;
	rq->syndrome = pkt->syndrome;
	rq->nak_psn = pkt->psn;
}

/* rq.lock held: a READ response was sent, or its memory is gone. */
static void finish_answer(struct vb_hbl_qp *qp, const struct vb_pkt *pkt, int ret)
{
	struct vb_hbl_rq *rq = &qp->rq;

	if (ret == -EFAULT) {
		rq->ans_head++;
		hbl_responder_refuse(qp, pkt, VB_SYN_NAK_ACCESS);
		return;
	}
	rq->answer[rq->ans_head % VB_HBL_MAX_READS].sent += pkt->len;
	if (pkt->flags & VB_PKT_LAST)
		rq->ans_head++;
}

/*
 * rq.lock held; let go of while a packet is sent, because in loopback the requester takes its own.
 */
static int send_answers(struct vb_hbl_qp *qp)
{
	struct vb_hbl_rq *rq = &qp->rq;
	struct iovec iov = { 0 };
	struct vb_pkt pkt;

	while (next_answer(qp, &pkt, &iov)) {
		bool ack = pkt.op == VB_PKT_ACK;
		int ret;

		if (ack)
			take_ack(rq);
		vb_unlock(&rq->lock);
		ret = pkt.iov_cnt && !iov.iov_base ? -EFAULT : vb_hbl_send(qp, &pkt);
		vb_lock(&rq->lock);
		if (ret == -EAGAIN && ack)
			hbl_responder_put_back(rq, &pkt);
		if (ret == -EAGAIN)
			return ret;
		if (!ack)
			finish_answer(qp, &pkt, ret);
	}
	return 0;
}

void vb_hbl_responder_answer(struct vb_hbl_qp *qp)
{
	struct vb_hbl_rq *rq = &qp->rq;
	int ret;

	vb_lock(&rq->lock);
	if (rq->answering) {
		/* Another thread is at it, and looks again before it leaves. */
		vb_unlock(&rq->lock);
		return;
	}
	rq->answering = true;
	ret = send_answers(qp);
	rq->answering = false;
	vb_unlock(&rq->lock);
	if (atomic_load_explicit(&qp->connected, memory_order_acquire))
		vb_burst_flush(&qp->path);
	if (ret == -EAGAIN)
		vb_hbl_work_block(qp, VB_HBL_WORK_ANSWER);
}

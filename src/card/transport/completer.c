// SPDX-License-Identifier: MIT
/*
 * Owns what comes back to the sending side of a reliable queue pair: acknowledgements, refusals,
 * data, and silence. Messages in flight are completed, failed, or sent again.
 *
 *	answer --> vb_requester_receive --+--> the oldest in flight is done --> CQE
 *	time   --> vb_requester_look -----+--> all are sent again: back to requester.c
 *
 * Everything here runs under the send queue's lock, inside a read section.
 */
#include "card/transport/requester.h"

#include "base/time.h"
#include "base/util.h"
#include "card/fault/fault.h"
#include "card/queue/counter_set.h"
#include "card/queue/objects.h"
#include "card/transport/dc.h"
#include "card/transport/message.h"
#include "card/transport/sides.h"
#include "card/transport/transport.h"

/* --- again, or no more ------------------------------------------------------------------------ */

/*
 * The same where the oldest belongs to a stream of DC. What is behind one that the target refused goes on: it was
 * not done yet, and is sent on a new connection. Without an answer, or where the error is ours, nobody knows, and so it
 * all fails, each in its stream. False: that was the error that is the queue's; it is the oldest now, with *status.
 */
static bool fail_streams(struct vb_qp *qp, enum ibv_wc_status *status)
{
	struct vb_sq *sq = &qp->sq;
	bool refused = *status == IBV_WC_REM_INV_REQ_ERR || *status == IBV_WC_REM_ACCESS_ERR ||
		       *status == IBV_WC_REM_OP_ERR || *status == IBV_WC_RNR_RETRY_EXC_ERR;

	do {
		const struct vb_inflight *e = vb_sq_oldest(sq);
		bool flushed;

		qp->decode(sq->buf, sq->blocks, sq->shift, e->index, &sq->wr);
		flushed = vb_dci_has_error(qp->dci, sq->wr.stream);
		if (!flushed && !vb_dci_confines(qp, sq->wr.stream))
			return false;
		if (!flushed)
			vb_why_send(qp, &sq->wr, *status);
		vb_requester_complete(qp, e->index, e->wqe_opcode,
				      flushed ? IBV_WC_WR_FLUSH_ERR : *status, 0);
		sq->next = (uint16_t)(e->index + e->blocks);
		vb_sender_pop(&sq->sender);
		*status = IBV_WC_RETRY_EXC_ERR; /* of the next: its answer is not waited for */
	} while (!refused && vb_sq_has_inflight(sq));
	sq->loaded = false;
	sq->sent = 0;
	vb_requester_forget(sq);
	vb_dci_leave(qp);
	vb_work_add(qp, VB_WORK_SEND);
	return true;
}

/*
 * The oldest WQE that is not done fails: the first in flight, or else the one being sent. Those
 * behind it are flushed.
 */
static void fail_oldest(struct vb_qp *qp, enum ibv_wc_status status)
{
	struct vb_sq *sq = &qp->sq;
	const struct vb_inflight *e;

	if (!vb_sq_has_inflight(sq)) {
		vb_requester_fail(qp, status);
		return;
	}
	if (__builtin_expect(qp->dci != NULL, 0) && fail_streams(qp, &status))
		return;
	e = vb_sq_oldest(sq);
	qp->decode(sq->buf, sq->blocks, sq->shift, e->index, &sq->wr);
	vb_why_send(qp, &sq->wr, status);
	vb_qp_fail(qp, 0,
		   false); /* first: a program that sees the completion may look at the state */
	vb_requester_complete(qp, e->index, e->wqe_opcode, status, 0);
	sq->next = (uint16_t)(e->index + e->blocks);
	sq->loaded = false;
	sq->sent = 0;
	vb_requester_forget(sq);
}

/*
 * Send everything that is not acknowledged again: duplicates are the responder's to recognise. The
 * entries stay where they are, behind the tail, to tell which way each message went.
 */
static void completer_rewind_all(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	uint32_t again = sq->sender.tail;
	uint16_t next = sq->next;

	/* A WQE that was only decoded, behind others in flight, is not sent again. */
	if (sq->loaded && (sq->sent || !vb_sq_has_inflight(sq)) && sq->resend < sq->wr.blocks)
		sq->resend = sq->wr.blocks;
	if (sq->transfer.chosen)
		sq->inflight[again++ & (sq->blocks - 1)].transfer = sq->transfer;
	/* Or further, where this comes before all were sent again. */
	if (sq->again != sq->sender.tail)
		again = sq->again;
	if (vb_sq_has_inflight(sq))
		sq->next = vb_sq_oldest(sq)->index;
	sq->resend += (uint16_t)(next - sq->next);
	sq->rewinds++;
	vb_note(RETRY, .object = qp->number, .extra = (uint64_t)sq->sender.una << 32);
	vb_sender_rewind(&sq->sender, sq->loaded ? sq->first_psn : sq->sender.psn);
	sq->loaded = false;
	sq->sent = 0;
	sq->transfer.chosen = false;
	sq->failing = IBV_WC_SUCCESS;
	sq->again = again;
}

bool vb_requester_wait_rnr(struct vb_qp *qp, uint8_t code)
{
	if (!vb_sender_wait_rnr(&qp->sq.sender, code, vb_now_ns()))
		return false;
	vb_qp_count(qp, VB_COUNT_RNR_NAK);
	completer_rewind_all(qp);
	vb_timer_add(qp);
	return true;
}

enum ibv_wc_status vb_requester_refused(uint8_t syndrome)
{
	switch (syndrome) {
	case VB_SYN_NAK_INVALID:
		return IBV_WC_REM_INV_REQ_ERR;
	case VB_SYN_NAK_ACCESS:
		return IBV_WC_REM_ACCESS_ERR;
	case VB_SYN_SOURCE_FAULT:
		return IBV_WC_LOC_PROT_ERR;
	default:
		return IBV_WC_REM_OP_ERR;
	}
}

/* --- answers from a peer ---------------------------------------------------------------------- */

/* One acknowledgement may complete many: the CQ is locked once for all of them. */
static void completer_complete_ready(struct vb_qp *qp)
{
	struct vb_sender *sender = &qp->sq.sender;
	struct vb_cq *cq = NULL;
	struct vb_inflight *e;

	while ((e = (struct vb_inflight *)vb_sender_complete(sender))) {
		struct vb_completion c;

		vb_sender_pop(sender);
		if (!(e->flags & VB_WR_SIGNALED))
			continue;
		if (!cq) {
			cq = qp->init.send_cq;
			vb_lock(&cq->lock);
		}
		c = vb_requester_completion(qp, e->index, e->wqe_opcode, IBV_WC_SUCCESS, e->len);
		vb_cq_push_locked(cq, &c);
	}
	if (cq)
		vb_unlock(&cq->lock);
}

/* Everything up to psn arrived; a READ or atomic is done only by its own answer. */
static void completer_acknowledge(struct vb_qp *qp, uint32_t psn)
{
	/*
	 * What is no news may still complete a message: it was acknowledged while it was being sent
	 * again.
	 */
	vb_sender_acknowledge(&qp->sq.sender, psn);
	completer_complete_ready(qp);
}

static __attribute__((noinline, cold)) bool place_scattered(const struct vb_qp *qp,
							    const struct vb_wr *wr, uint64_t at,
							    const struct iovec *from, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++) {
		if (vb_message_write(qp, wr, at, from[i].iov_base, from[i].iov_len))
			return false;
		at += from[i].iov_len;
	}
	return true;
}

/*
 * Put data of a READ or atomic into the memory that its WQE, still in the ring, names. The ring is the program's memory:
 * a WQE that is another one by now names memory that nobody asked to write to.
 */
static bool place_data(struct vb_qp *qp, const struct vb_inflight *e, const struct vb_pkt *pkt)
{
	struct iovec iov[VB_WR_MAX_SGE], value;
	bool atomic = pkt->op == VB_PKT_ATOMIC_RESPONSE;
	const struct iovec *from = atomic ? &value : pkt->iov;
	uint32_t from_cnt = atomic ? 1 : pkt->iov_cnt;
	struct vb_sq *sq = &qp->sq;
	uint64_t result;
	struct vb_wr wr;
	int cnt;

	if (vb_qp_decoder(qp)(sq->buf, sq->blocks, sq->shift, e->index, &wr) || wr.op != e->op ||
	    wr.len != e->len)
		return false;
	if (atomic) {
		value.iov_len = vb_message_result(&wr, pkt->original, &result);
		value.iov_base = &result;
	}
	cnt = vb_message_gather(qp, &wr, iov);
	if (__builtin_expect(cnt < 0, 0))
		return place_scattered(qp, &wr, e->flight.received, from, from_cnt);
	return !vb_message_copy(iov, cnt, e->flight.received, from, from_cnt);
}

static void completer_take_data(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_sender *sender = &qp->sq.sender;
	struct vb_inflight *e = (struct vb_inflight *)vb_sender_response(sender, pkt->psn);
	bool atomic = pkt->op == VB_PKT_ATOMIC_RESPONSE;

	if (!e || atomic != (e->op != VB_WR_READ))
		return;
	if (!atomic && (pkt->len > e->len - e->flight.received ||
			((pkt->flags & VB_PKT_LAST) && e->flight.received + pkt->len != e->len))) {
		fail_oldest(qp, IBV_WC_BAD_RESP_ERR);
		return;
	}
	if (!place_data(qp, e, pkt)) {
		fail_oldest(qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	e->flight.received += pkt->len;
	vb_sender_answered(sender, &e->flight, pkt->flags & VB_PKT_LAST);
	completer_complete_ready(qp);
}

/*
 * The target cannot fetch a payload: carry it, unless it has fetched a part of this message
 * already.
 */
static void take_no_pull(struct vb_qp *qp, uint32_t psn)
{
	struct vb_sq *sq = &qp->sq;
	uint32_t first =
		vb_sq_has_inflight(sq) ? vb_sq_oldest(sq)->flight.first_psn : sq->first_psn;

	sq->no_pull = true;
	if (psn == first) {
		completer_rewind_all(qp);
		sq->again = sq->sender.tail;
	} else if (vb_sender_retry(&sq->sender)) {
		completer_rewind_all(qp);
	} else {
		fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
	}
}

static void completer_take_nak(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_sq *sq = &qp->sq;

	completer_acknowledge(qp, vb_psn_add(pkt->psn, 0xffffff));
	if (!vb_sq_has_inflight(sq) && !sq->sent)
		return;
	if ((pkt->syndrome & VB_SYN_KIND_MASK) == VB_SYN_RNR) {
		if (!vb_requester_wait_rnr(qp, pkt->syndrome))
			fail_oldest(qp, IBV_WC_RNR_RETRY_EXC_ERR);
	} else if (pkt->syndrome == VB_SYN_NAK_SEQUENCE) {
		vb_qp_count(qp, VB_COUNT_SEQUENCE_NAK);
		completer_rewind_all(qp);
	} else if (pkt->syndrome == VB_SYN_NO_PULL) {
		take_no_pull(qp, pkt->psn);
	} else {
		fail_oldest(qp, vb_requester_refused(pkt->syndrome));
	}
}

/* Not the type alone: a queue whose port is down hears nothing. */
static bool completer_hears(const struct vb_qp *qp, uint32_t state, uint32_t sqpn)
{
	return (state == IBV_QPS_RTS || state == IBV_QPS_SQD) &&
	       vb_transport_type(qp->transport) == IBV_QPT_RC && sqpn == qp->attr.dest_qp_num;
}

/* After an answer: what it made room for. */
static void go_on(struct vb_qp *qp, uint32_t state)
{
	if (qp->sq.next != qp->sq.pi)
		vb_requester_run(qp);
	if (state == IBV_QPS_SQD)
		vb_work_add(qp, VB_WORK_DRAINED);
}

void vb_requester_receive(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	uint32_t state;

	vb_lock(&qp->sq.lock);
	state = atomic_load_explicit(&qp->state, memory_order_relaxed);
	if (completer_hears(qp, state, pkt->sqpn)) {
		if (pkt->op != VB_PKT_ACK)
			completer_take_data(qp, pkt);
		else if (pkt->syndrome == VB_SYN_ACK)
			completer_acknowledge(qp, pkt->psn);
		else
			completer_take_nak(qp, pkt);
		go_on(qp, state);
	}
	vb_unlock(&qp->sq.lock);
}

void vb_requester_acknowledged(struct vb_qp *qp, uint32_t sqpn, uint32_t psn)
{
	uint32_t state;

	vb_lock(&qp->sq.lock);
	state = atomic_load_explicit(&qp->state, memory_order_relaxed);
	if (completer_hears(qp, state, sqpn)) {
		completer_acknowledge(qp, psn);
		go_on(qp, state);
	}
	vb_unlock(&qp->sq.lock);
}

/* --- time ------------------------------------------------------------------------------------- */

/* Whether the other process has done what is in flight: its answers come after the packet is gone. */
static bool is_taken(struct vb_qp *qp)
{
	const struct vb_sender *sender = &qp->sq.sender;

	return vb_path_expected(&qp->path, qp->attr.dest_qp_num, qp->number, sender->una) ==
		       sender->psn &&
	       sender->psn != sender->una;
}

/* No answer for the whole timeout: again, or give up (IBTA 9.7.6.1.3). */
static void completer_timed_out(struct vb_qp *qp)
{
	struct vb_sender *sender = &qp->sq.sender;

	/*
	 * Only the last packet of a message asks for an answer: until it is sent, we are the slow
	 * ones.
	 */
	if (!vb_sq_has_inflight(&qp->sq))
		return;
	/*
	 * Packets that still lie in the ring are not lost: the other process is only slow, or
	 * stopped.
	 */
	if (!vb_path_drained(&qp->path))
		return;
	/* Nor is an answer that we have not read. */
	if (vb_path_unread(&qp->path) && vb_sender_puts_off(sender))
		return;
	if (!vb_sender_retry(sender)) {
		if (!is_taken(qp) || !vb_sender_waits_on(sender))
			fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
		return;
	}
	vb_qp_count(qp, VB_COUNT_ACK_TIMEOUT);
	completer_rewind_all(qp);
	vb_requester_run(qp);
}

/* What the process took before it died counts as delivered, answered or not. */
static void peer_died(struct vb_qp *qp)
{
	const struct vb_sender *sender = &qp->sq.sender;
	uint32_t expected =
		vb_path_expected(&qp->path, qp->attr.dest_qp_num, qp->number, sender->una);

	if (vb_psn_diff(expected, sender->psn) <= 0)
		completer_acknowledge(qp, vb_psn_add(expected, 0xffffff));
	if (vb_sq_has_inflight(&qp->sq))
		fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
}

/* A queue of raw frames has a timer only where it is paced. */
static bool look_paced(struct vb_qp *qp, uint64_t now, uint64_t *next)
{
	if (qp->sq.pace.next <= now)
		vb_requester_run(qp);
	if (qp->sq.next == qp->sq.pi)
		return false;
	vb_sooner(next, qp->sq.pace.next);
	return true;
}

/* The queue waits for a word of memory, with nothing in flight. */
static bool look_watching(struct vb_qp *qp, uint64_t now, uint64_t *next)
{
	struct vb_sq *sq = &qp->sq;

	if (sq->watch_at <= now)
		vb_requester_run(qp);
	if (sq->watch_at && sq->watch_at <= now)
		return false; /* SQD: nothing is begun before RTS, which looks again */
	if (sq->watch_at) {
		vb_sooner(next, sq->watch_at);
		return true;
	}
	if (qp->type == IBV_QPT_RAW_PACKET && sq->next != sq->pi)
		vb_sooner(next, sq->pace.next);
	else if (vb_sq_has_inflight(sq)) {
		sq->sender.recent = true;
		vb_sooner(next, now);
	} else {
		return false;
	}
	return true;
}

bool vb_requester_look(struct vb_alarm *timer, uint64_t now, uint64_t *next)
{
	struct vb_qp *qp = container_of(timer, struct vb_qp, timer);
	struct vb_sender *sender = &qp->sq.sender;

	if (qp->sq.watch_at)
		return look_watching(qp, now, next);
	if (qp->type == IBV_QPT_RAW_PACKET)
		return look_paced(qp, now, next);
	if (__builtin_expect(qp->dci && qp->dci->phase == VB_DCI_ASKS, 0))
		return vb_dci_look(qp, now, next);
	/*
	 * Of a message that is alone, a part may wait for room that the dead give no more: it is sent
	 * to nobody, like any other packet to them, and is then in flight.
	 */
	if (!vb_sq_has_inflight(&qp->sq) && qp->sq.sent && !sender->rnr_until &&
	    !vb_path_alive(&qp->path))
		vb_requester_run(qp);
	if (vb_sq_has_inflight(&qp->sq) && !sender->rnr_until && !vb_path_alive(&qp->path)) {
		peer_died(qp);
		return false;
	}
	switch (vb_sender_look(sender, now, next)) {
	case VB_SENDER_IDLE:
		if (qp->dci && qp->sq.next == qp->sq.pi)
			vb_dci_leave(qp);
		return false;
	case VB_SENDER_READY:
		vb_requester_run(qp);
		break;
	case VB_SENDER_TIMEOUT:
		completer_timed_out(qp);
		break;
	case VB_SENDER_WAITS:
		break;
	}
	return true;
}

/* --- flush and reset -------------------------------------------------------------------------- */

void vb_requester_flush(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	uint16_t at = vb_sq_has_inflight(sq) ? vb_sq_oldest(sq)->index : sq->next;
	uint32_t flushed = 0;

	if (qp->init.keeps_posted)
		return;
	for (; at != sq->pi; flushed++) {
		vb_qp_decoder(qp)(sq->buf, sq->blocks, sq->shift, at, &sq->wr);
		if (!(sq->wr.flags & VB_WR_FIRST_ERROR) || !sq->erred)
			vb_requester_complete(qp, at, sq->wr.wqe_opcode, IBV_WC_WR_FLUSH_ERR, 0);
		/* A WQE that lies about its size must not carry us past the doorbell. */
		at = (uint16_t)(sq->pi - at) < sq->wr.blocks ? sq->pi
							     : (uint16_t)(at + sq->wr.blocks);
	}
	vb_why_flushed(qp, flushed, "send");
	sq->next = sq->pi;
	sq->loaded = false;
	sq->sent = 0;
	sq->watch_at = 0;
	vb_requester_forget(sq);
	if (qp->dci)
		vb_dci_leave(qp);
}

void vb_requester_reset(struct vb_qp *qp, uint32_t psn, bool empty)
{
	struct vb_sq *sq = &qp->sq;

	if (empty)
		sq->next = sq->pi = 0;
	sq->loaded = false;
	sq->erred = false;
	sq->sent = 0;
	sq->watch_at = 0;
	vb_requester_forget(sq);
	vb_sender_reset(&sq->sender, psn);
	if (qp->dci) {
		vb_dci_leave(qp);
		qp->dci->errors = 0;
	}
}

// SPDX-License-Identifier: MIT
/*
 * Owns what comes back to the sending side of a reliable queue pair: acknowledgements, refusals, data, and silence.
 * Messages in flight are completed, failed, or sent again.
 *
 *	answer --> vb_requester_receive --+--> the oldest in flight is done --> CQE
 *	time   --> vb_requester_timer ----+--> all are sent again: back to requester.c
 *
 * Everything here runs under the send queue's lock, inside a read section.
 */
#include "card/requester.h"

#include "base/clock.h"
#include "card/message.h"

enum { RNR_FOREVER = 7 }; /* rnr_retry */

/* --- again, or no more ------------------------------------------------------------------------------------------------- */

/* The oldest WQE that is not done fails: the first in flight, or else the one being sent. Those behind it are flushed. */
static void fail_oldest(struct vb_qp *qp, enum ibv_wc_status status)
{
	struct vb_sq *sq = &qp->sq;
	const struct vb_inflight *e;

	if (!vb_sq_has_inflight(sq)) {
		vb_requester_fail(qp, status);
		return;
	}
	e = vb_sq_oldest(sq);
	qp->decode(sq->buf, sq->blocks, sq->shift, e->index, &sq->wr);
	vb_why_send(qp, &sq->wr, status);
	vb_requester_complete(qp, e->index, e->wqe_opcode, status, 0);
	sq->next = (uint16_t)(e->index + e->blocks);
	sq->loaded = false;
	sq->sent = 0;
	vb_requester_forget(sq);
	vb_qp_fail(qp, 0, false);
}

/*
 * Send everything that is not acknowledged again: duplicates are the responder's to recognise. The entries stay where
 * they are, behind in_tail, to tell which way each message went.
 */
static void rewind_all(struct vb_sq *sq)
{
	uint32_t again = sq->in_tail;

	if (sq->way.chosen)
		sq->inflight[again++ & (sq->blocks - 1)].way = sq->way;
	/* Or further, where this comes before all were sent again. */
	if (sq->in_again != sq->in_tail)
		again = sq->in_again;
	if (vb_sq_has_inflight(sq)) {
		struct vb_inflight *e = vb_sq_oldest(sq);

		sq->next = e->index;
		sq->psn = e->first_psn;
	} else if (sq->loaded) {
		sq->psn = sq->first_psn;
	}
	sq->loaded = false;
	sq->sent = 0;
	sq->in_tail = sq->in_head;
	vb_requester_forget(sq);
	sq->in_again = again;
}

/* IBTA table 45, in microseconds / 10 */
static const uint32_t rnr_timer[32] = { 65536, 1,    2,    3,     4,     6,     8,     12,
					16,    24,   32,   48,    64,    96,    128,   192,
					256,   384,  512,  768,   1024,  1536,  2048,  3072,
					4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152 };

bool vb_requester_wait_rnr(struct vb_qp *qp, uint8_t code)
{
	if (!qp->sq.rnr_retries && qp->attr.rnr_retry != RNR_FOREVER)
		return false;
	if (qp->attr.rnr_retry != RNR_FOREVER)
		qp->sq.rnr_retries--;
	rewind_all(&qp->sq);
	qp->sq.rnr_until = vb_now_ns() + rnr_timer[code & 31] * 10000ull;
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

/* --- answers from a peer -------------------------------------------------------------------------------------------------------- */

static bool is_answered_apart(const struct vb_inflight *e)
{
	return e->op == VB_WR_READ || e->op == VB_WR_COMPARE_SWAP || e->op == VB_WR_FETCH_ADD;
}

static void complete_head(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	struct vb_inflight *e = &sq->inflight[sq->in_head++ & (sq->blocks - 1)];

	if (is_answered_apart(e))
		sq->reads--;
	if (e->flags & VB_WR_SIGNALED)
		vb_requester_complete(qp, e->index, e->wqe_opcode, IBV_WC_SUCCESS, e->len);
	vb_requester_refresh(qp);
}

/* Everything up to psn arrived; a READ or atomic is done only by its own answer. */
static void acknowledge(struct vb_qp *qp, uint32_t psn)
{
	struct vb_sq *sq = &qp->sq;

	while (vb_sq_has_inflight(sq)) {
		const struct vb_inflight *e = vb_sq_oldest(sq);

		if (vb_psn_diff(psn, e->last_psn) < 0 || is_answered_apart(e))
			return;
		complete_head(qp);
	}
}

/* Data for the oldest READ or atomic: into the memory that its WQE, still in the ring, names. */
static void take_data(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_sq *sq = &qp->sq;
	struct vb_inflight *e;
	struct iovec iov[VB_WR_MAX_SGE], value = { (void *)&pkt->swap_add, 8 };
	bool atomic = pkt->op == VB_PKT_ATOMIC_RESPONSE;
	struct vb_wr wr;
	int cnt = -1;

	acknowledge(qp, vb_psn_add(pkt->psn, 0xffffff));
	e = vb_sq_oldest(sq);
	if (!vb_sq_has_inflight(sq) || e->last_psn != pkt->psn || !is_answered_apart(e) ||
	    atomic != (e->op != VB_WR_READ))
		return;
	/* IBTA 9.7.6.1.3: every answer starts timer and retries anew */
	sq->stamp = 0;
	vb_requester_refresh(qp);
	if (pkt->flags & VB_PKT_FIRST)
		e->received = 0;
	else if (!e->received)
		return; /* the rest of an answer to a request that was sent again meanwhile: another comes */
	if (!atomic && (pkt->len > e->len - e->received ||
			((pkt->flags & VB_PKT_LAST) && e->received + pkt->len != e->len))) {
		fail_oldest(qp, IBV_WC_BAD_RESP_ERR);
		return;
	}
	if (!qp->codec->send(sq->buf, sq->blocks, sq->shift, e->index, &wr))
		cnt = vb_message_gather(qp, &wr, iov);
	if (cnt < 0 || vb_message_copy(iov, cnt, e->received, atomic ? &value : pkt->iov,
				       atomic ? 1 : pkt->iov_cnt)) {
		fail_oldest(qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	e->received += pkt->len;
	if (pkt->flags & VB_PKT_LAST)
		complete_head(qp);
}

/* The target cannot fetch a payload: carry it, unless it has fetched a part of this message already. */
static void take_no_pull(struct vb_qp *qp, uint32_t psn)
{
	struct vb_sq *sq = &qp->sq;
	uint32_t first = vb_sq_has_inflight(sq) ? vb_sq_oldest(sq)->first_psn : sq->first_psn;

	sq->no_pull = true;
	if (psn == first) {
		rewind_all(sq);
		sq->in_again = sq->in_tail;
	} else if (sq->retries) {
		sq->retries--;
		rewind_all(sq);
	} else {
		fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
	}
}

static void take_nak(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_sq *sq = &qp->sq;

	acknowledge(qp, vb_psn_add(pkt->psn, 0xffffff));
	if (!vb_sq_has_inflight(sq) && !sq->sent)
		return;
	if ((pkt->syndrome & VB_SYN_KIND_MASK) == VB_SYN_RNR) {
		if (!vb_requester_wait_rnr(qp, pkt->syndrome))
			fail_oldest(qp, IBV_WC_RNR_RETRY_EXC_ERR);
	} else if (pkt->syndrome == VB_SYN_NAK_SEQUENCE) {
		rewind_all(sq);
	} else if (pkt->syndrome == VB_SYN_NO_PULL) {
		take_no_pull(qp, pkt->psn);
	} else {
		fail_oldest(qp, vb_requester_refused(pkt->syndrome));
	}
}

void vb_requester_receive(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	uint32_t state;

	vb_lock(&qp->sq.lock);
	state = atomic_load_explicit(&qp->state, memory_order_relaxed);
	if ((state == IBV_QPS_RTS || state == IBV_QPS_SQD) && qp->type == IBV_QPT_RC &&
	    pkt->sqpn == qp->attr.dest_qp_num) {
		if (pkt->op != VB_PKT_ACK)
			take_data(qp, pkt);
		else if (pkt->syndrome == VB_SYN_ACK)
			acknowledge(qp, pkt->psn);
		else
			take_nak(qp, pkt);
		if (qp->sq.next != qp->sq.pi)
			vb_requester_run(qp);
		if (state == IBV_QPS_SQD)
			vb_work_add(qp, VB_WORK_DRAINED);
	}
	vb_unlock(&qp->sq.lock);
}

/* --- time ------------------------------------------------------------------------------------------------------------------------- */

enum { LIVENESS_NS = 20000000, SHORTEST_LOOK_NS = 1000000 };

static uint64_t ack_timeout(const struct vb_qp *qp)
{
	return qp->attr.timeout ? 4096ull << qp->attr.timeout : UINT64_MAX / 2;
}

/* How long a queue may be left alone: a dead peer must be noticed, and a short timeout met. */
static uint64_t look_period(const struct vb_qp *qp)
{
	uint64_t timeout = ack_timeout(qp);

	return timeout > LIVENESS_NS        ? LIVENESS_NS
	       : timeout > SHORTEST_LOOK_NS ? timeout
					    : SHORTEST_LOOK_NS;
}

/* No answer for the whole timeout: again, or give up (IBTA 9.7.6.1.3). */
static void timed_out(struct vb_qp *qp, uint64_t now)
{
	struct vb_sq *sq = &qp->sq;

	sq->stamp = now;
	/* Packets that still lie in the ring are not lost: the other process is only slow, or stopped. */
	if (!vb_path_drained(&qp->path))
		return;
	if (!sq->retries) {
		fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
		return;
	}
	sq->retries--;
	rewind_all(sq);
	vb_requester_run(qp);
}

/* What the process took before it died counts as delivered, answered or not. */
static void peer_died(struct vb_qp *qp)
{
	uint32_t expected = vb_path_expected(&qp->path, qp->attr.dest_qp_num, qp->sq.psn);

	if (vb_psn_diff(expected, qp->sq.psn) <= 0)
		acknowledge(qp, vb_psn_add(expected, 0xffffff));
	if (vb_sq_has_inflight(&qp->sq))
		fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
}

bool vb_requester_timer(struct vb_qp *qp, uint64_t now, uint64_t *next)
{
	struct vb_sq *sq = &qp->sq;
	uint64_t due;

	if (sq->rnr_until && now >= sq->rnr_until) {
		sq->rnr_until = 0;
		vb_requester_run(qp);
	}
	if (sq->rnr_until) {
		*next = *next < sq->rnr_until ? *next : sq->rnr_until;
		return true;
	}
	if (!vb_sq_has_inflight(sq)) {
		/*
		 * Nothing in flight now; in a stream there will be again in a moment. Only a queue that was idle at
		 * two looks goes off the list, or every other message would put it back and wake this thread.
		 */
		sq->stamp = 0;
		if (!sq->recent)
			return false;
		sq->recent = false;
		due = now + look_period(qp);
		*next = *next < due ? *next : due;
		return true;
	}
	sq->recent = true;
	if (!sq->stamp || sq->stamped_head != sq->in_head) {
		sq->stamp = now;
		sq->stamped_head = sq->in_head;
	}
	if (qp->path.kind == VB_PATH_SHM && !vb_path_alive(&qp->path)) {
		peer_died(qp);
		return false;
	}
	if (now - sq->stamp >= ack_timeout(qp))
		timed_out(qp, now);
	due = sq->stamp + ack_timeout(qp);
	due = due < now + look_period(qp) ? due : now + look_period(qp);
	*next = *next < due ? *next : due;
	return true;
}

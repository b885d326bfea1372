// SPDX-License-Identifier: MIT
/*
 * Owns the sending side of queue pairs: send WQEs become packets, direct copies or calls, and
 * completions. What comes back is taken in completer.c.
 *
 *	          next                 pi
 *	 done ....[ in flight ][ to send ]           in flight: sent in packets, not acknowledged (RC)
 *	          ^ sender.head
 *
 * A WQE takes one of three ways. To a QP of this process it is a call of the responder, which
 * copies once. One-sided work to another process of this host is done directly in its memory, if
 * nothing of this QP is in flight: the order that the transport promises is kept by doing things in
 * order. All else goes in packets, which carry their payload or, where it is large, describe it for
 * the target to fetch. The two sides share a large WRITE:
 *
 *	message   [ described in packets: the target copies | we copy ] then the last packet, with nothing to copy
 *
 * A direct access that is refused is tried again in packets, so that the target itself decides,
 * answers, and changes its own state: the initiator never judges for it.
 *
 * Everything here runs under the send queue's lock, inside a read section.
 */
#include "card/transport/requester.h"

#include <errno.h>

#include "base/time.h"
#include "base/rcu.h"
#include "base/util.h"
#include "card/ether/ether.h"
#include "card/fault/fault.h"
#include "card/memory/indirect.h"
#include "card/memory/keys.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"
#include "card/shown.h"
#include "card/transport/dc.h"
#include "card/transport/local.h"
#include "card/transport/message.h"
#include "card/transport/as_frames.h"
#include "card/transport/sides.h"
#include "card/transport/transport.h"
#include "fabric/direct.h"
#include "host/fault.h"

enum step {
	NEXT,   /* the WQE is done or in flight: go on */
	ENDED,  /* it was completed with an error that is not the queue's: go on */
	WAIT,   /* go on later */
	FAILED, /* it was completed with an error */
};

/* --- done, failed, in flight ------------------------------------------------------------------ */

static void requester_advance(struct vb_sq *sq)
{
	uint16_t left = (uint16_t)(sq->pi - sq->next);
	/* A WQE that lies about its size must not carry us past the doorbell. */
	uint16_t blocks = left < sq->wr.blocks ? left : sq->wr.blocks;

	sq->next = (uint16_t)(sq->next + blocks);
	sq->resend -= sq->resend < blocks ? sq->resend : blocks;
	sq->loaded = false;
	sq->transfer.chosen = false;
	sq->sent = 0;
}

static enum step requester_done(struct vb_qp *qp)
{
	struct vb_wr *wr = &qp->sq.wr;

	if (wr->flags & VB_WR_SIGNALED)
		vb_requester_complete(qp, wr->index, wr->wqe_opcode, IBV_WC_SUCCESS,
				      (uint32_t)wr->len);
	requester_advance(&qp->sq);
	return NEXT;
}

/* The same with an error, of a stream of DC: the queue goes on. */
static enum step requester_end(struct vb_qp *qp, enum ibv_wc_status status)
{
	vb_requester_complete(qp, qp->sq.wr.index, qp->sq.wr.wqe_opcode, status, 0);
	requester_advance(&qp->sq);
	vb_requester_forget(&qp->sq);
	vb_dci_leave(qp);
	return ENDED;
}

/*
 * The WQE ends with an error, and the queue with it: UC and UD may go on after the program says so,
 * RC not. What is in flight was before it and completes first.
 */
static __attribute__((noinline, cold)) enum step requester_fail(struct vb_qp *qp,
								enum ibv_wc_status status)
{
	struct vb_wr *wr = &qp->sq.wr;

	if (vb_sq_has_inflight(&qp->sq)) {
		qp->sq.failing = status;
		return WAIT;
	}
	qp->sq.failing = IBV_WC_SUCCESS;
	vb_why_send(qp, wr, status);
	if (__builtin_expect(qp->dci && vb_dci_confines(qp, wr->stream), 0))
		return requester_end(qp, status);
	/* First the state: a program that sees the completion may look at it. */
	if (qp->type == IBV_QPT_RC)
		vb_qp_fail(qp, 0, false);
	else
		vb_qp_fail_sq(qp);
	vb_requester_complete(qp, wr->index, wr->wqe_opcode, status, 0);
	requester_advance(&qp->sq);
	vb_requester_forget(&qp->sq);
	return FAILED;
}

void vb_requester_fail(struct vb_qp *qp, enum ibv_wc_status status)
{
	if (requester_fail(qp, status) == ENDED)
		vb_work_add(qp, VB_WORK_SEND);
}

static bool requester_has_response(const struct vb_wr *wr)
{
	return wr->op == VB_WR_READ || vb_wr_is_atomic(wr);
}

static void add_inflight(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	struct vb_wr *wr = &sq->wr;
	bool newest = sq->again == sq->sender.tail;
	struct vb_inflight *e = (struct vb_inflight *)vb_sender_add(&sq->sender, sq->first_psn,
								    requester_has_response(wr));

	if (newest)
		sq->again = sq->sender.tail;
	e->index = wr->index;
	e->op = wr->op;
	e->flags = wr->flags;
	e->wqe_opcode = wr->wqe_opcode;
	e->blocks = wr->blocks;
	e->len = (uint32_t)wr->len;
	e->transfer = sq->transfer;
	vb_timer_add(qp);
	requester_advance(sq);
}

/* --- loopback --------------------------------------------------------------------------------- */

/*
 * A loopback READ faulted: at the source or at the destination? The responder only tested its own
 * side.
 */
static __attribute__((noinline, cold)) enum step fail_read(struct vb_qp *qp, struct vb_qp *target,
							   const struct vb_pkt *reply)
{
	if (vb_fault_readable(reply->iov->iov_base, reply->len))
		return requester_fail(qp, IBV_WC_LOC_PROT_ERR);
	vb_qp_fail(target, IBV_EVENT_QP_ACCESS_ERR, true);
	return requester_fail(qp, IBV_WC_REM_ACCESS_ERR);
}

/* What is copied at once where one side has no address: less than a frame of the largest MTU never is. */
enum { BOUNCE = 4096 };

/* A loopback READ from an indirect key, or to one: in pieces, by way of a buffer. */
static __attribute__((noinline, cold)) enum ibv_wc_status
read_scattered(struct vb_qp *qp, struct vb_qp *target, const struct vb_pkt *reply)
{
	uint8_t bounce[BOUNCE];
	int ret;

	for (uint32_t at = 0, n; at < reply->len; at += n) {
		n = reply->len - at < BOUNCE ? reply->len - at : BOUNCE;
		if (reply->iov_cnt)
			ret = vb_fault_copy(bounce, (char *)reply->iov->iov_base + at, n);
		else
			ret = vb_indirect_read(qp->card, reply->rkey, target->init.pd->number,
					       reply->va + at, bounce, n, IBV_ACCESS_REMOTE_READ);
		if (ret) {
			vb_qp_fail(target, IBV_EVENT_QP_ACCESS_ERR, true);
			return IBV_WC_REM_ACCESS_ERR;
		}
		if (vb_message_write(qp, &qp->sq.wr, at, bounce, n))
			return IBV_WC_LOC_PROT_ERR;
	}
	return IBV_WC_SUCCESS;
}

/* Where an atomic's result goes. */
static bool place_value(struct vb_qp *qp, const struct vb_pkt *reply, const struct iovec *iov,
			int cnt)
{
	uint64_t result;
	struct iovec value = { &result, vb_message_result(&qp->sq.wr, reply->original, &result) };

	if (__builtin_expect(cnt < 0, 0))
		return !vb_message_write(qp, &qp->sq.wr, 0, &result, value.iov_len);
	return !vb_message_copy(iov, cnt, 0, &value, 1);
}

/* The answer to a loopback call, for RC, whose last packet had this PSN. cnt < 0: the WQE is scattered. */
static enum step take_reply(struct vb_qp *qp, struct vb_qp *target, const struct vb_pkt *reply,
			    uint32_t psn, const struct iovec *iov, int cnt)
{
	struct vb_sq *sq = &qp->sq;
	enum ibv_wc_status status;

	if (reply->op == VB_PKT_READ_RESPONSE) {
		if (__builtin_expect(cnt < 0 || (reply->len && !reply->iov_cnt), 0)) {
			status = read_scattered(qp, target, reply);
			if (status != IBV_WC_SUCCESS)
				return requester_fail(qp, status);
		} else if (vb_message_copy(iov, cnt, 0, reply->iov, reply->iov_cnt)) {
			return fail_read(qp, target, reply);
		}
	} else if (reply->op == VB_PKT_ATOMIC_RESPONSE) {
		if (!place_value(qp, reply, iov, cnt))
			return requester_fail(qp, IBV_WC_LOC_PROT_ERR);
	} else if ((reply->syndrome & VB_SYN_KIND_MASK) == VB_SYN_RNR) {
		return vb_requester_wait_rnr(qp, reply->syndrome)
			       ? WAIT
			       : requester_fail(qp, IBV_WC_RNR_RETRY_EXC_ERR);
	} else if (reply->syndrome != VB_SYN_ACK) {
		return requester_fail(qp, vb_requester_refused(reply->syndrome));
	}
	sq->sender.psn = vb_psn_add(psn, 1);
	vb_sender_acknowledge(&sq->sender, psn);
	return requester_done(qp);
}

/*
 * Two queue pairs that do not agree on their PSNs: an acknowledgement of what was never sent, or a NAK that asks for it. Of no
 * use to the requester, as on a wire (IBTA 9.7.5.1.2); it retries until it may no more.
 */
static bool is_ghost(const struct vb_pkt *reply, uint32_t psn)
{
	return reply->op == VB_PKT_ACK && (reply->syndrome == VB_SYN_NAK_SEQUENCE ||
					   (reply->syndrome == VB_SYN_ACK && reply->psn != psn));
}

static enum step send_loop(struct vb_qp *qp, struct vb_pkt *pkt, const struct iovec *iov, int cnt)
{
	struct vb_qp *target = vb_qp_find(qp->card, pkt->dqpn);
	struct vb_wr *wr = &qp->sq.wr;
	struct iovec reply_iov;
	struct vb_pkt reply;
	bool answered;

	pkt->flags = vb_message_flags(wr, 0, (uint32_t)wr->len);
	pkt->iov = iov;
	pkt->iov_cnt = wr->op == VB_WR_SEND || wr->op == VB_WR_WRITE ? (uint32_t)cnt : 0;
	pkt->len = pkt->iov_cnt ? (uint32_t)wr->len : 0;
	qp->sq.sent_by.calls++;
	if (vb_roce_watched(qp->card))
		vb_roce_request(qp, &qp->path, pkt, iov, cnt, 0, pkt->len, vb_now_ns());
	vb_note(SENT, .object = pkt->sqpn, .code = pkt->op, .value = pkt->len,
		.extra = (uint64_t)pkt->psn << 32 | pkt->dqpn);
	answered = target && vb_responder_receive(target, pkt, &reply, &reply_iov);
	if (qp->type == IBV_QPT_RC) {
		if (answered && vb_roce_watched(qp->card) && (reply.iov_cnt || !reply.len))
			vb_roce_reply(qp, target, &reply);
		if (answered && !is_ghost(&reply, pkt->psn))
			return take_reply(qp, target, &reply, pkt->psn, iov, cnt);
		/* Nobody answered: as lost on a wire, the timer sends it again. */
		qp->sq.sender.psn = vb_psn_add(qp->sq.sender.psn, 1);
		add_inflight(qp);
		return NEXT;
	}
	if (answered && reply.syndrome == VB_SYN_SOURCE_FAULT)
		return requester_fail(qp, IBV_WC_LOC_PROT_ERR);
	qp->sq.sender.psn = vb_psn_add(qp->sq.sender.psn, 1);
	return requester_done(qp);
}

/* --- another process -------------------------------------------------------------------------- */

enum {
	/*
	 * From this size on a message is worth a system call of the target, and one-sided work
	 * worth some waiting;
	 */
	PULL_MIN = 64 << 10,
	/* and a WRITE is worth an acknowledgement more. */
	SPLIT_MIN = 256 << 10,
	PAGE = 4096,
};

static bool is_one_sided(const struct vb_wr *wr)
{
	return wr->op == VB_WR_READ || wr->op == VB_WR_WRITE;
}

static bool may_go_direct(const struct vb_qp *qp)
{
	const struct vb_wr *wr = &qp->sq.wr;

	if (!vb_path_can(&qp->path, VB_PATH_DIRECT) || vb_sq_has_inflight(&qp->sq))
		return false;
	/*
	 * With immediate data a packet must go anyway: what fits into it goes along, for less than
	 * a system call.
	 */
	if (wr->op == VB_WR_WRITE && (wr->flags & VB_WR_IMM))
		return wr->len > qp->path.mtu;
	return is_one_sided(wr) || vb_wr_is_atomic(wr);
}

/* Whether the target may fetch the payload itself. */
static bool may_pull(const struct vb_qp *qp)
{
	const struct vb_wr *wr = &qp->sq.wr;

	return wr->len >= PULL_MIN && (wr->op == VB_WR_SEND || wr->op == VB_WR_WRITE) &&
	       wr->num_sge == 1 && !wr->sge[0].raw && qp->type == IBV_QPT_RC && !qp->sq.no_pull &&
	       vb_direct_works(&qp->path);
}

/*
 * How much of a message one packet describes. A WRITE has at least two, because it may be shared.
 */
static uint32_t pull_size(const struct vb_wr *wr)
{
	uint64_t most =
		wr->op == VB_WR_WRITE ? (wr->len / 2 + PAGE - 1) & ~(uint64_t)(PAGE - 1) : wr->len;

	return most < VB_PULL_MAX ? (uint32_t)most : VB_PULL_MAX;
}

/* Large one-sided work is done directly, once nothing is in flight before it. */
static bool must_wait(const struct vb_qp *qp)
{
	const struct vb_sq *sq = &qp->sq;

	return vb_sq_has_inflight(sq) && sq->again == sq->sender.tail && is_one_sided(&sq->wr) &&
	       sq->wr.len >= PULL_MIN && vb_direct_works(&qp->path);
}

/*
 * A large WRITE to a process that polls is shared: the target fetches the first half while we put
 * the second half in place. Other one-sided work we do alone. Large SENDs are fetched by the
 * target, for one copy instead of two.
 */
static void choose_transfer(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	uint32_t size;

	sq->to_place = VB_NO_SPLIT;
	if (sq->again != sq->sender.tail) {
		sq->transfer = sq->inflight[sq->sender.tail & (sq->blocks - 1)].transfer;
		return;
	}
	sq->transfer =
		(struct vb_transfer){ .chosen = true, .pulls = may_pull(qp), .split = VB_NO_SPLIT };
	if (!may_go_direct(qp))
		return;
	sq->to_place = 0;
	if (sq->transfer.pulls && sq->wr.len >= SPLIT_MIN && vb_path_polled(&qp->path)) {
		size = pull_size(&sq->wr);
		sq->to_place = (uint32_t)((sq->wr.len + size - 1) / size / 2 * size);
	}
}

/*
 * Put the acknowledgement that is due on the back of a request: the peer then learns that its
 * message arrived before it sees the answer to it, as from hardware, which acknowledges before the
 * program can answer.
 */
static void add_acknowledgement(struct vb_qp *qp, struct vb_pkt *pkt)
{
	uint32_t epsn = atomic_load_explicit(&qp->shared->epsn, memory_order_acquire);

	if (qp->type != IBV_QPT_RC ||
	    epsn == atomic_load_explicit(&qp->rq.acked, memory_order_relaxed))
		return;
	pkt->flags |= VB_PKT_ACKS;
	pkt->acked_psn = vb_psn_add(epsn, 0xffffff);
}

/* What the next packet stands for, from sq.sent on: carried, described, or in place already. */
static void fill_payload(struct vb_qp *qp, struct vb_pkt *pkt, const struct iovec *iov, int cnt,
			 struct iovec *part)
{
	struct vb_sq *sq = &qp->sq;
	struct vb_wr *wr = &sq->wr;
	bool placed = sq->sent >= sq->transfer.split;
	bool carries = (wr->op == VB_WR_SEND || wr->op == VB_WR_WRITE) && !placed;
	uint32_t left = (uint32_t)(wr->len - sq->sent);
	uint32_t most = sq->transfer.pulls ? pull_size(wr) : qp->path.mtu;

	pkt->len = !carries ? 0 : left < most ? left : most;
	pkt->source.lkey = 0;
	pkt->iov = part;
	pkt->iov_cnt = 0;
	if (pkt->len && sq->transfer.pulls)
		pkt->source = (struct vb_source){ wr->sge[0].addr + sq->sent, wr->sge[0].lkey };
	else
		pkt->iov_cnt = vb_message_slice(iov, cnt, sq->sent, pkt->len, part);
	pkt->flags = vb_message_flags(wr, sq->sent, carries ? pkt->len : left);
	if (placed) {
		pkt->flags |= VB_PKT_PLACED;
		pkt->generation = sq->transfer.generation;
	}
}

/* One packet is on its way. */
static void count_packet(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_sq *sq = &qp->sq;

	sq->unflushed = true;
	/* A peer that is gone takes packets like a cable that is cut: the timer will tell. */
	if (pkt->flags & VB_PKT_ACKS)
		atomic_store_explicit(&qp->rq.acked, vb_psn_add(pkt->acked_psn, 1),
				      memory_order_relaxed);
	/* A READ takes the PSNs of its response (IBTA 9.7.2). */
	sq->sender.psn =
		vb_psn_add(sq->sender.psn,
			   pkt->op == VB_PKT_READ ? vb_psn_span(pkt->dma_len, qp->path.span) : 1);
	sq->sent += pkt->len;
}

/* The data of a packet may be described, or in place already: here it is that of the WQE. */
static __attribute__((noinline, cold)) void requester_show_packet(struct vb_qp *qp,
								  const struct vb_pkt *pkt,
								  const struct iovec *iov, int cnt,
								  uint64_t ns)
{
	const struct vb_sq *sq = &qp->sq;
	bool placed = pkt->flags & VB_PKT_PLACED;

	vb_roce_request(qp, &qp->path, pkt, iov, cnt, sq->sent,
			placed ? (uint32_t)(sq->wr.len - sq->sent) : pkt->len, ns);
}

/* Send the WQE's packets from where we are, and do our own share when its turn comes. */
static VB_APART enum step send_packets(struct vb_qp *qp, struct vb_pkt *pkt,
				       const struct iovec *iov, int cnt)
{
	struct vb_sq *sq = &qp->sq;
	struct iovec part[VB_WR_MAX_SGE];
	uint64_t sent;
	int ret;

	do {
		sent = vb_roce_time(qp->card);
		if (sq->sent == sq->to_place) {
			/* Where it is refused the target gets it like the rest, decides, and answers. */
			if (vb_requester_place(qp, pkt, iov, cnt) == VB_DIRECT_LOCAL_FAULT)
				return requester_fail(qp, IBV_WC_LOC_PROT_ERR);
			if (!sq->transfer.split && !(sq->wr.flags & VB_WR_IMM)) {
				if (__builtin_expect(sent, 0))
					vb_roce_copied(qp, pkt, iov, cnt, sent);
				return requester_done(qp); /* nobody need be told */
			}
		}
		fill_payload(qp, pkt, iov, cnt, part);
		pkt->psn = sq->sender.psn;
		add_acknowledgement(qp, pkt);
		ret = vb_path_send(&qp->path, pkt);
		if (ret == -EAGAIN) {
			vb_work_block(qp, VB_WORK_SEND);
			return WAIT;
		}
		if (ret == -EFAULT)
			return requester_fail(qp, IBV_WC_LOC_PROT_ERR);
		if (__builtin_expect(sent, 0))
			requester_show_packet(qp, pkt, iov, cnt, sent);
		count_packet(qp, pkt);
	} while (!(pkt->flags & VB_PKT_LAST));
	sq->sent_by.packets++;
	if (qp->type != IBV_QPT_RC)
		return requester_done(qp);
	add_inflight(qp);
	return NEXT;
}

/*
 * Nearly every message that another process takes part in: one packet carries it, and it is sent for
 * the first time.
 */
static bool is_carried(const struct vb_qp *qp)
{
	const struct vb_sq *sq = &qp->sq;
	const struct vb_wr *wr = &sq->wr;

	return wr->len <= qp->path.mtu && sq->again == sq->sender.tail &&
	       (wr->op == VB_WR_SEND || (wr->op == VB_WR_WRITE && (wr->flags & VB_WR_IMM)));
}

/* The same as send_packets(), with all that it decides decided. */
static enum step send_carried(struct vb_qp *qp, struct vb_pkt *pkt, const struct iovec *iov,
			      int cnt)
{
	struct vb_sq *sq = &qp->sq;
	uint64_t sent;
	int ret;

	pkt->flags = VB_PKT_FIRST | vb_message_last(&sq->wr);
	pkt->iov = iov;
	pkt->iov_cnt = (uint32_t)cnt;
	pkt->len = (uint32_t)sq->wr.len;
	add_acknowledgement(qp, pkt);
	sent = vb_roce_time(qp->card);
	ret = vb_path_send(&qp->path, pkt);
	if (__builtin_expect(ret == -EAGAIN, 0)) {
		vb_work_block(qp, VB_WORK_SEND);
		return WAIT;
	}
	if (__builtin_expect(ret == -EFAULT, 0))
		return requester_fail(qp, IBV_WC_LOC_PROT_ERR);
	if (__builtin_expect(sent, 0))
		requester_show_packet(qp, pkt, iov, cnt, sent);
	count_packet(qp, pkt);
	sq->sent_by.packets++;
	if (qp->type != IBV_QPT_RC)
		return requester_done(qp);
	sq->transfer = (struct vb_transfer){ .chosen = true, .split = VB_NO_SPLIT };
	add_inflight(qp);
	return NEXT;
}

/* --- indirect keys ---------------------------------------------------------------------------- */

/* One packet of a scattered WQE, to a QP of this process. */
static enum step requester_call_with(struct vb_qp *qp, struct vb_pkt *pkt)
{
	struct vb_qp *target = vb_qp_find(qp->card, pkt->dqpn);
	bool last = pkt->flags & VB_PKT_LAST, answered;
	struct iovec reply_iov;
	struct vb_pkt reply;

	answered = target && vb_responder_receive(target, pkt, &reply, &reply_iov);
	if (answered && qp->type == IBV_QPT_RC && vb_roce_watched(qp->card) &&
	    (reply.iov_cnt || !reply.len))
		vb_roce_reply(qp, target, &reply);
	/* A duplicate, of what was sent before the receiver was not ready, is acknowledged at once. */
	if (answered && !is_ghost(&reply, pkt->psn) &&
	    (last || reply.op != VB_PKT_ACK || reply.syndrome != VB_SYN_ACK))
		return take_reply(qp, target, &reply, pkt->psn, NULL, -1);
	qp->sq.sender.psn = vb_psn_add(pkt->psn, 1);
	qp->sq.sent += pkt->len;
	if (!last)
		return NEXT;
	qp->sq.sent_by.calls++;
	if (qp->type != IBV_QPT_RC)
		return requester_done(qp);
	add_inflight(qp);
	return NEXT;
}

/* The same to another process. */
static enum step send_with(struct vb_qp *qp, struct vb_pkt *pkt)
{
	int ret;

	add_acknowledgement(qp, pkt);
	ret = vb_path_send(&qp->path, pkt);
	if (ret == -EAGAIN) {
		vb_work_block(qp, VB_WORK_SEND);
		return WAIT;
	}
	count_packet(qp, pkt);
	if (!(pkt->flags & VB_PKT_LAST))
		return NEXT;
	qp->sq.sent_by.packets++;
	if (qp->type != IBV_QPT_RC)
		return requester_done(qp);
	add_inflight(qp);
	return NEXT;
}

/*
 * A WQE with keys that are indirect: their memory has no address that could be shown to anybody, so
 * it goes in packets, each of them gathered in a buffer.
 */
static __attribute__((noinline, cold)) enum step send_scattered(struct vb_qp *qp,
								struct vb_pkt *pkt)
{
	struct vb_sq *sq = &qp->sq;
	struct vb_wr *wr = &sq->wr;
	bool carries = wr->op == VB_WR_SEND || wr->op == VB_WR_WRITE;
	bool calls = vb_path_can(&qp->path, VB_PATH_CALLS);
	uint32_t most = calls || qp->path.mtu > BOUNCE ? BOUNCE : qp->path.mtu;
	uint8_t bounce[BOUNCE];
	struct iovec part = { bounce, 0 };
	enum step step;
	bool last;

	sq->transfer = (struct vb_transfer){ .chosen = true, .split = VB_NO_SPLIT };
	sq->to_place = VB_NO_SPLIT;
	if (wr->op == VB_WR_READ && sq->sender.responses >= qp->attr.max_rd_atomic)
		return WAIT;
	do {
		uint32_t left = (uint32_t)(wr->len - sq->sent);

		pkt->len = !carries ? 0 : left < most ? left : most;
		if (vb_message_read(qp, wr, sq->sent, bounce, pkt->len))
			return requester_fail(qp, IBV_WC_LOC_PROT_ERR);
		part.iov_len = pkt->len;
		pkt->iov = &part;
		pkt->iov_cnt = pkt->len ? 1 : 0;
		pkt->source.lkey = 0;
		pkt->psn = sq->sender.psn;
		pkt->flags = vb_message_flags(wr, sq->sent, carries ? pkt->len : left);
		last = pkt->flags & VB_PKT_LAST;
		if (vb_roce_watched(qp->card))
			vb_roce_request(qp, &qp->path, pkt, &part, (int)pkt->iov_cnt, 0, pkt->len,
					vb_now_ns());
		step = calls ? requester_call_with(qp, pkt) : send_with(qp, pkt);
	} while (step == NEXT && !last);
	return step;
}

static enum step send_connected(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	struct iovec iov[VB_WR_MAX_SGE];
	struct vb_pkt pkt;
	int cnt;

	cnt = vb_message_gather(qp, &sq->wr, iov);
	if (__builtin_expect(cnt < 0, 0) && !vb_message_is_scattered(qp, &sq->wr))
		return requester_fail(qp, IBV_WC_LOC_PROT_ERR);
	vb_message_packet(qp, &sq->wr, &pkt);
	if (__builtin_expect(sq->sender.resumed, 0)) {
		/* The rest of a READ of which a part is there. */
		pkt.va += sq->sender.resumed;
		pkt.dma_len -= sq->sender.resumed;
	}
	if (__builtin_expect(cnt < 0, 0))
		return send_scattered(qp, &pkt);
	if (vb_path_can(&qp->path, VB_PATH_CALLS))
		return send_loop(qp, &pkt, iov, cnt);
	if (!sq->transfer.chosen) {
		if (__builtin_expect(is_carried(qp), 1))
			return send_carried(qp, &pkt, iov, cnt);
		if (must_wait(qp))
			return WAIT;
		choose_transfer(qp);
	}
	if (sq->wr.op == VB_WR_READ && sq->to_place &&
	    sq->sender.responses >= qp->attr.max_rd_atomic)
		return WAIT;
	return send_packets(qp, &pkt, iov, cnt);
}

static VB_APART enum step send_datagram(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	struct vb_wr *wr = &sq->wr;
	const struct vb_adapter *adapter = qp->dev->adapter;
	const struct vb_gid *from;
	struct iovec iov[VB_WR_MAX_SGE];
	struct vb_path path;
	struct vb_grh grh;
	struct vb_pkt pkt;
	uint64_t sent;
	int cnt, ret;

	if (wr->sgid_index >= adapter->num_gids)
		return requester_fail(qp, IBV_WC_LOC_QP_OP_ERR);
	cnt = vb_message_gather(qp, wr, iov);
	if (cnt < 0)
		return requester_fail(qp, IBV_WC_LOC_PROT_ERR);
	from = &adapter->gids[wr->sgid_index];
	vb_path_peek(qp->card->fabric, &path,
		     &(struct vb_address){ .dgid = &wr->dgid,
					   .sgid = &from->gid,
					   .dmac = wr->dmac,
					   .adapter = adapter->guid,
					   .flow_label = wr->flow_label,
					   .mtu = adapter->config->mtu,
					   .traffic_class = wr->traffic_class,
					   .hop_limit = wr->hop_limit },
		     wr->dqpn);
	if (!vb_path_can(&path, VB_PATH_REACHES))
		return requester_done(qp); /* nobody there: lost, and nobody is told */
	grh = (struct vb_grh){ from->gid, wr->dgid, wr->traffic_class, wr->hop_limit };
	vb_message_packet(qp, wr, &pkt);
	if (from->type == IBV_GID_TYPE_ROCE_V1)
		pkt.transport |= VB_TRANSPORT_V1;
	pkt.dqpn = wr->dqpn;
	/* IBTA 10.2.5: the high bit asks for the QP's own key. */
	pkt.qkey = wr->qkey & 1u << 31 ? qp->attr.qkey : wr->qkey;
	pkt.grh = &grh;
	if (vb_path_can(&path, VB_PATH_CALLS))
		return send_loop(qp, &pkt, iov, cnt);
	pkt.flags = vb_message_flags(wr, 0, (uint32_t)wr->len);
	pkt.iov = iov;
	pkt.iov_cnt = (uint32_t)cnt;
	pkt.len = (uint32_t)wr->len;
	sent = vb_roce_time(qp->card);
	ret = vb_path_send(&path, &pkt);
	if (ret == -EAGAIN) {
		vb_work_block(qp, VB_WORK_SEND);
		return WAIT;
	}
	if (ret == -EFAULT)
		return requester_fail(qp, IBV_WC_LOC_PROT_ERR);
	if (__builtin_expect(sent, 0))
		vb_roce_request(qp, &path, &pkt, iov, cnt, 0, pkt.len, sent);
	sq->sender.psn = vb_psn_add(sq->sender.psn, 1);
	sq->sent_by.packets++;
	vb_burst_flush(&path);
	return requester_done(qp);
}

enum { ROOM_NS = 2000000 }; /* between looks for room */

static VB_APART enum step send_frame(struct vb_qp *qp)
{
	struct iovec iov[VB_WR_MAX_SGE];
	int cnt, status = IBV_WC_LOC_PROT_ERR;
	struct vb_sq *sq = &qp->sq;

	/* What waits for room was counted before. */
	if (__builtin_expect(sq->pace.kbps, 0) && !sq->watch_at && vb_pace_waits(qp))
		return WAIT;
	cnt = vb_message_gather(qp, &sq->wr, iov);
	if (cnt >= 0)
		status = vb_raw_send(qp, &sq->wr, iov, cnt);
	if (__builtin_expect(status == -EAGAIN, 0)) {
		/* A reader that takes the last of a small ring wakes nobody, nor does one that is stopped. */
		sq->watch_at = vb_now_ns() + ROOM_NS;
		vb_alarm_set(&qp->timer, sq->watch_at);
		vb_work_block(qp, VB_WORK_SEND);
		return WAIT;
	}
	sq->watch_at = 0;
	return status == IBV_WC_SUCCESS ? requester_done(qp)
					: requester_fail(qp, (enum ibv_wc_status)status);
}

/* --- local work ------------------------------------------------------------------------------- */

enum { WATCH_MIN_NS = 2000, WATCH_MAX_NS = 1000000 };

/*
 * Nobody tells us when the word changes: whoever polls looks again, soon at first, later ever more
 * rarely.
 */
static __attribute__((noinline, cold)) enum step requester_watch(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	bool true_now = false;
	enum ibv_wc_status status = vb_local_look(qp, &sq->wr, &true_now);

	if (status == IBV_WC_SUCCESS && !true_now) {
		sq->watch_ns = !sq->watch_at                 ? WATCH_MIN_NS
			       : sq->watch_ns < WATCH_MAX_NS ? 2 * sq->watch_ns
							     : sq->watch_ns;
		sq->watch_at = vb_now_ns() + sq->watch_ns;
		vb_alarm_set(&qp->timer, sq->watch_at);
		return WAIT;
	}
	sq->watch_at = 0;
	return status == IBV_WC_SUCCESS ? requester_done(qp) : requester_fail(qp, status);
}

static __attribute__((noinline, cold)) enum step work_locally(struct vb_qp *qp)
{
	struct vb_wr *wr = &qp->sq.wr;
	enum ibv_wc_status status = IBV_WC_SUCCESS;

	switch (wr->op) {
	case VB_WR_LOCAL_INVALIDATE:
		if (vb_mr_invalidate(qp->card, wr->imm, qp->init.pd->number, false))
			status = IBV_WC_LOC_QP_OP_ERR;
		break;
	case VB_WR_UMR:
		status = vb_indirect_configure(qp, wr);
		break;
	case VB_WR_COPY:
		status = vb_local_copy(qp, wr);
		break;
	case VB_WR_TRANSPOSE:
		status = vb_local_transpose(qp, wr);
		break;
	case VB_WR_WAIT:
		return requester_watch(qp);
	}
	return status == IBV_WC_SUCCESS ? requester_done(qp) : requester_fail(qp, status);
}

/* --- the send queue --------------------------------------------------------------------------- */

static enum ibv_wc_status requester_check(const struct vb_qp *qp, const struct vb_wr *wr)
{
	if ((uint16_t)(qp->sq.pi - qp->sq.next) < wr->blocks)
		return IBV_WC_LOC_QP_OP_ERR; /* reaches beyond the doorbell */
	if (qp->type == IBV_QPT_UC &&
	    (requester_has_response(wr) || (wr->flags & VB_WR_INVALIDATE)))
		return IBV_WC_LOC_QP_OP_ERR;
	if (requester_has_response(wr) && !qp->attr.max_rd_atomic)
		return IBV_WC_LOC_QP_OP_ERR;
	if (wr->op == VB_WR_UMR && qp->type == IBV_QPT_RAW_PACKET && !qp->init.frames_umr)
		return IBV_WC_LOC_QP_OP_ERR;
	if (wr->len > 1ull << VB_MAX_MSG_LOG)
		return IBV_WC_LOC_LEN_ERR;
	if (qp->type == IBV_QPT_UD && wr->len > qp->dev->adapter->config->mtu)
		return IBV_WC_LOC_LEN_ERR;
	if (vb_wr_is_atomic(wr) && wr->len != wr->word)
		return IBV_WC_LOC_LEN_ERR;
	return IBV_WC_SUCCESS;
}

static enum step requester_load(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	enum ibv_wc_status status;
	int ret;

	ret = qp->decode(sq->buf, sq->blocks, sq->shift, sq->next, &sq->wr);
	sq->loaded = true;
	sq->sent = 0;
	sq->first_psn = sq->sender.psn;
	status = ret ? vb_decode_status(ret) : requester_check(qp, &sq->wr);
	vb_note(WQE, .object = qp->number, .code = sq->wr.op, .value = sq->wr.len,
		.extra = sq->next);
	return status == IBV_WC_SUCCESS ? NEXT : requester_fail(qp, status);
}

/* DC: there must be a connection to where the WQE goes. */
static __attribute__((noinline)) enum step send_dc(struct vb_qp *qp)
{
	enum ibv_wc_status status;

	if (__builtin_expect(qp->dci->errors, 0) && vb_dci_has_error(qp->dci, qp->sq.wr.stream))
		return vb_sq_has_inflight(&qp->sq) ? WAIT : requester_end(qp, IBV_WC_WR_FLUSH_ERR);
	switch (vb_dci_prepare(qp, &status)) {
	case VB_DCI_GO:
		return send_connected(qp);
	case VB_DCI_WAIT:
		return WAIT;
	default:
		return requester_fail(qp, status);
	}
}

static enum step requester_execute(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	struct vb_wr *wr = &sq->wr;

	if ((wr->flags & VB_WR_FENCE) && sq->sender.responses)
		return WAIT;
	/* Local work completes in order: not before what is in flight. */
	if (__builtin_expect(wr->op >= VB_WR_LOCAL, 0))
		return vb_sq_has_inflight(sq) ? WAIT : work_locally(qp);
	if (vb_wr_is_atomic(wr) && sq->sender.responses >= qp->attr.max_rd_atomic)
		return WAIT;
	if (vb_burst_is_awaited(wr->len)) {
		vb_work_add(qp, VB_WORK_SEND); /* right after what waits is delivered */
		return WAIT;
	}
	vb_burst_before(wr->len);
	if (qp->type < IBV_QPT_UD)
		return __builtin_expect(qp->dci != NULL, 0) ? send_dc(qp) : send_connected(qp);
	return qp->type == IBV_QPT_UD ? send_datagram(qp) : send_frame(qp);
}

/* Of a WQE that is done or on its way. What is sent again counts again, as on a wire. */
static inline void count_traffic(struct vb_sq *sq)
{
	if (sq->wr.op == VB_WR_SEND || sq->wr.op == VB_WR_WRITE)
		sq->traffic.sent += sq->wr.len;
	else if (sq->wr.op == VB_WR_READ)
		sq->traffic.received += sq->wr.len;
}

/*
 * What a doorbell sends at most before it returns, in bytes: its caller, and everybody who waits for
 * a read section to end, waits for it. A single work request is not interrupted.
 */
enum { RUN_BYTES = 16 << 20, WQE_COST = 512 };

/* In SQD, finish the current message and all retransmissions, then stop. */
static bool may_send(const struct vb_sq *sq, uint32_t state)
{
	return sq->next != sq->pi && !sq->sender.rnr_until &&
	       (state == IBV_QPS_RTS || (state == IBV_QPS_SQD && (sq->sent || sq->resend)));
}

VB_FLAT void vb_requester_run(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	uint32_t state = atomic_load_explicit(&qp->state, memory_order_relaxed);
	enum step step;

	if (state == IBV_QPS_ERR || state == IBV_QPS_SQE) {
		vb_requester_flush(qp);
		return;
	}
	while (may_send(sq, state)) {
		if (sq->cost >= RUN_BYTES) {
			sq->cost = 0;
			vb_defer_rest(&qp->deferred, VB_WORK_SEND);
			vb_burst_kick(qp->card);
			break;
		}
		step = sq->failing  ? requester_fail(qp, sq->failing)
		       : sq->loaded ? NEXT
				    : requester_load(qp);
		if (step == NEXT)
			step = requester_execute(qp);
		if (step == ENDED)
			continue;
		if (step != NEXT)
			break;
		sq->cost += sq->wr.len + WQE_COST;
		if (qp->type != IBV_QPT_RAW_PACKET) /* ether/send.c counts frames */
			count_traffic(sq);
	}
	if (state == IBV_QPS_SQD && qp->drained_event)
		vb_work_add(qp, VB_WORK_DRAINED);
	if (sq->unflushed) {
		sq->unflushed = false;
		vb_burst_flush(&qp->path);
	}
	vb_show_sq(qp);
}

/*
 * The doorbell named no index: the owner bits say what is posted. A ring that is full of WQEs not
 * done yet ends the walk, so a program that lies with its owner bits cannot keep us here.
 */
static void find_posted(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	uint32_t n;

	if (atomic_load_explicit(&qp->state, memory_order_relaxed) < IBV_QPS_RTS)
		return;
	while ((n = qp->codec->owned(sq->buf, sq->blocks, sq->shift, sq->pi)) != 0 &&
	       (uint16_t)(sq->pi - sq->next) + n <= sq->blocks)
		sq->pi = (uint16_t)(sq->pi + n);
}

static inline void begin_ring(struct vb_qp *qp)
{
	vb_read_lock();
	vb_burst_begin(qp->card);
	vb_lock(&qp->sq.lock);
	qp->sq.cost = 0;
}

static inline void run_rung(struct vb_qp *qp)
{
	vb_note(DOORBELL, .object = qp->number, .value = qp->sq.pi);
	vb_requester_run(qp);
	vb_unlock(&qp->sq.lock);
	vb_burst_end();
	vb_deferred_run_own(qp->card);
	vb_read_unlock();
}

void vb_qp_ring_sq(struct vb_qp *qp, uint32_t pi)
{
	if (vb_dev_stale(qp->dev) || !qp->sq.blocks)
		return;
	begin_ring(qp);
	qp->sq.pi = (uint16_t)pi;
	run_rung(qp);
}

int vb_qp_ring_checked(struct vb_qp *qp, uint32_t pi)
{
	if (vb_dev_stale(qp->dev) || !qp->sq.blocks)
		return -EINVAL;
	begin_ring(qp);
	/* More than the ring holds cannot have been posted. */
	if ((uint16_t)(pi - qp->sq.next) > qp->sq.blocks) {
		vb_unlock(&qp->sq.lock);
		vb_burst_end();
		vb_read_unlock();
		return -EINVAL;
	}
	qp->sq.pi = (uint16_t)pi;
	run_rung(qp);
	return 0;
}

void vb_qp_ring_owned(struct vb_qp *qp)
{
	if (vb_dev_stale(qp->dev) || !qp->sq.blocks || !qp->codec->owned)
		return;
	begin_ring(qp);
	find_posted(qp);
	run_rung(qp);
}

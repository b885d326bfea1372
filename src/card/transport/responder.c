// SPDX-License-Identifier: MIT
/*
 * Owns the receiving side of queue pairs: requests become writes to memory, receive completions and
 * answers.
 *
 *	packet --> state, transport, source QP --> sequence (PSN) --> by operation: SEND WRITE READ atomic --> answer
 *
 * What is accepted, refused and dropped follows IBTA 9.7.4 (RC), 9.8.2 (UC, UD), the answers 9.7.5.
 * A refusal is a verdict: the syndrome to answer, what our own receive WQE completes with, and the
 * event the program gets.
 */
#include "card/fault/fault.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/time.h"
#include "base/barrier.h"
#include "base/time.h"
#include "base/log.h"
#include "base/rcu.h"
#include "base/util.h"
#include "card/memory/indirect.h"
#include "card/memory/keys.h"
#include "card/queue/counter_set.h"
#include "card/queue/objects.h"
#include "card/queue/receive.h"
#include "card/shown.h"
#include "card/transport/dc.h"
#include "card/transport/message.h"
#include "card/transport/sides.h"
#include "card/transport/transport.h"
#include "fabric/direct.h"
#include "host/fault.h"
#include "packet/frame/frame.h"

_Static_assert((int)VB_RESPONSES >= (int)VB_MAX_RD_ATOMIC,
	       "an atomic must be remembered as long as it may be repeated");

/* --- moving data ------------------------------------------------------------------------------ */

/* The message has more packets than this one. */
static void pin_buffers(struct vb_card *card, struct vb_rq *rq)
{
	for (unsigned int i = 0; i < rq->num_sge; i++)
		rq->sge_generation[i] = vb_mr_generation(card, rq->sge[i].lkey);
}

/* Fetch a payload that is only described. */
static enum verdict pull(struct vb_qp *qp, const struct vb_pkt *pkt, const struct iovec *to,
			 uint32_t cnt, enum verdict blame)
{
	switch (vb_direct_pull(&qp->path, qp->number, pkt->sqpn, to, cnt, &pkt->source, pkt->len)) {
	case VB_DIRECT_OK:
		return ACCEPT;
	case VB_DIRECT_LOCAL_FAULT:
		return blame;
	case VB_DIRECT_ACCESS:
		return SOURCE_FAULT;
	case VB_DIRECT_UNAVAILABLE:
		return NOT_PULLED;
	default: /* its QP is being modified, or it is gone */
		return TRY_AGAIN;
	}
}

/* The same into the receive WQE's buffers, offset bytes into them. */
static enum verdict pull_into_wqe(struct vb_qp *qp, uint64_t offset, const struct vb_pkt *pkt)
{
	struct iovec to[VB_WR_MAX_SGE];
	uint64_t left = pkt->len;
	uint32_t cnt = 0;

	for (unsigned int i = 0; left && i < qp->rq.num_sge; i++) {
		const struct vb_sge *sge = &qp->rq.sge[i];
		uint64_t n;

		if (offset >= sge->len) {
			offset -= sge->len;
			continue;
		}
		n = sge->len - offset < left ? sge->len - offset : left;
		to[cnt].iov_base = buffer_at(qp, i, offset, n);
		to[cnt].iov_len = n;
		if (!to[cnt++].iov_base)
			return vb_indirect_is(qp->card, sge->lkey) ? NOT_PULLED : BAD_BUFFER;
		left -= n;
		offset = 0;
	}
	return pull(qp, pkt, to, cnt, BAD_BUFFER);
}

static enum verdict scatter_payload(struct vb_qp *qp, uint64_t offset, const struct vb_pkt *pkt)
{
	if (pkt->source.lkey)
		return pull_into_wqe(qp, offset, pkt);
	for (uint32_t i = 0; i < pkt->iov_cnt; i++) {
		enum verdict ret = scatter(qp, offset, pkt->iov[i].iov_base, pkt->iov[i].iov_len);

		if (ret != ACCEPT)
			return ret;
		offset += pkt->iov[i].iov_len;
	}
	return ACCEPT;
}

/* Inline receive: a short message stays in the WQE that it consumes. */
static bool is_inlined(const struct vb_qp *qp, const struct vb_pkt *pkt)
{
	return (pkt->flags & VB_PKT_ONLY) == VB_PKT_ONLY && pkt->len &&
	       pkt->len <= qp->init.inl_recv && qp->rq.count;
}

static enum verdict inline_payload(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_rq *rq = &qp->rq;
	char *to = (char *)rq->buf + ((size_t)(rq->wqe_index & (rq->count - 1)) << rq->shift);

	for (uint32_t i = 0; i < pkt->iov_cnt; i++) {
		enum verdict ret = copy(to, pkt->iov[i].iov_base, pkt->iov[i].iov_len, BAD_BUFFER);

		if (ret != ACCEPT)
			return ret;
		to += pkt->iov[i].iov_len;
	}
	return ACCEPT;
}

static enum verdict write_payload(struct vb_qp *qp, const struct vb_pkt *pkt, uint8_t *to)
{
	if (pkt->source.lkey)
		return pull(qp, pkt, &(struct iovec){ to, pkt->len }, 1, BAD_ACCESS);
	for (uint32_t i = 0; i < pkt->iov_cnt; i++) {
		enum verdict ret = copy(to, pkt->iov[i].iov_base, pkt->iov[i].iov_len, BAD_ACCESS);

		if (ret != ACCEPT)
			return ret;
		to += pkt->iov[i].iov_len;
	}
	return ACCEPT;
}

/* --- operations: rq.lock held ----------------------------------------------------------------- */

static enum verdict receive_send(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_rq *rq = &qp->rq;
	enum verdict ret;

	if (pkt->flags & VB_PKT_FIRST) {
		ret = take_wqe(qp);
		if (ret != ACCEPT)
			return ret;
		rq->received = 0;
		rq->pinned = !(pkt->flags & VB_PKT_LAST);
		if (rq->pinned)
			pin_buffers(qp->card, rq);
	}
	if (rq->received + pkt->len > rq->capacity)
		return BAD_LENGTH;
	rq->inlined = qp->init.inl_recv && is_inlined(qp, pkt);
	ret = rq->inlined ? inline_payload(qp, pkt) : scatter_payload(qp, rq->received, pkt);
	if (ret != ACCEPT)
		return ret;
	rq->received += pkt->len;
	if (!(pkt->flags & VB_PKT_LAST))
		return ACCEPT;
	if ((pkt->flags & VB_PKT_INVALIDATE) &&
	    vb_mr_invalidate(qp->card, pkt->inv_rkey, qp->init.pd->number, true))
		return BAD_ACCESS;
	return complete(qp, IBV_WC_SUCCESS, pkt, (uint32_t)rq->received);
}

/* Where bytes of a WRITE go; NULL where it may not write there. */
static uint8_t *target_of(const struct vb_qp *qp, uint32_t rkey, uint64_t va, uint32_t len)
{
	return vb_mr_translate(qp->card, rkey, qp->init.pd->number, va, len,
			       IBV_ACCESS_REMOTE_WRITE);
}

/*
 * The first packet is checked for the whole message. Where all of it is in place already the
 * initiator has made that check, and what remains to be seen is that the registration is still the
 * one it found.
 */
static enum verdict begin_write(struct vb_qp *qp, const struct vb_pkt *pkt, uint8_t **to)
{
	struct vb_rq *rq = &qp->rq;
	bool placed = pkt->flags & VB_PKT_PLACED;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE))
		return BAD_REQUEST;
	if (placed && !vb_mr_is_live(qp->card, pkt->rkey, qp->init.pd->number))
		return BAD_ACCESS;
	if (pkt->dma_len && !placed) {
		*to = target_of(qp, pkt->rkey, pkt->va, pkt->dma_len);
		if (!*to && !vb_indirect_allows(qp->card, pkt->rkey, qp->init.pd->number, pkt->va,
						pkt->dma_len, IBV_ACCESS_REMOTE_WRITE))
			return BAD_ACCESS;
	}
	if (pkt->dma_len)
		rq->generation = vb_mr_generation(qp->card, pkt->rkey);
	rq->va = pkt->va;
	rq->rkey = pkt->rkey;
	rq->dma_len = pkt->dma_len;
	rq->received = 0;
	return ACCEPT;
}

/*
 * The same for the next bytes of a message; NULL also where the key means something else than at
 * its beginning.
 */
static uint8_t *rest_of(const struct vb_qp *qp, uint32_t len)
{
	const struct vb_rq *rq = &qp->rq;
	uint8_t *to = target_of(qp, rq->rkey, rq->va + rq->received, len);

	return to && vb_mr_generation(qp->card, rq->rkey) == rq->generation ? to : NULL;
}

/* Where the key has no address: it may be an indirect one. */
static __attribute__((noinline, cold)) enum verdict write_indirect(const struct vb_qp *qp,
								   const struct vb_pkt *pkt)
{
	const struct vb_rq *rq = &qp->rq;
	uint64_t va = rq->va + rq->received;

	if (vb_mr_generation(qp->card, rq->rkey) != rq->generation ||
	    !vb_indirect_is(qp->card, rq->rkey))
		return BAD_ACCESS;
	if (pkt->source.lkey)
		return NOT_PULLED;
	for (uint32_t i = 0; i < pkt->iov_cnt; i++) {
		const struct iovec *iov = &pkt->iov[i];
		int ret = vb_indirect_write(qp->card, rq->rkey, qp->init.pd->number, va,
					    iov->iov_base, iov->iov_len, IBV_ACCESS_REMOTE_WRITE);

		if (ret)
			return ret == -EACCES || vb_fault_readable(iov->iov_base, iov->iov_len)
				       ? BAD_ACCESS
				       : SOURCE_FAULT;
		va += iov->iov_len;
	}
	return ACCEPT;
}

static enum verdict receive_write(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_rq *rq = &qp->rq;
	bool imm = (pkt->flags & VB_PKT_LAST) && (pkt->flags & VB_PKT_IMM);
	uint8_t *to = NULL;
	enum verdict ret;

	if (pkt->flags & VB_PKT_FIRST) {
		ret = begin_write(qp, pkt, &to);
		if (ret != ACCEPT)
			return ret;
	}
	if (rq->received + pkt->len > rq->dma_len)
		return BAD_REQUEST;
	if ((pkt->flags & VB_PKT_LAST) && !(pkt->flags & VB_PKT_PLACED) &&
	    rq->received + pkt->len != rq->dma_len)
		return BAD_REQUEST;
	if ((pkt->flags & VB_PKT_PLACED) && pkt->generation != rq->generation)
		return BAD_ACCESS;
	if (imm) {
		ret = take_wqe(qp);
		if (ret != ACCEPT)
			return ret;
	}
	if (pkt->len) {
		if (!to)
			to = rest_of(qp, pkt->len);
		ret = to ? write_payload(qp, pkt, to) : write_indirect(qp, pkt);
		if (ret != ACCEPT)
			return ret;
	}
	rq->received += pkt->len;
	return imm ? complete(qp, IBV_WC_SUCCESS, pkt, rq->dma_len) : ACCEPT;
}

/* An answer to a call, without data: only what a requester and a sniffer look at. */
static inline void set_reply(struct vb_pkt *reply, uint8_t op, uint8_t syndrome, uint32_t psn)
{
	reply->op = op;
	reply->flags = VB_PKT_ONLY;
	reply->syndrome = syndrome;
	reply->psn = psn;
	reply->grh = NULL;
	reply->iov = NULL;
	reply->iov_cnt = reply->len = 0;
}

/*
 * An answer that goes out later; NULL where so many wait already. A refusal finds room behind what
 * it follows.
 */
static struct vb_response *response_push(struct vb_rq *rq, uint32_t most)
{
	if (rq->resp_tail - rq->resp_head >= most)
		return NULL;
	vb_burst.answers = true;
	return &rq->response[rq->resp_tail++ % VB_ANSWERS];
}

static enum verdict receive_read(struct vb_qp *qp, const struct vb_pkt *pkt, struct vb_pkt *reply,
				 struct iovec *iov)
{
	struct vb_response *response;
	void *from = NULL;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) || !qp->attr.max_dest_rd_atomic)
		return BAD_REQUEST;
	if (pkt->dma_len) {
		from = vb_mr_translate(qp->card, pkt->rkey, qp->init.pd->number, pkt->va,
				       pkt->dma_len, IBV_ACCESS_REMOTE_READ);
		if ((!from && !vb_indirect_allows(qp->card, pkt->rkey, qp->init.pd->number, pkt->va,
						  pkt->dma_len, IBV_ACCESS_REMOTE_READ)) ||
		    (pkt->psn != qp->rq.receiver.epsn &&
		     !vb_receiver_may_resume(&qp->rq.receiver, pkt->psn,
					     vb_mr_generation(qp->card, pkt->rkey))))
			return BAD_ACCESS;
	}
	if (reply) {
		/* Loopback: the requester copies straight out of our memory. */
		*iov = (struct iovec){ from, pkt->dma_len };
		set_reply(reply, VB_PKT_READ_RESPONSE, VB_SYN_ACK, pkt->psn);
		reply->iov = iov;
		reply->iov_cnt = from || !pkt->dma_len;
		reply->va = pkt->va; /* of an indirect key */
		reply->rkey = pkt->rkey;
		reply->len = pkt->dma_len;
		return ACCEPT;
	}
	response = response_push(&qp->rq, VB_RESPONSES);
	if (!response)
		return TRY_AGAIN; /* requests that were sent again take room as well */
	*response = (struct vb_response){
		.op = VB_PKT_READ_RESPONSE,
		.psn = pkt->psn,
		.msn = qp->rq.msn,
		.va = pkt->va,
		.rkey = pkt->rkey,
		.generation = pkt->dma_len ? vb_mr_generation(qp->card, pkt->rkey) : 0,
		.len = pkt->dma_len
	};
	vb_work_add(qp, VB_WORK_ACK);
	return ACCEPT;
}

static enum verdict do_atomic(struct vb_qp *qp, const struct vb_pkt *pkt, uint64_t *old)
{
	bool masked = vb_pkt_is_masked(pkt);
	uint32_t size = masked ? pkt->word : 8;
	uint64_t *word;
	int ret;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) || !qp->attr.max_dest_rd_atomic)
		return BAD_REQUEST;
	if (__builtin_expect(size != 8 && size != 4, 0))
		return BAD_REQUEST;
	word = vb_mr_translate(qp->card, pkt->rkey, qp->init.pd->number, pkt->va, size,
			       IBV_ACCESS_REMOTE_ATOMIC);
	if (!word)
		word = vb_indirect_word(qp->card, pkt->rkey, qp->init.pd->number, pkt->va, size,
					IBV_ACCESS_REMOTE_ATOMIC);
	if (!word)
		return BAD_ACCESS;
	if ((uintptr_t)word & (size - 1))
		return BAD_REQUEST;
	if (__builtin_expect(masked, 0))
		ret = vb_fault_masked(word, size,
				      &(struct vb_masked){ pkt->op == VB_PKT_MASKED_FETCH_ADD,
							   pkt->swap_add, pkt->compare,
							   pkt->swap_mask, pkt->compare_mask },
				      old);
	else
		ret = pkt->op == VB_PKT_FETCH_ADD
			      ? vb_fault_fetch_add(word, pkt->swap_add, old)
			      : vb_fault_compare_swap(word, pkt->compare, pkt->swap_add, old);
	return ret ? BAD_ACCESS : ACCEPT;
}

static enum verdict answer_atomic(struct vb_qp *qp, uint32_t psn, uint64_t old,
				  struct vb_pkt *reply)
{
	struct vb_response *response;

	if (reply) {
		set_reply(reply, VB_PKT_ATOMIC_RESPONSE, VB_SYN_ACK, psn);
		reply->original = old;
		return ACCEPT;
	}
	response = response_push(&qp->rq, VB_RESPONSES);
	if (!response)
		return TRY_AGAIN;
	*response = (struct vb_response){
		.op = VB_PKT_ATOMIC_RESPONSE, .psn = psn, .msn = qp->rq.msn, .value = old
	};
	vb_work_add(qp, VB_WORK_ACK);
	return ACCEPT;
}

static enum verdict receive_atomic(struct vb_qp *qp, const struct vb_pkt *pkt, struct vb_pkt *reply)
{
	enum verdict ret;
	uint64_t old = 0;

	/* Before it is done: what cannot be answered comes again, and must not be done twice. */
	if (!reply && qp->rq.resp_tail - qp->rq.resp_head >= VB_RESPONSES)
		return TRY_AGAIN;
	ret = do_atomic(qp, pkt, &old);
	if (ret != ACCEPT)
		return ret;
	vb_receiver_remember(&qp->rq.receiver, pkt->psn, old);
	return answer_atomic(qp, pkt->psn, old, reply);
}

/*
 * FIRST opens a message, LAST closes it, and the operation stays the same in between (IBTA
 * 9.7.4.1.2).
 */
static bool in_sequence(const struct vb_rq *rq, const struct vb_pkt *pkt)
{
	if (pkt->op != VB_PKT_SEND && pkt->op != VB_PKT_WRITE)
		return !rq->open;
	return pkt->flags & VB_PKT_FIRST ? !rq->open : rq->open && rq->op == pkt->op;
}

static enum verdict responder_execute(struct vb_qp *qp, const struct vb_pkt *pkt,
				      struct vb_pkt *reply, struct iovec *iov)
{
	struct vb_rq *rq = &qp->rq;
	enum verdict ret;

	if (!in_sequence(rq, pkt))
		return BAD_REQUEST;
	switch (pkt->op) {
	case VB_PKT_SEND:
		ret = receive_send(qp, pkt);
		break;
	case VB_PKT_WRITE:
		ret = receive_write(qp, pkt);
		break;
	case VB_PKT_READ:
		return receive_read(qp, pkt, reply, iov);
	case VB_PKT_COMPARE_SWAP:
	case VB_PKT_FETCH_ADD:
	case VB_PKT_MASKED_COMPARE_SWAP:
	case VB_PKT_MASKED_FETCH_ADD:
		return receive_atomic(qp, pkt, reply);
	default:
		return BAD_REQUEST;
	}
	if (ret == ACCEPT || ret == SOURCE_FAULT) {
		rq->op = pkt->op;
		rq->open = ret == SOURCE_FAULT || !(pkt->flags & VB_PKT_LAST);
	}
	return ret;
}

/* --- answers ---------------------------------------------------------------------------------- */

static bool responder_answer(struct vb_qp *qp, uint8_t syndrome, uint32_t psn, struct vb_pkt *reply)
{
	struct vb_response *response;

	if (reply) {
		set_reply(reply, VB_PKT_ACK, syndrome, psn);
		return true;
	}
	if (syndrome == VB_SYN_ACK) {
		/* Acknowledgements are cumulative: one per batch is enough. */
		if (!qp->rq.ack_due) {
			qp->rq.ack_due = true;
			vb_work_add(qp, VB_WORK_ACK);
		}
		return false;
	}
	response = response_push(&qp->rq, VB_ANSWERS);
	if (response) {
		*response = (struct vb_response){
			.op = VB_PKT_ACK, .psn = psn, .msn = qp->rq.msn, .value = syndrome
		};
		vb_work_add(qp, VB_WORK_ACK);
	}
	return false;
}

/*
 * A refusal: complete our WQE with what happened, tell the program, go to the error state, answer.
 */
static bool responder_refuse(struct vb_qp *qp, enum verdict verdict, const struct vb_pkt *pkt,
			     struct vb_pkt *reply)
{
	vb_run_share();
	if (verdict == NOT_READY || verdict == NOT_PULLED || verdict == TRY_AGAIN) {
		uint8_t syndrome = verdict == NOT_PULLED  ? VB_SYN_NO_PULL
				   : verdict == TRY_AGAIN ? VB_SYN_NAK_SEQUENCE
							  : VB_SYN_RNR | qp->attr.min_rnr_timer;

		if (verdict == NOT_READY && qp->shows != qp->number)
			vb_dct_lacks(qp);
		qp->rq.receiver.nak_sent =
			true; /* what follows is dropped until this one comes again */
		return responder_answer(qp, syndrome, pkt->psn, reply);
	}
	if (verdict == SOURCE_FAULT)
		return responder_answer(qp, VB_SYN_SOURCE_FAULT, pkt->psn, reply);
	if (verdict == LOST) {
		publish_epsn(qp, qp->rq.receiver.epsn); /* as it was before the completion */
		return responder_answer(qp, VB_SYN_NAK_OPERATION, pkt->psn, reply);
	}
	vb_why_receive(qp, pkt, verdicts[verdict].status);
	if (verdict == BAD_REQUEST || verdict == BAD_ACCESS)
		vb_qp_count(qp,
			    verdict == BAD_ACCESS ? VB_COUNT_RESP_ACCESS : VB_COUNT_RESP_INVALID);
	if (qp->rq.have_wqe & VB_WQE_HAVE)
		complete(qp, verdicts[verdict].status, NULL, 0);
	responder_answer(qp, verdicts[verdict].syndrome, pkt->psn, reply);
	vb_qp_fail(qp, verdicts[verdict].event, verdicts[verdict].event != 0);
	return reply != NULL;
}

/* A response with this PSN waits to be sent. */
static bool responder_is_due(const struct vb_rq *rq, uint32_t psn)
{
	for (uint32_t i = rq->resp_head; i != rq->resp_tail; i++)
		if (rq->response[i % VB_ANSWERS].op != VB_PKT_ACK &&
		    rq->response[i % VB_ANSWERS].psn == psn)
			return true;
	return false;
}

/* Seen before: acknowledge again, but do nothing twice (IBTA 9.7.5.1.1). */
static bool receive_duplicate(struct vb_qp *qp, const struct vb_pkt *pkt, struct vb_pkt *reply,
			      struct iovec *iov)
{
	struct vb_rq *rq = &qp->rq;
	uint64_t old;

	if (responder_is_due(rq, pkt->psn))
		return false; /* the answer to the first one has not gone out yet */
	if (pkt->op == VB_PKT_READ) {
		enum verdict ret = receive_read(qp, pkt, reply, iov);

		/* Of a READ that cannot go on the requester must learn why, or it asks until its retries are gone. */
		if (ret == BAD_ACCESS)
			return responder_refuse(qp, ret, pkt, reply);
		return ret == ACCEPT && reply;
	}
	if (!vb_pkt_is_atomic(pkt)) {
		rq->duplicate =
			true; /* the requester has missed an acknowledgement: tell it again */
		return responder_answer(qp, VB_SYN_ACK, vb_psn_add(rq->receiver.epsn, 0xffffff),
					reply);
	}
	return vb_receiver_recall(&rq->receiver, pkt->psn, &old) &&
	       answer_atomic(qp, pkt->psn, old, reply) == ACCEPT && reply;
}

static bool receive_rc(struct vb_qp *qp, const struct vb_pkt *pkt, struct vb_pkt *reply,
		       struct iovec *iov)
{
	struct vb_receiver *receiver = &qp->rq.receiver;
	uint32_t span = 1;
	enum verdict ret;

	switch (vb_receiver_check(receiver, pkt->psn)) {
	case VB_ARRIVAL_EXPECTED:
		break;
	case VB_ARRIVAL_DUPLICATE:
		vb_qp_count(qp, VB_COUNT_DUPLICATE);
		return receive_duplicate(qp, pkt, reply, iov);
	case VB_ARRIVAL_GAP:
		vb_qp_count(qp, VB_COUNT_OUT_OF_SEQUENCE);
		return responder_answer(qp, VB_SYN_NAK_SEQUENCE, receiver->epsn, reply);
	case VB_ARRIVAL_DROP:
		vb_qp_count(qp, VB_COUNT_OUT_OF_SEQUENCE);
		return false;
	}
	ret = responder_execute(qp, pkt, reply, iov);
	if (ret != ACCEPT)
		return responder_refuse(qp, ret, pkt, reply);
	if (qp->counters)
		vb_count_request(qp, pkt);
	if (pkt->op == VB_PKT_READ) {
		span = vb_psn_span(pkt->dma_len, qp->path.span);
		vb_receiver_note_read(receiver, pkt->psn, span,
				      pkt->dma_len ? vb_mr_generation(qp->card, pkt->rkey) : 0);
	}
	vb_receiver_take(receiver, span);
	publish_epsn(qp, receiver->epsn);
	if (pkt->flags & VB_PKT_LAST)
		qp->rq.msn = vb_psn_add(qp->rq.msn, 1);
	if (pkt->op != VB_PKT_SEND && pkt->op != VB_PKT_WRITE)
		return reply != NULL;
	return pkt->flags & (VB_PKT_LAST | VB_PKT_ACK_REQ)
		       ? responder_answer(qp, VB_SYN_ACK, pkt->psn, reply)
		       : false;
}

/*
 * Unreliable: a message with a gap, or without a WQE, is lost, and nobody is told (IBTA 9.8.2.2).
 */
static void receive_uc(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_rq *rq = &qp->rq;
	enum verdict ret;

	if (pkt->flags & VB_PKT_FIRST)
		rq->open = false; /* the rest of the last one, if it was open, never came */
	if (pkt->psn != rq->receiver.epsn && !(pkt->flags & VB_PKT_FIRST))
		return;
	rq->receiver.epsn = vb_psn_add(pkt->psn, 1);
	if (pkt->op != VB_PKT_SEND && pkt->op != VB_PKT_WRITE)
		return;
	ret = responder_execute(qp, pkt, NULL, NULL);
	if (ret == BAD_LENGTH || ret == BAD_BUFFER || ret == BAD_WQE) {
		vb_run_share();
		vb_why_receive(qp, pkt, verdicts[ret].status);
		complete(qp, verdicts[ret].status, NULL, 0);
		vb_qp_fail(qp, 0, false);
	} else if (ret != ACCEPT) {
		rq->open = false;
	} else if (qp->counters) {
		vb_count_request(qp, pkt);
	}
}

static bool receive_ud(struct vb_qp *qp, const struct vb_pkt *pkt, struct vb_pkt *reply)
{
	uint8_t grh[40];
	enum verdict ret;

	if (pkt->op != VB_PKT_SEND || !pkt->grh || pkt->qkey != qp->attr.qkey)
		return false;
	ret = take_wqe(qp);
	if (ret == NOT_READY) {
		qp->rq.dropped++;
		return false;
	}
	if (ret == ACCEPT && sizeof(grh) + pkt->len > qp->rq.capacity)
		ret = BAD_LENGTH;
	vb_message_grh(grh, pkt, network_of(pkt));
	if (ret == ACCEPT)
		ret = scatter(qp, 0, grh, sizeof(grh));
	if (ret == ACCEPT)
		ret = scatter_payload(qp, sizeof(grh), pkt);
	if (ret == ACCEPT) {
		complete(qp, IBV_WC_SUCCESS, pkt, (uint32_t)sizeof(grh) + pkt->len);
	} else if (ret == SOURCE_FAULT) {
		return responder_answer(qp, VB_SYN_SOURCE_FAULT, 0, reply);
	} else {
		vb_run_share();
		vb_why_receive(qp, pkt, verdicts[ret].status);
		complete(qp, verdicts[ret].status, NULL, 0);
		vb_qp_fail(qp, 0, false);
	}
	return false;
}

/*
 * Whether the packet can be for this queue at all. Datagrams may come by either version of RoCE; a
 * connection has one, and what comes by the other is dropped, as hardware does.
 */
static bool responder_takes(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	if (pkt->transport == qp->transport)
		return true;
	if (vb_transport_type(pkt->transport) != qp->type || (qp->transport & VB_TRANSPORT_CUT))
		return false;
	if (qp->type != IBV_QPT_UD)
		vb_why_mixed(qp, pkt);
	return qp->type == IBV_QPT_UD;
}

VB_FLAT bool vb_responder_receive(struct vb_qp *qp, const struct vb_pkt *pkt, struct vb_pkt *reply,
				  struct iovec *reply_iov)
{
	uint32_t state;
	bool answered = false, first = false;

	if (vb_burst.run.qp != qp)
		vb_lock(&qp->rq.lock);
	if (!reply)
		vb_burst.run.qp = qp;
	state = atomic_load_explicit(&qp->state, memory_order_relaxed);
	if (!vb_qp_receives(state) || !responder_takes(qp, pkt))
		goto unlock;
	qp->rq.traffic.received += pkt->len;
	if (pkt->op == VB_PKT_READ)
		qp->rq.traffic.sent += pkt->dma_len;
	qp->rq.packets++;
	if (qp->type == IBV_QPT_UD) {
		answered = receive_ud(qp, pkt, reply);
		goto unlock;
	}
	if (pkt->sqpn != qp->attr.dest_qp_num)
		goto unlock;
	first = state == IBV_QPS_RTR && !atomic_load_explicit(&qp->comm_est, memory_order_relaxed);
	if (first)
		atomic_store_explicit(&qp->comm_est, true, memory_order_relaxed);
	if (qp->type == IBV_QPT_RC)
		answered = receive_rc(qp, pkt, reply, reply_iov);
	else
		receive_uc(qp, pkt);
unlock:
	if (reply) {
		vb_show_rq(qp);
		vb_unlock(&qp->rq.lock);
	}
	if (first)
		vb_qp_event(qp, IBV_EVENT_COMM_EST);
	return answered;
}

/* --- flush and reset -------------------------------------------------------------------------- */

enum { WATCH_MIN_NS = 1000000, WATCH_MAX_NS = 1000000000 };

/* Its receives are a list that no other queue has. */
static struct vb_srq *own_list(const struct vb_qp *qp)
{
	return qp->init.srq && qp->init.srq->attr.single ? qp->init.srq : NULL;
}

/*
 * A program that posts to the ring itself says so only in the record, which nobody hears. While its
 * queue is in the error state the record is looked at, ever more rarely where nothing comes: an
 * idle queue costs next to nothing.
 */
static void watch_record(struct vb_qp *qp, bool flushed)
{
	if (!atomic_load_explicit(&qp->direct, memory_order_relaxed) ||
	    (!qp->rq.count && !own_list(qp)))
		return;
	if (flushed || !qp->watch_ns)
		qp->watch_ns = WATCH_MIN_NS;
	else if (qp->watch_ns < WATCH_MAX_NS)
		qp->watch_ns *= 2;
	qp->watch_at = vb_now_ns() + qp->watch_ns;
	vb_alarm_set(&qp->watch, qp->watch_at);
}

void vb_responder_flush(struct vb_qp *qp)
{
	struct vb_rq *rq = &qp->rq;
	struct vb_srq *list = own_list(qp);
	uint32_t flushed = 0, count;

	if (qp->init.keeps_posted)
		return;
	/* Pairs with vb_qp_ring_rq(): a program that posts meanwhile sees the error state, or we see what it posted. */
	vb_barrier_heavy();
	/* The record is the program's, or device code's, and may go on or say anything: a ring holds no more than this. */
	count = (uint16_t)(posted_to(qp) - rq->ci);
	if (count > rq->count)
		count = rq->count;
	if (rq->have_wqe & VB_WQE_HAVE)
		complete(qp, IBV_WC_WR_FLUSH_ERR, NULL, 0);
	rq->open = false;
	for (; flushed < count; flushed++) {
		rq->wqe_index = rq->ci++;
		complete(qp, IBV_WC_WR_FLUSH_ERR, NULL, 0);
	}
	/* A shared queue is not flushed by one of its users, unless that is the only one. */
	count = list ? list->attr.wqe_cnt : 0;
	while (count-- && vb_srq_take(list, &rq->wqe_index, rq->sge) != -EAGAIN) {
		complete(qp, IBV_WC_WR_FLUSH_ERR, NULL, 0);
		flushed++;
	}
	vb_why_flushed(qp, flushed, "receive");
	watch_record(qp, flushed);
}

void vb_responder_give(struct vb_qp *qp)
{
	struct vb_rq *rq = &qp->rq;

	if (qp->init.srq && rq->have_wqe & VB_WQE_HAVE)
		vb_srq_give(qp->init.srq, rq->wqe_index);
	rq->have_wqe &= VB_WQE_ASKED;
	rq->open = false; /* what comes of it late is refused */
}

void vb_responder_reset(struct vb_qp *qp, uint32_t psn, bool empty)
{
	struct vb_rq *rq = &qp->rq;

	if (empty)
		rq->ci = 0;
	vb_receiver_reset(&rq->receiver, psn);
	atomic_store_explicit(&qp->shared->epsn, psn, memory_order_release);
	atomic_store_explicit(&rq->acked, psn, memory_order_relaxed);
	rq->msn = 0;
	rq->mixed = false;
	rq->duplicate = rq->ack_due = rq->open = false;
	rq->have_wqe &= VB_WQE_ASKED;
	rq->stride = 0;
	rq->resp_head = rq->resp_tail = 0;
	qp->watch_ns = 0;
}

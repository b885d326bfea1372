// SPDX-License-Identifier: MIT
/*
 * Owns what the requester does by itself in the memory of another process: its share of a WRITE, a
 * READ, an atomic. Called by requester.c under the send queue's lock, when nothing of the queue is
 * in flight.
 */
#include "card/transport/message.h"

#include "card/queue/objects.h"
#include "card/transport/requester.h"
#include "card/transport/sides.h"
#include "fabric/direct.h"

/*
 * The word is changed once, here or by the target: whatever is refused before the change may go to
 * the target.
 */
static enum vb_direct place_change(struct vb_qp *qp, struct vb_pkt *pkt, const struct iovec *iov,
				   int cnt)
{
	struct vb_direct_atomic atomic = { .add = pkt->op == VB_PKT_FETCH_ADD ||
						  pkt->op == VB_PKT_MASKED_FETCH_ADD,
					   .masked = vb_pkt_is_masked(pkt),
					   .size = qp->sq.wr.word,
					   .compare = pkt->compare,
					   .swap_add = pkt->swap_add };
	uint64_t old = 0, result;
	struct iovec value = { &result, 0 };
	enum vb_direct ret;

	if (__builtin_expect(atomic.masked, 0)) {
		atomic.swap_mask = pkt->swap_mask;
		atomic.compare_mask = pkt->compare_mask;
	}

	ret = vb_direct_change(&qp->path, qp->number, qp->attr.dest_qp_num, &atomic, pkt->va,
			       pkt->rkey, &old);
	if (ret != VB_DIRECT_OK)
		return ret;
	qp->sq.transfer.split = 0;
	qp->sq.sent_by.stores++;
	value.iov_len = vb_message_result(&qp->sq.wr, old, &result);
	return vb_message_copy(iov, cnt, 0, &value, 1) ? VB_DIRECT_LOCAL_FAULT : VB_DIRECT_OK;
}

enum vb_direct vb_requester_place(struct vb_qp *qp, struct vb_pkt *pkt, const struct iovec *iov,
				  int cnt)
{
	struct vb_sq *sq = &qp->sq;
	struct vb_wr *wr = &sq->wr;
	uint32_t at = sq->to_place, len = (uint32_t)wr->len - at;
	struct iovec rest[VB_WR_MAX_SGE];
	struct vb_direct_done by;
	enum vb_direct ret;

	sq->to_place = VB_NO_SPLIT;
	if (vb_wr_is_atomic(wr))
		return place_change(qp, pkt, iov, cnt);
	if (at) {
		cnt = (int)vb_message_slice(iov, cnt, at, len, rest);
		iov = rest;
		vb_path_flush(&qp->path); /* the target begins */
	}
	ret = vb_direct_copy(&qp->path, qp->number, qp->attr.dest_qp_num, wr->op == VB_WR_WRITE,
			     iov, (uint32_t)cnt, wr->raddr + at, wr->rkey, len, &by);
	sq->transfer.generation = by.generation;
	if (ret == VB_DIRECT_OK) {
		vb_note(COPIED, .object = qp->number, .code = wr->op, .value = len);
		sq->transfer.split = at;
	} else if (ret == VB_DIRECT_UNAVAILABLE && !at) {
		sq->transfer.pulls = false;
	}
	if (ret == VB_DIRECT_OK && !at) {
		sq->sent_by.stores += by.stored;
		sq->sent_by.copies += !by.stored;
	}
	return ret;
}

// SPDX-License-Identifier: MIT
/*
 * Owns the requester: doorbell to work queue entries to packets, acknowledgements to completions,
 * time.
 *
 *	   told        done              next             pi
 *	    v           v                 v               v
 *	... ][ complete ][ sent: flight[] ][ rung, to send ][ the program's
 *
 * Entries between told and done are complete, and wait for a place in the CQ. A program may also
 * pace itself by data that arrived, and ring before the acknowledgement was seen. Then it has
 * written over entries that were sent: the new ones are sent when the ring of flights has room, the
 * old ones cannot be sent again.
 *
 * Sending is bounded by the congestion window (packets without acknowledgement) and paced in
 * bursts, both set by messages of a CC FIFO. A message is sent again from its first packet; work
 * queue entries and what they point to stay as they are until their completion, so it is the same
 * message.
 */
#include "card/hbl/internal.h"

#include <errno.h>
#include <string.h>

#include "base/time.h"
#include "host/fault.h"
#include "base/util.h"

enum step { NEXT, WAIT };

enum {
	HOLD_NS = 100000000, /* a peer that asked us to wait is asked again after this */
	/*
	 * Where stores do not reach, each of this many is a system call of its own; of more, packets
	 * are cheaper,
	 */
	DELIVER_FEW = 8,
	DELIVER_LARGE = 4096, /* unless they are so large. */
	DELIVER_MAX = 16 << 20,
	/* Tools see what a peer has delivered to us when a message of ours in so many is rung. */
	SHOW_EVERY = 16,
};

static bool hbl_requester_has_response(uint8_t op)
{
	return op == VB_HBL_OP_READ || op == VB_HBL_OP_FETCH_ADD ||
	       op == VB_HBL_OP_FETCH_ADD_SILENT;
}

static struct vb_hbl_flight *flight(struct vb_hbl_qp *qp, uint32_t count)
{
	return &qp->sq.flight[count & (qp->wqes - 1)];
}

/* What a program calls the index of an entry. */
static uint32_t wqe_index(const struct vb_hbl_qp *qp, uint32_t count)
{
	return qp->hbl->generation == VB_GAUDI2 ? count & (qp->wqes - 1) : count & 0x3fffff;
}

static enum step hbl_requester_fail(struct vb_hbl_qp *qp, enum vb_hbl_syndrome syndrome)
{
	vb_hbl_qp_fail(qp, IBV_EVENT_QP_FATAL, syndrome);
	return WAIT;
}

/* --- completions ------------------------------------------------------------------------------ */

/*
 * The receive work queue's entry says what the requester is told. False where that must wait, or
 * cannot be.
 */
static bool hbl_requester_tell(struct vb_hbl_qp *qp, uint32_t count)
{
	uint8_t bytes[VB_HBL_RWQE_SIZE];
	struct vb_hbl_rwqe rwqe;
	uint32_t at = count & (qp->wqes - 1);
	enum vb_hbl_syndrome syndrome;
	enum vb_hbl_room room = VB_HBL_LOST;

	if (vb_fault_copy(bytes, qp->rwq + (size_t)at * VB_HBL_RWQE_SIZE, sizeof(bytes))) {
		hbl_requester_fail(qp, VB_HBL_SYN_LOCAL_ACCESS);
		return false;
	}
	syndrome = vb_hbl_decode_receive(bytes, qp->hbl->generation, at,
					 !qp->port->attr.no_index_check, &rwqe);
	if (syndrome) {
		hbl_requester_fail(qp, syndrome);
		return false;
	}
	if (rwqe.completion & VB_HBL_COMPLETE_CQ)
		room = vb_hbl_cq_put(
			qp->req_cq, &(struct vb_hbl_completion){ .qpn = qp->qpn,
								 .requester = true,
								 .index = wqe_index(qp, count),
								 .tag = rwqe.tag,
								 .size = flight(qp, count)->size });
	qp->sq.starved = room == VB_HBL_FULL;
	return room != VB_HBL_FULL;
}

static void tell_ready(struct vb_hbl_qp *qp)
{
	struct vb_hbl_sq *sq = &qp->sq;

	sq->starved = false;
	while (sq->told != sq->sender.head && hbl_requester_tell(qp, sq->told))
		sq->told++;
	if (sq->starved)
		vb_hbl_timer_add(qp, vb_now_ns() + VB_HBL_FULL_LOOK_NS);
}

static void hbl_requester_complete_ready(struct vb_hbl_qp *qp)
{
	struct vb_hbl_sq *sq = &qp->sq;
	struct vb_hbl_flight *f;

	while ((f = (struct vb_hbl_flight *)vb_sender_complete(&sq->sender))) {
		if (f->op == VB_HBL_OP_RDV_WRITE)
			atomic_fetch_add_explicit(&sq->rdv_done, 1, memory_order_release);
		vb_sender_pop(&sq->sender);
	}
	if (sq->told != sq->sender.head)
		tell_ready(qp);
}

/* --- what may be sent now --------------------------------------------------------------------- */

/* Whether the pace allows another packet; where not, the timer goes on. */
static bool in_pace(struct vb_hbl_qp *qp)
{
	struct vb_hbl_sq *sq = &qp->sq;
	uint64_t now;

	if (!sq->burst || sq->credit > 0)
		return true;
	now = vb_now_ns();
	if (now < sq->refill) {
		vb_hbl_timer_add(qp, sq->refill);
		return false;
	}
	/* A timer that came late is made up for, up to one burst. */
	sq->refill = (sq->refill + sq->pace > now ? sq->refill : now - sq->pace) + sq->pace;
	sq->credit += sq->burst;
	return sq->credit > 0 || in_pace(qp);
}

/* --- payload ---------------------------------------------------------------------------------- */

/* Where chunk n of a strided message lies. */
static uint64_t chunk_address(const struct vb_hbl_wr *wr, uint64_t n)
{
	uint64_t address = wr->local;

	for (unsigned int i = 0; i < wr->dimensions; i++) {
		address += n % wr->count[i] * wr->stride[i];
		n /= wr->count[i];
	}
	return address;
}

/* Payload from offset on, at most max bytes: pieces, or -1 where an address is not mapped. */
static int hbl_requester_gather(struct vb_hbl_qp *qp, uint64_t offset, uint32_t max,
				struct iovec *iov, uint32_t *len)
{
	struct vb_hbl_wr *wr = &qp->sq.wr;
	int n = 0;

	*len = 0;
	while (*len < max && n < VB_HBL_PIECES) {
		uint64_t at = offset + *len, in_chunk = at % wr->chunk;
		uint32_t part = (uint32_t)(wr->chunk - in_chunk);
		void *host;

		part = part < max - *len ? part : max - *len;
		host = wr->is_inline
			       ? &wr->data[at]
			       : vb_hbl_at(qp, chunk_address(wr, at / wr->chunk) + in_chunk, part);
		if (!host)
			return -1;
		iov[n++] = (struct iovec){ host, part };
		*len += part;
	}
	return n;
}

/* --- packets ---------------------------------------------------------------------------------- */

static void add_flight(struct vb_hbl_qp *qp)
{
	struct vb_hbl_sq *sq = &qp->sq;
	struct vb_hbl_wr *wr = &sq->wr;

	struct vb_hbl_flight *f = (struct vb_hbl_flight *)vb_sender_add(
		&sq->sender, sq->first_psn, hbl_requester_has_response(wr->op));

	f->op = wr->op;
	f->size = wr->size;
	f->local = wr->local;
	sq->messages++;
	if (hbl_requester_has_response(wr->op))
		sq->bytes_asked += wr->size;
	else
		sq->bytes_sent += wr->size;
	f->sent_at = qp->attr.caps & VB_HBL_QP_CONG_CTRL ? vb_now_ns() : 0;
	sq->loaded = false;
	sq->sent = 0;
}

/* A timer as long as anything is in flight. */
static void hbl_requester_watch(struct vb_hbl_qp *qp)
{
	qp->sq.sender.recent = true;
	if (!qp->timer.set)
		vb_hbl_timer_add(qp, vb_now_ns() + VB_SHORTEST_LOOK_NS);
}

static enum step send_failed(struct vb_hbl_qp *qp, int ret)
{
	if (ret == -EFAULT)
		return hbl_requester_fail(qp, VB_HBL_SYN_LOCAL_ACCESS);
	vb_hbl_work_block(qp, VB_HBL_WORK_SEND);
	return WAIT;
}

static void account(struct vb_hbl_sq *sq, uint32_t psns, uint32_t bytes)
{
	sq->sender.psn = vb_psn_add(sq->sender.psn, psns);
	sq->unflushed = true;
	if (sq->burst)
		sq->credit -= bytes ? bytes : 1;
}

static void hbl_requester_acknowledge(struct vb_hbl_qp *qp, uint32_t psn);
static void hbl_requester_report(struct vb_hbl_qp *qp, uint32_t psns);

/* A message whose packets are on their way. */
static void count_packets(struct vb_hbl_qp *qp)
{
	if (vb_path_can(&qp->path, VB_PATH_CALLS))
		qp->sq.sent_by.calls++;
	else
		qp->sq.sent_by.packets++;
}

/*
 * Whether a message may be delivered by ourselves, if the peer lets us: nothing is in flight that it
 * would overtake, none of it was done before, and the copy does not take long.
 */
static bool may_deliver(const struct vb_hbl_qp *qp)
{
	const struct vb_hbl_sq *sq = &qp->sq;

	return !sq->sent && !vb_sender_busy(&sq->sender) && sq->sender.psn == sq->sender.una &&
	       !sq->sender.resumed && sq->wr.size <= DELIVER_MAX &&
	       atomic_load_explicit(&qp->connected, memory_order_acquire) &&
	       vb_path_can(&qp->path, VB_PATH_DIRECT);
}

/* What the program is waiting for is worth a system call; one of many small ones is not. */
static bool is_worth_a_call(const struct vb_hbl_sq *sq)
{
	return sq->pi - sq->sender.tail <= DELIVER_FEW || sq->wr.size >= DELIVER_LARGE;
}

/* The local side of a delivery; false where that is not for us to decide. */
static bool find_local(struct vb_hbl_qp *qp, struct vb_delivery *d, struct iovec *iov)
{
	struct vb_hbl_wr *wr = &qp->sq.wr;
	int pieces = 0;

	d->len = wr->size;
	if (d->op == VB_WINDOW_WRITE && wr->size) {
		pieces = hbl_requester_gather(qp, 0, wr->size, iov, &d->len);
	} else if (d->op == VB_WINDOW_READ && wr->size) {
		*iov = (struct iovec){ vb_hbl_at(qp, wr->local, wr->size), wr->size };
		pieces = iov->iov_base ? 1 : -1;
	}
	d->iov = iov;
	d->iov_cnt = pieces > 0 ? (uint32_t)pieces : 0;
	return pieces >= 0 && d->len == wr->size && (d->op != VB_WINDOW_ADD || d->len == 8);
}

/* It is done, as if acknowledged or answered. */
static enum step finish_delivery(struct vb_hbl_qp *qp, const struct vb_delivery *d)
{
	struct vb_hbl_sq *sq = &qp->sq;
	bool unflushed = sq->unflushed;
	struct vb_flight *f;

	if (sq->wr.op == VB_HBL_OP_FETCH_ADD) {
		void *to = vb_hbl_at(qp, sq->wr.local, sizeof(d->old));

		if (!to || vb_fault_copy(to, &d->old, sizeof(d->old)))
			return hbl_requester_fail(qp, VB_HBL_SYN_LOCAL_ACCESS);
	}
	account(sq, d->psns, d->op == VB_WINDOW_WRITE ? d->len : 0);
	sq->unflushed = unflushed; /* nobody need be woken for this one */
	add_flight(qp);
	if (d->op != VB_WINDOW_WRITE) {
		f = vb_sender_oldest(&sq->sender);
		f->received = d->len;
		f->next_psn = f->last_psn;
		vb_sender_answered(&sq->sender, f, true);
		hbl_requester_report(qp, d->psns);
		sq->held = false;
		hbl_requester_complete_ready(qp);
	} else {
		hbl_requester_acknowledge(qp, d->psn);
	}
	return NEXT;
}

/* Do it in the peer's memory (lend.c). False: it is for packets to do; step is not set. */
static bool hbl_requester_deliver(struct vb_hbl_qp *qp, enum vb_window_op op, enum step *step)
{
	struct vb_hbl_sq *sq = &qp->sq;
	struct vb_hbl_wr *wr = &sq->wr;
	struct iovec iov[VB_HBL_PIECES];
	struct vb_delivery d = { .device = qp->peer_device,
				 .to = qp->peer,
				 .from = vb_hbl_address(qp->hbl->number, qp->port->number, qp->qpn),
				 .key = qp->attr.remote_key,
				 .psn = sq->sender.psn,
				 .psns = op == VB_WINDOW_READ ? vb_psn_span(wr->size, qp->span) : 1,
				 .op = op,
				 .va = wr->remote,
				 .add = wr->add,
				 .stores_only = !is_worth_a_call(sq),
				 .completes = wr->completion & VB_HBL_COMPLETE_CQ };

	if (!find_local(qp, &d, iov) || !vb_sender_has_window(&sq->sender) || !in_pace(qp))
		return false;
	vb_hbl_encode_cqe(d.cqe,
			  &(struct vb_hbl_completion){ .qpn = qp->peer & VB_HBL_MAX_QPN,
						       .index = wqe_index(qp, sq->sender.tail),
						       .tag = wr->tag,
						       .size = wr->size });
	switch (vb_window_deliver(&qp->path, &d)) {
	case VB_DELIVERED_NOT:
		return false;
	case VB_DELIVERED_STORED:
		sq->sent_by.stores++;
		break;
	case VB_DELIVERED_COPIED:
		sq->sent_by.copies++;
		break;
	}
	vb_note(COPIED, .object = qp->qpn, .code = wr->op, .value = wr->size);
	*step = finish_delivery(qp, &d);
	return true;
}

/* LINEAR and its kin: every packet says where it goes, the last one completes. */
static enum step send_write(struct vb_hbl_qp *qp)
{
	struct vb_hbl_sq *sq = &qp->sq;
	struct vb_hbl_wr *wr = &sq->wr;
	struct iovec iov[VB_HBL_PIECES];
	enum step step;

	if (may_deliver(qp) && hbl_requester_deliver(qp, VB_WINDOW_WRITE, &step))
		return step;
	do {
		uint64_t left = wr->size - sq->sent;
		uint32_t len = 0;
		int pieces = 0, ret;
		struct vb_pkt pkt = {
			.op = VB_PKT_WRITE,
			.psn = sq->sender.psn,
			.hbl_tag = wr->tag,
			.hbl_entry =
				(uint32_t)wr->completion << 30 | wqe_index(qp, sq->sender.tail),
			.va = wr->remote + sq->sent,
			.rkey = qp->attr.remote_key,
			.dma_len = wr->size,
			.iov = iov,
		};

		if (!vb_sender_has_window(&sq->sender) || !in_pace(qp))
			return WAIT;
		if (left)
			pieces = hbl_requester_gather(
				qp, sq->sent, left < qp->mtu ? (uint32_t)left : qp->mtu, iov, &len);
		if (pieces < 0)
			return hbl_requester_fail(qp, VB_HBL_SYN_LOCAL_ACCESS);
		pkt.iov_cnt = (uint32_t)pieces;
		pkt.len = len;
		pkt.flags = len == left ? VB_PKT_LAST : 0;
		ret = vb_hbl_send(qp, &pkt);
		if (ret)
			return send_failed(qp, ret);
		account(sq, 1, len);
		sq->sent += len;
	} while (sq->sent < wr->size);
	count_packets(qp);
	add_flight(qp);
	return NEXT;
}

/* READ, atomics and announcements: one packet without the message's data. */
static enum step send_request(struct vb_hbl_qp *qp, struct vb_pkt *pkt)
{
	struct vb_hbl_sq *sq = &qp->sq;
	int ret;

	if (!vb_sender_has_window(&sq->sender) || !in_pace(qp))
		return WAIT;
	pkt->psn = sq->sender.psn;
	pkt->flags = VB_PKT_LAST;
	pkt->hbl_tag = sq->wr.tag;
	pkt->rkey = qp->attr.remote_key;
	pkt->hbl_entry = (uint32_t)sq->wr.completion << 30 | wqe_index(qp, sq->sender.tail);
	ret = vb_hbl_send(qp, pkt);
	if (ret)
		return send_failed(qp, ret);
	account(sq, pkt->op == VB_PKT_READ ? vb_psn_span(pkt->dma_len, qp->span) : 1, pkt->len);
	count_packets(qp);
	add_flight(qp);
	return NEXT;
}

static enum step send_read(struct vb_hbl_qp *qp)
{
	struct vb_hbl_wr *wr = &qp->sq.wr;
	bool atomic = wr->op != VB_HBL_OP_READ;
	struct vb_pkt pkt = { .op = atomic ? VB_PKT_FETCH_ADD : VB_PKT_READ,
			      .va = wr->remote + qp->sq.sender.resumed,
			      .dma_len = wr->size - qp->sq.sender.resumed,
			      .swap_add = wr->add };
	enum step step;

	if (qp->sq.sender.responses >= VB_HBL_MAX_READS)
		return WAIT;
	if (wr->op != VB_HBL_OP_FETCH_ADD_SILENT && wr->size && !vb_hbl_at(qp, wr->local, wr->size))
		return hbl_requester_fail(qp, VB_HBL_SYN_LOCAL_ACCESS);
	if (may_deliver(qp) &&
	    hbl_requester_deliver(qp, atomic ? VB_WINDOW_ADD : VB_WINDOW_READ, &step))
		return step;
	return send_request(qp, &pkt);
}

/* Tell the peer of a buffer that its rendezvous writes may fill. */
static enum step send_announcement(struct vb_hbl_qp *qp)
{
	struct vb_hbl_sq *sq = &qp->sq;
	struct vb_hbl_wr *wr = &sq->wr;
	struct vb_hbl_announcement what = { .va = wr->local, .size = wr->size, .tag = wr->tag };
	struct iovec iov = { &what, sizeof(what) };
	struct vb_pkt pkt = { .op = VB_PKT_SEND, .iov = &iov, .iov_cnt = 1, .len = sizeof(what) };
	uint32_t used = atomic_load_explicit(&qp->rq.rdv_used, memory_order_acquire);
	enum step step;

	if (sq->announced - used >= qp->attr.dest_wq_size)
		return WAIT;
	if (wr->size && !vb_hbl_at(qp, wr->local, wr->size))
		return hbl_requester_fail(qp, VB_HBL_SYN_LOCAL_ACCESS);
	step = send_request(qp, &pkt);
	sq->announced += step == NEXT;
	return step;
}

static enum step send_rendezvous(struct vb_hbl_qp *qp)
{
	struct vb_hbl_sq *sq = &qp->sq;
	struct vb_hbl_announcement *to = &qp->rq.rdv[sq->rdv_next & (qp->wqes - 1)];
	enum step step;

	/* Pairs with the release in take_announcement(). */
	if (sq->rdv_next == atomic_load_explicit(&qp->rq.rdv_tail, memory_order_acquire))
		return WAIT;
	if (sq->wr.size > to->size)
		return hbl_requester_fail(qp, VB_HBL_SYN_BAD_SIZE);
	sq->wr.remote = to->va;
	step = send_write(qp);
	sq->rdv_next += step == NEXT;
	return step;
}

/* --- the queue -------------------------------------------------------------------------------- */

/* The types of work queue that an operation is done on; 0: all. */
static const uint32_t types_of[] = {
	[VB_HBL_OP_NOP] = 0,
	[VB_HBL_OP_WRITE] = VB_HBL_WQ_WRITE,
	[VB_HBL_OP_SEND] = VB_HBL_WQ_WRITE | VB_HBL_WQ_RECV_RDV,
	[VB_HBL_OP_RDV_WRITE] = VB_HBL_WQ_SEND_RDV,
	[VB_HBL_OP_READ] = VB_HBL_WQ_READ_RDV,
	[VB_HBL_OP_FETCH_ADD] = VB_HBL_WQ_WRITE,
	[VB_HBL_OP_FETCH_ADD_SILENT] = VB_HBL_WQ_WRITE,
};

static bool may_do(uint32_t type, uint8_t op)
{
	return !types_of[op] || (types_of[op] & type);
}

/* On a queue that has rendezvous, SEND announces. */
static bool is_announcement(const struct vb_hbl_qp *qp, uint8_t op)
{
	return op == VB_HBL_OP_SEND && (qp->attr.wq_type & VB_HBL_WQ_RECV_RDV);
}

static enum step hbl_requester_load(struct vb_hbl_qp *qp)
{
	struct vb_hbl_sq *sq = &qp->sq;
	uint8_t bytes[64];
	uint32_t at = sq->sender.tail & (qp->wqes - 1);
	enum vb_hbl_syndrome syndrome = VB_HBL_SYN_LOCAL_ACCESS;

	if (unlikely(sq->asked)) {
		/* After what is in flight: the answers to that call us again. */
		if (vb_sender_busy(&sq->sender))
			return WAIT;
		syndrome = (enum vb_hbl_syndrome)sq->asked;
		sq->asked = VB_HBL_SYN_NONE;
		atomic_store_explicit(&sq->blamed, true, memory_order_relaxed);
		return hbl_requester_fail(qp, syndrome);
	}
	if (!vb_fault_copy(bytes, qp->swq + ((size_t)at << qp->wqe_shift), 1u << qp->wqe_shift))
		syndrome = vb_hbl_decode_send(bytes, qp->attr.wide, qp->hbl->generation, at,
					      !qp->port->attr.no_index_check, &sq->wr);
	if (!syndrome && !may_do(qp->attr.wq_type, sq->wr.op))
		syndrome = VB_HBL_SYN_BAD_OPCODE;
	if (syndrome)
		return hbl_requester_fail(qp, syndrome);
	sq->loaded = true;
	sq->sent = 0;
	sq->first_psn = sq->sender.psn;
	vb_note(HBL_WQE, .object = qp->qpn, .code = sq->wr.op, .value = sq->wr.size,
		.extra = wqe_index(qp, sq->sender.tail));
	return NEXT;
}

static enum step hbl_requester_execute(struct vb_hbl_qp *qp)
{
	switch (qp->sq.wr.op) {
	case VB_HBL_OP_NOP:
		add_flight(qp);
		return NEXT;
	case VB_HBL_OP_READ:
	case VB_HBL_OP_FETCH_ADD:
	case VB_HBL_OP_FETCH_ADD_SILENT:
		return send_read(qp);
	case VB_HBL_OP_RDV_WRITE:
		return send_rendezvous(qp);
	case VB_HBL_OP_SEND:
		return is_announcement(qp, VB_HBL_OP_SEND) ? send_announcement(qp) : send_write(qp);
	default:
		return send_write(qp);
	}
}

void vb_hbl_requester_run(struct vb_hbl_qp *qp)
{
	struct vb_hbl_sq *sq = &qp->sq;

	while (sq->sender.tail != sq->pi && sq->sender.tail - sq->told < qp->wqes && !sq->held &&
	       atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_RTS) {
		enum step step = sq->loaded ? NEXT : hbl_requester_load(qp);

		if (step == NEXT)
			step = hbl_requester_execute(qp);
		if (step != NEXT)
			break;
	}
	hbl_requester_complete_ready(qp); /* NOPs */
	if (sq->unflushed) {
		sq->unflushed = false;
		vb_burst_flush(&qp->path);
	}
	if (sq->sender.head != sq->sender.tail || sq->sent)
		hbl_requester_watch(qp);
	vb_hbl_show_sq(qp);
}

/*
 * The doorbell carries the new producer index: modulo the queue's size on Gaudi2, 22 bits on
 * Gaudi3. One that overtakes what was not sent yet is as wrong as one outside of the queue: the
 * program wrote over those entries.
 */
void vb_hbl_ring(struct vb_hbl_qp *qp, uint32_t pi)
{
	struct vb_hbl_sq *sq = &qp->sq;
	uint32_t mask, more;
	bool show = false;

	vb_lock(&sq->lock);
	mask = qp->hbl->generation == VB_GAUDI2 ? qp->wqes - 1 : 0x3fffff;
	more = (pi - sq->pi) & mask;
	if (atomic_load_explicit(&qp->state, memory_order_acquire) != IBV_QPS_RTS) {
		vb_hbl_qp_fail(qp, IBV_EVENT_QP_FATAL, VB_HBL_SYN_BAD_QPN);
	} else if (pi > mask || sq->pi - sq->sender.tail + more > qp->wqes) {
		vb_hbl_qp_fail(qp, IBV_EVENT_QP_FATAL, VB_HBL_SYN_BAD_PI);
	} else {
		sq->pi += more;
		vb_note(DOORBELL, .object = qp->qpn, .value = pi);
		vb_hbl_requester_run(qp);
		show = !(sq->messages % SHOW_EVERY);
	}
	vb_unlock(&sq->lock);
	if (unlikely(show) && atomic_load_explicit(&qp->lent, memory_order_relaxed)) {
		vb_lock(&qp->rq.lock);
		vb_hbl_show_rq(qp);
		vb_unlock(&qp->rq.lock);
	}
}

void vb_hbl_congestion(struct vb_hbl_qp *qp, const struct vb_hbl_cc *cc)
{
	struct vb_hbl_sq *sq = &qp->sq;

	if (cc->message != VB_HBL_CC_BBR)
		return;
	vb_lock(&sq->lock);
	if (cc->valid & VB_HBL_CC_WINDOW)
		sq->sender.window = cc->window ? cc->window : VB_HBL_MAX_WINDOW;
	if (cc->valid & VB_HBL_CC_PACE)
		sq->pace = cc->pace * 1000ull;
	if (cc->valid & VB_HBL_CC_BURST)
		sq->burst = cc->burst;
	if (!sq->pace)
		sq->burst = 0;
	if (cc->valid & (VB_HBL_CC_PACE | VB_HBL_CC_BURST)) {
		sq->credit = 0;
		sq->refill = 0;
	}
	vb_hbl_requester_run(qp);
	vb_unlock(&sq->lock);
}

/* --- answers ---------------------------------------------------------------------------------- */

/* Whether the program has written over entries that are not complete. */
static bool is_overtaken(const struct vb_hbl_qp *qp)
{
	return qp->sq.pi - qp->sq.sender.head > qp->wqes;
}

/* Send again, from the first message that is not complete. */
static void hbl_requester_rewind_all(struct vb_hbl_qp *qp)
{
	struct vb_hbl_sq *sq = &qp->sq;

	if (sq->sender.head == sq->sender.tail && !sq->loaded)
		return;
	if (is_overtaken(qp)) {
		hbl_requester_fail(qp, VB_HBL_SYN_BAD_PI);
		return;
	}
	for (uint32_t i = sq->sender.head; i != sq->sender.tail; i++)
		sq->announced -= is_announcement(qp, flight(qp, i)->op);
	sq->rdv_next = atomic_load_explicit(&sq->rdv_done, memory_order_relaxed);
	vb_sender_rewind(&sq->sender, sq->first_psn);
	sq->rewinds++;
	sq->loaded = false;
	sq->sent = 0;
}

static void hbl_requester_report(struct vb_hbl_qp *qp, uint32_t psns)
{
	struct vb_hbl_cq *cq = atomic_load_explicit(&qp->port->cc_cq, memory_order_acquire);
	uint64_t rtt = 0;

	if (!cq || !(qp->attr.caps & VB_HBL_QP_CONG_CTRL))
		return;
	if (qp->sq.sender.head != qp->sq.sender.tail)
		rtt = vb_now_ns() - flight(qp, qp->sq.sender.head)->sent_at;
	vb_hbl_cq_report(cq,
			 &(struct vb_hbl_ccqe){ .qpn = qp->qpn,
						.rtt = rtt > 0xffffff ? 0xffffff : (uint32_t)rtt,
						.psns = psns });
}

/* Everything up to psn arrived. */
static void hbl_requester_acknowledge(struct vb_hbl_qp *qp, uint32_t psn)
{
	uint32_t fresh = vb_sender_acknowledge(&qp->sq.sender, psn);

	if (!fresh)
		return;
	hbl_requester_report(qp, fresh);
	qp->sq.held = false;
	hbl_requester_complete_ready(qp);
}

static void hbl_requester_take_data(struct vb_hbl_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_hbl_sq *sq = &qp->sq;
	bool atomic = pkt->op == VB_PKT_ATOMIC_RESPONSE;
	struct vb_hbl_flight *f = (struct vb_hbl_flight *)vb_sender_response(&sq->sender, pkt->psn);
	uint32_t len = atomic ? 8 : pkt->len, una = sq->sender.una;
	void *to = NULL;

	if (!f || atomic == (f->op == VB_HBL_OP_READ))
		return;
	if (len > f->size - f->flight.received ||
	    ((pkt->flags & VB_PKT_LAST) && f->flight.received + len != f->size)) {
		hbl_requester_fail(qp, VB_HBL_SYN_REMOTE_REQUEST);
		return;
	}
	if (f->op != VB_HBL_OP_FETCH_ADD_SILENT && len) {
		to = vb_hbl_at(qp, f->local + f->flight.received, len);
		if (!to ||
		    vb_fault_copy(to, atomic ? (const void *)&pkt->original : pkt->iov->iov_base,
				  len)) {
			hbl_requester_fail(qp, VB_HBL_SYN_LOCAL_ACCESS);
			return;
		}
	}
	f->flight.received += len;
	vb_sender_answered(&sq->sender, &f->flight, pkt->flags & VB_PKT_LAST);
	sq->held = false;
	if (sq->sender.una != una)
		hbl_requester_report(qp, (uint32_t)vb_psn_diff(sq->sender.una, una));
	hbl_requester_complete_ready(qp);
}

/*
 * The peer's CQ is full. It sends a NAK when it is not any more; the timer asks again in case that
 * was lost.
 */
static void hbl_requester_hold(struct vb_hbl_qp *qp)
{
	qp->sq.held = true;
	qp->sq.held_at = vb_now_ns();
	hbl_requester_watch(qp);
}

static void hbl_requester_take_nak(struct vb_hbl_qp *qp, const struct vb_pkt *pkt)
{
	hbl_requester_acknowledge(qp, vb_psn_add(pkt->psn, 0xffffff));
	switch (pkt->syndrome) {
	case VB_SYN_RNR:
		hbl_requester_rewind_all(qp);
		hbl_requester_hold(qp);
		break;
	case VB_SYN_NAK_SEQUENCE:
		qp->sq.held = false;
		hbl_requester_rewind_all(qp);
		break;
	default:
		hbl_requester_fail(qp, pkt->syndrome == VB_SYN_NAK_ACCESS
					       ? VB_HBL_SYN_REMOTE_ACCESS
					       : VB_HBL_SYN_REMOTE_REQUEST);
	}
}

void vb_hbl_requester_receive(struct vb_hbl_qp *qp, const struct vb_pkt *pkt)
{
	vb_lock(&qp->sq.lock);
	if (atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_RTS) {
		if (pkt->op != VB_PKT_ACK)
			hbl_requester_take_data(qp, pkt);
		else if (pkt->syndrome == VB_SYN_ACK)
			hbl_requester_acknowledge(qp, pkt->psn);
		else
			hbl_requester_take_nak(qp, pkt);
		vb_hbl_requester_run(qp);
	}
	vb_unlock(&qp->sq.lock);
}

/* --- time ------------------------------------------------------------------------------------- */

static void hbl_requester_timed_out(struct vb_hbl_qp *qp)
{
	/* Packets that still lie in the ring are not lost: the other process is only slow. */
	if (atomic_load_explicit(&qp->connected, memory_order_acquire) &&
	    (!vb_path_drained(&qp->path) ||
	     (vb_path_unread(&qp->path) && vb_sender_puts_off(&qp->sq.sender))))
		return;
	if (!vb_sender_retry(&qp->sq.sender)) {
		hbl_requester_fail(qp, VB_HBL_SYN_RETRIES);
		return;
	}
	/* What was written over cannot be sent again; its acknowledgement may still come. */
	if (!is_overtaken(qp))
		hbl_requester_rewind_all(qp);
}

/*
 * What is in flight: whether it moves, and whether there is still somebody at the other end. False:
 * nothing is.
 */
static bool check_flight(struct vb_hbl_qp *qp, uint64_t now, uint64_t *next)
{
	struct vb_hbl_sq *sq = &qp->sq;
	bool waits = vb_sender_busy(&sq->sender) || sq->sent || sq->held;

	if (waits && atomic_load_explicit(&qp->connected, memory_order_acquire) &&
	    !vb_path_alive(&qp->path)) {
		hbl_requester_fail(qp, VB_HBL_SYN_RETRIES);
		return true;
	}
	if (sq->held) {
		sq->held = now - sq->held_at < HOLD_NS;
		sq->sender.stamp = 0;
		*next = *next < now + VB_SHORTEST_LOOK_NS ? *next : now + VB_SHORTEST_LOOK_NS;
		return true;
	}
	switch (vb_sender_look(&sq->sender, now, next)) {
	case VB_SENDER_IDLE:
		return false;
	case VB_SENDER_TIMEOUT:
		hbl_requester_timed_out(qp);
		return true;
	default:
		return true;
	}
}

/* Full CQs, the own responder's and the own requester's; true while there is one. */
static bool check_queues(struct vb_hbl_qp *qp, uint64_t now)
{
	struct vb_hbl_sq *sq = &qp->sq;

	if (atomic_load_explicit(&qp->rq.stalled, memory_order_seq_cst))
		vb_hbl_responder_look(qp, now);
	if (sq->starved && vb_hbl_cq_look(qp->req_cq, now))
		tell_ready(qp);
	return atomic_load_explicit(&qp->rq.stalled, memory_order_seq_cst) || sq->starved;
}

bool vb_hbl_requester_look(struct vb_alarm *timer, uint64_t now, uint64_t *next)
{
	struct vb_hbl_qp *qp = container_of(timer, struct vb_hbl_qp, timer);
	struct vb_hbl_sq *sq = &qp->sq;
	bool full = check_queues(qp, now), waits = false;
	uint64_t due = full ? now + VB_HBL_FULL_LOOK_NS : UINT64_MAX;

	if (atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_RTS) {
		waits = check_flight(qp, now, &due);
		vb_hbl_requester_run(qp);
		if (sq->burst && sq->credit <= 0 && sq->sender.tail != sq->pi && sq->refill < due)
			due = sq->refill > now ? sq->refill : now;
		/* Sent now, or still to be sent: the next look is the usual one. */
		if (!waits && (vb_sender_busy(&sq->sender) || sq->sender.tail != sq->pi)) {
			waits = true;
			due = due < now + VB_LIVENESS_NS ? due : now + VB_LIVENESS_NS;
		}
	}
	vb_sooner(next, due);
	return full || waits;
}

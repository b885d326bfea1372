// SPDX-License-Identifier: MIT
/*
 * Owns send WQEs of raw Ethernet: the frames that they make. And the states of receive work queues.
 *
 *	WQE --+-- one frame ---------------------+--> tag inserted, checksums filled in, padded --> vb_flow_send()
 *	      +-- several: each sge, or each mss |
 *	      +-- a large one: segments ---------+
 *
 * A frame is put together in memory of the queue, so that what is sent is what was checked, whatever
 * the program writes meanwhile.
 */
#include "card/ether/ether.h"

#include <errno.h>

#include "base/rcu.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"
#include "card/transport/message.h"
#include "card/transport/transport.h"
#include "host/fault.h"
#include "packet/frame/frame.h"

/*
 *	vb_qp.frame:  | header of a large frame 1024 | room for a tag | frame 9216 | ...
 *
 * A header lies in the WQE, which has at most 1008 bytes.
 */
enum { HEADER_ROOM = 1024, TAG_ROOM = 64, FRAME_AT = HEADER_ROOM + TAG_ROOM };

_Static_assert(IBV_WC_SUCCESS == 0, "a status is positive, or success");
_Static_assert(FRAME_AT + VB_FRAME_MAX <= VB_RAW_BUFFER, "the buffer holds all of it");

/* What is being sent. */
struct sending {
	struct vb_qp *qp;
	const struct vb_wr *wr;
	const struct iovec *iov;
	int cnt;
	uint64_t frames; /* made so far; those below sq.sent went in an earlier try */
};

/* Copy bytes [offset, offset + len) of the WQE's memory. */
static int read_bytes(const struct sending *s, uint8_t *to, uint64_t offset, uint32_t len)
{
	struct iovec part[VB_WR_MAX_SGE];
	uint32_t n = vb_message_slice(s->iov, s->cnt, offset, len, part);

	for (uint32_t i = 0; i < n; i++) {
		if (vb_fault_copy(to, part[i].iov_base, part[i].iov_len))
			return -EFAULT;
		to += part[i].iov_len;
	}
	return 0;
}

/* Offsets of the software parser; NULL: the WQE has none. */
static const struct vb_swp *swp_of(const struct sending *s, struct vb_swp *swp)
{
	enum { INNER = VB_SWP_INNER_IPV6 | VB_SWP_INNER_UDP };
	const struct vb_wr *wr = s->wr;
	uint8_t flags = wr->swp_flags;

	if (s->qp->init.flexio_swp)
		flags = (uint8_t)((flags & INNER) | (flags & ~INNER) >> 1);
	*swp = (struct vb_swp){ wr->swp[0], wr->swp[1], wr->swp[2], wr->swp[3], flags };
	return wr->swp[0] || wr->swp[1] || wr->swp[2] || wr->swp[3] ? swp : NULL;
}

/* Tag and padding are all that it lacks. */
static int complete(struct sending *s, struct vb_frame *f)
{
	const struct vb_wr *wr = s->wr;

	if (wr->insert_vlan &&
	    (f->len + 4 > VB_FRAME_MAX ||
	     vb_frame_push_vlan(f, (uint16_t)(wr->vlan >> 16), (uint16_t)wr->vlan)))
		return IBV_WC_LOC_LEN_ERR;
	f->tailroom = VB_FRAME_MAX - f->len;
	vb_frame_pad(f);
	s->qp->sq.traffic.sent += f->len;
	vb_flow_send(s->qp, f, wr->metadata, wr->to_wire);
	s->qp->sq.sent++;
	return IBV_WC_SUCCESS;
}

/* The last steps of a frame; those that an earlier try has sent are only counted. */
static int raw_finish(struct sending *s, struct vb_frame *f)
{
	enum vb_frame_may may;
	int status;

	if (__builtin_expect(s->frames++ < s->qp->sq.sent, 0))
		return IBV_WC_SUCCESS;
	may = vb_cable_may_send(s->qp->card, f->len);
	if (__builtin_expect(may == VB_FRAME_WAITS, 0))
		return -EAGAIN;
	status = complete(s, f);
	vb_frame_sent(s->qp->card->fabric, may);
	return status;
}

/* One frame: bytes [offset, offset + len). */
static int send_one(struct sending *s, uint64_t offset, uint64_t len)
{
	struct vb_frame f = { .data = s->qp->frame + FRAME_AT,
			      .len = (uint32_t)len,
			      .headroom = TAG_ROOM };
	struct vb_swp swp;
	const struct vb_swp *given = swp_of(s, &swp);

	if (len < VB_FRAME_HEADER || len > VB_FRAME_MAX)
		return IBV_WC_LOC_LEN_ERR;
	if (read_bytes(s, f.data, offset, f.len))
		return IBV_WC_LOC_PROT_ERR;
	if (given) {
		if (vb_frame_parse_swp(&f, given))
			return IBV_WC_LOC_QP_OP_ERR;
		vb_frame_fill_checksums(&f, s->wr->checksums);
		vb_frame_parse(&f); /* what rules and receivers see does not depend on it */
	} else {
		vb_frame_parse(&f);
		vb_frame_fill_checksums(&f, s->wr->checksums);
	}
	return raw_finish(s, &f);
}

static int send_cut(struct sending *s)
{
	int status = IBV_WC_SUCCESS;
	uint64_t at = 0;

	if (!s->wr->mss || s->wr->len % s->wr->mss || s->wr->len > VB_MAX_TSO)
		return IBV_WC_LOC_LEN_ERR;
	for (; at < s->wr->len && status == IBV_WC_SUCCESS; at += s->wr->mss)
		status = send_one(s, at, s->wr->mss);
	return status;
}

static int send_each(struct sending *s)
{
	int status = IBV_WC_SUCCESS;
	uint64_t at = 0, len = 0;

	for (uint32_t i = 0; i < s->wr->num_sge && status == IBV_WC_SUCCESS; i++) {
		len += s->wr->sge[i].len;
		if (s->wr->sge[i].more)
			continue;
		status = send_one(s, at, len);
		at += len;
		len = 0;
	}
	return status;
}

/* --- large frames ----------------------------------------------------------------------------- */

static int read_payload(void *arg, uint8_t *to, uint32_t offset, uint32_t len)
{
	const struct sending *s = arg;

	return read_bytes(s, to, s->wr->header_len + (uint64_t)offset, len);
}

static int emit_segment(void *arg, struct vb_frame *segment)
{
	struct vb_swp swp;
	int status;

	if (swp_of(arg, &swp))
		vb_frame_parse(segment); /* as in send_one() */
	segment->headroom = TAG_ROOM;
	status = raw_finish(arg, segment);
	return status <= 0 ? status : -EMSGSIZE;
}

static int send_large(struct sending *s)
{
	struct vb_swp swp;
	struct vb_lso lso = {
		.header = s->qp->frame,
		.header_len = s->wr->header_len,
		.len = (uint32_t)s->wr->len,
		.mss = s->wr->mss,
		.checksums = s->wr->checksums,
		.swp = swp_of(s, &swp),
		.buffer = s->qp->frame + FRAME_AT,
		.room = VB_FRAME_MAX,
		.read = read_payload,
		.emit = emit_segment,
		.arg = s,
	};
	int ret;

	if (s->wr->header_len > HEADER_ROOM || s->wr->len < s->wr->header_len)
		return IBV_WC_LOC_QP_OP_ERR;
	if (s->wr->len - s->wr->header_len > VB_MAX_TSO)
		return IBV_WC_LOC_LEN_ERR;
	if (read_bytes(s, s->qp->frame, 0, s->wr->header_len))
		return IBV_WC_LOC_PROT_ERR;
	ret = vb_frame_segment(&lso);
	return ret >= 0                             ? IBV_WC_SUCCESS
	       : ret == -EAGAIN                     ? ret
	       : ret == -EFAULT                     ? IBV_WC_LOC_PROT_ERR
	       : ret == -ENOSPC || ret == -EMSGSIZE ? IBV_WC_LOC_LEN_ERR
						    : IBV_WC_LOC_QP_OP_ERR;
}

int vb_raw_send(struct vb_qp *qp, const struct vb_wr *wr, const struct iovec *iov, int cnt)
{
	struct sending s = { qp, wr, iov, cnt, 0 };

	if (wr->op == VB_WR_LSO)
		return send_large(&s);
	if (wr->frames != VB_FRAMES_ONE && qp->init.single_frames)
		return IBV_WC_LOC_QP_OP_ERR;
	switch (wr->frames) {
	case VB_FRAMES_CUT:
		return send_cut(&s);
	case VB_FRAMES_EACH:
		return send_each(&s);
	default:
		return send_one(&s, 0, wr->len);
	}
}

/* --- receive work queues ---------------------------------------------------------------------- */

/* To the error state only from the ready one, and out of it only by RESET. */
static int check_wq(uint32_t from, enum ibv_wq_state to)
{
	switch (to) {
	case IBV_WQS_RESET:
		return 0;
	case IBV_WQS_RDY:
		return from == IBV_QPS_RESET || from == IBV_QPS_RTR
			       ? 0
			       : vb_refuse_transition("ERR", "RDY", "WQ");
	case IBV_WQS_ERR:
		return from == IBV_QPS_RESET ? vb_refuse_transition("RESET", "ERR", "WQ") : 0;
	default:
		return vb_refuse_value("wq_state", to);
	}
}

/* Under rq.lock; an error on the data path may change the state meanwhile. */
static int change_wq(struct vb_qp *qp, enum ibv_wq_state to)
{
	uint32_t state = to == IBV_WQS_RDY   ? IBV_QPS_RTR
			 : to == IBV_WQS_ERR ? IBV_QPS_ERR
					     : IBV_QPS_RESET;
	uint32_t from = atomic_load_explicit(&qp->state, memory_order_acquire);
	int ret;

	do {
		ret = check_wq(from, to);
		if (ret)
			return ret;
	} while (!atomic_compare_exchange_weak_explicit(
		&qp->state, &from, state, memory_order_acq_rel, memory_order_acquire));
	if (to == IBV_WQS_RESET)
		vb_responder_reset(qp, 0, true);
	else if (to == IBV_WQS_ERR)
		vb_responder_flush(qp);
	return 0;
}

int vb_wq_modify(struct vb_qp *qp, enum ibv_wq_state to)
{
	int ret;

	if (vb_dev_stale(qp->dev))
		return vb_refuse_forked();
	if (!qp->init.wq)
		return vb_refuse_combination("this is a queue pair, not a receive work queue");
	vb_read_lock();
	vb_burst_begin(qp->card);
	vb_lock(&qp->rq.lock);
	ret = change_wq(qp, to);
	vb_unlock(&qp->rq.lock);
	vb_burst_end();
	vb_read_unlock();
	return ret;
}

void vb_wq_strip_vlan(struct vb_qp *qp, bool strip)
{
	vb_lock(&qp->rq.lock);
	qp->init.vlan_strip = strip;
	vb_unlock(&qp->rq.lock);
}

// SPDX-License-Identifier: MIT
/*
 * Owns raw Ethernet: frames that RAW_PACKET queues send, and who gets them.
 *
 *	send WQE --> frame, checksums filled in --+--> every receiver of the same adapter in this process, but the sender
 *	                                          |      |  a queue pair with a receive queue: that
 *	                                          |      +- one with an indirection table: the WQ that the hash names
 *	                                          +--> every other process of this host with receivers (vb_frame_send):
 *	                                               the same there
 *
 * There is no steering and no wire yet: a frame goes to all, as on a hub. A receiver without a WQE
 * loses it.
 *
 * The list of raw queue pairs that receive is read inside read sections and written under its lock.
 */
#include "card/internal.h"

#include <endian.h>
#include <errno.h>

#include "base/fault.h"
#include "base/rcu.h"
#include "frame/frame.h"

static bool is_receiver(const struct vb_qp *qp)
{
	return qp->rq.count || qp->rss || qp->init.srq;
}

/* With the lock: other processes send us frames while we have receivers. */
static void count_receiver(int change)
{
	unsigned int before = vb_card.raw.receivers;

	vb_card.raw.receivers += (unsigned int)change;
	if (!before != !vb_card.raw.receivers)
		vb_registry_listen(vb_card.raw.receivers);
}

void vb_raw_add(struct vb_qp *qp)
{
	struct vb_qp *next;

	if (!is_receiver(qp))
		return;
	vb_lock(&vb_card.raw.lock);
	next = atomic_load_explicit(&vb_card.raw.first, memory_order_relaxed);
	atomic_store_explicit(&qp->next_raw, next, memory_order_relaxed);
	if (next)
		next->raw_link = &qp->next_raw;
	qp->raw_link = &vb_card.raw.first;
	atomic_store_explicit(&vb_card.raw.first, qp, memory_order_release);
	count_receiver(1);
	vb_unlock(&vb_card.raw.lock);
}

/* The caller waits for readers before it frees the queue pair. */
void vb_raw_remove(struct vb_qp *qp)
{
	struct vb_qp *next;

	vb_lock(&vb_card.raw.lock);
	if (qp->raw_link) {
		next = atomic_load_explicit(&qp->next_raw, memory_order_relaxed);
		if (next)
			next->raw_link = qp->raw_link;
		/* A reader that is at the queue pair still finds the rest behind it. */
		atomic_store_explicit(qp->raw_link, next, memory_order_release);
		qp->raw_link = NULL;
		count_receiver(-1);
	}
	vb_unlock(&vb_card.raw.lock);
}

/* The parent's queue pairs are in no list of the child's. */
void vb_raw_forked(void)
{
	struct vb_qp *qp = atomic_load_explicit(&vb_card.raw.first, memory_order_relaxed);

	atomic_store_explicit(&vb_card.raw.lock.held, 0, memory_order_relaxed);
	atomic_store_explicit(&vb_card.raw.first, NULL, memory_order_relaxed);
	for (; qp; qp = atomic_load_explicit(&qp->next_raw, memory_order_relaxed))
		qp->raw_link = NULL;
	vb_card.raw.receivers = 0;
}

int vb_rss_check(const struct vb_dev *dev, const struct vb_rss *rss)
{
	for (uint32_t i = 0; i < rss->count; i++)
		if (!rss->wq[i] || rss->wq[i]->dev != dev || !rss->wq[i]->init.wq)
			return -EINVAL;
	return rss->count && rss->count <= VB_MAX_RSS && !(rss->count & (rss->count - 1)) ? 0
											  : -EINVAL;
}

/* --- frames ----------------------------------------------------------------------------------- */

static void deliver(struct vb_qp *to, const struct vb_frame *f, uint32_t status, uint16_t checksum)
{
	struct vb_completion c = {
		.byte_len = f->len,
		.frame_status = status,
		.frame_checksum = checksum,
		.vlan = f->outer.vlan[0],
		.has_vlan = f->outer.vlans,
	};
	uint32_t hash;

	if (to->rss) {
		hash = vb_frame_hash(f, to->rss->key, to->rss->fields, false, NULL);
		c.imm = htobe32(hash);
		to = to->rss->wq[hash & (to->rss->count - 1)];
	}
	if (is_receiver(to))
		vb_responder_frame(to, f->data, f->len, &c);
}

/* To the receivers of this process on an adapter; from: the sender, if it is one of ours. Inside a read section. */
static void deliver_all(__be64 adapter, const struct vb_qp *from, const struct vb_frame *f)
{
	uint32_t status = vb_mlx4_frame_status(f);
	uint16_t checksum = vb_frame_sum(f);
	struct vb_qp *to;

	for (to = atomic_load_explicit(&vb_card.raw.first, memory_order_acquire); to;
	     to = atomic_load_explicit(&to->next_raw, memory_order_acquire))
		if (to != from && to->dev->adapter->guid == adapter &&
		    vb_qp_receives(vb_qp_state(to)))
			deliver(to, f, status, checksum);
}

void vb_raw_receive(const struct vb_pkt *pkt)
{
	struct vb_frame f = { .data = pkt->iov->iov_base, .len = pkt->len };

	if (pkt->op != VB_PKT_SEND || f.len < VB_FRAME_HEADER)
		return;
	vb_frame_parse(&f);
	deliver_all(pkt->adapter, NULL, &f);
}

static void send_out(const struct vb_qp *qp, const struct vb_frame *f)
{
	struct iovec iov = { f->data, f->len };
	struct vb_pkt pkt = {
		.op = VB_PKT_SEND,
		.flags = VB_PKT_ONLY,
		.transport = IBV_QPT_RAW_PACKET,
		.sqpn = qp->number,
		.adapter = qp->dev->adapter->guid,
		.iov = &iov,
		.iov_cnt = 1,
		.len = f->len,
	};

	vb_frame_send(&pkt);
}

/* sq.lock is held, inside a read section. */
enum ibv_wc_status vb_raw_send(struct vb_qp *qp, const struct vb_wr *wr, const struct iovec *iov,
			       int cnt)
{
	struct vb_frame f = { .data = qp->frame };

	if (wr->op != VB_WR_SEND)
		return IBV_WC_LOC_QP_OP_ERR; /* large frames are not cut yet */
	if (wr->len < VB_FRAME_HEADER || wr->len > VB_FRAME_MAX)
		return IBV_WC_LOC_LEN_ERR;
	for (int i = 0; i < cnt; i++) {
		if (vb_fault_copy(f.data + f.len, iov[i].iov_base, iov[i].iov_len))
			return IBV_WC_LOC_PROT_ERR;
		f.len += (uint32_t)iov[i].iov_len;
	}
	vb_frame_parse(&f);
	vb_frame_fill_checksums(&f, (uint8_t)((wr->flags & VB_WR_IP_CSUM ? VB_CSUM_L3 : 0) |
					      (wr->flags & VB_WR_L4_CSUM ? VB_CSUM_L4 : 0)));
	deliver_all(qp->dev->adapter->guid, qp, &f);
	send_out(qp, &f);
	return IBV_WC_SUCCESS;
}

/* --- receive work queues ---------------------------------------------------------------------- */

int vb_wq_modify(struct vb_qp *qp, enum ibv_wq_state to)
{
	enum ibv_qp_state from = vb_qp_state(qp);

	if (vb_dev_stale(qp->dev))
		return vb_refuse_forked();
	if (!qp->init.wq)
		return vb_refuse_combination("this is a queue pair, not a receive work queue");
	switch (to) {
	case IBV_WQS_RESET:
		break;
	case IBV_WQS_RDY:
		if (from != IBV_QPS_RESET && from != IBV_QPS_RTR)
			return vb_refuse_transition("ERR", "RDY", "WQ");
		break;
	case IBV_WQS_ERR:
		if (from == IBV_QPS_RESET)
			return vb_refuse_transition("RESET", "ERR", "WQ");
		break;
	default:
		return vb_refuse_value("wq_state", to);
	}
	vb_read_lock();
	vb_burst_begin();
	vb_lock(&qp->rq.lock);
	atomic_store_explicit(&qp->state,
			      to == IBV_WQS_RDY   ? IBV_QPS_RTR
			      : to == IBV_WQS_ERR ? IBV_QPS_ERR
						  : IBV_QPS_RESET,
			      memory_order_release);
	if (to == IBV_WQS_RESET)
		vb_responder_reset(qp, 0, true);
	else if (to == IBV_WQS_ERR)
		vb_responder_flush(qp);
	vb_unlock(&qp->rq.lock);
	vb_burst_end();
	vb_read_unlock();
	return 0;
}

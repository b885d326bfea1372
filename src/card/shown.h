/* SPDX-License-Identifier: MIT */
/*
 * What the card shows to the tools of its user (control/show/): adapters that are open, queue pairs, and
 * what they moved. Counting is done in the queues; here are stores of what they counted, to memory
 * that others read and nobody here does.
 */
#pragma once

#include "card/queue/objects.h"
#include "card/transport/sides.h"
#include "control/show/layout.h"

void vb_show_qp(struct vb_qp *qp);
/* It goes, and what it moved counts for its adapter from now on. */
void vb_hide_qp(struct vb_qp *qp);

static inline void vb_show_state(const struct vb_qp *qp, uint32_t state)
{
	struct vb_monitor_qp *shown = qp->shown.entry;

	if (shown)
		atomic_store_explicit(&shown->state, state, memory_order_relaxed);
}

/* Both locks of the queue pair held. */
static inline void vb_show_peer(const struct vb_qp *qp)
{
	struct vb_monitor_qp *shown = qp->shown.entry;

	if (shown)
		atomic_store_explicit(&shown->peer, qp->attr.dest_qp_num, memory_order_relaxed);
}

/* The lock of the queue held. */
static inline void vb_show_sq(const struct vb_qp *qp)
{
	struct vb_monitor_qp *shown = qp->shown.entry;
	const struct vb_sq *sq = &qp->sq;

	if (__builtin_expect(!shown, 0))
		return;
	atomic_store_explicit(&shown->sq.sent, sq->traffic.sent, memory_order_relaxed);
	atomic_store_explicit(&shown->sq.received, sq->traffic.received, memory_order_relaxed);
	atomic_store_explicit(&shown->sq.packets, sq->sent_by.packets, memory_order_relaxed);
	atomic_store_explicit(&shown->sq.copies, sq->sent_by.copies, memory_order_relaxed);
	atomic_store_explicit(&shown->sq.stores, sq->sent_by.stores, memory_order_relaxed);
	atomic_store_explicit(&shown->sq.calls, sq->sent_by.calls, memory_order_relaxed);
	atomic_store_explicit(&shown->sq.retries, sq->rewinds, memory_order_relaxed);
}

static inline void vb_show_rq(const struct vb_qp *qp)
{
	struct vb_monitor_qp *shown = qp->shown.entry;
	const struct vb_rq *rq = &qp->rq;

	if (__builtin_expect(!shown, 0))
		return;
	atomic_store_explicit(&shown->rq.sent, rq->traffic.sent, memory_order_relaxed);
	atomic_store_explicit(&shown->rq.received, rq->traffic.received, memory_order_relaxed);
	atomic_store_explicit(&shown->rq.packets, rq->packets, memory_order_relaxed);
	atomic_store_explicit(&shown->rq.dropped, rq->dropped, memory_order_relaxed);
}

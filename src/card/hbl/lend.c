// SPDX-License-Identifier: MIT
/*
 * Owns lending: a queue pair whose peer is another process lets that peer do its writes, reads and
 * atomics itself (fabric/lend.h), so that no thread here wakes up for them.
 *
 *	RTR, connected --> lend: psn, produced --> window     the peer delivers; packets of the same peer are
 *	RESET, ERR, the CQ gets another user                  taken between vb_hbl_lent_take() and _show()
 *	               --> take back: wait, settle
 *
 * Lent is the responder's sequence number and its place in the CQ. A CQ has one writer, so a queue
 * pair is lent where its responder is the only user of its CQ. Whoever announces buffers takes no
 * part: it has to know of each write. All changes are made under the device's mutex; vb_hbl_recall()
 * alone may be called anywhere, and only ends what has not begun.
 */
#include "card/hbl/internal.h"

#include <endian.h>

#include "host/fault.h"

enum { CQE_VALID_BYTE = 3 };

static bool bit(const struct vb_hbl *hbl, uint32_t place)
{
	return hbl->lent[place / 64] >> place % 64 & 1;
}

static void set_bit(struct vb_hbl *hbl, uint32_t place, bool on)
{
	uint64_t mask = 1ull << place % 64;

	hbl->lent[place / 64] = (hbl->lent[place / 64] & ~mask) | (on ? mask : 0);
}

static bool may_lend(const struct vb_hbl_qp *qp, uint32_t place)
{
	/* As in do_write(), without those who count announced buffers. */
	const uint32_t takers = VB_HBL_WQ_WRITE | VB_HBL_WQ_SEND_RDV | VB_HBL_WQ_READ_RDV_ENDP;

	return qp->hbl->memory.window && vb_hbl_qp_receives(qp) && (qp->attr.wq_type & takers) &&
	       !(qp->attr.wq_type & VB_HBL_WQ_RECV_RDV) &&
	       atomic_load_explicit(&qp->connected, memory_order_acquire) &&
	       vb_path_can(&qp->path, VB_PATH_DIRECT) && qp->res_cq->users == 1 &&
	       !atomic_load_explicit(&qp->port->cut, memory_order_seq_cst) && !bit(qp->hbl, place);
}

/* What the responder would do. */
static uint32_t lend_takes(const struct vb_hbl_qp *qp)
{
	return VB_WINDOW_WRITE |
	       (qp->attr.wq_type == VB_HBL_WQ_READ_RDV_ENDP ? VB_WINDOW_READ : 0) |
	       (qp->attr.wq_type & VB_HBL_WQ_WRITE ? VB_WINDOW_ADD : 0);
}

/* rq.lock held. */
static void lend_fill(struct vb_hbl_qp *qp, struct vb_window_queue *queue, uint32_t self)
{
	const struct vb_hbl_cq_info *cq = &qp->res_cq->info;

	queue->self = self;
	queue->peer = qp->peer;
	queue->key = qp->attr.local_key;
	queue->cq = (uintptr_t)cq->mem;
	queue->index = (uintptr_t)cq->pi;
	queue->taken = (uintptr_t)cq->regs + cq->regs_offset;
	/* Gaudi2: the number of the queue is in the low half. */
	queue->taken_shift = qp->hbl->generation == VB_GAUDI2 ? 32 : 0;
	queue->entries = cq->entries;
	queue->takes = lend_takes(qp);
	/* It was idle when it was taken back. */
	atomic_store_explicit(&queue->busy, 0, memory_order_relaxed);
	atomic_store_explicit(&queue->messages, 0, memory_order_relaxed);
	atomic_store_explicit(&queue->bytes, 0, memory_order_relaxed);
	atomic_store_explicit(&queue->seen, vb_hbl_cq_produced(qp->res_cq) - cq->entries,
			      memory_order_relaxed); /* as if full: looked up at once */
}

void vb_hbl_lend(struct vb_hbl_qp *qp)
{
	struct vb_window_queue *queue;
	uint32_t self, place;

	if (!qp->port || atomic_load_explicit(&qp->lent, memory_order_relaxed))
		return;
	self = vb_hbl_address(qp->hbl->number, qp->port->number, qp->qpn);
	place = vb_window_place(self);
	if (!may_lend(qp, place))
		return;
	queue = &qp->hbl->memory.window->queue[place];
	set_bit(qp->hbl, place, true);
	qp->res_cq->lender = qp;
	vb_lock(&qp->rq.lock);
	lend_fill(qp, queue, self);
	atomic_store_explicit(&qp->lent, queue, memory_order_seq_cst);
	vb_hbl_lent_show(qp, queue);
	/* Pairs with take() in fabric/lend.c. */
	atomic_store_explicit(&queue->open, ++qp->hbl->lendings ? qp->hbl->lendings : 1,
			      memory_order_seq_cst);
	/* A failure that came before lent was there did not see it. */
	if (!vb_hbl_qp_receives(qp))
		vb_hbl_recall(qp);
	vb_unlock(&qp->rq.lock);
}

void vb_hbl_recall(struct vb_hbl_qp *qp)
{
	struct vb_window_queue *queue = atomic_load_explicit(&qp->lent, memory_order_seq_cst);

	if (queue)
		atomic_store_explicit(&queue->open, 0, memory_order_seq_cst);
}

static bool lend_is_valid(const struct vb_hbl_cq_info *cq, uint32_t count)
{
	uint8_t byte = 0;

	vb_fault_copy(&byte,
		      (char *)cq->mem + (size_t)(count & (cq->entries - 1)) * VB_HBL_CQE_SIZE +
			      CQE_VALID_BYTE,
		      1);
	return byte & 0x80;
}

/*
 * The peer ended while it delivered: a CQE that it wrote without counting it is counted now. The index
 * says so; where that was not written, the valid bit does, in a program that clears those.
 */
static void lend_count_last(struct vb_hbl_cq *cq)
{
	uint32_t produced = vb_hbl_cq_produced(cq);
	uint64_t index = 0;

	if (vb_fault_copy(&index, cq->info.pi, sizeof(index)))
		return;
	if ((uint32_t)le64toh(index) == produced + 1) {
		vb_hbl_cq_set_produced(cq, produced + 1);
	} else if (lend_is_valid(&cq->info, produced) && !lend_is_valid(&cq->info, produced - 1)) {
		index = htole64((uint64_t)(uint32_t)(produced + 1));
		vb_fault_copy(cq->info.pi, &index, sizeof(index));
		vb_hbl_cq_set_produced(cq, produced + 1);
	}
}

void vb_hbl_take_back(struct vb_hbl_qp *qp)
{
	struct vb_window_queue *queue = atomic_load_explicit(&qp->lent, memory_order_relaxed);
	struct vb_hbl_rq *rq = &qp->rq;
	bool unfinished;

	if (!queue)
		return;
	unfinished = vb_window_close(qp->hbl->card->fabric, queue);
	vb_lock(&rq->lock);
	vb_hbl_lent_take(qp, queue);
	if (unfinished)
		lend_count_last(qp->res_cq);
	rq->packets += atomic_load_explicit(&queue->messages, memory_order_relaxed);
	rq->bytes_received += atomic_load_explicit(&queue->bytes, memory_order_relaxed);
	atomic_store_explicit(&qp->lent, NULL, memory_order_relaxed);
	vb_unlock(&rq->lock);
	qp->res_cq->lender = NULL;
	set_bit(qp->hbl, vb_window_place(queue->self), false);
}

void vb_hbl_lent_take(struct vb_hbl_qp *qp, struct vb_window_queue *queue)
{
	uint32_t produced = atomic_load_explicit(&queue->produced, memory_order_relaxed);

	qp->rq.receiver.epsn = atomic_load_explicit(&queue->psn, memory_order_relaxed) & 0xffffff;
	if (produced != vb_hbl_cq_produced(qp->res_cq))
		vb_hbl_cq_set_produced(qp->res_cq, produced);
}

void vb_hbl_lent_show(struct vb_hbl_qp *qp, struct vb_window_queue *queue)
{
	atomic_store_explicit(&queue->psn, qp->rq.receiver.epsn, memory_order_relaxed);
	atomic_store_explicit(&queue->produced, vb_hbl_cq_produced(qp->res_cq),
			      memory_order_relaxed);
}

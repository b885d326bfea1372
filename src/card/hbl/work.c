// SPDX-License-Identifier: MIT
/*
 * Owns what hbl queue pairs do later, and the hbl side of the card's sink: work that is due, queue pairs that found no room,
 * timers. The same three lists as ../work.c has for verbs queue pairs, for the same reasons.
 */
#include "card/hbl/internal.h"

#include <errno.h>

#include "base/clock.h"
#include "base/rcu.h"

static struct {
	struct vb_lock lock; /* of the lists; never held over a call */
	struct vb_hbl_qp *work, *blocked, *timers;
	_Atomic uint32_t runnable, waiting; /* lengths */
	_Atomic uint64_t next_timer;
} pending = { .next_timer = UINT64_MAX };

enum { BUSY_AGAIN_NS = 50000 };

/* On one of the two lists exactly while its `work` is not 0; see enqueue() in ../work.c. */
static void enqueue(struct vb_hbl_qp *qp, enum vb_hbl_work what, struct vb_hbl_qp **list,
		    _Atomic uint32_t *length)
{
	if (atomic_fetch_or(&qp->work, what))
		return;
	vb_lock(&pending.lock);
	qp->next_work = *list;
	*list = qp;
	atomic_fetch_add_explicit(length, 1, memory_order_release);
	vb_unlock(&pending.lock);
}

void vb_hbl_work_add(struct vb_hbl_qp *qp, enum vb_hbl_work what)
{
	enqueue(qp, what, &pending.work, &pending.runnable);
}

void vb_hbl_work_block(struct vb_hbl_qp *qp, enum vb_hbl_work what)
{
	enqueue(qp, what, &pending.blocked, &pending.waiting);
}

static void unlink_work(struct vb_hbl_qp **list, struct vb_hbl_qp *qp, _Atomic uint32_t *length)
{
	for (; *list; list = &(*list)->next_work) {
		if (*list != qp)
			continue;
		*list = qp->next_work;
		atomic_fetch_sub_explicit(length, 1, memory_order_release);
		atomic_store(&qp->work, 0);
		return;
	}
}

static void unlink_timer(struct vb_hbl_qp *qp)
{
	if (!qp->sq.timed)
		return;
	if (qp->prev_timer)
		qp->prev_timer->next_timer = qp->next_timer;
	else
		pending.timers = qp->next_timer;
	if (qp->next_timer)
		qp->next_timer->prev_timer = qp->prev_timer;
	qp->next_timer = qp->prev_timer = NULL;
	qp->sq.timed = false;
}

void vb_hbl_work_remove(struct vb_hbl_qp *qp)
{
	/* A thread that is working on it may put it back once more; nobody does after a grace period. */
	for (int i = 0; i < 2; i++) {
		vb_lock(&pending.lock);
		unlink_work(&pending.work, qp, &pending.runnable);
		unlink_work(&pending.blocked, qp, &pending.waiting);
		unlink_timer(qp);
		vb_unlock(&pending.lock);
		vb_read_wait();
	}
}

void vb_hbl_timer_add(struct vb_hbl_qp *qp, uint64_t when)
{
	uint64_t next = atomic_load(&pending.next_timer);

	if (!qp->sq.timed) {
		vb_lock(&pending.lock);
		qp->sq.timed = true;
		qp->prev_timer = NULL;
		qp->next_timer = pending.timers;
		if (pending.timers)
			pending.timers->prev_timer = qp;
		pending.timers = qp;
		vb_unlock(&pending.lock);
	}
	while (when < next)
		if (atomic_compare_exchange_strong(&pending.next_timer, &next, when)) {
			vb_fabric_kick();
			break;
		}
}

static void work_on(struct vb_hbl_qp *qp)
{
	uint32_t what = atomic_exchange(&qp->work, 0);

	if (what & VB_HBL_WORK_ANSWER)
		vb_hbl_responder_answer(qp);
	if (what & VB_HBL_WORK_SEND) {
		vb_lock(&qp->sq.lock);
		vb_hbl_requester_run(qp);
		vb_unlock(&qp->sq.lock);
	}
}

static struct vb_hbl_qp *pop(struct vb_hbl_qp **list, _Atomic uint32_t *length)
{
	struct vb_hbl_qp *qp;

	vb_lock(&pending.lock);
	qp = *list;
	if (qp) {
		*list = qp->next_work;
		atomic_fetch_sub_explicit(length, 1, memory_order_release);
	}
	vb_unlock(&pending.lock);
	return qp;
}

static void sooner(uint64_t *next, uint64_t when)
{
	*next = *next < when ? *next : when;
}

/* One look at every timer. A queue in use by another thread is looked at again a little later. */
static void run_timers(uint64_t now)
{
	uint64_t next = UINT64_MAX, none = UINT64_MAX;
	struct vb_hbl_qp *qp, *following;

	atomic_store(&pending.next_timer, UINT64_MAX);
	vb_lock(&pending.lock);
	for (qp = pending.timers; qp; qp = following) {
		bool keep;

		following = qp->next_timer;
		if (!vb_trylock(&qp->sq.lock)) {
			sooner(&next, now + BUSY_AGAIN_NS);
			continue;
		}
		vb_unlock(&pending.lock);
		keep = vb_hbl_requester_timer(qp, now, &next);
		vb_lock(&pending.lock);
		/* Taken off meanwhile: where the list goes on from here is not known. */
		if (!qp->sq.timed)
			sooner(&next, now + BUSY_AGAIN_NS);
		following = qp->next_timer;
		if (!keep)
			unlink_timer(qp);
		vb_unlock(&qp->sq.lock);
	}
	vb_unlock(&pending.lock);
	/* A timer added meanwhile may be earlier. */
	while (next < none && !atomic_compare_exchange_strong(&pending.next_timer, &none, next))
		;
}

uint64_t vb_hbl_work(void)
{
	uint32_t blocked = atomic_load(&pending.waiting);
	struct vb_hbl_qp *qp;
	uint64_t now;

	while (atomic_load_explicit(&pending.runnable, memory_order_acquire)) {
		qp = pop(&pending.work, &pending.runnable);
		if (qp)
			work_on(qp);
	}
	while (blocked--) {
		qp = pop(&pending.blocked, &pending.waiting);
		if (!qp)
			break;
		work_on(qp);
	}
	if (atomic_load_explicit(&pending.next_timer, memory_order_relaxed) != UINT64_MAX) {
		now = vb_now_ns();
		if (now >= atomic_load(&pending.next_timer))
			run_timers(now);
	}
	return atomic_load(&pending.next_timer);
}

enum vb_pending vb_hbl_pending(void)
{
	if (atomic_load_explicit(&pending.runnable, memory_order_acquire))
		return VB_PENDING_RUNNABLE;
	return atomic_load_explicit(&pending.waiting, memory_order_acquire) ? VB_PENDING_BLOCKED
									    : VB_PENDING_NONE;
}

void vb_hbl_forked(void)
{
	pending.lock.held = 0;
	pending.work = pending.blocked = pending.timers = NULL;
	pending.runnable = pending.waiting = 0;
	pending.next_timer = UINT64_MAX;
	vb_hbl_forget_devices();
}

/* --- packets ---------------------------------------------------------------------------------------------------- */

int vb_hbl_receive(const struct vb_pkt *pkt)
{
	struct vb_hbl_qp *qp = vb_hbl_qp_find(pkt->dqpn & 0xffffff);

	/* Only from the peer that it is connected to. */
	if (!qp || !vb_hbl_qp_receives(qp) || pkt->sqpn != qp->peer)
		return 0;
	if (pkt->op < VB_PKT_ACK)
		return vb_hbl_responder_receive(qp, pkt);
	vb_hbl_requester_receive(qp, pkt);
	return 0;
}

int vb_hbl_send(struct vb_hbl_qp *qp, struct vb_pkt *pkt)
{
	int ret;

	pkt->transport = VB_TRANSPORT_HBL;
	pkt->dqpn = qp->peer;
	pkt->sqpn = vb_hbl_address(qp->hbl->number, qp->port->number, qp->qpn);
	if (!vb_hbl_qp_connect(qp))
		return 0; /* nobody there: lost, the timer will tell */
	if (qp->path.kind == VB_PATH_LOOP)
		return vb_hbl_receive(pkt);
	ret = vb_path_send(&qp->path, pkt);
	return ret == -EAGAIN || ret == -EFAULT ? ret : 0;
}

// SPDX-License-Identifier: MIT
/*
 * Owns what hbl queue pairs do later (the lists are ../later.c's), and the hbl side of the card's sink.
 */
#include "card/hbl/internal.h"

#include <errno.h>
#include <stddef.h>

#include "base/clock.h"

static void run(struct vb_later_item *item, uint32_t what);
static struct vb_lock *lock_of(struct vb_later_item *item);
static bool run_timer(struct vb_later_item *item, uint64_t now, uint64_t *next);
static void run_others(uint64_t now, uint64_t *next);

static struct vb_later later = { .next_timer = UINT64_MAX,
				 .run = run,
				 .lock_of = lock_of,
				 .timer = run_timer,
				 .also = run_others };

static struct vb_hbl_qp *to_qp(struct vb_later_item *item)
{
	return (struct vb_hbl_qp *)((char *)item - offsetof(struct vb_hbl_qp, later));
}

void vb_hbl_work_add(struct vb_hbl_qp *qp, enum vb_hbl_work what)
{
	vb_later_add(&later, &qp->later, what);
}

void vb_hbl_work_block(struct vb_hbl_qp *qp, enum vb_hbl_work what)
{
	vb_later_block(&later, &qp->later, what);
}

void vb_hbl_work_remove(struct vb_hbl_qp *qp)
{
	vb_later_remove(&later, &qp->later);
}

void vb_hbl_timer_add(struct vb_hbl_qp *qp, uint64_t when)
{
	vb_later_time(&later, &qp->later);
	vb_later_look(&later, when);
}

void vb_hbl_work_look(void)
{
	vb_later_look(&later, 0);
}

static void run(struct vb_later_item *item, uint32_t what)
{
	struct vb_hbl_qp *qp = to_qp(item);

	if (what & VB_HBL_WORK_ANSWER)
		vb_hbl_responder_answer(qp);
	if (what & VB_HBL_WORK_STALL) {
		vb_lock(&qp->sq.lock);
		vb_hbl_timer_add(qp, vb_now_ns() + VB_HBL_FULL_LOOK_NS);
		vb_unlock(&qp->sq.lock);
	}
	if (what & VB_HBL_WORK_SEND) {
		vb_lock(&qp->sq.lock);
		vb_hbl_requester_run(qp);
		vb_unlock(&qp->sq.lock);
	}
}

static struct vb_lock *lock_of(struct vb_later_item *item)
{
	return &to_qp(item)->sq.lock;
}

static bool run_timer(struct vb_later_item *item, uint64_t now, uint64_t *next)
{
	return vb_hbl_requester_timer(to_qp(item), now, next);
}

static void run_others(uint64_t now, uint64_t *next)
{
	vb_hbl_fifo_run_deferred();
}

uint64_t vb_hbl_work(void)
{
	return vb_later_run(&later);
}

enum vb_pending vb_hbl_pending(void)
{
	return vb_later_pending(&later);
}

void vb_hbl_forked(void)
{
	vb_later_forked(&later);
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
	if (vb_path_can(&qp->path, VB_PATH_CALLS))
		return vb_hbl_receive(pkt);
	ret = vb_path_send(&qp->path, pkt);
	return ret == -EAGAIN || ret == -EFAULT ? ret : 0;
}

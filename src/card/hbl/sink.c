// SPDX-License-Identifier: MIT
/*
 * Owns what hbl queue pairs do later and with time, and the hbl side of the card's sink
 * (../sink.c).
 */
#include "card/hbl/internal.h"

#include <errno.h>

#include "base/time.h"
#include "base/rcu.h"
#include "base/util.h"

void vb_hbl_work_add(struct vb_hbl_qp *qp, enum vb_hbl_work what)
{
	vb_defer(&qp->deferred, what);
}

void vb_hbl_work_block(struct vb_hbl_qp *qp, enum vb_hbl_work what)
{
	vb_defer_blocked(&qp->deferred, what);
}

void vb_hbl_timer_add(struct vb_hbl_qp *qp, uint64_t when)
{
	vb_alarm_set(&qp->timer, when);
}

static void hbl_sink_run(struct vb_deferred *item, uint32_t what)
{
	struct vb_hbl_qp *qp = container_of(item, struct vb_hbl_qp, deferred);

	vb_burst_begin(qp->hbl->card);
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
	vb_burst_end();
}

static void hbl_sink_tell(struct vb_notice *notice, uint64_t events)
{
	struct vb_hbl_qp *qp = container_of(notice, struct vb_hbl_qp, notice);

	vb_hbl_tell(qp->hbl, events, qp->cookie, qp->port->number);
}

void vb_hbl_work_init(struct vb_hbl_qp *qp)
{
	vb_deferred_init(&qp->deferred, qp->hbl->card, hbl_sink_run);
	qp->notice.tell = hbl_sink_tell;
	qp->timer = (struct vb_alarm){ .card = qp->hbl->card,
				       .lock = &qp->sq.lock,
				       .look = vb_hbl_requester_look };
}

void vb_hbl_work_remove(struct vb_hbl_qp *qp)
{
	vb_deferred_remove(&qp->deferred);
	vb_read_lock();
	vb_lock(&qp->sq.lock);
	vb_alarm_clear(&qp->timer);
	vb_unlock(&qp->sq.lock);
	vb_read_unlock();
	vb_read_wait(); /* a last look may have an event to deliver */
}

/* --- packets ---------------------------------------------------------------------------------- */

int vb_hbl_receive(struct vb_card *card, const struct vb_pkt *pkt)
{
	struct vb_hbl_qp *qp = vb_hbl_qp_find(card, pkt->dqpn & 0xffffff);

	/* Only from the peer that it is connected to. */
	if (!qp || !vb_hbl_qp_receives(qp) || pkt->sqpn != qp->peer ||
	    atomic_load_explicit(&qp->port->cut, memory_order_relaxed))
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
		return vb_hbl_receive(qp->hbl->card, pkt);
	ret = vb_path_send(&qp->path, pkt);
	return ret == -EAGAIN || ret == -EFAULT ? ret : 0;
}

// SPDX-License-Identifier: MIT
/*
 * Owns what verbs queue pairs do later (the lists are later.c's), alarms of completion queues, and the card's side of
 * the fabric.
 */
#include "card/internal.h"

#include <stddef.h>

#include "base/rcu.h"
#include "card/hbl/internal.h"
#include "base/barrier.h"

static void run(struct vb_later_item *item, uint32_t what);
static struct vb_lock *lock_of(struct vb_later_item *item);
static bool run_timer(struct vb_later_item *item, uint64_t now, uint64_t *next);
static void run_others(uint64_t now, uint64_t *next);

static struct vb_later later = { .next_timer = UINT64_MAX,
				 .run = run,
				 .lock_of = lock_of,
				 .timer = run_timer,
				 .also = run_others };

static struct vb_qp *to_qp(struct vb_later_item *item)
{
	return (struct vb_qp *)((char *)item - offsetof(struct vb_qp, later));
}

void vb_work_add(struct vb_qp *qp, enum vb_work what)
{
	vb_later_add(&later, &qp->later, what);
}

void vb_work_block(struct vb_qp *qp, enum vb_work what)
{
	vb_later_block(&later, &qp->later, what);
}

void vb_work_remove(struct vb_qp *qp)
{
	vb_later_remove(&later, &qp->later);
}

void vb_timer_add(struct vb_qp *qp)
{
	if (!qp->later.timed) {
		qp->sq.sender.recent = true;
		vb_later_time(&later, &qp->later);
	} else if (!qp->sq.sender.rnr_until) {
		return;
	}
	vb_work_look();
}

void vb_work_look(void)
{
	vb_later_look(&later, 0);
}

/* --- alarms: completion queues whose events wait for time to pass ---------------------------------------------------- */

static struct {
	struct vb_lock lock; /* held for a few instructions, never over a call */
	struct vb_alarm *first;
} alarms;

void vb_alarm_set(struct vb_alarm *alarm, uint64_t due)
{
	bool added;

	vb_lock(&alarms.lock);
	added = !alarm->set;
	if (added) {
		alarm->set = true;
		alarm->due = due;
		alarm->prev = NULL;
		alarm->next = alarms.first;
		if (alarms.first)
			alarms.first->prev = alarm;
		alarms.first = alarm;
	}
	vb_unlock(&alarms.lock);
	if (added)
		vb_work_look();
}

static void unlink_alarm(struct vb_alarm *alarm)
{
	if (alarm->prev)
		alarm->prev->next = alarm->next;
	else
		alarms.first = alarm->next;
	if (alarm->next)
		alarm->next->prev = alarm->prev;
	alarm->set = false;
}

void vb_alarm_clear(struct vb_alarm *alarm)
{
	vb_lock(&alarms.lock);
	if (alarm->set)
		unlink_alarm(alarm);
	vb_unlock(&alarms.lock);
}

/* Ring what is due, one at a time: ringing may set alarms. Lowers *next to the first that is not. */
static void run_alarms(uint64_t now, uint64_t *next)
{
	struct vb_alarm *alarm;

	do {
		vb_lock(&alarms.lock);
		for (alarm = alarms.first; alarm && alarm->due > now; alarm = alarm->next)
			*next = *next < alarm->due ? *next : alarm->due;
		if (alarm)
			unlink_alarm(alarm);
		vb_unlock(&alarms.lock);
		if (alarm)
			alarm->ring(alarm);
	} while (alarm);
}

static void look_drained(struct vb_qp *qp)
{
	bool event = false;

	vb_lock(&qp->sq.lock);
	if (qp->state == IBV_QPS_SQD && qp->drained_event && !vb_sender_busy(&qp->sq.sender) &&
	    !qp->sq.sent) {
		qp->drained_event = false;
		event = true;
	}
	vb_unlock(&qp->sq.lock);
	if (event)
		vb_qp_event(qp, IBV_EVENT_SQ_DRAINED);
}

/* --- the sink ------------------------------------------------------------------------------------------------------ */

static void run(struct vb_later_item *item, uint32_t what)
{
	struct vb_qp *qp = to_qp(item);

	if (what & VB_WORK_ACK)
		vb_responder_answer(qp);
	if (what & VB_WORK_SEND) {
		vb_lock(&qp->sq.lock);
		vb_requester_run(qp);
		vb_unlock(&qp->sq.lock);
	}
	if (what & (VB_WORK_FLUSH | VB_WORK_FLUSH_SQ))
		vb_qp_flush(qp, what);
	if (what & VB_WORK_DRAINED)
		look_drained(qp);
}

static struct vb_lock *lock_of(struct vb_later_item *item)
{
	return &to_qp(item)->sq.lock;
}

static bool run_timer(struct vb_later_item *item, uint64_t now, uint64_t *next)
{
	return vb_requester_timer(to_qp(item), now, next);
}

static void run_others(uint64_t now, uint64_t *next)
{
	vb_uar_run_deferred();
	run_alarms(now, next);
}

static uint64_t card_work(void)
{
	uint64_t hbl_timer = vb_hbl_work(), timer = vb_later_run(&later);

	return timer < hbl_timer ? timer : hbl_timer;
}

static enum vb_pending card_pending(void)
{
	enum vb_pending ours = vb_later_pending(&later), hbl = vb_hbl_pending();

	return ours == VB_PENDING_RUNNABLE || hbl == VB_PENDING_NONE ? ours : hbl;
}

/* The acknowledgement that a request carries. */
static void take_acknowledgement(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_pkt ack = { .op = VB_PKT_ACK,
			      .syndrome = VB_SYN_ACK,
			      .sqpn = pkt->sqpn,
			      .psn = pkt->acked_psn & 0xffffff };

	if ((pkt->flags & VB_PKT_ACKS) && vb_transport_type(pkt->transport) == IBV_QPT_RC)
		vb_requester_receive(qp, &ack);
}

static void card_receive(const struct vb_pkt *pkt)
{
	struct vb_qp *qp;
	bool waited_for;

	if (__builtin_expect(pkt->transport == VB_TRANSPORT_HBL, 0)) {
		vb_hbl_receive(pkt);
		return;
	}
	vb_burst_begin();
	if (__builtin_expect(pkt->transport == IBV_QPT_RAW_PACKET, 0)) {
		vb_raw_receive(pkt);
		return;
	}
	qp = vb_qp_find(pkt->dqpn);
	if (!qp)
		return;
	if (pkt->op >= VB_PKT_ACK) {
		vb_requester_receive(qp, pkt);
		return;
	}
	vb_burst_before(pkt->len);
	/*
	 * Who waits for events sees the order of completions and expects its own before the answer; who polls looks
	 * for the answer, and gets it first.
	 */
	waited_for = vb_cq_armed(qp->init.send_cq) || qp->init.send_cq == qp->init.recv_cq;
	if (waited_for)
		take_acknowledgement(qp, pkt);
	vb_responder_receive(qp, pkt, NULL, NULL);
	if (!waited_for)
		take_acknowledgement(qp, pkt);
}

static void card_received(void)
{
	vb_burst_end();
}

/* A forked child has none of its parent's queue pairs. */
static void card_forked(void)
{
	vb_later_forked(&later);
	alarms.lock.held = 0;
	alarms.first = NULL;
	vb_raw_forked();
	vb_hbl_forked();
}

const struct vb_sink vb_card_sink = {
	.is_local = vb_adapter_gid_is_local,
	.forked = card_forked,
	.receive = card_receive,
	.received = card_received,
	.work = card_work,
	.pending = card_pending,
};

void vb_qp_set_direct(struct vb_qp *qp)
{
	atomic_store(&qp->direct, true);
	vb_qp_ring_rq(qp); /* where it is in the error state already, looking begins here */
}

static __attribute__((noinline, cold)) void flush_posted(struct vb_qp *qp)
{
	if (vb_dev_stale(qp->dev))
		return;
	vb_read_lock();
	vb_lock(&qp->rq.lock);
	vb_responder_flush(qp);
	vb_unlock(&qp->rq.lock);
	vb_read_unlock();
}

void vb_qp_ring_rq(struct vb_qp *qp)
{
	/* Record written, state read; pairs with vb_responder_flush(), where it is state written, record read. */
	vb_barrier_light_own();
	if (atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_ERR)
		flush_posted(qp);
}

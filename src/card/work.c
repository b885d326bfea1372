// SPDX-License-Identifier: MIT
/*
 * Owns what is done later: the work list, the list of blocked queue pairs, timers, and the card's side of the fabric.
 *
 *	work     queue pairs with something to do now (an acknowledgement due, a flush): done by whoever makes
 *	         progress next, with no queue lock held
 *	blocked  queue pairs that found no room on their path: tried again by every progress
 *	timers   queue pairs with packets in flight or a wait to end: looked at by the background thread
 *	alarms   completion queues whose events wait for time to pass
 */
#include "card/internal.h"

#include "base/clock.h"
#include "base/rcu.h"
#include "card/hbl/internal.h"

static struct {
	struct vb_lock
		lock; /* of the three lists; held for a few instructions, never over a call */
	struct vb_qp *work, *blocked, *timers;
	struct vb_alarm *alarms;
	_Atomic uint32_t runnable, waiting; /* lengths of work and blocked; read without the lock */
	_Atomic uint64_t next_timer;
} pending = { .next_timer = UINT64_MAX };

/*
 * A queue pair is on one of the two lists exactly while its `work` is not 0: who makes it so puts it there, who takes it
 * off takes the bits after that. So adding to what is due already costs one instruction.
 */
static void enqueue(struct vb_qp *qp, enum vb_work what, struct vb_qp **list,
		    _Atomic uint32_t *length)
{
	if (atomic_fetch_or(&qp->work, what))
		return;
	vb_lock(&pending.lock);
	qp->next_work = *list;
	*list = qp;
	atomic_store_explicit(length, *length + 1, memory_order_release);
	vb_unlock(&pending.lock);
}

void vb_work_add(struct vb_qp *qp, enum vb_work what)
{
	enqueue(qp, what, &pending.work, &pending.runnable);
}

void vb_work_block(struct vb_qp *qp, enum vb_work what)
{
	enqueue(qp, what, &pending.blocked, &pending.waiting);
}

static void unlink_work(struct vb_qp **list, struct vb_qp *qp, _Atomic uint32_t *length)
{
	for (; *list; list = &(*list)->next_work) {
		if (*list != qp)
			continue;
		*list = qp->next_work;
		atomic_store_explicit(length, *length - 1, memory_order_release);
		return;
	}
}

static void unlink_timer(struct vb_qp *qp)
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

void vb_work_remove(struct vb_qp *qp)
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

void vb_timer_add(struct vb_qp *qp)
{
	bool added;

	if (qp->sq.timed && !qp->sq.rnr_until)
		return;
	vb_lock(&pending.lock);
	added = !qp->sq.timed;
	if (added) {
		qp->sq.timed = qp->sq.recent = true;
		qp->prev_timer = NULL;
		qp->next_timer = pending.timers;
		if (pending.timers)
			pending.timers->prev_timer = qp;
		pending.timers = qp;
	}
	vb_unlock(&pending.lock);
	vb_work_look();
}

/* Somebody has to look. Allowed in a signal handler that interrupted the card. */
void vb_work_look(void)
{
	atomic_store(&pending.next_timer, 0);
	vb_fabric_kick();
}

void vb_alarm_set(struct vb_alarm *alarm, uint64_t due)
{
	bool added;

	vb_lock(&pending.lock);
	added = !alarm->set;
	if (added) {
		alarm->set = true;
		alarm->due = due;
		alarm->prev = NULL;
		alarm->next = pending.alarms;
		if (pending.alarms)
			pending.alarms->prev = alarm;
		pending.alarms = alarm;
	}
	vb_unlock(&pending.lock);
	if (!added)
		return;
	atomic_store(&pending.next_timer, 0); /* somebody has to look */
	vb_fabric_kick();
}

static void unlink_alarm(struct vb_alarm *alarm)
{
	if (alarm->prev)
		alarm->prev->next = alarm->next;
	else
		pending.alarms = alarm->next;
	if (alarm->next)
		alarm->next->prev = alarm->prev;
	alarm->set = false;
}

void vb_alarm_clear(struct vb_alarm *alarm)
{
	vb_lock(&pending.lock);
	if (alarm->set)
		unlink_alarm(alarm);
	vb_unlock(&pending.lock);
}

/* Ring what is due, one at a time: ringing may set alarms. Lowers *next to the first that is not. */
static void run_alarms(uint64_t now, uint64_t *next)
{
	struct vb_alarm *alarm;

	do {
		vb_lock(&pending.lock);
		for (alarm = pending.alarms; alarm && alarm->due > now; alarm = alarm->next)
			*next = *next < alarm->due ? *next : alarm->due;
		if (alarm)
			unlink_alarm(alarm);
		vb_unlock(&pending.lock);
		if (alarm)
			alarm->ring(alarm);
	} while (alarm);
}

/* --- errors met on the data path --------------------------------------------------------------------------------- */

void vb_qp_fail(struct vb_qp *qp, enum ibv_event_type event, bool has_event)
{
	uint32_t state = atomic_exchange(&qp->state, IBV_QPS_ERR);

	atomic_store(&qp->shared->ready, 0);
	if (state == IBV_QPS_ERR)
		return;
	vb_work_add(qp, VB_WORK_FLUSH);
	if (has_event)
		vb_qp_event(qp, event);
}

void vb_qp_fail_sq(struct vb_qp *qp)
{
	uint32_t rts = IBV_QPS_RTS;

	if (atomic_compare_exchange_strong(&qp->state, &rts, IBV_QPS_SQE))
		vb_work_add(qp, VB_WORK_FLUSH_SQ);
}

static void flush(struct vb_qp *qp, uint32_t what)
{
	vb_lock(&qp->sq.lock);
	/* Not if the program has moved the QP on in the meantime. */
	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE)
		vb_requester_flush(qp);
	vb_unlock(&qp->sq.lock);
	if (!(what & VB_WORK_FLUSH))
		return;
	vb_lock(&qp->rq.lock);
	if (qp->state == IBV_QPS_ERR)
		vb_responder_flush(qp);
	vb_unlock(&qp->rq.lock);
	if (qp->init.srq)
		vb_qp_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

static void look_drained(struct vb_qp *qp)
{
	bool event = false;

	vb_lock(&qp->sq.lock);
	if (qp->state == IBV_QPS_SQD && qp->drained_event && qp->sq.in_head == qp->sq.in_tail &&
	    !qp->sq.sent) {
		qp->drained_event = false;
		event = true;
	}
	vb_unlock(&qp->sq.lock);
	if (event)
		vb_qp_event(qp, IBV_EVENT_SQ_DRAINED);
}

/* --- the sink ------------------------------------------------------------------------------------------------------ */

static void work_on(struct vb_qp *qp)
{
	uint32_t what = atomic_exchange(&qp->work, 0); /* a later addition queues it again */

	if (what & VB_WORK_ACK)
		vb_responder_answer(qp);
	if (what & VB_WORK_SEND) {
		vb_lock(&qp->sq.lock);
		vb_requester_run(qp);
		vb_unlock(&qp->sq.lock);
	}
	if (what & (VB_WORK_FLUSH | VB_WORK_FLUSH_SQ))
		flush(qp, what);
	if (what & VB_WORK_DRAINED)
		look_drained(qp);
}

static struct vb_qp *pop(struct vb_qp **list, _Atomic uint32_t *length)
{
	struct vb_qp *qp;

	vb_lock(&pending.lock);
	qp = *list;
	if (qp) {
		*list = qp->next_work;
		atomic_store_explicit(length, *length - 1, memory_order_release);
	}
	vb_unlock(&pending.lock);
	return qp;
}

/* One look at every timer. A queue that is in use by another thread is looked at again a little later. */
static void run_timers(uint64_t now)
{
	uint64_t next = UINT64_MAX;
	struct vb_qp *qp, *following;

	atomic_store(&pending.next_timer, UINT64_MAX);
	vb_uar_run_deferred();
	vb_lock(&pending.lock);
	for (qp = pending.timers; qp; qp = following) {
		bool keep;

		following = qp->next_timer;
		if (!vb_trylock(&qp->sq.lock)) {
			next = next < now + 50000 ? next : now + 50000;
			continue;
		}
		vb_unlock(&pending.lock);
		keep = vb_requester_timer(qp, now, &next);
		vb_lock(&pending.lock);
		/* Taken off meanwhile, by who destroys it: where the list goes on from here is not known any more. */
		if (!qp->sq.timed)
			next = next < now + 50000 ? next : now + 50000;
		following = qp->next_timer;
		if (!keep)
			unlink_timer(qp);
		vb_unlock(&qp->sq.lock);
	}
	vb_unlock(&pending.lock);
	run_alarms(now, &next);
	/* A timer added meanwhile has stored 0; keep that. */
	now = UINT64_MAX;
	atomic_compare_exchange_strong(&pending.next_timer, &now, next);
}

static uint64_t card_work(void)
{
	uint32_t blocked = atomic_load(&pending.waiting);
	uint64_t hbl_timer = vb_hbl_work(), timer;
	struct vb_qp *qp;
	uint64_t now;

	while (atomic_load_explicit(&pending.runnable, memory_order_acquire)) {
		qp = pop(&pending.work, &pending.runnable);
		if (qp)
			work_on(qp);
	}
	/* Each blocked queue pair once: those that block again are put back in front. */
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
	timer = atomic_load(&pending.next_timer);
	return timer < hbl_timer ? timer : hbl_timer;
}

static enum vb_pending card_pending(void)
{
	enum vb_pending hbl = vb_hbl_pending();

	if (hbl == VB_PENDING_RUNNABLE ||
	    atomic_load_explicit(&pending.runnable, memory_order_acquire))
		return VB_PENDING_RUNNABLE;
	return atomic_load_explicit(&pending.waiting, memory_order_acquire) ? VB_PENDING_BLOCKED
									    : hbl;
}

/* The acknowledgement that a request carries. */
static void take_acknowledgement(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_pkt ack = { .op = VB_PKT_ACK,
			      .syndrome = VB_SYN_ACK,
			      .sqpn = pkt->sqpn,
			      .psn = pkt->msn_qkey & 0xffffff };

	if ((pkt->flags & VB_PKT_ACKS) && pkt->transport == IBV_QPT_RC)
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
	qp = vb_qp_find(pkt->dqpn);
	if (!qp)
		return;
	if (pkt->op >= VB_PKT_ACK) {
		vb_requester_receive(qp, pkt);
		return;
	}
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

/* A forked child has none of its parent's queue pairs. */
static void card_forked(void)
{
	pending.lock.held = 0;
	vb_raw_forked();
	pending.work = pending.blocked = pending.timers = NULL;
	pending.alarms = NULL;
	pending.runnable = pending.waiting = 0;
	pending.next_timer = UINT64_MAX;
	vb_hbl_forked();
}

const struct vb_sink vb_card_sink = {
	.forked = card_forked,
	.receive = card_receive,
	.work = card_work,
	.pending = card_pending,
};

void vb_qp_ring_rq(struct vb_qp *qp)
{
	if (vb_dev_stale(qp->dev) || vb_qp_state(qp) != IBV_QPS_ERR)
		return;
	vb_read_lock();
	vb_lock(&qp->rq.lock);
	vb_responder_flush(qp);
	vb_unlock(&qp->rq.lock);
	vb_read_unlock();
}

// SPDX-License-Identifier: MIT
/*
 * Owns completion queues: writing CQEs, overrun, arming.
 *
 *	ci (dbr[0], driver)            pi (card)
 *	      v                          v
 *	[ polled | CQEs to poll ........ | free ... ]     owner bit = (index / cqe_cnt) & 1, seen by the driver
 */
#include "card/queue/cq.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>

#include "base/time.h"
#include "base/rcu.h"
#include "base/util.h"
#include "card/device.h"
#include "card/fault/fault.h"
#include "card/queue/objects.h"

enum { CI_MASK = 0xffffff };

_Static_assert(VB_CQ_CI_FROM_RECORD == VB_BELL_CI_FROM_RECORD, "doorbells arm with it");

/* In what a notice has to tell: the rest counts notifications. */
#define OVERRUN (1ull << 32)

static bool cq_look(struct vb_alarm *alarm, uint64_t now, uint64_t *next);
static void cq_tell(struct vb_notice *notice, uint64_t what);

struct vb_cq *vb_cq_find(struct vb_card *card, uint32_t number)
{
	return number <= VB_CQ_MAX
		       ? atomic_load_explicit(&card->tables.cq[number], memory_order_acquire)
		       : NULL;
}

/* The part of an entry that the codec writes. */
static void *cq_content(const struct vb_cq *cq, void *buf)
{
	return (char *)buf + cq->attr.cqe_size - cq->codec->cqe_size;
}

static bool size_is_valid(const struct vb_codec *codec, uint32_t size)
{
	return size == codec->cqe_size || size == 2 * codec->cqe_size;
}

static bool is_moderated(const struct vb_cq *cq)
{
	return cq->attr.always_armed || cq->attr.moderation.max_count ||
	       cq->attr.moderation.period_us;
}

int vb_cq_create(struct vb_dev *dev, const struct vb_cq_attr *attr, struct vb_cq **out)
{
	struct vb_card *card = vb_dev_card(dev);
	const struct vb_codec *codec = vb_adapter_codec(dev->adapter);
	struct vb_cq *cq;
	int64_t number;
	int ret;

	if (!attr->buf || !attr->dbr || !attr->cqe_cnt || (attr->cqe_cnt & (attr->cqe_cnt - 1)) ||
	    !size_is_valid(codec, attr->cqe_size) || (attr->compressed && !codec->minis))
		return vb_refuse_combination(
			"a ring that is no power of two, or of another format");
	ret = vb_inject_create(dev, VB_INJECT_CQ);
	if (ret)
		return ret;
	number = vb_ids_take(&card->numbers.cq, dev->adapter->max_cq);
	if (number < 0)
		return vb_refuse_limit("completion queues", dev->adapter->max_cq);
	cq = aligned_alloc(64, (sizeof(*cq) + 63) & ~(size_t)63);
	if (!cq)
		goto give_number;
	*cq = (struct vb_cq){
		.dev = dev,
		.number = (uint32_t)number,
		.attr = *attr,
		.codec = codec,
		.sn = 1,
		.last_event = vb_now_ns(), /* the first period counts from here */
	};
	cq->attr.buf = cq_content(cq, attr->buf);
	cq->attr.ignore_overrun |= attr->collapsed;
	cq->slots = attr->collapsed ? 0 : attr->cqe_cnt - 1;
	cq->turn_mask = attr->compressed && !attr->basic_minis ? 0xff : 0;
	cq->turn_shift = (uint8_t)__builtin_ctz(attr->cqe_cnt);
	cq->alarm.card = card;
	cq->alarm.lock = &cq->lock;
	cq->alarm.look = cq_look;
	cq->notice.tell = cq_tell;
	cq->moderated = is_moderated(cq);
	/* A collapsed CQ has one entry, and shows what was last. */
	if (attr->compressed && !attr->collapsed) {
		cq->minis = vb_minis_new(attr);
		if (!cq->minis)
			goto free_cq;
	}
	if (attr->always_armed) {
		atomic_store_explicit(&cq->arm, VB_ARM_ANY, memory_order_relaxed);
		vb_fabric_armed(card->fabric, 1);
	}
	atomic_store_explicit(&card->tables.cq[number], cq, memory_order_release);
	atomic_fetch_add_explicit(&dev->objects, 1, memory_order_release);
	*out = cq;
	return 0;

free_cq:
	free(cq);
give_number:
	vb_ids_give(&card->numbers.cq, (uint32_t)number);
	return vb_refuse_memory("the completion queue");
}

/* Nobody sets it any more. */
static void clear_alarm(struct vb_cq *cq)
{
	vb_card_enter();
	vb_lock(&cq->lock);
	vb_alarm_clear(&cq->alarm);
	vb_unlock(&cq->lock);
	vb_card_leave();
	vb_read_wait(); /* its last look may have an event to deliver */
}

int vb_cq_check_unused(const struct vb_cq *cq)
{
	return atomic_load_explicit(&cq->refs, memory_order_acquire)
		       ? vb_refuse_busy("queue pairs, SRQs or emulated queues")
		       : 0;
}

int vb_cq_destroy(struct vb_cq *cq)
{
	struct vb_card *card = vb_dev_card(cq->dev);
	int ret = vb_cq_check_unused(cq);

	if (ret)
		return ret;
	atomic_store_explicit(&card->tables.cq[cq->number], NULL, memory_order_release);
	if (!vb_dev_stale(cq->dev)) {
		vb_read_wait(); /* no doorbell finds it any more, and nobody takes it by number */
		ret = vb_cq_check_unused(cq);
		if (ret) {
			atomic_store_explicit(&card->tables.cq[cq->number], cq,
					      memory_order_release);
			return ret;
		}
		if (cq->moderated)
			clear_alarm(cq);
		if (cq->arm != VB_ARM_NONE)
			vb_fabric_armed(card->fabric, -1);
		atomic_fetch_sub_explicit(&cq->dev->objects, 1, memory_order_release);
		vb_fabric_freed(card->fabric,
				sizeof(*cq) + (size_t)cq->attr.cqe_cnt * cq->attr.cqe_size);
	}
	vb_ids_give(&card->numbers.cq, cq->number);
	vb_minis_free(cq->minis);
	free(cq);
	return 0;
}

struct vb_cq *vb_cq_get(struct vb_dev *dev, uint32_t number)
{
	struct vb_cq *cq;

	vb_read_lock();
	cq = vb_cq_find(vb_dev_card(dev), number);
	if (cq && cq->dev == dev)
		atomic_fetch_add_explicit(&cq->refs, 1, memory_order_release);
	else
		cq = NULL;
	vb_read_unlock();
	return cq;
}

void vb_cq_put(struct vb_cq *cq)
{
	atomic_fetch_sub_explicit(&cq->refs, 1, memory_order_release);
}

uint32_t vb_cq_number(const struct vb_cq *cq)
{
	return cq->number;
}

uint32_t vb_cq_produced(struct vb_cq *cq, bool *lost)
{
	uint32_t pi;

	vb_lock(&cq->lock);
	pi = cq->pi;
	*lost = cq->overrun;
	vb_unlock(&cq->lock);
	return pi;
}

static uint32_t cq_consumer_index(const struct vb_cq *cq)
{
	/* Pairs with the driver's store after it has read the CQEs. */
	return be32toh(atomic_load_explicit((_Atomic uint32_t *)&cq->attr.dbr[0],
					    memory_order_acquire)) &
	       CI_MASK;
}

uint32_t vb_cq_consumed(const struct vb_cq *cq)
{
	return cq_consumer_index(cq);
}

static bool is_full(const struct vb_cq *cq)
{
	return !cq->attr.ignore_overrun &&
	       ((cq->pi - cq_consumer_index(cq)) & CI_MASK) >= cq->attr.cqe_cnt;
}

/* Whether index a lies behind (after) b in the circle of consumer indices. */
static bool index_behind(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) > 0;
}

/* A consumer index as a count of CQEs: that of the last 2^24 which it can mean. */
static int64_t counted_index(const struct vb_cq *cq, uint32_t ci)
{
	return cq->count - ((int32_t)((cq->pi - ci) << 8) >> 8);
}

/* The lock is held: an event is due, and what it announces must be in the ring. */
static void complete_ring(struct vb_cq *cq)
{
	if (cq->minis)
		vb_minis_write(cq);
}

/* --- CQs that are always armed or moderated: the lock is held, arm is not VB_ARM_NONE --------- */

/* Whether the CQEs that wait make an event now. If not, and if time will, the alarm is set. */
static bool cq_is_due(struct vb_cq *cq)
{
	const struct vb_cq_moderation *m = &cq->attr.moderation;
	uint64_t now;

	if (m->max_count && ((cq->pi - cq->base) & CI_MASK) >= m->max_count)
		return true;
	if (!m->period_us)
		return !m->max_count;
	now = vb_now_ns();
	cq->deadline = (m->from_cqe ? now : cq->last_event) + m->period_us * 1000ull;
	if (cq->deadline <= now)
		return true;
	vb_alarm_set(&cq->alarm, cq->deadline);
	return false;
}

/* An event is out that announces all there is to a driver whose index is ci. */
static void note_event(struct vb_cq *cq, uint32_t ci)
{
	if (!cq->attr.always_armed)
		atomic_store_explicit(&cq->arm, VB_ARM_NONE, memory_order_relaxed);
	cq->announced = cq->count;
	cq->announced_ci = counted_index(cq, ci);
	cq->sn++;
}

static void cq_announce(struct vb_cq *cq)
{
	complete_ring(cq);
	note_event(cq, cq_consumer_index(cq));
	cq->base = cq->pi;
	if (cq->attr.moderation.period_us)
		cq->last_event = vb_now_ns();
}

static bool moderated_ends(struct vb_cq *cq)
{
	if (!cq_is_due(cq))
		return false;
	cq_announce(cq);
	return true;
}

/* Whether this CQE ends the arming. */
static bool ends_arming(struct vb_cq *cq, const struct vb_completion *completion)
{
	bool solicited = completion->status != IBV_WC_SUCCESS ||
			 (completion->receive && (completion->flags & VB_WR_SOLICITED));

	if (solicited)
		cq->solicited = cq->count;
	if (cq->arm == VB_ARM_NONE || (cq->arm == VB_ARM_SOLICITED && !solicited))
		return false;
	if (cq->moderated)
		return moderated_ends(cq);
	note_event(cq, cq_consumer_index(cq));
	return true;
}

/* An event is due. The program is told at the end of the burst, once for each. */
static void fire(struct vb_cq *cq)
{
	if (!cq->attr.always_armed)
		vb_fabric_armed(vb_dev_card(cq->dev)->fabric, -1);
	if (cq->attr.notify)
		vb_notice_add(&cq->notice, 1);
}

static void cq_tell(struct vb_notice *notice, uint64_t what)
{
	struct vb_cq *cq = container_of(notice, struct vb_cq, notice);

	for (uint32_t n = (uint32_t)what; n; n--)
		cq->attr.notify(cq->attr.cookie);
	if (what & OVERRUN)
		vb_object_event(cq->dev, cq->attr.event, cq->attr.cookie, IBV_EVENT_CQ_ERR);
}

static void cq_write_cqe(struct vb_cq *cq, struct vb_completion *completion)
{
	uint32_t at = cq->pi & cq->slots;

	completion->turn = (uint8_t)(cq->pi >> cq->turn_shift) & cq->turn_mask;
	cq->codec->completion((char *)cq->attr.buf + (size_t)at * cq->attr.cqe_size, completion,
			      cq->pi & cq->attr.cqe_cnt);
}

/* As mlx5 has it in CQEs. */
static uint64_t time_of_day(void)
{
	enum { SECOND = 1000000000 };
	uint64_t ns = vb_wall_ns();

	return ns / SECOND << 32 | ns % SECOND;
}

/*
 * The CQ was overrun: it takes no CQE any more, and a queue pair whose CQE is lost fails (IBTA
 * 11.6.3.2, CQ error and local work queue catastrophic error). The program is told once of each.
 * The queue pair is found without a read section: the caller completes its work and keeps it.
 */
static __attribute__((noinline, cold)) void cq_lose(struct vb_cq *cq,
						    const struct vb_completion *completion)
{
	struct vb_qp *qp = vb_qp_find(vb_dev_card(cq->dev), completion->qpn);

	vb_note(LOST, .object = cq->number, .name = vb_timeline_name("CQE"));
	if (!cq->overrun)
		vb_notice_add(&cq->notice, OVERRUN);
	cq->overrun = true;
	if (qp && (qp->init.send_cq == cq || qp->init.recv_cq == cq))
		vb_qp_fail(qp, IBV_EVENT_QP_FATAL, true);
}

bool vb_cq_push_locked(struct vb_cq *cq, struct vb_completion *completion)
{
	if (cq->attr.timestamps)
		completion->timestamp =
			completion->real_time || cq->attr.real_time ? time_of_day() : vb_clock();
	if (unlikely(cq->overrun || is_full(cq))) {
		cq_lose(cq, completion);
		return false;
	}
	/* Before the program can see it. */
	vb_note(CQE, .object = cq->number, .code = (uint8_t)completion->status,
		.value = completion->byte_len,
		.extra = vb_note_done(completion->qpn, completion->wqe_index, completion->receive));
	if (!cq->minis || !vb_minis_add(cq, completion))
		cq_write_cqe(cq, completion);
	cq->pi++;
	cq->count++;
	if (ends_arming(cq, completion)) {
		complete_ring(cq);
		fire(cq);
	}
	return true;
}

bool vb_cq_push(struct vb_cq *cq, struct vb_completion *completion)
{
	bool pushed;

	vb_lock(&cq->lock);
	pushed = vb_cq_push_locked(cq, completion);
	vb_unlock(&cq->lock);
	return pushed;
}

/*
 * The lock is held, and vb_fabric_armed() counts us already. Returns whether an event is due at
 * once.
 */
static bool cq_arm(struct vb_cq *cq, bool solicited, uint32_t ci)
{
	int64_t last, at = counted_index(cq, ci);
	bool due;

	/* Arming for any completion is not weakened by a later arming for solicited ones. */
	if (cq->arm != VB_ARM_ANY)
		atomic_store_explicit(&cq->arm, solicited ? VB_ARM_SOLICITED : VB_ARM_ANY,
				      memory_order_relaxed);
	/*
	 * A CQE that was neither polled nor announced came before this arming and would be missed.
	 * One that an event has announced is not announced again to a program that arms first and
	 * polls then. A program that has polled since, and left the CQE there, may wait for an
	 * event now.
	 */
	last = cq->arm == VB_ARM_ANY ? cq->count : cq->solicited;
	if (cq->moderated) {
		/* What waits counts, from the program's index on. */
		cq->base = ci;
		return last > at && moderated_ends(cq);
	}
	due = last > at && (last > cq->announced || at != cq->announced_ci);
	if (due) {
		complete_ring(cq);
		note_event(cq, ci);
	}
	return due;
}

/* Around an arming doorbell, which cq_arm() or a part of it carries out. */
static void begin_arming(struct vb_cq *cq, bool *counted)
{
	vb_read_lock();
	vb_fabric_armed(vb_dev_card(cq->dev)->fabric, 1);
	vb_burst_begin(vb_dev_card(cq->dev));
	vb_lock(&cq->lock);
	*counted = cq->arm == VB_ARM_NONE;
}

static void end_arming(struct vb_cq *cq, bool counted, bool due)
{
	vb_unlock(&cq->lock);
	if (!counted)
		vb_fabric_armed(vb_dev_card(cq->dev)->fabric, -1);
	if (due)
		fire(cq);
	vb_burst_end();
	vb_read_unlock();
}

void vb_cq_arm(struct vb_cq *cq, bool solicited)
{
	bool counted;

	if (vb_dev_stale(cq->dev))
		return;
	begin_arming(cq, &counted);
	end_arming(cq, counted, cq_arm(cq, solicited, cq_consumer_index(cq)));
}

void vb_cq_arm_index(struct vb_cq *cq, bool solicited, uint32_t ci)
{
	bool counted;

	if (vb_dev_stale(cq->dev))
		return;
	begin_arming(cq, &counted);
	end_arming(cq, counted, cq_arm(cq, solicited, ci & CI_MASK));
}

void vb_cq_arm_sn(struct vb_cq *cq, unsigned int sn, bool solicited, uint32_t ci)
{
	bool due = false, counted;

	if (vb_dev_stale(cq->dev))
		return;
	if (ci == VB_CQ_CI_FROM_RECORD)
		ci = be32toh(atomic_load_explicit((_Atomic uint32_t *)&cq->attr.dbr[1],
						  memory_order_acquire));
	begin_arming(cq, &counted);
	if ((sn & 3) == (cq->sn & 3))
		due = cq_arm(cq, solicited, ci & CI_MASK);
	else
		counted = false; /* a doorbell of an arming whose event is out already */
	end_arming(cq, counted, due);
}

void vb_cq_arm_at(struct vb_cq *cq, uint32_t ci)
{
	bool due, counted;

	if (vb_dev_stale(cq->dev))
		return;
	begin_arming(cq, &counted);
	atomic_store_explicit(&cq->arm, VB_ARM_ANY, memory_order_relaxed);
	cq->base = ci & CI_MASK;
	due = index_behind(cq->pi, ci) && (!cq->moderated || cq_is_due(cq));
	if (due)
		cq_announce(cq);
	end_arming(cq, counted, due);
}

/* The time of a moderated CQ is over, unless CQEs have put it off. */
static bool cq_look(struct vb_alarm *alarm, uint64_t now, uint64_t *next)
{
	struct vb_cq *cq = container_of(alarm, struct vb_cq, alarm);

	if (cq->arm == VB_ARM_NONE || !index_behind(cq->pi, cq->base))
		return false;
	if (now < cq->deadline) {
		vb_sooner(next, cq->deadline);
		return true;
	}
	cq_announce(cq);
	fire(cq);
	return false;
}

void vb_cq_set_moderation(struct vb_cq *cq, const struct vb_cq_moderation *moderation)
{
	bool due;

	vb_read_lock();
	vb_burst_begin(vb_dev_card(cq->dev));
	vb_lock(&cq->lock);
	cq->attr.moderation = *moderation;
	/* Once moderated it stays so: see clear_alarm(). */
	cq->moderated |= is_moderated(cq);
	vb_alarm_clear(&cq->alarm);
	/* What waits is judged anew. */
	due = cq->arm != VB_ARM_NONE && index_behind(cq->pi, cq->base) && cq->moderated &&
	      cq_is_due(cq);
	if (due)
		cq_announce(cq);
	vb_unlock(&cq->lock);
	if (due)
		fire(cq);
	vb_burst_end();
	vb_read_unlock();
}

struct vb_cq_moderation vb_cq_moderation(struct vb_cq *cq)
{
	struct vb_cq_moderation moderation;

	vb_card_enter();
	vb_lock(&cq->lock);
	moderation = cq->attr.moderation;
	vb_unlock(&cq->lock);
	vb_card_leave();
	return moderation;
}

void vb_cq_set_ignore_overrun(struct vb_cq *cq, bool ignore)
{
	vb_card_enter();
	vb_lock(&cq->lock);
	cq->attr.ignore_overrun = ignore || cq->attr.collapsed;
	vb_unlock(&cq->lock);
	vb_card_leave();
}

enum vb_cq_arming vb_cq_arming(struct vb_cq *cq)
{
	switch ((enum vb_arm)atomic_load_explicit(&cq->arm, memory_order_relaxed)) {
	case VB_ARM_ANY:
		return VB_CQ_ARMED;
	case VB_ARM_SOLICITED:
		return VB_CQ_ARMED_SOLICITED;
	default:
		return VB_CQ_NOT_ARMED;
	}
}

/* The lock is held: from here on CQEs go to another ring. */
static void use_ring(struct vb_cq *cq, void *buf, uint32_t cqe_cnt)
{
	cq->attr.buf = cq_content(cq, buf);
	cq->attr.cqe_cnt = cqe_cnt;
	cq->slots = cqe_cnt - 1;
	cq->turn_shift = (uint8_t)__builtin_ctz(cqe_cnt);
	if (cq->minis)
		vb_minis_moved(cq);
}

int vb_cq_move(struct vb_cq *cq, void *buf, uint32_t cqe_cnt)
{
	int ret = 0;

	if (!buf || !cqe_cnt || (cqe_cnt & (cqe_cnt - 1)) || cq->attr.collapsed ||
	    !cq->codec->moved)
		return vb_refuse_combination("a ring of this kind cannot be resized");
	vb_card_enter();
	vb_lock(&cq->lock);
	complete_ring(cq);
	if (is_full(cq) || ((cq->pi - cq_consumer_index(cq)) & CI_MASK) > cqe_cnt) {
		ret = -ENOSPC;
	} else {
		uint32_t at = cq->pi & cq->slots;

		cq->codec->moved((char *)cq->attr.buf + (size_t)at * cq->attr.cqe_size,
				 (uint8_t)(cq->pi >> cq->turn_shift) & cq->turn_mask,
				 cq->pi & cq->attr.cqe_cnt);
		cq->pi++;
		cq->count++;
		use_ring(cq, buf, cqe_cnt);
	}
	vb_unlock(&cq->lock);
	vb_card_leave();
	return ret;
}

int vb_cq_resize(struct vb_cq *cq, void *buf, uint32_t cqe_cnt,
		 uint32_t (*copy)(void *arg, void *buf, uint32_t cqe_cnt), void *arg)
{
	uint32_t ci, unpolled;
	int ret = 0;

	if (!buf || !cqe_cnt || (cqe_cnt & (cqe_cnt - 1)) || cq->attr.collapsed)
		return vb_refuse_combination("a ring of this kind cannot be resized");
	vb_card_enter();
	vb_lock(&cq->lock);
	complete_ring(cq);
	ci = cq_consumer_index(cq);
	/*
	 * The driver counts what it has not handed out; where that does not fit, it has copied
	 * nothing.
	 */
	unpolled = copy(arg, buf, cqe_cnt);
	if (unpolled > cqe_cnt) {
		ret = vb_refuse_range("completions that wait", unpolled, 0, cqe_cnt);
	} else {
		cq->count = counted_index(cq, ci) + unpolled;
		cq->pi = ci + unpolled;
		cq->solicited = cq->solicited < cq->count ? cq->solicited : cq->count;
		cq->announced = cq->announced < cq->count ? cq->announced : cq->count;
		use_ring(cq, buf, cqe_cnt);
	}
	vb_unlock(&cq->lock);
	vb_card_leave();
	return ret;
}

// SPDX-License-Identifier: MIT
/*
 * Owns shared receive queues: taking WQEs along the driver's linked list (or in the order of the
 * ring), taking them back unused, and the limit event.
 */
#include "card/queue/srq.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>

#include "base/rcu.h"
#include "base/util.h"
#include "card/device.h"
#include "card/fault/fault.h"
#include "card/queue/objects.h"

static void srq_tell(struct vb_notice *notice, uint64_t count);

int vb_srq_create(struct vb_dev *dev, const struct vb_srq_attr *attr, struct vb_srq **out)
{
	struct vb_card *card = vb_dev_card(dev);
	struct vb_srq *srq;
	int64_t number;
	int ret;

	if (!attr->buf || !attr->dbr || !attr->pd || attr->pd->dev != dev || !attr->wqe_cnt ||
	    (attr->wqe_cnt & (attr->wqe_cnt - 1)))
		return vb_refuse_combination(
			"no memory, no domain, or a ring that is no power of two");
	ret = vb_inject_create(dev, VB_INJECT_SRQ);
	if (ret)
		return ret;
	number = vb_ids_take(&card->numbers.srq, dev->adapter->max_srq);
	if (number < 0)
		return vb_refuse_limit("SRQs", dev->adapter->max_srq);
	srq = aligned_alloc(64, (sizeof(*srq) + 63) & ~(size_t)63);
	if (!srq) {
		vb_ids_give(&card->numbers.srq, (uint32_t)number);
		return vb_refuse_memory("the SRQ");
	}
	*srq = (struct vb_srq){
		.dev = dev,
		.number = (uint32_t)number,
		.attr = *attr,
		.codec = vb_adapter_codec(dev->adapter),
		.limit = attr->limit,
		.notice.tell = srq_tell,
	};
	atomic_store_explicit(&card->tables.srq[number], srq, memory_order_release);
	atomic_fetch_add_explicit(&dev->objects, 1, memory_order_release);
	atomic_fetch_add_explicit(&attr->pd->refs, 1, memory_order_release);
	*out = srq;
	return 0;
}

int vb_srq_check_unused(const struct vb_srq *srq)
{
	return atomic_load_explicit(&srq->refs, memory_order_acquire)
		       ? vb_refuse_busy("queue pairs")
		       : 0;
}

int vb_srq_destroy(struct vb_srq *srq)
{
	struct vb_card *card = vb_dev_card(srq->dev);
	int ret = vb_srq_check_unused(srq);

	if (ret)
		return ret;
	atomic_store_explicit(&card->tables.srq[srq->number], NULL, memory_order_release);
	if (!vb_dev_stale(srq->dev)) {
		vb_read_wait(); /* nobody takes it by number any more */
		ret = vb_srq_check_unused(srq);
		if (ret) {
			atomic_store_explicit(&card->tables.srq[srq->number], srq,
					      memory_order_release);
			return ret;
		}
	}
	atomic_fetch_sub_explicit(&srq->dev->objects, 1, memory_order_release);
	atomic_fetch_sub_explicit(&srq->attr.pd->refs, 1, memory_order_release);
	vb_ids_give(&card->numbers.srq, srq->number);
	if (!vb_dev_stale(srq->dev))
		vb_fabric_freed(card->fabric,
				sizeof(*srq) + ((size_t)srq->attr.wqe_cnt << srq->attr.wqe_shift));
	free(srq->back);
	free(srq);
	return 0;
}

uint32_t vb_srq_number(const struct vb_srq *srq)
{
	return srq->number;
}

struct vb_srq *vb_srq_get(struct vb_dev *dev, uint32_t number)
{
	struct vb_card *card = vb_dev_card(dev);
	struct vb_srq *srq = NULL;

	vb_read_lock();
	if (number <= VB_SRQ_MAX)
		srq = atomic_load_explicit(&card->tables.srq[number], memory_order_acquire);
	if (srq && srq->dev == dev && !srq->attr.single)
		atomic_fetch_add_explicit(&srq->refs, 1, memory_order_release);
	else
		srq = NULL;
	vb_read_unlock();
	return srq;
}

void vb_srq_put(struct vb_srq *srq)
{
	atomic_fetch_sub_explicit(&srq->refs, 1, memory_order_release);
}

static uint16_t posted(const struct vb_srq *srq)
{
	/* Pairs with the driver's store after it has written the WQEs. */
	uint32_t record =
		atomic_load_explicit((_Atomic uint32_t *)&srq->attr.dbr[0], memory_order_acquire);

	return (uint16_t)be32toh(record);
}

/* One event per arming, when fewer WQEs than the limit are left. */
static void check_limit(struct vb_srq *srq)
{
	uint32_t left = (uint16_t)(posted(srq) - srq->consumed) + srq->given;

	if (!srq->limit || left >= srq->limit)
		return;
	srq->limit = 0;
	vb_notice_add(&srq->notice, 1);
}

static void srq_tell(struct vb_notice *notice, uint64_t count)
{
	struct vb_srq *srq = container_of(notice, struct vb_srq, notice);

	for (; count; count--)
		vb_object_event(srq->dev, srq->attr.event, srq->attr.cookie,
				IBV_EVENT_SRQ_LIMIT_REACHED);
}

int vb_srq_set_limit(struct vb_srq *srq, uint32_t limit)
{
	if (limit >= srq->attr.wqe_cnt)
		return vb_refuse_range("srq_limit", limit, 0, srq->attr.wqe_cnt - 1);
	if (vb_dev_stale(srq->dev))
		return vb_refuse_forked();
	vb_read_lock();
	vb_burst_begin(vb_dev_card(srq->dev));
	vb_lock(&srq->lock);
	srq->limit = limit;
	check_limit(srq);
	vb_unlock(&srq->lock);
	vb_burst_end();
	vb_read_unlock();
	return 0;
}

uint32_t vb_srq_limit(struct vb_srq *srq)
{
	uint32_t limit;

	/* An event disarms it, in any thread. */
	vb_card_enter();
	vb_lock(&srq->lock);
	limit = srq->limit;
	vb_unlock(&srq->lock);
	vb_card_leave();
	return limit;
}

void vb_srq_counters(struct vb_srq *srq, uint16_t *taken, uint16_t *posted_so_far)
{
	vb_card_enter();
	vb_lock(&srq->lock);
	*taken = (uint16_t)(srq->consumed - srq->given);
	*posted_so_far = posted(srq);
	vb_unlock(&srq->lock);
	vb_card_leave();
}

static const char *srq_wqe_at(const struct vb_srq *srq, uint16_t index)
{
	return (const char *)srq->attr.buf + ((size_t)index << srq->attr.wqe_shift);
}

int vb_srq_take(struct vb_srq *srq, uint16_t *index, struct vb_sge *sge)
{
	const char *wqe;
	int ret;

	vb_lock(&srq->lock);
	if (__builtin_expect(srq->given, 0)) {
		*index = srq->back[--srq->given];
		wqe = srq_wqe_at(srq, *index);
	} else if (posted(srq) == srq->consumed) {
		vb_unlock(&srq->lock);
		return -EAGAIN;
	} else {
		/* The link comes from program memory: masked, so that it never leaves the ring. */
		*index = srq->head & (uint16_t)(srq->attr.wqe_cnt - 1);
		wqe = srq_wqe_at(srq, *index);
		srq->head = srq->attr.cyclic ? (uint16_t)(srq->head + 1) : srq->codec->next(wqe);
		srq->consumed++;
	}
	ret = srq->codec->receive(wqe, 1u << srq->attr.wqe_shift,
				  !srq->attr.cyclic || srq->attr.idle_link, sge);
	check_limit(srq);
	vb_unlock(&srq->lock);
	return ret;
}

void vb_srq_give(struct vb_srq *srq, uint16_t index)
{
	vb_lock(&srq->lock);
	if (!srq->back)
		srq->back = calloc(srq->attr.wqe_cnt, sizeof(*srq->back));
	/* No more than there are, whatever the links of the program say. */
	if (srq->back && srq->given < srq->attr.wqe_cnt)
		srq->back[srq->given++] = index;
	vb_unlock(&srq->lock);
}

// SPDX-License-Identifier: MIT
/*
 * Owns RMPs: receive queues that several QPs take their receives from. To the card they are shared
 * receive queues, in the order of the ring or linked.
 */
#include "queue.h"

#include "base/lock.h"
#include "card/queue/srq.h"

struct flexio_rmp {
	struct queue queue; /* first */
	struct vb_srq *card;
	struct vb_dev *dev;
	unsigned int users;      /* QPs; this and next under rmp_lock of the process */
	struct flexio_rmp *next; /* in its bucket */
};

/* Numbers are consecutive, so the buckets fill evenly. */
static struct flexio_rmp **rmp_bucket_of(struct flexio_process *process, uint32_t number)
{
	return &process->rmps[number % RMP_BUCKETS];
}

/* ---- by number ---- */

struct flexio_rmp *vb_rmp_hold(struct flexio_process *process, const struct queue_place *place,
			       uint32_t number)
{
	struct flexio_rmp *rmp;

	vb_lock(&process->rmp_lock);
	for (rmp = *rmp_bucket_of(process, number); rmp; rmp = rmp->next)
		if (rmp->dev == place->dev && vb_srq_number(rmp->card) == number)
			break;
	if (rmp)
		rmp->users++;
	vb_unlock(&process->rmp_lock);
	return rmp;
}

struct vb_srq *vb_rmp_card(struct flexio_rmp *rmp)
{
	return rmp->card;
}

void vb_rmp_release(struct flexio_rmp *rmp)
{
	vb_lock(&rmp->queue.process->rmp_lock);
	rmp->users--;
	vb_unlock(&rmp->queue.process->rmp_lock);
}

static void rmp_table_add(struct flexio_rmp *rmp)
{
	struct flexio_process *process = rmp->queue.process;
	struct flexio_rmp **bucket = rmp_bucket_of(process, vb_srq_number(rmp->card));

	vb_lock(&process->rmp_lock);
	rmp->next = *bucket;
	*bucket = rmp;
	vb_unlock(&process->rmp_lock);
}

/* False: QPs use it. */
static bool rmp_table_remove(struct flexio_rmp *rmp)
{
	struct flexio_process *process = rmp->queue.process;
	struct flexio_rmp **link = rmp_bucket_of(process, vb_srq_number(rmp->card));
	bool idle;

	vb_lock(&process->rmp_lock);
	idle = !rmp->users;
	while (idle && *link != rmp)
		link = &(*link)->next;
	if (idle)
		*link = rmp->next;
	vb_unlock(&process->rmp_lock);
	return idle;
}

/* ---- create and destroy ---- */

static void rmp_event(void *cookie, enum ibv_event_type type)
{
	struct flexio_rmp *rmp = cookie;

	vb_queue_log_event("RMP", vb_srq_number(rmp->card), type);
}

static int rmp_make_card(struct flexio_rmp *rmp, const struct queue_place *place,
			 const struct flexio_wq_attr *attr)
{
	struct vb_srq_attr card = { .anonymous = true, .cookie = rmp, .event = rmp_event };
	int err;

	CARD_WORDS(words);
	err = vb_wq_memory(&rmp->queue, place, attr, &card);
	if (err)
		return err;
	card.pd = vb_queue_pd(rmp->queue.process, place, attr->pd);
	if (!card.pd)
		return -EINVAL;
	err = vb_srq_create(place->dev, &card, &rmp->card);
	return err ? vb_queue_refused("RMP", place, &words, err) : 0;
}

flexio_status flexio_rmp_create(struct flexio_process *process, struct ibv_context *ibv_ctx,
				const struct flexio_wq_attr *fattr,
				struct flexio_rmp **flexio_rmp_ptr)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	struct queue_place place;
	struct flexio_rmp *rmp;

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	if (!fattr || !flexio_rmp_ptr)
		return fail("%s is NULL", !fattr ? "fattr" : "flexio_rmp_ptr");
	if (vb_queue_place(process, ibv_ctx, &place))
		return failed();
	rmp = vb_queue_new(QUEUE_RMP, process, place.ctx, sizeof(*rmp));
	if (!rmp)
		return failed();
	rmp->dev = place.dev;
	if (rmp_make_card(rmp, &place, fattr)) {
		vb_queue_free(&rmp->queue);
		return failed();
	}
	if (!vb_queue_publish(&rmp->queue)) {
		vb_srq_destroy(rmp->card);
		vb_queue_free(&rmp->queue);
		return failed();
	}
	rmp_table_add(rmp);
	*flexio_rmp_ptr = rmp;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_rmp_destroy(struct flexio_rmp *flexio_rmp)
{
	struct flexio_rmp *rmp = flexio_rmp;

	API_CALL();
	if (!rmp)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_queue_end(QUEUE_RMP, rmp))
		return bad_handle(rmp, "RMP");
	if (!rmp_table_remove(rmp)) {
		vb_queue_revive(&rmp->queue);
		return fail("QPs still use RMP 0x%x; destroy them first", vb_srq_number(rmp->card));
	}
	vb_srq_destroy(rmp->card);
	vb_queue_free(&rmp->queue);
	return FLEXIO_STATUS_SUCCESS;
}

uint32_t flexio_rmp_get_wq_num(struct flexio_rmp *rmp)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_RMP, rmp);

	API_CALL();
	if (!pin) {
		bad_handle(rmp, "RMP");
		return UINT32_MAX;
	}
	return vb_srq_number(rmp->card);
}

// SPDX-License-Identifier: MIT
/*
 * Owns counter sets: what happened to the queues that name one by its number. A queue counts under
 * its own lock, in a set that others may share; a queue without a set pays one test for it.
 *
 *	card->counter_sets.at[number] --> struct vb_counter_set <-- vb_qp.counters
 *
 * A set stays as long as a queue names it. What peers do to the memory of a queue's domain without
 * a packet would not be counted: a queue with a set does not offer that (vb_qp_publish()).
 */
#include "card/queue/counter_set.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "card/device.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"

struct vb_counter_set {
	struct vb_dev *dev;
	uint32_t number;
	uint32_t users; /* queues; under the lock of the table */
	_Atomic uint64_t value[VB_COUNTERS];
};

/* --- life ------------------------------------------------------------------------------------- */

int vb_counter_set_alloc(struct vb_dev *dev, struct vb_counter_set **out)
{
	struct vb_card *card = vb_dev_card(dev);
	struct vb_counter_set *set;
	uint32_t number;

	if (vb_dev_stale(dev))
		return vb_refuse_forked();
	set = calloc(1, sizeof(*set));
	if (!set)
		return vb_refuse_memory("the counter set");
	set->dev = dev;
	vb_lock(&card->counter_sets.lock);
	for (number = 1; number < VB_COUNTER_SETS && card->counter_sets.at[number]; number++)
		;
	set->number = number;
	if (number < VB_COUNTER_SETS)
		card->counter_sets.at[number] = set;
	vb_unlock(&card->counter_sets.lock);
	if (number == VB_COUNTER_SETS) {
		free(set);
		return vb_refuse_limit("counter sets", VB_COUNTER_SETS - 1);
	}
	atomic_fetch_add_explicit(&dev->objects, 1, memory_order_release);
	*out = set;
	return 0;
}

int vb_counter_set_free(struct vb_counter_set *set)
{
	struct vb_card *card = vb_dev_card(set->dev);
	bool used;

	vb_lock(&card->counter_sets.lock);
	used = set->users;
	if (!used)
		card->counter_sets.at[set->number] = NULL;
	vb_unlock(&card->counter_sets.lock);
	if (used)
		return vb_refuse_busy("queues");
	atomic_fetch_sub_explicit(&set->dev->objects, 1, memory_order_release);
	free(set);
	return 0;
}

uint32_t vb_counter_set_number(const struct vb_counter_set *set)
{
	return set->number;
}

void vb_counter_set_read(struct vb_counter_set *set, bool clear, uint64_t value[VB_COUNTERS])
{
	for (int i = 0; i < VB_COUNTERS; i++)
		value[i] = clear ? atomic_exchange_explicit(&set->value[i], 0, memory_order_relaxed)
				 : atomic_load_explicit(&set->value[i], memory_order_relaxed);
}

/* --- queues ----------------------------------------------------------------------------------- */

static struct vb_counter_set *get_set(const struct vb_dev *dev, uint32_t number)
{
	struct vb_card *card = vb_dev_card(dev);
	struct vb_counter_set *set = NULL;

	vb_lock(&card->counter_sets.lock);
	if (number < VB_COUNTER_SETS)
		set = card->counter_sets.at[number];
	if (set && set->dev != dev)
		set = NULL;
	if (set)
		set->users++;
	vb_unlock(&card->counter_sets.lock);
	return set;
}

void vb_counter_set_put(struct vb_counter_set *set)
{
	struct vb_card *card;

	if (!set)
		return;
	card = vb_dev_card(set->dev);
	vb_lock(&card->counter_sets.lock);
	set->users--;
	vb_unlock(&card->counter_sets.lock);
}

int vb_qp_set_counters(struct vb_qp *qp, uint32_t number)
{
	struct vb_counter_set *set = number ? get_set(qp->dev, number) : NULL, *old;

	if (number && !set)
		return vb_refuse_no_object("counter_set_id", number);
	vb_card_enter();
	vb_lock(&qp->sq.lock);
	vb_lock(&qp->rq.lock);
	old = qp->counters;
	qp->counters = set;
	vb_qp_publish(qp, vb_qp_state(qp));
	vb_unlock(&qp->rq.lock);
	vb_unlock(&qp->sq.lock);
	vb_card_leave();
	vb_counter_set_put(old);
	return 0;
}

uint32_t vb_qp_counter_set(struct vb_qp *qp)
{
	uint32_t number;

	vb_card_enter();
	vb_lock(&qp->sq.lock);
	number = qp->counters ? qp->counters->number : 0;
	vb_unlock(&qp->sq.lock);
	vb_card_leave();
	return number;
}

/* --- counting: sq.lock or rq.lock held -------------------------------------------------------- */

void vb_count_in(struct vb_counter_set *set, enum vb_counter which)
{
	atomic_fetch_add_explicit(&set->value[which], 1, memory_order_relaxed);
}

void vb_count_request(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	switch (pkt->op) {
	case VB_PKT_WRITE:
		if (pkt->flags & VB_PKT_FIRST)
			vb_qp_count(qp, VB_COUNT_RX_WRITE);
		break;
	case VB_PKT_READ:
		vb_qp_count(qp, VB_COUNT_RX_READ);
		break;
	case VB_PKT_COMPARE_SWAP:
	case VB_PKT_FETCH_ADD:
	case VB_PKT_MASKED_COMPARE_SWAP:
	case VB_PKT_MASKED_FETCH_ADD:
		vb_qp_count(qp, VB_COUNT_RX_ATOMIC);
		break;
	default:
		break;
	}
}

/* What a status of a completion counts as, besides; 0: nothing. */
static const uint8_t sent[] = {
	[IBV_WC_LOC_LEN_ERR] = VB_COUNT_REQ_LENGTH,
	[IBV_WC_LOC_QP_OP_ERR] = VB_COUNT_REQ_QP,
	[IBV_WC_LOC_PROT_ERR] = VB_COUNT_REQ_PROTECTION,
	[IBV_WC_WR_FLUSH_ERR] = VB_COUNT_REQ_FLUSH,
	[IBV_WC_MW_BIND_ERR] = VB_COUNT_REQ_BIND,
	[IBV_WC_BAD_RESP_ERR] = VB_COUNT_REQ_RESPONSE,
	[IBV_WC_REM_INV_REQ_ERR] = VB_COUNT_REQ_INVALID,
	[IBV_WC_REM_ACCESS_ERR] = VB_COUNT_REQ_ACCESS,
	[IBV_WC_REM_OP_ERR] = VB_COUNT_REQ_OPERATION,
	[IBV_WC_RETRY_EXC_ERR] = VB_COUNT_REQ_RETRIES,
	[IBV_WC_RNR_RETRY_EXC_ERR] = VB_COUNT_REQ_RNR_RETRIES,
	[IBV_WC_GENERAL_ERR] = 0,
};

static const uint8_t received[] = {
	[IBV_WC_LOC_LEN_ERR] = VB_COUNT_RESP_LENGTH,
	[IBV_WC_LOC_QP_OP_ERR] = VB_COUNT_RESP_QP,
	[IBV_WC_LOC_PROT_ERR] = VB_COUNT_RESP_PROTECTION,
	[IBV_WC_WR_FLUSH_ERR] = VB_COUNT_RESP_FLUSH,
	[IBV_WC_GENERAL_ERR] = 0,
};

void vb_count_status(struct vb_qp *qp, enum ibv_wc_status status, bool receive)
{
	uint8_t which = status > IBV_WC_GENERAL_ERR ? 0 : receive ? received[status] : sent[status];

	if (!qp->counters)
		return;
	vb_qp_count(qp, receive ? VB_COUNT_RESP_CQE : VB_COUNT_REQ_CQE);
	if (which)
		vb_qp_count(qp, (enum vb_counter)which);
}

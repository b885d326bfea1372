// SPDX-License-Identifier: MIT
/*
 * Owns transport interface receive objects (TIRs) and indirection tables: what spreads frames over
 * receive queues. And the numbers of transport domains.
 *
 *	flow rule --> TIR --+--> one receive queue
 *	                    +--> indirection table --> receive WQs, by hash
 *
 * A TIR is found by number under the lock of the list. Frames reach it through a rule's action, whose
 * owner holds it (vb_tir_get).
 */
#include "card/ether/tir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/rcu.h"
#include "card/device.h"
#include "card/ether/ether.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"

int vb_rss_check(const struct vb_dev *dev, const struct vb_rss *rss)
{
	if (!rss->count || rss->count > VB_MAX_RSS || (rss->count & (rss->count - 1)))
		return -EINVAL;
	for (uint32_t i = 0; i < rss->count; i++) {
		const struct vb_qp *wq = rss->wq[i];

		/* A work queue, or a queue pair that only receives, as FlexIO's are. */
		if (!wq || wq->dev != dev || wq->type != IBV_QPT_RAW_PACKET || wq->rss ||
		    (!wq->rq.count && !wq->init.srq))
			return -EINVAL;
	}
	return 0;
}

void vb_rss_hold(const struct vb_rss *rss, int by)
{
	for (uint32_t i = 0; rss && i < rss->count; i++)
		atomic_fetch_add_explicit(&rss->wq[i]->raw_users, (uint32_t)by,
					  memory_order_release);
}

static bool receives_frames(const struct vb_qp *qp)
{
	return qp->type == IBV_QPT_RAW_PACKET && (qp->rq.count || qp->init.srq || qp->rss);
}

/*
 * mlx4's rules lead to the number of any raw queue pair, and drivers drop frames by one without a
 * receive queue; mlx5's lead to what is behind a receive queue.
 */
static bool is_destination(const struct vb_qp *qp)
{
	return receives_frames(qp) || (qp->type == IBV_QPT_RAW_PACKET &&
				       qp->dev->adapter->config->format == VB_FORMAT_MLX4);
}

int vb_flow_hold_qp(struct vb_qp *qp)
{
	if (!is_destination(qp) || qp->init.wq)
		return -EINVAL;
	atomic_fetch_add_explicit(&qp->raw_users, 1, memory_order_release);
	return 0;
}

void vb_flow_release_qp(struct vb_qp *qp)
{
	atomic_fetch_sub_explicit(&qp->raw_users, 1, memory_order_release);
}

void *vb_tir_owner(const struct vb_tir *tir)
{
	return tir->dev->async_arg;
}

bool vb_flow_reaches_qp(const struct vb_dev *dev, const struct vb_qp *qp)
{
	return qp->dev->adapter == dev->adapter && !vb_dev_stale(qp->dev);
}

static void hold_queues(const struct vb_tir *tir, int by)
{
	if (tir->rq)
		atomic_fetch_add_explicit(&tir->rq->raw_users, (uint32_t)by, memory_order_release);
	vb_rss_hold(atomic_load_explicit(&tir->rss, memory_order_relaxed), by);
	atomic_fetch_add_explicit(&tir->dev->objects, (uint32_t)by, memory_order_release);
	if (!vb_dev_stale(tir->dev))
		vb_cable_listen(vb_dev_card(tir->dev), by);
}

static int tir_check_attr(const struct vb_dev *dev, const struct vb_tir_attr *attr)
{
	if (!attr->rq == !attr->rss)
		return vb_refuse_combination("a TIR has one receive queue or an indirection table");
	if (attr->rq && (attr->rq->dev != dev || attr->rq->rss || !receives_frames(attr->rq)))
		return vb_refuse_combination("the receive queue of a TIR must be one for frames");
	if (attr->rss && vb_rss_check(dev, attr->rss))
		return vb_refuse_combination(
			"an indirection table with queues that cannot be in it");
	if (attr->loopback & ~(VB_TIR_UNICAST | VB_TIR_MULTICAST))
		return vb_refuse_bits("loopback", attr->loopback);
	return 0;
}

static void tir_free(struct vb_tir *tir)
{
	free(tir->rss);
	free(tir->spare);
	free(tir);
}

static struct vb_tir *tir_alloc(struct vb_dev *dev, const struct vb_tir_attr *attr)
{
	struct vb_tir *tir = calloc(1, sizeof(*tir));

	if (!tir)
		return NULL;
	*tir = (struct vb_tir){ .dev = dev,
				.rq = attr->rq,
				.transport_domain = attr->transport_domain,
				.loopback = attr->loopback };
	if (!attr->rss)
		return tir;
	tir->rss = malloc(sizeof(*tir->spare));
	tir->spare = malloc(sizeof(*tir->spare));
	if (!tir->rss || !tir->spare) {
		tir_free(tir);
		return NULL;
	}
	*tir->rss = *attr->rss;
	return tir;
}

int vb_tir_create(struct vb_dev *dev, const struct vb_tir_attr *attr, struct vb_tir **out)
{
	struct vb_card *card = vb_dev_card(dev);
	struct vb_tir *tir;
	int64_t number;
	int ret;

	if (vb_dev_stale(dev))
		return vb_refuse_forked();
	ret = tir_check_attr(dev, attr);
	if (ret)
		return ret;
	tir = tir_alloc(dev, attr);
	if (!tir)
		return vb_refuse_memory("the TIR");
	number = vb_ids_take(&card->numbers.tir, VB_TIR_MAX);
	if (number < 0) {
		tir_free(tir);
		return vb_refuse_numbers(VB_TIR_MAX, "TIRs");
	}
	tir->number = (uint32_t)number;
	hold_queues(tir, 1);
	pthread_mutex_lock(&card->tir.lock);
	tir->next = card->tir.first;
	card->tir.first = tir;
	pthread_mutex_unlock(&card->tir.lock);
	*out = tir;
	return 0;
}

/* Take it from the list unless somebody holds it. */
static bool unlink_tir(struct vb_tir *tir)
{
	struct vb_card *card = vb_dev_card(tir->dev);
	struct vb_tir **at;
	bool held;

	pthread_mutex_lock(&card->tir.lock);
	held = tir->users;
	for (at = &card->tir.first; !held && *at; at = &(*at)->next)
		if (*at == tir) {
			*at = tir->next;
			break;
		}
	pthread_mutex_unlock(&card->tir.lock);
	return !held;
}

int vb_tir_destroy(struct vb_tir *tir)
{
	struct vb_card *card = vb_dev_card(tir->dev);

	if (!unlink_tir(tir))
		return vb_refuse_busy("flow actions");
	vb_read_wait(); /* a frame may be on its way through it */
	hold_queues(tir, -1);
	if (!vb_dev_stale(tir->dev))
		vb_ids_give(&card->numbers.tir, tir->number);
	tir_free(tir);
	return 0;
}

/* Frames go by the new table from now on; then the old one is spare. One caller at a time. */
static void change_rss(struct vb_rss *_Atomic *at, struct vb_rss **spare, const struct vb_rss *rss,
		       unsigned int parts)
{
	struct vb_rss *old = atomic_load_explicit(at, memory_order_relaxed);
	struct vb_rss *now = *spare;

	*now = parts & VB_TIR_HASH ? *rss : *old;
	now->count = parts & VB_TIR_QUEUES ? rss->count : old->count;
	memcpy(now->wq, parts & VB_TIR_QUEUES ? rss->wq : old->wq, sizeof(now->wq));
	vb_rss_hold(now, 1);
	*spare = NULL; /* a child that is forked from here on frees each of the two once */
	/* Pairs with the acquire where a frame is delivered. */
	atomic_store_explicit(at, now, memory_order_release);
	vb_read_wait(); /* a frame may be on its way by the old one */
	vb_rss_hold(old, -1);
	*spare = old;
}

int vb_tir_set_rss(struct vb_tir *tir, const struct vb_rss *rss, unsigned int parts)
{
	if (!atomic_load_explicit(&tir->rss, memory_order_relaxed) ||
	    ((parts & VB_TIR_QUEUES) && vb_rss_check(tir->dev, rss)))
		return vb_refuse_combination(
			"an indirection table with queues that cannot be in it");
	change_rss(&tir->rss, &tir->spare, rss, parts);
	return 0;
}

int vb_qp_set_rss(struct vb_qp *qp, const struct vb_rss *rss)
{
	if (!atomic_load_explicit(&qp->rss, memory_order_relaxed) ||
	    (rss->count && vb_rss_check(qp->dev, rss)))
		return vb_refuse_combination(
			"an indirection table with queues that cannot be in it");
	change_rss(&qp->rss, &qp->spare, rss, VB_TIR_QUEUES);
	return 0;
}

int vb_tir_set_loopback(struct vb_tir *tir, uint8_t loopback)
{
	if (loopback & ~(VB_TIR_UNICAST | VB_TIR_MULTICAST))
		return vb_refuse_bits("loopback", loopback);
	atomic_store_explicit(&tir->loopback, loopback, memory_order_relaxed);
	return 0;
}

uint32_t vb_tir_number(const struct vb_tir *tir)
{
	return tir->number;
}

struct vb_tir *vb_tir_get(struct vb_dev *dev, uint32_t number)
{
	struct vb_card *card = vb_dev_card(dev);
	struct vb_tir *tir;

	pthread_mutex_lock(&card->tir.lock);
	for (tir = card->tir.first; tir; tir = tir->next)
		if (tir->number == number && tir->dev->adapter == dev->adapter)
			break;
	if (tir)
		tir->users++;
	pthread_mutex_unlock(&card->tir.lock);
	return tir;
}

bool vb_tir_is_of(const struct vb_tir *tir, const struct vb_dev *dev)
{
	return tir->dev == dev;
}

void vb_tir_put(struct vb_tir *tir)
{
	struct vb_card *card = vb_dev_card(tir->dev);

	pthread_mutex_lock(&card->tir.lock);
	tir->users--;
	pthread_mutex_unlock(&card->tir.lock);
}

/* The child has none of the parent's; their memory is left to whoever still has pointers. */
void vb_tir_forked(struct vb_card *card)
{
	pthread_mutex_init(&card->tir.lock, NULL);
	card->tir.first = NULL;
}

uint32_t vb_transport_domain_take(struct vb_card *card)
{
	int64_t number = vb_ids_take(&card->numbers.transport_domain, VB_TIR_MAX);

	return number < 0 ? 0 : (uint32_t)number;
}

void vb_transport_domain_give(struct vb_card *card, uint32_t number)
{
	if (number)
		vb_ids_give(&card->numbers.transport_domain, number);
}

bool vb_transport_domain_busy(struct vb_card *card, uint32_t number)
{
	const struct vb_tir *tir;

	pthread_mutex_lock(&card->tir.lock);
	for (tir = card->tir.first; tir && tir->transport_domain != number; tir = tir->next)
		;
	pthread_mutex_unlock(&card->tir.lock);
	return tir;
}

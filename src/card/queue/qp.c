// SPDX-License-Identifier: MIT
/*
 * Owns queue pairs as objects: numbers, the table of them, create and destroy, query.
 *
 *	number = process slot << 16 | index        card->tables.qp[index] -> struct vb_qp   (read inside read sections)
 */
#include "card/queue/qp.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/barrier.h"
#include "base/rcu.h"
#include "base/util.h"
#include "card/device.h"
#include "card/ether/ether.h"
#include "card/fault/fault.h"
#include "card/hbl/sink.h"
#include "card/queue/objects.h"
#include "card/shown.h"
#include "card/transport/dc.h"
#include "card/transport/requester.h"
#include "card/transport/transport.h"
#include "host/fault.h"

struct vb_qp *vb_qp_find(struct vb_card *card, uint32_t qpn)
{
	struct vb_qp *qp = atomic_load_explicit(&card->tables.qp[qpn & VB_QPN_INDEX_MASK],
						memory_order_acquire);

	return qp && qp->number == qpn ? qp : NULL;
}

void vb_path_counters(struct vb_card *card, struct vb_path_counters *counters)
{
	vb_lock(&card->retired.lock);
	*counters = card->retired.counters;
	vb_unlock(&card->retired.lock);
	vb_read_lock();
	for (uint32_t i = VB_QP_FIRST_INDEX; i < VB_QP_MAX_INDEX; i++) {
		struct vb_qp *qp = atomic_load_explicit(&card->tables.qp[i], memory_order_acquire);

		if (!qp)
			continue;
		vb_lock(&qp->sq.lock);
		vb_add_counters(counters, &qp->sq.sent_by);
		vb_unlock(&qp->sq.lock);
	}
	vb_read_unlock();
	vb_hbl_add_counters(card, counters);
}

static void qp_add_traffic(struct vb_traffic *to, struct vb_qp *qp)
{
	vb_lock(&qp->sq.lock);
	to->sent += qp->sq.traffic.sent;
	to->received += qp->sq.traffic.received;
	vb_unlock(&qp->sq.lock);
	vb_lock(&qp->rq.lock);
	to->sent += qp->rq.traffic.sent;
	to->received += qp->rq.traffic.received;
	vb_unlock(&qp->rq.lock);
}

/* A counter does not go back. Under the lock of what is retired. */
static void keep_up(uint64_t *value, uint64_t *told)
{
	if (*value < *told)
		*value = *told;
	*told = *value;
}

/* A queue that is being destroyed is among neither of the two for a while. */
void vb_port_traffic(const struct vb_adapter *adapter, struct vb_traffic *traffic)
{
	struct vb_card *card = adapter->card;
	struct vb_traffic *told = &card->retired.told[adapter->index];

	vb_lock(&card->retired.lock);
	*traffic = card->retired.traffic[adapter->index];
	vb_unlock(&card->retired.lock);
	vb_read_lock();
	for (uint32_t i = VB_QP_FIRST_INDEX; i < VB_QP_MAX_INDEX; i++) {
		struct vb_qp *qp = atomic_load_explicit(&card->tables.qp[i], memory_order_acquire);

		if (qp && qp->dev->adapter == adapter)
			qp_add_traffic(traffic, qp);
	}
	vb_read_unlock();
	vb_lock(&card->retired.lock);
	keep_up(&traffic->sent, &told->sent);
	keep_up(&traffic->received, &told->received);
	vb_unlock(&card->retired.lock);
}

/*
 * Programs that spread frames over receive WQs count on their numbers following one another. So a
 * range is reserved as a whole and used up in order; a number that is given back in between is not
 * used again for that.
 */
static int64_t take_wq_index(struct vb_dev *dev)
{
	struct vb_card *card = vb_dev_card(dev);
	int64_t index;

	vb_lock(&dev->wq_indices.lock);
	if (dev->wq_indices.next == dev->wq_indices.end) {
		index = vb_ids_take_range(&card->numbers.qp, 1u << dev->wq_indices.log,
					  dev->adapter->max_qp);
		if (index < 0)
			goto unlock;
		dev->wq_indices.next = (uint32_t)index;
		dev->wq_indices.end = (uint32_t)index + (1u << dev->wq_indices.log);
	}
	index = dev->wq_indices.next++;
unlock:
	vb_unlock(&dev->wq_indices.lock);
	return index;
}

void vb_dev_set_wq_range(struct vb_dev *dev, uint32_t log)
{
	struct vb_card *card = vb_dev_card(dev);
	vb_lock(&dev->wq_indices.lock);
	while (dev->wq_indices.next != dev->wq_indices.end)
		vb_ids_give(&card->numbers.qp, dev->wq_indices.next++);
	dev->wq_indices.log = log;
	vb_unlock(&dev->wq_indices.lock);
}

static int qp_check_striding(const struct vb_qp_attr *attr)
{
	const struct vb_striding *striding = &attr->striding;

	if (!striding->log_bytes)
		return 0;
	if (!attr->wq)
		return vb_refuse_unsupported("strides in other queues than receive work queues");
	if (striding->log_bytes < VB_STRIDE_LOG_MIN || striding->log_bytes > VB_STRIDE_LOG_MAX)
		return vb_refuse_range("log2 of the bytes of a stride", striding->log_bytes,
				       VB_STRIDE_LOG_MIN, VB_STRIDE_LOG_MAX);
	if (striding->log_count < VB_STRIDES_LOG_MIN || striding->log_count > VB_STRIDES_LOG_MAX)
		return vb_refuse_range("log2 of the strides of a WQE", striding->log_count,
				       VB_STRIDES_LOG_MIN, VB_STRIDES_LOG_MAX);
	return 0;
}

static int qp_check_attr(struct vb_dev *dev, const struct vb_qp_attr *attr)
{
	const struct vb_codec *codec = vb_adapter_codec(dev->adapter);
	bool raw = attr->type == IBV_QPT_RAW_PACKET && codec->send_raw;

	if (attr->type != IBV_QPT_RC && attr->type != IBV_QPT_UC && attr->type != IBV_QPT_UD &&
	    !raw)
		return vb_refuse_unsupported_value("qp_type", attr->type);
	if ((attr->wq || attr->rss) && (!raw || attr->sq_cnt))
		return vb_refuse_combination("a receive work queue or table that would also send");
	if (attr->rss && (attr->wq || attr->rq_cnt || vb_rss_check(dev, attr->rss)))
		return vb_refuse_combination(
			"an indirection table with queues that cannot be in it");
	if (attr->dc &&
	    (attr->type != IBV_QPT_RC || attr->dc_log_errored > VB_DC_MAX_LOG_ERRORED ||
	     attr->rq_cnt || !codec->send_dc || (attr->dc == VB_DC_TARGET) != !!attr->srq ||
	     (attr->dc == VB_DC_TARGET) != !attr->sq_cnt))
		return vb_refuse_combination("the queues of a DCI or DCT");
	if (!attr->pd || attr->pd->dev != dev || !attr->send_cq || attr->send_cq->dev != dev ||
	    !attr->recv_cq || attr->recv_cq->dev != dev || (attr->srq && attr->srq->dev != dev) ||
	    !attr->dbr)
		return vb_refuse_other_context("pd, cq, srq or the doorbell record");
	if ((attr->sq_cnt & (attr->sq_cnt - 1)) || attr->sq_cnt > codec->sq_blocks ||
	    (attr->sq_cnt && (!attr->sq_buf || attr->sq_shift < codec->sq_shift_min ||
			      attr->sq_shift > codec->sq_shift_max)))
		return vb_refuse_value("the size of the send ring", attr->sq_cnt);
	if (attr->inl_recv && attr->rq_cnt && attr->inl_recv > 1u << attr->rq_shift)
		return vb_refuse_range("inline receive", attr->inl_recv, 0, 1u << attr->rq_shift);
	if ((attr->rq_cnt & (attr->rq_cnt - 1)) || attr->rq_cnt > VB_MAX_QP_WR ||
	    (attr->rq_cnt && !attr->rq_buf))
		return vb_refuse_value("the size of the receive ring", attr->rq_cnt);
	return qp_check_striding(attr);
}

static void qp_hold(const struct vb_qp_attr *attr, int by)
{
	atomic_fetch_add_explicit(&attr->pd->refs, by, memory_order_release);
	atomic_fetch_add_explicit(&attr->send_cq->refs, by, memory_order_release);
	atomic_fetch_add_explicit(&attr->recv_cq->refs, by, memory_order_release);
	if (attr->srq)
		atomic_fetch_add_explicit(&attr->srq->refs, by, memory_order_release);
}

/* What is freed with it, the driver's rings included. */
static size_t qp_bytes(const struct vb_qp *qp)
{
	return sizeof(*qp) + qp->sq.blocks * sizeof(*qp->sq.inflight) +
	       ((size_t)qp->sq.blocks << qp->sq.shift) + ((size_t)qp->rq.count << qp->rq.shift);
}

static void qp_free(struct vb_qp *qp)
{
	free(qp->sq.inflight);
	free(qp->rss);
	free(qp->spare);
	free(qp->frame);
	free(qp->dci);
	vb_dct_free(qp);
	free(qp);
}

/* What queues of frames have besides. */
static int alloc_raw(struct vb_qp *qp, const struct vb_qp_attr *attr)
{
	if (attr->type == IBV_QPT_RAW_PACKET && attr->sq_cnt) {
		qp->frame = malloc(VB_RAW_BUFFER);
		if (!qp->frame)
			return -ENOMEM;
	}
	if (attr->rss) {
		qp->rss = malloc(sizeof(*qp->spare));
		qp->spare = malloc(sizeof(*qp->spare));
		if (!qp->rss || !qp->spare)
			return -ENOMEM;
		*qp->rss = *attr->rss;
		qp->init.rss = qp->rss;
	}
	return 0;
}

static int alloc_dc(struct vb_qp *qp, const struct vb_qp_attr *attr)
{
	if (attr->dc == VB_DC_TARGET)
		return vb_dct_alloc(qp);
	if (attr->dc == VB_DC_INITIATOR) {
		qp->dci = calloc(1, sizeof(*qp->dci));
		if (!qp->dci)
			return -ENOMEM;
		qp->dci->max_errors = (uint8_t)(1u << attr->dc_log_errored);
		qp->sq.no_pull = true; /* its memory is not shown to targets */
	}
	return 0;
}

static void qp_tell(struct vb_notice *notice, uint64_t events)
{
	struct vb_qp *qp = container_of(notice, struct vb_qp, notice);

	for (; events; events &= events - 1)
		vb_object_event(qp->dev, qp->init.event, qp->init.cookie,
				(enum ibv_event_type)__builtin_ctzll(events));
}

static struct vb_qp *qp_alloc(struct vb_dev *dev, const struct vb_qp_attr *attr)
{
	struct vb_qp *qp = aligned_alloc(64, (sizeof(*qp) + 63) & ~(size_t)63);

	if (!qp)
		return NULL;
	memset(qp, 0, sizeof(*qp));
	if (attr->sq_cnt) {
		qp->sq.inflight = calloc(attr->sq_cnt, sizeof(*qp->sq.inflight));
		if (!qp->sq.inflight) {
			free(qp);
			return NULL;
		}
		qp->sq.sender = (struct vb_sender){ .ring = (char *)qp->sq.inflight,
						    .stride = sizeof(*qp->sq.inflight),
						    .mask = attr->sq_cnt - 1,
						    .window = VB_PSN_HALF,
						    .timeout = UINT64_MAX };
	}
	qp->dev = dev;
	qp->card = vb_dev_card(dev);
	qp->path = qp->kept = vb_path_none;
	qp->type = attr->type;
	qp->transport = (uint8_t)attr->type;
	qp->init = *attr;
	qp->srqn = attr->srq && !attr->srq->attr.anonymous ? attr->srq->number : 0;
	qp->codec = vb_adapter_codec(dev->adapter);
	qp->notice.tell = qp_tell;
	vb_deferred_init(&qp->deferred, qp->card, vb_qp_run_deferred);
	qp->timer = (struct vb_alarm){ .card = qp->card,
				       .lock = &qp->sq.lock,
				       .look = vb_requester_look };
	qp->watch = (struct vb_alarm){ .card = qp->card,
				       .lock = &qp->rq.lock,
				       .look = vb_responder_look };
	if (alloc_raw(qp, attr) || alloc_dc(qp, attr)) {
		qp_free(qp);
		return NULL;
	}
	qp->sq.buf = attr->sq_buf;
	qp->sq.blocks = attr->sq_cnt;
	qp->sq.shift = attr->sq_shift;
	qp->rq.buf = attr->rq_buf;
	qp->rq.count = attr->srq ? 0 : attr->rq_cnt;
	qp->rq.shift = attr->rq_shift;
	vb_inject_choose_decoder(qp);
	return qp;
}

/* dct: it is an end of connections to this one, or NULL. */
static int create(struct vb_dev *dev, const struct vb_qp_attr *attr, const struct vb_qp *dct,
		  struct vb_qp **out)
{
	struct vb_card *card = vb_dev_card(dev);
	struct vb_qp *qp;
	int64_t index;
	int ret;

	index = attr->wq ? take_wq_index(dev)
			 : vb_ids_take(&card->numbers.qp, dev->adapter->max_qp);
	if (index < 0)
		return vb_refuse_limit("queue pairs", dev->adapter->max_qp);
	qp = qp_alloc(dev, attr);
	ret = -ENOMEM;
	if (!qp)
		goto give_number;
	qp->shared = vb_segment_qp(card->fabric, (uint32_t)index);
	if (!qp->shared)
		goto free_qp;
	atomic_store_explicit(&qp->shared->adapter, dev->adapter->guid, memory_order_relaxed);
	atomic_store_explicit(&qp->shared->connection, 0, memory_order_relaxed);
	qp->shared->remote_qpn = 0; /* what it expects is for nobody yet */
	qp->number = vb_fabric_slot(card->fabric) << VB_QPN_INDEX_BITS | (uint32_t)index;
	qp->shows = dct ? dct->number : qp->number;
	if (!dct)
		qp->serial =
			1 + atomic_fetch_add_explicit(&card->inject.at[dev->adapter->index].qps, 1,
						      memory_order_relaxed);
	atomic_store_explicit(&qp->state, IBV_QPS_RESET, memory_order_release);
	qp_hold(attr, 1);
	vb_rss_hold(qp->rss, 1);
	qp->listens = qp->type == IBV_QPT_RAW_PACKET && !attr->wq &&
		      (attr->rq_cnt || attr->srq || attr->rss);
	if (qp->listens)
		vb_cable_listen(qp->card, 1);
	if (qp->type == IBV_QPT_RAW_PACKET)
		vb_tap_use(dev->adapter, 1);
	atomic_fetch_add_explicit(&dev->objects, 1, memory_order_release);
	vb_show_qp(qp);
	/* Pairs with vb_inject_port(): it finds the queue pair, or this finds the port down. */
	atomic_store_explicit(&card->tables.qp[index], qp, memory_order_seq_cst);
	vb_inject_qp_created(qp);
	*out = qp;
	return 0;

free_qp:
	qp_free(qp);
give_number:
	vb_ids_give(&card->numbers.qp, (uint32_t)index);
	return ret;
}

int vb_qp_create(struct vb_dev *dev, const struct vb_qp_attr *attr, struct vb_qp **out)
{
	int ret;

	if (vb_dev_stale(dev))
		return vb_refuse_forked();
	ret = qp_check_attr(dev, attr);
	if (!ret)
		ret = vb_inject_create(dev, VB_INJECT_QP);
	if (!ret)
		ret = vb_fault_arm();
	return ret ? ret : create(dev, attr, NULL, out);
}

int vb_qp_create_end(const struct vb_qp *dct, const struct vb_qp_attr *attr, struct vb_qp **qp)
{
	return create(dct->dev, attr, dct, qp);
}

/* --- numbers alone ---------------------------------------------------------------------------- */

int vb_qpn_take(struct vb_dev *dev, uint32_t *number)
{
	struct vb_card *card = vb_dev_card(dev);
	int64_t index = vb_dev_stale(dev) ? vb_refuse_forked()
					  : vb_ids_take(&card->numbers.qp, dev->adapter->max_qp);

	if (index < 0)
		return vb_refuse_limit("queue pairs", dev->adapter->max_qp);
	*number = vb_fabric_slot(card->fabric) << VB_QPN_INDEX_BITS | (uint32_t)index;
	return 0;
}

void vb_qpn_give(struct vb_dev *dev, uint32_t number)
{
	struct vb_card *card = vb_dev_card(dev);

	vb_ids_give(&card->numbers.qp, number & VB_QPN_INDEX_MASK);
}

bool vb_qpn_exists(const struct vb_dev *dev, uint32_t number)
{
	const struct vb_qp *qp;
	bool exists;

	vb_read_lock();
	qp = vb_qp_find(vb_dev_card(dev), number);
	exists = qp && qp->dev->adapter == dev->adapter;
	vb_read_unlock();
	return exists;
}

/* --- receive queues by number ----------------------------------------------------------------- */

enum { RQ_GOING = UINT32_MAX }; /* in raw_users: it is being destroyed */

static bool hold_unless_going(struct vb_qp *qp)
{
	uint32_t users = atomic_load_explicit(&qp->raw_users, memory_order_relaxed);

	while (users != RQ_GOING) {
		if (atomic_compare_exchange_weak_explicit(&qp->raw_users, &users, users + 1,
							  memory_order_acquire,
							  memory_order_relaxed))
			return true;
	}
	return false;
}

struct vb_qp *vb_rq_get(struct vb_dev *dev, uint32_t number)
{
	struct vb_qp *qp;

	vb_read_lock();
	qp = vb_qp_find(vb_dev_card(dev), number);
	if (qp && (qp->type != IBV_QPT_RAW_PACKET || qp->dev != dev || qp->rss ||
		   (!qp->rq.count && !qp->init.srq) || !hold_unless_going(qp)))
		qp = NULL;
	vb_read_unlock();
	return qp;
}

void vb_rq_put(struct vb_qp *qp)
{
	/* Pairs with the acquire in vb_qp_destroy(). */
	atomic_fetch_sub_explicit(&qp->raw_users, 1, memory_order_release);
}

struct vb_cq *vb_rq_cq(const struct vb_qp *qp)
{
	return qp->init.recv_cq;
}

/* --- destroy ---------------------------------------------------------------------------------- */

static void clear_alarms(struct vb_qp *qp)
{
	vb_card_enter();
	vb_lock(&qp->sq.lock);
	vb_alarm_clear(&qp->timer);
	vb_unlock(&qp->sq.lock);
	vb_lock(&qp->rq.lock);
	vb_alarm_clear(&qp->watch);
	vb_unlock(&qp->rq.lock);
	vb_card_leave();
}

int vb_qp_check_unused(const struct vb_qp *qp)
{
	return atomic_load_explicit(&qp->raw_users, memory_order_acquire) ? -EBUSY : 0;
}

int vb_qp_destroy(struct vb_qp *qp)
{
	struct vb_card *card = qp->card;
	uint32_t index = qp->number & VB_QPN_INDEX_MASK, none = 0;

	if (!atomic_compare_exchange_strong_explicit(&qp->raw_users, &none, RQ_GOING,
						     memory_order_acquire, memory_order_relaxed))
		return -EBUSY;
	if (!vb_dev_stale(qp->dev)) {
		if (qp->listens)
			vb_cable_listen(qp->card, -1);
		if (qp->type == IBV_QPT_RAW_PACKET)
			vb_tap_use(qp->dev->adapter, -1);
		vb_responder_answer(qp); /* what was received is acknowledged, though the QP goes */
		atomic_store_explicit(&qp->shared->ready, 0, memory_order_seq_cst);
		atomic_store_explicit(&qp->shared->connection, 0, memory_order_release);
		atomic_store_explicit(&card->tables.qp[index], NULL, memory_order_release);
		atomic_store_explicit(&qp->state, IBV_QPS_RESET, memory_order_release);
		vb_deferred_remove(&qp->deferred); /* waits for those who have found it, too */
		clear_alarms(qp);
		vb_segment_wait_qp(card->fabric, index);
		vb_read_wait(); /* a last look may have an event to deliver */
		if (qp->shows != qp->number)
			vb_responder_give(qp); /* the DCT's program cannot flush it */
		vb_path_close(&qp->path);
		vb_path_close(&qp->kept);
		vb_ids_give(&card->numbers.qp, index);
		vb_fabric_freed(card->fabric, qp_bytes(qp));
		vb_lock(&card->retired.lock);
		vb_add_counters(&card->retired.counters, &qp->sq.sent_by);
		qp_add_traffic(&card->retired.traffic[qp->dev->adapter->index], qp);
		vb_unlock(&card->retired.lock);
		vb_hide_qp(qp);
	}
	qp_hold(&qp->init, -1);
	vb_rss_hold(qp->rss, -1);
	vb_counter_set_put(qp->counters);
	atomic_fetch_sub_explicit(&qp->dev->objects, 1, memory_order_release);
	qp_free(qp);
	return 0;
}

uint32_t vb_qp_number(const struct vb_qp *qp)
{
	return qp->number;
}

enum ibv_qp_state vb_qp_state(const struct vb_qp *qp)
{
	return (enum ibv_qp_state)atomic_load_explicit(&qp->state, memory_order_acquire);
}

void vb_qp_counters(struct vb_qp *qp, struct vb_qp_counters *counters)
{
	vb_card_enter();
	vb_lock(&qp->sq.lock);
	counters->sent = qp->sq.next;
	counters->rung = qp->sq.pi;
	vb_unlock(&qp->sq.lock);
	vb_lock(&qp->rq.lock);
	counters->taken = qp->rq.ci;
	counters->posted = (uint16_t)be32toh(
		atomic_load_explicit((_Atomic uint32_t *)&qp->init.dbr[0], memory_order_acquire));
	vb_unlock(&qp->rq.lock);
	vb_card_leave();
}

void vb_qp_query(struct vb_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init)
{
	vb_card_enter();
	vb_lock(&qp->sq.lock);
	vb_lock(&qp->rq.lock);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = vb_qp_state(qp);
	attr->cap = qp->init.cap;
	attr->sq_psn = qp->sq.sender.psn;
	attr->rq_psn = qp->rq.receiver.epsn;
	attr->sq_draining = attr->qp_state == IBV_QPS_SQD && !vb_sq_is_drained(&qp->sq);
	vb_unlock(&qp->rq.lock);
	vb_unlock(&qp->sq.lock);
	vb_card_leave();
	if (!init)
		return;
	init->cap = qp->init.cap;
	init->qp_type = qp->type;
	init->sq_sig_all = qp->init.sq_sig_all;
}

/* --- the receive doorbell --------------------------------------------------------------------- */

bool vb_responder_look(struct vb_alarm *watch, uint64_t now, uint64_t *next)
{
	struct vb_qp *qp = container_of(watch, struct vb_qp, watch);

	if (atomic_load_explicit(&qp->state, memory_order_relaxed) != IBV_QPS_ERR)
		return false;
	if (now >= qp->watch_at)
		vb_responder_flush(qp); /* and the time of the next look */
	vb_sooner(next, qp->watch_at);
	return true;
}

void vb_qp_set_direct(struct vb_qp *qp)
{
	atomic_store_explicit(&qp->direct, true, memory_order_relaxed);
	vb_qp_ring_rq(qp); /* where it is in the error state already, looking begins here */
}

static __attribute__((noinline, cold)) void flush_posted(struct vb_qp *qp)
{
	if (vb_dev_stale(qp->dev))
		return;
	vb_read_lock();
	vb_burst_begin(qp->card);
	vb_lock(&qp->rq.lock);
	vb_responder_flush(qp);
	vb_unlock(&qp->rq.lock);
	vb_burst_end();
	vb_read_unlock();
}

void vb_qp_ring_rq(struct vb_qp *qp)
{
	/*
	 * Record written, state read; pairs with vb_responder_flush(), where it is state written,
	 * record read.
	 */
	vb_barrier_light_own();
	if (atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_ERR)
		flush_posted(qp);
}

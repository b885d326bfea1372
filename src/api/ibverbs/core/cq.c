// SPDX-License-Identifier: MIT
/*
 * Completion queues that are rings in memory: creation, resizing, destruction. Arming and polling
 * are the provider's.
 */
#include "objects.h"

#include <unistd.h>

#include "base/time.h"
#include "card/queue/cq.h"
enum { DBR_SIZE = 64 }; /* a cache line of its own: program and card write it */

static const uint64_t supported_wc_flags = IBV_WC_STANDARD_FLAGS |
					   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
					   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

static uint32_t verbs_cq_ring_size(uint32_t cqe)
{
	return roundup_pow2(cqe + 1);
}

static const struct api_ring_ops *verbs_cq_ring_ops(const struct api_cq *cq)
{
	return &provider_of(cq->ibv.context)->ring;
}

static void *entry_at(const struct api_cq *cq, void *ring, uint32_t cqe_cnt, uint32_t index)
{
	return (char *)ring + (size_t)(index & (cqe_cnt - 1)) * cq->cqe_size;
}

static int ring_alloc(struct api_buf *buf, const struct api_cq *cq, uint32_t cqe_cnt)
{
	struct ibv_pd *parent = cq->parent ? &cq->parent->ibv : NULL;
	int rc = api_buf_alloc(buf, cq->ibv.context, parent, (size_t)cqe_cnt * cq->cqe_size,
			       (size_t)sysconf(_SC_PAGESIZE), API_BUF_CQ);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < cqe_cnt; i++)
		verbs_cq_ring_ops(cq)->cqe_give(entry_at(cq, buf->ptr, cqe_cnt, i), cq->cqe_size,
						false);
	return 0;
}

static int verbs_cq_check_attr(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr)
{
	const uint32_t known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	uint64_t unknown;

	if (attr->comp_mask & ~known)
		return -vb_refuse_bits("comp_mask", attr->comp_mask & ~known);
	unknown = attr->wc_flags & ~(supported_wc_flags | provider_of(context)->raw_caps.wc_flags);
	if (unknown)
		return -vb_refuse_unsupported_value("wc_flags", unknown);
	if (flags &
	    ~(uint32_t)(IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN))
		return -vb_refuse_bits("flags", flags);
	if (attr->cqe < 1 || attr->cqe > VB_MAX_CQE)
		return -vb_refuse_range("cqe", attr->cqe, 1, VB_MAX_CQE);
	if (attr->comp_vector >= (uint32_t)context->num_comp_vectors)
		return -vb_refuse_range("comp_vector", attr->comp_vector, 0,
					(uint32_t)context->num_comp_vectors - 1);
	if (attr->channel && attr->channel->context != context)
		return -vb_refuse_other_context("channel");
	if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) &&
	    (!attr->parent_domain || attr->parent_domain->context != context ||
	     !to_pd(attr->parent_domain)->base))
		return -vb_refuse_combination("parent_domain is no parent domain of this context");
	return 0;
}

static void cq_init(struct api_cq *cq, struct ibv_context *context,
		    const struct ibv_cq_init_attr_ex *attr, const struct api_cq_extra *extra)
{
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	struct ibv_pd *parent =
		attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? attr->parent_domain : NULL;

	cq->ex = *provider_of(context)->ring.cq_ex;
	cq->ibv.context = context;
	cq->ibv.channel = attr->channel;
	cq->ibv.cq_context = attr->cq_context;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	cq->parent = parent ? to_pd(parent) : NULL;
	cq->unlocked =
		(flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) || api_pd_single_threaded(parent);
	cq->dev = to_context(context)->dev;
	cq->cqe_cnt = verbs_cq_ring_size(attr->cqe);
	cq->ibv.cqe = (int)cq->cqe_cnt - 1;
	cq->cqe_size =
		extra->cqe_size ? extra->cqe_size : context_adapter(context)->config->cqe_size;
	cq->cqe_shift = (uint8_t)ilog2(cq->cqe_size);
	cq->compressed = extra->compressed;
	atomic_init(&cq->arm_sn, 1);
	cq->timestamps = attr->wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
					   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
}

static int cq_alloc_rings(struct api_cq *cq)
{
	struct ibv_pd *parent = cq->parent ? &cq->parent->ibv : NULL;
	int rc = ring_alloc(&cq->buf, cq, cq->cqe_cnt);

	if (rc)
		return rc;
	rc = api_buf_alloc(&cq->dbr_buf, cq->ibv.context, parent, DBR_SIZE, DBR_SIZE, API_BUF_DBR);
	if (rc) {
		api_buf_free(&cq->buf);
		return rc;
	}
	cq->ring = cq->buf.ptr;
	cq->dbr = cq->dbr_buf.ptr;
	return 0;
}

static void verbs_cq_free(struct api_cq *cq)
{
	api_buf_free(&cq->buf);
	api_buf_free(&cq->dbr_buf);
	free(cq->block);
	api_acks_destroy(cq->ibv.context, &cq->ibv.mutex, &cq->ibv.cond);
	free(cq);
}

/*
 * The references that a living CQ holds: its channel's (public, under the context's mutex) and its
 * parent domain's.
 */
static void cq_count_users(struct api_cq *cq, int delta)
{
	struct ibv_context *context = cq->ibv.context;

	if (cq->ibv.channel) {
		api_context_lock(context);
		cq->ibv.channel->refcnt += delta;
		api_context_unlock(context);
	}
	if (cq->parent && delta > 0)
		api_pd_get(&cq->parent->ibv);
	else if (cq->parent)
		api_pd_put(&cq->parent->ibv);
}

struct ibv_cq_ex *api_cq_create_extra(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr,
				      const struct api_cq_extra *extra)
{
	struct api_cq *cq = NULL;
	int err = verbs_cq_check_attr(context, attr);

	if (err)
		return api_null(err);
	if (posix_memalign((void **)&cq, _Alignof(struct api_cq), sizeof(*cq)))
		return api_refuse_null(memory, "the completion queue");
	memset(cq, 0, sizeof(*cq));
	cq_init(cq, context, attr, extra);
	if (extra->block_bytes)
		cq->block = calloc(1, extra->block_bytes);
	err = extra->block_bytes && !cq->block ? -vb_refuse_memory("the completion queue")
					       : -cq_alloc_rings(cq);
	if (err)
		goto free_cq;

	struct vb_cq_attr card_attr = {
		.buf = cq->ring,
		.cqe_cnt = cq->cqe_cnt,
		.cqe_size = cq->cqe_size,
		.dbr = cq->dbr,
		.timestamps = cq->timestamps,
		/* A mini CQE has no time: where programs read that, none is made. */
		.compressed = extra->compressed && !cq->timestamps,
		.basic_minis = extra->compressed,
		.mini_format = extra->mini_format,
		.ignore_overrun = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
				  (attr->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN),
		.cookie = cq,
		.notify = api_channel_notify,
	};
	err = -vb_cq_create(cq->dev, &card_attr, &cq->card);
	if (err)
		goto free_cq;
	cq->ibv.handle = vb_cq_number(cq->card);
	cq_count_users(cq, 1);
	api_track(context, API_KIND_CQ, &cq->node);
	return &cq->ex;

free_cq:
	verbs_cq_free(cq);
	return api_null(err);
}

struct ibv_cq_ex *api_cq_create(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	return api_cq_create_extra(context, attr, &(struct api_cq_extra){ 0 });
}

struct ibv_cq_ex *api_cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	API_CALL_AS("ibv_create_cq_ex", API_DEVICE(context));
	if (!context || !attr)
		return api_refuse_null(null, "context or attr");
	return provider_of(context)->create_cq(context, attr);
}

VB_PUBLIC struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				       struct ibv_comp_channel *channel, int comp_vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe > 0 ? (uint32_t)cqe : 0,
		.cq_context = cq_context,
		.channel = channel,
		.comp_vector = (uint32_t)comp_vector,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
	};
	struct ibv_cq_ex *cq;

	API_CALL(API_DEVICE(context));
	cq = api_cq_create_ex(context, &attr);
	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

static void cq_mute(struct api_cq *cq, bool muted)
{
	api_channel_mute(cq, muted);
	api_async_mute(cq->ibv.context, &cq->async, muted);
}

int api_cq_destroy(struct ibv_cq *ibcq)
{
	struct api_cq *cq = to_cq(ibcq);
	int rc = vb_cq_check_unused(cq->card);

	if (rc)
		return api_status(rc);
	cq_mute(cq, true);
	api_wait_acked(ibcq->context, &ibcq->mutex, &ibcq->cond, &ibcq->comp_events_completed,
		       cq->fetched);
	api_wait_acked(ibcq->context, &ibcq->mutex, &ibcq->cond, &ibcq->async_events_completed,
		       cq->async.fetched);
	rc = vb_cq_destroy(cq->card);
	if (rc) { /* used since */
		cq_mute(cq, false);
		return api_status(rc);
	}
	cq_count_users(cq, -1);
	api_untrack(ibcq->context, &cq->node);
	verbs_cq_free(cq);
	return 0;
}

VB_PUBLIC int ibv_destroy_cq(struct ibv_cq *cq)
{
	API_CALL(API_CQ(cq));
	if (!cq)
		return api_refuse(null, "cq");
	return provider_of(cq->context)->destroy_cq(cq);
}

/*
 * Completions are reported as they come; moderation only asks for fewer interrupts, so it is
 * accepted.
 */
int api_cq_modify(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	API_CALL_AS("ibv_modify_cq", API_CQ(cq));
	if (!attr)
		return api_refuse(null, "attr");
	if (attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
		return api_refuse(bits, "attr_mask",
				  attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE);
	return 0;
}

/* --- the ring --------------------------------------------------------------------------------- */

/*
 * The entries from an index on that belong together, a CQE or an array of mini CQEs; 0: not ready.
 * bare: they are the rest of an array, without its title.
 */
static uint32_t span_at(const struct api_cq *cq, uint32_t index, bool *bare)
{
	uint32_t span;

	*bare = false;
	if (cq->compressed) {
		span = verbs_cq_ring_ops(cq)->cq_span(cq, index, bare);
		return span < cq->cqe_cnt ? span
					  : cq->cqe_cnt; /* what a title counts is not trusted */
	}
	return verbs_cq_ring_ops(cq)->cqe_ready(entry_at(cq, cq->ring, cq->cqe_cnt, index),
						cq->cqe_size, index & cq->cqe_cnt);
}

/* The number of entries that are ready and not yet polled; under the lock. */
static uint32_t count_ready(const struct api_cq *cq)
{
	uint32_t n = 0, span;
	bool bare;

	for (; n < cq->cqe_cnt; n += span) {
		span = span_at(cq, cq->ci + n, &bare);
		if (!span)
			break;
	}
	return n < cq->cqe_cnt ? n : cq->cqe_cnt;
}

/* Entries of an array are moved as they are: they have no owner bit. */
static void move_ready(const struct api_cq *cq, void *buf, uint32_t cqe_cnt, uint32_t count)
{
	uint32_t span;
	bool bare;

	for (uint32_t n = 0; n < count; n += span) {
		span = span_at(cq, cq->ci + n, &bare);
		if (!span)
			return;
		for (uint32_t i = 0; i < span && n + i < count; i++) {
			uint32_t index = cq->ci + n + i;
			void *to = entry_at(cq, buf, cqe_cnt, index);
			void *from = entry_at(cq, cq->ring, cq->cqe_cnt, index);

			if (i || bare)
				memcpy(to, from, cq->cqe_size);
			else
				verbs_cq_ring_ops(cq)->cqe_move(to, from, cq->cqe_size,
								index & cqe_cnt);
		}
	}
}

/*
 * Callback of vb_cq_resize(), with the CQ stopped and its lock held: moves the unpolled CQEs into
 * the new ring. The rest of the ring belongs to the card, with the owner bits of the round that the
 * consumer index is in.
 */
static uint32_t copy_ready(void *arg, void *buf, uint32_t cqe_cnt)
{
	struct api_cq *cq = arg;
	uint32_t n;

	if (cq->dv_owned) /* the program keeps the index, in the record */
		cq->ci = be32toh(__atomic_load_n(&cq->dbr[0], __ATOMIC_ACQUIRE));
	n = count_ready(cq);
	if (n > cqe_cnt)
		return n; /* does not fit: the card keeps the old ring */
	move_ready(cq, buf, cqe_cnt, n);
	for (uint32_t i = n; i < cqe_cnt; i++)
		verbs_cq_ring_ops(cq)->cqe_give(entry_at(cq, buf, cqe_cnt, cq->ci + i),
						cq->cqe_size, (cq->ci + i) & cqe_cnt);
	return n;
}

/* Whether the CQE belongs to this QP. If so, its receive WQE goes back to the SRQ. */
static bool forget_cqe(const struct api_cq *cq, const void *entry, struct api_qp *qp)
{
	int32_t index;

	if (verbs_cq_ring_ops(cq)->cqe_qpn(entry, cq->cqe_size) != qp->ibv.qp_num)
		return false;
	index = verbs_cq_ring_ops(cq)->cqe_receive(entry, cq->cqe_size);
	if (qp->ibv.srq && index >= 0)
		api_srq_free_wqe(to_srq(qp->ibv.srq), (uint16_t)index);
	return true;
}

/*
 * Remove the unpolled CQEs of a QP that the card no longer works for. The card goes on adding CQEs
 * of other QPs at the end, so those that stay move towards the end, over the removed ones, and the
 * consumer index follows. A CQ that direct verbs poll (dv_owned) is left alone: that program has to
 * recognise the CQEs of a destroyed QP itself.
 */
void api_cq_clean(struct api_cq *cq, struct api_qp *qp)
{
	uint32_t end, removed = 0;

	api_lock(&cq->lock, cq->unlocked);
	if (cq->last_qp == qp)
		cq->last_qp = NULL;
	if (cq->compressed && !cq->dv_owned)
		verbs_cq_ring_ops(cq)->cq_forget(cq, qp);
	end = cq->dv_owned || cq->compressed ? cq->ci : cq->ci + count_ready(cq);
	while (end-- != cq->ci) {
		void *entry = entry_at(cq, cq->ring, cq->cqe_cnt, end);
		uint32_t to = end + removed;

		if (forget_cqe(cq, entry, qp))
			removed++;
		else if (removed)
			verbs_cq_ring_ops(cq)->cqe_move(entry_at(cq, cq->ring, cq->cqe_cnt, to),
							entry, cq->cqe_size, to & cq->cqe_cnt);
	}
	if (removed) {
		cq->ci += removed;
		cq_store_ci(cq);
	}
	api_unlock(&cq->lock, cq->unlocked);
}

int api_cq_resize(struct ibv_cq *ibcq, int cqe)
{
	struct api_cq *cq = to_cq(ibcq);
	uint32_t cqe_cnt = verbs_cq_ring_size((uint32_t)cqe);
	struct api_buf buf, old;
	int rc;

	if (cqe_cnt == cq->cqe_cnt)
		return 0;
	/* Only the program knows how far it is in an array. */
	if (cq->compressed && cq->dv_owned)
		return api_refuse(combination, "a program polls this compressed CQ itself");
	rc = ring_alloc(&buf, cq, cqe_cnt);
	if (rc)
		return api_status(rc);
	old = buf;
	api_lock(&cq->lock, cq->unlocked);
	rc = vb_cq_resize(cq->card, buf.ptr, cqe_cnt, copy_ready, cq);
	if (!rc) {
		old = cq->buf;
		cq->buf = buf;
		cq->ring = buf.ptr;
		cq->cqe_cnt = cqe_cnt;
		ibcq->cqe = (int)cqe_cnt - 1;
	}
	api_unlock(&cq->lock, cq->unlocked);
	api_buf_free(&old);
	return api_status(rc);
}

VB_PUBLIC int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	API_CALL(API_CQ(cq));
	if (!cq)
		return api_refuse(null, "cq");
	if (cqe < 1 || cqe > VB_MAX_CQE)
		return api_refuse(range, "cqe", (uint64_t)(int64_t)cqe, 1, VB_MAX_CQE);
	if (!provider_of(cq->context)->resize_cq)
		return api_refuse(unsupported, "resizing CQs of this adapter");
	return provider_of(cq->context)->resize_cq(cq, cqe);
}

/* --- ibv_cq_ex: what needs no CQE ------------------------------------------------------------- */

void api_cq_end_poll(struct ibv_cq_ex *ibcq)
{
	struct api_cq *cq = ex_to_cq(ibcq);

	cq_store_ci(cq);
	api_unlock(&cq->lock, cq->unlocked);
}

/* The card's clock runs at 1 GHz, so its distance from now is the same on the wall clock. */
uint64_t api_cq_wallclock_ns(uint64_t age)
{
	return vb_wall_ns() - age;
}

uint32_t api_cq_read_flow_tag(struct ibv_cq_ex *cq)
{
	return 0;
}

void api_cq_read_tm_info(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *tm_info)
{
	*tm_info = (struct ibv_wc_tm_info){ 0 };
}

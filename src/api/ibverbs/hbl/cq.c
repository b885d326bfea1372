// SPDX-License-Identifier: MIT
/*
 * Completion queues of an hbl device. Their entries are read from memory (hbldv_query_cq); a
 * completion channel is accepted and stays silent, because the hardware has nothing to arm.
 */
#include "hbl.h"

static void count_channel(struct ibv_cq *cq, int delta)
{
	if (!cq->channel)
		return;
	api_context_lock(cq->context);
	cq->channel->refcnt += delta;
	api_context_unlock(cq->context);
}

struct ibv_cq *hbl_cq_create(struct ibv_context *context, uint32_t entries,
			     struct ibv_comp_channel *channel, void *cq_context, uint32_t port,
			     bool cc)
{
	struct hbl_cq *cq = NULL;
	struct vb_hbl_cq_info info;
	int rc;

	if (channel && channel->context != context)
		return api_null(EINVAL);
	if (posix_memalign((void **)&cq, _Alignof(struct hbl_cq), sizeof(*cq)))
		return api_null(ENOMEM);
	memset(cq, 0, sizeof(*cq));
	rc = vb_hbl_cq_create(to_hbl_context(context)->card, port, entries, cc, cq, &cq->card);
	if (rc) {
		free(cq);
		return api_null(-rc);
	}
	vb_hbl_cq_query(cq->card, &info);
	cq->api.ibv.context = context;
	cq->api.ibv.channel = channel;
	cq->api.ibv.cq_context = cq_context;
	cq->api.ibv.handle = info.number;
	cq->api.ibv.cqe = (int)info.entries;
	pthread_mutex_init(&cq->api.ibv.mutex, NULL);
	pthread_cond_init(&cq->api.ibv.cond, NULL);
	count_channel(&cq->api.ibv, 1);
	api_track(context, API_KIND_CQ, &cq->api.node);
	return &cq->api.ibv;
}

/* ibv_create_cq(): for all ports. */
struct ibv_cq_ex *hbl_cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq *cq;

	if (attr->comp_vector >= (uint32_t)context->num_comp_vectors)
		return api_null(EINVAL);
	if (attr->comp_mask || (attr->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS))
		return api_null(EOPNOTSUPP);
	cq = hbl_cq_create(context, attr->cqe, attr->channel, attr->cq_context, 0, false);
	return cq ? &to_cq(cq)->ex : NULL;
}

int hbl_cq_destroy(struct ibv_cq *ibcq)
{
	struct hbl_cq *cq = to_hbl_cq(ibcq);
	int rc = vb_hbl_cq_check_unused(cq->card);

	if (rc)
		return api_status(rc);
	api_async_mute(ibcq->context, &cq->api.async, true);
	api_wait_acked(ibcq->context, &ibcq->mutex, &ibcq->cond, &ibcq->async_events_completed,
		       cq->api.async.fetched);
	rc = vb_hbl_cq_destroy(cq->card);
	if (rc) { /* used since */
		api_async_mute(ibcq->context, &cq->api.async, false);
		return api_status(rc);
	}
	count_channel(ibcq, -1);
	api_untrack(ibcq->context, &cq->api.node);
	api_acks_destroy(ibcq->context, &ibcq->mutex, &ibcq->cond);
	free(cq);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * Shared receive queues: objects and the free list of their WQEs. Posting is in loops.h.
 *
 * A WQE is a next segment and data segments. The card consumes WQE 0 first and then follows
 * next_wqe_index; the driver takes free WQEs from the head of the same list and appends completed
 * ones at its tail (struct api_srq).
 *
 *	posted, in the card's hands      free
 *	 2 -> 3 -> 7 -> 0        ->  head 4 -> 1 -> tail 6
 */
#include "objects.h"

#include <unistd.h>

#include "card/queue/srq.h"
#include "wqe.h"

enum { DBR_SIZE = 64 };

static struct mlx5_wqe_srq_next_seg *srq_wqe(struct api_srq *srq, uint32_t index)
{
	return (struct mlx5_wqe_srq_next_seg *)((char *)srq->buf.ptr + (index << srq->wqe_shift));
}

/* A polled receive gives its WQE back; called with the CQ's lock held. */
void api_srq_free_wqe(struct api_srq *srq, uint16_t index)
{
	vb_lock(&srq->lock);
	srq_wqe(srq, srq->tail)->next_wqe_index = htobe16(index);
	srq->tail = index;
	vb_unlock(&srq->lock);
}

static int srq_alloc_rings(struct api_srq *srq, struct ibv_pd *pd)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int rc = api_buf_alloc(&srq->buf, pd->context, pd, (size_t)srq->wqe_cnt << srq->wqe_shift,
			       page, API_BUF_SRQ);

	if (rc)
		return rc;
	rc = api_buf_alloc(&srq->dbr_buf, pd->context, pd, DBR_SIZE, DBR_SIZE, API_BUF_DBR);
	if (rc)
		return rc;
	srq->wrid = calloc(srq->wqe_cnt, sizeof(*srq->wrid));
	if (!srq->wrid)
		return -ENOMEM;
	for (uint32_t i = 0; i < srq->wqe_cnt; i++)
		srq_wqe(srq, i)->next_wqe_index = htobe16((uint16_t)((i + 1) & (srq->wqe_cnt - 1)));
	srq->tail = srq->wqe_cnt - 1;
	if (provider_of(pd->context)->ring.srq_preset)
		provider_of(pd->context)->ring.srq_preset(srq);
	return 0;
}

static void srq_free(struct api_srq *srq)
{
	api_buf_free(&srq->buf);
	api_buf_free(&srq->dbr_buf);
	free(srq->wrid);
	api_acks_destroy(srq->ibv.context, &srq->ibv.mutex, &srq->ibv.cond);
	free(srq);
}

static int verbs_srq_check_attr(const struct ibv_srq_attr *attr)
{
	if (attr->max_wr > VB_MAX_SRQ_WR)
		return -vb_refuse_range("max_wr", attr->max_wr, 0, VB_MAX_SRQ_WR);
	if (attr->max_sge > VB_MAX_SGE)
		return -vb_refuse_range("max_sge", attr->max_sge, 0, VB_MAX_SGE);
	return 0;
}

struct ibv_srq *api_srq_create(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct api_srq *srq = calloc(1, sizeof(*srq));
	int rc;

	if (!srq)
		return api_refuse_null(memory, "the SRQ");
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = attr->srq_context;
	srq->ibv.pd = pd;
	srq->max_gs = attr->attr.max_sge ? attr->attr.max_sge : 1;
	/* One WQE is always free; a program that leaves max_wr at 0 gets room for one. */
	srq->wqe_cnt = roundup_pow2(attr->attr.max_wr ? attr->attr.max_wr + 1 : 2);
	srq->wqe_shift =
		ilog2(roundup_pow2((uint32_t)(sizeof(struct mlx5_wqe_srq_next_seg) +
					      srq->max_gs * sizeof(struct mlx5_wqe_data_seg))));
	rc = srq_alloc_rings(srq, pd);
	if (rc)
		goto free_srq;

	struct vb_srq_attr card_attr = {
		.pd = pd_card(pd),
		.buf = srq->buf.ptr,
		.wqe_cnt = srq->wqe_cnt,
		.wqe_shift = srq->wqe_shift,
		.max_sge = srq->max_gs,
		.dbr = srq->dbr_buf.ptr,
		.cookie = srq,
	};
	rc = vb_srq_create(to_context(pd->context)->dev, &card_attr, &srq->card);
	if (rc)
		goto free_srq;
	srq->ibv.handle = vb_srq_number(srq->card);
	api_pd_get(pd);
	api_track(pd->context, API_KIND_SRQ, &srq->node);
	attr->attr.max_wr = srq->wqe_cnt - 1;
	attr->attr.max_sge = srq->max_gs;
	return &srq->ibv;

free_srq:
	srq_free(srq);
	return api_null(-rc);
}

VB_PUBLIC struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	int err;

	API_CALL(API_DEVICE(pd ? pd->context : NULL));
	if (!pd || !attr)
		return api_refuse_null(null, "pd or attr");
	err = verbs_srq_check_attr(&attr->attr);
	if (err)
		return api_null(err);
	if (!provider_of(pd->context)->create_srq)
		return api_refuse_null(unsupported, "SRQs of this adapter");
	return provider_of(pd->context)->create_srq(pd, attr);
}

/*
 * verbs.h sends basic SRQs with a PD to ibv_create_srq(); what arrives here is something else, or
 * malformed.
 */
struct ibv_srq *api_srq_create_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t known = IBV_SRQ_INIT_ATTR_RESERVED - 1;

	API_CALL_AS("ibv_create_srq_ex", API_DEVICE(context));
	if (!attr)
		return api_refuse_null(null, "attr");
	if (attr->comp_mask & ~known)
		return api_refuse_null(bits, "comp_mask", attr->comp_mask & ~known);
	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type > IBV_SRQT_TM)
		return api_refuse_null(value, "srq_type", attr->srq_type);
	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type != IBV_SRQT_BASIC)
		return api_refuse_null(unsupported_value, "srq_type", attr->srq_type);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context)
		return api_refuse_null(other_context, "pd");
	/* A CQ or XRC domain means nothing to a basic SRQ. */
	return ibv_create_srq(attr->pd, (struct ibv_srq_init_attr *)attr);
}

VB_PUBLIC int ibv_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	struct api_srq *srq = to_srq(ibsrq);

	API_CALL(API_SRQ(ibsrq));
	if (!ibsrq || !attr)
		return api_refuse(null, "srq or srq_attr");
	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return api_refuse(bits, "srq_attr_mask",
				  (unsigned int)mask &
					  ~(unsigned int)(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT));
	if (mask & IBV_SRQ_MAX_WR)
		return api_refuse(unsupported, "IBV_SRQ_MAX_WR");
	if (mask & IBV_SRQ_LIMIT) {
		if (attr->srq_limit >= srq->wqe_cnt - 1)
			return api_refuse(range, "srq_limit", attr->srq_limit, 0, srq->wqe_cnt - 2);
		return api_status(vb_srq_set_limit(srq->card, attr->srq_limit));
	}
	return 0;
}

VB_PUBLIC int ibv_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	struct api_srq *srq = to_srq(ibsrq);

	API_CALL(API_SRQ(ibsrq));
	if (!ibsrq || !attr)
		return api_refuse(null, "srq or srq_attr");
	attr->max_wr = srq->wqe_cnt - 1;
	attr->max_sge = srq->max_gs;
	attr->srq_limit = vb_srq_limit(srq->card);
	return 0;
}

int api_srq_number(struct ibv_srq *srq, uint32_t *number)
{
	API_CALL_AS("ibv_get_srq_num", API_SRQ(srq));
	if (!number)
		return api_refuse(null, "srq_num");
	*number = vb_srq_number(to_srq(srq)->card);
	return 0;
}

VB_PUBLIC int ibv_destroy_srq(struct ibv_srq *ibsrq)
{
	struct api_srq *srq = to_srq(ibsrq);
	int rc;

	API_CALL(API_SRQ(ibsrq));
	if (!ibsrq)
		return api_refuse(null, "srq");
	rc = vb_srq_check_unused(srq->card);
	if (rc)
		return api_status(rc);
	api_async_mute(ibsrq->context, &srq->async, true);
	api_wait_acked(ibsrq->context, &ibsrq->mutex, &ibsrq->cond, &ibsrq->events_completed,
		       srq->async.fetched);
	rc = vb_srq_destroy(srq->card);
	if (rc) { /* used since */
		api_async_mute(ibsrq->context, &srq->async, false);
		return api_status(rc);
	}
	api_untrack(ibsrq->context, &srq->node);
	struct ibv_pd *pd = ibsrq->pd;

	srq_free(srq);
	api_pd_put(pd);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * Receive work queues and indirection tables.
 *
 * A WQ is a QP that only receives, as on the hardware: this file gives it the shape of an ibv_wq. A
 * WQ cannot be destroyed while tables name it, nor a table while QPs use it.
 *
 *	RSS QP --> indirection table --> inner QP: ring, record, number <-- WQ (api_wq)
 *
 * A command (DEVX) can change the queues of a table, also to some that no WQ has.
 */
#include "objects.h"

#include "card/queue/qp.h"

static int post_recv(struct ibv_wq *wq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	return provider_of(wq->context)->post_recv(&to_wq(wq)->ibv, wr, bad_wr);
}

static int wq_check_attr(struct ibv_context *context, const struct ibv_wq_init_attr *attr)
{
	if (!attr)
		return -vb_refuse_null("wq_init_attr");
	if (attr->wq_type != IBV_WQT_RQ)
		return -vb_refuse_value("wq_type", attr->wq_type);
	if (!attr->max_wr)
		return -vb_refuse_value("max_wr", 0);
	if (!attr->pd || attr->pd->context != context || !attr->cq || attr->cq->context != context)
		return -vb_refuse_other_context("pd or cq");
	if (attr->comp_mask & ~(uint32_t)IBV_WQ_INIT_ATTR_FLAGS)
		return -vb_refuse_bits("comp_mask",
				       attr->comp_mask & ~(uint32_t)IBV_WQ_INIT_ATTR_FLAGS);
	if (attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS) {
		uint32_t unknown = attr->create_flags & ~provider_of(context)->raw_caps.wq_flags;

		if (unknown)
			return -vb_refuse_unsupported_value("create_flags", unknown);
	}
	return 0;
}

struct ibv_wq *api_wq_create(struct ibv_context *context, struct ibv_wq_init_attr *attr)
{
	return api_wq_create_direct(context, attr, NULL);
}

struct ibv_wq *api_wq_create_direct(struct ibv_context *context, struct ibv_wq_init_attr *attr,
				    const void *direct)
{
	struct api_qp_extra extra = { .wq = true, .direct = direct };
	struct ibv_qp_init_attr_ex inner;
	struct ibv_qp *qp;
	struct api_wq *wq;
	int err;

	API_CALL_AS("ibv_create_wq", API_DEVICE(context));
	err = wq_check_attr(context, attr);
	if (err)
		return api_null(err);
	wq = calloc(1, sizeof(*wq));
	if (!wq)
		return api_refuse_null(memory, "the work queue");
	inner = (struct ibv_qp_init_attr_ex){
		.qp_context = attr->wq_context,
		.send_cq = attr->cq,
		.recv_cq = attr->cq,
		.qp_type = IBV_QPT_RAW_PACKET,
		.cap = { .max_recv_wr = attr->max_wr, .max_recv_sge = attr->max_sge },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = attr->pd,
	};
	if (attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS) {
		extra.vlan_strip = attr->create_flags & IBV_WQ_FLAGS_CVLAN_STRIPPING;
		extra.scatter_fcs = attr->create_flags & IBV_WQ_FLAGS_SCATTER_FCS;
	}
	qp = api_qp_create_extra(context, &inner, &extra);
	if (!qp) {
		free(wq);
		return NULL;
	}
	wq->qp = to_qp(qp);
	wq->ibv = (struct ibv_wq){
		.context = context,
		.wq_context = attr->wq_context,
		.pd = attr->pd,
		.cq = attr->cq,
		.wq_num = qp->qp_num,
		.handle = qp->handle,
		.state = IBV_WQS_RESET,
		.wq_type = IBV_WQT_RQ,
		.post_recv = post_recv,
	};
	attr->max_wr = inner.cap.max_recv_wr;
	attr->max_sge = inner.cap.max_recv_sge;
	return &wq->ibv;
}

/* Back to RESET the ring is empty, on the card and here. */
static void forget_posted(struct api_qp *qp)
{
	api_cq_clean(to_cq(qp->ibv.recv_cq), qp);
	vb_lock(&qp->rq.lock);
	qp->rq.head = 0;
	atomic_store_explicit(&qp->rq.tail, 0, memory_order_relaxed);
	qp->rq.strides = 0;
	qp->dbr[0] = 0;
	vb_unlock(&qp->rq.lock);
}

/* Of flags only the stripping of tags can change: so mlx5's driver. */
static int wq_check_modify(struct ibv_wq *wq, const struct ibv_wq_attr *attr)
{
	enum { KNOWN = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS };
	uint32_t can = provider_of(wq->context)->raw_caps.wq_flags & IBV_WQ_FLAGS_CVLAN_STRIPPING;

	if (attr->attr_mask & ~(uint32_t)KNOWN)
		return -vb_refuse_bits("attr_mask", attr->attr_mask & ~(uint32_t)KNOWN);
	if ((attr->attr_mask & IBV_WQ_ATTR_FLAGS) && !can)
		return api_refuse(unsupported, "IBV_WQ_ATTR_FLAGS");
	if ((attr->attr_mask & IBV_WQ_ATTR_FLAGS) && (attr->flags_mask & ~can))
		return -vb_refuse_unsupported_value("flags_mask", attr->flags_mask & ~can);
	if ((attr->attr_mask & IBV_WQ_ATTR_CURR_STATE) && attr->curr_wq_state != wq->state)
		return -vb_refuse_combination("curr_wq_state is not the state of the work queue");
	return 0;
}

static int modify_state(struct ibv_wq *wq, enum ibv_wq_state state)
{
	struct api_qp *qp = to_wq(wq);
	int rc = vb_wq_modify(qp->card, state);

	if (rc)
		return rc;
	wq->state = state;
	if (state == IBV_WQS_RESET)
		forget_posted(qp);
	/* Posting checks the state of the inner QP. */
	qp->ibv.state = state == IBV_WQS_RDY   ? IBV_QPS_RTR
			: state == IBV_WQS_ERR ? IBV_QPS_ERR
					       : IBV_QPS_RESET;
	return 0;
}

int api_wq_modify(struct ibv_wq *wq, struct ibv_wq_attr *attr)
{
	int err, rc;

	API_CALL_AS("ibv_modify_wq", .kind = "WQ", .number = wq ? wq->wq_num : 0);
	if (!wq || !attr)
		return api_refuse(null, "wq or wq_attr");
	err = wq_check_modify(wq, attr);
	if (err)
		return api_fail(err);
	if (attr->attr_mask & IBV_WQ_ATTR_STATE) {
		rc = modify_state(wq, attr->wq_state);
		if (rc)
			return api_status(rc);
	}
	if ((attr->attr_mask & IBV_WQ_ATTR_FLAGS) && attr->flags_mask)
		vb_wq_strip_vlan(to_wq(wq)->card, attr->flags & IBV_WQ_FLAGS_CVLAN_STRIPPING);
	return 0;
}

int api_wq_destroy(struct ibv_wq *ibwq)
{
	struct api_wq *wq = (struct api_wq *)ibwq;
	int err;

	API_CALL_AS("ibv_destroy_wq", .kind = "WQ", .number = ibwq ? ibwq->wq_num : 0);
	if (!ibwq)
		return api_refuse(null, "wq");
	if (vb_qp_check_unused(wq->qp->card))
		return api_refuse(busy, "indirection tables or TIRs");
	err = ibv_destroy_qp(&wq->qp->ibv);
	if (!err)
		free(wq);
	return err;
}

static void put_queues(struct vb_rss *queues)
{
	while (queues->count)
		vb_rq_put(queues->wq[--queues->count]);
}

struct ibv_rwq_ind_table *api_ind_table_create(struct ibv_context *context,
					       struct ibv_rwq_ind_table_init_attr *attr)
{
	enum { MOST_NUMBERS = 0xffffff }; /* commands name a table by 24 bits */
	static atomic_uint numbers;
	struct api_ind_table *table;
	uint32_t count;

	API_CALL_AS("ibv_create_rwq_ind_table", API_DEVICE(context));
	if (!attr || !attr->ind_tbl)
		return api_refuse_null(null, "init_attr or ind_tbl");
	if (attr->comp_mask)
		return api_refuse_null(bits, "comp_mask", attr->comp_mask);
	if (attr->log_ind_tbl_size > 31 || 1u << attr->log_ind_tbl_size > VB_MAX_RSS)
		return api_refuse_null(range, "log_ind_tbl_size", attr->log_ind_tbl_size, 0,
				       ilog2(VB_MAX_RSS));
	count = 1u << attr->log_ind_tbl_size;
	for (uint32_t i = 0; i < count; i++)
		if (!attr->ind_tbl[i] || attr->ind_tbl[i]->context != context)
			return api_refuse_null(other_context, "a work queue of ind_tbl");
	if (api_is_inherited(context))
		return api_refuse_null(forked);
	table = calloc(1, sizeof(*table));
	if (!table)
		return api_refuse_null(memory, "the table");
	table->ibv.context = context;
	table->ibv.ind_tbl_handle = table->ibv.ind_tbl_num =
		1 + atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed) % MOST_NUMBERS;
	table->max_size = count;
	for (uint32_t i = 0; i < count; i++) {
		const struct api_wq *wq = (const struct api_wq *)attr->ind_tbl[i];

		table->queues.wq[i] = vb_rq_get(to_context(context)->dev, wq->ibv.wq_num);
		if (!table->queues.wq[i]) { /* it is being destroyed */
			put_queues(&table->queues);
			free(table);
			return api_refuse_null(other_context, "a work queue of ind_tbl");
		}
		table->queues.count = i + 1;
	}
	api_track(context, API_KIND_TABLE, &table->node);
	return &table->ibv;
}

int api_ind_table_destroy(struct ibv_rwq_ind_table *ibtable)
{
	struct api_ind_table *table = (struct api_ind_table *)ibtable;

	API_CALL_AS("ibv_destroy_rwq_ind_table");
	if (!ibtable)
		return api_refuse(null, "rwq_ind_table");
	/* Pairs with the release in api_qp_destroy(). */
	if (atomic_load_explicit(&table->users, memory_order_acquire))
		return api_refuse(busy, "queue pairs");
	api_untrack(ibtable->context, &table->node);
	put_queues(&table->queues);
	free(table);
	return 0;
}

/* Under the lock of the context. */
static void swap_queues(struct api_ind_table *table, struct vb_rss *queues)
{
	struct vb_rss old = table->queues;

	table->queues = *queues;
	for (struct api_qp *qp = table->qps; qp; qp = qp->rss_next)
		vb_qp_set_rss(qp->card, queues);
	*queues = old;
}

/* QPs of the table, which go later, keep none of its queues. */
void api_ind_table_abandon(struct vb_list *node)
{
	struct vb_rss queues = { 0 };

	swap_queues(container_of(node, struct api_ind_table, node), &queues);
	put_queues(&queues);
}

uint32_t api_ind_table_show(struct ibv_rwq_ind_table *ibtable, struct vb_rss *queues)
{
	struct api_ind_table *table = (struct api_ind_table *)ibtable;
	struct vb_dev *dev = to_context(ibtable->context)->dev;

	api_context_lock(ibtable->context);
	*queues = table->queues;
	for (uint32_t i = 0; i < queues->count; i++)
		vb_rq_get(dev, vb_qp_number(queues->wq[i])); /* the table has it: it is there */
	api_context_unlock(ibtable->context);
	return table->max_size;
}

void api_ind_table_swap(struct ibv_rwq_ind_table *ibtable, struct vb_rss *queues)
{
	api_context_lock(ibtable->context);
	swap_queues((struct api_ind_table *)ibtable, queues);
	api_context_unlock(ibtable->context);
}

// SPDX-License-Identifier: MIT
/* The tables of accessors.h that are the same for all providers. */
#include "flow.h"

#include "card/queue/qp.h"
#include "objects.h"

/* --- every device ----------------------------------------------------------------------------- */

static struct vb_dev *dev(struct ibv_context *context)
{
	return to_context(context)->dev;
}

static struct vb_mr *mr(struct ibv_mr *mr)
{
	return to_mr(mr)->card;
}

static struct vb_qp *qp_card(struct ibv_qp *qp)
{
	return to_qp(qp)->card;
}

static void accessors_hold(struct ibv_context *context, struct ibv_pd *pd)
{
	api_context_get(context);
	if (pd)
		api_pd_lend(pd, 1);
}

static void accessors_release(struct ibv_context *context, struct ibv_pd *pd)
{
	if (pd)
		api_pd_lend(pd, -1);
	api_context_put(context);
}

static struct vb_steer_counter *get_counters(struct ibv_counters *ibv)
{
	struct api_counters *counters = to_counters(ibv);

	atomic_fetch_add_explicit(&counters->users, 1, memory_order_relaxed);
	return &counters->counter;
}

static void put_counters(struct ibv_counters *counters)
{
	/* Pairs with the acquire in api_counters_destroy(). */
	atomic_fetch_sub_explicit(&to_counters(counters)->users, 1, memory_order_release);
}

static struct vb_verbs_extra *_Atomic *extra(struct ibv_context *context)
{
	return &to_context(context)->extra;
}

const struct vb_verbs_objects api_objects = {
	.dev = dev,
	.pd = pd_card,
	.mr = mr,
	.qp = qp_card,
	.hold = accessors_hold,
	.release = accessors_release,
	.pd_lent = api_pd_lent,
	.get_counters = get_counters,
	.put_counters = put_counters,
	.extra = extra,
};

/* --- rings in memory -------------------------------------------------------------------------- */

static void show_qp(const struct api_qp *qp, struct vb_verbs_qp *out)
{
	*out = (struct vb_verbs_qp){
		.card = qp->card,
		.buf = qp->buf.ptr,
		.bytes = qp->buf.bytes,
		.dbr = qp->dbr,
		.sq = { qp->sq.buf, qp->sq.cnt, qp->sq.shift },
		.rq = { qp->rq.buf, qp->rq.cnt, qp->rq.shift },
	};
	vb_qp_set_direct(qp->card);
}

static void qp(struct ibv_qp *qp, struct vb_verbs_qp *out)
{
	show_qp(to_qp(qp), out);
}

static void wq(struct ibv_wq *wq, struct vb_verbs_qp *out)
{
	show_qp(to_wq(wq), out);
}

static void srq(struct ibv_srq *ibsrq, struct vb_verbs_srq *out)
{
	struct api_srq *srq = to_srq(ibsrq);

	vb_lock(&srq->lock);
	*out = (struct vb_verbs_srq){
		.card = srq->card,
		.buf = srq->buf.ptr,
		.bytes = srq->buf.bytes,
		.wqe_cnt = srq->wqe_cnt,
		.wqe_shift = srq->wqe_shift,
		.head = srq->head,
		.tail = srq->tail,
		.dbr = srq->dbr_buf.ptr,
	};
	vb_unlock(&srq->lock);
}

static void cq(struct ibv_cq *ibcq, struct vb_verbs_cq *out)
{
	struct api_cq *cq = to_cq(ibcq);

	*out = (struct vb_verbs_cq){
		.card = cq->card,
		.buf = cq->buf.ptr,
		.bytes = cq->buf.bytes,
		.cqe_cnt = cq->cqe_cnt,
		.cqe_size = cq->cqe_size,
		.dbr = cq->dbr,
		.arm_sn = atomic_load_explicit(&cq->arm_sn, memory_order_relaxed),
	};
	vb_lock(&cq->lock);
	cq->dv_owned = true;
	vb_unlock(&cq->lock);
}

static char *accessors_uar_page(struct ibv_context *context)
{
	return provider_of(context)->ring.uar_page(to_context(context));
}

static struct ibv_qp *accessors_create_qp(struct ibv_context *context,
					  struct ibv_qp_init_attr_ex *attr, const void *direct)
{
	return api_qp_create_extra(context, attr, &(struct api_qp_extra){ .direct = direct });
}

static void accessors_set_allocators(struct ibv_context *context,
				     void *(*alloc)(size_t size, void *data),
				     void (*free)(void *ptr, void *data), void *data)
{
	api_context_lock(context);
	to_context(context)->allocators = (struct api_allocators){ alloc, free, data };
	api_context_unlock(context);
}

const struct vb_verbs_rings api_rings = {
	.qp = qp,
	.wq = wq,
	.srq = srq,
	.cq = cq,
	.uar_page = accessors_uar_page,
	.create_qp = accessors_create_qp,
	.set_allocators = accessors_set_allocators,
	.ind_table = api_ind_table_show,
	.swap_ind_table = api_ind_table_swap,
};

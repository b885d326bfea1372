// SPDX-License-Identifier: MIT
/*
 * Queue pairs of an hbl device. ibv_qp.qp_num is a number of the verbs layer; the one that packets
 * and doorbells use is the port's, given out at INIT (hbldv_query_qp).
 */
#include "hbl.h"

static int hbl_qp_check_attr(struct ibv_context *context, const struct ibv_qp_init_attr_ex *attr)
{
	if (attr->qp_type != IBV_QPT_RC || attr->srq)
		return EOPNOTSUPP;
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context ||
	    !attr->send_cq || attr->send_cq->context != context || !attr->recv_cq ||
	    attr->recv_cq->context != context)
		return EINVAL;
	return 0;
}

static void init(struct hbl_qp *qp, struct ibv_context *context,
		 const struct ibv_qp_init_attr_ex *attr)
{
	static _Atomic uint32_t numbers = 1;
	struct ibv_qp *ibv = &qp->api.ibv;

	ibv->context = context;
	ibv->qp_context = attr->qp_context;
	ibv->pd = attr->pd;
	ibv->send_cq = attr->send_cq;
	ibv->recv_cq = attr->recv_cq;
	ibv->qp_type = attr->qp_type;
	ibv->state = IBV_QPS_RESET;
	ibv->qp_num = ibv->handle =
		atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed) & 0xffffff;
	qp->api.sq.signal_all = attr->sq_sig_all;
	qp->api.cap = (struct ibv_qp_cap){ .max_send_wr = attr->cap.max_send_wr,
					   .max_recv_wr = attr->cap.max_recv_wr,
					   .max_send_sge = 1,
					   .max_recv_sge = 1 };
	pthread_mutex_init(&ibv->mutex, NULL);
	pthread_cond_init(&ibv->cond, NULL);
}

struct ibv_qp *hbl_qp_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct hbl_qp *qp = NULL;
	int err;

	/* As the hardware's driver does: comp_mask tells the program what was used. */
	attr->comp_mask &= IBV_QP_INIT_ATTR_PD;
	err = hbl_qp_check_attr(context, attr);
	if (err)
		return api_null(err);
	if (posix_memalign((void **)&qp, _Alignof(struct hbl_qp), sizeof(*qp)))
		return api_null(ENOMEM);
	memset(qp, 0, sizeof(*qp));
	err = -vb_hbl_qp_create(to_hbl_context(context)->card, to_hbl_cq(attr->send_cq)->card,
				to_hbl_cq(attr->recv_cq)->card, attr->cap.max_send_wr, qp,
				&qp->card);
	if (err) {
		free(qp);
		return api_null(err);
	}
	init(qp, context, attr);
	api_pd_get(attr->pd);
	api_track(context, API_KIND_QP, &qp->api.node);
	attr->cap = qp->api.cap;
	return &qp->api.ibv;
}

/* hbl NULL: a queue for plain writes, and at RTS priority 1, the first that programs may use. */
int hbl_qp_modify_ex(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		     const struct vb_hbl_qp_attr *hbl)
{
	const struct vb_hbl_qp_attr defaults = { .wq_type = VB_HBL_WQ_WRITE,
						 .priority = attr->qp_state == IBV_QPS_RTS };
	int rc = vb_hbl_qp_modify(to_hbl_qp(qp)->card, attr, mask, hbl ? hbl : &defaults);

	if (!rc)
		qp->state = attr->qp_state;
	return api_status(rc);
}

int hbl_qp_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return hbl_qp_modify_ex(qp, attr, mask, NULL);
}

int hbl_qp_query(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init_attr)
{
	struct vb_hbl_qp_info info;

	vb_hbl_qp_query(to_hbl_qp(qp)->card, &info);
	*attr = info.attr;
	attr->qp_state = attr->cur_qp_state = qp->state = info.state;
	attr->cap = to_qp(qp)->cap;
	*init_attr = (struct ibv_qp_init_attr){
		.qp_context = qp->qp_context,
		.send_cq = qp->send_cq,
		.recv_cq = qp->recv_cq,
		.cap = to_qp(qp)->cap,
		.qp_type = qp->qp_type,
		.sq_sig_all = to_qp(qp)->sq.signal_all,
	};
	return 0;
}

int hbl_qp_destroy(struct ibv_qp *ibqp)
{
	struct hbl_qp *qp = to_hbl_qp(ibqp);

	api_async_mute(ibqp->context, &qp->api.async, true);
	api_wait_acked(ibqp->context, &ibqp->mutex, &ibqp->cond, &ibqp->events_completed,
		       qp->api.async.fetched);
	api_untrack(ibqp->context, &qp->api.node);
	vb_hbl_qp_destroy(qp->card);
	api_pd_put(ibqp->pd);
	api_acks_destroy(ibqp->context, &ibqp->mutex, &ibqp->cond);
	free(qp);
	return 0;
}

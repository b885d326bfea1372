// SPDX-License-Identifier: MIT
/*
 * mlx5dv_init_obj(): the rings, records, doorbells and numbers behind verbs objects.
 *
 * Everything is checked before anything is written, so that a call that fails has changed nothing.
 */
#include "mlx5.h"

#include "card/memory/mr.h"
#include "card/queue/cq.h"
#include "card/queue/srq.h"

/* A BlueFlame register is two buffers of BF_SIZE bytes, for WQEs in turn. */
enum { BLOCK = 64, BF_OFFSET = 0x800, BF_SIZE = 0x100 };

#define KNOWN                                                                              \
	(MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ | MLX5DV_OBJ_SRQ | MLX5DV_OBJ_RWQ | MLX5DV_OBJ_DM | \
	 MLX5DV_OBJ_AH | MLX5DV_OBJ_PD)

static char *mlx5_objects_uar_of(struct ibv_context *context)
{
	return vb_verbs_rings(context)->uar_page(context);
}

static int mlx5_objects_check(const void *in, struct ibv_context *context, const void *out)
{
	if (!in || !out)
		return -vb_refuse_null("in or out of an object");
	return mlx5dv_is_supported(context->device) ? 0 : -vb_refuse_not_mlx("mlx5");
}

static int mlx5_objects_check_all(const struct mlx5dv_obj *obj, uint64_t type)
{
	int err = 0;

	if (type & ~(uint64_t)KNOWN)
		return -vb_refuse_unsupported_value("obj_type", type & ~(uint64_t)KNOWN);
	if (type & MLX5DV_OBJ_QP)
		err = mlx5_objects_check(obj->qp.in, obj->qp.in ? obj->qp.in->context : NULL,
					 obj->qp.out);
	if (!err && (type & MLX5DV_OBJ_CQ))
		err = mlx5_objects_check(obj->cq.in, obj->cq.in ? obj->cq.in->context : NULL,
					 obj->cq.out);
	if (!err && (type & MLX5DV_OBJ_SRQ))
		err = mlx5_objects_check(obj->srq.in, obj->srq.in ? obj->srq.in->context : NULL,
					 obj->srq.out);
	if (!err && (type & MLX5DV_OBJ_RWQ))
		err = mlx5_objects_check(obj->rwq.in, obj->rwq.in ? obj->rwq.in->context : NULL,
					 obj->rwq.out);
	if (!err && (type & MLX5DV_OBJ_DM))
		err = mlx5_objects_check(obj->dm.in, obj->dm.in ? obj->dm.in->context : NULL,
					 obj->dm.out);
	if (!err && (type & MLX5DV_OBJ_AH))
		err = mlx5_objects_check(obj->ah.in, obj->ah.in ? obj->ah.in->context : NULL,
					 obj->ah.out);
	if (!err && (type & MLX5DV_OBJ_PD))
		err = mlx5_objects_check(obj->pd.in, obj->pd.in ? obj->pd.in->context : NULL,
					 obj->pd.out);
	return err;
}

static void mlx5_objects_fill_qp(struct ibv_qp *in, struct mlx5dv_qp *out)
{
	char *page = mlx5_objects_uar_of(in->context);
	uint64_t answered = in->qp_type == IBV_QPT_RAW_PACKET
				    ? out->comp_mask & MLX5DV_QP_MASK_RAW_QP_HANDLES
				    : 0;
	struct vb_verbs_qp qp;

	vb_verbs_rings(in->context)->qp(in, &qp);
	out->comp_mask = answered;
	if (answered) { /* all have the number of the queue pair */
		out->sqn = out->tisn = qp.sq.cnt ? in->qp_num : 0;
		out->rqn = out->tirn = qp.rq.cnt || in->srq ? in->qp_num : 0;
	}
	out->dbrec = qp.dbr;
	out->sq.buf = qp.sq.buf;
	out->sq.wqe_cnt = qp.sq.cnt;
	out->sq.stride = BLOCK;
	out->rq.buf = qp.rq.buf;
	out->rq.wqe_cnt = qp.rq.cnt;
	out->rq.stride = qp.rq.cnt ? 1u << qp.rq.shift : 0;
	out->bf.reg = page ? page + BF_OFFSET : NULL;
	out->bf.size = page ? BF_SIZE : 0;
}

static void mlx5_objects_fill_cq(struct ibv_cq *in, struct mlx5dv_cq *out)
{
	struct vb_verbs_cq cq;

	/* The program looks at the CQ itself, and calls nothing that polls. */
	vb_progress_unpolled(vb_verbs_dev(in->context));
	vb_verbs_rings(in->context)->cq(in, &cq);
	out->comp_mask = 0;
	out->buf = cq.buf;
	out->dbrec = cq.dbr;
	out->cqe_cnt = cq.cqe_cnt;
	out->cqe_size = cq.cqe_size;
	out->cq_uar = mlx5_objects_uar_of(in->context);
	out->cqn = vb_cq_number(cq.card);
}

static void mlx5_objects_fill_srq(struct ibv_srq *in, struct mlx5dv_srq *out)
{
	uint64_t answered = out->comp_mask & MLX5DV_SRQ_MASK_SRQN;
	struct vb_verbs_srq srq;

	vb_verbs_rings(in->context)->srq(in, &srq);
	out->comp_mask = answered;
	out->buf = srq.buf;
	out->dbrec = srq.dbr;
	out->stride = 1u << srq.wqe_shift;
	out->head = srq.head;
	out->tail = srq.tail;
	if (answered)
		out->srqn = vb_srq_number(srq.card);
}

static void mlx5_objects_fill_rwq(struct ibv_wq *in, struct mlx5dv_rwq *out)
{
	struct vb_verbs_qp wq;

	vb_verbs_rings(in->context)->wq(in, &wq);
	out->comp_mask = 0;
	out->buf = wq.rq.buf;
	out->dbrec = wq.dbr;
	out->wqe_cnt = wq.rq.cnt;
	out->stride = 1u << wq.rq.shift;
}

/* Keys of device memory are zero-based: nobody needs to know where it is on the card. */
static void fill_dm(struct ibv_dm *in, struct mlx5dv_dm *out)
{
	uint64_t answered = out->comp_mask & MLX5DV_DM_MASK_REMOTE_VA;
	size_t length;

	out->buf = vb_verbs_mlx5(in->context)->dm(in, &length);
	out->length = length;
	out->comp_mask = answered;
	if (answered)
		out->remote_va = 0;
}

static void fill_ah(struct ibv_ah *in, struct mlx5dv_ah *out)
{
	out->comp_mask = 0;
	out->av = vb_verbs_mlx5(in->context)->av(in);
}

VB_PUBLIC int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t obj_type)
{
	int err;

	API_CALL(.kind = NULL);
	err = obj ? mlx5_objects_check_all(obj, obj_type) : -vb_refuse_null("obj");
	if (err)
		return api_fail(err);
	if (obj_type & MLX5DV_OBJ_QP)
		mlx5_objects_fill_qp(obj->qp.in, obj->qp.out);
	if (obj_type & MLX5DV_OBJ_CQ)
		mlx5_objects_fill_cq(obj->cq.in, obj->cq.out);
	if (obj_type & MLX5DV_OBJ_SRQ)
		mlx5_objects_fill_srq(obj->srq.in, obj->srq.out);
	if (obj_type & MLX5DV_OBJ_RWQ)
		mlx5_objects_fill_rwq(obj->rwq.in, obj->rwq.out);
	if (obj_type & MLX5DV_OBJ_DM)
		fill_dm(obj->dm.in, obj->dm.out);
	if (obj_type & MLX5DV_OBJ_AH)
		fill_ah(obj->ah.in, obj->ah.out);
	if (obj_type & MLX5DV_OBJ_PD) {
		obj->pd.out->pdn = vb_pd_number(vb_verbs_pd(obj->pd.in));
		obj->pd.out->comp_mask = 0;
	}
	return 0;
}

/* The form of 1.0 differs only in the UAR of a CQ, on older cards. */
VB_PUBLIC int compat_mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t obj_type);
int compat_mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t obj_type)
{
	return mlx5dv_init_obj(obj, obj_type);
}
__asm__(".symver compat_mlx5dv_init_obj, mlx5dv_init_obj@MLX5_1.0");

// SPDX-License-Identifier: MIT
/*
 * mlx4dv_init_obj(): the rings, records and doorbells behind verbs objects.
 *
 * Everything is checked before anything is written, so that a call that fails has changed nothing.
 * comp_mask says on return which of the optional fields are there; the offset of the UAR page in
 * the device file is none of them, because there is no file to map.
 */
#include "mlx4.h"

#include "card/queue/cq.h"

static char *mlx4_objects_uar_of(struct ibv_context *context)
{
	return vb_verbs_rings(context)->uar_page(context);
}

static int mlx4_objects_check(const void *in, struct ibv_context *context, const void *out)
{
	if (!in || !out)
		return -vb_refuse_null("in or out of an object");
	if (!is_mlx4(context))
		return -vb_refuse_not_mlx("mlx4");
	/* Without a page there are no doorbells that a program could ring. */
	return mlx4_objects_uar_of(context)
		       ? 0
		       : -vb_refuse_unsupported("doorbells by store on this processor");
}

static int mlx4_objects_check_all(const struct mlx4dv_obj *obj, uint64_t type)
{
	int err = 0;

	if (type & MLX4DV_OBJ_QP)
		err = mlx4_objects_check(obj->qp.in, obj->qp.in ? obj->qp.in->context : NULL,
					 obj->qp.out);
	if (!err && (type & MLX4DV_OBJ_CQ))
		err = mlx4_objects_check(obj->cq.in, obj->cq.in ? obj->cq.in->context : NULL,
					 obj->cq.out);
	if (!err && (type & MLX4DV_OBJ_SRQ))
		err = mlx4_objects_check(obj->srq.in, obj->srq.in ? obj->srq.in->context : NULL,
					 obj->srq.out);
	if (!err && (type & MLX4DV_OBJ_RWQ))
		err = mlx4_objects_check(obj->rwq.in, obj->rwq.in ? obj->rwq.in->context : NULL,
					 obj->rwq.out);
	return err;
}

static void mlx4_objects_fill_qp(struct ibv_qp *in, struct mlx4dv_qp *out)
{
	struct vb_verbs_qp qp;

	vb_verbs_rings(in->context)->qp(in, &qp);
	out->comp_mask = 0;
	out->rdb = qp.rq.cnt ? qp.dbr : NULL;
	out->sdb = (uint32_t *)(mlx4_objects_uar_of(in->context) + MLX4_SEND_DOORBELL);
	out->doorbell_qpn = htobe32(in->qp_num << 8);
	out->sq.wqe_cnt = qp.sq.cnt;
	out->sq.wqe_shift = (int)qp.sq.shift;
	out->sq.offset = (int)(qp.sq.buf - qp.buf);
	out->rq.wqe_cnt = qp.rq.cnt;
	out->rq.wqe_shift = (int)qp.rq.shift;
	out->rq.offset = (int)(qp.rq.buf - qp.buf);
	out->buf.buf = qp.buf;
	out->buf.length = qp.bytes;
}

static void mlx4_objects_fill_cq(struct ibv_cq *in, struct mlx4dv_cq *out)
{
	uint64_t answered = out->comp_mask & MLX4DV_CQ_MASK_UAR;
	struct vb_verbs_cq cq;

	/* The program looks at the CQ itself, and calls nothing that polls. */
	vb_progress_unpolled(vb_verbs_dev(in->context));
	vb_verbs_rings(in->context)->cq(in, &cq);
	out->comp_mask = answered;
	out->buf.buf = cq.buf;
	out->buf.length = cq.bytes;
	out->cqe_cnt = cq.cqe_cnt;
	out->cqn = vb_cq_number(cq.card);
	out->set_ci_db = &cq.dbr[0];
	out->arm_db = &cq.dbr[1];
	out->arm_sn = (int)cq.arm_sn;
	out->cqe_size = (int)cq.cqe_size;
	if (answered)
		out->cq_uar = mlx4_objects_uar_of(in->context);
}

static void mlx4_objects_fill_srq(struct ibv_srq *in, struct mlx4dv_srq *out)
{
	struct vb_verbs_srq srq;

	vb_verbs_rings(in->context)->srq(in, &srq);
	out->comp_mask = 0;
	out->buf.buf = srq.buf;
	out->buf.length = srq.bytes;
	out->wqe_shift = (int)srq.wqe_shift;
	out->head = (int)srq.head;
	out->tail = (int)srq.tail;
	out->db = srq.dbr;
}

static void mlx4_objects_fill_rwq(struct ibv_wq *in, struct mlx4dv_rwq *out)
{
	struct vb_verbs_qp wq;

	vb_verbs_rings(in->context)->wq(in, &wq);
	out->comp_mask = 0;
	out->rdb = wq.dbr;
	out->rq.wqe_cnt = wq.rq.cnt;
	out->rq.wqe_shift = (int)wq.rq.shift;
	out->rq.offset = (int)(wq.rq.buf - wq.buf);
	out->buf.buf = wq.buf;
	out->buf.length = wq.bytes;
}

VB_PUBLIC int mlx4dv_init_obj(struct mlx4dv_obj *obj, uint64_t obj_type)
{
	int err;

	API_CALL(.kind = NULL);
	err = obj ? mlx4_objects_check_all(obj, obj_type) : -vb_refuse_null("obj");
	if (err)
		return api_fail(err);
	if (obj_type & MLX4DV_OBJ_QP)
		mlx4_objects_fill_qp(obj->qp.in, obj->qp.out);
	if (obj_type & MLX4DV_OBJ_CQ)
		mlx4_objects_fill_cq(obj->cq.in, obj->cq.out);
	if (obj_type & MLX4DV_OBJ_SRQ)
		mlx4_objects_fill_srq(obj->srq.in, obj->srq.out);
	if (obj_type & MLX4DV_OBJ_RWQ)
		mlx4_objects_fill_rwq(obj->rwq.in, obj->rwq.out);
	return 0;
}

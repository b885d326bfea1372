// SPDX-License-Identifier: MIT
/*
 * Queues of verbs with attributes of direct verbs. Which of them the adapter has, and what they
 * mean, is known where the queues are made (../ibverbs/mlx5/).
 */
#include "mlx5.h"

#include <stdatomic.h>

#include "card/queue/qp.h"

/* The table of all mlx5 contexts, once a program has a struct mlx5dv_qp_ex, which names none. */
static const struct vb_verbs_mlx5 *_Atomic table;

VB_PUBLIC struct ibv_cq_ex *mlx5dv_create_cq(struct ibv_context *context,
					     struct ibv_cq_init_attr_ex *cq_attr,
					     struct mlx5dv_cq_init_attr *mlx5_cq_attr)
{
	API_CALL(API_DEVICE(context));
	if (!context || !cq_attr || !mlx5_cq_attr)
		return api_refuse_null(null, "context, cq_attr or mlx5_cq_attr");
	if (!mlx5dv_is_supported(context->device))
		return api_refuse_null(not_mlx5);
	return vb_verbs_mlx5(context)->create_cq(context, cq_attr, mlx5_cq_attr);
}

VB_PUBLIC struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context,
					  struct ibv_qp_init_attr_ex *qp_attr,
					  struct mlx5dv_qp_init_attr *mlx5_qp_attr)
{
	API_CALL(API_DEVICE(context));
	if (!context || !qp_attr)
		return api_refuse_null(null, "context or qp_attr");
	if (!mlx5dv_is_supported(context->device))
		return api_refuse_null(not_mlx5);
	return vb_verbs_rings(context)->create_qp(context, qp_attr, mlx5_qp_attr);
}

VB_PUBLIC struct ibv_wq *mlx5dv_create_wq(struct ibv_context *context,
					  struct ibv_wq_init_attr *attr,
					  struct mlx5dv_wq_init_attr *mlx5_wq_attr)
{
	API_CALL(API_DEVICE(context));
	if (!context || !attr)
		return api_refuse_null(null, "context or wq_init_attr");
	if (!mlx5dv_is_supported(context->device))
		return api_refuse_null(not_mlx5);
	return vb_verbs_mlx5(context)->create_wq(context, attr, mlx5_wq_attr);
}

VB_PUBLIC struct mlx5dv_qp_ex *mlx5dv_qp_ex_from_ibv_qp_ex(struct ibv_qp_ex *qp)
{
	API_CALL(.kind = "QP", .number = qp ? qp->qp_base.qp_num : 0);
	if (!qp)
		return api_refuse_null(null, "qp");
	if (!mlx5dv_is_supported(qp->qp_base.context->device))
		return api_refuse_null(not_mlx5);
	atomic_store_explicit(&table, vb_verbs_mlx5(qp->qp_base.context), memory_order_relaxed);
	return vb_verbs_mlx5(qp->qp_base.context)->qp_ex(qp);
}

VB_PUBLIC int mlx5dv_dci_stream_id_reset(struct ibv_qp *qp, uint16_t stream_id)
{
	int err;

	API_CALL(API_QP(qp));
	if (!qp)
		return api_refuse(null, "qp");
	if (!mlx5dv_is_supported(qp->context->device))
		return api_refuse(not_mlx5);
	err = -vb_dci_reset_stream(vb_verbs_qp(qp), stream_id);
	return err ? api_fail(err) : 0;
}

/*
 * Part of pipelined signatures, which do not exist; but any queue pair in SQD has requests that can
 * be taken back.
 */
VB_PUBLIC int mlx5dv_qp_cancel_posted_send_wrs(struct mlx5dv_qp_ex *mqp, uint64_t wr_id)
{
	const struct vb_verbs_mlx5 *mlx5 = atomic_load_explicit(&table, memory_order_relaxed);
	int ret;

	API_CALL(.kind = "QP");
	if (!mqp || !mlx5)
		return -api_refuse(null, "mqp");
	ret = mlx5->cancel(mqp, wr_id);
	return ret < 0 ? -api_fail(-ret) : ret;
}

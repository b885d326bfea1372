// SPDX-License-Identifier: MIT
/*
 * Queues of verbs with attributes of direct verbs. Which of them the adapter has, and what they
 * mean, is known where the queues are made (../ibverbs/mlx5/).
 */
#include "mlx5.h"

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

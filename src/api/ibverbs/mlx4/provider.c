/* SPDX-License-Identifier: MIT */
/*
 * An opened mlx4 device: its operations and its doorbell page.
 */
#include "mlx4.h"

void mlx4_set_ops(struct verbs_context *verbs)
{
	struct ibv_context_ops *ops = &verbs->context.ops;

	ops->poll_cq = mlx4_cq_poll;
	ops->req_notify_cq = mlx4_cq_arm;
	ops->post_send = mlx4_post_send;
	ops->post_recv = mlx4_post_recv;
	ops->post_srq_recv = mlx4_post_srq_recv;
	verbs->create_wq = mlx4_wq_create;
	verbs->modify_wq = mlx4_wq_modify;
	verbs->destroy_wq = mlx4_wq_destroy;
	verbs->create_rwq_ind_table = mlx4_ind_table_create;
	verbs->destroy_rwq_ind_table = mlx4_ind_table_destroy;
}

int mlx4_context_open(struct api_context *ctx)
{
	return vb_uar_create(ctx->dev, &ctx->uar);
}

void mlx4_context_close(struct api_context *ctx)
{
	vb_uar_destroy(ctx->uar);
	ctx->uar = NULL;
}

// SPDX-License-Identifier: MIT
/* The mlx4 provider: its table and its contexts, each with a doorbell page. */
#include "mlx4.h"

#include "card/queue/doorbell.h"

static int mlx4_provider_context_open(struct api_context *ctx, void *private_data)
{
	return vb_uar_create(ctx->dev, &to_mlx4_context(ctx)->uar);
}

static void mlx4_provider_context_close(struct api_context *ctx)
{
	vb_uar_destroy(to_mlx4_context(ctx)->uar);
}

static char *mlx4_provider_uar_page(struct api_context *ctx)
{
	return vb_uar_page(to_mlx4_context(ctx)->uar);
}

static const struct verbs_ex_private accessors = {
	.format = VB_FORMAT_MLX4,
	.objects = &api_objects,
	.rings = &api_rings,
};

/* No ibv_wr_*(): the real library has none for these cards, and programs fall back. */
const struct api_provider api_mlx4 = {
	.timestamp_mask = MLX4_TIMESTAMP_MASK,
	.raw = true,
	.max_flow_priority = 0xfff,
	.raw_caps = { .packet = IBV_RAW_PACKET_CAP_SCATTER_FCS | IBV_RAW_PACKET_CAP_IP_CSUM,
		      .wq_flags = IBV_WQ_FLAGS_SCATTER_FCS,
		      .qp_flags = IBV_QP_CREATE_SCATTER_FCS | IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
		      .rx_hash_fields = API_RX_HASH_FIELDS },

	.accessors = &accessors,
	.context_bytes = sizeof(struct mlx4_context),
	.open = mlx4_provider_context_open,
	.close = mlx4_provider_context_close,
	.abandon = api_abandon,

	.ah_bytes = sizeof(struct mlx4_ah),
	.fill_ah = mlx4_ah_fill,
	.reg_mr = api_mr_reg,
	.create_cq = api_cq_create,
	.resize_cq = api_cq_resize,
	.destroy_cq = api_cq_destroy,
	.create_srq = api_srq_create,
	.create_qp = api_qp_create,
	.modify_qp = api_qp_modify,
	.query_qp = api_qp_query,
	.destroy_qp = api_qp_destroy,

	.poll_cq = mlx4_cq_poll,
	.req_notify_cq = mlx4_cq_arm,
	.post_send = mlx4_post_send,
	.post_recv = mlx4_post_recv,
	.post_srq_recv = mlx4_post_srq_recv,
	.query_rt_values = api_query_rt_values,
	.alloc_td = api_td_alloc,
	.alloc_parent_domain = api_parent_domain_alloc,
	.modify_cq = api_cq_modify,
	.create_wq = api_wq_create,
	.modify_wq = api_wq_modify,
	.destroy_wq = api_wq_destroy,
	.create_rwq_ind_table = api_ind_table_create,
	.destroy_rwq_ind_table = api_ind_table_destroy,

	.ring = {
		.qp_bytes = sizeof(struct mlx4_qp),
		.qp_size = mlx4_qp_size,
		.qp_alloc = mlx4_qp_alloc,
		.qp_free = mlx4_qp_free,
		.qp_card_attr = mlx4_qp_card_attr,
		.qp_init = mlx4_qp_init,
		.cq_ex = &mlx4_cq_ex,
		.cqe_ready = mlx4_cqe_ready,
		.cqe_give = mlx4_cqe_give,
		.cqe_move = mlx4_cqe_move,
		.cqe_qpn = mlx4_cqe_qpn,
		.cqe_receive = mlx4_cqe_receive,
		.srq_preset = mlx4_srq_preset,
		.uar_page = mlx4_provider_uar_page,
		.atomic_sges = 1,
	},
};

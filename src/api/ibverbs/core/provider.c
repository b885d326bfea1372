/* SPDX-License-Identifier: MIT */
/*
 * What differs between adapters by the format of their queues, as one table each.
 *
 * mlx5 is what the files without a prefix do; mlx4 is in mlx4_*.c. Operations on the data path are
 * not looked up here: a context has those of its format in its own table of operations.
 */
#include "api/ibverbs/mlx4/mlx4.h"

/* The doorbell page exists once mlx5dv_init_obj() has shown it to the program. */
static void mlx5_close(struct api_context *ctx)
{
	if (ctx->uar)
		vb_uar_destroy(ctx->uar);
}

const struct api_format api_format_mlx5 = {
	.timestamp_mask = UINT64_MAX,
	.wr_api = true,
	.qp_size = api_qp_size,
	.cq_preset = api_cq_preset,
	.cq_copy = api_cq_copy,
	.cq_clean = api_cq_clean,
	.cq_set_ex_ops = api_cq_set_ex_ops,
	.close = mlx5_close,
};

/* No ibv_wr_*(): the real library has none for these cards, and programs fall back. */
const struct api_format api_format_mlx4 = {
	.timestamp_mask = (1ull << 48) - 1,
	.set_ops = mlx4_set_ops,
	.open = mlx4_context_open,
	.close = mlx4_context_close,
	.qp_size = mlx4_qp_size,
	.qp_init = mlx4_qp_init,
	.cq_preset = mlx4_cq_preset,
	.cq_copy = mlx4_cq_copy,
	.cq_clean = mlx4_cq_clean,
	.cq_set_ex_ops = mlx4_cq_set_ex_ops,
	.srq_preset = mlx4_srq_preset,
	.qp_create_extra = api_qp_create_extra,
	.raw = true,
};

const struct api_format *api_format_of(const struct vb_adapter *adapter)
{
	static const struct api_format *const formats[VB_FORMATS] = {
		[VB_FORMAT_MLX5] = &api_format_mlx5,
		[VB_FORMAT_MLX4] = &api_format_mlx4,
		[VB_FORMAT_HBL] = &api_format_hbl,
	};

	return formats[adapter->config->format];
}

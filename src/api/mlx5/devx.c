// SPDX-License-Identifier: MIT
/*
 * What programs register with the card by number and name in queues that are made elsewhere
 * (FlexIO): memory for rings, and doorbell pages.
 */
#include "mlx5.h"

#include "base/util.h"
#include "card/queue/doorbell.h"
#include "card/queue/umem.h"
#include "devx_table.h"

enum { BF_OFFSET = 0x800 };

struct umem {
	struct mlx5dv_devx_umem dv; /* first */
	struct vb_umem *card;
	struct devx_left left;
};

struct uar {
	struct mlx5dv_devx_uar dv; /* first */
	struct vb_uar *card;
	struct devx_left left;
};

/* ---- memory ---- */

static int end_umem(struct devx_left *left)
{
	return vb_umem_dereg(container_of(left, struct umem, left)->card);
}

VB_PUBLIC struct mlx5dv_devx_umem *mlx5dv_devx_umem_reg(struct ibv_context *ctx, void *addr,
							size_t size, uint32_t access)
{
	struct umem *umem;
	int err;

	API_CALL(API_DEVICE(ctx));
	if (!ctx || !mlx5dv_is_supported(ctx->device))
		return api_refuse_null(not_mlx5);
	umem = calloc(1, sizeof(*umem));
	if (!umem)
		return api_refuse_null(memory, "the umem");
	err = vb_umem_reg(vb_verbs_dev(ctx), addr, size, access, &umem->card);
	if (err) {
		free(umem);
		return api_null(-err);
	}
	umem->left.end = end_umem;
	if (!devx_left_add(ctx, &umem->left)) {
		vb_umem_dereg(umem->card);
		free(umem);
		return api_refuse_null(memory, "the umem");
	}
	umem->dv.umem_id = vb_umem_number(umem->card);
	return &umem->dv;
}

VB_PUBLIC struct mlx5dv_devx_umem *mlx5dv_devx_umem_reg_ex(struct ibv_context *ctx,
							   struct mlx5dv_devx_umem_in *in)
{
	API_CALL(API_DEVICE(ctx));
	if (!in)
		return api_refuse_null(null, "umem_in");
	if (in->comp_mask) /* memory of other devices */
		return api_refuse_null(unsupported_value, "comp_mask", in->comp_mask);
	return mlx5dv_devx_umem_reg(ctx, in->addr, in->size, in->access);
}

VB_PUBLIC int mlx5dv_devx_umem_dereg(struct mlx5dv_devx_umem *dv)
{
	struct umem *umem = (struct umem *)dv;
	int err = 0;

	API_CALL(.kind = "umem", .number = dv ? dv->umem_id : 0);
	if (!umem)
		return api_refuse(null, "umem");
	if (!devx_left_remove(&umem->left))
		err = end_umem(&umem->left);
	if (err) {
		devx_left_add(umem->left.context, &umem->left);
		return api_fail(-err);
	}
	free(umem);
	return 0;
}

/* ---- doorbell pages ---- */

static int end_uar(struct devx_left *left)
{
	struct uar *uar = container_of(left, struct uar, left);
	struct vb_card *card = vb_uar_card(uar->card);

	vb_uar_destroy(uar->card);
	vb_uar_number_give(card, uar->dv.page_id);
	return 0;
}

VB_PUBLIC struct mlx5dv_devx_uar *mlx5dv_devx_alloc_uar(struct ibv_context *context, uint32_t flags)
{
	struct uar *uar;
	int64_t number;

	API_CALL(API_DEVICE(context));
	if (!context || !mlx5dv_is_supported(context->device))
		return api_refuse_null(not_mlx5);
	if (flags & ~(uint32_t)(MLX5DV_UAR_ALLOC_TYPE_BF | MLX5DV_UAR_ALLOC_TYPE_NC))
		return api_refuse_null(bits, "flags", flags);
	uar = calloc(1, sizeof(*uar));
	number = uar ? vb_uar_number_take(vb_dev_adapter(vb_verbs_dev(context))->card) : -ENOMEM;
	if (number < 0) {
		free(uar);
		return api_refuse_null(memory, "the UAR, or no number is left");
	}
	if (vb_uar_create(vb_verbs_dev(context), &uar->card) || !vb_uar_page(uar->card)) {
		if (uar->card)
			vb_uar_destroy(uar->card);
		vb_uar_number_give(vb_dev_adapter(vb_verbs_dev(context))->card, (uint32_t)number);
		free(uar);
		return api_refuse_null(unsupported, "doorbells by store on this processor");
	}
	vb_uar_set_number(uar->card, (uint32_t)number);
	uar->dv.page_id = (uint32_t)number;
	uar->dv.base_addr = vb_uar_page(uar->card);
	uar->dv.reg_addr = (char *)uar->dv.base_addr + BF_OFFSET;
	uar->left.end = end_uar;
	if (!devx_left_add(context, &uar->left)) {
		end_uar(&uar->left);
		free(uar);
		return api_refuse_null(memory, "the UAR");
	}
	return &uar->dv;
}

VB_PUBLIC void mlx5dv_devx_free_uar(struct mlx5dv_devx_uar *devx_uar)
{
	struct uar *uar = (struct uar *)devx_uar;

	if (!uar)
		return;
	if (!devx_left_remove(&uar->left))
		end_uar(&uar->left);
	free(uar);
}

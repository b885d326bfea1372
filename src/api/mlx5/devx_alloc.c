// SPDX-License-Identifier: MIT
/* Protection domains and doorbell pages by command (DEVX). */
#include "mlx5.h"

#include "card/memory/mr.h"
#include "card/queue/doorbell.h"
#include "devx_table.h"

/* --- protection domains ----------------------------------------------------------------------- */

static int alloc_pd(struct devx_cmd *cmd)
{
	struct vb_pd *pd;
	int err = vb_pd_alloc(cmd->dev, &pd);

	if (err)
		return err;
	cmd->obj->data = pd;
	cmd->obj->number = vb_pd_number(pd);
	return 0;
}

static int dealloc_pd(struct devx_cmd *cmd)
{
	return vb_pd_dealloc(cmd->obj->data);
}

/* --- doorbell pages --------------------------------------------------------------------------- */

/* A number for queues; its page is reached with mlx5dv_devx_alloc_uar() only. */
static int alloc_uar(struct devx_cmd *cmd)
{
	int64_t number = vb_uar_number_take(vb_dev_adapter(cmd->dev)->card);
	struct vb_uar *uar = NULL;
	int err;

	if (number < 0)
		return vb_refuse_memory("the UAR, or no number is left");
	err = vb_uar_create(cmd->dev, &uar);
	if (err) {
		vb_uar_number_give(vb_dev_adapter(cmd->dev)->card, (uint32_t)number);
		return err;
	}
	vb_uar_set_number(uar, (uint32_t)number);
	cmd->obj->data = uar;
	cmd->obj->number = (uint32_t)number;
	return 0;
}

static int dealloc_uar(struct devx_cmd *cmd)
{
	struct vb_card *card = vb_uar_card(cmd->obj->data);

	vb_uar_destroy(cmd->obj->data);
	vb_uar_number_give(card, cmd->obj->number);
	return 0;
}

const struct devx_row devx_alloc_rows[] = {
	{ "ALLOC_PD", 0x800, 0, DEVX_CREATE, VB_DEVX_PD, 16, 16, DEVX_NUMBER, alloc_pd },
	{ "DEALLOC_PD", 0x801, 0, DEVX_DESTROY, VB_DEVX_PD, 16, 16, DEVX_NUMBER, dealloc_pd },
	{ "ALLOC_UAR", 0x802, 0, DEVX_CREATE, VB_DEVX_UAR, 16, 16, DEVX_NUMBER, alloc_uar },
	{ "DEALLOC_UAR", 0x803, 0, DEVX_DESTROY, VB_DEVX_UAR, 16, 16, DEVX_NUMBER, dealloc_uar },
	{ 0 },
};

// SPDX-License-Identifier: MIT
/* Tables of receive queues by command (DEVX). A table keeps its queues from being destroyed. */
#include "devx_rqt.h"

#include "devx_bits.h"
#include "devx_table.h"
#include "mlx5.h"

enum { RQT_CTX = 0x100, RQT_LIST = RQT_CTX + 0x780 };

static void put_rqs(struct devx_rqt *rqt)
{
	while (rqt->count)
		vb_rq_put(rqt->rq[--rqt->count]);
}

static int create_rqt(struct devx_cmd *cmd)
{
	static _Atomic uint32_t next;
	uint32_t count = get(cmd->in, RQT_CTX + 0xd0, 16);
	struct devx_rqt *rqt;

	if (!count || count & (count - 1) || count > VB_MAX_RSS)
		return vb_refuse_combination("rqt_actual_size is no power of two up to 128");
	if (cmd->inlen < RQT_LIST / 8 + 4 * (size_t)count)
		return devx_refuse(
			cmd, DEVX_BAD_INP_LEN,
			vb_refuse_combination("the command ends before its list of queues"));
	rqt = calloc(1, sizeof(*rqt));
	if (!rqt)
		return vb_refuse_memory("the table of receive queues");
	for (uint32_t i = 0; i < count; i++) {
		uint32_t number = get(cmd->in, RQT_LIST + 32 * i + 8, 24);

		rqt->rq[i] = vb_rq_get(cmd->dev, number);
		if (!rqt->rq[i]) {
			put_rqs(rqt);
			free(rqt);
			return devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_value("rq_num", number));
		}
		rqt->count = i + 1;
	}
	cmd->obj->number =
		(atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) & 0xfffffe) + 1;
	cmd->obj->rqt = rqt;
	return 0;
}

static int destroy_rqt(struct devx_cmd *cmd)
{
	put_rqs(cmd->obj->rqt);
	free(cmd->obj->rqt);
	return 0;
}

const struct devx_row devx_rqt_rows[] = {
	{ "CREATE_RQT", 0x916, 0, DEVX_CREATE, VB_DEVX_RQT, 272, 16, DEVX_NUMBER, create_rqt },
	{ "DESTROY_RQT", 0x918, 0, DEVX_DESTROY, VB_DEVX_RQT, 16, 16, DEVX_NUMBER, destroy_rqt },
	{ 0 },
};

// SPDX-License-Identifier: MIT
/* What flow entries change of a frame: modify-header and packet-reformat contexts (DEVX). */
#include "devx_bits.h"
#include "devx_flow.h"
#include "mlx5.h"

static uint32_t devx_flow_action_next_number(void)
{
	static _Atomic uint32_t next = 1;

	return atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);
}

static int devx_flow_action_make(struct devx_cmd *cmd, const struct vb_steer_action_attr *attr)
{
	struct vb_steer_action *action;
	const char *why = NULL;
	int err = vb_steer_action_create(attr, &action, &why);

	if (err)
		return devx_flow_refuse(cmd, err, why);
	cmd->obj->data = action;
	cmd->obj->number = devx_flow_action_next_number();
	return 0;
}

static int devx_flow_action_destroy(struct devx_cmd *cmd)
{
	return vb_steer_action_destroy(cmd->obj->data) ? vb_refuse_busy("flow entries") : 0;
}

/* --- headers ---------------------------------------------------------------------------------- */

enum { MODIFY_TABLE_TYPE = 0x60, MODIFY_COUNT = 0x78, MODIFY_ACTIONS = 16, ACTION_BYTES = 8 };

static int alloc_modify(struct devx_cmd *cmd)
{
	uint32_t type = get(cmd->in, MODIFY_TABLE_TYPE, 8), count = get(cmd->in, MODIFY_COUNT, 8);
	struct vb_steer_action_attr attr = {
		.what = VB_STEER_DO_MODIFY,
		.modify = { .actions = cmd->in + MODIFY_ACTIONS, .count = count },
	};
	enum vb_steer_kind kind;

	if (!devx_flow_kind(type, &kind))
		return vb_refuse_unsupported_value("table_type", type);
	if (!count || count > VB_STEER_MAX_MODIFY)
		return vb_refuse_range("num_of_actions", count, 1, VB_STEER_MAX_MODIFY);
	if (cmd->inlen < MODIFY_ACTIONS + ACTION_BYTES * (size_t)count)
		return devx_refuse(cmd, DEVX_BAD_INP_LEN,
				   vb_refuse_combination("the command ends before its actions"));
	return devx_flow_action_make(cmd, &attr);
}

/* --- tunnels ---------------------------------------------------------------------------------- */

enum { REFORMAT_TYPE = 0xe5, REFORMAT_SIZE = 0xf6, REFORMAT_DATA = (0xe0 + 0x30) / 8 };

/* By reformat_type. The first two put whole headers in front, as the third does. */
static const enum vb_reformat types[] = {
	VB_REFORMAT_L2_TO_L2_TUNNEL, /* to VXLAN */
	VB_REFORMAT_L2_TO_L2_TUNNEL, /* to NVGRE */
	VB_REFORMAT_L2_TO_L2_TUNNEL, VB_REFORMAT_L3_TUNNEL_TO_L2, VB_REFORMAT_L2_TO_L3_TUNNEL,
};

static int alloc_reformat(struct devx_cmd *cmd)
{
	uint32_t type = get(cmd->in, REFORMAT_TYPE, 3), size = get(cmd->in, REFORMAT_SIZE, 10);
	struct vb_steer_action_attr attr = {
		.what = VB_STEER_DO_REFORMAT,
		.reformat = { .data = cmd->in + REFORMAT_DATA, .len = size },
	};

	if (type >= sizeof(types) / sizeof(types[0]))
		return vb_refuse_value("reformat_type", type);
	if (size > VB_STEER_MAX_REFORMAT)
		return devx_refuse(
			cmd, DEVX_EXCEED_LIM,
			vb_refuse_range("reformat_data_size", size, 0, VB_STEER_MAX_REFORMAT));
	if (cmd->inlen < REFORMAT_DATA + (size_t)size)
		return devx_refuse(cmd, DEVX_BAD_INP_LEN,
				   vb_refuse_combination("the command ends before its data"));
	attr.reformat.type = types[type];
	return devx_flow_action_make(cmd, &attr);
}

const struct devx_row devx_flow_action_rows[] = {
	{ "ALLOC_PACKET_REFORMAT_CONTEXT", 0x93d, 0, DEVX_CREATE, VB_DEVX_REFORMAT, REFORMAT_DATA,
	  16, DEVX_OBJECT_ID, alloc_reformat },
	{ "DEALLOC_PACKET_REFORMAT_CONTEXT", 0x93e, 0, DEVX_DESTROY, VB_DEVX_REFORMAT, 16, 16,
	  DEVX_OBJECT_ID, devx_flow_action_destroy },
	{ "ALLOC_MODIFY_HEADER_CONTEXT", 0x940, 0, DEVX_CREATE, VB_DEVX_MODIFY_HEADER,
	  MODIFY_ACTIONS, 16, DEVX_OBJECT_ID, alloc_modify },
	{ "DEALLOC_MODIFY_HEADER_CONTEXT", 0x941, 0, DEVX_DESTROY, VB_DEVX_MODIFY_HEADER, 16, 16,
	  DEVX_OBJECT_ID, devx_flow_action_destroy },
	{ 0 },
};

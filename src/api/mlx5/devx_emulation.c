// SPDX-License-Identifier: MIT
/*
 * General objects of emulated functions: DPA_DB_CQ_MAPPING, which leads a driver's doorbells to a
 * CQ, and EMULATED_DEV_EQ, whose CQs raise a driver's interrupts. The function is named by its
 * vhca_id (device_emulation_id).
 */
#include "mlx5.h"

#include "card/emulation/emulation.h"
#include "card/queue/cq.h"
#include "devx_bits.h"
#include "devx_table.h"

/* Bits of the object, behind the 16 bytes that all commands and answers begin with. */
enum { OBJECT = 0x80, ALIAS = 0x60 };

enum db_cq_mapping {
	MAP_STATE = OBJECT + 0x50,
	DB_DEVICE = OBJECT + 0x80,
	DB_QUEUE = OBJECT + 0xa0,
	DB_CQN = OBJECT + 0xc0,
	DBR_HANDLE = OBJECT + 0xe0,
	DB_END = OBJECT + 0x100,
};

enum map_state { MAPPED = 1 };

enum emulated_dev_eq {
	EQ_DEVICE = OBJECT + 0x60,
	EQ_INTR = OBJECT + 0x1b4,
	EQ_END = OBJECT + 0x1c0,
};

/* A bit of the command asks for a second name of an object of another function. */
static int check_alias(const uint8_t *in)
{
	return get(in, ALIAS, 1) ? vb_refuse_unsupported("an alias object") : 0;
}

/* --- doorbells -------------------------------------------------------------------------------- */

/* queue_type and device_type say what the driver takes the function for: doorbells are the same. */
static int create_db_cq_map(struct devx_cmd *cmd)
{
	const uint8_t *in = cmd->in;
	struct mlx5dv_devx_obj *obj = cmd->obj;
	struct vb_cq *cq = vb_cq_get(cmd->dev, get(in, DB_CQN, 32));
	int err = check_alias(in);

	if (!err && !cq)
		err = devx_refuse(cmd, DEVX_BAD_RES,
				  vb_refuse_no_object("cqn", get(in, DB_CQN, 32)));
	if (!err)
		err = vb_emu_map(vb_verbs_dev(obj->context), get(in, DB_DEVICE, 32),
				 get(in, DB_QUEUE, 32), get(in, DB_CQN, 32), &obj->emu_map);
	if (!err)
		obj->number = vb_emu_map_id(obj->emu_map);
	if (cq)
		vb_cq_put(cq);
	return err;
}

static int query_db_cq_map(struct devx_cmd *cmd)
{
	struct mlx5dv_devx_obj *obj = cmd->obj;
	uint8_t *out = cmd->out;
	uint32_t vhca_id, queue, cqn;

	vb_emu_map_query(obj->emu_map, &vhca_id, &queue, &cqn);
	put(out, MAP_STATE, 4, MAPPED);
	put(out, DB_DEVICE, 32, vhca_id);
	put(out, DB_QUEUE, 32, queue);
	put(out, DB_CQN, 32, cqn);
	put(out, DBR_HANDLE, 32, vb_emu_map_id(obj->emu_map));
	return 0;
}

static int destroy_db_cq_map(struct devx_cmd *cmd)
{
	vb_emu_unmap(cmd->obj->emu_map);
	return 0;
}

/* --- interrupts ------------------------------------------------------------------------------- */

static int create_emulated_eq(struct devx_cmd *cmd)
{
	const uint8_t *in = cmd->in;
	struct mlx5dv_devx_obj *obj = cmd->obj;
	int err = check_alias(in);

	if (!err)
		err = vb_emu_eq_create(vb_verbs_dev(obj->context), get(in, EQ_DEVICE, 32),
				       get(in, EQ_INTR, 12), &obj->emu_eq);
	if (!err)
		obj->number = vb_emu_eq_number(obj->emu_eq);
	return err;
}

static int query_emulated_eq(struct devx_cmd *cmd)
{
	struct mlx5dv_devx_obj *obj = cmd->obj;
	uint8_t *out = cmd->out;
	uint32_t vhca_id, vector;

	vb_emu_eq_query(obj->emu_eq, &vhca_id, &vector);
	put(out, EQ_DEVICE, 32, vhca_id);
	put(out, EQ_INTR, 12, vector);
	return 0;
}

static int destroy_emulated_eq(struct devx_cmd *cmd)
{
	return vb_emu_eq_destroy(cmd->obj->emu_eq);
}

enum { DB_CQ_MAPPING = 0x32, EMULATED_DEV_EQ = 0x49, DB_BYTES = DB_END / 8, EQ_BYTES = EQ_END / 8 };

const struct devx_row devx_emulation_rows[] = {
	{ "CREATE_GENERAL_OBJECT DPA_DB_CQ_MAPPING", 0xa00, DB_CQ_MAPPING, DEVX_CREATE,
	  VB_DEVX_DB_CQ_MAP, DB_BYTES, 16, DEVX_OBJECT_ID, create_db_cq_map },
	{ "QUERY_GENERAL_OBJECT DPA_DB_CQ_MAPPING", 0xa02, DB_CQ_MAPPING, DEVX_QUERY,
	  VB_DEVX_DB_CQ_MAP, 16, DB_BYTES, DEVX_OBJECT_ID, query_db_cq_map },
	{ "DESTROY_GENERAL_OBJECT DPA_DB_CQ_MAPPING", 0xa03, DB_CQ_MAPPING, DEVX_DESTROY,
	  VB_DEVX_DB_CQ_MAP, 16, 16, DEVX_OBJECT_ID, destroy_db_cq_map },
	{ "CREATE_GENERAL_OBJECT EMULATED_DEV_EQ", 0xa00, EMULATED_DEV_EQ, DEVX_CREATE,
	  VB_DEVX_EMULATED_EQ, EQ_BYTES, 16, DEVX_OBJECT_ID, create_emulated_eq },
	{ "QUERY_GENERAL_OBJECT EMULATED_DEV_EQ", 0xa02, EMULATED_DEV_EQ, DEVX_QUERY,
	  VB_DEVX_EMULATED_EQ, 16, EQ_BYTES, DEVX_OBJECT_ID, query_emulated_eq },
	{ "DESTROY_GENERAL_OBJECT EMULATED_DEV_EQ", 0xa03, EMULATED_DEV_EQ, DEVX_DESTROY,
	  VB_DEVX_EMULATED_EQ, 16, 16, DEVX_OBJECT_ID, destroy_emulated_eq },
	{ 0 },
};

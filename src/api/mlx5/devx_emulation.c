// SPDX-License-Identifier: MIT
/*
 * General objects of emulated functions: DPA_DB_CQ_MAPPING, which leads a driver's doorbells to a
 * CQ, and EMULATED_DEV_EQ, whose CQs raise a driver's interrupts. The function is named by its
 * vhca_id (device_emulation_id).
 */
#include "mlx5.h"

#include "card/emulation.h"
#include "devx_bits.h"
#include "devx_obj.h"

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

_Static_assert(DB_END / 8 == DEVX_DB_CQ_MAP_BYTES && EQ_END / 8 == DEVX_EMULATED_EQ_BYTES,
	       "the table has the lengths of the commands");

/* A bit of the command asks for a second name of an object of another function. */
static int check_alias(const uint8_t *in)
{
	return get(in, ALIAS, 1) ? vb_refuse_unsupported("an alias object") : 0;
}

static int check_room(size_t outlen, size_t bytes)
{
	return outlen < bytes ? vb_refuse_combination("the answer is too short for the object") : 0;
}

/* --- doorbells -------------------------------------------------------------------------------- */

/* queue_type and device_type say what the driver takes the function for: doorbells are the same. */
int devx_create_db_cq_map(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen)
{
	int err = check_alias(in);

	if (!err)
		err = vb_emu_map(vb_verbs_dev(obj->context), get(in, DB_DEVICE, 32),
				 get(in, DB_QUEUE, 32), get(in, DB_CQN, 32), &obj->emu_map);
	if (!err)
		obj->number = vb_emu_map_id(obj->emu_map);
	return err;
}

int devx_query_db_cq_map(const struct mlx5dv_devx_obj *obj, const uint8_t *in, uint8_t *out,
			 size_t outlen)
{
	uint32_t vhca_id, queue, cqn;
	int err = check_room(outlen, DEVX_DB_CQ_MAP_BYTES);

	if (err)
		return err;
	vb_emu_map_query(obj->emu_map, &vhca_id, &queue, &cqn);
	put(out, MAP_STATE, 4, MAPPED);
	put(out, DB_DEVICE, 32, vhca_id);
	put(out, DB_QUEUE, 32, queue);
	put(out, DB_CQN, 32, cqn);
	put(out, DBR_HANDLE, 32, vb_emu_map_id(obj->emu_map));
	return 0;
}

int devx_destroy_db_cq_map(struct mlx5dv_devx_obj *obj)
{
	vb_emu_unmap(obj->emu_map);
	return 0;
}

/* --- interrupts ------------------------------------------------------------------------------- */

int devx_create_emulated_eq(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen)
{
	int err = check_alias(in);

	if (!err)
		err = vb_emu_eq_create(vb_verbs_dev(obj->context), get(in, EQ_DEVICE, 32),
				       get(in, EQ_INTR, 12), &obj->emu_eq);
	if (!err)
		obj->number = vb_emu_eq_number(obj->emu_eq);
	return err;
}

int devx_query_emulated_eq(const struct mlx5dv_devx_obj *obj, const uint8_t *in, uint8_t *out,
			   size_t outlen)
{
	uint32_t vhca_id, vector;
	int err = check_room(outlen, DEVX_EMULATED_EQ_BYTES);

	if (err)
		return err;
	vb_emu_eq_query(obj->emu_eq, &vhca_id, &vector);
	put(out, EQ_DEVICE, 32, vhca_id);
	put(out, EQ_INTR, 12, vector);
	return 0;
}

int devx_destroy_emulated_eq(struct mlx5dv_devx_obj *obj)
{
	return vb_emu_eq_destroy(obj->emu_eq);
}

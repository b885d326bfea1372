// SPDX-License-Identifier: MIT
/*
 * Owns what objects of libflexio are to libmlx5 (struct mlx5dv_devx_obj): lent ones, which end with
 * what they are part of, and can be queried there. Contexts are those of the programmer's reference
 * manual; fields that have no meaning here are 0.
 */
#include "object.h"

#include <endian.h>

#include "host/fault.h"

void vb_object_lend(struct mlx5dv_devx_obj *obj, struct ibv_context *ctx, enum vb_devx_kind kind,
		    uint32_t number, const struct vb_devx_lender *lender)
{
	*obj = (struct mlx5dv_devx_obj){ .mark = VB_DEVX_MARK,
					 .kind = kind,
					 .number = number,
					 .lent = true,
					 .lender = lender,
					 .context = ctx };
}

void vb_object_end(struct mlx5dv_devx_obj *obj)
{
	vb_listeners_end(&obj->listeners);
	*obj = (struct mlx5dv_devx_obj){ 0 };
}

uint32_t vb_object_record(const void *addr)
{
	uint32_t word = 0;

	return vb_fault_copy(&word, addr, sizeof(word)) ? 0 : be32toh(word);
}

void vb_object_put(uint8_t *context, uint32_t bit, uint32_t len, uint64_t value)
{
	for (; len; len--, value >>= 1) {
		uint32_t at = bit + len - 1;

		if (value & 1)
			context[at / 8] |= (uint8_t)(0x80 >> at % 8);
	}
}

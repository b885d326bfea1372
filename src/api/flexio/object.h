/* SPDX-License-Identifier: MIT */
/* Objects of libflexio that libmlx5 takes; see object.c. */
#pragma once

#include "api/devx.h"

/* lender NULL: it cannot be queried. */
void vb_object_lend(struct mlx5dv_devx_obj *obj, struct ibv_context *ctx, enum vb_devx_kind kind,
		    uint32_t number, const struct vb_devx_lender *lender);
/* Nobody listens to it any more. */
void vb_object_end(struct mlx5dv_devx_obj *obj);
/* The first word of a doorbell record; 0 where the program unmapped it. */
uint32_t vb_object_record(const void *addr);
/* A field of a context that was all zeros, by its first bit. */
void vb_object_put(uint8_t *context, uint32_t bit, uint32_t len, uint64_t value);

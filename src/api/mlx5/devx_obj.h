/* SPDX-License-Identifier: MIT */
/* Objects of the firmware's commands (DEVX): what steering uses of them, and rows of the table. */
#pragma once

#include <stdatomic.h>
#include <stdlib.h>

#include "api/devx.h"
#include "card/flow.h"

/* A bulk of flow counters. */
struct devx_counters {
	_Atomic unsigned int refs;  /* the object, and actions: the memory stays */
	_Atomic unsigned int users; /* rules and arrays: the object stays */
	uint32_t count;
	struct vb_steer_counter counter[];
};

/* Shortest commands that make these. */
enum { DEVX_DB_CQ_MAP_BYTES = 48, DEVX_EMULATED_EQ_BYTES = 72 };

/* devx_emulation.c: 0 or -errno, as struct command of devx_obj.c wants it. */
int devx_create_db_cq_map(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen);
int devx_query_db_cq_map(const struct mlx5dv_devx_obj *obj, const uint8_t *in, uint8_t *out,
			 size_t outlen);
int devx_destroy_db_cq_map(struct mlx5dv_devx_obj *obj);
int devx_create_emulated_eq(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen);
int devx_query_emulated_eq(const struct mlx5dv_devx_obj *obj, const uint8_t *in, uint8_t *out,
			   size_t outlen);
int devx_destroy_emulated_eq(struct mlx5dv_devx_obj *obj);

static inline void devx_counters_put(struct devx_counters *counters)
{
	/* Whoever frees it sees what the others did. */
	if (atomic_fetch_sub_explicit(&counters->refs, 1, memory_order_acq_rel) == 1)
		free(counters);
}

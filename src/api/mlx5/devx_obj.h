/* SPDX-License-Identifier: MIT */
/* Objects of the firmware's commands (DEVX): what steering uses of them. */
#pragma once

#include <stdatomic.h>
#include <stdlib.h>

#include "api/devx.h"
#include "card/ether/flow.h"

/* A bulk of flow counters. */
struct devx_counters {
	_Atomic unsigned int refs;  /* the object, and actions: the memory stays */
	_Atomic unsigned int users; /* rules and arrays: the object stays */
	uint32_t count;
	struct vb_steer_counter counter[];
};

/* The object with this counter, held by devx_get(), and the counter's place in it; NULL: none. */
struct mlx5dv_devx_obj *devx_get_counters(struct ibv_context *context, uint32_t id,
					  uint32_t *place);

static inline void devx_counters_put(struct devx_counters *counters)
{
	/* Whoever frees it sees what the others did. */
	if (atomic_fetch_sub_explicit(&counters->refs, 1, memory_order_acq_rel) == 1)
		free(counters);
}

/* SPDX-License-Identifier: MIT */
/* What the files of libmlx4 share. */
#pragma once

#include <endian.h>
#include <infiniband/mlx4dv.h>

#include "api/edge.h"
#include "api/ibverbs/accessors.h"

/* A context whose queues have the mlx4 format: all contexts come from our libibverbs. */
static inline bool is_mlx4(struct ibv_context *context)
{
	return vb_verbs_format(context) == VB_FORMAT_MLX4;
}

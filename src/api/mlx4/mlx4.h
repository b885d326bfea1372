/* SPDX-License-Identifier: MIT */
/* What the files of libmlx4 share. */
#pragma once

#include "api/ibverbs/mlx4/mlx4.h"

/* A context whose queues have the mlx4 format: all contexts come from our libibverbs. */
static inline bool is_mlx4(const struct ibv_context *context)
{
	return to_device(context->device)->adapter->config->format == VB_FORMAT_MLX4;
}

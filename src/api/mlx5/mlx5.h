/* SPDX-License-Identifier: MIT */
/* What the files of libmlx5 share. */
#pragma once

#include <stdlib.h>
#include <string.h>
#include <infiniband/mlx5dv.h>

#include "api/edge.h"
#include "api/ibverbs/accessors.h"

/* SPDX-License-Identifier: MIT */
/* What the files of libhbl share: the public header, and the way from a context to the card. */
#pragma once

/* This library exports exactly the functions that the public header declares. */
#pragma GCC visibility push(default)
#include <infiniband/hbldv.h>
#pragma GCC visibility pop

#include "api/edge.h"
#include "api/ibverbs/accessors.h"

static inline const struct vb_verbs_hbl *hbl_of(struct ibv_context *context)
{
	return vb_verbs_private(context)->hbl;
}

static inline struct vb_hbl *hbl_device(struct ibv_context *context)
{
	return hbl_of(context)->device(context);
}

/* Refuses a missing argument and a context of another kind of device: 0 or a positive errno. */
static inline int hbl_check(struct ibv_context *context, const void *attr)
{
	if (!context || !attr)
		return api_refuse(null, "context or attr");
	return hbldv_is_supported(context->device) ? 0 : api_refuse(not_mlx, "hbl");
}

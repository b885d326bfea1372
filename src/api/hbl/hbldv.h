/* SPDX-License-Identifier: MIT */
/* What the files of libhbl share: the edge's conventions, and the way from a context to the card. */
#pragma once

#include <errno.h>

/* Before the public header: what it declares is what this library shows. */
#pragma GCC visibility push(default)
#include <infiniband/hbldv.h>
#pragma GCC visibility pop

#include "hbl.h"

/* err is a positive errno, also left in errno because programs print that. */
static inline int hbl_fail(int err)
{
	errno = err;
	return err;
}

static inline int hbl_status(int rc)
{
	return rc ? hbl_fail(-rc) : 0;
}

static inline const struct verbs_ex_private *hbl_private_of(struct ibv_context *context)
{
	return verbs_get_ctx(context)->priv;
}

static inline struct vb_hbl *hbl_device(struct ibv_context *context)
{
	return hbl_private_of(context)->device(context);
}

/* 0, or why a call on this context with this attribute cannot be. */
static inline int hbl_check(struct ibv_context *context, const void *attr)
{
	if (!context || !attr)
		return hbl_fail(EINVAL);
	return hbldv_is_supported(context->device) ? 0 : hbl_fail(EOPNOTSUPP);
}

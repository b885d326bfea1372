/* SPDX-License-Identifier: MIT */
/* What the files of libhbl share: the edge's conventions, and the way from a context to the card. */
#pragma once

#include <errno.h>

/* Before the public header: what it declares is what this library shows. */
#pragma GCC visibility push(default)
#include <infiniband/hbldv.h>
#pragma GCC visibility pop

#include "base/refusal.h"
#include "hbl.h"

/*
 * err is a positive errno, also left in errno because programs print that. What fails leaves one line in the log, with
 * the reason where one was given (base/refusal.h). Every public function opens its call.
 */
#define HBL_CALL(context)            VB_CALL(.kind = (context) ? (context)->device->name : NULL)
#define hbl_fail(err)                hbl_fail_in(__func__, err)
#define hbl_status(rc)               hbl_status_in(__func__, rc)
#define hbl_refuse(reason, ...)      hbl_fail(-vb_refuse_##reason(__VA_ARGS__))
#define hbl_refuse_null(reason, ...) ((void *)(hbl_refuse(reason, ##__VA_ARGS__), NULL))

static inline int hbl_fail_in(const char *function, int err)
{
	vb_call_failed(function, err);
	errno = err;
	return err;
}

static inline int hbl_status_in(const char *function, int rc)
{
	return rc ? hbl_fail_in(function, -rc) : 0;
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
		return hbl_refuse(null, "context or attr");
	return hbldv_is_supported(context->device) ? 0 : hbl_refuse(not_mlx, "hbl");
}

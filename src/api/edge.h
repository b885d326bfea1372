/* SPDX-License-Identifier: MIT */
/*
 * The edge of libibverbs and of the direct verbs libraries: how a public function opens its call
 * and how it fails.
 *
 * err is a positive errno, also left in errno because programs print that. A public function opens
 * its call with API_CALL(); what fails leaves one line in the log, with the reason where one was
 * given (base/refusal.h).
 */
#pragma once

#include <errno.h>
#include <stddef.h>

#include "base/refusal.h"

#define API_CALL(...)          VB_CALL(__VA_ARGS__)
#define API_CALL_AS(name, ...) VB_CALL_AS(name, __VA_ARGS__)
/* The object of a call. */
#define API_DEVICE(context) .kind = (context) ? (context)->device->name : NULL
#define API_QP(qp)          .kind = "QP", .number = (qp) ? (qp)->qp_num : 0
#define API_CQ(cq)          .kind = "CQ", .number = (cq) ? (cq)->handle : 0
#define API_SRQ(srq)        .kind = "SRQ", .number = (srq) ? (srq)->handle : 0
#define api_fail(err)       api_fail_in(__func__, err)
#define api_null(err)       ((void *)(api_fail_in(__func__, err), NULL))
#define api_status(rc)      api_status_in(__func__, rc)
/* Refuse for one of the reasons of base/reasons.h: a positive errno, or NULL. */
#define api_refuse(reason, ...)      api_fail(-vb_refuse_##reason(__VA_ARGS__))
#define api_refuse_null(reason, ...) api_null(-vb_refuse_##reason(__VA_ARGS__))

static inline int api_fail_in(const char *function, int err)
{
	vb_call_failed(function, err);
	errno = err;
	return err;
}

/* From the card's convention (0 or -errno) to that of the edge. */
static inline int api_status_in(const char *function, int rc)
{
	return rc ? api_fail_in(function, -rc) : 0;
}

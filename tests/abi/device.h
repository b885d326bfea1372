/* SPDX-License-Identifier: MIT */
/*
 * What the cases of this folder work on: an open device with a PD, a CQ and an RC QP in RESET.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>
#include <infiniband/verbs.h>

struct device {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	char buf[4096];
};

static inline struct ibv_qp_init_attr qp_attr(struct ibv_cq *cq, enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4,
			 .max_recv_wr = 4,
			 .max_send_sge = 2,
			 .max_recv_sge = 2,
			 .max_inline_data = 32 },
		.qp_type = type,
	};
}

static inline int device_open(void **state)
{
	static struct device device;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr attr;

	assert_non_null(list);
	assert_non_null(list[0]);
	device.context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	assert_non_null(device.context);
	device.pd = ibv_alloc_pd(device.context);
	assert_non_null(device.pd);
	device.cq = ibv_create_cq(device.context, 16, NULL, NULL, 0);
	assert_non_null(device.cq);
	attr = qp_attr(device.cq, IBV_QPT_RC);
	device.qp = ibv_create_qp(device.pd, &attr);
	assert_non_null(device.qp);
	*state = &device;
	return 0;
}

static inline int device_close(void **state)
{
	struct device *d = *state;

	return ibv_destroy_qp(d->qp) || ibv_destroy_cq(d->cq) || ibv_dealloc_pd(d->pd) ||
	       ibv_close_device(d->context);
}

/* The call returns NULL and this errno. */
#define assert_null_errno(call, err)          \
	do {                                  \
		errno = 0;                    \
		assert_null(call);            \
		assert_int_equal(errno, err); \
	} while (0)

/* SPDX-License-Identifier: MIT */
/* A TIR, for tir.c and for flow.c, which brings frames to it. */
#pragma once

#include "card/device.h"
#include "card/ether/flow.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"

struct vb_tir {
	struct vb_dev *dev;
	uint32_t number;
	uint32_t users;             /* who holds it by vb_tir_get(); under the lock of the list */
	struct vb_qp *rq;           /* or NULL and */
	struct vb_rss *_Atomic rss; /* a table; changed by vb_tir_set_rss() */
	struct vb_rss *spare;       /* the one that it changes to */
	uint32_t transport_domain;
	_Atomic uint8_t loopback;
	struct vb_tir *next; /* under the lock of the list */
};

/* SPDX-License-Identifier: MIT */
/* Counter sets that queues name. */
#pragma once

#include "card/card.h"

/*
 * Counter sets: what happened to the queues that name one by its number, from 1 to
 * VB_COUNTER_SETS - 1. rx: requests of peers; resp: seen by the responder; req: by the requester.
 */
enum { VB_COUNTER_SETS = 256 };

enum vb_counter {
	VB_COUNT_RX_WRITE = 1,
	VB_COUNT_RX_READ,
	VB_COUNT_RX_ATOMIC,
	VB_COUNT_OUT_OF_BUFFER,   /* messages and frames that found no receive posted */
	VB_COUNT_OUT_OF_SEQUENCE, /* packets behind one that is missing */
	VB_COUNT_DUPLICATE,       /* packets that were taken before */
	VB_COUNT_RNR_NAK,         /* the peer was not ready; sent again */
	VB_COUNT_SEQUENCE_NAK,    /* the peer missed a packet; sent again */
	VB_COUNT_ACK_TIMEOUT,     /* the peer did not answer; sent again */
	VB_COUNT_REQ_RNR_RETRIES, /* from here on: completions with errors */
	VB_COUNT_RESP_LENGTH,
	VB_COUNT_REQ_LENGTH,
	VB_COUNT_RESP_QP,
	VB_COUNT_REQ_QP,
	VB_COUNT_RESP_PROTECTION,
	VB_COUNT_REQ_PROTECTION,
	VB_COUNT_RESP_CQE, /* any, those of flushes too */
	VB_COUNT_REQ_CQE,
	VB_COUNT_REQ_BIND,
	VB_COUNT_REQ_RESPONSE,
	VB_COUNT_REQ_INVALID,
	VB_COUNT_RESP_INVALID, /* refused; a receive need not complete with it */
	VB_COUNT_REQ_ACCESS,
	VB_COUNT_RESP_ACCESS, /* so does this */
	VB_COUNT_REQ_OPERATION,
	VB_COUNT_REQ_RETRIES,
	VB_COUNT_RESP_FLUSH,
	VB_COUNT_REQ_FLUSH,
	VB_COUNTERS
};

struct vb_counter_set;

VB_PUBLIC int vb_counter_set_alloc(struct vb_dev *dev, struct vb_counter_set **set);
/* -EBUSY: a queue counts in it. */
VB_PUBLIC int vb_counter_set_free(struct vb_counter_set *set);
VB_PUBLIC uint32_t vb_counter_set_number(const struct vb_counter_set *set);
/* Values by enum vb_counter; clear: they are 0 then, and nothing is lost in between. */
VB_PUBLIC void vb_counter_set_read(struct vb_counter_set *set, bool clear,
				   uint64_t value[VB_COUNTERS]);

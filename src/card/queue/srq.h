/* SPDX-License-Identifier: MIT */
/* Shared receive queues. */
#pragma once

#include "card/card.h"

struct vb_srq_attr {
	struct vb_pd *pd;
	void *buf; /* mlx5: linked WQEs, WQE 0 is consumed first, then next_wqe_index of each */
	uint32_t wqe_cnt; /* power of two */
	uint32_t wqe_shift;
	uint32_t max_sge;
	__be32 *dbr; /* [0] counter of posted WQEs */
	uint32_t limit;
	bool cyclic;    /* mlx5: WQEs are consumed in the order of the ring, not of links */
	bool idle_link; /* ... and begin with a link all the same, that nobody follows */
	bool anonymous; /* CQEs show the user index of the QP, not the number of the SRQ */
	bool single;    /* belongs to one receive queue, whose error flushes it */
	void *cookie;
	void (*event)(void *cookie, enum ibv_event_type type); /* see struct vb_cq_attr */
};

VB_PUBLIC int vb_srq_create(struct vb_dev *dev, const struct vb_srq_attr *attr,
			    struct vb_srq **srq);
VB_PUBLIC int vb_srq_destroy(struct vb_srq *srq);            /* -EBUSY while a QP uses it */
VB_PUBLIC int vb_srq_check_unused(const struct vb_srq *srq); /* see vb_cq_check_unused() */
VB_PUBLIC uint32_t vb_srq_number(const struct vb_srq *srq);
/*
 * The SRQ of this device with this number that queues may share, kept from being destroyed until
 * vb_srq_put(); NULL: none.
 */
VB_PUBLIC struct vb_srq *vb_srq_get(struct vb_dev *dev, uint32_t number);
VB_PUBLIC void vb_srq_put(struct vb_srq *srq);
/* WQEs taken so far, and those posted as the doorbell record says; 16 bits each. */
VB_PUBLIC void vb_srq_counters(struct vb_srq *srq, uint16_t *taken, uint16_t *posted);
VB_PUBLIC int vb_srq_set_limit(struct vb_srq *srq,
			       uint32_t limit); /* 0 disarms; one event per arming */
VB_PUBLIC uint32_t vb_srq_limit(struct vb_srq *srq);

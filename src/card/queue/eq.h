/* SPDX-License-Identifier: MIT */
/* Event queues. */
#pragma once

#include "card/card.h"

struct vb_eq;

/*
 * Numbers of event queues from here on are those of completion vectors (mlx5dv_devx_query_eqn):
 * they have no ring, a CQ on one reports to who listens to it.
 */
enum { VB_EQ_VECTORS = 192 };

/*
 * Event queues, in memory of the card that the program reads. log_size: of the number of EQEs, up
 * to 20.
 */
VB_PUBLIC int vb_eq_create(struct vb_dev *dev, unsigned int log_size, struct vb_eq **eq);
VB_PUBLIC int vb_eq_destroy(struct vb_eq *eq);           /* -EBUSY while a CQ is on it */
VB_PUBLIC uint32_t vb_eq_number(const struct vb_eq *eq); /* 8 bits */
VB_PUBLIC void *vb_eq_ring(const struct vb_eq *eq);
/*
 * A CQ on an event queue. Its owner may ring the queue as long as it has a CQ there, see
 * vb_doorbell_send().
 */
struct vb_eq_user {
	uint64_t owner;
	struct vb_eq_user *next; /* the card's */
};

/* The one of this device with this number, until vb_eq_put(); NULL: not there. */
VB_PUBLIC struct vb_eq *vb_eq_get(struct vb_dev *dev, uint32_t number, struct vb_eq_user *user);
VB_PUBLIC void vb_eq_put(struct vb_eq *eq, struct vb_eq_user *user);
/* A CQ has an event. From any thread, also where it must not call back into the card. */
VB_PUBLIC void vb_eq_completion(struct vb_eq *eq, uint32_t cqn);
/* Its consumer index, from a doorbell page of the device; dev NULL: of any of the card. */
VB_PUBLIC void vb_eq_consumed(struct vb_card *card, const struct vb_dev *dev, uint32_t number,
			      uint32_t ci);

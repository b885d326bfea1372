/* SPDX-License-Identifier: MIT */
/* Doorbells: pages to which programs store, and doorbells by the number of a queue. */
#pragma once

#include "card/card.h"

/*
 * Doorbells by queue number, for untrusted callers such as device code. Only queues made with the
 * same owner are rung; any other number is -ENOENT and does nothing. -EINVAL: producer index out of
 * range. Callable from anywhere, CQ notifications and events included.
 */
VB_PUBLIC int vb_doorbell_send(struct vb_card *card, uint64_t owner, uint32_t qpn, uint32_t pi);
VB_PUBLIC int vb_doorbell_arm(struct vb_card *card, uint64_t owner, uint32_t cqn, uint32_t ci);
/* Put a CQE of zeros into the CQ. */
VB_PUBLIC int vb_doorbell_zero_cqe(struct vb_card *card, uint64_t owner, uint32_t cqn);
/* Consumer index of an event queue. */
VB_PUBLIC int vb_doorbell_eq(struct vb_card *card, uint64_t owner, uint32_t eqn, uint32_t ci);

/* Numbers of doorbell pages, unique in the card. -ENOSPC. */
VB_PUBLIC int64_t vb_uar_number_take(struct vb_card *card);
VB_PUBLIC void vb_uar_number_give(struct vb_card *card, uint32_t number);

/*
 * A page to which the program stores to ring its queues itself, wherever and from whichever thread.
 */
VB_PUBLIC int vb_uar_create(struct vb_dev *dev, struct vb_uar **uar);
/* When this returns, no ring of that page is being executed. */
VB_PUBLIC void vb_uar_destroy(struct vb_uar *uar);
VB_PUBLIC struct vb_card *vb_uar_card(const struct vb_uar *uar);
/* Its address; NULL on a machine that cannot trap stores. */
VB_PUBLIC void *vb_uar_page(struct vb_uar *uar);
/* Whether there is a page with this number, of this device. */
VB_PUBLIC bool vb_uar_exists(const struct vb_dev *dev, uint32_t number);
/* The page has this number of vb_uar_number_take(), until it is destroyed. */
VB_PUBLIC void vb_uar_set_number(struct vb_uar *uar, uint32_t number);
/* Whether the address lies in the page of this number, of this device or another context of its adapter. */
VB_PUBLIC bool vb_uar_is(const struct vb_dev *dev, uint32_t number, const void *addr);

/* SPDX-License-Identifier: MIT */
/*
 * Emulated functions: devices of an adapter that a driver program sees, and whose device side is
 * code of the accelerator. docs/emulation.md has the whole picture.
 *
 *	driver: doorbell of queue q --> map (armed?) --> CQE in its CQ --> event handler
 *	driver: eventfd of vector v <-- emulated EQ  <-- event of its CQ <-- msix_send
 *
 * Driver and device side may be in one process or in two of the same user and host.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/public.h"
#include "card/device.h"

struct vb_emu_map;
struct vb_emu_eq;
struct vb_emu_driver;

/* Which functions there are ------------------------------------------------------------------- */

struct vb_function_info {
	const struct vb_adapter *adapter;
	unsigned int number; /* of the adapter's, from 0 */
	uint32_t vhca_id;    /* unique among those of a configuration */
	uint32_t queues, vectors;
};

/* Function number n of an adapter; false where it has no such. */
VB_PUBLIC bool vb_function_info(const struct vb_adapter *adapter, unsigned int n,
				struct vb_function_info *info);
/* The one with this vhca_id, of all adapters. */
VB_PUBLIC bool vb_function_by_id(struct vb_card *card, uint32_t vhca_id,
				 struct vb_function_info *info);

/* The device side ----------------------------------------------------------------------------- */

/*
 * From now on doorbells of the queue lead to the CQ of this device with this number, which is kept
 * from being destroyed. -EINVAL: no such function, queue or CQ; -EBUSY: somebody has the queue.
 */
VB_PUBLIC int vb_emu_map(struct vb_dev *dev, uint32_t vhca_id, uint32_t queue, uint32_t cqn,
			 struct vb_emu_map **map);
VB_PUBLIC void vb_emu_unmap(struct vb_emu_map *map);
VB_PUBLIC uint32_t vb_emu_map_id(const struct vb_emu_map *map); /* not 0, 26 bits */
VB_PUBLIC void vb_emu_map_query(const struct vb_emu_map *map, uint32_t *vhca_id, uint32_t *queue,
				uint32_t *cqn);

/* Events of CQs that are on it raise the vector. -EINVAL: no such function or vector. */
VB_PUBLIC int vb_emu_eq_create(struct vb_dev *dev, uint32_t vhca_id, uint32_t vector,
			       struct vb_emu_eq **eq);
VB_PUBLIC int vb_emu_eq_destroy(struct vb_emu_eq *eq); /* -EBUSY while a CQ is on it */
VB_PUBLIC uint32_t vb_emu_eq_number(const struct vb_emu_eq *eq);
VB_PUBLIC void vb_emu_eq_query(const struct vb_emu_eq *eq, uint32_t *vhca_id, uint32_t *vector);
/* The one of this adapter with this number, until vb_emu_eq_put(); NULL: not there. */
VB_PUBLIC struct vb_emu_eq *vb_emu_eq_get(const struct vb_adapter *adapter, uint32_t number);
VB_PUBLIC void vb_emu_eq_put(struct vb_emu_eq *eq);
/* From any thread, also where it must not call back into the card. */
VB_PUBLIC void vb_emu_eq_raise(struct vb_emu_eq *eq);

/*
 * Doorbells by number, as vb_doorbell_send(): of the map with this id, whose CQ has this number and
 * owner. Arm: the next doorbell of the driver, or one since the last, puts a CQE into the CQ.
 * Trigger: as if the driver had rung.
 */
VB_PUBLIC int vb_doorbell_emu_arm(struct vb_card *card, uint64_t owner, uint32_t cqn, uint32_t id);
VB_PUBLIC int vb_doorbell_emu_trigger(struct vb_card *card, uint64_t owner, uint32_t cqn,
				      uint32_t id);
/* What the driver stored last. */
VB_PUBLIC int vb_doorbell_emu_value(struct vb_card *card, uint64_t owner, uint32_t id,
				    uint32_t *value);

/* The driver ---------------------------------------------------------------------------------- */

/* -EINVAL: no such function; -EBUSY: a driver has it. Its queues begin silent. */
VB_PUBLIC int vb_emu_driver_open(struct vb_card *card, uint32_t vhca_id,
				 struct vb_emu_driver **driver);
VB_PUBLIC void vb_emu_driver_close(struct vb_emu_driver *driver);
VB_PUBLIC const struct vb_function_info *vb_emu_driver_info(const struct vb_emu_driver *driver);
/* 32 bits per queue, to which stores ring; NULL on a machine that cannot trap stores. */
VB_PUBLIC void *vb_emu_driver_page(const struct vb_emu_driver *driver);
VB_PUBLIC int vb_emu_driver_ring(struct vb_emu_driver *driver, uint32_t queue, uint32_t value);
/* A descriptor of the driver's that counts interrupts of the vector; or -errno. */
VB_PUBLIC int vb_emu_driver_eventfd(struct vb_emu_driver *driver, uint32_t vector);
/* Whether a process that runs has the queue; or -errno. */
VB_PUBLIC int vb_emu_driver_served(const struct vb_emu_driver *driver, uint32_t queue);

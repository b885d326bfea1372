/* SPDX-License-Identifier: MIT */
/* Memory of queues that programs name by number. */
#pragma once

#include "card/card.h"

struct vb_umem;

/* -EFAULT: not mapped, or not writable although access says so. */
VB_PUBLIC int vb_umem_reg(struct vb_dev *dev, void *addr, size_t size, unsigned int access,
			  struct vb_umem **umem);
/*
 * The same over memory that its owner knows: find() gives the place of [offset, offset + size), or
 * NULL. What it gave must stay while a queue lies in the umem. It is called with a lock held, and
 * must not call the card.
 */
VB_PUBLIC int vb_umem_reg_owned(struct vb_dev *dev,
				void *(*find)(void *arg, uint64_t offset, uint64_t size), void *arg,
				struct vb_umem **umem);
VB_PUBLIC int vb_umem_dereg(struct vb_umem *umem); /* -EBUSY while a queue lies in it */
VB_PUBLIC uint32_t vb_umem_number(const struct vb_umem *umem);
VB_PUBLIC bool vb_umem_writable(const struct vb_umem *umem); /* registered so, for the card */
/*
 * The umem of this device with this number and [offset, offset + size) of it, until vb_umem_put();
 * NULL: not there.
 */
VB_PUBLIC struct vb_umem *vb_umem_get(struct vb_dev *dev, uint32_t number, uint64_t offset,
				      uint64_t size, void **addr);
VB_PUBLIC void vb_umem_put(struct vb_umem *umem);
/* In a forked child: what a thread of the parent had locked is free. */
void vb_umem_forked(struct vb_card *card);

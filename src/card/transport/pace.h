/* SPDX-License-Identifier: MIT */
/* Packet pacing by numbers that queues name. */
#pragma once

#include "card/card.h"

/*
 * Packet pacing entries: a rate and a burst by number, for queues that name one. Two entries that are
 * alike share a number, unless one is dedicated.
 */
enum { VB_PACES = 256 }; /* of an adapter, with 0 */

VB_PUBLIC int vb_pace_take(struct vb_dev *dev, uint32_t kbps, uint32_t burst, bool dedicated,
			   uint16_t *index);
VB_PUBLIC void vb_pace_give(struct vb_dev *dev, uint16_t index);
/* -EINVAL: there is none with this number. 0 is always there, and has no limit. */
VB_PUBLIC int vb_pace_find(struct vb_dev *dev, uint16_t index, uint32_t *kbps, uint32_t *burst);

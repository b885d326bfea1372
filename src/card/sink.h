/* SPDX-License-Identifier: MIT */
/* What hbl/ needs of the card beyond card.h, besides burst.h, deferred.h, alarm.h and state.h. */
#pragma once

#include <stdbool.h>

#include "fabric/fabric.h"

/* The card's callbacks, for vb_fabric_start(). */
extern const struct vb_sink vb_card_sink;

/*
 * Whether this thread was interrupted inside of the card, by a signal handler whose store rang.
 * Whatever locks a queue is in a read section, or between vb_card_enter() and vb_card_leave().
 */
bool vb_card_is_inside(void);

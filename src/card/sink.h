/* SPDX-License-Identifier: MIT */
/* What hbl/ needs of the card beyond card.h, besides burst.h, deferred.h, alarm.h and state.h. */
#pragma once

#include <stdbool.h>

#include "fabric/fabric.h"
#include "control/show/monitor.h"

struct vb_adapter;

/* The card's callbacks, for vb_fabric_start(). */
extern const struct vb_sink vb_card_sink;

/*
 * Whether this thread was interrupted inside of the card, by a signal handler whose store rang.
 * Whatever locks a queue is in a read section, or between vb_card_enter() and vb_card_leave().
 */
bool vb_card_is_inside(void);

/* --- shown.c: what tools see --- */
/* An adapter is opened or closed by a context of the process. */
void vb_show_adapter(const struct vb_adapter *adapter, int change);
/* A queue pair's entry goes, and what it moved counts for its adapter from now on. */
void vb_hide_traffic(const struct vb_adapter *adapter, const struct vb_monitor_traffic *moved,
		     struct vb_monitor_place *place);

/* SPDX-License-Identifier: MIT */
/*
 * Timers: queue pairs with packets in flight, moderated completion queues, queues that are looked
 * at periodically.
 *
 *	vb_alarm_set(), lock-free --> fresh --+
 *	                                      v
 *	                             list of all that are set --> look() of each, under its queue's
 *	                                      ^                   lock: done, or wait on
 *	                                      +-------------------------+
 *
 * An alarm belongs to a queue. Setting one that is set already only lowers the common deadline, so
 * a queue in use stays on the list. All alarms are looked at together when the earliest is due:
 * there are few looks a second, and an alarm with nothing due costs a few loads.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"

struct vb_card;

struct vb_alarm {
	struct vb_card *card; /* the queue's, as is */
	struct vb_lock *lock;
	/*
	 * Do what is due at `now` and lower *next to the time of the next look. False: nothing is
	 * left to wait for. Called in a burst, with the queue's lock held.
	 */
	bool (*look)(struct vb_alarm *alarm, uint64_t now, uint64_t *next);
	bool set;                     /* fresh or on the list; under the queue's lock */
	bool listed;                  /* on the list; this and the links under the list's lock */
	struct vb_alarm *next, *prev; /* fresh ones have a next only */
};

/* Call look() at `when` (ns) or earlier, until it returns false. The queue's lock is held. */
void vb_alarm_set(struct vb_alarm *alarm, uint64_t when);
/* Call look() no more, unless it is set again. The queue's lock is held. */
void vb_alarm_clear(struct vb_alarm *alarm);
/* Look at all that are set, if one is due and no other thread looks. In a burst, no lock held. */
void vb_alarm_run(struct vb_card *card);
/* When to run them again, ns. UINT64_MAX: once one is set, which kicks the background thread. */
uint64_t vb_alarm_next(struct vb_card *card);
/* In a forked child: drop the alarms of the parent's queues. */
void vb_alarm_forked(struct vb_card *card);

static inline void vb_sooner(uint64_t *next, uint64_t when)
{
	*next = *next < when ? *next : when;
}

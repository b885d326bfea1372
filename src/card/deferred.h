/* SPDX-License-Identifier: MIT */
/*
 * Work that a queue pair does later, with no queue lock held: an acknowledgement that is due, a
 * flush, sending that found no room.
 *
 *	work     one list per thread (a few threads may share one): done by the thread that deferred it,
 *	         as soon as it holds no lock; otherwise by the background thread or an idle poller
 *	blocked  found no room on the path; every thread that makes progress tries again
 *	rest     has taken its share of a thread's time; done by the background thread or an idle poller, a share each
 *
 * The lists are lock-free stacks. Pushing never waits; taking takes all entries at once, which
 * rules out ABA.
 *
 * Invariant: an item is linked if and only if its `due` is not 0. The thread that changes it from 0
 * links it; the thread that has unlinked it takes the bits. So adding to pending work costs one
 * atomic instruction.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"

struct vb_card;

struct vb_deferred {
	struct vb_card *card;
	_Atomic uint32_t due; /* bits, as the queue pair means them */
	_Atomic bool closed;  /* nothing more is deferred */
	struct vb_deferred *next;
	void (*run)(struct vb_deferred *item, uint32_t due); /* read section, no lock held */
};

void vb_deferred_init(struct vb_deferred *item, struct vb_card *card,
		      void (*run)(struct vb_deferred *item, uint32_t due));
void vb_defer(struct vb_deferred *item, uint32_t due);
void vb_defer_blocked(struct vb_deferred *item, uint32_t due);
void vb_defer_rest(struct vb_deferred *item, uint32_t due);
/*
 * From its return until the next vb_deferred_init() the item is neither linked nor run. The caller
 * holds no lock and is in no read section: this waits for those that were entered before.
 */
void vb_deferred_remove(struct vb_deferred *item);

/* Whether something waits that vb_deferred_run() would do. */
enum vb_pending vb_deferred_pending(struct vb_card *card, bool all);
/*
 * Do the work of this thread and what is blocked; all: of other threads, too. Read section, no lock
 * held.
 */
void vb_deferred_run(struct vb_card *card, bool all);
/* Do only the work of this thread. */
void vb_deferred_run_own(struct vb_card *card);
/* In a forked child: drop the work of the parent's queues. */
void vb_deferred_forked(struct vb_card *card);

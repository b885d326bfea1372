/* SPDX-License-Identifier: MIT */
/*
 * What queue pairs do later, whatever their kind: work.c has one of these for verbs queues, hbl/work.c one for hbl's.
 *
 *	work     something to do now (an acknowledgement due, a flush): done by whoever makes progress next, with no
 *	         queue lock held
 *	blocked  found no room on the path: tried again by every progress
 *	timers   packets in flight or a wait to end: looked at by the background thread
 *
 * An item is on work or blocked exactly while its `due` is not 0: who makes it so puts it there, who takes it off takes
 * the bits after that. So adding to what is due already costs one instruction.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "fabric/fabric.h"

struct vb_later_item {
	_Atomic uint32_t due;
	bool timed; /* on the timer list; written under the item's own lock */
	struct vb_later_item *next, *next_timer, *prev_timer;
};

struct vb_later {
	struct vb_lock lock; /* of the lists; held for a few instructions, never over a call */
	struct vb_later_item *work, *blocked, *timers;
	_Atomic uint32_t runnable, waiting; /* lengths of work and blocked; read without the lock */
	_Atomic uint64_t next_timer;        /* ns; UINT64_MAX: nothing to wait for */
	/* Do what is due. */
	void (*run)(struct vb_later_item *item, uint32_t due);
	/* The item's own lock, under which timer() is called: false once nothing is left to wait for. Lowers *next. */
	struct vb_lock *(*lock_of)(struct vb_later_item *item);
	bool (*timer)(struct vb_later_item *item, uint64_t now, uint64_t *next);
	void (*also)(uint64_t now, uint64_t *next); /* what else waits for time to pass; or NULL */
};

void vb_later_add(struct vb_later *later, struct vb_later_item *item, uint32_t due);
void vb_later_block(struct vb_later *later, struct vb_later_item *item, uint32_t due);
/* Off all lists; waits until nobody works on it. */
void vb_later_remove(struct vb_later *later, struct vb_later_item *item);
/* Onto the timer list, if it is not there. Under the item's own lock. */
void vb_later_time(struct vb_later *later, struct vb_later_item *item);
/* Have the background thread look at the timers, not later than this. Allowed in a signal handler. */
void vb_later_look(struct vb_later *later, uint64_t when);

/* Everything that can be done now; when to come back for the timers. Inside a read section, no lock held. */
uint64_t vb_later_run(struct vb_later *later);
enum vb_pending vb_later_pending(const struct vb_later *later);
/* A forked child has none of its parent's queues. */
void vb_later_forked(struct vb_later *later);

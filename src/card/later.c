// SPDX-License-Identifier: MIT
/*
 * Owns the three lists of later.h. Called from work.c and hbl/work.c only.
 */
#include "card/later.h"

#include <stddef.h>

#include "base/clock.h"
#include "base/rcu.h"

enum { BUSY_AGAIN_NS = 50000 };

static void enqueue(struct vb_later *later, struct vb_later_item *item, uint32_t due,
		    struct vb_later_item **list, _Atomic uint32_t *length)
{
	if (atomic_fetch_or(&item->due, due))
		return;
	vb_lock(&later->lock);
	item->next = *list;
	*list = item;
	atomic_store_explicit(length, *length + 1, memory_order_release);
	vb_unlock(&later->lock);
}

void vb_later_add(struct vb_later *later, struct vb_later_item *item, uint32_t due)
{
	enqueue(later, item, due, &later->work, &later->runnable);
}

void vb_later_block(struct vb_later *later, struct vb_later_item *item, uint32_t due)
{
	enqueue(later, item, due, &later->blocked, &later->waiting);
}

static void unlink_work(struct vb_later_item **list, struct vb_later_item *item,
			_Atomic uint32_t *length)
{
	for (; *list; list = &(*list)->next) {
		if (*list != item)
			continue;
		*list = item->next;
		atomic_store_explicit(length, *length - 1, memory_order_release);
		return;
	}
}

static void unlink_timer(struct vb_later *later, struct vb_later_item *item)
{
	if (!item->timed)
		return;
	if (item->prev_timer)
		item->prev_timer->next_timer = item->next_timer;
	else
		later->timers = item->next_timer;
	if (item->next_timer)
		item->next_timer->prev_timer = item->prev_timer;
	item->next_timer = item->prev_timer = NULL;
	item->timed = false;
}

void vb_later_remove(struct vb_later *later, struct vb_later_item *item)
{
	/* A thread that is working on it may put it back once more; nobody does after a grace period. */
	for (int i = 0; i < 2; i++) {
		vb_lock(&later->lock);
		unlink_work(&later->work, item, &later->runnable);
		unlink_work(&later->blocked, item, &later->waiting);
		unlink_timer(later, item);
		vb_unlock(&later->lock);
		vb_read_wait();
	}
}

void vb_later_time(struct vb_later *later, struct vb_later_item *item)
{
	if (item->timed)
		return;
	vb_lock(&later->lock);
	item->timed = true;
	item->prev_timer = NULL;
	item->next_timer = later->timers;
	if (later->timers)
		later->timers->prev_timer = item;
	later->timers = item;
	vb_unlock(&later->lock);
}

static bool lower(_Atomic uint64_t *to, uint64_t when)
{
	uint64_t now = atomic_load(to);

	while (when < now)
		if (atomic_compare_exchange_weak(to, &now, when))
			return true;
	return false;
}

void vb_later_look(struct vb_later *later, uint64_t when)
{
	/* Who made it as early as this before us has kicked, and nobody has looked since. */
	if (lower(&later->next_timer, when))
		vb_fabric_kick();
}

/* --- doing it ------------------------------------------------------------------------------------------------------ */

/* The first of a list is done; false where there is none. */
static bool run_one(struct vb_later *later, struct vb_later_item **list, _Atomic uint32_t *length)
{
	struct vb_later_item *item;

	vb_lock(&later->lock);
	item = *list;
	if (item) {
		*list = item->next;
		atomic_store_explicit(length, *length - 1, memory_order_release);
	}
	vb_unlock(&later->lock);
	if (item)
		later->run(item,
			   atomic_exchange(&item->due, 0)); /* a later addition queues it again */
	return item;
}

static void sooner(uint64_t *next, uint64_t when)
{
	*next = *next < when ? *next : when;
}

/* One look at every timer. A queue that is in use by another thread is looked at again a little later. */
static void run_timers(struct vb_later *later, uint64_t now)
{
	struct vb_later_item *item, *following;
	uint64_t next = UINT64_MAX;

	atomic_store(&later->next_timer, UINT64_MAX);
	vb_lock(&later->lock);
	for (item = later->timers; item; item = following) {
		struct vb_lock *lock = later->lock_of(item);
		bool keep;

		following = item->next_timer;
		if (!vb_trylock(lock)) {
			sooner(&next, now + BUSY_AGAIN_NS);
			continue;
		}
		vb_unlock(&later->lock);
		keep = later->timer(item, now, &next);
		vb_lock(&later->lock);
		/* Taken off meanwhile, by who destroys it: where the list goes on from here is not known any more. */
		if (!item->timed)
			sooner(&next, now + BUSY_AGAIN_NS);
		following = item->next_timer;
		if (!keep)
			unlink_timer(later, item);
		vb_unlock(lock);
	}
	vb_unlock(&later->lock);
	if (later->also)
		later->also(now, &next);
	lower(&later->next_timer, next); /* a timer added meanwhile may be earlier */
}

uint64_t vb_later_run(struct vb_later *later)
{
	uint32_t blocked = atomic_load(&later->waiting);
	uint64_t now;

	while (atomic_load_explicit(&later->runnable, memory_order_acquire))
		run_one(later, &later->work, &later->runnable);
	/* Each blocked one once: those that block again are put back in front. */
	while (blocked-- && run_one(later, &later->blocked, &later->waiting))
		;
	if (atomic_load_explicit(&later->next_timer, memory_order_relaxed) != UINT64_MAX) {
		now = vb_now_ns();
		if (now >= atomic_load(&later->next_timer))
			run_timers(later, now);
	}
	return atomic_load(&later->next_timer);
}

enum vb_pending vb_later_pending(const struct vb_later *later)
{
	if (atomic_load_explicit(&later->runnable, memory_order_acquire))
		return VB_PENDING_RUNNABLE;
	return atomic_load_explicit(&later->waiting, memory_order_acquire) ? VB_PENDING_BLOCKED
									   : VB_PENDING_NONE;
}

void vb_later_forked(struct vb_later *later)
{
	later->lock.held = 0;
	later->work = later->blocked = later->timers = NULL;
	later->runnable = later->waiting = 0;
	later->next_timer = UINT64_MAX;
}

// SPDX-License-Identifier: MIT
/* Owns the lists of deferred.h. */
#include "card/deferred.h"

#include <sched.h>
#include <stddef.h>

#include "base/rcu.h"
#include "card/burst.h"
#include "card/queue/objects.h"
#include "card/state.h"

static _Thread_local uint32_t own_shard; /* its number + 1; 0: none yet */

static vb_deferred_stack *own(void)
{
	if (__builtin_expect(!own_shard, 0))
		own_shard = 1 + (atomic_fetch_add_explicit(&vb_card.deferred.threads, 1,
							   memory_order_relaxed) &
				 (VB_DEFERRED_SHARDS - 1));
	return &vb_card.deferred.shard[own_shard - 1].work;
}

/* A thread is counted before it pushes, so shards beyond these are empty. */
static uint32_t in_use(void)
{
	uint32_t threads = atomic_load_explicit(&vb_card.deferred.threads, memory_order_relaxed);

	return threads < VB_DEFERRED_SHARDS ? threads : VB_DEFERRED_SHARDS;
}

/* --- stacks ----------------------------------------------------------------------------------- */

static bool is_empty(vb_deferred_stack *s)
{
	return !atomic_load_explicit(s, memory_order_relaxed);
}

static void push(vb_deferred_stack *s, struct vb_deferred *first, struct vb_deferred *last)
{
	last->next = atomic_load_explicit(s, memory_order_relaxed);
	/* Pairs with take_all(). */
	while (!atomic_compare_exchange_weak_explicit(s, &last->next, first, memory_order_release,
						      memory_order_relaxed))
		;
}

static void push_all(vb_deferred_stack *s, struct vb_deferred *first)
{
	struct vb_deferred *last = first;

	while (last->next)
		last = last->next;
	push(s, first, last);
}

static struct vb_deferred *take_all(vb_deferred_stack *s)
{
	return is_empty(s) ? NULL : atomic_exchange_explicit(s, NULL, memory_order_acquire);
}

static struct vb_deferred *reverse(struct vb_deferred *item)
{
	struct vb_deferred *last = NULL;

	while (item) {
		struct vb_deferred *next = item->next;

		item->next = last;
		last = item;
		item = next;
	}
	return last;
}

/* The rest is put back at once: one item may take long, and other threads can run the others. */
static struct vb_deferred *take_one(vb_deferred_stack *s)
{
	struct vb_deferred *item = take_all(s), *rest = item ? item->next : NULL, *empty = NULL;

	/*
	 * Pairs with take_all(). The end of the list is only needed where another thread has
	 * pushed.
	 */
	if (rest && !atomic_compare_exchange_strong_explicit(s, &empty, rest, memory_order_release,
							     memory_order_relaxed))
		push_all(s, rest);
	return item;
}

/* --- adding and removing ---------------------------------------------------------------------- */

void vb_deferred_init(struct vb_deferred *item, void (*run)(struct vb_deferred *item, uint32_t due))
{
	item->run = run;
	atomic_store_explicit(&item->due, 0, memory_order_relaxed);
	atomic_store_explicit(&item->closed, false, memory_order_relaxed);
}

static void add(vb_deferred_stack *s, struct vb_deferred *item, uint32_t due)
{
	if (__builtin_expect(atomic_load_explicit(&item->closed, memory_order_relaxed), 0))
		return;
	/* Pairs with run_stack(), which has read the link before it sets this to 0. */
	if (!atomic_fetch_or_explicit(&item->due, due, memory_order_acq_rel))
		push(s, item, item);
}

void vb_defer(struct vb_deferred *item, uint32_t due)
{
	add(own(), item, due);
}

void vb_defer_blocked(struct vb_deferred *item, uint32_t due)
{
	add(&vb_card.deferred.blocked, item, due);
	/* The background thread itself tries again before it sleeps; kicked, it would never sleep. */
	if (!vb_fabric_attends())
		vb_burst_kick();
}

void vb_defer_rest(struct vb_deferred *item, uint32_t due)
{
	add(&vb_card.deferred.rest, item, due);
}

static void remove_from(vb_deferred_stack *s, struct vb_deferred *item)
{
	struct vb_deferred *first = take_all(s), **link;

	for (link = &first; *link && *link != item; link = &(*link)->next)
		;
	if (*link) {
		*link = item->next;
		atomic_store_explicit(&item->due, 0, memory_order_relaxed);
	}
	if (!first)
		return;
	push_all(s, first);
	/* The background thread may have seen an empty list meanwhile. */
	vb_fabric_kick();
}

void vb_deferred_remove(struct vb_deferred *item)
{
	atomic_store_explicit(&item->closed, true, memory_order_relaxed);
	vb_read_wait(); /* from here on nobody links it */
	/* A thread that has taken it from a list runs it or puts it back. */
	while (atomic_load_explicit(&item->due, memory_order_relaxed)) {
		for (uint32_t i = 0; i < VB_DEFERRED_SHARDS; i++)
			remove_from(&vb_card.deferred.shard[i].work, item);
		remove_from(&vb_card.deferred.blocked, item);
		remove_from(&vb_card.deferred.rest, item);
		remove_from(&vb_card.deferred.turn, item);
		sched_yield();
	}
	vb_read_wait();
}

/* --- running ---------------------------------------------------------------------------------- */

static void run_stack(vb_deferred_stack *s)
{
	struct vb_deferred *item;

	/* Running one may defer others. */
	while ((item = take_one(s)))
		item->run(item, atomic_exchange_explicit(&item->due, 0, memory_order_acq_rel));
}

/* Each once: an item that finds no room again goes back to blocked. */
static void run_once(vb_deferred_stack *s)
{
	struct vb_deferred *first = take_all(s);

	if (!first)
		return;
	push_all(own(), first);
	run_stack(own());
}

/*
 * One item, the one that waits longest: the caller leaves its read section and looks at timers before
 * it comes for the next. Several threads may each take one.
 */
static void run_rest(void)
{
	struct vb_deferred *first = take_all(&vb_card.deferred.turn);

	if (!first)
		first = reverse(take_all(&vb_card.deferred.rest));
	if (!first)
		return;
	if (first->next)
		push_all(&vb_card.deferred.turn, first->next);
	first->run(first, atomic_exchange_explicit(&first->due, 0, memory_order_acq_rel));
}

void vb_deferred_run_own(void)
{
	if (!is_empty(own()))
		run_stack(own());
}

void vb_deferred_run(bool all)
{
	vb_deferred_run_own();
	for (uint32_t i = 0; all && i < in_use(); i++)
		if (!is_empty(&vb_card.deferred.shard[i].work))
			run_stack(&vb_card.deferred.shard[i].work);
	if (all)
		run_rest();
	run_once(&vb_card.deferred.blocked);
}

enum vb_pending vb_deferred_pending(bool all)
{
	if (!is_empty(own()))
		return VB_PENDING_RUNNABLE;
	for (uint32_t i = 0; all && i < in_use(); i++)
		if (!is_empty(&vb_card.deferred.shard[i].work))
			return VB_PENDING_RUNNABLE;
	if (all && (!is_empty(&vb_card.deferred.rest) || !is_empty(&vb_card.deferred.turn)))
		return VB_PENDING_RUNNABLE;
	return is_empty(&vb_card.deferred.blocked) ? VB_PENDING_NONE : VB_PENDING_BLOCKED;
}

void vb_deferred_forked(void)
{
	for (uint32_t i = 0; i < VB_DEFERRED_SHARDS; i++)
		atomic_store_explicit(&vb_card.deferred.shard[i].work, NULL, memory_order_relaxed);
	atomic_store_explicit(&vb_card.deferred.blocked, NULL, memory_order_relaxed);
	atomic_store_explicit(&vb_card.deferred.rest, NULL, memory_order_relaxed);
	atomic_store_explicit(&vb_card.deferred.turn, NULL, memory_order_relaxed);
}

// SPDX-License-Identifier: MIT
/* Owns the lists of deferred.h. */
#include "card/deferred.h"

#include <sched.h>
#include <stddef.h>

#include "base/rcu.h"
#include "card/burst.h"
#include "card/queue/objects.h"
#include "card/state.h"

/*
 * Which list of each card this thread adds to: its number + 1; 0: none yet. Per thread, and the same for
 * all hosts, because it is threads that the lists keep apart.
 */
static _Thread_local uint32_t own_shard;
static _Atomic uint32_t threads; /* of the process, that have a shard */

static vb_deferred_stack *own(struct vb_card *card)
{
	if (__builtin_expect(!own_shard, 0))
		own_shard = 1 + (atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) &
				 (VB_DEFERRED_SHARDS - 1));
	return &card->deferred.shard[own_shard - 1].work;
}

/* A thread is counted before it pushes, so shards beyond these are empty. */
static uint32_t in_use(void)
{
	uint32_t count = atomic_load_explicit(&threads, memory_order_relaxed);

	return count < VB_DEFERRED_SHARDS ? count : VB_DEFERRED_SHARDS;
}

/* --- stacks ----------------------------------------------------------------------------------- */

static bool deferred_is_empty(vb_deferred_stack *s)
{
	return !atomic_load_explicit(s, memory_order_relaxed);
}

static void deferred_push(vb_deferred_stack *s, struct vb_deferred *first, struct vb_deferred *last)
{
	last->next = atomic_load_explicit(s, memory_order_relaxed);
	/* Pairs with deferred_take_all(). */
	while (!atomic_compare_exchange_weak_explicit(s, &last->next, first, memory_order_release,
						      memory_order_relaxed))
		;
}

static void push_all(vb_deferred_stack *s, struct vb_deferred *first)
{
	struct vb_deferred *last = first;

	while (last->next)
		last = last->next;
	deferred_push(s, first, last);
}

static struct vb_deferred *deferred_take_all(vb_deferred_stack *s)
{
	return deferred_is_empty(s) ? NULL
				    : atomic_exchange_explicit(s, NULL, memory_order_acquire);
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
	struct vb_deferred *item = deferred_take_all(s), *rest = item ? item->next : NULL,
			   *empty = NULL;

	/*
	 * Pairs with deferred_take_all(). The end of the list is only needed where another thread has
	 * pushed.
	 */
	if (rest && !atomic_compare_exchange_strong_explicit(s, &empty, rest, memory_order_release,
							     memory_order_relaxed))
		push_all(s, rest);
	return item;
}

/* --- adding and removing ---------------------------------------------------------------------- */

void vb_deferred_init(struct vb_deferred *item, struct vb_card *card,
		      void (*run)(struct vb_deferred *item, uint32_t due))
{
	item->card = card;
	item->run = run;
	atomic_store_explicit(&item->due, 0, memory_order_relaxed);
	atomic_store_explicit(&item->closed, false, memory_order_relaxed);
}

static void deferred_add(vb_deferred_stack *s, struct vb_deferred *item, uint32_t due)
{
	if (__builtin_expect(atomic_load_explicit(&item->closed, memory_order_relaxed), 0))
		return;
	/* Pairs with run_stack(), which has read the link before it sets this to 0. */
	if (!atomic_fetch_or_explicit(&item->due, due, memory_order_acq_rel))
		deferred_push(s, item, item);
}

void vb_defer(struct vb_deferred *item, uint32_t due)
{
	deferred_add(own(item->card), item, due);
}

void vb_defer_blocked(struct vb_deferred *item, uint32_t due)
{
	struct vb_card *card = item->card;

	deferred_add(&card->deferred.blocked, item, due);
	/* The background thread itself tries again before it sleeps; kicked, it would never sleep. */
	if (!vb_fabric_attends(card->fabric))
		vb_burst_kick(card);
}

void vb_defer_rest(struct vb_deferred *item, uint32_t due)
{
	struct vb_card *card = item->card;

	deferred_add(&card->deferred.rest, item, due);
}

static void remove_from(vb_deferred_stack *s, struct vb_deferred *item)
{
	struct vb_deferred *first = deferred_take_all(s), **link;

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
	vb_fabric_kick(item->card->fabric);
}

void vb_deferred_remove(struct vb_deferred *item)
{
	struct vb_card *card = item->card;

	atomic_store_explicit(&item->closed, true, memory_order_relaxed);
	vb_read_wait(); /* from here on nobody links it */
	/* A thread that has taken it from a list runs it or puts it back. */
	while (atomic_load_explicit(&item->due, memory_order_relaxed)) {
		for (uint32_t i = 0; i < VB_DEFERRED_SHARDS; i++)
			remove_from(&card->deferred.shard[i].work, item);
		remove_from(&card->deferred.blocked, item);
		remove_from(&card->deferred.rest, item);
		remove_from(&card->deferred.turn, item);
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
static void run_once(struct vb_card *card, vb_deferred_stack *s)
{
	struct vb_deferred *first = deferred_take_all(s);

	if (!first)
		return;
	push_all(own(card), first);
	run_stack(own(card));
}

/*
 * One item, the one that waits longest: the caller leaves its read section and looks at timers before
 * it comes for the next. Several threads may each take one.
 */
static void run_rest(struct vb_card *card)
{
	struct vb_deferred *first = deferred_take_all(&card->deferred.turn);

	if (!first)
		first = reverse(deferred_take_all(&card->deferred.rest));
	if (!first)
		return;
	if (first->next)
		push_all(&card->deferred.turn, first->next);
	first->run(first, atomic_exchange_explicit(&first->due, 0, memory_order_acq_rel));
}

void vb_deferred_run_own(struct vb_card *card)
{
	if (!deferred_is_empty(own(card)))
		run_stack(own(card));
}

void vb_deferred_run(struct vb_card *card, bool all)
{
	vb_deferred_run_own(card);
	for (uint32_t i = 0; all && i < in_use(); i++)
		if (!deferred_is_empty(&card->deferred.shard[i].work))
			run_stack(&card->deferred.shard[i].work);
	if (all)
		run_rest(card);
	run_once(card, &card->deferred.blocked);
}

enum vb_pending vb_deferred_pending(struct vb_card *card, bool all)
{
	if (!deferred_is_empty(own(card)))
		return VB_PENDING_RUNNABLE;
	for (uint32_t i = 0; all && i < in_use(); i++)
		if (!deferred_is_empty(&card->deferred.shard[i].work))
			return VB_PENDING_RUNNABLE;
	if (all &&
	    (!deferred_is_empty(&card->deferred.rest) || !deferred_is_empty(&card->deferred.turn)))
		return VB_PENDING_RUNNABLE;
	return deferred_is_empty(&card->deferred.blocked) ? VB_PENDING_NONE : VB_PENDING_BLOCKED;
}

void vb_deferred_forked(struct vb_card *card)
{
	for (uint32_t i = 0; i < VB_DEFERRED_SHARDS; i++)
		atomic_store_explicit(&card->deferred.shard[i].work, NULL, memory_order_relaxed);
	atomic_store_explicit(&card->deferred.blocked, NULL, memory_order_relaxed);
	atomic_store_explicit(&card->deferred.rest, NULL, memory_order_relaxed);
	atomic_store_explicit(&card->deferred.turn, NULL, memory_order_relaxed);
}

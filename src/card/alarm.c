// SPDX-License-Identifier: MIT
/* Owns the alarms that are set, see alarm.h. */
#include "card/alarm.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/time.h"
#include "card/burst.h"
#include "card/state.h"

enum { BUSY_AGAIN_NS = 50000 };

/*
 * vb_alarm_set() pushes the alarm on fresh, then reads next. A look writes next, then takes fresh.
 * All four accesses are sequentially consistent, so one of the two sees the other.
 */
static bool alarm_lower(struct vb_card *card, uint64_t when)
{
	uint64_t now = atomic_load_explicit(&card->alarms.next, memory_order_seq_cst);

	while (when < now)
		if (atomic_compare_exchange_weak_explicit(&card->alarms.next, &now, when,
							  memory_order_seq_cst,
							  memory_order_seq_cst))
			return true;
	return false;
}

void vb_alarm_set(struct vb_alarm *alarm, uint64_t when)
{
	struct vb_card *card = alarm->card;

	if (!alarm->set) {
		alarm->set = true;
		alarm->next = atomic_load_explicit(&card->alarms.fresh, memory_order_relaxed);
		while (!atomic_compare_exchange_weak_explicit(&card->alarms.fresh, &alarm->next,
							      alarm, memory_order_seq_cst,
							      memory_order_relaxed))
			;
	}
	/* Otherwise whoever made next as early as this has kicked, and nobody has looked since. */
	if (alarm_lower(card, when))
		vb_burst_kick(card);
}

/* --- the list, under its lock ----------------------------------------------------------------- */

static void take_fresh(struct vb_card *card)
{
	struct vb_alarm *alarm =
		atomic_exchange_explicit(&card->alarms.fresh, NULL, memory_order_seq_cst);

	while (alarm) {
		struct vb_alarm *following = alarm->next;

		alarm->listed = true;
		alarm->prev = NULL;
		alarm->next = card->alarms.first;
		if (card->alarms.first)
			card->alarms.first->prev = alarm;
		card->alarms.first = alarm;
		alarm = following;
	}
}

static void unlink_alarm(struct vb_alarm *alarm)
{
	struct vb_card *card = alarm->card;

	if (!alarm->listed)
		return;
	if (alarm->prev)
		alarm->prev->next = alarm->next;
	else
		card->alarms.first = alarm->next;
	if (alarm->next)
		alarm->next->prev = alarm->prev;
	alarm->next = alarm->prev = NULL;
	alarm->listed = alarm->set = false;
}

void vb_alarm_clear(struct vb_alarm *alarm)
{
	struct vb_card *card = alarm->card;
	vb_lock(&card->alarms.lock);
	take_fresh(card);
	unlink_alarm(alarm);
	vb_unlock(&card->alarms.lock);
}

/* --- looking ---------------------------------------------------------------------------------- */

/* One thread at a time. A queue whose lock another thread holds is looked at a little later. */
static void look_at_all(struct vb_card *card, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	struct vb_alarm *alarm, *following;

	atomic_store_explicit(&card->alarms.next, UINT64_MAX, memory_order_seq_cst);
	vb_lock(&card->alarms.lock);
	take_fresh(card);
	for (alarm = card->alarms.first; alarm; alarm = following) {
		struct vb_lock *lock = alarm->lock;
		bool keep;

		following = alarm->next;
		if (!vb_trylock(lock)) {
			vb_sooner(&next, now + BUSY_AGAIN_NS);
			continue;
		}
		vb_unlock(&card->alarms.lock);
		keep = alarm->look(alarm, now, &next);
		vb_lock(&card->alarms.lock);
		following = alarm->next;
		if (!keep)
			unlink_alarm(alarm);
		vb_unlock(lock);
	}
	vb_unlock(&card->alarms.lock);
	alarm_lower(card, next); /* an alarm that was set meanwhile may be earlier */
}

void vb_alarm_run(struct vb_card *card)
{
	uint32_t looks = atomic_load_explicit(&card->alarms.looks, memory_order_relaxed);
	uint64_t next = atomic_load_explicit(&card->alarms.next, memory_order_relaxed), now;

	if (next == UINT64_MAX || (looks & 1))
		return;
	now = vb_now_ns();
	if (now < next ||
	    !atomic_compare_exchange_strong_explicit(&card->alarms.looks, &looks, looks + 1,
						     memory_order_acquire, memory_order_relaxed))
		return;
	look_at_all(card, now);
	atomic_store_explicit(&card->alarms.looks, looks + 2, memory_order_release);
}

uint64_t vb_alarm_next(struct vb_card *card)
{
	/* Acquire: next is read between the two. Pairs with the end of vb_alarm_run(). */
	uint32_t looks = atomic_load_explicit(&card->alarms.looks, memory_order_acquire);
	uint64_t next = atomic_load_explicit(&card->alarms.next, memory_order_acquire);

	if (!(looks & 1) &&
	    atomic_load_explicit(&card->alarms.looks, memory_order_relaxed) == looks)
		return next;
	/* Another thread looks, and will not wake the caller when it knows the next time. */
	return vb_now_ns() + BUSY_AGAIN_NS;
}

void vb_alarm_forked(struct vb_card *card)
{
	atomic_store_explicit(&card->alarms.lock.held, 0, memory_order_relaxed);
	card->alarms.first = NULL;
	atomic_store_explicit(&card->alarms.fresh, NULL, memory_order_relaxed);
	atomic_store_explicit(&card->alarms.next, UINT64_MAX, memory_order_relaxed);
	atomic_store_explicit(&card->alarms.looks, 0, memory_order_relaxed);
}

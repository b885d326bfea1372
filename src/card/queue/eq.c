// SPDX-License-Identifier: MIT
/*
 * Owns event queues: where a CQ that was created on one says that it has something new.
 *
 *	ci (doorbell)                pi (card)
 *	    v                          v
 *	[ read | EQEs to read ........ | free ... ]       owner bit = (index / entries) & 1, preset to 1
 *
 * The ring is the card's own memory, which the program reads. An event that finds the ring full is
 * lost, as on hardware; the log says so once.
 */
#include "card/queue/eq.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rate.h"
#include "base/rcu.h"
#include "card/device.h"
#include "card/queue/doorbell.h"

enum { MAX_LOG_SIZE = 20, CI_MASK = 0xffffff, TYPE_COMPLETION = 0 };

struct eqe {
	uint8_t reserved0, type, reserved2, sub_type;
	uint8_t reserved4[52];
	__be32 cqn;
	uint8_t reserved60[2], signature;
	_Atomic uint8_t owner;
};
_Static_assert(sizeof(struct eqe) == 64, "EQE");
_Static_assert(offsetof(struct eqe, cqn) == 56, "EQE");

struct vb_eq {
	struct vb_dev *dev;
	uint32_t number;
	uint32_t log_size;
	struct vb_lock lock; /* of what follows */
	struct vb_eq_user *users;
	uint32_t pi, ci;
	bool overrun;
	struct eqe *ring;
};

/* Inside a read section. */
static struct vb_eq *eq_find(struct vb_card *card, uint32_t number)
{
	return number <= VB_EQ_MAX
		       ? atomic_load_explicit(&card->tables.eq[number], memory_order_acquire)
		       : NULL;
}

int vb_eq_create(struct vb_dev *dev, unsigned int log_size, struct vb_eq **out)
{
	struct vb_card *card = vb_dev_card(dev);
	size_t bytes = sizeof(struct eqe) << log_size;
	struct vb_eq *eq;
	int64_t number;

	if (vb_dev_stale(dev))
		return vb_refuse_forked();
	if (log_size > MAX_LOG_SIZE)
		return vb_refuse_range("log_eq_size", log_size, 0, MAX_LOG_SIZE);
	number = vb_ids_take(&card->numbers.eq, VB_EQ_MAX);
	if (number < 0)
		return vb_refuse_numbers(VB_EQ_MAX, "event queues");
	eq = calloc(1, sizeof(*eq));
	if (eq)
		eq->ring = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
	if (!eq || !eq->ring) {
		free(eq);
		vb_ids_give(&card->numbers.eq, (uint32_t)number);
		return vb_refuse_memory("the event queue");
	}
	eq->dev = dev;
	eq->number = (uint32_t)number;
	eq->log_size = log_size;
	memset(eq->ring, 0, bytes);
	for (uint32_t i = 0; i < 1u << log_size; i++)
		atomic_init(&eq->ring[i].owner, 1);
	atomic_store_explicit(&card->tables.eq[number], eq, memory_order_release);
	atomic_fetch_add_explicit(&dev->objects, 1, memory_order_release);
	*out = eq;
	return 0;
}

static bool eq_is_used(struct vb_eq *eq)
{
	bool used;

	vb_card_enter();
	vb_lock(&eq->lock);
	used = eq->users;
	vb_unlock(&eq->lock);
	vb_card_leave();
	return used;
}

int vb_eq_destroy(struct vb_eq *eq)
{
	struct vb_card *card = vb_dev_card(eq->dev);

	/*
	 * A CQ that has found the queue is on its list when this wait ends, so an empty list stays
	 * empty from then on.
	 */
	atomic_store_explicit(&card->tables.eq[eq->number], NULL, memory_order_release);
	vb_read_wait();
	if (eq_is_used(eq)) {
		atomic_store_explicit(&card->tables.eq[eq->number], eq, memory_order_release);
		return vb_refuse_busy("completion queues");
	}
	vb_ids_give(&card->numbers.eq, eq->number);
	atomic_fetch_sub_explicit(&eq->dev->objects, 1, memory_order_release);
	free(eq->ring);
	free(eq);
	return 0;
}

uint32_t vb_eq_number(const struct vb_eq *eq)
{
	return eq->number;
}

void *vb_eq_ring(const struct vb_eq *eq)
{
	return eq->ring;
}

struct vb_eq *vb_eq_get(struct vb_dev *dev, uint32_t number, struct vb_eq_user *user)
{
	struct vb_eq *eq;

	vb_read_lock();
	eq = eq_find(vb_dev_card(dev), number);
	if (eq && eq->dev == dev) {
		vb_lock(&eq->lock);
		user->next = eq->users;
		eq->users = user;
		vb_unlock(&eq->lock);
	} else {
		eq = NULL;
	}
	vb_read_unlock();
	return eq;
}

void vb_eq_put(struct vb_eq *eq, struct vb_eq_user *user)
{
	struct vb_eq_user **link = &eq->users;

	vb_card_enter();
	vb_lock(&eq->lock);
	while (*link != user)
		link = &(*link)->next;
	*link = user->next;
	vb_unlock(&eq->lock);
	vb_card_leave();
}

void vb_eq_completion(struct vb_eq *eq, uint32_t cqn)
{
	static struct vb_rate rate;
	uint32_t size = 1u << eq->log_size, held_back;
	struct vb_rate_words more;
	bool lost = false;

	vb_lock(&eq->lock);
	if (((eq->pi - eq->ci) & CI_MASK) >= size) {
		lost = !eq->overrun;
		eq->overrun = true;
	} else {
		struct eqe *eqe = &eq->ring[eq->pi & (size - 1)];

		eqe->type = TYPE_COMPLETION;
		eqe->cqn = htobe32(cqn);
		/* The program reads the owner first, with acquire. */
		atomic_store_explicit(&eqe->owner, (eq->pi >> eq->log_size) & 1,
				      memory_order_release);
		eq->pi++;
	}
	vb_unlock(&eq->lock);
	/* A consumer that moves by one entry each time would have a line for each. */
	if (lost && vb_rate_allows(&rate, &held_back))
		vb_warn("event queue %u is full: events are lost until its consumer index moves%s",
			eq->number, vb_rate_tell(&more, held_back));
}

/* Under the lock. */
static bool has_owner(const struct vb_eq *eq, uint64_t owner)
{
	const struct vb_eq_user *user = eq->users;

	while (user && user->owner != owner)
		user = user->next;
	return user;
}

/*
 * Under the lock. Only what was written can have been read, and what was read stays so: a doorbell
 * of a signal handler may be executed after a later one.
 */
static void consumed(struct vb_eq *eq, uint32_t ci)
{
	if (((ci - eq->ci) & CI_MASK) <= ((eq->pi - eq->ci) & CI_MASK)) {
		eq->ci = ci & CI_MASK;
		eq->overrun = false;
	}
}

void vb_eq_consumed(struct vb_card *card, const struct vb_dev *dev, uint32_t number, uint32_t ci)
{
	struct vb_eq *eq;

	vb_read_lock();
	eq = eq_find(card, number);
	if (eq && (!dev || eq->dev == dev)) {
		vb_lock(&eq->lock);
		consumed(eq, ci);
		vb_unlock(&eq->lock);
	}
	vb_read_unlock();
}

int vb_doorbell_eq(struct vb_card *card, uint64_t owner, uint32_t number, uint32_t ci)
{
	bool allowed = false;
	struct vb_eq *eq;

	vb_read_lock();
	eq = eq_find(card, number);
	if (eq && owner) {
		vb_lock(&eq->lock);
		allowed = has_owner(eq, owner);
		if (allowed)
			consumed(eq, ci);
		vb_unlock(&eq->lock);
	}
	vb_read_unlock();
	return allowed ? 0 : -ENOENT;
}

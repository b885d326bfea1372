// SPDX-License-Identifier: MIT
/*
 * The rules of one mask: a hash table with open addressing and linear probing, of pointers to
 * rules.
 *
 *	slots: [ ] [R] [R] [gone] [R] [ ] ...   R --> rule --next--> younger rule, same key
 *
 * A reader begins at the slot of its hash and goes on to the first free one. A writer, under the
 * domain's lock,
 *  - adds at the first slot that is free or gone, hash first, then the rule with release;
 *  - removes by storing "gone", or "free" where the next slot is free and nobody looks behind it;
 *  - grows by filling a larger array that no reader knows yet, and publishing it. A reader in the
 *    old one finds all rules that were there when it began. A slot whose rule changes under a
 *    reader held, before and after, rules that come or go at that moment: any answer about these is
 *    right, and others are not touched.
 *
 * 16 bytes a slot, three eighths to three quarters of them taken. The hash is keyed with a secret of
 * the domain: programs and peers that choose values and frames cannot fill neighbouring slots.
 */
#include <errno.h>
#include <stdlib.h>

#include "steer/internal.h"

enum { SLOTS_MIN = 8 };

struct vb_steer_rule steer_gone;

/* All 128 bits of the product, so that high bits of the factors reach low bits of the result. */
static uint64_t multiply_fold(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t two_words(const uint32_t *key, uint32_t i, uint32_t words)
{
	return (i < words ? key[i] : 0) | (i + 1 < words ? (uint64_t)key[i + 1] << 32 : 0);
}

/*
 * Four words at a time. Both factors of each product contain a secret: who chooses keys without
 * knowing it cannot choose what becomes of their difference. The last product spreads what is left
 * of the difference over the bits that select a slot.
 */
uint32_t steer_hash(const struct hash_secret *secret, const uint32_t *key, uint32_t words)
{
	uint64_t hash = secret->begin;

	for (uint32_t i = 0; i < words; i += 4)
		hash = multiply_fold(hash ^ two_words(key, i, words),
				     secret->second ^ two_words(key, i + 2, words));
	return (uint32_t)multiply_fold(hash ^ secret->last[0], secret->last[1]);
}

static bool same_key(struct vb_steer_rule *rule, const uint32_t *key)
{
	const uint32_t *own = rule_key(rule);

	for (uint32_t i = 0; i < rule->words; i++)
		if (own[i] != key[i])
			return false;
	return true;
}

static struct slot *find_slot(struct slots *slots, const uint32_t *key, uint32_t hash,
			      struct vb_steer_rule **found)
{
	for (uint32_t i = hash & slots->mask;; i = (i + 1) & slots->mask) {
		struct slot *slot = &slots->slot[i];
		/* Pairs with the release store in put() and steer_store_remove(). */
		struct vb_steer_rule *rule =
			atomic_load_explicit(&slot->rule, memory_order_acquire);

		if (!rule)
			return NULL;
		if (atomic_load_explicit(&slot->hash, memory_order_relaxed) == hash &&
		    rule != STEER_GONE && same_key(rule, key)) {
			*found = rule;
			return slot;
		}
	}
}

struct vb_steer_rule *steer_store_find(struct store *store, const uint32_t *key, uint32_t hash)
{
	/* Pairs with the release store in steer_store_make_room(). */
	struct slots *slots = atomic_load_explicit(&store->slots, memory_order_acquire);
	struct vb_steer_rule *rule = NULL;

	if (slots)
		find_slot(slots, key, hash, &rule);
	return rule;
}

/* The key is not there yet, and a slot is free. */
static void put(struct slots *slots, struct vb_steer_rule *rule, uint32_t hash)
{
	uint32_t i = hash & slots->mask;
	struct vb_steer_rule *there;

	for (;; i = (i + 1) & slots->mask) {
		there = atomic_load_explicit(&slots->slot[i].rule, memory_order_relaxed);
		if (!there || there == STEER_GONE)
			break;
	}
	if (!there)
		slots->used++;
	atomic_store_explicit(&slots->slot[i].hash, hash, memory_order_relaxed);
	atomic_store_explicit(&slots->slot[i].rule, rule, memory_order_release);
}

static void copy_slots(struct slots *to, struct slots *from)
{
	for (uint32_t i = 0; from && i <= from->mask; i++) {
		struct vb_steer_rule *rule =
			atomic_load_explicit(&from->slot[i].rule, memory_order_relaxed);

		if (rule && rule != STEER_GONE)
			put(to, rule,
			    atomic_load_explicit(&from->slot[i].hash, memory_order_relaxed));
	}
}

/* For one key more. */
static int steer_store_make_room(struct store *store, struct slots **old)
{
	struct slots *slots = atomic_load_explicit(&store->slots, memory_order_relaxed), *more;
	uint32_t size = slots ? slots->mask + 1 : 0;

	if (slots && slots->used + 1 <= size / 4 * 3)
		return 0;
	/* Where most of the taken slots are gone ones, the size stays or shrinks. */
	size = max_u32(SLOTS_MIN, roundup_pow2(store->keys * 2 + 1));
	more = calloc(1, sizeof(*more) + size * sizeof(struct slot));
	if (!more)
		return -ENOMEM;
	more->mask = size - 1;
	copy_slots(more, slots);
	atomic_store_explicit(&store->slots, more, memory_order_release);
	*old = slots;
	return 0;
}

static void steer_store_append(struct vb_steer_rule *oldest, struct vb_steer_rule *rule)
{
	struct vb_steer_rule *at = oldest, *next;

	while ((next = atomic_load_explicit(&at->next, memory_order_relaxed)))
		at = next;
	/* Pairs with the acquire load of a reader that takes all rules of a value. */
	atomic_store_explicit(&at->next, rule, memory_order_release);
}

int steer_store_add(struct store *store, struct vb_steer_rule *rule, bool unique,
		    struct slots **old)
{
	struct vb_steer_rule *there = steer_store_find(store, rule_key(rule), rule->hash);
	int err;

	*old = NULL;
	if (there && unique)
		return -EEXIST;
	if (store->rules >= VB_STEER_MAX_RULES)
		return -ENOSPC;
	if (there) {
		steer_store_append(there, rule);
	} else {
		err = steer_store_make_room(store, old);
		if (err)
			return err;
		put(atomic_load_explicit(&store->slots, memory_order_relaxed), rule, rule->hash);
		store->keys++;
	}
	store->rules++;
	return 0;
}

/* Free the slot, and gone ones before it, if nobody needs to look behind it. */
static void vacate(struct slots *slots, struct slot *slot)
{
	uint32_t i = (uint32_t)(slot - slots->slot), next = (i + 1) & slots->mask;

	atomic_store_explicit(&slot->rule, STEER_GONE, memory_order_release);
	if (atomic_load_explicit(&slots->slot[next].rule, memory_order_relaxed))
		return;
	while (atomic_load_explicit(&slots->slot[i].rule, memory_order_relaxed) == STEER_GONE) {
		atomic_store_explicit(&slots->slot[i].rule, NULL, memory_order_release);
		slots->used--;
		i = (i - 1) & slots->mask;
	}
}

void steer_store_remove(struct store *store, struct vb_steer_rule *rule)
{
	struct slots *slots = atomic_load_explicit(&store->slots, memory_order_relaxed);
	struct vb_steer_rule *at = NULL, *next;
	struct slot *slot = find_slot(slots, rule_key(rule), rule->hash, &at);

	/* Its own next stays: a reader that is at it goes on from there. */
	next = atomic_load_explicit(&rule->next, memory_order_relaxed);
	if (at != rule) {
		while (atomic_load_explicit(&at->next, memory_order_relaxed) != rule)
			at = atomic_load_explicit(&at->next, memory_order_relaxed);
		atomic_store_explicit(&at->next, next, memory_order_release);
	} else if (next) {
		atomic_store_explicit(&slot->rule, next, memory_order_release);
	} else {
		vacate(slots, slot);
		store->keys--;
	}
	store->rules--;
}

// SPDX-License-Identifier: MIT
/*
 * Domains, tables, matchers, rules: the control path. Everything here takes the domain's lock;
 * readers are in walk.c.
 *
 * At level 0 matchers with the same mask and priority share one store, as the kernel's flow groups
 * do, so that many programs' rules of one form cost one look-up, and rules of equal value know each
 * other.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "steer/internal.h"

/* --- what readers may still hold -------------------------------------------------------------- */

static void bury(struct vb_steer *steer, struct dead *dead)
{
	if (!dead)
		return;
	dead->next = steer->dead;
	steer->dead = dead;
	steer->dead_count++;
}

/* Unlock, and free what is dead if it is much or if all is to go. */
static void steer_unlock(struct vb_steer *steer, bool all)
{
	struct dead *dead = NULL, *next;

	if (steer->dead_count >= STEER_DEAD_MAX || (all && steer->dead_count)) {
		dead = steer->dead;
		steer->dead = NULL;
		steer->dead_count = 0;
	}
	vb_unlock(&steer->lock);
	if (dead)
		vb_read_wait();
	for (; dead; dead = next) {
		next = dead->next;
		free(dead);
	}
}

/* --- domains, tables -------------------------------------------------------------------------- */

static int make_secret(struct hash_secret *secret)
{
	ssize_t got;

	do
		got = getrandom(secret, sizeof(*secret), 0);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	return got == sizeof(*secret) ? 0 : -EIO;
}

int vb_steer_create(enum vb_steer_kind kind, struct vb_steer **out)
{
	struct vb_steer *steer;
	int err;

	if (kind > VB_STEER_SNIFFER_TX)
		return -EINVAL;
	steer = calloc(1, sizeof(*steer));
	if (!steer)
		return -ENOMEM;
	err = make_secret(&steer->secret);
	if (err) {
		free(steer);
		return err;
	}
	steer->kind = kind;
	steer->geneve_option = STEER_NO_OPTION;
	vb_list_init(&steer->tables);
	*out = steer;
	return 0;
}

int vb_steer_destroy(struct vb_steer *steer)
{
	vb_lock(&steer->lock);
	if (steer->table_count) {
		vb_unlock(&steer->lock);
		return -EBUSY;
	}
	bury(steer, (struct dead *)atomic_load_explicit(&steer->root, memory_order_relaxed));
	steer_unlock(steer, true);
	vb_read_wait(); /* for a reader that found nothing */
	free(steer);
	return 0;
}

enum vb_steer_kind vb_steer_kind(const struct vb_steer *steer)
{
	return steer->kind;
}

int vb_steer_set_geneve_option(struct vb_steer *steer, uint16_t class, uint8_t type)
{
	int err = 0;

	vb_lock(&steer->lock);
	if (steer->geneve_masks)
		err = -EBUSY;
	else
		steer->geneve_option = (uint32_t) class << 8 | type;
	vb_unlock(&steer->lock);
	return err;
}

int vb_steer_table_create(struct vb_steer *steer, uint32_t level, struct vb_steer_table **out)
{
	struct vb_steer_table *table = calloc(1, sizeof(*table));
	int err = 0;

	if (!table)
		return -ENOMEM;
	table->steer = steer;
	table->level = level;
	vb_lock(&steer->lock);
	if (steer->table_count < VB_STEER_MAX_TABLES) {
		vb_list_add_tail(&steer->tables, &table->node);
		steer->table_count++;
	} else {
		err = -ENOSPC;
	}
	vb_unlock(&steer->lock);
	if (err)
		free(table);
	else
		*out = table;
	return err;
}

int vb_steer_table_destroy(struct vb_steer_table *table)
{
	struct vb_steer *steer = table->steer;
	struct dead *list;

	vb_lock(&steer->lock);
	if (table->matchers || table->refs) {
		vb_unlock(&steer->lock);
		return -EBUSY;
	}
	vb_list_del(&table->node);
	steer->table_count--;
	list = (struct dead *)atomic_load_explicit(&table->list, memory_order_relaxed);
	bury(steer, list);
	steer_unlock(steer, false);
	/* An action that led here was destroyed before, which waited for readers. */
	free(table);
	return 0;
}

uint32_t vb_steer_table_level(const struct vb_steer_table *table)
{
	return table->level;
}

struct vb_steer *vb_steer_table_domain(const struct vb_steer_table *table)
{
	return table->steer;
}

/* --- masks and values ------------------------------------------------------------------------- */

/* Bytes of a program to words; those of other sections are counted in *outside. */
static int load_param(const void *from, size_t len, uint8_t criteria, uint32_t words[STEER_WORDS],
		      bool *outside)
{
	uint8_t bytes[VB_STEER_PARAM] = { 0 };

	if (len > VB_STEER_PARAM || (len && !from))
		return -EINVAL;
	if (len)
		memcpy(bytes, from, len);
	*outside = false;
	for (uint32_t i = 0; i < STEER_WORDS; i++) {
		words[i] = read32(bytes + i * 4);
		if (i / 16 < 7 && criteria & 1u << i / 16)
			continue;
		*outside |= words[i];
		words[i] = 0;
	}
	return 0;
}

/* --- matchers --------------------------------------------------------------------------------- */

static struct store *make_store(const struct vb_steer *steer, uint16_t priority, uint8_t criteria,
				const uint32_t *mask, const char **why, int *err)
{
	struct store *store = calloc(1, sizeof(*store));

	*err = -ENOMEM;
	if (!store)
		return NULL;
	store->priority = priority;
	store->criteria = criteria;
	memcpy(store->mask, mask, sizeof(store->mask));
	store->addresses = mask[DMAC_WORD] == UINT32_MAX && mask[DMAC_WORD + 1] >> 16 == 0xffff;
	*err = steer_plan(mask, steer->geneve_option, &store->plan, why);
	if (*err) {
		free(store);
		return NULL;
	}
	return store;
}

/* At level 0: a store of the same form. */
static struct store *find_store(struct vb_steer_table *table, const struct store *like)
{
	struct list *list = atomic_load_explicit(table_list(table), memory_order_relaxed);

	for (uint32_t i = 0; !table->level && list && i < list->count; i++)
		if (list->store[i]->priority == like->priority &&
		    !memcmp(list->store[i]->mask, like->mask, sizeof(like->mask)))
			return list->store[i];
	return NULL;
}

/* Publish a list with the store (behind those of its priority), or without it. */
static int replace_list(struct vb_steer_table *table, struct store *add, struct store *remove)
{
	_Atomic(struct list *) *at = table_list(table);
	struct list *old = atomic_load_explicit(at, memory_order_relaxed), *list;
	uint32_t count = old ? old->count : 0, n = 0;

	if (add && count >= VB_STEER_MAX_MATCHERS)
		return -ENOSPC;
	list = malloc(sizeof(*list) + (count + 1) * sizeof(list->store[0]));
	if (!list)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		if (add && old->store[i]->priority > add->priority) {
			list->store[n++] = add;
			add = NULL;
		}
		if (old->store[i] != remove)
			list->store[n++] = old->store[i];
	}
	if (add)
		list->store[n++] = add;
	list->count = n;
	/* Pairs with the acquire load in walk(). */
	atomic_store_explicit(at, list, memory_order_release);
	bury(table->steer, (struct dead *)old);
	return 0;
}

/* With the lock: take the store that is there, or this one. */
static int join_store(struct vb_steer_matcher *matcher, struct store *store)
{
	struct vb_steer_table *table = matcher->table;
	struct store *there = find_store(table, store);
	int err;

	if (there) {
		free(store);
		store = there;
	} else {
		err = replace_list(table, store, NULL);
		if (err)
			return err;
		table->steer->geneve_masks += store->plan.geneve_option;
	}
	store->handles++;
	matcher->store = store;
	table->matchers++;
	return 0;
}

int vb_steer_matcher_create(struct vb_steer_table *table, uint16_t priority, uint8_t criteria,
			    const void *mask, size_t len, struct vb_steer_matcher **out,
			    const char **why)
{
	struct vb_steer *steer = table->steer;
	uint32_t words[STEER_WORDS];
	struct vb_steer_matcher *matcher;
	struct store *store;
	const char *reason = NULL;
	bool outside;
	int err = load_param(mask, len, criteria, words, &outside);

	if (!err && (criteria & 0x80 || (outside && !table->level)))
		err = -EINVAL;
	if (err) {
		reason = len > VB_STEER_PARAM ? "the mask is too long"
					      : "the mask has bits outside of its criteria";
		goto refused;
	}
	matcher = calloc(1, sizeof(*matcher));
	if (!matcher)
		return -ENOMEM;
	matcher->table = table;
	vb_lock(&steer->lock);
	store = make_store(steer, priority, criteria, words, &reason, &err);
	if (store) {
		err = join_store(matcher, store);
		if (err)
			free(store);
	}
	steer_unlock(steer, false);
	if (!err) {
		*out = matcher;
		return 0;
	}
	free(matcher);
refused:
	if (why)
		*why = reason;
	return err;
}

int vb_steer_matcher_destroy(struct vb_steer_matcher *matcher)
{
	struct vb_steer_table *table = matcher->table;
	struct vb_steer *steer = table->steer;
	struct store *store = matcher->store;
	int err = 0;

	vb_lock(&steer->lock);
	if (matcher->rules)
		err = -EBUSY;
	else if (store->handles == 1)
		err = replace_list(table, NULL, store);
	if (err) {
		vb_unlock(&steer->lock);
		return err;
	}
	if (!--store->handles) {
		steer->geneve_masks -= store->plan.geneve_option;
		bury(steer,
		     (struct dead *)atomic_load_explicit(&store->slots, memory_order_relaxed));
		bury(steer, &store->dead);
	}
	table->matchers--;
	steer_unlock(steer, true);
	free(matcher);
	return 0;
}

struct vb_steer_table *vb_steer_matcher_table(const struct vb_steer_matcher *matcher)
{
	return matcher->table;
}

/* --- rules ------------------------------------------------------------------------------------ */

/* Actions in the order of execution; equal places keep the order of the program. */
static void sort_actions(struct vb_steer_rule *rule, struct vb_steer_action *const *actions)
{
	uint8_t n = 0;

	for (unsigned int order = 0; order <= ORDER_END; order++)
		for (uint8_t i = 0; i < rule->count; i++)
			if (steer_action_order(actions[i]) == order)
				rule->action[n++] = actions[i];
}

static struct vb_steer_rule *steer_make_rule(struct vb_steer_matcher *matcher,
					     const uint32_t value[STEER_WORDS],
					     struct vb_steer_action *const *actions, size_t count)
{
	const struct key_plan *plan = &matcher->store->plan;
	struct vb_steer_rule *rule =
		malloc(sizeof(*rule) + count * sizeof(rule->action[0]) + plan->words * 4);

	if (!rule)
		return NULL;
	rule->matcher = matcher;
	atomic_init(&rule->next, NULL);
	rule->words = plan->words;
	rule->count = (uint8_t)count;
	sort_actions(rule, actions);
	steer_pack(plan, value, rule_key(rule));
	rule->hash = steer_hash(&matcher->table->steer->secret, rule_key(rule), rule->words);
	return rule;
}

static int steer_check_value(const struct vb_steer_matcher *matcher, const void *value, size_t len,
			     uint32_t words[STEER_WORDS], const char **why)
{
	const struct store *store = matcher->store;
	bool outside;
	int err = load_param(value, len, store->criteria, words, &outside);

	if (err) {
		*why = "the value is too long";
		return err;
	}
	outside &= !matcher->table->level; /* deeper, other sections are not looked at */
	for (uint32_t i = 0; i < STEER_WORDS; i++)
		outside |= words[i] & ~store->mask[i];
	if (outside)
		*why = "the value has bits outside of the mask";
	return outside ? -EINVAL : 0;
}

static void hold_actions(const struct vb_steer_rule *rule, uint32_t change)
{
	for (uint8_t i = 0; i < rule->count; i++)
		atomic_fetch_add_explicit(&rule->action[i]->refs, change, memory_order_relaxed);
}

static void count_rule(struct vb_steer_matcher *matcher, uint32_t change)
{
	matcher->rules += change;
	if (!matcher->table->level)
		atomic_fetch_add_explicit(&matcher->table->steer->root_rules, change,
					  memory_order_relaxed);
}

int vb_steer_rule_create(struct vb_steer_matcher *matcher, const void *value, size_t len,
			 struct vb_steer_action *const *actions, size_t count, unsigned int flags,
			 struct vb_steer_rule **out, const char **why)
{
	struct vb_steer *steer = matcher->table->steer;
	uint32_t words[STEER_WORDS];
	const char *reason = NULL;
	struct vb_steer_rule *rule;
	struct slots *old = NULL;
	bool large;
	int err = steer_check_value(matcher, value, len, words, &reason);

	if (!err)
		err = steer_actions_check(matcher->table, actions, count, &reason);
	if (err)
		goto refused;
	if ((flags & VB_STEER_COPY) && matcher->table->level) {
		reason = "copies are for rules of level 0";
		err = -EINVAL;
		goto refused;
	}
	rule = steer_make_rule(matcher, words, actions, count);
	if (!rule)
		return -ENOMEM;
	rule->copies = flags & VB_STEER_COPY;
	hold_actions(rule, 1);
	vb_lock(&steer->lock);
	err = steer_store_add(matcher->store, rule, flags & VB_STEER_UNIQUE, &old);
	if (!err)
		count_rule(matcher, 1);
	large = old && old->mask >= 0xffff;
	bury(steer, (struct dead *)old);
	steer_unlock(steer, large);
	if (!err) {
		*out = rule;
		return 0;
	}
	hold_actions(rule, UINT32_MAX);
	free(rule);
	if (err == -EEXIST)
		reason = "a rule with this value exists";
refused:
	if (why)
		*why = reason;
	return err;
}

void vb_steer_rule_destroy(struct vb_steer_rule *rule)
{
	struct vb_steer_matcher *matcher = rule->matcher;
	struct vb_steer *steer = matcher->table->steer;

	vb_lock(&steer->lock);
	steer_store_remove(matcher->store, rule);
	count_rule(matcher, UINT32_MAX);
	hold_actions(rule, UINT32_MAX);
	bury(steer, &rule->dead);
	steer_unlock(steer, false);
}

bool vb_steer_empty(const struct vb_steer *steer)
{
	return !atomic_load_explicit(&steer->root_rules, memory_order_relaxed);
}

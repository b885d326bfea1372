/* SPDX-License-Identifier: MIT */
/*
 * The inside of the steering engine.
 *
 *	vb_steer -+- root list -----+
 *	          +- vb_steer_table: list --> store --> slots --> rule --> younger, equal value
 *	                                        ^                  |
 *	          vb_steer_matcher (a handle) --+                  +--> actions in order
 *
 * Readers follow list, slots and rules by acquire loads inside read sections. All else is the
 * writers', who hold the lock of the domain. What readers may still hold is not freed at once but
 * goes on the list of the dead, which is emptied after a grace period, many at a time, with no lock
 * held.
 */
#pragma once

#include "base/lock.h"
#include "base/rcu.h"
#include "base/util.h"
#include "packet/frame/bytes.h"
#include "steer/steer.h"

enum {
	STEER_WORDS = VB_STEER_PARAM / 4,
	STEER_BUFFER = VB_STEER_SCRATCH / (VB_STEER_MAX_SPLITS + 1), /* of one edited frame */
	STEER_DEAD_MAX = 1024,                                       /* before they are freed */
};

/* The first field of everything that is freed after a grace period. */
struct dead {
	struct dead *next;
};

/* --- matching --------------------------------------------------------------------------------- */

/* One word of a key: the facts that are asked for, and which bits of them. */
struct key_op {
	uint8_t fact; /* a word of fte_match_param, or one of: */
	uint8_t word; /* of the key */
	uint32_t mask;
};

enum { FACT_OUTER_SUMS = STEER_WORDS, FACT_INNER_SUMS };

/* A Geneve option is class << 8 | type, 24 bits. */
#define STEER_NO_OPTION UINT32_MAX

struct key_plan {
	uint8_t count, words;
	bool geneve_option; /* has a field of the domain's Geneve option, */
	uint32_t option;    /* this one; else STEER_NO_OPTION */
	struct key_op op[STEER_WORDS + 2];
};

/* A frame as matchers see it. */
struct key_source {
	const struct vb_frame *f;
	const struct vb_steer_meta *meta;
	uint32_t option; /* of the plan */
};

/*
 * mask: words in the machine's order, sections outside of the criteria are 0; option: the domain's.
 * Returns 0, or -EOPNOTSUPP and *why.
 */
int steer_plan(const uint32_t mask[STEER_WORDS], uint32_t option, struct key_plan *plan,
	       const char **why);
/* The key of a frame: plan->words words. */
void steer_extract(const struct key_plan *plan, const struct key_source *from, uint32_t *key);
/* The key of a value, which has been checked. */
void steer_pack(const struct key_plan *plan, const uint32_t value[STEER_WORDS], uint32_t *key);

/* Where the outer destination MAC begins in a mask: 32 bits of it, then 16 at the top of the next word. */
enum { DMAC_WORD = 2 };

/* --- rules of one mask ------------------------------------------------------------------------ */

struct vb_steer_rule {
	union {
		struct vb_steer_matcher *matcher; /* writers' */
		struct dead dead;                 /* removed */
	};
	_Atomic(struct vb_steer_rule *) next; /* of the same value, younger */
	uint32_t hash;
	uint8_t words, count; /* of the key, of actions */
	bool copies;          /* VB_STEER_COPY */
	struct vb_steer_action *action[];
	/* the key follows */
};

static inline uint32_t *rule_key(struct vb_steer_rule *rule)
{
	return (uint32_t *)&rule->action[rule->count];
}

struct slot {
	_Atomic(struct vb_steer_rule *) rule; /* NULL: free; STEER_GONE: was taken, look further */
	_Atomic uint32_t hash;                /* of the rule; stored before it */
};

struct slots {
	struct dead dead;
	uint32_t mask;
	uint32_t used; /* slots that are not free, the gone ones too; writers' */
	struct slot slot[];
};

struct store {
	struct dead dead;
	_Atomic(struct slots *) slots;
	uint32_t keys;    /* distinct values */
	uint32_t rules;   /* with those of equal value */
	uint32_t handles; /* matchers that share it */
	uint16_t priority;
	uint8_t criteria;
	bool addresses; /* the mask has all bits of the destination MAC */
	uint32_t mask[STEER_WORDS];
	struct key_plan plan;
};

extern struct vb_steer_rule steer_gone;
#define STEER_GONE (&steer_gone)

/* Random, of a domain; constant as long as it lives. */
struct hash_secret {
	uint64_t begin, second, last[2];
};

uint32_t steer_hash(const struct hash_secret *secret, const uint32_t *key, uint32_t words);
/* The oldest rule with the key, or NULL. In a read section or under the lock. */
struct vb_steer_rule *steer_store_find(struct store *store, const uint32_t *key, uint32_t hash);
/* old: slots to be freed after a grace period, or NULL. -ENOMEM, -EEXIST (unique), -ENOSPC. */
int steer_store_add(struct store *store, struct vb_steer_rule *rule, bool unique,
		    struct slots **old);
void steer_store_remove(struct store *store, struct vb_steer_rule *rule);

/* --- objects ---------------------------------------------------------------------------------- */

/* Stores in the order in which a frame meets them; replaced as a whole. */
struct list {
	struct dead dead;
	uint32_t count;
	struct store *store[];
};

struct vb_steer {
	enum vb_steer_kind kind;
	struct hash_secret secret; /* of its stores */
	struct vb_lock lock;       /* of writers */
	_Atomic(struct list *) root;
	_Atomic uint32_t root_rules;
	/* Writers'. Plans that need the option have a copy of it, which is all that readers see. */
	uint32_t geneve_option;
	uint32_t geneve_masks; /* stores with such a plan; the option stays while there are any */
	struct vb_list tables;
	uint32_t table_count;
	struct dead *dead;
	uint32_t dead_count;
};

struct vb_steer_table {
	struct vb_list node;
	struct vb_steer *steer;
	uint32_t level;
	uint32_t matchers;
	uint32_t refs;               /* actions that lead to it */
	_Atomic(struct list *) list; /* level 0: unused, see table_list() */
};

struct vb_steer_matcher {
	struct vb_steer_table *table;
	struct store *store;
	uint32_t rules;
};

static inline _Atomic(struct list *) *table_list(struct vb_steer_table *table)
{
	return table->level ? &table->list : &table->steer->root;
}

/* --- actions ---------------------------------------------------------------------------------- */

/* SET, ADD or COPY, checked. */
struct modify_op {
	uint8_t type;
	uint8_t field, source; /* places in the table of fields */
	uint8_t offset, source_offset;
	uint32_t bits; /* mask of the length, not shifted */
	uint32_t data;
};

struct vb_steer_action {
	enum vb_steer_do what;
	_Atomic uint32_t refs; /* rules and arrays */
	union {
		struct vb_steer_dest dest;
		struct vb_steer_table *table;
		struct {
			enum vb_reformat type;
			uint32_t len;
		} reformat;
		uint32_t tag;
		struct vb_steer_counter *counter;
		uint32_t vlan;
	};
	uint32_t count; /* of what follows */
	union {
		struct vb_steer_branch branch[0];
		struct modify_op modify[0];
		uint8_t data[0];
	};
};

enum { MODIFY_SET = 1, MODIFY_ADD = 2, MODIFY_COPY = 3 };

/* 8 bytes of a program into op; -EINVAL, -EOPNOTSUPP with *why. */
int steer_modify_compile(const uint8_t *action, struct modify_op *op, const char **why);
/* On a private frame and metadata; the frame's facts are true afterwards. */
void steer_modify_run(const struct modify_op *op, uint32_t count, struct vb_frame *f,
		      struct vb_steer_meta *meta);
/* Only registers, so that the frame needs no copy. */
bool steer_modify_is_meta(const struct vb_steer_action *action);

/* The place in the order of execution; the last one ends the way. */
enum { ORDER_END = 7 };
unsigned int steer_action_order(const struct vb_steer_action *action);
/* 0, or -EINVAL and *why: these actions cannot be a rule of the table. */
int steer_actions_check(const struct vb_steer_table *table, struct vb_steer_action *const *actions,
			size_t count, const char **why);

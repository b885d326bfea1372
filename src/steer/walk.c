// SPDX-License-Identifier: MIT
/*
 * The way of a frame through the tables. Inside a read section, without locks and without memory of
 * its own.
 *
 * A way is a frame, its metadata and how far it has come. It begins with what the caller gave, and
 * takes copies of its own when a rule changes something: of the metadata on the stack, of the frame
 * in the buffer of its depth in the scratch area. Where a frame is multiplied (an array, several
 * rules of one value), each branch is a way of its own one deeper, which begins with what the way
 * above has.
 */
#include <errno.h>

#include "steer/internal.h"

struct run {
	struct vb_steer *steer;
	uint8_t *scratch;
	vb_steer_emit *emit;
	void *arg;
	unsigned int branches; /* so far, of all ways */
	unsigned int result;
};

struct way {
	const struct vb_frame *f;
	const struct vb_steer_meta *meta;
	unsigned int depth, hops;
	struct vb_frame own_frame; /* where f points to it */
	struct vb_steer_meta own_meta;
};

static void steer_run_walk(struct run *run, struct way *way, struct vb_steer_table *table);
static void steer_run_follow(struct run *run, struct way *way, const struct vb_steer_rule *rule,
			     uint32_t level);

/* --- ends ------------------------------------------------------------------------------------- */

static void arrive(struct run *run, const struct way *way, const struct vb_steer_dest *dest)
{
	run->result |= VB_STEER_EMITTED;
	run->emit(run->arg, dest, way->f, way->meta);
}

static void arrive_at(struct run *run, const struct way *way, enum vb_steer_to to)
{
	struct vb_steer_dest dest = { .to = to };

	arrive(run, way, &dest);
}

static void miss(struct run *run, const struct way *way, uint32_t level)
{
	enum vb_steer_kind kind = run->steer->kind;

	run->result |= VB_STEER_MISSED;
	if (kind == VB_STEER_SNIFFER_RX || kind == VB_STEER_SNIFFER_TX)
		run->result |= VB_STEER_DROPPED;
	else if (!level)
		arrive_at(run, way, VB_STEER_TO_DEFAULT);
	else if (kind == VB_STEER_NIC_TX)
		arrive_at(run, way, VB_STEER_TO_WIRE);
	else if (kind == VB_STEER_FDB)
		arrive_at(run, way, VB_STEER_TO_MANAGER);
	else
		run->result |= VB_STEER_DROPPED;
}

/* --- changes ---------------------------------------------------------------------------------- */

static bool own_frame(struct run *run, struct way *way)
{
	struct vb_frame *own = &way->own_frame;

	if (way->f == own)
		return true;
	if (!run->scratch || way->f->len > VB_STEER_FRAME_MAX) {
		run->result |= VB_STEER_NO_ROOM;
		return false;
	}
	*own = *way->f;
	own->data = run->scratch + way->depth * STEER_BUFFER + VB_STEER_HEADROOM;
	own->headroom = VB_STEER_HEADROOM;
	own->tailroom = STEER_BUFFER - VB_STEER_HEADROOM - own->len;
	if (own->len)
		memcpy(own->data, way->f->data, own->len);
	way->f = own;
	return true;
}

static void own_meta(struct way *way)
{
	if (way->meta == &way->own_meta)
		return;
	way->own_meta = *way->meta;
	way->meta = &way->own_meta;
}

static bool reformat(struct run *run, struct way *way, const struct vb_steer_action *action)
{
	int err;

	if (!own_frame(run, way))
		return false;
	err = vb_frame_reformat(&way->own_frame, action->reformat.type, action->data,
				action->reformat.len);
	if (err)
		run->result |= err == -ENOSPC ? VB_STEER_NO_ROOM : VB_STEER_DROPPED;
	return !err;
}

static bool push_vlan(struct run *run, struct way *way, uint32_t vlan)
{
	if (!own_frame(run, way))
		return false;
	if (vb_frame_push_vlan(&way->own_frame, (uint16_t)(vlan >> 16), (uint16_t)vlan)) {
		run->result |= VB_STEER_NO_ROOM;
		return false;
	}
	return true;
}

static bool pop_vlan(struct run *run, struct way *way)
{
	if (!way->f->outer.vlans)
		return true;
	if (!own_frame(run, way))
		return false;
	vb_frame_pop_vlan(&way->own_frame);
	return true;
}

static bool steer_run_modify(struct run *run, struct way *way, const struct vb_steer_action *action)
{
	own_meta(way);
	/* Where only registers change, the frame is read and not written. */
	if (!steer_modify_is_meta(action) && !own_frame(run, way))
		return false;
	if (way->f != &way->own_frame)
		way->own_frame = *way->f;
	steer_modify_run(action->modify, action->count, &way->own_frame, &way->own_meta);
	return true;
}

static void steer_run_count(const struct way *way, struct vb_steer_counter *counter)
{
	atomic_fetch_add_explicit(&counter->packets, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&counter->bytes, way->f->len, memory_order_relaxed);
}

/* --- several destinations --------------------------------------------------------------------- */

/* A way one deeper; false: too deep or too many, and so would be those that follow. */
static bool branch_off(struct run *run, const struct way *way, struct way *branch)
{
	if (way->depth == VB_STEER_MAX_SPLITS || run->branches == VB_STEER_MAX_BRANCHES) {
		run->result |= VB_STEER_TOO_FAR;
		return false;
	}
	run->branches++;
	branch->f = way->f;
	branch->meta = way->meta;
	branch->depth = way->depth + 1;
	branch->hops = way->hops;
	return true;
}

static void take_branch(struct run *run, struct way *way, const struct vb_steer_branch *branch,
			uint32_t level)
{
	const struct vb_steer_action *dest = branch->dest;

	if (branch->reformat && !reformat(run, way, branch->reformat))
		return;
	switch (dest->what) {
	case VB_STEER_DO_DEST:
		arrive(run, way, &dest->dest);
		break;
	case VB_STEER_DO_TABLE:
		steer_run_walk(run, way, dest->table);
		break;
	case VB_STEER_DO_MISS:
		miss(run, way, run->steer->kind == VB_STEER_NIC_RX ? 0 : level);
		break;
	case VB_STEER_DO_COUNT:
		steer_run_count(way, dest->counter);
		break;
	default:
		run->result |= VB_STEER_DROPPED;
	}
}

static void take_array(struct run *run, const struct way *way, const struct vb_steer_action *array,
		       uint32_t level)
{
	struct way branch;

	for (uint32_t i = 0; i < array->count && branch_off(run, way, &branch); i++)
		take_branch(run, &branch, &array->branch[i], level);
}

/* --- rules ------------------------------------------------------------------------------------ */

/* What comes before the end; false: the frame is dropped. */
static bool steer_run_prepare(struct run *run, struct way *way,
			      const struct vb_steer_action *action)
{
	switch (action->what) {
	case VB_STEER_DO_COUNT:
		steer_run_count(way, action->counter);
		return true;
	case VB_STEER_DO_TAG:
		own_meta(way);
		way->own_meta.tag = action->tag;
		return true;
	case VB_STEER_DO_REFORMAT:
		return reformat(run, way, action);
	case VB_STEER_DO_MODIFY:
		return steer_run_modify(run, way, action);
	case VB_STEER_DO_PUSH_VLAN:
		return push_vlan(run, way, action->vlan);
	default:
		return pop_vlan(run, way);
	}
}

/*
 * Actions are in the order of execution. Returns the table where the way goes on, or NULL: it has
 * ended.
 */
static struct vb_steer_table *steer_run_apply(struct run *run, struct way *way,
					      const struct vb_steer_rule *rule, uint32_t level)
{
	for (uint32_t i = 0; i < rule->count; i++) {
		const struct vb_steer_action *action = rule->action[i];

		switch (action->what) {
		case VB_STEER_DO_DEST:
			arrive(run, way, &action->dest);
			return NULL;
		case VB_STEER_DO_TABLE:
			return action->table;
		case VB_STEER_DO_ARRAY:
			take_array(run, way, action, level);
			return NULL;
		case VB_STEER_DO_MISS:
			miss(run, way, level);
			return NULL;
		case VB_STEER_DO_DROP:
			run->result |= VB_STEER_DROPPED;
			return NULL;
		default:
			if (!steer_run_prepare(run, way, action))
				return NULL;
		}
	}
	miss(run, way, level);
	return NULL;
}

static void steer_run_follow(struct run *run, struct way *way, const struct vb_steer_rule *rule,
			     uint32_t level)
{
	struct vb_steer_table *next = steer_run_apply(run, way, rule, level);

	if (next)
		steer_run_walk(run, way, next);
}

/* Level 0: every rule of the value gets the frame as it came. */
static void follow_all(struct run *run, const struct way *way, const struct vb_steer_rule *rule)
{
	struct way branch;

	while (rule && branch_off(run, way, &branch)) {
		steer_run_follow(run, &branch, rule, 0);
		/* Pairs with the release store in append(). */
		rule = atomic_load_explicit(&rule->next, memory_order_acquire);
	}
}

/* A rule of the store has the frame. */
static void note_address(struct way *way, const struct store *store)
{
	if (store->addresses) {
		own_meta(way);
		way->own_meta.foreign = false;
	}
}

/* In the stores from *at on, which is then the one behind. */
static struct vb_steer_rule *find_rule(struct run *run, struct way *way, const struct list *list,
				       uint32_t *at)
{
	struct key_source from = { .f = way->f, .meta = way->meta };
	uint32_t key[STEER_WORDS];

	while (list && *at < list->count) {
		struct store *store = list->store[(*at)++];
		struct vb_steer_rule *rule;

		if (!atomic_load_explicit(&store->slots, memory_order_relaxed))
			continue;
		from.option = store->plan.option;
		steer_extract(&store->plan, &from, key);
		rule = steer_store_find(store, key,
					steer_hash(&run->steer->secret, key, store->plan.words));
		if (!rule)
			continue;
		if (__builtin_expect(way->meta->foreign, 0))
			note_address(way, store);
		return rule;
	}
	return NULL;
}

/* From the begin of a table; NULL: the root. Tables of higher levels follow, until the way ends. */
static void steer_run_walk(struct run *run, struct way *way, struct vb_steer_table *table)
{
	for (;;) {
		uint32_t level = table ? table->level : 0;
		_Atomic(struct list *) *place = table ? table_list(table) : &run->steer->root;
		struct vb_steer_rule *rule;
		struct list *list;
		uint32_t at = 0;

		if (++way->hops > VB_STEER_MAX_HOPS) {
			run->result |= VB_STEER_TOO_FAR;
			return;
		}
		/* Pairs with the release store in replace_list(). */
		list = atomic_load_explicit(place, memory_order_acquire);
		while ((rule = find_rule(run, way, list, &at)) && __builtin_expect(rule->copies, 0))
			follow_all(run, way, rule);
		if (!rule) {
			miss(run, way, level);
			return;
		}
		if (!level && atomic_load_explicit(&rule->next, memory_order_relaxed)) {
			follow_all(run, way, rule);
			return;
		}
		table = steer_run_apply(run, way, rule, level);
		if (!table)
			return;
	}
}

unsigned int vb_steer_run(struct vb_steer *steer, const struct vb_frame *frame,
			  const struct vb_steer_meta *meta, void *scratch, vb_steer_emit *emit,
			  void *arg)
{
	struct run run = { .steer = steer, .scratch = scratch, .emit = emit, .arg = arg };
	struct way way;

	way.f = frame;
	way.meta = meta;
	way.depth = way.hops = 0;
	steer_run_walk(&run, &way, NULL);
	return run.result;
}

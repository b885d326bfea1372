// SPDX-License-Identifier: MIT
/*
 * Actions: what a rule does. They belong to no domain, except where they lead to a table. Rules and
 * arrays count in refs; an action goes only when that is 0 and every frame that might be under way
 * with it has arrived.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "steer/internal.h"

static bool is_decap(const struct vb_steer_action *action)
{
	return action->reformat.type == VB_REFORMAT_L2_TUNNEL_TO_L2 ||
	       action->reformat.type == VB_REFORMAT_L3_TUNNEL_TO_L2;
}

unsigned int steer_action_order(const struct vb_steer_action *action)
{
	switch (action->what) {
	case VB_STEER_DO_COUNT:
		return 0;
	case VB_STEER_DO_TAG:
		return 1;
	case VB_STEER_DO_REFORMAT:
		return is_decap(action) ? 2 : 6;
	case VB_STEER_DO_POP_VLAN:
		return 3;
	case VB_STEER_DO_MODIFY:
		return 4;
	case VB_STEER_DO_PUSH_VLAN:
		return 5;
	default:
		return ORDER_END;
	}
}

/* --- what a rule can have --------------------------------------------------------------------- */

static int check_table(const struct vb_steer_table *from, const struct vb_steer_table *to,
		       const char **why)
{
	if (to->steer != from->steer) {
		*why = "the destination table belongs to another domain";
		return -EINVAL;
	}
	if (to->level <= from->level) {
		*why = "the destination table's level is not higher";
		return -EINVAL;
	}
	return 0;
}

static int action_check_end(const struct vb_steer_table *table,
			    const struct vb_steer_action *action, const char **why)
{
	int err = 0;

	if (action->what == VB_STEER_DO_TABLE)
		return check_table(table, action->table, why);
	if (action->what != VB_STEER_DO_ARRAY)
		return 0;
	for (uint32_t i = 0; !err && i < action->count; i++)
		if (action->branch[i].dest->what == VB_STEER_DO_TABLE)
			err = check_table(table, action->branch[i].dest->table, why);
	return err;
}

int steer_actions_check(const struct vb_steer_table *table, struct vb_steer_action *const *actions,
			size_t count, const char **why)
{
	static const uint8_t most[] = { 1, 1, 1, 2, 1, 2, 1, 1 };
	static const char *const too_many[] = {
		"more than one counter",
		"more than one tag",
		"more than one decapsulation",
		"more than two VLAN pops",
		"more than one header modification",
		"more than two VLAN pushes",
		"more than one encapsulation",
		"more than one action that ends the way",
	};
	uint8_t seen[ORDER_END + 1] = { 0 };
	int err = 0;

	if (count > VB_STEER_MAX_ACTIONS) {
		*why = "too many actions";
		return -EINVAL;
	}
	for (size_t i = 0; !err && i < count; i++) {
		unsigned int order = steer_action_order(actions[i]);

		if (++seen[order] > most[order]) {
			*why = too_many[order];
			return -EINVAL;
		}
		err = action_check_end(table, actions[i], why);
	}
	return err;
}

/* --- create ----------------------------------------------------------------------------------- */

static struct vb_steer_action *allocate(enum vb_steer_do what, uint32_t count, size_t size)
{
	struct vb_steer_action *action = calloc(1, sizeof(*action) + count * size);

	if (action) {
		action->what = what;
		action->count = count;
	}
	return action;
}

static int create_array(const struct vb_steer_action_attr *attr, struct vb_steer_action **out,
			const char **why)
{
	const struct vb_steer_branch *branch = attr->array.branch;
	uint32_t count = attr->array.count;
	struct vb_steer_action *action;

	*why = "the number of destinations";
	if (!count || count > VB_STEER_MAX_DESTS)
		return -EINVAL;
	for (uint32_t i = 0; i < count; i++) {
		const struct vb_steer_action *dest = branch[i].dest, *reformat = branch[i].reformat;

		*why = "a destination of the array";
		if (!dest || (dest->what != VB_STEER_DO_DEST && dest->what != VB_STEER_DO_TABLE &&
			      dest->what != VB_STEER_DO_MISS && dest->what != VB_STEER_DO_DROP &&
			      dest->what != VB_STEER_DO_COUNT))
			return -EINVAL;
		*why = "a reformat of the array";
		if (reformat && reformat->what != VB_STEER_DO_REFORMAT)
			return -EINVAL;
	}
	action = allocate(attr->what, count, sizeof(*branch));
	if (!action)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		action->branch[i] = branch[i];
		atomic_fetch_add_explicit(&branch[i].dest->refs, 1, memory_order_relaxed);
		if (branch[i].reformat)
			atomic_fetch_add_explicit(&branch[i].reformat->refs, 1,
						  memory_order_relaxed);
	}
	*out = action;
	return 0;
}

static int create_modify(const struct vb_steer_action_attr *attr, struct vb_steer_action **out,
			 const char **why)
{
	const uint8_t *from = attr->modify.actions;
	uint32_t count = attr->modify.count;
	struct vb_steer_action *action;
	int err = 0;

	*why = "the number of header modifications";
	if (!count || count > VB_STEER_MAX_MODIFY)
		return -EINVAL;
	action = allocate(attr->what, count, sizeof(action->modify[0]));
	if (!action)
		return -ENOMEM;
	for (uint32_t i = 0; !err && i < count; i++)
		err = steer_modify_compile(from + i * 8, &action->modify[i], why);
	if (err)
		free(action);
	else
		*out = action;
	return err;
}

static int create_reformat(const struct vb_steer_action_attr *attr, struct vb_steer_action **out,
			   const char **why)
{
	uint32_t len = attr->reformat.len;
	struct vb_steer_action *action;
	bool fits;

	switch (attr->reformat.type) {
	case VB_REFORMAT_L2_TUNNEL_TO_L2:
		fits = !len;
		break;
	case VB_REFORMAT_L3_TUNNEL_TO_L2:
		fits = len == VB_FRAME_HEADER || len == VB_FRAME_HEADER + VLAN_TAG;
		break;
	case VB_REFORMAT_L2_TO_L2_TUNNEL:
	case VB_REFORMAT_L2_TO_L3_TUNNEL:
		fits = len >= VB_FRAME_HEADER && len <= VB_STEER_MAX_REFORMAT;
		break;
	default:
		*why = "the reformat type";
		return -EINVAL;
	}
	*why = "the length of the reformat data";
	if (!fits)
		return -EINVAL;
	action = allocate(attr->what, len, 1);
	if (!action)
		return -ENOMEM;
	action->reformat.type = attr->reformat.type;
	action->reformat.len = len;
	if (len)
		memcpy(action->data, attr->reformat.data, len);
	*out = action;
	return 0;
}

static int create_simple(const struct vb_steer_action_attr *attr, struct vb_steer_action **out,
			 const char **why)
{
	struct vb_steer_action *action;

	*why = attr->what == VB_STEER_DO_TAG ? "the tag has more than 24 bits" : "the action";
	if (attr->what > VB_STEER_DO_POP_VLAN || (attr->what == VB_STEER_DO_TAG && attr->tag >> 24))
		return -EINVAL;
	action = allocate(attr->what, 0, 0);
	if (!action)
		return -ENOMEM;
	switch (attr->what) {
	case VB_STEER_DO_DEST:
		action->dest = attr->dest;
		action->dest.to = VB_STEER_TO_OWNER;
		break;
	case VB_STEER_DO_TABLE:
		action->table = attr->table;
		vb_lock(&attr->table->steer->lock);
		attr->table->refs++;
		vb_unlock(&attr->table->steer->lock);
		break;
	case VB_STEER_DO_TAG:
		action->tag = attr->tag;
		break;
	case VB_STEER_DO_COUNT:
		action->counter = attr->counter;
		break;
	case VB_STEER_DO_PUSH_VLAN:
		action->vlan = attr->vlan;
		break;
	default:
		break;
	}
	*out = action;
	return 0;
}

int vb_steer_action_create(const struct vb_steer_action_attr *attr, struct vb_steer_action **out,
			   const char **why)
{
	const char *reason = NULL;
	int err;

	switch (attr->what) {
	case VB_STEER_DO_ARRAY:
		err = create_array(attr, out, &reason);
		break;
	case VB_STEER_DO_MODIFY:
		err = create_modify(attr, out, &reason);
		break;
	case VB_STEER_DO_REFORMAT:
		err = create_reformat(attr, out, &reason);
		break;
	default:
		err = create_simple(attr, out, &reason);
	}
	if (err && why)
		*why = reason;
	return err;
}

/* --- destroy ---------------------------------------------------------------------------------- */

static void release_branches(struct vb_steer_action *action)
{
	for (uint32_t i = 0; i < action->count; i++) {
		atomic_fetch_sub_explicit(&action->branch[i].dest->refs, 1, memory_order_relaxed);
		if (action->branch[i].reformat)
			atomic_fetch_sub_explicit(&action->branch[i].reformat->refs, 1,
						  memory_order_relaxed);
	}
}

int vb_steer_action_destroy(struct vb_steer_action *action)
{
	if (atomic_load_explicit(&action->refs, memory_order_relaxed))
		return -EBUSY;
	vb_read_wait();
	if (action->what == VB_STEER_DO_ARRAY) {
		release_branches(action);
	} else if (action->what == VB_STEER_DO_TABLE) {
		vb_lock(&action->table->steer->lock);
		action->table->refs--;
		vb_unlock(&action->table->steer->lock);
	}
	free(action);
	return 0;
}

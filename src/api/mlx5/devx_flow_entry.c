// SPDX-License-Identifier: MIT
/*
 * Flow entries by command (DEVX): a value for the mask of a group, and what becomes of a frame that
 * has it. An entry is a rule of the engine with actions of its own; contexts, tables and counters
 * that it names are held.
 */
#include "devx_bits.h"
#include "devx_flow.h"
#include "devx_obj.h"
#include "mlx5.h"

/* Bits of the command. */
enum {
	TABLE_TYPE = 0x80,
	TABLE_ID = 0xa8,
	ENABLE_MASK = 0xd8, /* op_mod 1: enum part */
	FLOW_INDEX = 0x100,
	PUSH_VLAN = 0x200, /* flow_context, from here on */
	GROUP_ID = 0x220,
	FLOW_TAG = 0x248,
	ACTION = 0x270,
	EXTENDED = 0x280,
	DESTINATIONS = 0x288,
	COUNTERS = 0x2a8,
	REFORMAT_ID = 0x2c0,
	MODIFY_ID = 0x2e0,
	PUSH_VLAN_2 = 0x300,
	VALUE = 0x400,
	LIST = 0x1a00,
};

enum { CONTEXT_BYTE = 64, SHORTEST = LIST / 8, LONGEST = SHORTEST + 16 * (VB_STEER_MAX_DESTS + 1) };

/* Parts of an entry that a command changes. */
enum part {
	PART_ACTION = 1 << 0, /* and the contexts and tags that actions name */
	PART_TAG = 1 << 1,
	PART_DESTINATIONS = 1 << 2,
	PART_COUNTERS = 1 << 3,
	PARTS = PART_ACTION | PART_TAG | PART_DESTINATIONS | PART_COUNTERS,
};

enum flow_action {
	ALLOW = 0x1,
	DROP = 0x2,
	FORWARD = 0x4,
	COUNT = 0x8,
	REFORMAT = 0x10,
	DECAP = 0x20,
	MODIFY_HEADER = 0x40,
	POP = 0x80,
	PUSH = 0x100,
	POP_2 = 0x400,
	PUSH_2 = 0x800,
	KNOWN = ALLOW | DROP | FORWARD | COUNT | REFORMAT | DECAP | MODIFY_HEADER | POP | PUSH |
		POP_2 | PUSH_2,
};

enum destination { TO_VPORT = 0, TO_TABLE = 1, TO_TIR = 2, TO_UPLINK = 8 };

enum { MOST_HELD = VB_STEER_MAX_DESTS + 3 };

/* A rule, and what it is made of; an entry that is modified gets a new one. */
struct parts {
	struct vb_steer_rule *rule;
	struct vb_steer_action *used[VB_STEER_MAX_ACTIONS]; /* in the rule */
	struct vb_steer_action *own[VB_STEER_MAX_DESTS + 8];
	struct mlx5dv_devx_obj *held[MOST_HELD];
	struct vb_tir *tirs[VB_STEER_MAX_DESTS];
	uint32_t num_used, num_own, num_held, num_tirs;
};

struct devx_flow_entry {
	struct devx_flow_entry *next; /* of the group */
	struct mlx5dv_devx_obj *group;
	uint32_t index;
	struct vb_lock lock; /* of what follows */
	struct parts *parts;
	size_t bytes;
	uint8_t context[LONGEST - CONTEXT_BYTE]; /* of the command */
};

/* --- actions ---------------------------------------------------------------------------------- */

static void free_parts(struct parts *p)
{
	if (p->rule)
		vb_steer_rule_destroy(p->rule);
	while (p->num_own) /* arrays are behind what they lead to */
		vb_steer_action_destroy(p->own[--p->num_own]);
	while (p->num_tirs)
		vb_tir_put(p->tirs[--p->num_tirs]);
	while (p->num_held)
		devx_put(p->held[--p->num_held]);
	free(p);
}

static int devx_flow_entry_make_own(struct devx_cmd *cmd, struct parts *p,
				    const struct vb_steer_action_attr *attr,
				    struct vb_steer_action **out)
{
	const char *why = NULL;
	int err = vb_steer_action_create(attr, out, &why);

	if (err)
		return devx_flow_refuse(cmd, err, why);
	p->own[p->num_own++] = *out;
	return 0;
}

/* An action of the entry itself, in the rule. */
static int use_own(struct devx_cmd *cmd, struct parts *p, const struct vb_steer_action_attr *attr)
{
	struct vb_steer_action *action;
	int err = devx_flow_entry_make_own(cmd, p, attr, &action);

	if (!err)
		p->used[p->num_used++] = action;
	return err;
}

static int devx_flow_entry_hold(struct devx_cmd *cmd, struct parts *p, enum vb_devx_kind kind,
				uint32_t number, const char *what, struct mlx5dv_devx_obj **out)
{
	struct mlx5dv_devx_obj *obj = devx_get(cmd->context, kind, number);

	if (!obj)
		return devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_value(what, number));
	p->held[p->num_held++] = obj;
	*out = obj;
	return 0;
}

static int use_context(struct devx_cmd *cmd, struct parts *p, enum vb_devx_kind kind,
		       uint32_t number, const char *what)
{
	struct mlx5dv_devx_obj *obj = NULL;
	int err = devx_flow_entry_hold(cmd, p, kind, number, what, &obj);

	if (!err)
		p->used[p->num_used++] = devx_flow_context(obj);
	return err;
}

static int use_vlan(struct devx_cmd *cmd, struct parts *p, uint32_t at)
{
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_PUSH_VLAN,
					     .vlan = get(cmd->in, at, 32) };

	return use_own(cmd, p, &attr);
}

static int read_edits(struct devx_cmd *cmd, struct parts *p, uint32_t actions)
{
	const struct vb_steer_action_attr pop = { .what = VB_STEER_DO_POP_VLAN };
	const struct vb_steer_action_attr decap = {
		.what = VB_STEER_DO_REFORMAT,
		.reformat = { .type = VB_REFORMAT_L2_TUNNEL_TO_L2 },
	};
	int err = 0;

	if (actions & DECAP)
		err = use_own(cmd, p, &decap);
	if (!err && actions & POP)
		err = use_own(cmd, p, &pop);
	if (!err && actions & POP_2)
		err = use_own(cmd, p, &pop);
	if (!err && actions & MODIFY_HEADER)
		err = use_context(cmd, p, VB_DEVX_MODIFY_HEADER, get(cmd->in, MODIFY_ID, 32),
				  "modify_header_id");
	if (!err && actions & PUSH)
		err = use_vlan(cmd, p, PUSH_VLAN);
	if (!err && actions & PUSH_2)
		err = use_vlan(cmd, p, PUSH_VLAN_2);
	if (!err && actions & REFORMAT)
		err = use_context(cmd, p, VB_DEVX_REFORMAT, get(cmd->in, REFORMAT_ID, 32),
				  "packet_reformat_id");
	return err;
}

/* --- destinations ----------------------------------------------------------------------------- */

static int read_vport(struct devx_cmd *cmd, const struct devx_flow_table *table, uint32_t number,
		      struct vb_steer_action_attr *attr)
{
	enum vb_steer_kind kind;

	if (!devx_flow_kind(table->type, &kind) || kind != VB_STEER_FDB)
		return vb_refuse_cannot("vports are for FDB");
	if (number != VB_VPORT_MANAGER && number != VB_VPORT_WIRE)
		return devx_refuse(cmd, DEVX_BAD_INDEX, vb_refuse_value("destination_id", number));
	attr->what = VB_STEER_DO_DEST;
	attr->dest = (struct vb_steer_dest){ .to = VB_STEER_TO_OWNER,
					     .kind = VB_FLOW_VPORT,
					     .number = number };
	return 0;
}

static int read_tir(struct devx_cmd *cmd, const struct devx_flow_table *table, struct parts *p,
		    uint32_t number, struct vb_steer_action_attr *attr)
{
	enum vb_steer_kind kind;
	struct vb_tir *tir;

	if (!devx_flow_kind(table->type, &kind) || kind != VB_STEER_NIC_RX)
		return vb_refuse_cannot("TIRs are for NIC_RX");
	tir = vb_tir_get(cmd->dev, number);
	if (tir && !vb_tir_is_of(tir, cmd->dev)) {
		vb_tir_put(tir);
		tir = NULL;
	}
	if (!tir)
		return devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_value("destination_id", number));
	p->tirs[p->num_tirs++] = tir;
	attr->what = VB_STEER_DO_DEST;
	attr->dest = (struct vb_steer_dest){
		.to = VB_STEER_TO_OWNER, .kind = VB_FLOW_TIR, .number = number, .object = tir
	};
	return 0;
}

static int read_destination(struct devx_cmd *cmd, const struct devx_flow_table *table,
			    struct parts *p, uint32_t at, struct vb_steer_branch *branch)
{
	uint32_t type = get(cmd->in, at, 8), number = get(cmd->in, at + 8, 24);
	struct vb_steer_action_attr attr = { 0 };
	struct mlx5dv_devx_obj *obj = NULL;
	int err;

	switch (type) {
	case TO_UPLINK:
		err = read_vport(cmd, table, VB_VPORT_WIRE, &attr);
		break;
	case TO_VPORT:
		err = read_vport(cmd, table, number, &attr);
		break;
	case TO_TIR:
		err = read_tir(cmd, table, p, number, &attr);
		break;
	case TO_TABLE:
		err = devx_flow_entry_hold(cmd, p, VB_DEVX_FLOW_TABLE, number, "destination_id",
					   &obj);
		if (!err) {
			attr.what = VB_STEER_DO_TABLE;
			attr.table = ((struct devx_flow_table *)obj->data)->card;
		}
		break;
	default:
		err = vb_refuse_unsupported_value("destination_type", type);
		break;
	}
	if (!err && get(cmd->in, at + 0x21, 1))
		err = vb_refuse_unsupported("a reformat of one destination");
	return err ? err : devx_flow_entry_make_own(cmd, p, &attr, &branch->dest);
}

static int read_destinations(struct devx_cmd *cmd, const struct devx_flow_table *table,
			     struct parts *p, uint32_t count, uint32_t stride)
{
	struct vb_steer_branch branches[VB_STEER_MAX_DESTS] = { 0 };
	struct vb_steer_action_attr array = { .what = VB_STEER_DO_ARRAY,
					      .array = { branches, count } };
	int err = 0;

	for (uint32_t i = 0; !err && i < count; i++)
		err = read_destination(cmd, table, p, LIST + i * stride, &branches[i]);
	if (err)
		return err;
	if (count > 1)
		return use_own(cmd, p, &array);
	p->used[p->num_used++] = branches[0].dest;
	return 0;
}

static int read_counter(struct devx_cmd *cmd, struct parts *p, uint32_t at)
{
	uint32_t id = get(cmd->in, at, 32), first;
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_COUNT };
	struct mlx5dv_devx_obj *obj = devx_get_counters(cmd->context, id, &first);

	if (!obj)
		return devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_value("flow_counter_id", id));
	p->held[p->num_held++] = obj;
	attr.counter = &obj->counters->counter[first];
	return use_own(cmd, p, &attr);
}

/* --- the whole rule --------------------------------------------------------------------------- */

/* Lists are as long as the action says, and inside of the command. */
static int check_lists(struct devx_cmd *cmd, uint32_t actions, uint32_t stride)
{
	uint32_t destinations = get(cmd->in, DESTINATIONS, 24),
		 counters = get(cmd->in, COUNTERS, 24);

	if (actions & ~(uint32_t)KNOWN)
		return vb_refuse_unsupported_value("action", actions & ~(uint32_t)KNOWN);
	if (!(actions & FORWARD) != !destinations || destinations > VB_STEER_MAX_DESTS)
		return vb_refuse_range("destination_list_size", destinations,
				       actions & FORWARD ? 1 : 0,
				       actions & FORWARD ? VB_STEER_MAX_DESTS : 0);
	if (!(actions & COUNT) != !counters || counters > 1)
		return vb_refuse_range("flow_counter_list_size", counters, actions & COUNT ? 1 : 0,
				       actions & COUNT ? 1 : 0);
	if (cmd->inlen < SHORTEST + (size_t)(destinations + counters) * stride / 8)
		return devx_refuse(cmd, DEVX_BAD_INP_LEN,
				   vb_refuse_combination("the command ends before its lists"));
	return 0;
}

static int read_end(struct devx_cmd *cmd, const struct devx_flow_table *table, struct parts *p,
		    uint32_t actions, uint32_t stride)
{
	const struct vb_steer_action_attr drop = { .what = VB_STEER_DO_DROP };
	const struct vb_steer_action_attr miss = { .what = VB_STEER_DO_MISS };
	uint32_t ends = actions & (ALLOW | DROP | FORWARD);
	enum vb_steer_kind kind = VB_STEER_NIC_RX;

	devx_flow_kind(table->type, &kind);
	switch (ends) {
	case DROP:
		return use_own(cmd, p, &drop);
	case ALLOW:
		return kind == VB_STEER_NIC_TX ? use_own(cmd, p, &miss)
					       : vb_refuse_cannot("ALLOW is for NIC_TX");
	case FORWARD:
		return read_destinations(cmd, table, p, get(cmd->in, DESTINATIONS, 24), stride);
	default:
		return vb_refuse_value("action", actions);
	}
}

static int read_actions(struct devx_cmd *cmd, const struct devx_flow_table *table, struct parts *p)
{
	uint32_t actions = get(cmd->in, ACTION, 16), stride = get(cmd->in, EXTENDED, 1) ? 128 : 64;
	uint32_t tag = get(cmd->in, FLOW_TAG, 24);
	const struct vb_steer_action_attr mark = { .what = VB_STEER_DO_TAG, .tag = tag };
	enum vb_steer_kind kind = VB_STEER_NIC_TX;
	int err = check_lists(cmd, actions, stride);

	devx_flow_kind(table->type, &kind);
	if (!err && tag && kind != VB_STEER_NIC_RX)
		err = vb_refuse_cannot("flow_tag is for NIC_RX");
	if (!err && actions & COUNT)
		err = read_counter(cmd, p, LIST + get(cmd->in, DESTINATIONS, 24) * stride);
	if (!err && tag)
		err = use_own(cmd, p, &mark);
	if (!err)
		err = read_edits(cmd, p, actions);
	return err ? err : read_end(cmd, table, p, actions, stride);
}

/* The rule of the command in cmd, in a group. */
static int devx_flow_entry_make_rule(struct devx_cmd *cmd, const struct devx_flow_group *group,
				     struct parts **out)
{
	const struct devx_flow_table *table = group->table->data;
	uint8_t value[FLOW_MATCH_BYTES];
	const char *why = NULL;
	struct parts *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return vb_refuse_memory("the flow entry");
	/* Hardware does not look at what the mask leaves out. */
	for (size_t i = 0; i < sizeof(value); i++)
		value[i] = cmd->in[VALUE / 8 + i] & group->mask[i];
	err = read_actions(cmd, table, p);
	if (!err) {
		err = vb_steer_rule_create(group->card, value, sizeof(value), p->used, p->num_used,
					   0, &p->rule, &why);
		if (err)
			err = devx_flow_refuse(cmd, err, why);
	}
	if (err) {
		p->rule = NULL;
		free_parts(p);
		return err;
	}
	*out = p;
	return 0;
}

/* --- commands --------------------------------------------------------------------------------- */

/* The group that the command names, held; NULL after a refusal. */
static struct mlx5dv_devx_obj *devx_flow_entry_find_group(struct devx_cmd *cmd, int *err)
{
	uint32_t id = get(cmd->in, GROUP_ID, 32), index = get(cmd->in, FLOW_INDEX, 32);
	struct mlx5dv_devx_obj *obj = devx_get(cmd->context, VB_DEVX_FLOW_GROUP, id);
	const struct devx_flow_group *group = obj ? obj->data : NULL;

	*err = 0;
	if (!obj || group->table->number != get(cmd->in, TABLE_ID, 24))
		*err = devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_value("group_id or table_id", id));
	else if (((struct devx_flow_table *)group->table->data)->type !=
		 get(cmd->in, TABLE_TYPE, 8))
		*err = vb_refuse_value("table_type", get(cmd->in, TABLE_TYPE, 8));
	else if (index < group->first || index > group->last)
		*err = devx_refuse(cmd, DEVX_BAD_INDEX,
				   vb_refuse_range("flow_index", index, group->first, group->last));
	if (*err && obj)
		devx_put(obj);
	return *err ? NULL : obj;
}

static bool devx_flow_entry_add_entry(struct devx_flow_group *group, struct devx_flow_entry *entry)
{
	struct devx_flow_entry *e;

	vb_lock(&group->lock);
	for (e = group->entries; e && e->index != entry->index; e = e->next)
		;
	if (!e) {
		entry->next = group->entries;
		group->entries = entry;
	}
	vb_unlock(&group->lock);
	return !e;
}

static void devx_flow_entry_remove_entry(struct devx_flow_group *group,
					 struct devx_flow_entry *entry)
{
	struct devx_flow_entry **at;

	vb_lock(&group->lock);
	for (at = &group->entries; *at != entry; at = &(*at)->next)
		;
	*at = entry->next;
	vb_unlock(&group->lock);
}

static void keep_context(struct devx_flow_entry *entry, const struct devx_cmd *cmd)
{
	uint32_t stride = get(cmd->in, EXTENDED, 1) ? 16 : 8;
	size_t lists = get(cmd->in, DESTINATIONS, 24) + get(cmd->in, COUNTERS, 24);

	entry->bytes = SHORTEST - CONTEXT_BYTE + lists * stride;
	if (entry->bytes > sizeof(entry->context))
		entry->bytes = sizeof(entry->context);
	memcpy(entry->context, cmd->in + CONTEXT_BYTE, entry->bytes);
}

static int set_entry(struct devx_cmd *cmd)
{
	struct devx_flow_entry *entry;
	struct mlx5dv_devx_obj *group;
	int err;

	if (get(cmd->in, DEVX_OP_MOD, 16))
		return vb_refuse_value("op_mod", get(cmd->in, DEVX_OP_MOD, 16));
	group = devx_flow_entry_find_group(cmd, &err);
	if (!group)
		return err;
	entry = calloc(1, sizeof(*entry));
	err = entry ? 0 : vb_refuse_memory("the flow entry");
	if (!err) {
		entry->group = group;
		entry->index = get(cmd->in, FLOW_INDEX, 32);
		if (!devx_flow_entry_add_entry(group->data, entry))
			err = devx_refuse(cmd, DEVX_RES_BUSY,
					  vb_refuse_combination("another entry has this index"));
	}
	if (err)
		goto put_group;
	err = devx_flow_entry_make_rule(cmd, group->data, &entry->parts);
	if (err) {
		devx_flow_entry_remove_entry(group->data, entry);
		goto put_group;
	}
	keep_context(entry, cmd);
	cmd->obj->data = entry;
	cmd->obj->number = entry->index;
	return 0;

put_group:
	free(entry);
	devx_put(group);
	return err;
}

/* Bytes of an item of the lists: destinations, then counters. */
static size_t item_bytes(const uint8_t *command)
{
	return get(command, EXTENDED, 1) ? 16 : 8;
}

/* The items of one list, each in the size that the destinations of the new command have. */
static void copy_items(uint8_t *to, uint32_t at, const uint8_t *from, uint32_t from_at,
		       uint32_t count)
{
	size_t size = item_bytes(to), old = item_bytes(from);

	for (uint32_t i = 0; i < count; i++)
		memcpy(to + SHORTEST + (at + i) * size, from + SHORTEST + (from_at + i) * old,
		       size < old ? size : old);
}

/*
 * The command that would make the entry anew: what the mask names is the command's, the rest as the
 * entry has it, its value too. A list that no action uses any more goes. Returns the bytes; to has
 * room for LONGEST.
 */
static size_t merge(const struct devx_flow_entry *entry, const struct devx_cmd *cmd, uint8_t *to)
{
	static const struct {
		uint16_t at, bits;
		enum part part;
	} fields[] = {
		{ ACTION, 16, PART_ACTION },        { PUSH_VLAN, 32, PART_ACTION },
		{ REFORMAT_ID, 32, PART_ACTION },   { MODIFY_ID, 32, PART_ACTION },
		{ PUSH_VLAN_2, 32, PART_ACTION },   { FLOW_TAG, 24, PART_TAG },
		{ EXTENDED, 1, PART_DESTINATIONS }, { DESTINATIONS, 24, PART_DESTINATIONS },
		{ COUNTERS, 24, PART_COUNTERS },
	};
	uint32_t mask = get(cmd->in, ENABLE_MASK, 8), destinations, counters;
	uint8_t old[LONGEST] = { 0 };
	const uint8_t *from;

	memcpy(old + CONTEXT_BYTE, entry->context, entry->bytes);
	memcpy(to, cmd->in, CONTEXT_BYTE);
	memcpy(to + CONTEXT_BYTE, old + CONTEXT_BYTE, SHORTEST - CONTEXT_BYTE);
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (mask & fields[i].part)
			put(to, fields[i].at, fields[i].bits,
			    get(cmd->in, fields[i].at, fields[i].bits));
	if (!(mask & PART_DESTINATIONS) && !(get(to, ACTION, 16) & FORWARD))
		put(to, DESTINATIONS, 24, 0);
	if (!(mask & PART_COUNTERS) && !(get(to, ACTION, 16) & COUNT))
		put(to, COUNTERS, 24, 0);
	destinations = get(to, DESTINATIONS, 24);
	counters = get(to, COUNTERS, 24);
	if (destinations > VB_STEER_MAX_DESTS || counters > 1)
		return SHORTEST; /* check_lists() refuses it */
	from = mask & PART_DESTINATIONS ? cmd->in : old;
	copy_items(to, 0, from, 0, destinations);
	from = mask & PART_COUNTERS ? cmd->in : old;
	copy_items(to, destinations, from, get(from, DESTINATIONS, 24), counters);
	return SHORTEST + (destinations + counters) * item_bytes(to);
}

/* Lists that the mask names are inside of the command. */
static int check_parts(struct devx_cmd *cmd)
{
	uint32_t mask = get(cmd->in, ENABLE_MASK, 8);
	uint64_t items = get(cmd->in, DESTINATIONS, 24);

	if (mask & ~(uint32_t)PARTS)
		return vb_refuse_bits("modify_enable_mask", mask & ~(uint32_t)PARTS);
	if (mask & PART_COUNTERS)
		items += get(cmd->in, COUNTERS, 24);
	if ((mask & (PART_DESTINATIONS | PART_COUNTERS)) &&
	    cmd->inlen < SHORTEST + items * item_bytes(cmd->in))
		return devx_refuse(cmd, DEVX_BAD_INP_LEN,
				   vb_refuse_combination("the command ends before its lists"));
	return 0;
}

static int modify_entry(struct devx_cmd *cmd)
{
	struct devx_flow_entry *entry = cmd->obj->data;
	struct parts *parts, *old;
	struct mlx5dv_devx_obj *group;
	uint8_t merged[LONGEST];
	struct devx_cmd whole = *cmd;
	int err;

	if (get(cmd->in, DEVX_OP_MOD, 16) != 1)
		return vb_refuse_value("op_mod", get(cmd->in, DEVX_OP_MOD, 16));
	group = devx_flow_entry_find_group(cmd, &err);
	if (!group)
		return err;
	if (group != entry->group)
		err = devx_refuse(cmd, DEVX_BAD_RES,
				  vb_refuse_combination("the entry is in another group"));
	if (!err)
		err = check_parts(cmd);
	if (!err) {
		vb_lock(&entry->lock);
		whole.inlen = merge(entry, cmd, merged);
		vb_unlock(&entry->lock);
		whole.in = merged;
		err = devx_flow_entry_make_rule(&whole, group->data, &parts);
		if (err)
			cmd->status = whole.status;
	}
	devx_put(group);
	if (err)
		return err;
	vb_lock(&entry->lock);
	old = entry->parts;
	entry->parts = parts;
	keep_context(entry, &whole);
	vb_unlock(&entry->lock);
	free_parts(old); /* of two rules with one value the older one counted until now */
	return 0;
}

static int query_entry(struct devx_cmd *cmd)
{
	struct devx_flow_entry *entry = cmd->obj->data;
	const struct devx_flow_group *group = entry->group->data;
	size_t bytes;

	if (get(cmd->in, TABLE_ID, 24) != group->table->number)
		return devx_refuse(cmd, DEVX_BAD_RES,
				   vb_refuse_value("table_id", get(cmd->in, TABLE_ID, 24)));
	vb_lock(&entry->lock);
	bytes = entry->bytes < cmd->outlen - CONTEXT_BYTE ? entry->bytes
							  : cmd->outlen - CONTEXT_BYTE;
	memcpy(cmd->out + CONTEXT_BYTE, entry->context, bytes);
	vb_unlock(&entry->lock);
	return 0;
}

static int delete_entry(struct devx_cmd *cmd)
{
	struct devx_flow_entry *entry = cmd->obj->data;

	free_parts(entry->parts);
	devx_flow_entry_remove_entry(entry->group->data, entry);
	devx_put(entry->group);
	free(entry);
	return 0;
}

const struct devx_row devx_flow_entry_rows[] = {
	{ "SET_FLOW_TABLE_ENTRY", 0x936, 0, DEVX_CREATE, VB_DEVX_FLOW_ENTRY, SHORTEST, 16,
	  DEVX_NO_NUMBER, set_entry },
	{ "SET_FLOW_TABLE_ENTRY", 0x936, 0, DEVX_MODIFY, VB_DEVX_FLOW_ENTRY, SHORTEST, 16,
	  FLOW_INDEX, modify_entry },
	{ "QUERY_FLOW_TABLE_ENTRY", 0x937, 0, DEVX_QUERY, VB_DEVX_FLOW_ENTRY, 64, SHORTEST,
	  FLOW_INDEX, query_entry },
	{ "DELETE_FLOW_TABLE_ENTRY", 0x938, 0, DEVX_DESTROY, VB_DEVX_FLOW_ENTRY, 64, 16, FLOW_INDEX,
	  delete_entry },
	{ 0 },
};

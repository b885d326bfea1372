// SPDX-License-Identifier: MIT
/* Flow tables and groups by command (DEVX): see devx_flow.h. Entries are in devx_flow_entry.c. */
#include "devx_flow.h"

#include "devx_bits.h"
#include "dr.h"
#include "mlx5.h"

enum {
	MISS_PRIORITY = 0xffff,
	LOG_PRIORITIES = 15, /* of groups */
	NUMBERS = 1 << 24,
};

enum flow_table_type {
	TYPE_NIC_RX = 0,
	TYPE_NIC_TX = 1,
	TYPE_FDB = 4,
	TYPE_SNIFFER_RX = 5,
	TYPE_SNIFFER_TX = 6,
};

/* Bits of the commands. */
enum {
	OTHER_VPORT = 0x40,
	VPORT = 0x50,
	SELECT = 0x70, /* of MODIFY_FLOW_TABLE */
	TABLE_TYPE = 0x80,
	TABLE_ID = 0xa8,
	CONTEXT = 0xc0, /* flow_table_context */
	GROUP_TYPE = 0x8c,
	GROUP_ID = 0xc0,
	FIRST_INDEX = 0xe0,
	LAST_INDEX = 0x120,
	CRITERIA = 0x1f8,
	MASK = 0x200,
};

/* Bits of flow_table_context. */
enum { MISS_ACTION = 0x4, LEVEL = 0x8, LOG_SIZE = 0x18, MISS_ID = 0x28, SW_OWNER = 0x2 };
enum { MISS_DEFAULT = 0, MISS_FORWARD = 1 };

bool devx_flow_kind(uint32_t type, enum vb_steer_kind *kind)
{
	switch (type) {
	case TYPE_NIC_RX:
		*kind = VB_STEER_NIC_RX;
		return true;
	case TYPE_NIC_TX:
		*kind = VB_STEER_NIC_TX;
		return true;
	case TYPE_FDB:
		*kind = VB_STEER_FDB;
		return true;
	default:
		return false;
	}
}

int devx_flow_refuse(struct devx_cmd *cmd, int err, const char *why)
{
	if (err == -ENOMEM || err == -ENOSPC)
		return devx_refuse(cmd, DEVX_NO_RES, vb_refuse_memory("the flow object"));
	if (err == -EBUSY)
		return vb_refuse_busy("other flow objects");
	return why ? vb_refuse_cannot(why) : vb_refuse_combination("the engine refuses the rule");
}

/* Numbers are not given again soon, as those of other objects. */
static uint32_t devx_flow_next_number(void)
{
	static _Atomic uint32_t next;

	return 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % (NUMBERS - 1);
}

static int check_place(struct devx_cmd *cmd, enum vb_steer_kind *kind)
{
	uint32_t type = get(cmd->in, TABLE_TYPE, 8);

	if (!devx_flow_kind(type, kind))
		return vb_refuse_unsupported_value("table_type", type);
	if (get(cmd->in, OTHER_VPORT, 1) || get(cmd->in, VPORT, 16))
		return devx_refuse(cmd, DEVX_BAD_INDEX,
				   vb_refuse_value("vport_number", get(cmd->in, VPORT, 16)));
	return 0;
}

/* --- where misses go -------------------------------------------------------------------------- */

static void end_miss(struct devx_flow_table *table)
{
	if (table->miss_rule)
		vb_steer_rule_destroy(table->miss_rule);
	if (table->miss_action)
		vb_steer_action_destroy(table->miss_action);
	if (table->miss_table)
		devx_put(table->miss_table);
	table->miss_rule = NULL;
	table->miss_action = NULL;
	table->miss_table = NULL;
}

/* A rule without a value behind all groups. On error the table's misses go as before. */
static int set_miss(struct devx_cmd *cmd, struct devx_flow_table *table, const uint8_t *context)
{
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_TABLE };
	uint32_t action = get(context, MISS_ACTION, 4), id = get(context, MISS_ID, 24);
	struct vb_steer_action *steer = NULL;
	struct vb_steer_rule *rule = NULL;
	struct mlx5dv_devx_obj *to;
	const char *why = NULL;
	int err = 0;

	if (action == MISS_DEFAULT) {
		end_miss(table);
		return 0;
	}
	if (action != MISS_FORWARD)
		return vb_refuse_value("table_miss_action", action);
	to = devx_get(cmd->context, VB_DEVX_FLOW_TABLE, id);
	if (!to)
		return devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_value("table_miss_id", id));
	attr.table = ((struct devx_flow_table *)to->data)->card;
	if (!table->miss)
		err = vb_steer_matcher_create(table->card, MISS_PRIORITY, 0, NULL, 0, &table->miss,
					      &why);
	if (!err)
		err = vb_steer_action_create(&attr, &steer, &why);
	if (!err)
		err = vb_steer_rule_create(table->miss, NULL, 0, &steer, 1, 0, &rule, &why);
	if (err) {
		if (steer)
			vb_steer_action_destroy(steer);
		devx_put(to);
		return devx_flow_refuse(cmd, err,
					"the table of misses has no higher level, or another type");
	}
	end_miss(table); /* of two rules the older one counts until now */
	table->miss_rule = rule;
	table->miss_action = steer;
	table->miss_table = to;
	return 0;
}

/* --- tables ----------------------------------------------------------------------------------- */

static int devx_flow_make_table(struct devx_cmd *cmd, enum vb_steer_kind kind,
				struct devx_flow_table *table)
{
	uint32_t level = get(cmd->in, CONTEXT + LEVEL, 8);
	int err;

	table->steer = vb_flow_domain(cmd->dev, kind);
	err = table->steer ? vb_steer_table_create(table->steer, level + 1, &table->card) : -ENOMEM;
	if (err)
		return devx_flow_refuse(cmd, err, NULL);
	err = set_miss(cmd, table, table->context);
	if (err && table->miss)
		vb_steer_matcher_destroy(table->miss);
	if (err)
		vb_steer_table_destroy(table->card);
	return err;
}

static int create_table(struct devx_cmd *cmd)
{
	uint32_t log_size = get(cmd->in, CONTEXT + LOG_SIZE, 8);
	uint32_t level = get(cmd->in, CONTEXT + LEVEL, 8);
	struct devx_flow_table *table;
	enum vb_steer_kind kind = VB_STEER_NIC_RX;
	int err = check_place(cmd, &kind);

	if (err)
		return err;
	if (get(cmd->in, CONTEXT + SW_OWNER, 1))
		return vb_refuse_unsupported("a table in memory of the program (sw_owner)");
	if (log_size > DEVX_LOG_FLOW_TABLE)
		return devx_refuse(cmd, DEVX_EXCEED_LIM,
				   vb_refuse_range("log_size", log_size, 0, DEVX_LOG_FLOW_TABLE));
	if (level >= DEVX_FLOW_LEVELS)
		return devx_refuse(cmd, DEVX_EXCEED_LIM,
				   vb_refuse_range("level", level, 0, DEVX_FLOW_LEVELS - 1));
	table = calloc(1, sizeof(*table));
	if (!table)
		return vb_refuse_memory("the flow table");
	table->type = get(cmd->in, TABLE_TYPE, 8);
	table->log_size = log_size;
	memcpy(table->context, cmd->in + CONTEXT / 8, FLOW_CONTEXT_BYTES);
	err = devx_flow_make_table(cmd, kind, table);
	if (err) {
		free(table);
		return err;
	}
	cmd->obj->data = table;
	cmd->obj->number = devx_flow_next_number();
	return 0;
}

static int check_table_type(const struct devx_cmd *cmd)
{
	const struct devx_flow_table *table = cmd->obj->data;

	return get(cmd->in, TABLE_TYPE, 8) == table->type
		       ? 0
		       : vb_refuse_value("table_type", get(cmd->in, TABLE_TYPE, 8));
}

static int query_table(struct devx_cmd *cmd)
{
	struct devx_flow_table *table = cmd->obj->data;
	int err = check_table_type(cmd);

	if (err)
		return err;
	vb_lock(&table->lock);
	memcpy(cmd->out + CONTEXT / 8, table->context, FLOW_CONTEXT_BYTES);
	vb_unlock(&table->lock);
	return 0;
}

enum { SELECT_MISS = 1 };

static int modify_table(struct devx_cmd *cmd)
{
	static struct vb_lock one_at_a_time;
	const uint8_t *context = cmd->in + CONTEXT / 8;
	struct devx_flow_table *table = cmd->obj->data;
	uint32_t select = get(cmd->in, SELECT, 16);
	int err = check_table_type(cmd);

	if (err)
		return err;
	if (select & ~(uint32_t)SELECT_MISS)
		return vb_refuse_bits("modify_field_select", select & ~(uint32_t)SELECT_MISS);
	if (!select)
		return 0;
	vb_lock(&one_at_a_time);
	err = set_miss(cmd, table, context);
	vb_unlock(&one_at_a_time);
	if (err)
		return err;
	vb_lock(&table->lock);
	put(table->context, MISS_ACTION, 4, get(context, MISS_ACTION, 4));
	put(table->context, MISS_ID, 24, get(context, MISS_ID, 24));
	vb_unlock(&table->lock);
	return 0;
}

static int destroy_table(struct devx_cmd *cmd)
{
	struct devx_flow_table *table = cmd->obj->data;
	uint8_t context[FLOW_CONTEXT_BYTES];
	int err;

	/* Its own way for misses must go first, and comes back where the table cannot go. */
	memcpy(context, table->context, sizeof(context));
	if (table->groups)
		return vb_refuse_busy("flow groups");
	end_miss(table);
	if (table->miss)
		vb_steer_matcher_destroy(table->miss);
	table->miss = NULL;
	err = vb_steer_table_destroy(table->card);
	if (err) {
		set_miss(cmd, table, context);
		return vb_refuse_busy("rules or tables that lead to it");
	}
	free(table);
	return 0;
}

/* --- groups ----------------------------------------------------------------------------------- */

/* Under the table's lock. Two groups whose order would be lost are as bad as two in one place. */
static bool devx_flow_is_free(const struct devx_flow_table *table, uint32_t first, uint32_t last,
			      uint32_t shift)
{
	for (const struct devx_flow_group *g = table->groups; g; g = g->next)
		if ((first <= g->last && g->first <= last) || first >> shift == g->first >> shift)
			return false;
	return true;
}

static int make_group(struct devx_cmd *cmd, struct devx_flow_table *table,
		      struct devx_flow_group *group)
{
	uint32_t shift = table->log_size > LOG_PRIORITIES ? table->log_size - LOG_PRIORITIES : 0;
	const char *why = NULL;
	bool room;
	int err = vb_steer_matcher_create(table->card, (uint16_t)(group->first >> shift),
					  group->criteria, group->mask, sizeof(group->mask),
					  &group->card, &why);

	if (err)
		return devx_flow_refuse(cmd, err, why);
	vb_lock(&table->lock);
	room = devx_flow_is_free(table, group->first, group->last, shift);
	if (room) {
		group->next = table->groups;
		table->groups = group;
	}
	vb_unlock(&table->lock);
	if (room)
		return 0;
	vb_steer_matcher_destroy(group->card);
	return devx_refuse(cmd, DEVX_RES_BUSY,
			   vb_refuse_combination("another group has indices of this one"));
}

static int devx_flow_check_group(struct devx_cmd *cmd, const struct devx_flow_table *table)
{
	uint32_t first = get(cmd->in, FIRST_INDEX, 32), last = get(cmd->in, LAST_INDEX, 32);

	if (get(cmd->in, TABLE_TYPE, 8) != table->type)
		return vb_refuse_value("table_type", get(cmd->in, TABLE_TYPE, 8));
	if (get(cmd->in, GROUP_TYPE, 4))
		return vb_refuse_unsupported_value("group_type", get(cmd->in, GROUP_TYPE, 4));
	if (first > last || last >> table->log_size)
		return devx_refuse(cmd, DEVX_BAD_INDEX,
				   vb_refuse_range("end_flow_index", last, first,
						   (1ull << table->log_size) - 1));
	if (get(cmd->in, CRITERIA, 8) & 0x80)
		return vb_refuse_bits("match_criteria_enable", 0x80);
	return 0;
}

static int create_group(struct devx_cmd *cmd)
{
	uint32_t id = get(cmd->in, TABLE_ID, 24);
	struct mlx5dv_devx_obj *table = devx_get(cmd->context, VB_DEVX_FLOW_TABLE, id);
	struct devx_flow_group *group = NULL;
	int err;

	if (!table)
		return devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_value("table_id", id));
	err = devx_flow_check_group(cmd, table->data);
	if (!err) {
		group = calloc(1, sizeof(*group));
		err = group ? 0 : vb_refuse_memory("the flow group");
	}
	if (!err) {
		group->table = table;
		group->first = get(cmd->in, FIRST_INDEX, 32);
		group->last = get(cmd->in, LAST_INDEX, 32);
		group->criteria = (uint8_t)get(cmd->in, CRITERIA, 8);
		memcpy(group->mask, cmd->in + MASK / 8, sizeof(group->mask));
		err = make_group(cmd, table->data, group);
	}
	if (err) {
		free(group);
		devx_put(table);
		return err;
	}
	cmd->obj->data = group;
	cmd->obj->number = devx_flow_next_number();
	return 0;
}

static int query_group(struct devx_cmd *cmd)
{
	const struct devx_flow_group *group = cmd->obj->data;

	if (get(cmd->in, TABLE_ID, 24) != group->table->number)
		return devx_refuse(cmd, DEVX_BAD_RES,
				   vb_refuse_value("table_id", get(cmd->in, TABLE_ID, 24)));
	put(cmd->out, FIRST_INDEX, 32, group->first);
	put(cmd->out, LAST_INDEX, 32, group->last);
	put(cmd->out, CRITERIA, 8, group->criteria);
	memcpy(cmd->out + MASK / 8, group->mask, sizeof(group->mask));
	return 0;
}

static int destroy_group(struct devx_cmd *cmd)
{
	struct devx_flow_group *group = cmd->obj->data, **at;
	struct devx_flow_table *table = group->table->data;
	int err = vb_steer_matcher_destroy(group->card);

	if (err)
		return vb_refuse_busy("flow entries");
	vb_lock(&table->lock);
	for (at = &table->groups; *at != group; at = &(*at)->next)
		;
	*at = group->next;
	vb_unlock(&table->lock);
	devx_put(group->table);
	free(group);
	return 0;
}

int devx_flow_table_action(struct mlx5dv_devx_obj *obj, struct mlx5dv_dr_action **action)
{
	struct vb_steer_action_attr attr = {
		.what = VB_STEER_DO_TABLE,
		.table = ((struct devx_flow_table *)obj->data)->card,
	};

	return dr_action_make(DR_TABLE, &attr, action);
}

const struct devx_row devx_flow_rows[] = {
	{ "CREATE_FLOW_TABLE", 0x930, 0, DEVX_CREATE, VB_DEVX_FLOW_TABLE, 64, 16, DEVX_NUMBER,
	  create_table },
	{ "DESTROY_FLOW_TABLE", 0x931, 0, DEVX_DESTROY, VB_DEVX_FLOW_TABLE, 64, 16, TABLE_ID,
	  destroy_table },
	{ "QUERY_FLOW_TABLE", 0x932, 0, DEVX_QUERY, VB_DEVX_FLOW_TABLE, 64, 64, TABLE_ID,
	  query_table },
	{ "MODIFY_FLOW_TABLE", 0x93c, 0, DEVX_MODIFY, VB_DEVX_FLOW_TABLE, 64, 16, TABLE_ID,
	  modify_table },
	{ "CREATE_FLOW_GROUP", 0x933, 0, DEVX_CREATE, VB_DEVX_FLOW_GROUP, 1024, 16, DEVX_NUMBER,
	  create_group },
	{ "DESTROY_FLOW_GROUP", 0x934, 0, DEVX_DESTROY, VB_DEVX_FLOW_GROUP, 64, 16, GROUP_ID,
	  destroy_group },
	{ "QUERY_FLOW_GROUP", 0x935, 0, DEVX_QUERY, VB_DEVX_FLOW_GROUP, 64, 1024, GROUP_ID,
	  query_group },
	{ 0 },
};

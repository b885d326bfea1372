/* SPDX-License-Identifier: MIT */
/*
 * Flow tables, groups and entries by command (DEVX) over the rules engine (steer/steer.h).
 *
 *	flow table   table of the engine, one level deeper than the command says: the engine's
 *	             level 0 is where frames enter, and a table of a command is entered from there
 *	flow group   matcher; its priority is its first index, so the lowest index that matches wins
 *	flow entry   rule
 *	a miss       goes where the table says: a matcher behind all groups leads there
 */
#pragma once

#include "base/lock.h"
#include "card/ether/flow.h"
#include "devx_table.h"

struct mlx5dv_dr_action;

enum { FLOW_CONTEXT_BYTES = 40, FLOW_MATCH_BYTES = VB_STEER_PARAM };

struct devx_flow_table {
	struct vb_steer *steer;
	struct vb_steer_table *card;
	uint32_t type; /* of the manual */
	uint32_t log_size;
	uint8_t context[FLOW_CONTEXT_BYTES]; /* as it was made, or modified */
	struct vb_lock lock;                 /* of what follows */
	struct devx_flow_group *groups;
	struct vb_steer_matcher *miss; /* NULL: none yet */
	struct vb_steer_rule *miss_rule;
	struct vb_steer_action *miss_action;
	struct mlx5dv_devx_obj *miss_table; /* held */
};

struct devx_flow_group {
	struct devx_flow_group *next; /* of the table */
	struct mlx5dv_devx_obj *table;
	struct vb_steer_matcher *card;
	uint32_t first, last; /* indices */
	uint8_t criteria;
	uint8_t mask[FLOW_MATCH_BYTES];
	struct vb_lock lock;
	struct devx_flow_entry *entries; /* under the lock */
};

/* devx_flow_action.c: what is behind modify-header and reformat contexts. */
static inline struct vb_steer_action *devx_flow_context(const struct mlx5dv_devx_obj *obj)
{
	return obj->data;
}

/* A rule of mlx5dv_create_flow() leads to the table. */
int devx_flow_table_action(struct mlx5dv_devx_obj *obj, struct mlx5dv_dr_action **action);
/* Refuse as the engine did, which said why (or NULL). */
int devx_flow_refuse(struct devx_cmd *cmd, int err, const char *why);
/* The kind of tables of a type; false: there are none. */
bool devx_flow_kind(uint32_t type, enum vb_steer_kind *kind);

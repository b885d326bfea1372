/* SPDX-License-Identifier: MIT */
/*
 * What the files about steering share: handles of mlx5dv_dr_* over the rules engine
 * (steer/steer.h).
 *
 *	mlx5dv_dr_domain --- vb_steer: the adapter's rules of a kind, shared by a process's domains
 *	  mlx5dv_dr_table --- vb_steer_table
 *	    mlx5dv_dr_matcher --- vb_steer_matcher
 *	      mlx5dv_dr_rule --- vb_steer_rule
 *	mlx5dv_dr_action --- vb_steer_action
 *
 * The engine counts who uses what and says EBUSY. Added here: what the API refuses by level and
 * kind of domain, and holds on what rules lead to. A rule, or an array, holds the TIR and the
 * counters; an action alone holds none, so that a program may destroy a TIR before the action, as
 * with hardware.
 *
 * When its context is closed, a domain loses all rules, matchers and tables, and what leads to queues
 * or tables of the context ends: `steer` is NULL in the structs that the program still has, which it
 * may destroy. A rule, and an action for a queue pair, of another context keeps the context of the
 * queue that it leads to (vb_verbs_hold()).
 */
#pragma once

#include <stdatomic.h>

#include "base/lock.h"
#include "base/util.h"
#include "card/ether/flow.h"
#include "devx_obj.h"
#include "devx_table.h"
#include "mlx5.h"

struct mlx5dv_dr_domain {
	struct devx_left left; /* of its context */
	struct vb_dev *dev;
	struct vb_steer *steer;
	enum mlx5dv_dr_domain_type type;
	_Atomic bool unique;        /* no duplicate rules, below the root */
	_Atomic unsigned int users; /* tables, and actions that belong to it */
	struct vb_lock lock;        /* of the lists */
	struct vb_list tables;
};

struct mlx5dv_dr_table {
	struct mlx5dv_dr_domain *domain;
	struct vb_steer_table *steer;
	struct vb_list node; /* of the domain */
	struct vb_list matchers;
};

struct mlx5dv_dr_matcher {
	struct mlx5dv_dr_table *table;
	struct vb_steer_matcher *steer;
	struct vb_list node; /* of the table */
	struct vb_list rules;
};

/* What a rule or an array leads to and keeps from going; NULL: no such thing. */
struct dr_hold {
	struct vb_tir *tir;
	struct devx_counters *counters;
};

struct mlx5dv_dr_rule {
	struct mlx5dv_dr_matcher *matcher; /* NULL: of mlx5dv_create_flow() */
	struct vb_list node;               /* of the matcher */
	struct vb_steer_rule *steer;
	struct dr_hold hold;
};

enum dr_type {
	DR_ARRAY,
	DR_COUNTER,
	DR_DROP,
	DR_MISS,
	DR_MODIFY,
	DR_POP_VLAN,
	DR_PUSH_VLAN,
	DR_QP,
	DR_REFORMAT,
	DR_TABLE,
	DR_TAG,
	DR_TIR,
	DR_VPORT,
};

struct mlx5dv_dr_action {
	enum dr_type type;
	bool root;                       /* DR_MODIFY, DR_REFORMAT: for level 0, and only there */
	bool encap;                      /* DR_REFORMAT */
	struct mlx5dv_dr_domain *domain; /* it is for rules of this one; NULL: of any */
	bool holds_domain;
	struct vb_steer_action *steer; /* NULL: its context is closed */
	struct devx_left left; /* DR_QP: of the queue's context; DR_TABLE, DR_ARRAY: the domain's */
	union {
		struct vb_qp *qp; /* DR_QP: held */
		struct {
			struct vb_tir *tir; /* DR_TIR: not held, may be gone */
			uint32_t number;
		};
		struct devx_counters
			*counters; /* DR_COUNTER: the memory stays; NULL: a flow's own */
		struct {
			struct dr_hold *holds; /* DR_ARRAY */
			uint32_t count;
		};
	};
};

/* Refuse as the engine did, which said why (or NULL). Returns -errno. */
int dr_refuse(int err, const char *why);

/* --- dr_action.c ------------------------------------------------------------------------------ */

/* All return 0 or -errno after a line in the log. */
int dr_action_make(enum dr_type type, const struct vb_steer_action_attr *attr,
		   struct mlx5dv_dr_action **action);
int dr_action_qp(struct ibv_qp *qp, struct mlx5dv_dr_action **action);
int dr_action_tir(struct mlx5dv_devx_obj *obj, struct mlx5dv_dr_action **action);
int dr_action_counter(struct mlx5dv_devx_obj *obj, uint32_t offset,
		      struct mlx5dv_dr_action **action);
int dr_action_modify(size_t bytes, const void *actions, struct mlx5dv_dr_action **action);
int dr_action_reformat(enum vb_steer_kind kind, enum mlx5dv_flow_action_packet_reformat_type type,
		       size_t bytes, const void *data, struct mlx5dv_dr_action **action);
/*
 * It leads to something of this context, and ends with it. -ENOMEM: it cannot, and is gone.
 */
int dr_action_bind(struct mlx5dv_dr_action *action, struct ibv_context *context);
/* -EBUSY: rules or arrays use it. */
int dr_action_end(struct mlx5dv_dr_action *action);

int dr_hold_take(struct vb_dev *dev, const struct mlx5dv_dr_action *action, struct dr_hold *hold);
void dr_hold_drop(struct dr_hold *hold);

/* --- dr_rule.c -------------------------------------------------------------------------------- */

struct dr_rule_attr {
	struct vb_dev *dev;
	struct vb_steer_matcher *matcher;
	const struct mlx5dv_dr_domain *domain; /* of the matcher; NULL: of mlx5dv_create_flow() */
	const struct mlx5dv_flow_match_parameters *value;
	size_t count;
	struct mlx5dv_dr_action *const *actions;
	unsigned int flags; /* enum vb_steer_rule_flags */
};

int dr_rule_make(const struct dr_rule_attr *attr, struct mlx5dv_dr_rule *rule);
/* No effect where it has ended already. */
void dr_rule_end(struct mlx5dv_dr_rule *rule);

static inline enum vb_steer_kind dr_kind(enum mlx5dv_dr_domain_type type)
{
	switch (type) {
	case MLX5DV_DR_DOMAIN_TYPE_NIC_RX:
		return VB_STEER_NIC_RX;
	case MLX5DV_DR_DOMAIN_TYPE_NIC_TX:
		return VB_STEER_NIC_TX;
	default:
		return VB_STEER_FDB;
	}
}

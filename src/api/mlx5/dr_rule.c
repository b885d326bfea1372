// SPDX-License-Identifier: MIT
/*
 * Rules. What the engine does not refuse, because it knows neither levels of the API nor kinds of
 * destinations, is refused here:
 *
 *	                            level 0                     deeper
 *	vport, IB port, VLAN        ENOTSUP                     FDB; VLAN: everywhere
 *	TIR, QP, tag                NIC_RX, else EINVAL         NIC_RX, else EOPNOTSUPP
 *	modify, reformat            made with ROOT_LEVEL        made without; else EINVAL
 *	of another domain           EINVAL                      EINVAL
 */
#include "dr.h"

enum { DEEP_PARAM = 448 };

/* --- what a rule can have --------------------------------------------------------------------- */

struct place {
	const struct mlx5dv_dr_domain *domain;
	enum vb_steer_kind kind;
	uint32_t level;
};

static int check_action(const struct place *place, const struct mlx5dv_dr_action *action)
{
	bool root = !place->level;

	if (!action)
		return vb_refuse_null("an action");
	if (!action->steer)
		return vb_refuse_combination("the context of an action is closed");
	if (action->domain && action->domain != place->domain)
		return vb_refuse_combination("an action belongs to another domain");
	switch (action->type) {
	case DR_VPORT:
		if (root)
			return vb_refuse_cannot("a vport or IB port in a rule of level 0");
		return place->kind == VB_STEER_FDB ? 0 : vb_refuse_cannot("vports are for FDB");
	case DR_PUSH_VLAN:
	case DR_POP_VLAN:
		return root ? vb_refuse_cannot("VLAN push or pop in a rule of level 0") : 0;
	case DR_QP:
	case DR_TIR:
	case DR_TAG:
		if (place->kind == VB_STEER_NIC_RX)
			return 0;
		return root ? vb_refuse_combination("QP, TIR and tag are for NIC_RX")
			    : vb_refuse_cannot("QP, TIR and tag are for NIC_RX");
	case DR_MODIFY:
	case DR_REFORMAT:
		if (action->root == root)
			return 0;
		return vb_refuse_combination(root ? "the action was made for deeper levels"
						  : "the action was made for level 0");
	default:
		return 0;
	}
}

static int dr_rule_check_value(const struct dr_rule_attr *attr, uint32_t level)
{
	size_t len = attr->value ? attr->value->match_sz : 0;

	if (!level)
		return len > VB_STEER_PARAM
			       ? vb_refuse_range("match_sz of the value", len, 0, VB_STEER_PARAM)
			       : 0;
	if (!len || len > DEEP_PARAM)
		return vb_refuse_range("match_sz of the value", len, 4, DEEP_PARAM);
	return len % 4 ? vb_refuse_combination("match_sz of the value is no multiple of 4") : 0;
}

static int dr_rule_check(const struct dr_rule_attr *attr)
{
	struct vb_steer_table *table = vb_steer_matcher_table(attr->matcher);
	struct place place = { attr->domain, vb_steer_kind(vb_steer_table_domain(table)),
			       vb_steer_table_level(table) };
	int err = dr_rule_check_value(attr, place.level);

	if (!err && attr->count > VB_STEER_MAX_ACTIONS)
		err = vb_refuse_range("num_actions", attr->count, 0, VB_STEER_MAX_ACTIONS);
	if (!err && attr->count && !attr->actions)
		err = vb_refuse_null("actions");
	for (size_t i = 0; !err && i < attr->count; i++)
		err = check_action(&place, attr->actions[i]);
	return err;
}

/* --- create and destroy ----------------------------------------------------------------------- */

/*
 * Of two actions of a kind the engine refuses the rule; so there is one TIR and one counter at
 * most.
 */
static int take_holds(const struct dr_rule_attr *attr, struct dr_hold *hold)
{
	int err = 0;

	for (size_t i = 0; !err && i < attr->count; i++) {
		if ((attr->actions[i]->type == DR_TIR && hold->tir) ||
		    (attr->actions[i]->type == DR_COUNTER && hold->counters))
			err = vb_refuse_combination("more than one action of a kind");
		else
			err = dr_hold_take(attr->dev, attr->actions[i], hold);
	}
	return err;
}

int dr_rule_make(const struct dr_rule_attr *attr, struct mlx5dv_dr_rule *rule)
{
	struct vb_steer_action *actions[VB_STEER_MAX_ACTIONS];
	const char *why = NULL;
	int err = dr_rule_check(attr);

	if (err)
		return err;
	rule->matcher = NULL;
	rule->hold = (struct dr_hold){ 0 };
	err = take_holds(attr, &rule->hold);
	for (size_t i = 0; i < attr->count; i++)
		actions[i] = attr->actions[i]->steer;
	if (!err) {
		err = vb_steer_rule_create(attr->matcher,
					   attr->value ? attr->value->match_buf : NULL,
					   attr->value ? attr->value->match_sz : 0, actions,
					   attr->count, attr->flags, &rule->steer, &why);
		if (err)
			err = dr_refuse(err, why);
	}
	if (err)
		dr_hold_drop(&rule->hold);
	return err;
}

void dr_rule_end(struct mlx5dv_dr_rule *rule)
{
	if (!rule->steer)
		return;
	vb_steer_rule_destroy(rule->steer);
	rule->steer = NULL;
	dr_hold_drop(&rule->hold);
}

VB_PUBLIC struct mlx5dv_dr_rule *mlx5dv_dr_rule_create(struct mlx5dv_dr_matcher *matcher,
						       struct mlx5dv_flow_match_parameters *value,
						       size_t num_actions,
						       struct mlx5dv_dr_action *actions[])
{
	struct dr_rule_attr attr = { .value = value, .count = num_actions, .actions = actions };
	struct mlx5dv_dr_rule *rule;
	int err;

	API_CALL(.kind = "rule");
	if (!matcher)
		return api_refuse_null(null, "matcher");
	if (!matcher->steer)
		return api_refuse_null(combination, "the context is closed");
	attr.domain = matcher->table->domain;
	attr.dev = attr.domain->dev;
	attr.matcher = matcher->steer;
	if (vb_steer_table_level(matcher->table->steer) &&
	    atomic_load_explicit(&attr.domain->unique, memory_order_relaxed))
		attr.flags = VB_STEER_UNIQUE;
	rule = malloc(sizeof(*rule));
	if (!rule)
		return api_refuse_null(memory, "the rule");
	err = dr_rule_make(&attr, rule);
	if (err) {
		free(rule);
		return api_null(-err);
	}
	rule->matcher = matcher;
	vb_lock(&matcher->table->domain->lock);
	vb_list_add_tail(&matcher->rules, &rule->node);
	vb_unlock(&matcher->table->domain->lock);
	return rule;
}

VB_PUBLIC int mlx5dv_dr_rule_destroy(struct mlx5dv_dr_rule *rule)
{
	API_CALL(.kind = "rule");
	if (!rule)
		return api_refuse(null, "rule");
	if (rule->steer) {
		struct mlx5dv_dr_domain *domain = rule->matcher->table->domain;

		vb_lock(&domain->lock);
		vb_list_del(&rule->node);
		vb_unlock(&domain->lock);
	}
	dr_rule_end(rule);
	free(rule);
	return 0;
}

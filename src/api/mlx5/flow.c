// SPDX-License-Identifier: MIT
/*
 * The older calls for flows: rules of the root tables, with their actions given by kind. A matcher
 * has a table of level 0 for itself, which is one with all others of that level; a flow owns the
 * actions that are made for it.
 */
#include "devx_flow.h"
#include "dr.h"

struct mlx5dv_flow_matcher {
	struct devx_left left; /* of its context */
	struct vb_steer_table *table;
	struct vb_steer_matcher *steer;
};

struct flow {
	struct vb_verbs_flow verbs; /* first */
	struct devx_left left;      /* of its context */
	struct mlx5dv_dr_rule rule;
	struct ibv_counters *counters; /* held; or NULL */
	size_t count;                  /* of its own actions */
	struct mlx5dv_dr_action *own[VB_STEER_MAX_ACTIONS];
};

struct flow_action {
	struct vb_verbs_flow_action verbs; /* first */
	struct mlx5dv_dr_action *dr;
	enum vb_steer_kind kind;
};

/* --- matchers --------------------------------------------------------------------------------- */

static int mlx5_flow_kind_of(enum mlx5dv_flow_table_type type, enum vb_steer_kind *kind)
{
	switch (type) {
	case MLX5DV_FLOW_TABLE_TYPE_NIC_RX:
		*kind = VB_STEER_NIC_RX;
		return 0;
	case MLX5DV_FLOW_TABLE_TYPE_NIC_TX:
		*kind = VB_STEER_NIC_TX;
		return 0;
	case MLX5DV_FLOW_TABLE_TYPE_FDB:
		*kind = VB_STEER_FDB;
		return 0;
	case MLX5DV_FLOW_TABLE_TYPE_RDMA_RX:
	case MLX5DV_FLOW_TABLE_TYPE_RDMA_TX:
		return vb_refuse_unsupported("a flow table of RDMA");
	default:
		return vb_refuse_value("ft_type", (unsigned int)type);
	}
}

static int check_matcher(const struct mlx5dv_flow_matcher_attr *attr, enum vb_steer_kind *kind)
{
	bool egress = attr->flags & IBV_FLOW_ATTR_FLAGS_EGRESS;

	if (attr->comp_mask & ~(uint64_t)MLX5DV_FLOW_MATCHER_MASK_FT_TYPE)
		return vb_refuse_unsupported_value("comp_mask", attr->comp_mask);
	if (attr->type != IBV_FLOW_ATTR_NORMAL)
		return vb_refuse_unsupported_value("type", (unsigned int)attr->type);
	if (attr->flags & ~(uint32_t)IBV_FLOW_ATTR_FLAGS_EGRESS)
		return vb_refuse_unsupported_value("flags", attr->flags);
	if (!attr->match_mask)
		return vb_refuse_null("match_mask");
	if (attr->match_mask->match_sz > VB_STEER_PARAM)
		return vb_refuse_range("match_sz of the mask", attr->match_mask->match_sz, 0,
				       VB_STEER_PARAM);
	if (attr->comp_mask && egress)
		return vb_refuse_combination("ft_type together with IBV_FLOW_ATTR_FLAGS_EGRESS");
	*kind = egress ? VB_STEER_NIC_TX : VB_STEER_NIC_RX;
	return attr->comp_mask ? mlx5_flow_kind_of(attr->ft_type, kind) : 0;
}

static int make_matcher(struct mlx5dv_flow_matcher *matcher, struct vb_steer *steer,
			const struct mlx5dv_flow_matcher_attr *attr)
{
	const char *why = NULL;
	int err = vb_steer_table_create(steer, 0, &matcher->table);

	if (err)
		return dr_refuse(err, "the table");
	err = vb_steer_matcher_create(matcher->table, attr->priority, attr->match_criteria_enable,
				      attr->match_mask->match_buf, attr->match_mask->match_sz,
				      &matcher->steer, &why);
	if (!err)
		return 0;
	vb_steer_table_destroy(matcher->table);
	return err == -EOPNOTSUPP ? vb_refuse_unsupported(why) : dr_refuse(err, why);
}

/* -EBUSY: it has flows. */
static int mlx5_flow_matcher_close(struct devx_left *left)
{
	struct mlx5dv_flow_matcher *matcher = container_of(left, struct mlx5dv_flow_matcher, left);
	int err = vb_steer_matcher_destroy(matcher->steer);

	if (err)
		return err;
	matcher->steer = NULL;
	vb_steer_table_destroy(matcher->table); /* nothing else uses it */
	return 0;
}

VB_PUBLIC struct mlx5dv_flow_matcher *
mlx5dv_create_flow_matcher(struct ibv_context *context,
			   struct mlx5dv_flow_matcher_attr *matcher_attr)
{
	struct mlx5dv_flow_matcher *matcher;
	enum vb_steer_kind kind;
	struct vb_steer *steer;
	int err;

	API_CALL(API_DEVICE(context));
	if (!context || !matcher_attr)
		return api_refuse_null(null, "context or matcher_attr");
	if (!mlx5dv_is_supported(context->device))
		return api_refuse_null(not_mlx, "mlx5");
	err = check_matcher(matcher_attr, &kind);
	if (err)
		return api_null(-err);
	matcher = calloc(1, sizeof(*matcher));
	steer = vb_flow_domain(vb_verbs_dev(context), kind);
	err = matcher && steer ? make_matcher(matcher, steer, matcher_attr)
			       : vb_refuse_memory("the matcher");
	if (err) {
		free(matcher);
		return api_null(-err);
	}
	matcher->left.end = mlx5_flow_matcher_close;
	if (!devx_left_add(context, &matcher->left)) {
		mlx5_flow_matcher_close(&matcher->left);
		free(matcher);
		return api_refuse_null(memory, "the matcher");
	}
	return matcher;
}

VB_PUBLIC int mlx5dv_destroy_flow_matcher(struct mlx5dv_flow_matcher *matcher)
{
	int err;

	API_CALL(.kind = "matcher");
	if (!matcher)
		return api_refuse(null, "matcher");
	err = matcher->steer ? mlx5_flow_matcher_close(&matcher->left) : 0;
	if (err)
		return api_fail(-dr_refuse(err, "flows"));
	devx_left_remove(&matcher->left);
	free(matcher);
	return 0;
}

/* --- flow actions ----------------------------------------------------------------------------- */

static int destroy_flow_action(struct vb_verbs_flow_action *verbs)
{
	struct flow_action *action = (struct flow_action *)verbs;
	int err = dr_action_end(action->dr);

	if (err)
		return -err;
	free(action);
	return 0;
}

/* An action is nothing of the adapter's: programs close the device and leave it behind. */
static struct ibv_flow_action *wrap(struct ibv_context *context, enum vb_steer_kind kind,
				    struct mlx5dv_dr_action *dr)
{
	struct flow_action *action = calloc(1, sizeof(*action));

	if (!action) {
		dr_action_end(dr);
		return api_refuse_null(memory, "the flow action");
	}
	dr->root = true;
	action->dr = dr;
	action->kind = kind;
	action->verbs.ibv.context = context;
	action->verbs.destroy = destroy_flow_action;
	return &action->verbs.ibv;
}

static int check_action_context(struct ibv_context *context, enum mlx5dv_flow_table_type type,
				enum vb_steer_kind *kind)
{
	if (!context)
		return vb_refuse_null("ctx");
	if (!mlx5dv_is_supported(context->device))
		return vb_refuse_not_mlx("mlx5");
	return mlx5_flow_kind_of(type, kind);
}

VB_PUBLIC struct ibv_flow_action *
mlx5dv_create_flow_action_modify_header(struct ibv_context *ctx, size_t actions_sz,
					uint64_t actions[], enum mlx5dv_flow_table_type ft_type)
{
	struct mlx5dv_dr_action *dr = NULL;
	enum vb_steer_kind kind;
	int err;

	API_CALL(API_DEVICE(ctx));
	err = check_action_context(ctx, ft_type, &kind);
	if (!err)
		err = dr_action_modify(actions_sz, actions, &dr);
	return err ? api_null(-err) : wrap(ctx, kind, dr);
}

VB_PUBLIC struct ibv_flow_action *mlx5dv_create_flow_action_packet_reformat(
	struct ibv_context *ctx, size_t data_sz, void *data,
	enum mlx5dv_flow_action_packet_reformat_type reformat_type,
	enum mlx5dv_flow_table_type ft_type)
{
	struct mlx5dv_dr_action *dr = NULL;
	enum vb_steer_kind kind;
	int err;

	API_CALL(API_DEVICE(ctx));
	err = check_action_context(ctx, ft_type, &kind);
	if (!err)
		err = dr_action_reformat(kind, reformat_type, data_sz, data, &dr);
	return err ? api_null(-err) : wrap(ctx, kind, dr);
}

/* --- flows ------------------------------------------------------------------------------------ */

static int shared_action(struct ibv_flow_action *given, enum vb_steer_kind kind,
			 struct mlx5dv_dr_action **out)
{
	struct flow_action *action = (struct flow_action *)given;

	if (!action)
		return vb_refuse_null("action");
	if (action->verbs.destroy != destroy_flow_action)
		return vb_refuse_unsupported("a flow action that is no header modification");
	if (action->kind != kind)
		return vb_refuse_combination("the flow action is for another flow table");
	*out = action->dr;
	return 0;
}

static const struct vb_verbs_objects *objects_of(struct ibv_context *context)
{
	return vb_verbs_private(context)->objects;
}

/* Counters of verbs; what is read of them is said there, before the flow. */
static int count_action(struct flow *flow, struct ibv_context *context,
			struct ibv_counters *counters, struct mlx5dv_dr_action **out)
{
	struct vb_steer_action_attr steer = { .what = VB_STEER_DO_COUNT };

	if (!counters || counters->context != context || flow->counters)
		return vb_refuse_combination("a flow has one set of counters, of its own context");
	steer.counter = objects_of(context)->get_counters(counters);
	flow->counters = counters;
	return dr_action_make(DR_COUNTER, &steer, out);
}

/* own: it was made for this flow. */
static int make_action(struct flow *flow, const struct mlx5dv_flow_matcher *matcher,
		       const struct mlx5dv_flow_action_attr *attr, struct mlx5dv_dr_action **out,
		       bool *own)
{
	enum vb_steer_kind kind = vb_steer_kind(vb_steer_table_domain(matcher->table));
	struct vb_steer_action_attr steer = { 0 };

	*own = true;
	switch (attr->type) {
	case MLX5DV_FLOW_ACTION_DEST_IBV_QP:
		return dr_action_qp(attr->qp, out);
	case MLX5DV_FLOW_ACTION_DEST_DEVX:
		return vb_devx_is(attr->obj, VB_DEVX_FLOW_TABLE)
			       ? devx_flow_table_action(attr->obj, out)
			       : dr_action_tir(attr->obj, out);
	case MLX5DV_FLOW_ACTION_COUNTERS_DEVX:
		return dr_action_counter(attr->obj, 0, out);
	case MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION:
		*own = false;
		return shared_action(attr->action, kind, out);
	case MLX5DV_FLOW_ACTION_TAG:
		steer.what = VB_STEER_DO_TAG;
		steer.tag = attr->tag_value;
		return dr_action_make(DR_TAG, &steer, out);
	case MLX5DV_FLOW_ACTION_DROP:
		steer.what = VB_STEER_DO_DROP;
		return dr_action_make(DR_DROP, &steer, out);
	case MLX5DV_FLOW_ACTION_DEFAULT_MISS:
		steer.what = VB_STEER_DO_MISS;
		return dr_action_make(DR_MISS, &steer, out);
	case MLX5DV_FLOW_ACTION_IBV_COUNTER:
		return count_action(flow, matcher->left.context, attr->counter, out);
	default:
		return vb_refuse_unsupported_value("the type of an action",
						   (unsigned int)attr->type);
	}
}

static void end_actions(struct flow *flow)
{
	while (flow->count)
		dr_action_end(flow->own[--flow->count]);
	if (flow->counters)
		objects_of(flow->counters->context)->put_counters(flow->counters);
	flow->counters = NULL;
}

static int flow_close(struct devx_left *left)
{
	struct flow *flow = container_of(left, struct flow, left);

	dr_rule_end(&flow->rule);
	end_actions(flow);
	return 0;
}

static int destroy_flow(struct vb_verbs_flow *verbs)
{
	struct flow *flow = (struct flow *)verbs;

	if (!devx_left_remove(&flow->left))
		flow_close(&flow->left);
	free(flow);
	return 0;
}

static int make_flow(struct flow *flow, struct mlx5dv_flow_matcher *matcher,
		     const struct mlx5dv_flow_match_parameters *value, size_t count,
		     const struct mlx5dv_flow_action_attr *attrs)
{
	struct mlx5dv_dr_action *actions[VB_STEER_MAX_ACTIONS];
	struct dr_rule_attr rule = { .dev = vb_verbs_dev(matcher->left.context),
				     .matcher = matcher->steer,
				     .value = value,
				     .count = count,
				     .actions = actions };
	int err = 0;
	bool own;

	for (size_t i = 0; !err && i < count; i++) {
		err = make_action(flow, matcher, &attrs[i], &actions[i], &own);
		if (!err && own)
			flow->own[flow->count++] = actions[i];
	}
	if (!err)
		err = dr_rule_make(&rule, &flow->rule);
	if (err)
		end_actions(flow);
	return err;
}

VB_PUBLIC struct ibv_flow *mlx5dv_create_flow(struct mlx5dv_flow_matcher *matcher,
					      struct mlx5dv_flow_match_parameters *match_value,
					      size_t num_actions,
					      struct mlx5dv_flow_action_attr actions_attr[])
{
	struct flow *flow;
	int err;

	API_CALL(.kind = "flow");
	if (!matcher || !match_value || (num_actions && !actions_attr))
		return api_refuse_null(null, "flow_matcher, match_value or actions_attr");
	if (!matcher->left.context)
		return api_refuse_null(combination, "the context is closed");
	if (num_actions > VB_STEER_MAX_ACTIONS)
		return api_refuse_null(range, "num_actions", num_actions, 0, VB_STEER_MAX_ACTIONS);
	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return api_refuse_null(memory, "the flow");
	err = make_flow(flow, matcher, match_value, num_actions, actions_attr);
	if (err) {
		free(flow);
		return api_null(-err);
	}
	flow->verbs.ibv.context = matcher->left.context;
	flow->verbs.destroy = destroy_flow;
	flow->left.end = flow_close;
	/* The matcher is in the list, so that this cannot fail. */
	devx_left_add(matcher->left.context, &flow->left);
	return &flow->verbs.ibv;
}

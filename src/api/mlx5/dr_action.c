// SPDX-License-Identifier: MIT
/* Actions that do not decide where a frame goes; those that do are in dr_dest.c. */
#include "dr.h"

#include <endian.h>

enum { MODIFY_BYTES = 8 };

/* --- for all actions -------------------------------------------------------------------------- */

int dr_action_make(enum dr_type type, const struct vb_steer_action_attr *attr,
		   struct mlx5dv_dr_action **out)
{
	struct mlx5dv_dr_action *action = calloc(1, sizeof(*action));
	const char *why = NULL;
	int err;

	if (!action)
		return vb_refuse_memory("the action");
	action->type = type;
	err = vb_steer_action_create(attr, &action->steer, &why);
	if (err) {
		free(action);
		return err == -EOPNOTSUPP ? vb_refuse_unsupported(why) : dr_refuse(err, why);
	}
	*out = action;
	return 0;
}

/* From now on it is for rules of this domain, which cannot go before it. */
static void bind_domain(struct mlx5dv_dr_action *action, struct mlx5dv_dr_domain *domain)
{
	action->domain = domain;
	action->holds_domain = true;
	atomic_fetch_add_explicit(&domain->users, 1, memory_order_relaxed);
}

/* It leads nowhere any more; -EBUSY: rules or arrays use it. */
static int action_close(struct devx_left *left)
{
	struct mlx5dv_dr_action *action = container_of(left, struct mlx5dv_dr_action, left);
	int err = vb_steer_action_destroy(action->steer);

	if (err)
		return err;
	action->steer = NULL;
	if (action->type == DR_QP) {
		vb_flow_release_qp(action->qp);
		vb_verbs_release(left->context, NULL);
	}
	if (action->type == DR_ARRAY)
		for (uint32_t i = 0; i < action->count; i++)
			dr_hold_drop(&action->holds[i]);
	return 0;
}

int dr_action_bind(struct mlx5dv_dr_action *action, struct ibv_context *context)
{
	action->left.end = action_close;
	if (devx_left_add(context, &action->left))
		return 0;
	vb_steer_action_destroy(action->steer);
	free(action);
	return vb_refuse_memory("the action");
}

int dr_action_end(struct mlx5dv_dr_action *action)
{
	/* Out of the list first: with it the context may go. */
	bool bound = !devx_left_remove(&action->left);
	int err = action->steer ? action_close(&action->left) : 0;

	if (err) {
		if (bound)
			devx_left_add(action->left.context, &action->left);
		return dr_refuse(err, "rules, or arrays of destinations");
	}
	if (action->type == DR_COUNTER && action->counters)
		devx_counters_put(action->counters);
	if (action->type == DR_ARRAY)
		free(action->holds);
	if (action->holds_domain)
		atomic_fetch_sub_explicit(&action->domain->users, 1, memory_order_release);
	free(action);
	return 0;
}

VB_PUBLIC int mlx5dv_dr_action_destroy(struct mlx5dv_dr_action *action)
{
	API_CALL(.kind = "action");
	if (!action)
		return api_refuse(null, "action");
	return api_status(dr_action_end(action));
}

/* --- what rules lead to ----------------------------------------------------------------------- */

int dr_hold_take(struct vb_dev *dev, const struct mlx5dv_dr_action *action, struct dr_hold *hold)
{
	struct vb_tir *tir;

	if (action->type == DR_COUNTER && action->counters) {
		hold->counters = action->counters;
		atomic_fetch_add_explicit(&hold->counters->users, 1, memory_order_relaxed);
	}
	if (action->type == DR_QP && !vb_flow_reaches_qp(dev, action->qp))
		return vb_refuse_combination("the queue pair is on another device");
	if (action->type != DR_TIR)
		return 0;
	tir = vb_tir_get(dev, action->number);
	if (tir != action->tir) {
		if (tir)
			vb_tir_put(tir);
		return vb_refuse_combination("the TIR is gone, or on another device");
	}
	hold->tir = tir;
	vb_verbs_hold(vb_tir_owner(tir), NULL);
	return 0;
}

void dr_hold_drop(struct dr_hold *hold)
{
	if (hold->tir) {
		struct ibv_context *owner = vb_tir_owner(hold->tir);

		vb_tir_put(hold->tir);
		vb_verbs_release(owner, NULL);
	}
	if (hold->counters)
		atomic_fetch_sub_explicit(&hold->counters->users, 1, memory_order_release);
}

/* --- tag, counter, VLAN ----------------------------------------------------------------------- */

static struct mlx5dv_dr_action *simple(const char *function, enum dr_type type,
				       const struct vb_steer_action_attr *attr)
{
	struct mlx5dv_dr_action *action = NULL;
	int err;

	API_CALL_AS(function, .kind = "action");
	err = dr_action_make(type, attr, &action);
	return err ? api_null(-err) : action;
}

VB_PUBLIC struct mlx5dv_dr_action *mlx5dv_dr_action_create_drop(void)
{
	return simple(__func__, DR_DROP,
		      &(struct vb_steer_action_attr){ .what = VB_STEER_DO_DROP });
}

VB_PUBLIC struct mlx5dv_dr_action *mlx5dv_dr_action_create_default_miss(void)
{
	return simple(__func__, DR_MISS,
		      &(struct vb_steer_action_attr){ .what = VB_STEER_DO_MISS });
}

/* The card has 24 bits of a tag; more are cut off, as by rdma-core. */
VB_PUBLIC struct mlx5dv_dr_action *mlx5dv_dr_action_create_tag(uint32_t tag_value)
{
	return simple(__func__, DR_TAG,
		      &(struct vb_steer_action_attr){ .what = VB_STEER_DO_TAG,
						      .tag = tag_value & 0xffffff });
}

VB_PUBLIC struct mlx5dv_dr_action *mlx5dv_dr_action_create_pop_vlan(void)
{
	return simple(__func__, DR_POP_VLAN,
		      &(struct vb_steer_action_attr){ .what = VB_STEER_DO_POP_VLAN });
}

VB_PUBLIC struct mlx5dv_dr_action *
mlx5dv_dr_action_create_push_vlan(struct mlx5dv_dr_domain *domain, __be32 vlan_hdr)
{
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_PUSH_VLAN,
					     .vlan = be32toh(vlan_hdr) };
	struct mlx5dv_dr_action *action;

	API_CALL(.kind = "action");
	if (!domain)
		return api_refuse_null(null, "domain");
	action = simple(__func__, DR_PUSH_VLAN, &attr);
	if (action)
		action->domain = domain;
	return action;
}

int dr_action_counter(struct mlx5dv_devx_obj *obj, uint32_t offset, struct mlx5dv_dr_action **out)
{
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_COUNT };
	int err;

	if (!vb_devx_is(obj, VB_DEVX_COUNTERS))
		return vb_refuse_combination("the object is no flow counter");
	if (offset >= obj->counters->count)
		return vb_refuse_range("offset", offset, 0, obj->counters->count - 1);
	attr.counter = &obj->counters->counter[offset];
	err = dr_action_make(DR_COUNTER, &attr, out);
	if (err)
		return err;
	(*out)->counters = obj->counters;
	atomic_fetch_add_explicit(&obj->counters->refs, 1, memory_order_relaxed);
	return 0;
}

VB_PUBLIC struct mlx5dv_dr_action *
mlx5dv_dr_action_create_flow_counter(struct mlx5dv_devx_obj *devx_obj, uint32_t offset)
{
	struct mlx5dv_dr_action *action = NULL;
	int err;

	API_CALL(.kind = "action");
	err = dr_action_counter(devx_obj, offset, &action);
	return err ? api_null(-err) : action;
}

/* --- header modification, tunnels ------------------------------------------------------------- */

int dr_action_modify(size_t bytes, const void *actions, struct mlx5dv_dr_action **out)
{
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_MODIFY };

	if (!bytes || bytes % MODIFY_BYTES || bytes / MODIFY_BYTES > VB_STEER_MAX_MODIFY)
		return vb_refuse_combination("actions_sz is no multiple of 8, or too large");
	if (!actions)
		return vb_refuse_null("actions");
	attr.modify.actions = actions;
	attr.modify.count = (uint32_t)(bytes / MODIFY_BYTES);
	return dr_action_make(DR_MODIFY, &attr, out);
}

VB_PUBLIC struct mlx5dv_dr_action *
mlx5dv_dr_action_create_modify_header(struct mlx5dv_dr_domain *domain, uint32_t flags,
				      size_t actions_sz, __be64 actions[])
{
	struct mlx5dv_dr_action *action = NULL;
	int err;

	API_CALL(.kind = "action");
	if (!domain)
		return api_refuse_null(null, "domain");
	if (flags & ~(uint32_t)MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL)
		return api_refuse_null(bits, "flags", flags);
	err = dr_action_modify(actions_sz, actions, &action);
	if (err)
		return api_null(-err);
	action->root = flags & MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL;
	bind_domain(action, domain);
	return action;
}

static bool is_encap(enum mlx5dv_flow_action_packet_reformat_type type)
{
	return type == MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL ||
	       type == MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L3_TUNNEL;
}

int dr_action_reformat(enum vb_steer_kind kind, enum mlx5dv_flow_action_packet_reformat_type type,
		       size_t bytes, const void *data, struct mlx5dv_dr_action **out)
{
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_REFORMAT };
	int err;

	if ((unsigned int)type > MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L3_TUNNEL)
		return vb_refuse_value("reformat_type", (unsigned int)type);
	if (!data != !bytes)
		return vb_refuse_combination("data and data_sz: one without the other");
	if (bytes > VB_STEER_MAX_REFORMAT)
		return vb_refuse_range("data_sz", bytes, 0, VB_STEER_MAX_REFORMAT);
	if ((kind == VB_STEER_NIC_RX && is_encap(type)) ||
	    (kind == VB_STEER_NIC_TX && !is_encap(type)))
		return vb_refuse_combination("NIC_RX only decapsulates, NIC_TX only encapsulates");
	/* Both enums number the four types alike. */
	attr.reformat.type = (enum vb_reformat)type;
	attr.reformat.data = data;
	attr.reformat.len = (uint32_t)bytes;
	err = dr_action_make(DR_REFORMAT, &attr, out);
	if (!err)
		(*out)->encap = is_encap(type);
	return err;
}

VB_PUBLIC struct mlx5dv_dr_action *
mlx5dv_dr_action_create_packet_reformat(struct mlx5dv_dr_domain *domain, uint32_t flags,
					enum mlx5dv_flow_action_packet_reformat_type reformat_type,
					size_t data_sz, void *data)
{
	struct mlx5dv_dr_action *action = NULL;
	int err;

	API_CALL(.kind = "action");
	if (!domain)
		return api_refuse_null(null, "domain");
	if (flags & ~(uint32_t)MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL)
		return api_refuse_null(bits, "flags", flags);
	err = dr_action_reformat(dr_kind(domain->type), reformat_type, data_sz, data, &action);
	if (err)
		return api_null(-err);
	action->root = flags & MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL;
	bind_domain(action, domain);
	return action;
}

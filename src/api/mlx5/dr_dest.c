// SPDX-License-Identifier: MIT
/* Actions that end a frame's way: queues, tables, ports, and several of them. */
#include "dr.h"

static int make_dest(enum dr_type type, enum vb_flow_dest kind, uint64_t number, void *object,
		     struct mlx5dv_dr_action **action)
{
	struct vb_steer_action_attr attr = {
		.what = VB_STEER_DO_DEST,
		.dest = { .to = VB_STEER_TO_OWNER,
			  .kind = kind,
			  .number = number,
			  .object = object },
	};

	return dr_action_make(type, &attr, action);
}

/* --- receive queues --------------------------------------------------------------------------- */

int dr_action_qp(struct ibv_qp *qp, struct mlx5dv_dr_action **out)
{
	struct vb_qp *card;
	int err;

	if (!qp)
		return vb_refuse_null("qp");
	if (!mlx5dv_is_supported(qp->context->device))
		return vb_refuse_not_mlx5();
	if (qp->qp_type != IBV_QPT_RAW_PACKET)
		return vb_refuse_combination("the queue pair is not RAW_PACKET");
	card = vb_verbs_qp(qp);
	err = vb_flow_hold_qp(card);
	if (err)
		return dr_refuse(err, "the queue pair cannot be a destination");
	err = make_dest(DR_QP, VB_FLOW_QP, qp->qp_num, card, out);
	if (!err)
		err = dr_action_bind(*out, qp->context);
	if (err) {
		vb_flow_release_qp(card);
		return err;
	}
	(*out)->qp = card;
	vb_verbs_hold(qp->context, NULL);
	return 0;
}

VB_PUBLIC struct mlx5dv_dr_action *mlx5dv_dr_action_create_dest_ibv_qp(struct ibv_qp *ibqp)
{
	struct mlx5dv_dr_action *action = NULL;
	int err;

	API_CALL(API_QP(ibqp));
	err = dr_action_qp(ibqp, &action);
	return err ? api_null(-err) : action;
}

/* The rules hold the TIR, not the action: see dr.h. */
int dr_action_tir(struct mlx5dv_devx_obj *obj, struct mlx5dv_dr_action **out)
{
	int err;

	if (!vb_devx_is(obj, VB_DEVX_TIR))
		return vb_refuse_combination("the object is no TIR");
	err = make_dest(DR_TIR, VB_FLOW_TIR, obj->number, obj->tir, out);
	if (err)
		return err;
	(*out)->tir = obj->tir;
	(*out)->number = obj->number;
	return 0;
}

VB_PUBLIC struct mlx5dv_dr_action *
mlx5dv_dr_action_create_dest_devx_tir(struct mlx5dv_devx_obj *devx_obj)
{
	struct mlx5dv_dr_action *action = NULL;
	int err;

	API_CALL(.kind = "action");
	err = dr_action_tir(devx_obj, &action);
	return err ? api_null(-err) : action;
}

/* --- tables, ports ---------------------------------------------------------------------------- */

VB_PUBLIC struct mlx5dv_dr_action *mlx5dv_dr_action_create_dest_table(struct mlx5dv_dr_table *table)
{
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_TABLE };
	struct mlx5dv_dr_action *action = NULL;
	int err;

	API_CALL(.kind = "action");
	if (!table)
		return api_refuse_null(null, "table");
	if (!table->steer)
		return api_refuse_null(combination, "the context is closed");
	if (!vb_steer_table_level(table->steer))
		return api_refuse_null(combination, "a root table is no destination");
	attr.table = table->steer;
	err = dr_action_make(DR_TABLE, &attr, &action);
	if (!err)
		err = dr_action_bind(action, table->domain->left.context);
	if (err)
		return api_null(-err);
	action->domain = table->domain;
	return action;
}

static struct mlx5dv_dr_action *make_vport(struct mlx5dv_dr_domain *domain, uint32_t vport)
{
	struct mlx5dv_dr_action *action = NULL;
	int err = make_dest(DR_VPORT, VB_FLOW_VPORT, vport, NULL, &action);

	if (err)
		return api_null(-err);
	action->domain = domain;
	return action;
}

/* The port is its own e-switch manager and has no functions: there are the wire and vport 0. */
VB_PUBLIC struct mlx5dv_dr_action *
mlx5dv_dr_action_create_dest_vport(struct mlx5dv_dr_domain *domain, uint32_t vport)
{
	API_CALL(.kind = "action");
	if (!domain)
		return api_refuse_null(null, "domain");
	if (domain->type != MLX5DV_DR_DOMAIN_TYPE_FDB)
		return api_refuse_null(cannot, "vports are for FDB");
	if (vport > VB_VPORT_WIRE)
		return api_refuse_null(range, "vport", vport, 0, VB_VPORT_WIRE);
	if (vport != VB_VPORT_WIRE && vport != VB_VPORT_MANAGER)
		return api_refuse_null(combination,
				       "the port has no functions: vport is 0 or 0xffff");
	return make_vport(domain, vport);
}

VB_PUBLIC struct mlx5dv_dr_action *
mlx5dv_dr_action_create_dest_ib_port(struct mlx5dv_dr_domain *domain, uint32_t ib_port)
{
	API_CALL(.kind = "action");
	if (!domain)
		return api_refuse_null(null, "domain");
	if (domain->type != MLX5DV_DR_DOMAIN_TYPE_FDB)
		return api_refuse_null(cannot, "IB ports are for FDB");
	if (!ib_port)
		return api_refuse_null(value, "ib_port", ib_port);
	if (ib_port > 1)
		return api_refuse_null(unsupported_value, "ib_port", ib_port);
	return make_vport(domain, VB_VPORT_WIRE);
}

/* --- several ---------------------------------------------------------------------------------- */

static int check_branch(const struct mlx5dv_dr_domain *domain, const struct mlx5dv_dr_action *dest,
			const struct mlx5dv_dr_action *reformat)
{
	switch (dest->type) {
	case DR_QP:
	case DR_TIR:
		if (domain->type == MLX5DV_DR_DOMAIN_TYPE_NIC_RX)
			break;
		return vb_refuse_cannot("QP and TIR are for NIC_RX");
	case DR_COUNTER:
	case DR_MISS:
	case DR_TABLE:
		break;
	case DR_VPORT:
		if (domain->type == MLX5DV_DR_DOMAIN_TYPE_FDB)
			break;
		return vb_refuse_cannot("vports are for FDB");
	default:
		return vb_refuse_cannot("an action of the array is no destination");
	}
	if (dest->domain && dest->domain != domain)
		return vb_refuse_combination("a destination belongs to another domain");
	if (reformat && (reformat->type != DR_REFORMAT || !reformat->encap || reformat->root))
		return vb_refuse_cannot("a destination's reformat must encapsulate, below level 0");
	if (reformat && reformat->domain != domain)
		return vb_refuse_combination("a reformat belongs to another domain");
	return 0;
}

static int dr_dest_read_branch(const struct mlx5dv_dr_domain *domain,
			       const struct mlx5dv_dr_action_dest_attr *attr,
			       struct vb_steer_branch *branch, struct dr_hold *hold)
{
	const struct mlx5dv_dr_action *dest, *reformat = NULL;
	int err;

	if (!attr)
		return vb_refuse_null("a destination");
	switch (attr->type) {
	case MLX5DV_DR_ACTION_DEST:
		dest = attr->dest;
		break;
	case MLX5DV_DR_ACTION_DEST_REFORMAT:
		if (!attr->dest_reformat || !attr->dest_reformat->reformat)
			return vb_refuse_null("dest_reformat");
		dest = attr->dest_reformat->dest;
		reformat = attr->dest_reformat->reformat;
		break;
	default:
		return vb_refuse_value("the type of a destination", (unsigned int)attr->type);
	}
	if (!dest)
		return vb_refuse_null("the action of a destination");
	if (!dest->steer || (reformat && !reformat->steer))
		return vb_refuse_combination("the context of a destination is closed");
	err = check_branch(domain, dest, reformat);
	if (err)
		return err;
	branch->dest = dest->steer;
	branch->reformat = reformat ? reformat->steer : NULL;
	return dr_hold_take(domain->dev, dest, hold);
}

static int make_array(struct mlx5dv_dr_domain *domain, uint32_t count,
		      struct mlx5dv_dr_action_dest_attr *const *dests,
		      struct mlx5dv_dr_action **out)
{
	struct vb_steer_branch branch[VB_STEER_MAX_DESTS] = { 0 };
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_ARRAY };
	struct dr_hold *holds = calloc(count, sizeof(*holds));
	int err = holds ? 0 : vb_refuse_memory("the array");

	for (uint32_t i = 0; !err && i < count; i++)
		err = dr_dest_read_branch(domain, dests[i], &branch[i], &holds[i]);
	attr.array.branch = branch;
	attr.array.count = count;
	if (!err)
		err = dr_action_make(DR_ARRAY, &attr, out);
	if (!err)
		err = dr_action_bind(*out, domain->left.context);
	if (err) {
		for (uint32_t i = 0; holds && i < count; i++)
			dr_hold_drop(&holds[i]);
		free(holds);
		return err;
	}
	(*out)->holds = holds;
	(*out)->count = count;
	return 0;
}

VB_PUBLIC struct mlx5dv_dr_action *
mlx5dv_dr_action_create_dest_array(struct mlx5dv_dr_domain *domain, size_t num_dest,
				   struct mlx5dv_dr_action_dest_attr *dests[])
{
	struct mlx5dv_dr_action *action = NULL;
	int err;

	API_CALL(.kind = "action");
	if (!domain || !dests)
		return api_refuse_null(null, "domain or dests");
	if (num_dest < 2 || num_dest > VB_STEER_MAX_DESTS)
		return api_refuse_null(range, "num_dest", num_dest, 2, VB_STEER_MAX_DESTS);
	if (!domain->left.context)
		return api_refuse_null(combination, "the context is closed");
	if (domain->type == MLX5DV_DR_DOMAIN_TYPE_NIC_TX)
		return api_refuse_null(cannot, "arrays of destinations are for NIC_RX and FDB");
	err = make_array(domain, (uint32_t)num_dest, dests, &action);
	if (err)
		return api_null(-err);
	action->domain = domain;
	action->holds_domain = true;
	atomic_fetch_add_explicit(&domain->users, 1, memory_order_relaxed);
	return action;
}

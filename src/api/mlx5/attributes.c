// SPDX-License-Identifier: MIT
/*
 * What direct verbs know of contexts, ports and objects besides their rings: allocators, clocks,
 * vports, reserved numbers, packet pacing.
 */
#include "mlx5.h"

#include "base/time.h"
#include "base/util.h"
#include "card/queue/qp.h"
#include "card/transport/pace.h"
#include "devx_table.h"

/* 0 or a positive errno. */
static int check_context(const struct ibv_context *context, const void *argument)
{
	if (!context || !argument)
		return -vb_refuse_null("an argument");
	return mlx5dv_is_supported(context->device) ? 0 : -vb_refuse_not_mlx("mlx5");
}

VB_PUBLIC int mlx5dv_set_context_attr(struct ibv_context *context,
				      enum mlx5dv_set_ctx_attr_type type, void *attr)
{
	const struct mlx5dv_ctx_allocators *own = attr;
	int err;

	API_CALL(API_DEVICE(context));
	err = check_context(context, attr);
	if (err)
		return api_fail(err);
	if (type != MLX5DV_CTX_ATTR_BUF_ALLOCATORS)
		return api_refuse(unsupported_value, "type", type);
	if (!own->alloc != !own->free)
		return api_refuse(null, "alloc or free, but not both,");
	vb_verbs_rings(context)->set_allocators(context, own->alloc, own->free, own->data);
	return 0;
}

/* The card counts nanoseconds, so its time is the wall clock's but for where it began. */
VB_PUBLIC int mlx5dv_get_clock_info(struct ibv_context *context, struct mlx5dv_clock_info *info)
{
	int err;

	API_CALL(API_DEVICE(context));
	err = check_context(context, info);
	if (err)
		return api_fail(err);
	*info = (struct mlx5dv_clock_info){
		.nsec = vb_wall_ns(),
		.last_cycles = vb_clock(),
		.mult = 1,
		.mask = UINT64_MAX,
	};
	return 0;
}

/*
 * The port is the uplink of an e-switch that the adapter manages itself: vport 0xffff, as rules of
 * FDB name it.
 */
VB_PUBLIC int _mlx5dv_query_port(struct ibv_context *context, uint32_t port_num,
				 struct mlx5dv_port *info, size_t info_len)
{
	struct mlx5dv_port all = { .flags = MLX5DV_QUERY_PORT_VPORT |
					    MLX5DV_QUERY_PORT_ESW_OWNER_VHCA_ID,
				   .vport = 0xffff };
	struct ibv_port_attr port;
	size_t known = info_len < sizeof(all) ? info_len : sizeof(all);
	int err;

	API_CALL_AS("mlx5dv_query_port", API_DEVICE(context));
	err = check_context(context, info);
	if (err)
		return api_fail(err);
	if (info_len < sizeof(all.flags))
		return api_refuse(value, "info_len", info_len);
	if (port_num > UINT8_MAX || ibv_query_port(context, (uint8_t)port_num, &port))
		return api_refuse(value, "port_num", port_num);
	all.esw_owner_vhca_id = (uint16_t)vb_verbs_adapter(context->device)->index;
	memset(info, 0, info_len);
	memcpy(info, &all, known);
	return 0;
}

VB_PUBLIC int mlx5dv_modify_qp_udp_sport(struct ibv_qp *qp, uint16_t udp_sport)
{
	int err;

	API_CALL(API_QP(qp));
	err = check_context(qp ? qp->context : NULL, qp);
	if (!err)
		err = -vb_qp_set_sport(vb_verbs_qp(qp), udp_sport);
	return err ? api_fail(err) : 0;
}

/* A hint for congestion control, of which there is none. */
VB_PUBLIC int mlx5dv_map_ah_to_qp(struct ibv_ah *ah, uint32_t qp_num)
{
	int err;

	API_CALL(.kind = "QP", .number = qp_num);
	err = check_context(ah ? ah->context : NULL, ah);
	if (err)
		return api_fail(err);
	return vb_qpn_exists(vb_verbs_dev(ah->context), qp_num)
		       ? 0
		       : api_refuse(value, "qp_num", qp_num);
}

VB_PUBLIC int mlx5dv_reserved_qpn_alloc(struct ibv_context *context, uint32_t *qpn)
{
	int err;

	API_CALL(API_DEVICE(context));
	err = check_context(context, qpn);
	if (!err)
		err = vb_verbs_mlx5(context)->reserve_qpn(context, qpn);
	return err ? api_fail(err) : 0;
}

VB_PUBLIC int mlx5dv_reserved_qpn_dealloc(struct ibv_context *context, uint32_t qpn)
{
	int err;

	API_CALL(API_DEVICE(context));
	err = check_context(context, context);
	if (!err)
		err = vb_verbs_mlx5(context)->release_qpn(context, qpn);
	return err ? api_fail(err) : 0;
}

/* --- packet pacing ---------------------------------------------------------------------------- */

struct pp {
	struct mlx5dv_pp dv; /* first */
	struct devx_left left;
};

static int end_pp(struct devx_left *left)
{
	vb_pace_give(vb_verbs_dev(left->context), container_of(left, struct pp, left)->dv.index);
	return 0;
}

/* The context of the programmer's manual: rate in kbit/s, burst in bytes, size of a packet. */
static uint32_t mlx5_attributes_word(const void *context, size_t size, size_t at)
{
	__be32 value = 0;

	if (size >= at + sizeof(value))
		memcpy(&value, (const char *)context + at, sizeof(value));
	return be32toh(value);
}

VB_PUBLIC struct mlx5dv_pp *mlx5dv_pp_alloc(struct ibv_context *context, size_t pp_context_sz,
					    const void *pp_context, uint32_t flags)
{
	enum { CONTEXT_MAX = 48, DEFAULT_BURST = 16384 };
	uint32_t burst;
	struct pp *pp;
	int err;

	API_CALL(API_DEVICE(context));
	err = check_context(context, pp_context);
	if (err)
		return api_null(err);
	if (pp_context_sz < sizeof(__be32) || pp_context_sz > CONTEXT_MAX)
		return api_refuse_null(range, "pp_context_sz", pp_context_sz, sizeof(__be32),
				       CONTEXT_MAX);
	if (flags & ~(uint32_t)MLX5DV_PP_ALLOC_FLAGS_DEDICATED_INDEX)
		return api_refuse_null(bits, "flags", flags);
	pp = calloc(1, sizeof(*pp));
	if (!pp)
		return api_refuse_null(memory, "the packet pacing entry");
	burst = mlx5_attributes_word(pp_context, pp_context_sz, 4);
	err = -vb_pace_take(vb_verbs_dev(context),
			    mlx5_attributes_word(pp_context, pp_context_sz, 0),
			    burst ? burst : DEFAULT_BURST, flags, &pp->dv.index);
	if (err) {
		free(pp);
		return api_null(err);
	}
	pp->left.end = end_pp;
	if (!devx_left_add(context, &pp->left)) {
		vb_pace_give(vb_verbs_dev(context), pp->dv.index);
		free(pp);
		return api_refuse_null(memory, "the packet pacing entry");
	}
	return &pp->dv;
}

VB_PUBLIC void mlx5dv_pp_free(struct mlx5dv_pp *dv)
{
	struct pp *pp = (struct pp *)dv;

	if (!pp)
		return;
	if (!devx_left_remove(&pp->left))
		end_pp(&pp->left);
	free(pp);
}

/* --- device memory ---------------------------------------------------------------------------- */

/* MEMIC is what ibv_alloc_dm() gives; the other types hold tables of hardware. */
VB_PUBLIC struct ibv_dm *mlx5dv_alloc_dm(struct ibv_context *context,
					 struct ibv_alloc_dm_attr *dm_attr,
					 struct mlx5dv_alloc_dm_attr *mlx5_dm_attr)
{
	int err;

	API_CALL(API_DEVICE(context));
	err = check_context(context, dm_attr);
	if (err)
		return api_null(err);
	if (mlx5_dm_attr && mlx5_dm_attr->comp_mask)
		return api_refuse_null(bits, "comp_mask", mlx5_dm_attr->comp_mask);
	if (mlx5_dm_attr && mlx5_dm_attr->type != MLX5DV_DM_TYPE_MEMIC)
		return api_refuse_null(unsupported, "device memory of another type than MEMIC");
	return ibv_alloc_dm(context, dm_attr);
}

VB_PUBLIC void *mlx5dv_dm_map_op_addr(struct ibv_dm *dm, uint8_t op)
{
	const struct vb_verbs_mlx5 *mlx5;
	void *addr;
	int err;

	API_CALL(.kind = "DM", .number = dm ? dm->handle : 0);
	err = check_context(dm ? dm->context : NULL, dm);
	if (err)
		return api_null(err);
	mlx5 = vb_verbs_mlx5(dm->context);
	if (op >= 32 || !(mlx5->dm_ops >> op & 1))
		return api_refuse_null(unsupported_value, "op", op);
	addr = mlx5->dm_map_op(dm, op);
	return addr ? addr : api_refuse_null(memory, "addresses of operations");
}

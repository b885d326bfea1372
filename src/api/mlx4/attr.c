// SPDX-License-Identifier: MIT
/*
 * mlx4 direct verbs besides mlx4dv_init_obj(): what the device can do, inline receive, attributes
 * of a context.
 */
#include "mlx4.h"

#include "card/card.h"

enum { MAX_INL_RECV = 512, MAX_LOG_WQS_RANGE = 16 };

/* There are no optional parts: comp_mask comes back empty. */
VB_PUBLIC int mlx4dv_query_device(struct ibv_context *context, struct mlx4dv_context *attrs)
{
	API_CALL(API_DEVICE(context));
	if (!context || !attrs)
		return api_refuse(null, "context or attrs_out");
	if (!is_mlx4(context))
		return api_refuse(not_mlx, "mlx4");
	attrs->version = 0;
	attrs->max_inl_recv_sz = MAX_INL_RECV;
	attrs->comp_mask = 0;
	return 0;
}

VB_PUBLIC struct ibv_qp *mlx4dv_create_qp(struct ibv_context *context,
					  struct ibv_qp_init_attr_ex *attr,
					  struct mlx4dv_qp_init_attr *mlx4_attr)
{
	uint32_t inl_recv = 0;

	API_CALL(API_DEVICE(context));
	if (!context || !attr)
		return api_refuse_null(null, "context or attr");
	if (!is_mlx4(context))
		return api_refuse_null(not_mlx, "mlx4");
	if (mlx4_attr && (mlx4_attr->comp_mask & ~(uint64_t)MLX4DV_QP_INIT_ATTR_MASK_INL_RECV))
		return api_refuse_null(bits, "comp_mask", mlx4_attr->comp_mask);
	if (mlx4_attr && (mlx4_attr->comp_mask & MLX4DV_QP_INIT_ATTR_MASK_INL_RECV))
		inl_recv = mlx4_attr->inl_recv_sz;
	/* Inline receive overwrites receive WQEs, so it needs a receive queue of the QP's own. */
	if (inl_recv > MAX_INL_RECV)
		return api_refuse_null(range, "inl_recv_sz", inl_recv, 0, MAX_INL_RECV);
	if (inl_recv && attr->srq)
		return api_refuse_null(combination, "inline receive with an SRQ");
	return vb_verbs_rings(context)->create_qp(context, attr, mlx4_attr);
}

static int attr_set_allocators(struct ibv_context *context,
			       const struct mlx4dv_ctx_allocators *attr)
{
	if (!attr->alloc != !attr->free)
		return api_refuse(null, "alloc or free, but not both,");
	vb_verbs_rings(context)->set_allocators(context, attr->alloc, attr->free, attr->data);
	return 0;
}

VB_PUBLIC int mlx4dv_set_context_attr(struct ibv_context *context,
				      enum mlx4dv_set_ctx_attr_type type, void *attr)
{
	API_CALL(API_DEVICE(context));
	if (!context || !attr)
		return api_refuse(null, "context or attr");
	if (!is_mlx4(context))
		return api_refuse(not_mlx, "mlx4");
	switch (type) {
	case MLX4DV_SET_CTX_ATTR_LOG_WQS_RANGE_SZ:
		if (*(const uint8_t *)attr > MAX_LOG_WQS_RANGE)
			return api_refuse(range, "log_wqs_range_sz", *(const uint8_t *)attr, 0,
					  MAX_LOG_WQS_RANGE);
		vb_dev_set_wq_range(vb_verbs_dev(context), *(const uint8_t *)attr);
		return 0;
	case MLX4DV_SET_CTX_ATTR_BUF_ALLOCATORS:
		return attr_set_allocators(context, attr);
	default:
		return api_refuse(unsupported_value, "attr_type", type);
	}
}

// SPDX-License-Identifier: MIT
/*
 * What is not there yet says so: EOPNOTSUPP, as a return value or as NULL with errno
 * (docs/deviations.md).
 */
#include <fcntl.h>

#include "device.h"
#include <infiniband/mlx5dv.h>

static void qp_types(void **state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV,
						  IBV_QPT_DRIVER };
	struct device *d = *state;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct ibv_qp_init_attr attr = qp_attr(d->cq, types[i]);

		assert_null_errno(ibv_create_qp(d->pd, &attr), EOPNOTSUPP);
	}
}

static struct ibv_qp_init_attr_ex qp_attr_ex(struct device *d, uint32_t comp_mask)
{
	struct ibv_qp_init_attr plain = qp_attr(d->cq, IBV_QPT_RC);

	return (struct ibv_qp_init_attr_ex){
		.send_cq = plain.send_cq,
		.recv_cq = plain.recv_cq,
		.cap = plain.cap,
		.qp_type = plain.qp_type,
		.comp_mask = comp_mask | IBV_QP_INIT_ATTR_PD,
		.pd = d->pd,
	};
}

static void qp_options(void **state)
{
	struct device *d = *state;
	struct ibv_qp_init_attr_ex attr;

	attr = qp_attr_ex(d, IBV_QP_INIT_ATTR_CREATE_FLAGS);
	attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	assert_null_errno(ibv_create_qp_ex(d->context, &attr), EOPNOTSUPP);
	attr = qp_attr_ex(d, IBV_QP_INIT_ATTR_IND_TABLE); /* of an RC queue pair */
	assert_null_errno(ibv_create_qp_ex(d->context, &attr), EINVAL);
	attr = qp_attr_ex(d, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
	attr.send_ops_flags = IBV_QP_EX_WITH_BIND_MW;
	assert_null_errno(ibv_create_qp_ex(d->context, &attr), EOPNOTSUPP);
	attr.qp_type = IBV_QPT_UD;
	attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
	assert_null_errno(ibv_create_qp_ex(d->context, &attr), EOPNOTSUPP);
	attr = qp_attr_ex(d, 1u << 30);
	assert_null_errno(ibv_create_qp_ex(d->context, &attr), EINVAL);
}

static void memory(void **state)
{
	struct device *d = *state;

	assert_null_errno(ibv_alloc_mw(d->pd, IBV_MW_TYPE_1), EOPNOTSUPP);
	assert_null_errno(ibv_alloc_null_mr(d->pd), EOPNOTSUPP);
	assert_null_errno(ibv_reg_dmabuf_mr(d->pd, 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE),
			  EOPNOTSUPP);
	assert_null_errno(ibv_reg_mr(d->pd, d->buf, sizeof(d->buf), IBV_ACCESS_ON_DEMAND),
			  EOPNOTSUPP);
	assert_int_equal(ibv_advise_mr(d->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, 0),
			 EOPNOTSUPP);
}

static void objects(void **state)
{
	struct device *d = *state;
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = -1,
					   .oflags = O_CREAT };
	struct ibv_srq_init_attr_ex srq = { .attr = { .max_wr = 4, .max_sge = 1 },
					    .comp_mask =
						    IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
					    .srq_type = IBV_SRQT_TM,
					    .pd = d->pd };
	struct ibv_flow_attr flow = { .size = sizeof(flow),
				      .port = 1,
				      .flags = IBV_FLOW_ATTR_FLAGS_EGRESS };
	struct ibv_qp_open_attr open_qp = { 0 };

	assert_null_errno(ibv_open_xrcd(d->context, &xrcd), EOPNOTSUPP);
	assert_null_errno(ibv_create_srq_ex(d->context, &srq), EOPNOTSUPP);
	assert_null_errno(ibv_create_flow(d->qp, &flow), EOPNOTSUPP);
	assert_null_errno(ibv_open_qp(d->context, &open_qp), EOPNOTSUPP);
	assert_null_errno(ibv_import_device(0), EOPNOTSUPP);
	assert_null_errno(ibv_import_pd(d->context, 0), EOPNOTSUPP);
	assert_null_errno(ibv_import_mr(d->pd, 0), EOPNOTSUPP);
	assert_null_errno(ibv_import_dm(d->context, 0), EOPNOTSUPP);
}

static void queue_options(void **state)
{
	struct device *d = *state;
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_attr resize = { .max_wr = 64 };
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1000 };
	struct ibv_qp_attr attr = { .rate_limit = 1000 };
	struct ibv_cq_init_attr_ex cq = { .cqe = 1, .wc_flags = IBV_WC_EX_WITH_TM_INFO };
	struct ibv_ece ece = { .vendor_id = 0x15b3 };
	union ibv_gid gid = { .raw = { 0xff } };
	struct ibv_srq *srq = ibv_create_srq(d->pd, &srq_attr);

	assert_non_null(srq);
	assert_int_equal(ibv_modify_srq(srq, &resize, IBV_SRQ_MAX_WR), EOPNOTSUPP);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_modify_qp_rate_limit(d->qp, &rate), EOPNOTSUPP);
	assert_int_equal(ibv_modify_qp(d->qp, &attr, IBV_QP_RATE_LIMIT), EOPNOTSUPP);
	assert_null_errno(ibv_create_cq_ex(d->context, &cq), EOPNOTSUPP);
	assert_int_equal(ibv_set_ece(d->qp, &ece), EOPNOTSUPP);
	assert_int_equal(ibv_query_ece(d->qp, &ece), EOPNOTSUPP);
	assert_int_equal(ece.vendor_id, 0);
	assert_int_equal(ibv_attach_mcast(d->qp, &gid, 0), EOPNOTSUPP);
	assert_int_equal(ibv_detach_mcast(d->qp, &gid, 0), EOPNOTSUPP);
}

static void direct_verbs(void **state)
{
	struct device *d = *state;
	struct mlx5dv_context_attr devx = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	struct mlx5dv_context attrs = { .comp_mask = MLX5DV_CONTEXT_MASK_SWP |
						     MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK };
	struct mlx5dv_qp out;
	struct mlx5dv_obj obj = { .qp = { .in = d->qp, .out = &out } };
	struct ibv_context *context;

	assert_true(mlx5dv_is_supported(d->context->device));
	assert_int_equal(mlx5dv_query_device(d->context, &attrs), 0);
	assert_true(attrs.flags & MLX5DV_CONTEXT_FLAGS_CQE_V1);
	assert_int_equal(attrs.comp_mask, MLX5DV_CONTEXT_MASK_SWP);
	assert_int_equal(attrs.sw_parsing_caps.supported_qpts, 1 << IBV_QPT_RAW_PACKET);
	devx.flags |= 1 << 1;
	assert_null_errno(mlx5dv_open_device(d->context->device, &devx), EINVAL);
	devx.flags &= ~(1u << 1);
	context = mlx5dv_open_device(d->context->device, &devx);
	assert_non_null(context);
	assert_int_equal(ibv_close_device(context), 0);
	context = mlx5dv_open_device(d->context->device, NULL);
	assert_non_null(context);
	assert_int_equal(ibv_close_device(context), 0);
	assert_int_equal(mlx5dv_init_obj(&obj, 1 << 20), EOPNOTSUPP);
	assert_int_equal(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), EINVAL);
	assert_int_equal(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), 0);
	assert_int_equal(out.sq.stride, 64);
	assert_null_errno(mlx5dv_devx_obj_create(d->context, NULL, 0, NULL, 0), EINVAL);
	assert_int_equal(mlx5dv_devx_get_event(NULL, NULL, 0), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(qp_types),      cmocka_unit_test(qp_options),
		cmocka_unit_test(memory),        cmocka_unit_test(objects),
		cmocka_unit_test(queue_options), cmocka_unit_test(direct_verbs),
	};

	return cmocka_run_group_tests(tests, device_open, device_close);
}

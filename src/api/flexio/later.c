// SPDX-License-Identifier: MIT
/*
 * Functions that exist and do not work yet: queues, doorbells, command queues, dumps. Each says so in the
 * log and fails as documented, so that programs link and notice. docs/deviations.md lists them.
 */
#include "internal.h"

/* The header lets three arguments mean the older form. */
#undef flexio_uar_create

#define not_yet() log_err("not supported yet")

flexio_status flexio_process_error_handler_set(struct flexio_process *process,
					       flexio_func_t *error_handler)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_coredump_create(struct flexio_process *process, const char *outfile)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_crash_data(struct flexio_process *process, const char *outfile)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_recoverable_buf_dev_alloc(struct flexio_process *process, size_t buff_bsize,
					       uint32_t mkey, flexio_uintptr_t *dest_daddr_p)
{
	if (dest_daddr_p)
		*dest_daddr_p = 0;
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_cmdq_create(struct flexio_process *process, struct flexio_cmdq_attr *fattr,
				 struct flexio_cmdq **cmdq)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_cmdq_destroy(struct flexio_cmdq *cmdq)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_cmdq_task_add(struct flexio_cmdq *cmdq, flexio_func_t *host_func, uint64_t arg)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_cmdq_state_running(struct flexio_cmdq *cmdq)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

int flexio_cmdq_is_empty(struct flexio_cmdq *cmdq)
{
	not_yet();
	return 0;
}

flexio_status flexio_uar_create(struct flexio_process *process, struct flexio_uar **flexio_uar)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_uar_create_v0(struct flexio_process *process, struct mlx5dv_devx_uar *devx_uar,
				   struct flexio_uar **flexio_uar)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_uar_destroy(struct flexio_uar *uar)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_uar_extend(struct flexio_uar *in_uar, struct ibv_context *to_extend,
				struct flexio_uar **extended)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_uar_device_id flexio_uar_get_extended_id(struct flexio_uar *uar)
{
	not_yet();
	return UINT32_MAX;
}

flexio_status flexio_outbox_create(struct flexio_process *process, struct flexio_outbox_attr *fattr,
				   struct flexio_outbox **outbox)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_outbox_destroy(struct flexio_outbox *outbox)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

uint32_t flexio_outbox_get_id(struct flexio_outbox *outbox)
{
	not_yet();
	return UINT32_MAX;
}

struct flexio_uar *flexio_outbox_get_uar(struct flexio_outbox *outbox)
{
	not_yet();
	return NULL;
}

flexio_status flexio_cq_create(struct flexio_process *process, struct ibv_context *ibv_ctx,
			       const struct flexio_cq_attr *fattr, struct flexio_cq **cq)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_cq_destroy(struct flexio_cq *cq)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

uint32_t flexio_cq_get_cq_num(struct flexio_cq *cq)
{
	not_yet();
	return UINT32_MAX;
}

struct mlx5dv_devx_obj *flexio_cq_get_obj(struct flexio_cq *cq)
{
	not_yet();
	return NULL;
}

flexio_status flexio_cq_modify_moderation(struct flexio_cq *cq, uint16_t max_count, uint16_t period,
					  uint16_t mode)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_cq_query_moderation(struct flexio_cq *cq, uint16_t *max_count,
					 uint16_t *period, uint16_t *mode)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_sq_create(struct flexio_process *process, struct ibv_context *ibv_ctx,
			       uint32_t cq_num, const struct flexio_wq_attr *fattr,
			       struct flexio_sq **flexio_sq_ptr)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_sq_create_cross_dev(struct flexio_process *process,
					 struct ibv_context *ibv_ctx, uint32_t cq_num,
					 const struct flexio_wq_attr *fattr,
					 struct flexio_sq **flexio_sq_ptr)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_sq_destroy(struct flexio_sq *flexio_sq)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

uint32_t flexio_sq_get_wq_num(struct flexio_sq *sq)
{
	not_yet();
	return UINT32_MAX;
}

flexio_status flexio_sq_tis_create(struct ibv_context *ibv_ctx, struct flexio_transport_domain *td,
				   struct flexio_sq_tis **tis)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_sq_tis_destroy(struct flexio_sq_tis *tis)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_transport_domain_create(struct ibv_context *ibv_ctx,
					     struct flexio_transport_domain **td)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_transport_domain_destroy(struct flexio_transport_domain *td)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_rq_create(struct flexio_process *process, struct ibv_context *ibv_ctx,
			       uint32_t cq_num, const struct flexio_wq_attr *fattr,
			       struct flexio_rq **flexio_rq_ptr)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_rq_create_cross_dev(struct flexio_process *process,
					 struct ibv_context *ibv_ctx, uint32_t cq_num,
					 const struct flexio_wq_attr *fattr,
					 struct flexio_rq **flexio_rq_ptr)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_rq_destroy(struct flexio_rq *flexio_rq)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_rq_set_err_state(struct flexio_rq *rq)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

uint32_t flexio_rq_get_wq_num(struct flexio_rq *rq)
{
	not_yet();
	return UINT32_MAX;
}

struct mlx5dv_devx_obj *flexio_rq_get_tir(struct flexio_rq *rq)
{
	not_yet();
	return NULL;
}

struct mlx5dv_devx_obj *flexio_rq_get_object(struct flexio_rq *rq)
{
	not_yet();
	return NULL;
}

flexio_status flexio_rmp_create(struct flexio_process *process, struct ibv_context *ibv_ctx,
				const struct flexio_wq_attr *fattr,
				struct flexio_rmp **flexio_rmp_ptr)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_rmp_destroy(struct flexio_rmp *flexio_rmp)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

uint32_t flexio_rmp_get_wq_num(struct flexio_rmp *rmp)
{
	not_yet();
	return UINT32_MAX;
}

flexio_status flexio_qp_create(struct flexio_process *process, struct ibv_context *ibv_ctx,
			       struct flexio_qp_attr *qp_fattr, struct flexio_qp **qp_ptr)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_qp_destroy(struct flexio_qp *qp)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_qp_modify(struct flexio_qp *qp, struct flexio_qp_attr *fattr,
			       struct flexio_qp_attr_opt_param_mask *mask)
{
	not_yet();
	return FLEXIO_STATUS_FAILED;
}

enum flexio_qp_state flexio_qp_state_get(struct flexio_qp *qp)
{
	not_yet();
	return FLEXIO_QP_STATE_ERR;
}

uint32_t flexio_qp_get_qp_num(struct flexio_qp *qp)
{
	not_yet();
	return UINT32_MAX;
}

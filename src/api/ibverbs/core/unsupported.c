// SPDX-License-Identifier: MIT
/*
 * Operations of verbs_context that a provider does not have (provider.h), and functions of
 * libibverbs that none has (docs/deviations.md).
 *
 * The inline functions of verbs.h answer EOPNOTSUPP themselves where an operation is NULL; the
 * entries here answer the same and leave a line in the log that names the function.
 */
#include "objects.h"

#define NO_POINTER(type, name, ...)               \
	static type *name(__VA_ARGS__)            \
	{                                         \
		API_CALL_AS("ibv_" #name);        \
		return api_refuse_null(function); \
	}
#define NO_STATUS(name, ...)                 \
	static int name(__VA_ARGS__)         \
	{                                    \
		API_CALL_AS("ibv_" #name);   \
		return api_refuse(function); \
	}

NO_STATUS(advise_mr, struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
	  struct ibv_sge *sg_list, uint32_t num_sges)
NO_POINTER(struct ibv_mr, alloc_null_mr, struct ibv_pd *pd)
NO_STATUS(read_counters, struct ibv_counters *counters, uint64_t *values, uint32_t count,
	  uint32_t flags)
NO_STATUS(attach_counters_point_flow, struct ibv_counters *counters,
	  struct ibv_counter_attach_attr *attr, struct ibv_flow *flow)
NO_POINTER(struct ibv_counters, create_counters, struct ibv_context *context,
	   struct ibv_counters_init_attr *attr)
NO_STATUS(destroy_counters, struct ibv_counters *counters)
NO_POINTER(struct ibv_mr, reg_dm_mr, struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset,
	   size_t length, unsigned int access)
NO_POINTER(struct ibv_dm, alloc_dm, struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
NO_STATUS(free_dm, struct ibv_dm *dm)
NO_STATUS(modify_flow_action_esp, struct ibv_flow_action *action,
	  struct ibv_flow_action_esp_attr *attr)
NO_POINTER(struct ibv_flow_action, create_flow_action_esp, struct ibv_context *context,
	   struct ibv_flow_action_esp_attr *attr)
NO_STATUS(modify_qp_rate_limit, struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
NO_STATUS(post_srq_ops, struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad_op)
NO_STATUS(destroy_rwq_ind_table, struct ibv_rwq_ind_table *table)
NO_POINTER(struct ibv_rwq_ind_table, create_rwq_ind_table, struct ibv_context *context,
	   struct ibv_rwq_ind_table_init_attr *attr)
NO_STATUS(destroy_wq, struct ibv_wq *wq)
NO_STATUS(modify_wq, struct ibv_wq *wq, struct ibv_wq_attr *attr)
NO_POINTER(struct ibv_wq, create_wq, struct ibv_context *context, struct ibv_wq_init_attr *attr)
NO_POINTER(struct ibv_flow, create_flow, struct ibv_qp *qp, struct ibv_flow_attr *attr)
NO_POINTER(struct ibv_qp, open_qp, struct ibv_context *context, struct ibv_qp_open_attr *attr)
NO_POINTER(struct ibv_xrcd, open_xrcd, struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
NO_STATUS(close_xrcd, struct ibv_xrcd *xrcd)
NO_POINTER(struct ibv_mw, alloc_mw, struct ibv_pd *pd, enum ibv_mw_type type)
NO_STATUS(dealloc_mw, struct ibv_mw *mw)
NO_STATUS(bind_mw, struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
NO_STATUS(modify_cq, struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
NO_POINTER(struct ibv_td, alloc_td, struct ibv_context *context, struct ibv_td_init_attr *attr)
NO_POINTER(struct ibv_pd, alloc_parent_domain, struct ibv_context *context,
	   struct ibv_parent_domain_init_attr *attr)
NO_POINTER(struct ibv_srq, create_srq_ex, struct ibv_context *context,
	   struct ibv_srq_init_attr_ex *attr)
NO_STATUS(query_rt_values_ex, struct ibv_context *context, struct ibv_values_ex *values)
NO_STATUS(req_notify_cq, struct ibv_cq *cq, int solicited_only)

static int poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	API_CALL_AS("ibv_poll_cq");
	return -api_refuse(function);
}

/* Nothing of the list is posted: *bad is its first entry. */
#define NO_POST(name, object, request)                                        \
	static int name(object *to, struct request *wr, struct request **bad) \
	{                                                                     \
		API_CALL_AS("ibv_" #name);                                    \
		if (bad)                                                      \
			*bad = wr;                                            \
		return api_refuse(function);                                  \
	}

NO_POST(post_send, struct ibv_qp, ibv_send_wr)
NO_POST(post_recv, struct ibv_qp, ibv_recv_wr)
NO_POST(post_srq_recv, struct ibv_srq, ibv_recv_wr)

void api_set_unsupported_ops(struct verbs_context *verbs)
{
	verbs->advise_mr = advise_mr;
	verbs->alloc_null_mr = alloc_null_mr;
	verbs->read_counters = read_counters;
	verbs->attach_counters_point_flow = attach_counters_point_flow;
	verbs->create_counters = create_counters;
	verbs->destroy_counters = destroy_counters;
	verbs->reg_dm_mr = reg_dm_mr;
	verbs->alloc_dm = alloc_dm;
	verbs->free_dm = free_dm;
	verbs->modify_flow_action_esp = modify_flow_action_esp;
	verbs->create_flow_action_esp = create_flow_action_esp;
	verbs->modify_qp_rate_limit = modify_qp_rate_limit;
	verbs->post_srq_ops = post_srq_ops;
	verbs->destroy_rwq_ind_table = destroy_rwq_ind_table;
	verbs->create_rwq_ind_table = create_rwq_ind_table;
	verbs->destroy_wq = destroy_wq;
	verbs->modify_wq = modify_wq;
	verbs->create_wq = create_wq;
	verbs->ibv_create_flow = create_flow;
	verbs->open_qp = open_qp;
	verbs->open_xrcd = open_xrcd;
	verbs->close_xrcd = close_xrcd;
	verbs->context.ops.alloc_mw = alloc_mw;
	verbs->context.ops.dealloc_mw = dealloc_mw;
	verbs->context.ops.bind_mw = bind_mw;
	verbs->modify_cq = modify_cq;
	verbs->alloc_td = alloc_td;
	verbs->alloc_parent_domain = alloc_parent_domain;
	verbs->create_srq_ex = create_srq_ex;
	verbs->query_rt_values = query_rt_values_ex;
	verbs->context.ops.poll_cq = poll_cq;
	verbs->context.ops.req_notify_cq = req_notify_cq;
	verbs->context.ops.post_send = post_send;
	verbs->context.ops.post_recv = post_recv;
	verbs->context.ops.post_srq_recv = post_srq_recv;
}

VB_PUBLIC int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return api_refuse(function);
}

VB_PUBLIC int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return api_refuse(function);
}

VB_PUBLIC struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					   uint64_t iova, int fd, int access)
{
	return api_refuse_null(function);
}

VB_PUBLIC struct ibv_context *ibv_import_device(int cmd_fd)
{
	return api_refuse_null(function);
}

VB_PUBLIC struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	return api_refuse_null(function);
}

VB_PUBLIC void ibv_unimport_pd(struct ibv_pd *pd)
{
}

VB_PUBLIC struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	return api_refuse_null(function);
}

VB_PUBLIC void ibv_unimport_mr(struct ibv_mr *mr)
{
}

VB_PUBLIC struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
	return api_refuse_null(function);
}

VB_PUBLIC void ibv_unimport_dm(struct ibv_dm *dm)
{
}

/*
 * Enhanced connection establishment: a vendor id of 0 means that the peer did not send any options;
 * with one, the card has none to agree on.
 */
VB_PUBLIC int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return qp && ece ? api_refuse(function) : api_refuse(null, "qp or ece");
}

VB_PUBLIC int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (!qp || !ece)
		return api_refuse(null, "qp or ece");
	*ece = (struct ibv_ece){ 0 };
	return api_refuse(function);
}

/* SPDX-License-Identifier: MIT */
/*
 * Operations of verbs_context that this card does not have (docs/deviations.md).
 *
 * Most stay NULL: the inline functions of verbs.h then answer EOPNOTSUPP themselves. Here are those
 * that verbs.h calls without looking.
 */
#include "driver.h"

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	return api_null(EOPNOTSUPP);
}

static int dealloc_mw(struct ibv_mw *mw)
{
	return api_fail(EOPNOTSUPP);
}

static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	return api_fail(EOPNOTSUPP);
}

static int close_xrcd(struct ibv_xrcd *xrcd)
{
	return api_fail(EOPNOTSUPP);
}

void api_set_unsupported_ops(struct verbs_context *verbs)
{
	verbs->context.ops.alloc_mw = alloc_mw;
	verbs->context.ops.dealloc_mw = dealloc_mw;
	verbs->context.ops.bind_mw = bind_mw;
	verbs->close_xrcd = close_xrcd;
}

VB_PUBLIC int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return api_fail(EOPNOTSUPP);
}

VB_PUBLIC int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return api_fail(EOPNOTSUPP);
}

VB_PUBLIC struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					   uint64_t iova, int fd, int access)
{
	return api_null(EOPNOTSUPP);
}

VB_PUBLIC struct ibv_context *ibv_import_device(int cmd_fd)
{
	return api_null(EOPNOTSUPP);
}

VB_PUBLIC struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	return api_null(EOPNOTSUPP);
}

VB_PUBLIC void ibv_unimport_pd(struct ibv_pd *pd)
{
}

VB_PUBLIC struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	return api_null(EOPNOTSUPP);
}

VB_PUBLIC void ibv_unimport_mr(struct ibv_mr *mr)
{
}

VB_PUBLIC struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
	return api_null(EOPNOTSUPP);
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
	return api_fail(qp && ece ? EOPNOTSUPP : EINVAL);
}

VB_PUBLIC int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (!qp || !ece)
		return api_fail(EINVAL);
	*ece = (struct ibv_ece){ 0 };
	return api_fail(EOPNOTSUPP);
}

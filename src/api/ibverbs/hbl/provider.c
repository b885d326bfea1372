// SPDX-License-Identifier: MIT
/*
 * The verbs of an hbl device, inside libibverbs: contexts and what a device says of itself. Completion queues and queue
 * pairs are in cq.c and qp.c.
 *
 * Like the driver of the hardware it has no memory regions, no posting and no polling: data moves through work queues in
 * memory and user FIFOs, which are direct verbs (libhbl).
 */
#include "hbl.h"

#include <unistd.h>

static int no_poll(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	return -api_fail(EOPNOTSUPP);
}

static int no_notify(struct ibv_cq *cq, int solicited_only)
{
	return api_fail(EOPNOTSUPP);
}

static int no_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	if (bad_wr)
		*bad_wr = wr;
	return api_fail(EOPNOTSUPP);
}

static int no_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	if (bad_wr)
		*bad_wr = wr;
	return api_fail(EOPNOTSUPP);
}

static int no_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	if (bad_wr)
		*bad_wr = wr;
	return api_fail(EOPNOTSUPP);
}

static void set_ops(struct verbs_context *verbs)
{
	struct ibv_context_ops *ops = &verbs->context.ops;

	ops->poll_cq = no_poll;
	ops->req_notify_cq = no_notify;
	ops->post_send = no_send;
	ops->post_recv = no_recv;
	ops->post_srq_recv = no_srq_recv;
	/* NULL: verbs.h itself says EOPNOTSUPP */
	verbs->query_rt_values = NULL;
	verbs->alloc_td = NULL;
	verbs->dealloc_td = NULL;
	verbs->alloc_parent_domain = NULL;
	verbs->modify_cq = NULL;
	verbs->create_srq_ex = NULL;
	verbs->get_srq_num = NULL;
	verbs->priv = (struct verbs_ex_private *)&hbl_private;
}

/*
 * The default contexts, which are opened without attributes: one per device, and one for all who open it so. The process that
 * opened it matters, because a forked child has none of its parent's devices.
 */
static struct {
	struct api_context *ctx;
	pid_t pid;
} defaults[VB_HBL_DEVICES];

static uint32_t number_of(const struct ibv_device *device)
{
	return to_device((struct ibv_device *)device)->adapter->config->hbl_number;
}

static struct ibv_context *share_context(struct api_device *device, const void *private_data)
{
	uint32_t number = number_of(&device->ibv);

	if (private_data || !defaults[number].ctx || defaults[number].pid != getpid())
		return NULL;
	defaults[number].ctx->opens++;
	return &defaults[number].ctx->verbs.context;
}

static bool unshare_context(struct api_context *ctx)
{
	uint32_t number = number_of(ctx->verbs.context.device);

	if (--ctx->opens)
		return false;
	if (defaults[number].ctx == ctx)
		defaults[number].ctx = NULL;
	return true;
}

/* Without direct verbs the driver opens /dev/accel/accelN itself and sets all ports up. */
static int open_device(struct api_context *ctx, void *private_data)
{
	const struct hbl_open *open = private_data;
	struct ibv_context *context = &ctx->verbs.context;
	uint32_t number = number_of(context->device);
	int ret;

	ret = vb_hbl_open(context_adapter(context), open ? open->core_fd : -1,
			  open ? open->ports_mask : 0, api_async_event, context, &ctx->hbl);
	if (ret)
		return ret;
	ctx->opens = 1;
	if (!open) {
		defaults[number].ctx = ctx;
		defaults[number].pid = getpid();
	}
	return 0;
}

static void close_device(struct api_context *ctx)
{
	vb_hbl_close(ctx->hbl);
}

/* vb_hbl_close() destroys what is left; the program's structs are left alone. */
static void abandon(struct vb_list *node, enum api_kind kind)
{
}

static void query_device(struct api_context *ctx, struct ibv_device_attr *attr)
{
	const struct vb_config_adapter *config = context_adapter(&ctx->verbs.context)->config;

	attr->max_qp = (int)(VB_HBL_MAX_QPN * config->ports);
	attr->max_qp_wr = VB_HBL_WQES_MAX;
	attr->max_cq = (int)(VB_HBL_CQS * config->ports);
	attr->max_cqe = VB_HBL_CQE_MAX;
	attr->max_pd = 1;
	attr->max_sge = attr->max_sge_rd = 1;
	attr->max_mr = attr->max_srq = attr->max_srq_wr = attr->max_srq_sge = attr->max_ah = 0;
	attr->device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID;
}

/* As the driver of the hardware: who has read the event finds the state in the handle. */
static void async_event(struct ibv_async_event *event)
{
	if (event->event_type == IBV_EVENT_QP_FATAL || event->event_type == IBV_EVENT_QP_REQ_ERR)
		event->element.qp->state = IBV_QPS_ERR;
}

static struct vb_hbl *device(struct ibv_context *context)
{
	return to_context(context)->hbl;
}

static struct vb_hbl_cq *card_cq(struct ibv_cq *cq)
{
	return to_hbl_cq(cq)->card;
}

static struct vb_hbl_qp *card_qp(struct ibv_qp *qp)
{
	return to_hbl_qp(qp)->card;
}

const struct verbs_ex_private hbl_private = {
	.device = device,
	.create_cq = hbl_cq_create,
	.cq = card_cq,
	.qp = card_qp,
	.modify_qp = hbl_qp_modify_ex,
};

static const struct api_driver hbl_driver = {
	.share = share_context,
	.unshare = unshare_context,
	.open = open_device,
	.close = close_device,
	.abandon = abandon,
	.query_device = query_device,
	.create_cq = hbl_cq_create_ex,
	.destroy_cq = hbl_cq_destroy,
	.create_qp = hbl_qp_create,
	.modify_qp = hbl_qp_modify,
	.query_qp = hbl_qp_query,
	.destroy_qp = hbl_qp_destroy,
	.async_event = async_event,
};

const struct api_format api_format_hbl = {
	.driver = &hbl_driver,
	.set_ops = set_ops,
};

// SPDX-License-Identifier: MIT
/*
 * The hbl provider: its table, its contexts and what a device says of itself. Completion queues and
 * queue pairs are in cq.c and qp.c.
 *
 * Like the driver of the hardware it has no memory regions, no posting and no polling: data moves
 * through work queues in memory and user FIFOs, which are direct verbs (libhbl).
 */
#include "hbl.h"

#include <unistd.h>

/*
 * All opens of a device without attributes share one context, until its last close. A forked child does not own its
 * parent's devices, so the device knows whose context it is.
 */
static struct ibv_context *share_context(struct vb_verbs_device *device, const void *private_data)
{
	if (private_data || !device->shared || device->shared_by != getpid())
		return NULL;
	to_hbl_context(device->shared)->opens++;
	return device->shared;
}

static bool unshare_context(struct api_context *api)
{
	struct ibv_context *context = &api->verbs.context;
	struct vb_verbs_device *device = to_device(context->device);

	if (--to_hbl_context(context)->opens)
		return false;
	if (device->shared == context)
		device->shared = NULL;
	return true;
}

/* Without direct verbs the driver opens /dev/accel/accelN itself and sets all ports up. */
static int open_device(struct api_context *api, void *private_data)
{
	const struct vb_verbs_hbl_open *open = private_data;
	struct ibv_context *context = &api->verbs.context;
	struct vb_verbs_device *device = to_device(context->device);
	struct hbl_context *ctx = to_hbl_context(context);
	int ret;

	ret = vb_hbl_open(context_adapter(context), open ? open->core_fd : -1,
			  open ? open->ports_mask : 0, api_async_event, context, &ctx->card);
	if (ret)
		return ret;
	ctx->opens = 1;
	if (!open) {
		device->shared = context;
		device->shared_by = getpid();
	}
	return 0;
}

static void close_device(struct api_context *ctx)
{
	vb_hbl_close(to_hbl_context(&ctx->verbs.context)->card);
}

/*
 * A context has one protection domain. The error for a second one is that of the hardware's driver.
 */
static int pd_added(struct api_context *ctx)
{
	struct ibv_context *context = &ctx->verbs.context;
	bool taken;

	api_context_lock(context);
	taken = to_hbl_context(context)->has_pd;
	to_hbl_context(context)->has_pd = true;
	api_context_unlock(context);
	return taken ? vb_refuse_one_pd() : 0;
}

static void pd_removed(struct api_context *ctx)
{
	struct ibv_context *context = &ctx->verbs.context;

	api_context_lock(context);
	to_hbl_context(context)->has_pd = false;
	api_context_unlock(context);
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

/* As the hardware's driver does: when the program gets the event, the handle has the new state. */
static void async_event(struct ibv_async_event *event)
{
	if (event->event_type == IBV_EVENT_QP_FATAL || event->event_type == IBV_EVENT_QP_REQ_ERR)
		event->element.qp->state = IBV_QPS_ERR;
}

static struct vb_hbl *device(struct ibv_context *context)
{
	return to_hbl_context(context)->card;
}

static struct vb_hbl_cq *card_cq(struct ibv_cq *cq)
{
	return to_hbl_cq(cq)->card;
}

static struct vb_hbl_qp *card_qp(struct ibv_qp *qp)
{
	return to_hbl_qp(qp)->card;
}

static const struct vb_verbs_hbl hbl_accessors = {
	.device = device,
	.create_cq = hbl_cq_create,
	.cq = card_cq,
	.qp = card_qp,
	.modify_qp = hbl_qp_modify_ex,
};

static const struct verbs_ex_private accessors = {
	.format = VB_FORMAT_HBL,
	.objects = &api_objects,
	.hbl = &hbl_accessors,
};

/*
 * vb_hbl_close() takes from the card what the program has left behind, so that nothing is abandoned
 * before.
 */
const struct api_provider api_hbl = {
	.query_device = query_device,

	.accessors = &accessors,
	.context_bytes = sizeof(struct hbl_context),
	.share = share_context,
	.unshare = unshare_context,
	.open = open_device,
	.close = close_device,
	.pd_added = pd_added,
	.pd_removed = pd_removed,
	.async_event = async_event,

	.create_cq = hbl_cq_create_ex,
	.destroy_cq = hbl_cq_destroy,
	.create_qp = hbl_qp_create,
	.modify_qp = hbl_qp_modify,
	.query_qp = hbl_qp_query,
	.destroy_qp = hbl_qp_destroy,
};

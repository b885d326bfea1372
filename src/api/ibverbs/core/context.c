/* SPDX-License-Identifier: MIT */
/*
 * Contexts: an opened device, its table of operations, its QPs by number and the list of its live
 * objects.
 *
 * The kernel frees what a program leaves behind when it closes a device; here ibv_close_device()
 * does, from the lists: first what uses others (QPs), last what is used (protection domains).
 */
#include "objects.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

void api_track(struct ibv_context *context, enum api_kind kind, struct vb_list *node)
{
	pthread_mutex_lock(&context->mutex);
	vb_list_add_tail(&to_context(context)->live[kind], node);
	pthread_mutex_unlock(&context->mutex);
}

/* In front of those it uses: closing the device takes it first. */
void api_track_first(struct ibv_context *context, enum api_kind kind, struct vb_list *node)
{
	pthread_mutex_lock(&context->mutex);
	vb_list_add_head(&to_context(context)->live[kind], node);
	pthread_mutex_unlock(&context->mutex);
}

void api_untrack(struct ibv_context *context, struct vb_list *node)
{
	pthread_mutex_lock(&context->mutex);
	vb_list_del(node);
	pthread_mutex_unlock(&context->mutex);
}

/*
 * Lock-free: a poll looks numbers up while other threads create QPs. Pairs with the stores in qp.c.
 */
struct api_qp *api_qp_find(struct api_context *ctx, uint32_t qpn)
{
	struct api_qp *_Atomic *leaf =
		atomic_load_explicit(&ctx->qp_table[qpn >> API_QP_LEAF_BITS], memory_order_acquire);

	return leaf ? atomic_load_explicit(&leaf[qpn & (API_QP_LEAF - 1)], memory_order_acquire)
		    : NULL;
}

static void set_ops(struct verbs_context *verbs)
{
	struct ibv_context_ops *ops = &verbs->context.ops;

	verbs->sz = sizeof(*verbs);
	verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	api_set_unsupported_ops(verbs);

	verbs->query_port = api_query_port;
	verbs->query_device_ex = api_query_device_ex;
	verbs->query_rt_values = api_query_rt_values;
	verbs->alloc_td = api_td_alloc;
	verbs->dealloc_td = api_td_dealloc;
	verbs->alloc_parent_domain = api_parent_domain_alloc;
	verbs->create_cq_ex = api_cq_create_ex;
	verbs->modify_cq = api_cq_modify;
	verbs->create_srq_ex = api_srq_create_ex;
	verbs->get_srq_num = api_srq_number;
	verbs->create_qp_ex = api_qp_create_ex;

	ops->_compat_query_device = ibv_query_device;
	ops->_compat_query_port = api_compat_query_port;
	ops->poll_cq = api_cq_poll;
	ops->req_notify_cq = api_cq_arm;
	ops->post_srq_recv = api_post_srq_recv;
	ops->post_send = api_post_send;
	ops->post_recv = api_post_recv;
}

static int comp_vectors(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n > 0 ? (int)n : 1;
}

static struct ibv_context *open_new(struct api_device *device, void *private_data)
{
	struct api_context *ctx = calloc(1, sizeof(*ctx));
	struct ibv_context *ibv;
	int rc;

	if (!ctx)
		return api_refuse_null(memory, "the context");
	ibv = &ctx->verbs.context;
	set_ops(&ctx->verbs);
	ctx->format = api_format_of(device->adapter);
	if (ctx->format->set_ops)
		ctx->format->set_ops(&ctx->verbs);
	for (int kind = 0; kind < API_KINDS; kind++)
		vb_list_init(&ctx->live[kind]);
	ibv->device = &device->ibv;
	ibv->num_comp_vectors = comp_vectors();
	pthread_mutex_init(&ibv->mutex, NULL);

	/* There is no kernel to command, but programs pass the number to fcntl() and poll(). */
	ibv->cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (ibv->cmd_fd < 0) /* a sandbox without it */
		ibv->cmd_fd = memfd_create("verbatim-cmd", MFD_CLOEXEC);
	if (ibv->cmd_fd < 0) {
		rc = -errno;
		goto free_context;
	}
	rc = api_event_queue_init(&ctx->async);
	if (rc)
		goto close_cmd;
	ibv->async_fd = ctx->async.fd;
	rc = vb_dev_open(device->adapter, api_async_event, ibv, &ctx->dev);
	if (rc)
		goto destroy_queue;
	ctx->driver = ctx->format->driver;
	if (ctx->driver)
		rc = ctx->driver->open(ctx, private_data);
	else if (ctx->format->open)
		rc = ctx->format->open(ctx);
	if (rc)
		goto close_dev;
	return ibv;

close_dev:
	vb_dev_close(ctx->dev);
destroy_queue:
	api_event_queue_destroy(&ctx->async);
close_cmd:
	close(ibv->cmd_fd);
free_context:
	pthread_mutex_destroy(&ibv->mutex);
	free(ctx);
	return api_null(-rc);
}

/* Around opening and closing a device whose contexts may be shared. */
static pthread_mutex_t share_lock = PTHREAD_MUTEX_INITIALIZER;

struct ibv_context *api_context_open(struct api_device *device, void *private_data)
{
	const struct api_driver *driver = api_format_of(device->adapter)->driver;
	struct ibv_context *context;

	if (!driver)
		return open_new(device, private_data);
	pthread_mutex_lock(&share_lock);
	context = driver->share(device, private_data);
	if (!context)
		context = open_new(device, private_data);
	pthread_mutex_unlock(&share_lock);
	return context;
}

/*
 * The program's structs are left alone: it may still hold pointers to them, as after a real close.
 */
static void abandon(struct vb_list *node, enum api_kind kind)
{
	switch (kind) {
	case API_KIND_QP:
		vb_qp_destroy(container_of(node, struct api_qp, node)->card);
		break;
	case API_KIND_SRQ:
		vb_srq_destroy(container_of(node, struct api_srq, node)->card);
		break;
	case API_KIND_CQ:
		vb_cq_destroy(container_of(node, struct api_cq, node)->card);
		break;
	case API_KIND_MR:
		vb_mr_dereg(container_of(node, struct api_mr, node)->card);
		break;
	case API_KIND_PD:
		vb_pd_dealloc(container_of(node, struct api_pd, node)->card);
		break;
	case API_KINDS:
		break;
	}
}

static int close_context(struct ibv_context *context)
{
	struct api_context *ctx = to_context(context);
	int rc;

	if (atomic_load(&ctx->users))
		return api_refuse(busy, "FlexIO objects");
	for (int kind = 0; kind < API_KINDS; kind++) {
		while (!vb_list_empty(&ctx->live[kind])) {
			struct vb_list *node = ctx->live[kind].next;

			vb_list_del(node);
			if (ctx->driver && kind != API_KIND_PD)
				ctx->driver->abandon(node, (enum api_kind)kind);
			else
				abandon(node, (enum api_kind)kind);
		}
	}
	if (ctx->format->close)
		ctx->format->close(ctx);
	if (ctx->driver)
		ctx->driver->close(ctx);
	rc = vb_dev_close(ctx->dev);
	if (rc)
		return api_status(rc);
	api_async_close(context);
	close(context->cmd_fd);
	for (int i = 0; i < API_QP_LEAF; i++)
		free(ctx->qp_table[i]);
	pthread_mutex_destroy(&context->mutex);
	free(ctx);
	return 0;
}

VB_PUBLIC int ibv_close_device(struct ibv_context *context)
{
	const struct api_driver *driver;
	int err = 0;

	API_CALL(API_DEVICE(context));
	if (!context)
		return api_refuse(null, "context");
	driver = context_driver(context);
	if (!driver)
		return close_context(context);
	pthread_mutex_lock(&share_lock);
	if (driver->unshare(to_context(context)))
		err = close_context(context);
	pthread_mutex_unlock(&share_lock);
	return err;
}

// SPDX-License-Identifier: MIT
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

#include "base/cancel.h"
#include "card/flow.h"

/*
 * Of the contexts that a forked child has from its parent. A thread of the parent may have had the
 * mutex of one, and nobody unlocks it in the child.
 */
static struct vb_lock inherited_lock;

void api_context_lock(struct ibv_context *context)
{
	if (api_is_inherited(context))
		vb_lock(&inherited_lock);
	else
		pthread_mutex_lock(&context->mutex);
}

void api_context_unlock(struct ibv_context *context)
{
	if (api_is_inherited(context))
		vb_unlock(&inherited_lock);
	else
		pthread_mutex_unlock(&context->mutex);
}

/* The lists that a forked child has from its parent may be half changed: it leaves them alone. */

void api_track(struct ibv_context *context, enum api_kind kind, struct vb_list *node)
{
	if (api_is_inherited(context))
		return;
	api_context_lock(context);
	vb_list_add_tail(&to_context(context)->live[kind], node);
	api_context_unlock(context);
}

/* At the head of its list: ibv_close_device() removes it before the objects that it uses. */
void api_track_first(struct ibv_context *context, enum api_kind kind, struct vb_list *node)
{
	if (api_is_inherited(context))
		return;
	api_context_lock(context);
	vb_list_add_head(&to_context(context)->live[kind], node);
	api_context_unlock(context);
}

void api_untrack(struct ibv_context *context, struct vb_list *node)
{
	if (api_is_inherited(context))
		return;
	api_context_lock(context);
	vb_list_del(node);
	api_context_unlock(context);
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

/*
 * Fills the tables that programs call through: first every entry refuses, then come the provider's
 * operations, which programs call without passing through the core, then those that the core has
 * for all providers.
 */
static void set_ops(struct verbs_context *verbs, const struct api_provider *provider)
{
	struct ibv_context_ops *ops = &verbs->context.ops;

	verbs->sz = sizeof(*verbs);
	verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	api_set_unsupported_ops(verbs);

#define SET(table, operation)                                     \
	do {                                                      \
		if (provider->operation)                          \
			(table)->operation = provider->operation; \
	} while (0)
	SET(ops, poll_cq);
	SET(ops, req_notify_cq);
	SET(ops, post_send);
	SET(ops, post_recv);
	SET(ops, post_srq_recv);
	SET(verbs, query_rt_values);
	SET(verbs, alloc_td);
	SET(verbs, alloc_parent_domain);
	SET(verbs, modify_cq);
	SET(verbs, create_wq);
	SET(verbs, modify_wq);
	SET(verbs, destroy_wq);
	SET(verbs, create_rwq_ind_table);
	SET(verbs, destroy_rwq_ind_table);
#undef SET

	verbs->query_port = api_query_port;
	verbs->query_device_ex = api_query_device_ex;
	verbs->dealloc_td = api_td_dealloc;
	verbs->ibv_destroy_flow = api_flow_destroy;
	verbs->destroy_flow_action = api_flow_action_destroy;
	verbs->create_cq_ex = api_cq_create_ex;
	verbs->create_qp_ex = api_qp_create_ex;
	if (provider->raw_caps.max_rate)
		verbs->modify_qp_rate_limit = api_qp_rate_limit;
	if (provider->raw) {
		verbs->ibv_create_flow = api_flow_create;
		verbs->create_counters = api_counters_create;
		verbs->destroy_counters = api_counters_destroy;
		verbs->attach_counters_point_flow = api_counters_attach;
		verbs->read_counters = api_counters_read;
	}
	if (provider->max_dm) {
		verbs->alloc_dm = api_dm_alloc;
		verbs->free_dm = api_dm_free;
		verbs->reg_dm_mr = api_dm_reg;
	}
	if (provider->create_srq) {
		verbs->create_srq_ex = api_srq_create_ex;
		verbs->get_srq_num = api_srq_number;
	}
	ops->_compat_query_device = ibv_query_device;
	ops->_compat_query_port = api_compat_query_port;
}

static int comp_vectors(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n > 0 ? (int)n : 1;
}

static struct ibv_context *open_new(struct api_device *device, void *private_data)
{
	const struct api_provider *provider = api_provider_of(device->adapter);
	struct api_context *ctx = calloc(1, provider->context_bytes);
	struct ibv_context *ibv;
	int rc;

	if (!ctx)
		return api_refuse_null(memory, "the context");
	ibv = &ctx->verbs.context;
	ctx->provider = provider;
	set_ops(&ctx->verbs, provider);
	ctx->verbs.priv = (struct verbs_ex_private *)provider->accessors;
	for (int kind = 0; kind < API_KINDS; kind++)
		vb_list_init(&ctx->live[kind]);
	ibv->device = &device->ibv;
	ibv->num_comp_vectors = comp_vectors();
	pthread_mutex_init(&ibv->mutex, NULL);

	/* There is no kernel to command, but programs pass the number to fcntl() and poll(). */
	ibv->cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (ibv->cmd_fd < 0) /* a sandbox may have no /dev/null */
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
	if (provider->open)
		rc = provider->open(ctx, private_data);
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

/* Another thread of the parent may have had it: the child has no such thread. */
static void release_share_lock(void)
{
	pthread_mutex_init(&share_lock, NULL);
}

__attribute__((constructor)) static void register_fork_handler(void)
{
	pthread_atfork(NULL, NULL, release_share_lock);
}

struct ibv_context *api_context_open(struct api_device *device, void *private_data)
{
	VB_NO_CANCEL;
	const struct api_provider *provider = api_provider_of(device->adapter);
	struct ibv_context *context;

	if (!provider->share)
		return open_new(device, private_data);
	pthread_mutex_lock(&share_lock);
	context = provider->share(device, private_data);
	if (!context)
		context = open_new(device, private_data);
	pthread_mutex_unlock(&share_lock);
	return context;
}

/*
 * The program's structs are left alone: it may still hold pointers to them, as after a real close.
 */
void api_abandon(struct vb_list *node, enum api_kind kind)
{
	switch (kind) {
	case API_KIND_FLOW:
		api_flow_abandon(node);
		break;
	case API_KIND_TABLE:
		api_ind_table_abandon(node);
		break;
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
	case API_KIND_DM:
		api_dm_abandon(node);
		break;
	case API_KIND_PD:
	case API_KINDS:
		break;
	}
}

/* One that somebody still has stays, and so does the context. */
static void close_domains(struct api_context *ctx)
{
	struct vb_list *node, *after;

	vb_list_for_each_safe(node, after, &ctx->live[API_KIND_PD])
		if (!vb_pd_dealloc(container_of(node, struct api_pd, node)->card))
			vb_list_del(node);
}

static int close_context(struct ibv_context *context)
{
	VB_NO_CANCEL;
	struct api_context *ctx = to_context(context);
	struct vb_verbs_extra *extra = atomic_load_explicit(&ctx->extra, memory_order_acquire);
	bool inherited = api_is_inherited(context);
	int rc;

	/* Pairs with the release in accessors.c. */
	if (atomic_load_explicit(&ctx->users, memory_order_acquire))
		return api_refuse(busy, "FlexIO objects");
	/* Rules of other contexts may lead here: nothing is gone yet. */
	rc = inherited ? 0 : vb_dev_check_unpinned(ctx->dev);
	if (rc)
		return api_status(rc);
	for (int kind = 0; !inherited && kind < API_KINDS; kind++) {
		/*
		 * Flows and tables lead to objects of direct verbs, and these lie on queues of
		 * verbs.
		 */
		if (kind == API_KIND_QP && extra)
			extra->close(extra);
		if (kind == API_KIND_PD) {
			close_domains(ctx);
			continue;
		}
		while (!vb_list_empty(&ctx->live[kind])) {
			struct vb_list *node = ctx->live[kind].next;

			vb_list_del(node);
			if (ctx->provider->abandon)
				ctx->provider->abandon(node, (enum api_kind)kind);
		}
	}
	if (ctx->provider->close)
		ctx->provider->close(ctx);
	rc = vb_dev_close(ctx->dev);
	if (rc)
		return api_status(rc);
	if (extra && !inherited)
		extra->free(extra);
	api_async_close(context, inherited);
	close(context->cmd_fd);
	for (int i = 0; i < API_QP_LEAF; i++)
		free(atomic_load_explicit(&ctx->qp_table[i], memory_order_relaxed));
	if (!inherited)
		pthread_mutex_destroy(&context->mutex);
	free(ctx);
	return 0;
}

VB_PUBLIC int ibv_close_device(struct ibv_context *context)
{
	const struct api_provider *provider;
	int err = 0;

	API_CALL(API_DEVICE(context));
	if (!context)
		return api_refuse(null, "context");
	provider = provider_of(context);
	if (!provider->unshare)
		return close_context(context);
	pthread_mutex_lock(&share_lock);
	if (provider->unshare(to_context(context)))
		err = close_context(context);
	pthread_mutex_unlock(&share_lock);
	return err;
}

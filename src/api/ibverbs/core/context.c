// SPDX-License-Identifier: MIT
/*
 * Contexts: an opened device, its table of operations, its QPs by number and the list of its live
 * objects.
 *
 * The kernel frees what a program leaves behind when it closes a device; here ibv_close_device()
 * does, from the lists: first what uses others (QPs), last what is used (protection domains). It
 * never fails. What other libraries still use stays inside, the context with it, and goes with the
 * last of them:
 *
 *	users      1 open + objects of libflexio, rules of other contexts that lead to its queues
 *	close      removes what can go, closes the descriptors, drops the 1
 *	users 0    removes the rest, closes the device of the card, frees the context
 */
#include "objects.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/fork.h"
#include "base/log.h"
#include "card/ether/flow.h"
#include "card/memory/mr.h"
#include "card/queue/cq.h"
#include "card/queue/qp.h"
#include "card/queue/srq.h"

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

static struct ibv_context *context_open_new(struct vb_verbs_device *device, void *private_data)
{
	const struct api_provider *provider = api_provider_of(device->adapter);
	struct api_context *ctx = calloc(1, provider->context_bytes);
	struct ibv_context *ibv;
	int rc;

	if (!ctx)
		return api_refuse_null(memory, "the context");
	ibv = &ctx->verbs.context;
	atomic_init(&ctx->users, 1);
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
static void context_forked(void)
{
	pthread_mutex_init(&share_lock, NULL);
}

VB_STAGE(CONTEXTS, .child = context_forked);

struct ibv_context *api_context_open(struct vb_verbs_device *device, void *private_data)
{
	VB_NO_CANCEL;
	const struct api_provider *provider = api_provider_of(device->adapter);
	struct ibv_context *context;

	if (!provider->share)
		return context_open_new(device, private_data);
	pthread_mutex_lock(&share_lock);
	context = provider->share(device, private_data);
	if (!context)
		context = context_open_new(device, private_data);
	pthread_mutex_unlock(&share_lock);
	return context;
}

/*
 * A memory region of a domain that device code works in stays as long as that: its key is in
 * windows and in work requests of device queues.
 */
static int mr_abandon(struct api_mr *mr)
{
	return api_pd_lent(mr->ibv.pd) ? -EBUSY : vb_mr_dereg(mr->card);
}

/*
 * The program's structs are left alone: it may still hold pointers to them, as after a real close.
 */
int api_abandon(struct vb_list *node, enum api_kind kind)
{
	switch (kind) {
	case API_KIND_FLOW:
		api_flow_abandon(node);
		break;
	case API_KIND_TABLE:
		api_ind_table_abandon(node);
		break;
	case API_KIND_QP:
		return vb_qp_destroy(container_of(node, struct api_qp, node)->card);
	case API_KIND_SRQ:
		return vb_srq_destroy(container_of(node, struct api_srq, node)->card);
	case API_KIND_CQ:
		return vb_cq_destroy(container_of(node, struct api_cq, node)->card);
	case API_KIND_MR:
		return mr_abandon(container_of(node, struct api_mr, node));
	case API_KIND_DM:
		return api_dm_abandon(node);
	case API_KIND_PD:
	case API_KINDS:
		break;
	}
	return 0;
}

static int object_abandon(struct api_context *ctx, struct vb_list *node, enum api_kind kind)
{
	if (kind == API_KIND_PD) {
		struct api_pd *pd = container_of(node, struct api_pd, node);

		return api_pd_lent(&pd->ibv) ? -EBUSY : vb_pd_dealloc(pd->card);
	}
	return ctx->provider->abandon ? ctx->provider->abandon(node, kind) : 0;
}

/* Removes what can go of what the program left behind; the rest stays in the lists. */
static void remove_left(struct api_context *ctx)
{
	struct vb_verbs_extra *extra = atomic_load_explicit(&ctx->extra, memory_order_acquire);
	struct vb_list *node, *after;
	/* An object that stays is no failure of the call: its reason is not for the log. */
	char words[64];
	struct vb_call quiet = { .function = "ibv_close_device",
				 .nested = true,
				 .words = words,
				 .words_size = sizeof(words) };

	vb_call_begin(&quiet);
	for (int kind = 0; kind < API_KINDS; kind++) {
		/*
		 * Flows and tables lead to objects of direct verbs, and these lie on queues of
		 * verbs.
		 */
		if (kind == API_KIND_QP && extra)
			extra->close(extra);
		vb_list_for_each_safe(node, after, &ctx->live[kind])
			if (!object_abandon(ctx, node, (enum api_kind)kind))
				vb_list_del(node);
	}
	vb_call_end(&quiet);
}

/* The last user of a closed context is gone. */
static void context_free_context(struct api_context *ctx)
{
	struct ibv_context *context = &ctx->verbs.context;
	struct vb_verbs_extra *extra = atomic_load_explicit(&ctx->extra, memory_order_acquire);
	bool inherited = api_is_inherited(context);

	if (!inherited)
		remove_left(ctx);
	if (ctx->provider->close)
		ctx->provider->close(ctx);
	if (vb_dev_close(ctx->dev)) {
		vb_warn("%s: an object without an owner keeps a closed context",
			context->device->name);
		return;
	}
	if (extra && !inherited)
		extra->free(extra);
	api_event_queue_destroy(&ctx->async);
	for (int i = 0; i < API_QP_LEAF; i++)
		free(atomic_load_explicit(&ctx->qp_table[i], memory_order_relaxed));
	if (!inherited)
		pthread_mutex_destroy(&context->mutex);
	free(ctx);
}

void api_context_get(struct ibv_context *context)
{
	atomic_fetch_add_explicit(&to_context(context)->users, 1, memory_order_relaxed);
}

void api_context_put(struct ibv_context *context)
{
	VB_NO_CANCEL;

	/* Whoever frees it sees what the others did. */
	if (atomic_fetch_sub_explicit(&to_context(context)->users, 1, memory_order_acq_rel) == 1)
		context_free_context(to_context(context));
}

static void context_close_context(struct ibv_context *context)
{
	VB_NO_CANCEL;
	bool inherited = api_is_inherited(context);
	int async_fd;

	if (!inherited)
		remove_left(to_context(context));
	async_fd = api_async_close(context, inherited);
	close(context->cmd_fd);
	context->cmd_fd = context->async_fd = -1;
	api_context_put(context);
	/*
	 * Last, as in rdma-core: programs that stop waiting for it after the call (DPDK's net_mlx4 does)
	 * have in between a descriptor that is not open, and a card takes its time to close.
	 */
	close(async_fd);
}

VB_PUBLIC int ibv_close_device(struct ibv_context *context)
{
	const struct api_provider *provider;

	API_CALL(API_DEVICE(context));
	if (!context)
		return api_refuse(null, "context");
	provider = provider_of(context);
	if (!provider->unshare) {
		context_close_context(context);
		return 0;
	}
	pthread_mutex_lock(&share_lock);
	if (provider->unshare(to_context(context)))
		context_close_context(context);
	pthread_mutex_unlock(&share_lock);
	return 0;
}

// SPDX-License-Identifier: MIT
/* Owns the lists of listeners. One lock for who comes and goes; telling takes none. */
#include "card/queue/listen.h"

#include "base/lock.h"
#include "base/rcu.h"

static struct vb_lock lock;

void vb_listen(struct vb_listeners *listeners, struct vb_listener *listener)
{
	vb_lock(&lock);
	listener->of = listeners;
	atomic_store_explicit(&listener->next,
			      atomic_load_explicit(&listeners->first, memory_order_relaxed),
			      memory_order_relaxed);
	/* Pairs with the acquire in listen_tell(). */
	atomic_store_explicit(&listeners->first, listener, memory_order_release);
	vb_unlock(&lock);
}

void vb_unlisten(struct vb_listener *listener)
{
	vb_lock(&lock);
	if (listener->of) {
		struct vb_listener *_Atomic *at = &listener->of->first, *each;

		while ((each = atomic_load_explicit(at, memory_order_relaxed)) != listener)
			at = &each->next;
		atomic_store_explicit(at,
				      atomic_load_explicit(&listener->next, memory_order_relaxed),
				      memory_order_release);
		listener->of = NULL;
	}
	vb_unlock(&lock);
	vb_read_wait(); /* also where its object has just ended */
}

void vb_listeners_end(struct vb_listeners *listeners)
{
	struct vb_listener *each;

	if (!atomic_load_explicit(&listeners->first, memory_order_relaxed))
		return;
	vb_lock(&lock);
	each = atomic_load_explicit(&listeners->first, memory_order_relaxed);
	atomic_store_explicit(&listeners->first, NULL, memory_order_relaxed);
	for (; each; each = atomic_load_explicit(&each->next, memory_order_relaxed))
		each->of = NULL;
	vb_unlock(&lock);
	vb_read_wait();
}

static void listen_tell(struct vb_listeners *listeners, enum vb_mlx5_event type,
			enum ibv_event_type verbs, uint32_t number)
{
	struct vb_listener *each;

	/* Nearly nobody listens to anything. */
	if (!atomic_load_explicit(&listeners->first, memory_order_relaxed))
		return;
	vb_read_lock();
	each = atomic_load_explicit(&listeners->first, memory_order_acquire);
	for (; each; each = atomic_load_explicit(&each->next, memory_order_acquire))
		each->event(each, type, verbs, number);
	vb_read_unlock();
}

static enum vb_mlx5_event type_of(enum ibv_event_type event)
{
	static const struct {
		enum ibv_event_type verbs;
		enum vb_mlx5_event mlx5;
	} types[] = {
		{ IBV_EVENT_CQ_ERR, VB_MLX5_CQ_ERROR },
		{ IBV_EVENT_QP_FATAL, VB_MLX5_WQ_CATAS_ERROR },
		{ IBV_EVENT_QP_REQ_ERR, VB_MLX5_WQ_INVAL_REQ_ERROR },
		{ IBV_EVENT_QP_ACCESS_ERR, VB_MLX5_WQ_ACCESS_ERROR },
		{ IBV_EVENT_COMM_EST, VB_MLX5_COMM_EST },
		{ IBV_EVENT_SQ_DRAINED, VB_MLX5_SQ_DRAINED },
		{ IBV_EVENT_PATH_MIG, VB_MLX5_PATH_MIG },
		{ IBV_EVENT_PATH_MIG_ERR, VB_MLX5_PATH_MIG_FAILED },
		{ IBV_EVENT_DEVICE_FATAL, VB_MLX5_INTERNAL_ERROR },
		{ IBV_EVENT_PORT_ACTIVE, VB_MLX5_PORT_CHANGE },
		{ IBV_EVENT_PORT_ERR, VB_MLX5_PORT_CHANGE },
		{ IBV_EVENT_LID_CHANGE, VB_MLX5_PORT_CHANGE },
		{ IBV_EVENT_PKEY_CHANGE, VB_MLX5_PORT_CHANGE },
		{ IBV_EVENT_GID_CHANGE, VB_MLX5_PORT_CHANGE },
		{ IBV_EVENT_CLIENT_REREGISTER, VB_MLX5_PORT_CHANGE },
		{ IBV_EVENT_SRQ_ERR, VB_MLX5_SRQ_CATAS_ERROR },
		{ IBV_EVENT_SRQ_LIMIT_REACHED, VB_MLX5_SRQ_LIMIT },
		{ IBV_EVENT_QP_LAST_WQE_REACHED, VB_MLX5_SRQ_LAST_WQE },
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i].verbs == event)
			return types[i].mlx5;
	return VB_MLX5_NO_EVENT;
}

void vb_listeners_tell(struct vb_listeners *listeners, enum ibv_event_type event, uint32_t number)
{
	listen_tell(listeners, type_of(event), event, number);
}

void vb_listeners_complete(struct vb_listeners *listeners, uint32_t number)
{
	listen_tell(listeners, VB_MLX5_COMPLETION, IBV_EVENT_CQ_ERR, number);
}

/* SPDX-License-Identifier: MIT */
/*
 * Who wants to hear of the events of an object: the subscriptions of libmlx5's event channels, to
 * objects of libmlx5 and of libflexio.
 *
 *	object -- struct vb_listeners --> listener --> listener --> NULL
 *
 * Events are told from any thread in read sections (base/rcu.h), also by callbacks of the card.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "base/public.h"

/* Events of the programmer's reference manual: the type of an event queue's entry. */
enum vb_mlx5_event {
	VB_MLX5_COMPLETION = 0x0,
	VB_MLX5_PATH_MIG = 0x1,
	VB_MLX5_COMM_EST = 0x2,
	VB_MLX5_SQ_DRAINED = 0x3,
	VB_MLX5_CQ_ERROR = 0x4,
	VB_MLX5_WQ_CATAS_ERROR = 0x5,
	VB_MLX5_PATH_MIG_FAILED = 0x7,
	VB_MLX5_INTERNAL_ERROR = 0x8,
	VB_MLX5_PORT_CHANGE = 0x9,
	VB_MLX5_WQ_INVAL_REQ_ERROR = 0x10,
	VB_MLX5_WQ_ACCESS_ERROR = 0x11,
	VB_MLX5_SRQ_CATAS_ERROR = 0x12,
	VB_MLX5_SRQ_LAST_WQE = 0x13,
	VB_MLX5_SRQ_LIMIT = 0x14,
	VB_MLX5_NO_EVENT = 0xffff, /* verbs have it, the manual does not */
};

struct vb_listeners;

struct vb_listener {
	/* number: of the object, or of the port. It must not call the card, or wait for a listener. */
	void (*event)(struct vb_listener *listener, enum vb_mlx5_event type,
		      enum ibv_event_type verbs, uint32_t number);
	struct vb_listeners *of; /* NULL: of none any more */
	struct vb_listener *_Atomic next;
};

/* All zeros: nobody listens. */
struct vb_listeners {
	struct vb_listener *_Atomic first;
};

VB_PUBLIC void vb_listen(struct vb_listeners *listeners, struct vb_listener *listener);
/* When this returns, it is told nothing any more, and is not being told. */
VB_PUBLIC void vb_unlisten(struct vb_listener *listener);
/* The object ends; its listeners hear no more. */
VB_PUBLIC void vb_listeners_end(struct vb_listeners *listeners);
/* An event of verbs. */
VB_PUBLIC void vb_listeners_tell(struct vb_listeners *listeners, enum ibv_event_type event,
				 uint32_t number);
/* A CQ has something new. */
VB_PUBLIC void vb_listeners_complete(struct vb_listeners *listeners, uint32_t number);

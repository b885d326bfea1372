// SPDX-License-Identifier: MIT
/*
 * Event channels: what happens to objects of commands and of libflexio, and to the port, as entries
 * of an event queue (EQEs) that a program reads from a file descriptor.
 *
 *	object's listeners --> subscription --+--> channel: cookie and EQE, or the cookie only
 *	port's listeners   --> subscription --+--> an eventfd of the program
 *
 * A subscription belongs to its channel; where its object ends first it hears no more.
 */
#include "mlx5.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/lock.h"
#include "base/time.h"
#include "card/queue/eq.h"
#include "card/queue/listen.h"
#include "devx_bits.h"
#include "devx_channel.h"
#include "devx_table.h"

enum { EQE_BYTES = 64, MOST_EVENTS = 255, MOST_BYTES = 8 << 20 };

struct event_channel {
	struct mlx5dv_devx_event_channel dv; /* first */
	struct ibv_context *context;
	bool omit_data;
	struct devx_channel channel;
	struct vb_lock lock;
	struct subscription *first; /* under the lock */
};

struct subscription {
	struct vb_listener listener; /* first */
	struct event_channel *channel;
	struct subscription *next;
	enum vb_mlx5_event type;
	int fd;                      /* an eventfd instead of the channel; -1: none */
	uint64_t cookie;             /* host order */
	struct devx_message message; /* omit_data: the cookie */
};

/* --- entries of an event queue ---------------------------------------------------------------- */

/* Bytes of an EQE. */
enum eqe {
	EQE_TYPE = 1,
	EQE_SUB_TYPE = 3,
	EQE_CQN = 56,      /* of a completion */
	EQE_CQ_ERROR = 32, /* number of the CQ */
	EQE_CQ_SYNDROME = 43,
	EQE_QUEUE_TYPE = 52, /* of a QP, SQ, RQ or SRQ */
	EQE_QUEUE = 56,      /* its number */
	EQE_PORT = 40,       /* in the upper four bits */
};

enum { CQ_OVERRUN = 1 };

static uint8_t port_change(enum ibv_event_type event)
{
	switch (event) {
	case IBV_EVENT_PORT_ERR:
		return 1;
	case IBV_EVENT_LID_CHANGE:
		return 6;
	case IBV_EVENT_PKEY_CHANGE:
		return 7;
	case IBV_EVENT_GID_CHANGE:
		return 8;
	case IBV_EVENT_CLIENT_REREGISTER:
		return 9;
	default:
		return 4; /* active */
	}
}

static void fill_eqe(uint8_t eqe[EQE_BYTES], enum vb_mlx5_event type, enum ibv_event_type verbs,
		     uint32_t number)
{
	memset(eqe, 0, EQE_BYTES);
	eqe[EQE_TYPE] = (uint8_t)type;
	switch (type) {
	case VB_MLX5_COMPLETION:
		put(eqe, EQE_CQN * 8, 32, number);
		break;
	case VB_MLX5_CQ_ERROR:
		put(eqe, EQE_CQ_ERROR * 8, 32, number);
		eqe[EQE_CQ_SYNDROME] = CQ_OVERRUN;
		break;
	case VB_MLX5_PORT_CHANGE:
		eqe[EQE_SUB_TYPE] = port_change(verbs);
		eqe[EQE_PORT] = (uint8_t)(number << 4);
		break;
	case VB_MLX5_INTERNAL_ERROR:
		break;
	default:
		put(eqe, EQE_QUEUE * 8, 32, number);
		break;
	}
}

/* --- subscriptions ---------------------------------------------------------------------------- */

/*
 * Where the counter is at its limit, the program has something to read already, and writing to a
 * descriptor that blocks would wait for that.
 */
static void count_one(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLOUT };
	const uint64_t one = 1;

	if (vb_poll_until(VB_MACHINE_TIME, &pfd, 1, 0, NULL) != 1 ||
	    vb_sys_write(fd, &one, sizeof(one)) < 0)
		return;
}

static void on_event(struct vb_listener *listener, enum vb_mlx5_event type,
		     enum ibv_event_type verbs, uint32_t number)
{
	VB_NO_CANCEL;
	struct subscription *sub = (struct subscription *)listener;
	struct event_channel *channel = sub->channel;
	uint8_t eqe[EQE_BYTES];

	if (type != sub->type)
		return;
	if (sub->fd >= 0) {
		count_one(sub->fd);
	} else if (channel->omit_data) {
		devx_channel_add_once(&channel->channel, &sub->message);
	} else {
		fill_eqe(eqe, type, verbs, number);
		if (devx_channel_add(&channel->channel, &sub->cookie, sizeof(sub->cookie), eqe,
				     sizeof(eqe), MOST_BYTES))
			devx_channel_overflow(&channel->channel);
	}
}

/* Which events an object has. obj NULL: those of no object. */
static bool has_event(const struct mlx5dv_devx_obj *obj, uint16_t event)
{
	enum {
		QUEUE = 1u << VB_MLX5_WQ_CATAS_ERROR | 1u << VB_MLX5_WQ_INVAL_REQ_ERROR |
			1u << VB_MLX5_WQ_ACCESS_ERROR,
		CONNECTION = QUEUE | 1u << VB_MLX5_PATH_MIG | 1u << VB_MLX5_PATH_MIG_FAILED |
			     1u << VB_MLX5_COMM_EST | 1u << VB_MLX5_SQ_DRAINED |
			     1u << VB_MLX5_SRQ_LAST_WQE,
		SHARED = 1u << VB_MLX5_SRQ_CATAS_ERROR | 1u << VB_MLX5_SRQ_LIMIT,
	};
	uint32_t mask = 0;

	if (event > 31)
		return false;
	switch (obj ? obj->kind : VB_DEVX_NONE) {
	case VB_DEVX_NONE:
		mask = 1u << VB_MLX5_PORT_CHANGE | 1u << VB_MLX5_INTERNAL_ERROR;
		break;
	case VB_DEVX_CQ:
		mask = 1u << VB_MLX5_COMPLETION | 1u << VB_MLX5_CQ_ERROR;
		break;
	case VB_DEVX_QP:
	case VB_DEVX_DCT:
		mask = CONNECTION;
		break;
	case VB_DEVX_SQ:
	case VB_DEVX_RQ:
		mask = QUEUE;
		break;
	case VB_DEVX_SRQ:
	case VB_DEVX_RMP:
		mask = SHARED;
		break;
	default:
		break;
	}
	return mask >> event & 1;
}

static int check_subscribe(const struct event_channel *channel, const struct mlx5dv_devx_obj *obj,
			   const uint16_t *events, size_t count)
{
	int err = obj ? devx_check(obj) : 0;

	if (!channel)
		return vb_refuse_null("event_channel");
	if (err)
		return err;
	if (channel->channel.process != getpid())
		return vb_refuse_forked();
	if (obj && obj->context != channel->context)
		return vb_refuse_other_context("event_channel");
	for (size_t i = 0; i < count; i++)
		if (!has_event(obj, events[i]))
			return vb_refuse_value(obj ? "an event of this object"
						   : "an event without an object",
					       events[i]);
	return 0;
}

static void free_subscriptions(struct subscription *list)
{
	while (list) {
		struct subscription *next = list->next;

		if (list->fd >= 0)
			close(list->fd);
		free(list);
		list = next;
	}
}

static struct subscription *devx_events_make(struct event_channel *channel, enum vb_mlx5_event type,
					     uint64_t cookie, int fd, struct subscription *next)
{
	struct subscription *sub = calloc(1, sizeof(*sub));

	if (!sub)
		return NULL;
	*sub = (struct subscription){
		.listener = { .event = on_event },
		.channel = channel,
		.next = next,
		.type = type,
		.fd = fd,
		.cookie = cookie,
	};
	sub->message.len = sizeof(sub->cookie);
	sub->message.bytes = (uint8_t *)&sub->cookie;
	return sub;
}

/* fd -1: none; else it becomes the subscription's. 0 or -errno. */
static int subscribe(struct event_channel *channel, struct mlx5dv_devx_obj *obj,
		     const uint16_t *events, size_t count, uint64_t cookie, int fd)
{
	struct vb_listeners *of = obj ? &obj->listeners : devx_port_listeners(channel->context);
	struct subscription *list = NULL, *last = NULL;

	for (size_t i = 0; of && i < count; i++) {
		struct subscription *sub = devx_events_make(channel, events[i], cookie, fd, list);

		if (!sub) {
			if (list)
				list->fd = -1; /* the caller's */
			free_subscriptions(list);
			return vb_refuse_memory("the subscription");
		}
		last = last ? last : sub;
		list = sub;
	}
	if (!of)
		return vb_refuse_memory("the subscription");
	for (struct subscription *sub = list; sub; sub = sub->next)
		vb_listen(of, &sub->listener);
	vb_lock(&channel->lock);
	last->next = channel->first;
	channel->first = list;
	vb_unlock(&channel->lock);
	return 0;
}

/* --- calls ------------------------------------------------------------------------------------ */

VB_PUBLIC struct mlx5dv_devx_event_channel *
mlx5dv_devx_create_event_channel(struct ibv_context *context,
				 enum mlx5dv_devx_create_event_channel_flags flags)
{
	const uint32_t known = MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA;
	struct event_channel *channel;
	int err;

	API_CALL(API_DEVICE(context));
	if (!context || !mlx5dv_is_supported(context->device))
		return api_refuse_null(not_mlx5);
	if ((uint32_t)flags & ~known)
		return api_refuse_null(bits, "flags", (uint32_t)flags & ~known);
	channel = calloc(1, sizeof(*channel));
	if (!channel)
		return api_refuse_null(memory, "the event channel");
	err = devx_channel_init(&channel->channel);
	if (!err && !(flags & known)) {
		err = devx_channel_reserve(&channel->channel, sizeof(uint64_t) + EQE_BYTES,
					   MOST_BYTES);
		if (err)
			devx_channel_destroy(&channel->channel);
	}
	if (err) {
		free(channel);
		return api_null(-err);
	}
	channel->context = context;
	channel->omit_data = flags & known;
	channel->dv.fd = channel->channel.fd;
	return &channel->dv;
}

VB_PUBLIC void mlx5dv_devx_destroy_event_channel(struct mlx5dv_devx_event_channel *event_channel)
{
	struct event_channel *channel = (struct event_channel *)event_channel;

	if (!channel)
		return;
	for (struct subscription *sub = channel->first; sub; sub = sub->next)
		vb_unlisten(&sub->listener);
	devx_channel_destroy(&channel->channel);
	free_subscriptions(channel->first);
	free(channel);
}

VB_PUBLIC int mlx5dv_devx_subscribe_devx_event(struct mlx5dv_devx_event_channel *event_channel,
					       struct mlx5dv_devx_obj *obj, uint16_t events_sz,
					       uint16_t events_num[], uint64_t cookie)
{
	struct event_channel *channel = (struct event_channel *)event_channel;
	size_t count = events_sz / sizeof(events_num[0]);
	int err;

	API_CALL(.kind = "event channel");
	if (!events_num || !count || events_sz % sizeof(events_num[0]) || count > MOST_EVENTS)
		return api_refuse(combination, "events_sz is no size of 1 to 255 events");
	err = check_subscribe(channel, obj, events_num, count);
	if (!err)
		err = subscribe(channel, obj, events_num, count, cookie, -1);
	return api_status(err);
}

/* Where /proc tells nothing, any descriptor will do. */
static bool is_eventfd(int fd)
{
	static const char eventfd[] = "anon_inode:[eventfd]";
	char path[32], name[64] = "";

	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	return readlink(path, name, sizeof(name) - 1) <= 0 || !strcmp(name, eventfd);
}

VB_PUBLIC int mlx5dv_devx_subscribe_devx_event_fd(struct mlx5dv_devx_event_channel *event_channel,
						  int fd, struct mlx5dv_devx_obj *obj,
						  uint16_t event_num)
{
	VB_NO_CANCEL;
	struct event_channel *channel = (struct event_channel *)event_channel;
	int own, err;

	API_CALL(.kind = "event channel");
	err = check_subscribe(channel, obj, &event_num, 1);
	if (err)
		return api_fail(-err);
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return api_fail(errno);
	if (!is_eventfd(own)) {
		close(own);
		return api_refuse(combination, "fd is no eventfd");
	}
	err = subscribe(channel, obj, &event_num, 1, 0, own);
	if (err)
		close(own);
	return api_status(err);
}

VB_PUBLIC ssize_t mlx5dv_devx_get_event(struct mlx5dv_devx_event_channel *event_channel,
					struct mlx5dv_devx_async_event_hdr *event_data,
					size_t event_resp_len)
{
	ssize_t got;

	API_CALL(.kind = "event channel");
	if (!event_channel || !event_data) {
		api_refuse(null, "event_channel or event_data");
		return -1;
	}
	got = devx_channel_take(&((struct event_channel *)event_channel)->channel, event_data,
				event_resp_len, EINVAL);
	if (got >= 0)
		return got;
	/* An empty channel is no failure to be logged. */
	if (got == -EAGAIN)
		errno = EAGAIN;
	else
		api_fail((int)-got);
	return -1;
}

/* --- completion vectors ----------------------------------------------------------------------- */

VB_PUBLIC int mlx5dv_devx_query_eqn(struct ibv_context *context, uint32_t vector, uint32_t *eqn)
{
	uint32_t vectors;

	API_CALL(API_DEVICE(context));
	if (!context || !mlx5dv_is_supported(context->device))
		return api_refuse(not_mlx5);
	if (!eqn)
		return api_refuse(null, "eqn");
	vectors = (uint32_t)context->num_comp_vectors;
	if (vector >= vectors)
		return api_refuse(range, "vector", vector, 0, vectors - 1);
	*eqn = VB_EQ_VECTORS + vector % (UINT8_MAX + 1 - VB_EQ_VECTORS);
	return 0;
}

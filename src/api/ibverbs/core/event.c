// SPDX-License-Identifier: MIT
/*
 * Event queues (struct api_event_queue) and, built on one, the asynchronous events of a context.
 *
 *	card: api_async_event() --> [ event | event | ... ] --> ibv_get_async_event() --> program
 *	                             async_fd readable while not empty     |
 *	destroy_*(): mutes the object, forgets its unread  <---------------+ ibv_ack_async_event()
 *	             events, waits until fetched ones are
 *	             acknowledged, destroys the card's object
 *
 * The program may use the object between getting an event and acknowledging it, so the object of
 * the card goes last.
 */
#include "objects.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cancel.h"
#include "card/card.h"

int api_event_queue_init(struct api_event_queue *queue)
{
	queue->fd = eventfd(0, EFD_CLOEXEC);
	if (queue->fd < 0)
		return -errno;
	pthread_mutex_init(&queue->mutex, NULL);
	vb_list_init(&queue->events);
	return 0;
}

void api_event_queue_destroy(struct api_event_queue *queue)
{
	if (queue->fd >= 0)
		close(queue->fd);
	pthread_mutex_destroy(&queue->mutex);
}

/* An event was added; under the mutex. */
void api_event_queue_signal(struct api_event_queue *queue)
{
	VB_NO_CANCEL;
	const uint64_t one = 1;

	/*
	 * Cannot fail: the counter is far from its limit, because whoever empties the list resets
	 * it.
	 */
	if (vb_sys_write(queue->fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN);
}

/*
 * An event was taken, under the mutex: when it was the last, the fd is no longer readable. The fd
 * may be a blocking one, and another process that has it may have read it: look first.
 */
void api_event_queue_clear_fd(struct api_event_queue *queue)
{
	VB_NO_CANCEL;
	struct pollfd pfd = { .fd = queue->fd, .events = POLLIN };
	uint64_t count;

	if (!vb_list_empty(&queue->events) || poll(&pfd, 1, 0) <= 0)
		return;
	if (read(queue->fd, &count, sizeof(count)) < 0)
		assert(errno == EAGAIN);
}

/*
 * Wait for an event as a blocking read() of the fd would; the program may have made it
 * non-blocking.
 */
int api_event_queue_wait(struct api_event_queue *queue)
{
	struct pollfd pfd = { .fd = queue->fd, .events = POLLIN };
	int flags = fcntl(queue->fd, F_GETFL);

	if (flags < 0)
		return errno;
	if (flags & O_NONBLOCK)
		return EAGAIN;
	return poll(&pfd, 1, -1) < 0 ? errno : 0;
}

/* --- asynchronous events ---------------------------------------------------------------------- */

struct async_event {
	struct vb_list node;
	struct vb_event event;
};

/* What an event is about: an object, or only a port. */
enum subject { SUBJECT_PORT, SUBJECT_CQ, SUBJECT_QP, SUBJECT_SRQ };

static enum subject event_subject(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return SUBJECT_CQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return SUBJECT_QP;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return SUBJECT_SRQ;
	default:
		return SUBJECT_PORT;
	}
}

/* The state of the object that the event is about; NULL: it is about a port. */
static struct api_async *async_of(const struct vb_event *ev)
{
	switch (event_subject(ev->type)) {
	case SUBJECT_CQ:
		return &((struct api_cq *)ev->cookie)->async;
	case SUBJECT_QP:
		return &((struct api_qp *)ev->cookie)->async;
	case SUBJECT_SRQ:
		return &((struct api_srq *)ev->cookie)->async;
	case SUBJECT_PORT:
		break;
	}
	return NULL;
}

/*
 * An event of a port that only repeats the last unread one says nothing new. Device queues can cause
 * them without end, and memory has one.
 */
static bool repeats_last(const struct api_event_queue *queue, const struct vb_event *event)
{
	const struct async_event *last = container_of(queue->events.prev, struct async_event, node);

	return event_subject(event->type) == SUBJECT_PORT && !vb_list_empty(&queue->events) &&
	       last->event.type == event->type && last->event.port == event->port;
}

/*
 * Called by the card, from any thread. Where memory is short the event is lost, as on an overrun
 * event queue.
 */
void api_async_event(void *arg, const struct vb_event *event)
{
	struct api_event_queue *queue = &to_context(arg)->async;
	const struct api_async *async = async_of(event);
	struct async_event *ev = malloc(sizeof(*ev));
	/* Pairs with the release of the library that made it. */
	struct vb_verbs_extra *extra =
		atomic_load_explicit(&to_context(arg)->extra, memory_order_acquire);

	if (extra && event_subject(event->type) == SUBJECT_PORT)
		extra->event(extra, event);
	if (!ev)
		return;
	ev->event = *event;
	pthread_mutex_lock(&queue->mutex);
	if (queue->fd < 0 || (async && async->muted) || repeats_last(queue, event)) {
		free(ev);
	} else {
		vb_list_add_tail(&queue->events, &ev->node);
		api_event_queue_signal(queue);
	}
	pthread_mutex_unlock(&queue->mutex);
}

/* Fill in what the program sees and count the event as fetched; under the queue's mutex. */
static void event_deliver(const struct vb_event *ev, struct ibv_async_event *out)
{
	struct api_async *async = async_of(ev);

	if (async)
		async->fetched++;
	out->event_type = ev->type;
	switch (event_subject(ev->type)) {
	case SUBJECT_CQ:
		out->element.cq = &((struct api_cq *)ev->cookie)->ibv;
		break;
	case SUBJECT_QP:
		out->element.qp = &((struct api_qp *)ev->cookie)->ibv;
		break;
	case SUBJECT_SRQ:
		out->element.srq = &((struct api_srq *)ev->cookie)->ibv;
		break;
	case SUBJECT_PORT:
		out->element.port_num = ev->port;
		break;
	}
}

VB_PUBLIC int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct api_event_queue *queue;
	struct async_event *ev = NULL;
	int err;

	if (!context || !event) {
		api_refuse(null, "context or event");
		return -1;
	}
	if (api_is_inherited(context)) {
		api_refuse(forked);
		return -1;
	}
	queue = &to_context(context)->async;
	for (;;) {
		vb_card_enter();
		pthread_mutex_lock(&queue->mutex);
		if (!vb_list_empty(&queue->events)) {
			ev = container_of(queue->events.next, struct async_event, node);
			vb_list_del(&ev->node);
			api_event_queue_clear_fd(queue);
			event_deliver(&ev->event, event);
		}
		pthread_mutex_unlock(&queue->mutex);
		vb_card_leave();
		if (ev)
			break;
		err = api_event_queue_wait(queue);
		if (err) {
			errno = err;
			return -1;
		}
	}
	free(ev);
	if (provider_of(context)->async_event)
		provider_of(context)->async_event(event);
	return 0;
}

static void ack(struct ibv_context *context, pthread_mutex_t *mutex, pthread_cond_t *cond,
		uint32_t *completed)
{
	if (api_is_inherited(context))
		return;
	pthread_mutex_lock(mutex);
	++*completed;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

VB_PUBLIC void ibv_ack_async_event(struct ibv_async_event *event)
{
	if (!event)
		return;
	switch (event_subject(event->event_type)) {
	case SUBJECT_CQ: {
		struct ibv_cq *cq = event->element.cq;

		ack(cq->context, &cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	}
	case SUBJECT_QP: {
		struct ibv_qp *qp = event->element.qp;

		ack(qp->context, &qp->mutex, &qp->cond, &qp->events_completed);
		break;
	}
	case SUBJECT_SRQ: {
		struct ibv_srq *srq = event->element.srq;

		ack(srq->context, &srq->mutex, &srq->cond, &srq->events_completed);
		break;
	}
	case SUBJECT_PORT:
		break;
	}
}

/*
 * Drop the events that nobody fetched, under the mutex: those of one object, or all of them (NULL).
 */
static void drop_unread(struct api_event_queue *queue, const struct api_async *async)
{
	struct vb_list *node, *after;
	bool dropped = false;

	vb_list_for_each_safe(node, after, &queue->events) {
		struct async_event *ev = container_of(node, struct async_event, node);

		if (async && async_of(&ev->event) != async)
			continue;
		vb_list_del(node);
		free(ev);
		dropped = true;
	}
	if (dropped)
		api_event_queue_clear_fd(queue);
}

/*
 * An object is going away: from here on its count of fetched events does not change. Or it stays
 * nevertheless.
 */
void api_async_mute(struct ibv_context *context, struct api_async *async, bool muted)
{
	struct api_event_queue *queue = &to_context(context)->async;

	if (api_is_inherited(context))
		return;
	vb_card_enter();
	pthread_mutex_lock(&queue->mutex);
	async->muted = muted;
	if (muted)
		drop_unread(queue, async);
	pthread_mutex_unlock(&queue->mutex);
	vb_card_leave();
}

/*
 * The program closes the context: what the card still tells of it is forgotten. Returns async_fd, from
 * now on silent, which the caller closes.
 */
int api_async_close(struct ibv_context *context, bool inherited)
{
	struct api_event_queue *queue = &to_context(context)->async;
	int fd;

	if (!inherited) {
		vb_card_enter();
		pthread_mutex_lock(&queue->mutex);
		drop_unread(queue, NULL);
	}
	fd = queue->fd;
	queue->fd = -1;
	if (!inherited) {
		pthread_mutex_unlock(&queue->mutex);
		vb_card_leave();
	}
	return fd;
}

/*
 * Destruction waits here for the acknowledgement of every event that was handed out. In a forked
 * child the threads that got them are not there.
 */
void api_wait_acked(struct ibv_context *context, pthread_mutex_t *mutex, pthread_cond_t *cond,
		    const uint32_t *acked, uint32_t fetched)
{
	VB_NO_CANCEL;

	if (api_is_inherited(context))
		return;
	pthread_mutex_lock(mutex);
	while (*acked != fetched)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}

/*
 * A thread of the parent may have waited for the condition, and for its end glibc waits. A child
 * has nothing to release here.
 */
void api_acks_destroy(struct ibv_context *context, pthread_mutex_t *mutex, pthread_cond_t *cond)
{
	if (api_is_inherited(context))
		return;
	pthread_mutex_destroy(mutex);
	pthread_cond_destroy(cond);
}

// SPDX-License-Identifier: MIT
/*
 * Completion channels: CQs tell their program through an fd that a completion came.
 *
 * A CQ is in the channel's list once, however many of its notifications are unread, and moves to
 * the end when one is fetched; so a notification allocates nothing and CQs take turns.
 *
 *	api_channel -- queue --> cq (unread 2) --> cq (unread 1)
 */
#include "objects.h"

#include "card/card.h"

VB_PUBLIC struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct api_channel *channel;
	int rc;

	API_CALL(API_DEVICE(context));
	if (!context)
		return api_refuse_null(null, "context");
	channel = calloc(1, sizeof(*channel));
	if (!channel)
		return api_refuse_null(memory, "the channel");
	rc = api_event_queue_init(&channel->queue);
	if (rc) {
		free(channel);
		return api_null(-rc);
	}
	channel->ibv.context = context;
	channel->ibv.fd = channel->queue.fd;
	return &channel->ibv;
}

VB_PUBLIC int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct ibv_context *context;
	int users;

	if (!channel)
		return api_refuse(null, "channel");
	context = channel->context;
	api_context_lock(context);
	users = channel->refcnt;
	api_context_unlock(context);
	if (users)
		return api_refuse(busy, "completion queues");
	api_event_queue_destroy(&to_channel(channel)->queue);
	free(channel);
	return 0;
}

/* The card's notification of an armed CQ, from any thread. */
void api_channel_notify(void *cookie)
{
	struct api_cq *cq = cookie;
	struct api_event_queue *queue;

	if (!cq->ibv.channel)
		return;
	queue = &to_channel(cq->ibv.channel)->queue;
	pthread_mutex_lock(&queue->mutex);
	if (!cq->muted) {
		if (cq->unread++ == 0)
			vb_list_add_tail(&queue->events, &cq->event);
		api_event_queue_signal(queue);
	}
	pthread_mutex_unlock(&queue->mutex);
}

/* The CQ is going away: drop what nobody fetched, and what would come. Or it stays nevertheless. */
void api_channel_mute(struct api_cq *cq, bool muted)
{
	struct api_event_queue *queue;

	if (!cq->ibv.channel || api_is_inherited(cq->ibv.context))
		return;
	queue = &to_channel(cq->ibv.channel)->queue;
	vb_card_enter();
	pthread_mutex_lock(&queue->mutex);
	cq->muted = muted;
	if (muted && cq->unread) {
		cq->unread = 0;
		vb_list_del(&cq->event);
		api_event_queue_clear_fd(queue);
	}
	pthread_mutex_unlock(&queue->mutex);
	vb_card_leave();
}

static struct api_cq *channel_take(struct api_event_queue *queue)
{
	struct api_cq *cq = NULL;

	vb_card_enter();
	pthread_mutex_lock(&queue->mutex);
	if (!vb_list_empty(&queue->events)) {
		cq = container_of(queue->events.next, struct api_cq, event);
		vb_list_del(&cq->event);
		if (--cq->unread)
			vb_list_add_tail(&queue->events, &cq->event);
		cq->fetched++;
		api_event_queue_clear_fd(queue);
	}
	pthread_mutex_unlock(&queue->mutex);
	vb_card_leave();
	return cq;
}

VB_PUBLIC int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
			       void **cq_context)
{
	struct api_cq *ready;

	if (!channel || !cq || !cq_context) {
		api_refuse(null, "channel, cq or cq_context");
		return -1;
	}
	if (api_is_inherited(channel->context)) {
		api_refuse(forked);
		return -1;
	}
	while (!(ready = channel_take(&to_channel(channel)->queue))) {
		int err = api_event_queue_wait(&to_channel(channel)->queue);

		if (err) {
			errno = err;
			return -1;
		}
	}
	/* The next arming has a new number, so that a card can tell it from a repeated doorbell. */
	atomic_fetch_add_explicit(&ready->arm_sn, 1, memory_order_relaxed);
	*cq = &ready->ibv;
	*cq_context = ready->ibv.cq_context;
	return 0;
}

VB_PUBLIC void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	if (!cq || api_is_inherited(cq->context))
		return;
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += nevents;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

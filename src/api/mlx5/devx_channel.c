// SPDX-License-Identifier: MIT
/*
 * Owns queues of messages behind file descriptors.
 *
 *	devx_channel_add() --> [ message | message | ... ] --> devx_channel_take()
 *	                        eventfd readable while not empty
 *
 * Messages are added by callbacks of the card, too; so who takes one enters the card, which puts
 * off rings of signal handlers meanwhile.
 */
#include "devx_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cancel.h"
#include "card/card.h"
#include "mlx5.h"

int devx_channel_init(struct devx_channel *channel)
{
	*channel = (struct devx_channel){ .fd = eventfd(0, EFD_CLOEXEC), .process = getpid() };
	if (channel->fd < 0)
		return -errno;
	pthread_mutex_init(&channel->mutex, NULL);
	vb_list_init(&channel->messages);
	return 0;
}

/* Pages that were never used cost nothing. */
int devx_channel_reserve(struct devx_channel *channel, size_t len, size_t most)
{
	size_t align = _Alignof(struct devx_message);
	size_t stride = (sizeof(struct devx_message) + len + align - 1) & ~(align - 1);
	size_t bytes = most / len * stride;
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return -errno;
	channel->room.at = at;
	channel->room.bytes = bytes;
	channel->room.stride = stride;
	vb_list_init(&channel->room.free);
	return 0;
}

/* Under the mutex. */
static struct devx_message *make_message(struct devx_channel *channel, size_t len)
{
	struct devx_message *message;

	if (!channel->room.at)
		return malloc(sizeof(*message) + len);
	if (!vb_list_empty(&channel->room.free)) {
		message = container_of(channel->room.free.next, struct devx_message, node);
		vb_list_del(&message->node);
		return message;
	}
	if (channel->room.used == channel->room.bytes ||
	    sizeof(*message) + len > channel->room.stride)
		return NULL;
	message = (void *)(channel->room.at + channel->room.used);
	channel->room.used += channel->room.stride;
	return message;
}

static void remove_message(struct devx_channel *channel, struct devx_message *message)
{
	vb_list_del(&message->node);
	message->queued = false;
	channel->bytes -= message->len;
	if (message->own && channel->room.at)
		vb_list_add_tail(&channel->room.free, &message->node);
	else if (message->own)
		free(message);
}

void devx_channel_destroy(struct devx_channel *channel)
{
	VB_NO_CANCEL;

	while (channel->process == getpid() && !vb_list_empty(&channel->messages))
		remove_message(channel,
			       container_of(channel->messages.next, struct devx_message, node));
	if (channel->room.at)
		munmap(channel->room.at, channel->room.bytes);
	close(channel->fd);
}

/* Under the mutex: the descriptor follows the list. */
static void signal_one(struct devx_channel *channel)
{
	VB_NO_CANCEL;
	const uint64_t one = 1;

	/* The counter is far from its limit, since whoever empties the list resets it. */
	if (vb_sys_write(channel->fd, &one, sizeof(one)) < 0)
		return;
}

static void devx_channel_clear_fd(struct devx_channel *channel)
{
	VB_NO_CANCEL;
	struct pollfd pfd = { .fd = channel->fd, .events = POLLIN };
	uint64_t count;

	/* The descriptor may be a blocking one, and the program may have read it. */
	if (!vb_list_empty(&channel->messages) || channel->overflow || poll(&pfd, 1, 0) <= 0)
		return;
	if (read(channel->fd, &count, sizeof(count)) < 0)
		return;
}

static void devx_channel_lock(struct devx_channel *channel)
{
	vb_card_enter();
	pthread_mutex_lock(&channel->mutex);
}

static void devx_channel_unlock(struct devx_channel *channel)
{
	pthread_mutex_unlock(&channel->mutex);
	vb_card_leave();
}

int devx_channel_add(struct devx_channel *channel, const void *head, size_t head_len,
		     const void *body, size_t body_len, size_t most)
{
	size_t len = head_len + body_len;
	struct devx_message *message = NULL;
	int err = -EAGAIN;

	devx_channel_lock(channel);
	if (channel->bytes + len <= most) {
		message = make_message(channel, len);
		err = message ? 0 : -ENOMEM;
	}
	if (message) {
		*message = (struct devx_message){ .own = true, .queued = true, .len = len };
		message->bytes = (uint8_t *)(message + 1);
		memcpy(message->bytes, head, head_len);
		memcpy(message->bytes + head_len, body, body_len);
		vb_list_add_tail(&channel->messages, &message->node);
		channel->bytes += len;
		signal_one(channel);
	}
	devx_channel_unlock(channel);
	return err;
}

void devx_channel_add_once(struct devx_channel *channel, struct devx_message *message)
{
	devx_channel_lock(channel);
	if (!message->queued) {
		vb_list_add_tail(&channel->messages, &message->node);
		message->queued = true;
		channel->bytes += message->len;
		signal_one(channel);
	}
	devx_channel_unlock(channel);
}

void devx_channel_withdraw(struct devx_channel *channel, struct devx_message *message)
{
	devx_channel_lock(channel);
	if (message->queued) {
		remove_message(channel, message);
		devx_channel_clear_fd(channel);
	}
	devx_channel_unlock(channel);
}

void devx_channel_overflow(struct devx_channel *channel)
{
	devx_channel_lock(channel);
	if (!channel->overflow)
		signal_one(channel);
	channel->overflow = true;
	devx_channel_unlock(channel);
}

/* -ENODATA: there is none. */
static ssize_t take_now(struct devx_channel *channel, void *to, size_t len, int small)
{
	struct devx_message *message;
	ssize_t got = -ENODATA;

	devx_channel_lock(channel);
	message = container_of(channel->messages.next, struct devx_message, node);
	if (channel->overflow) {
		channel->overflow = false;
		got = -EOVERFLOW;
	} else if (!vb_list_empty(&channel->messages) && message->len > len) {
		got = -small;
	} else if (!vb_list_empty(&channel->messages)) {
		got = (ssize_t)message->len;
		memcpy(to, message->bytes, message->len);
		remove_message(channel, message);
	}
	devx_channel_clear_fd(channel);
	devx_channel_unlock(channel);
	return got;
}

ssize_t devx_channel_take(struct devx_channel *channel, void *to, size_t len, int small)
{
	struct pollfd pfd = { .fd = channel->fd, .events = POLLIN };

	if (channel->process != getpid())
		return vb_refuse_forked();
	for (;;) {
		ssize_t got = take_now(channel, to, len, small);
		int flags;

		if (got != -ENODATA)
			return got;
		flags = fcntl(channel->fd, F_GETFL);
		if (flags < 0)
			return -errno;
		if (flags & O_NONBLOCK)
			return -EAGAIN;
		if (poll(&pfd, 1, -1) < 0)
			return -errno;
	}
}

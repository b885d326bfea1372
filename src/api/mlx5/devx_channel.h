/* SPDX-License-Identifier: MIT */
/* A queue of messages behind a file descriptor, for channels of commands and of events (DEVX). */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

struct devx_message {
	struct vb_list node;
	bool own; /* gone when it was taken; else it is part of a subscription */
	bool queued;
	size_t len;
	uint8_t *bytes;
};

/* The descriptor is readable exactly while there are messages. */
struct devx_channel {
	int fd;
	pid_t process; /* a forked child leaves it alone */
	pthread_mutex_t mutex;
	struct vb_list messages;
	size_t bytes;  /* of all of them */
	bool overflow; /* one was lost */
	struct {
		char *at; /* NULL: messages are allocated */
		size_t bytes, stride, used;
		struct vb_list free; /* messages that were there */
	} room;
};

/* 0 or -errno. */
int devx_channel_init(struct devx_channel *channel);
/*
 * Room for messages of len bytes, as many as are `most` bytes together: adding one allocates nothing.
 * A doorbell in a program's signal handler can make an event, also where that interrupts malloc().
 * 0 or -errno.
 */
int devx_channel_reserve(struct devx_channel *channel, size_t len, size_t most);
/* Forgets what nobody took. */
void devx_channel_destroy(struct devx_channel *channel);
/* A copy of head and body. -ENOMEM; -EAGAIN: most bytes are in it. */
int devx_channel_add(struct devx_channel *channel, const void *head, size_t head_len,
		     const void *body, size_t body_len, size_t most);
/* A message that is somebody's: not a second time while it waits. Withdraw it before it ends. */
void devx_channel_add_once(struct devx_channel *channel, struct devx_message *message);
void devx_channel_withdraw(struct devx_channel *channel, struct devx_message *message);
/* Leave the mark of a lost one. */
void devx_channel_overflow(struct devx_channel *channel);
/*
 * The next message, as read() of the descriptor would: waits, unless it is non-blocking (-EAGAIN).
 * The number of bytes, or -errno; -small: the message is longer than len, and stays. -EOVERFLOW:
 * one was lost since the last call.
 */
ssize_t devx_channel_take(struct devx_channel *channel, void *to, size_t len, int small);

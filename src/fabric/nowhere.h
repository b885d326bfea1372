/* SPDX-License-Identifier: MIT */
/*
 * Operations of a path by which no packet is sent, for links that have no other: to no host at all (path.c), and
 * within the host, where the card calls its own responder (loop.c).
 */
#pragma once

#include <errno.h>

#include "fabric/fabric.h"

static inline int nowhere_send(struct vb_link *link, struct vb_path *path, const struct vb_pkt *pkt)
{
	return -EHOSTDOWN;
}

static inline void nowhere_nothing(struct vb_link *link, struct vb_path *path)
{
}

static inline bool nowhere_always(struct vb_link *link, struct vb_path *path)
{
	return true;
}

static inline bool nowhere_never(struct vb_link *link, struct vb_path *path)
{
	return false;
}

static inline bool nowhere_polled(struct vb_link *link, const struct vb_path *path)
{
	return false;
}

static inline uint32_t nowhere_expected(struct vb_link *link, struct vb_path *path, uint32_t qpn,
					uint32_t sqpn, uint32_t otherwise)
{
	return otherwise;
}

static inline __be64 nowhere_adapter(struct vb_link *link, struct vb_path *path, uint32_t qpn)
{
	return 0;
}

static inline uint64_t nowhere_connection(struct vb_link *link, struct vb_path *path, uint32_t qpn)
{
	return 0;
}

/* alive: what could die is not there; time-outs tell. */
#define VB_NOWHERE_OPS                                                                \
	.send = nowhere_send, .flush = nowhere_nothing, .alive = nowhere_always,      \
	.drained = nowhere_always, .unread = nowhere_never, .polled = nowhere_polled, \
	.expected = nowhere_expected, .adapter = nowhere_adapter,                     \
	.connection = nowhere_connection, .close = nowhere_nothing, .drop = nowhere_nothing

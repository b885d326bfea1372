/* SPDX-License-Identifier: MIT */
/*
 * The ring from one process to another: one producer process, one consumer process, packets as
 * records.
 *
 *	          head (consumer)                tail (producer)
 *	            v                               v
 *	... free ][ record | record |  record ...  ][0 free ...
 *	                                             ^ commit word of the next record, always 0 until it is published
 *
 * A record starts on a cache line with its commit word: the number of lines it takes, stored last
 * with release order. The consumer polls that word, so a small message costs one line to hand over.
 * Before publishing a record the producer clears the commit word behind it; payload bytes of an
 * earlier round can therefore never be taken for a record. A producer that dies before the
 * publishing store has sent nothing.
 *
 * The consumer gives space back through `head` after each batch. Whether the producer waits for
 * that it looks up only every quarter of the ring, because the look needs a full fence: a producer
 * that waits has more than half of the ring in front of it, so the look comes.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"

enum {
	VB_RING_MIN = 16 << 10, /* a datagram of 4 KiB must fit, wherever the ring wraps */
	VB_RING_MAX = 256 << 10,
	VB_RING_LINE = 64,
};

/* In shared memory, followed by the data. */
struct vb_ring_shared {
	/* consumer writes */
	_Alignas(64) _Atomic uint64_t head; /* bytes consumed since the start */
	/* producer sets, consumer clears: "tell me when there is room" */
	_Alignas(64) _Atomic uint32_t waiting;
	_Alignas(64) uint8_t data[];
};

struct vb_ring_tx {
	struct vb_ring_shared *shared;
	uint64_t size; /* of the data: a power of two; ours, never read from shared memory */
	uint64_t tail;
	uint64_t head; /* as last seen */
};

struct vb_ring_rx {
	struct vb_ring_shared *shared;
	uint64_t size;
	_Atomic uint64_t head; /* written under the peer's rx_lock, read by all threads */
	uint64_t looked;       /* head when it last looked whether the producer waits */
	uint32_t record_bytes; /* of the record last peeked at */
};

/* The largest payload that a ring of this size takes in one record. */
static inline uint32_t vb_ring_mtu(uint64_t size)
{
	return (uint32_t)(size / 4 > 8192 ? 8192 : size / 4);
}

/*
 * The same for this kind of packet. Frames are not cut: in the smallest ring one of over 7 KiB may
 * find no room at its place, and the next one does.
 */
static inline uint32_t vb_ring_max(uint64_t size, uint8_t transport)
{
	return transport == IBV_QPT_RAW_PACKET ? VB_FRAME_MAX : vb_ring_mtu(size);
}

/* Write a packet; 0, -EAGAIN, -EFAULT (payload unreadable; nothing sent). */
int vb_ring_send(struct vb_ring_tx *tx, const struct vb_pkt *pkt);
/*
 * Whether this packet would find room now. Padding may go ahead of it, which the reader must be woken
 * for.
 */
bool vb_ring_has_room(struct vb_ring_tx *tx, const struct vb_pkt *pkt);
/* Whether everything sent was consumed. */
bool vb_ring_drained(struct vb_ring_tx *tx);
/* Ask to be told of room; false where there is room already. */
bool vb_ring_wait_room(struct vb_ring_tx *tx);

/*
 * Take one packet: 1 and *pkt (payload in the ring, valid until vb_ring_next), 0 where empty,
 * -EPROTO where the producer wrote nonsense.
 */
int vb_ring_peek(struct vb_ring_rx *rx, struct vb_pkt *pkt, struct iovec *iov, struct vb_grh *grh);
/* Go on behind it; true if the producer waits for room and must be woken. */
bool vb_ring_next(struct vb_ring_rx *rx);
/* After a batch: give all consumed space back. */
void vb_ring_release(struct vb_ring_rx *rx);

static inline bool vb_ring_pending(struct vb_ring_rx *rx)
{
	uint64_t head = atomic_load_explicit(&rx->head, memory_order_relaxed);
	_Atomic uint32_t *commit =
		__builtin_assume_aligned(&rx->shared->data[head & (rx->size - 1)], VB_RING_LINE);

	return atomic_load_explicit(commit, memory_order_acquire) != 0;
}

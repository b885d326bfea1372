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
 *
 * From one process to another lead up to VB_RINGS of them. A queue pair sends everything by one, so
 * its packets arrive in order; queue pairs on different rings share no lock (peer.h). The first ring
 * says where the others are.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"

enum {
	VB_RING_MIN = 16 << 10, /* a datagram of 4 KiB must fit, wherever the ring wraps */
	VB_RING_MAX = 256 << 10,
	VB_RING_FURTHER_MAX = 64 << 10, /* of all but the first ring to a process */
	VB_RING_LINE = 64,
	VB_RINGS = 8, /* from one process to another, at most; a power of two */
};

/* In shared memory, followed by the data. */
struct vb_ring_shared {
	/* consumer writes */
	_Alignas(64) _Atomic uint64_t head; /* bytes consumed since the start */
	/* producer sets, consumer clears: "tell me when there is room" */
	_Alignas(64) _Atomic uint32_t waiting;
	uint32_t zero;
	/* producer writes, in the first ring to a process: where the others are (vb_ring_place) */
	_Atomic uint64_t further[VB_RINGS - 1];
	_Alignas(64) uint8_t data[];
};

_Static_assert(sizeof(struct vb_ring_shared) == 128,
	       "a line for head, and one that is seldom used");

/*
 * Where a further ring is, as one word, so that it changes in one piece: the generation of the process
 * that it leads to (32 bits), the binary logarithm of its size (8), its offset in lines (24). 0: none.
 */
static inline uint64_t vb_ring_place(uint32_t generation, uint64_t offset, uint64_t size)
{
	return (uint64_t)generation << 32 | (uint64_t)__builtin_ctzll(size) << 24 |
	       offset / VB_RING_LINE;
}

static inline uint64_t vb_ring_place_offset(uint64_t place)
{
	return (place & 0xffffff) * VB_RING_LINE;
}

/* 0 where no ring can have that size. */
static inline uint32_t vb_ring_place_size(uint64_t place)
{
	uint32_t bits = place >> 24 & 0xff;

	return bits >= __builtin_ctz(VB_RING_MIN) && bits <= __builtin_ctz(VB_RING_MAX) ? 1u << bits
											: 0;
}

static inline uint32_t vb_ring_place_generation(uint64_t place)
{
	return (uint32_t)(place >> 32);
}

struct vb_ring_tx {
	struct vb_ring_shared *shared;
	uint64_t size; /* of the data: a power of two; ours, never read from shared memory */
	uint64_t tail;
	uint64_t head; /* as last seen */
	bool damaged;  /* what is there instead cannot be one */
};

struct vb_ring_rx {
	struct vb_ring_shared *shared;
	uint64_t size;
	_Atomic uint64_t head; /* written under the lock of reading it, read by all threads */
	_Atomic(_Atomic uint32_t *) next; /* the commit word at head: all that a look needs */
	uint64_t looked;                  /* head when it last looked whether the producer waits */
	uint32_t record_bytes;            /* of the record last peeked at */
};

/* With the lock of reading it: go on at this position. */
static inline void vb_ring_move(struct vb_ring_rx *rx, uint64_t head)
{
	void *next =
		__builtin_assume_aligned(&rx->shared->data[head & (rx->size - 1)], VB_RING_LINE);

	atomic_store_explicit(&rx->head, head, memory_order_relaxed);
	atomic_store_explicit(&rx->next, next, memory_order_relaxed);
}

/* Begin to read a ring that nobody has read. */
static inline void vb_ring_attach(struct vb_ring_rx *rx, struct vb_ring_shared *shared,
				  uint64_t size)
{
	rx->shared = shared;
	rx->size = size;
	vb_ring_move(rx, 0);
}

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

/*
 * Write a packet; 0, -EAGAIN, -EFAULT (payload unreadable; nothing sent), -EPROTO where the consumer wrote
 * nonsense and there will never be room.
 */
int vb_ring_send(struct vb_ring_tx *tx, const struct vb_pkt *pkt);
/*
 * Whether this packet would find room now. Padding may go ahead of it, which the reader must be woken
 * for.
 */
bool vb_ring_has_room(struct vb_ring_tx *tx, const struct vb_pkt *pkt);
/* Whether so many bytes more would find room, but for padding. */
bool vb_ring_has_bytes(struct vb_ring_tx *tx, uint64_t bytes);
/* Whether everything sent was consumed. */
bool vb_ring_drained(struct vb_ring_tx *tx);
/* Ask to be told of room; false where there is room already, or never will be. */
bool vb_ring_wait_room(struct vb_ring_tx *tx);

/*
 * Take one packet: 1 and *pkt (payload in the ring, valid until vb_ring_next), 0 where empty,
 * -EPROTO where the producer wrote nonsense.
 */
int vb_ring_peek(struct vb_ring_rx *rx, struct vb_pkt *pkt, struct iovec *iov, struct vb_grh *grh);
/* Go on behind it; true if the producer waits for room and must be woken. */
bool vb_ring_next(struct vb_ring_rx *rx);
/* After a batch: give all consumed space back; the same. */
bool vb_ring_release(struct vb_ring_rx *rx);

static inline bool vb_ring_pending(const struct vb_ring_rx *rx)
{
	const _Atomic uint32_t *commit = atomic_load_explicit(&rx->next, memory_order_relaxed);

	return atomic_load_explicit(commit, memory_order_acquire) != 0;
}

/* With the lock of reading it: nothing is pending any more, whatever comes. */
void vb_ring_close(struct vb_ring_rx *rx);

/* SPDX-License-Identifier: MIT */
/*
 * Everything that the fabric of this process remembers, in one struct; each part belongs to the
 * file that is named. There is one instance today; several in one process, as hosts of a
 * simulation, need a pointer in its place. Outside of it are only what a thread remembers about its
 * own polling (progress.c) and vb_segment_self, which the data path reads.
 */
#pragma once

#include <pthread.h>

#include "host/wait.h"
#include "fabric/peer.h"

struct vb_fabric {
	/* progress.c */
	const struct vb_sink *sink;
	struct vb_wait wait; /* for the wake word; a wire adds its sockets */
	pthread_t thread;
	_Atomic pid_t thread_id; /* 0: it has not begun */
	pthread_mutex_t start_lock;
	unsigned int users;
	_Atomic uint32_t epoch;
	_Atomic bool stop;
	_Atomic bool kicked;      /* work was added since the background thread last looked */
	_Atomic bool resting;     /* it sleeps, or is about to */
	_Atomic bool frames_sent; /* raw ones, by this process */
	_Atomic uint32_t
		sending;       /* frames.c: threads that were promised room, and did not send yet */
	_Atomic bool unpolled; /* senders have the barrier */
	_Atomic int armed;
	_Atomic uint32_t tick;       /* counts background looks while POLLED */
	_Atomic uint64_t tick_start; /* ns */
	uint32_t answered;           /* segment.asked, as the background thread last saw it */
	_Atomic uint32_t polled;     /* the tick in which a poll was last seen */

	struct vb_peers { /* peer.c */
		_Atomic(struct vb_peer *) table[VB_SLOTS];
		_Atomic(struct vb_peer_rx *) inbound[VB_INBOUND_MAX];
		_Atomic uint32_t inbound_count;
		_Atomic uint64_t missed_at; /* ns */
		_Atomic uint32_t unread;    /* processes that ended before their ring was mapped */
		struct vb_peer *dropped;    /* references to give up where waiting is allowed */
		struct vb_lock accept_lock;
		struct vb_lock connect_lock; /* of making rings; taken before that of one */
		/*
		 * Where the rings to a slot are in the own segment, which others can write: as
		 * vb_ring_place(), 0 for none. Under connect_lock.
		 */
		uint64_t made[VB_SLOTS][VB_RINGS];
		struct vb_peer *writer[VB_SLOTS]; /* who sends by them; the same */
		pthread_mutex_t table_lock;
	} peers;

	struct { /* tracer.c */
		struct vb_lock lock;
		pid_t wanted;         /* the peer's pid, nobody or all */
		pid_t allowed;        /* the same, as the kernel was told */
		unsigned int regions; /* of memory that is not shared */
	} tracer;

	struct vb_lock grow_lock; /* segment.c */
	uint32_t spare_used;      /* of VB_SEG_SPARE; under grow_lock */
};

extern struct vb_fabric vb_fabric;

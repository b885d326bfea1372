/* SPDX-License-Identifier: MIT */
/*
 * Everything that the fabric of one host remembers; each part belongs to the file that is named. Peers and
 * paths lead here by peer->fabric. Outside of it are: what a thread remembers about its own polling
 * (progress.c, per thread and host), and what a process has one of: the list of fabrics that run (host.c),
 * the lock of starting and forking (progress.c), who may trace the process (tracer.c), and how many windows
 * onto peers' memory it has mapped (reach.c).
 */
#pragma once

#include <linux/futex.h>
#include <pthread.h>

#include "host/wait.h"
#include "fabric/host.h"
#include "fabric/peer.h"

struct vb_fabric {
	struct vb_fabric_shown shown; /* to the card; first */
	struct vb_segment *segment;   /* the own one; NULL: not started, or in a forked child */
	struct vb_registry *registry;
	const struct vb_sink *sink;
	struct vb_card *card; /* whose sink it is */
	struct vb_host *host;
	_Atomic(struct vb_fabric *) next; /* host.c */

	/* link.c */
	struct vb_link *links;     /* NULL-ended, in the order of asking; NULL: not made yet */
	struct vb_link *receivers; /* those of them that receive */
	struct vb_link loop, shm;
	_Atomic uint32_t watched; /* descriptors */

	/* progress.c */
	uint32_t number;              /* another one for each fabric of the process */
	struct robust_list_head life; /* of the background thread: names the segment's life word */
	unsigned int looks;  /* of the background thread at a ring that is being read, in a row */
	struct vb_wait wait; /* for the wake word; a wire adds its sockets */
	pthread_t thread;
	_Atomic pid_t thread_id; /* 0: it has not begun */
	unsigned int users;      /* under the lock of starting */
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
		_Atomic uint32_t
			epoch;       /* the announcements seen so far: compare with the segment's */
		_Atomic bool missed; /* a ring that was announced could not be mapped: try again */
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
		uint32_t reported
			[VB_SLOTS]; /* generations that cannot be mapped; under table_lock */
		pthread_mutex_t table_lock;
	} peers;

	struct vb_lock show_lock;     /* reach.c: of the table's place in the segment */
	unsigned int private_regions; /* tracer.c: of memory that is not shared; under its lock */
	struct vb_lock grow_lock;     /* segment.c */
	uint32_t spare_used;          /* of VB_SEG_SPARE; under grow_lock */
};

_Static_assert(offsetof(struct vb_fabric, shown) == 0, "the card finds it there");

/* The rings to us, for the receive loop (read section). */
static inline uint32_t vb_peer_inbound(struct vb_fabric *fabric,
				       _Atomic(struct vb_peer_rx *) **list)
{
	*list = fabric->peers.inbound;
	return atomic_load_explicit(&fabric->peers.inbound_count, memory_order_acquire);
}

/* --- link.c --- */
/* The links that every host has, where they are not there yet. */
void vb_links_init(struct vb_fabric *fabric);

/* --- loop.c, shm.c --- */
extern const struct vb_link_ops vb_loop_ops, vb_shm_ops;

/*
 * A packet has come by this link: hand it on, to the link above it or to the card. In a read section. The packet
 * is valid until this returns. After the last one for now, where it went to the card: sink->received().
 */
static inline void vb_link_deliver(struct vb_link *link, const struct vb_pkt *pkt)
{
	struct vb_link *over = link->over;

	if (__builtin_expect(over != NULL, 0))
		over->ops->receive(over, pkt);
	else
		link->fabric->sink->receive(link->fabric->card, pkt);
}

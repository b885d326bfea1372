/* SPDX-License-Identifier: MIT */
/*
 * Another host in the registry, of another process or of this one, as this host knows it: its segment, the rings to it, the rings
 * from it.
 *
 *	queue pair --> class, by its number --> ring_of[] --> tx[0], tx[1], ... --> rx[] of the other process
 *
 * A queue pair sends by the ring of its class, always: what it sends arrives in order, also where it was
 * connected to that process before, and nothing ever moves from one ring to another. A class gets its
 * ring when its first path is held. The first class has the first ring; each further one has a ring of
 * its own, or where memory is short the first, for good. Whoever sends without a held path (datagrams,
 * frames) uses the first ring.
 *
 * Each ring has a lock for sending, and in the other process one for reading. So threads whose queue
 * pairs are of different classes share no lock, and two that poll can read two rings at once.
 *
 * Peers are found by slot. One is made on first use (we send to it, or it announced a ring to us)
 * and given up when its process is gone. Finding one needs a read section; keeping one needs a
 * reference.
 */
#pragma once

#include "base/lock.h"
#include "fabric/fabric.h"
#include "fabric/reach.h"
#include "fabric/ring.h"
#include "fabric/segment.h"

/* Rings of live peers, and of dead ones whose last packets are still to be read. */
enum { VB_INBOUND_MAX = 2 * VB_SLOTS * VB_RINGS };

/* A ring to a peer. The line is that of the threads that send. */
struct vb_peer_tx {
	_Alignas(64) struct vb_lock lock;
	struct vb_ring_tx ring; /* shared NULL: not made yet */
};

/* A ring from a peer. The line is that of the threads that poll. */
struct vb_peer_rx {
	_Alignas(64) struct vb_lock lock;
	bool broken; /* the peer sent nonsense: none of its rings is read any more; under the lock */
	struct vb_ring_rx ring; /* shared NULL: the peer has made none */
	struct vb_peer *peer;
};

_Static_assert(sizeof(struct vb_peer_tx) == 64 && sizeof(struct vb_peer_rx) == 64, "one line each");

struct vb_peer {
	struct vb_fabric *fabric; /* whose peer it is, */
	struct vb_segment *self;  /* and the segment of that one */
	uint32_t slot, generation;
	pid_t pid;
	pid_t thread;               /* names its memory: see vb_registry_watch() */
	struct vb_segment *segment; /* the fixed part of the view */
	_Atomic uint32_t refs;
	_Atomic bool dead;
	_Atomic bool no_direct;   /* the kernel refused process_vm_*: use packets */
	_Atomic uint64_t checked; /* when liveness was last asked, ns */
	struct vb_peer *next_dropped;
	unsigned int drops; /* references waiting in that list */
	struct vb_peer_tx tx[VB_RINGS];
	struct vb_peer_rx rx[VB_RINGS];
	/* under connect_lock */
	uint8_t rings, classes; /* how many there are */
	uint8_t ring_of
		[VB_RINGS];   /* by class: 1 + its ring; 0: no queue of the class was connected */
	_Atomic bool slow;    /* it takes no frames: nobody waits for it (frames.c) */
	_Atomic bool crowded; /* its first ring may have no room for a frame */
	_Atomic uint64_t full_since; /* ns: it has had no room for a frame since then; 0: it has */
	bool ring_reported;          /* that a ring cannot be mapped; under accept_lock */
	struct vb_view view;
	struct vb_reach reach;
};

/* The peer in a slot, inside a read section; made if needed. NULL where nobody is there. */
struct vb_peer *vb_peer_find(struct vb_fabric *fabric, uint32_t slot);
void vb_peer_get(struct vb_peer *peer);
void vb_peer_put(struct vb_peer *peer);
/* The same inside a read section. */
void vb_peer_drop(struct vb_peer *peer);
/*
 * Whether the program still runs: false as soon as its end is marked in its segment, and then it is
 * given up. Where it is not marked, the registry is asked at most every few milliseconds.
 */
bool vb_peer_alive(struct vb_peer *peer);
/* The same for direct access: the registry is asked every tenth of a second. */
bool vb_peer_known_alive(struct vb_peer *peer);
/* Wake the peer's background thread if it asked for that. */
void vb_peer_wake(struct vb_peer *peer);
/* Free the peers that were given up; only where waiting is allowed. */
void vb_peer_collect(struct vb_fabric *fabric);
void vb_peer_accept_new(struct vb_fabric *fabric);
/* A ring that was announced could not be mapped: try again, but not all the time. */
void vb_peer_accept_missed(struct vb_fabric *fabric);
/* A ring that is empty, of a peer that is gone: take it off that list. */
void vb_peer_forget(struct vb_peer_rx *rx);
/* The peer is not to be trusted: read nothing more of it. No ring's lock is held. */
void vb_peer_break(struct vb_peer *peer);
/* A ring to it is damaged: send nothing more to this process, as if it were gone. */
void vb_peer_give_up(struct vb_peer *peer);

/* Forget everything: the process leaves, or is a forked child. */
void vb_peer_reset(struct vb_fabric *fabric, bool forked);
/*
 * The ring of the queue pair with this number of ours, made if needed, with no ring's lock held;
 * -EHOSTDOWN where the peer is gone, or -errno.
 */
int vb_peer_connect(struct vb_peer *peer, uint32_t from);
/* Lock a ring for sending; the same errors, and it is not locked, where it cannot be made. */
static inline int vb_peer_lock_tx(struct vb_peer *peer, struct vb_peer_tx *tx)
{
	int ret;

	vb_lock(&tx->lock);
	if (__builtin_expect(tx->ring.shared != NULL, 1))
		return 0;
	vb_unlock(&tx->lock);
	ret = vb_peer_connect(peer, VB_NO_QUEUE);
	if (!ret)
		vb_lock(&tx->lock);
	return ret;
}

/* SPDX-License-Identifier: MIT */
/*
 * Another process of this host, as this process knows it: its segment, the ring to it, the ring
 * from it.
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

/* Live peers and dead ones whose last packets are still to be read. */
enum { VB_INBOUND_MAX = 2 * VB_SLOTS };

struct vb_peer {
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
	_Alignas(64) struct vb_lock tx_lock;
	struct vb_ring_tx tx; /* shared NULL: not made yet */
	_Alignas(64) struct vb_lock rx_lock;
	struct vb_ring_rx rx; /* shared NULL: the peer has made none */
	_Atomic bool slow;    /* it takes no frames: nobody waits for it (frames.c) */
	_Atomic bool broken;  /* it sent nonsense: its ring is not read any more */
	bool ring_reported;   /* that its ring cannot be mapped; under accept_lock */
	struct vb_view view;
	struct vb_reach reach;
};

/* The peer in a slot, inside a read section; made if needed. NULL where nobody is there. */
struct vb_peer *vb_peer_find(uint32_t slot);
void vb_peer_get(struct vb_peer *peer);
void vb_peer_put(struct vb_peer *peer);
/* The same inside a read section. */
void vb_peer_drop(struct vb_peer *peer);
/*
 * Whether the process still runs; asks the system at most every few milliseconds. Gives the peer up
 * where not.
 */
bool vb_peer_alive(struct vb_peer *peer);
/*
 * The same for direct access, which names the process by a thread: asked anew every tenth of a
 * second, in which no thread id comes round again.
 */
bool vb_peer_known_alive(struct vb_peer *peer);
/* Wake the peer's background thread if it asked for that. */
void vb_peer_wake(struct vb_peer *peer);
/* Free the peers that were given up; only where waiting is allowed. */
void vb_peer_collect(void);
/* The announcements seen so far: compare with the segment's. */
extern _Atomic uint32_t vb_peer_epoch;
void vb_peer_accept_new(void);
/* A ring that was announced could not be mapped: try again, but not all the time. */
extern _Atomic bool vb_peer_missed;
void vb_peer_accept_missed(void);
/* Look for rings that peers announced since the last call. */
static inline void vb_peer_accept(void)
{
	if (__builtin_expect(
		    atomic_load_explicit(&vb_segment_self->inbound_epoch, memory_order_acquire) !=
			    atomic_load_explicit(&vb_peer_epoch, memory_order_relaxed),
		    0))
		vb_peer_accept_new();
}
/* The peers with a ring to us, for the receive loop (read section). */
uint32_t vb_peer_inbound(_Atomic(struct vb_peer *) **list);
/* A peer that is gone and whose ring is empty: take it off that list. */
void vb_peer_forget(struct vb_peer *peer);
/* Forget everything: the process leaves, or is a forked child. */
void vb_peer_reset(bool forked);
/* Make the ring to a peer (tx_lock held); 0 or -errno. */
int vb_peer_connect(struct vb_peer *peer);

// SPDX-License-Identifier: MIT
/*
 * Owns the table of peers and their life.
 *
 *	table[slot] --> peer (one reference) --> segment mapping, tx rings, rx rings
 *	inbound[]   --> rings to us, in their peers (one reference each; the list the receive loop walks)
 *
 * A process that died leaves the table at once, so that the next one in its slot can be met, and each
 * of its rings the inbound list when it is empty: what it sent before it died still arrives. One whose
 * program has ended while its slot is still its own is met as a dead peer, for these rings. Table and
 * list change under table_lock and are read inside read sections; a peer is freed after the last
 * reference and a grace period.
 */
#include "fabric/peer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/time.h"
#include "base/log.h"
#include "base/rcu.h"
#include "base/barrier.h"
#include "fabric/state.h"

enum { ALIVE_PERIOD_NS = 5000000, MISSED_PERIOD_NS = 10000000 };

void vb_peer_get(struct vb_peer *peer)
{
	atomic_fetch_add_explicit(&peer->refs, 1, memory_order_relaxed);
}

/*
 * Called without read section or queue lock by whoever may wait; inside a read section use the
 * table's reference.
 */
void vb_peer_put(struct vb_peer *peer)
{
	struct vb_peers *peers = &peer->fabric->peers;

	if (atomic_fetch_sub_explicit(&peer->refs, 1, memory_order_acq_rel) != 1)
		return;
	vb_read_wait();
	vb_lock(&peers->connect_lock);
	if (peers->writer[peer->slot] == peer)
		peers->writer[peer->slot] = NULL;
	vb_unlock(&peers->connect_lock);
	vb_reach_close(&peer->reach);
	vb_view_close(&peer->view);
	free(peer);
}

/*
 * A process that cannot be reached is looked for again with every packet: the reason is logged
 * once. What is lost is the program's to notice, but not why.
 */
static void report_unmapped(struct vb_fabric *fabric, const struct vb_slot_info *info, int err)
{
	uint32_t *reported = fabric->peers.reported;

	if (err == -ESRCH || reported[info->slot] == info->generation)
		return;
	reported[info->slot] = info->generation;
	vb_warn("process %d cannot be reached: its shared memory cannot be mapped: %s%s",
		(int)info->pid, strerror(-err),
		err == -ENOMEM ? "; raise the limit on address space (ulimit -v)" : "");
}

static struct vb_peer *peer_create(struct vb_fabric *fabric, uint32_t slot)
{
	struct vb_slot_info info;
	struct vb_peer *peer;
	int ret;

	if (slot == fabric->segment->slot || !vb_registry_lookup(fabric->registry, slot, &info) ||
	    !info.thread)
		return NULL;
	peer = aligned_alloc(64, (sizeof(*peer) + 63) & ~(size_t)63);
	if (!peer) {
		report_unmapped(fabric, &info, -ENOMEM);
		return NULL;
	}
	*peer = (struct vb_peer){ .fabric = fabric,
				  .self = fabric->segment,
				  .slot = slot,
				  .generation = info.generation,
				  .pid = info.pid,
				  .thread = info.thread,
				  .refs = 1 };
	ret = vb_view_open(&peer->view, fabric->registry, slot, info.generation);
	if (ret) {
		report_unmapped(fabric, &info, ret);
		free(peer);
		return NULL;
	}
	peer->segment = peer->view.head;
	atomic_store_explicit(&peer->dead, vb_segment_has_ended(peer->segment),
			      memory_order_relaxed);
	/* Pins that an earlier process in our slot left behind when it died. */
	for (unsigned int i = 0; i < VB_SEG_PINS; i++)
		atomic_store_explicit(&peer->segment->pins[fabric->segment->slot][i], 0,
				      memory_order_release);
	return peer;
}

/* With table_lock: take a peer out of the table; the caller drops the table's reference. */
static struct vb_peer *unlink_peer(struct vb_fabric *fabric, uint32_t slot)
{
	struct vb_peers *peers = &fabric->peers;
	struct vb_peer *peer =
		atomic_exchange_explicit(&peers->table[slot], NULL, memory_order_acq_rel);

	if (peer)
		atomic_store_explicit(&peer->dead, true, memory_order_release);
	return peer;
}

/*
 * The table's reference may be dropped inside a read section, which must not wait:
 * vb_peer_collect() does.
 */
void vb_peer_drop(struct vb_peer *peer)
{
	struct vb_peers *peers;
	uint32_t refs;

	if (!peer)
		return;
	peers = &peer->fabric->peers;
	/* Nearly always the table has one, too: then nobody has to wait. */
	refs = atomic_load_explicit(&peer->refs, memory_order_relaxed);
	while (refs > 1)
		if (atomic_compare_exchange_weak_explicit(&peer->refs, &refs, refs - 1,
							  memory_order_acq_rel,
							  memory_order_relaxed))
			return;
	pthread_mutex_lock(&peers->table_lock);
	if (!peer->drops++) {
		peer->next_dropped = peers->dropped;
		peers->dropped = peer;
	}
	pthread_mutex_unlock(&peers->table_lock);
	vb_fabric_kick(peer->fabric);
}

void vb_peer_collect(struct vb_fabric *fabric)
{
	struct vb_peers *peers = &fabric->peers;

	for (;;) {
		struct vb_peer *peer;
		unsigned int drops = 0;

		pthread_mutex_lock(&peers->table_lock);
		peer = peers->dropped;
		if (peer) {
			peers->dropped = peer->next_dropped;
			drops = peer->drops;
			peer->drops = 0;
		}
		pthread_mutex_unlock(&peers->table_lock);
		if (!peer)
			return;
		while (drops--)
			vb_peer_put(peer);
	}
}

static struct vb_peer *peer_replace(struct vb_fabric *fabric, uint32_t slot)
{
	struct vb_peers *peers = &fabric->peers;
	struct vb_peer *peer, *stale = NULL;

	pthread_mutex_lock(&peers->table_lock);
	peer = atomic_load_explicit(&peers->table[slot], memory_order_acquire);
	if (!peer || peer->generation != vb_registry_generation(fabric->registry, slot)) {
		stale = unlink_peer(fabric, slot);
		peer = peer_create(fabric, slot);
		atomic_store_explicit(&peers->table[slot], peer, memory_order_release);
	}
	pthread_mutex_unlock(&peers->table_lock);
	vb_peer_drop(stale);
	return peer;
}

struct vb_peer *vb_peer_find(struct vb_fabric *fabric, uint32_t slot)
{
	struct vb_peers *peers = &fabric->peers;
	struct vb_peer *peer = atomic_load_explicit(&peers->table[slot], memory_order_acquire);

	if (peer && peer->generation == vb_registry_generation(fabric->registry, slot))
		return peer;
	return peer_replace(fabric, slot);
}

bool vb_peer_alive(struct vb_peer *peer)
{
	struct vb_fabric *fabric = peer->fabric;
	struct vb_peers *peers = &fabric->peers;
	struct vb_peer *gone = NULL;
	uint64_t now, last;

	if (atomic_load_explicit(&peer->dead, memory_order_acquire))
		return false;
	now = vb_now_ns();
	last = atomic_load_explicit(&peer->checked, memory_order_relaxed);
	if (!vb_segment_has_ended(peer->segment) &&
	    peer->generation == vb_registry_generation(fabric->registry, peer->slot)) {
		if (now - last < ALIVE_PERIOD_NS)
			return true;
		atomic_store_explicit(&peer->checked, now, memory_order_relaxed);
		if (vb_registry_alive(fabric->registry, peer->slot, peer->generation))
			return true;
	}
	vb_info("process %d is gone", (int)peer->pid);
	pthread_mutex_lock(&peers->table_lock);
	atomic_store_explicit(&peer->dead, true, memory_order_release);
	if (atomic_load_explicit(&peers->table[peer->slot], memory_order_acquire) == peer)
		gone = unlink_peer(fabric, peer->slot);
	pthread_mutex_unlock(&peers->table_lock);
	if (gone) {
		vb_registry_reap(fabric->registry);
		vb_peer_drop(gone);
	}
	return false;
}

bool vb_peer_known_alive(struct vb_peer *peer)
{
	if (__builtin_expect(vb_segment_has_ended(peer->segment), 0))
		return vb_peer_alive(peer);
	/* In case the kernel could not mark its end: the registry. */
	if (atomic_load_explicit(&peer->checked, memory_order_relaxed) + 100 * 1000000ull >
	    vb_now_coarse_ns())
		return !atomic_load_explicit(&peer->dead, memory_order_relaxed);
	return vb_peer_alive(peer);
}

void vb_peer_wake(struct vb_peer *peer)
{
	_Atomic uint32_t *wake = &peer->segment->wake;
	uint32_t state;

	vb_barrier_light(atomic_load_explicit(
		&peer->segment->wants_fence,
		/* pairs with the heavy one before a process sleeps, in progress.c */
		memory_order_relaxed));
	state = atomic_load_explicit(wake, memory_order_relaxed);
	/* A value that is none, because the word was damaged: the thread may sleep, for all we know. */
	if (state != VB_WAKE_POLLED && state != VB_WAKE_BUSY &&
	    atomic_compare_exchange_strong_explicit(wake, &state, VB_WAKE_BUSY,
						    memory_order_seq_cst, memory_order_seq_cst))
		vb_futex_wake(wake, 1, VB_FUTEX_SHARED);
}

/*
 * A large ring is fast, but 64 processes must fit a container's 64 MiB: take no more than this share of
 * what is left. 0 where that is less than a ring.
 */
static uint32_t fabric_peer_ring_size(uint64_t share, uint32_t most)
{
	uint32_t size = most;

	while (size > share && size >= VB_RING_MIN)
		size /= 2;
	return size < VB_RING_MIN ? 0 : size;
}

/* A ring is ready, and shown: have the peer look for it. */
static void fabric_peer_announce(struct vb_peer *peer)
{
	atomic_store_explicit(&peer->segment->inbound[peer->self->slot], peer->self->generation,
			      memory_order_release);
	atomic_fetch_add_explicit(&peer->segment->inbound_epoch, 1, memory_order_seq_cst);
}

/*
 * Make the next ring to the peer; false where there is no memory. A ring to an earlier process in that
 * slot is ours to use again: its reader is gone.
 */
static bool fabric_peer_make_ring(struct vb_peer *peer, uint32_t size,
				  uint64_t (*alloc)(struct vb_fabric *fabric, size_t bytes))
{
	struct vb_peers *peers = &peer->fabric->peers;
	uint64_t *made = &peers->made[peer->slot][peer->rings], offset;
	struct vb_peer_tx *tx = &peer->tx[peer->rings];
	struct vb_ring_shared *shared;

	if (!*made) {
		offset = size ? alloc(peer->fabric, sizeof(*shared) + size) : 0;
		if (!offset)
			return false;
		*made = vb_ring_place(0, offset, size);
	}
	size = vb_ring_place_size(*made);
	shared = vb_segment_at(peer->fabric, vb_ring_place_offset(*made), sizeof(*shared) + size);
	atomic_store_explicit(&shared->head, 0, memory_order_relaxed);
	atomic_store_explicit(&shared->waiting, 0, memory_order_relaxed);
	atomic_store_explicit((_Atomic uint32_t *)shared->data, 0, memory_order_relaxed);
	vb_lock(&tx->lock);
	tx->ring = (struct vb_ring_tx){ .shared = shared, .size = size };
	vb_unlock(&tx->lock);
	peer->rings++;
	return true;
}

/*
 * The rings to this slot become those of this peer. A thread that has not noticed the end of the process
 * before, and is in the middle of a record for it, would write into what the next one reads.
 */
static void take_rings(struct vb_peer *peer)
{
	struct vb_peers *peers = &peer->fabric->peers;
	struct vb_peer *former = peers->writer[peer->slot];

	for (uint32_t n = 0; former && n < VB_RINGS; n++) {
		vb_lock(&former->tx[n].lock);
		former->tx[n].ring.shared = NULL;
		vb_unlock(&former->tx[n].lock);
	}
	peers->writer[peer->slot] = peer;
}

static int make_first(struct vb_peer *peer)
{
	struct vb_fabric *fabric = peer->fabric;
	struct vb_seg_outbound *out = &fabric->segment->outbound[peer->slot];
	uint32_t size =
		fabric_peer_ring_size(vb_registry_space(fabric->registry) / 1024, VB_RING_MAX);

	take_rings(peer);
	if (!fabric_peer_make_ring(peer, size ? size : VB_RING_MIN, vb_segment_alloc))
		return -ENOMEM;
	out->size = (uint32_t)peer->tx[0].ring.size;
	out->offset = vb_ring_place_offset(fabric->peers.made[peer->slot][0]);
	atomic_store_explicit(&out->generation, peer->generation, memory_order_release);
	fabric_peer_announce(peer);
	return 0;
}

/*
 * One more: its number, or that of the first where memory is short. It takes half of the share of a
 * first one, so that there is always room for those.
 */
static uint8_t make_further(struct vb_peer *peer)
{
	uint32_t size = fabric_peer_ring_size(vb_registry_space(peer->fabric->registry) / 2048,
					      VB_RING_FURTHER_MAX);
	uint8_t n = peer->rings;

	if (!fabric_peer_make_ring(peer, size, vb_segment_alloc_spare))
		return 0;
	/* Pairs with accept_further(). */
	atomic_store_explicit(&peer->tx[0].ring.shared->further[n - 1],
			      (uint64_t)peer->generation << 32 |
				      peer->fabric->peers.made[peer->slot][n],
			      memory_order_release);
	fabric_peer_announce(peer);
	/* It is to be mapped before it is used: when this process has ended it cannot be. */
	vb_peer_wake(peer);
	return n;
}

/*
 * Programs that make queue pairs to several processes in turn give those to one of them numbers that
 * are some power of two apart: every three bits count.
 */
static uint32_t class_of(uint32_t from)
{
	uint32_t class = 0;

	_Static_assert(VB_RINGS == 8, "three bits");
	for (from &= VB_QPN_INDEX_MASK; from; from >>= 3)
		class ^= from & 7;
	return class;
}

/* With connect_lock. */
static int ring_for(struct vb_peer *peer, uint32_t from)
{
	uint8_t *of;

	if (from == VB_NO_QUEUE)
		return 0;
	of = &peer->ring_of[class_of(from)];
	if (!*of)
		*of = (uint8_t)(1 + (peer->classes++ ? make_further(peer) : 0));
	return *of - 1;
}

int vb_peer_connect(struct vb_peer *peer, uint32_t from)
{
	struct vb_peers *peers = &peer->fabric->peers;
	int ret = 0;

	vb_lock(&peers->connect_lock);
	/* Its rings may be those to the next process in that slot by now. */
	if (atomic_load_explicit(&peer->dead, memory_order_acquire))
		ret = -EHOSTDOWN;
	else if (!peer->rings)
		ret = make_first(peer);
	if (!ret)
		ret = ring_for(peer, from);
	vb_unlock(&peers->connect_lock);
	return ret;
}

/* With table_lock. */
static void add_inbound(struct vb_peer_rx *rx)
{
	struct vb_peers *peers = &rx->peer->fabric->peers;
	uint32_t count = atomic_load_explicit(&peers->inbound_count, memory_order_acquire);

	if (count == VB_INBOUND_MAX)
		return;
	vb_peer_get(rx->peer);
	atomic_store_explicit(&peers->inbound[count], rx, memory_order_relaxed);
	atomic_store_explicit(&peers->inbound_count, count + 1, memory_order_release);
}

/*
 * Read the ring that a peer says is there, from now on; false where that may work later. What it says is
 * checked here, and not looked up again.
 */
static bool accept_ring(struct vb_peer *peer, uint32_t n, uint64_t offset, uint32_t size)
{
	struct vb_peers *peers = &peer->fabric->peers;
	struct vb_peer_rx *rx = &peer->rx[n];
	bool broken;
	int ret;

	if (size < VB_RING_MIN || size > VB_RING_MAX || (size & (size - 1)))
		return true;
	ret = vb_view_map_ring(&peer->view, n, offset, sizeof(struct vb_ring_shared) + size);
	if (ret) {
		if (!peer->ring_reported && ret != -ESRCH)
			vb_warn("nothing that process %d sends arrives: its ring cannot be mapped: %s%s",
				(int)peer->pid, strerror(-ret),
				ret == -ENOMEM ? "; raise the limit on address space (ulimit -v)"
					       : "");
		peer->ring_reported = true;
		return ret == -ESRCH || ret == -ENOENT;
	}
	vb_lock(&rx->lock);
	broken = rx->broken;
	rx->peer = peer;
	vb_ring_attach(&rx->ring, peer->view.ring[n].at, size);
	vb_unlock(&rx->lock);
	if (broken)
		return true;
	pthread_mutex_lock(&peers->table_lock);
	add_inbound(rx);
	pthread_mutex_unlock(&peers->table_lock);
	return true;
}

static bool accept_first(struct vb_peer *peer)
{
	struct vb_seg_outbound *out = &peer->segment->outbound[peer->self->slot];

	if (peer->rx[0].ring.shared ||
	    atomic_load_explicit(&out->generation, memory_order_acquire) != peer->self->generation)
		return true;
	return accept_ring(peer, 0, out->offset, out->size);
}

static bool accept_further(struct vb_peer *peer)
{
	struct vb_ring_shared *first = peer->rx[0].ring.shared;
	bool all = true;

	for (uint32_t n = 1; first && n < VB_RINGS; n++) {
		uint64_t place = atomic_load_explicit(&first->further[n - 1], memory_order_acquire);

		/* Pairs with make_further(). */
		if (!peer->rx[n].ring.shared &&
		    vb_ring_place_generation(place) == peer->self->generation)
			all &= accept_ring(peer, n, vb_ring_place_offset(place),
					   vb_ring_place_size(place));
	}
	return all;
}

/* With accept_lock; false where it may work later. */
static bool accept_from(struct vb_fabric *fabric, uint32_t slot)
{
	struct vb_peers *peers = &fabric->peers;
	uint32_t generation =
		atomic_load_explicit(&fabric->segment->inbound[slot], memory_order_acquire);
	struct vb_peer *peer;

	if (!generation)
		return true;
	peer = vb_peer_find(fabric, slot);
	if (!peer && generation == vb_registry_generation(fabric->registry, slot))
		return false; /* it cannot be mapped */
	if (!peer) {
		/* It is gone, and with it what it sent. A next one may have announced itself. */
		if (atomic_compare_exchange_strong_explicit(&fabric->segment->inbound[slot],
							    &generation, 0, memory_order_relaxed,
							    memory_order_relaxed))
			atomic_fetch_add_explicit(&peers->unread, 1, memory_order_relaxed);
		return true;
	}
	return accept_first(peer) && accept_further(peer);
}

void vb_peer_accept_new(struct vb_fabric *fabric)
{
	struct vb_peers *peers = &fabric->peers;
	uint32_t epoch =
		atomic_load_explicit(&fabric->segment->inbound_epoch, memory_order_acquire);
	bool all = true;

	if (!vb_trylock(&peers->accept_lock))
		return;
	for (uint32_t slot = 0; slot < VB_SLOTS; slot++)
		all &= accept_from(fabric, slot);
	atomic_store_explicit(&peers->epoch, epoch, memory_order_relaxed);
	atomic_store_explicit(&peers->missed_at, all ? 0 : vb_now_ns(), memory_order_relaxed);
	atomic_store_explicit(&peers->missed, !all, memory_order_relaxed);
	vb_unlock(&peers->accept_lock);
}

void vb_peer_accept_missed(struct vb_fabric *fabric)
{
	struct vb_peers *peers = &fabric->peers;

	if (vb_now_ns() - atomic_load_explicit(&peers->missed_at, memory_order_relaxed) >
	    MISSED_PERIOD_NS)
		vb_peer_accept_new(fabric);
}

void vb_peer_forget(struct vb_peer_rx *rx)
{
	struct vb_peers *peers = &rx->peer->fabric->peers;
	uint32_t count;
	bool found = false;

	pthread_mutex_lock(&peers->table_lock);
	count = atomic_load_explicit(&peers->inbound_count, memory_order_acquire);
	for (uint32_t i = 0; i < count && !found; i++) {
		if (atomic_load_explicit(&peers->inbound[i], memory_order_relaxed) != rx)
			continue;
		/*
		 * A reader of the list may see the last entry twice or not at all: it looks again
		 * soon.
		 */
		atomic_store_explicit(
			&peers->inbound[i],
			atomic_load_explicit(&peers->inbound[count - 1], memory_order_relaxed),
			memory_order_release);
		atomic_store_explicit(&peers->inbound_count, count - 1, memory_order_release);
		found = true;
	}
	pthread_mutex_unlock(&peers->table_lock);
	if (found)
		vb_peer_drop(rx->peer);
}

void vb_peer_break(struct vb_peer *peer)
{
	for (uint32_t n = 0; n < VB_RINGS; n++) {
		struct vb_peer_rx *rx = &peer->rx[n];

		vb_lock(&rx->lock);
		rx->broken = true;
		vb_ring_close(&rx->ring);
		vb_unlock(&rx->lock);
	}
}

void vb_peer_give_up(struct vb_peer *peer)
{
	if (!atomic_exchange_explicit(&peer->dead, true, memory_order_acq_rel))
		vb_warn("a ring to process %d is damaged; nothing more is sent to it",
			(int)peer->pid);
}

/*
 * In a forked child the mappings are gone and other threads' references with them: only the tables
 * are emptied.
 */
void vb_peer_reset(struct vb_fabric *fabric, bool forked)
{
	struct vb_peers *peers = &fabric->peers;
	uint32_t count = atomic_exchange_explicit(&peers->inbound_count, 0, memory_order_acq_rel);

	atomic_store_explicit(&peers->epoch, 0, memory_order_relaxed);
	atomic_store_explicit(&peers->missed, false, memory_order_relaxed);
	memset(peers->made, 0, sizeof(peers->made));
	memset(peers->writer, 0, sizeof(peers->writer));
	if (forked) {
		pthread_mutex_init(&peers->table_lock, NULL);
		atomic_store_explicit(&peers->accept_lock.held, 0, memory_order_relaxed);
		atomic_store_explicit(&peers->connect_lock.held, 0, memory_order_relaxed);
		peers->dropped = NULL;
		for (uint32_t slot = 0; slot < VB_SLOTS; slot++)
			atomic_store_explicit(&peers->table[slot], NULL, memory_order_release);
		return;
	}
	vb_peer_collect(fabric);
	for (uint32_t i = 0; i < count; i++)
		vb_peer_put(atomic_load_explicit(&peers->inbound[i], memory_order_relaxed)->peer);
	for (uint32_t slot = 0; slot < VB_SLOTS; slot++) {
		struct vb_peer *peer =
			atomic_exchange_explicit(&peers->table[slot], NULL, memory_order_acq_rel);

		if (peer)
			vb_peer_put(peer);
	}
}

// SPDX-License-Identifier: MIT
/*
 * Owns frames between processes: raw Ethernet, which has no connections and no addressee that we
 * know.
 *
 *	vb_frame_send --> every other process that listens --> the first ring to it, where there is room
 *
 * A process that listens says so by a bit of its slot in the registry (vb_registry_listen), so that
 * a frame nobody wants costs four loads. A card takes frames from the wire as fast as they come, and a
 * process may not run for a while: so a queue sends its next frame when all that receive have room
 * (vb_frame_may_send), and its WQEs wait until then. Two seconds after a process has taken its last
 * frame it is slow: until it takes one, frames for it are lost and counted in its segment, as are those
 * for a process that only looks at what passes.
 *
 * A ring ends with its process. So a process that ends waits a little for those who have not read its
 * frames yet (vb_frame_linger): a frame whose send has completed is on the wire.
 */

#include "base/time.h"
#include "base/rcu.h"
#include "fabric/peer.h"
#include "fabric/running.h"
#include "fabric/state.h"

enum {
	FRAME_BYTES = VB_FRAME_MAX + 256, /* the longest in a ring */
	/* With so much room left a frame is sent without asking, of as many threads at a time. */
	SPARE_FRAMES = 8,
	SPARE_BYTES = SPARE_FRAMES * FRAME_BYTES,
	/* So long a process that takes nothing is waited for: it may be stopped. */
	PATIENCE_NS = 2000000000,
};

static bool fabric_frames_is_there(const struct vb_peer *peer)
{
	return peer && !atomic_load_explicit(&peer->dead, memory_order_relaxed);
}

/* Its ring's lock is held. */
static void note_crowd(struct vb_peer *peer, struct vb_peer_tx *tx)
{
	bool crowded = !vb_ring_has_bytes(&tx->ring, SPARE_BYTES);

	if (atomic_load_explicit(&peer->crowded, memory_order_relaxed) != crowded)
		atomic_store_explicit(&peer->crowded, crowded, memory_order_relaxed);
}

/* Whether it has the frame; one that is gone loses nothing. */
static bool send_to(struct vb_fabric *fabric, uint32_t slot, const struct vb_pkt *pkt)
{
	struct vb_peer *peer = vb_peer_find(fabric, slot);
	struct vb_peer_tx *tx;
	int ret;

	if (!fabric_frames_is_there(peer))
		return true;
	tx = &peer->tx[0];
	ret = vb_peer_lock_tx(peer, tx);
	if (!ret) {
		ret = vb_ring_send(&tx->ring, pkt);
		note_crowd(peer, tx);
		vb_unlock(&tx->lock);
	}
	if (ret == -EPROTO)
		vb_peer_give_up(peer);
	/* Perhaps nobody reads that ring any more: then it is given up. */
	if (ret && !vb_peer_alive(peer))
		return true;
	if (!atomic_load_explicit(&fabric->frames_sent, memory_order_relaxed))
		atomic_store_explicit(&fabric->frames_sent, true, memory_order_relaxed);
	if (ret) {
		atomic_fetch_add_explicit(&peer->segment->frames_lost, 1, memory_order_relaxed);
		vb_note(LOST, .object = pkt->sqpn, .name = vb_timeline_name("frame"));
	}
	vb_peer_wake(peer); /* also for padding that went ahead of a frame that found no room */
	return !ret;
}

static bool fabric_frames_has_room(struct vb_fabric *fabric, uint32_t slot,
				   const struct vb_pkt *pkt, bool give_up)
{
	struct vb_peer *peer = vb_peer_find(fabric, slot);
	struct vb_peer_tx *tx;
	bool room;

	if (!fabric_frames_is_there(peer))
		return true;
	tx = &peer->tx[0];
	vb_lock(&tx->lock);
	room = !tx->ring.shared || vb_ring_has_room(&tx->ring, pkt);
	vb_unlock(&tx->lock);
	if (!room)
		vb_peer_wake(peer); /* for padding that went ahead */
	if (room || give_up)
		atomic_store_explicit(&peer->slow, !room, memory_order_relaxed);
	return room || atomic_load_explicit(&peer->slow, memory_order_relaxed) ||
	       !vb_peer_alive(peer);
}

/* The process has no room: is it to be waited for? */
static bool is_awaited(struct vb_peer *peer)
{
	uint64_t since = atomic_load_explicit(&peer->full_since, memory_order_relaxed);
	uint64_t now = vb_now_ns();

	if (!since)
		atomic_store_explicit(&peer->full_since, now, memory_order_relaxed);
	else if (now - since > PATIENCE_NS)
		atomic_store_explicit(&peer->slow, true, memory_order_relaxed);
	return !atomic_load_explicit(&peer->slow, memory_order_relaxed) && vb_peer_alive(peer);
}

/*
 * The ring's lock is held. With `sending` threads, this one included, that may send and have not yet, the
 * room of one is not that of the others; and one frame may lie behind padding.
 */
static bool has_room_beside(struct vb_ring_tx *ring, const struct vb_pkt *pkt, uint32_t sending)
{
	return vb_ring_has_room(ring, pkt) &&
	       (sending == 1 || vb_ring_has_bytes(ring, (sending + 1ull) * FRAME_BYTES));
}

static bool may_send_to(struct vb_fabric *fabric, uint32_t slot, const struct vb_pkt *pkt,
			uint32_t sending)
{
	struct vb_peer *peer = vb_peer_find(fabric, slot);
	struct vb_peer_tx *tx;
	bool room;

	if (!fabric_frames_is_there(peer) ||
	    (sending < SPARE_FRAMES &&
	     !atomic_load_explicit(&peer->crowded, memory_order_relaxed)) ||
	    !(atomic_load_explicit(&peer->segment->frames, memory_order_relaxed) &
	      VB_FRAME_RECEIVES))
		return true;
	tx = &peer->tx[0];
	vb_lock(&tx->lock);
	room = !tx->ring.shared || has_room_beside(&tx->ring, pkt, sending);
	if (!room) {
		vb_ring_wait_room(&tx->ring);
		room = has_room_beside(&tx->ring, pkt, sending);
	}
	if (room && tx->ring.shared)
		note_crowd(peer, tx);
	vb_unlock(&tx->lock);
	if (!room) {
		vb_peer_wake(peer); /* for padding that went ahead */
		return !is_awaited(peer);
	}
	atomic_store_explicit(&peer->full_since, 0, memory_order_relaxed);
	atomic_store_explicit(&peer->slow, false, memory_order_relaxed);
	return true;
}

/* The processes of a word of the registry that are to get a frame. */
static uint64_t listeners(struct vb_fabric *fabric, uint32_t word)
{
	uint64_t slots = vb_registry_listeners(fabric->registry, word);
	uint32_t self = fabric->segment->slot;

	return self / 64 == word ? slots & ~(1ull << self % 64) : slots;
}

/* Others are spared what they would throw away: it would take the place of their own frames. */
static bool wants(struct vb_fabric *fabric, uint32_t slot, const struct vb_pkt *pkt)
{
	return !(pkt->origin.ways & VB_FRAME_SNIFFED) || vb_registry_sniffs(fabric->registry, slot);
}

/* Those of them that sniff. */
static uint64_t frames_sniffers(struct vb_fabric *fabric, uint32_t word, uint64_t slots)
{
	uint64_t found = 0;

	for (; slots; slots &= slots - 1) {
		struct vb_peer *peer =
			vb_peer_find(fabric, word * 64 + (uint32_t)__builtin_ctzll(slots));

		if (peer && atomic_load_explicit(&peer->segment->frames, memory_order_relaxed) &
				    VB_FRAME_SNIFFS)
			found |= slots & -slots;
	}
	return found;
}

static unsigned int send_to_all(struct vb_fabric *fabric, uint32_t word, uint64_t slots,
				const struct vb_pkt *pkt)
{
	unsigned int lost = 0;

	for (; slots; slots &= slots - 1) {
		uint32_t slot = word * 64 + (uint32_t)__builtin_ctzll(slots);

		lost += wants(fabric, slot, pkt) && !send_to(fabric, slot, pkt);
	}
	return lost;
}

/*
 * Those that sniff get it first, with the time: an answer, by whatever process, comes to them later and
 * has a later time.
 */
unsigned int vb_frame_send(struct vb_fabric *fabric, const struct vb_pkt *pkt)
{
	uint64_t all[VB_SLOTS / 64], sniffing[VB_SLOTS / 64];
	struct vb_pkt stamped = *pkt;
	unsigned int lost = 0;

	for (uint32_t word = 0; word < VB_SLOTS / 64; word++) {
		all[word] = listeners(fabric, word);
		sniffing[word] = frames_sniffers(fabric, word, all[word]);
		if (sniffing[word] && !stamped.origin.ns)
			stamped.origin.ns = vb_now_ns();
	}
	for (uint32_t word = 0; stamped.origin.ns && word < VB_SLOTS / 64; word++)
		lost += send_to_all(fabric, word, sniffing[word], &stamped);
	for (uint32_t word = 0; word < VB_SLOTS / 64; word++)
		lost += send_to_all(fabric, word, all[word] & ~sniffing[word], pkt);
	return lost;
}

static bool all_have_room(struct vb_fabric *fabric, const uint64_t slots[VB_SLOTS / 64],
			  const struct vb_pkt *pkt, uint32_t sending)
{
	bool may = true;

	for (uint32_t word = 0; word < VB_SLOTS / 64; word++)
		for (uint64_t left = slots[word]; left; left &= left - 1)
			may &= may_send_to(fabric, word * 64 + (uint32_t)__builtin_ctzll(left), pkt,
					   sending);
	return may;
}

enum vb_frame_may vb_frame_may_send(struct vb_fabric *fabric, const struct vb_pkt *pkt)
{
	uint64_t slots[VB_SLOTS / 64], any = 0;
	uint32_t before;

	for (uint32_t word = 0; word < VB_SLOTS / 64; word++)
		any |= slots[word] = listeners(fabric, word);
	if (!any)
		return VB_FRAME_UNHEARD;
	/* Before the look at the rings: a thread that looks later counts this one. */
	before = atomic_fetch_add_explicit(&fabric->sending, 1, memory_order_seq_cst);
	if (all_have_room(fabric, slots, pkt, before + 1))
		return VB_FRAME_PROMISED;
	vb_frame_sent(fabric, VB_FRAME_PROMISED);
	return VB_FRAME_WAITS;
}

void vb_frame_sent(struct vb_fabric *fabric, enum vb_frame_may may)
{
	/* Release: who counts without this thread finds its frame in the rings. */
	if (may == VB_FRAME_PROMISED)
		atomic_fetch_sub_explicit(&fabric->sending, 1, memory_order_release);
}

void vb_frame_listen(struct vb_fabric *fabric, uint32_t use)
{
	if (fabric->segment)
		atomic_store_explicit(&fabric->segment->frames, use, memory_order_relaxed);
	vb_registry_listen(fabric->registry, use);
}

bool vb_frame_has_room(struct vb_fabric *fabric, const struct vb_pkt *pkt, bool give_up)
{
	bool room = true;

	for (uint32_t word = 0; word < VB_SLOTS / 64; word++) {
		uint64_t slots = listeners(fabric, word);

		for (; slots; slots &= slots - 1)
			room &= fabric_frames_has_room(
				fabric, word * 64 + (uint32_t)__builtin_ctzll(slots), pkt, give_up);
	}
	return room;
}

static bool is_drained(struct vb_fabric *fabric, uint32_t slot, bool slow_too)
{
	struct vb_peer *peer = vb_peer_find(fabric, slot);
	struct vb_peer_tx *tx;
	bool drained;

	if (!fabric_frames_is_there(peer) ||
	    (!slow_too && atomic_load_explicit(&peer->slow, memory_order_relaxed)))
		return true;
	/*
	 * Never waits: a program may exit in a signal handler, over a send of the same thread. A ring
	 * that is in use is not drained.
	 */
	tx = &peer->tx[0];
	if (!vb_trylock(&tx->lock))
		return false;
	drained = !tx->ring.shared || vb_ring_drained(&tx->ring);
	vb_unlock(&tx->lock);
	return drained || !vb_peer_alive(peer);
}

bool vb_frame_drained(struct vb_fabric *fabric, bool slow_too)
{
	bool drained = true;

	for (uint32_t word = 0; word < VB_SLOTS / 64; word++) {
		uint64_t slots = listeners(fabric, word);

		for (; slots; slots &= slots - 1)
			drained &= is_drained(fabric, word * 64 + (uint32_t)__builtin_ctzll(slots),
					      slow_too);
	}
	return drained;
}

void vb_frame_linger(struct vb_fabric *fabric)
{
	enum { MOST_NS = 1000000000, LOOK_NS = 200000 };
	uint64_t end = vb_now_ns() + MOST_NS;
	bool drained = !atomic_load_explicit(&fabric->frames_sent, memory_order_relaxed);

	while (!drained && vb_now_ns() < end) {
		vb_read_lock();
		drained = vb_frame_drained(fabric, false);
		vb_read_unlock();
		if (!drained)
			vb_sleep_ns(LOOK_NS);
		if (!vb_running_let_in())
			return; /* at exit(), in a child that a handler has forked meanwhile */
	}
}

uint64_t vb_frame_lost(struct vb_fabric *fabric, uint32_t *unread)
{
	*unread = atomic_load_explicit(&fabric->peers.unread, memory_order_relaxed);
	return atomic_load_explicit(&fabric->segment->frames_lost, memory_order_relaxed);
}

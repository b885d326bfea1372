// SPDX-License-Identifier: MIT
/*
 * Owns frames between processes: raw Ethernet, which has no connections and no addressee that we
 * know.
 *
 *	vb_frame_send --> every other process that listens --> its ring, where there is room
 *
 * A process that listens says so by a bit of its slot in the registry (vb_registry_listen), so that
 * a frame nobody wants costs four loads. Nothing waits and nothing is kept: a frame for a process
 * that is slow, stopped or dead is lost, as on a wire.
 */
#include "fabric/peer.h"

static void send_to(uint32_t slot, const struct vb_pkt *pkt)
{
	struct vb_peer *peer = vb_peer_find(slot);
	int ret;

	if (!peer || atomic_load_explicit(&peer->dead, memory_order_relaxed))
		return;
	vb_lock(&peer->tx_lock);
	ret = peer->tx.shared ? 0 : vb_peer_connect(peer);
	if (!ret)
		ret = vb_ring_send(&peer->tx, pkt);
	vb_unlock(&peer->tx_lock);
	/* Perhaps nobody reads that ring any more: then it is given up. */
	if (ret && !vb_peer_alive(peer))
		return;
	vb_peer_wake(peer); /* also for padding that went ahead of a frame that found no room */
}

void vb_frame_send(const struct vb_pkt *pkt)
{
	for (uint32_t word = 0; word < VB_SLOTS / 64; word++) {
		uint64_t slots = vb_registry_listeners(word);

		for (; slots; slots &= slots - 1) {
			uint32_t slot = word * 64 + (uint32_t)__builtin_ctzll(slots);

			if (slot != vb_segment_self->slot)
				send_to(slot, pkt);
		}
	}
}

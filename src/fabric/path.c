// SPDX-License-Identifier: MIT
/*
 * Owns paths: finding the process behind a QP number and sending packets to it.
 */
#include <errno.h>

#include "base/rcu.h"
#include "fabric/direct.h"
#include "fabric/peer.h"
#include "fabric/tracer.h"

/* Rings differ in size, and each side knows its own: READ responses are cut for the smallest. */
enum { SHM_SPAN = VB_RING_MIN / 4 };

static const struct vb_path no_path = { .kind = VB_PATH_NONE, .mtu = SHM_SPAN, .span = SHM_SPAN };

int vb_path_peek(struct vb_path *path, uint32_t qpn)
{
	uint32_t slot = vb_qpn_slot(qpn);

	*path = no_path;
	if (slot == vb_segment_self->slot) {
		path->kind = VB_PATH_LOOP;
		path->mtu = path->span = UINT32_MAX;
		return 0;
	}
	path->peer = vb_peer_find(slot);
	if (!path->peer)
		return -EHOSTUNREACH;
	path->kind = VB_PATH_SHM;
	path->mtu =
		path->peer->tx.shared ? vb_ring_mtu(path->peer->tx.size) : vb_ring_mtu(VB_RING_MIN);
	return 0;
}

int vb_path_open(struct vb_path *path, uint32_t qpn)
{
	int ret;

	vb_read_lock();
	ret = vb_path_peek(path, qpn);
	if (!ret && path->kind == VB_PATH_SHM) {
		struct vb_peer *peer = path->peer;

		vb_lock(&peer->tx_lock);
		if (!peer->tx.shared)
			ret = vb_peer_connect(peer);
		vb_unlock(&peer->tx_lock);
		if (!ret) {
			struct vb_seg_qp *qp;

			/* Seen now, so that vb_path_expected() can look at it when the process and its file are gone. */
			vb_view_qp(&peer->view, qpn & VB_QPN_INDEX_MASK, &qp);
			/* Before our QP is shown as ready, which is when the peer begins to use it. */
			if (vb_direct_works(path))
				vb_tracer_allow(peer->pid);
			vb_peer_get(peer);
			path->mtu = vb_ring_mtu(peer->tx.size);
		} else {
			*path = no_path;
		}
	}
	vb_read_unlock();
	return ret;
}

void vb_path_close(struct vb_path *path)
{
	if (path->kind == VB_PATH_SHM)
		vb_peer_put(path->peer);
	*path = no_path;
}

int vb_path_send(struct vb_path *path, const struct vb_pkt *pkt)
{
	struct vb_peer *peer = path->peer;
	int ret;

	if (path->kind != VB_PATH_SHM || atomic_load_explicit(&peer->dead, memory_order_relaxed))
		return -EHOSTDOWN;
	vb_lock(&peer->tx_lock);
	ret = peer->tx.shared ? 0 : vb_peer_connect(peer);
	if (!ret)
		ret = vb_ring_send(&peer->tx, pkt);
	if (ret == -EAGAIN && !vb_ring_wait_room(&peer->tx))
		ret = vb_ring_send(&peer->tx, pkt);
	vb_unlock(&peer->tx_lock);
	return ret;
}

void vb_path_flush(struct vb_path *path)
{
	if (path->kind == VB_PATH_SHM)
		vb_peer_wake(path->peer);
}

bool vb_path_alive(struct vb_path *path)
{
	return path->kind == VB_PATH_LOOP ||
	       (path->kind == VB_PATH_SHM && vb_peer_alive(path->peer));
}

bool vb_path_drained(struct vb_path *path)
{
	struct vb_peer *peer = path->peer;
	bool drained;

	if (path->kind != VB_PATH_SHM)
		return true;
	vb_lock(&peer->tx_lock);
	drained = !peer->tx.shared || vb_ring_drained(&peer->tx);
	vb_unlock(&peer->tx_lock);
	return drained;
}

bool vb_path_polled(const struct vb_path *path)
{
	return path->kind == VB_PATH_SHM &&
	       atomic_load_explicit(&path->peer->segment->wake, memory_order_relaxed) ==
		       VB_WAKE_POLLED;
}

uint32_t vb_path_expected(struct vb_path *path, uint32_t qpn, uint32_t otherwise)
{
	struct vb_seg_qp *qp;

	return vb_view_qp(&path->peer->view, qpn & VB_QPN_INDEX_MASK, &qp)
		       ? otherwise
		       : atomic_load_explicit(&qp->epsn, memory_order_acquire) & 0xffffff;
}

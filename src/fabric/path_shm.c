// SPDX-License-Identifier: MIT
/*
 * Owns paths to other processes of this host: packets go through a ring to the peer (ring.c), which is
 * made with the first path of a queue that uses it (peer.h).
 */
#include "fabric/direct.h"
#include "fabric/path.h"
#include "fabric/tracer.h"

_Static_assert((int)VB_SHM_SPAN == VB_RING_MIN / 4, "a READ response fits the smallest ring");

static int shm_send(struct vb_path *path, const struct vb_pkt *pkt)
{
	struct vb_peer *peer = path->peer;
	struct vb_peer_tx *tx = &peer->tx[path->ring];
	int ret;

	if (atomic_load_explicit(&peer->dead, memory_order_relaxed))
		return -EHOSTDOWN;
	ret = vb_peer_lock_tx(peer, tx);
	if (ret)
		return ret;
	ret = vb_ring_send(&tx->ring, pkt);
	if (ret == -EAGAIN && !vb_ring_wait_room(&tx->ring))
		ret = vb_ring_send(&tx->ring, pkt);
	vb_unlock(&tx->lock);
	if (ret == -EPROTO) {
		vb_peer_give_up(peer);
		return -EHOSTDOWN;
	}
	/* The dead make no room. A first packet has no timer that would notice. */
	return ret == -EAGAIN && !vb_peer_alive(peer) ? -EHOSTDOWN : ret;
}

static void shm_flush(struct vb_path *path)
{
	vb_peer_wake(path->peer);
}

static bool shm_alive(struct vb_path *path)
{
	return vb_peer_alive(path->peer);
}

static bool shm_drained(struct vb_path *path)
{
	struct vb_peer_tx *tx = &path->peer->tx[path->ring];
	bool drained;

	vb_lock(&tx->lock);
	drained = !tx->ring.shared || vb_ring_drained(&tx->ring);
	vb_unlock(&tx->lock);
	return drained;
}

/* By which ring an answer comes is the peer's choice. */
static bool shm_unread(struct vb_path *path)
{
	_Atomic(struct vb_peer_rx *) *list;
	uint32_t count = vb_peer_inbound(&list);

	for (uint32_t i = 0; i < count; i++) {
		struct vb_peer_rx *rx = atomic_load_explicit(&list[i], memory_order_relaxed);

		if (rx->peer == path->peer && vb_ring_pending(&rx->ring))
			return true;
	}
	return false;
}

static bool shm_polled(const struct vb_path *path)
{
	return atomic_load_explicit(&path->peer->segment->wake, memory_order_relaxed) ==
	       VB_WAKE_POLLED;
}

/* Its number may be another queue pair's by now. */
static uint32_t shm_expected(struct vb_path *path, uint32_t qpn, uint32_t sqpn, uint32_t otherwise)
{
	struct vb_seg_qp *qp;

	return vb_view_qp(&path->peer->view, qpn & VB_QPN_INDEX_MASK, &qp) || qp->remote_qpn != sqpn
		       ? otherwise
		       : atomic_load_explicit(&qp->epsn, memory_order_acquire) & 0xffffff;
}

static __be64 shm_adapter(struct vb_path *path, uint32_t qpn)
{
	struct vb_seg_qp *qp;

	return vb_view_qp(&path->peer->view, qpn & VB_QPN_INDEX_MASK, &qp)
		       ? 0
		       : atomic_load_explicit(&qp->adapter, memory_order_relaxed);
}

static uint64_t shm_connection(struct vb_path *path, uint32_t qpn)
{
	struct vb_seg_qp *qp;

	return vb_view_qp(&path->peer->view, qpn & VB_QPN_INDEX_MASK, &qp)
		       ? 0
		       : atomic_load_explicit(&qp->connection, memory_order_acquire);
}

static void shm_close(struct vb_path *path)
{
	vb_peer_put(path->peer);
}

static const struct vb_path_ops shm_ops = {
	.caps = VB_PATH_REACHES | VB_PATH_DIRECT,
	.send = shm_send,
	.flush = shm_flush,
	.alive = shm_alive,
	.drained = shm_drained,
	.unread = shm_unread,
	.polled = shm_polled,
	.expected = shm_expected,
	.adapter = shm_adapter,
	.connection = shm_connection,
	.close = shm_close,
};

void vb_path_shm_peek(struct vb_path *path, uint32_t slot)
{
	struct vb_peer *peer = vb_peer_find(slot);

	*path = vb_path_none;
	if (!peer)
		return;
	path->ops = &shm_ops;
	path->peer = peer;
	path->mtu = vb_ring_mtu(VB_RING_MIN);
}

int vb_path_shm_hold(struct vb_path *path, uint32_t qpn, uint32_t from)
{
	struct vb_peer *peer = path->peer;
	int ring = vb_peer_connect(peer, from);
	struct vb_seg_qp *qp;

	/* A path to a process that is gone is one: it says so when something is sent. */
	if (ring < 0 && ring != -EHOSTDOWN) {
		*path = vb_path_none;
		return ring;
	}
	/*
	 * Seen now, so that vb_path_expected() can look at it when the process and its file are
	 * gone.
	 */
	vb_view_qp(&peer->view, qpn & VB_QPN_INDEX_MASK, &qp);
	/* Before our QP is shown as ready, which is when the peer begins to use it. */
	if (vb_direct_works(path))
		vb_tracer_allow(peer->pid);
	vb_peer_get(peer);
	if (ring >= 0) {
		path->ring = (uint8_t)ring;
		path->mtu = vb_ring_mtu(peer->tx[ring].ring.size);
	}
	return 0;
}

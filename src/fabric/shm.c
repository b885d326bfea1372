// SPDX-License-Identifier: MIT
/*
 * Owns the link to other hosts on this machine, of other processes or of this one. Packets go through a ring to
 * the peer (ring.c), which is made with the first path of a queue that uses it (peer.h), and are taken from the
 * rings of all peers by whichever thread polls. progress.c has the wake word, which tells senders whether one does.
 */
#include <errno.h>

#include "base/log.h"
#include "fabric/direct.h"
#include "fabric/running.h"
#include "fabric/state.h"
#include "fabric/tracer.h"

enum {
	BURST = 64,            /* packets taken from one ring before the next gets its turn, */
	BURST_BYTES = 1 << 20, /* or so much payload: that of one packet may be a megabyte */
};

/* --- the sending half ------------------------------------------------------------------------- */

_Static_assert((int)VB_SHM_SPAN == VB_RING_MIN / 4, "a READ response fits the smallest ring");

static int shm_send(struct vb_link *link, struct vb_path *path, const struct vb_pkt *pkt)
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

static void shm_flush(struct vb_link *link, struct vb_path *path)
{
	vb_peer_wake(path->peer);
}

static bool shm_alive(struct vb_link *link, struct vb_path *path)
{
	return vb_peer_alive(path->peer);
}

static bool shm_drained(struct vb_link *link, struct vb_path *path)
{
	struct vb_peer_tx *tx = &path->peer->tx[path->ring];
	bool drained;

	vb_lock(&tx->lock);
	drained = !tx->ring.shared || vb_ring_drained(&tx->ring);
	vb_unlock(&tx->lock);
	return drained;
}

/* By which ring an answer comes is the peer's choice. */
static bool shm_unread(struct vb_link *link, struct vb_path *path)
{
	_Atomic(struct vb_peer_rx *) *list;
	uint32_t count = vb_peer_inbound(link->fabric, &list);

	for (uint32_t i = 0; i < count; i++) {
		struct vb_peer_rx *rx = atomic_load_explicit(&list[i], memory_order_relaxed);

		if (rx->peer == path->peer && vb_ring_pending(&rx->ring))
			return true;
	}
	return false;
}

static bool shm_polled(struct vb_link *link, const struct vb_path *path)
{
	return atomic_load_explicit(&path->peer->segment->wake, memory_order_relaxed) ==
	       VB_WAKE_POLLED;
}

/* Its number may be another queue pair's by now. */
static uint32_t shm_expected(struct vb_link *link, struct vb_path *path, uint32_t qpn,
			     uint32_t sqpn, uint32_t otherwise)
{
	struct vb_seg_qp *qp;

	return vb_view_qp(&path->peer->view, qpn & VB_QPN_INDEX_MASK, &qp) || qp->remote_qpn != sqpn
		       ? otherwise
		       : atomic_load_explicit(&qp->epsn, memory_order_acquire) & 0xffffff;
}

static __be64 shm_adapter(struct vb_link *link, struct vb_path *path, uint32_t qpn)
{
	struct vb_seg_qp *qp;

	return vb_view_qp(&path->peer->view, qpn & VB_QPN_INDEX_MASK, &qp)
		       ? 0
		       : atomic_load_explicit(&qp->adapter, memory_order_relaxed);
}

static uint64_t shm_connection(struct vb_link *link, struct vb_path *path, uint32_t qpn)
{
	struct vb_seg_qp *qp;

	return vb_view_qp(&path->peer->view, qpn & VB_QPN_INDEX_MASK, &qp)
		       ? 0
		       : atomic_load_explicit(&qp->connection, memory_order_acquire);
}

static void shm_close(struct vb_link *link, struct vb_path *path)
{
	vb_peer_put(path->peer);
}

static void shm_drop(struct vb_link *link, struct vb_path *path)
{
	vb_peer_drop(path->peer);
}

static int shm_peek(struct vb_link *link, struct vb_path *path, const struct vb_address *to,
		    bool local, uint32_t qpn)
{
	uint32_t slot = vb_qpn_slot(qpn);
	struct vb_peer *peer;

	if (!local || slot == link->fabric->segment->slot)
		return -ENETUNREACH;
	peer = vb_peer_find(link->fabric, slot);
	if (!peer)
		return -ENETUNREACH;
	*path = (struct vb_path){ .link = link,
				  .caps = VB_PATH_REACHES | VB_PATH_DIRECT | VB_PATH_DELIVERS,
				  .peer = peer,
				  .mtu = vb_ring_mtu(VB_RING_MIN),
				  .span = VB_SHM_SPAN };
	return 0;
}

static int shm_open(struct vb_link *link, struct vb_path *path, const struct vb_address *to,
		    bool local, uint32_t qpn, uint32_t from)
{
	struct vb_seg_qp *qp;
	struct vb_peer *peer;
	int ring, ret;

	ret = shm_peek(link, path, to, local, qpn);
	if (ret)
		return ret;
	peer = path->peer;
	ring = vb_peer_connect(peer, from);
	/* A path to a process that is gone is one: it says so when something is sent. */
	if (ring < 0 && ring != -EHOSTDOWN)
		return ring;
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

/* --- the receiving half ----------------------------------------------------------------------- */

/*
 * Take packets from one ring, and tell how many; the lock only keeps two threads of ours from
 * reading the same one.
 */
static uint32_t shm_drain(struct vb_link *link, struct vb_peer_rx *rx)
{
	struct vb_fabric *fabric = link->fabric;
	struct vb_grh grh;
	struct vb_pkt pkt;
	struct iovec iov;
	uint64_t bytes = 0;
	bool wake = false;
	uint32_t n;
	int ret = 0;

	if (!vb_trylock(&rx->lock))
		return 0;
	for (n = 0; n < BURST && bytes < BURST_BYTES; n++) {
		ret = vb_ring_peek(&rx->ring, &pkt, &iov, &grh);
		if (ret <= 0 || (n && fabric->sink->delivers_first(fabric->card, &pkt)))
			break;
		bytes += pkt.len;
		vb_link_deliver(link, &pkt);
		wake |= vb_ring_next(&rx->ring);
	}
	wake |= vb_ring_release(&rx->ring);
	vb_unlock(&rx->lock);
	if (n)
		fabric->sink->received(fabric->card);
	if (ret < 0) {
		vb_warn("process %d sent a malformed packet; its rings are closed",
			(int)rx->peer->pid);
		vb_peer_break(rx->peer);
	}
	if (wake)
		vb_peer_wake(rx->peer);
	return n;
}

/* Whether peers announced rings since the last look. */
static bool has_news(struct vb_fabric *fabric)
{
	return atomic_load_explicit(&fabric->segment->inbound_epoch, memory_order_acquire) !=
	       atomic_load_explicit(&fabric->peers.epoch, memory_order_relaxed);
}

/* A ring that was announced and is not mapped yet may have packets. */
static enum vb_link_left shm_pending(struct vb_link *link)
{
	_Atomic(struct vb_peer_rx *) *list;
	uint32_t count = vb_peer_inbound(link->fabric, &list);
	enum vb_link_left left = VB_LEFT_NOTHING;

	for (uint32_t i = 0; i < count; i++) {
		struct vb_peer_rx *rx = atomic_load_explicit(&list[i], memory_order_relaxed);

		if (!vb_ring_pending(&rx->ring))
			continue;
		if (!atomic_load_explicit(&rx->lock.held, memory_order_relaxed))
			return VB_LEFT_UNREAD;
		left = VB_LEFT_BEING_READ;
	}
	return has_news(link->fabric) ? VB_LEFT_UNREAD : left;
}

/* Take what the peers sent: the number of packets. Thorough: also notice peers that are gone. */
static uint32_t shm_poll(struct vb_link *link, bool thorough)
{
	struct vb_fabric *fabric = link->fabric;
	_Atomic(struct vb_peer_rx *) *list;
	uint32_t count, received = 0;

	if (__builtin_expect(has_news(fabric), 0))
		vb_peer_accept_new(fabric);
	if (thorough &&
	    __builtin_expect(atomic_load_explicit(&fabric->peers.missed, memory_order_relaxed), 0))
		vb_peer_accept_missed(fabric);
	count = vb_peer_inbound(fabric, &list);
	for (uint32_t i = 0; i < count; i++) {
		struct vb_peer_rx *rx = atomic_load_explicit(&list[i], memory_order_relaxed);
		bool gone = thorough &&
			    rx->peer->generation !=
				    vb_registry_generation(fabric->registry, rx->peer->slot);

		/* It wrote nothing more once it was gone, so what it wrote is seen now. */
		if (vb_ring_pending(&rx->ring))
			received += shm_drain(link, rx);
		else if (gone)
			vb_peer_forget(rx);
	}
	return received;
}

static void shm_tend(struct vb_link *link)
{
	vb_peer_collect(link->fabric);
}

/* --- its life --------------------------------------------------------------------------------- */

static int shm_start(struct vb_link *link)
{
	vb_reach_start(link->fabric);
	return 0;
}

static void shm_linger(struct vb_link *link)
{
	vb_frame_linger(link->fabric);
}

/* The fabric is not among those that run any more. */
static void shm_stop(struct vb_link *link)
{
	bool last = !vb_running_any();

	if (last)
		vb_reach_stop();
	vb_peer_reset(link->fabric, false);
	vb_tracer_leave(link->fabric, last);
}

static void shm_forked(struct vb_link *link)
{
	vb_tracer_forked(link->fabric);
	vb_peer_reset(link->fabric, true);
}

const struct vb_link_ops vb_shm_ops = {
	.name = "shm",
	.peek = shm_peek,
	.open = shm_open,
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
	.drop = shm_drop,
	.poll = shm_poll,
	.pending = shm_pending,
	.tend = shm_tend,
	.start = shm_start,
	.linger = shm_linger,
	.stop = shm_stop,
	.forked = shm_forked,
};

// SPDX-License-Identifier: MIT
/*
 * Owns which kind of path leads where, and the two kinds that need no machinery: to nobody, and to
 * this process.
 *
 *	address, QP number --> local GID? --> slot of the QP number --> this process: loop | another: path_shm.c | none
 */
#include "fabric/path.h"

#include "base/rcu.h"

struct vb_hook *_Atomic vb_fabric_hook;

void vb_fabric_set_hook(struct vb_hook *hook)
{
	atomic_store_explicit(&vb_fabric_hook, hook, memory_order_release);
}

/* --- to nobody, and within the process -------------------------------------------------------- */

static int send_nowhere(struct vb_path *path, const struct vb_pkt *pkt)
{
	return -EHOSTDOWN;
}

static void flush_nothing(struct vb_path *path)
{
}

static bool always(struct vb_path *path)
{
	return true;
}

static bool never_polled(const struct vb_path *path)
{
	return false;
}

static uint32_t expects_nothing(struct vb_path *path, uint32_t qpn, uint32_t sqpn,
				uint32_t otherwise)
{
	return otherwise;
}

static __be64 no_adapter(struct vb_path *path, uint32_t qpn)
{
	return 0;
}

static const struct vb_path_ops none_ops = {
	.send = send_nowhere,
	.flush = flush_nothing,
	.alive = always, /* there is nobody who could die: time-outs tell */
	.drained = always,
	.polled = never_polled,
	.expected = expects_nothing,
	.adapter = no_adapter,
	.close = flush_nothing,
};

/* The card calls its own responder instead of sending. */
static const struct vb_path_ops loop_ops = {
	.caps = VB_PATH_REACHES | VB_PATH_CALLS,
	.send = send_nowhere,
	.flush = flush_nothing,
	.alive = always,
	.drained = always,
	.polled = never_polled,
	.expected = expects_nothing,
	.adapter = no_adapter,
	.close = flush_nothing,
};

const struct vb_path vb_path_none = { .ops = &none_ops, .mtu = VB_SHM_SPAN, .span = VB_SHM_SPAN };

static const struct vb_path loop = { .ops = &loop_ops, .mtu = UINT32_MAX, .span = UINT32_MAX };

void vb_path_drop(struct vb_path *path)
{
	if (path->peer)
		vb_peer_drop(path->peer);
	*path = vb_path_none;
}

/* --- which ------------------------------------------------------------------------------------ */

void vb_path_peek(struct vb_path *path, const struct vb_address *to, uint32_t qpn)
{
	uint32_t slot = vb_qpn_slot(qpn);

	if (!vb_fabric_is_local(to->dgid))
		*path = vb_path_none;
	else if (slot == vb_segment_self->slot)
		*path = loop;
	else
		vb_path_shm_peek(path, slot);
	path->transport = to->transport;
}

int vb_path_open(struct vb_path *path, const struct vb_address *to, uint32_t qpn, uint32_t from)
{
	int ret = 0;

	vb_read_lock();
	vb_path_peek(path, to, qpn);
	if (path->peer)
		ret = vb_path_shm_hold(path, qpn, from);
	vb_read_unlock();
	return ret;
}

int vb_path_open_slot(struct vb_path *path, uint32_t slot, uint32_t from)
{
	int ret = 0;

	vb_read_lock();
	if (slot == vb_segment_self->slot)
		*path = loop;
	else
		vb_path_shm_peek(path, slot);
	if (path->peer)
		ret = vb_path_shm_hold(path, slot << VB_QPN_INDEX_BITS, from);
	vb_read_unlock();
	return ret;
}

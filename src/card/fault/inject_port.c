// SPDX-License-Identifier: MIT
/*
 * Owns ports that are down on demand.
 *
 * The data path has no question for it. A queue pair of such a port is *cut*:
 *
 *	sends      qp.path leads to nobody, as after the death of a peer; the real path waits in qp.kept.
 *	           Datagrams are decoded with an address where nobody is (inject_qp.c)
 *	receives   qp.transport has VB_TRANSPORT_CUT, which no packet has: all are of another kind
 *	initiators that access our memory themselves: the entry that they look at says not ready
 *	frames     the port's cable has a number of its own, so that nobody else is on it
 *
 * What was posted stays, retransmission goes on and fails as it does on hardware: with
 * IBV_WC_RETRY_EXC_ERR when all retries are used up. When the port is up again before, the next
 * retry gets through.
 */
#include "card/device.h"

#include "base/rcu.h"
#include "card/fault/fault.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"

/* To nobody, with the same sizes: what is sent again must be split as it was. */
static struct vb_path nowhere(const struct vb_path *path)
{
	return (struct vb_path){ .link = vb_path_none.link,
				 .transport = path->transport,
				 .mtu = path->mtu,
				 .span = path->span };
}

struct vb_path vb_qp_set_path(struct vb_qp *qp, const struct vb_path *path)
{
	bool down = qp->transport & VB_TRANSPORT_CUT;
	struct vb_path old = down ? qp->kept : qp->path;

	qp->path = down ? nowhere(path) : *path;
	if (down)
		qp->kept = *path;
	return old;
}

/* Both queue locks held. */
static void inject_port_cut(struct vb_qp *qp)
{
	if (qp->transport & VB_TRANSPORT_CUT)
		return;
	qp->kept = qp->path;
	qp->path = nowhere(&qp->kept);
	qp->transport |= VB_TRANSPORT_CUT;
	vb_inject_choose_decoder(qp);
	atomic_store_explicit(&qp->shared->ready, 0, memory_order_seq_cst);
}

static void inject_port_join(struct vb_qp *qp)
{
	if (!(qp->transport & VB_TRANSPORT_CUT))
		return;
	qp->transport &= (uint8_t)~VB_TRANSPORT_CUT;
	qp->path = qp->kept;
	qp->kept = vb_path_none;
	vb_inject_choose_decoder(qp);
	vb_qp_publish(qp, vb_qp_state(qp));
}

static void inject_port_change(struct vb_qp *qp, bool up)
{
	vb_lock(&qp->sq.lock);
	vb_lock(&qp->rq.lock);
	if (up)
		inject_port_join(qp);
	else
		inject_port_cut(qp);
	vb_unlock(&qp->rq.lock);
	vb_unlock(&qp->sq.lock);
	if (!up)
		vb_segment_wait_qp(qp->card->fabric, qp->number & VB_QPN_INDEX_MASK);
}

void vb_inject_qp_created(struct vb_qp *qp)
{
	struct vb_card *card = qp->card;
	_Atomic uint64_t *down = &card->inject.at[qp->dev->adapter->index].cut;

	if (!atomic_load_explicit(down, memory_order_seq_cst))
		return;
	vb_lock(&qp->sq.lock);
	vb_lock(&qp->rq.lock);
	/* Once more: if it is up by now, nobody comes to undo it. */
	if (atomic_load_explicit(down, memory_order_seq_cst))
		inject_port_cut(qp);
	vb_unlock(&qp->rq.lock);
	vb_unlock(&qp->sq.lock);
}

static void inject_port_tell(const struct vb_adapter *adapter, enum ibv_event_type type)
{
	struct vb_card *card = adapter->card;

	for (struct vb_dev *dev = card->inject.devs; dev; dev = dev->next)
		if (dev->adapter == adapter)
			vb_dev_event(dev, type, NULL);
}

void vb_inject_port(struct vb_adapter *adapter, bool up)
{
	struct vb_card *card = adapter->card;

	if (vb_port_is_cut(adapter, 1) == !up)
		return;
	/* Those that are created from here on see it: vb_qp_create() looks after it is in the table. */
	atomic_store_explicit(&card->inject.at[adapter->index].cut, up ? 0 : 1 << 1,
			      memory_order_seq_cst);
	atomic_fetch_xor_explicit(&adapter->cable, UINT64_MAX, memory_order_relaxed);
	vb_read_lock();
	for (uint32_t i = VB_QP_FIRST_INDEX; i < VB_QP_MAX_INDEX; i++) {
		struct vb_qp *qp = atomic_load_explicit(&card->tables.qp[i], memory_order_seq_cst);

		if (qp && qp->dev->adapter == adapter)
			inject_port_change(qp, up);
	}
	vb_read_unlock();
	if (!adapter->config->down)
		inject_port_tell(adapter, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

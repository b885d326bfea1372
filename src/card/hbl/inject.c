// SPDX-License-Identifier: MIT
/*
 * Owns faults on demand (../inject.h) of hbl devices.
 *
 *	port down   QPs of the port are not connected, and open_path() does not connect them: what they send
 *	            is lost, as where nobody is at the other end. What comes for them is dropped
 *	qp error    the state and the event of an error that the card finds itself
 *	qp next     the requester fails the next entry with the syndrome that the status stands for: hbl
 *	            completions have no status
 *	fatal       all QPs are in error, nothing can be created
 *
 * A device is `served` between the end of its opening and the begin of its closing, both under
 * inject.lock, which is held over each fault. So it cannot go meanwhile.
 */
#include "card/hbl/internal.h"

#include <errno.h>
#include <stdio.h>

#include "base/rcu.h"
#include "card/card.h"

static uint64_t cut_ports(const struct vb_hbl *hbl)
{
	struct vb_card *card = hbl->card;

	return atomic_load_explicit(&card->inject.at[hbl->adapter->index].cut,
				    memory_order_relaxed);
}

void vb_hbl_inject_opened(struct vb_hbl *hbl)
{
	struct vb_card *card = hbl->card;

	pthread_mutex_lock(&card->inject.lock);
	for (uint32_t i = 1; i <= hbl->adapter->config->ports; i++)
		atomic_store_explicit(&hbl->ports[i].cut, cut_ports(hbl) >> i & 1,
				      memory_order_relaxed);
	atomic_store_explicit(&hbl->fatal, false, memory_order_relaxed);
	hbl->served = true;
	pthread_mutex_unlock(&card->inject.lock);
}

void vb_hbl_inject_closing(struct vb_hbl *hbl)
{
	struct vb_card *card = hbl->card;

	pthread_mutex_lock(&card->inject.lock);
	hbl->served = false;
	pthread_mutex_unlock(&card->inject.lock);
}

int vb_hbl_inject_create(struct vb_hbl *hbl, enum vb_inject_object object)
{
	return vb_inject_refuse(hbl->adapter,
				atomic_load_explicit(&hbl->fatal, memory_order_relaxed), object);
}

/* NULL where this process has no context of it. inject.lock held. */
static struct vb_hbl *served(const struct vb_adapter *adapter)
{
	struct vb_hbl *hbl;

	vb_read_lock();
	hbl = vb_hbl_find(adapter->card, adapter->config->hbl_number);
	if (hbl && (!hbl->served || vb_hbl_stale(hbl)))
		hbl = NULL;
	vb_read_unlock();
	return hbl;
}

/* --- ports ------------------------------------------------------------------------------------ */

static void disconnect(struct vb_hbl_port *port)
{
	pthread_mutex_lock(&port->hbl->mutex);
	for (struct vb_hbl_qp *qp = port->hbl->qps; qp; qp = qp->next) {
		if (qp->port != port)
			continue;
		/* After open_path(), or before it, which then sees the port cut. */
		vb_lock(&qp->path_lock);
		atomic_store_explicit(&qp->connected, false, memory_order_release);
		vb_unlock(&qp->path_lock);
		vb_hbl_take_back(qp);
	}
	pthread_mutex_unlock(&port->hbl->mutex);
}

static void reconnect(struct vb_hbl_port *port)
{
	pthread_mutex_lock(&port->hbl->mutex);
	for (struct vb_hbl_qp *qp = port->hbl->qps; qp; qp = qp->next)
		if (qp->port == port && vb_hbl_qp_receives(qp) && vb_hbl_qp_connect(qp))
			vb_hbl_lend(qp);
	pthread_mutex_unlock(&port->hbl->mutex);
}

void vb_hbl_inject_port(const struct vb_adapter *adapter, uint32_t number, bool up)
{
	struct vb_card *card = adapter->card;
	_Atomic uint64_t *cut = &card->inject.at[adapter->index].cut;
	uint64_t bit = 1ull << number, before;
	struct vb_hbl *hbl = served(adapter);
	struct vb_hbl_port *port;

	before = up ? atomic_fetch_and_explicit(cut, ~bit, memory_order_relaxed)
		    : atomic_fetch_or_explicit(cut, bit, memory_order_relaxed);
	if (!hbl || !(before & bit) == up)
		return;
	port = &hbl->ports[number];
	/* Up again: where that fails now, the next packet connects. */
	atomic_store_explicit(&port->cut, !up, memory_order_seq_cst);
	if (up)
		reconnect(port);
	else
		disconnect(port);
	if (!port->used || adapter->config->down)
		return;
	vb_read_lock();
	vb_burst_begin(adapter->card);
	vb_hbl_port_event(port, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
	vb_burst_end();
	vb_read_unlock();
}

/* --- queue pairs ------------------------------------------------------------------------------ */

/* What hardware reports of these; 0: it reports no such thing. */
static enum vb_hbl_syndrome syndrome_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_LOC_PROT_ERR:
		return VB_HBL_SYN_LOCAL_ACCESS;
	case IBV_WC_LOC_QP_OP_ERR:
		return VB_HBL_SYN_BAD_OPCODE;
	case IBV_WC_LOC_LEN_ERR:
		return VB_HBL_SYN_BAD_SIZE;
	case IBV_WC_REM_ACCESS_ERR:
		return VB_HBL_SYN_REMOTE_ACCESS;
	case IBV_WC_REM_INV_REQ_ERR:
		return VB_HBL_SYN_REMOTE_REQUEST;
	case IBV_WC_RETRY_EXC_ERR:
		return VB_HBL_SYN_RETRIES;
	default:
		return VB_HBL_SYN_NONE;
	}
}

static int hbl_inject_change(struct vb_hbl_qp *qp, const struct vb_inject *fault, char *words,
			     size_t size)
{
	enum vb_hbl_syndrome syndrome = syndrome_of(fault->status);

	if (fault->kind == VB_INJECT_QP_ERROR && !vb_hbl_qp_receives(qp)) {
		snprintf(words, size, "QP %u of port %u is neither in RTR nor in RTS", qp->qpn,
			 qp->port->number);
		return -EINVAL;
	}
	if (fault->kind == VB_INJECT_QP_NEXT && !syndrome) {
		snprintf(words, size, "hbl cards report no such error");
		return -EINVAL;
	}
	vb_lock(&qp->sq.lock);
	qp->sq.asked = (uint8_t)syndrome;
	if (fault->kind == VB_INJECT_QP_ERROR) {
		atomic_store_explicit(&qp->sq.blamed, true, memory_order_relaxed);
		vb_hbl_qp_fail(qp, IBV_EVENT_QP_FATAL, VB_HBL_SYN_NONE);
	}
	vb_unlock(&qp->sq.lock);
	return 0;
}

static bool hbl_inject_is_meant(const struct vb_hbl_qp *qp, const struct vb_inject *fault)
{
	return qp->port &&
	       (fault->which == VB_INJECT_ALL ||
		fault->number == (fault->which == VB_INJECT_NTH ? qp->serial : qp->qpn));
}

/* Of several, those that can; where none can, why the last cannot. */
int vb_hbl_inject_qp(const struct vb_adapter *adapter, const struct vb_inject *fault, char *words,
		     size_t size)
{
	struct vb_hbl *hbl = served(adapter);
	bool any = false, done = false;
	int ret = 0;

	if (fault->kind == VB_INJECT_QP_RECV) {
		snprintf(words, size, "queue pairs of hbl cards have no receives");
		return -EOPNOTSUPP;
	}
	/* The mutex first: who holds it may wait for readers. */
	if (hbl)
		pthread_mutex_lock(&hbl->mutex);
	vb_read_lock();
	vb_burst_begin(adapter->card);
	for (struct vb_hbl_qp *qp = hbl ? hbl->qps : NULL; qp; qp = qp->next) {
		if (!hbl_inject_is_meant(qp, fault))
			continue;
		any = true;
		ret = hbl_inject_change(qp, fault, words, size);
		done |= !ret;
	}
	if (hbl)
		pthread_mutex_unlock(&hbl->mutex);
	vb_burst_end(); /* delivers the events: no lock held */
	vb_read_unlock();
	if (done)
		return 0;
	if (any)
		return ret;
	snprintf(words, size, "%s has no such queue pair here", fault->card);
	return -ENOENT;
}

void vb_hbl_inject_fatal(const struct vb_adapter *adapter)
{
	struct vb_hbl *hbl = served(adapter);

	if (!hbl)
		return;
	atomic_store_explicit(&hbl->fatal, true, memory_order_relaxed);
	pthread_mutex_lock(&hbl->mutex);
	for (struct vb_hbl_qp *qp = hbl->qps; qp; qp = qp->next) {
		if (!qp->port)
			continue;
		atomic_store_explicit(&qp->state, IBV_QPS_ERR, memory_order_release);
		vb_hbl_take_back(qp);
		vb_hbl_show_state(qp);
	}
	pthread_mutex_unlock(&hbl->mutex);
}

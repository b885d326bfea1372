// SPDX-License-Identifier: MIT
/*
 * Owns connections of DC at the initiator's end: when one is needed, asking for it, leaving it (dc.h).
 *
 *	ALONE --> ASKS --answer--> CONNECTED --> ALONE: another target, idle, an error, the other end is gone
 *	            +--refused, or no answer in time--> the work request fails
 *
 * What was sent and not acknowledged is never sent again on another connection: the target may have done
 * it already. It fails with the connection.
 */
#include "card/transport/dc.h"

#include <errno.h>
#include <string.h>

#include "base/time.h"
#include "card/fault/fault.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"
#include "card/transport/requester.h"
#include "card/transport/sides.h"
#include "card/transport/transport.h"

enum {
	ASK_NS = 20000000,        /* from one request to the next, at most */
	BLOCKED_NS = 1000000,     /* the same, where the first found no room */
	BUSY_NS = 2000000,        /* ... where the target has no end left, */
	BUSY_MAX_NS = 1000000000, /* and for how long that may go on */
	/* A target answers when its process runs: programs may choose timeouts for answers of hardware. */
	PATIENCE_NS = 250000000
};

static bool is_for(const struct vb_dc_target *to, const struct vb_wr *wr)
{
	return to->dctn == wr->dqpn && to->key == wr->dc_key && to->sgid_index == wr->sgid_index &&
	       !memcmp(&to->dgid, &wr->dgid, sizeof(to->dgid));
}

/* --- streams ---------------------------------------------------------------------------------- */

static uint32_t find_error(const struct vb_dci *dci, uint16_t stream)
{
	uint32_t i = 0;

	while (i < dci->errors && dci->error[i] != stream)
		i++;
	return i;
}

bool vb_dci_has_error(const struct vb_dci *dci, uint16_t stream)
{
	return find_error(dci, stream) < dci->errors;
}

bool vb_dci_confines(struct vb_qp *qp, uint16_t stream)
{
	struct vb_dci *dci = qp->dci;

	if (dci->errors + 1 >= dci->max_errors)
		return false;
	dci->error[dci->errors++] = stream;
	return true;
}

int vb_dci_reset_stream(struct vb_qp *qp, uint16_t stream)
{
	struct vb_dci *dci = qp->dci;
	int ret = -EINVAL;
	uint32_t at;

	if (!dci)
		return vb_refuse_combination("only a DCI has streams");
	vb_card_enter();
	vb_lock(&qp->sq.lock);
	at = find_error(dci, stream);
	if (at < dci->errors && vb_qp_state(qp) == IBV_QPS_RTS) {
		dci->error[at] = dci->error[--dci->errors];
		ret = 0;
	}
	vb_unlock(&qp->sq.lock);
	vb_card_leave();
	return ret ? vb_refuse_value("stream_id (it is not in error)", stream) : 0;
}

/* --- connections ------------------------------------------------------------------------------ */

/* A number that no connection of this host has had: time does not stand still. */
static uint64_t new_connection(struct vb_card *card)
{
	_Atomic uint64_t *last = &card->dc_connection;
	uint64_t now = vb_now_ns() << 6, old = atomic_load_explicit(last, memory_order_relaxed),
		 next;

	now |= vb_fabric_slot(card->fabric) & 0x3f;
	do
		next = now > old ? now : old + 64;
	while (!atomic_compare_exchange_weak_explicit(last, &old, next, memory_order_relaxed,
						      memory_order_relaxed));
	return next;
}

/* Whether the other end still belongs to this connection. */
static bool dci_is_there(struct vb_qp *qp)
{
	const struct vb_qp *end;

	if (qp->transport & VB_TRANSPORT_CUT)
		return true; /* nothing gets there: the timer tells */
	if (!vb_path_can(&qp->path, VB_PATH_CALLS))
		return vb_path_alive(&qp->path) &&
		       vb_path_connection(&qp->path, qp->attr.dest_qp_num) == qp->dci->connection;
	end = vb_qp_find(qp->card, qp->attr.dest_qp_num);
	return end && atomic_load_explicit(&end->shared->connection, memory_order_acquire) ==
			      qp->dci->connection;
}

void vb_dci_leave(struct vb_qp *qp)
{
	qp->dci->phase = VB_DCI_ALONE;
	qp->dci->refused = IBV_WC_SUCCESS;
	atomic_store_explicit(&qp->shared->connection, 0, memory_order_release);
}

static void dci_ask(struct vb_qp *qp, uint64_t now)
{
	struct vb_dci *dci = qp->dci;
	uint64_t timeout = qp->sq.sender.timeout;
	struct vb_pkt pkt = {
		.op = VB_PKT_COMPARE_SWAP,
		.flags = VB_PKT_ONLY,
		.transport = VB_TRANSPORT_DC,
		.dqpn = dci->to.dctn,
		.sqpn = qp->number,
		.psn = qp->sq.sender.psn,
		.dc_key = dci->to.key,
		.dc_version = qp->transport & VB_TRANSPORT_V1,
		.dc_connection = dci->connection,
	};

	dci->again = now + (timeout < BLOCKED_NS ? BLOCKED_NS
			    : timeout < ASK_NS   ? timeout
						 : ASK_NS);
	if (vb_path_can(&qp->path, VB_PATH_CALLS))
		vb_dct_ask(qp->card, &pkt);
	else if (vb_path_send(&qp->path, &pkt) == -EAGAIN)
		dci->again = now + BLOCKED_NS;
	else
		vb_burst_flush(&qp->path);
	vb_alarm_set(&qp->timer, dci->again);
}

/* The way to the target that the loaded WQE names. */
static void turn_to(struct vb_qp *qp)
{
	const struct vb_wr *wr = &qp->sq.wr;
	const struct vb_gid *from = &qp->dev->adapter->gids[wr->sgid_index];
	uint8_t transport =
		(uint8_t)(IBV_QPT_RC | (from->type == IBV_GID_TYPE_ROCE_V1 ? VB_TRANSPORT_V1 : 0));
	struct vb_address to = { .dgid = &wr->dgid,
				 .sgid = &from->gid,
				 .dmac = wr->dmac,
				 .adapter = qp->dev->adapter->guid,
				 .flow_label = wr->flow_label,
				 .mtu = 128u << qp->attr.path_mtu,
				 .traffic_class = wr->traffic_class,
				 .hop_limit = wr->hop_limit,
				 .transport = transport };
	struct vb_path path = vb_path_none, old;

	if (vb_path_open(qp->card->fabric, &path, &to, wr->dqpn, qp->number))
		path = vb_path_none; /* like one that does not answer */
	vb_lock(&qp->rq.lock);
	old = vb_qp_set_path(qp, &path);
	qp->transport = transport | (qp->transport & VB_TRANSPORT_CUT);
	qp->attr.dest_qp_num = 0;
	qp->attr.ah_attr.is_global = 1;
	qp->attr.ah_attr.grh = (struct ibv_global_route){ .dgid = wr->dgid,
							  .sgid_index = wr->sgid_index,
							  .hop_limit = wr->hop_limit,
							  .traffic_class = wr->traffic_class };
	vb_unlock(&qp->rq.lock);
	vb_path_drop(&old);
}

static void dci_start(struct vb_qp *qp)
{
	struct vb_sender *sender = &qp->sq.sender;
	const struct vb_wr *wr = &qp->sq.wr;
	struct vb_dci *dci = qp->dci;
	uint64_t now = vb_now_ns(), patience;

	turn_to(qp);
	dci->to = (struct vb_dc_target){ wr->dgid, wr->dc_key, wr->dqpn, wr->sgid_index };
	dci->connection = new_connection(qp->card);
	dci->phase = VB_DCI_ASKS;
	dci->refused = IBV_WC_SUCCESS;
	patience = sender->timeout == UINT64_MAX ? UINT64_MAX - now
						 : sender->timeout * (sender->retry_limit + 1ull);
	dci->deadline = now + (patience < PATIENCE_NS ? PATIENCE_NS : patience);
	sender->una = sender->psn;
	atomic_store_explicit(&qp->shared->connection, dci->connection, memory_order_release);
	dci_ask(qp, now);
}

enum vb_dci_next vb_dci_prepare(struct vb_qp *qp, enum ibv_wc_status *status)
{
	struct vb_sq *sq = &qp->sq;
	struct vb_dci *dci = qp->dci;
	bool busy = vb_sq_has_inflight(sq) || sq->sent;

	if (sq->wr.sgid_index >= qp->dev->adapter->num_gids) {
		*status = IBV_WC_LOC_QP_OP_ERR;
		return VB_DCI_FAIL;
	}
	if (dci->phase == VB_DCI_CONNECTED && is_for(&dci->to, &sq->wr)) {
		sq->sender.recent = true;
		if (busy || dci_is_there(qp))
			return VB_DCI_GO;
		/* Where it may have been done, it is not asked for once more. */
		*status = IBV_WC_RETRY_EXC_ERR;
		if (sq->resend)
			return VB_DCI_FAIL;
	} else if (dci->phase == VB_DCI_ASKS && is_for(&dci->to, &sq->wr)) {
		*status = dci->refused;
		return dci->refused ? VB_DCI_FAIL : VB_DCI_WAIT;
	} else if (busy) {
		return VB_DCI_WAIT;
	}
	dci_start(qp);
	return VB_DCI_WAIT;
}

/* --- what comes back -------------------------------------------------------------------------- */

static void dci_refuse(struct vb_qp *qp, enum ibv_wc_status status)
{
	qp->dci->refused = status;
	vb_requester_run(qp);
}

static void take_answer(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_dci *dci = qp->dci;
	uint64_t now = vb_now_ns();

	if ((pkt->syndrome & VB_SYN_KIND_MASK) == VB_SYN_RNR) {
		if (dci->deadline > now + BUSY_MAX_NS)
			dci->deadline = now + BUSY_MAX_NS;
		dci->again = now + BUSY_NS;
		vb_alarm_set(&qp->timer, dci->again);
		return;
	}
	if (pkt->syndrome != VB_SYN_ACK) {
		dci_refuse(qp, vb_requester_refused(pkt->syndrome));
		return;
	}
	/* Its end is where the target is. */
	if (vb_qpn_slot(pkt->dc_end) != vb_qpn_slot(dci->to.dctn) || pkt->dc_end > 0xffffff)
		return;
	vb_lock(&qp->rq.lock);
	qp->attr.dest_qp_num = pkt->dc_end;
	vb_unlock(&qp->rq.lock);
	dci->phase = VB_DCI_CONNECTED;
	qp->sq.sender.recent = true;
	vb_requester_run(qp);
}

void vb_dci_receive(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	struct vb_dci *dci = qp->dci;

	if (!dci)
		return;
	vb_lock(&qp->sq.lock);
	if (dci->phase == VB_DCI_ASKS && !dci->refused && pkt->dc_connection == dci->connection &&
	    pkt->sqpn == dci->to.dctn && !(qp->transport & VB_TRANSPORT_CUT))
		take_answer(qp, pkt);
	vb_unlock(&qp->sq.lock);
}

bool vb_dci_look(struct vb_qp *qp, uint64_t now, uint64_t *next)
{
	struct vb_dci *dci = qp->dci;

	if (dci->refused)
		return false;
	if (now >= dci->again) {
		if (!vb_path_alive(&qp->path) ||
		    (now >= dci->deadline && vb_path_drained(&qp->path) &&
		     !(vb_path_unread(&qp->path) && vb_sender_puts_off(&qp->sq.sender)))) {
			dci_refuse(qp, IBV_WC_RETRY_EXC_ERR);
			return dci->phase == VB_DCI_ASKS && !dci->refused;
		}
		dci_ask(qp, now);
	}
	vb_sooner(next, dci->again);
	return true;
}

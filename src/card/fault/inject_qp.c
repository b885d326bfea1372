// SPDX-License-Identifier: MIT
/*
 * Owns faults of queue pairs: to the error state, and a chosen status for the next work request.
 *
 * For a send that is a decoder in place of the format's: for the next WQE it says what the status shall
 * be, and steps back. The requester then fails it as if its own checks had said so: after what is in
 * flight, with the queue in its error state and everything behind it flushed.
 *
 * For a receive it is a bit in the word that says whether a WQE is in hand, which the responder looks at
 * anyway before it takes one. It then refuses the message as if that WQE were wrong.
 */
#include "card/device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/rcu.h"
#include "base/util.h"
#include "card/fault/fault.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"
#include "card/transport/sides.h"

/* Under sq.lock. Whoever decodes, decodes into the queue's own wr. */
static int inject_qp_decode(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index,
			    struct vb_wr *wr)
{
	struct vb_qp *qp = container_of(wr, struct vb_qp, sq.wr);
	int ret = vb_qp_decoder(qp)(ring, blocks, shift, index, wr);
	int status = qp->next_status;

	if (ret)
		return ret;
	if (qp->transport & VB_TRANSPORT_CUT && qp->type == IBV_QPT_UD)
		memset(&wr->dgid, 0, sizeof(wr->dgid));
	/* Not where a WQE is decoded once more, to be reported. */
	if (!status || (uint16_t)index != qp->sq.next || qp->sq.loaded)
		return 0;
	qp->next_status = 0;
	qp->blamed = true;
	vb_inject_choose_decoder(qp);
	return status;
}

void vb_inject_choose_decoder(struct vb_qp *qp)
{
	bool lost = qp->transport & VB_TRANSPORT_CUT && qp->type == IBV_QPT_UD;

	qp->decode = qp->next_status || lost ? inject_qp_decode : vb_qp_decoder(qp);
}

/* --- one queue pair --------------------------------------------------------------------------- */

static int fail_qp(struct vb_qp *qp, char *words, size_t size)
{
	enum ibv_qp_state state = vb_qp_state(qp);

	if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_ERR) {
		snprintf(words, size, "QP 0x%06x is in the state %s", qp->number,
			 state == IBV_QPS_RESET  ? "RESET"
			 : state == IBV_QPS_INIT ? "INIT"
						 : "ERR");
		return -EINVAL;
	}
	vb_qp_fail(qp, IBV_EVENT_QP_FATAL, true);
	return 0;
}

/* Queues without acknowledgements know only what they find out themselves. */
static bool can_end_with(const struct vb_qp *qp, enum ibv_wc_status status)
{
	return qp->type == IBV_QPT_RC || status == IBV_WC_LOC_LEN_ERR ||
	       status == IBV_WC_LOC_QP_OP_ERR || status == IBV_WC_LOC_PROT_ERR ||
	       status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_MW_BIND_ERR;
}

static int fail_next(struct vb_qp *qp, enum ibv_wc_status status, char *words, size_t size)
{
	if (!qp->sq.blocks || !can_end_with(qp, status)) {
		snprintf(words, size, "QP 0x%06x %s", qp->number,
			 qp->sq.blocks ? "is not RC: its requests end with local errors only"
				       : "does not send");
		return -EINVAL;
	}
	vb_lock(&qp->sq.lock);
	qp->next_status = (uint8_t)status;
	vb_inject_choose_decoder(qp);
	vb_unlock(&qp->sq.lock);
	return 0;
}

/* What the responder itself finds wrong; what is wrong with a request, only reliable queues say. */
static bool can_receive_with(const struct vb_qp *qp, enum ibv_wc_status status)
{
	return status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_LOC_PROT_ERR ||
	       status == IBV_WC_LOC_QP_OP_ERR ||
	       (qp->type == IBV_QPT_RC &&
		(status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR));
}

static int fail_receive(struct vb_qp *qp, enum ibv_wc_status status, char *words, size_t size)
{
	bool receives = qp->rq.count || qp->init.srq;

	if (!receives || !can_receive_with(qp, status)) {
		snprintf(words, size, "QP 0x%06x %s", qp->number,
			 receives ? "has no receives that end so" : "does not receive");
		return -EINVAL;
	}
	vb_lock(&qp->rq.lock);
	qp->rq.asked = (uint8_t)status;
	qp->rq.have_wqe |= VB_WQE_ASKED;
	vb_unlock(&qp->rq.lock);
	return 0;
}

static bool inject_qp_is_meant(const struct vb_qp *qp, const struct vb_inject *fault)
{
	return fault->which == VB_INJECT_ALL ||
	       fault->number == (fault->which == VB_INJECT_NTH ? qp->serial : qp->number);
}

static int inject_qp_change(struct vb_qp *qp, const struct vb_inject *fault, char *words,
			    size_t size)
{
	return fault->kind == VB_INJECT_QP_ERROR  ? fail_qp(qp, words, size)
	       : fault->kind == VB_INJECT_QP_NEXT ? fail_next(qp, fault->status, words, size)
						  : fail_receive(qp, fault->status, words, size);
}

static struct vb_qp *at(struct vb_card *card, uint32_t index)
{
	return atomic_load_explicit(&card->tables.qp[index], memory_order_acquire);
}

/* Of several, those that can; where none can, why the last cannot. */
int vb_inject_qp(const struct vb_adapter *adapter, const struct vb_inject *fault, char *words,
		 size_t size)
{
	struct vb_card *card = adapter->card;
	bool any = false, done = false;
	int ret = 0;

	vb_read_lock();
	vb_burst_begin(card);
	for (uint32_t i = VB_QP_FIRST_INDEX; i < VB_QP_MAX_INDEX; i++) {
		struct vb_qp *qp = at(card, i);

		if (!qp || qp->dev->adapter != adapter || !inject_qp_is_meant(qp, fault))
			continue;
		any = true;
		ret = inject_qp_change(qp, fault, words, size);
		done |= !ret;
	}
	vb_burst_end();
	vb_deferred_run_own(card);
	vb_read_unlock();
	if (done)
		return 0;
	if (any)
		return ret;
	snprintf(words, size, "%s has no such queue pair here", fault->card);
	return -ENOENT;
}

void vb_inject_fail_all(struct vb_dev *dev)
{
	struct vb_card *card = vb_dev_card(dev);

	vb_read_lock();
	vb_burst_begin(card);
	for (uint32_t i = VB_QP_FIRST_INDEX; i < VB_QP_MAX_INDEX; i++) {
		struct vb_qp *qp = at(card, i);

		if (qp && qp->dev == dev)
			vb_qp_fail(qp, 0, false);
	}
	vb_burst_end();
	vb_deferred_run_own(card);
	vb_read_unlock();
}

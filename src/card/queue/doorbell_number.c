// SPDX-License-Identifier: MIT
/*
 * Owns doorbells by queue number, for untrusted callers: device code of the accelerator. A queue is
 * rung only by the owner that it was made for, so an invented or stale number does nothing.
 */
#include "card/queue/doorbell.h"

#include <errno.h>

#include "base/rcu.h"
#include "card/queue/cq.h"
#include "card/queue/objects.h"
#include "card/transport/transport.h"

int vb_doorbell_send(struct vb_card *card, uint64_t owner, uint32_t qpn, uint32_t pi)
{
	struct vb_qp *qp;
	int ret = -ENOENT;

	vb_read_lock();
	qp = vb_qp_find(card, qpn);
	if (qp && owner && qp->init.owner == owner)
		ret = vb_qp_ring_checked(qp, pi);
	vb_read_unlock();
	return ret;
}

/* Inside a read section. */
static struct vb_cq *find_cq(struct vb_card *card, uint64_t owner, uint32_t cqn)
{
	struct vb_cq *cq = vb_cq_find(card, cqn);

	return cq && owner && cq->attr.owner == owner ? cq : NULL;
}

int vb_doorbell_arm(struct vb_card *card, uint64_t owner, uint32_t cqn, uint32_t ci)
{
	struct vb_cq *cq;

	vb_read_lock();
	cq = find_cq(card, owner, cqn);
	if (cq)
		vb_cq_arm_at(cq, ci);
	vb_read_unlock();
	return cq ? 0 : -ENOENT;
}

int vb_doorbell_zero_cqe(struct vb_card *card, uint64_t owner, uint32_t cqn)
{
	struct vb_completion zero = { .status = IBV_WC_SUCCESS };
	struct vb_cq *cq;

	vb_read_lock();
	vb_burst_begin(card);
	cq = find_cq(card, owner, cqn);
	if (cq && !vb_dev_stale(cq->dev))
		vb_cq_push(cq, &zero);
	vb_burst_end();
	vb_read_unlock();
	return cq ? 0 : -ENOENT;
}

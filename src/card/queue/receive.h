/* SPDX-License-Identifier: MIT */
/*
 * Receive WQEs as messages (responder.c) and frames (../ether/receive.c) use them: taking the next one,
 * writing to its memory, completing it. Everything runs under rq.lock. Functions of the data path:
 * they are here to be inlined in both.
 */
#pragma once

#include <endian.h>
#include <errno.h>
#include <netinet/in.h>

#include "card/memory/indirect.h"
#include "card/memory/keys.h"
#include "card/queue/counter_set.h"
#include "card/queue/objects.h"
#include "card/transport/run.h"
#include "card/transport/sides.h"
#include "host/fault.h"

enum verdict {
	ACCEPT,
	NOT_READY,   /* no receive WQE: RNR */
	BAD_REQUEST, /* IBTA: remote invalid request */
	BAD_ACCESS,  /* remote access error */
	BAD_LENGTH,  /* longer than the receive buffer */
	BAD_BUFFER,  /* our own receive WQE is wrong: remote operational error */
	BAD_WQE,
	SOURCE_FAULT, /* the sender's memory, that we copy from, is not there */
	NOT_PULLED,   /* we cannot copy from it at all */
	TRY_AGAIN,    /* not now */
	LOST,         /* its CQ takes no CQE: remote operational error; the queue pair has failed */
};

static const struct {
	uint8_t syndrome;
	enum ibv_wc_status status; /* of the receive WQE, if one was taken */
	enum ibv_event_type event;
} verdicts[] = {
	[BAD_REQUEST] = { VB_SYN_NAK_INVALID, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
	[BAD_ACCESS] = { VB_SYN_NAK_ACCESS, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR },
	[BAD_LENGTH] = { VB_SYN_NAK_INVALID, IBV_WC_LOC_LEN_ERR, 0 },
	[BAD_BUFFER] = { VB_SYN_NAK_OPERATION, IBV_WC_LOC_PROT_ERR, 0 },
	[BAD_WQE] = { VB_SYN_NAK_OPERATION, IBV_WC_LOC_QP_OP_ERR, 0 },
};

/* --- receive WQEs ----------------------------------------------------------------------------- */

static inline uint16_t posted_to(const struct vb_qp *qp)
{
	/* Pairs with the driver's store after it has written the WQEs. */
	uint32_t record =
		atomic_load_explicit((_Atomic uint32_t *)&qp->init.dbr[0], memory_order_acquire);

	return (uint16_t)be32toh(record);
}

static inline enum verdict take_next(struct vb_qp *qp)
{
	struct vb_rq *rq = &qp->rq;
	int n;

	if (qp->init.srq) {
		n = vb_srq_take(qp->init.srq, &rq->wqe_index, rq->sge);
	} else if (!rq->count || posted_to(qp) == rq->ci) {
		n = -EAGAIN;
	} else {
		uint32_t at = rq->ci & (rq->count - 1);

		n = qp->codec->receive((char *)rq->buf + ((size_t)at << rq->shift), 1u << rq->shift,
				       qp->init.striding.log_bytes, rq->sge);
		rq->wqe_index = rq->ci++;
	}
	if (n == -EAGAIN) {
		vb_qp_count(qp, VB_COUNT_OUT_OF_BUFFER);
		return NOT_READY;
	}
	rq->have_wqe |= VB_WQE_HAVE;
	rq->num_sge = n < 0 ? 0 : (uint16_t)n;
	rq->capacity = 0;
	for (int i = 0; i < n; i++)
		rq->capacity += rq->sge[i].len;
	return n < 0 ? BAD_WQE : ACCEPT;
}

/* It completes with what it was asked to, as if a check of ours had said so. */
static inline enum verdict take_asked(struct vb_qp *qp)
{
	struct vb_rq *rq = &qp->rq;

	if (!(rq->have_wqe & VB_WQE_HAVE) && take_next(qp) == NOT_READY)
		return NOT_READY;
	rq->have_wqe = VB_WQE_HAVE | VB_WQE_BLAMED;
	for (enum verdict v = BAD_REQUEST; v < BAD_WQE; v++)
		if (verdicts[v].status == (enum ibv_wc_status)rq->asked)
			return v;
	return BAD_WQE;
}

/* Take a receive WQE for the message; one that a lost message of UC left behind serves the next. */
static inline enum verdict take_wqe(struct vb_qp *qp)
{
	if (qp->rq.have_wqe)
		return qp->rq.have_wqe & VB_WQE_ASKED ? take_asked(qp) : ACCEPT;
	return take_next(qp);
}

/* The network header of a datagram. */
static inline enum vb_network network_of(const struct vb_pkt *pkt)
{
	if (pkt->transport & VB_TRANSPORT_V1)
		return VB_NETWORK_GRH;
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)&pkt->grh->dgid) ? VB_NETWORK_IPV4
									      : VB_NETWORK_IPV6;
}

/*
 * What the responder expects next, for vb_path_expected() and add_acknowledgement(). Once per
 * packet; rq.lock held.
 */
static inline void publish_epsn(struct vb_qp *qp, uint32_t epsn)
{
	if (atomic_load_explicit(&qp->shared->epsn, memory_order_relaxed) != epsn)
		atomic_store_explicit(&qp->shared->epsn, epsn, memory_order_release);
}

/* A WQE of several frames ends with an error: what is left of its strides goes with it. */
static inline void whole_wqe(struct vb_qp *qp, struct vb_completion *c)
{
	enum { MOST = 0x7fff }; /* that a CQE can tell */
	uint32_t left = (1u << qp->init.striding.log_count) - qp->rq.stride;

	c->wqe_id = qp->rq.wqe_index;
	c->wqe_index = (uint16_t)qp->rq.stride;
	c->strides = (uint16_t)(left < MOST ? left : MOST);
	qp->rq.stride = 0;
}

/* ACCEPT or LOST. */
static inline enum verdict complete(struct vb_qp *qp, enum ibv_wc_status status,
				    const struct vb_pkt *pkt, uint32_t len)
{
	struct vb_completion c = {
		.status = status,
		.receive = true,
		.wqe_index = qp->rq.wqe_index,
		.qpn = qp->shows,
		.byte_len = len,
		.srqn = qp->srqn,
		.uidx = qp->init.uidx,
		.real_time = qp->init.real_time,
	};

	if (pkt) {
		c.op = pkt->op == VB_PKT_WRITE ? VB_WR_WRITE : VB_WR_SEND;
		c.flags = (uint8_t)((pkt->flags & VB_PKT_IMM ? VB_WR_IMM : 0) |
				    (pkt->flags & VB_PKT_INVALIDATE ? VB_WR_INVALIDATE : 0) |
				    (pkt->flags & VB_PKT_SOLICITED ? VB_WR_SOLICITED : 0) |
				    (qp->rq.inlined ? VB_WR_INLINED : 0));
		qp->rq.inlined = false;
		c.imm = pkt->flags & VB_PKT_INVALIDATE ? pkt->inv_rkey : pkt->imm;
		c.src_qpn = pkt->sqpn;
		c.grh = pkt->grh != NULL;
		if (c.grh)
			c.network = (uint8_t)network_of(pkt);
	} else if (qp->init.striding.log_bytes) {
		whole_wqe(qp, &c);
	}
	qp->rq.have_wqe &= VB_WQE_ASKED;
	/*
	 * Published before the program sees the completion: its answer then carries the
	 * acknowledgement.
	 */
	if (status == IBV_WC_SUCCESS)
		publish_epsn(qp, vb_psn_add(qp->rq.receiver.epsn, 1));
	else
		vb_count_status(qp, status, true);
	return vb_run_push(qp, &c) ? ACCEPT : LOST;
}

/* --- moving data ------------------------------------------------------------------------------ */

/*
 * Copy one stretch. A fault is the source's, or `blame` where the source is readable; that of a
 * carried payload always is.
 */
static inline enum verdict copy(void *to, const void *from, size_t n, enum verdict blame)
{
	if (!vb_fault_copy(to, from, n))
		return ACCEPT;
	return vb_fault_readable(from, n) ? blame : SOURCE_FAULT;
}

/*
 * The memory of a part of a receive buffer, or NULL. All packets of a message go to the registration that the first one
 * found, so that a region that changes meanwhile does not get one half of it.
 */
static inline void *buffer_at(const struct vb_qp *qp, unsigned int i, uint64_t offset, size_t len)
{
	const struct vb_sge *sge = &qp->rq.sge[i];
	void *to = vb_mr_translate(qp->card, sge->lkey, qp->init.pd->number, sge->addr + offset,
				   len, IBV_ACCESS_LOCAL_WRITE);

	if (to && qp->rq.pinned &&
	    vb_mr_generation(qp->card, sge->lkey) != qp->rq.sge_generation[i])
		return NULL;
	return to;
}

/* The same as a copy, where the buffer's key may be an indirect one. */
static __attribute__((noinline, cold, unused)) enum verdict
scatter_indirect(const struct vb_qp *qp, unsigned int i, uint64_t offset, const uint8_t *from,
		 size_t len)
{
	const struct vb_sge *sge = &qp->rq.sge[i];
	int ret = -EACCES;

	if (!qp->rq.pinned || vb_mr_generation(qp->card, sge->lkey) == qp->rq.sge_generation[i])
		ret = vb_indirect_write(qp->card, sge->lkey, qp->init.pd->number,
					sge->addr + offset, from, len, IBV_ACCESS_LOCAL_WRITE);
	if (!ret)
		return ACCEPT;
	return ret == -EACCES || vb_fault_readable(from, len) ? BAD_BUFFER : SOURCE_FAULT;
}

/* Write bytes of a message into the receive WQE's buffers, offset bytes into them. */
static inline enum verdict scatter(struct vb_qp *qp, uint64_t offset, const uint8_t *from,
				   size_t len)
{
	for (unsigned int i = 0; len && i < qp->rq.num_sge; i++) {
		const struct vb_sge *sge = &qp->rq.sge[i];
		enum verdict ret;
		size_t n;
		void *to;

		if (offset >= sge->len) {
			offset -= sge->len;
			continue;
		}
		n = sge->len - offset < len ? sge->len - offset : len;
		to = buffer_at(qp, i, offset, n);
		ret = to ? copy(to, from, n, BAD_BUFFER) : scatter_indirect(qp, i, offset, from, n);
		if (ret != ACCEPT)
			return ret;
		from += n;
		len -= n;
		offset = 0;
	}
	return ACCEPT;
}

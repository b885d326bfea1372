// SPDX-License-Identifier: MIT
/*
 * Owns targets of DC: requests of initiators, and the ends of connections that they get (dc.h).
 *
 *	packet, or call --> request[] --> VB_WORK_CONNECT, no lock held --> end[] --> answer
 *
 * An end is made where no other is free, and used again and again; all are destroyed with the DCT. One
 * is free when its initiator shows another connection, or is gone.
 */
#include "card/transport/dc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "card/fault/fault.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"
#include "card/transport/requester.h"
#include "card/transport/sides.h"
#include "card/transport/transport.h"

enum { NO_ANSWER = 0 }; /* no syndrome */

static void ignore(void *cookie, enum ibv_event_type type)
{
}

int vb_dct_alloc(struct vb_qp *qp)
{
	qp->dct = calloc(1, sizeof(*qp->dct));
	return qp->dct ? 0 : -ENOMEM;
}

void vb_dct_free(struct vb_qp *qp)
{
	if (!qp->dct)
		return;
	for (uint32_t i = 0; i < qp->dct->count; i++)
		vb_qp_destroy(qp->dct->end[i].qp);
	free(qp->dct->end);
	free(qp->dct);
	qp->dct = NULL;
}

void vb_dct_ask(struct vb_card *card, const struct vb_pkt *pkt)
{
	struct vb_qp *qp = vb_qp_find(card, pkt->dqpn);
	struct vb_dct *dct = qp ? qp->dct : NULL;

	if (!dct)
		return; /* nobody answers */
	vb_lock(&dct->lock);
	if (dct->tail - dct->head < VB_DCT_REQUESTS)
		dct->request[dct->tail++ % VB_DCT_REQUESTS] =
			(struct vb_dc_request){ .sqpn = pkt->sqpn & 0xffffff,
						.psn = pkt->psn & 0xffffff,
						.v1 = pkt->dc_version & VB_TRANSPORT_V1,
						.key = pkt->dc_key,
						.connection = pkt->dc_connection };
	vb_unlock(&dct->lock);
	vb_work_add(qp, VB_WORK_CONNECT);
}

/* --- ends: ends_lock held --------------------------------------------------------------------- */

/* rq.lock held: the path changes with that of the port. */
static bool shows_itself(struct vb_dct_end *end)
{
	struct vb_qp *qp = end->qp;
	const struct vb_qp *dci;
	uint64_t shown;

	if (qp->transport & VB_TRANSPORT_CUT)
		return true;
	if (vb_path_can(&qp->path, VB_PATH_CALLS)) {
		dci = vb_qp_find(qp->card, end->sqpn);
		shown = dci ? atomic_load_explicit(&dci->shared->connection, memory_order_acquire)
			    : 0;
	} else {
		shown = vb_path_alive(&qp->path) ? vb_path_connection(&qp->path, end->sqpn) : 0;
	}
	return shown == end->connection;
}

static bool dct_is_used(struct vb_dct_end *end)
{
	bool used;

	vb_lock(&end->qp->rq.lock);
	used = shows_itself(end);
	vb_unlock(&end->qp->rq.lock);
	return used;
}

/*
 * Receives that a message has taken whose initiator left or died in the middle of it: the next message
 * may be another end's.
 */
static void dct_give_back(struct vb_dct *dct)
{
	for (uint32_t i = 0; i < dct->count; i++) {
		struct vb_qp *qp = dct->end[i].qp;

		vb_lock(&qp->rq.lock);
		if (qp->rq.have_wqe & VB_WQE_HAVE && !shows_itself(&dct->end[i]))
			vb_responder_give(qp);
		vb_unlock(&qp->rq.lock);
	}
}

void vb_dct_lacks(const struct vb_qp *end)
{
	struct vb_qp *qp = vb_qp_find(end->card, end->shows);

	if (qp && qp->dct)
		vb_work_add(qp, VB_WORK_CONNECT);
}

static struct vb_dct_end *dct_find(struct vb_dct *dct, uint32_t sqpn)
{
	for (uint32_t i = 0; i < dct->count; i++)
		if (dct->end[i].sqpn == sqpn)
			return &dct->end[i];
	for (uint32_t i = 0; i < dct->count; i++)
		if (!dct_is_used(&dct->end[i]))
			return &dct->end[i];
	return NULL;
}

/* A responder of RC that the program does not see. */
static struct vb_dct_end *dct_add(struct vb_qp *qp)
{
	struct vb_dct *dct = qp->dct;
	struct vb_qp_attr attr = { .type = IBV_QPT_RC,
				   .pd = qp->init.pd,
				   .send_cq = qp->init.recv_cq,
				   .recv_cq = qp->init.recv_cq,
				   .srq = qp->init.srq,
				   .dbr = qp->init.dbr,
				   .event = ignore,
				   .uidx = qp->init.uidx };
	struct vb_dct_end *more;

	if (dct->count == VB_DCT_ENDS)
		return NULL;
	if (dct->count == dct->room) {
		uint32_t room = dct->room ? 2 * dct->room : 8;

		more = realloc(dct->end, room * sizeof(*more));
		if (!more)
			return NULL;
		dct->end = more;
		dct->room = room;
	}
	more = &dct->end[dct->count];
	*more = (struct vb_dct_end){ 0 };
	if (vb_qp_create_end(qp, &attr, &more->qp))
		return NULL;
	vb_qp_set_counters(more->qp, vb_qp_counter_set(qp)); /* there it happens */
	dct->count++;
	return more;
}

/* The end belongs to this initiator from now on. False: it cannot be reached. */
static bool dct_attach(struct vb_dct_end *end, const struct vb_dc_request *request,
		       const struct ibv_qp_attr *attr)
{
	struct vb_qp *qp = end->qp;
	struct vb_path path, old;
	uint8_t have;

	if (vb_path_open_slot(qp->card->fabric, &path, vb_qpn_slot(request->sqpn), qp->number) ||
	    !vb_path_can(&path, VB_PATH_REACHES))
		return false;
	path.transport = (uint8_t)(IBV_QPT_RC | request->v1);
	/* The initiator that it had has left it: nobody is in the middle of using it. */
	atomic_store_explicit(&qp->shared->ready, 0, memory_order_seq_cst);
	vb_segment_wait_qp(qp->card->fabric, qp->number & VB_QPN_INDEX_MASK);
	vb_lock(&qp->sq.lock);
	vb_lock(&qp->rq.lock);
	old = vb_qp_set_path(qp, &path);
	qp->transport = path.transport | (qp->transport & VB_TRANSPORT_CUT);
	qp->attr = *attr;
	qp->attr.dest_qp_num = request->sqpn;
	qp->attr.max_dest_rd_atomic = VB_MAX_RD_ATOMIC;
	have = qp->rq.have_wqe;
	vb_responder_reset(qp, request->psn, false);
	/* A receive that a message has taken which never ended serves the next. */
	qp->rq.have_wqe |= have;
	atomic_store_explicit(&qp->comm_est, true, memory_order_relaxed);
	atomic_store_explicit(&qp->shared->connection, request->connection, memory_order_release);
	atomic_store_explicit(&qp->state, IBV_QPS_RTR, memory_order_seq_cst);
	vb_qp_publish(qp, IBV_QPS_RTR);
	vb_unlock(&qp->rq.lock);
	vb_unlock(&qp->sq.lock);
	vb_path_drop(&old);
	end->sqpn = request->sqpn;
	end->connection = request->connection;
	return true;
}

/* --- requests --------------------------------------------------------------------------------- */

/* The syndrome to answer, or none; *number: of the end. */
static uint8_t admit(struct vb_qp *qp, const struct vb_dc_request *request, uint32_t *number)
{
	struct vb_dct_end *end;
	struct ibv_qp_attr attr;
	bool takes;

	vb_lock(&qp->rq.lock);
	attr = qp->attr;
	takes = vb_qp_state(qp) == IBV_QPS_RTR && qp->transport == (IBV_QPT_RC | request->v1);
	vb_unlock(&qp->rq.lock);
	if (!takes)
		return NO_ANSWER; /* as a queue pair that is not ready, or of the other version of RoCE */
	if (request->key != qp->init.dc_key)
		return VB_SYN_NAK_ACCESS;
	end = dct_find(qp->dct, request->sqpn);
	if (!end)
		end = dct_add(qp);
	if (!end)
		return VB_SYN_RNR;
	/* Numbers of connections grow: a request that was late is not heard any more. */
	if (end->sqpn == request->sqpn && end->connection > request->connection)
		return NO_ANSWER;
	if ((end->sqpn != request->sqpn || end->connection != request->connection) &&
	    !dct_attach(end, request, &attr))
		return NO_ANSWER;
	*number = end->qp->number;
	return VB_SYN_ACK;
}

static void dct_answer(struct vb_qp *qp, const struct vb_dc_request *request, uint8_t syndrome,
		       uint32_t number)
{
	struct vb_pkt pkt = {
		.op = VB_PKT_ATOMIC_RESPONSE,
		.flags = VB_PKT_ONLY,
		.transport = VB_TRANSPORT_DC,
		.syndrome = syndrome,
		.dqpn = request->sqpn,
		.sqpn = qp->number,
		.dc_end = number,
		.dc_connection = request->connection,
	};
	struct vb_path path;
	struct vb_qp *dci;

	if (vb_path_open_slot(qp->card->fabric, &path, vb_qpn_slot(request->sqpn), VB_NO_QUEUE))
		return;
	if (vb_path_can(&path, VB_PATH_CALLS)) {
		dci = vb_qp_find(qp->card, request->sqpn);
		if (dci)
			vb_dci_receive(dci, &pkt);
	} else if (!vb_path_send(&path, &pkt)) {
		vb_burst_flush(&path);
	} /* else it asks again */
	vb_path_drop(&path);
}

static bool dct_take(struct vb_dct *dct, struct vb_dc_request *request)
{
	bool any;

	vb_lock(&dct->lock);
	any = dct->head != dct->tail;
	if (any)
		*request = dct->request[dct->head++ % VB_DCT_REQUESTS];
	vb_unlock(&dct->lock);
	return any;
}

void vb_dct_serve(struct vb_qp *qp)
{
	struct vb_dc_request request;
	uint32_t number = 0;
	uint8_t syndrome;

	vb_lock(&qp->dct->ends_lock);
	dct_give_back(qp->dct);
	vb_unlock(&qp->dct->ends_lock);
	while (dct_take(qp->dct, &request)) {
		vb_lock(&qp->dct->ends_lock);
		syndrome = admit(qp, &request, &number);
		vb_unlock(&qp->dct->ends_lock);
		if (syndrome != NO_ANSWER)
			dct_answer(qp, &request, syndrome, number);
	}
}

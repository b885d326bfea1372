/* SPDX-License-Identifier: MIT */
/*
 * Dynamically connected transport (DC): an initiator (DCI) sends each work request to the target (DCT)
 * that the request names.
 *
 *	DCI --- request: DCT, key, connection ---> DCT        what both mean by "connection" is a number that
 *	    <-- its end of it, or a refusal ------  |         was never used before
 *	    === RC packets, PSNs, answers ======> end of the connection: a queue pair of the DCT's, with its
 *	                                          shared receive queue, its domain and its completion queue
 *
 * So the target of a connection is an ordinary responder of RC, with a number of its own that no program
 * sees: everything that is exact for RC is so for DC. A DCI has one connection at a time. It leaves it
 * when a request names another target, once all that was sent is acknowledged, and when it is idle.
 *
 * Nobody says goodbye. Each end shows the number of its connection in shared memory (struct vb_seg_qp): a
 * DCI that does not find its own at the other end asks for a new one, and a DCT uses the ends again whose
 * DCI has another one or is gone.
 */
#pragma once

#include "card/queue/objects.h"
#include "card/queue/qp.h"

/* Where a work request goes: what must be the same for two of them to share a connection. */
struct vb_dc_target {
	union ibv_gid dgid;
	uint64_t key;
	uint32_t dctn;
	uint8_t sgid_index;
};

enum vb_dci_phase {
	VB_DCI_ALONE,
	VB_DCI_ASKS,
	VB_DCI_CONNECTED,
};

/* Of an initiator; under sq.lock. */
struct vb_dci {
	uint8_t phase;              /* enum vb_dci_phase */
	enum ibv_wc_status refused; /* ASKS: what the work request ends with */
	struct vb_dc_target to;
	uint64_t connection;
	uint64_t again;    /* ASKS, ns: ask once more, */
	uint64_t deadline; /* and give up */
	/* Streams in error: as many as this are the queue's. */
	uint8_t max_errors, errors;
	uint16_t error[1 << VB_DC_MAX_LOG_ERRORED];
};

/* A DCI that wants to be connected. */
struct vb_dc_request {
	uint32_t sqpn, psn;
	uint8_t v1; /* VB_TRANSPORT_V1 or 0 */
	uint64_t key, connection;
};

/* An end of a connection, in use or not. */
struct vb_dct_end {
	struct vb_qp *qp;
	uint32_t sqpn;
	uint64_t connection;
};

enum {
	VB_DCT_REQUESTS = 64, /* that wait; those beyond ask again */
	VB_DCT_ENDS_LOG = 12,
	VB_DCT_ENDS = 1 << VB_DCT_ENDS_LOG, /* DCIs that can be connected to one DCT */
};

struct vb_dct {
	struct vb_lock lock; /* of requests */
	uint32_t head, tail;
	struct vb_dc_request request[VB_DCT_REQUESTS];
	struct vb_lock ends_lock; /* taken before the locks of the ends' queues */
	uint32_t count, room;
	struct vb_dct_end *end;
};

/* --- dci.c: sq.lock held --- */
bool vb_dci_has_error(const struct vb_dci *dci, uint16_t stream);
/* A work request failed in a stream without an error: true if the error stays within the stream. */
bool vb_dci_confines(struct vb_qp *qp, uint16_t stream);

enum vb_dci_next { VB_DCI_GO, VB_DCI_WAIT, VB_DCI_FAIL };

/* Before the WQE that is loaded is sent: whether there is a connection for it. FAIL: with *status. */
enum vb_dci_next vb_dci_prepare(struct vb_qp *qp, enum ibv_wc_status *status);
void vb_dci_leave(struct vb_qp *qp);
/* The timer, while it is being connected. */
bool vb_dci_look(struct vb_qp *qp, uint64_t now, uint64_t *next);
/* An answer, no lock held. */
void vb_dci_receive(struct vb_qp *qp, const struct vb_pkt *pkt);

/* --- dct.c --- */
int vb_dct_alloc(struct vb_qp *qp);
/* With no lock held, nobody can find the queue pair any more. */
void vb_dct_free(struct vb_qp *qp);
/* A request for this process; any locks held. */
void vb_dct_ask(struct vb_card *card, const struct vb_pkt *pkt);
/* An end finds no receive; rq.lock held. */
void vb_dct_lacks(const struct vb_qp *end);
/* Answer those that wait, and see whether receives are left over; no lock held. */
void vb_dct_serve(struct vb_qp *qp);

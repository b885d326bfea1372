/* SPDX-License-Identifier: MIT */
/* What moves data: the engine behind doorbells and packets. */
#pragma once

#include "card/queue/objects.h"

/* --- requester.c --- */
/* The send doorbell of an untrusted caller. -EINVAL: producer index out of range. */
int vb_qp_ring_checked(struct vb_qp *qp, uint32_t pi);
void vb_requester_run(struct vb_qp *qp); /* sq.lock held */

/* --- completer.c --- */
void vb_requester_flush(struct vb_qp *qp); /* sq.lock held */
/* The next packet is psn. empty: and no WQE is posted. Both queue locks held. */
void vb_requester_reset(struct vb_qp *qp, uint32_t psn, bool empty);
void vb_requester_receive(struct vb_qp *qp, const struct vb_pkt *pkt);
/* Requests of the peer's QP sqpn have acknowledged everything up to psn. */
void vb_requester_acknowledged(struct vb_qp *qp, uint32_t sqpn, uint32_t psn);
bool vb_requester_look(struct vb_alarm *timer, uint64_t now, uint64_t *next);

/* --- responder.c --- */
/*
 * Execute a request. Returns true with *reply set where the caller is to answer at once (loopback).
 * Without a reply it is a packet, which begins a run of its QP or continues it (run.h).
 */
bool vb_responder_receive(struct vb_qp *qp, const struct vb_pkt *pkt, struct vb_pkt *reply,
			  struct iovec *reply_iov);
void vb_responder_flush(struct vb_qp *qp); /* rq.lock held */
bool vb_responder_look(struct vb_alarm *watch, uint64_t now, uint64_t *next);
/* Reset the receive side: expected PSN; empty: and posted WQEs. rq.lock held. */
void vb_responder_reset(struct vb_qp *qp, uint32_t psn, bool empty);
/* A message that will not go on: its receive goes back to the shared queue. */
void vb_responder_give(struct vb_qp *qp);

/* --- answer.c --- */
void vb_responder_answer(struct vb_qp *qp); /* send what is due */

/* --- pace.c --- */
/* Packet pacing: whether the queue must wait. Else the WQE's bytes are counted. sq.lock is held. */
bool vb_pace_waits(struct vb_qp *qp);

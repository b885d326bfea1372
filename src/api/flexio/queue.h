/* SPDX-License-Identifier: MIT */
/*
 * What the files about queues share: a common head of all their objects, queue memory, and the way
 * from verbs handles to the card.
 *
 *	flexio_cq  -- vb_cq           ring, doorbell record; event -> event handler
 *	flexio_qp  -- vb_qp           one buffer: receive ring, then send ring
 *	flexio_rmp -- vb_srq          receives for several QPs
 *	flexio_sq  -- vb_qp           of raw frames, without a receive queue
 *	flexio_rq  -- vb_qp [vb_srq]  of raw frames, without a send queue; linked WQEs: its own SRQ
 *
 * An object holds references to what it uses: the context, the UAR, umems, CQs and RMP (counted by
 * the card), the event handler.
 */
#pragma once

#include "api/flexio/process.h"
#include "api/ibverbs/accessors.h"
#include "card/queue/srq.h"

enum queue_kind {
	QUEUE_CQ = 1,
	QUEUE_QP,
	QUEUE_RMP,
	QUEUE_SQ,
	QUEUE_RQ,
	QUEUE_TD,
	QUEUE_TIS,
};

/* Memory of a queue, as the card sees it. */
struct qmem {
	void *addr;
	struct vb_umem *umem; /* NULL: device memory */
};

/* First in every object. */
struct queue {
	enum queue_kind kind;
	struct flexio_process *process; /* NULL: of no process (TD, TIS) */
	struct ibv_context *ctx;        /* its device context, referenced */
	struct flexio_uar *uar;
	struct qmem ring, dbr;
} __attribute__((aligned(16)));

/* ---- queue.c ---- */

/* An object of `size` bytes, of this process (or NULL), on this context; NULL after a log line. */
void *vb_queue_new(enum queue_kind kind, struct flexio_process *process, struct ibv_context *ctx,
		   size_t size);
/*
 * Give back what its head holds, and free it. Objects that were published take vb_queue_end()
 * first.
 */
void vb_queue_free(struct queue *queue);
/* From now on the handle is valid. False, after a log line: no memory. */
bool vb_queue_publish(struct queue *queue);
/* Keep an object of this kind alive: see vb_handle_pin(). */
struct handle *vb_queue_pin(enum queue_kind kind, const void *handle);
/*
 * End its life: the handle becomes invalid, and no other thread uses the object any more. False: it
 * was not valid.
 */
bool vb_queue_end(enum queue_kind kind, void *handle);
/* It could not be destroyed after all: make the handle valid again. */
void vb_queue_revive(struct queue *queue);

/* Find memory for a queue. 0, or -errno after a log line that names it. */
int vb_qmem_get(struct flexio_process *process, struct vb_dev *dev, const struct flexio_qmem *qmem,
		uint64_t size, const char *what, struct qmem *out);

/* Device and adapter for a new queue: those of ctx, or of the process. -errno after a log line. */
struct queue_place {
	struct ibv_context *ctx;
	struct vb_dev *dev;
	const struct vb_adapter *adapter;
};

int vb_queue_place(struct flexio_process *process, struct ibv_context *ctx,
		   struct queue_place *place);
/* The card's protection domain of pd, or of the process; NULL after a log line. */
struct vb_pd *vb_queue_pd(struct flexio_process *process, const struct queue_place *place,
			  struct ibv_pd *pd);

/* Log that the card refused to make it. Returns err. */
int vb_queue_refused(const char *what, const struct queue_place *place,
		     const struct card_words *words, int err);

/*
 * Ring and record of a receive queue, or of an RMP (card.single not set), into the card's
 * attributes. -errno after a log line.
 */
int vb_wq_memory(struct queue *queue, const struct queue_place *place,
		 const struct flexio_wq_attr *attr, struct vb_srq_attr *card);
/* Bring a queue of raw frames to RTS. */
int vb_raw_start(struct vb_qp *qp);

/* An event of the card for a queue: into the log. */
void vb_queue_log_event(const char *what, uint32_t number, enum ibv_event_type type);

/* ---- cq.c ---- */

/* Of a CQ that is pinned. */
uint32_t vb_flexio_cq_number(const struct flexio_cq *cq);

/* ---- td.c ---- */

/* Take a reference to an object of this device. False: not a valid one. */
bool vb_td_hold(struct flexio_transport_domain *td, const struct queue_place *place);
void vb_td_release(struct flexio_transport_domain *td);
/* The card's number of it. */
uint32_t vb_td_number(const struct flexio_transport_domain *td);
uint32_t vb_tis_domain(const struct flexio_sq_tis *tis); /* the number of its domain */
bool vb_tis_hold(struct flexio_sq_tis *tis, const struct queue_place *place);
void vb_tis_release(struct flexio_sq_tis *tis);

/* ---- rmp.c ---- */

/*
 * The card's queue of an RMP number, held until vb_rmp_release(); NULL: no such RMP of this device.
 */
struct flexio_rmp *vb_rmp_hold(struct flexio_process *process, const struct queue_place *place,
			       uint32_t number);
struct vb_srq *vb_rmp_card(struct flexio_rmp *rmp);
void vb_rmp_release(struct flexio_rmp *rmp);

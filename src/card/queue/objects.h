/* SPDX-License-Identifier: MIT */
/*
 * Queues inside of the card: what they are made of, and what its rooms do with them.
 *
 * Locks: a send queue's lock may be held while taking a receive queue's (loopback), either while
 * taking an SRQ's or a CQ's; never the other way round. A run of packets (run.h) keeps the lock of
 * its receive queue and that of the CQ while it takes an SRQ's. The receive queue's lock of a connected QP may
 * be held while taking that of a RAW_PACKET QP, which sniffs its answers. State changes that need several of them (an
 * error that flushes a QP) are deferred and done with none held.
 */
#pragma once

#include "base/lock.h"
#include "base/refusal.h"
#include "card/alarm.h"
#include "card/burst.h"
#include "card/deferred.h"
#include "card/device.h"
#include "card/format/format.h"
#include "card/queue/counter_set.h"
#include "card/queue/cq.h"
#include "card/queue/doorbell.h"
#include "card/queue/qp.h"
#include "card/queue/srq.h"
#include "card/transport/sides.h"
#include "control/record/timeline.h"
#include "control/show/monitor.h"
#include "fabric/entries.h"
#include "fabric/fabric.h"

enum vb_arm { VB_ARM_NONE, VB_ARM_ANY, VB_ARM_SOLICITED };

struct vb_cq {
	struct vb_dev *dev;
	uint32_t number;
	_Atomic uint32_t refs;
	struct vb_cq_attr attr;
	const struct vb_codec *codec;
	struct vb_minis *minis; /* compressed completions (compress.c); NULL: never compressed */
	_Alignas(64) struct vb_lock lock;
	uint32_t pi;
	uint32_t slots;     /* mask of the entries in use: one only, where CQEs are collapsed */
	uint8_t turn_mask;  /* 0xff where CQEs carry the turn of the ring */
	uint8_t turn_shift; /* log2 of cqe_cnt */
	/* CQEs since the beginning: an index of 24 bits comes round too soon to tell old from new. */
	int64_t count;        /* as pi */
	int64_t solicited;    /* behind the last CQE that a solicited-only arming waits for */
	int64_t announced;    /* count when the last event fired, */
	int64_t announced_ci; /* and the driver's index as far as it was known */
	_Atomic uint32_t arm; /* enum vb_arm */
	uint8_t sn;           /* mlx4: events so far + 1; an arming must name it */
	bool overrun;
	bool moderated; /* or armed always: an event needs more than the next CQE */
	/* moderation */
	uint32_t base;       /* CQEs from here on count */
	uint64_t last_event; /* ns; before the first: the creation */
	uint64_t deadline;   /* ns; CQEs that wait are announced then */
	struct vb_alarm alarm;
	struct vb_notice notice; /* notifications, and the overrun */
};

struct vb_srq {
	struct vb_dev *dev;
	uint32_t number;
	_Atomic uint32_t refs;
	struct vb_srq_attr attr;
	const struct vb_codec *codec;
	_Alignas(64) struct vb_lock lock;
	uint16_t head;           /* WQE to consume next */
	uint16_t consumed;       /* counts them, against the doorbell record */
	uint16_t given;          /* WQEs that were taken and came back, */
	uint16_t *back;          /* their indices; room for wqe_cnt, or NULL */
	uint32_t limit;          /* 0: not armed */
	struct vb_notice notice; /* limit events */
};

enum vb_work {
	VB_WORK_ACK = 1 << 0,      /* send the acknowledgement that is due, and responses */
	VB_WORK_FLUSH = 1 << 1,    /* the QP went to the error state */
	VB_WORK_SEND = 1 << 2,     /* go on sending */
	VB_WORK_FLUSH_SQ = 1 << 3, /* SQE: only the send queue */
	VB_WORK_DRAINED = 1 << 4,  /* SQD: look whether the send queue is drained */
	VB_WORK_CONNECT = 1 << 5,  /* DCT: initiators ask for a connection */
};

struct vb_qp {
	struct vb_dev *dev;
	struct vb_card *card; /* the device's */
	uint32_t number;
	uint32_t shows; /* the number that receive CQEs show: its own, or that of its DCT */
	uint32_t srqn;  /* that CQEs show; 0: they show the user index */
	enum ibv_qp_type type;
	/* type, and VB_TRANSPORT_V1 as its address vector says (not for UD), and VB_TRANSPORT_CUT */
	uint8_t transport;
	struct vb_counter_set *counters; /* or NULL; written under both queue locks */
	/*
	 * enum ibv_qp_state. Changed by compare and swap: by the program under both queue locks, by
	 * an error on the data path under any locks or none.
	 */
	_Atomic uint32_t state;
	struct vb_qp_attr init;
	const struct vb_codec *codec;
	struct vb_seg_qp *shared;
	struct vb_path path;
	struct vb_monitor_place shown; /* shown.h */
	struct ibv_qp_attr attr;       /* as modify set it, for query */
	bool drained_event;            /* wanted when SQD is drained */
	_Atomic bool comm_est;
	struct vb_deferred deferred; /* enum vb_work */
	struct vb_notice notice;     /* a bit for each enum ibv_event_type */
	struct vb_alarm timer;       /* of the sender; sq.lock */
	/* Decodes a send WQE of this type. */
	int (*decode)(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index,
		      struct vb_wr *wr);
	/*
	 * In the error state: when to look again for receives that the program posted without a
	 * doorbell.
	 */
	_Atomic bool direct;
	struct vb_alarm watch; /* this and what follows: rq.lock */
	uint64_t watch_ns;     /* between looks */
	uint64_t watch_at;     /* ns: the next one */
	/* DC: of an initiator, of a target; or NULL */
	struct vb_dci *dci;
	struct vb_dct *dct;
	/* RAW_PACKET */
	struct vb_rss *_Atomic rss; /* a table, or NULL; changed by vb_qp_set_rss() */
	struct vb_rss *spare;       /* the one that it changes to */
	_Atomic uint32_t raw_users; /* tables, TIRs and flow actions that lead to it */
	bool listens;               /* it counts as a listener of the cable */
	/* faults on demand */
	uint32_t serial; /* creation order on this adapter, from 1 */
	struct vb_path
		kept; /* the port is down: the path that is used when it is up again; both locks */
	uint8_t next_status; /* of the next work request, enum ibv_wc_status; under sq.lock */
	uint16_t sport;      /* UDP source port, 0: as the flow label says; under sq.lock */
	bool blamed;         /* the log is to say that the status was asked for; under sq.lock */
	uint8_t *frame;      /* what is being sent; under sq.lock */
	struct vb_sq sq;
	struct vb_rq rq;
};

/* In a burst, any locks held: the program is told at its end. */
static inline void vb_qp_event(struct vb_qp *qp, enum ibv_event_type type)
{
	vb_notice_set(&qp->notice, 1ull << type);
}

/* --- cq.c --- */
struct vb_cq *vb_cq_find(struct vb_card *card, uint32_t number); /* inside a read section */
/* False: the CQ was overrun, the CQE is lost, and its queue pair has failed. */
bool vb_cq_push(struct vb_cq *cq, struct vb_completion *completion);
/* Where its lock is held, for several in a row. */
bool vb_cq_push_locked(struct vb_cq *cq, struct vb_completion *completion);

static inline bool vb_cq_armed(struct vb_cq *cq)
{
	return atomic_load_explicit(&cq->arm, memory_order_relaxed) != VB_ARM_NONE;
}

/* --- compress.c --- */
struct vb_minis *vb_minis_new(const struct vb_cq_attr *attr);
void vb_minis_free(struct vb_minis *minis);
/* The CQ's lock is held: */
/*
 * Take the completion that gets index pi into an array. False: it is to be written as a CQE, and
 * may be a title.
 */
bool vb_minis_add(struct vb_cq *cq, struct vb_completion *completion);
void vb_minis_write(struct vb_cq *cq); /* what waits, into the ring */
void vb_minis_moved(struct vb_cq *cq); /* the ring is another one, and has another size */
/* The lock is not held. end: of the burst. */
void vb_minis_flush(struct vb_cq *cq, bool end);

/* --- srq.c --- */
/*
 * Take a WQE: the number of sge and its index, or -EAGAIN (empty), -EINVAL (malformed, index set).
 */
int vb_srq_take(struct vb_srq *srq, uint16_t *index, struct vb_sge *sge);
/* A WQE of which nothing was completed, for the next who takes one. */
void vb_srq_give(struct vb_srq *srq, uint16_t index);

/* --- qp.c --- */
struct vb_qp *vb_qp_find(struct vb_card *card, uint32_t qpn); /* inside a read section */
/* An end of connections to a DCT: a queue pair that the program knows nothing of. */
int vb_qp_create_end(const struct vb_qp *dct, const struct vb_qp_attr *attr, struct vb_qp **qp);

/* --- counter_set.c: the lock of a queue held --- */
void vb_count_in(struct vb_counter_set *set, enum vb_counter which);
/* A request was taken. */
void vb_count_request(struct vb_qp *qp, const struct vb_pkt *pkt);
/* A completion with an error. */
void vb_count_status(struct vb_qp *qp, enum ibv_wc_status status, bool receive)
	__attribute__((cold));
/* The queue is gone. No lock held. */
void vb_counter_set_put(struct vb_counter_set *set);

static inline void vb_qp_count(struct vb_qp *qp, enum vb_counter which)
{
	if (__builtin_expect(qp->counters != NULL, 0))
		vb_count_in(qp->counters, which);
}

/* --- qp_state.c --- */
/* Both queue locks held: show initiators what they may do in this state. */
void vb_qp_publish(struct vb_qp *qp, enum ibv_qp_state state);
/*
 * Move to the error state from the data path: any locks held; flushing is deferred.
 */
void vb_qp_fail(struct vb_qp *qp, enum ibv_event_type event, bool has_event);
void vb_qp_fail_sq(struct vb_qp *qp); /* SQE, for UC and UD */
/* What follows, with no lock held; what: VB_WORK_FLUSH, VB_WORK_FLUSH_SQ. */
void vb_qp_flush(struct vb_qp *qp, uint32_t what);

/* --- doorbell_page.c --- */
void vb_uar_run_deferred(struct vb_card *card); /* inside a read section, no lock held */

/* --- sink.c --- */
void vb_qp_run_deferred(struct vb_deferred *item, uint32_t what);

static inline void vb_work_add(struct vb_qp *qp, enum vb_work what)
{
	vb_defer(&qp->deferred, what);
}

/* No room on the path: try again when there may be. */
static inline void vb_work_block(struct vb_qp *qp, enum vb_work what)
{
	vb_defer_blocked(&qp->deferred, what);
}

static inline bool vb_qp_receives(uint32_t state)
{
	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
	       state == IBV_QPS_SQE;
}

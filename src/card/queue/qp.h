/* SPDX-License-Identifier: MIT */
/* Queue pairs, and receive work queues, which are queue pairs without a send queue. */
#pragma once

#include "card/card.h"

/* WQEs that hold several frames, each from a stride on. */
struct vb_striding {
	uint8_t log_bytes; /* of a stride, 6 to 13; 0: a WQE holds one frame */
	uint8_t log_count; /* strides of a WQE, 3 to 16 */
	bool shift;        /* two bytes of zeros before each frame */
};

enum {
	VB_STRIDE_LOG_MIN = 6,
	VB_STRIDE_LOG_MAX = 13,
	VB_STRIDES_LOG_MIN = 3,
	VB_STRIDES_LOG_MAX = 16
};

/* Dynamically connected transport, see card/transport/dc.h. */
enum vb_dc { VB_DC_NONE, VB_DC_INITIATOR, VB_DC_TARGET };
enum { VB_DC_MAX_LOG_STREAMS = 10, VB_DC_MAX_LOG_ERRORED = 6 };

struct vb_qp_attr {
	enum ibv_qp_type type;  /* RC, UC, UD, RAW_PACKET */
	uint8_t dc;             /* enum vb_dc; of type RC. A target has an SRQ and sends nothing */
	uint64_t dc_key;        /* of a target: initiators that know it may come */
	uint8_t dc_log_errored; /* of an initiator: log2 of the streams in error that are its own */
	struct vb_pd *pd;
	struct vb_cq *send_cq, *recv_cq;
	struct vb_srq *srq; /* or NULL */
	void *sq_buf;       /* sq_cnt blocks: of 64 bytes (mlx5), of 1 << sq_shift (mlx4) */
	uint32_t sq_cnt;    /* power of two, 0: no send queue */
	uint32_t sq_shift;  /* mlx4 */
	void *rq_buf;
	uint32_t rq_cnt;   /* power of two, 0: none, or an SRQ */
	uint32_t rq_shift; /* log2 of the receive WQE's size */
	uint32_t inl_recv; /* mlx4: messages of up to so many bytes are left in the receive WQE */
	__be32 *dbr;       /* [0] receive, [1] send */
	struct ibv_qp_cap cap; /* reported by query */
	bool sq_sig_all;       /* reported by query; the driver sets the signal bit in each WQE */
	void *cookie;
	void (*event)(void *cookie, enum ibv_event_type type); /* see struct vb_cq_attr */
	uint32_t uidx;                                         /* user index put in CQEs */
	uint64_t owner;                                        /* see vb_doorbell_send() */
	bool wq;                  /* RAW_PACKET: a receive work queue, see vb_wq_modify() */
	const struct vb_rss *rss; /* RAW_PACKET: no queues, but an indirection table; copied */
	/* RAW_PACKET, see card/ether/flow.h: */
	uint32_t transport_domain;   /* whose frames it sends; 0: none */
	uint8_t loopback;            /* enum vb_tir_loopback: frames of its domain that it takes */
	bool vlan_strip;             /* take the outer tag off received frames; the CQE tells it */
	bool scatter_fcs;            /* leave the four bytes of the FCS behind received frames */
	struct vb_striding striding; /* of a receive work queue; its WQEs begin with a link */
	bool flexio_swp;    /* outer flags of the software parser are one bit higher than mlx5's */
	bool single_frames; /* WQEs of several frames are refused */
	bool frames_umr;    /* a queue of frames that lays out memory keys, too */
	bool real_time;     /* timestamps of its CQEs: see struct vb_cq_attr */
	bool keeps_posted;  /* in the error state: what is posted is not flushed */
};

/* Where received frames go. The WQs cannot be destroyed as long as a queue pair has the table. */
enum { VB_MAX_RSS = 128, VB_RSS_KEY = 40 };

struct vb_rss {
	uint32_t count; /* power of two */
	struct vb_qp *wq[VB_MAX_RSS];
	uint8_t key[VB_RSS_KEY];
	uint64_t fields; /* enum ibv_rx_hash_fields */
	bool symmetric;  /* both directions of a flow get one hash */
};

VB_PUBLIC int vb_qp_create(struct vb_dev *dev, const struct vb_qp_attr *attr, struct vb_qp **qp);
/*
 * When this returns, the card touches neither rings nor CQs on behalf of this QP. -EBUSY: a table, a
 * TIR or a flow leads to it.
 */
VB_PUBLIC int vb_qp_destroy(struct vb_qp *qp);
VB_PUBLIC int vb_qp_check_unused(const struct vb_qp *qp); /* see vb_cq_check_unused() */
VB_PUBLIC uint32_t vb_qp_number(const struct vb_qp *qp);
/*
 * The RAW_PACKET queue of this device with this number that has receives of its own, kept
 * from being destroyed (-EBUSY) until vb_rq_put(); NULL: none.
 */
VB_PUBLIC struct vb_qp *vb_rq_get(struct vb_dev *dev, uint32_t number);
VB_PUBLIC void vb_rq_put(struct vb_qp *qp);
VB_PUBLIC struct vb_cq *vb_rq_cq(const struct vb_qp *qp); /* where its receives complete */
/*
 * The queues of its table and their count become those of rss, which the caller holds; one caller at
 * a time. Count 0: none, its frames are lost. -EINVAL: it has no table, or such queues cannot be in
 * one.
 */
VB_PUBLIC int vb_qp_set_rss(struct vb_qp *qp, const struct vb_rss *rss);
VB_PUBLIC enum ibv_qp_state vb_qp_state(const struct vb_qp *qp);
/*
 * The whole state machine: required and optional attributes per type and transition, values
 * checked, -EINVAL and nothing changed where anything is wrong. A move to RESET makes both queues
 * empty (indices 0): the driver resets its own indices, wr_ids and doorbell records too, and drops
 * the QP's CQEs from its CQs.
 */
VB_PUBLIC int vb_qp_modify(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask);
/* How far a queue pair's rings are: blocks and WQEs, 16 bits each. */
struct vb_qp_counters {
	uint16_t sent, rung;    /* send blocks: begun, and announced by doorbell */
	uint16_t taken, posted; /* receive WQEs: taken, and posted as the doorbell record says */
};

VB_PUBLIC void vb_qp_counters(struct vb_qp *qp, struct vb_qp_counters *counters);
VB_PUBLIC void vb_qp_query(struct vb_qp *qp, struct ibv_qp_attr *attr,
			   struct ibv_qp_init_attr *init);
/*
 * Packet pacing of a RAW_PACKET queue pair: kbit/s (0: none), and bytes that may go at once after a
 * pause.
 */
VB_PUBLIC void vb_qp_set_rate(struct vb_qp *qp, uint32_t kbps, uint32_t burst);
/* The queue counts there from now on; 0: nowhere. Not 0: there is no such set. */
VB_PUBLIC int vb_qp_set_counters(struct vb_qp *qp, uint32_t number);
VB_PUBLIC uint32_t vb_qp_counter_set(struct vb_qp *qp); /* 0: none */
/* The UDP source port of what an RC or UC queue pair in RTS sends, until it is connected anew. */
VB_PUBLIC int vb_qp_set_sport(struct vb_qp *qp, uint16_t port);
/* A stream of a DCI that is in error goes on; -EINVAL: it is not, or the DCI is not in RTS. */
VB_PUBLIC int vb_dci_reset_stream(struct vb_qp *qp, uint16_t stream);
/* A number that no queue pair has until it is given back. */
VB_PUBLIC int vb_qpn_take(struct vb_dev *dev, uint32_t *number);
VB_PUBLIC void vb_qpn_give(struct vb_dev *dev, uint32_t number);
/* Whether the adapter of the device has a queue pair of this process with this number. */
VB_PUBLIC bool vb_qpn_exists(const struct vb_dev *dev, uint32_t number);
/* A receive WQ to another state; -EINVAL where there is no such way. */
VB_PUBLIC int vb_wq_modify(struct vb_qp *qp, enum ibv_wq_state state);
/* Frames that are received from now on keep or lose their tag. */
VB_PUBLIC void vb_wq_strip_vlan(struct vb_qp *qp, bool strip);
/*
 * The send doorbell: WQEs up to (not including) basic block index pi (16 bits are used) are posted.
 * Executes them in the caller's thread as far as possible.
 */
VB_PUBLIC void vb_qp_ring_sq(struct vb_qp *qp, uint32_t pi);
/*
 * In SQD: the index, 16 bits, of the first WQE that is not begun; -EINVAL in other states.
 */
VB_PUBLIC int vb_qp_unsent(struct vb_qp *qp);
/* The doorbell of a format whose WQEs have an owner bit (mlx4): that says what is posted. */
VB_PUBLIC void vb_qp_ring_owned(struct vb_qp *qp);
/*
 * The receive doorbell, after the doorbell record, through which receive WQEs are found. A QP in
 * the error state flushes what was posted; a nearly empty call otherwise.
 */
VB_PUBLIC void vb_qp_ring_rq(struct vb_qp *qp);
/*
 * The program posts to the rings itself, and so without that doorbell: its record is looked at now
 * and then instead.
 */
VB_PUBLIC void vb_qp_set_direct(struct vb_qp *qp);

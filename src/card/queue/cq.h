/* SPDX-License-Identifier: MIT */
/* Completion queues. */
#pragma once

#include "card/card.h"

/*
 * How many CQEs, or how much time, must pass before an armed CQ notifies. 0: does not count; both
 * 0: at once. Time runs from the last event, or starts anew with every CQE. For CQs armed with
 * vb_cq_arm_at() or always.
 */
struct vb_cq_moderation {
	uint16_t max_count;
	uint16_t period_us;
	bool from_cqe;
};

struct vb_cq_attr {
	void *buf;         /* cqe_cnt * cqe_size bytes, every CQE preset as the format wants it */
	uint32_t cqe_cnt;  /* power of two */
	uint32_t cqe_size; /* mlx5: 64 or 128, mlx4: 32 or 64; the CQE comes last in an entry */
	__be32 *dbr;       /* [0] consumer index, [1] arm word */
	bool timestamps;   /* write timestamps into CQEs */
	bool real_time; /* mlx5: of the time of day, seconds << 32 | ns; not of the card's clock */
	bool ignore_overrun;
	bool collapsed;    /* every CQE goes to the first entry, so that none can overrun it */
	bool always_armed; /* every CQE notifies */
	/* mlx5: CQEs carry the number of the turn of the ring, and come in arrays where they can */
	bool compressed;
	bool basic_minis; /* of compressed ones: the layout without turns, see card/queue/compress.c */
	/* of compressed receives: mini_cqe_res_format of the mlx5 CQ context */
	uint8_t mini_format;
	void *cookie; /* handed to notify and to events */
	/*
	 * Called once per arming when a matching CQE was written; any thread, must not call back
	 * into the card.
	 */
	void (*notify)(void *cookie);
	/* Where set, events of this CQ come here and not to the device; the same rules. */
	void (*event)(void *cookie, enum ibv_event_type type);
	uint64_t owner; /* who may ring it by number, see vb_doorbell_send(); 0: nobody */
	struct vb_cq_moderation moderation;
};

VB_PUBLIC int vb_cq_create(struct vb_dev *dev, const struct vb_cq_attr *attr, struct vb_cq **cq);
VB_PUBLIC int vb_cq_destroy(struct vb_cq *cq); /* -EBUSY while a QP or SRQ uses it */
/* The answer that the destruction would have; for those who have to wait before it. */
VB_PUBLIC int vb_cq_check_unused(const struct vb_cq *cq);
VB_PUBLIC uint32_t vb_cq_number(const struct vb_cq *cq);
/* CQEs written so far, as a producer index; *lost: some found no room. */
VB_PUBLIC uint32_t vb_cq_produced(struct vb_cq *cq, bool *lost);
/* CQEs polled so far, as the doorbell record says. */
VB_PUBLIC uint32_t vb_cq_consumed(const struct vb_cq *cq);
/*
 * The arm doorbell. solicited: only solicited or error completions notify. The driver has stored
 * the consumer index in dbr[0]: where CQEs beyond it exist that no notification has announced, one
 * comes at once.
 */
VB_PUBLIC void vb_cq_arm(struct vb_cq *cq, bool solicited);
/* The same where the doorbell has the consumer index (mlx5): dbr[0] may be behind it. */
VB_PUBLIC void vb_cq_arm_index(struct vb_cq *cq, bool solicited, uint32_t ci);
/*
 * The same with the arming's sequence number (mlx4, 2 bits): one that is not due is ignored. It
 * starts at 1 and counts events. The consumer index comes with the doorbell, or is the one of the
 * arm record.
 */
#define VB_CQ_CI_FROM_RECORD UINT32_MAX
VB_PUBLIC void vb_cq_arm_sn(struct vb_cq *cq, unsigned int sn, bool solicited, uint32_t ci);
/*
 * Arm as device code does: where a CQE at or behind ci exists, an event comes at once, announced
 * before or not.
 */
VB_PUBLIC void vb_cq_arm_at(struct vb_cq *cq, uint32_t ci);
VB_PUBLIC void vb_cq_set_moderation(struct vb_cq *cq, const struct vb_cq_moderation *moderation);
VB_PUBLIC struct vb_cq_moderation vb_cq_moderation(struct vb_cq *cq);
/* Whether CQEs are written over those that were not polled, from now on. */
VB_PUBLIC void vb_cq_set_ignore_overrun(struct vb_cq *cq, bool ignore);
/* What it is armed for. */
enum vb_cq_arming { VB_CQ_NOT_ARMED, VB_CQ_ARMED, VB_CQ_ARMED_SOLICITED };
VB_PUBLIC enum vb_cq_arming vb_cq_arming(struct vb_cq *cq);
/*
 * The CQ with this number, kept from being destroyed until vb_cq_put(); NULL: none of this device.
 */
VB_PUBLIC struct vb_cq *vb_cq_get(struct vb_dev *dev, uint32_t number);
VB_PUBLIC void vb_cq_put(struct vb_cq *cq);
/*
 * Replace the ring. copy(arg, buf, cqe_cnt) is called with the CQ stopped, to move the CQEs that
 * were not polled; it returns the number moved, which become CQEs [ci, ci + n) of the new ring; the
 * card goes on behind them. Where it returns more than cqe_cnt it has moved nothing, and the ring
 * stays: -EINVAL.
 */
VB_PUBLIC int vb_cq_resize(struct vb_cq *cq, void *buf, uint32_t cqe_cnt,
			   uint32_t (*copy)(void *arg, void *buf, uint32_t cqe_cnt), void *arg);

/*
 * Replace the ring as hardware does: the last CQE of the old one says that those behind it are in
 * the new one (mlx5: opcode 5, and it takes an index). -ENOSPC: there is no room for that, or more
 * CQEs wait than the new ring has entries.
 */
VB_PUBLIC int vb_cq_move(struct vb_cq *cq, void *buf, uint32_t cqe_cnt);

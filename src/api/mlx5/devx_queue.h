/* SPDX-License-Identifier: MIT */
/*
 * Queues by command: what CQs, SQs, RQs, RMPs and QPs have in common.
 *
 *	context of the command --check--> card.h --> struct devx_queue (obj->data)
 *	                                             kept: the context as it is, for queries
 *
 * A context is a table of its fields. A field that the card does not have is refused where it is
 * not 0; bits that no field has mean nothing.
 *
 * Rings and doorbell records lie in umems, which cannot be deregistered while a queue is there. The
 * *_umem_valid bits need not be set: the kernel sets them.
 */
#pragma once

#include "base/lock.h"
#include "card/queue/srq.h"
#include "devx_bits.h"
#include "devx_table.h"
#include "mlx5.h"

/* What is done with a field of a context. */
enum devx_use {
	DEVX_KEPT,   /* it means something, or is harmless: queries show it */
	DEVX_ABSENT, /* refused: the card does not have it */
	DEVX_SHOWN,  /* the card's own: not taken from a command */
};

struct devx_field {
	uint16_t at, bits;
	enum devx_use use;
	const char *name;
};

#define DEVX_FIELDS(fields) (fields), sizeof(fields) / sizeof((fields)[0])

/* Bytes of contexts, and bits where commands and answers have them. */
enum {
	DEVX_CQC_BYTES = 64,
	DEVX_WQC_BYTES = 240, /* SQ, RQ, RMP */
	DEVX_QPC_BYTES = 232,
	DEVX_TISC_BYTES = 160,
	DEVX_TIRC_BYTES = 240,
	DEVX_CONTEXT = 0x100,  /* SQ, RQ, RMP */
	DEVX_BITMASK = 0x80,   /* what to modify: 64 bits */
	DEVX_OLD_STATE = 0x40, /* 4 bits, of SQs, RQs and RMPs */
	DEVX_WQ = 0x180,       /* in the context of an SQ, RQ or RMP */
	DEVX_KEPT_BYTES = DEVX_WQC_BYTES,
};

/* A TIS: whose frames are sent. */
struct devx_tis {
	struct mlx5dv_devx_obj *domain; /* held; NULL: the one of the context's verbs queue pairs */
	uint32_t number;                /* of the transport domain */
	struct vb_lock lock;            /* of what is kept */
	uint8_t kept[DEVX_TISC_BYTES];
};

/*
 * The transport domain with this number, held; NULL where it is that of the context's verbs queue
 * pairs, which stays. 0, or what the command is refused with.
 */
int devx_get_domain(struct devx_cmd *cmd, uint32_t number, struct mlx5dv_devx_obj **domain);

struct devx_queue {
	struct mlx5dv_devx_obj *obj;
	union {
		struct vb_cq *cq;
		struct vb_qp *qp; /* QP, SQ, RQ */
		struct vb_srq *srq;
	};
	struct vb_srq *list;           /* RQ whose WQEs are linked: its own; or NULL */
	struct vb_umem *ring, *record; /* or NULL */
	struct mlx5dv_devx_obj *tis;   /* SQ: or NULL */
	struct vb_eq *_Atomic eq;      /* CQ: or NULL; its events may move while they come */
	struct vb_eq_user *eq_user;
	__be32 *dbr;         /* the record */
	__be32 no_record[2]; /* in place of one where receives are an RMP's; stays 0 */
	struct vb_lock lock; /* of what is kept */
	uint8_t kept[DEVX_KEPT_BYTES];
};

/* Of SQs, RQs and RMPs. */
enum devx_wq_state { DEVX_RST = 0, DEVX_RDY = 1, DEVX_ERR = 3 };

/* --- devx_queue.c ----------------------------------------------------------------------------- */

/* Refuse a context that has fields of a feature that is absent. */
int devx_check_fields(struct devx_cmd *cmd, const uint8_t *context, const struct devx_field *fields,
		      size_t count);
/* Copy the fields that are kept. */
void devx_keep_fields(uint8_t *to, const uint8_t *from, const struct devx_field *fields,
		      size_t count);

/* A queue for obj; NULL: no memory. */
struct devx_queue *devx_queue_new(struct devx_cmd *cmd);
/* Give back what the queue holds besides the card's object. */
void devx_queue_free(struct devx_queue *queue);

static inline struct devx_queue *devx_queue_of(const struct mlx5dv_devx_obj *obj)
{
	return obj->data;
}

/* [offset, offset + size) of a umem, aligned to `align`; into *umem, until devx_queue_free(). */
int devx_place(struct devx_cmd *cmd, const char *what, uint32_t number, uint64_t offset,
	       uint64_t size, uintptr_t align, struct vb_umem **umem, void **addr);
/* Its doorbell record, into queue->dbr. */
int devx_place_record(struct devx_cmd *cmd, struct devx_queue *queue, uint32_t number,
		      uint64_t offset);
/* Where a ring begins: at the umem's offset, and so many sixty-fourths of a page behind it. */
uint64_t devx_ring_offset(uint64_t offset, uint32_t page_offset, uint32_t log_page_size);

/* Ring and record of a WQ context, with entries of 1 << log_stride bytes. */
int devx_wq_place(struct devx_cmd *cmd, struct devx_queue *queue, const uint8_t *wq,
		  uint32_t log_stride, void **ring);
/*
 * The memory of receives: an RQ's or RMP's ring, into the card's attributes but for the domain.
 * striding: its WQEs may have strides; NULL: they may not.
 */
int devx_wq_receives(struct devx_cmd *cmd, struct devx_queue *queue, const uint8_t *wq,
		     struct vb_srq_attr *attr, struct vb_striding *striding);
/* Refuse a WQ context that speaks of strides. */
int devx_check_not_striding(struct devx_cmd *cmd, const uint8_t *wq);

/* Objects that a context names by number, until they are put; NULL after a refusal. */
struct vb_pd *devx_pd(struct devx_cmd *cmd, uint32_t number);
struct vb_cq *devx_cq(struct devx_cmd *cmd, const char *field, uint32_t number);
int devx_check_uar(struct devx_cmd *cmd, uint32_t number);
/*
 * Timestamps of CQEs are those of the free-running clock, which is also the default, or the time of
 * day, where the queue or its CQ wants that.
 */
enum devx_ts_format { DEVX_FREE_RUNNING = 0, DEVX_DEFAULT_TIME = 1, DEVX_REAL_TIME = 2 };
int devx_check_ts_format(struct devx_cmd *cmd, uint32_t ts_format);

/* A queue counts in this set from now on, 0: in none. */
int devx_count_in(struct devx_cmd *cmd, struct vb_qp *qp, uint32_t set);

/* A number for an object that the card does not number; no other of its kind here has it. */
uint32_t devx_new_number(struct devx_cmd *cmd, _Atomic uint32_t *next);

/* A refusal of the card: the status that belongs to it. */
int devx_card_refused(struct devx_cmd *cmd, int err);

/* The card's callback of a queue, from any thread; cookie: struct devx_queue. */
void devx_queue_event(void *cookie, enum ibv_event_type type);

/* Copy and check the fields of a WQ context as well as those around it. */
int devx_check_wq(struct devx_cmd *cmd, const uint8_t *context, const struct devx_field *fields,
		  size_t count);
void devx_keep_wq(struct devx_queue *queue, const uint8_t *context, const struct devx_field *fields,
		  size_t count);
/* What is kept of an SQ, RQ or RMP, with its state and counters, into an answer. */
void devx_show_wq(struct devx_cmd *cmd, enum devx_wq_state state, uint32_t done, uint32_t posted);
/* An SQ or RQ of the card is in this state. */
enum devx_wq_state devx_wq_state_of(const struct devx_queue *queue);
/* An RQ of a context that was closed, though rules lead to it: its memory is the program's again. */
void devx_rq_stop(struct mlx5dv_devx_obj *obj);
/* The states of a MODIFY_SQ, MODIFY_RQ or MODIFY_RMP: the old one must be the queue's. */
int devx_read_states(struct devx_cmd *cmd, enum devx_wq_state is, enum devx_wq_state *to);

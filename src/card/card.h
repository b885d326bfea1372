/* SPDX-License-Identifier: MIT */
/*
 * The card: what the API layers ask of it, for programs of the host and for device code of the
 * accelerator.
 *
 * The split is the one of real hardware. The *driver* (src/api/...) owns queue memory: it allocates
 * rings and doorbell records, writes WQEs, reads CQEs and keeps wr_ids. The *card* is given the
 * addresses, reads WQEs when a doorbell is rung, moves the data and writes CQEs. So a program that
 * drives its rings itself (direct verbs, device code) meets the same card as ibv_post_send does.
 *
 *	driver                                     card
 *	write WQE, write doorbell record
 *	vb_qp_ring_sq()  ------------------------> decode, execute, move data
 *	                                           write CQE, owner bit last
 *	read CQE         <------------------------
 *	CQ empty: vb_progress() -----------------> receive what peers sent
 *
 * Values are those of <infiniband/verbs.h> (states, access flags, work completion status, events).
 * Functions return 0 or -errno and set outputs only on success. All are thread-safe; a destroyed
 * object must not be passed again.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "base/config.h"
#include "base/public.h"

enum { VB_GID_TABLE_LEN = 32, VB_HBL_GID_TABLE_LEN = 16 };

/* Limits of every adapter of this build; the config may lower some of them. */
enum vb_limits {
	VB_MAX_SGE = 30,
	VB_MAX_INLINE = 828,
	VB_MAX_QP_WR = 32768,
	VB_MAX_CQE = 4194303,
	VB_MAX_SRQ_WR = 32767,
	VB_MAX_RD_ATOMIC = 16,
	VB_MAX_MSG_LOG = 30,    /* as mlx4 and mlx5 cards; UCX takes no other */
	VB_MAX_TSO = 1 << 18,   /* bytes of frames that one WQE makes */
	VB_MAX_MINIS = 64,      /* completions that share one title, in the basic layout */
	VB_MAX_INDIRECTION = 4, /* keys that are made of one another */
};

struct vb_gid {
	union ibv_gid gid;
	enum ibv_gid_type type;
	uint32_t ifindex;
};

/* How an adapter presents itself. */
struct vb_identity {
	uint32_t vendor_id, part_id, hw_version; /* of struct ibv_device_attr */
	const char *firmware;
	uint16_t pci_vendor; /* the PCI device ID is part_id */
	const char *hca_type, *board, *driver;
};

/* A configured adapter. Read-only after vb_card_adapters(). */
struct vb_adapter {
	unsigned int index;
	const struct vb_config_adapter *config;
	struct vb_identity identity;
	char hca_type[16]; /* mlx5: what identity points to */
	__be64 guid;
	_Atomic uint64_t
		cable; /* number of the port's cable, see card/ether/cable.c; inverted: cut off */
	/*
	 * mlx4 and mlx5: RoCE v1 and v2 of the link-local address, then of each IP address. hbl: v2
	 * of each.
	 */
	struct vb_gid gids[VB_GID_TABLE_LEN];
	unsigned int num_gids;
	unsigned int gid_table_len;
	uint32_t max_qp, max_cq, max_mr, max_srq, max_pd, max_ah;
};

/* Something that happened to an object (or the port: object NULL). */
struct vb_event {
	enum ibv_event_type type;
	void *cookie; /* the one given when the object was created; NULL for port events */
	uint8_t port;
};

struct vb_dev; /* an open adapter: what an ibv_context stands on */
struct vb_pd;
struct vb_cq;
struct vb_srq;
struct vb_qp;
struct vb_uar;

/* --- adapters --------------------------------------------------------------------------------- */

/* The adapters of the configuration, in order. -EINVAL where the configuration is bad. */
VB_PUBLIC int vb_card_adapters(struct vb_adapter *const **list, unsigned int *count);
VB_PUBLIC const struct vb_identity *vb_adapter_identity(const struct vb_adapter *adapter);
VB_PUBLIC void vb_adapter_query_port(const struct vb_adapter *adapter, uint32_t port,
				     struct ibv_port_attr *attr);
/*
 * Entry index of a port's GID table: 0, -ENODATA where empty. The first of an hbl port is that
 * port's own.
 */
VB_PUBLIC int vb_adapter_gid(const struct vb_adapter *adapter, uint32_t port, unsigned int index,
			     struct vb_gid *gid);
/* True where the GID belongs to this host, so that its QPs are reached without a wire. */
VB_PUBLIC bool vb_adapter_gid_is_local(const union ibv_gid *gid);

/*
 * Open an adapter: joins the host's registry on the first open of the process. async is called for
 * asynchronous events, from any thread; it must not call back into the card.
 */
VB_PUBLIC int vb_dev_open(struct vb_adapter *adapter,
			  void (*async)(void *arg, const struct vb_event *event), void *arg,
			  struct vb_dev **dev);
/* -EBUSY while objects of it exist. */
VB_PUBLIC int vb_dev_close(struct vb_dev *dev);
VB_PUBLIC const struct vb_adapter *vb_dev_adapter(const struct vb_dev *dev);
/* Whether it was opened by our parent before a fork: it and its objects are the parent's. */
VB_PUBLIC bool vb_dev_stale(const struct vb_dev *dev);
/* Receive WQs made from now on have numbers that follow one another, 1 << log of them at a time. */
VB_PUBLIC void vb_dev_set_wq_range(struct vb_dev *dev, uint32_t log);

/* The card's free-running clock, 1 GHz, as in CQE timestamps. */
VB_PUBLIC uint64_t vb_clock(void);

/*
 * Let the card do what is due: called where a poll found nothing. Cheap when there is nothing. True
 * if anything was done, so that another look is worth it.
 */
VB_PUBLIC bool vb_progress(struct vb_dev *dev);
/*
 * Opportunistic progress, as an execution unit makes between two slices. It does not mark the
 * process as polling: peers go on waking the background thread.
 */
VB_PUBLIC bool vb_progress_once(void);
/*
 * Completions wake device code, or are looked for in memory, and nobody polls for them: see
 * vb_fabric_unpolled().
 */
VB_PUBLIC void vb_progress_unpolled(void);

/* How work requests that move data left this process, since its first device was opened. */
struct vb_path_counters {
	uint64_t calls;   /* to a queue pair of this process */
	uint64_t stores;  /* by loads and stores in shared memory of another process */
	uint64_t copies;  /* directly into or out of the memory of another process, by the kernel */
	uint64_t packets; /* in packets, to be carried out by the other side */
};

VB_PUBLIC void vb_path_counters(struct vb_path_counters *counters);

/* Bytes of a port, as this process moved them: whole frames, and the payload of RDMA. */
struct vb_traffic {
	uint64_t sent, received;
};

/* What peers read and wrote in our memory by themselves is theirs alone to count. */
VB_PUBLIC void vb_port_traffic(const struct vb_adapter *adapter, struct vb_traffic *traffic);

/* --- protection domains and memory ------------------------------------------------------------ */

VB_PUBLIC int vb_pd_alloc(struct vb_dev *dev, struct vb_pd **pd);
VB_PUBLIC int vb_pd_dealloc(struct vb_pd *pd); /* -EBUSY while used */
VB_PUBLIC uint32_t vb_pd_number(const struct vb_pd *pd);
/* The one of this device with this number, in use until vb_pd_put(); NULL: none. */
VB_PUBLIC struct vb_pd *vb_pd_get(struct vb_dev *dev, uint32_t number);
VB_PUBLIC void vb_pd_put(struct vb_pd *pd);

struct vb_mr; /* lkey equals rkey */

VB_PUBLIC int vb_mr_reg(struct vb_pd *pd, void *addr, size_t length, uint64_t iova,
			unsigned int access, struct vb_mr **mr);
/* The same with a key whose lower 8 bits the caller chooses. */
VB_PUBLIC int vb_mr_reg_variant(struct vb_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access, uint8_t variant, struct vb_mr **mr);
/*
 * As ibv_rereg_mr: flags are enum ibv_rereg_mr_flags; on failure the MR is as it was. The key
 * stays. When this returns, nobody uses the memory as it was registered before; a request of a peer
 * that is under way meanwhile is refused.
 */
VB_PUBLIC int vb_mr_rereg(struct vb_mr *mr, int flags, struct vb_pd *pd, void *addr, size_t length,
			  uint64_t iova, unsigned int access);
/*
 * When this returns, nobody (no local queue, no peer) touches the memory through this key any more.
 */
VB_PUBLIC int vb_mr_dereg(struct vb_mr *mr);
VB_PUBLIC uint32_t vb_mr_key(const struct vb_mr *mr);

/*
 * An indirect key: free until a work request of a send queue (UMR) lays out the memory that it stands
 * for, in pieces of other keys of its domain, and free again when it is invalidated; or laid out from
 * its beginning. Destroyed with vb_mr_dereg().
 */
enum vb_mkey_flags {
	VB_MKEY_REMOTE_INVALIDATE = 1 << 0, /* peers may invalidate it */
	VB_MKEY_UPDATE_TAG = 1 << 1,        /* work requests may change its low byte */
	VB_MKEY_FIXED = 1 << 2,             /* work requests may not change it at all */
};

/* Of another key; whether there is one is seen when it is used. */
struct vb_mkey_piece {
	uint64_t addr;
	uint32_t key, len; /* len: not 0 */
};

struct vb_mkey_attr {
	uint8_t flags;        /* enum vb_mkey_flags */
	uint16_t max_entries; /* pieces that a layout may have */
	bool has_variant;     /* the caller chooses the lower 8 bits of the key */
	uint8_t variant;
	/* How it is laid out: as many as count, up to max_entries; 0: it is free. */
	const struct vb_mkey_piece *piece;
	uint16_t count;
	uint64_t start, length; /* its addresses, no more than the pieces have */
	unsigned int access;    /* enum ibv_access_flags */
};

VB_PUBLIC int vb_mkey_create(struct vb_pd *pd, const struct vb_mkey_attr *attr,
			     struct vb_mr **mkey);

struct vb_mr_info {
	void *addr; /* where the memory is */
	uint64_t iova, length;
	unsigned int access;
};

/*
 * Somebody outside of the card keeps what a key means, as the accelerator's windows do, and is told
 * when that changes, before the call that changes it returns. Neither function may call the card,
 * or wait for anybody who may be in the card.
 */
struct vb_mr_watch {
	/*
	 * The key died, or is of another domain now: called once. No lock of the card is held, but
	 * that of a queue that invalidates the key.
	 */
	void (*gone)(struct vb_mr_watch *watch);
	/* The region was registered anew. Once this returns, only what info says is used. */
	void (*changed)(struct vb_mr_watch *watch, const struct vb_mr_info *info);
	/* the card's, from here on */
	uint32_t key, pdn;
	uint32_t generation;      /* of the registration that it was told of */
	bool calling, changing;   /* one of the two is under way; changed() is */
	struct vb_mr_watch *next; /* NULL-ended list of all */
};

/* -EINVAL: no such key in this domain. */
VB_PUBLIC int vb_mr_watch(struct vb_pd *pd, uint32_t key, struct vb_mr_watch *watch,
			  struct vb_mr_info *info);
/* Neither is running, or will be called, when this returns. False if gone() was called before. */
VB_PUBLIC bool vb_mr_unwatch(struct vb_mr_watch *watch);

/* --- completion queues ------------------------------------------------------------------------ */

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

/* --- shared receive queues -------------------------------------------------------------------- */

struct vb_srq_attr {
	struct vb_pd *pd;
	void *buf; /* mlx5: linked WQEs, WQE 0 is consumed first, then next_wqe_index of each */
	uint32_t wqe_cnt; /* power of two */
	uint32_t wqe_shift;
	uint32_t max_sge;
	__be32 *dbr; /* [0] counter of posted WQEs */
	uint32_t limit;
	bool cyclic;    /* mlx5: WQEs are consumed in the order of the ring, not of links */
	bool idle_link; /* ... and begin with a link all the same, that nobody follows */
	bool anonymous; /* CQEs show the user index of the QP, not the number of the SRQ */
	bool single;    /* belongs to one receive queue, whose error flushes it */
	void *cookie;
	void (*event)(void *cookie, enum ibv_event_type type); /* see struct vb_cq_attr */
};

VB_PUBLIC int vb_srq_create(struct vb_dev *dev, const struct vb_srq_attr *attr,
			    struct vb_srq **srq);
VB_PUBLIC int vb_srq_destroy(struct vb_srq *srq);            /* -EBUSY while a QP uses it */
VB_PUBLIC int vb_srq_check_unused(const struct vb_srq *srq); /* see vb_cq_check_unused() */
VB_PUBLIC uint32_t vb_srq_number(const struct vb_srq *srq);
/*
 * The SRQ of this device with this number that queues may share, kept from being destroyed until
 * vb_srq_put(); NULL: none.
 */
VB_PUBLIC struct vb_srq *vb_srq_get(struct vb_dev *dev, uint32_t number);
VB_PUBLIC void vb_srq_put(struct vb_srq *srq);
/* WQEs taken so far, and those posted as the doorbell record says; 16 bits each. */
VB_PUBLIC void vb_srq_counters(struct vb_srq *srq, uint16_t *taken, uint16_t *posted);
VB_PUBLIC int vb_srq_set_limit(struct vb_srq *srq,
			       uint32_t limit); /* 0 disarms; one event per arming */
VB_PUBLIC uint32_t vb_srq_limit(struct vb_srq *srq);

/* --- queue pairs ------------------------------------------------------------------------------ */

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
/*
 * Packet pacing entries: a rate and a burst by number, for queues that name one. Two entries that are
 * alike share a number, unless one is dedicated.
 */
enum { VB_PACES = 256 }; /* of an adapter, with 0 */

VB_PUBLIC int vb_pace_take(struct vb_dev *dev, uint32_t kbps, uint32_t burst, bool dedicated,
			   uint16_t *index);
VB_PUBLIC void vb_pace_give(struct vb_dev *dev, uint16_t index);
/* -EINVAL: there is none with this number. 0 is always there, and has no limit. */
VB_PUBLIC int vb_pace_find(struct vb_dev *dev, uint16_t index, uint32_t *kbps, uint32_t *burst);
/*
 * Counter sets: what happened to the queues that name one by its number, from 1 to
 * VB_COUNTER_SETS - 1. rx: requests of peers; resp: seen by the responder; req: by the requester.
 */
enum { VB_COUNTER_SETS = 256 };

enum vb_counter {
	VB_COUNT_RX_WRITE = 1,
	VB_COUNT_RX_READ,
	VB_COUNT_RX_ATOMIC,
	VB_COUNT_OUT_OF_BUFFER,   /* messages and frames that found no receive posted */
	VB_COUNT_OUT_OF_SEQUENCE, /* packets behind one that is missing */
	VB_COUNT_DUPLICATE,       /* packets that were taken before */
	VB_COUNT_RNR_NAK,         /* the peer was not ready; sent again */
	VB_COUNT_SEQUENCE_NAK,    /* the peer missed a packet; sent again */
	VB_COUNT_ACK_TIMEOUT,     /* the peer did not answer; sent again */
	VB_COUNT_REQ_RNR_RETRIES, /* from here on: completions with errors */
	VB_COUNT_RESP_LENGTH,
	VB_COUNT_REQ_LENGTH,
	VB_COUNT_RESP_QP,
	VB_COUNT_REQ_QP,
	VB_COUNT_RESP_PROTECTION,
	VB_COUNT_REQ_PROTECTION,
	VB_COUNT_RESP_CQE, /* any, those of flushes too */
	VB_COUNT_REQ_CQE,
	VB_COUNT_REQ_BIND,
	VB_COUNT_REQ_RESPONSE,
	VB_COUNT_REQ_INVALID,
	VB_COUNT_RESP_INVALID, /* refused; a receive need not complete with it */
	VB_COUNT_REQ_ACCESS,
	VB_COUNT_RESP_ACCESS, /* so does this */
	VB_COUNT_REQ_OPERATION,
	VB_COUNT_REQ_RETRIES,
	VB_COUNT_RESP_FLUSH,
	VB_COUNT_REQ_FLUSH,
	VB_COUNTERS
};

struct vb_counter_set;

VB_PUBLIC int vb_counter_set_alloc(struct vb_dev *dev, struct vb_counter_set **set);
/* -EBUSY: a queue counts in it. */
VB_PUBLIC int vb_counter_set_free(struct vb_counter_set *set);
VB_PUBLIC uint32_t vb_counter_set_number(const struct vb_counter_set *set);
/* Values by enum vb_counter; clear: they are 0 then, and nothing is lost in between. */
VB_PUBLIC void vb_counter_set_read(struct vb_counter_set *set, bool clear,
				   uint64_t value[VB_COUNTERS]);
VB_PUBLIC bool vb_counter_set_exists(const struct vb_dev *dev, uint32_t number);
/* The queue counts there from now on; 0: nowhere. Not 0: there is no such set. */
VB_PUBLIC int vb_qp_set_counters(struct vb_qp *qp, uint32_t number);
VB_PUBLIC uint32_t vb_qp_counter_set(struct vb_qp *qp); /* 0: none */
/* The UDP source port of what an RC or UC queue pair in RTS sends, until it is connected anew. */
VB_PUBLIC int vb_qp_set_sport(struct vb_qp *qp, uint16_t port);
/* A stream of a DCI that is in error goes on; -EINVAL: it is not, or the DCI is not in RTS. */
VB_PUBLIC int vb_dci_reset_stream(struct vb_qp *qp, uint16_t stream);
/* A number that no queue pair has until it is given back. */
VB_PUBLIC int vb_qpn_take(struct vb_dev *dev, uint32_t *number);
VB_PUBLIC void vb_qpn_give(uint32_t number);
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

/* --- doorbells by number ---------------------------------------------------------------------- */

/*
 * Doorbells by queue number, for untrusted callers such as device code. Only queues made with the
 * same owner are rung; any other number is -ENOENT and does nothing. -EINVAL: producer index out of
 * range. Callable from anywhere, CQ notifications and events included.
 */
VB_PUBLIC int vb_doorbell_send(uint64_t owner, uint32_t qpn, uint32_t pi);
VB_PUBLIC int vb_doorbell_arm(uint64_t owner, uint32_t cqn, uint32_t ci);
/* Put a CQE of zeros into the CQ. */
VB_PUBLIC int vb_doorbell_zero_cqe(uint64_t owner, uint32_t cqn);
/* Consumer index of an event queue. */
VB_PUBLIC int vb_doorbell_eq(uint64_t owner, uint32_t eqn, uint32_t ci);

/* --- memory of queues, and numbers of doorbell pages, for direct users ------------------------ */

struct vb_umem;
struct vb_eq;

/* -EFAULT: not mapped, or not writable although access says so. */
VB_PUBLIC int vb_umem_reg(struct vb_dev *dev, void *addr, size_t size, unsigned int access,
			  struct vb_umem **umem);
/*
 * The same over memory that its owner knows: find() gives the place of [offset, offset + size), or
 * NULL. What it gave must stay while a queue lies in the umem. It is called with a lock held, and
 * must not call the card.
 */
VB_PUBLIC int vb_umem_reg_owned(struct vb_dev *dev,
				void *(*find)(void *arg, uint64_t offset, uint64_t size), void *arg,
				struct vb_umem **umem);
VB_PUBLIC int vb_umem_dereg(struct vb_umem *umem); /* -EBUSY while a queue lies in it */
VB_PUBLIC uint32_t vb_umem_number(const struct vb_umem *umem);
VB_PUBLIC bool vb_umem_writable(const struct vb_umem *umem); /* registered so, for the card */
/*
 * The umem of this device with this number and [offset, offset + size) of it, until vb_umem_put();
 * NULL: not there.
 */
VB_PUBLIC struct vb_umem *vb_umem_get(struct vb_dev *dev, uint32_t number, uint64_t offset,
				      uint64_t size, void **addr);
VB_PUBLIC void vb_umem_put(struct vb_umem *umem);

/*
 * Numbers of event queues from here on are those of completion vectors (mlx5dv_devx_query_eqn):
 * they have no ring, a CQ on one reports to who listens to it.
 */
enum { VB_EQ_VECTORS = 192 };

/*
 * Event queues, in memory of the card that the program reads. log_size: of the number of EQEs, up
 * to 20.
 */
VB_PUBLIC int vb_eq_create(struct vb_dev *dev, unsigned int log_size, struct vb_eq **eq);
VB_PUBLIC int vb_eq_destroy(struct vb_eq *eq);           /* -EBUSY while a CQ is on it */
VB_PUBLIC uint32_t vb_eq_number(const struct vb_eq *eq); /* 8 bits */
VB_PUBLIC void *vb_eq_ring(const struct vb_eq *eq);
/*
 * A CQ on an event queue. Its owner may ring the queue as long as it has a CQ there, see
 * vb_doorbell_send().
 */
struct vb_eq_user {
	uint64_t owner;
	struct vb_eq_user *next; /* the card's */
};

/* The one of this device with this number, until vb_eq_put(); NULL: not there. */
VB_PUBLIC struct vb_eq *vb_eq_get(struct vb_dev *dev, uint32_t number, struct vb_eq_user *user);
VB_PUBLIC void vb_eq_put(struct vb_eq *eq, struct vb_eq_user *user);
/* A CQ has an event. From any thread, also where it must not call back into the card. */
VB_PUBLIC void vb_eq_completion(struct vb_eq *eq, uint32_t cqn);
/* Its consumer index, from a doorbell page of the device; dev NULL: of any. */
VB_PUBLIC void vb_eq_consumed(const struct vb_dev *dev, uint32_t number, uint32_t ci);

/* Numbers of doorbell pages, unique in the process. -ENOSPC. */
VB_PUBLIC int64_t vb_uar_number_take(void);
VB_PUBLIC void vb_uar_number_give(uint32_t number);

/* --- doorbell pages ------ -------------------------------------------------------------------- */

/*
 * A page to which the program stores to ring its queues itself, wherever and from whichever thread.
 */
VB_PUBLIC int vb_uar_create(struct vb_dev *dev, struct vb_uar **uar);
/* When this returns, no ring of that page is being executed. */
VB_PUBLIC void vb_uar_destroy(struct vb_uar *uar);
/* Its address; NULL on a machine that cannot trap stores. */
VB_PUBLIC void *vb_uar_page(struct vb_uar *uar);
/* Whether there is a page with this number, of this device. */
VB_PUBLIC bool vb_uar_exists(const struct vb_dev *dev, uint32_t number);
/* The page has this number of vb_uar_number_take(), until it is destroyed. */
VB_PUBLIC void vb_uar_set_number(struct vb_uar *uar, uint32_t number);
/* Whether the address lies in the page of this number, of this device or another context of its adapter. */
VB_PUBLIC bool vb_uar_is(const struct vb_dev *dev, uint32_t number, const void *addr);

/*
 * Around what holds a lock that the card's callbacks take, too: a ring by a signal handler of the
 * program that comes in between is then put off. May be nested.
 */
VB_PUBLIC void vb_card_enter(void);
VB_PUBLIC void vb_card_leave(void);

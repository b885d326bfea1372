/* SPDX-License-Identifier: MIT */
/*
 * The card's own objects. Included only inside src/card.
 *
 * Locks: a send queue's lock may be held while taking a receive queue's (loopback), either while
 * taking an SRQ's or a CQ's; never the other way round. A run of packets (run.h) keeps the lock of
 * its receive queue and that of the CQ while it takes an SRQ's. The receive queue's lock of a connected QP may
 * be held while taking that of a RAW_PACKET QP, which sniffs its answers. State changes that need several of them (an
 * error that flushes a QP) are deferred and done with none held.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/ids.h"
#include "base/lock.h"
#include "base/refusal.h"
#include "control/record/timeline.h"
#include "card/alarm.h"
#include "card/burst.h"
#include "card/card.h"
#include "card/deferred.h"
#include "card/format/format.h"
#include "card/transport/reliable.h"
#include "card/sink.h"
#include "card/state.h"
#include "fabric/entries.h"
#include "fabric/fabric.h"
#include "control/show/monitor.h"

struct vb_dev {
	struct vb_adapter *adapter;
	void (*async)(void *arg, const struct vb_event *event);
	void *async_arg;
	uint32_t epoch; /* of the fabric when it was opened: a forked child must not touch it */
	_Atomic uint32_t objects;
	_Atomic bool fatal;          /* it has failed: nothing can be made on it any more */
	struct vb_dev *next, **link; /* of vb_card.inject.devs; under its lock */
	struct {
		struct vb_lock lock;
		struct vb_pd *first;
	} pds;
	struct {
		struct vb_lock lock;
		uint32_t log;       /* how many at a time */
		uint32_t next, end; /* reserved and not used yet */
	} wq_indices;
};

struct vb_pd {
	struct vb_dev *dev;
	uint32_t number;
	_Atomic uint32_t refs;
	struct vb_pd *next; /* of its device; under the lock of the list */
};

struct vb_mr {
	struct vb_pd *pd;
	uint32_t key; /* index << 8 | variant */
	struct vb_seg_mr *entry;
	struct vb_indirect *indirect; /* of an indirect key (indirect.h), or NULL */
	bool is_private;              /* peers that reach its memory need the kernel for it */
};

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

/*
 * How a message is transferred to another process. A retransmission uses the same method and the
 * same split: the target may have taken some of the packets, and counts on their numbers.
 */
struct vb_transfer {
	bool chosen;
	bool pulls;          /* its packets describe what the target fetches itself */
	uint32_t split;      /* the sender has placed the bytes from here on; VB_NO_SPLIT: none */
	uint32_t generation; /* of the target's registration when it did so */
};

#define VB_NO_SPLIT UINT32_MAX

/* A message that was sent in packets and is not acknowledged yet. */
struct vb_inflight {
	struct vb_flight flight; /* first */
	uint16_t index;
	uint8_t op, flags, wqe_opcode;
	uint8_t blocks;
	uint32_t len;
	struct vb_transfer transfer;
};

/*
 * The requester: everything below is under lock. Indices are block numbers, 16 bits, as in the
 * format.
 */
struct vb_sq {
	_Alignas(64) struct vb_lock lock;
	void *buf;
	uint32_t blocks;
	uint32_t shift;              /* log2 of the bytes of a block */
	uint16_t pi;                 /* doorbell */
	uint16_t next;               /* WQE to send next */
	bool loaded;                 /* wr holds the WQE at next */
	bool unflushed;              /* packets went out that the peer was not told of */
	bool erred;                  /* a WQE completed with an error since the last reset */
	struct vb_transfer transfer; /* of wr */
	bool no_pull;                /* the target cannot fetch payloads */
	uint32_t to_place;  /* we place the bytes of wr from here on; 0: all, VB_NO_SPLIT: none */
	uint64_t sent;      /* payload bytes of wr already sent in packets; or its frames */
	uint64_t cost;      /* of what was sent since the doorbell, see RUN_BYTES */
	uint32_t resend;    /* blocks from next on that were begun before a rewind */
	uint32_t first_psn; /* of wr */
	struct vb_sender sender;      /* PSNs, what is in flight, retries, timers */
	struct vb_inflight *inflight; /* its ring, of blocks entries */
	uint32_t again; /* entries from sender.tail to here tell of messages to be sent again */
	enum ibv_wc_status failing; /* what wr will end with, once nothing is in flight before it */
	struct vb_path_counters sent_by; /* ways that WQEs took */
	struct vb_traffic traffic;       /* of requests: received is what READs asked for */
	uint64_t rewinds;                /* times that packets were sent again */
	struct {
		uint32_t kbps;  /* of raw frames; 0: no limit */
		uint32_t burst; /* bytes that may go at once */
		uint64_t next;  /* ns: nothing is sent before */
	} pace;
	struct vb_wr wr;
	uint64_t
		watch_at; /* ns: when to look again at the word, or for the room, that wr waits for; 0: it does not */
	uint32_t watch_ns; /* how long it was from the last look to that */
};

/* A response that could not be sent at once. */
struct vb_response {
	uint8_t op; /* VB_PKT_READ_RESPONSE or VB_PKT_ATOMIC_RESPONSE */
	uint32_t psn, msn;
	uint64_t va; /* READ: where in our memory */
	uint32_t rkey, generation;
	uint32_t len, sent;
	uint64_t value; /* atomic: the original */
};

enum {
	VB_RESPONSES = VB_REPLAYS,     /* VB_MAX_RD_ATOMIC; asserted in responder.c */
	VB_ANSWERS = 2 * VB_RESPONSES, /* and refusals */
};

enum vb_have_wqe {
	VB_WQE_HAVE = 1,
	VB_WQE_ASKED = 2,  /* the next one that is taken is to fail (inject_qp.c) */
	VB_WQE_BLAMED = 4, /* this one fails for that reason */
};

/* The responder: under lock. */
struct vb_rq {
	_Alignas(64) struct vb_lock lock;
	void *buf;
	uint32_t count, shift;
	uint16_t ci;
	struct vb_receiver receiver; /* what comes next, and atomics that were done */
	uint32_t msn;
	bool mixed; /* the log has a line about packets of the other version of RoCE */
	bool ack_due;
	bool duplicate; /* acknowledge, though nothing is new */
	_Atomic uint32_t
		acked; /* epsn as last told to the requester, in an answer or on the back of a request */
	/* the message being received */
	bool open;        /* between FIRST and LAST */
	uint8_t have_wqe; /* a receive WQE was taken for it: enum vb_have_wqe */
	uint8_t asked;    /* with VB_WQE_ASKED: enum ibv_wc_status */
	bool inlined;     /* its data was left there */
	uint8_t op;
	uint16_t wqe_index;
	uint16_t num_sge;
	uint32_t stride; /* of the WQE that was taken: the next one that is free */
	uint64_t received, capacity;
	struct vb_traffic traffic; /* of messages and frames; sent is what peers' READs asked for */
	uint64_t packets, dropped; /* that came; that found no receive posted, and were lost */
	uint64_t va;               /* WRITE: where */
	uint32_t rkey, generation, dma_len;
	struct vb_response response[VB_ANSWERS]; /* to send: ring */
	uint32_t resp_head, resp_tail;
	struct vb_sge sge[VB_WR_MAX_SGE];
	bool pinned;                            /* the message has several packets: */
	uint32_t sge_generation[VB_WR_MAX_SGE]; /* of the registrations when it began */
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
	uint32_t serial; /* it was the so manieth of the adapter, from 1 */
	struct vb_path
		kept; /* the port is down: the path that is used when it is up again; both locks */
	uint8_t next_status; /* of the next work request, enum ibv_wc_status; under sq.lock */
	uint16_t sport;      /* UDP source port, 0: as the flow label says; under sq.lock */
	bool blamed;         /* the log is to say that the status was asked for; under sq.lock */
	uint8_t *frame;      /* what is being sent; under sq.lock */
	struct vb_sq sq;
	struct vb_rq rq;
};

/* --- adapter.c --- */
/* The port is on the cable that the configuration names, wherever it was. */
void vb_adapter_plug_in(struct vb_adapter *adapter);
void vb_adapter_identify(struct vb_adapter *adapter);
void vb_dev_event(struct vb_dev *dev, enum ibv_event_type type, void *cookie); /* no lock held */
/* An event of an object: to its own callback, or to the device. No lock held. */
static inline void vb_object_event(struct vb_dev *dev,
				   void (*own)(void *cookie, enum ibv_event_type type),
				   void *cookie, enum ibv_event_type type)
{
	if (own)
		own(cookie, type);
	else
		vb_dev_event(dev, type, cookie);
}

const struct vb_codec *vb_adapter_codec(const struct vb_adapter *adapter);

/* In a burst, any locks held: the program is told at its end. */
static inline void vb_qp_event(struct vb_qp *qp, enum ibv_event_type type)
{
	vb_notice_set(&qp->notice, 1ull << type);
}

/* --- mr.c, umem.c --- */
/* In a forked child: what a thread of the parent had locked is free. */
void vb_mr_forked(void);
void vb_umem_forked(void);
int vb_mr_check_memory(void *addr, size_t length, unsigned int access);
/* inside a read section: */
/*
 * The address behind [addr, addr + len) of a key, with these rights and in this domain; NULL where
 * not allowed.
 */
void *vb_mr_translate(uint32_t key, uint32_t pdn, uint64_t addr, uint64_t len, unsigned int access);
/*
 * Of the registration behind a key that vb_mr_translate() has just accepted: the same for all of a
 * message, or it is refused.
 */
uint32_t vb_mr_generation(uint32_t key);
/* Whether the key is there, in this domain, and lets peers write. */
bool vb_mr_is_live(uint32_t key, uint32_t pdn);
/* Why vb_mr_translate() refuses, in words; NULL: it does not. */
const char *vb_mr_explain(uint32_t key, uint32_t pdn, uint64_t addr, uint64_t len,
			  unsigned int access);
/*
 * SEND_WITH_INV (remote) and LOCAL_INV: the key is dead from now on, or free where it is indirect;
 * -EINVAL where it is not one of this domain, or not one that a peer may invalidate.
 */
int vb_mr_invalidate(uint32_t key, uint32_t pdn, bool remote);

/* --- cq.c --- */
struct vb_cq *vb_cq_find(uint32_t number); /* inside a read section */
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
struct vb_qp *vb_qp_find(uint32_t qpn); /* inside a read section */
/* An end of connections to a DCT: a queue pair that the program knows nothing of. */
int vb_qp_create_end(const struct vb_qp *dct, const struct vb_qp_attr *attr, struct vb_qp **qp);

/* --- counters.c: the lock of a queue held --- */
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

/* --- inject.c --- */
/* Whether an object may be created: 0, -ENOMEM or -EIO after a log line. */
int vb_inject_create(struct vb_dev *dev, enum vb_inject_object object);
void vb_inject_opened(struct vb_dev *dev);
void vb_inject_closing(struct vb_dev *dev);
void vb_inject_forked(void);

/* --- inject_link.c --- */
/* The first adapter is being opened: what a script asks for. 0, or -EINVAL after a log line. */
int vb_inject_begin(void);
/* Somebody has something to ask of this process. */
void vb_inject_asked(void);

/* --- inject_port.c --- */
static inline bool vb_port_is_cut(const struct vb_adapter *adapter, uint32_t port)
{
	return atomic_load_explicit(&vb_card.inject.at[adapter->index].cut, memory_order_relaxed) >>
		       port &
	       1;
}

/* Under inject.lock. */
void vb_inject_port(struct vb_adapter *adapter, bool up);
/* A queue pair of a port that may be down is new in the table. */
void vb_inject_qp_created(struct vb_qp *qp);
/* Both queue locks held: another path, for when the port is up. Returns the one before. */
struct vb_path vb_qp_set_path(struct vb_qp *qp, const struct vb_path *path);

/* --- inject_qp.c --- */
int vb_inject_qp(const struct vb_adapter *adapter, const struct vb_inject *fault, char *words,
		 size_t size);
/* All queue pairs of the device fail, without events of their own. */
void vb_inject_fail_all(struct vb_dev *dev);
/* Both queue locks held: which function decodes the send WQEs. */
void vb_inject_choose_decoder(struct vb_qp *qp);
/* The format's own. */
typedef int (*vb_decoder)(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index,
			  struct vb_wr *wr);
static inline vb_decoder vb_qp_decoder(const struct vb_qp *qp)
{
	return qp->type == IBV_QPT_UD           ? qp->codec->send_ud
	       : qp->type == IBV_QPT_RAW_PACKET ? qp->codec->send_raw
	       : qp->dci                        ? qp->codec->send_dc
						: qp->codec->send;
}
/* What decode() says of a work request that must fail. */
static inline enum ibv_wc_status vb_decode_status(int ret)
{
	return ret > 0 ? (enum ibv_wc_status)ret : IBV_WC_LOC_QP_OP_ERR;
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

/* --- requester.c --- */
/* The send doorbell of an untrusted caller. -EINVAL: producer index out of range. */
int vb_qp_ring_checked(struct vb_qp *qp, uint32_t pi);
void vb_requester_run(struct vb_qp *qp);   /* sq.lock held */
void vb_requester_flush(struct vb_qp *qp); /* sq.lock held */
/* The next packet is psn. empty: and no WQE is posted. Both queue locks held. */
void vb_requester_reset(struct vb_qp *qp, uint32_t psn, bool empty);

/* --- completer.c --- */
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
/* The same for what is expected and what was posted to receive. rq.lock held. */
void vb_responder_reset(struct vb_qp *qp, uint32_t psn, bool empty);
/* A message that will not go on: its receive goes back to the shared queue. */
void vb_responder_give(struct vb_qp *qp);

/* --- frames.c --- */
/* A raw frame; c has what the CQE shall say about it. */
void vb_responder_frame(struct vb_qp *qp, const struct vb_frame *frame, struct vb_completion *c);

/* --- answer.c --- */
void vb_responder_answer(struct vb_qp *qp); /* send what is due */

/* --- why.c: log lines of error completions --- */
void vb_why_send(struct vb_qp *qp, const struct vb_wr *wr, enum ibv_wc_status status)
	__attribute__((cold));
/* pkt: the request that met the error. */
void vb_why_receive(const struct vb_qp *qp, const struct vb_pkt *pkt, enum ibv_wc_status status)
	__attribute__((cold));
/* A packet of the other version of RoCE is dropped. */
void vb_why_mixed(struct vb_qp *qp, const struct vb_pkt *pkt) __attribute__((cold));
void vb_why_flushed(const struct vb_qp *qp, uint32_t count, const char *queue)
	__attribute__((cold));

/* --- pace.c --- */
/* Packet pacing: whether the queue must wait. Else the WQE's bytes are counted. sq.lock is held. */
bool vb_pace_waits(struct vb_qp *qp);

/* --- raw.c --- */
enum { VB_RAW_BUFFER = VB_FRAME_MAX + 2048 }; /* of vb_qp.frame */
/*
 * The frames of a WQE: enum ibv_wc_status, or -EAGAIN where one finds no room; sq.sent counts those that
 * went, and the next call goes on behind them. sq.lock is held, inside a read section.
 */
int vb_raw_send(struct vb_qp *qp, const struct vb_wr *wr, const struct iovec *iov, int cnt);

/* --- tir.c --- */
int vb_rss_check(const struct vb_dev *dev, const struct vb_rss *rss);
void vb_rss_hold(const struct vb_rss *rss, int by);
void vb_tir_forked(void);

/* --- flow.c: inside read sections --- */
struct vb_frame;
/*
 * A frame of a send queue, whose lock is held; metadata: of the WQE; to_wire: not to queues of its
 * own port.
 */
void vb_flow_send(struct vb_qp *from, const struct vb_frame *frame, uint32_t metadata,
		  bool to_wire);
/*
 * A frame at the port of an adapter. from: the sender, where that is a queue of this process there.
 * looped: the port has sent it, and no rule of the FDB has turned it back.
 */
void vb_flow_arrive(const struct vb_adapter *adapter, const struct vb_qp *from,
		    const struct vb_frame *frame, bool looped);
/* What another process sends on the adapter's port: for sniffers. */
void vb_flow_overhear(const struct vb_adapter *adapter, const struct vb_frame *frame);
/* A packet that queue pairs of the adapter send or receive, as a frame: for sniffers, too. */
void vb_flow_sniff(const struct vb_adapter *adapter, bool sent, const struct vb_frame *frame);
void vb_flow_forked(void);

/* --- cable.c --- */
/* The process wants, or wants no more (-1), frames that others send. */
void vb_cable_listen(int change);
/* Once more after the process has joined the registry anew. */
void vb_cable_joined(void);
void vb_cable_forked(void);
/* A cable is told from others by a hash of its name, so long that two names do not share one by accident. */
uint64_t vb_cable_number(const char *name);
/* Inside read sections: */
/* A frame leaves an adapter; ways: enum vb_frame_way. */
void vb_cable_send(const struct vb_adapter *adapter, const struct vb_qp *from,
		   const struct vb_frame *frame, uint32_t ways);
/* Whether a frame of this length can leave now, before vb_frame_sent(); see vb_frame_may_send(). */
enum vb_frame_may vb_cable_may_send(uint32_t len);
/* A frame from another process; what it says is not trusted. */
void vb_cable_receive(const struct vb_pkt *pkt);
/*
 * Show the frame of a packet to the sniffers of both adapters, in all processes. GUIDs; 0: not known. ns:
 * when the packet was sent.
 */
void vb_cable_show(__be64 from, __be64 to, const struct vb_frame *frame, uint64_t ns);
/* Our adapter with a GUID, if it has a cable; NULL: none. */
const struct vb_adapter *vb_cable_port(__be64 guid);

/* A frame comes from outside to a port, in all processes; the number of those that lost it. */
unsigned int vb_cable_arrive(const struct vb_adapter *adapter, const void *data, uint32_t len);

/* --- wire.c --- */
/* The process uses raw Ethernet on the adapter, or one use less (-1): then it may carry for a TAP. */
void vb_wire_use(const struct vb_adapter *adapter, int change);
/* A frame leaves the port of an adapter that has a TAP; in a read section. */
void vb_wire_send(const struct vb_adapter *adapter, const struct vb_frame *frame);
void vb_wire_forked(void);

/* --- uar.c --- */
void vb_uar_run_deferred(void); /* inside a read section, no lock held */

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

/* SPDX-License-Identifier: MIT */
/*
 * The objects behind hbl.h. Included only inside src/card.
 *
 * Locks: the device's mutex (creation, state changes) before any other; a QP's send lock may be
 * held while taking another QP's receive lock (loopback), either while taking a CQ's; never the
 * other way round. Lookups on the data path are inside read sections (base/rcu.h).
 *
 * A QP is known to other processes as device:6 port:5 qpn:13 (VB_HBL_ADDRESS); that is what packets
 * carry.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/lock.h"
#include "base/refusal.h"
#include "control/record/timeline.h"
#include "card/alarm.h"
#include "card/burst.h"
#include "card/deferred.h"
#include "card/format/hbl.h"
#include "card/hbl/hbl.h"
#include "card/hbl/sink.h"
#include "card/transport/reliable.h"
#include "card/sink.h"
#include "card/state.h"
#include "fabric/fabric.h"
#include "fabric/lend.h"

enum {
	VB_HBL_PAGE = 4096,
	VB_HBL_MAX_READS = VB_REPLAYS,   /* READs and atomics in flight */
	VB_HBL_MAX_WINDOW = VB_PSN_HALF, /* packets in flight */
	VB_HBL_PIECES = 32,              /* of a strided message in one packet */
	/*
	 * A full CQ: looked at so often, and overrun after so many looks in which the program took
	 * nothing.
	 */
	VB_HBL_FULL_LOOK_NS = 100000,
	VB_HBL_FULL_LOOKS = 10000,
};

static inline uint32_t vb_hbl_address(uint32_t device, uint32_t port, uint32_t qpn)
{
	return device << 18 | port << 13 | qpn;
}

/* --- device memory (memory.c) ----------------------------------------------------------------- */

struct vb_hbl_map {
	uint64_t va, size;
	char *host;
	uint64_t handle; /* of the allocation; 0: the program's own memory */
};

/* Sorted by va; replaced as a whole, readers are in read sections. */
struct vb_hbl_maps {
	uint32_t count;
	struct vb_hbl_map map[];
};

struct vb_hbl_buffer {
	struct vb_hbl_buffer *next;
	uint64_t handle; /* its offset in the accelerator's file */
	uint64_t size;
	char *host;
	unsigned int maps;
};

struct vb_hbl_memory {
	pthread_mutex_t lock; /* of everything but reading maps */
	int fd;               /* the file behind HBM buffers, ours unless the program closed it */
	uint64_t inode, file_dev; /* of that file, so that any descriptor of it is known */
	uint64_t file_size;
	struct vb_hbl_buffer *buffers;
	struct vb_hbl_maps *_Atomic maps;
	struct vb_window *window; /* where peers see them; NULL: nowhere */
	struct vb_fabric *fabric; /* of the device's card */
};

int vb_hbl_memory_init(struct vb_hbl_memory *memory, int fd, struct vb_fabric *fabric,
		       struct vb_window *window);
void vb_hbl_memory_destroy(struct vb_hbl_memory *memory);
bool vb_hbl_memory_is_file(const struct vb_hbl_memory *memory,
			   int fd); /* a descriptor of its file */
int vb_hbl_memory_alloc(struct vb_hbl_memory *memory, uint64_t size, uint64_t *handle);
int vb_hbl_memory_free(struct vb_hbl_memory *memory, uint64_t handle);
/* hint 0: any address. forced: that one or -EINVAL. */
int vb_hbl_memory_map(struct vb_hbl_memory *memory, uint64_t handle, uint64_t hint, bool forced,
		      uint64_t *va);
int vb_hbl_memory_map_host(struct vb_hbl_memory *memory, void *host, uint64_t size, uint64_t hint,
			   bool forced, uint64_t *va);
int vb_hbl_memory_unmap(struct vb_hbl_memory *memory, uint64_t va);
/* Read section: the memory behind [va, va + len), NULL where it is not mapped in one piece. */
void *vb_hbl_memory_at(struct vb_hbl_memory *memory, uint64_t va, uint64_t len);

/* Zeroed memory that the program gets to see; NULL where there is none. */
static inline void *vb_hbl_pages(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* --- ports and devices ------------------------------------------------------------------------ */

struct vb_hbl_cq {
	struct vb_hbl *hbl;
	struct vb_hbl_port *port; /* NULL: for all */
	void *cookie;
	struct vb_hbl_cq_info info;
	uint32_t users;           /* QPs; under the device's mutex */
	struct vb_hbl_qp *lender; /* the QP that has lent it (lend.c); under the same */
	struct vb_notice notice;
	_Alignas(64) struct vb_lock lock;
	uint32_t produced;
	uint32_t reserved; /* entries that are promised to a QP and not written yet */
	bool failed;       /* overrun: nothing is written any more */
	/* while it is full, as the timer saw it */
	uint32_t full_ci;    /* the program's index, */
	uint32_t full_looks; /* looks since it last moved, */
	uint64_t full_time;  /* and when the last one was, ns */
};

/*
 * Slots of a FIFO: a thread that stores uses as many as the program is told of, a handler that
 * cannot wait all of them.
 */
enum { VB_HBL_FIFO_SLOTS = 1024 };

struct vb_hbl_fifo_slot {
	uint32_t dword[4];
	uint32_t entries; /* that it stands for; more than one: the last has replaced the others */
};

struct vb_hbl_fifo {
	struct vb_hbl *hbl;
	struct vb_hbl_port *port;
	enum vb_hbl_fifo_type type;
	uint64_t serial; /* never the same again: names the FIFO in threads' latches */
	struct vb_hbl_fifo_info info;
	_Atomic uint32_t *ci;     /* our mapping of the page that info.ci points to */
	uint32_t capacity;        /* entries */
	_Atomic uint32_t regs[4]; /* the dwords stored last, by whichever thread */
	_Alignas(64) struct vb_lock lock;
	uint32_t head, tail;     /* slots: taken, stored; free running */
	uint32_t taken;          /* entries */
	bool overrun;            /* entries were lost since it was last empty, */
	_Atomic bool unreported; /* and the program was not told yet */
	bool consuming;          /* a thread carries out entries */
	uint32_t waiting;        /* threads that sleep until there is room */
	_Atomic uint32_t room;   /* what they sleep on: changes when half of it is free again */
	struct vb_hbl_fifo_slot slot[VB_HBL_FIFO_SLOTS]; /* last: never cleared as a whole */
};

struct vb_hbl_encap {
	struct vb_hbl *hbl;
	struct vb_hbl_port *port;
	struct vb_hbl_encap_attr attr; /* header: points to bytes */
	uint32_t users;
	uint8_t bytes[VB_HBL_ENCAP_HEADER_MAX];
};

struct vb_hbl_port {
	uint32_t number; /* from 1 */
	bool used;       /* in the context's mask */
	bool scale_out;
	bool ready;       /* set up */
	_Atomic bool cut; /* down on demand (inject.c) */
	struct vb_hbl_port_attr attr;
	uint32_t num_qps, last_qpn;
	/* By number, VB_HBL_MAX_QPN + 1 of them; NULL: not ready. Readers are in read sections. */
	struct vb_hbl_qp *_Atomic *_Atomic qps;
	struct vb_hbl_cq *cqs[VB_HBL_CQS];
	struct vb_hbl_cq *_Atomic cc_cq;
	struct vb_hbl_fifo *_Atomic fifos[VB_HBL_FIFOS];
	struct vb_hbl_encap *encap;
	struct vb_hbl *hbl;
	struct vb_notice notice;
};

/* By number; once the port is set up. Pairs with the release when it is. */
static inline struct vb_hbl_qp *_Atomic *vb_hbl_port_qps(const struct vb_hbl_port *port)
{
	return atomic_load_explicit(&port->qps, memory_order_acquire);
}

struct vb_hbl {
	struct vb_card *card; /* the adapter's */
	struct vb_adapter *adapter;
	uint32_t number; /* N of hbl_N */
	enum vb_generation generation;
	uint32_t epoch; /* of the fabric: a forked child must not touch it */
	int fd;         /* the program's descriptor of accelN; -1: none */
	bool has_context, own_fd;
	bool served;        /* faults on demand are for it; under inject.lock */
	_Atomic bool fatal; /* it has failed on demand */
	struct vb_hbl_memory memory;
	pthread_mutex_t mutex;
	void (*async)(void *arg, const struct vb_event *event);
	void *async_arg;
	struct vb_hbl_qp *qps;                        /* all, numbered or not */
	uint64_t reserved[(VB_HBL_MAX_QPN + 1) / 64]; /* QP numbers, for several ports; mutex */
	uint64_t lent[VB_WINDOW_QUEUES / 64];         /* places of the window in use, */
	uint32_t lendings;                            /* and uses so far; under mutex */
	struct vb_hbl_port ports[VB_CONFIG_MAX_PORTS + 1];
};

/* device.c */
struct vb_hbl *vb_hbl_find(struct vb_card *card, uint32_t number); /* that is open, or NULL */
/*
 * The device of an accelerator file; it cannot go until vb_hbl_unlock(). NULL, and nothing to
 * unlock, where none.
 */
struct vb_hbl *vb_hbl_lock_fd(struct vb_card *card, int fd);
void vb_hbl_unlock(struct vb_card *card);
bool vb_hbl_stale(const struct vb_hbl *hbl);
/* A port of the context; NULL where there is none, or it is not in the mask. */
struct vb_hbl_port *vb_hbl_port(struct vb_hbl *hbl, uint32_t number);
/* What a notice of an object has to tell: a bit for each enum ibv_event_type. No lock held. */
void vb_hbl_tell(struct vb_hbl *hbl, uint64_t events, void *cookie, uint32_t port);
/* An event of a port. In a burst, any locks held. */
void vb_hbl_port_event(struct vb_hbl_port *port, enum ibv_event_type type);
/*
 * Which device and port a GID belongs to, as seen from a port; -EHOSTUNREACH where to none of this
 * host.
 */
int vb_hbl_resolve(const struct vb_hbl_port *from, const struct vb_hbl *hbl,
		   const union ibv_gid *gid, bool loopback, uint32_t *device, uint32_t *port);

/* cq.c */
/*
 * A place for a completion, before what it tells of is done: FULL is asked for again later, LOST
 * means that the queue takes nothing more. A place that was got is filled by vb_hbl_cq_fill(), or
 * given back by vb_hbl_cq_cancel().
 */
enum vb_hbl_room { VB_HBL_ROOM, VB_HBL_FULL, VB_HBL_LOST };
enum vb_hbl_room vb_hbl_cq_reserve(struct vb_hbl_cq *cq);
void vb_hbl_cq_fill(struct vb_hbl_cq *cq, const struct vb_hbl_completion *completion);
void vb_hbl_cq_cancel(struct vb_hbl_cq *cq);
/* Both at once, where there is nothing to do in between. */
enum vb_hbl_room vb_hbl_cq_put(struct vb_hbl_cq *cq, const struct vb_hbl_completion *completion);
/*
 * The timer's look at a full queue; true once it is not full any more, or was given up as overrun.
 */
bool vb_hbl_cq_look(struct vb_hbl_cq *cq, uint64_t now);
/* In a forked child: its memory is no longer the parent's. */
void vb_hbl_cq_forked(const struct vb_hbl_cq *cq);
void vb_hbl_cq_report(struct vb_hbl_cq *cq, struct vb_hbl_ccqe *report);
/* Completions so far, as a peer goes on with them. */
uint32_t vb_hbl_cq_produced(struct vb_hbl_cq *cq);
void vb_hbl_cq_set_produced(struct vb_hbl_cq *cq, uint32_t produced);

/* --- queue pairs ------------------------------------------------------------------------------ */

/* A message that was sent and is not complete. */
struct vb_hbl_flight {
	struct vb_flight flight; /* first */
	uint8_t op;              /* enum vb_hbl_op */
	uint32_t size;
	uint64_t local;
	uint64_t sent_at; /* ns; for congestion-control reports */
};

/*
 * The requester; under lock. WQE counts are free running, positions in the ring are counts modulo
 * its size.
 */
struct vb_hbl_sq {
	_Alignas(64) struct vb_lock lock;
	uint32_t pi;   /* rung */
	uint32_t told; /* whose completion is written, where it was asked for */
	bool loaded;   /* wr is the WQE to be sent next */
	bool unflushed;
	uint8_t asked;       /* enum vb_hbl_syndrome that the next WQE is to fail with (inject.c) */
	_Atomic bool blamed; /* the log is to say that it was asked for */
	uint64_t sent;       /* payload bytes of wr */
	/* For tools: messages, their bytes, what was read from the peer, and times of sending again, */
	uint64_t messages, bytes_sent, bytes_asked, rewinds;
	struct vb_path_counters sent_by; /* and the ways that they took. */
	uint32_t first_psn;              /* of wr */
	/*
	 * WQEs before head are complete, those before tail are sent; PSNs, window, retries, timers.
	 */
	struct vb_sender sender;
	struct vb_hbl_flight *flight; /* its ring, as many as WQEs */
	uint32_t announced;           /* RECV_RDV: buffers announced */
	uint32_t rdv_next;            /* SEND_RDV: announcements used, */
	_Atomic uint32_t rdv_done;    /* and those for good */
	/* congestion control */
	uint32_t burst;  /* bytes per pace; 0: not paced */
	uint64_t pace;   /* ns */
	int64_t credit;  /* bytes left in this burst */
	uint64_t refill; /* when the next one starts, ns */
	/* time */
	bool held;        /* the peer's CQ is full: nothing is sent until it says so, */
	uint64_t held_at; /* or until some time after this, ns */
	bool starved;     /* the own CQ is full: completions wait */
	struct vb_hbl_wr wr;
};

struct vb_hbl_answer {
	uint8_t op; /* VB_PKT_READ_RESPONSE, VB_PKT_ATOMIC_RESPONSE */
	uint32_t psn;
	uint64_t va, value;
	uint32_t len, sent;
};

/* A rendezvous buffer that the peer announced. */
struct vb_hbl_announcement {
	uint64_t va;
	uint32_t size, tag;
};

/* The responder; under lock. */
struct vb_hbl_rq {
	_Alignas(64) struct vb_lock lock;
	uint64_t packets, bytes_received, bytes_read; /* for tools: that came, that a peer READ */
	struct vb_receiver receiver;
	bool ack_due, answering;
	_Atomic bool stalled; /* a request found the CQ full; the timer sees to it */
	uint8_t syndrome;     /* of the acknowledgement that is due */
	uint32_t nak_psn;
	struct vb_hbl_answer answer[VB_HBL_MAX_READS]; /* to send: ring */
	uint32_t ans_head, ans_tail;
	struct vb_hbl_announcement *rdv; /* SEND_RDV: ring, as many as WQEs */
	_Atomic uint32_t rdv_tail;
	_Atomic uint32_t rdv_used; /* RECV_RDV: announced buffers that were written */
};

enum vb_hbl_work {
	VB_HBL_WORK_ANSWER = 1 << 0, /* acknowledgement or responses are due */
	VB_HBL_WORK_SEND = 1 << 1,   /* go on sending */
	VB_HBL_WORK_STALL = 1 << 2,  /* have the timer look at a full CQ */
};

struct vb_hbl_qp {
	struct vb_hbl *hbl;
	struct vb_hbl_port *port;      /* NULL before INIT */
	struct vb_hbl_qp *next, *prev; /* of the device; under its mutex */
	void *cookie;
	uint32_t qpn;
	uint32_t serial;        /* creation order on this adapter, from 1 */
	_Atomic uint32_t state; /* enum ibv_qp_state */
	struct vb_hbl_cq *req_cq, *res_cq;
	/* Where the peer delivers by itself, NULL: it does not. Written under mutex and rq.lock. */
	struct vb_window_queue *_Atomic lent;
	uint32_t wqes; /* power of two */
	uint32_t wqe_shift;
	char *swq, *rwq;
	struct vb_hbl_qp_attr attr;
	struct ibv_qp_attr ibv;
	struct vb_hbl_encap *encap;
	uint32_t peer_device, peer; /* vb_hbl_address() */
	struct vb_lock path_lock;   /* of opening it */
	_Atomic bool connected;
	struct vb_path path;
	uint32_t mtu;
	uint32_t span;               /* bytes of a READ response per PSN; both ends have the same */
	struct vb_deferred deferred; /* enum vb_hbl_work */
	struct vb_notice notice;
	struct vb_alarm timer; /* sq.lock */
	struct vb_hbl_sq sq;
	struct vb_hbl_rq rq;
	struct vb_monitor_place shown; /* shown.c */
};

/* shown.c: what tools see. A number is taken; the state is another; the number is given back. */
void vb_hbl_show_qp(struct vb_hbl_qp *qp);
void vb_hbl_show_state(const struct vb_hbl_qp *qp);
void vb_hbl_hide_qp(struct vb_hbl_qp *qp);

/* The lock of the queue held. */
static inline void vb_hbl_show_sq(const struct vb_hbl_qp *qp)
{
	struct vb_monitor_qp *shown = qp->shown.entry;

	if (!shown)
		return;
	atomic_store_explicit(&shown->sq.sent, qp->sq.bytes_sent, memory_order_relaxed);
	atomic_store_explicit(&shown->sq.received, qp->sq.bytes_asked, memory_order_relaxed);
	atomic_store_explicit(&shown->sq.packets, qp->sq.sent_by.packets, memory_order_relaxed);
	atomic_store_explicit(&shown->sq.stores, qp->sq.sent_by.stores, memory_order_relaxed);
	atomic_store_explicit(&shown->sq.copies, qp->sq.sent_by.copies, memory_order_relaxed);
	atomic_store_explicit(&shown->sq.calls, qp->sq.sent_by.calls, memory_order_relaxed);
	atomic_store_explicit(&shown->sq.retries, qp->sq.rewinds, memory_order_relaxed);
}

/* With what the peer has delivered itself, which its words in the window say. */
static inline void vb_hbl_show_rq(const struct vb_hbl_qp *qp)
{
	struct vb_window_queue *lent = atomic_load_explicit(&qp->lent, memory_order_relaxed);
	struct vb_monitor_qp *shown = qp->shown.entry;
	uint64_t bytes = qp->rq.bytes_received, packets = qp->rq.packets;

	if (!shown)
		return;
	if (lent) {
		bytes += atomic_load_explicit(&lent->bytes, memory_order_relaxed);
		packets += atomic_load_explicit(&lent->messages, memory_order_relaxed);
	}
	atomic_store_explicit(&shown->rq.sent, qp->rq.bytes_read, memory_order_relaxed);
	atomic_store_explicit(&shown->rq.received, bytes, memory_order_relaxed);
	atomic_store_explicit(&shown->rq.packets, packets, memory_order_relaxed);
}

/* inject.c */
void vb_hbl_inject_opened(struct vb_hbl *hbl);
void vb_hbl_inject_closing(struct vb_hbl *hbl);
/* A creation that is about to be done: 0, -ENOMEM, -EIO. */
int vb_hbl_inject_create(struct vb_hbl *hbl, enum vb_inject_object object);

/* qp.c */
struct vb_hbl_qp *vb_hbl_qp_find(struct vb_card *card, uint32_t address); /* read section */
/* To the error state, from anywhere on the data path; one event. */
void vb_hbl_qp_fail(struct vb_hbl_qp *qp, enum ibv_event_type event, enum vb_hbl_syndrome syndrome);
/* The way to the peer, opened where it is not; false where nobody is there. */
bool vb_hbl_qp_connect(struct vb_hbl_qp *qp);

static inline bool vb_hbl_qp_receives(const struct vb_hbl_qp *qp)
{
	uint32_t state = atomic_load_explicit(&qp->state, memory_order_acquire);

	return state == IBV_QPS_RTR || state == IBV_QPS_RTS;
}

/* requester.c */
/* The doorbell. Read section. */
void vb_hbl_ring(struct vb_hbl_qp *qp, uint32_t pi);
void vb_hbl_congestion(struct vb_hbl_qp *qp, const struct vb_hbl_cc *cc);
void vb_hbl_requester_run(struct vb_hbl_qp *qp); /* sq.lock held */
void vb_hbl_requester_receive(struct vb_hbl_qp *qp, const struct vb_pkt *pkt);
bool vb_hbl_requester_look(struct vb_alarm *timer, uint64_t now, uint64_t *next);

/* responder.c */
/* -EFAULT: the packet's payload is not readable (loopback). */
int vb_hbl_responder_receive(struct vb_hbl_qp *qp, const struct vb_pkt *pkt);
void vb_hbl_responder_answer(struct vb_hbl_qp *qp);
/*
 * The timer's look at a responder that is stalled: whether the peer may come again. sq.lock held.
 */
void vb_hbl_responder_look(struct vb_hbl_qp *qp, uint64_t now);

/* lend.c */
/* The device's mutex held: lend the QP where that can be; take it back, waiting for who delivers. */
void vb_hbl_lend(struct vb_hbl_qp *qp);
void vb_hbl_take_back(struct vb_hbl_qp *qp);
/* Any locks held, read section: nothing more is delivered, after what is under way. */
void vb_hbl_recall(struct vb_hbl_qp *qp);
/* rq.lock held: before a packet of the peer, what it has delivered; after it, how it goes on. */
void vb_hbl_lent_take(struct vb_hbl_qp *qp, struct vb_window_queue *queue);
void vb_hbl_lent_show(struct vb_hbl_qp *qp, struct vb_window_queue *queue);

/* sink.c */
void vb_hbl_work_init(struct vb_hbl_qp *qp);
void vb_hbl_work_add(struct vb_hbl_qp *qp, enum vb_hbl_work what);
void vb_hbl_work_block(struct vb_hbl_qp *qp, enum vb_hbl_work what);
void vb_hbl_work_remove(struct vb_hbl_qp *qp);
void vb_hbl_timer_add(struct vb_hbl_qp *qp, uint64_t when); /* sq.lock held */
/*
 * Send to the peer, wherever it is: 0, -EAGAIN, -EFAULT (payload not readable). A peer that is gone
 * takes everything.
 */
int vb_hbl_send(struct vb_hbl_qp *qp, struct vb_pkt *pkt);

static inline void *vb_hbl_at(struct vb_hbl_qp *qp, uint64_t va, uint64_t len)
{
	return vb_hbl_memory_at(&qp->hbl->memory, va, len);
}

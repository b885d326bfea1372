/* SPDX-License-Identifier: MIT */
/*
 * libibverbs on Verbatim: the objects behind the handles, and the helpers that its files share.
 *
 * Each verbs object embeds the public struct first and adds what the driver half of a card keeps:
 * the rings, the doorbell records and the wr_ids. The card half is an opaque pointer (card/card.h).
 * A pointer to the public struct is converted with the to_*() functions below. Objects of a
 * provider (mlx5_qp, hbl_cq, ...) start with the one of the core and add its own fields.
 *
 *	api_context -- qp_table --> api_qp --+-- sq ring, rq ring, doorbell record
 *	     |                        |      +-- send_cq, recv_cq --> api_cq --> api_channel
 *	     +-- vb_dev               +-- srq --> api_srq -- linked WQE ring
 *
 * Locks, all leaves but the first: api_context_lock() (creation, destruction, the lists of live
 * objects), the lock of one send queue, receive queue, SRQ or CQ, and the mutex of one event queue.
 * A CQ lock may be held while an SRQ lock is taken (a polled receive gives its WQE back), never the
 * other way round. Callbacks of the card take event mutexes only, so that the card may be called
 * with a send queue's lock held.
 */
#pragma once

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <infiniband/verbs.h>

#include "api/edge.h"
#include "base/lock.h"
#include "base/util.h"
#include "card/queue/qp.h"
#include "provider.h"

/* --- event queues: what a program reads from a completion channel or from async_fd ------------ */

/*
 * A list of events and the eventfd that is readable exactly while the list is not empty. The fd is
 * written for each event (edge-triggered epoll users get an edge each) and emptied by the thread
 * that takes the last event, both under the mutex.
 *
 * A forked child has a copy of the list and the same fd: what it reads from the fd its parent
 * misses. So a child leaves the queues of its parent alone.
 */
struct api_event_queue {
	pthread_mutex_t mutex;
	int fd;
	struct vb_list events;
};

/* The asynchronous events of one object; under the mutex of its context's queue. */
struct api_async {
	uint32_t fetched; /* by ibv_get_async_event() */
	bool muted;       /* the object is going away: it has no more events */
};

/* --- contexts --------------------------------------------------------------------------------- */

/*
 * QPs by number: two levels, so that 24-bit numbers cost 32 KiB and one page-sized leaf per 4096
 * numbers in use.
 */
enum { API_QP_LEAF_BITS = 12, API_QP_LEAF = 1 << API_QP_LEAF_BITS };

struct api_ind_table;

/* The program's own memory for rings and records (BUF_ALLOCATORS of direct verbs). */
struct api_allocators {
	void *(*alloc)(size_t size, void *data);
	void (*free)(void *ptr, void *data);
	void *data;
};

struct api_context {
	struct vb_dev *dev;
	const struct api_provider *provider;
	struct api_allocators allocators;     /* alloc NULL: none */
	atomic_int users;                     /* see context.c */
	struct vb_verbs_extra *_Atomic extra; /* of direct verbs, see accessors.h */
	struct api_event_queue async;
	struct vb_list live[API_KINDS]; /* under mutex of the ibv_context */
	struct api_qp *_Atomic
		*_Atomic qp_table[API_QP_LEAF]; /* leaves are published once and stay */
	struct verbs_context verbs;             /* last: verbs_context ends in ibv_context */
};

/* --- protection domains and ring memory ------------------------------------------------------- */

struct api_td {
	struct ibv_td ibv; /* first */
	atomic_int users;
};

struct api_pd {
	struct ibv_pd ibv; /* first */
	struct vb_list node;
	struct vb_pd *card;  /* of the protection domain itself */
	struct api_pd *base; /* a parent domain's protection domain, or NULL */
	struct api_td *td;   /* a parent domain's thread domain, or NULL */
	atomic_int users;    /* address handles, parent domains, rings and objects of libflexio */
	atomic_int lent;     /* objects of libflexio; a parent domain's are its domain's */
	void *(*alloc)(struct ibv_pd *pd, void *context, size_t size, size_t align, uint64_t type);
	void (*free)(struct ibv_pd *pd, void *context, void *ptr, uint64_t type);
	void *alloc_context;
};

enum api_buf_type { API_BUF_QP, API_BUF_RWQ, API_BUF_SRQ, API_BUF_CQ, API_BUF_DBR };

/*
 * Memory for a ring or a doorbell record: from a parent domain's allocator, huge pages, or the
 * heap.
 */
struct api_buf {
	void *ptr;
	size_t bytes;              /* of a ring: whole pages */
	size_t huge;               /* bytes of huge pages; 0: it is not on any */
	struct api_pd *from;       /* whose allocator made it; NULL: the heap or the context's */
	struct api_allocators own; /* the context's allocators at that time; alloc NULL: unused */
	enum api_buf_type type;
};

struct api_dm {
	struct ibv_dm ibv; /* first */
	struct vb_list node;
	void *buf;
	size_t length;
	atomic_int users; /* memory regions */
};

struct api_mr {
	struct ibv_mr ibv; /* first */
	struct vb_list node;
	struct vb_mr *card;
	struct api_dm *dm; /* whose memory it is, or NULL */
};

struct api_ah {
	struct ibv_ah ibv; /* first */
};

/* --- completion queues ------------------------------------------------------------------------ */

struct api_channel {
	struct ibv_comp_channel ibv; /* first */
	struct api_event_queue queue;
};

enum { API_CQ_CI_MASK = 0xffffff }; /* the bits of a consumer index that are in the record */

struct api_cq {
	union {
		struct ibv_cq ibv;
		struct ibv_cq_ex ex;
	}; /* first */
	struct vb_list node;
	struct vb_cq *card;
	struct vb_dev *dev;
	struct api_pd *parent; /* parent domain of ibv_create_cq_ex(), or NULL */
	struct api_buf buf, dbr_buf;

	/* written by whoever polls, under the lock */
	struct vb_lock lock __attribute__((aligned(64)));
	bool unlocked;    /* single-threaded, as the program promised: no lock is taken */
	uint32_t ci;      /* consumer index; free running */
	uint32_t cqe_cnt; /* power of two */
	char *ring;
	uint32_t cqe_size;       /* bytes of an entry */
	uint8_t cqe_shift;       /* log2 of them */
	bool compressed;         /* entries may be arrays of mini CQEs */
	void *block;             /* the provider's: the array that is being polled; or NULL */
	bool timestamps;         /* CQEs have them */
	bool dv_owned;           /* direct verbs: the consumer index is the program's */
	__be32 *dbr;             /* [0] consumer index, [1] arm word */
	struct api_qp *last_qp;  /* of the last CQE: most polls meet the same QP again */
	const void *cur;         /* start_poll(): the CQE that read_*() look at */
	_Atomic uint32_t arm_sn; /* sequence number of armings, 2 bits in the arm word; no lock */

	/* events, under the channel's mutex; destruction waits until the fetched ones are acked */
	struct vb_list event; /* in the channel's queue while unread > 0 */
	uint32_t unread;      /* notifications that nobody fetched */
	uint32_t fetched;     /* by ibv_get_cq_event() */
	bool muted;           /* the CQ is going away: it has no more notifications */
	struct api_async async;
};

/* --- receive queues --------------------------------------------------------------------------- */

/*
 * The ring is a linked list through next_wqe_index. Entries from head on are free, in list order up
 * to and including tail, which is never posted: so every posted WQE already has its successor.
 */
struct api_srq {
	struct ibv_srq ibv; /* first */
	struct vb_list node;
	struct vb_srq *card;
	struct api_buf buf, dbr_buf;
	struct vb_lock lock;
	uint32_t wqe_cnt, wqe_shift, max_gs;
	uint32_t head, tail;
	uint32_t posted; /* to the doorbell record */
	uint64_t *wrid;
	struct api_async async;
};

/* --- queue pairs ------------------------------------------------------------------------------ */

struct api_sq_slot {
	uint64_t wr_id;
	uint32_t head; /* WR number: completing it also retires all before it */
};

struct api_sq {
	struct vb_lock lock;
	bool unlocked;   /* the QP's parent domain has a thread domain */
	bool signal_all; /* every WR is signalled */
	uint16_t max_gs;
	uint32_t max_inline;
	uint32_t max_post;     /* WRs that surely fit */
	uint32_t cnt;          /* blocks, power of two */
	uint32_t shift;        /* log2 of a block's bytes */
	uint32_t cur_post;     /* next basic block; free running */
	uint32_t head;         /* WRs posted */
	_Atomic uint32_t tail; /* WRs retired; written by the thread that polls the send CQ */
	char *buf, *end;
	struct api_sq_slot *slot; /* by basic block index */
};

struct api_rq {
	struct vb_lock lock;
	bool unlocked;
	uint32_t max_gs;
	uint32_t cnt;   /* WQEs, power of two */
	uint32_t shift; /* log2 of a WQE's bytes */
	uint32_t head;
	_Atomic uint32_t tail; /* written by the thread that polls the receive CQ */
	uint32_t strides;      /* so is this: of the WQE at tail, where WQEs have strides, so many
				  are done */
	char *buf;
	uint64_t *wrid;
};

struct api_qp {
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ex;
	}; /* first */
	struct vb_qp *card;
	__be32 *dbr; /* of both queues */
	struct api_sq sq __attribute__((aligned(64)));
	struct api_rq rq __attribute__((aligned(64)));
	bool has_ex; /* created with send_ops_flags: ibv_qp_to_qp_ex() works */
	struct ibv_qp_cap cap;
	struct vb_list node;
	struct api_buf buf, dbr_buf;
	bool is_wq;       /* the inside of a receive WQ */
	bool late_number; /* programs learn its number in RTR */
	bool vlan_strip, scatter_fcs;
	uint32_t max_tso_header;   /* bytes of headers that a large send may have; 0: none */
	struct api_ind_table *rss; /* or NULL */
	struct api_qp *rss_next;   /* of the same table; under the lock of the context */
	struct api_async async;
};

/*
 * A receive WQ is a QP without a send queue inside. Its CQEs carry the number of that QP, so
 * polling treats it as one.
 */
struct api_wq {
	struct ibv_wq ibv; /* first */
	struct api_qp *qp;
};

struct api_ind_table {
	struct ibv_rwq_ind_table ibv; /* first */
	uint32_t max_size;            /* queues that it was made with */
	atomic_int users;             /* QPs that have it */
	struct vb_list node;
	/* under the lock of the context */
	struct vb_rss queues; /* count and queues of it, each held */
	struct api_qp *qps;   /* by rss_next */
};

/* Attributes of a QP that ibv_qp_init_attr_ex does not have. */
struct api_qp_extra {
	bool wq; /* it is the inside of a receive WQ */
	bool vlan_strip, scatter_fcs;
	const void *direct; /* attributes of the provider's direct verbs, or NULL */
};

/* Attributes of a CQ that ibv_cq_init_attr_ex does not have. */
struct api_cq_extra {
	uint32_t cqe_size;   /* 0: that of the adapter */
	bool compressed;     /* in the basic layout of card/queue/compress.c */
	uint8_t mini_format; /* see struct vb_cq_attr */
	size_t block_bytes;  /* of api_cq.block, zeroed */
};

/* The header fields that RSS may hash over. */
enum {
	API_RX_HASH_FIELDS = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_IPV6 |
			     IBV_RX_HASH_DST_IPV6 | IBV_RX_HASH_SRC_PORT_TCP |
			     IBV_RX_HASH_DST_PORT_TCP | IBV_RX_HASH_SRC_PORT_UDP |
			     IBV_RX_HASH_DST_PORT_UDP,
};

enum { API_MAX_TSO_HEADER = 256 };

struct api_qp_layout {
	uint32_t sq_bytes, rq_bytes;
	uint32_t sq_offset, rq_offset; /* in the QP's one buffer */
};

/* --- conversions ------------------------------------------------------------------------------ */

static inline struct vb_verbs_device *to_device(struct ibv_device *device)
{
	return (struct vb_verbs_device *)device;
}

static inline struct api_context *to_context(struct ibv_context *context)
{
	return container_of(context, struct api_context, verbs.context);
}

static inline const struct api_provider *provider_of(struct ibv_context *context)
{
	return to_context(context)->provider;
}

/* Whether our parent opened it before a fork: events and lists of objects are the parent's. */
static inline bool api_is_inherited(struct ibv_context *context)
{
	return vb_dev_stale(to_context(context)->dev);
}

static inline struct vb_adapter *context_adapter(struct ibv_context *context)
{
	return to_device(context->device)->adapter;
}

static inline struct api_pd *to_pd(struct ibv_pd *pd)
{
	return (struct api_pd *)pd;
}

/* The card's protection domain behind a handle that may be a parent domain. */
static inline struct vb_pd *pd_card(struct ibv_pd *pd)
{
	struct api_pd *p = to_pd(pd);

	return p->base ? p->base->card : p->card;
}

static inline struct api_mr *to_mr(struct ibv_mr *mr)
{
	return (struct api_mr *)mr;
}

static inline struct api_dm *to_dm(struct ibv_dm *dm)
{
	return (struct api_dm *)dm;
}

static inline struct api_ah *to_ah(struct ibv_ah *ah)
{
	return (struct api_ah *)ah;
}

static inline struct api_channel *to_channel(struct ibv_comp_channel *channel)
{
	return (struct api_channel *)channel;
}

static inline struct api_cq *to_cq(struct ibv_cq *cq)
{
	return (struct api_cq *)cq;
}

/* Tell the card what was consumed; it must not overwrite CQEs that were not. */
static inline void cq_store_ci(struct api_cq *cq)
{
	__atomic_store_n(&cq->dbr[0], htobe32(cq->ci & API_CQ_CI_MASK), __ATOMIC_RELEASE);
}

static inline struct api_cq *ex_to_cq(struct ibv_cq_ex *cq)
{
	return (struct api_cq *)cq;
}

static inline struct api_srq *to_srq(struct ibv_srq *srq)
{
	return (struct api_srq *)srq;
}

static inline struct api_qp *to_qp(struct ibv_qp *qp)
{
	return (struct api_qp *)qp;
}

static inline struct api_qp *to_wq(struct ibv_wq *wq)
{
	return ((struct api_wq *)wq)->qp;
}

/* Rings of a program that promised to use them from one thread are not locked. */
static inline void api_lock(struct vb_lock *lock, bool unlocked)
{
	if (likely(!unlocked))
		vb_lock(lock);
}

static inline void api_unlock(struct vb_lock *lock, bool unlocked)
{
	if (likely(!unlocked))
		vb_unlock(lock);
}

/* Its mutex. A forked child has another lock for the contexts of its parent. */
void api_context_lock(struct ibv_context *context);
void api_context_unlock(struct ibv_context *context);
void api_track(struct ibv_context *context, enum api_kind kind, struct vb_list *node);
void api_track_first(struct ibv_context *context, enum api_kind kind, struct vb_list *node);
void api_untrack(struct ibv_context *context, struct vb_list *node);

/* --- across files ----------------------------------------------------------------------------- */

/* context.c */
struct ibv_context *api_context_open(struct vb_verbs_device *device, void *private_data);
struct api_qp *api_qp_find(struct api_context *ctx, uint32_t qpn);
/* The abandon() of providers whose queues are the core's. */
int api_abandon(struct vb_list *node, enum api_kind kind);
/* A context stays, though closed, while it has users. */
void api_context_get(struct ibv_context *context);
void api_context_put(struct ibv_context *context);

/* accessors.c */
extern const struct vb_verbs_objects api_objects;
extern const struct vb_verbs_rings api_rings;

/* event.c */
int api_event_queue_init(struct api_event_queue *queue);
void api_event_queue_destroy(struct api_event_queue *queue);
void api_event_queue_signal(struct api_event_queue *queue);
void api_event_queue_clear_fd(struct api_event_queue *queue);
int api_event_queue_wait(struct api_event_queue *queue);
void api_async_event(void *arg, const struct vb_event *event);
void api_async_mute(struct ibv_context *context, struct api_async *async, bool muted);
int api_async_close(struct ibv_context *context, bool inherited);
void api_wait_acked(struct ibv_context *context, pthread_mutex_t *mutex, pthread_cond_t *cond,
		    const uint32_t *acked, uint32_t fetched);
void api_acks_destroy(struct ibv_context *context, pthread_mutex_t *mutex, pthread_cond_t *cond);

/* channel.c */
void api_channel_notify(void *cookie);
void api_channel_mute(struct api_cq *cq, bool muted);

/* pd.c */
int api_buf_alloc(struct api_buf *buf, struct ibv_context *context, struct ibv_pd *pd, size_t size,
		  size_t align, enum api_buf_type type);
void api_buf_free(struct api_buf *buf);

/* huge.c */
/* NULL where there is no huge page. */
void *api_huge_alloc(size_t size);
void api_huge_free(void *ptr, size_t size);
void api_pd_get(struct ibv_pd *pd);
void api_pd_put(struct ibv_pd *pd);
void api_pd_lend(struct ibv_pd *pd, int by);
bool api_pd_lent(struct ibv_pd *pd);
bool api_pd_single_threaded(struct ibv_pd *pd);
struct ibv_td *api_td_alloc(struct ibv_context *context, struct ibv_td_init_attr *attr);
int api_td_dealloc(struct ibv_td *td);
struct ibv_pd *api_parent_domain_alloc(struct ibv_context *context,
				       struct ibv_parent_domain_init_attr *attr);

/* mr.c */
struct ibv_mr *api_mr_reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			  unsigned int access);

/* The same, of a range that was checked, and may be empty. */
struct ibv_mr *api_mr_reg_any(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			      unsigned int access);

/* dm.c */
struct ibv_dm *api_dm_alloc(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int api_dm_free(struct ibv_dm *dm);
int api_dm_abandon(struct vb_list *node);
/* Operations of addresses, by the numbers of the device. */
enum api_dm_op { API_DM_INCREMENT, API_DM_TEST_AND_SET, API_DM_OPS };
void *api_dm_map_op(struct ibv_dm *dm, uint8_t op);
/* A memory region of it is gone. */
void api_dm_put(struct api_dm *dm);
struct ibv_mr *api_dm_reg(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
			  unsigned int access);

/* query.c */
int api_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			struct ibv_device_attr_ex *attr, size_t attr_size);
int api_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		   size_t size);
int api_compat_query_port(struct ibv_context *context, uint8_t port,
			  struct _compat_ibv_port_attr *attr);
int api_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);

/* cq.c */
struct ibv_cq_ex *api_cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
struct ibv_cq_ex *api_cq_create(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
struct ibv_cq_ex *api_cq_create_extra(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr,
				      const struct api_cq_extra *extra);
int api_cq_modify(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int api_cq_resize(struct ibv_cq *cq, int cqe);
int api_cq_destroy(struct ibv_cq *cq);
void api_cq_clean(struct api_cq *cq, struct api_qp *qp);
/* Functions of ibv_cq_ex that do not look at the CQE. */
void api_cq_end_poll(struct ibv_cq_ex *cq);
uint64_t api_cq_wallclock_ns(uint64_t age);
uint32_t api_cq_read_flow_tag(struct ibv_cq_ex *cq);
void api_cq_read_tm_info(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *tm_info);

/* srq.c */
struct ibv_srq *api_srq_create_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
struct ibv_srq *api_srq_create(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int api_srq_number(struct ibv_srq *srq, uint32_t *number);
void api_srq_free_wqe(struct api_srq *srq, uint16_t index);

/* qp.c */
struct ibv_qp *api_qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *api_qp_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *api_qp_create_extra(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
				   const struct api_qp_extra *extra);
int api_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);
int api_qp_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int api_qp_query(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init);
int api_qp_destroy(struct ibv_qp *qp);

/* wq.c */
struct ibv_wq *api_wq_create(struct ibv_context *context, struct ibv_wq_init_attr *attr);
/* With attributes of the provider's direct verbs, or NULL. */
struct ibv_wq *api_wq_create_direct(struct ibv_context *context, struct ibv_wq_init_attr *attr,
				    const void *direct);
int api_wq_modify(struct ibv_wq *wq, struct ibv_wq_attr *attr);
int api_wq_destroy(struct ibv_wq *wq);
struct ibv_rwq_ind_table *api_ind_table_create(struct ibv_context *context,
					       struct ibv_rwq_ind_table_init_attr *attr);
int api_ind_table_destroy(struct ibv_rwq_ind_table *table);
void api_ind_table_abandon(struct vb_list *node);
/* See struct vb_verbs_rings. */
uint32_t api_ind_table_show(struct ibv_rwq_ind_table *table, struct vb_rss *queues);
void api_ind_table_swap(struct ibv_rwq_ind_table *table, struct vb_rss *queues);

/* flow.c */
struct ibv_flow *api_flow_create(struct ibv_qp *qp, struct ibv_flow_attr *attr);
int api_flow_destroy(struct ibv_flow *flow);
int api_flow_action_destroy(struct ibv_flow_action *action);
void api_flow_abandon(struct vb_list *node);

/* counters.c */
struct ibv_counters *api_counters_create(struct ibv_context *context,
					 struct ibv_counters_init_attr *attr);
int api_counters_destroy(struct ibv_counters *counters);
int api_counters_attach(struct ibv_counters *counters, struct ibv_counter_attach_attr *attr,
			struct ibv_flow *flow);
int api_counters_read(struct ibv_counters *counters, uint64_t *values, uint32_t count,
		      uint32_t flags);

/* post_refused.c: leave the log line of a work request that was not taken; each returns err */
int api_send_refused(struct api_qp *qp, const struct ibv_send_wr *wr, int err)
	__attribute__((cold));
int api_wr_refused(struct api_qp *qp, int err) __attribute__((cold));
int api_recv_refused(struct ibv_qp *qp, const struct ibv_recv_wr *wr, int err)
	__attribute__((cold));
int api_srq_recv_refused(struct api_srq *srq, const struct ibv_recv_wr *wr, int err)
	__attribute__((cold));

/* unsupported.c: every operation of the context answers EOPNOTSUPP */
void api_set_unsupported_ops(struct verbs_context *verbs);

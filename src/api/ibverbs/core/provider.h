/* SPDX-License-Identifier: MIT */
/*
 * The seam between the core of libibverbs and its providers: one table per kind of adapter.
 *
 *	 program     ibv_reg_mr() ...            ibv_poll_cq() ...: inline, verbs.h
 *	                 |                           |
 *	             core: arguments, lists          |  context->ops and verbs_context: filled from the table
 *	             of objects, events              |  when the device is opened, so that the data path
 *	                 |                           |  never meets the core
 *	                 v                           v
 *	             +---------- struct api_provider ---------+
 *	             |  mlx5/           mlx4/          hbl/   |
 *	             +----------------------------------------+
 *	                 |               |              |
 *	 card        card/card.h     card/card.h    card/hbl/hbl.h
 *
 * The core calls a provider through its table only, and never asks which one it has. A provider
 * calls the helpers of the core (objects.h) and may name functions of the core in its table: the
 * queues of mlx5 and mlx4 are both rings in memory, so the core makes, changes and destroys them
 * (cq.c, qp.c, srq.c), and asks the table for what differs (ring).
 *
 * Operations that a provider does not have are NULL. Then the core refuses with EOPNOTSUPP and a
 * line in the log: in the public function, or in unsupported.c where programs come through the
 * tables of the context.
 */
#pragma once

#include <infiniband/verbs.h>

#include "api/ibverbs/accessors.h"
#include "base/util.h"
#include "card/queue/qp.h"

struct api_ah;
struct api_context;
struct api_cq;
struct api_qp;
struct api_qp_layout;
struct api_srq;

/* Live objects, in the order in which ibv_close_device() removes what the program left behind. */
enum api_kind {
	API_KIND_FLOW,
	API_KIND_TABLE, /* of receive WQs */
	API_KIND_QP,
	API_KIND_SRQ,
	API_KIND_CQ,
	API_KIND_MR,
	API_KIND_DM,
	API_KIND_PD,
	API_KINDS
};

/* What differs between queues that are rings in memory. */
struct api_ring_ops {
	size_t qp_bytes; /* of its struct, which starts with struct api_qp */
	/*
	 * The sizes of a QP's rings, and qp->cap as the program gets it; 0 or a positive errno.
	 * direct: attributes of the provider's direct verbs, or NULL.
	 */
	int (*qp_size)(struct api_qp *qp, const struct ibv_qp_init_attr_ex *attr,
		       const void *direct, struct api_qp_layout *layout);
	/*
	 * Allocates additional memory of a QP, once its sizes are known: 0 or -errno. NULL: none.
	 */
	int (*qp_alloc)(struct api_qp *qp);
	void (*qp_free)(struct api_qp *qp);
	/* Adds the provider's own attributes to those for the card. NULL: none. */
	void (*qp_card_attr)(const struct api_qp *qp, struct vb_qp_attr *attr);
	/* ibv_wr_*() for a new QP; 0 or a positive errno. NULL: not supported. */
	int (*qp_set_ex_ops)(struct api_qp *qp, uint64_t send_ops_flags);
	/* The QP goes from RESET to INIT. NULL: nothing to do. */
	void (*qp_init)(struct api_qp *qp);
	/* The initial value of every new CQ: the functions of ibv_cq_ex. */
	const struct ibv_cq_ex *cq_ex;
	/*
	 * An entry of a CQE ring, for resizing and cleaning (polling is up to the provider). round
	 * is bit log2(cqe_cnt) of the entry's index: it flips with each pass over the ring, and
	 * tells who owns the entry.
	 */
	bool (*cqe_ready)(const void *entry, uint32_t size, bool round); /* it is the program's */
	void (*cqe_give)(void *entry, uint32_t size, bool round);        /* make it the card's */
	void (*cqe_move)(void *to, const void *from, uint32_t size, bool round); /* from is ready */
	uint32_t (*cqe_qpn)(const void *entry, uint32_t size);
	/* The index of the receive WQE that it completes; -1: it completes a send. */
	int32_t (*cqe_receive)(const void *entry, uint32_t size);
	/*
	 * Of a CQ with compressed entries, whose lock is held: no poll returns what is there of this
	 * QP, and receive WQEs of an SRQ go back. NULL: there are no such CQs.
	 */
	void (*cq_forget)(struct api_cq *cq, struct api_qp *qp);
	/*
	 * Of the same: the entries from an index on that belong together, 0 where there is nothing
	 * yet. bare is set where they are the rest of an array that is being polled.
	 */
	uint32_t (*cq_span)(const struct api_cq *cq, uint32_t index, bool *bare);
	/* The WQEs of a new SRQ, whose links are there. NULL: nothing to do. */
	void (*srq_preset)(struct api_srq *srq);
	/* The context's doorbell page; NULL where stores cannot be seen. */
	char *(*uar_page)(struct api_context *ctx);
	/* Atomics may have this many SGEs fewer than other requests. */
	uint8_t atomic_sges;
};

struct api_provider {
	/* --- what a device can do ------------------------------------------------------------- */

	uint64_t timestamp_mask;
	bool raw; /* RAW_PACKET QPs, receive WQs, indirection tables and flows */
	uint16_t max_flow_priority;
	size_t max_dm; /* bytes of device memory; 0: there is none */
	struct {
		uint32_t packet;         /* enum ibv_raw_packet_caps */
		uint32_t wq_flags;       /* enum ibv_wq_flags that ibv_create_wq() takes */
		uint32_t qp_flags;       /* enum ibv_qp_create_flags of a RAW_PACKET QP */
		uint64_t rx_hash_fields; /* enum ibv_rx_hash_fields */
		uint32_t max_tso;        /* bytes of a large send; 0: there are none */
		uint32_t max_rate;       /* kbit/s of packet pacing; 0: there is none */
		uint64_t wc_flags;       /* enum ibv_create_cq_wc_flags besides the core's */
	} raw_caps;
	/* Adjusts the attributes that the core has filled in. NULL: nothing to do. */
	void (*query_device)(struct api_context *ctx, struct ibv_device_attr *attr);

	/* --- contexts; NULL: nothing to do ---------------------------------------------------- */

	const struct verbs_ex_private *accessors; /* for direct verbs and libflexio */
	size_t context_bytes; /* of its struct, which starts with struct api_context */
	/*
	 * share() returns an existing context for another open, with one more reference, or NULL: a
	 * new one is made. unshare() drops a reference; true: it was the last. Opens and closes are
	 * serialised. A provider has both functions or none.
	 */
	struct ibv_context *(*share)(struct vb_verbs_device *device, const void *private_data);
	bool (*unshare)(struct api_context *ctx);
	/* private_data: of verbs_open_device(); NULL from ibv_open_device(). 0 or -errno. */
	int (*open)(struct api_context *ctx, void *private_data);
	/* After all objects that the program left behind were removed from the card. */
	void (*close)(struct api_context *ctx);
	/*
	 * Removes an object that the program left behind from the card. Its struct is not freed,
	 * because the program may still have pointers to it. 0, or -errno: something uses it, and
	 * it is asked again when that is gone.
	 */
	int (*abandon)(struct vb_list *node, enum api_kind kind);
	/* A protection domain is about to be allocated (0 or -errno); one was deallocated. */
	int (*pd_added)(struct api_context *ctx);
	void (*pd_removed)(struct api_context *ctx);
	/* ibv_get_async_event() is about to hand this out. */
	void (*async_event)(struct ibv_async_event *event);

	/* --- operations, with the conventions of verbs.h; arguments that no device takes are refused before  */

	/*
	 * Address handles: the bytes of its struct, which starts with struct api_ah, and what goes
	 * into WQEs. mac is zero where the neighbour is unknown.
	 */
	size_t ah_bytes;
	void (*fill_ah)(struct api_ah *ah, const struct vb_adapter *adapter,
			const struct ibv_ah_attr *attr, const uint8_t mac[ETHERNET_LL_SIZE]);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				 unsigned int access);
	struct ibv_cq_ex *(*create_cq)(struct ibv_context *context,
				       struct ibv_cq_init_attr_ex *attr);
	int (*resize_cq)(struct ibv_cq *cq, int cqe);
	int (*destroy_cq)(struct ibv_cq *cq);
	struct ibv_srq *(*create_srq)(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
	struct ibv_qp *(*create_qp)(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init);
	int (*destroy_qp)(struct ibv_qp *qp);

	/* These are copied into the tables of the context. */
	int (*poll_cq)(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
	int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
	int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
	int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
	int (*post_srq_recv)(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			     struct ibv_recv_wr **bad_wr);
	int (*query_rt_values)(struct ibv_context *context, struct ibv_values_ex *values);
	struct ibv_td *(*alloc_td)(struct ibv_context *context, struct ibv_td_init_attr *attr);
	struct ibv_pd *(*alloc_parent_domain)(struct ibv_context *context,
					      struct ibv_parent_domain_init_attr *attr);
	int (*modify_cq)(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
	struct ibv_wq *(*create_wq)(struct ibv_context *context, struct ibv_wq_init_attr *attr);
	int (*modify_wq)(struct ibv_wq *wq, struct ibv_wq_attr *attr);
	int (*destroy_wq)(struct ibv_wq *wq);
	struct ibv_rwq_ind_table *(*create_rwq_ind_table)(struct ibv_context *context,
							  struct ibv_rwq_ind_table_init_attr *attr);
	int (*destroy_rwq_ind_table)(struct ibv_rwq_ind_table *table);

	/* --- queues of the core's cq.c, qp.c and srq.c ---------------------------------------- */

	struct api_ring_ops ring;
};

extern const struct api_provider api_mlx5, api_mlx4, api_hbl;

/* provider.c */
const struct api_provider *api_provider_of(const struct vb_adapter *adapter);

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

struct vb_card; /* of one host: its adapters, and everything that they remember */

/* A configured adapter. Read-only after vb_card_adapters(). */
struct vb_adapter {
	struct vb_card *card;
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

/* The card that the program sees, with the adapters of its configuration. For the edge: src/api and tools. */
VB_PUBLIC struct vb_card *vb_card_program(void);
/* The adapters of the configuration, in order. -EINVAL where the configuration is bad. */
VB_PUBLIC int vb_card_adapters(struct vb_card *card, struct vb_adapter *const **list,
			       unsigned int *count);
VB_PUBLIC const struct vb_identity *vb_adapter_identity(const struct vb_adapter *adapter);
VB_PUBLIC void vb_adapter_query_port(const struct vb_adapter *adapter, uint32_t port,
				     struct ibv_port_attr *attr);
/*
 * Entry index of a port's GID table: 0, -ENODATA where empty. The first of an hbl port is that
 * port's own.
 */
VB_PUBLIC int vb_adapter_gid(const struct vb_adapter *adapter, uint32_t port, unsigned int index,
			     struct vb_gid *gid);
/* True where the GID belongs to the card's host, so that its QPs are reached without a wire. */
VB_PUBLIC bool vb_card_gid_is_local(struct vb_card *card, const union ibv_gid *gid);

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
VB_PUBLIC bool vb_progress_once(struct vb_card *card);
/*
 * Completions wake device code, or are looked for in memory, and nobody polls for them: see
 * vb_fabric_unpolled().
 */
VB_PUBLIC void vb_progress_unpolled(struct vb_dev *dev);

/* How work requests that move data left the card, since its first device was opened. */
struct vb_path_counters {
	uint64_t calls;   /* to a queue pair of this process */
	uint64_t stores;  /* by loads and stores in shared memory of another process */
	uint64_t copies;  /* directly into or out of the memory of another process, by the kernel */
	uint64_t packets; /* in packets, to be carried out by the other side */
};

VB_PUBLIC void vb_path_counters(struct vb_card *card, struct vb_path_counters *counters);

/* Bytes of a port, as this process moved them: whole frames, and the payload of RDMA. */
struct vb_traffic {
	uint64_t sent, received;
};

/* What peers read and wrote in our memory by themselves is theirs alone to count. */
VB_PUBLIC void vb_port_traffic(const struct vb_adapter *adapter, struct vb_traffic *traffic);

/*
 * Around what holds a lock that the card's callbacks take, too: a ring by a signal handler of the
 * program that comes in between is then put off. May be nested.
 */
VB_PUBLIC void vb_card_enter(void);
VB_PUBLIC void vb_card_leave(void);

/* SPDX-License-Identifier: MIT */
/*
 * How libmlx4, libmlx5, libhbl and libflexio reach the objects behind handles of libibverbs. The
 * only header of this folder that other folders include.
 *
 *	libmlx4  libmlx5  libhbl  libflexio
 *	    |        |       |        |
 *	    +--------+---+---+--------+
 *	                 v
 *	    verbs_context.priv: struct verbs_ex_private --+-- objects   every device
 *	                                                  +-- rings     mlx4, mlx5
 *	                                                  +-- mlx5      mlx5
 *	                                                  +-- hbl       hbl
 *
 * Every context has a pointer to these tables, in the member that verbs_context reserves for the
 * library. So the other libraries know none of its structs, and it exports no name that the real
 * library does not have. A table that a device does not have is NULL: callers check its format
 * first, with vb_verbs_format() or by the name of the device.
 */
#pragma once

#include <stdio.h>
#include <sys/types.h>
#include <infiniband/verbs.h>

#include "card/hbl/hbl.h"
#include "card/queue/qp.h"

struct vb_steer_counter;

/*
 * What an ibv_device is the beginning of, for callers that have no context yet. A program's list has the adapters of
 * its host; an adapter of another host (card/open.h) is opened through such a struct as well.
 */
struct vb_verbs_device {
	struct ibv_device ibv; /* first */
	struct vb_adapter *adapter;
	/* hbl: the context that opens without attributes share, and its process; see hbl/provider.c. */
	struct ibv_context *shared;
	pid_t shared_by;
};

static inline void vb_verbs_device_init(struct vb_verbs_device *device, struct vb_adapter *adapter)
{
	struct ibv_device *ibv = &device->ibv;

	*device = (struct vb_verbs_device){ .adapter = adapter };
	ibv->node_type = IBV_NODE_CA;
	ibv->transport_type = IBV_TRANSPORT_IB;
	snprintf(ibv->name, sizeof(ibv->name), "%s", adapter->config->name);
	snprintf(ibv->dev_name, sizeof(ibv->dev_name), "uverbs%u", adapter->index);
	snprintf(ibv->dev_path, sizeof(ibv->dev_path), "/sys/class/infiniband_verbs/uverbs%u",
		 adapter->index);
	snprintf(ibv->ibdev_path, sizeof(ibv->ibdev_path), "/sys/class/infiniband/%s", ibv->name);
}

static inline struct vb_adapter *vb_verbs_adapter(const struct ibv_device *device)
{
	return ((const struct vb_verbs_device *)device)->adapter;
}

/* What another library keeps for a context. */
struct vb_verbs_extra {
	/* The context closes, and its flows are gone: the library's objects end. */
	void (*close)(struct vb_verbs_extra *extra);
	/* It is closed: there are no events any more. */
	void (*free)(struct vb_verbs_extra *extra);
	/* Of a port or the whole device. From any thread; it must not call the card. */
	void (*event)(struct vb_verbs_extra *extra, const struct vb_event *event);
};

/* Objects that every device has. */
struct vb_verbs_objects {
	struct vb_dev *(*dev)(struct ibv_context *context);
	struct vb_pd *(*pd)(struct ibv_pd *pd); /* also behind a parent domain */
	struct vb_mr *(*mr)(struct ibv_mr *mr);
	struct vb_qp *(*qp)(struct ibv_qp *qp); /* not on hbl devices */
	/*
	 * Take and drop a reference to the context and the protection domain (or NULL). While there
	 * are any, deallocating the domain fails with EBUSY, and a context that was closed stays
	 * inside, with the domain and its memory regions. Drop it after the last use of either.
	 */
	void (*hold)(struct ibv_context *context, struct ibv_pd *pd);
	void (*release)(struct ibv_context *context, struct ibv_pd *pd);
	bool (*pd_lent)(struct ibv_pd *pd); /* there is such a reference */
	/*
	 * What flows count with the object, which is not destroyed until put_counters().
	 */
	struct vb_steer_counter *(*get_counters)(struct ibv_counters *counters);
	void (*put_counters)(struct ibv_counters *counters);
	/* Where the library of the device's direct verbs puts its own; NULL there: nothing yet. */
	struct vb_verbs_extra *_Atomic *(*extra)(struct ibv_context *context);
};

/*
 * What ibv_destroy_flow() and ibv_destroy_flow_action() get, whichever library made it: the public
 * struct, then who destroys it. 0 or a positive errno.
 */
struct vb_verbs_flow {
	struct ibv_flow ibv; /* first */
	int (*destroy)(struct vb_verbs_flow *flow);
};

struct vb_verbs_flow_action {
	struct ibv_flow_action ibv; /* first */
	int (*destroy)(struct vb_verbs_flow_action *action);
};

/* Queues that are rings in memory. */

struct vb_verbs_ring {
	char *buf;
	uint32_t cnt, shift; /* entries, and log2 of their bytes; cnt 0: there is none */
};

struct vb_verbs_qp {
	struct vb_qp *card;
	char *buf;    /* both rings */
	size_t bytes; /* whole pages, here and below */
	__be32 *dbr;  /* for receives, then for sends */
	struct vb_verbs_ring sq, rq;
};

struct vb_verbs_cq {
	struct vb_cq *card;
	void *buf;
	size_t bytes;
	uint32_t cqe_cnt, cqe_size;
	__be32 *dbr; /* consumer index, then arm word */
	uint32_t arm_sn;
};

struct vb_verbs_srq {
	struct vb_srq *card;
	void *buf;
	size_t bytes;
	uint32_t wqe_cnt, wqe_shift;
	uint32_t head, tail; /* of the free list */
	__be32 *dbr;
};

struct vb_verbs_rings {
	/* Describe the queues of an object. From then on the program may write to them itself. */
	void (*qp)(struct ibv_qp *qp, struct vb_verbs_qp *out);
	void (*wq)(struct ibv_wq *wq, struct vb_verbs_qp *out); /* no send queue */
	void (*srq)(struct ibv_srq *srq, struct vb_verbs_srq *out);
	/* The program also keeps the consumer index: a destroyed QP leaves its CQEs in the ring. */
	void (*cq)(struct ibv_cq *cq, struct vb_verbs_cq *out);
	/* The context's doorbell page; NULL where stores cannot be seen. */
	char *(*uar_page)(struct ibv_context *context);
	/*
	 * ibv_create_qp_ex() with attributes of direct verbs: for mlx4 a struct
	 * mlx4dv_qp_init_attr, for mlx5 a struct mlx5dv_qp_init_attr. NULL: none.
	 */
	struct ibv_qp *(*create_qp)(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
				    const void *direct);
	/*
	 * Allocators for the rings and records of objects that are created later; both NULL: none.
	 */
	void (*set_allocators)(struct ibv_context *context, void *(*alloc)(size_t size, void *data),
			       void (*free)(void *ptr, void *data), void *data);
	/*
	 * The queues of an indirection table, each held until vb_rq_put(), and how many it can
	 * have. Not in a forked child.
	 */
	uint32_t (*ind_table)(struct ibv_rwq_ind_table *table, struct vb_rss *queues);
	/*
	 * The queues become the table's, also for the QPs that have it, and those that it had the
	 * caller's, with what holds them. Each is the context's, and at most so many as above.
	 */
	void (*swap_ind_table)(struct ibv_rwq_ind_table *table, struct vb_rss *queues);
};

/* mlx5 devices. */

struct mlx5_wqe_av;
struct mlx5dv_cq_init_attr;
struct mlx5dv_wq_init_attr;
struct mlx5dv_qp_ex;

/* What struct mlx5dv_mkey is the beginning of, for the work requests that configure it. */
struct vb_verbs_mkey {
	uint32_t lkey, rkey; /* the program may change the low byte where update_tag is set */
	uint16_t max_entries;
	bool update_tag;
};

struct vb_verbs_mlx5 {
	/* The address vector of an address handle, as it goes into WQEs. */
	struct mlx5_wqe_av *(*av)(struct ibv_ah *ah);
	/* ibv_create_cq_ex() with attributes of direct verbs, or NULL. */
	struct ibv_cq_ex *(*create_cq)(struct ibv_context *context,
				       struct ibv_cq_init_attr_ex *attr,
				       const struct mlx5dv_cq_init_attr *direct);
	/* ibv_create_wq(), in the same way. */
	struct ibv_wq *(*create_wq)(struct ibv_context *context, struct ibv_wq_init_attr *attr,
				    const struct mlx5dv_wq_init_attr *direct);
	struct mlx5dv_qp_ex *(*qp_ex)(struct ibv_qp_ex *qp);
	/* WQEs of a QP in SQD with this wr_id become NOPs: their number, or -errno. */
	int (*cancel)(struct mlx5dv_qp_ex *qp, uint64_t wr_id);
	size_t max_memcpy; /* bytes of one work request */
	/*
	 * A number that no QP gets until it is released, or the context closed: 0 or a positive
	 * errno.
	 */
	int (*reserve_qpn)(struct ibv_context *context, uint32_t *qpn);
	int (*release_qpn)(struct ibv_context *context, uint32_t qpn);
	/* The memory of a DM. */
	void *(*dm)(struct ibv_dm *dm, size_t *length);
	uint32_t dm_ops; /* a bit for each operation that addresses of a DM can have */
	/* Such an address: NULL with errno. */
	void *(*dm_map_op)(struct ibv_dm *dm, uint8_t op);
	/* The transport domain of a context's RAW_PACKET QPs, and which of its frames one hears. */
	uint32_t (*transport_domain)(struct ibv_context *context);
	uint8_t (*loopback)(struct ibv_qp *qp); /* enum vb_tir_loopback */
};

/* hbl devices. */

/* The private_data that hbldv_open_device() passes to verbs_open_device(). */
struct vb_verbs_hbl_open {
	uint64_t ports_mask;
	int core_fd;
};

struct vb_verbs_hbl {
	struct vb_hbl *(*device)(struct ibv_context *context);
	/* NULL with errno; entries is a power of two. */
	struct ibv_cq *(*create_cq)(struct ibv_context *context, uint32_t entries,
				    struct ibv_comp_channel *channel, void *cq_context,
				    uint32_t port, bool cc);
	struct vb_hbl_cq *(*cq)(struct ibv_cq *cq);
	struct vb_hbl_qp *(*qp)(struct ibv_qp *qp);
	/* 0 or a positive errno, as ibv_modify_qp(). hbl NULL: its defaults. */
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			 const struct vb_hbl_qp_attr *hbl);
};

/* What verbs_context.priv points to; verbs.h only declares the name. */
struct verbs_ex_private {
	enum vb_format format;
	const struct vb_verbs_objects *objects;
	const struct vb_verbs_rings *rings;
	const struct vb_verbs_mlx5 *mlx5;
	const struct vb_verbs_hbl *hbl;
};

/* verbs.h does not declare it; libibverbs exports it for providers. */
struct ibv_context *verbs_open_device(struct ibv_device *device, void *private_data);

static inline const struct verbs_ex_private *vb_verbs_private(struct ibv_context *context)
{
	return verbs_get_ctx(context)->priv;
}

static inline enum vb_format vb_verbs_format(struct ibv_context *context)
{
	return vb_verbs_private(context)->format;
}

static inline const struct vb_verbs_rings *vb_verbs_rings(struct ibv_context *context)
{
	return vb_verbs_private(context)->rings;
}

static inline const struct vb_verbs_mlx5 *vb_verbs_mlx5(struct ibv_context *context)
{
	return vb_verbs_private(context)->mlx5;
}

static inline struct vb_dev *vb_verbs_dev(struct ibv_context *context)
{
	return vb_verbs_private(context)->objects->dev(context);
}

static inline struct vb_pd *vb_verbs_pd(struct ibv_pd *pd)
{
	return vb_verbs_private(pd->context)->objects->pd(pd);
}

static inline struct vb_mr *vb_verbs_mr(struct ibv_mr *mr)
{
	return vb_verbs_private(mr->context)->objects->mr(mr);
}

static inline struct vb_qp *vb_verbs_qp(struct ibv_qp *qp)
{
	return vb_verbs_private(qp->context)->objects->qp(qp);
}

static inline void vb_verbs_hold(struct ibv_context *context, struct ibv_pd *pd)
{
	vb_verbs_private(context)->objects->hold(context, pd);
}

static inline void vb_verbs_release(struct ibv_context *context, struct ibv_pd *pd)
{
	vb_verbs_private(context)->objects->release(context, pd);
}

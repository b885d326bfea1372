/* SPDX-License-Identifier: MIT */
/*
 * hbl devices (Gaudi network ports): what src/api/hbl and the preload ask of the card.
 *
 * Here the program drives the hardware itself: it writes work queue entries and doorbells, and
 * reads completions, in memory that the card hands out. So the card owns all of that memory.
 *
 *	vb_hbl ---+-- device memory: device virtual address -> host memory (HBM buffers, mapped host buffers)
 *	          +-- port 1 ---+-- QPs: send WQ, receive WQ      doorbell: FIFO --> QP --> packets
 *	          +-- port 2    +-- CQs, CC CQ
 *	          ...           +-- user FIFOs, encap
 *
 * A device has one owner process on a host and one context in it. Functions return 0 or -errno and
 * set outputs only on success. All are thread-safe; a destroyed object must not be passed again.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "card/card.h"

enum {
	VB_HBL_MAX_QPN = 8191, /* numbers 1 ... of a port */
	VB_HBL_FIFOS = 30,     /* of a port; ids 1 ... 30 */
	VB_HBL_CQ_FIRST = 2,   /* ids 2 ... 15 are the user's */
	VB_HBL_CQS = 14,       /* of a port, without the CC CQ */
	VB_HBL_CQE_MIN = 4,    /* entries of a CQ */
	VB_HBL_CQE_MAX = 8192,
	VB_HBL_CQE_SIZE = 16, /* bytes */
	VB_HBL_WQES_MIN = 16, /* entries of a work queue */
	VB_HBL_WQES_MAX = 32768,
	VB_HBL_ENCAP_HEADER_MAX = 32,
	VB_HBL_PATH_MTU_8192 = 6, /* beyond enum ibv_mtu */
	VB_HBL_DEFAULT_WQS = 128, /* of ports that the program does not set up itself */
	VB_HBL_DEFAULT_WQES = 256,
};

struct vb_hbl;
struct vb_hbl_cq;
struct vb_hbl_qp;
struct vb_hbl_fifo;
struct vb_hbl_encap;

/* --- the accelerator file, /dev/accel/accelN -------------------------------------------------- */

/*
 * Open accelN: a descriptor, -ENOENT where the configuration has no hbl_N, -EBUSY where it has an
 * owner. The descriptor can be mapped: the offset is the handle of an allocation.
 */
VB_PUBLIC int vb_hbl_accel_open(unsigned int number, int flags);
/* An ioctl on such a descriptor: 0 or -errno, -ENOTTY where the descriptor is not one of ours. */
VB_PUBLIC int vb_hbl_accel_ioctl(int fd, unsigned long request, void *arg);
/*
 * The program is about to close the descriptor: what it allocated goes, unless a context still
 * stands on it.
 */
VB_PUBLIC void vb_hbl_accel_close(int fd);

/* --- devices and ports ------------------------------------------------------------------------ */

/*
 * Open the device on an accelerator descriptor of this process, or on one of its own (core_fd -1;
 * then all ports are set up with defaults). ports_mask: bit p for port p, 0 for all. -EBUSY where
 * it has a context already.
 */
VB_PUBLIC int vb_hbl_open(struct vb_adapter *adapter, int core_fd, uint64_t ports_mask,
			  void (*async)(void *arg, const struct vb_event *event), void *arg,
			  struct vb_hbl **hbl);
/* Whatever is left of it is destroyed. */
VB_PUBLIC void vb_hbl_close(struct vb_hbl *hbl);
VB_PUBLIC uint64_t vb_hbl_ports(const struct vb_hbl *hbl);

struct vb_hbl_port_attr {
	uint32_t port;
	uint32_t max_wqs, max_wqes;
	bool wide;           /* send WQEs of 64 bytes */
	bool advanced;       /* congestion control */
	bool no_index_check; /* back-pressure offsets were given: WQE indices are not checked */
};

/* Once per port, else -EPERM. */
VB_PUBLIC int vb_hbl_port_setup(struct vb_hbl *hbl, const struct vb_hbl_port_attr *attr);

struct vb_hbl_port_info {
	uint32_t max_qps, qps, max_qpn;
	bool advanced, scale_out;
};

VB_PUBLIC int vb_hbl_port_query(struct vb_hbl *hbl, uint32_t port, struct vb_hbl_port_info *info);

/* --- completion queues ------------------------------------------------------------------------ */

struct vb_hbl_cq_info {
	void *mem, *pi, *regs;
	uint32_t size; /* bytes */
	uint32_t entries;
	uint32_t number, regs_offset;
	bool cc;
};

/*
 * port 0: for queue pairs of all ports, with a number on each that is set up; -EBUSY where one has
 * none left. Entries are rounded up to a power of two, at least VB_HBL_CQE_MIN.
 */
VB_PUBLIC int vb_hbl_cq_create(struct vb_hbl *hbl, uint32_t port, uint32_t entries, bool cc,
			       void *cookie, struct vb_hbl_cq **cq);
VB_PUBLIC int vb_hbl_cq_destroy(struct vb_hbl_cq *cq); /* -EBUSY while a QP uses it */
/* The answer that the destruction would have; for those who have to wait before it. */
VB_PUBLIC int vb_hbl_cq_check_unused(struct vb_hbl_cq *cq);
VB_PUBLIC void vb_hbl_cq_query(const struct vb_hbl_cq *cq, struct vb_hbl_cq_info *info);

/* --- queue pairs ------------------------------------------------------------------------------ */

/* What the work queue of a queue pair is for; WRITE may come together with RECV_RDV or READ_RDV. */
enum vb_hbl_wq_type {
	VB_HBL_WQ_WRITE = 0x1,
	VB_HBL_WQ_RECV_RDV = 0x2,
	VB_HBL_WQ_READ_RDV = 0x4,
	VB_HBL_WQ_SEND_RDV = 0x8,
	VB_HBL_WQ_READ_RDV_ENDP = 0x10,
};

enum vb_hbl_qp_caps {
	VB_HBL_QP_LOOPBACK = 0x1,
	VB_HBL_QP_CONG_CTRL = 0x2,
	VB_HBL_QP_COMPRESSION = 0x4,
	VB_HBL_QP_ENCAP = 0x10,
};

struct vb_hbl_qp_attr {
	uint64_t caps;
	uint32_t local_key, remote_key, congestion_window, dest_wq_size;
	uint32_t wq_type; /* enum vb_hbl_wq_type */
	bool wide;
	uint8_t priority, encap;
	uint32_t qpn_hint; /* INIT: a number of vb_hbl_qpn_reserve(); 0: any */
};

struct vb_hbl_qp_info {
	uint32_t qpn;    /* 0 before INIT */
	void *swq, *rwq; /* NULL before RTS */
	enum ibv_qp_state state;
	struct ibv_qp_attr attr; /* as modify set it */
};

/* Entries of its work queues are rounded up to a power of two, at least VB_HBL_WQES_MIN. */
VB_PUBLIC int vb_hbl_qp_create(struct vb_hbl *hbl, struct vb_hbl_cq *req_cq,
			       struct vb_hbl_cq *res_cq, uint32_t max_wqes, void *cookie,
			       struct vb_hbl_qp **qp);
/*
 * Gaudi3: a number that no queue pair of a port has, nor gets but by its hint. It is free again when
 * the last queue pair that had it is gone, or the device is closed. -EBUSY: there is none.
 */
VB_PUBLIC int vb_hbl_qpn_reserve(struct vb_hbl *hbl, uint32_t *qpn);
/* RESET, INIT, RTR, RTS, ERR; -EINVAL and nothing changed where anything is wrong. */
VB_PUBLIC int vb_hbl_qp_modify(struct vb_hbl_qp *qp, const struct ibv_qp_attr *attr, int mask,
			       const struct vb_hbl_qp_attr *hbl);
VB_PUBLIC void vb_hbl_qp_query(struct vb_hbl_qp *qp, struct vb_hbl_qp_info *info);
/* When this returns, the card touches neither its queues nor CQs on its behalf. */
VB_PUBLIC void vb_hbl_qp_destroy(struct vb_hbl_qp *qp);

/* --- user FIFOs and encapsulation ------------------------------------------------------------- */

enum vb_hbl_fifo_type { VB_HBL_FIFO_DB, VB_HBL_FIFO_CC };

struct vb_hbl_fifo_info {
	void *ci, *regs;
	uint32_t regs_offset, number, size, bp_thresh;
};

/* hint 0: any number; else that one, or -EBUSY. */
VB_PUBLIC int vb_hbl_fifo_create(struct vb_hbl *hbl, uint32_t port, enum vb_hbl_fifo_type type,
				 uint32_t hint, struct vb_hbl_fifo **fifo);
VB_PUBLIC void vb_hbl_fifo_query(const struct vb_hbl_fifo *fifo, struct vb_hbl_fifo_info *info);
/* Everything stored before is carried out; a later store faults in the program. */
VB_PUBLIC void vb_hbl_fifo_destroy(struct vb_hbl_fifo *fifo);
/* What a store into the register page does; the trap calls it, and so do tests. */
VB_PUBLIC void vb_hbl_fifo_store(struct vb_hbl_fifo *fifo, uint32_t offset, const void *data,
				 uint32_t size);

enum vb_hbl_encap_type { VB_HBL_ENCAP_NONE, VB_HBL_ENCAP_IPV4, VB_HBL_ENCAP_UDP };

struct vb_hbl_encap_attr {
	uint32_t port;
	enum vb_hbl_encap_type type;
	uint32_t ipv4_addr;
	uint16_t proto_or_port;
	const void *header; /* copied; not looked at where the type is none */
	uint32_t header_size;
};

VB_PUBLIC int vb_hbl_encap_create(struct vb_hbl *hbl, const struct vb_hbl_encap_attr *attr,
				  struct vb_hbl_encap **encap);
VB_PUBLIC uint32_t vb_hbl_encap_number(const struct vb_hbl_encap *encap);
VB_PUBLIC int vb_hbl_encap_destroy(struct vb_hbl_encap *encap); /* -EBUSY while a QP uses it */

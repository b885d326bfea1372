/* SPDX-License-Identifier: MIT */
/*
 * hbl direct verbs: user FIFOs, work queues and completion queues of Gaudi network ports.
 *
 * The order of calls: open the device (hbldv_open_device), set up every port that is to be used (hbldv_set_port_ex), then
 * completion queues, queue pairs and FIFOs. A queue pair has a hardware number from INIT on and its work queues in memory
 * from RTS on (hbldv_query_qp). hbldv(7) has the whole sequence and the layouts of what lies in these memories.
 *
 * Functions return 0 or an errno value, or a pointer or NULL with errno. Reserved fields are to be zero.
 */
#ifndef HBLDV_H
#define HBLDV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HBLDV_USER_BP_OFFS_MAX           16
#define HBLDV_PORT_EX_ATTR_RESERVED0_NUM 2

/* A path MTU beyond enum ibv_mtu, for ibv_qp_attr.path_mtu. */
#define HBL_IB_MTU_8192 6

/* hbldv_qp_attr.caps */
enum hbldv_qp_caps {
	HBLDV_QP_CAP_LOOPBACK = 0x1,    /* the peer is a queue pair of the same device */
	HBLDV_QP_CAP_CONG_CTRL = 0x2,   /* acknowledgements are reported to the port's CC CQ */
	HBLDV_QP_CAP_COMPRESSION = 0x4, /* accepted; has no effect */
	HBLDV_QP_CAP_RESERVED0 = 0x8,
	HBLDV_QP_CAP_ENCAP = 0x10, /* encap_num is valid */
	HBLDV_QP_CAP_RESERVED1 = 0x20,
	HBLDV_QP_CAP_COLL = 0x20, /* INIT: qp_num_hint is valid, of hbldv_reserve_coll_qps() */
	HBLDV_QP_CAP_RESERVED2 = 0x40,
	HBLDV_QP_CAP_MIGRATE = 0x40, /* refused */
};

/* hbldv_port_ex_attr.caps */
enum hbldv_port_ex_caps {
	HBLDV_PORT_CAP_ADVANCED = 0x1,         /* congestion control and back-pressure offsets */
	HBLDV_PORT_CAP_ADAPTIVE_TIMEOUT = 0x2, /* accepted; has no effect */
};

/* hbldv_device_attr.caps */
enum hbldv_device_attr_caps {
	HBLDV_DEVICE_ATTR_CAP_CC = 1 << 0, /* congestion control */
};

enum hbldv_mem_id {
	HBLDV_MEM_HOST = 1,
	HBLDV_MEM_DEVICE = 2,
};

enum hbldv_wq_array_type {
	HBLDV_WQ_ARRAY_TYPE_GENERIC = 0,
	HBLDV_WQ_ARRAY_TYPE_RESERVED1 = 1,
	HBLDV_WQ_ARRAY_TYPE_RESERVED2 = 2,
	HBLDV_WQ_ARRAY_TYPE_RESERVED3 = 3,
	HBLDV_WQ_ARRAY_TYPE_RESERVED4 = 4,
	HBLDV_WQ_ARRAY_TYPE_MAX = 5,
};

/* Size of a send work queue entry. */
enum hbldv_swq_granularity {
	HBLDV_SWQE_GRAN_32B = 0,
	HBLDV_SWQE_GRAN_64B = 1,
};

enum hbldv_usr_fifo_type {
	HBLDV_USR_FIFO_TYPE_DB = 0, /* doorbells of work queues */
	HBLDV_USR_FIFO_TYPE_CC = 1, /* congestion-control messages */
};

enum hbldv_qp_wq_types {
	HBLDV_WQ_WRITE = 0x1,
	HBLDV_WQ_RECV_RDV = 0x2,
	HBLDV_WQ_READ_RDV = 0x4,
	HBLDV_WQ_SEND_RDV = 0x8,
	HBLDV_WQ_READ_RDV_ENDP = 0x10,
};

enum hbldv_cq_type {
	HBLDV_CQ_TYPE_QP = 0, /* completions of work queues */
	HBLDV_CQ_TYPE_CC = 1, /* congestion-control reports */
};

enum hbldv_encap_type {
	HBLDV_ENCAP_TYPE_NO_ENC = 0,
	HBLDV_ENCAP_TYPE_ENC_OVER_IPV4 = 1,
	HBLDV_ENCAP_TYPE_ENC_OVER_UDP = 2,
};

struct hbldv_ucontext_attr {
	uint64_t ports_mask; /* bit p: port p is used; ports count from 1. 0: all */
	int core_fd;         /* the open /dev/accel/accelN of this device */
};

struct hbldv_wq_array_attr {
	uint32_t max_num_of_wqs;        /* queue pairs on this port, at least 2 */
	uint32_t max_num_of_wqes_in_wq; /* 16 to 32768, a power of two */
	enum hbldv_mem_id mem_id;
	enum hbldv_swq_granularity swq_granularity;
};

struct hbldv_port_ex_attr {
	struct hbldv_wq_array_attr wq_arr_attr[HBLDV_WQ_ARRAY_TYPE_MAX];
	uint64_t caps;                                  /* enum hbldv_port_ex_caps */
	uint32_t qp_wq_bp_offs[HBLDV_USER_BP_OFFS_MAX]; /* back-pressure offsets; need ADVANCED */
	uint32_t reserved0[HBLDV_PORT_EX_ATTR_RESERVED0_NUM];
	uint32_t port_num;
	uint8_t reserved1;
};

struct hbldv_query_port_attr {
	uint32_t max_num_of_qps;
	uint32_t num_allocated_qps;
	uint32_t max_allocated_qp_num; /* the highest of their numbers; 0: none */
	uint32_t max_cq_size;          /* bytes */
	uint32_t reserved0;
	uint32_t reserved1;
	uint32_t reserved2;
	uint32_t reserved3;
	uint32_t reserved4;
	uint8_t advanced; /* set up with HBLDV_PORT_CAP_ADVANCED */
	uint8_t max_num_of_cqs;
	uint8_t max_num_of_usr_fifos;
	uint8_t max_num_of_encaps;
	uint8_t nic_macro_idx;
	uint8_t nic_phys_port_idx;
};

struct hbldv_qp_attr {
	uint64_t caps;           /* RTR: enum hbldv_qp_caps */
	uint32_t local_key;      /* RTR: what the peer's remote_key must be */
	uint32_t remote_key;     /* RTS */
	uint32_t congestion_wnd; /* RTS: packets in flight, 0: the largest */
	union {
		uint32_t reserved0;
		uint32_t qp_num_hint; /* INIT, with HBLDV_QP_CAP_COLL: the number that it gets */
	};
	uint32_t dest_wq_size;          /* RTS: rendezvous, entries of the peer's work queue */
	enum hbldv_qp_wq_types wq_type; /* INIT; WRITE alone, or with RECV_RDV or READ_RDV */
	enum hbldv_swq_granularity wq_granularity; /* INIT */
	uint8_t priority;                          /* RTR, RTS: 0 to 3 */
	uint8_t reserved1;
	uint8_t reserved2;
	uint8_t encap_num; /* RTR, with HBLDV_QP_CAP_ENCAP */
	uint8_t reserved3;
};

struct hbldv_query_qp_attr {
	uint32_t qp_num;    /* of the port; 0 before INIT */
	void *swq_cpu_addr; /* NULL before RTS */
	void *rwq_cpu_addr;
};

struct hbldv_usr_fifo_attr {
	uint32_t port_num;
	uint32_t reserved0;
	uint32_t reserved1;
	uint32_t usr_fifo_num_hint; /* 0: any */
	enum hbldv_usr_fifo_type usr_fifo_type;
	uint8_t reserved2;
};

struct hbldv_usr_fifo {
	void *ci_cpu_addr;    /* uint32_t that the device writes */
	void *regs_cpu_addr;  /* + regs_offset: where doorbells are stored */
	uint32_t regs_offset; /* bytes */
	uint32_t usr_fifo_num;
	uint32_t size;
	uint32_t bp_thresh;
};

struct hbldv_cq_attr {
	uint8_t port_num;
	enum hbldv_cq_type cq_type;
};

struct hbldv_cq {
	struct ibv_cq *ibvcq;
	void *mem_cpu_addr;  /* the entries */
	void *pi_cpu_addr;   /* producer index that the device writes */
	void *regs_cpu_addr; /* + regs_offset: where the program stores its consumer index */
	uint32_t
		cq_size; /* bytes of mem_cpu_addr, whole pages; ibvcq->cqe is the number of entries */
	uint32_t cq_num;
	uint32_t regs_offset;
};

struct hbldv_query_cq_attr {
	struct ibv_cq *ibvcq;
	void *mem_cpu_addr;
	void *pi_cpu_addr;
	void *regs_cpu_addr;
	uint32_t cq_size;
	uint32_t cq_num;
	uint32_t regs_offset;
	enum hbldv_cq_type cq_type;
};

struct hbldv_cc_cq_attr {
	uint32_t port_num;
	uint32_t num_of_cqes;
};

struct hbldv_cc_cq {
	void *mem_cpu_addr;
	void *pi_cpu_addr;
	size_t cqe_size;
	uint32_t num_of_cqes;
};

struct hbldv_coll_qp_attr {
	uint8_t is_scale_out; /* has no effect: ports of both kinds have the same numbers */
};

struct hbldv_coll_qp {
	uint32_t qp_num;
};

struct hbldv_encap_attr {
	uint64_t tnl_hdr_ptr; /* the header that goes in front of packets */
	uint32_t tnl_hdr_size;
	uint32_t ipv4_addr; /* source address, for all types */
	uint32_t port_num;
	union {
		uint16_t udp_dst_port; /* HBLDV_ENCAP_TYPE_ENC_OVER_UDP */
		uint16_t ip_proto;     /* HBLDV_ENCAP_TYPE_ENC_OVER_IPV4 */
	};
	enum hbldv_encap_type encap_type;
};

struct hbldv_encap {
	uint32_t encap_num;
};

struct hbldv_device_attr {
	uint64_t caps;       /* enum hbldv_device_attr_caps */
	uint64_t ports_mask; /* bit p: port p is in use by this context */
};

/* True for devices whose queues these functions speak. */
bool hbldv_is_supported(struct ibv_device *device);

/* Open the device on an accelerator file that is open already. EBUSY: it has an owner. attr NULL: as ibv_open_device(). */
struct ibv_context *hbldv_open_device(struct ibv_device *device, struct hbldv_ucontext_attr *attr);

int hbldv_query_device(struct ibv_context *context, struct hbldv_device_attr *attr);

/* Set up a port, once, before anything else on it. */
int hbldv_set_port_ex(struct ibv_context *context, struct hbldv_port_ex_attr *attr);
int hbldv_query_port(struct ibv_context *context, uint32_t port_num,
		     struct hbldv_query_port_attr *attr);

struct ibv_cq *hbldv_create_cq(struct ibv_context *context, int cqe,
			       struct ibv_comp_channel *channel, int comp_vector,
			       struct hbldv_cq_attr *attr);
int hbldv_query_cq(struct ibv_cq *ibvcq, struct hbldv_query_cq_attr *attr);

int hbldv_query_qp(struct ibv_qp *ibvqp, struct hbldv_query_qp_attr *attr);
/* hl_attr NULL: as ibv_modify_qp(). */
int hbldv_modify_qp(struct ibv_qp *ibvqp, struct ibv_qp_attr *attr, int attr_mask,
		    struct hbldv_qp_attr *hl_attr);

/* Gaudi3: reserve a number for queue pairs of the same number on several ports. EBUSY: none is free on all. */
int hbldv_reserve_coll_qps(struct ibv_pd *ibvpd, struct hbldv_coll_qp_attr *attr,
			   struct hbldv_coll_qp *coll_qp);
/* EOPNOTSUPP. */
int hbldv_migrate_qp(struct ibv_qp *ibvqp);

struct hbldv_usr_fifo *hbldv_create_usr_fifo(struct ibv_context *context,
					     struct hbldv_usr_fifo_attr *attr);
int hbldv_destroy_usr_fifo(struct hbldv_usr_fifo *usr_fifo);

struct hbldv_encap *hbldv_create_encap(struct ibv_context *context, struct hbldv_encap_attr *attr);
int hbldv_destroy_encap(struct hbldv_encap *encap);

#ifdef __cplusplus
}
#endif

#endif

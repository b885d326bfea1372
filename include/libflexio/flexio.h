/* SPDX-License-Identifier: MIT */
/*
 * FlexIO, the host side: load device programs onto an adapter's accelerator (the DPA), give them
 * memory, queues and events, call their functions.
 *
 *	flexio_app            a device program: an ELF file and the functions it offers
 *	  `- flexio_process   the program loaded on one adapter, with its own device memory
 *	       |- device heap           flexio_buf_dev_alloc, flexio_copy_from_host, flexio_memcpy
 *	       |- flexio_mkey           a key over device memory, for queues and remote peers
 *	       |- flexio_msg_stream     where messages of device code come out
 *	       |- flexio_event_handler  a device thread that runs when something triggers it
 *	       `- flexio_cq, _qp, _sq, _rq, _rmp, _window, _outbox, _cmdq
 *
 * Rules of every function
 *   - Outputs are written on success only, where nothing else is said. Handles that cannot be valid
 *     are refused: FLEXIO_STATUS_FAILED, UINT32_MAX, NULL or -1, and a line in the log.
 *   - Objects in use are not destroyed: destroy in the reverse order of creation.
 *   - All may be called from several threads at once. Destroying an object waits for functions that other
 *     threads are in; those that begin later are refused, as long as nothing new has the same address.
 *
 * Which functions do not work yet is listed in docs/deviations.md and in the manual pages.
 */
#ifndef FLEXIO_H
#define FLEXIO_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <pthread.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "flexio_ver.h"

#ifndef FLEXIO_VER_USED
#define FLEXIO_VER_USED FLEXIO_CURRENT_VERSION
#elif FLEXIO_VER_USED == FLEXIO_VER_LATEST
#undef FLEXIO_VER_USED
#define FLEXIO_VER_USED FLEXIO_CURRENT_VERSION
#endif

#if FLEXIO_VER_USED > FLEXIO_CURRENT_VERSION
#error "FLEXIO_VER_USED is newer than this library; see FLEXIO_CURRENT_VERSION in flexio_ver.h"
#endif

/* An interface that stays. */
#define FLEXIO_STABLE __attribute__((visibility("default"), used))
/*
 * One that may change: the compiler warns of it unless FLEXIO_ALLOW_EXPERIMENTAL_API is defined. It only warns: without
 * the pragma -Werror would end the build. Deprecated names of others are warnings from here on, too; whoever wants errors
 * of those allows the experimental functions.
 */
#ifdef FLEXIO_ALLOW_EXPERIMENTAL_API
#define FLEXIO_EXPERIMENTAL __attribute__((section(".text.experimental"))) FLEXIO_STABLE
#else
#pragma GCC diagnostic warning "-Wdeprecated-declarations"
#define FLEXIO_EXPERIMENTAL                                             \
	__attribute__((deprecated("Symbol is defined as experimental"), \
		       section(".text.experimental"))) FLEXIO_STABLE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- constants ---------------------------------------------------------------------------- */

/* Longest name of an app, a function or an object, without the terminating NUL. */
#define FLEXIO_MAX_NAME_LEN (256)

/* Message streams. */
#define FLEXIO_MSG_DEV_LOG_DATA_CHUNK_BSIZE 9
#define FLEXIO_MSG_DEV_MAX_STREAMS_AMOUNT   255
#define FLEXIO_MSG_DEV_DEFAULT_STREAM_ID    0
#define FLEXIO_MSG_DEV_BROADCAST_STREAM     0xff

/* Levels of messages and streams: a stream shows messages up to its own level. */
#define FLEXIO_MSG_DEV_NO_PRINT     0
#define FLEXIO_MSG_DEV_ALWAYS_PRINT 1
#define FLEXIO_MSG_DEV_ERROR        2
#define FLEXIO_MSG_DEV_WARN         3
#define FLEXIO_MSG_DEV_INFO         4
#define FLEXIO_MSG_DEV_DEBUG        5

#if FLEXIO_VER_USED < FLEXIO_VER(24, 10, 0)
/* The execution units of the first cards. */
#define PHY_CORES_NUM   16
#define EUS_PER_CORE    16
#define EUS_LIMIT       (PHY_CORES_NUM * EUS_PER_CORE)
#define OS_RESERVED_EUS 2
#define USER_EUS_LIMIT  (EUS_LIMIT - OS_RESERVED_EUS)
#define EU_BITMASK_LEN  32
#endif

/* ---- types -------------------------------------------------------------------------------- */

typedef uint64_t flexio_uintptr_t;     /* an address in device memory */
typedef uint32_t flexio_uar_device_id; /* a UAR extended to another device */
typedef uint8_t flexio_msg_dev_level;  /* FLEXIO_MSG_DEV_NO_PRINT ... FLEXIO_MSG_DEV_DEBUG */
typedef void(flexio_func_t)(void);     /* the host's stand-in of a device function */
/* Writes the arguments of one call into argbuf. Made by dpacc, called by flexio_process_call. */
typedef void(flexio_func_arg_pack_fn_t)(void *argbuf, va_list ap);

typedef enum flexio_status {
	FLEXIO_STATUS_SUCCESS = 0,
	FLEXIO_STATUS_FAILED = 1,
	FLEXIO_STATUS_TIMEOUT = 2,   /* the call took longer than allowed; the process goes on */
	FLEXIO_STATUS_FATAL_ERR = 3, /* the device process is dead, see flexio_err_status_get */
} flexio_status;

/* What flexio_err_status_get answered before 24.10; a code since. */
enum flexio_err_status {
	FLEXIO_DEV_NO_ERROR = 0,
	FLEXIO_DEV_FATAL_ERROR = 1,
	FLEXIO_DEV_USER_ERROR = 2,
};

typedef enum flexio_log_lvl {
	FLEXIO_LOG_LVL_ERR = 0,
	FLEXIO_LOG_LVL_WARN = 1,
	FLEXIO_LOG_LVL_INFO = 2,
	FLEXIO_LOG_LVL_DBG = 3,
} flexio_log_lvl_t;

enum flexio_hw_model_id {
	FLEXIO_HW_MODEL_DEF = 0, /* not said */
	FLEXIO_HW_MODEL_CX7 = 1,
	FLEXIO_HW_MODEL_BF3 = 2,
	FLEXIO_HW_MODEL_CX8 = 3,
	FLEXIO_HW_MODEL_CX9 = 4,
	FLEXIO_HW_MODEL_NA = 0xFFFF, /* an adapter without an accelerator */
};

enum flexio_memtype {
	FLEXIO_MEMTYPE_DPA = 0,
	FLEXIO_MEMTYPE_HOST = 1,
};

enum flexio_affinity_type {
	FLEXIO_AFFINITY_NONE = 0,   /* any execution unit */
	FLEXIO_AFFINITY_STRICT = 1, /* this one */
	FLEXIO_AFFINITY_GROUP = 2,  /* one of a group */
};

enum flexio_cmdq_state {
	FLEXIO_CMDQ_STATE_PENDING = 0,
	FLEXIO_CMDQ_STATE_RUNNING = 1,
};

enum flexio_cq_element_type {
	FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD = 0x0,
	FLEXIO_CQ_ELEMENT_TYPE_EXT_EQ = 0x2,
	FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ = 0x8,
	FLEXIO_CQ_ELEMENT_TYPE_DPA_MSIX_EMULATED_CQ = 0x9,
};

enum flexio_cq_period_mode {
	FLEXIO_CQ_PERIOD_MODE_EVENT = 0x0,
	FLEXIO_CQ_PERIOD_MODE_CQE = 0x1,
};

enum flexio_cqe_comp_type {
	FLEXIO_CQE_COMP_NONE = 0x0,
	FLEXIO_CQE_COMP_BASIC = 0x1, /* before 24.10 */
	FLEXIO_CQE_COMP_ENH = 0x2,   /* before 24.10 */
	FLEXIO_CQE_COMP_ENABLE = 0x2,
};

enum flexio_cqe_comp_format {
	FLEXIO_CQE_FORMAT_RESP_BYTECOUNT_HASH = 0x0,
	FLEXIO_CQE_FORMAT_RESP_BYTECOUNT_CKSUM = 0x1,
	FLEXIO_CQE_FORMAT_RESP_FLOW_TAG = 0x2,
	FLEXIO_CQE_FORMAT_RESP_BYTECOUNT_CKSUM_STRIDE_INDEX = 0x3,
	FLEXIO_CQE_FORMAT_RESP_L3_L4_INFO = 0x4,
};

enum flexio_wq_type {
	FLEXIO_WQ_TYPE_LINKED_LIST = 0x0,
	FLEXIO_WQ_TYPE_CYCLIC = 0x1,
};

enum flexio_wq_end_pad_mode {
	FLEXIO_WQ_END_PAD_NONE = 0x0,
	FLEXIO_WQ_END_PAD_ALIGN = 0x1,
};

enum flexio_qp_op_types {
	FLEXIO_QP_WR_RDMA_WRITE = 0x4,
	FLEXIO_QP_WR_RDMA_READ = 0x8,
	FLEXIO_QP_WR_ATOMIC_CMP_AND_SWAP = 0x10,
};

enum flexio_qp_qpc_mtu {
	FLEXIO_QP_QPC_MTU_BYTES_256 = 0x1,
	FLEXIO_QP_QPC_MTU_BYTES_512 = 0x2,
	FLEXIO_QP_QPC_MTU_BYTES_1K = 0x3,
	FLEXIO_QP_QPC_MTU_BYTES_2K = 0x4,
	FLEXIO_QP_QPC_MTU_BYTES_4K = 0x5,
};

enum flexio_qp_qpc_rq_type {
	FLEXIO_QP_QPC_RQ_TYPE_REGULAR = 0x0,
	FLEXIO_QP_QPC_RQ_TYPE_SRQ_RMP_XRC_SRQ_XRQ = 0x1,
	FLEXIO_QP_QPC_RQ_TYPE_ZERO_SIZE_RQ = 0x3,
};

enum flexio_qp_state {
	FLEXIO_QP_STATE_RST = 0x0,
	FLEXIO_QP_STATE_INIT = 0x1,
	FLEXIO_QP_STATE_RTR = 0x2,
	FLEXIO_QP_STATE_RTS = 0x3,
	FLEXIO_QP_STATE_ERR = 0x6,
};

enum flexio_qp_transport_type {
	FLEXIO_QPC_ST_RC = 0x0,
	FLEXIO_QPC_ST_UC = 0x1,
	FLEXIO_QPC_ST_UD = 0x2,
	FLEXIO_QPC_ST_XRC = 0x3,
	FLEXIO_QPC_ST_IBL2 = 0x4,
	FLEXIO_QPC_ST_DCI = 0x5,
	FLEXIO_QPC_ST_QP0 = 0x7,
	FLEXIO_QPC_ST_QP1 = 0x8,
	FLEXIO_QPC_ST_RAW_DATAGRAM = 0x9,
	FLEXIO_QPC_ST_REG_UMR = 0xc,
	FLEXIO_QPC_ST_DC_CNAK = 0x10,
};

typedef enum flexio_msg_dev_sync_mode {
	FLEXIO_MSG_DEV_SYNC_MODE_SYNC = 0,   /* shown at once, by a thread of its own */
	FLEXIO_MSG_DEV_SYNC_MODE_ASYNC = 1,  /* shown at a flush; the buffer can be overrun */
	FLEXIO_MSG_DEV_SYNC_MODE_BATCH = 2,  /* shown in groups, by a thread of its own */
	FLEXIO_MSG_DEV_SYNC_MODE_TRACER = 3, /* formatted by the host */

	FLEXIO_LOG_DEV_SYNC_MODE_SYNC = FLEXIO_MSG_DEV_SYNC_MODE_SYNC,
	FLEXIO_LOG_DEV_SYNC_MODE_ASYNC = FLEXIO_MSG_DEV_SYNC_MODE_ASYNC,
	FLEXIO_LOG_DEV_SYNC_MODE_BATCH = FLEXIO_MSG_DEV_SYNC_MODE_BATCH,
	FLEXIO_LOG_DEV_SYNC_MODE_TRACER = FLEXIO_MSG_DEV_SYNC_MODE_TRACER,
} flexio_msg_dev_sync_mode;

enum flexio_msg_transport {
	FLEXIO_MSG_TRANSPORT_QP_RC = 0,
	FLEXIO_MSG_TRANSPORT_WINDOW = 1,
	FLEXIO_MSG_TRANSPORT_QP_UC = 2,
	FLEXIO_MSG_TRANSPORT_QP_UD = 3,

	FLEXIO_TRACER_TRANSPORT_QP = FLEXIO_MSG_TRANSPORT_QP_RC,
	FLEXIO_TRACER_TRANSPORT_WINDOW = FLEXIO_MSG_TRANSPORT_WINDOW,
};

/* Names that messages had before. */
#define flexio_log_dev_attr      flexio_msg_stream_attr
#define flexio_log_dev_attr_t    flexio_msg_stream_attr_t
#define flexio_log_dev_sync_mode flexio_msg_dev_sync_mode
#define flexio_tracer_transport  flexio_msg_transport

struct flexio_app;
struct flexio_process;
struct flexio_thread;
struct flexio_event_handler;
struct flexio_mkey;
struct flexio_msg_stream;
struct flexio_uar;
struct flexio_outbox;
struct flexio_window;
struct flexio_cmdq;
struct flexio_cq;
struct flexio_sq;
struct flexio_rq;
struct flexio_rmp;
struct flexio_qp;
struct flexio_sq_tis;
struct flexio_transport_domain;
struct flexio_emu_db_to_cq_ctx;

/* ---- attributes --------------------------------------------------------------------------- */

#if FLEXIO_VER_USED < FLEXIO_VER(24, 10, 0)
struct flexio_app_attr {
	const char *app_name;   /* unique per device program */
	void *app_ptr;          /* the ELF file */
	size_t app_bsize;       /* its size */
	char *app_sig_sec_name; /* section with a signature; not looked at */
};
#else
struct flexio_app_attr {
	/* Not looked at: the program itself says what device interface it has. */
	uint64_t *flexio_dev_versions;
	size_t flexio_dev_versions_len_size;
	uint64_t dpa_api_version;
	const char *app_name;
	void *app_ptr;    /* the ELF file */
	size_t app_bsize; /* its size */
	void *sig_ptr;    /* a signature; not looked at */
	size_t sig_bsize; /* 0: none */
};
#endif

/* How to find an app. */
struct flexio_app_select_attr {
	const char *app_name;
	enum flexio_hw_model_id hw_model_id; /* DEF: that of ibv_ctx */
	struct ibv_context *ibv_ctx;         /* may be NULL */
};

struct flexio_process_attr {
	struct ibv_pd *pd; /* NULL: one of the process's own */
	int en_pcc;        /* programmable congestion control */
	const char *name;  /* NULL: none */
};

/* Where the device heap lies and how full it is. */
struct flexio_heap_mem_info {
	uint64_t base_addr;
	size_t size;
	size_t requested; /* bytes that were asked for and not freed */
	size_t allocated; /* bytes that these take, rounding included */
};

struct flexio_affinity {
	enum flexio_affinity_type type;
	uint32_t id; /* of the execution unit or the group */
};

struct flexio_event_handler_attr {
	flexio_func_t *host_stub_func; /* a __dpa_global__ function */
	int continuable;               /* flexio_dev_yield keeps its place */
	uint64_t arg;                  /* argument, if flexio_event_handler_run has none */
	flexio_uintptr_t thread_local_storage_daddr; /* flexio_dev_get_thread_local_storage */
	struct flexio_affinity affinity;
	const char *name; /* NULL: one is made up */
};

struct flexio_mkey_attr {
	struct ibv_pd *pd;      /* NULL: the process's */
	flexio_uintptr_t daddr; /* device memory ... */
	size_t len;             /* ... and its length */
	int access;             /* IBV_ACCESS_*, each for itself */
};

/* One end of flexio_memcpy. */
struct flexio_mem {
	enum flexio_memtype mem_type;
	union {
		flexio_uintptr_t daddr; /* FLEXIO_MEMTYPE_DPA */
		uintptr_t haddr;        /* FLEXIO_MEMTYPE_HOST */
	};
};

typedef struct flexio_msg_stream_attr {
	struct flexio_uar *uar; /* not used any more */
	size_t data_bsize;      /* buffer: a power of two, at least 2 KiB */
	flexio_msg_dev_sync_mode sync_mode;
	const char *stream_name;              /* NULL: none */
	flexio_msg_dev_level level;           /* not FLEXIO_MSG_DEV_ALWAYS_PRINT */
	struct flexio_affinity mgmt_affinity; /* of the stream's own device work */
	union {
		enum flexio_msg_transport tracer_mode;
		enum flexio_msg_transport transport_mode;
	};
	char *const *tracer_msg_formats; /* of the tracer mode; ends with NULL */
} flexio_msg_stream_attr_t;

struct flexio_outbox_attr {
	struct flexio_uar *uar; /* not used any more */
	uint32_t en_pcc;        /* in a process that has it */
};

struct flexio_cmdq_attr {
	int workers;    /* device threads */
	int batch_size; /* tasks that one of them does in a row at most */
	enum flexio_cmdq_state state;
	flexio_uintptr_t *workers_tls_daddr; /* thread-local storage of each; NULL: none */
};

/* Memory of a queue: of the device, or of the host. */
struct flexio_qmem {
	enum flexio_memtype memtype;
	union {
		flexio_uintptr_t daddr; /* FLEXIO_MEMTYPE_DPA */
		uint64_t humem_offset;  /* FLEXIO_MEMTYPE_HOST: from the start of the umem */
	};
	uint32_t umem_id; /* FLEXIO_MEMTYPE_HOST */
};

struct flexio_cq_attr {
	uint8_t log_cq_depth;
	uint8_t element_type; /* FLEXIO_CQ_ELEMENT_TYPE_* */
	union {
		uint32_t emulated_eqn;
		struct flexio_thread *thread;
	};
	uint32_t uar_id;
	void *uar_base_addr;
	enum flexio_cqe_comp_type cqe_comp_type;
	enum flexio_cqe_comp_format cqe_comp_format;
	enum flexio_cq_period_mode cq_period_mode;
	uint16_t cq_period;    /* microseconds before an event */
	uint16_t cq_max_count; /* CQEs before an event */
	bool no_arm;           /* not armed when created */
	bool cc;               /* collapsed CQEs */
	uint8_t overrun_ignore;
	uint8_t always_armed;
	struct flexio_qmem cq_ring_qmem;
	flexio_uintptr_t cq_dbr_daddr;
};

struct flexio_wq_sq_attr {
	uint8_t allow_multi_pkt_send_wqe;
	struct flexio_sq_tis *tis; /* NULL: one is made */
};

struct flexio_wq_rq_attr {
	enum flexio_wq_type
		wq_type; /* an RQ of 16-byte entries is a ring in order, whatever it says */
	enum flexio_wq_end_pad_mode end_pad_mode;
	struct flexio_transport_domain *td; /* NULL: one is made */
	uint8_t vlan_strip_disable;
};

struct flexio_wq_attr {
	uint8_t log_wq_stride; /* 0: 4 */
	uint8_t log_wq_depth;
	uint32_t uar_id;
	uint32_t user_index;
	struct ibv_pd *pd;
	union {
		struct flexio_wq_sq_attr sq;
		struct flexio_wq_rq_attr rq;
	};
	struct flexio_qmem wq_ring_qmem;
	struct flexio_qmem wq_dbr_qmem; /* an SQ needs none */
};

struct flexio_qp_attr {
	enum flexio_qp_transport_type transport_type;
	uint32_t uar_id;
	uint32_t user_index;
	int qp_access_mask; /* IBV_ACCESS_* */
	int ops_flag;       /* not used any more */
	struct ibv_pd *pd;
	int log_sq_depth;
	int no_sq;
	uint32_t sq_cqn;
	int log_rq_depth;
	int rq_type; /* FLEXIO_QP_QPC_RQ_TYPE_* */
	uint32_t rq_cqn;
	uint32_t rmpqn;
	struct flexio_qmem qp_wq_buff_qmem;
	struct flexio_qmem qp_wq_dbr_qmem;

	/* flexio_qp_modify */
	enum flexio_qp_state next_state;
	uint32_t remote_qp_num;
	uint8_t gid_table_index;
	uint8_t fl;        /* force loopback */
	uint8_t *dest_mac; /* no effect: the GID is the address */
	union ibv_gid rgid_or_rip;
	uint16_t rlid; /* no effect: the GID is the address */
	uint32_t min_rnr_nak_timer;
	enum flexio_qp_qpc_mtu path_mtu;
	uint8_t retry_count;
	uint8_t vhca_port_num;
	uint32_t next_rcv_psn;
	uint32_t next_send_psn;
	uint16_t udp_sport; /* no effect: there is no wire yet */
	uint8_t grh;        /* no effect: there always is one */
	uint8_t log_rra_max;
	uint8_t log_sra_max;
	uint8_t isolate_vl_tc; /* no effect: none is available */
	uint32_t q_key;
};

struct flexio_qp_attr_opt_param_mask {
	bool qp_access_mask;
	bool min_rnr_nak_timer;
};

/* ---- library ------------------------------------------------------------------------------ */

/* Work as this version did. Once; FLEXIO_STATUS_FAILED for another one later, or a newer one than ours. */
FLEXIO_STABLE flexio_status flexio_version_set(uint64_t version);
/* Log lines up to this level go to standard error. Returns the level before; at first FLEXIO_LOG_LVL_ERR. */
FLEXIO_EXPERIMENTAL enum flexio_log_lvl flexio_log_lvl_set(enum flexio_log_lvl lvl);
/* What the adapter is; FLEXIO_HW_MODEL_NA if it has no accelerator. */
FLEXIO_EXPERIMENTAL enum flexio_hw_model_id flexio_hw_model_id_get(struct ibv_context *ibv_ctx);

/* ---- apps: normally made by code that dpacc generates --------------------------------------- */

#if FLEXIO_VER_USED < FLEXIO_VER(24, 10, 0)
FLEXIO_STABLE flexio_status flexio_app_create(
	struct flexio_app_attr *fattr, struct flexio_app **app) __asm__("flexio_app_create_v0");
#else
/* The ELF file is copied. */
FLEXIO_STABLE flexio_status flexio_app_create(struct flexio_app_attr *fattr,
					      struct flexio_app **app);
#endif
/* Refused while a process of the app lives. */
FLEXIO_STABLE flexio_status flexio_app_destroy(struct flexio_app *app);
/* The app with this name for this hardware. */
FLEXIO_EXPERIMENTAL flexio_status flexio_app_get(struct flexio_app_select_attr *fattr,
						 struct flexio_app **app);
/* Say which hardware the app was compiled for. */
FLEXIO_EXPERIMENTAL flexio_status flexio_app_hw_model_register(struct flexio_app *app,
							       enum flexio_hw_model_id hw_model_id);
/* At most *num_apps apps, 0: all, in an array to be freed with flexio_app_list_free. */
FLEXIO_STABLE flexio_status flexio_app_get_list(struct flexio_app ***app_list, uint32_t *num_apps);
FLEXIO_STABLE flexio_status flexio_app_list_free(struct flexio_app **apps_list);
FLEXIO_EXPERIMENTAL const char *flexio_app_get_name(struct flexio_app *app);
FLEXIO_EXPERIMENTAL size_t flexio_app_get_elf_size(struct flexio_app *app);
FLEXIO_STABLE flexio_status flexio_app_get_elf(struct flexio_app *app, uint64_t *bin_buff,
					       size_t bin_size);

/* A function that takes one uint64_t; *out_func stands for it from now on. */
FLEXIO_STABLE flexio_status flexio_func_register(struct flexio_app *app, const char *dev_func_name,
						 flexio_func_t **out_func);
/* A function of any form, with what packs its arguments here and unpacks them there. */
FLEXIO_STABLE flexio_status flexio_func_pup_register(struct flexio_app *app,
						     const char *dev_func_name,
						     const char *dev_unpack_func_name,
						     flexio_func_t *host_stub_func_addr,
						     size_t argbuf_size,
						     flexio_func_arg_pack_fn_t *host_pack_func);
/* Names need FLEXIO_MAX_NAME_LEN + 1 bytes each; outputs may be NULL. */
FLEXIO_STABLE flexio_status flexio_func_get_register_info(
	struct flexio_app *app, flexio_func_t *host_stub_func_addr, uint32_t *pup,
	char *dev_func_name, char *dev_unpack_func_name, size_t func_name_size, size_t *argbuf_size,
	flexio_func_arg_pack_fn_t **host_pack_func, flexio_uintptr_t *dev_func_addr,
	flexio_uintptr_t *dev_unpack_func_addr);

/* ---- processes ---------------------------------------------------------------------------- */

/* process_attr may be NULL. */
FLEXIO_STABLE flexio_status flexio_process_create(struct ibv_context *ibv_ctx,
						  struct flexio_app *app,
						  const struct flexio_process_attr *process_attr,
						  struct flexio_process **process_ptr);
/* NULL is fine. Refused while it has event handlers, mkeys or queues; buffers and streams go with it. */
FLEXIO_STABLE flexio_status flexio_process_destroy(struct flexio_process *process);
/*
 * Call a device function and wait for its end; *func_ret (may be NULL) gets its result.
 * FLEXIO_STATUS_TIMEOUT: it took longer than the limit (6 s); FLEXIO_STATUS_FATAL_ERR: it, or
 * another thread of the process, ended the process.
 */
FLEXIO_STABLE flexio_status flexio_process_call(struct flexio_process *process,
						flexio_func_t *host_func, uint64_t *func_ret, ...);
/*
 * A device function for faults, with the parameters thread context and code. If it ends by
 * flexio_dev_thread_reschedule(), the process goes on. Before the first event handler or command
 * queue.
 */
FLEXIO_STABLE flexio_status flexio_process_error_handler_set(struct flexio_process *process,
							     flexio_func_t *error_handler);
FLEXIO_STABLE flexio_status flexio_process_mem_info_get(const struct flexio_process *process,
							struct flexio_heap_mem_info *info);
FLEXIO_EXPERIMENTAL struct ibv_pd *flexio_process_get_pd(struct flexio_process *process);
FLEXIO_EXPERIMENTAL struct flexio_uar *flexio_process_get_uar(struct flexio_process *process);
FLEXIO_EXPERIMENTAL uint32_t flexio_process_get_dumem_id(struct flexio_process *process);
/* 0: debugging is not allowed. */
FLEXIO_EXPERIMENTAL uint64_t flexio_process_udbg_token_get(struct flexio_process *process);

/* A file descriptor that becomes readable with the first fatal error, until it is read. */
FLEXIO_EXPERIMENTAL int flexio_err_handler_fd(struct flexio_process *process);
#if FLEXIO_VER_USED < FLEXIO_VER(24, 10, 0)
FLEXIO_EXPERIMENTAL enum flexio_err_status
flexio_err_status_get(struct flexio_process *process) __asm__("flexio_err_status_get_v0");
#else
/*
 * 0: none. 1 to 63: the run-time system's (a trap is 1 + its RISC-V cause, a stack overflow 0x20);
 * 0x40: flexio_dev_process_finish; 128 to 255: flexio_dev_error. NULL is fine and gives 0.
 */
FLEXIO_EXPERIMENTAL int flexio_err_status_get(struct flexio_process *process);
#endif
FLEXIO_STABLE flexio_status flexio_coredump_create(struct flexio_process *process,
						   const char *outfile);
/* What a process died of, to standard error and OUTFILE.NNN.crash (NULL: flexio_dev.NNN.crash). */
FLEXIO_STABLE flexio_status flexio_crash_data(struct flexio_process *process, const char *outfile);

/* ---- device memory ------------------------------------------------------------------------ */

/* *dest_daddr_p is 0 if it fails. Aligned to at least 64 bytes, not cleared. */
FLEXIO_STABLE flexio_status flexio_buf_dev_alloc(struct flexio_process *process, size_t buff_bsize,
						 flexio_uintptr_t *dest_daddr_p);
/* As above, at a multiple of alignment (a power of two). */
FLEXIO_EXPERIMENTAL flexio_status flexio_buf_dev_memalign(struct flexio_process *process,
							  size_t alignment, size_t buff_bsize,
							  flexio_uintptr_t *dest_daddr_p);
/*
 * In blocks of 4 KiB. When it ends, also after a crash, its content goes to the memory region of
 * mkey, whose length must be the same.
 */
FLEXIO_STABLE flexio_status flexio_recoverable_buf_dev_alloc(struct flexio_process *process,
							     size_t buff_bsize, uint32_t mkey,
							     flexio_uintptr_t *dest_daddr_p);
/* daddr 0 is fine. */
FLEXIO_STABLE flexio_status flexio_buf_dev_free(struct flexio_process *process,
						flexio_uintptr_t daddr);
FLEXIO_STABLE flexio_status flexio_buf_dev_memset(struct flexio_process *process, int value,
						  size_t buff_bsize, flexio_uintptr_t dest_daddr);
/* Allocate and copy. */
FLEXIO_STABLE flexio_status flexio_copy_from_host(struct flexio_process *process, void *src_haddr,
						  size_t buff_bsize,
						  flexio_uintptr_t *dest_daddr_p);
FLEXIO_STABLE flexio_status flexio_host2dev_memcpy(struct flexio_process *process, void *src_haddr,
						   size_t buff_bsize, flexio_uintptr_t dest_daddr);
/* In any direction; the ranges must not overlap. */
FLEXIO_EXPERIMENTAL flexio_status flexio_memcpy(struct flexio_process *process,
						struct flexio_mem *dest, struct flexio_mem *src,
						size_t buff_bsize);

FLEXIO_STABLE flexio_status flexio_device_mkey_create(struct flexio_process *process,
						      struct flexio_mkey_attr *fattr,
						      struct flexio_mkey **mkey);
/* NULL is fine. */
FLEXIO_STABLE flexio_status flexio_device_mkey_destroy(struct flexio_mkey *mkey);
FLEXIO_EXPERIMENTAL uint32_t flexio_mkey_get_id(struct flexio_mkey *mkey);

/* ---- messages of device code -------------------------------------------------------------- */

/*
 * The first stream of a process is its default stream, number 0. ppthread (may be NULL) gets the
 * thread that writes, where the mode has one.
 */
FLEXIO_STABLE flexio_status flexio_msg_stream_create(struct flexio_process *process,
						     flexio_msg_stream_attr_t *stream_fattr,
						     FILE *out, pthread_t *ppthread,
						     struct flexio_msg_stream **stream);
FLEXIO_STABLE flexio_status flexio_msg_stream_destroy(struct flexio_msg_stream *stream);
FLEXIO_STABLE flexio_status flexio_msg_stream_flush(struct flexio_msg_stream *stream);
FLEXIO_EXPERIMENTAL int flexio_msg_stream_get_id(struct flexio_msg_stream *stream);
/* Not of the default stream, and not to FLEXIO_MSG_DEV_ALWAYS_PRINT. */
FLEXIO_STABLE flexio_status flexio_msg_stream_level_set(struct flexio_msg_stream *stream,
							flexio_msg_dev_level level);

/* The default stream, in older programs. */
FLEXIO_STABLE flexio_status flexio_log_dev_init(struct flexio_process *process,
						flexio_msg_stream_attr_t *stream_fattr, FILE *out,
						pthread_t *ppthread);
FLEXIO_STABLE flexio_status flexio_log_dev_flush(struct flexio_process *process);
FLEXIO_STABLE flexio_status flexio_log_dev_destroy(struct flexio_process *process);

/* ---- event handlers ----------------------------------------------------------------------- */

FLEXIO_STABLE flexio_status
flexio_event_handler_create(struct flexio_process *process, struct flexio_event_handler_attr *fattr,
			    struct flexio_event_handler **event_handler_ptr);
FLEXIO_STABLE flexio_status
flexio_event_handler_destroy(struct flexio_event_handler *event_handler);
/* Let triggers start it from now on; those that came before are lost. */
FLEXIO_STABLE flexio_status flexio_event_handler_run(struct flexio_event_handler *event_handler,
						     uint64_t user_arg);
/* What flexio_dev_get_thread_id shows, and messages. */
FLEXIO_EXPERIMENTAL uint32_t
flexio_event_handler_get_id(struct flexio_event_handler *event_handler);
FLEXIO_EXPERIMENTAL uint32_t
flexio_event_handler_get_obj_id(struct flexio_event_handler *event_handler);
/* For flexio_dev_event_handler_activate. */
FLEXIO_EXPERIMENTAL uint32_t
flexio_event_handler_get_activation_id(struct flexio_event_handler *event_handler);
FLEXIO_EXPERIMENTAL struct flexio_thread *
flexio_event_handler_get_thread(struct flexio_event_handler *event_handler);
FLEXIO_EXPERIMENTAL struct mlx5dv_devx_obj *
flexio_event_handler_get_thread_obj(struct flexio_event_handler *event_handler);

/* ---- command queues: tasks in the background ------------------------------------------------ */

/* Workers do the tasks in order, batch_size in a row; a pending queue only collects them. */
FLEXIO_STABLE flexio_status flexio_cmdq_create(struct flexio_process *process,
					       struct flexio_cmdq_attr *fattr,
					       struct flexio_cmdq **cmdq);
/* Drops tasks that have not begun, stops those that run. */
FLEXIO_STABLE flexio_status flexio_cmdq_destroy(struct flexio_cmdq *cmdq);
FLEXIO_STABLE flexio_status flexio_cmdq_task_add(struct flexio_cmdq *cmdq, flexio_func_t *host_func,
						 uint64_t arg);
FLEXIO_STABLE flexio_status flexio_cmdq_state_running(struct flexio_cmdq *cmdq);
/* False while a task waits or runs; true after a fatal error of the process. */
FLEXIO_EXPERIMENTAL int flexio_cmdq_is_empty(struct flexio_cmdq *cmdq);

/* ---- doorbells and windows ---------------------------------------------------------------- */

#if FLEXIO_VER_USED < FLEXIO_VER(24, 7, 0)
FLEXIO_STABLE flexio_status
flexio_uar_create(struct flexio_process *process, struct mlx5dv_devx_uar *devx_uar,
		  struct flexio_uar **flexio_uar) __asm__("flexio_uar_create_v0");
#else
FLEXIO_STABLE flexio_status flexio_uar_create(struct flexio_process *process,
					      struct flexio_uar **flexio_uar);
/* As first published; programs of that time name no version, so three arguments mean this one. */
FLEXIO_STABLE flexio_status flexio_uar_create_v0(struct flexio_process *process,
						 struct mlx5dv_devx_uar *devx_uar,
						 struct flexio_uar **flexio_uar);
#define FLEXIO_UAR_CREATE_FORM(a, b, c, form, ...) form
#define flexio_uar_create(...)                                                         \
	FLEXIO_UAR_CREATE_FORM(__VA_ARGS__, flexio_uar_create_v0, flexio_uar_create, ) \
	(__VA_ARGS__)
#endif
FLEXIO_STABLE flexio_status flexio_uar_destroy(struct flexio_uar *uar);
/* Let device code ring queues of another adapter. */
FLEXIO_STABLE flexio_status flexio_uar_extend(struct flexio_uar *in_uar,
					      struct ibv_context *to_extend,
					      struct flexio_uar **extended);
/* UINT32_MAX for a UAR that is no extension. */
FLEXIO_STABLE flexio_uar_device_id flexio_uar_get_extended_id(struct flexio_uar *uar);
FLEXIO_EXPERIMENTAL uint32_t flexio_uar_get_id(struct flexio_uar *uar);

FLEXIO_STABLE flexio_status flexio_outbox_create(struct flexio_process *process,
						 struct flexio_outbox_attr *fattr,
						 struct flexio_outbox **outbox);
FLEXIO_STABLE flexio_status flexio_outbox_destroy(struct flexio_outbox *outbox);
FLEXIO_EXPERIMENTAL uint32_t flexio_outbox_get_id(struct flexio_outbox *outbox);
FLEXIO_EXPERIMENTAL struct flexio_uar *flexio_outbox_get_uar(struct flexio_outbox *outbox);

FLEXIO_STABLE flexio_status flexio_window_create(struct flexio_process *process, struct ibv_pd *pd,
						 struct flexio_window **window);
FLEXIO_STABLE flexio_status flexio_window_destroy(struct flexio_window *window);
FLEXIO_EXPERIMENTAL uint32_t flexio_window_get_id(struct flexio_window *window);

/* ---- queues: ibv_ctx NULL means the process's own adapter ----------------------------------- */

FLEXIO_STABLE flexio_status flexio_cq_create(struct flexio_process *process,
					     struct ibv_context *ibv_ctx,
					     const struct flexio_cq_attr *fattr,
					     struct flexio_cq **cq);
FLEXIO_STABLE flexio_status flexio_cq_destroy(struct flexio_cq *cq);
FLEXIO_EXPERIMENTAL uint32_t flexio_cq_get_cq_num(struct flexio_cq *cq);
FLEXIO_STABLE struct mlx5dv_devx_obj *flexio_cq_get_obj(struct flexio_cq *cq);
FLEXIO_STABLE flexio_status flexio_cq_modify_moderation(struct flexio_cq *cq, uint16_t max_count,
							uint16_t period, uint16_t mode);
FLEXIO_STABLE flexio_status flexio_cq_query_moderation(struct flexio_cq *cq, uint16_t *max_count,
						       uint16_t *period, uint16_t *mode);

FLEXIO_STABLE flexio_status flexio_sq_create(struct flexio_process *process,
					     struct ibv_context *ibv_ctx, uint32_t cq_num,
					     const struct flexio_wq_attr *fattr,
					     struct flexio_sq **flexio_sq_ptr);
FLEXIO_STABLE flexio_status flexio_sq_create_cross_dev(struct flexio_process *process,
						       struct ibv_context *ibv_ctx, uint32_t cq_num,
						       const struct flexio_wq_attr *fattr,
						       struct flexio_sq **flexio_sq_ptr);
FLEXIO_STABLE flexio_status flexio_sq_destroy(struct flexio_sq *flexio_sq);
FLEXIO_EXPERIMENTAL uint32_t flexio_sq_get_wq_num(struct flexio_sq *sq);

FLEXIO_STABLE flexio_status flexio_sq_tis_create(struct ibv_context *ibv_ctx,
						 struct flexio_transport_domain *td,
						 struct flexio_sq_tis **tis);
FLEXIO_STABLE flexio_status flexio_sq_tis_destroy(struct flexio_sq_tis *tis);
FLEXIO_STABLE flexio_status flexio_transport_domain_create(struct ibv_context *ibv_ctx,
							   struct flexio_transport_domain **td);
FLEXIO_STABLE flexio_status flexio_transport_domain_destroy(struct flexio_transport_domain *td);

FLEXIO_STABLE flexio_status flexio_rq_create(struct flexio_process *process,
					     struct ibv_context *ibv_ctx, uint32_t cq_num,
					     const struct flexio_wq_attr *fattr,
					     struct flexio_rq **flexio_rq_ptr);
FLEXIO_STABLE flexio_status flexio_rq_create_cross_dev(struct flexio_process *process,
						       struct ibv_context *ibv_ctx, uint32_t cq_num,
						       const struct flexio_wq_attr *fattr,
						       struct flexio_rq **flexio_rq_ptr);
FLEXIO_STABLE flexio_status flexio_rq_destroy(struct flexio_rq *flexio_rq);
FLEXIO_STABLE flexio_status flexio_rq_set_err_state(struct flexio_rq *rq);
FLEXIO_EXPERIMENTAL uint32_t flexio_rq_get_wq_num(struct flexio_rq *rq);
FLEXIO_EXPERIMENTAL struct mlx5dv_devx_obj *flexio_rq_get_tir(struct flexio_rq *rq);
FLEXIO_EXPERIMENTAL struct mlx5dv_devx_obj *flexio_rq_get_object(struct flexio_rq *rq);

FLEXIO_STABLE flexio_status flexio_rmp_create(struct flexio_process *process,
					      struct ibv_context *ibv_ctx,
					      const struct flexio_wq_attr *fattr,
					      struct flexio_rmp **flexio_rmp_ptr);
FLEXIO_STABLE flexio_status flexio_rmp_destroy(struct flexio_rmp *flexio_rmp);
FLEXIO_EXPERIMENTAL uint32_t flexio_rmp_get_wq_num(struct flexio_rmp *rmp);

FLEXIO_STABLE flexio_status flexio_qp_create(struct flexio_process *process,
					     struct ibv_context *ibv_ctx,
					     struct flexio_qp_attr *qp_fattr,
					     struct flexio_qp **qp_ptr);
FLEXIO_STABLE flexio_status flexio_qp_destroy(struct flexio_qp *qp);
FLEXIO_STABLE flexio_status flexio_qp_modify(struct flexio_qp *qp, struct flexio_qp_attr *fattr,
					     struct flexio_qp_attr_opt_param_mask *mask);
FLEXIO_STABLE enum flexio_qp_state flexio_qp_state_get(struct flexio_qp *qp);
FLEXIO_EXPERIMENTAL uint32_t flexio_qp_get_qp_num(struct flexio_qp *qp);

/* ---- emulated devices: doorbells of a driver become completions ----------------------------- */

/*
 * Lead doorbells of a queue of an emulated function to a CQ of the same device context. Device code
 * asks for the next one with flexio_dev_db_ctx_arm().
 */
FLEXIO_EXPERIMENTAL flexio_status
flexio_emu_db_to_cq_map(struct ibv_context *ibv_ctx, uint32_t vhca_id, uint32_t queue_id,
			struct flexio_cq *cq, struct flexio_emu_db_to_cq_ctx **emu_db_to_cq_ctx);
FLEXIO_EXPERIMENTAL flexio_status
flexio_emu_db_to_cq_unmap(struct flexio_emu_db_to_cq_ctx *emu_db_to_cq_ctx);
/* What device code names it by. */
FLEXIO_EXPERIMENTAL uint32_t
flexio_emu_db_to_cq_ctx_get_id(struct flexio_emu_db_to_cq_ctx *emu_db_to_cq_ctx);

#ifdef __cplusplus
}
#endif

#endif

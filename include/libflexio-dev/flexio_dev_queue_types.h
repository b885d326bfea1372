/* SPDX-License-Identifier: MIT */
/*
 * What lies in the queues: completions, events and the 16-byte segments that work requests are made of. All numbers
 * are big endian.
 */
#ifndef _FLEXIO_DEV_QUEUE_TYPES_H_
#define _FLEXIO_DEV_QUEUE_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define __FLEXIO_DEV_ASSERT(x) static_assert(x, #x)
#else
#define __FLEXIO_DEV_ASSERT(x) _Static_assert(x, #x)
#endif

typedef uint64_t __be64;
typedef uint32_t __be32;
typedef uint16_t __be16;

#define __FLEXIO_DEV_QUEUE_ENTRY __attribute__((packed, aligned(8)))

/* Depths of send queues count WQE basic blocks of 64 bytes, four segments: block i begins at segment 4 * i. */
#define LOG_SQE_NUM_SEGS 2

/* Event queue entry. */
struct flexio_dev_eqe {
	uint8_t rsvd00;
	uint8_t type;
	uint8_t rsvd02;
	uint8_t sub_type;
	uint8_t rsvd4[28];
	struct {
		__be32 rsvd00[6];
		__be32 cqn;
	} event_data;
	__be16 rsvd3c;
	uint8_t signature;
	uint8_t owner;
} __FLEXIO_DEV_QUEUE_ENTRY;
__FLEXIO_DEV_ASSERT(sizeof(struct flexio_dev_eqe) == 64);
__FLEXIO_DEV_ASSERT(offsetof(struct flexio_dev_eqe, event_data.cqn) == 56);

/* Completion queue entry. */
struct flexio_dev_cqe64 {
	__be32 rsvd00[5];
	__be16 csum_ok;
	uint8_t rsvd22[2];
	union {
		__be32 rsvd14[2];
		__be32 rsvd24[2]; /* newest SDKs */
	};
	__be32 srqn_uidx;
	union {
		struct {
			__be32 imm_inval_pkey;
			union {
				__be32 rsvd;
				__be32 rsvd40; /* newest SDKs */
			};
		};
		__be32 rsvd36[2]; /* before 24.10 */
	};
	__be32 byte_cnt;
	__be32 rsvd48;
	union { /* the parts have names of their own in newer SDKs */
		__be32 err_syndrome;
		struct {
			uint8_t hw_err_syndrome;
			uint8_t rsvd50;
			uint8_t vendor_err_synd;
			uint8_t syndrome;
		};
	};
	union {
		struct {
			uint8_t sop_rdrop;
			uint8_t qpn24[3];
		};
		__be32 qpn;
	};
	__be16 wqe_counter;
	union {
		uint8_t signature;
		uint8_t validity_iteration_count;
	};
	uint8_t op_own;
} __FLEXIO_DEV_QUEUE_ENTRY;
__FLEXIO_DEV_ASSERT(sizeof(struct flexio_dev_cqe64) == 64);
__FLEXIO_DEV_ASSERT(offsetof(struct flexio_dev_cqe64, csum_ok) == 20);
__FLEXIO_DEV_ASSERT(offsetof(struct flexio_dev_cqe64, srqn_uidx) == 32);
__FLEXIO_DEV_ASSERT(offsetof(struct flexio_dev_cqe64, imm_inval_pkey) == 36);
__FLEXIO_DEV_ASSERT(offsetof(struct flexio_dev_cqe64, rsvd36) == 36);
__FLEXIO_DEV_ASSERT(offsetof(struct flexio_dev_cqe64, byte_cnt) == 44);
__FLEXIO_DEV_ASSERT(offsetof(struct flexio_dev_cqe64, qpn) == 56);
__FLEXIO_DEV_ASSERT(offsetof(struct flexio_dev_cqe64, op_own) == 63);

/* A completion queue entry that holds up to seven compressed ones. */
struct flexio_dev_mini_cqe64 {
	__be64 mini_cqe[7];
	uint8_t rsvd0[6];
	uint8_t validity_iteration_count;
	uint8_t num_and_type;
} __FLEXIO_DEV_QUEUE_ENTRY;
__FLEXIO_DEV_ASSERT(sizeof(struct flexio_dev_mini_cqe64) == 64);

/* Send: a buffer by address. */
struct flexio_dev_wqe_mem_ptr_send_data_seg {
	__be32 byte_count;
	__be32 lkey;
	__be64 addr;
} __FLEXIO_DEV_QUEUE_ENTRY;

/* Send: up to twelve bytes in the WQE itself; more continue in further segments. */
struct flexio_dev_wqe_inline_send_data_seg {
	__be32 byte_count; /* bit 31 marks inline data */
	__be32 data_and_padding[3];
} __FLEXIO_DEV_QUEUE_ENTRY;

/* Receive: a buffer by address. */
struct flexio_dev_wqe_rcv_data_seg {
	__be32 byte_count;
	__be32 lkey;
	__be64 addr;
} __FLEXIO_DEV_QUEUE_ENTRY;

/* First segment of a WQE of a shared receive queue. */
struct flexio_dev_wqe_shared_receive_seg {
	uint8_t rsvd0[2];
	__be16 next_wqe_index;
	uint8_t signature;
	uint8_t rsvd1[11];
} __FLEXIO_DEV_QUEUE_ENTRY;

/* First segment of every send WQE. */
struct flexio_dev_wqe_ctrl_seg {
	__be32 idx_opcode;         /* modifier 31:24, WQE index 23:8, opcode 7:0 */
	__be32 qpn_ds;             /* queue number 31:8, length in segments 5:0 */
	__be32 signature_fm_ce_se; /* completion mode at 3:2 */
	__be32 general_id;         /* immediate data, for one */
} __FLEXIO_DEV_QUEUE_ENTRY;

typedef enum {
	FLEXIO_ETH_SEG_L4CS = 0x8000,
	FLEXIO_ETH_SEG_L3CS = 0x4000,
	FLEXIO_ETH_SEG_L4CS_INNER = 0x2000,
	FLEXIO_ETH_SEG_L3CS_INNER = 0x1000,
	FLEXIO_ETH_SEG_TRAILER_ALIGN = 0x0200,
	FLEXIO_ETH_SEG_SWP_OUTER_L4_TYPE = 0x0040,
	FLEXIO_ETH_SEG_SWP_OUTER_L3_TYPE = 0x0020,
	FLEXIO_ETH_SEG_SWP_INNER_L4_TYPE = 0x0002,
	FLEXIO_ETH_SEG_SWP_INNER_L3_TYPE = 0x0001,
} flexio_dev_wqe_eth_seg_cs_swp_flags_t;

/* Ethernet: checksum offloads, segmentation, the first bytes of inlined headers. */
struct flexio_dev_wqe_eth_seg {
	__be32 rsvd0;
	__be16 cs_swp_flags;
	__be16 mss;
	__be32 rsvd2;
	__be16 inline_hdr_bsz;
	uint8_t inline_hdrs[2];
} __FLEXIO_DEV_QUEUE_ENTRY;

/* Raw bytes of a WQE: what follows an inline segment. */
struct flexio_dev_wqe_inline_data_seg {
	uint8_t inline_data[16];
} __FLEXIO_DEV_QUEUE_ENTRY;

/* Remote memory of an RDMA operation. */
struct flexio_dev_wqe_rdma_seg {
	__be64 raddr;
	__be32 rkey;
	__be32 rsvd0;
} __FLEXIO_DEV_QUEUE_ENTRY;

/* Operands of an atomic operation. */
struct flexio_dev_wqe_atomic_seg {
	__be64 swap_or_add_data;
	__be64 compare_data;
} __FLEXIO_DEV_QUEUE_ENTRY;

/* A matrix to transpose. */
struct flexio_dev_wqe_transpose_seg {
	uint8_t rsvd0[3];
	uint8_t element_size;
	uint8_t rsvd1;
	uint8_t num_of_cols;
	uint8_t rsvd2;
	uint8_t num_of_rows;
	uint8_t rsvd4[8];
} __FLEXIO_DEV_QUEUE_ENTRY;

/* Address vector of a datagram: one segment, or all three if ext (bit 31 of ext_dqp_dct) is set. */
struct flexio_dev_wqe_av1_seg {
	union {
		struct {
			__be32 qkey;
			__be32 reserved;
		} qkey;
		__be64 dc_key;
	} key;
	__be32 ext_dqp_dct;
	uint8_t stat_rate_sl;
	uint8_t fl_mlid;
	__be16 rlid;
} __FLEXIO_DEV_QUEUE_ENTRY;

struct flexio_dev_wqe_av2_seg {
	__be32 rsvd0;
	uint8_t rmac[6];
	uint8_t tclass;
	uint8_t hop_limit;
	__be32 grh_gid_fl; /* GRH present at 30, source GID index 27:20, flow label 19:0 */
} __FLEXIO_DEV_QUEUE_ENTRY;

struct flexio_dev_wqe_av3_seg {
	uint8_t rgid[16];
} __FLEXIO_DEV_QUEUE_ENTRY;

union flexio_dev_wqe_av_seg {
	struct flexio_dev_wqe_av1_seg s1;
	struct flexio_dev_wqe_av2_seg s2;
	struct flexio_dev_wqe_av3_seg s3;
};

/* Wait until memory has a value: where and how. */
struct flexio_dev_wqe_wait_on_data_seg {
	uint8_t rsvd0[3];
	uint8_t op_inv; /* inverted at 4, operation 3:0 */
	__be32 lkey;
	__be32 va_63_32;
	__be32 va_31_3_fail_act;
} __FLEXIO_DEV_QUEUE_ENTRY;

/* ... and the value. */
struct flexio_dev_wqe_wait_on_data_data_seg {
	__be64 data;
	__be64 mask;
} __FLEXIO_DEV_QUEUE_ENTRY;

/* A segment of a send WQE. */
union flexio_dev_sqe_seg {
	struct flexio_dev_wqe_ctrl_seg ctrl;
	struct flexio_dev_wqe_eth_seg eth;
	struct flexio_dev_wqe_inline_data_seg inline_data;
	struct flexio_dev_wqe_rdma_seg rdma;
	struct flexio_dev_wqe_mem_ptr_send_data_seg mem_ptr_send_data;
	struct flexio_dev_wqe_inline_send_data_seg inline_send_data;
	struct flexio_dev_wqe_atomic_seg atomic;
	struct flexio_dev_wqe_transpose_seg transpose;
	struct flexio_dev_wqe_shared_receive_seg shared_receive;
	union flexio_dev_wqe_av_seg adres_vector;
	struct flexio_dev_wqe_wait_on_data_seg wait_on_data;
	struct flexio_dev_wqe_wait_on_data_data_seg wait_on_data_data;
};
__FLEXIO_DEV_ASSERT(sizeof(union flexio_dev_sqe_seg) == 16);
__FLEXIO_DEV_ASSERT(sizeof(struct flexio_dev_wqe_rcv_data_seg) == 16);
__FLEXIO_DEV_ASSERT(sizeof(struct flexio_dev_wqe_shared_receive_seg) == 16);

/* Opcodes of the control segment, and modifiers of those that have some. */
enum {
	MLX5_CTRL_SEG_OPCODE_NOP = 0x00,
	MLX5_CTRL_SEG_OPCODE_SND_INV = 0x01,
	MLX5_CTRL_SEG_OPCODE_RDMA_WRITE = 0x08,
	MLX5_CTRL_SEG_OPCODE_RDMA_WRITE_WITH_IMMEDIATE = 0x09,
	MLX5_CTRL_SEG_OPCODE_SEND = 0x0a,
	MLX5_CTRL_SEG_OPCODE_SEND_WITH_IMMEDIATE = 0x0b,
	MLX5_CTRL_SEG_OPCODE_LSO = 0x0e,
	MLX5_CTRL_SEG_OPCODE_WAIT = 0x0f,
	MLX5_CTRL_SEG_OPCODE_RDMA_READ = 0x10,
	MLX5_CTRL_SEG_OPCODE_ATOMIC_COMPARE_AND_SWAP = 0x11,
	MLX5_CTRL_SEG_OPCODE_ATOMIC_FETCH_AND_ADD = 0x12,
	MLX5_CTRL_SEG_OPCODE_ATOMIC_MASKED_COMPARE_AND_SWAP = 0x14,
	MLX5_CTRL_SEG_OPCODE_ATOMIC_MASKED_FETCH_AND_ADD = 0x15,
	MLX5_CTRL_SEG_OPCODE_RECEIVE_EN = 0x16,
	MLX5_CTRL_SEG_OPCODE_SEND_EN = 0x17,
	MLX5_CTRL_SEG_OPCODE_SET_PSV = 0x20,
	MLX5_CTRL_SEG_OPCODE_GET_PSV = 0x21,
	MLX5_CTRL_SEG_OPCODE_CHECK_PSV = 0x22,
	MLX5_CTRL_SEG_OPCODE_DUMP = 0x23,
	MLX5_CTRL_SEG_OPCODE_UMR = 0x25,
	MLX5_CTRL_SEG_OPCODE_RGET_PSV = 0x26,
	MLX5_CTRL_SEG_OPCODE_RCHECK_PSV = 0x27,
	MLX5_CTRL_SEG_OPCODE_TAG_MATCHING = 0x28,
	MLX5_CTRL_SEG_OPCODE_ENHANCED_MPSW = 0x29,
	MLX5_CTRL_SEG_OPCODE_QOS_REMAP = 0x2a,
	MLX5_CTRL_SEG_OPCODE_FLOW_TABLE_ACCESS = 0x2c,
	MLX5_CTRL_SEG_OPCODE_ACCESS_ASO = 0x2d,
	MLX5_CTRL_SEG_OPCODE_MMO = 0x2f,
	MLX5_CTRL_SEG_OPCODE_LOAD_REMOTE_MICRO_APP = 0x30,
	MLX5_CTRL_SEG_OPCODE_STORE_REMOTE_MICRO_APP = 0x31,
	MLX5_CTRL_SEG_OPCODE_LOCAL_MMO = 0x32,
};
#define MLX5_CTRL_SEG_OPCODE_ATOMIC_CAS MLX5_CTRL_SEG_OPCODE_ATOMIC_COMPARE_AND_SWAP
#define MLX5_CTRL_SEG_OPCODE_ATOMIC_FAA MLX5_CTRL_SEG_OPCODE_ATOMIC_FETCH_AND_ADD
#define MLX5_CTRL_SEG_OPCODE_MASKED_CAS MLX5_CTRL_SEG_OPCODE_ATOMIC_MASKED_COMPARE_AND_SWAP
#define MLX5_CTRL_SEG_OPCODE_MASKED_FAA MLX5_CTRL_SEG_OPCODE_ATOMIC_MASKED_FETCH_AND_ADD

enum {
	MLX5_CTRL_SEGMENT_OPC_MOD_LOCAL_MMO_TRANSPOSE = 0,
	MLX5_CTRL_SEGMENT_OPC_MOD_LOCAL_MMO_LOCAL_DMA = 1,
};
#define MLX5_CTRL_SEGMENT_OPC_MOD_WAIT_ON_DATA 1

#undef __FLEXIO_DEV_ASSERT

#ifdef __cplusplus
}
#endif

#endif

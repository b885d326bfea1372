/* SPDX-License-Identifier: MIT */
/*
 * What the queues of mlx4 and mlx5 have in common: units of 16 bytes, doorbell records, segments of
 * send and receive WQEs, the links of a shared receive queue, the numbers of opcodes and error
 * syndromes. The assertions show that both formats agree; the code uses mlx5's names for both.
 *
 *	receive WQE       | data | data | ... | data with an invalid key, where the list is shorter |
 *	in a shared queue | next | data | ...
 */
#pragma once

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <infiniband/mlx4dv.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "base/util.h"

enum { SEG = 16 };

/* The words of a QP's doorbell record. */
enum { DBR_RECV = MLX5_RCV_DBR, DBR_SEND = MLX5_SND_DBR };

/*
 * 2 GiB, the most that a data segment can hold. Send segments, and receive segments of mlx5, have
 * it as 0, because the field has 31 bits.
 */
#define SEG_MAX_LENGTH 0x80000000u

static_assert(sizeof(struct mlx5_wqe_data_seg) == SEG && sizeof(struct mlx4_wqe_data_seg) == SEG &&
		      offsetof(struct mlx4_wqe_data_seg, addr) ==
			      offsetof(struct mlx5_wqe_data_seg, addr),
	      "data segments");
static_assert(sizeof(struct mlx5_wqe_srq_next_seg) == SEG &&
		      offsetof(struct mlx4_wqe_srq_next_seg, next_wqe_index) ==
			      offsetof(struct mlx5_wqe_srq_next_seg, next_wqe_index),
	      "next segments");
static_assert(sizeof(struct mlx5_wqe_raddr_seg) == SEG &&
		      sizeof(struct mlx4_wqe_raddr_seg) == SEG &&
		      offsetof(struct mlx4_wqe_raddr_seg, raddr) ==
			      offsetof(struct mlx5_wqe_raddr_seg, raddr) &&
		      offsetof(struct mlx4_wqe_raddr_seg, rkey) ==
			      offsetof(struct mlx5_wqe_raddr_seg, rkey),
	      "remote address segments");
static_assert(sizeof(struct mlx5_wqe_atomic_seg) == SEG &&
		      sizeof(struct mlx4_wqe_atomic_seg) == SEG &&
		      offsetof(struct mlx4_wqe_atomic_seg, swap_add) ==
			      offsetof(struct mlx5_wqe_atomic_seg, swap_add) &&
		      offsetof(struct mlx4_wqe_atomic_seg, compare) ==
			      offsetof(struct mlx5_wqe_atomic_seg, compare),
	      "atomic segments");

/* --- sends: what each verbs opcode needs in a WQE --------------------------------------------- */

enum send_segs {
	SEGS_BAD,
	SEGS_NONE,
	SEGS_RADDR,      /* remote address */
	SEGS_ATOMIC,     /* remote address and operands */
	SEGS_INVALIDATE, /* a key, and neither data segments nor inline data */
	SEGS_TSO,        /* headers, and the size of segments: raw Ethernet on mlx5 */
	SEGS_UNSUPPORTED,
};

enum send_imm { IMM_NONE, IMM_DATA, IMM_RKEY };

struct send_op {
	uint8_t opcode; /* MLX5_OPCODE_*, MLX4_OPCODE_* */
	uint8_t segs;   /* enum send_segs */
	uint8_t imm;    /* enum send_imm: what the immediate field holds */
	bool no_inline; /* data segments are where the response goes */
};

#define SAME_OPCODE(name) ((int)MLX5_OPCODE_##name == (int)MLX4_OPCODE_##name)
static_assert(SAME_OPCODE(RDMA_WRITE) && SAME_OPCODE(RDMA_WRITE_IMM) && SAME_OPCODE(SEND) &&
		      SAME_OPCODE(SEND_IMM) && SAME_OPCODE(SEND_INVAL) && SAME_OPCODE(RDMA_READ) &&
		      SAME_OPCODE(ATOMIC_CS) && SAME_OPCODE(ATOMIC_FA) && SAME_OPCODE(LOCAL_INVAL),
	      "opcodes");
#undef SAME_OPCODE

static const struct send_op send_ops[] = {
	[IBV_WR_RDMA_WRITE] = { MLX5_OPCODE_RDMA_WRITE, SEGS_RADDR, IMM_NONE, false },
	[IBV_WR_RDMA_WRITE_WITH_IMM] = { MLX5_OPCODE_RDMA_WRITE_IMM, SEGS_RADDR, IMM_DATA, false },
	[IBV_WR_SEND] = { MLX5_OPCODE_SEND, SEGS_NONE, IMM_NONE, false },
	[IBV_WR_SEND_WITH_IMM] = { MLX5_OPCODE_SEND_IMM, SEGS_NONE, IMM_DATA, false },
	[IBV_WR_RDMA_READ] = { MLX5_OPCODE_RDMA_READ, SEGS_RADDR, IMM_NONE, true },
	[IBV_WR_ATOMIC_CMP_AND_SWP] = { MLX5_OPCODE_ATOMIC_CS, SEGS_ATOMIC, IMM_NONE, true },
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = { MLX5_OPCODE_ATOMIC_FA, SEGS_ATOMIC, IMM_NONE, true },
	[IBV_WR_LOCAL_INV] = { MLX5_OPCODE_LOCAL_INVAL, SEGS_INVALIDATE, IMM_RKEY, false },
	[IBV_WR_BIND_MW] = { 0, SEGS_UNSUPPORTED, IMM_NONE, false },
	[IBV_WR_SEND_WITH_INV] = { MLX5_OPCODE_SEND_INVAL, SEGS_NONE, IMM_RKEY, false },
	[IBV_WR_TSO] = { MLX5_OPCODE_TSO, SEGS_TSO, IMM_NONE, true },
};

/* Whether there is a WQE for the opcode: 0 or a positive errno. */
static inline int send_check_opcode(enum ibv_wr_opcode opcode)
{
	if (unlikely((unsigned int)opcode >= ARRAY_SIZE(send_ops) ||
		     send_ops[opcode].segs == SEGS_BAD))
		return EINVAL;
	return unlikely(send_ops[opcode].segs == SEGS_UNSUPPORTED) ? EOPNOTSUPP : 0;
}

static inline void wqe_put_raddr(char *at, uint64_t remote_addr, uint32_t rkey)
{
	struct mlx5_wqe_raddr_seg *seg = (struct mlx5_wqe_raddr_seg *)at;

	seg->raddr = htobe64(remote_addr);
	seg->rkey = htobe32(rkey);
	seg->reserved = 0;
}

static inline void wqe_put_atomic(char *at, uint64_t swap_add, uint64_t compare)
{
	struct mlx5_wqe_atomic_seg *seg = (struct mlx5_wqe_atomic_seg *)at;

	seg->swap_add = htobe64(swap_add);
	seg->compare = htobe64(compare);
}

/* The segments of a connected QP between control and data; returns where the data starts. */
static inline char *wqe_put_remote(char *at, const struct ibv_send_wr *wr, enum send_segs segs)
{
	switch (segs) {
	case SEGS_RADDR:
		wqe_put_raddr(at, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
		return at + SEG;
	case SEGS_ATOMIC:
		wqe_put_raddr(at, wr->wr.atomic.remote_addr, wr->wr.atomic.rkey);
		if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
			wqe_put_atomic(at + SEG, wr->wr.atomic.swap, wr->wr.atomic.compare_add);
		else
			wqe_put_atomic(at + SEG, wr->wr.atomic.compare_add, 0);
		return at + 2 * SEG;
	default:
		return at;
	}
}

/* --- completions ------------------------------------------------------------------------------ */

#define SAME_SYNDROME(name) ((int)MLX5_CQE_SYNDROME_##name == (int)MLX4_CQE_SYNDROME_##name)
static_assert(SAME_SYNDROME(LOCAL_LENGTH_ERR) && SAME_SYNDROME(LOCAL_QP_OP_ERR) &&
		      SAME_SYNDROME(LOCAL_PROT_ERR) && SAME_SYNDROME(WR_FLUSH_ERR) &&
		      SAME_SYNDROME(MW_BIND_ERR) && SAME_SYNDROME(BAD_RESP_ERR) &&
		      SAME_SYNDROME(LOCAL_ACCESS_ERR) && SAME_SYNDROME(REMOTE_INVAL_REQ_ERR) &&
		      SAME_SYNDROME(REMOTE_ACCESS_ERR) && SAME_SYNDROME(REMOTE_OP_ERR) &&
		      SAME_SYNDROME(TRANSPORT_RETRY_EXC_ERR) && SAME_SYNDROME(RNR_RETRY_EXC_ERR) &&
		      SAME_SYNDROME(REMOTE_ABORTED_ERR),
	      "syndromes");
#undef SAME_SYNDROME

/* The completion opcode of a send that was posted with this WQE opcode. */
static inline enum ibv_wc_opcode send_wc_opcode(uint8_t wqe_opcode)
{
	switch (wqe_opcode) {
	case MLX5_OPCODE_RDMA_WRITE:
	case MLX5_OPCODE_RDMA_WRITE_IMM:
		return IBV_WC_RDMA_WRITE;
	case MLX5_OPCODE_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case MLX5_OPCODE_ATOMIC_CS:
		return IBV_WC_COMP_SWAP;
	case MLX5_OPCODE_ATOMIC_FA:
		return IBV_WC_FETCH_ADD;
	case MLX5_OPCODE_LOCAL_INVAL:
		return IBV_WC_LOCAL_INV;
	case MLX5_OPCODE_TSO:
		return IBV_WC_TSO;
	case MLX5_OPCODE_UMR:
		return (enum ibv_wc_opcode)MLX5DV_WC_UMR;
	case MLX5_OPCODE_MMO:
		return (enum ibv_wc_opcode)MLX5DV_WC_MEMCPY;
	default:
		return IBV_WC_SEND;
	}
}

/* The completion status that an error syndrome means. */
static inline enum ibv_wc_status syndrome_status(uint8_t syndrome)
{
	switch (syndrome) {
	case MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR:
		return IBV_WC_LOC_LEN_ERR;
	case MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR:
		return IBV_WC_LOC_QP_OP_ERR;
	case MLX5_CQE_SYNDROME_LOCAL_PROT_ERR:
		return IBV_WC_LOC_PROT_ERR;
	case MLX5_CQE_SYNDROME_WR_FLUSH_ERR:
		return IBV_WC_WR_FLUSH_ERR;
	case MLX5_CQE_SYNDROME_MW_BIND_ERR:
		return IBV_WC_MW_BIND_ERR;
	case MLX5_CQE_SYNDROME_BAD_RESP_ERR:
		return IBV_WC_BAD_RESP_ERR;
	case MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR:
		return IBV_WC_LOC_ACCESS_ERR;
	case MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR:
		return IBV_WC_REM_INV_REQ_ERR;
	case MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR:
		return IBV_WC_REM_ACCESS_ERR;
	case MLX5_CQE_SYNDROME_REMOTE_OP_ERR:
		return IBV_WC_REM_OP_ERR;
	case MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR:
		return IBV_WC_RETRY_EXC_ERR;
	case MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR:
		return IBV_WC_RNR_RETRY_EXC_ERR;
	case MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR:
		return IBV_WC_REM_ABORT_ERR;
	default:
		return IBV_WC_GENERAL_ERR;
	}
}

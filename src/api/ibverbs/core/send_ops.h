/* SPDX-License-Identifier: MIT */
/*
 * What each verbs opcode needs in a send WQE. mlx4 and mlx5 number the opcodes of WQEs alike, and both have the segments
 * that InfiniBand's headers ask for.
 */
#pragma once

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <infiniband/mlx4dv.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "base/util.h"

enum send_segs {
	SEGS_BAD,
	SEGS_NONE,
	SEGS_RADDR,      /* remote address */
	SEGS_ATOMIC,     /* remote address and operands */
	SEGS_INVALIDATE, /* a key, and neither data segments nor inline data */
	SEGS_UNSUPPORTED,
};

enum send_imm { IMM_NONE, IMM_DATA, IMM_RKEY };

struct send_op {
	uint8_t opcode; /* MLX5_OPCODE_*, MLX4_OPCODE_* */
	uint8_t segs;   /* enum send_segs */
	uint8_t imm;    /* enum send_imm: what the immediate field holds */
	bool no_inline; /* data segments name where the answer goes */
};

#define SAME_OPCODE(name) ((int)MLX5_OPCODE_##name == (int)MLX4_OPCODE_##name)
static_assert(SAME_OPCODE(RDMA_WRITE) && SAME_OPCODE(RDMA_WRITE_IMM) && SAME_OPCODE(SEND) &&
		      SAME_OPCODE(SEND_IMM) && SAME_OPCODE(SEND_INVAL) && SAME_OPCODE(RDMA_READ) &&
		      SAME_OPCODE(ATOMIC_CS) && SAME_OPCODE(ATOMIC_FA) && SAME_OPCODE(LOCAL_INVAL),
	      "mlx4 and mlx5 number opcodes alike");
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
	[IBV_WR_TSO] = { 0, SEGS_UNSUPPORTED, IMM_NONE, false },
};

/* Whether there is a WQE for the opcode: 0 or a positive errno. */
static inline int send_check_opcode(enum ibv_wr_opcode opcode)
{
	if (unlikely((unsigned int)opcode >= ARRAY_SIZE(send_ops) ||
		     send_ops[opcode].segs == SEGS_BAD))
		return EINVAL;
	return unlikely(send_ops[opcode].segs == SEGS_UNSUPPORTED) ? EOPNOTSUPP : 0;
}

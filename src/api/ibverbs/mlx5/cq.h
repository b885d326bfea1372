/* SPDX-License-Identifier: MIT */
/*
 * The CQE ring as the driver reads it (cq.c, poll.c, poll_ex.c).
 *
 * The card writes a CQE, then its op_own byte: opcode in the upper half, owner in bit 0. The ring
 * starts with every opcode invalid; the owner bit that means "yours" is 0 in the first round and
 * flips with each round, so neither side ever has to clear an entry.
 *
 *	 ci (mod cqe_cnt) ---+
 *	                     v
 *	[ old | old | old | new | new | new | old | old ]   old: of the round before, or invalid
 */
#pragma once

#include "mlx5.h"

static_assert(sizeof(struct mlx5_cqe64) == 64, "CQE size");
static_assert(sizeof(struct mlx5_err_cqe) == 64, "error CQE size");
static_assert(offsetof(struct mlx5_cqe64, op_own) == 63, "owner byte is written last");
static_assert(offsetof(struct mlx5_cqe64, sop_drop_qpn) == 56, "QP number");

enum { CQE_OPCODE_SHIFT = 4, CQE_QPN_MASK = 0xffffff };

static inline struct mlx5_cqe64 *cq_entry(const struct api_cq *cq, uint32_t index)
{
	/* Of an entry of 128 bytes the CQE is the second half. */
	return (struct mlx5_cqe64 *)(cq->ring +
				     ((size_t)((index & (cq->cqe_cnt - 1)) + 1) << cq->cqe_shift)) -
	       1;
}

/* Whether the card has written the CQE in this round. */
static inline bool cqe_is_ready(const struct mlx5_cqe64 *cqe, bool round)
{
	/* Pairs with the card's release store of op_own: the rest of the CQE is there. */
	uint8_t op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);

	return (op_own >> CQE_OPCODE_SHIFT) != MLX5_CQE_INVALID &&
	       (op_own & MLX5_CQE_OWNER_MASK) == round;
}

/* The CQE at a free-running index, or NULL while the card owns it. */
static inline struct mlx5_cqe64 *cq_sw_entry(const struct api_cq *cq, uint32_t index)
{
	struct mlx5_cqe64 *cqe = cq_entry(cq, index);

	return cqe_is_ready(cqe, index & cq->cqe_cnt) ? cqe : NULL;
}

static inline uint8_t cqe_opcode(const struct mlx5_cqe64 *cqe)
{
	return cqe->op_own >> CQE_OPCODE_SHIFT;
}

/* --- compressed CQEs, in the basic layout of card/queue/compress.c ---------------------------------- */

enum { FORMAT_COMPRESSED = 3, MINIS_PER_CQE = 8 };

/* As the card's codec has them, see card/format/mlx5.c. */
struct mini {
	union {
		__be32 hash;
		struct {
			__be16 checksum, stride;
		};
		struct {
			__be16 wqe_counter;
			uint8_t opcode; /* of the WQE */
			uint8_t reserved;
		} send;
	};
	__be32 byte_cnt;
};

static_assert(sizeof(struct mini) * MINIS_PER_CQE == sizeof(struct mlx5_cqe64), "an array");

/* The array that is being polled. */
struct mini_block {
	struct mlx5_cqe64 cqe;           /* of the completion that was polled last */
	struct mini mini[MINIS_PER_CQE]; /* the part of it that is at hand */
	uint32_t done, count;
	uint16_t counter; /* of the first */
	uint8_t format;   /* of receives */
};

static inline bool cqe_is_title(const struct mlx5_cqe64 *cqe)
{
	return (cqe->op_own >> 2 & 3) == FORMAT_COMPRESSED;
}

/* hds_ip_ext: headers of a frame that are right. */
enum { CQE_L2_OK = 1 << 0, CQE_L3_OK = 1 << 1, CQE_L4_OK = 1 << 2 };

/* A frame of raw Ethernet was received. */
static inline bool cqe_is_frame(const struct mlx5_cqe64 *cqe)
{
	return cqe_opcode(cqe) == MLX5_CQE_RESP_SEND && (cqe->hds_ip_ext & CQE_L2_OK);
}

/* That of a frame has its flow tag there, and the QP's number as user index. */
static inline uint32_t cqe_qpn(const struct mlx5_cqe64 *cqe)
{
	return be32toh(unlikely(cqe_is_frame(cqe)) ? cqe->srqn_uidx : cqe->sop_drop_qpn) &
	       CQE_QPN_MASK;
}

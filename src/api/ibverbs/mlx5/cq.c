// SPDX-License-Identifier: MIT
/*
 * Completion queues of an mlx5 card: creation with attributes of direct verbs, arming, the entries
 * of the ring as the core's cq.c sees them, and arrays of mini CQEs.
 */
#include "cq.h"

#include "base/env.h"
#include "card/queue/cq.h"

/* --- creation --------------------------------------------------------------------------------- */

/* MLX5_CQE_SIZE, as the real library reads it. 0: not set. */
static int size_from_environment(uint32_t *size)
{
	const char *value = vb_getenv("MLX5_CQE_SIZE");

	*size = value ? (uint32_t)strtoul(value, NULL, 10) : 0;
	return value && *size != 64 && *size != 128 ? -vb_refuse_value("MLX5_CQE_SIZE", *size) : 0;
}

struct ibv_cq_ex *mlx5_cq_create(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	return mlx5_cq_create_direct(context, attr, NULL);
}

/* mini_cqe_res_format of the CQ context; one format, as the kernel's driver wants it. */
static int mini_format(uint8_t format, uint8_t *to)
{
	switch (format) {
	case MLX5DV_CQE_RES_FORMAT_HASH:
		*to = 0;
		return 0;
	case MLX5DV_CQE_RES_FORMAT_CSUM:
		*to = 1;
		return 0;
	case MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX:
		*to = 3;
		return 0;
	default:
		return -vb_refuse_value("cqe_comp_res_format", format);
	}
}

static int mlx5_cq_check_direct(const struct mlx5dv_cq_init_attr *direct,
				struct api_cq_extra *extra)
{
	const uint64_t known = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE |
			       MLX5DV_CQ_INIT_ATTR_MASK_FLAGS | MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;

	if (direct->comp_mask & ~known)
		return -vb_refuse_bits("comp_mask", direct->comp_mask & ~known);
	if (direct->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE) {
		if (direct->cqe_size != 64 && direct->cqe_size != 128)
			return -vb_refuse_value("cqe_size", direct->cqe_size);
		extra->cqe_size = direct->cqe_size;
	}
	if (direct->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_FLAGS) {
		if (direct->flags & ~(uint32_t)MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD)
			return -vb_refuse_bits("flags", direct->flags);
		/* The first half of an entry is never written, and so it is zero, as padding is. */
		if (direct->flags && extra->cqe_size != 128)
			return -vb_refuse_combination("padding is for CQEs of 128 bytes");
	}
	if (direct->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE) {
		extra->compressed = true;
		return mini_format(direct->cqe_comp_res_format, &extra->mini_format);
	}
	return 0;
}

struct ibv_cq_ex *mlx5_cq_create_direct(struct ibv_context *context,
					struct ibv_cq_init_attr_ex *attr,
					const struct mlx5dv_cq_init_attr *direct)
{
	struct api_cq_extra extra = { 0 };
	struct ibv_cq_ex *cq;
	int err = size_from_environment(&extra.cqe_size);

	if (!err && direct)
		err = mlx5_cq_check_direct(direct, &extra);
	if (err)
		return api_null(err);
	if (extra.compressed)
		extra.block_bytes = sizeof(struct mini_block);
	cq = api_cq_create_extra(context, attr, &extra);
	if (cq && extra.compressed)
		((struct mini_block *)ex_to_cq(cq)->block)->format = extra.mini_format;
	return cq;
}

/* --- the ring --------------------------------------------------------------------------------- */

/*
 * Without the lock: a program may arm between start_poll() and end_poll(). The consumer index is
 * the one that the doorbell record already has.
 */
int mlx5_cq_arm(struct ibv_cq *ibcq, int solicited_only)
{
	struct api_cq *cq = to_cq(ibcq);
	uint32_t sn = atomic_load_explicit(&cq->arm_sn, memory_order_relaxed) & 3;
	uint32_t command = solicited_only ? MLX5_CQ_DB_REQ_NOT_SOL : MLX5_CQ_DB_REQ_NOT;
	uint32_t ci = be32toh(__atomic_load_n(&cq->dbr[0], __ATOMIC_RELAXED));

	__atomic_store_n(&cq->dbr[1], htobe32(sn << 28 | command | ci), __ATOMIC_RELEASE);
	vb_cq_arm(cq->card, solicited_only);
	return 0;
}

/* Of an entry of 128 bytes the CQE is the second half. */
static struct mlx5_cqe64 *mlx5_cq_content(const void *entry, uint32_t size)
{
	return (struct mlx5_cqe64 *)((char *)(uintptr_t)entry + size) - 1;
}

bool mlx5_cqe_ready(const void *entry, uint32_t size, bool round)
{
	return cqe_is_ready(mlx5_cq_content(entry, size), round);
}

void mlx5_cqe_give(void *entry, uint32_t size, bool round)
{
	mlx5_cq_content(entry, size)->op_own = MLX5_CQE_INVALID << CQE_OPCODE_SHIFT;
}

void mlx5_cqe_move(void *to, const void *from, uint32_t size, bool round)
{
	struct mlx5_cqe64 *cqe = mlx5_cq_content(to, size);

	*cqe = *mlx5_cq_content(from, size);
	cqe->op_own = (uint8_t)((cqe->op_own & ~MLX5_CQE_OWNER_MASK) | round);
}

uint32_t mlx5_cqe_qpn(const void *entry, uint32_t size)
{
	return cqe_qpn(mlx5_cq_content(entry, size));
}

int32_t mlx5_cqe_receive(const void *entry, uint32_t size)
{
	const struct mlx5_cqe64 *cqe = mlx5_cq_content(entry, size);
	uint8_t opcode = cqe_opcode(cqe);

	return opcode == MLX5_CQE_REQ || opcode == MLX5_CQE_REQ_ERR ? -1
								    : be16toh(cqe->wqe_counter);
}

/* --- arrays of mini CQEs; the lock is held ---------------------------------------------------- */

static void mlx5_cq_begin_block(struct mini_block *block, const struct mlx5_cqe64 *title)
{
	block->cqe = *title;
	block->cqe.op_own &= (uint8_t) ~(3 << 2);
	block->count = be32toh(title->byte_cnt);
	block->counter = be16toh(title->wqe_counter);
	block->done = 0;
}

/* What the mini CQE says; all else is the title's. */
static void mlx5_mlx5_cq_expand(struct mini_block *block, const struct mini *mini)
{
	enum { RSS_HASH = 12, CHECK_SUM = 20, FORMAT_HASH = 0, FORMAT_STRIDE = 3 };
	struct mlx5_cqe64 *cqe = &block->cqe;
	uint32_t strides = cqe_is_frame(cqe) ? be32toh(mini->byte_cnt) >> 16 : 0;

	cqe->byte_cnt = mini->byte_cnt;
	if (cqe_opcode(cqe) == MLX5_CQE_REQ) {
		cqe->wqe_counter = mini->send.wqe_counter;
		cqe->sop_drop_qpn = htobe32((be32toh(cqe->sop_drop_qpn) & CQE_QPN_MASK) |
					    (uint32_t)mini->send.opcode << 24);
		return;
	}
	if (strides && block->format == FORMAT_STRIDE)
		cqe->wqe_counter = mini->stride;
	else
		cqe->wqe_counter =
			htobe16((uint16_t)(block->counter + block->done * (strides ? strides : 1)));
	if (block->format == FORMAT_HASH)
		memcpy((char *)cqe + RSS_HASH, &mini->hash, sizeof(mini->hash));
	else
		memcpy((char *)cqe + CHECK_SUM, &mini->checksum, sizeof(mini->checksum));
}

/*
 * The part of an array that is needed next is copied before the consumer index reaches its entry,
 * and entries that were passed are made invalid: they may look like anything.
 */
struct mlx5_cqe64 *mlx5_cq_expand(struct api_cq *cq)
{
	struct mini_block *block = cq->block;

	if (block->done == block->count) {
		struct mlx5_cqe64 *cqe = cq_sw_entry(cq, cq->ci);

		if (!cqe || !cqe_is_title(cqe))
			return cqe;
		mlx5_cq_begin_block(block, cqe);
		memcpy(block->mini, cq_entry(cq, cq->ci + 1), sizeof(block->mini));
	} else if (block->done % MINIS_PER_CQE == 0) {
		memcpy(block->mini, cq_entry(cq, cq->ci), sizeof(block->mini));
	}
	cq_entry(cq, cq->ci)->op_own = MLX5_CQE_INVALID << CQE_OPCODE_SHIFT;
	mlx5_mlx5_cq_expand(block, &block->mini[block->done % MINIS_PER_CQE]);
	block->done++;
	return &block->cqe;
}

uint32_t mlx5_cq_span(const struct api_cq *cq, uint32_t index, bool *bare)
{
	const struct mini_block *block = cq->block;
	const struct mlx5_cqe64 *cqe;

	if (index == cq->ci && block->done != block->count) {
		*bare = true;
		return block->count - block->done;
	}
	cqe = cq_sw_entry(cq, index);
	return !cqe ? 0 : cqe_is_title(cqe) ? be32toh(cqe->byte_cnt) : 1;
}

/* A number that no QP has takes the place of the QP's: a poll passes over its CQEs. */
static void mlx5_mlx5_cq_forget(struct mlx5_cqe64 *cqe, struct api_qp *qp, uint32_t first,
				uint32_t count)
{
	uint8_t opcode = cqe_opcode(cqe);
	bool receives = opcode != MLX5_CQE_REQ && opcode != MLX5_CQE_REQ_ERR;

	if (cqe_qpn(cqe) != qp->ibv.qp_num)
		return;
	for (uint32_t i = 0; receives && qp->ibv.srq && i < count; i++)
		api_srq_free_wqe(to_srq(qp->ibv.srq), (uint16_t)(first + i));
	if (cqe_is_frame(cqe))
		cqe->srqn_uidx |= htobe32(CQE_QPN_MASK);
	else
		cqe->sop_drop_qpn |= htobe32(CQE_QPN_MASK);
}

void mlx5_cq_forget(struct api_cq *cq, struct api_qp *qp)
{
	struct mini_block *block = cq->block;
	uint32_t at = cq->ci, left = block->count - block->done;
	struct mlx5_cqe64 *cqe;

	if (left)
		mlx5_mlx5_cq_forget(&block->cqe, qp, block->counter + block->done, left);
	for (at += left; (cqe = cq_sw_entry(cq, at)) != NULL; at += left) {
		left = cqe_is_title(cqe) ? be32toh(cqe->byte_cnt) : 1;
		mlx5_mlx5_cq_forget(cqe, qp, be16toh(cqe->wqe_counter), left);
	}
}

// SPDX-License-Identifier: MIT
/*
 * Completion queues of an mlx5 card: arming, and the entries of the ring as the core's cq.c sees
 * them.
 */
#include "cq.h"

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

bool mlx5_cqe_ready(const void *entry, uint32_t size, bool round)
{
	return cqe_is_ready(entry, round);
}

void mlx5_cqe_give(void *entry, uint32_t size, bool round)
{
	((struct mlx5_cqe64 *)entry)->op_own = MLX5_CQE_INVALID << CQE_OPCODE_SHIFT;
}

void mlx5_cqe_move(void *to, const void *from, uint32_t size, bool round)
{
	struct mlx5_cqe64 *cqe = to;

	*cqe = *(const struct mlx5_cqe64 *)from;
	cqe->op_own = (uint8_t)((cqe->op_own & ~MLX5_CQE_OWNER_MASK) | round);
}

uint32_t mlx5_cqe_qpn(const void *entry, uint32_t size)
{
	return cqe_qpn(entry);
}

int32_t mlx5_cqe_receive(const void *entry, uint32_t size)
{
	const struct mlx5_cqe64 *cqe = entry;
	uint8_t opcode = cqe_opcode(cqe);

	return opcode == MLX5_CQE_REQ || opcode == MLX5_CQE_REQ_ERR ? -1
								    : be16toh(cqe->wqe_counter);
}

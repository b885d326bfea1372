/* SPDX-License-Identifier: MIT */
/*
 * Completion queues of an mlx5 card: preset, arming, resizing, removal of a QP's CQEs.
 */
#include "cq.h"

void mlx5_cq_preset(void *buf, uint32_t cqe_cnt, uint32_t cqe_size)
{
	struct mlx5_cqe64 *ring = buf;

	for (uint32_t i = 0; i < cqe_cnt; i++)
		ring[i].op_own = MLX5_CQE_INVALID << CQE_OPCODE_SHIFT;
}

/*
 * Without the lock: a program may arm between start_poll() and end_poll(). The consumer index is the
 * one that the doorbell record already has.
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

/* Called by the card with the CQ stopped and by us with the lock held: move what was not polled. */
uint32_t mlx5_cq_copy(void *arg, void *buf, uint32_t cqe_cnt)
{
	struct api_cq *cq = arg;
	struct mlx5_cqe64 *ring = buf, *cqe;
	uint32_t n = 0;

	if (cq->dv_owned) /* the index is the program's, and the record has it */
		cq->ci = be32toh(__atomic_load_n(&cq->dbr[0], __ATOMIC_ACQUIRE));
	while (n < cq->cqe_cnt && cq_sw_entry(cq, cq->ci + n))
		n++;
	if (n > cqe_cnt)
		return n; /* does not fit: the card keeps the old ring */
	for (uint32_t i = 0; i < n; i++) {
		uint32_t index = cq->ci + i;

		cqe = &ring[index & (cqe_cnt - 1)];
		*cqe = *cq_entry(cq, index);
		cqe->op_own = (uint8_t)((cqe->op_own & ~MLX5_CQE_OWNER_MASK) | !!(index & cqe_cnt));
	}
	return n;
}

static bool is_receive(const struct mlx5_cqe64 *cqe)
{
	uint8_t opcode = cqe_opcode(cqe);

	return opcode != MLX5_CQE_REQ && opcode != MLX5_CQE_REQ_ERR;
}

/*
 * Remove the unpolled CQEs of a QP that the card no longer works for. The card goes on adding CQEs
 * of other QPs at the end, so those that stay move towards the end, over the removed ones, and the
 * consumer index follows. A CQ whose consumer index is the program's is left alone: it has to
 * recognise CQEs of a QP that is gone.
 */
void mlx5_cq_clean(struct api_cq *cq, struct api_qp *qp)
{
	uint32_t end, removed = 0;

	api_lock(&cq->lock, cq->unlocked);
	if (cq->last_qp == qp)
		cq->last_qp = NULL;
	end = cq->ci;
	if (cq->dv_owned)
		goto unlock;
	while (end - cq->ci < cq->cqe_cnt && cq_sw_entry(cq, end))
		end++;
	while (end-- != cq->ci) {
		struct mlx5_cqe64 *cqe = cq_entry(cq, end), *dest;
		uint8_t owner;

		if (cqe_qpn(cqe) == qp->ibv.qp_num) {
			if (qp->ibv.srq && is_receive(cqe))
				api_srq_free_wqe(to_srq(qp->ibv.srq), be16toh(cqe->wqe_counter));
			removed++;
		} else if (removed) {
			dest = cq_entry(cq, end + removed);
			owner = dest->op_own & MLX5_CQE_OWNER_MASK;
			*dest = *cqe;
			dest->op_own = (uint8_t)((cqe->op_own & ~MLX5_CQE_OWNER_MASK) | owner);
		}
	}
	if (removed) {
		cq->ci += removed;
		cq_store_ci(cq);
	}
unlock:
	api_unlock(&cq->lock, cq->unlocked);
}

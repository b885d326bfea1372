/* SPDX-License-Identifier: MIT */
/*
 * Completion queues of an mlx4 card: preset, arming, resizing, removal of a QP's CQEs.
 */
#include "mlx4.h"

/* Owner 1 on the first round means: the card's. */
void mlx4_cq_preset(void *ring, uint32_t cqe_cnt, uint32_t cqe_size)
{
	for (uint32_t i = 0; i < cqe_cnt; i++)
		((uint8_t *)ring)[(size_t)(i + 1) * cqe_size - 1] = MLX4_CQE_OWNER_MASK;
}

/*
 * Without the lock: a program may arm between start_poll() and end_poll(). The number is that of the
 * events fetched so far; where one is out that nobody has fetched, the card ignores the arming, and
 * the event will be there.
 */
int mlx4_cq_arm(struct ibv_cq *ibcq, int solicited_only)
{
	struct api_cq *cq = to_cq(ibcq);
	uint32_t sn = atomic_load_explicit(&cq->arm_sn, memory_order_relaxed) & 3;
	uint32_t command = solicited_only ? MLX4_CQ_DB_REQ_NOT_SOL : MLX4_CQ_DB_REQ_NOT;
	uint32_t ci = be32toh(__atomic_load_n(&cq->dbr[0], __ATOMIC_RELAXED));

	__atomic_store_n(&cq->dbr[1], htobe32(sn << 28 | command | ci), __ATOMIC_RELEASE);
	vb_cq_arm_sn(cq->card, sn, solicited_only, ci);
	return 0;
}

static void set_owner(struct mlx4_cqe *cqe, bool owner)
{
	mlx4dv_set_cqe_owner(cqe, owner ? MLX4_CQE_OWNER_MASK : 0);
}

/* Called by the card with the CQ stopped and by us with the lock held: move what was not polled. */
uint32_t mlx4_cq_copy(void *arg, void *buf, uint32_t cqe_cnt)
{
	struct api_cq *cq = arg;
	uint32_t n = 0;

	if (cq->dv_owned) /* the index is the program's, and the record has it */
		cq->ci = be32toh(__atomic_load_n(&cq->dbr[0], __ATOMIC_ACQUIRE));
	while (n < cq->cqe_cnt && mlx4_sw_entry(cq, cq->ci + n))
		n++;
	if (n > cqe_cnt)
		return n; /* does not fit: the card keeps the old ring */
	/* The rest is the card's, in the round that the index is in now. */
	for (uint32_t i = 0; i < cqe_cnt; i++) {
		uint32_t index = cq->ci + i;
		char *entry = (char *)buf + (size_t)(index & (cqe_cnt - 1)) * cq->cqe_size;
		struct mlx4_cqe *cqe =
			(struct mlx4_cqe *)(entry + cq->cqe_size - sizeof(struct mlx4_cqe));

		if (i < n)
			*cqe = *mlx4_entry(cq, index);
		set_owner(cqe, (i < n) == !!(index & cqe_cnt));
	}
	return n;
}

/* As mlx5_cq_clean(). */
void mlx4_cq_clean(struct api_cq *cq, struct api_qp *qp)
{
	uint32_t end, removed = 0;

	api_lock(&cq->lock, cq->unlocked);
	if (cq->last_qp == qp)
		cq->last_qp = NULL;
	end = cq->ci;
	if (cq->dv_owned)
		goto unlock;
	while (end - cq->ci < cq->cqe_cnt && mlx4_sw_entry(cq, end))
		end++;
	while (end-- != cq->ci) {
		struct mlx4_cqe *cqe = mlx4_entry(cq, end), *dest;
		bool owner;

		if (mlx4_qpn(cqe) == qp->ibv.qp_num) {
			if (qp->ibv.srq && !mlx4_is_send(cqe))
				api_srq_free_wqe(to_srq(qp->ibv.srq), be16toh(cqe->wqe_index));
			removed++;
		} else if (removed) {
			dest = mlx4_entry(cq, end + removed);
			owner = dest->owner_sr_opcode & MLX4_CQE_OWNER_MASK;
			*dest = *cqe;
			set_owner(dest, owner);
		}
	}
	if (removed) {
		cq->ci += removed;
		mlx4_store_ci(cq);
	}
unlock:
	api_unlock(&cq->lock, cq->unlocked);
}

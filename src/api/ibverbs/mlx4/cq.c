// SPDX-License-Identifier: MIT
/*
 * Completion queues of an mlx4 card: arming, and the entries of the ring as the core's cq.c sees
 * them.
 */
#include "mlx4.h"

#include "card/queue/cq.h"

/*
 * Without the lock: a program may arm between start_poll() and end_poll(). The sequence number
 * counts fetched events. If an event waits to be fetched, the card ignores the arming, and that
 * event tells the program.
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

bool mlx4_cqe_ready(const void *entry, uint32_t size, bool round)
{
	return mlx4_is_ready(mlx4_content((void *)entry, size), round);
}

/* An entry of the card has the owner bit of the round before, which is 1 before the first round. */
void mlx4_cqe_give(void *entry, uint32_t size, bool round)
{
	set_owner(mlx4_content(entry, size), !round);
}

void mlx4_cqe_move(void *to, const void *from, uint32_t size, bool round)
{
	struct mlx4_cqe *cqe = mlx4_content(to, size);

	*cqe = *mlx4_content((void *)from, size);
	set_owner(cqe, round);
}

uint32_t mlx4_cqe_qpn(const void *entry, uint32_t size)
{
	return mlx4_qpn(mlx4_content((void *)entry, size));
}

int32_t mlx4_cqe_receive(const void *entry, uint32_t size)
{
	const struct mlx4_cqe *cqe = mlx4_content((void *)entry, size);

	return mlx4_is_send(cqe) ? -1 : be16toh(cqe->wqe_index);
}

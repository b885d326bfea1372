/* SPDX-License-Identifier: MIT */
/*
 * The driver half of an mlx4 card: what its files share.
 *
 *	send ring    one stride per work request (direct users may pack them tighter); bit 31 of the
 *	             control word says whose it is and flips with every round
 *	CQE ring     entries of 32 bytes, or of 64 with the content in the second half; owner is bit 7
 *	             of the last byte
 *	receives     laid out as mlx5's; a length of 0 is one here, and 2 GiB is 0x80000000
 */
#pragma once

#include <infiniband/mlx4dv.h>

#include "api/ibverbs/core/objects.h"

enum {
	MLX4_WQE_MAX = 1008,         /* 63 units */
	MLX4_CQE_INL_SCATTER = 0x20, /* owner_sr_opcode: the data lies in the receive WQE */
	MLX4_CQE_GRH = 1u << 31,
};

#define MLX4_TIMESTAMP_MASK ((1ull << 48) - 1)

struct mlx4_context {
	struct api_context api; /* first */
	struct vb_uar *uar;     /* the doorbell page */
};

struct mlx4_ah {
	struct api_ah api; /* first */
	struct mlx4_av av;
	uint8_t mac[ETHERNET_LL_SIZE];
};

/* Inline receive (mlx4dv_create_qp): the card writes short messages into the receive WQE. */
struct mlx4_qp {
	struct api_qp api; /* first */
	uint32_t inl_recv; /* bytes that fit into a WQE; 0: none */
	struct ibv_sge
		*saved; /* where the data of each WQE goes, max_gs entries each; NULL: none */
	struct vb_lock post_lock; /* with saved: around posting */
};

static inline struct mlx4_context *to_mlx4_context(struct api_context *ctx)
{
	return (struct mlx4_context *)ctx;
}

static inline struct mlx4_ah *to_mlx4_ah(struct api_ah *ah)
{
	return (struct mlx4_ah *)ah;
}

static inline struct mlx4_qp *to_mlx4_qp(const struct api_qp *qp)
{
	return (struct mlx4_qp *)qp;
}

/* The CQE in an entry: it takes the last 32 bytes. */
static inline struct mlx4_cqe *mlx4_content(void *entry, uint32_t size)
{
	return (struct mlx4_cqe *)((char *)entry + size - sizeof(struct mlx4_cqe));
}

/* Whether the card has written the CQE in this round. */
static inline bool mlx4_is_ready(const struct mlx4_cqe *cqe, bool round)
{
	/* Pairs with the card's release store of the last byte: the rest of the CQE is there. */
	uint8_t last = __atomic_load_n(&cqe->owner_sr_opcode, __ATOMIC_ACQUIRE);

	return !(last & MLX4_CQE_OWNER_MASK) == !round;
}

/* The CQE at a free-running index, or NULL while the card owns it. */
static inline struct mlx4_cqe *mlx4_sw_entry(const struct api_cq *cq, uint32_t index)
{
	size_t offset = (size_t)(index & (cq->cqe_cnt - 1)) * cq->cqe_size;
	struct mlx4_cqe *cqe = mlx4_content(cq->ring + offset, cq->cqe_size);

	return mlx4_is_ready(cqe, index & cq->cqe_cnt) ? cqe : NULL;
}

static inline bool mlx4_is_send(const struct mlx4_cqe *cqe)
{
	return cqe->owner_sr_opcode & MLX4_CQE_IS_SEND_MASK;
}

static inline uint8_t mlx4_opcode(const struct mlx4_cqe *cqe)
{
	return cqe->owner_sr_opcode & MLX4_CQE_OPCODE_MASK;
}

static inline uint32_t mlx4_qpn(const struct mlx4_cqe *cqe)
{
	return be32toh(cqe->vlan_my_qpn) & MLX4_CQE_QPN_MASK;
}

/* ah.c */
void mlx4_ah_fill(struct api_ah *ah, const struct vb_adapter *adapter,
		  const struct ibv_ah_attr *attr, const uint8_t mac[ETHERNET_LL_SIZE]);

/* qp.c; direct is a struct mlx4dv_qp_init_attr */
int mlx4_qp_size(struct api_qp *qp, const struct ibv_qp_init_attr_ex *attr, const void *direct,
		 struct api_qp_layout *layout);
int mlx4_qp_alloc(struct api_qp *qp);
void mlx4_qp_free(struct api_qp *qp);
void mlx4_qp_card_attr(const struct api_qp *qp, struct vb_qp_attr *attr);
void mlx4_qp_init(struct api_qp *qp);

/* send.c */
int mlx4_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);

/* recv.c */
int mlx4_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
void mlx4_srq_preset(struct api_srq *srq);
int mlx4_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
/* cq.c */
int mlx4_cq_arm(struct ibv_cq *cq, int solicited_only);
bool mlx4_cqe_ready(const void *entry, uint32_t size, bool round);
void mlx4_cqe_give(void *entry, uint32_t size, bool round);
void mlx4_cqe_move(void *to, const void *from, uint32_t size, bool round);
uint32_t mlx4_cqe_qpn(const void *entry, uint32_t size);
int32_t mlx4_cqe_receive(const void *entry, uint32_t size);

/* poll.c */
int mlx4_cq_poll(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
extern const struct ibv_cq_ex mlx4_cq_ex;

/* SPDX-License-Identifier: MIT */
/*
 * The mlx5 provider: what its files share. sq.h has the send ring, cq.h the CQE ring, cqe.h the way from a CQE to a work
 * completion.
 */
#pragma once

#include <infiniband/mlx5dv.h>

#include "api/ibverbs/core/objects.h"

/* qp.c */
int mlx5_qp_size(struct api_qp *qp, const struct ibv_qp_init_attr_ex *attr,
		 struct api_qp_layout *layout);

/* send.c, send_ex.c */
int mlx5_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int mlx5_qp_set_ex_ops(struct api_qp *qp, uint64_t send_ops_flags);

/* recv.c */
int mlx5_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int mlx5_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/* cq.c */
int mlx5_cq_arm(struct ibv_cq *cq, int solicited_only);
bool mlx5_cqe_ready(const void *entry, uint32_t size, bool round);
void mlx5_cqe_give(void *entry, uint32_t size, bool round);
void mlx5_cqe_move(void *to, const void *from, uint32_t size, bool round);
uint32_t mlx5_cqe_qpn(const void *entry, uint32_t size);
int32_t mlx5_cqe_receive(const void *entry, uint32_t size);

/* poll.c, poll_ex.c */
int mlx5_cq_poll(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
extern const struct ibv_cq_ex mlx5_cq_ex;

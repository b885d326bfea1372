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
void mlx5_cq_preset(void *ring, uint32_t cqe_cnt, uint32_t cqe_size);
uint32_t mlx5_cq_copy(void *cq, void *buf, uint32_t cqe_cnt);
void mlx5_cq_clean(struct api_cq *cq, struct api_qp *qp);
int mlx5_cq_arm(struct ibv_cq *cq, int solicited_only);

/* poll.c, poll_ex.c */
int mlx5_cq_poll(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
void mlx5_cq_set_ex_ops(struct api_cq *cq);

/* SPDX-License-Identifier: MIT */
/*
 * The mlx5 provider: what its files share. sq.h has the send ring, cq.h the CQE ring, cqe.h the way
 * from a CQE to a work completion.
 */
#pragma once

#include <infiniband/mlx5dv.h>

#include "api/ibverbs/core/objects.h"

struct mlx5_reserved {
	struct mlx5_reserved *next;
	uint32_t qpn;
};

struct mlx5_context {
	struct api_context api; /* first */
	struct vb_uar *uar;     /* the doorbell page, made on demand; under the context's mutex */
	uint32_t transport_domain;      /* of its RAW_PACKET QPs, which do not hear one another */
	struct mlx5_reserved *reserved; /* numbers of QPs; NULL-ended list, under the mutex */
};

struct mlx5_ah {
	struct api_ah api; /* first */
	struct mlx5_wqe_av av;
};

/* The work request that ibv_wr_*() is building; under the send queue's lock. */
struct mlx5_wr_builder {
	struct mlx5_wqe_ctrl_seg *ctrl; /* NULL: none open */
	char *data;       /* where data segments of the open one start; NULL: it has none */
	uint32_t ds;      /* its size so far, in 16 bytes */
	uint32_t data_ds; /* and up to data */
	uint8_t opcode;   /* MLX5_OPCODE_* of the open one */
	uint8_t opmod;    /* and its modifier */
	uint32_t start_post, start_head;
	uint32_t nreq;
	int err; /* the first error; reported by ibv_wr_complete() */
	/* configuration of a key: */
	const struct vb_verbs_mkey *mkey; /* of the open one, or NULL */
	uint8_t setters;                  /* that are still to be called */
	bool has_access, has_layout;
};

struct mlx5_qp {
	struct api_qp api; /* first */
	struct mlx5_wr_builder wr;
	struct mlx5dv_qp_ex dv;
	uint64_t dv_ops;             /* enum mlx5dv_qp_create_send_ops_flags */
	uint32_t wqe_max;            /* blocks of the largest WQE */
	uint8_t *raw;                /* by block: a raw WQE begins there; NULL: the QP has none */
	uint8_t loopback;            /* enum vb_tir_loopback of RAW_PACKET */
	struct vb_striding striding; /* of a WQ */
	uint8_t dc;                  /* enum vb_dc of DRIVER */
	uint8_t dc_log_errored;      /* of a DCI: log2 of the streams in error that are its own */
	uint64_t dc_key;             /* of a DCT */
};

static inline struct mlx5_qp *to_mlx5_qp(struct api_qp *qp)
{
	return (struct mlx5_qp *)qp;
}

static inline struct mlx5_context *to_mlx5_context(struct api_context *ctx)
{
	return (struct mlx5_context *)ctx;
}

static inline struct mlx5_ah *to_mlx5_ah(struct api_ah *ah)
{
	return (struct mlx5_ah *)ah;
}

/* ah.c */
void mlx5_ah_fill(struct api_ah *ah, const struct vb_adapter *adapter,
		  const struct ibv_ah_attr *attr, const uint8_t mac[ETHERNET_LL_SIZE]);

/* qp.c */
int mlx5_qp_size(struct api_qp *qp, const struct ibv_qp_init_attr_ex *attr, const void *direct,
		 struct api_qp_layout *layout);

int mlx5_qp_alloc(struct api_qp *qp);
void mlx5_qp_free(struct api_qp *qp);
void mlx5_qp_card_attr(const struct api_qp *qp, struct vb_qp_attr *attr);

/* send.c, send_ex.c */
int mlx5_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int mlx5_qp_set_ex_ops(struct api_qp *qp, uint64_t send_ops_flags);
/*
 * A WQE with room for so many segments between control and data: where they go, or NULL after an
 * error. Then the setters, and the end: by itself with the next one.
 */
char *mlx5_wr_open(struct ibv_qp_ex *ex, uint8_t opcode, uint32_t segs, __be32 imm);
void mlx5_wr_close(struct mlx5_qp *qp);
void mlx5_wr_fail(struct mlx5_wr_builder *wr, int err);

/* send_dv.c: mlx5dv_wr_*() */
enum { MLX5_MAX_MEMCPY = 1 << 24 };

int mlx5_qp_check_dv_ops(const struct api_qp *qp, uint64_t ops);
void mlx5_qp_set_dv_ops(struct mlx5_qp *qp);
int mlx5_qp_cancel(struct mlx5dv_qp_ex *dv, uint64_t wr_id);

static inline struct mlx5_qp *dv_to_qp(struct mlx5dv_qp_ex *dv)
{
	return container_of(dv, struct mlx5_qp, dv);
}

/* recv.c */
int mlx5_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int mlx5_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/* cq.c */
struct ibv_cq_ex *mlx5_cq_create(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
struct ibv_cq_ex *mlx5_cq_create_direct(struct ibv_context *context,
					struct ibv_cq_init_attr_ex *attr,
					const struct mlx5dv_cq_init_attr *direct);
int mlx5_cq_arm(struct ibv_cq *cq, int solicited_only);
/* The next CQE of a CQ whose entries may be compressed, expanded; NULL: none. */
struct mlx5_cqe64 *mlx5_cq_expand(struct api_cq *cq);
uint32_t mlx5_cq_span(const struct api_cq *cq, uint32_t index, bool *bare);
void mlx5_cq_forget(struct api_cq *cq, struct api_qp *qp);
bool mlx5_cqe_ready(const void *entry, uint32_t size, bool round);
void mlx5_cqe_give(void *entry, uint32_t size, bool round);
void mlx5_cqe_move(void *to, const void *from, uint32_t size, bool round);
uint32_t mlx5_cqe_qpn(const void *entry, uint32_t size);
int32_t mlx5_cqe_receive(const void *entry, uint32_t size);

/* poll.c, poll_ex.c */
int mlx5_cq_poll(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
extern const struct ibv_cq_ex mlx5_cq_ex;

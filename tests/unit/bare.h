/* SPDX-License-Identifier: MIT */
/*
 * A driver in its smallest form: rings, doorbell records and one QP connected to itself, straight on card.h, as device
 * code and direct verbs will use the card. For tests and fuzzers of what no ibv_* call can post.
 *
 *	sq: BARE_BLOCKS blocks of 64 bytes     rq: BARE_RECVS entries of 64 bytes     cq: BARE_CQES of 64 bytes
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/mlx5dv.h>

#include "card/device.h"
#include "card/memory/keys.h"
#include "card/queue/objects.h"

enum { BARE_BLOCKS = 64, BARE_RECVS = 16, BARE_CQES = 128, BARE_MEMORY = 65536 };

struct bare {
	struct vb_dev *dev;
	struct vb_pd *pd;
	struct vb_cq *cq;
	struct vb_qp *qp;
	struct vb_mr *mr;
	uint8_t *memory; /* BARE_MEMORY bytes, registered with all rights */
	uint8_t *sq, *rq;
	struct mlx5_cqe64 *cqes;
	__be32 *qp_dbr, *cq_dbr;
	enum ibv_qp_type type;
	union ibv_gid gid;
	uint32_t pi; /* send blocks posted */
	uint32_t recv_pi;
	uint32_t ci; /* CQEs taken */
	/* Of the next bare_connect(), as in struct ibv_qp_attr. As opened, a receiver that is not ready is an error at once. */
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer;
};

/* 0 or -errno. */
int bare_open(struct bare *bare, enum ibv_qp_type type);
/* On the first adapter of another card than the program's. */
int bare_open_on(struct bare *bare, struct vb_card *card, enum ibv_qp_type type);
void bare_close(struct bare *bare);
/* Through RESET to RTS, to itself or to another queue pair of this host; rings empty. */
int bare_connect(struct bare *bare);
int bare_connect_to(struct bare *bare, uint32_t qpn);

/* The next send block; the caller writes it, then bare_ring(). */
void *bare_block(struct bare *bare);
/* A control segment for the next block: ds counts 16-byte units. */
struct mlx5_wqe_ctrl_seg *bare_ctrl(struct bare *bare, uint8_t opcode, uint8_t ds, uint8_t flags);
/* So many more blocks are posted. */
void bare_ring(struct bare *bare, uint32_t blocks);
void bare_post_recv(struct bare *bare, uint64_t addr, uint32_t len);
/* The next CQE where the card has written one, else NULL; taken by the call. */
struct mlx5_cqe64 *bare_poll(struct bare *bare);
/* As bare_poll, but waits for it. */
struct mlx5_cqe64 *bare_wait(struct bare *bare);

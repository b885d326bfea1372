/* SPDX-License-Identifier: MIT */
/*
 * What a program does that drives mlx4 queues itself: rings, records and doorbells from mlx4dv_init_obj(), no library
 * call on the data path. Written with <infiniband/mlx4dv.h> alone, as such programs are.
 *
 *	raw_open: take QP and CQs of a node
 *	raw_begin, raw_put_*: build a send WQE aside     raw_post: copy it into the ring, owner bit last
 *	raw_ring: store to the doorbell                  raw_recv: post a receive
 *	raw_poll: look at the next CQE                   raw_arm: ask for an event
 */
#pragma once

#include "../programs/common.h"

#include <infiniband/mlx4dv.h>

struct raw_cq {
	struct mlx4dv_cq dv;
	uint32_t ci, sn;
};

struct raw {
	struct node *node;
	struct mlx4dv_qp dv;
	uint32_t sq_head;       /* blocks posted; free running */
	uint32_t sq_tail;       /* blocks completed */
	uint16_t blocks[65536]; /* of the WQE that starts at a block index */
	uint32_t rq_head;
	struct raw_cq send, recv;
};

/* A send WQE that is being built. */
struct raw_wqe {
	uint8_t bytes[1024];
	uint32_t size;
	uint32_t opcode;
};

void raw_cq_open(struct raw_cq *cq, struct ibv_cq *from);
void raw_open(struct raw *raw, struct node *node);

void raw_begin(struct raw_wqe *wqe, uint32_t opcode, uint32_t flags, uint32_t imm);
/* A frame that queues of the same port shall hear has its destination in the control segment, too. */
void raw_put_destination(struct raw_wqe *wqe, const uint8_t *frame);
void raw_put_raddr(struct raw_wqe *wqe, uint64_t addr, uint32_t rkey);
void raw_put_atomic(struct raw_wqe *wqe, uint64_t swap_add, uint64_t compare);
void raw_put_dgram(struct raw_wqe *wqe, const union ibv_gid *gid, uint32_t qpn, uint32_t qkey);
void raw_put_data(struct raw_wqe *wqe, const void *addr, uint32_t len, uint32_t lkey);
void raw_put_inline(struct raw_wqe *wqe, const void *data, uint32_t len);
/* Into the ring at the head; false where it does not fit now. */
bool raw_post(struct raw *raw, struct raw_wqe *wqe);
void raw_ring(struct raw *raw);
/* A SEND of the node's buffer, posted and not rung. */
void raw_send(struct raw *raw, size_t offset, uint32_t len, uint32_t flags);

void raw_recv(struct raw *raw, size_t offset, uint32_t len);

/* The next CQE, if it is there; consumed. */
bool raw_poll(struct raw_cq *cq, struct mlx4_cqe *cqe);
/* It must come. */
void raw_wait(struct raw_cq *cq, struct mlx4_cqe *cqe);
/* A CQE without error, of this QP and side. */
void raw_expect(struct raw_cq *cq, uint32_t qpn, bool send, struct mlx4_cqe *cqe);
/* An error CQE with this syndrome. */
void raw_expect_error(struct raw_cq *cq, uint32_t qpn, uint8_t syndrome);
/* What a completed send frees, stamped so that the card does not take it for new. */
void raw_free(struct raw *raw, const struct mlx4_cqe *cqe);

void raw_arm(struct raw_cq *cq, bool solicited);

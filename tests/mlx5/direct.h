/* SPDX-License-Identifier: MIT */
/*
 * What a program does that drives mlx5 queues itself: rings, records and doorbells from mlx5dv_init_obj(), no library
 * call on the data path. Written with <infiniband/mlx5dv.h> alone, as such programs are.
 *
 *	direct_open: take QP and CQs of a node
 *	wqe_begin, wqe_put_*: build a send WQE aside     direct_post: copy it into the ring
 *	direct_ring: doorbell of 8 bytes                 direct_flame: the WQE into the BlueFlame register
 *	direct_recv: post a receive                      direct_poll: look at the next CQE
 */
#pragma once

#include "../programs/common.h"

#include <infiniband/mlx5dv.h>

struct direct_cq {
	struct mlx5dv_cq dv;
	uint32_t ci, sn;
};

struct direct {
	struct node *node;
	struct mlx5dv_qp dv;
	uint32_t pi;    /* blocks posted; free running */
	uint32_t last;  /* where the WQE that was posted last begins */
	uint32_t rings; /* doorbells: the two halves of the register take turns */
	uint32_t rq_head;
	struct direct_cq send, recv;
};

/* A send WQE that is being built. */
struct wqe {
	_Alignas(16) uint8_t bytes[1024];
	uint32_t size;
	uint8_t opcode, opmod, flags;
	uint32_t imm;
};

/*
 * How the bytes of a WQE get into the register. FLAME_DOWN: one by one from the last to the first, as memmove() of
 * AddressSanitizer copies them.
 */
enum flame {
	FLAME_8,
	FLAME_16,
	FLAME_32,
	FLAME_64,
	FLAME_STRING,
	FLAME_1,
	FLAME_DOWN,
	FLAME_2,
	FLAME_4,
	FLAMES
};

void direct_cq_open(struct direct_cq *cq, struct ibv_cq *from);
/* Ends the test as skipped where stores to doorbell pages cannot be seen. */
void direct_open(struct direct *d, struct node *node);

void wqe_begin(struct wqe *wqe, uint8_t opcode, uint8_t flags, uint32_t imm);
void *wqe_put(struct wqe *wqe, uint32_t size);
void wqe_put_raddr(struct wqe *wqe, uint64_t addr, uint32_t rkey);
void wqe_put_atomic(struct wqe *wqe, uint64_t swap_add, uint64_t compare);
void wqe_put_data(struct wqe *wqe, uint64_t addr, uint32_t len, uint32_t lkey);
void wqe_put_inline(struct wqe *wqe, const void *data, uint32_t len);
/* An address handle's vector, for UD. */
void wqe_put_av(struct wqe *wqe, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey);
/* Into the ring at the head, which the caller knows to be free, and into the doorbell record. */
void direct_post(struct direct *d, struct wqe *wqe);
void direct_ring(struct direct *d);
/* The WQE that was posted last. False: this processor has no such store. */
bool direct_flame(struct direct *d, enum flame how);

void direct_recv(struct direct *d, size_t offset, uint32_t len);

/* The next CQE, if it is there; copied and consumed. */
bool direct_poll(struct direct_cq *cq, struct mlx5_cqe64 *cqe);
/* It must come. */
void direct_wait(struct direct_cq *cq, struct mlx5_cqe64 *cqe);
/* It must come, from this QP, with this opcode (MLX5_CQE_*). */
void direct_expect(struct direct_cq *cq, uint32_t qpn, uint8_t opcode, struct mlx5_cqe64 *cqe);
void direct_expect_error(struct direct_cq *cq, uint32_t qpn, uint8_t opcode, uint8_t syndrome);
void direct_arm(struct direct_cq *cq, bool solicited);

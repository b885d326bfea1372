/* SPDX-License-Identifier: MIT */
/*
 * What a program does that makes mlx5 queues by command (DEVX) and drives them itself: umems, doorbell records, WQEs,
 * stores to a UAR, CQEs by owner bit. Written with <infiniband/mlx5dv.h> alone; fields of commands by bit, as the
 * programmer's reference manual counts them.
 *
 *	hand_open: device, domain, a buffer with a key, a UAR, memory for rings
 *	hand_cq, hand_qp, hand_sq, hand_rq: queues      hand_connect: RST to RTS
 *	wqe_begin, wqe_put_*: build a send WQE aside    hand_post: into the ring    hand_ring: the doorbell
 *	hand_recv: post a receive                       hand_poll: look at the next CQE    hand_arm: ask for an event
 */
#pragma once

#include "../../programs/common.h"

#include <errno.h>
#include <infiniband/mlx5dv.h>

enum { HAND_BUF = 1 << 16, HAND_MEM = 1 << 20, HAND_QKEY = 0x11223344, HAND_PSN = 0xfffff0 };

/* A program's device and memory. */
struct hand {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	uint32_t pdn, eqn;
	struct mlx5dv_devx_uar *uar;
	uint8_t *mem; /* of rings and records, page after page */
	size_t used;
	struct mlx5dv_devx_umem *umem;
	uint8_t *buf; /* of messages */
	struct ibv_mr *mr;
	union ibv_gid gid;
};

struct hand_cq {
	struct hand *hand;
	struct mlx5dv_devx_obj *obj;
	uint32_t number, count, size; /* CQEs, bytes of each */
	uint8_t *buf;
	__be32 *dbr;
	uint32_t ci, sn;
};

/* A queue pair, or a queue of frames, which has one of the two rings. */
struct hand_qp {
	struct hand *hand;
	struct mlx5dv_devx_obj *obj;
	uint32_t number;
	uint8_t *sq, *rq;
	uint32_t sq_cnt, rq_cnt, rq_shift;
	__be32 *dbr;
	uint32_t sq_head, rq_head;
	struct hand_cq *send, *recv;
};

/* What a peer must know. */
struct hand_address {
	uint32_t qpn, psn, rkey, pad;
	uint64_t addr;
	union ibv_gid gid;
};

/* A command, and its answer. */
struct command {
	uint8_t in[1024], out[1024];
};

/* A send WQE that is being built. */
struct wqe {
	_Alignas(16) uint8_t bytes[1024];
	uint32_t size;
	uint8_t opcode, opmod, flags;
	uint32_t imm;
};

/* --- commands ------------------------------------------------------------------------------------ */

void put_bits(void *to, uint32_t bit, uint32_t len, uint64_t value);
uint64_t get_bits(const void *from, uint32_t bit, uint32_t len);
void command_begin(struct command *c, uint16_t opcode);
/* The object, with its number; it must be made. */
struct mlx5dv_devx_obj *command_create(struct hand *hand, struct command *c, size_t inlen,
				       uint32_t *number);
/* It must be refused by the firmware with this status. */
void command_refused(struct hand *hand, struct command *c, size_t inlen, uint8_t status);
/* The status of a modify or query, 0: done. The number of the object is filled in. */
uint8_t command_modify(struct mlx5dv_devx_obj *obj, uint32_t number, struct command *c,
		       size_t inlen);
uint8_t command_query(struct mlx5dv_devx_obj *obj, uint32_t number, uint16_t opcode,
		      struct command *c, size_t outlen);
void object_end(struct mlx5dv_devx_obj **obj);

/* --- objects ------------------------------------------------------------------------------------- */

void hand_open(struct hand *hand);
void hand_close(struct hand *hand);
/* Pages of the umem that nobody has, and where in it they are. */
void *hand_take(struct hand *hand, size_t size, uint64_t *offset);

/* Fields that a test changes before it creates the queue; see hand_cq(). */
void hand_cq_command(struct hand *hand, struct hand_cq *cq, uint32_t log_size, struct command *c);
void hand_cq_create(struct hand_cq *cq, struct command *c);
void hand_cq(struct hand *hand, struct hand_cq *cq, uint32_t log_size);
void hand_cq_end(struct hand_cq *cq);

void hand_qp_command(struct hand *hand, struct hand_qp *qp, enum ibv_qp_type type,
		     struct hand_cq *send, struct hand_cq *recv, uint32_t log_sq, uint32_t log_rq,
		     struct command *c);
void hand_qp_create(struct hand_qp *qp, struct command *c);
void hand_qp(struct hand *hand, struct hand_qp *qp, enum ibv_qp_type type, struct hand_cq *send,
	     struct hand_cq *recv);
/* Of frames; created in RST. domain 0: without TIS. */
void hand_sq_command(struct hand *hand, struct hand_qp *sq, struct hand_cq *cq, uint32_t tisn,
		     struct command *c);
void hand_rq_command(struct hand *hand, struct hand_qp *rq, struct hand_cq *cq, struct command *c);
void hand_wq_create(struct hand_qp *wq, struct command *c);
void hand_qp_end(struct hand_qp *qp);

/* Of an SQ (0x905) or RQ (0x909). */
enum wq_state { WQ_RST = 0, WQ_RDY = 1, WQ_ERR = 3 };
uint8_t hand_wq_state(struct hand_qp *wq, uint16_t opcode, enum wq_state from, enum wq_state to);

/* One transition with all that clients set; the status. */
uint8_t hand_to_init(struct hand_qp *qp);
uint8_t hand_to_rtr(struct hand_qp *qp, const struct hand_address *peer);
uint8_t hand_to_rts(struct hand_qp *qp);
void hand_connect(struct hand_qp *qp, const struct hand_address *peer);
uint8_t hand_qp_simple(struct hand_qp *qp, uint16_t opcode); /* 2ERR, 2RST, ... */
uint8_t hand_qp_state(struct hand_qp *qp);
void hand_address(const struct hand_qp *qp, struct hand_address *address);

/* --- the data path ------------------------------------------------------------------------------- */

void wqe_begin(struct wqe *wqe, uint8_t opcode, uint8_t flags, uint32_t imm);
void *wqe_put(struct wqe *wqe, uint32_t size);
void wqe_put_raddr(struct wqe *wqe, uint64_t addr, uint32_t rkey);
void wqe_put_atomic(struct wqe *wqe, uint64_t swap_add, uint64_t compare);
void wqe_put_data(struct wqe *wqe, const void *addr, uint32_t len, uint32_t lkey);
void wqe_put_inline(struct wqe *wqe, const void *data, uint32_t len);
void wqe_put_av(struct wqe *wqe, const union ibv_gid *gid, uint32_t qpn, uint32_t qkey);
/* Into the ring at the head, which the caller knows to be free, and into the doorbell record. */
void hand_post(struct hand_qp *qp, struct wqe *wqe);
void hand_ring(struct hand_qp *qp);
void hand_send(struct hand_qp *qp, size_t offset, uint32_t len); /* posted and rung, with a CQE */
void hand_write(struct hand_qp *qp, size_t offset, uint32_t len, const struct hand_address *to,
		size_t at);
void hand_recv(struct hand_qp *qp, size_t offset, uint32_t len);

/* The next CQE, if it is there; copied and consumed. */
bool hand_poll(struct hand_cq *cq, struct mlx5_cqe64 *cqe);
/* It must come. */
void hand_wait(struct hand_cq *cq, struct mlx5_cqe64 *cqe);
/* ... from this queue, with this opcode (MLX5_CQE_*). */
void hand_expect(struct hand_cq *cq, const struct hand_qp *qp, uint8_t opcode,
		 struct mlx5_cqe64 *cqe);
void hand_expect_error(struct hand_cq *cq, const struct hand_qp *qp, uint8_t opcode,
		       uint8_t syndrome);
void hand_arm(struct hand_cq *cq, bool solicited);

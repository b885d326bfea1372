/* SPDX-License-Identifier: MIT */
/*
 * What tests of the DC transport share: a device with a shared receive queue, targets (DCT) and initiators (DCI) on
 * it, work requests by ibv_wr_*(), and a target in a second process that does what it is told.
 *
 *	initiator (DCIs)   -- "expect a receive of this" -->   target (DCTs)
 *	                   <-- done ----------------------
 */
#pragma once

#include "../../programs/common.h"

#include <infiniband/mlx5dv.h>

enum { DC_SIZE = 4 << 20, DC_RECEIVES = 64, DC_BLOCK = 32 << 10, DC_KEY = 0x1122 };

struct dc {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	uint8_t *buf; /* DC_SIZE bytes; from half of it on are the receives */
	union ibv_gid gid;
	uint8_t gid_index;
};

struct dci {
	struct dc *dc;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	struct mlx5dv_qp_ex *dv;
};

/* What an initiator knows of a target. */
struct dc_target {
	uint64_t key, addr;
	uint32_t dctn, rkey;
	union ibv_gid gid;
};

void dc_open(struct dc *dc);
void dc_close(struct dc *dc);
void dc_receive(struct dc *dc, unsigned int index);

/* A DCT in RTR; NULL: as it was made, in RESET. */
struct ibv_qp *dct_create(struct dc *dc, uint64_t key);
int dct_to_init(struct ibv_qp *qp, int access);
int dct_to_rtr(struct ibv_qp *qp, uint8_t gid_index);
struct ibv_qp *dct_open(struct dc *dc, uint64_t key);
void dct_target(const struct dc *dc, const struct ibv_qp *qp, uint64_t key,
		struct dc_target *target);

struct dci_attr {
	uint8_t timeout, retry_cnt, rnr_retry;
	uint8_t log_streams, log_errored;
};

struct dci_attr dci_attr(void);
void dci_create(struct dci *dci, struct dc *dc, const struct dci_attr *attr);
int dci_to_init(struct ibv_qp *qp);
int dci_to_rtr(struct ibv_qp *qp);
int dci_to_rts(struct ibv_qp *qp, const struct dci_attr *attr);
void dci_open(struct dci *dci, struct dc *dc, const struct dci_attr *attr); /* in RTS */

struct ibv_ah *dc_ah(struct dc *dc, const union ibv_gid *gid);

/* One work request, signalled; imm 0: without. */
struct dc_wr {
	uint64_t wr_id;
	enum ibv_wr_opcode opcode;
	size_t offset; /* of our buffer */
	uint32_t len;
	uint64_t remote; /* offset of the target's */
	uint32_t imm;
	uint64_t compare, swap_add;
	uint16_t stream;
};

int dci_post(struct dci *dci, struct ibv_ah *ah, const struct dc_target *to,
	     const struct dc_wr *wr);
void dc_expect_send(struct dc *dc, uint64_t wr_id, enum ibv_wc_status status);

/* --- what the target's side is told -------------------------------------------------------------- */

enum dc_order {
	DC_EXPECT,  /* a receive that ends so */
	DC_CHECK,   /* bytes of the buffer are the pattern */
	DC_FILL,    /* make them so */
	DC_DESTROY, /* a DCT */
	DC_CREATE,  /* one in its place, with another key; answers with it */
	DC_END,
};

struct dc_command {
	enum dc_order order;
	uint32_t which; /* DCT */
	uint32_t len, imm, seed, src_qpn;
	uint64_t offset, key;
	bool written; /* the receive is of a WRITE with immediate: it has no data of its own */
};

enum { DC_TARGETS = 8 };

/* A target's side: in this process, or in another one. */
struct dc_side {
	struct dc *dc; /* here; NULL: there */
	struct ibv_qp *dct[DC_TARGETS];
	unsigned int count;
	struct dc_target target[DC_TARGETS];
	pid_t pid;
	int fd;
};

void dc_side_open(struct dc_side *side, struct dc *dc, unsigned int count);
void dc_side_spawn(struct dc_side *side, unsigned int count);
void dc_side_tell(struct dc_side *side, const struct dc_command *command);
void dc_side_close(struct dc_side *side);
/* main() of the second process. */
void dc_side_serve(int fd);

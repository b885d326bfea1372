/* SPDX-License-Identifier: MIT */
/*
 * What both halves of the queue programs know: queues as device code needs them, and a list of work for it. The host
 * writes these into device memory; fields that the host reads back are filled in by device code.
 */
#pragma once

#include <stdint.h>

struct work_cq {
	uint64_t ring, dbr;
	uint32_t number, log_depth;
	uint32_t ci;
	uint32_t spare;
};

struct work_qp {
	uint64_t rq, sq, dbr;
	uint32_t number, log_sq, log_rq;
	uint32_t pi; /* send blocks */
	uint32_t recv_pi;
	uint32_t stride; /* of a receive WQE */
};

/* A send. type is FLEXIO_CTRL_SEG_*; inlined data lies in the struct. */
struct work_op {
	uint32_t type, ce;
	uint32_t lkey, rkey;
	uint64_t laddr, raddr;
	uint32_t len, imm;
	uint64_t swap_add, compare;
	uint32_t inlined[3];
	uint32_t has_inline;
	/* UD */
	uint32_t dqpn, qkey;
	uint8_t gid[16];
	uint32_t gid_index;
	uint32_t opcode; /* not 0: instead of the type's */
	/* local work */
	uint32_t to_len;
	uint8_t element, cols, rows;
	uint8_t wait; /* condition, 0x10: inverted */
};

/* A completion as the getters showed it. */
struct work_cqe {
	uint32_t opcode, owner;
	uint32_t qpn, wqe_counter;
	uint32_t byte_cnt, user_index;
	uint32_t syndrome, vendor, validity;
	uint32_t imm, spare;
};

enum { WORK_OPS = 32, WORK_CQES = 64 };

struct work {
	struct work_cq cq;
	struct work_qp qp;
	uint32_t nops, expect; /* completions to wait for */
	uint32_t got;
	uint32_t os_errno;
	uint32_t window; /* id */
	uint32_t arm;    /* arm the CQ at the end */
	struct work_op ops[WORK_OPS];
	struct work_cqe cqes[WORK_CQES];
};

/* What an event handler sees of a CQ of another adapter. */
struct work_watch {
	struct work_cq cq;
	uint32_t device_id;  /* 0: it leaves its outbox as it is */
	uint32_t status;     /* of the last flexio_dev_outbox_config_uar_extension() */
	uint64_t runs, seen; /* seen is written last */
	uint64_t bytes;      /* of all completions */
};

/* What an event handler that receives works on. */
struct work_handler {
	struct work_cq cq;
	struct work_qp qp;
	uint64_t handled; /* completions so far */
	uint64_t runs;
	uint64_t sum;    /* of the first words of the messages */
	uint64_t errors; /* completions that were not as expected */
	uint64_t buffers;
	uint32_t size, lkey;
	uint32_t no_arm;  /* leave the CQ unarmed */
	uint32_t uidx;    /* expected */
	uint32_t forward; /* a CQ in which to put a zero CQE per run; 0: none */
	uint32_t last_errno;
};

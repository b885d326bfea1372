/* SPDX-License-Identifier: MIT */
/*
 * Device code of the queue programs, for either form of the library: FORM(x) puts the thread context in front of the
 * arguments where versions before 24.10 had it.
 */
#pragma once

#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>
#include <libflexio-dev/flexio_dev_queue_access.h>
#include <libflexio-libc/string.h>
#include <stddef.h>

#include "queue_work.h"

#if FLEXIO_DEV_VER_USED >= FLEXIO_DEV_VER(24, 10, 0)
#define RING(pi, qpn) flexio_dev_qp_sq_ring_db(pi, qpn)
#define ARM(ci, cqn)  flexio_dev_cq_arm(ci, cqn)
#define ZERO_CQE(cqn) flexio_dev_zcqe_gen(cqn)
#else
#define RING(pi, qpn) flexio_dev_qp_sq_ring_db(thread_ctx(), pi, qpn)
#define ARM(ci, cqn)  flexio_dev_cq_arm(thread_ctx(), ci, cqn)
#define ZERO_CQE(cqn) flexio_dev_zcqe_gen(thread_ctx(), cqn)
#endif

static inline struct flexio_dev_thread_ctx *thread_ctx(void)
{
	struct flexio_dev_thread_ctx *ctx;

	flexio_dev_get_thread_ctx(&ctx);
	return ctx;
}

static inline uint32_t last_errno(void)
{
	return flexio_dev_get_and_rst_errno(thread_ctx());
}

/* The completion that is next, or NULL. */
static inline struct flexio_dev_cqe64 *cq_peek(struct work_cq *cq)
{
	struct flexio_dev_cqe64 *cqe =
		(struct flexio_dev_cqe64 *)cq->ring + (cq->ci & ((1u << cq->log_depth) - 1));

	return flexio_dev_cqe_get_owner(cqe) == ((cq->ci >> cq->log_depth) & 1) ? cqe : NULL;
}

static inline void cq_consume(struct work_cq *cq)
{
	flexio_dev_dbr_cq_set_ci((uint32_t *)cq->dbr, ++cq->ci);
}

static inline union flexio_dev_sqe_seg *sq_seg(struct work_qp *qp, uint32_t index)
{
	uint32_t segs = 4u << qp->log_sq;

	return (union flexio_dev_sqe_seg *)qp->sq + ((qp->pi * 4 + index) & (segs - 1));
}

/* Data of a send, in the segment at index; returns the index behind it. */
static inline uint32_t put_data(struct work_qp *qp, struct work_op *op, uint32_t index)
{
	if (op->has_inline)
		flexio_dev_swqe_seg_inline_data_set(sq_seg(qp, index), op->len, op->inlined);
	else
		flexio_dev_swqe_seg_mem_ptr_data_set(sq_seg(qp, index), op->len, op->lkey,
						     op->laddr);
	return index + 1;
}

/* Where from and where to, in local memory. */
static inline uint32_t put_copy(struct work_qp *qp, struct work_op *op, uint32_t index)
{
	flexio_dev_swqe_seg_mem_ptr_data_set(sq_seg(qp, index++), op->len, op->lkey, op->laddr);
	flexio_dev_swqe_seg_mem_ptr_data_set(sq_seg(qp, index++), op->to_len, op->rkey, op->raddr);
	return index;
}

static inline uint32_t put_segments(struct work_qp *qp, struct work_op *op)
{
	static uint8_t mac[6];
	uint32_t index = 1;

	switch (op->type) {
	case FLEXIO_CTRL_SEG_NOP:
		return index;
	case FLEXIO_CTRL_SEG_SEND_UD:
		flexio_dev_swqe_seg_av1_set(sq_seg(qp, index++), op->qkey, op->dqpn, 1, 0, 0, 0);
		flexio_dev_swqe_seg_av2_set(sq_seg(qp, index++), mac, 0, 64,
					    1u << 30 | op->gid_index << 20);
		flexio_dev_swqe_seg_av3_set(sq_seg(qp, index++), op->gid);
		return put_data(qp, op, index);
	case FLEXIO_CTRL_SEG_RDMA_WRITE:
	case FLEXIO_CTRL_SEG_RDMA_WRITE_IMM:
	case FLEXIO_CTRL_SEG_RDMA_READ:
		flexio_dev_swqe_seg_rdma_set(sq_seg(qp, index++), op->rkey, op->raddr);
		return put_data(qp, op, index);
	case FLEXIO_CTRL_SEG_ATOMIC_COMPARE_AND_SWAP:
	case FLEXIO_CTRL_SEG_ATOMIC_FETCH_AND_ADD:
		flexio_dev_swqe_seg_rdma_set(sq_seg(qp, index++), op->rkey, op->raddr);
		flexio_dev_swqe_seg_atomic_set(sq_seg(qp, index++), op->swap_add, op->compare);
		return put_data(qp, op, index);
	case FLEXIO_CTRL_SEG_SEND_EN:
	case FLEXIO_CTRL_SEG_LSO:
		flexio_dev_swqe_seg_eth_set(sq_seg(qp, index++), 0, 0, 0, NULL);
		return put_data(qp, op, index);
	case FLEXIO_CTRL_SEG_TRANSPOSE:
		flexio_dev_swqe_seg_transpose_set(sq_seg(qp, index++), op->element, op->cols,
						  op->rows);
		return put_copy(qp, op, index);
	case FLEXIO_CTRL_SEG_LDMA:
		memset(sq_seg(qp, index++), 0, 16);
		return put_copy(qp, op, index);
	case FLEXIO_CTRL_SEG_WAIT_ON_DATA:
		flexio_dev_swqe_seg_wait_on_data_set(sq_seg(qp, index++), op->wait & 0xf,
						     op->wait >> 4 & 1, op->lkey, op->laddr, 0);
		flexio_dev_swqe_seg_wait_on_data_data_set(sq_seg(qp, index++), op->compare,
							  op->swap_add);
		return index;
	default:
		return put_data(qp, op, index);
	}
}

/* Write one WQE; the doorbell is the caller's. */
static inline void post_send(struct work_qp *qp, struct work_op *op)
{
	union flexio_dev_sqe_seg *ctrl = sq_seg(qp, 0);
	uint32_t segs;

	flexio_dev_swqe_seg_ctrl_set(ctrl, qp->pi, qp->number, op->ce,
				     (enum flexio_ctrl_seg)op->type);
	ctrl->ctrl.general_id = op->imm;
	segs = put_segments(qp, op);
	if (op->opcode)
		ctrl->ctrl.idx_opcode =
			(ctrl->ctrl.idx_opcode & cpu_to_be32(~0xffu)) | cpu_to_be32(op->opcode);
	ctrl->ctrl.qpn_ds = cpu_to_be32(qp->number << 8 | segs);
	qp->pi += (segs + 3) / 4;
}

static inline void read_cqe(struct flexio_dev_cqe64 *cqe, struct work_cqe *out)
{
	out->opcode = flexio_dev_cqe_get_opcode(cqe);
	out->owner = flexio_dev_cqe_get_owner(cqe);
	out->qpn = flexio_dev_cqe_get_qpn(cqe);
	out->wqe_counter = flexio_dev_cqe_get_wqe_counter(cqe);
	out->byte_cnt = flexio_dev_cqe_get_byte_cnt(cqe);
	out->user_index = flexio_dev_cqe_get_user_index(cqe);
	out->syndrome = flexio_dev_cqe_get_err_synd(cqe) & 0xff;
	out->vendor = flexio_dev_cqe_get_vendor_err_synd(cqe);
	out->validity = flexio_dev_comp_cqe_get_validity_byte(cqe);
	out->imm = cqe->imm_inval_pkey;
}

/* Post a receive WQE of one segment, at the next place of the ring. */
static inline void post_recv(struct work_qp *qp, uint64_t addr, uint32_t size, uint32_t lkey)
{
	uint32_t at = qp->recv_pi++ & ((1u << qp->log_rq) - 1);
	struct flexio_dev_wqe_rcv_data_seg *seg =
		(struct flexio_dev_wqe_rcv_data_seg *)(qp->rq + (uint64_t)at * qp->stride);

	seg->byte_count = cpu_to_be32(size);
	seg->lkey = cpu_to_be32(lkey);
	seg->addr = cpu_to_be64(addr);
	flexio_dev_dbr_rq_inc_pi((uint32_t *)qp->dbr);
}

/* Post all, ring once, wait for the completions. */
static inline uint64_t do_work(struct work *w)
{
	(void)last_errno();
	for (uint32_t i = 0; i < w->nops; i++)
		post_send(&w->qp, &w->ops[i]);
	if (w->nops)
		RING(w->qp.pi, w->qp.number);
	for (w->got = 0; w->got < w->expect;) {
		struct flexio_dev_cqe64 *cqe = cq_peek(&w->cq);

		if (!cqe)
			continue;
		read_cqe(cqe, &w->cqes[w->got++ % WORK_CQES]);
		cq_consume(&w->cq);
	}
	if (w->arm)
		ARM(w->cq.ci, w->cq.number);
	w->os_errno = last_errno();
	return w->got;
}

/* An event handler that takes messages: count, post the buffer again, arm, wait for more. */
static inline void do_receive(struct work_handler *w)
{
	struct flexio_dev_cqe64 *cqe;

	w->runs++;
	while ((cqe = cq_peek(&w->cq))) {
		uint32_t index = flexio_dev_cqe_get_wqe_counter(cqe) & ((1u << w->qp.log_rq) - 1);
		uint64_t buffer = w->buffers + (uint64_t)index * w->size;

		if (flexio_dev_cqe_get_opcode(cqe) != 2 ||
		    flexio_dev_cqe_get_user_index(cqe) != w->uidx)
			w->errors++;
		w->sum += *(volatile uint64_t *)buffer;
		cq_consume(&w->cq);
		post_recv(&w->qp, buffer, w->size, w->lkey);
		w->handled++;
	}
	if (w->forward)
		ZERO_CQE(w->forward);
	if (!w->no_arm)
		ARM(w->cq.ci, w->cq.number);
	flexio_dev_thread_reschedule();
}

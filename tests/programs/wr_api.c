// SPDX-License-Identifier: MIT
/*
 * The ibv_wr_* interface does what ibv_post_send() does: every builder, every setter, several requests in one
 * start/complete, abort, and both interfaces in turn on one QP.
 */
#include "common.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define ALL_OPS                                                                                 \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |                              \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |              \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV)

static struct node a, b;
static struct address to;
static struct ibv_qp_ex *qpx;

static void begin(uint64_t wr_id, unsigned int flags)
{
	qpx->wr_id = wr_id;
	qpx->wr_flags = flags;
}

static void expect_recv(uint64_t wr_id, uint32_t len, uint32_t imm)
{
	struct ibv_wc wc;

	cq_expect_at(__FILE__, __LINE__, b.recv_cq, wr_id, IBV_WC_SUCCESS, &wc);
	check_eq(wc.byte_len, len);
	if (imm) {
		check(wc.wc_flags & IBV_WC_WITH_IMM, "no immediate");
		check_eq(be32toh(wc.imm_data), imm);
	}
}

static void expect_opcode(uint64_t wr_id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	cq_expect_at(__FILE__, __LINE__, a.send_cq, wr_id, IBV_WC_SUCCESS, &wc);
	check_eq(wc.opcode, opcode);
}

/* The two ways to name memory: one entry and a list. */
static void sends(void)
{
	struct ibv_sge list[2] = { { (uintptr_t)a.buf, 100, a.mr->lkey },
				   { (uintptr_t)a.buf + 100, 28, a.mr->lkey } };

	pattern_fill(a.buf, 4096, 1);
	check_eq(node_recv(&b, 1, 0, 4096), 0);
	ibv_wr_start(qpx);
	begin(10, IBV_SEND_SIGNALED);
	ibv_wr_send(qpx);
	ibv_wr_set_sge_list(qpx, 2, list);
	check_eq(ibv_wr_complete(qpx), 0);
	expect_opcode(10, IBV_WC_SEND);
	expect_recv(1, 128, 0);
	check_eq(pattern_check(b.buf, 128, 1), 128);

	check_eq(node_recv(&b, 2, 0, 4096), 0);
	ibv_wr_start(qpx);
	begin(11, IBV_SEND_SIGNALED);
	ibv_wr_send_imm(qpx, htobe32(0xfeedbeef));
	ibv_wr_set_sge(qpx, a.mr->lkey, (uintptr_t)a.buf, 4096);
	check_eq(ibv_wr_complete(qpx), 0);
	expect_opcode(11, IBV_WC_SEND);
	expect_recv(2, 4096, 0xfeedbeef);
	check_eq(pattern_check(b.buf, 4096, 1), 4096);
}

/* Inline by the two setters; the source may change as soon as the setter returns. */
static void inline_setters(void)
{
	uint8_t text[200];
	struct ibv_data_buf parts[3] = { { text, 50 }, { text + 50, 0 }, { text + 50, 150 } };

	pattern_fill(text, sizeof(text), 2);
	check_eq(node_recv(&b, 1, 0, 4096), 0);
	check_eq(node_recv(&b, 2, 4096, 4096), 0);
	ibv_wr_start(qpx);
	begin(20, 0);
	ibv_wr_send(qpx);
	ibv_wr_set_inline_data(qpx, text, sizeof(text));
	begin(21, IBV_SEND_SIGNALED);
	ibv_wr_send(qpx);
	ibv_wr_set_inline_data_list(qpx, 3, parts);
	memset(text, 0, sizeof(text));
	check_eq(ibv_wr_complete(qpx), 0);
	expect_opcode(21, IBV_WC_SEND);
	expect_recv(1, 200, 0);
	expect_recv(2, 200, 0);
	check_eq(pattern_check(b.buf, 200, 2), 200);
	check_eq(pattern_check(b.buf + 4096, 200, 2), 200);
}

/* Everything one-sided in a single batch, in order. */
static void one_sided(void)
{
	uint64_t *word = (uint64_t *)(b.buf + 8192), *back = (uint64_t *)(a.buf + 16384);

	*word = 5;
	pattern_fill(a.buf, 4096, 3);
	memset(b.buf, 0, 4096);
	check_eq(node_recv(&b, 3, 0, 0), 0);
	ibv_wr_start(qpx);
	begin(30, 0);
	ibv_wr_rdma_write(qpx, to.rkey, to.addr);
	ibv_wr_set_sge(qpx, a.mr->lkey, (uintptr_t)a.buf, 4096);
	begin(31, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write_imm(qpx, to.rkey, to.addr + 4096, htobe32(77));
	ibv_wr_set_sge(qpx, a.mr->lkey, (uintptr_t)a.buf, 1000);
	begin(32, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
	ibv_wr_rdma_read(qpx, to.rkey, to.addr);
	ibv_wr_set_sge(qpx, a.mr->lkey, (uintptr_t)a.buf + 8192, 4096);
	begin(33, IBV_SEND_SIGNALED);
	ibv_wr_atomic_fetch_add(qpx, to.rkey, to.addr + 8192, 37);
	ibv_wr_set_sge(qpx, a.mr->lkey, (uintptr_t)back, 8);
	begin(34, IBV_SEND_SIGNALED);
	ibv_wr_atomic_cmp_swp(qpx, to.rkey, to.addr + 8192, 42, 99);
	ibv_wr_set_sge(qpx, a.mr->lkey, (uintptr_t)(back + 1), 8);
	check_eq(ibv_wr_complete(qpx), 0);
	expect_opcode(31, IBV_WC_RDMA_WRITE);
	expect_opcode(32, IBV_WC_RDMA_READ);
	expect_opcode(33, IBV_WC_FETCH_ADD);
	expect_opcode(34, IBV_WC_COMP_SWAP);
	expect_recv(3, 1000, 77);
	check_eq(pattern_check(b.buf, 4096, 3), 4096);
	check_eq(pattern_check(b.buf + 4096, 1000, 3), 1000);
	check_eq(pattern_check(a.buf + 8192, 4096, 3), 4096);
	check_eq(back[0], 5);
	check_eq(back[1], 42);
	check_eq(*word, 99);
}

static void invalidates(void)
{
	struct ibv_mr *there = ibv_reg_mr(b.pd, b.buf, 4096, ACCESS_ALL);
	struct ibv_mr *here = ibv_reg_mr(a.pd, a.buf, 4096, ACCESS_ALL);
	struct ibv_wc wc;

	check(there && here, "%s", strerror(errno));
	check_eq(node_recv(&b, 4, 0, 64), 0);
	ibv_wr_start(qpx);
	begin(40, IBV_SEND_SIGNALED);
	ibv_wr_send_inv(qpx, there->rkey);
	ibv_wr_set_sge(qpx, a.mr->lkey, (uintptr_t)a.buf, 8);
	begin(41, IBV_SEND_SIGNALED);
	ibv_wr_local_inv(qpx, here->rkey);
	check_eq(ibv_wr_complete(qpx), 0);
	expect_opcode(40, IBV_WC_SEND);
	expect_opcode(41, IBV_WC_LOCAL_INV);
	cq_expect_at(__FILE__, __LINE__, b.recv_cq, 4, IBV_WC_SUCCESS, &wc);
	check(wc.wc_flags & IBV_WC_WITH_INV, "flags %#x", wc.wc_flags);
	check_eq(wc.invalidated_rkey, there->rkey);
	check_eq(ibv_dereg_mr(there), 0);
	check_eq(ibv_dereg_mr(here), 0);
}

/* What was built and aborted never happened; the queue goes on as if nothing had been. */
static void aborted(void)
{
	struct ibv_wc wc;

	memset(b.buf, 0, 64);
	for (int i = 0; i < 200; i++) {
		ibv_wr_start(qpx);
		begin(50, IBV_SEND_SIGNALED);
		ibv_wr_rdma_write(qpx, to.rkey, to.addr);
		ibv_wr_set_sge(qpx, a.mr->lkey, (uintptr_t)a.buf, 64);
		ibv_wr_abort(qpx);
	}
	check(!cq_wait(a.send_cq, &wc, 5), "an aborted request completed");
	for (int i = 0; i < 64; i++)
		check_eq(b.buf[i], 0);
	check_eq(node_recv(&b, 5, 0, 64), 0);
	check_eq(node_send(&a, 51, 0, 64, IBV_SEND_SIGNALED), 0);
	cq_expect(a.send_cq, 51, IBV_WC_SUCCESS);
	cq_expect(b.recv_cq, 5, IBV_WC_SUCCESS);
}

/* A batch that does not fit is refused as a whole. */
static void overfull(void)
{
	struct ibv_wc wc;

	ibv_wr_start(qpx);
	for (int i = 0; i < 4096; i++) {
		begin(60, IBV_SEND_SIGNALED);
		ibv_wr_rdma_write(qpx, to.rkey, to.addr);
		ibv_wr_set_sge(qpx, a.mr->lkey, (uintptr_t)a.buf, 8);
	}
	check_eq(ibv_wr_complete(qpx), ENOMEM);
	check(!cq_wait(a.send_cq, &wc, 5), "a part of a refused batch ran");
	/* Both interfaces share the ring: thousands of turns keep it in step. */
	for (uint64_t i = 0; i < 2000; i++) {
		if (i % 3) {
			ibv_wr_start(qpx);
			begin(i, IBV_SEND_SIGNALED);
			ibv_wr_rdma_write(qpx, to.rkey, to.addr);
			ibv_wr_set_sge(qpx, a.mr->lkey, (uintptr_t)a.buf, 8);
			check_eq(ibv_wr_complete(qpx), 0);
		} else {
			check_eq(node_rdma(&a, i, IBV_WR_RDMA_WRITE, 0, 8, &to, 0), 0);
		}
		cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
	}
}

int main(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.send_ops = ALL_OPS;
	attr.cap.max_send_sge = 4;
	attr.cap.max_inline_data = 256;
	node_pair(&a, &b, &attr);
	node_address(&b, &to);
	qpx = ibv_qp_to_qp_ex(a.qp);
	check(qpx != NULL, "no ibv_qp_ex");
	sends();
	inline_setters();
	one_sided();
	invalidates();
	aborted();
	overfull();
	node_close(&a);
	node_close(&b);
	return 0;
}

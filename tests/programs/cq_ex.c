// SPDX-License-Identifier: MIT
/*
 * Extended CQs: start/next/end polling, every reader that was asked for, timestamps that never run backwards and lie
 * between clock readings before and after, and ibv_poll_cq() on the same CQ.
 */
#include "common.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

enum { COUNT = 100 };

#define WANTED                                                                  \
	(IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | \
	 IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)

static struct node a, b;
static struct ibv_cq_ex *cqx;

/* Node b gets a receive CQ of the extended kind, then its QP anew. */
static void open_pair(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct ibv_cq_init_attr_ex init = { .cqe = 256, .cq_context = &b, .wc_flags = WANTED };
	struct address aa, bb;

	attr.cap.max_recv_wr = 128;
	attr.cap.max_send_wr = 128;
	node_open(&a, &attr);
	node_open_other(&b, &attr);
	check_eq(ibv_destroy_qp(b.qp), 0);
	check_eq(ibv_destroy_cq(b.recv_cq), 0);
	cqx = ibv_create_cq_ex(b.ctx, &init);
	check(cqx, "%s", strerror(errno));
	b.recv_cq = ibv_cq_ex_to_cq(cqx);
	b.qp = node_create_qp(&b);
	check(b.qp, "%s", strerror(errno));
	node_address(&a, &aa);
	node_address(&b, &bb);
	node_connect(&a, &bb);
	node_connect(&b, &aa);
}

static void send_numbered(uint64_t i)
{
	struct ibv_sge sge = { (uintptr_t)a.buf, (uint32_t)i, a.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = i,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND_WITH_IMM,
				  .send_flags = IBV_SEND_SIGNALED,
				  .imm_data = htobe32((uint32_t)i * 3) };
	struct ibv_send_wr *bad;

	check_eq(node_recv(&b, 500 + i, 0, 256), 0);
	check_eq(ibv_post_send(a.qp, &wr, &bad), 0);
	cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
}

/* The card's clock runs at 1 GHz, so ticks and nanoseconds are the same number. */
static uint64_t clock_now(void)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };

	check_eq(ibv_query_rt_values_ex(b.ctx, &values), 0);
	return (uint64_t)values.raw_clock.tv_sec * 1000000000ull +
	       (uint64_t)values.raw_clock.tv_nsec;
}

static void polling(void)
{
	struct ibv_poll_cq_attr none = { 0 };
	uint64_t before = clock_now(), after, last = 0;
	uint64_t seen = 0;
	int err;

	for (uint64_t i = 0; i < COUNT; i++)
		send_numbered(i);
	while (seen < COUNT) {
		uint64_t limit = now_us() + PATIENCE_MS * 1000ull;

		do {
			err = ibv_start_poll(cqx, &none);
		} while (err == ENOENT && now_us() < limit);
		check_eq(err, 0);
		do {
			check_eq(cqx->status, IBV_WC_SUCCESS);
			check_eq(cqx->wr_id, 500 + seen);
			check_eq(ibv_wc_read_opcode(cqx), IBV_WC_RECV);
			check_eq(ibv_wc_read_byte_len(cqx), seen);
			check_eq(be32toh(ibv_wc_read_imm_data(cqx)), seen * 3);
			check_eq(ibv_wc_read_qp_num(cqx), b.qp->qp_num);
			check(ibv_wc_read_wc_flags(cqx) & IBV_WC_WITH_IMM, "no immediate");
			check(ibv_wc_read_completion_ts(cqx) >= last, "the clock ran backwards");
			last = ibv_wc_read_completion_ts(cqx);
			check(last >= before, "completed before it was sent");
			seen++;
			err = ibv_next_poll(cqx);
		} while (err == 0);
		check_eq(err, ENOENT);
		ibv_end_poll(cqx);
	}
	after = clock_now();
	check(last <= after, "completed later than now");
	check_eq(ibv_start_poll(cqx, &none), ENOENT);
}

/* start_poll and ibv_poll_cq() take from the same queue. */
static void mixed(void)
{
	struct ibv_poll_cq_attr none = { 0 };

	sleep_ms(1);
	for (uint64_t i = 0; i < 10; i++) {
		send_numbered(i);
		send_numbered(i + 10);
		cq_expect(b.recv_cq, 500 + i, IBV_WC_SUCCESS);
		while (ibv_start_poll(cqx, &none) == ENOENT)
			;
		check_eq(cqx->wr_id, 510 + i);
		ibv_end_poll(cqx);
	}
}

static void errors(void)
{
	struct ibv_poll_cq_attr none = { 0 };

	check_eq(node_recv(&b, 77, 0, 8), 0);
	check_eq(qp_set_state(b.qp, IBV_QPS_ERR), 0);
	while (ibv_start_poll(cqx, &none) == ENOENT)
		;
	check_eq(cqx->status, IBV_WC_WR_FLUSH_ERR);
	check_eq(ibv_wc_read_vendor_err(cqx), 0xf9);
	check_eq(cqx->wr_id, 77);
	ibv_end_poll(cqx);
}

static void refused(void)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 16, .wc_flags = 1ull << 60 };

	check(ibv_create_cq_ex(b.ctx, &init) == NULL, "an unknown reader was promised");
	init.wc_flags = 0;
	init.cqe = 0;
	check(ibv_create_cq_ex(b.ctx, &init) == NULL, "a CQ of no entries");
	init.cqe = 16;
	init.comp_mask = 1u << 31;
	check(ibv_create_cq_ex(b.ctx, &init) == NULL, "an unknown field was accepted");
}

int main(void)
{
	open_pair();
	polling();
	mixed();
	errors();
	refused();
	node_close(&a);
	node_close(&b);
	return 0;
}

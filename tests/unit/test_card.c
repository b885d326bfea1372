// SPDX-License-Identifier: MIT
/*
 * The card as a driver sees it: hand-made mlx5 WQEs through real rings. What ibv_post_send() cannot say (NOP, unknown
 * opcodes, broken lengths), the exact CQE fields, the owner bit, and counters that run over.
 */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "bare.h"

static struct bare bare;

static int open_rc(void **state)
{
	(void)state;
	return bare_open(&bare, IBV_QPT_RC);
}

static int open_ud(void **state)
{
	(void)state;
	return bare_open(&bare, IBV_QPT_UD);
}

static int close_bare(void **state)
{
	(void)state;
	bare_close(&bare);
	return 0;
}

static uint32_t qpn_of(const struct mlx5_cqe64 *cqe)
{
	return be32toh(cqe->sop_drop_qpn) & 0xffffff;
}

static void expect_done(uint8_t opcode, uint16_t counter)
{
	struct mlx5_cqe64 *cqe = bare_wait(&bare);

	assert_non_null(cqe);
	assert_int_equal(cqe->op_own >> 4, MLX5_CQE_REQ);
	assert_int_equal(be16toh(cqe->wqe_counter), counter);
	assert_int_equal(qpn_of(cqe), vb_qp_number(bare.qp));
	assert_int_equal(be32toh(cqe->sop_drop_qpn) >> 24, opcode);
}

static void expect_error(uint8_t kind, uint8_t syndrome, uint16_t counter)
{
	struct mlx5_cqe64 *cqe = bare_wait(&bare);
	struct mlx5_err_cqe *err = (void *)cqe;

	assert_non_null(cqe);
	assert_int_equal(cqe->op_own >> 4, kind);
	assert_int_equal(err->syndrome, syndrome);
	/* The dword that device code reads whole: the hardware's syndrome, nothing, the vendor's, the syndrome. */
	assert_int_equal(err->rsvd1[16], 0);
	assert_int_equal(err->rsvd1[17], 0);
	assert_int_not_equal(err->vendor_err_synd, 0);
	assert_int_equal(be16toh(cqe->wqe_counter), counter);
}

static void test_nop(void **state)
{
	(void)state;
	bare_ctrl(&bare, MLX5_OPCODE_NOP, 1, MLX5_WQE_CTRL_CQ_UPDATE);
	bare_ring(&bare, 1);
	expect_done(MLX5_OPCODE_NOP, 0);
	assert_int_equal(vb_qp_state(bare.qp), IBV_QPS_RTS);
}

static void test_nop_unsignalled(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++) {
		bare_ctrl(&bare, MLX5_OPCODE_NOP, 1, i == 9 ? MLX5_WQE_CTRL_CQ_UPDATE : 0);
		bare_ring(&bare, 1);
	}
	expect_done(MLX5_OPCODE_NOP, 9);
	assert_null(bare_poll(&bare));
}

/* A NOP may be longer than one block; its length counts. */
static void test_nop_long(void **state)
{
	(void)state;
	bare_ctrl(&bare, MLX5_OPCODE_NOP, 16, MLX5_WQE_CTRL_CQ_UPDATE);
	bare.pi += 4;
	bare_ctrl(&bare, MLX5_OPCODE_NOP, 1, MLX5_WQE_CTRL_CQ_UPDATE);
	bare.pi -= 4;
	bare_ring(&bare, 5);
	expect_done(MLX5_OPCODE_NOP, 0);
	expect_done(MLX5_OPCODE_NOP, 4);
}

/* Once around the 16-bit counters, and many times around both rings and the CQ's owner bit. */
static void test_counters_run_over(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 70000; i++) {
		bare_ctrl(&bare, MLX5_OPCODE_NOP, 1, MLX5_WQE_CTRL_CQ_UPDATE);
		bare_ring(&bare, 1);
		expect_done(MLX5_OPCODE_NOP, (uint16_t)i);
	}
}

/* Several requests, one doorbell. */
static void test_one_doorbell(void **state)
{
	(void)state;
	for (int i = 0; i < 60; i++) {
		bare_ctrl(&bare, MLX5_OPCODE_NOP, 1, MLX5_WQE_CTRL_CQ_UPDATE);
		bare.pi++;
	}
	bare.pi -= 60;
	bare_ring(&bare, 60);
	for (uint16_t i = 0; i < 60; i++)
		expect_done(MLX5_OPCODE_NOP, i);
}

/* A bell that says nothing new does nothing. */
static void test_empty_doorbell(void **state)
{
	(void)state;
	bare_ring(&bare, 0);
	vb_progress(bare.dev);
	assert_null(bare_poll(&bare));
	assert_int_equal(vb_qp_state(bare.qp), IBV_QPS_RTS);
}

/* What is no request: an error of the queue, and everything behind it flushed. */
static void expect_qp_op_error(void)
{
	expect_error(MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0);
	assert_int_equal(vb_qp_state(bare.qp), bare.type == IBV_QPT_RC ? IBV_QPS_ERR : IBV_QPS_SQE);
	bare_ctrl(&bare, MLX5_OPCODE_NOP, 1, 0);
	bare_ring(&bare, 1);
	expect_error(MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, (uint16_t)(bare.pi - 1));
}

static void test_unknown_opcodes(void **state)
{
	static const uint8_t known[] = { MLX5_OPCODE_NOP,        MLX5_OPCODE_SEND_INVAL,
					 MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE_IMM,
					 MLX5_OPCODE_SEND,       MLX5_OPCODE_SEND_IMM,
					 MLX5_OPCODE_RDMA_READ,  MLX5_OPCODE_ATOMIC_CS,
					 MLX5_OPCODE_ATOMIC_FA,  MLX5_OPCODE_LOCAL_INVAL };

	(void)state;
	for (int op = 0; op < 256; op++) {
		if (memchr(known, op, sizeof(known)))
			continue;
		assert_int_equal(bare_connect(&bare), 0);
		bare_ctrl(&bare, (uint8_t)op, 1, 0);
		bare_ring(&bare, 1);
		expect_qp_op_error();
	}
}

/* Lengths that leave out what the opcode needs, or claim none at all. */
static void test_short_requests(void **state)
{
	static const struct {
		uint8_t opcode, ds;
	} rows[] = {
		{ MLX5_OPCODE_NOP, 0 },        { MLX5_OPCODE_SEND, 0 },
		{ MLX5_OPCODE_RDMA_WRITE, 1 }, { MLX5_OPCODE_RDMA_READ, 1 },
		{ MLX5_OPCODE_ATOMIC_CS, 1 },  { MLX5_OPCODE_ATOMIC_FA, 2 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(bare_connect(&bare), 0);
		bare_ctrl(&bare, rows[i].opcode, rows[i].ds, 0);
		bare_ring(&bare, 1);
		expect_qp_op_error();
	}
}

/* A request that claims more blocks than the doorbell gave: one error, and nothing behind it to flush. */
static void test_beyond_doorbell(void **state)
{
	(void)state;
	bare_ctrl(&bare, MLX5_OPCODE_NOP, 63, MLX5_WQE_CTRL_CQ_UPDATE);
	bare_ring(&bare, 1);
	expect_error(MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0);
	/* The card's own thread may be flushing: give it time to show that there is nothing. */
	nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
	vb_progress(bare.dev);
	assert_null(bare_poll(&bare));
	bare_ctrl(&bare, MLX5_OPCODE_NOP, 1, 0);
	bare_ring(&bare, 1);
	expect_error(MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 1);
	assert_null(bare_poll(&bare));
}

/* Inline data that is longer than the request. */
static void test_inline_too_long(void **state)
{
	struct mlx5_wqe_ctrl_seg *ctrl;

	(void)state;
	ctrl = bare_ctrl(&bare, MLX5_OPCODE_SEND, 2, 0);
	*(__be32 *)(ctrl + 1) = htobe32(MLX5_INLINE_SEG | 13); /* 12 fit */
	bare_ring(&bare, 1);
	expect_qp_op_error();
}

/* A whole SEND by hand, around the end of the send ring. */
static void test_send_wraps(void **state)
{
	(void)state;
	while (bare.pi % BARE_BLOCKS != BARE_BLOCKS - 1) {
		bare_ctrl(&bare, MLX5_OPCODE_NOP, 1, 0);
		bare_ring(&bare, 1);
	}
	for (int round = 0; round < 3; round++) {
		struct mlx5_wqe_ctrl_seg *ctrl;
		struct mlx5_cqe64 *cqe;
		uint32_t counter = bare.pi & 0xffff;

		bare_post_recv(&bare, (uintptr_t)bare.memory, 128);
		memset(bare.memory, 0, 128);
		/* ctrl + inline header and 100 bytes: two blocks, of which the second may be at the start. */
		ctrl = bare_ctrl(&bare, MLX5_OPCODE_SEND, 8, MLX5_WQE_CTRL_CQ_UPDATE);
		*(__be32 *)(ctrl + 1) = htobe32(MLX5_INLINE_SEG | 100);
		memset((uint8_t *)(ctrl + 1) + 4, 'x', 64 - sizeof(*ctrl) - 4);
		memset(bare.sq + (bare.pi + 1) % BARE_BLOCKS * 64, 'x', 64);
		bare_ring(&bare, 2);
		/* Both completions are in one queue, in either order. */
		for (int i = 0; i < 2; i++) {
			cqe = bare_wait(&bare);
			assert_non_null(cqe);
			if (cqe->op_own >> 4 == MLX5_CQE_REQ) {
				assert_int_equal(be16toh(cqe->wqe_counter), counter);
			} else {
				assert_int_equal(cqe->op_own >> 4, MLX5_CQE_RESP_SEND);
				assert_int_equal(be32toh(cqe->byte_cnt), 100);
			}
		}
		for (int i = 0; i < 100; i++)
			assert_int_equal(bare.memory[i], 'x');
		assert_int_equal(bare.memory[100], 0);
	}
}

/* A send doorbell beyond what the ring can hold is a driver's mistake, not a reason to run off. */
static void test_doorbell_too_far(void **state)
{
	(void)state;
	for (int i = 0; i < BARE_BLOCKS; i++) {
		bare_ctrl(&bare, MLX5_OPCODE_NOP, 1, 0);
		bare.pi++;
	}
	bare.pi = 0;
	vb_qp_ring_sq(bare.qp, 40000);
	vb_progress(bare.dev);
	while (bare_poll(&bare))
		;
	/* Whatever became of it, the QP can be reset and used. */
	assert_int_equal(bare_connect(&bare), 0);
	bare_ctrl(&bare, MLX5_OPCODE_NOP, 1, MLX5_WQE_CTRL_CQ_UPDATE);
	bare_ring(&bare, 1);
	expect_done(MLX5_OPCODE_NOP, 0);
}

/* A receive record that tells of more than the ring can hold: a flush is as long as the ring. */
static void test_receive_lie(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	unsigned int flushed = 0;

	(void)state;
	atomic_store((_Atomic uint32_t *)&bare.qp_dbr[0], htobe32(40000));
	assert_int_equal(vb_qp_modify(bare.qp, &attr, IBV_QP_STATE), 0);
	while (bare_poll(&bare))
		flushed++;
	assert_int_equal(flushed, BARE_RECVS);
	assert_int_equal(bare_connect(&bare), 0);
}

/* Ports of hbl adapters have a GID of their own in front, and everything as RoCE v2; see tests/programs/gids.c for others. */
static void test_hbl_gids(void **state)
{
	struct vb_adapter *const *list;
	unsigned int count, seen = 0;
	struct ibv_port_attr port;
	struct vb_gid gid;

	(void)state;
	assert_int_equal(vb_card_adapters(vb_card_program(), &list, &count), 0);
	for (unsigned int i = 0; i < count; i++) {
		const struct vb_config_adapter *config = list[i]->config;

		if (config->format != VB_FORMAT_HBL)
			continue;
		seen++;
		vb_adapter_query_port(list[i], 1, &port);
		assert_int_equal(port.gid_tbl_len, 16);
		for (unsigned int k = 0; k <= config->num_addresses; k++) {
			assert_int_equal(vb_adapter_gid(list[i], 1, k, &gid), 0);
			assert_int_equal(gid.type, IBV_GID_TYPE_ROCE_V2);
			if (k)
				assert_memory_equal(&gid.gid, &config->address[k - 1], 16);
		}
		assert_int_equal(vb_adapter_gid(list[i], 1, config->num_addresses + 1, &gid),
				 -ENODATA);
	}
	assert_true(seen);
}

int main(void)
{
#define RC_TEST(f) cmocka_unit_test_setup_teardown(f, open_rc, close_bare)
#define UD_TEST(f)                                       \
	{                                                \
#f " (UD)", f, open_ud, close_bare, NULL \
	}
	const struct CMUnitTest tests[] = {
		RC_TEST(test_receive_lie),
		RC_TEST(test_nop),
		RC_TEST(test_nop_unsignalled),
		RC_TEST(test_nop_long),
		RC_TEST(test_counters_run_over),
		RC_TEST(test_one_doorbell),
		RC_TEST(test_empty_doorbell),
		RC_TEST(test_unknown_opcodes),
		RC_TEST(test_short_requests),
		RC_TEST(test_beyond_doorbell),
		RC_TEST(test_inline_too_long),
		RC_TEST(test_send_wraps),
		RC_TEST(test_doorbell_too_far),
		cmocka_unit_test(test_hbl_gids),
		UD_TEST(test_nop),
		UD_TEST(test_unknown_opcodes),
		UD_TEST(test_short_requests),
	};

	return cmocka_run_group_tests_name("card", tests, NULL, NULL) != 0;
}

// SPDX-License-Identifier: MIT
/*
 * Queue pairs by command, driven by hand: every operation of RC, UC and UD between two of them, and with a queue pair of
 * verbs at the other end; receives of RMPs; large entries of CQs; errors as CQEs.
 */
#include "hand.h"

#include <endian.h>
#include <string.h>

static struct hand hand;
static struct hand_cq cqs[3]; /* sends of a, sends of b, receives */
static struct hand_qp a, b;
static struct hand_address to_a, to_b;

static void open_cqs(void)
{
	for (int i = 0; i < 3; i++)
		hand_cq(&hand, &cqs[i], 7);
}

static void close_pair(void)
{
	hand_qp_end(&a);
	hand_qp_end(&b);
	for (int i = 0; i < 3; i++)
		hand_cq_end(&cqs[i]);
	hand.used = 0;
}

static void connect_pair(void)
{
	hand_address(&a, &to_a);
	hand_address(&b, &to_b);
	hand_connect(&a, &to_b);
	hand_connect(&b, &to_a);
}

static void open_pair(enum ibv_qp_type type)
{
	open_cqs();
	hand_qp(&hand, &a, type, &cqs[0], &cqs[2]);
	hand_qp(&hand, &b, type, &cqs[1], &cqs[2]);
	connect_pair();
}

/* --- operations ---------------------------------------------------------------------------------- */

static void one_sided(void)
{
	uint64_t value = 40;
	struct mlx5_cqe64 cqe;
	struct wqe wqe;

	pattern_fill(hand.buf, 20000, 1);
	hand_write(&a, 0, 20000, &to_b, 32768);
	hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
	check_eq(be32toh(cqe.sop_drop_qpn) >> 24, MLX5_OPCODE_RDMA_WRITE);
	check_eq(pattern_check(hand.buf + 32768, 20000, 1), 20000);
	wqe_begin(&wqe, MLX5_OPCODE_RDMA_READ, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	wqe_put_raddr(&wqe, to_b.addr + 32768, to_b.rkey);
	wqe_put_data(&wqe, hand.buf + 1, 19999, hand.mr->lkey);
	hand_post(&a, &wqe);
	hand_ring(&a);
	hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
	check_eq(pattern_check(hand.buf + 1, 19999, 1), 19999);
	memcpy(hand.buf + 1024, &value, 8);
	wqe_begin(&wqe, MLX5_OPCODE_ATOMIC_FA, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	wqe_put_raddr(&wqe, to_b.addr + 1024, to_b.rkey);
	wqe_put_atomic(&wqe, 2, 0);
	wqe_put_data(&wqe, hand.buf + 2048, 8, hand.mr->lkey);
	hand_post(&a, &wqe);
	wqe_begin(&wqe, MLX5_OPCODE_ATOMIC_CS, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	wqe_put_raddr(&wqe, to_b.addr + 1024, to_b.rkey);
	wqe_put_atomic(&wqe, 7, 42);
	wqe_put_data(&wqe, hand.buf + 2056, 8, hand.mr->lkey);
	hand_post(&a, &wqe);
	hand_ring(&a); /* one doorbell for both */
	hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
	hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
	check_eq(((uint64_t *)(hand.buf + 2048))[0], 40);
	check_eq(((uint64_t *)(hand.buf + 2048))[1], 42);
	check_eq(*(uint64_t *)(hand.buf + 1024), 7);
}

static void two_sided(uint32_t rounds)
{
	struct mlx5_cqe64 cqe;
	struct wqe wqe;

	for (uint32_t i = 0; i < rounds; i++) {
		hand_recv(&b, 16384, 4096);
		pattern_fill(hand.buf, 1000, i);
		wqe_begin(&wqe, MLX5_OPCODE_SEND_IMM, MLX5_WQE_CTRL_CQ_UPDATE, htobe32(i));
		wqe_put_inline(&wqe, hand.buf, 100);
		wqe_put_data(&wqe, hand.buf + 100, 900, hand.mr->lkey);
		hand_post(&a, &wqe);
		hand_ring(&a);
		hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
		hand_expect(&cqs[2], &b, MLX5_CQE_RESP_SEND_IMM, &cqe);
		check_eq(be32toh(cqe.byte_cnt), 1000);
		check_eq(be32toh(cqe.imm_inval_pkey), i);
		check_eq(be16toh(cqe.wqe_counter), i & 0xffff);
		check_eq(be32toh(cqe.srqn_uidx) & 0xffffff, 0xabcdef);
		check(be64toh(cqe.timestamp) != 0);
		check_eq(pattern_check(hand.buf + 16384, 1000, i), 1000);
	}
}

/* Both rings and both CQs go round several times. */
static void reliable(void)
{
	open_pair(IBV_QPT_RC);
	one_sided();
	two_sided(400);
	close_pair();
}

static void unreliable(void)
{
	struct mlx5_cqe64 cqe;

	open_pair(IBV_QPT_UC);
	two_sided(3);
	pattern_fill(hand.buf, 500, 9);
	hand_write(&a, 0, 500, &to_b, 8192);
	hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
	check_eq(pattern_check(hand.buf + 8192, 500, 9), 500);
	close_pair();
}

static void datagrams(void)
{
	struct mlx5_cqe64 cqe;
	struct wqe wqe;

	open_pair(IBV_QPT_UD);
	for (uint32_t i = 0; i < 100; i++) {
		hand_recv(&b, 8192, 2048);
		pattern_fill(hand.buf, 700, i);
		wqe_begin(&wqe, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		wqe_put_av(&wqe, &to_b.gid, to_b.qpn, HAND_QKEY);
		wqe_put_data(&wqe, hand.buf, 700, hand.mr->lkey);
		hand_post(&a, &wqe);
		hand_ring(&a);
		hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
		hand_expect(&cqs[2], &b, MLX5_CQE_RESP_SEND, &cqe);
		check_eq(be32toh(cqe.byte_cnt), 740);
		check_eq(be32toh(cqe.flags_rqpn) & 0xffffff, to_a.qpn);
		check_eq(pattern_check(hand.buf + 8192 + 40, 700, i), 700);
	}
	close_pair();
}

/* A queue pair that talks to itself by forced loopback: no address at all. */
static void loopback(void)
{
	struct mlx5_cqe64 cqe;
	struct command c;

	open_cqs();
	hand_qp(&hand, &a, IBV_QPT_RC, &cqs[0], &cqs[2]);
	hand_address(&a, &to_a);
	check_eq(hand_to_init(&a), 0);
	command_begin(&c, 0x503);
	put_bits(c.in, 0xc0 + 0x40, 3, IBV_MTU_4096);
	put_bits(c.in, 0xc0 + 0x43, 5, 30);
	put_bits(c.in, 0xc0 + 0xa8, 24, a.number);
	put_bits(c.in, 0xc0 + 0xc0, 1, 1); /* fl */
	check_eq(command_modify(a.obj, a.number, &c, 272), 0);
	command_begin(&c, 0x504);
	put_bits(c.in, 0xc0 + 0x38d, 3, 7);
	check_eq(command_modify(a.obj, a.number, &c, 272), 0);
	pattern_fill(hand.buf, 300, 4);
	hand_write(&a, 0, 300, &to_a, 4096);
	hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
	check_eq(pattern_check(hand.buf + 4096, 300, 4), 300);
	close_pair();
}

/* --- verbs at the other end ---------------------------------------------------------------------- */

static void with_verbs(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct mlx5_cqe64 cqe;
	struct address far, near = { 0 };
	struct node node;

	open_cqs();
	hand_qp(&hand, &a, IBV_QPT_RC, &cqs[0], &cqs[2]);
	node_open(&node, &attr);
	node_address(&node, &far);
	to_b = (struct hand_address){
		.qpn = far.qpn, .psn = far.psn, .rkey = far.rkey, .addr = far.addr, .gid = far.gid
	};
	hand_address(&a, &to_a);
	near = (struct address){ .qpn = to_a.qpn,
				 .psn = to_a.psn,
				 .rkey = to_a.rkey,
				 .addr = to_a.addr,
				 .size = HAND_BUF,
				 .gid = to_a.gid };
	hand_connect(&a, &to_b);
	node_connect(&node, &near);
	/* SEND from the command's queue pair, SEND and READ from that of verbs. */
	check_eq(node_recv(&node, 5, 0, 1000), 0);
	pattern_fill(hand.buf, 1000, 3);
	hand_send(&a, 0, 1000);
	hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
	cq_expect(node.recv_cq, 5, IBV_WC_SUCCESS);
	check_eq(pattern_check(node.buf, 1000, 3), 1000);
	hand_recv(&a, 4096, 1000);
	check_eq(node_send(&node, 6, 0, 1000, IBV_SEND_SIGNALED), 0);
	cq_expect(node.send_cq, 6, IBV_WC_SUCCESS);
	hand_expect(&cqs[2], &a, MLX5_CQE_RESP_SEND, &cqe);
	check_eq(pattern_check(hand.buf + 4096, 1000, 3), 1000);
	pattern_fill(hand.buf + 8192, 1000, 4);
	check_eq(node_rdma(&node, 7, IBV_WR_RDMA_READ, 0, 1000, &near, 8192), 0);
	cq_expect(node.send_cq, 7, IBV_WC_SUCCESS);
	check_eq(pattern_check(node.buf, 1000, 4), 1000);
	close_pair();
	node_close(&node);
}

/* The queue pair of a command completes into CQs of verbs, and takes receives of an SRQ of verbs. */
static void into_verbs(void)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct mlx5dv_cq dv_cq;
	struct mlx5dv_srq dv_srq = { .comp_mask = MLX5DV_SRQ_MASK_SRQN };
	struct mlx5dv_obj obj = { .cq = { .out = &dv_cq }, .srq = { .out = &dv_srq } };
	struct ibv_sge sge = { (uintptr_t)hand.buf + 4096, 1000, hand.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 99, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_cq *cq = ibv_create_cq(hand.ctx, 100, NULL, NULL, 0);
	struct ibv_srq *srq = ibv_create_srq(hand.pd, &srq_attr);
	struct hand_cq verbs_cq = { 0 };
	struct mlx5_cqe64 cqe;
	struct command c;

	open_cqs();
	check(cq && srq);
	obj.cq.in = cq;
	obj.srq.in = srq;
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ | MLX5DV_OBJ_SRQ), 0);
	check(dv_srq.comp_mask & MLX5DV_SRQ_MASK_SRQN);
	verbs_cq = (struct hand_cq){ .hand = &hand,
				     .number = dv_cq.cqn,
				     .count = dv_cq.cqe_cnt,
				     .size = dv_cq.cqe_size,
				     .buf = dv_cq.buf,
				     .dbr = dv_cq.dbrec };
	hand_qp(&hand, &a, IBV_QPT_RC, &verbs_cq, &cqs[2]);
	hand_qp_command(&hand, &b, IBV_QPT_RC, &cqs[1], &cqs[2], 4, 4, &c);
	put_bits(c.in, 0xc0 + 0x565, 3, 1);
	put_bits(c.in, 0xc0 + 0x568, 24, dv_srq.srqn);
	hand_qp_create(&b, &c);
	b.sq = b.rq;
	connect_pair();
	check_eq(ibv_destroy_cq(cq), EBUSY);
	check_eq(ibv_destroy_srq(srq), EBUSY);
	check_eq(ibv_post_srq_recv(srq, &wr, &bad), 0);
	pattern_fill(hand.buf, 1000, 12);
	hand_send(&a, 0, 1000);
	hand_expect(&verbs_cq, &a, MLX5_CQE_REQ, &cqe);
	hand_expect(&cqs[2], &b, MLX5_CQE_RESP_SEND, &cqe);
	check_eq(pattern_check(hand.buf + 4096, 1000, 12), 1000);
	close_pair();
	check_eq(ibv_destroy_cq(cq), 0);
	check_eq(ibv_destroy_srq(srq), 0);
}

/* --- receives that are shared, entries of 128 bytes ---------------------------------------------- */

/* WQEs of a ring have no link where they are basic, else one that counts for nothing. */
static void shared_receives(bool basic)
{
	enum { CTX = 0x100, WQ = CTX + 0x180, LOG = 4, STRIDE = 6, BAD_PARAM = 3 };
	struct mlx5dv_devx_obj *rmp;
	struct mlx5_cqe64 cqe;
	uint64_t ring, record;
	struct command c, made;
	uint32_t number;
	uint8_t *wqes;
	__be32 *dbr;

	open_cqs();
	wqes = hand_take(&hand, 1 << (LOG + STRIDE), &ring);
	dbr = hand_take(&hand, 8, &record);
	command_begin(&c, 0x90c);
	put_bits(c.in, CTX + 0x8, 4, 1);
	put_bits(c.in, CTX + 0x20, 1, basic);
	put_bits(c.in, WQ, 4, 1);
	put_bits(c.in, WQ + 0x48, 24, hand.pdn);
	put_bits(c.in, WQ + 0x80, 64, record);
	put_bits(c.in, WQ + 0x10c, 4, STRIDE);
	put_bits(c.in, WQ + 0x11b, 5, LOG);
	put_bits(c.in, WQ + 0x140, 32, hand.umem->umem_id);
	put_bits(c.in, WQ + 0x160, 32, hand.umem->umem_id);
	put_bits(c.in, WQ + 0x180, 64, ring);
	if (!basic) {
		put_bits(c.in, WQ + 0x10c, 4, 4); /* no room for a link and data */
		command_refused(&hand, &c, 272, BAD_PARAM);
		put_bits(c.in, WQ + 0x10c, 4, STRIDE);
	}
	rmp = command_create(&hand, &c, 272, &number);
	hand_qp(&hand, &a, IBV_QPT_RC, &cqs[0], &cqs[2]);
	hand_qp_command(&hand, &b, IBV_QPT_RC, &cqs[1], &cqs[2], 4, 4, &made);
	put_bits(made.in, 0xc0 + 0x565, 3, 1);
	put_bits(made.in, 0xc0 + 0x568, 24, number);
	hand_qp_create(&b, &made);
	b.sq = b.rq; /* without receives of its own the send ring comes first */
	connect_pair();
	check_eq(mlx5dv_devx_obj_destroy(rmp), EBUSY);
	for (uint32_t i = 0; i < 40; i++) {
		struct mlx5_wqe_data_seg *seg = (void *)(wqes + (i % (1u << LOG) << STRIDE));

		if (!basic)
			memset(seg++, 0xff, sizeof(*seg));
		mlx5dv_set_data_seg(seg, 100, hand.mr->lkey, (uintptr_t)hand.buf + 4096);
		mlx5dv_set_data_seg(seg + 1, 4000, hand.mr->lkey, (uintptr_t)hand.buf + 8192);
		__atomic_store_n(dbr, htobe32((i + 1) & 0xffff), __ATOMIC_RELEASE);
		pattern_fill(hand.buf, 300, i);
		hand_send(&a, 0, 300);
		hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
		hand_expect(&cqs[2], &b, MLX5_CQE_RESP_SEND, &cqe);
		check_eq(be16toh(cqe.wqe_counter), i % (1u << LOG));
		check(!memcmp(hand.buf + 4096, hand.buf, 100) &&
		      !memcmp(hand.buf + 8192, hand.buf + 100, 200));
	}
	check_eq(command_query(rmp, number, 0x90f, &c, 272), 0);
	check_eq(get_bits(c.out, WQ + 0xc0, 32), 40);
	check_eq(get_bits(c.out, WQ + 0xe0, 32), 40);
	hand_send(&b, 0, 10); /* the other way, into a's own ring */
	hand_recv(&a, 0, 100);
	hand_expect(&cqs[1], &b, MLX5_CQE_REQ, &cqe);
	hand_expect(&cqs[2], &a, MLX5_CQE_RESP_SEND, &cqe);
	hand_qp_end(&b);
	object_end(&rmp);
	close_pair();
}

static void large_entries(void)
{
	struct mlx5_cqe64 cqe;
	struct command c;

	hand_cq_command(&hand, &cqs[0], 3, &c);
	put_bits(c.in, 0x80 + 0x8, 3, 1);
	hand_cq_create(&cqs[0], &c);
	check_eq(cqs[0].size, 128);
	hand_cq(&hand, &cqs[1], 3);
	hand_cq(&hand, &cqs[2], 3);
	hand_qp(&hand, &a, IBV_QPT_RC, &cqs[0], &cqs[2]);
	hand_qp(&hand, &b, IBV_QPT_RC, &cqs[1], &cqs[2]);
	connect_pair();
	for (uint32_t i = 0; i < 50; i++) {
		hand_write(&a, 0, 64, &to_b, 4096);
		hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
		check_eq(be16toh(cqe.wqe_counter), i);
	}
	close_pair();
}

/* --- errors -------------------------------------------------------------------------------------- */

static void bad_keys(void)
{
	struct hand_address wrong;
	struct wqe wqe;

	open_pair(IBV_QPT_RC);
	wqe_begin(&wqe, MLX5_OPCODE_RDMA_WRITE, 0, 0);
	wqe_put_raddr(&wqe, to_b.addr, to_b.rkey);
	wqe_put_data(&wqe, hand.buf, 64, hand.mr->lkey ^ 0x5500);
	hand_post(&a, &wqe);
	hand_write(&a, 0, 64, &to_b, 0); /* flushed behind it */
	hand_expect_error(&cqs[0], &a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
	hand_expect_error(&cqs[0], &a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	check_eq(hand_qp_state(&a), 6);
	close_pair();
	open_pair(IBV_QPT_RC);
	wrong = to_b;
	wrong.rkey ^= 0x5500;
	hand_recv(&a, 0, 64);
	hand_write(&a, 0, 64, &wrong, 0);
	hand_expect_error(&cqs[0], &a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	hand_expect_error(&cqs[2], &a, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	close_pair();
}

/* 2ERR flushes what is posted and what is posted later; 2RST begins anew. */
static void flushed(void)
{
	struct mlx5_cqe64 cqe;

	open_pair(IBV_QPT_RC);
	hand_recv(&a, 0, 64);
	check_eq(hand_qp_simple(&a, 0x507), 0);
	hand_expect_error(&cqs[2], &a, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	hand_write(&a, 0, 64, &to_b, 0);
	hand_expect_error(&cqs[0], &a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	hand_recv(&a, 0, 64);
	hand_expect_error(&cqs[2], &a, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	for (int i = 0; i < 2; i++) {
		struct hand_qp *qp = i ? &b : &a;

		check_eq(hand_qp_simple(qp, 0x50a), 0);
		check_eq(hand_qp_state(qp), 0);
		qp->sq_head = qp->rq_head = 0;
		qp->dbr[0] = qp->dbr[1] = 0;
	}
	connect_pair();
	pattern_fill(hand.buf, 100, 77);
	hand_write(&a, 0, 100, &to_b, 4096);
	hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
	check_eq(pattern_check(hand.buf + 4096, 100, 77), 100);
	close_pair();
}

int main(void)
{
	hand_open(&hand);
	reliable();
	unreliable();
	datagrams();
	loopback();
	with_verbs();
	into_verbs();
	shared_receives(true);
	shared_receives(false);
	large_entries();
	bad_keys();
	flushed();
	hand_close(&hand);
	return 0;
}

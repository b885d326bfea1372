// SPDX-License-Identifier: MIT
/*
 * Raw Ethernet by command: SQs with TISes, RQs with rings, lists and RMPs, TIRs and tables over them, steered to by rules;
 * changes of all of these while frames flow.
 */
#include "hand.h"

#include <endian.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { CTX = 0x100, WQ = CTX + 0x180, LENGTH = 100, SLOT = 2048, QUEUES = 4 };
enum { MODIFY_SQ = 0x905, MODIFY_RQ = 0x909 };

static struct hand hand;
static struct hand_cq send_cq, cqs[QUEUES];
static struct hand_qp sq, rqs[QUEUES];
static struct mlx5dv_devx_obj *domain, *tis, *rqt, *tir;
static uint32_t domain_number, tis_number, rqt_number, tir_number;

static struct {
	struct mlx5dv_dr_domain *domain;
	struct mlx5dv_dr_table *table;
	struct mlx5dv_dr_matcher *matcher;
	struct mlx5dv_dr_action *action;
	struct mlx5dv_dr_rule *rule;
} steering;

static atomic_bool changing;

/* --- objects ------------------------------------------------------------------------------------- */

static void open_sq(void)
{
	struct command c;

	command_begin(&c, 0x816);
	domain = command_create(&hand, &c, 16, &domain_number);
	command_begin(&c, 0x912);
	put_bits(c.in, CTX + 0x128, 24, domain_number);
	tis = command_create(&hand, &c, 192, &tis_number);
	check_eq(mlx5dv_devx_obj_destroy(domain), EBUSY);
	hand_cq(&hand, &send_cq, 6);
	hand_sq_command(&hand, &sq, &send_cq, tis_number, &c);
	hand_wq_create(&sq, &c);
	check_eq(mlx5dv_devx_obj_destroy(tis), EBUSY);
	check_eq(mlx5dv_devx_obj_destroy(send_cq.obj), EBUSY);
	check_eq(hand_wq_state(&sq, MODIFY_SQ, WQ_RST, WQ_RDY), 0);
}

static void close_sq(void)
{
	hand_qp_end(&sq);
	hand_cq_end(&send_cq);
	object_end(&tis);
	object_end(&domain);
	hand.used = 0;
}

static void open_rq(uint32_t i)
{
	struct command c;

	hand_cq(&hand, &cqs[i], 6);
	hand_rq_command(&hand, &rqs[i], &cqs[i], &c);
	hand_wq_create(&rqs[i], &c);
}

static void close_rq(uint32_t i)
{
	hand_qp_end(&rqs[i]);
	hand_cq_end(&cqs[i]);
}

static void open_direct_tir(uint32_t rqn, uint32_t transport_domain)
{
	struct command c;

	command_begin(&c, 0x900);
	put_bits(c.in, CTX + 0xe8, 24, rqn);
	put_bits(c.in, CTX + 0x128, 24, transport_domain);
	tir = command_create(&hand, &c, 272, &tir_number);
}

/* Every frame, to the TIR. */
static void open_rule(void)
{
	struct mlx5dv_flow_match_parameters *none = calloc(1, sizeof(*none) + 64);

	none->match_sz = 64;
	steering.domain = mlx5dv_dr_domain_create(hand.ctx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	steering.table = mlx5dv_dr_table_create(steering.domain, 0);
	steering.matcher = mlx5dv_dr_matcher_create(steering.table, 0, 0, none);
	steering.action = mlx5dv_dr_action_create_dest_devx_tir(tir);
	check(steering.matcher && steering.action);
	steering.rule = mlx5dv_dr_rule_create(steering.matcher, none, 1, &steering.action);
	check(steering.rule != NULL);
	free(none);
}

static void close_rule(void)
{
	check_eq(mlx5dv_dr_rule_destroy(steering.rule), 0);
	check_eq(mlx5dv_dr_action_destroy(steering.action), 0);
	check_eq(mlx5dv_dr_matcher_destroy(steering.matcher), 0);
	check_eq(mlx5dv_dr_table_destroy(steering.table), 0);
	check_eq(mlx5dv_dr_domain_destroy(steering.domain), 0);
}

/* --- frames -------------------------------------------------------------------------------------- */

/* First byte of the destination: 3, a group, which queues of the port hear; 2, an address that is not the port's. */
static uint8_t destination = 3;

/* An IPv4 and UDP header, and a pattern; the source port decides where a hash leads. */
static void fill_frame(uint8_t *frame, uint16_t port, uint32_t seed)
{
	static const uint8_t head[] = { 3, 0, 0,    0, 0, 9,           2,  0, 0, 0, 0,  8,
					8, 0, 0x45, 0, 0, LENGTH - 14, 0,  0, 0, 0, 64, 17,
					0, 0, 10,   0, 0, 1,           10, 0, 0, 2 };

	pattern_fill(frame, LENGTH, seed);
	memcpy(frame, head, sizeof(head));
	frame[0] = destination;
	put_bits(frame, 34 * 8, 16, port);
	put_bits(frame, 36 * 8, 16, 7);
	put_bits(frame, 38 * 8, 16, LENGTH - 34);
	put_bits(frame, 40 * 8, 16, 0);
}

static void send_frame(uint16_t port, uint32_t seed)
{
	struct mlx5_wqe_eth_seg *eth;
	struct mlx5_cqe64 cqe;
	struct wqe wqe;

	fill_frame(hand.buf, port, seed);
	wqe_begin(&wqe, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	eth = wqe_put(&wqe, 16);
	eth->cs_flags = 0;
	wqe_put_data(&wqe, hand.buf, LENGTH, hand.mr->lkey);
	hand_post(&sq, &wqe);
	hand_ring(&sq);
	hand_expect(&send_cq, &sq, MLX5_CQE_REQ, &cqe);
}

static void expect_frame(uint32_t i, size_t at, uint16_t port, uint32_t seed)
{
	uint8_t want[LENGTH];
	struct mlx5_cqe64 cqe;

	hand_expect(&cqs[i], &rqs[i], MLX5_CQE_RESP_SEND, &cqe);
	fill_frame(want, port, seed);
	check_eq(be32toh(cqe.byte_cnt), LENGTH);
	check_eq(be32toh(cqe.srqn_uidx) & 0xffffff, 0x123456);
	check(!memcmp(hand.buf + at, want, LENGTH));
}

/* --- one queue ----------------------------------------------------------------------------------- */

static void one_queue(void)
{
	struct mlx5_cqe64 cqe;
	struct command c;

	open_sq();
	open_rq(0);
	open_direct_tir(rqs[0].number, 0);
	open_rule();
	check_eq(mlx5dv_devx_obj_destroy(rqs[0].obj), EBUSY);
	hand_recv(&rqs[0], SLOT, SLOT);
	send_frame(1, 1); /* the queue is in RST: lost */
	check_eq(hand_wq_state(&rqs[0], MODIFY_RQ, WQ_RST, WQ_RDY), 0);
	for (uint32_t i = 0; i < 200; i++) {
		send_frame(1, 100 + i);
		expect_frame(0, SLOT, 1, 100 + i);
		hand_recv(&rqs[0], SLOT, SLOT);
	}
	check_eq(command_query(rqs[0].obj, rqs[0].number, 0x90b, &c, 272), 0);
	check_eq(get_bits(c.out, CTX + 0x8, 4), WQ_RDY);
	check_eq(get_bits(c.out, CTX + 0x48, 24), cqs[0].number);
	check_eq(get_bits(c.out, WQ + 0xc0, 32), 200);
	check_eq(get_bits(c.out, WQ + 0xe0, 32), 201);
	check_eq(command_query(sq.obj, sq.number, 0x907, &c, 272), 0);
	check_eq(get_bits(c.out, CTX + 0x8, 4), WQ_RDY);
	check_eq(get_bits(c.out, CTX + 0x168, 24), tis_number);
	check_eq(get_bits(c.out, WQ + 0xc0, 32), 201);
	/* What is posted to a queue in ERR is flushed; from RST on it begins anew. */
	check_eq(hand_wq_state(&rqs[0], MODIFY_RQ, WQ_RDY, WQ_ERR), 0);
	hand_expect_error(&cqs[0], &rqs[0], MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	check_eq(hand_wq_state(&rqs[0], MODIFY_RQ, WQ_ERR, WQ_RDY), 9);
	check_eq(hand_wq_state(&rqs[0], MODIFY_RQ, WQ_RST, WQ_RDY), 9);
	check_eq(hand_wq_state(&rqs[0], MODIFY_RQ, WQ_ERR, WQ_RST), 0);
	rqs[0].rq_head = 0;
	rqs[0].dbr[0] = 0;
	check_eq(hand_wq_state(&rqs[0], MODIFY_RQ, WQ_RST, WQ_RDY), 0);
	hand_recv(&rqs[0], SLOT, SLOT);
	send_frame(1, 5);
	expect_frame(0, SLOT, 1, 5);
	check(!hand_poll(&cqs[0], &cqe));
	close_rule();
	object_end(&tir);
	close_rq(0);
	close_sq();
}

static void send_queue_errors(void)
{
	struct mlx5_cqe64 cqe;
	struct wqe wqe;

	open_sq();
	wqe_begin(&wqe, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	wqe_put(&wqe, 16);
	wqe_put_data(&wqe, hand.buf, LENGTH, hand.mr->lkey ^ 0x300);
	hand_post(&sq, &wqe);
	hand_ring(&sq);
	hand_expect_error(&send_cq, &sq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
	/* As drivers recover. */
	check_eq(hand_wq_state(&sq, MODIFY_SQ, WQ_RDY, WQ_RST), 9);
	check_eq(hand_wq_state(&sq, MODIFY_SQ, WQ_ERR, WQ_RST), 0);
	sq.sq_head = 0;
	sq.dbr[1] = 0;
	check_eq(hand_wq_state(&sq, MODIFY_SQ, WQ_RST, WQ_ERR), 9);
	check_eq(hand_wq_state(&sq, MODIFY_SQ, WQ_RST, WQ_RDY), 0);
	check_eq(hand_wq_state(&sq, MODIFY_SQ, WQ_RDY, WQ_RDY), 0);
	send_frame(1, 1);
	check_eq(hand_wq_state(&sq, MODIFY_SQ, WQ_RDY, WQ_ERR), 0);
	wqe_begin(&wqe, MLX5_OPCODE_NOP, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	hand_post(&sq, &wqe);
	hand_ring(&sq);
	hand_expect_error(&send_cq, &sq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	check(!hand_poll(&send_cq, &cqe));
	close_sq();
}

/* Without flush_in_error_en nothing but the error itself completes. */
static void kept_in_error(void)
{
	struct mlx5_cqe64 cqe;
	struct command c;
	struct wqe wqe;

	open_sq();
	hand_cq(&hand, &cqs[0], 6);
	hand_rq_command(&hand, &rqs[0], &cqs[0], &c);
	put_bits(c.in, CTX + 0xd, 1, 0);
	hand_wq_create(&rqs[0], &c);
	check_eq(hand_wq_state(&rqs[0], MODIFY_RQ, WQ_RST, WQ_RDY), 0);
	open_direct_tir(rqs[0].number, 0);
	open_rule();
	hand_recv(&rqs[0], SLOT, LENGTH - 1); /* too short */
	hand_recv(&rqs[0], SLOT, SLOT);
	send_frame(1, 1);
	hand_expect_error(&cqs[0], &rqs[0], MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
	check_eq(hand_wq_state(&rqs[0], MODIFY_RQ, WQ_ERR, WQ_ERR), 0);
	check(!hand_poll(&cqs[0], &cqe));
	check_eq(hand_wq_state(&rqs[0], MODIFY_RQ, WQ_ERR, WQ_RST), 0);
	rqs[0].rq_head = 0;
	rqs[0].dbr[0] = 0;
	check_eq(hand_wq_state(&rqs[0], MODIFY_RQ, WQ_RST, WQ_RDY), 0);
	hand_recv(&rqs[0], SLOT, SLOT);
	send_frame(1, 2);
	expect_frame(0, SLOT, 1, 2);
	close_rule();
	object_end(&tir);
	close_rq(0);
	close_sq();
	/* The same of a send queue. */
	hand_cq(&hand, &send_cq, 6);
	hand_sq_command(&hand, &sq, &send_cq, 0, &c);
	put_bits(c.in, CTX + 0x3, 1, 0);
	hand_wq_create(&sq, &c);
	check_eq(hand_wq_state(&sq, MODIFY_SQ, WQ_RST, WQ_RDY), 0);
	for (int i = 0; i < 3; i++) {
		wqe_begin(&wqe, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		wqe_put(&wqe, 16);
		wqe_put_data(&wqe, hand.buf, LENGTH, hand.mr->lkey ^ (i == 1 ? 0x300 : 0));
		hand_post(&sq, &wqe);
	}
	hand_ring(&sq);
	hand_expect(&send_cq, &sq, MLX5_CQE_REQ, &cqe);
	hand_expect_error(&send_cq, &sq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
	hand_ring(&sq);
	check(!hand_poll(&send_cq, &cqe));
	check_eq(hand_wq_state(&sq, MODIFY_SQ, WQ_ERR, WQ_RST), 0);
	sq.sq_head = 0;
	sq.dbr[1] = 0;
	check_eq(hand_wq_state(&sq, MODIFY_SQ, WQ_RST, WQ_RDY), 0);
	send_frame(1, 3);
	check(!hand_poll(&send_cq, &cqe));
	hand_qp_end(&sq);
	hand_cq_end(&send_cq);
	hand.used = 0;
}

/* Two threads: one takes the queue to RDY whatever it is, and never gets there from ERR. */
static void *always_ready(void *arg)
{
	while (atomic_load(&changing)) {
		hand_wq_state(&rqs[0], MODIFY_RQ, WQ_RST, WQ_RDY);
		hand_wq_state(&rqs[0], MODIFY_RQ, WQ_RDY, WQ_RDY);
	}
	return arg;
}

static void state_race(void)
{
	struct mlx5_cqe64 cqe;
	struct command c;
	pthread_t thread;

	open_rq(0);
	atomic_store(&changing, true);
	check_eq(pthread_create(&thread, NULL, always_ready, NULL), 0);
	for (int i = 0; i < 600; i++) {
		while (hand_wq_state(&rqs[0], MODIFY_RQ, WQ_RDY, WQ_ERR))
			;
		for (int k = 0; k < 3; k++) {
			check_eq(command_query(rqs[0].obj, rqs[0].number, 0x90b, &c, 272), 0);
			check_eq(get_bits(c.out, CTX + 0x8, 4), WQ_ERR);
		}
		check_eq(hand_wq_state(&rqs[0], MODIFY_RQ, WQ_ERR, WQ_RST), 0);
	}
	atomic_store(&changing, false);
	check_eq(pthread_join(thread, NULL), 0);
	check(!hand_poll(&cqs[0], &cqe));
	close_rq(0);
	hand.used = 0;
}

/* Rates by number; what they do to time is not looked at here. */
static void paced(void)
{
	uint8_t context[12] = { 0 };
	struct mlx5dv_pp *pp;
	struct command c;

	put_bits(context, 0, 32, 1000000); /* kbit/s */
	pp = mlx5dv_pp_alloc(hand.ctx, sizeof(context), context, 0);
	check(pp != NULL);
	open_sq();
	send_frame(1, 1);
	command_begin(&c, MODIFY_SQ);
	put_bits(c.in, 0x40, 4, WQ_RDY);
	put_bits(c.in, 0x80, 64, 1);
	put_bits(c.in, CTX + 0x8, 4, WQ_RDY);
	put_bits(c.in, CTX + 0xf0, 16, pp->index);
	check_eq(command_modify(sq.obj, sq.number, &c, 272), 0);
	for (uint32_t i = 0; i < 100; i++)
		send_frame(1, i);
	check_eq(command_query(sq.obj, sq.number, 0x907, &c, 272), 0);
	check_eq(get_bits(c.out, CTX + 0xf0, 16), pp->index);
	command_begin(&c, MODIFY_SQ);
	put_bits(c.in, 0x40, 4, WQ_RDY);
	put_bits(c.in, 0x80, 64, 1);
	put_bits(c.in, CTX + 0x8, 4, WQ_RDY);
	check_eq(command_modify(sq.obj, sq.number, &c, 272), 0);
	send_frame(1, 2);
	close_sq();
	mlx5dv_pp_free(pp);
}

/* A TIR of the SQ's own domain does not take its frames until it is allowed to. */
static void own_domain(void)
{
	struct mlx5_cqe64 cqe;
	struct command c;

	open_sq();
	open_rq(0);
	check_eq(hand_wq_state(&rqs[0], MODIFY_RQ, WQ_RST, WQ_RDY), 0);
	open_direct_tir(rqs[0].number, domain_number);
	open_rule();
	hand_recv(&rqs[0], SLOT, SLOT);
	destination = 2;
	send_frame(1, 1);
	check(!hand_poll(&cqs[0], &cqe));
	command_begin(&c, 0x901);
	put_bits(c.in, 0x80, 64, 1 << 4);
	put_bits(c.in, CTX + 0x126, 2, 1);
	check_eq(command_modify(tir, tir_number, &c, 272), 0);
	send_frame(1, 2);
	expect_frame(0, SLOT, 1, 2);
	check_eq(command_query(tir, tir_number, 0x903, &c, 272), 0);
	check_eq(get_bits(c.out, CTX + 0x126, 2), 1);
	check_eq(get_bits(c.out, CTX + 0xe8, 24), rqs[0].number);
	check_eq(get_bits(c.out, CTX + 0x128, 24), domain_number);
	destination = 3;
	close_rule();
	object_end(&tir);
	close_rq(0);
	close_sq();
}

/* Frames that find no receive are counted in the RQ's set (out_of_buffer), and only they. */
static void lost(void)
{
	struct mlx5dv_devx_obj *set;
	struct command c;
	uint32_t number;

	command_begin(&c, 0x771);
	set = command_create(&hand, &c, 16, NULL);
	number = (uint32_t)get_bits(c.out, 0x58, 8);
	open_sq();
	open_rq(0);
	command_begin(&c, MODIFY_RQ);
	put_bits(c.in, 0x80, 64, 1 << 3);
	put_bits(c.in, CTX + 0x8, 4, WQ_RDY);
	put_bits(c.in, CTX + 0x60, 8, number);
	check_eq(command_modify(rqs[0].obj, rqs[0].number, &c, 272), 0);
	open_direct_tir(rqs[0].number, 0);
	open_rule();
	hand_recv(&rqs[0], SLOT, SLOT);
	for (uint32_t i = 0; i < 4; i++)
		send_frame(1, i);
	expect_frame(0, SLOT, 1, 0);
	command_begin(&c, 0x773);
	put_bits(c.in, 0xf8, 8, number);
	check_eq(mlx5dv_devx_obj_query(set, c.in, 32, c.out, 256), 0);
	check_eq(get_bits(c.out, 0x180, 32), 3);
	put_bits(c.out, 0x180, 32, 0);
	for (size_t i = 0; i < 256; i++)
		check_eq(c.out[i], 0);
	close_rule();
	object_end(&tir);
	close_rq(0);
	object_end(&set);
	close_sq();
}

/* --- memory keys --------------------------------------------------------------------------------- */

/* A key of one piece, by a work request of the SQ. */
static void post_umr(uint32_t key)
{
	struct mlx5_wqe_umr_ctrl_seg *umr;
	struct mlx5_wqe_mkey_context_seg *context;
	struct mlx5_wqe_umr_klm_seg *klm;
	struct wqe wqe;

	wqe_begin(&wqe, MLX5_OPCODE_UMR, MLX5_WQE_CTRL_CQ_UPDATE, htobe32(key));
	umr = wqe_put(&wqe, sizeof(*umr));
	umr->flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
	umr->klm_octowords = htobe16(4);
	umr->mkey_mask =
		htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN |
			MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY |
			MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE);
	context = wqe_put(&wqe, sizeof(*context));
	context->access_flags = MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE;
	context->qpn_mkey = htobe32(0xffffff00 | (key & 0xff));
	context->len = htobe64(64);
	klm = wqe_put(&wqe, 4 * sizeof(*klm));
	klm->byte_count = htobe32(64);
	klm->mkey = htobe32(hand.mr->lkey);
	klm->address = htobe64((uintptr_t)hand.buf);
	hand_post(&sq, &wqe);
	hand_ring(&sq);
}

/* An SQ lays keys out where it was made for that (reg_umr), and only there. */
static void keys(void)
{
	struct mlx5dv_devx_obj *mkey;
	struct hand_address self;
	struct mlx5_cqe64 cqe;
	struct hand_cq cq;
	struct hand_qp qp;
	struct command c;
	struct wqe wqe;
	uint32_t key;

	command_begin(&c, 0x200);
	put_bits(c.in, 0x80 + 0x1, 1, 1);  /* free */
	put_bits(c.in, 0x80 + 0x10, 1, 1); /* umr_en */
	put_bits(c.in, 0x80 + 0x16, 2, 2); /* KLM */
	put_bits(c.in, 0x80 + 0x20, 24, 0xffffff);
	put_bits(c.in, 0x80 + 0x38, 8, 0x42);
	put_bits(c.in, 0x80 + 0x68, 24, hand.pdn);
	put_bits(c.in, 0x80 + 0x1a0, 32, 4);
	mkey = command_create(&hand, &c, 272, &key);
	key = key << 8 | 0x42;
	for (uint32_t able = 0; able < 2; able++) {
		hand_cq(&hand, &send_cq, 6);
		hand_sq_command(&hand, &sq, &send_cq, 0, &c);
		put_bits(c.in, CTX + 0xc, 1, able);
		hand_wq_create(&sq, &c);
		check_eq(hand_wq_state(&sq, MODIFY_SQ, WQ_RST, WQ_RDY), 0);
		post_umr(key);
		if (able)
			hand_expect(&send_cq, &sq, MLX5_CQE_REQ, &cqe);
		else
			hand_expect_error(&send_cq, &sq, MLX5_CQE_REQ_ERR,
					  MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
		hand_qp_end(&sq);
		hand_cq_end(&send_cq);
	}
	hand_cq(&hand, &cq, 4);
	hand_qp(&hand, &qp, IBV_QPT_RC, &cq, &cq);
	hand_address(&qp, &self);
	hand_connect(&qp, &self);
	pattern_fill(hand.buf, 64, 5);
	wqe_begin(&wqe, MLX5_OPCODE_RDMA_WRITE, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	wqe_put_raddr(&wqe, self.addr + SLOT, self.rkey);
	wqe_put_data(&wqe, NULL, 64, key);
	hand_post(&qp, &wqe);
	hand_ring(&qp);
	hand_expect(&cq, &qp, MLX5_CQE_REQ, &cqe);
	check(!memcmp(hand.buf, hand.buf + SLOT, 64));
	hand_qp_end(&qp);
	hand_cq_end(&cq);
	object_end(&mkey);
	hand.used = 0;
}

/* --- tables -------------------------------------------------------------------------------------- */

static void list_queues(struct command *c, const uint32_t *which, uint32_t count)
{
	put_bits(c->in, CTX + 0xb0, 16, QUEUES);
	put_bits(c->in, CTX + 0xd0, 16, count);
	for (uint32_t i = 0; i < count; i++)
		put_bits(c->in, CTX + 0x780 + 32 * i, 32, rqs[which[i]].number);
}

/* Frames of 64 ports; how many each queue gets. */
static void spread(uint32_t *got)
{
	struct mlx5_cqe64 cqe;

	memset(got, 0, QUEUES * sizeof(*got));
	for (uint16_t port = 0; port < 64; port++) {
		send_frame((uint16_t)(1000 + 77 * port), port);
		for (uint32_t i = 0; i < QUEUES; i++)
			if (hand_poll(&cqs[i], &cqe)) {
				got[i]++;
				hand_recv(&rqs[i], SLOT * (1 + i), SLOT);
			}
	}
}

static void tables(void)
{
	static const uint32_t all[] = { 0, 1, 2, 3 }, two[] = { 3, 1 },
			      eight[] = { 0, 1, 2, 3, 0, 1, 2, 3 };
	struct mlx5dv_devx_obj *second;
	struct command c, hash;
	uint32_t got[QUEUES], number;

	open_sq();
	for (uint32_t i = 0; i < QUEUES; i++) {
		open_rq(i);
		check_eq(hand_wq_state(&rqs[i], MODIFY_RQ, WQ_RST, WQ_RDY), 0);
		for (int k = 0; k < 8; k++)
			hand_recv(&rqs[i], SLOT * (1 + i), SLOT);
	}
	command_begin(&c, 0x916);
	list_queues(&c, all, QUEUES);
	rqt = command_create(&hand, &c, 272 + 4 * QUEUES, &rqt_number);
	second = command_create(&hand, &c, 272 + 4 * QUEUES, &number);
	check(number != rqt_number);
	object_end(&second);
	command_begin(&hash, 0x900);
	put_bits(hash.in, CTX + 0x20, 4, 1);
	put_bits(hash.in, CTX + 0x108, 24, rqt_number);
	put_bits(hash.in, CTX + 0x120, 4, 2);
	for (uint32_t i = 0; i < 40; i++)
		hash.in[(CTX + 0x140) / 8 + i] = (uint8_t)(i * 37 + 11);
	put_bits(hash.in, CTX + 0x280, 32, 1u << 30 | 0xf);
	tir = command_create(&hand, &hash, 272, &tir_number);
	check_eq(mlx5dv_devx_obj_destroy(rqt), EBUSY);
	open_rule();
	spread(got);
	check_eq(got[0] + got[1] + got[2] + got[3], 64);
	check(got[0] && got[1] && got[2] && got[3]);
	/* Two of them. */
	command_begin(&c, 0x917);
	put_bits(c.in, 0x80, 64, 1);
	list_queues(&c, two, 2);
	check_eq(command_modify(rqt, rqt_number, &c, 280), 0);
	spread(got);
	check_eq(got[1] + got[3], 64);
	check(got[1] && got[3]);
	check_eq(command_query(rqt, rqt_number, 0x919, &c, 272 + 8), 0);
	check_eq(get_bits(c.out, CTX + 0xb0, 16), QUEUES);
	check_eq(get_bits(c.out, CTX + 0xd0, 16), 2);
	check_eq(get_bits(c.out, CTX + 0x780, 32), rqs[3].number);
	check_eq(command_query(rqt, rqt_number, 0x919, &c, 272 + 4), 0x51);
	/* More than the table can have, a number that is none: nothing changes. */
	command_begin(&c, 0x917);
	put_bits(c.in, 0x80, 64, 1);
	list_queues(&c, eight, 8);
	check_eq(command_modify(rqt, rqt_number, &c, 304), 3);
	list_queues(&c, all, 4);
	put_bits(c.in, CTX + 0x780 + 32, 32, sq.number);
	check_eq(command_modify(rqt, rqt_number, &c, 288), 5);
	spread(got);
	check_eq(got[1] + got[3], 64);
	/* A hash over nothing leads all frames to the first. */
	put_bits(hash.in, 0, 16, 0x901);
	put_bits(hash.in, 0x80, 64, 1 << 2);
	put_bits(hash.in, CTX + 0x280, 32, 0);
	check_eq(command_modify(tir, tir_number, &hash, 272), 0);
	spread(got);
	check_eq(got[3], 64);
	/* Queues that are in no table any more can go. */
	close_rule();
	check_eq(mlx5dv_devx_obj_destroy(rqs[3].obj), EBUSY);
	close_rq(0);
	object_end(&tir);
	object_end(&rqt);
	for (uint32_t i = 1; i < QUEUES; i++)
		close_rq(i);
	close_sq();
}

/* --- changes while frames flow -------------------------------------------------------------------- */

static void *change_tables(void *arg)
{
	static const uint32_t lists[][QUEUES] = { { 0, 1, 2, 3 }, { 3, 2 }, { 1 }, { 2, 0, 3, 1 } };
	static const uint32_t counts[] = { 4, 2, 1, 4 };
	struct command c;

	for (unsigned int i = 0; atomic_load(&changing); i = (i + 1) % 4) {
		command_begin(&c, 0x917);
		put_bits(c.in, 0x80, 64, 1);
		list_queues(&c, lists[i], counts[i]);
		check_eq(command_modify(rqt, rqt_number, &c, 272 + 4 * counts[i]), 0);
		check_eq(command_query(rqt, rqt_number, 0x919, &c, sizeof(c.out)), 0);
		check_eq(get_bits(c.out, CTX + 0xd0, 16), counts[i]);
	}
	return arg;
}

/* Each frame arrives once, whichever list its TIR has at that moment. */
static void while_frames_flow(void)
{
	static const uint32_t all[] = { 0, 1, 2, 3 };
	uint32_t got[QUEUES], total = 0;
	struct command c;
	pthread_t thread;

	open_sq();
	for (uint32_t i = 0; i < QUEUES; i++) {
		open_rq(i);
		check_eq(hand_wq_state(&rqs[i], MODIFY_RQ, WQ_RST, WQ_RDY), 0);
		for (int k = 0; k < 8; k++)
			hand_recv(&rqs[i], SLOT * (1 + i), SLOT);
	}
	command_begin(&c, 0x916);
	list_queues(&c, all, QUEUES);
	rqt = command_create(&hand, &c, 272 + 4 * QUEUES, &rqt_number);
	command_begin(&c, 0x900);
	put_bits(c.in, CTX + 0x20, 4, 1);
	put_bits(c.in, CTX + 0x108, 24, rqt_number);
	put_bits(c.in, CTX + 0x120, 4, 2);
	memset(c.in + (CTX + 0x140) / 8, 0x6d, 40);
	put_bits(c.in, CTX + 0x280, 32, 1u << 30 | 0xf);
	tir = command_create(&hand, &c, 272, &tir_number);
	open_rule();
	atomic_store(&changing, true);
	check_eq(pthread_create(&thread, NULL, change_tables, NULL), 0);
	for (int round = 0; round < 30; round++) {
		spread(got);
		total += got[0] + got[1] + got[2] + got[3];
	}
	check_eq(total, 30 * 64);
	atomic_store(&changing, false);
	check_eq(pthread_join(thread, NULL), 0);
	close_rule();
	object_end(&tir);
	object_end(&rqt);
	for (uint32_t i = 0; i < QUEUES; i++)
		close_rq(i);
	close_sq();
}

/* --- receives in lists and of RMPs --------------------------------------------------------------- */

static void linked(void)
{
	enum { LOG_STRIDE = 5, COUNT = 64 };
	struct command c;

	open_sq();
	hand_cq(&hand, &cqs[0], 6);
	hand_rq_command(&hand, &rqs[0], &cqs[0], &c);
	rqs[0].rq = hand_take(&hand, COUNT << LOG_STRIDE, &(uint64_t){ 0 });
	put_bits(c.in, WQ, 4, 0);
	put_bits(c.in, WQ + 0x10c, 4, LOG_STRIDE);
	put_bits(c.in, WQ + 0x180, 64, (uint64_t)(rqs[0].rq - hand.mem));
	hand_wq_create(&rqs[0], &c);
	check_eq(hand_wq_state(&rqs[0], MODIFY_RQ, WQ_RST, WQ_RDY), 0);
	for (uint32_t i = 0; i < COUNT; i++) {
		struct mlx5_wqe_srq_next_seg *next = (void *)(rqs[0].rq + (i << LOG_STRIDE));

		next->next_wqe_index = htobe16((uint16_t)((i + 1) % COUNT));
		mlx5dv_set_data_seg((void *)(next + 1), SLOT, hand.mr->lkey,
				    (uintptr_t)hand.buf + SLOT);
	}
	__atomic_store_n(rqs[0].dbr, htobe32(COUNT - 1), __ATOMIC_RELEASE);
	open_direct_tir(rqs[0].number, 0);
	open_rule();
	for (uint32_t i = 0; i < 20; i++) {
		send_frame(1, i);
		expect_frame(0, SLOT, 1, i);
	}
	/* What is there is flushed, and what is posted afterwards, too. */
	check_eq(hand_wq_state(&rqs[0], MODIFY_RQ, WQ_RDY, WQ_ERR), 0);
	for (uint32_t i = 20; i < COUNT - 1; i++)
		hand_expect_error(&cqs[0], &rqs[0], MLX5_CQE_RESP_ERR,
				  MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	__atomic_store_n(rqs[0].dbr, htobe32(COUNT + 1), __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < 2; i++)
		hand_expect_error(&cqs[0], &rqs[0], MLX5_CQE_RESP_ERR,
				  MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	close_rule();
	object_end(&tir);
	close_rq(0);
	close_sq();
}

static void shared(void)
{
	struct mlx5dv_devx_obj *rmp;
	struct command c, made;
	uint32_t number;

	open_sq();
	hand_cq(&hand, &cqs[0], 6);
	hand_rq_command(&hand, &rqs[0], &cqs[0], &made);
	/* The ring that the RQ would have becomes the RMP's. */
	command_begin(&c, 0x90c);
	memcpy(c.in + WQ / 8, made.in + WQ / 8, 192);
	put_bits(c.in, CTX + 0x8, 4, 1);
	put_bits(c.in, CTX + 0x20, 1, 1); /* basic_cyclic_rcv_wqe */
	rmp = command_create(&hand, &c, 272, &number);
	put_bits(made.in, CTX + 0x4, 4, 1);
	put_bits(made.in, CTX + 0x88, 24, number);
	hand_wq_create(&rqs[0], &made);
	check_eq(hand_wq_state(&rqs[0], MODIFY_RQ, WQ_RST, WQ_RDY), 0);
	check_eq(mlx5dv_devx_obj_destroy(rmp), EBUSY);
	open_direct_tir(rqs[0].number, 0);
	open_rule();
	for (uint32_t i = 0; i < 100; i++) {
		hand_recv(&rqs[0], SLOT, SLOT);
		send_frame(1, i);
		expect_frame(0, SLOT, 1, i);
	}
	close_rule();
	object_end(&tir);
	close_rq(0);
	object_end(&rmp);
	close_sq();
}

int main(void)
{
	hand_open(&hand);
	one_queue();
	send_queue_errors();
	kept_in_error();
	state_race();
	paced();
	own_domain();
	lost();
	tables();
	while_frames_flow();
	keys();
	linked();
	shared();
	hand_close(&hand);
	return 0;
}

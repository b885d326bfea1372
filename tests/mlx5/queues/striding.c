// SPDX-License-Identifier: MIT
/*
 * Striding receive queues: WQEs that hold several frames. By command, in rings and in lists; by
 * mlx5dv_create_wq(), driven by hand and through verbs, with compressed completions too. What CQEs
 * say (bytes, strides, filler, first stride, WQE) is compared with a model of the queue.
 */
#include "hand.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum { CTX = 0x100, WQ = CTX + 0x180, MODIFY_SQ = 0x905, MODIFY_RQ = 0x909 };
enum { LOG_BYTES = 7, STRIDE = 1 << LOG_BYTES, LOG_COUNT = 3, STRIDES = 1 << LOG_COUNT };
enum { WQE_BYTES = STRIDE * STRIDES, COUNT = 16, LOG_WQE = 5, RECV_AT = 1 << 15 };
enum { LINKED = 2, CYCLIC = 3 };

static struct hand hand;
static struct hand_cq send_cq, recv_cq;
static struct hand_qp sq, rq;
static struct mlx5dv_devx_obj *tir;

static struct {
	struct mlx5dv_dr_domain *domain;
	struct mlx5dv_dr_table *table;
	struct mlx5dv_dr_matcher *matcher;
	struct mlx5dv_dr_action *action;
	struct mlx5dv_dr_rule *rule;
} steering;

/* --- frames -------------------------------------------------------------------------------------- */

/* No protocol that the card knows: the length is free. */
static void fill_frame(uint8_t *frame, uint32_t len, uint32_t seed)
{
	static const uint8_t head[] = { 3, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xb5 };

	pattern_fill(frame, len, seed);
	memcpy(frame, head, sizeof(head));
}

static void post_frame(uint32_t at, uint32_t len, uint32_t seed, uint8_t flags)
{
	struct wqe wqe;

	fill_frame(hand.buf + at, len, seed);
	wqe_begin(&wqe, MLX5_OPCODE_SEND, flags, 0);
	wqe_put(&wqe, 16);
	wqe_put_data(&wqe, hand.buf + at, len, hand.mr->lkey);
	hand_post(&sq, &wqe);
}

static void send_frame(uint32_t len, uint32_t seed)
{
	struct mlx5_cqe64 cqe;

	post_frame(0, len, seed, MLX5_WQE_CTRL_CQ_UPDATE);
	hand_ring(&sq);
	hand_expect(&send_cq, &sq, MLX5_CQE_REQ, &cqe);
}

static void open_sq(void)
{
	struct command c;

	hand_cq(&hand, &send_cq, 6);
	hand_sq_command(&hand, &sq, &send_cq, 0, &c);
	hand_wq_create(&sq, &c);
	check_eq(hand_wq_state(&sq, MODIFY_SQ, WQ_RST, WQ_RDY), 0);
}

static void close_sq(void)
{
	hand_qp_end(&sq);
	hand_cq_end(&send_cq);
	hand.used = 0;
}

/* Every frame, to one of the two. */
static void open_rule(struct ibv_qp *qp)
{
	struct mlx5dv_flow_match_parameters *none = calloc(1, sizeof(*none) + 64);

	none->match_sz = 64;
	steering.domain = mlx5dv_dr_domain_create(hand.ctx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	steering.table = mlx5dv_dr_table_create(steering.domain, 0);
	steering.matcher = mlx5dv_dr_matcher_create(steering.table, 0, 0, none);
	steering.action = qp ? mlx5dv_dr_action_create_dest_ibv_qp(qp)
			     : mlx5dv_dr_action_create_dest_devx_tir(tir);
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

/* --- the queue ------------------------------------------------------------------------------------ */

static void rq_command(uint32_t type, bool shift, struct command *c)
{
	hand_rq_command(&hand, &rq, &recv_cq, c);
	rq.rq = hand_take(&hand, COUNT << LOG_WQE, &(uint64_t){ 0 });
	rq.rq_cnt = COUNT;
	put_bits(c->in, WQ, 4, type);
	put_bits(c->in, WQ + 0x10c, 4, LOG_WQE);
	put_bits(c->in, WQ + 0x11b, 5, 4);
	put_bits(c->in, WQ + 0x134, 4, LOG_COUNT - 9 + 16); /* two's complement */
	put_bits(c->in, WQ + 0x138, 1, shift);
	put_bits(c->in, WQ + 0x13d, 3, LOG_BYTES - 6);
	put_bits(c->in, WQ + 0x180, 64, (uint64_t)(rq.rq - hand.mem));
}

static uint8_t *wqe_memory(uint32_t index)
{
	return hand.buf + RECV_AT + (size_t)index * WQE_BYTES;
}

static void post_wqe(void)
{
	uint32_t index = rq.rq_head & (COUNT - 1);
	struct mlx5_wqe_srq_next_seg *next = (void *)(rq.rq + ((size_t)index << LOG_WQE));

	memset(wqe_memory(index), 0xee, WQE_BYTES);
	next->next_wqe_index = htobe16((uint16_t)((index + 1) & (COUNT - 1)));
	mlx5dv_set_data_seg((void *)(next + 1), WQE_BYTES, hand.mr->lkey,
			    (uintptr_t)wqe_memory(index));
	rq.rq_head++;
	__atomic_store_n(rq.dbr, htobe32(rq.rq_head & 0xffff), __ATOMIC_RELEASE);
}

static void open_rq(uint32_t type, bool shift)
{
	struct command c;
	uint32_t number;

	open_sq();
	hand_cq(&hand, &recv_cq, 6);
	rq_command(type, shift, &c);
	hand_wq_create(&rq, &c);
	check_eq(hand_wq_state(&rq, MODIFY_RQ, WQ_RST, WQ_RDY), 0);
	command_begin(&c, 0x900);
	put_bits(c.in, CTX + 0xe8, 24, rq.number);
	tir = command_create(&hand, &c, 272, &number);
	open_rule(NULL);
}

static void close_rq(void)
{
	close_rule();
	object_end(&tir);
	hand_qp_end(&rq);
	hand_cq_end(&recv_cq);
	close_sq();
}

/* A CQE as hardware writes it: filler, strides, bytes; the first stride; the WQE. */
static void expect_cqe(bool filler, uint32_t wqe, uint32_t stride, uint32_t strides, uint32_t len)
{
	struct mlx5_cqe64 cqe;
	uint32_t count;

	hand_expect(&recv_cq, &rq, MLX5_CQE_RESP_SEND, &cqe);
	count = be32toh(cqe.byte_cnt);
	check_eq(count >> 31, filler);
	check_eq(count >> 16 & 0x7fff, strides);
	check_eq(count & 0xffff, len);
	check_eq(be16toh(cqe.wqe_counter), stride);
	check_eq(get_bits(&cqe, 16, 16) & (COUNT - 1), wqe & (COUNT - 1));
	check_eq(be32toh(cqe.srqn_uidx) & 0xffffff, 0x123456);
}

/* Frames of all lengths, and where the model says that they are. */
static void frames(uint32_t type, bool shift)
{
	uint32_t wqe = 0, stride = 0, fillers = 0, before = shift ? 2 : 0;
	uint8_t want[WQE_BYTES];
	struct mlx5_cqe64 cqe;
	struct command c;

	open_rq(type, shift);
	for (int i = 0; i < COUNT - 1; i++)
		post_wqe();
	for (uint32_t i = 0; i < 300; i++) {
		/* Some fill strides, and some a WQE, to the last byte. */
		uint32_t len = i % 7 == 3    ? 3 * STRIDE - before
			       : i % 41 == 5 ? WQE_BYTES - before
					     : 60 + i * 97 % (WQE_BYTES - 62);
		uint32_t need = (before + len + STRIDE - 1) / STRIDE;
		const uint8_t *at;

		send_frame(len, i);
		if (need > STRIDES - stride) {
			expect_cqe(true, wqe, stride, STRIDES - stride, 0);
			stride = 0;
			wqe++;
			post_wqe();
			fillers++;
		}
		expect_cqe(false, wqe, stride, need, len);
		fill_frame(want, len, i);
		at = wqe_memory(wqe & (COUNT - 1)) + stride * STRIDE;
		check(!memcmp(at + before, want, len));
		check(!before || (!at[0] && !at[1]));
		/* Nothing behind the frame was touched. */
		if (stride * STRIDE + before + len < WQE_BYTES)
			check_eq(at[before + len], 0xee);
		stride += need;
		if (stride == STRIDES) {
			stride = 0;
			wqe++;
			post_wqe();
		}
	}
	check(fillers > 20 && wqe > 3 * COUNT);
	check(!hand_poll(&recv_cq, &cqe));
	check_eq(command_query(rq.obj, rq.number, 0x90b, &c, 272), 0);
	check_eq(get_bits(c.out, WQ, 4), type);
	check_eq(get_bits(c.out, WQ + 0x134, 4), LOG_COUNT - 9 + 16);
	check_eq(get_bits(c.out, WQ + 0x13d, 3), LOG_BYTES - 6);
	check_eq(get_bits(c.out, WQ + 0x138, 1), shift);
	close_rq();
}

/* --- ends of WQEs --------------------------------------------------------------------------------- */

static void expect_error(uint8_t syndrome, uint32_t wqe, uint32_t stride)
{
	struct mlx5_cqe64 cqe;

	hand_wait(&recv_cq, &cqe);
	check_eq(cqe.op_own >> 4, MLX5_CQE_RESP_ERR);
	check_eq(((struct mlx5_err_cqe *)&cqe)->syndrome, syndrome);
	check_eq(be32toh(cqe.byte_cnt) >> 16, STRIDES - stride);
	check_eq(be16toh(cqe.wqe_counter), stride);
	check_eq(get_bits(&cqe, 16, 16), wqe);
}

/* No WQE for a frame: a filler ends the one that it does not fit in, so that programs post again. */
static void starved(uint32_t type)
{
	struct mlx5_cqe64 cqe;

	open_rq(type, false);
	send_frame(100, 1); /* lost */
	post_wqe();
	send_frame(100, 2);
	expect_cqe(false, 0, 0, 1, 100);
	send_frame(WQE_BYTES, 3); /* lost, too */
	expect_cqe(true, 0, 1, STRIDES - 1, 0);
	send_frame(100, 4);
	check(!hand_poll(&recv_cq, &cqe));
	post_wqe();
	send_frame(100, 5);
	expect_cqe(false, 1, 0, 1, 100);
	close_rq();
}

/* An error ends a WQE with all its strides; from RST on queues begin anew. */
static void errors(uint32_t type)
{
	struct mlx5_cqe64 cqe;

	open_rq(type, false);
	for (int i = 0; i < 3; i++)
		post_wqe();
	send_frame(2 * STRIDE, 1);
	expect_cqe(false, 0, 0, 2, 2 * STRIDE);
	send_frame(WQE_BYTES + 1, 2);
	expect_error(MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 0, 2);
	expect_error(MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 1, 0);
	expect_error(MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 2, 0);
	check(!hand_poll(&recv_cq, &cqe));
	if (type == CYCLIC) {
		check_eq(hand_wq_state(&rq, MODIFY_RQ, WQ_ERR, WQ_RST), 0);
		rq.rq_head = 0;
		rq.dbr[0] = 0;
		check_eq(hand_wq_state(&rq, MODIFY_RQ, WQ_RST, WQ_RDY), 0);
		post_wqe();
		post_wqe();
		send_frame(3 * STRIDE, 3);
		expect_cqe(false, 0, 0, 3, 3 * STRIDE);
		check_eq(hand_wq_state(&rq, MODIFY_RQ, WQ_RDY, WQ_ERR), 0);
		expect_error(MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0, 3);
		expect_error(MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 1, 0);
		check(!hand_poll(&recv_cq, &cqe));
	}
	close_rq();
}

/* Memory of a WQE that is shorter than its strides: what does not fit is an error. */
static void short_memory(void)
{
	open_rq(CYCLIC, false);
	post_wqe();
	mlx5dv_set_data_seg((void *)(rq.rq + 16), 2 * STRIDE, hand.mr->lkey,
			    (uintptr_t)wqe_memory(0));
	send_frame(2 * STRIDE, 1);
	expect_cqe(false, 0, 0, 2, 2 * STRIDE);
	send_frame(60, 2);
	expect_error(MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 0, 2);
	close_rq();
}

static void refusals(void)
{
	enum { BAD_PARAM = 3 };
	struct command c, rmp;

	hand_cq(&hand, &recv_cq, 6);
	rq_command(CYCLIC, false, &c);
	put_bits(c.in, WQ + 0x134, 4, 8); /* 2 strides */
	command_refused(&hand, &c, 272, BAD_PARAM);
	rq_command(CYCLIC, false, &c);
	put_bits(c.in, WQ + 0x10c, 4, 4); /* no room for the link */
	command_refused(&hand, &c, 272, BAD_PARAM);
	rq_command(1, false, &c); /* strides of a queue without */
	command_refused(&hand, &c, 272, BAD_PARAM);
	rq_command(LINKED, false, &c);
	command_begin(&rmp, 0x90c);
	memcpy(rmp.in + WQ / 8, c.in + WQ / 8, 192);
	put_bits(rmp.in, CTX + 0x8, 4, 1);
	command_refused(&hand, &rmp, 272, BAD_PARAM);
	hand_sq_command(&hand, &sq, &recv_cq, 0, &c);
	put_bits(c.in, WQ + 0x138, 1, 1);
	command_refused(&hand, &c, 272, BAD_PARAM);
	hand_cq_end(&recv_cq);
	hand.used = 0;
}

static void capabilities(void)
{
	static struct {
		uint8_t in[16], out[16 + 4096];
	} c;
	enum { CAP = 0x80 };

	put_bits(c.in, 0, 16, 0x100);
	put_bits(c.in, 0x30, 16, 1);
	check_eq(mlx5dv_devx_general_cmd(hand.ctx, c.in, sizeof(c.in), c.out, sizeof(c.out)), 0);
	check_eq(get_bits(c.out, CAP + 0x201, 1), 1); /* eth_striding_wq */
	check_eq(get_bits(c.out, CAP + 0x205, 1), 0); /* ib_striding_wq */
	check_eq(get_bits(c.out, CAP + 0x3a0, 1), 1); /* ext_stride_num_range */
	check_eq(get_bits(c.out, CAP + 0x5bc, 1), 1); /* mini_cqe_resp_stride_index */
	check_eq(get_bits(c.out, CAP + 0x2b0, 16), 1u << get_bits(c.out, CAP + 0x3a3, 5));
}

/* --- verbs ---------------------------------------------------------------------------------------- */

static struct verbs_wq {
	struct ibv_cq_ex *cq;
	struct ibv_wq *wq;
	struct ibv_rwq_ind_table *table;
	struct ibv_qp *qp;
} v;

static struct ibv_wq *create_wq(uint32_t log_bytes, uint32_t log_count)
{
	struct ibv_wq_init_attr attr = { .wq_type = IBV_WQT_RQ,
					 .max_wr = 4,
					 .max_sge = 3,
					 .pd = hand.pd,
					 .cq = ibv_cq_ex_to_cq(v.cq) };
	struct mlx5dv_wq_init_attr direct = {
		.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ,
		.striding_rq_attrs = { log_bytes, log_count, 0 },
	};
	struct ibv_wq *wq = mlx5dv_create_wq(hand.ctx, &attr, &direct);

	if (wq) {
		check(attr.max_sge >= 3 && attr.max_wr >= 4);
	} else {
		check_eq(errno, EINVAL);
	}
	return wq;
}

static void verbs_open(const struct mlx5dv_cq_init_attr *direct)
{
	struct ibv_cq_init_attr_ex cq = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_rwq_ind_table_init_attr table = { .ind_tbl = &v.wq };
	struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
	uint8_t key[40] = { 0 };
	struct ibv_qp_init_attr_ex qp = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = hand.pd,
		.rx_hash_conf = { IBV_RX_HASH_FUNC_TOEPLITZ, sizeof(key), key, 0 },
	};

	open_sq();
	v.cq = direct ? mlx5dv_create_cq(hand.ctx, &cq, (void *)direct)
		      : ibv_create_cq_ex(hand.ctx, &cq);
	check(v.cq != NULL);
	v.wq = create_wq(LOG_BYTES, LOG_COUNT);
	check(v.wq != NULL);
	check_eq(ibv_modify_wq(v.wq, &ready), 0);
	v.table = ibv_create_rwq_ind_table(hand.ctx, &table);
	check(v.table != NULL);
	qp.rwq_ind_tbl = v.table;
	v.qp = ibv_create_qp_ex(hand.ctx, &qp);
	check(v.qp != NULL);
	open_rule(v.qp);
}

static void verbs_close(void)
{
	close_rule();
	check_eq(ibv_destroy_qp(v.qp), 0);
	check_eq(ibv_destroy_rwq_ind_table(v.table), 0);
	check_eq(ibv_destroy_wq(v.wq), 0);
	check_eq(ibv_destroy_cq(ibv_cq_ex_to_cq(v.cq)), 0);
	close_sq();
}

/* Its memory in two pieces, which frames cross. */
static void verbs_post(uint32_t slot)
{
	uint8_t *at = wqe_memory(slot);
	struct ibv_sge sge[] = {
		{ (uintptr_t)at, STRIDE + 10, hand.mr->lkey },
		{ (uintptr_t)at + STRIDE + 10, WQE_BYTES - STRIDE - 10, hand.mr->lkey },
	};
	struct ibv_recv_wr wr = { .wr_id = 1000 + slot, .sg_list = sge, .num_sge = 2 }, *bad;

	check_eq(ibv_post_wq_recv(v.wq, &wr, &bad), 0);
}

/* wr_ids stay those of a WQE until its strides are done. */
static void by_verbs(void)
{
	struct mlx5dv_context attr = { .comp_mask = MLX5DV_CONTEXT_MASK_STRIDING_RQ };
	uint8_t want[WQE_BYTES];
	struct mlx5dv_rwq dv;
	struct mlx5dv_obj obj = { .rwq = { .out = &dv } };
	struct ibv_wc wc;

	check_eq(mlx5dv_query_device(hand.ctx, &attr), 0);
	check(attr.comp_mask & MLX5DV_CONTEXT_MASK_STRIDING_RQ);
	check_eq(attr.striding_rq_caps.supported_qpts, 1u << IBV_QPT_RAW_PACKET);
	verbs_open(NULL);
	check(!create_wq(attr.striding_rq_caps.min_single_stride_log_num_of_bytes - 1, 9));
	check(!create_wq(attr.striding_rq_caps.max_single_stride_log_num_of_bytes + 1, 9));
	check(!create_wq(6, attr.striding_rq_caps.min_single_wqe_log_num_of_strides - 1));
	check(!create_wq(6, attr.striding_rq_caps.max_single_wqe_log_num_of_strides + 1));
	obj.rwq.in = v.wq;
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_RWQ), 0);
	check_eq(dv.stride, 64); /* a link and three pieces */
	for (uint32_t slot = 0; slot < 12; slot++) {
		verbs_post(slot % 4);
		for (uint32_t i = 0; i < 2; i++) {
			uint32_t seed = slot * 2 + i;

			send_frame(4 * STRIDE, seed);
			check(cq_wait(ibv_cq_ex_to_cq(v.cq), &wc, PATIENCE_MS));
			check_eq(wc.status, IBV_WC_SUCCESS);
			check_eq(wc.wr_id, 1000 + slot % 4);
			check_eq(wc.qp_num, v.wq->wq_num);
			check_eq(wc.byte_len, 4 << 16 | 4 * STRIDE);
			fill_frame(want, 4 * STRIDE, seed);
			check(!memcmp(wqe_memory(slot % 4) + i * 4 * STRIDE, want, 4 * STRIDE));
		}
	}
	verbs_close();
}

static bool is_title(const struct mlx5_cqe64 *cqe)
{
	return cqe->op_own >> 4 == MLX5_CQE_RESP_SEND && (cqe->op_own >> 2 & 3) == 3;
}

/* Several frames of one burst are told of together; each has its stride. */
static void compressed(uint8_t format)
{
	struct mlx5dv_cq_init_attr direct = {
		.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE,
		.cqe_comp_res_format = format,
	};
	struct mlx5_cqe64 cqe;
	uint8_t want[256];
	struct ibv_wc wc;
	uint32_t at = 0, posted = 0, titles = 0;
	struct mlx5dv_cq dv;
	struct mlx5dv_obj obj = { .cq = { .out = &dv } };

	verbs_open(&direct);
	obj.cq.in = ibv_cq_ex_to_cq(v.cq);
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), 0);
	for (uint32_t round = 0; round < 40; round++) {
		/* With and without strides alike. */
		const uint32_t lens[] = { 100, 110, round % 2 ? 120 : 200, 100 };

		for (uint32_t i = 0; i < 4; i++)
			post_frame(i * 256, lens[i], round * 4 + i,
				   i == 3 ? MLX5_WQE_CTRL_CQ_UPDATE : 0);
		while (posted < at / STRIDES + 3)
			verbs_post(posted++ % 4);
		hand_ring(&sq);
		hand_expect(&send_cq, &sq, MLX5_CQE_REQ, &cqe);
		for (uint32_t i = 0; i < dv.cqe_cnt; i++)
			titles += is_title(&((struct mlx5_cqe64 *)dv.buf)[i]);
		for (uint32_t i = 0; i < 4; i++) {
			uint32_t need = (lens[i] + STRIDE - 1) / STRIDE;

			check(cq_wait(ibv_cq_ex_to_cq(v.cq), &wc, PATIENCE_MS));
			check_eq(wc.status, IBV_WC_SUCCESS);
			if (wc.byte_len >> 31) {
				check_eq(wc.wr_id, 1000 + at / STRIDES % 4);
				at += wc.byte_len >> 16 & 0x7fff;
				check_eq(at % STRIDES, 0);
				check(cq_wait(ibv_cq_ex_to_cq(v.cq), &wc, PATIENCE_MS));
			}
			check_eq(wc.wr_id, 1000 + at / STRIDES % 4);
			check_eq(wc.byte_len, need << 16 | lens[i]);
			fill_frame(want, lens[i], round * 4 + i);
			check(!memcmp(wqe_memory(at / STRIDES % 4) + at % STRIDES * STRIDE, want,
				      lens[i]));
			at += need;
		}
	}
	check(titles > 20);
	verbs_close();
}

int main(void)
{
	hand_open(&hand);
	capabilities();
	refusals();
	for (uint32_t type = LINKED; type <= CYCLIC; type++) {
		frames(type, false);
		frames(type, true);
		starved(type);
		errors(type);
	}
	short_memory();
	by_verbs();
	compressed(MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX);
	compressed(MLX5DV_CQE_RES_FORMAT_HASH);
	hand_close(&hand);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * Commands on verbs objects of raw Ethernet: indirection tables whose queues change under the queue pairs that have them, and
 * the queues of RAW_PACKET queue pairs.
 */
#include "hand.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../programs/station.h"

enum { WQS = 4, DEPTH = 16, SLOT = 512, LENGTH = 100, CTX = 0x100, WQ = CTX + 0x180 };
enum { RQTC = 0x100, LIST = RQTC + 0x780, BAD_PARAM = 3, BAD_RES = 5, BAD_OUTP_LEN = 0x51 };

static struct station tx;
static struct hand hand;

struct spread {
	struct ibv_cq *cq[WQS]; /* each queue has its own */
	struct ibv_wq *wq[WQS];
	uint32_t number[WQS];
	struct ibv_rwq_ind_table *table;
	struct ibv_qp *qp;
	struct ibv_flow *flow;
};

/* --- objects ------------------------------------------------------------------------------------- */

static void post(struct ibv_wq *wq)
{
	struct ibv_sge sge = { (uintptr_t)hand.buf, SLOT, hand.mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	check_eq(ibv_post_wq_recv(wq, &wr, &bad), 0);
}

/* It hashes over nothing: all frames go to the first queue of the table. */
static struct ibv_qp *make_qp(const struct spread *s)
{
	static uint8_t key[40];
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = hand.pd,
		.rwq_ind_tbl = s->table,
		.rx_hash_conf = { IBV_RX_HASH_FUNC_TOEPLITZ, sizeof(key), key, 0 },
	};
	struct ibv_qp *qp = ibv_create_qp_ex(hand.ctx, &attr);

	check(qp, "%s", strerror(errno));
	raw_to_rts(qp);
	return qp;
}

static void spread_open(struct spread *s)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = DEPTH, .max_sge = 1 };
	struct ibv_rwq_ind_table_init_attr table = { .log_ind_tbl_size = 2, .ind_tbl = s->wq };
	struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };

	init.pd = hand.pd;
	for (uint32_t i = 0; i < WQS; i++) {
		s->cq[i] = ibv_create_cq(hand.ctx, 4 * DEPTH, NULL, NULL, 0);
		init.cq = s->cq[i];
		s->wq[i] = ibv_create_wq(hand.ctx, &init);
		check(s->wq[i], "%s", strerror(errno));
		s->number[i] = s->wq[i]->wq_num;
		check_eq(ibv_modify_wq(s->wq[i], &ready), 0);
		for (int k = 0; k < DEPTH; k++)
			post(s->wq[i]);
	}
	s->table = ibv_create_rwq_ind_table(hand.ctx, &table);
	check(s->table, "%s", strerror(errno));
	s->qp = make_qp(s);
	s->flow = flow_all(s->qp);
}

/* Queues that are NULL have been destroyed before. */
static void spread_close(struct spread *s)
{
	check_eq(ibv_destroy_flow(s->flow), 0);
	check_eq(ibv_destroy_rwq_ind_table(s->table), EBUSY);
	check_eq(ibv_destroy_qp(s->qp), 0);
	check_eq(ibv_destroy_rwq_ind_table(s->table), 0);
	for (uint32_t i = 0; i < WQS; i++) {
		if (s->wq[i])
			check_eq(ibv_destroy_wq(s->wq[i]), 0);
		check_eq(ibv_destroy_cq(s->cq[i]), 0);
	}
}

static void send_frame(void)
{
	uint8_t frame[LENGTH] = { 0 };

	put_eth(frame, 0, 0x030000000001, 0x020000000002, 0x88b5);
	station_send(&tx, frame, sizeof(frame), 0);
}

/* The frame is in this queue, and in no other. */
static void expect_at(struct spread *s, uint32_t queue)
{
	struct ibv_wc wc;

	check(cq_wait(s->cq[queue], &wc, PATIENCE_MS));
	check_eq(wc.status, IBV_WC_SUCCESS);
	check_eq(wc.byte_len, LENGTH);
	check_eq(wc.qp_num, s->number[queue]);
	post(s->wq[queue]);
	for (uint32_t i = 0; i < WQS; i++)
		check_eq(ibv_poll_cq(s->cq[i], 1, &wc), 0);
}

/* --- commands ------------------------------------------------------------------------------------ */

/* The status; 0: done. */
static uint8_t set_table(const struct spread *s, const uint32_t *numbers, uint32_t count)
{
	struct command c;
	int err;

	command_begin(&c, 0x917);
	put_bits(c.in, 0x48, 24, (uint32_t)s->table->ind_tbl_num);
	put_bits(c.in, 0x80, 64, 1);
	put_bits(c.in, RQTC + 0xd0, 16, count);
	for (uint32_t i = 0; i < count; i++)
		put_bits(c.in, LIST + 32 * i + 8, 24, numbers[i]);
	err = mlx5dv_devx_ind_tbl_modify(s->table, c.in, 272 + 4 * count, c.out, 16);
	check_eq(err, c.out[0] ? EREMOTEIO : 0);
	return c.out[0];
}

static void expect_table(const struct spread *s, const uint32_t *numbers, uint32_t count)
{
	struct command c;

	command_begin(&c, 0x919);
	put_bits(c.in, 0x48, 24, (uint32_t)s->table->ind_tbl_num);
	check_eq(mlx5dv_devx_ind_tbl_query(s->table, c.in, 16, c.out, 272 + 4 * count), 0);
	check_eq(get_bits(c.out, RQTC + 0xb0, 16), WQS);
	check_eq(get_bits(c.out, RQTC + 0xd0, 16), count);
	for (uint32_t i = 0; i < count; i++)
		check_eq(get_bits(c.out, LIST + 32 * i, 32), numbers[i]);
	check_eq(mlx5dv_devx_ind_tbl_query(s->table, c.in, 16, c.out, 272 + 4 * count - 1),
		 EREMOTEIO);
	check_eq(c.out[0], BAD_OUTP_LEN);
}

/* --- tables -------------------------------------------------------------------------------------- */

static void change(void)
{
	struct spread s;
	struct ibv_qp *second;

	spread_open(&s);
	expect_table(&s, s.number, WQS);
	send_frame();
	expect_at(&s, 0);
	check_eq(set_table(&s, s.number + 2, 2), 0);
	expect_table(&s, s.number + 2, 2);
	send_frame();
	expect_at(&s, 2);
	/* Only what it names now is in use. */
	check_eq(ibv_destroy_wq(s.wq[2]), EBUSY);
	check_eq(ibv_destroy_wq(s.wq[3]), EBUSY);
	check_eq(ibv_destroy_wq(s.wq[1]), 0);
	s.wq[1] = NULL;
	check_eq(ibv_destroy_cq(s.cq[1]), 0);
	s.cq[1] = ibv_create_cq(hand.ctx, 4, NULL, NULL, 0);
	/* A queue pair that is made now has the new queues, and follows as the first does. */
	second = make_qp(&s);
	check_eq(ibv_destroy_flow(s.flow), 0);
	s.flow = flow_all(second);
	send_frame();
	expect_at(&s, 2);
	check_eq(set_table(&s, s.number + 3, 1), 0);
	send_frame();
	expect_at(&s, 3);
	check_eq(ibv_destroy_flow(s.flow), 0);
	check_eq(ibv_destroy_qp(second), 0);
	s.flow = flow_all(s.qp);
	send_frame();
	expect_at(&s, 3);
	check_eq(set_table(&s, s.number, 1), 0);
	send_frame();
	expect_at(&s, 0);
	spread_close(&s);
}

static void refusals(void)
{
	uint32_t bad[2 * WQS] = { 0 };
	struct spread s;
	struct command c;

	spread_open(&s);
	memcpy(bad, s.number, sizeof(s.number));
	memcpy(bad + WQS, s.number, sizeof(s.number));
	check_eq(set_table(&s, bad, 2 * WQS), BAD_PARAM); /* larger than it was made */
	check_eq(set_table(&s, bad, 3), BAD_PARAM);
	check_eq(set_table(&s, bad, 0), BAD_PARAM);
	bad[1] = s.qp->qp_num; /* no queue */
	check_eq(set_table(&s, bad, 2), BAD_RES);
	bad[1] = tx.qp->qp_num; /* of another context */
	check_eq(set_table(&s, bad, 2), BAD_RES);
	expect_table(&s, s.number, WQS);
	command_begin(&c, 0x917);
	put_bits(c.in, 0x48, 24, (uint32_t)s.table->ind_tbl_num + 1);
	check_eq(mlx5dv_devx_ind_tbl_modify(s.table, c.in, 272, c.out, 16), EINVAL);
	put_bits(c.in, 0x48, 24, (uint32_t)s.table->ind_tbl_num);
	check_eq(mlx5dv_devx_ind_tbl_modify(s.table, c.in, 272, c.out, 16), 0); /* no bits */
	check_eq(mlx5dv_devx_ind_tbl_modify(s.table, c.in, 16, c.out, 16), EREMOTEIO);
	check_eq(mlx5dv_devx_ind_tbl_query(s.table, c.in, 272, c.out, 1024), EINVAL);
	check_eq(mlx5dv_devx_ind_tbl_modify(s.table, NULL, 272, c.out, 16), EINVAL);
	check_eq(mlx5dv_devx_ind_tbl_modify(NULL, c.in, 272, c.out, 16), EINVAL);
	expect_table(&s, s.number, WQS);
	send_frame();
	expect_at(&s, 0);
	spread_close(&s);
}

/* A receive queue that a command made. */
static void by_command(void)
{
	struct hand_cq cq;
	struct hand_qp rq;
	struct mlx5_cqe64 cqe;
	struct command c;
	struct spread s;

	spread_open(&s);
	hand_cq(&hand, &cq, 6);
	hand_rq_command(&hand, &rq, &cq, &c);
	hand_wq_create(&rq, &c);
	check_eq(hand_wq_state(&rq, 0x909, WQ_RST, WQ_RDY), 0);
	hand_recv(&rq, 2048, 2048);
	check_eq(set_table(&s, &rq.number, 1), 0);
	expect_table(&s, &rq.number, 1);
	check_eq(mlx5dv_devx_obj_destroy(rq.obj), EBUSY);
	send_frame();
	hand_expect(&cq, &rq, MLX5_CQE_RESP_SEND, &cqe);
	check_eq(set_table(&s, s.number, WQS), 0);
	hand_qp_end(&rq);
	hand_cq_end(&cq);
	send_frame();
	expect_at(&s, 0);
	spread_close(&s);
}

/*
 * What a program leaves behind goes with its device. The structs stay reachable, so that the leak checker knows it is meant.
 */
static void left_behind(void)
{
	static struct hand_cq cq;
	static struct hand_qp rq;
	static struct spread s;
	struct command c;

	spread_open(&s);
	hand_cq(&hand, &cq, 6);
	hand_rq_command(&hand, &rq, &cq, &c);
	hand_wq_create(&rq, &c);
	check_eq(set_table(&s, &rq.number, 1), 0);
	check_eq(ibv_close_device(hand.ctx), 0);
	send_frame();
}

/* --- changes while frames come ------------------------------------------------------------------- */

static atomic_bool changing;

static void *change_on(void *arg)
{
	struct spread *s = arg;

	for (uint32_t i = 0; atomic_load(&changing); i++)
		check_eq(set_table(s, s->number + i % WQS, 1), 0);
	return NULL;
}

static void while_frames_come(void)
{
	pthread_t threads[2];
	struct spread s;
	struct ibv_wc wc;

	spread_open(&s);
	atomic_store(&changing, true);
	for (int i = 0; i < 2; i++)
		check_eq(pthread_create(&threads[i], NULL, change_on, &s), 0);
	for (int i = 0; i < 500; i++) {
		uint32_t got = 0;

		send_frame();
		for (uint32_t k = 0; k < WQS; k++) {
			while (ibv_poll_cq(s.cq[k], 1, &wc) > 0) {
				check_eq(wc.status, IBV_WC_SUCCESS);
				post(s.wq[k]);
				got++;
			}
		}
		check_eq(got, 1);
	}
	atomic_store(&changing, false);
	for (int i = 0; i < 2; i++)
		check_eq(pthread_join(threads[i], NULL), 0);
	spread_close(&s);
}

/* --- RAW_PACKET queue pairs ---------------------------------------------------------------------- */

static void query(struct ibv_qp *qp, uint16_t opcode, struct command *c)
{
	command_begin(c, opcode);
	put_bits(c->in, 0x48, 24, qp->qp_num);
	check_eq(mlx5dv_devx_qp_query(qp, c->in, 16, c->out, 272), 0);
}

static void expect_states(struct ibv_qp *qp, enum wq_state send, enum wq_state receive)
{
	struct command c;

	query(qp, 0x907, &c);
	check_eq(get_bits(c.out, CTX + 0x8, 4), send);
	check_eq(get_bits(c.out, CTX + 0x48, 24), qp->send_cq->handle);
	query(qp, 0x90b, &c);
	check_eq(get_bits(c.out, CTX + 0x8, 4), receive);
	check_eq(get_bits(c.out, CTX + 0x48, 24), qp->recv_cq->handle);
	check_eq(get_bits(c.out, WQ + 0x48, 24), hand.pdn);
}

static void refuse_others(struct ibv_qp *qp)
{
	struct command c;

	command_begin(&c, 0x50b);
	put_bits(c.in, 0x48, 24, qp->qp_num);
	check_eq(mlx5dv_devx_qp_query(qp, c.in, 16, c.out, 272), EINVAL); /* it is none */
	put_bits(c.in, 0, 16, 0x907);
	put_bits(c.in, 0x48, 24, qp->qp_num + 1);
	check_eq(mlx5dv_devx_qp_query(qp, c.in, 16, c.out, 272), EINVAL);
	put_bits(c.in, 0, 16, 0x903); /* the TIR of another one */
	check_eq(mlx5dv_devx_qp_query(qp, c.in, 16, c.out, 272), EINVAL);
	put_bits(c.in, 0, 16, 0x915);
	check_eq(mlx5dv_devx_qp_query(qp, c.in, 16, c.out, 176), EINVAL);
	put_bits(c.in, 0, 16, 0x905); /* MODIFY_SQ */
	check_eq(mlx5dv_devx_qp_modify(qp, c.in, 272, c.out, 16), EOPNOTSUPP);
}

static void queue_pair(void)
{
	struct ibv_qp_init_attr init = { .cap = { 16, 32, 1, 1, 0 },
					 .qp_type = IBV_QPT_RAW_PACKET };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_sge sge = { (uintptr_t)hand.buf, LENGTH, hand.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct command c;
	struct ibv_wc wc;
	struct ibv_qp *qp;

	init.send_cq = ibv_create_cq(hand.ctx, 16, NULL, NULL, 0);
	init.recv_cq = ibv_create_cq(hand.ctx, 32, NULL, NULL, 0);
	qp = ibv_create_qp(hand.pd, &init);
	check(qp, "%s", strerror(errno));
	expect_states(qp, WQ_RST, WQ_RST);
	check_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
	expect_states(qp, WQ_RST, WQ_RDY);
	attr.qp_state = IBV_QPS_RTR;
	check_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	check_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	expect_states(qp, WQ_RDY, WQ_RDY);
	for (int i = 0; i < 3; i++) {
		check_eq(ibv_post_send(qp, &wr, &bad), 0);
		check(cq_wait(init.send_cq, &wc, PATIENCE_MS));
	}
	query(qp, 0x907, &c);
	check_eq(get_bits(c.out, WQ + 0xc0, 32), 3);
	query(qp, 0x90b, &c);
	check_eq(1u << get_bits(c.out, WQ + 0x11b, 5), init.cap.max_recv_wr);
	refuse_others(qp);
	attr.qp_state = IBV_QPS_ERR;
	check_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	expect_states(qp, WQ_ERR, WQ_ERR);
	check_eq(ibv_destroy_qp(qp), 0);
	check_eq(ibv_destroy_cq(init.send_cq), 0);
	/* Without a receive queue there is nothing to ask for. */
	init.send_cq = init.recv_cq;
	init.cap.max_recv_wr = 0;
	qp = ibv_create_qp(hand.pd, &init);
	check(qp, "%s", strerror(errno));
	query(qp, 0x907, &c);
	command_begin(&c, 0x90b);
	put_bits(c.in, 0x48, 24, qp->qp_num);
	check_eq(mlx5dv_devx_qp_query(qp, c.in, 16, c.out, 272), EINVAL);
	put_bits(c.in, 0, 16, 0x903);
	check_eq(mlx5dv_devx_qp_query(qp, c.in, 16, c.out, 272), EINVAL);
	check_eq(ibv_destroy_qp(qp), 0);
	check_eq(ibv_destroy_cq(init.recv_cq), 0);
}

/* A send queue by command, in a transport domain, sends a frame. */
static void send_from(uint32_t domain)
{
	struct mlx5_wqe_eth_seg *eth;
	struct mlx5dv_devx_obj *tis;
	struct mlx5_cqe64 cqe;
	struct hand_cq cq;
	struct hand_qp sq;
	struct command c;
	struct wqe wqe;
	uint32_t tisn;

	command_begin(&c, 0x912);
	put_bits(c.in, CTX + 0x128, 24, domain);
	tis = command_create(&hand, &c, 192, &tisn);
	hand_cq(&hand, &cq, 4);
	hand_sq_command(&hand, &sq, &cq, tisn, &c);
	hand_wq_create(&sq, &c);
	check_eq(hand_wq_state(&sq, 0x905, WQ_RST, WQ_RDY), 0);
	memset(hand.buf, 0, LENGTH);
	put_eth(hand.buf, 0, 0x030000000001, 0x020000000002, 0x88b5);
	wqe_begin(&wqe, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	eth = wqe_put(&wqe, 16);
	memset(eth, 0, 16);
	wqe_put_data(&wqe, hand.buf, LENGTH, hand.mr->lkey);
	hand_post(&sq, &wqe);
	hand_ring(&sq);
	hand_expect(&cq, &sq, MLX5_CQE_REQ, &cqe);
	hand_qp_end(&sq);
	hand_cq_end(&cq);
	object_end(&tis);
}

/*
 * As poll-mode drivers do: the numbers behind a queue pair of verbs, the transport domain of its TIS, and queues of their own
 * in the same one.
 */
static void handles(void)
{
	struct ibv_qp_init_attr init = { .cap = { 16, 32, 1, 1, 0 },
					 .qp_type = IBV_QPT_RAW_PACKET };
	struct mlx5dv_qp dv = { .comp_mask = MLX5DV_QP_MASK_RAW_QP_HANDLES };
	struct mlx5dv_obj obj = { .qp = { .out = &dv } };
	struct ibv_sge sge = { (uintptr_t)hand.buf + SLOT, SLOT, hand.mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct mlx5dv_devx_obj *other;
	uint32_t domain, other_domain;
	struct ibv_flow *flow;
	struct command c;
	struct ibv_qp *qp;
	struct ibv_wc wc;

	init.send_cq = init.recv_cq = ibv_create_cq(hand.ctx, 64, NULL, NULL, 0);
	qp = ibv_create_qp(hand.pd, &init);
	check(qp, "%s", strerror(errno));
	raw_to_rts(qp);
	obj.qp.in = qp;
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), 0);
	check_eq(dv.comp_mask, MLX5DV_QP_MASK_RAW_QP_HANDLES);
	command_begin(&c, 0x915);
	put_bits(c.in, 0x48, 24, dv.tisn);
	check_eq(mlx5dv_devx_qp_query(qp, c.in, 16, c.out, 176), 0);
	domain = (uint32_t)get_bits(c.out, 0x80 + 0x128, 24);
	check_eq(get_bits(c.out, 0x80 + 0x168, 24), hand.pdn);
	check(domain);
	command_begin(&c, 0x903);
	put_bits(c.in, 0x48, 24, dv.tirn);
	check_eq(mlx5dv_devx_qp_query(qp, c.in, 16, c.out, 272), 0);
	check_eq(get_bits(c.out, CTX + 0x20, 4), 0); /* one receive queue */
	check_eq(get_bits(c.out, CTX + 0xe8, 24), dv.rqn);
	check_eq(get_bits(c.out, CTX + 0x128, 24), domain);
	command_begin(&c, 0x907);
	put_bits(c.in, 0x48, 24, dv.sqn);
	check_eq(mlx5dv_devx_qp_query(qp, c.in, 16, c.out, 272), 0);

	/* It does not hear its domain, and hears others. */
	flow = flow_all(qp);
	for (int i = 0; i < 2; i++)
		check_eq(ibv_post_recv(qp, &wr, &bad), 0);
	command_begin(&c, 0x816);
	other = command_create(&hand, &c, 16, &other_domain);
	check(other_domain != domain);
	send_from(domain);
	check_eq(ibv_poll_cq(init.recv_cq, 1, &wc), 0);
	send_from(other_domain);
	check(cq_wait(init.recv_cq, &wc, PATIENCE_MS));
	check_eq(wc.byte_len, LENGTH);
	check_eq(ibv_poll_cq(init.recv_cq, 1, &wc), 0);
	object_end(&other);
	check_eq(ibv_destroy_flow(flow), 0);
	check_eq(ibv_destroy_qp(qp), 0);

	/* Other queue pairs have no such numbers, and one without receives no TIR. */
	init.cap.max_recv_wr = 0;
	qp = ibv_create_qp(hand.pd, &init);
	obj.qp.in = qp;
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), 0);
	check_eq(dv.sqn, qp->qp_num);
	check_eq(dv.tirn, 0);
	check_eq(ibv_destroy_qp(qp), 0);
	init.qp_type = IBV_QPT_RC;
	qp = ibv_create_qp(hand.pd, &init);
	obj.qp.in = qp;
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), 0);
	check_eq(dv.comp_mask, 0);
	check_eq(ibv_destroy_qp(qp), 0);
	check_eq(ibv_destroy_cq(init.recv_cq), 0);
}

int main(void)
{
	if (!enter_namespaces(CLONE_NEWNET))
		test_skip("no network namespace: %s", strerror(errno));
	station_open(&tx, "mlx5_0");
	hand_open(&hand);
	change();
	refusals();
	by_command();
	while_frames_come();
	queue_pair();
	handles();
	hand_close(&hand);
	hand_open(&hand);
	left_behind();
	station_close(&tx);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * Raw Ethernet, as the public direct clients use it: a RAW_PACKET queue that sends frames, receive WQs behind an
 * indirection table with a Toeplitz hash, driven by hand through mlx4dv_init_obj(). Everything in one process here; for
 * several see neighbours.c.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "raw.h"

enum { WQS = 4, FRAME = 60, SLOT = 2048 };

/* The key of Microsoft's verification suite. */
static uint8_t key[40] = { 0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
			   0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
			   0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
			   0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa };

static struct node tx; /* its QP is RAW_PACKET */
static struct raw rtx;

struct queue {
	struct ibv_wq *wq;
	struct ibv_cq *cq;
	struct mlx4dv_rwq dv;
	struct raw_cq raw_cq;
	uint32_t head;
};

static struct queue queues[WQS];
static struct ibv_rwq_ind_table *table;
static struct ibv_qp *rss;
static struct ibv_flow *flow; /* to rss */

static void set_wq(struct ibv_wq *wq, enum ibv_wq_state state)
{
	struct ibv_wq_attr attr = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = state };

	assert_int_equal(ibv_modify_wq(wq, &attr), 0);
	assert_int_equal(wq->state, state);
}

static struct ibv_qp *create_rss(uint64_t fields)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = tx.pd,
		.rwq_ind_tbl = table,
		.rx_hash_conf = { IBV_RX_HASH_FUNC_TOEPLITZ, sizeof(key), key, fields },
	};

	return ibv_create_qp_ex(tx.ctx, &attr);
}

static void open_queue(struct queue *q)
{
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = 64, .max_sge = 1, .pd = tx.pd
	};
	struct mlx4dv_obj obj;

	memset(q, 0, sizeof(*q));
	q->cq = ibv_create_cq(tx.ctx, 128, NULL, NULL, 0);
	attr.cq = q->cq;
	q->wq = ibv_create_wq(tx.ctx, &attr);
	assert_non_null(q->wq);
	assert_int_equal(q->wq->state, IBV_WQS_RESET);
	assert_true(attr.max_wr >= 64);
	obj = (struct mlx4dv_obj){ .rwq = { q->wq, &q->dv } };
	assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_RWQ), 0);
	assert_int_equal(q->dv.comp_mask, 0);
	assert_non_null(q->dv.rdb);
	raw_cq_open(&q->raw_cq, q->cq);
	set_wq(q->wq, IBV_WQS_RDY);
}

static void queue_post(struct queue *q, size_t offset)
{
	struct mlx4_wqe_data_seg *seg =
		(void *)((char *)q->dv.buf.buf + q->dv.rq.offset +
			 ((size_t)(q->head & (q->dv.rq.wqe_cnt - 1)) << q->dv.rq.wqe_shift));

	mlx4dv_set_data_seg(seg, SLOT, tx.mr->lkey, (uintptr_t)tx.buf + offset);
	q->head++;
	__atomic_store_n(q->dv.rdb, htobe32(q->head & 0xffff), __ATOMIC_RELEASE);
}

static int open_all(void **state)
{
	struct node_attr attr = node_attr(IBV_QPT_RAW_PACKET);
	struct ibv_wq *wqs[WQS];
	struct ibv_rwq_ind_table_init_attr init = { .log_ind_tbl_size = 2, .ind_tbl = wqs };

	node_open(&tx, &attr);
	raw_open(&rtx, &tx);
	raw_to_rts(tx.qp);
	for (int i = 0; i < WQS; i++) {
		open_queue(&queues[i]);
		wqs[i] = queues[i].wq;
	}
	table = ibv_create_rwq_ind_table(tx.ctx, &init);
	assert_non_null(table);
	rss = create_rss(IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_UDP |
			 IBV_RX_HASH_DST_PORT_UDP);
	assert_non_null(rss);
	raw_to_rts(rss);
	flow = flow_all(rss);
	return 0;
}

static int close_all(void **state)
{
	assert_int_equal(ibv_destroy_wq(queues[0].wq), EBUSY);
	assert_int_equal(ibv_destroy_rwq_ind_table(table), EBUSY);
	assert_int_equal(ibv_destroy_qp(rss), EBUSY);
	assert_int_equal(ibv_destroy_flow(flow), 0);
	assert_int_equal(ibv_destroy_qp(rss), 0);
	assert_int_equal(ibv_destroy_wq(queues[0].wq), EBUSY);
	assert_int_equal(ibv_destroy_rwq_ind_table(table), 0);
	for (int i = 0; i < WQS; i++) {
		assert_int_equal(ibv_destroy_wq(queues[i].wq), 0);
		assert_int_equal(ibv_destroy_cq(queues[i].cq), 0);
	}
	node_close(&tx);
	return 0;
}

/* --- frames ------------------------------------------------------------------------------------------ */

static void put16(uint8_t *at, unsigned int value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value)
{
	put16(at, value >> 16);
	put16(at + 2, value & 0xffff);
}

/* An Ethernet frame with UDP over IPv4; checksums are left to the card. */
static void make_udp(uint8_t *f, uint32_t from, uint32_t to, uint16_t sport, uint16_t dport)
{
	memset(f, 0, FRAME);
	memset(f, 0xff, 6);
	put16(f + 12, 0x0800);
	f[14] = 0x45;
	put16(f + 16, FRAME - 14);
	f[22] = 64;
	f[23] = 17;
	put32(f + 26, from);
	put32(f + 30, to);
	put16(f + 34, sport);
	put16(f + 36, dport);
	put16(f + 38, FRAME - 34);
	for (int i = 42; i < FRAME; i++)
		f[i] = (uint8_t)i;
}

/* to: the frame's destination once more, in the control segment; NULL: it is not there. */
static void send_frame_to(const uint8_t *to, uint32_t len, uint32_t flags)
{
	struct raw_wqe wqe;
	struct mlx4_cqe cqe;

	raw_begin(&wqe, MLX4_OPCODE_SEND, MLX4_WQE_CTRL_CQ_UPDATE | MLX4_WQE_CTRL_SOLICIT | flags,
		  0);
	if (to)
		raw_put_destination(&wqe, to);
	raw_put_data(&wqe, tx.buf, len, tx.mr->lkey);
	assert_true(raw_post(&rtx, &wqe));
	raw_ring(&rtx);
	raw_expect(&rtx.send, tx.qp->qp_num, true, &cqe);
	raw_free(&rtx, &cqe);
}

/* As drivers send a frame that queues of its own port shall hear. */
static void send_frame(uint32_t len, uint32_t flags)
{
	send_frame_to(tx.buf, len, flags);
}

static uint16_t sum(const uint8_t *p, uint32_t n)
{
	uint32_t s = 0;

	for (uint32_t i = 0; i + 1 < n; i += 2)
		s += (uint32_t)(p[i] << 8 | p[i + 1]);
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return (uint16_t)s;
}

/* A UDP packet, in the CQE's status; the public header does not have it. */
enum { STATUS_UDP = 1 << 27 };

/* The vectors of Microsoft's verification suite: address, address, ports, hash. */
static const struct {
	uint32_t to, from;
	uint16_t dport, sport;
	uint32_t hash;
} vectors[] = {
	{ 0xa18e6450, 0x420995bb, 1766, 2794, 0x51ccc178 },
	{ 0x41458c53, 0xc75c6f02, 4739, 14230, 0xc626b0ea },
	{ 0x0c16cfb8, 0x1813c65f, 38024, 12898, 0x5c2b394a },
	{ 0xd18ea306, 0x261bcd1e, 2217, 48228, 0xafc7327f },
	{ 0xcabc7f02, 0x9927a3bf, 1303, 44251, 0x10e828a2 },
};

static void frames_are_spread_by_hash(void **state)
{
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		struct queue *q = &queues[vectors[i].hash & (WQS - 1)];
		struct mlx4_cqe cqe;
		uint8_t *got = tx.buf + 8192;

		memset(got, 0, SLOT);
		for (int k = 0; k < WQS; k++)
			queue_post(&queues[k], 8192);
		make_udp(tx.buf, vectors[i].from, vectors[i].to, vectors[i].sport,
			 vectors[i].dport);
		send_frame(FRAME, MLX4_WQE_CTRL_IP_HDR_CSUM | MLX4_WQE_CTRL_TCP_UDP_CSUM);
		raw_expect(&q->raw_cq, q->wq->wq_num, false, &cqe);
		assert_int_equal(be32toh(cqe.immed_rss_invalid), vectors[i].hash);
		assert_int_equal(be32toh(cqe.byte_cnt), FRAME);
		assert_int_equal(be32toh(cqe.status), MLX4_CQE_STATUS_IPV4_CSUM_OK | STATUS_UDP);
		/* The card has filled in both checksums; nothing else has changed. */
		assert_int_equal(sum(got + 14, 20), 0xffff);
		assert_memory_not_equal(got + 24, tx.buf + 24, 2);
		assert_memory_equal(got, tx.buf, 24);
		assert_memory_equal(got + 42, tx.buf + 42, FRAME - 42);
		for (int k = 0; k < WQS; k++)
			assert_false(raw_poll(&queues[k].raw_cq, &cqe));
	}
}

static void bad_checksums_are_told(void **state)
{
	struct mlx4_cqe cqe;
	int at = -1;

	for (int k = 0; k < WQS; k++)
		queue_post(&queues[k], 8192);
	make_udp(tx.buf, 1, 2, 3, 4);
	put16(tx.buf + 40, 0x1234);
	send_frame(FRAME, 0);
	for (int k = 0; k < WQS; k++)
		if (raw_poll(&queues[k].raw_cq, &cqe))
			at = k;
	assert_int_not_equal(at, -1);
	assert_int_equal(be32toh(cqe.status) & MLX4_CQE_STATUS_IPV4_CSUM_OK,
			 MLX4_CQE_STATUS_IPV4_PKT);
	assert_memory_equal(tx.buf + 8192, tx.buf, FRAME);
}

/* What is no IP goes to the first queue, whole; without a WQE it is lost. */
static void other_frames(void **state)
{
	struct mlx4_cqe cqe;

	memset(tx.buf, 0x43, 1500);
	send_frame(1500, 0);
	queue_post(&queues[0], 8192);
	pattern_fill(tx.buf + 14, 1486, 5);
	send_frame(1500, MLX4_WQE_CTRL_IP_HDR_CSUM | MLX4_WQE_CTRL_TCP_UDP_CSUM);
	raw_expect(&queues[0].raw_cq, queues[0].wq->wq_num, false, &cqe);
	assert_int_equal(be32toh(cqe.byte_cnt), 1500);
	assert_int_equal(be32toh(cqe.status) & MLX4_CQE_STATUS_IPV4_CSUM_OK, 0);
	assert_memory_equal(tx.buf + 8192, tx.buf, 1500);
	assert_false(raw_poll(&queues[0].raw_cq, &cqe));
}

/* Queues of the sender's port hear a frame whose WQE names its destination. */
static void loopback_is_asked_for(void **state)
{
	struct mlx4_cqe cqe;

	memset(tx.buf, 0x43, 200);
	queue_post(&queues[0], 8192);
	send_frame_to(NULL, 200, 0);
	assert_false(raw_poll(&queues[0].raw_cq, &cqe));
	send_frame_to(tx.buf, 200, 0);
	raw_expect(&queues[0].raw_cq, queues[0].wq->wq_num, false, &cqe);
}

/* A tag is told in the CQE, and stays in the frame. */
static void vlan_is_told(void **state)
{
	struct node_attr attr = node_attr(IBV_QPT_RAW_PACKET);
	struct mlx4_cqe cqe;
	struct ibv_wc wc;
	struct ibv_flow *all;
	struct node rx;

	node_open(&rx, &attr);
	raw_to_rts(rx.qp);
	all = flow_all(rx.qp);
	assert_int_equal(node_recv(&rx, 7, 0, SLOT), 0);
	assert_int_equal(node_recv(&rx, 8, 0, SLOT), 0);
	queue_post(&queues[0], 8192);
	queue_post(&queues[0], 8192 + SLOT);
	for (int tagged = 1; tagged >= 0; tagged--) {
		memset(tx.buf, 0x43, 200);
		put16(tx.buf + 12, tagged ? 0x8100 : 0x88b5);
		put16(tx.buf + 14, 3 << 13 | 0x123); /* priority 3 */
		send_frame(200, 0);
		raw_expect(&queues[0].raw_cq, queues[0].wq->wq_num, false, &cqe);
		assert_int_equal(be32toh(cqe.vlan_my_qpn) & ~(uint32_t)MLX4_CQE_QPN_MASK,
				 tagged ? MLX4_CQE_VLAN_PRESENT_MASK : 0);
		assert_int_equal(be16toh(cqe.sl_vid), tagged ? 3 << 13 | 0x123 : 0);
		assert_int_equal(be32toh(cqe.byte_cnt), 200);
		cq_expect_at(__FILE__, __LINE__, rx.recv_cq, 8 - (uint64_t)tagged, IBV_WC_SUCCESS,
			     &wc);
		assert_int_equal(wc.sl, tagged ? 3 : 0);
		assert_int_equal(wc.byte_len, 200);
	}
	assert_memory_equal(tx.buf + 8192 + SLOT, tx.buf, 200);
	assert_int_equal(ibv_destroy_flow(all), 0);
	node_close(&rx);
}

/* With verbs: a QP with a receive queue of its own, a WQ posted and polled by verbs. */
static void by_verbs(void **state)
{
	struct node_attr attr = node_attr(IBV_QPT_RAW_PACKET);
	struct ibv_sge sge = { (uintptr_t)tx.buf + 16384, SLOT, tx.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 99, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_wc wc;
	struct ibv_flow *all;
	struct node rx;

	node_open(&rx, &attr);
	raw_to_rts(rx.qp);
	all = flow_all(rx.qp);
	assert_int_equal(node_recv(&rx, 7, 0, SLOT), 0);
	assert_int_equal(ibv_post_wq_recv(queues[0].wq, &wr, &bad), 0);
	memset(tx.buf, 0x17, 200);
	assert_int_equal(node_send(&tx, 1, 0, 200, IBV_SEND_SIGNALED), 0);
	cq_expect(tx.send_cq, 1, IBV_WC_SUCCESS);
	cq_expect_at(__FILE__, __LINE__, rx.recv_cq, 7, IBV_WC_SUCCESS, &wc);
	assert_int_equal(wc.byte_len, 200);
	assert_memory_equal(rx.buf, tx.buf, 200);
	cq_expect_at(__FILE__, __LINE__, queues[0].cq, 99, IBV_WC_SUCCESS, &wc);
	assert_int_equal(wc.qp_num, queues[0].wq->wq_num);
	assert_memory_equal(tx.buf + 16384, tx.buf, 200);
	assert_int_equal(ibv_destroy_flow(all), 0);
	node_close(&rx);
}

static void wrong_frames(void **state)
{
	struct raw_wqe wqe;
	struct mlx4_wqe_lso_seg *lso;
	static const uint32_t lens[] = { 13, 20000 };

	for (int i = 0; i < 3; i++) {
		struct node_attr attr = node_attr(IBV_QPT_RAW_PACKET);
		static struct raw raw;
		struct node node;

		node_open(&node, &attr);
		raw_to_rts(node.qp);
		raw_open(&raw, &node);
		raw_begin(&wqe, i < 2 ? MLX4_OPCODE_SEND : MLX4_OPCODE_LSO, MLX4_WQE_CTRL_CQ_UPDATE,
			  0);
		if (i == 2) {
			lso = (void *)(wqe.bytes + wqe.size);
			lso->mss_hdr_size = htobe32(1000u << 16 | 54);
			wqe.size += 64;
		}
		raw_put_data(&wqe, node.buf, i < 2 ? lens[i] : 4000, node.mr->lkey);
		assert_true(raw_post(&raw, &wqe));
		raw_ring(&raw);
		raw_expect_error(&raw.send, node.qp->qp_num,
				 i < 2 ? MLX4_CQE_SYNDROME_LOCAL_LENGTH_ERR
				       : MLX4_CQE_SYNDROME_LOCAL_QP_OP_ERR);
		assert_int_equal(qp_get_state(node.qp), IBV_QPS_SQE);
		node_close(&node);
	}
}

/* A frame that does not fit ends its WQ; a reset starts it again. */
static void wq_states(void **state)
{
	struct ibv_wq_attr attr = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
	struct mlx4_cqe cqe;
	struct queue *q = &queues[0];

	memset(tx.buf, 0x43, 8192);
	queue_post(q, 8192);
	queue_post(q, 8192);
	send_frame(SLOT + 100, 0);
	raw_expect_error(&q->raw_cq, q->wq->wq_num, MLX4_CQE_SYNDROME_LOCAL_LENGTH_ERR);
	raw_expect_error(&q->raw_cq, q->wq->wq_num, MLX4_CQE_SYNDROME_WR_FLUSH_ERR);
	assert_int_equal(ibv_modify_wq(q->wq, &attr), EINVAL); /* ERR to RDY */
	set_wq(q->wq, IBV_WQS_RESET);
	q->head = 0;
	set_wq(q->wq, IBV_WQS_RDY);
	queue_post(q, 8192);
	send_frame(500, 0);
	raw_expect(&q->raw_cq, q->wq->wq_num, false, &cqe);
	/* By the program's wish: what is posted comes back. */
	queue_post(q, 8192);
	set_wq(q->wq, IBV_WQS_ERR);
	raw_expect_error(&q->raw_cq, q->wq->wq_num, MLX4_CQE_SYNDROME_WR_FLUSH_ERR);
	attr.attr_mask = IBV_WQ_ATTR_FLAGS;
	assert_int_equal(ibv_modify_wq(q->wq, &attr), EOPNOTSUPP);
}

static void bad_attributes(void **state)
{
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = 64, .max_sge = 1, .pd = tx.pd, .cq = queues[0].cq
	};
	struct ibv_wq *wqs[2] = { queues[0].wq, NULL };
	struct ibv_rwq_ind_table_init_attr init = { .log_ind_tbl_size = 1, .ind_tbl = wqs };
	struct ibv_qp_init_attr_ex ex = { .qp_type = IBV_QPT_RAW_PACKET,
					  .comp_mask =
						  IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE,
					  .pd = tx.pd,
					  .rwq_ind_tbl = table };

	attr.cq = NULL;
	assert_null(ibv_create_wq(tx.ctx, &attr));
	assert_int_equal(errno, EINVAL);
	attr.cq = queues[0].cq;
	attr.max_wr = 1 << 20;
	assert_null(ibv_create_wq(tx.ctx, &attr));
	assert_int_equal(errno, EINVAL);
	attr.max_wr = 4;
	attr.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
	attr.create_flags = IBV_WQ_FLAGS_CVLAN_STRIPPING;
	assert_null(ibv_create_wq(tx.ctx, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(ibv_create_rwq_ind_table(tx.ctx, &init));
	assert_int_equal(errno, EINVAL);
	init.log_ind_tbl_size = 20;
	assert_null(ibv_create_rwq_ind_table(tx.ctx, &init));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_create_qp_ex(tx.ctx, &ex));
	assert_int_equal(errno, EINVAL);
	assert_null(create_rss(1ull << 31));
	assert_int_equal(errno, EOPNOTSUPP);
}

/* What programs ask before they use any of this. */
static void capabilities(void **state)
{
	struct ibv_device_attr_ex attr;

	assert_int_equal(ibv_query_device_ex(tx.ctx, NULL, &attr), 0);
	assert_true(attr.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM);
	assert_true(attr.raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM);
	assert_true(attr.rss_caps.supported_qpts & 1 << IBV_QPT_RAW_PACKET);
	assert_true(attr.rss_caps.rx_hash_function & IBV_RX_HASH_FUNC_TOEPLITZ);
	assert_true(attr.rss_caps.rx_hash_fields_mask & IBV_RX_HASH_DST_PORT_UDP);
	assert_true(attr.rss_caps.max_rwq_indirection_table_size >= WQS);
	assert_true(attr.max_wq_type_rq >= WQS);
	assert_int_equal(attr.tso_caps.max_tso, 0); /* large frames are not cut */
}

static struct ibv_wq *make_wq(void)
{
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = tx.pd, .cq = queues[0].cq
	};
	struct ibv_wq *wq = ibv_create_wq(tx.ctx, &attr);

	assert_non_null(wq);
	return wq;
}

/* Numbers of a range follow one another, whatever else is made or goes in between. */
static void wq_ranges(void **state)
{
	struct ibv_wq *wqs[5];
	struct ibv_qp *qps[5];
	uint32_t first;
	uint8_t log = 2;

	wqs[0] = make_wq(); /* so that a range does not begin here by chance */
	assert_int_equal(ibv_destroy_wq(wqs[0]), 0);
	assert_int_equal(
		mlx4dv_set_context_attr(tx.ctx, MLX4DV_SET_CTX_ATTR_LOG_WQS_RANGE_SZ, &log), 0);
	for (uint32_t i = 0; i < 5; i++) {
		wqs[i] = make_wq();
		if (!i)
			first = wqs[i]->wq_num;
		if (i < 4)
			assert_int_equal(wqs[i]->wq_num, first + i);
		qps[i] = node_create_qp(&tx);
		assert_non_null(qps[i]);
		/* One that only fills a place: its number is not used again. */
		if (i == 1)
			assert_int_equal(ibv_destroy_wq(wqs[i]), 0);
	}
	assert_int_equal(first % 4, 0);
	assert_int_equal(wqs[4]->wq_num % 4, 0);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(ibv_destroy_qp(qps[i]), 0);
		if (i != 1)
			assert_int_equal(ibv_destroy_wq(wqs[i]), 0);
	}
	log = 17;
	assert_int_equal(
		mlx4dv_set_context_attr(tx.ctx, MLX4DV_SET_CTX_ATTR_LOG_WQS_RANGE_SZ, &log),
		EINVAL);
}

/* A leak checker counts what this array holds as reachable; it is never read otherwise. */
static const void *volatile kept[4];
static unsigned kept_count;

static void keep(const void *object)
{
	assert_true(kept_count < sizeof(kept) / sizeof(kept[0]));
	kept[kept_count++] = object;
}

/* A device that is closed takes what is left with it. */
static void closed_with_queues(void **state)
{
	struct ibv_rwq_ind_table *indirection;
	struct ibv_wq *wq;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_context *ctx = device_open();
	struct ibv_wq_init_attr attr = { .wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1 };
	struct ibv_rwq_ind_table_init_attr init = { .ind_tbl = &wq };
	struct ibv_qp_init_attr_ex ex = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.rx_hash_conf = { IBV_RX_HASH_FUNC_TOEPLITZ, sizeof(key), key, 0 },
	};

	attr.cq = cq = ibv_create_cq(ctx, 10, NULL, NULL, 0);
	attr.pd = ex.pd = ibv_alloc_pd(ctx);
	wq = ibv_create_wq(ctx, &attr);
	indirection = ex.rwq_ind_tbl = ibv_create_rwq_ind_table(ctx, &init);
	qp = ibv_create_qp_ex(ctx, &ex);
	assert_true(cq && wq && indirection && qp);
	assert_int_equal(ibv_close_device(ctx), 0);
	/* The structs stay: the program may still look at them, and a leak checker still finds them. */
	keep(cq);
	keep(wq);
	keep(indirection);
	keep(qp);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(frames_are_spread_by_hash),
		CASE(bad_checksums_are_told),
		CASE(other_frames),
		CASE(loopback_is_asked_for),
		CASE(wrong_frames),
		CASE(vlan_is_told),
		CASE(by_verbs),
		CASE(wq_states),
		CASE(bad_attributes),
		CASE(capabilities),
		CASE(wq_ranges),
		cmocka_unit_test(closed_with_queues),
	};

	/* Frames reach everybody on the host: others would hear us, and we them. */
	if (!enter_namespaces(CLONE_NEWNET))
		print_message("no network namespace: %s\n", strerror(errno));
	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
/*
 * Receive side scaling: an indirection table over receive WQs, and the queue that the Toeplitz hash of a frame names,
 * computed here bit by bit. Fields, inner headers, states and flags of WQs. The argument is the device.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "station.h"

enum { WQS = 8, SLOTS = 64, SLOT = 512, KEY = 40 };

/* Frames between stations of one port: to a group, since others' unicast addresses are not on the port itself. */
static const uint64_t here = 0x030000000001, there = 0x020000000002;
static const char *device;
static bool mlx5;
static struct station tx;
static uint8_t key[KEY];

struct spread {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq; /* of all queues */
	struct ibv_wq *wq[WQS];
	struct ibv_rwq_ind_table *table;
	struct ibv_qp *qp;
	struct ibv_flow *flow;
	struct ibv_mr *mr;
	uint8_t *buf;
};

static void wq_state(struct ibv_wq *wq, enum ibv_wq_state state)
{
	struct ibv_wq_attr attr = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = state };

	check_eq(ibv_modify_wq(wq, &attr), 0);
}

static void post(struct spread *s, unsigned int queue, uint64_t slot)
{
	struct ibv_sge sge = { (uintptr_t)s->buf + slot * SLOT, SLOT, s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	check_eq(ibv_post_wq_recv(s->wq[queue], &wr, &bad), 0);
}

static struct ibv_qp *make_qp(struct spread *s, uint64_t fields)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = s->pd,
		.rwq_ind_tbl = s->table,
		.rx_hash_conf = { IBV_RX_HASH_FUNC_TOEPLITZ, KEY, key, fields },
	};

	return ibv_create_qp_ex(s->ctx, &attr);
}

static void spread_open(struct spread *s, uint64_t fields)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = SLOTS, .max_sge = 1 };
	struct ibv_rwq_ind_table_init_attr table = { .log_ind_tbl_size = 3, .ind_tbl = s->wq };

	s->ctx = open_device(device);
	s->pd = ibv_alloc_pd(s->ctx);
	s->cq = ibv_create_cq(s->ctx, WQS * SLOTS, NULL, NULL, 0);
	s->buf = calloc(SLOTS, SLOT);
	s->mr = ibv_reg_mr(s->pd, s->buf, (size_t)SLOTS * SLOT, IBV_ACCESS_LOCAL_WRITE);
	init.pd = s->pd;
	init.cq = s->cq;
	for (unsigned int i = 0; i < WQS; i++) {
		s->wq[i] = ibv_create_wq(s->ctx, &init);
		check(s->wq[i], "%s", strerror(errno));
		wq_state(s->wq[i], IBV_WQS_RDY);
		for (uint64_t k = 0; k < SLOTS / WQS; k++)
			post(s, i, i * (SLOTS / WQS) + k);
	}
	s->table = ibv_create_rwq_ind_table(s->ctx, &table);
	check(s->table);
	s->qp = make_qp(s, fields);
	check(s->qp, "%s", strerror(errno));
	raw_to_rts(s->qp);
	s->flow = flow_all(s->qp);
}

static void spread_close(struct spread *s)
{
	check_eq(ibv_destroy_qp(s->qp), EBUSY);
	check_eq(ibv_destroy_flow(s->flow), 0);
	check_eq(ibv_destroy_rwq_ind_table(s->table), EBUSY);
	check_eq(ibv_destroy_qp(s->qp), 0);
	check_eq(ibv_destroy_wq(s->wq[0]), EBUSY);
	check_eq(ibv_destroy_rwq_ind_table(s->table), 0);
	for (unsigned int i = 0; i < WQS; i++)
		check_eq(ibv_destroy_wq(s->wq[i]), 0);
	check_eq(ibv_destroy_cq(s->cq), 0);
	check_eq(ibv_dereg_mr(s->mr), 0);
	check_eq(ibv_dealloc_pd(s->pd), 0);
	check_eq(ibv_close_device(s->ctx), 0);
	free(s->buf);
}

/* Which queue got the frame; its buffer is posted again. */
static unsigned int who(struct spread *s)
{
	struct ibv_wc wc;

	check(cq_wait(s->cq, &wc, PATIENCE_MS));
	check_eq(wc.status, IBV_WC_SUCCESS);
	for (unsigned int i = 0; i < WQS; i++) {
		if (wc.qp_num != s->wq[i]->wq_num)
			continue;
		post(s, i, wc.wr_id);
		check_eq(ibv_poll_cq(s->cq, 1, &wc), 0); /* one copy */
		return i;
	}
	check(false, "no such queue: 0x%x", wc.qp_num);
	return 0;
}

/* Toeplitz, as it is defined: for every bit of the input that is 1, the 32 bits of the key from there on. */
static uint32_t toeplitz(const uint8_t *input, unsigned int len)
{
	uint32_t hash = 0;

	for (unsigned int bit = 0; bit < len * 8; bit++) {
		uint32_t window = 0;

		if (!(input[bit / 8] >> (7 - bit % 8) & 1))
			continue;
		for (unsigned int i = bit; i < bit + 32; i++)
			window = window << 1 | (i / 8 < KEY ? key[i / 8] >> (7 - i % 8) & 1 : 0);
		hash ^= window;
	}
	return hash;
}

static void outer(void)
{
	struct spread s;
	uint64_t random = 7;
	uint8_t f[100] = { 0 }, input[36];

	spread_open(&s, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_UDP |
				IBV_RX_HASH_DST_PORT_UDP);
	for (int i = 0; i < 300; i++) {
		uint32_t at = put_eth(f, 0, here, there, 0x0800);

		at = put_ip4(f, at, 17, next_random(&random), next_random(&random), 66);
		put_udp(f, at, (uint16_t)next_random(&random), (uint16_t)next_random(&random), 58);
		station_send(&tx, f, sizeof(f), 0);
		memcpy(input, f + 26, 12); /* addresses and ports lie side by side */
		check_eq(who(&s), toeplitz(input, 12) % WQS);
		/* TCP ports were not asked for. */
		f[23] = 6;
		f[46] = 0x50;
		station_send(&tx, f, sizeof(f), 0);
		check_eq(who(&s), toeplitz(input, 8) % WQS);
	}
	put_eth(f, 0, here, there, 0x0806);
	station_send(&tx, f, sizeof(f), 0);
	check_eq(who(&s), 0);
	spread_close(&s);
}

static void ipv6(void)
{
	struct spread s;
	uint64_t random = 9;
	uint8_t f[100] = { 0 }, input[36];

	spread_open(&s, IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6 | IBV_RX_HASH_DST_PORT_TCP |
				IBV_RX_HASH_SRC_PORT_TCP);
	for (int i = 0; i < 100; i++) {
		uint32_t at = put_eth(f, 0, here, there, 0x86dd);

		at = put_ip6(f, at, 6, (uint8_t)next_random(&random), (uint8_t)next_random(&random),
			     46);
		put_tcp(f, at, (uint16_t)next_random(&random), 80, 0x10);
		station_send(&tx, f, sizeof(f), 0);
		memcpy(input, f + 22, 36);
		check_eq(who(&s), toeplitz(input, 36) % WQS);
	}
	spread_close(&s);
}

/* mlx5: the hash of what a tunnel carries. */
static void inner(void)
{
	struct spread s;
	uint64_t random = 11;
	uint8_t f[140] = { 0 };

	spread_open(&s, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | (uint64_t)IBV_RX_HASH_INNER);
	for (int i = 0; i < 100; i++) {
		uint32_t at = put_eth(f, 0, here, there, 0x0800);

		at = put_udp(f, put_ip4(f, at, 17, 1, 2, 106), 5, 4789, 98);
		f[at] = 8;
		at = put_eth(f, at + 8, 1, 2, 0x0800);
		put_ip4(f, at, 17, next_random(&random), next_random(&random), 56);
		station_send(&tx, f, sizeof(f), 0);
		check_eq(who(&s), toeplitz(f + at + 12, 8) % WQS);
	}
	spread_close(&s);
}

/* A WQ that is not ready loses its frames, the others go on. */
static void states(void)
{
	struct spread s;
	struct ibv_wc wc;
	uint8_t f[60] = { 0 };

	spread_open(&s, 0); /* no fields: all to the first */
	put_eth(f, 0, here, there, 0x88b5);
	station_send(&tx, f, sizeof(f), 0);
	check_eq(who(&s), 0);
	wq_state(s.wq[0], IBV_WQS_ERR);
	for (int i = 0; i < SLOTS / WQS; i++) {
		check(cq_wait(s.cq, &wc, PATIENCE_MS));
		check_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
	}
	station_send(&tx, f, sizeof(f), 0);
	check_eq(ibv_poll_cq(s.cq, 1, &wc), 0);
	wq_state(s.wq[0], IBV_WQS_RESET);
	wq_state(s.wq[0], IBV_WQS_RDY);
	post(&s, 0, 0);
	station_send(&tx, f, sizeof(f), 0);
	check_eq(who(&s), 0);
	spread_close(&s);
}

/* mlx5: the stripping of tags is turned on and off while frames come. */
static void flags(void)
{
	struct ibv_wq_attr attr = { .attr_mask = IBV_WQ_ATTR_FLAGS,
				    .flags = IBV_WQ_FLAGS_CVLAN_STRIPPING,
				    .flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING };
	struct spread s;
	struct ibv_wc wc;
	uint8_t f[80] = { 0 };

	spread_open(&s, 0);
	put_tag(f, put_eth(f, 0, here, there, 0x8100), 77, 0x88b5);
	for (uint32_t i = 0; i < 6; i++) {
		attr.flags = i % 2 ? 0 : IBV_WQ_FLAGS_CVLAN_STRIPPING;
		check_eq(ibv_modify_wq(s.wq[0], &attr), 0);
		station_send(&tx, f, sizeof(f), 0);
		check(cq_wait(s.cq, &wc, PATIENCE_MS));
		check_eq(wc.byte_len, sizeof(f) - (i % 2 ? 0 : 4));
		post(&s, 0, wc.wr_id);
	}
	/* What cannot change leaves all as it is. */
	attr.flags = attr.flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING | IBV_WQ_FLAGS_SCATTER_FCS;
	attr.attr_mask |= IBV_WQ_ATTR_STATE;
	attr.wq_state = IBV_WQS_ERR;
	check_eq(ibv_modify_wq(s.wq[0], &attr), EOPNOTSUPP);
	attr.flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING;
	attr.attr_mask |= 1u << 9;
	check_eq(ibv_modify_wq(s.wq[0], &attr), EINVAL);
	attr.attr_mask = IBV_WQ_ATTR_FLAGS | IBV_WQ_ATTR_CURR_STATE;
	attr.curr_wq_state = IBV_WQS_RESET;
	check_eq(ibv_modify_wq(s.wq[0], &attr), EINVAL);
	station_send(&tx, f, sizeof(f), 0);
	check(cq_wait(s.cq, &wc, PATIENCE_MS));
	check_eq(wc.byte_len, sizeof(f));
	spread_close(&s);
}

/* mlx4: none can change. */
static void no_flags(void)
{
	struct ibv_wq_attr attr = { .attr_mask = IBV_WQ_ATTR_FLAGS,
				    .flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING };
	struct spread s;

	spread_open(&s, 0);
	check_eq(ibv_modify_wq(s.wq[0], &attr), EOPNOTSUPP);
	spread_close(&s);
}

/* Two QPs with tables on one adapter: each gets what its flows say, once. */
static void two_tables(void)
{
	struct spread a, b;
	uint8_t f[60] = { 0 };
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} in = { .attr = { .size = sizeof(in), .num_of_specs = 1, .port = 1 },
		 .eth = { .type = IBV_FLOW_SPEC_ETH,
			  .size = sizeof(in.eth),
			  .val.dst_mac = { 2, 0, 0, 0, 0, 9 },
			  .mask.dst_mac = { 255, 255, 255, 255, 255, 255 } } };
	struct ibv_wc wc;

	spread_open(&a, 0);
	spread_open(&b, 0);
	check_eq(ibv_destroy_flow(b.flow), 0);
	b.flow = ibv_create_flow(b.qp, &in.attr);
	check(b.flow);
	put_eth(f, 0, 0x020000000009, there, 0x88b5);
	station_send(&tx, f, sizeof(f), 0);
	check_eq(who(&b), 0);
	check_eq(ibv_poll_cq(a.cq, 1, &wc), 0);
	put_eth(f, 0, here, there, 0x88b5);
	station_send(&tx, f, sizeof(f), 0);
	check_eq(who(&a), 0);
	check_eq(ibv_poll_cq(b.cq, 1, &wc), 0);
	spread_close(&b);
	spread_close(&a);
}

static void bad_input(void)
{
	struct spread s;
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1 };

	spread_open(&s, 0);
	errno = 0;
	check(!make_qp(&s, 1ull << 40));
	check_eq(errno, EOPNOTSUPP);
	init.pd = s.pd;
	init.cq = s.cq;
	init.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
	init.create_flags = IBV_WQ_FLAGS_DELAY_DROP;
	check(!ibv_create_wq(s.ctx, &init));
	check_eq(errno, EOPNOTSUPP);
	init.create_flags = 0;
	init.max_wr = 0;
	check(!ibv_create_wq(s.ctx, &init));
	check_eq(errno, EINVAL);
	spread_close(&s);
}

int main(int argc, char **argv)
{
	uint64_t random = 3;

	if (!enter_namespaces(CLONE_NEWNET))
		test_skip("no network namespace: %s", strerror(errno));
	device = argc > 1 ? argv[1] : "mlx5_0";
	mlx5 = !strncmp(device, "mlx5", 4);
	for (int i = 0; i < KEY; i++)
		key[i] = (uint8_t)next_random(&random);
	station_open(&tx, device);
	outer();
	ipv6();
	if (mlx5)
		inner();
	mlx5 ? flags() : no_flags();
	states();
	two_tables();
	bad_input();
	station_close(&tx);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * The host's end of the cable: a RAW_PACKET queue pair on the second adapter; bytes of frames;
 * checksums.
 */
#pragma once

#include "queue_kit.h"

enum { STATION_SLOTS = 32, STATION_SLOT = 2048 };

struct station {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_flow *flow;
	uint8_t *buf; /* slots to receive, then one to send from */
};

static inline struct ibv_context *open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	CHECK(ctx);
	ibv_free_device_list(list);
	return ctx;
}

static inline void station_post(struct station *s, uint64_t slot)
{
	struct ibv_sge sge = { (uintptr_t)s->buf + slot * STATION_SLOT, STATION_SLOT, s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_recv(s->qp, &wr, &bad));
}

static inline void put_mac(uint8_t *to, uint64_t mac)
{
	for (int i = 0; i < 6; i++)
		to[i] = (uint8_t)(mac >> (40 - 8 * i));
}

/* Frames for this MAC come to it. */
static inline void station_flow(struct station *s, uint64_t mac)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} flow = { { .type = IBV_FLOW_ATTR_NORMAL,
		     .size = sizeof(flow),
		     .num_of_specs = 1,
		     .port = 1 },
		   { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(struct ibv_flow_spec_eth) } };

	put_mac(flow.eth.val.dst_mac, mac);
	put_mac(flow.eth.mask.dst_mac, ~0ull);
	s->flow = ibv_create_flow(s->qp, &flow.attr);
	CHECK(s->flow);
}

static inline void station_open(struct station *s, const char *device, uint64_t mac)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET,
					 .cap = { .max_send_wr = 4,
						  .max_recv_wr = STATION_SLOTS,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 } };

	s->ctx = open_named(device);
	s->pd = ibv_alloc_pd(s->ctx);
	s->cq = ibv_create_cq(s->ctx, 2 * STATION_SLOTS, NULL, NULL, 0);
	init.send_cq = init.recv_cq = s->cq;
	s->qp = ibv_create_qp(s->pd, &init);
	s->buf = calloc(STATION_SLOTS + 1, STATION_SLOT);
	s->mr = ibv_reg_mr(s->pd, s->buf, (STATION_SLOTS + 1) * STATION_SLOT,
			   IBV_ACCESS_LOCAL_WRITE);
	CHECK(s->pd && s->cq && s->qp && s->mr);
	CHECK(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE));
	for (uint64_t i = 0; i < STATION_SLOTS; i++)
		station_post(s, i);
	station_flow(s, mac);
}

static inline void station_close(struct station *s)
{
	CHECK(!ibv_destroy_flow(s->flow) && !ibv_destroy_qp(s->qp) && !ibv_destroy_cq(s->cq));
	CHECK(!ibv_dereg_mr(s->mr) && !ibv_dealloc_pd(s->pd) && !ibv_close_device(s->ctx));
	free(s->buf);
}

/*
 * The next frame; its length, or 0 where none is there. A send on the same adapter has brought it
 * before it completes.
 */
static inline uint32_t station_take(struct station *s, uint8_t *to)
{
	struct ibv_wc wc;

	if (!ibv_poll_cq(s->cq, 1, &wc))
		return 0;
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
	memcpy(to, s->buf + wc.wr_id * STATION_SLOT, wc.byte_len);
	station_post(s, wc.wr_id);
	return wc.byte_len;
}

static inline void station_send(struct station *s, const uint8_t *frame, uint32_t len)
{
	uint8_t *from = s->buf + STATION_SLOTS * STATION_SLOT;
	struct ibv_sge sge = { (uintptr_t)from, len, s->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_wc wc;

	memcpy(from, frame, len);
	CHECK(!ibv_post_send(s->qp, &wr, &bad));
	while (!ibv_poll_cq(s->cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND);
}

/* ---- bytes ---- */

static inline void put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static inline uint32_t get16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

static inline uint32_t get32(const uint8_t *at)
{
	return get16(at) << 16 | get16(at + 2);
}

/* One's complement sum; right ones make 0xffff with their own field. */
static inline uint32_t sum_of(const uint8_t *p, uint32_t len, uint32_t sum)
{
	for (uint32_t i = 0; i < len; i++)
		sum += i & 1 ? p[i] : (uint32_t)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static inline int l3_right(const uint8_t *ip)
{
	return sum_of(ip, 20, 0) == 0xffff;
}

static inline int l4_right(const uint8_t *ip, uint32_t protocol)
{
	uint32_t v6 = ip[0] >> 4 == 6, len = v6 ? get16(ip + 4) : get16(ip + 2) - 20;
	uint32_t pseudo = sum_of(ip + (v6 ? 8 : 12), v6 ? 32 : 8, protocol + len);

	return sum_of(ip + (v6 ? 40 : 20), len, pseudo) == 0xffff;
}

static inline uint32_t put_eth(uint8_t *f, uint64_t dst, uint64_t src, uint32_t type)
{
	put_mac(f, dst);
	put_mac(f + 6, src);
	put16(f + 12, type);
	return 14;
}

/* With a checksum that is wrong, so that one sees who made it. */
static inline uint32_t put_ip(uint8_t *f, uint32_t at, uint32_t version, uint32_t protocol,
			      uint32_t payload)
{
	uint32_t size = version == 6 ? 40 : 20;

	memset(f + at, 0, size);
	if (version == 6) {
		f[at] = 0x60;
		put16(f + at + 4, payload);
		f[at + 6] = (uint8_t)protocol;
		f[at + 7] = 64;
		memset(f + at + 8, 0x11, 16);
		memset(f + at + 24, 0x22, 16);
		return at + 40;
	}
	f[at] = 0x45;
	put16(f + at + 2, 20 + payload);
	f[at + 8] = 64;
	f[at + 9] = (uint8_t)protocol;
	put16(f + at + 10, 0xdead);
	memset(f + at + 12, 10, 4);
	memset(f + at + 16, 20, 4);
	return at + 20;
}

static inline uint32_t put_udp(uint8_t *f, uint32_t at, uint32_t dport, uint32_t payload)
{
	put16(f + at, 5555);
	put16(f + at + 2, dport);
	put16(f + at + 4, 8 + payload);
	put16(f + at + 6, 0xbeef);
	return at + 8;
}

static inline uint32_t put_tcp(uint8_t *f, uint32_t at, uint32_t sequence, uint32_t flags)
{
	memset(f + at, 0, 20);
	put16(f + at, 5555);
	put16(f + at + 2, 6666);
	put16(f + at + 4, sequence >> 16);
	put16(f + at + 6, sequence);
	f[at + 12] = 5 << 4;
	f[at + 13] = (uint8_t)flags;
	put16(f + at + 16, 0xbeef);
	return at + 20;
}

static inline uint32_t put_bytes(uint8_t *f, uint32_t at, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		f[at + i] = (uint8_t)(seed + 7 * i);
	return at + len;
}

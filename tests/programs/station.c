// SPDX-License-Identifier: MIT
/* The helpers of station.h. */
#include "station.h"
#include "hosts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct ibv_context *open_device(const char *name)
{
	return hosts_open_device(name);
}

static void post(struct station *s, uint64_t slot)
{
	struct ibv_sge sge = { (uintptr_t)s->buf + slot * STATION_SLOT, STATION_SLOT, s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	check_eq(ibv_post_recv(s->qp, &wr, &bad), 0);
}

static void make(struct station *s, uint32_t create_flags, uint16_t max_tso_header)
{
	struct ibv_cq_init_attr_ex cq = { .cqe = s->slots, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.cap = { .max_send_wr = 16,
			 .max_recv_wr = s->slots,
			 .max_send_sge = 4,
			 .max_recv_sge = 1,
			 .max_inline_data = 128 },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.create_flags = create_flags,
		.max_tso_header = max_tso_header,
	};
	size_t size = (size_t)s->slots * STATION_SLOT + STATION_LARGE;

	s->has_tag = !strncmp(ibv_get_device_name(s->ctx->device), "mlx5", 4);
	if (s->has_tag)
		cq.wc_flags |= IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_CVLAN;
	if (create_flags)
		attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	if (max_tso_header)
		attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
	s->pd = ibv_alloc_pd(s->ctx);
	s->send_cq = ibv_create_cq(s->ctx, 32, NULL, NULL, 0);
	s->recv_cq = ibv_create_cq_ex(s->ctx, &cq);
	check(s->pd && s->send_cq && s->recv_cq, "%s", strerror(errno));
	attr.pd = s->pd;
	attr.send_cq = s->send_cq;
	attr.recv_cq = ibv_cq_ex_to_cq(s->recv_cq);
	s->qp = ibv_create_qp_ex(s->ctx, &attr);
	check(s->qp, "%s", strerror(errno));
	s->buf = calloc(1, size);
	s->mr = ibv_reg_mr(s->pd, s->buf, size, IBV_ACCESS_LOCAL_WRITE);
	check(s->mr);
	raw_to_rts(s->qp);
	for (uint64_t i = 0; i < s->slots; i++)
		post(s, i);
}

void station_open_with(struct station *s, const char *device, uint32_t create_flags,
		       uint16_t max_tso_header)
{
	*s = (struct station){ .ctx = open_device(device),
			       .own_ctx = true,
			       .slots = STATION_SLOTS };
	make(s, create_flags, max_tso_header);
}

void station_open_deep(struct station *s, const char *device, uint32_t slots)
{
	*s = (struct station){ .ctx = open_device(device), .own_ctx = true, .slots = slots };
	make(s, 0, 0);
}

void station_open(struct station *s, const char *device)
{
	station_open_with(s, device, 0, 0);
}

void station_open_in(struct station *s, struct ibv_context *ctx)
{
	*s = (struct station){ .ctx = ctx, .slots = STATION_SLOTS };
	make(s, 0, 0);
}

void station_close(struct station *s)
{
	check_eq(ibv_destroy_qp(s->qp), 0);
	check_eq(ibv_destroy_cq(s->send_cq), 0);
	check_eq(ibv_destroy_cq(ibv_cq_ex_to_cq(s->recv_cq)), 0);
	check_eq(ibv_dereg_mr(s->mr), 0);
	check_eq(ibv_dealloc_pd(s->pd), 0);
	if (s->own_ctx)
		check_eq(ibv_close_device(s->ctx), 0);
	free(s->buf);
}

enum ibv_wc_status station_try_send(struct station *s, const void *frame, uint32_t len, int flags)
{
	uint8_t *from = s->buf + (size_t)s->slots * STATION_SLOT;
	struct ibv_sge sge = { (uintptr_t)from, len, s->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 9,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED | (unsigned int)flags };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	memcpy(from, frame, len);
	check_eq(ibv_post_send(s->qp, &wr, &bad), 0);
	check(cq_wait(s->send_cq, &wc, PATIENCE_MS));
	check_eq(wc.wr_id, 9);
	return wc.status;
}

void station_send(struct station *s, const void *frame, uint32_t len, int flags)
{
	check_eq(station_try_send(s, frame, len, flags), IBV_WC_SUCCESS);
}

bool station_poll(struct station *s, struct got *got)
{
	struct ibv_cq_ex *cq = s->recv_cq;
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t slot;

	if (ibv_start_poll(cq, &attr))
		return false;
	slot = cq->wr_id;
	*got = (struct got){ .data = s->buf + slot * STATION_SLOT, .status = cq->status };
	got->qpn = ibv_wc_read_qp_num(cq);
	if (cq->status == IBV_WC_SUCCESS) {
		check_eq(ibv_wc_read_opcode(cq), IBV_WC_RECV);
		got->len = ibv_wc_read_byte_len(cq);
		got->flags = ibv_wc_read_wc_flags(cq);
		if (s->has_tag) {
			got->tag = ibv_wc_read_flow_tag(cq);
			got->vlan = ibv_wc_read_cvlan(cq);
		}
	}
	ibv_end_poll(cq);
	/* The bytes stay until another turn of the ring is received. */
	if (got->status == IBV_WC_SUCCESS)
		post(s, slot);
	return true;
}

void station_get(struct station *s, struct got *got)
{
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;

	while (!station_poll(s, got))
		check(now_us() < end, "no frame");
	check_eq(got->status, IBV_WC_SUCCESS);
}

void station_expect_at(const char *file, int line, struct station *s, const void *frame,
		       uint32_t len)
{
	struct got got;

	if (!station_poll(s, &got))
		test_failed(file, line, "a frame", " is missing");
	if (got.status != IBV_WC_SUCCESS || got.len != len || memcmp(got.data, frame, len))
		test_failed(file, line, "the frame", " differs: status %d, %u bytes, not %u",
			    (int)got.status, got.len, len);
	station_quiet_at(file, line, s);
}

void station_quiet_at(const char *file, int line, struct station *s)
{
	struct got got;

	if (station_poll(s, &got))
		test_failed(file, line, "no frame", " but %u bytes, status %d", got.len,
			    (int)got.status);
}

/* --- frames ------------------------------------------------------------------------------------ */

void put16(uint8_t *at, unsigned int value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

void put32(uint8_t *at, uint32_t value)
{
	put16(at, value >> 16);
	put16(at + 2, value & 0xffff);
}

static void put48(uint8_t *at, uint64_t value)
{
	put16(at, (unsigned int)(value >> 32));
	put32(at + 2, (uint32_t)value);
}

uint32_t put_eth(uint8_t *f, uint32_t at, uint64_t dst, uint64_t src, uint16_t type)
{
	put48(f + at, dst);
	put48(f + at + 6, src);
	put16(f + at + 12, type);
	return at + 14;
}

uint32_t put_tag(uint8_t *f, uint32_t at, uint16_t tag, uint16_t type)
{
	put16(f + at, tag);
	put16(f + at + 2, type);
	return at + 4;
}

uint32_t put_ip4(uint8_t *f, uint32_t at, uint8_t protocol, uint32_t src, uint32_t dst,
		 uint32_t payload)
{
	memset(f + at, 0, 20);
	f[at] = 0x45;
	put16(f + at + 2, 20 + payload);
	f[at + 8] = 64;
	f[at + 9] = protocol;
	put32(f + at + 12, src);
	put32(f + at + 16, dst);
	put16(f + at + 10, (uint16_t)~sum_of(f + at, 20, 0));
	return at + 20;
}

uint32_t put_ip6(uint8_t *f, uint32_t at, uint8_t protocol, uint8_t src, uint8_t dst,
		 uint32_t payload)
{
	memset(f + at, 0, 40);
	f[at] = 0x60;
	put16(f + at + 4, payload);
	f[at + 6] = protocol;
	f[at + 7] = 64;
	memset(f + at + 8, src, 16);
	memset(f + at + 24, dst, 16);
	return at + 40;
}

uint32_t put_udp(uint8_t *f, uint32_t at, uint16_t sport, uint16_t dport, uint32_t payload)
{
	put16(f + at, sport);
	put16(f + at + 2, dport);
	put16(f + at + 4, 8 + payload);
	put16(f + at + 6, 0);
	return at + 8;
}

uint32_t put_tcp(uint8_t *f, uint32_t at, uint16_t sport, uint16_t dport, uint8_t flags)
{
	memset(f + at, 0, 20);
	put16(f + at, sport);
	put16(f + at + 2, dport);
	put32(f + at + 4, 1000);
	f[at + 12] = 5 << 4;
	f[at + 13] = flags;
	put16(f + at + 14, 512);
	return at + 20;
}

uint16_t sum_of(const uint8_t *p, uint32_t len, uint32_t start)
{
	uint32_t sum = start;

	for (uint32_t i = 0; i < len; i++)
		sum += i & 1 ? p[i] : (uint32_t)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

bool ip4_right(const uint8_t *f, uint32_t l3)
{
	return sum_of(f + l3, 20, 0) == 0xffff;
}

bool l4_right(const uint8_t *f, uint32_t l3)
{
	uint32_t len = (uint32_t)(f[l3 + 2] << 8 | f[l3 + 3]) - 20;

	/* The pseudo header: addresses, protocol, length. */
	return sum_of(f + l3 + 20, len, sum_of(f + l3 + 12, 8, f[l3 + 9] + len)) == 0xffff;
}

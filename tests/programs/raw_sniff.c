// SPDX-License-Identifier: MIT
/*
 * Sniffer flows see the packets of queue pairs as RoCE frames: of queue pairs of one process and of two, on one adapter
 * and on two, by a sniffer in the sender's process and in another one. Each frame is judged: headers, data, ICRC. The
 * argument is the device.
 *
 *	node a (here) <-- packets --> node b (here, or role "target")
 *	        `--------- frames ---------'----> sniffers (here, or role "sniffer")
 *	                                    `-x-> role "default": receivers of all frames, which get none of these
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "packet/roce.h"
#include "station.h"

enum {
	FRAME_MAX = 9216,
	RC_SEND_FIRST = 0x00,
	RC_SEND_MIDDLE = 0x01,
	RC_SEND_LAST = 0x02,
	RC_SEND_ONLY = 0x04,
	RC_SEND_ONLY_IMM = 0x05,
	RC_WRITE_FIRST = 0x06,
	RC_WRITE_MIDDLE = 0x07,
	RC_WRITE_LAST = 0x08,
	RC_WRITE_LAST_IMM = 0x09,
	RC_WRITE_ONLY = 0x0a,
	RC_READ = 0x0c,
	RC_RESPONSE_FIRST = 0x0d,
	RC_RESPONSE_MIDDLE = 0x0e,
	RC_RESPONSE_LAST = 0x0f,
	RC_RESPONSE_ONLY = 0x10,
	RC_ACK = 0x11,
	RC_ATOMIC_ACK = 0x12,
	RC_COMPARE_SWAP = 0x13,
	RC_FETCH_ADD = 0x14,
	UC_SEND_ONLY = 0x24,
	UD_SEND_ONLY = 0x64,
	UD_SEND_ONLY_IMM = 0x65,
};

/* --- frames ---------------------------------------------------------------------------------------- */

struct roce {
	uint8_t bytes[FRAME_MAX];
	uint32_t len; /* without padding of a short frame */
	bool v1;
	uint8_t op;
	bool solicited, asks;
	uint32_t dqpn, psn;
	uint32_t network; /* offset of IP or GRH */
	const uint8_t *extended, *data;
	uint32_t data_len;
};

static uint32_t get16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t get24(const uint8_t *p)
{
	return (uint32_t)p[0] << 16 | get16(p + 1);
}

static uint32_t get32(const uint8_t *p)
{
	return get16(p) << 16 | get16(p + 2);
}

static uint64_t get64(const uint8_t *p)
{
	return (uint64_t)get32(p) << 32 | get32(p + 4);
}

static uint32_t crc_of(uint32_t crc, const uint8_t *p, size_t len)
{
	while (len--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
	}
	return crc;
}

/* The ICRC of the bytes from IP or GRH on, without the four of its own. */
static uint32_t icrc_of(const uint8_t *network, uint32_t len, bool v1)
{
	static uint8_t copy[FRAME_MAX];
	uint32_t header = network[0] >> 4 == 4 ? 20 : 40;
	uint8_t ones[8];

	memset(ones, 0xff, sizeof(ones));
	memcpy(copy, network, len);
	if (header == 20) {
		copy[1] = copy[8] = copy[10] = copy[11] = 0xff;
	} else {
		copy[0] |= 0x0f;
		copy[1] = copy[2] = copy[3] = copy[7] = 0xff;
	}
	if (!v1) {
		copy[header + 6] = copy[header + 7] = 0xff;
		header += 8;
	}
	copy[header + 4] = 0xff;
	return ~crc_of(crc_of(0xffffffff, ones, sizeof(ones)), copy, len);
}

static uint32_t extended_len(uint8_t op)
{
	uint32_t deth = op >> 5 == 3 ? 8 : 0;

	switch (op & 0x1f) {
	case RC_SEND_ONLY_IMM:
	case RC_RESPONSE_FIRST:
	case RC_RESPONSE_LAST:
	case RC_RESPONSE_ONLY:
	case RC_ACK:
	case RC_WRITE_LAST_IMM:
	case 0x03: /* SEND last with immediate */
	case 0x16: /* SEND last and only with invalidate */
	case 0x17:
		return deth + 4;
	case RC_WRITE_FIRST:
	case RC_WRITE_ONLY:
	case RC_READ:
		return 16;
	case 0x0b: /* WRITE only with immediate */
		return 20;
	case RC_COMPARE_SWAP:
	case RC_FETCH_ADD:
		return 28;
	case RC_ATOMIC_ACK:
		return 12;
	default:
		return deth;
	}
}

/* The card's own decoder finds in the frame what the test has found. */
static void decode(const struct roce *r)
{
	struct vb_roce_packet got;
	enum vb_roce_error error = vb_roce_decode_frame(r->bytes, r->len, &got);

	check(!error, "%s", vb_roce_error_name(error));
	check_eq(got.pkt.dqpn, r->dqpn);
	check_eq(got.pkt.psn, r->psn);
	check_eq(!!(got.pkt.transport & VB_TRANSPORT_V1), r->v1);
	check_eq(!!(got.pkt.flags & VB_PKT_SOLICITED), r->solicited);
	check_eq(!!(got.pkt.flags & VB_PKT_ACK_REQ), r->asks);
	check_eq(got.pkt.len, r->data_len);
	check(got.iov.iov_base == r->data, "data at %td",
	      (const uint8_t *)got.iov.iov_base - r->bytes);
}

static void parse(struct roce *r)
{
	uint8_t *f = r->bytes, *bth;
	uint32_t type = get16(f + 12), end, icrc;

	r->network = 14;
	r->v1 = type == 0x8915;
	if (type == 0x0800) {
		check_eq(f[14], 0x45);
		check(ip4_right(f, 14));
		check_eq(f[14 + 9], 17);
		end = 14 + get16(f + 16);
		bth = f + 14 + 20 + 8;
	} else {
		check(r->v1 || type == 0x86dd, "type %x", type);
		check_eq(f[14] >> 4, 6);
		check_eq(f[14 + 6], r->v1 ? 0x1b : 17);
		end = 14 + 40 + get16(f + 18);
		bth = f + 14 + 40 + (r->v1 ? 0 : 8);
	}
	if (!r->v1) {
		check_eq(get16(bth - 6), 4791);
		check(get16(bth - 8) >= 0xc000);
		check_eq(get16(bth - 4), end - (uint32_t)(bth - 8 - f));
		check_eq(get16(bth - 2), 0);
	}
	check(end <= r->len && (end == r->len || r->len == 60), "%u of %u", end, r->len);
	r->len = end;
	memcpy(&icrc, f + end - 4, 4);
	check_eq(icrc_of(f + 14, end - 14 - 4, r->v1), le32toh(icrc));
	r->op = bth[0];
	r->solicited = bth[1] & 0x80;
	check_eq(bth[1] & 0x4f, 0x40);
	check_eq(get16(bth + 2), 0xffff);
	check_eq(bth[4], 0);
	r->dqpn = get24(bth + 5);
	r->asks = bth[8] & 0x80;
	r->psn = get24(bth + 9);
	r->extended = bth + 12;
	r->data = r->extended + extended_len(r->op);
	r->data_len = (uint32_t)(f + end - 4 - (bth[1] >> 4 & 3) - r->data);
	check_eq((f + end - 4 - r->data) & 3, 0);
	decode(r);
}

static void copy_frame(struct roce *to, const struct roce *from)
{
	*to = *from;
	to->extended = to->bytes + (from->extended - from->bytes);
	to->data = to->bytes + (from->data - from->bytes);
}

/* --- sniffers -------------------------------------------------------------------------------------- */

/* In this process (station), or in one of its own (fd). */
struct watch {
	struct station *station;
	pid_t pid;
	int fd;
	struct roce *stash; /* frames that came before the one that was looked for */
	unsigned int stashed;
};

enum { STASH = 128 };

static void watch_next(struct watch *w, struct roce *r)
{
	struct got got;
	ssize_t n;

	if (w->station) {
		station_get(w->station, &got);
		memcpy(r->bytes, got.data, got.len);
		r->len = got.len;
		return;
	}
	n = recv(w->fd, r->bytes, sizeof(r->bytes), 0);
	check(n > 0, "the sniffer is gone: %s", strerror(errno));
	r->len = (uint32_t)n;
}

/* The next frame with this opcode to this queue pair. Frames of two processes come in any order. */
static void watch_get(struct watch *w, struct roce *r, uint8_t op, uint32_t dqpn)
{
	if (!w->stash)
		w->stash = malloc(STASH * sizeof(*w->stash));
	for (unsigned int i = 0; i < w->stashed; i++) {
		if (w->stash[i].op != op || w->stash[i].dqpn != dqpn)
			continue;
		copy_frame(r, &w->stash[i]);
		for (w->stashed--; i < w->stashed; i++)
			copy_frame(&w->stash[i], &w->stash[i + 1]);
		return;
	}
	for (;;) {
		watch_next(w, r);
		parse(r);
		if (r->op == op && r->dqpn == dqpn)
			return;
		check(w->stashed < STASH, "frames, but none with opcode 0x%02x", op);
		copy_frame(&w->stash[w->stashed++], r);
	}
}

/* Nothing but acknowledgements, of which there may be more or less, is left. */
static void watch_end(struct watch *w)
{
	for (unsigned int i = 0; i < w->stashed; i++)
		check(w->stash[i].op == RC_ACK, "a frame too many, opcode 0x%02x", w->stash[i].op);
	free(w->stash);
	w->stash = NULL;
	w->stashed = 0;
}

static struct ibv_flow *make_flow(struct station *s, enum ibv_flow_attr_type type)
{
	struct ibv_flow_attr attr = { .type = type, .size = sizeof(attr), .port = 1 };
	struct ibv_flow *flow = ibv_create_flow(s->qp, &attr);

	check(flow, "%s", strerror(errno));
	return flow;
}

/* Roles "sniffer DEVICE" and "default DEVICE": every frame goes to the test, until it closes the socket. */
static void report(const char *device, enum ibv_flow_attr_type type)
{
	struct station s;
	struct ibv_flow *flow;
	struct got got;
	char byte = 1;

	station_open(&s, device);
	flow = make_flow(&s, type);
	msg_send(ROLE_FD, &byte, 1);
	while (recv(ROLE_FD, &byte, 1, MSG_DONTWAIT)) {
		if (!station_poll(&s, &got)) {
			sched_yield();
			continue;
		}
		check_eq(got.status, IBV_WC_SUCCESS);
		send(ROLE_FD, got.data, got.len, MSG_NOSIGNAL);
	}
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&s);
}

static struct watch watch_start(const char *role, const char *device)
{
	struct watch w = { 0 };
	char name[64], ready;

	snprintf(name, sizeof(name), "%s %s", role, device);
	w.pid = spawn_self(name, &w.fd);
	msg_recv(w.fd, &ready, 1);
	return w;
}

static void watch_stop(struct watch *w)
{
	watch_end(w);
	close(w->fd);
	spawn_wait(w->pid);
}

/* --- what is sent ---------------------------------------------------------------------------------- */

struct pair {
	struct node *a;
	struct address to; /* b */
	struct address own;
	struct watch *w;
	uint32_t mtu;
	bool v1;
};

static void check_ends(const struct pair *p, const struct roce *r, bool back)
{
	const union ibv_gid *src = back ? &p->to.gid : &p->own.gid;
	const union ibv_gid *dst = back ? &p->own.gid : &p->to.gid;
	const uint8_t *ip = r->bytes + r->network;

	check_eq(r->v1, p->v1);
	if (ip[0] >> 4 == 4) {
		check(!memcmp(ip + 12, &src->raw[12], 4) && !memcmp(ip + 16, &dst->raw[12], 4));
	} else {
		check(!memcmp(ip + 8, src, 16) && !memcmp(ip + 24, dst, 16));
	}
}

static void get(const struct pair *p, struct roce *r, uint8_t op, bool back)
{
	watch_get(p->w, r, op, back ? p->own.qpn : p->to.qpn);
	check_ends(p, r, back);
}

/* A message of so many bytes of the pattern, in frames of the path MTU. */
static void get_message(const struct pair *p, const uint8_t ops[4], bool back, uint32_t len,
			uint32_t seed, struct roce *first)
{
	static uint8_t want[1 << 20];
	static struct roce r;
	uint32_t at = 0, psn = 0;

	pattern_fill(want, len, seed);
	do {
		bool last = len - at <= p->mtu;
		uint8_t op = !at && last ? ops[3] : !at ? ops[0] : last ? ops[2] : ops[1];

		get(p, &r, op, back);
		check_eq(r.data_len, last ? len - at : p->mtu);
		check(!memcmp(r.data, want + at, r.data_len), "at %u of %u", at, len);
		if (at)
			check_eq(r.psn, (psn + 1) & 0xffffff);
		else
			copy_frame(first, &r);
		if (!back)
			check_eq(r.asks, last && !(op >> 5));
		psn = r.psn;
		at += r.data_len;
	} while (at < len);
}

static const uint8_t sends[] = { RC_SEND_FIRST, RC_SEND_MIDDLE, RC_SEND_LAST, RC_SEND_ONLY };
static const uint8_t writes[] = { RC_WRITE_FIRST, RC_WRITE_MIDDLE, RC_WRITE_LAST, RC_WRITE_ONLY };
static const uint8_t writes_imm[] = { RC_WRITE_FIRST, RC_WRITE_MIDDLE, RC_WRITE_LAST_IMM, 0x0b };
static const uint8_t responses[] = { RC_RESPONSE_FIRST, RC_RESPONSE_MIDDLE, RC_RESPONSE_LAST,
				     RC_RESPONSE_ONLY };

static void post(struct pair *p, struct ibv_send_wr *wr, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)p->a->buf, len, p->a->mr->lkey };
	struct ibv_send_wr *bad;

	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->wr_id = 7;
	wr->send_flags |= IBV_SEND_SIGNALED;
	check_eq(ibv_post_send(p->a->qp, wr, &bad), 0);
	cq_expect(p->a->send_cq, 7, IBV_WC_SUCCESS);
}

static void rc_send(struct pair *p, uint32_t len)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
	static struct roce r;

	pattern_fill(p->a->buf, len, len);
	post(p, &wr, len);
	get_message(p, sends, false, len, len, &r);
	get(p, &r, RC_ACK, true);
	check_eq(r.extended[0], 0x1f);
}

static void rc_send_imm(struct pair *p)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_IMM,
				  .send_flags = IBV_SEND_SOLICITED,
				  .imm_data = htonl(0x11223344) };
	static struct roce r;

	post(p, &wr, 0);
	get(p, &r, RC_SEND_ONLY_IMM, false);
	check(r.solicited);
	check_eq(r.data_len, 0);
	check_eq(get32(r.extended), 0x11223344);
}

static void rc_write(struct pair *p, uint32_t len, bool imm)
{
	struct ibv_send_wr wr = { .opcode = imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
				  .imm_data = htonl(0x55667788),
				  .wr.rdma = { p->to.addr, p->to.rkey } };
	static struct roce r;

	pattern_fill(p->a->buf, len, len + 1);
	post(p, &wr, len);
	get_message(p, imm ? writes_imm : writes, false, len, len + 1, &r);
	check_eq(get64(r.extended), p->to.addr);
	check_eq(get32(r.extended + 8), p->to.rkey);
	check_eq(get32(r.extended + 12), len);
	get(p, &r, RC_ACK, true);
}

/* What the last WRITE of so many bytes has left there. */
static void rc_read(struct pair *p, uint32_t len)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ,
				  .wr.rdma = { p->to.addr, p->to.rkey } };
	static struct roce r;

	rc_write(p, len, false);
	memset(p->a->buf, 0, len);
	post(p, &wr, len);
	get(p, &r, RC_READ, false);
	check_eq(r.data_len, 0);
	check_eq(get64(r.extended), p->to.addr);
	check_eq(get32(r.extended + 8), p->to.rkey);
	check_eq(get32(r.extended + 12), len);
	get_message(p, responses, true, len, len + 1, &r);
	check_eq(r.extended[0], 0x1f);
}

static void rc_atomics(struct pair *p)
{
	struct ibv_send_wr swap = { .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
				    .wr.atomic = { p->to.addr, 0x1111, 0x2222, p->to.rkey } };
	struct ibv_send_wr add = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				   .wr.atomic = { p->to.addr, 5, 0, p->to.rkey } };
	static struct roce r;
	uint64_t old;

	post(p, &swap, 8);
	memcpy(&old, p->a->buf, 8);
	get(p, &r, RC_COMPARE_SWAP, false);
	check_eq(get64(r.extended), p->to.addr);
	check_eq(get32(r.extended + 8), p->to.rkey);
	check_eq(get64(r.extended + 12), 0x2222);
	check_eq(get64(r.extended + 20), 0x1111);
	get(p, &r, RC_ATOMIC_ACK, true);
	check_eq(get64(r.extended + 4), old);
	post(p, &add, 8);
	memcpy(&old, p->a->buf, 8);
	get(p, &r, RC_FETCH_ADD, false);
	check_eq(get64(r.extended + 12), 5);
	get(p, &r, RC_ATOMIC_ACK, true);
	check_eq(get64(r.extended + 4), old);
}

enum { RECEIVES = 8, SIZE = 1 << 17 };

/* Receives RECEIVES messages of at most 64 KiB: those of rc_send(), rc_send_imm(), rc_write(imm). */
static void rc_all(struct pair *p)
{
	rc_send(p, 5);
	rc_send(p, 10000);
	rc_send(p, 65536);
	rc_send_imm(p);
	rc_write(p, 7, false);
	rc_write(p, 20000, false);
	rc_write(p, 20001, true);
	rc_write(p, 99, true);
	rc_read(p, 3);
	rc_read(p, 10000);
	rc_atomics(p);
}

static struct pair pair_of(struct node *a, const struct address *to, struct watch *w)
{
	struct pair p = { .a = a, .to = *to, .w = w, .mtu = 128u << a->mtu };

	node_address(a, &p.own);
	p.v1 = !(a->attr.gid_index & 1);
	return p;
}

static struct node_attr attr_of(enum ibv_qp_type type, uint8_t gid_index)
{
	struct node_attr attr = node_attr(type);

	attr.size = SIZE;
	attr.gid_index = gid_index;
	attr.timeout = 22; /* 17 s: a slow machine makes nobody send again, which would be seen */
	return attr;
}

static void open_on(struct node *node, const char *device, const struct node_attr *attr)
{
	setenv("VERBATIM_TEST_DEVICE", device, 1);
	node_open(node, attr);
}

static void post_receives(struct node *node)
{
	for (unsigned int i = 0; i < RECEIVES; i++)
		check_eq(node_recv(node, i, 65536, 65536), 0);
}

/* --- one process ----------------------------------------------------------------------------------- */

static void two_nodes(const char *device, const char *other, uint8_t gid_index, struct watch *w,
		      struct watch *w2)
{
	struct node_attr attr = attr_of(IBV_QPT_RC, gid_index);
	struct address to_a, to_b;
	struct node a, b;
	struct pair p;
	static struct roce r;

	open_on(&a, device, &attr);
	open_on(&b, other, &attr);
	node_address(&a, &to_a);
	node_address(&b, &to_b);
	node_connect(&a, &to_b);
	node_connect(&b, &to_a);
	post_receives(&b);
	p = pair_of(&a, &to_b, w);
	rc_all(&p);
	if (w2) {
		watch_get(w2, &r, RC_SEND_ONLY, to_b.qpn);
		watch_get(w2, &r, RC_ATOMIC_ACK, to_a.qpn);
	}
	node_close(&a);
	node_close(&b);
}

/* To a node of this process, or (to) of another. */
static void datagrams(const char *device, uint8_t gid_index, struct watch *w,
		      const struct address *remote)
{
	struct node_attr attr = attr_of(IBV_QPT_UD, gid_index);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(0xabcdef01) };
	struct ibv_ah_attr ah_attr;
	struct address to;
	struct node a, b;
	struct pair p;
	static struct roce r;

	open_on(&a, device, &attr);
	node_connect(&a, NULL);
	if (remote) {
		to = *remote;
	} else {
		open_on(&b, device, &attr);
		node_connect(&b, NULL);
		post_receives(&b);
		node_address(&b, &to);
	}
	ah_attr_to(&ah_attr, &to.gid);
	ah_attr.grh.sgid_index = gid_index;
	wr.wr.ud.ah = ibv_create_ah(a.pd, &ah_attr);
	check(wr.wr.ud.ah);
	wr.wr.ud.remote_qpn = to.qpn;
	wr.wr.ud.remote_qkey = TEST_QKEY;
	p = pair_of(&a, &to, w);
	pattern_fill(a.buf, 101, 9);
	post(&p, &wr, 101);
	get(&p, &r, UD_SEND_ONLY_IMM, false);
	check_eq(get32(r.extended), TEST_QKEY);
	check_eq(get32(r.extended + 4), a.qp->qp_num);
	check_eq(get32(r.extended + 8), 0xabcdef01);
	check_eq(r.data_len, 101);
	check_eq(pattern_check(r.data, 101, 9), 101);
	check(!r.asks);
	check_eq(ibv_destroy_ah(wr.wr.ud.ah), 0);
	node_close(&a);
	if (!remote)
		node_close(&b);
}

static void unreliable(const char *device, struct watch *w)
{
	struct node_attr attr = attr_of(IBV_QPT_UC, TEST_GID_INDEX);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
	struct address to;
	struct node a, b;
	struct pair p;
	static struct roce r;

	setenv("VERBATIM_TEST_DEVICE", device, 1);
	node_pair(&a, &b, &attr);
	post_receives(&b);
	node_address(&b, &to);
	p = pair_of(&a, &to, w);
	pattern_fill(a.buf, 64, 3);
	post(&p, &wr, 64);
	get(&p, &r, UC_SEND_ONLY, false);
	check_eq(pattern_check(r.data, r.data_len, 3), 64);
	check(!r.asks);
	node_close(&a);
	node_close(&b);
}

/* A flow of all frames and a sniffer, both here. */
static void here(const char *device, const char *other)
{
	struct station s, all, s2;
	struct watch w = { .station = &s }, w2 = { .station = &s2 };
	struct ibv_flow *sniffer, *sniffer2, *flow;
	struct got got;

	station_open(&s, device);
	station_open(&s2, other);
	station_open(&all, device);
	flow = make_flow(&all, IBV_FLOW_ATTR_ALL_DEFAULT);
	sniffer = make_flow(&s, IBV_FLOW_ATTR_SNIFFER);
	/* 3: RoCE v2, IPv4; 2: v1; 1: v2, IPv6 */
	for (uint8_t gid_index = 3; gid_index; gid_index--) {
		two_nodes(device, device, gid_index, &w, NULL);
		datagrams(device, gid_index, &w, NULL);
	}
	unreliable(device, &w);
	watch_end(&w);
	station_quiet(&s);
	station_quiet(&s2);
	sniffer2 = make_flow(&s2, IBV_FLOW_ATTR_SNIFFER);
	two_nodes(device, other, TEST_GID_INDEX, &w, &w2);
	station_quiet(&s);
	w2.stashed = 0;
	watch_end(&w2);
	watch_end(&w);
	while (station_poll(&s2, &got))
		;
	check_eq(ibv_destroy_flow(sniffer), 0);
	check_eq(ibv_destroy_flow(sniffer2), 0);
	station_quiet(&all);
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&s);
	station_close(&s2);
	station_close(&all);
}

/*
 * What the card moves at once is shown in no more than MOST frames, its first ones, and is moved whole. A message of as
 * many frames is shown whole.
 */
static void bound(const char *device)
{
	enum { MOST = 256, SLOTS = 1024 };
	struct node_attr attr = attr_of(IBV_QPT_RC, TEST_GID_INDEX);
	struct ibv_flow *sniffer;
	static struct roce r;
	struct address to;
	struct node a, b;
	struct station s;

	setenv("VERBATIM_TEST_DEVICE", device, 1);
	attr.size = SLOTS * 4096;
	node_pair(&a, &b, &attr);
	node_address(&b, &to);
	station_open_deep(&s, device, SLOTS);
	sniffer = make_flow(&s, IBV_FLOW_ATTR_SNIFFER);
	for (uint32_t frames = MOST - 1; frames <= MOST + 1; frames++) {
		uint32_t len = frames * (128u << a.mtu), shown = 0;
		struct got got;

		check(len <= attr.size);
		pattern_fill(a.buf, len, frames);
		check_eq(node_rdma(&a, 1, IBV_WR_RDMA_WRITE, 0, len, &to, 0), 0);
		cq_expect(a.send_cq, 1, IBV_WC_SUCCESS);
		check_eq(pattern_check(b.buf, len, frames), len);
		while (station_poll(&s, &got)) {
			memcpy(r.bytes, got.data, got.len);
			r.len = got.len;
			parse(&r);
			if (r.op == RC_ACK)
				continue;
			check_eq(r.op, !shown               ? RC_WRITE_FIRST
				       : shown < frames - 1 ? RC_WRITE_MIDDLE
							    : RC_WRITE_LAST);
			shown++;
		}
		check_eq(shown, frames < MOST ? frames : MOST);
	}
	check_eq(ibv_destroy_flow(sniffer), 0);
	station_close(&s);
	node_close(&a);
	node_close(&b);
}

/* --- several processes ----------------------------------------------------------------------------- */

/* Role "target DEVICE": node b, and one for datagrams. */
static void target(const char *device)
{
	struct node_attr attr = attr_of(IBV_QPT_RC, TEST_GID_INDEX);
	struct node_attr ud_attr = attr_of(IBV_QPT_UD, TEST_GID_INDEX);
	struct address peer, ud;
	struct node b, u;
	struct ibv_wc wc;
	char byte;

	open_on(&b, device, &attr);
	open_on(&u, device, &ud_attr);
	node_connect(&u, NULL);
	post_receives(&u);
	node_address(&u, &ud);
	node_meet(&b, ROLE_FD, &peer);
	post_receives(&b);
	msg_send(ROLE_FD, &ud, sizeof(ud));
	while (recv(ROLE_FD, &byte, 1, MSG_DONTWAIT))
		if (ibv_poll_cq(b.recv_cq, 1, &wc) == 1)
			check_eq(wc.status, IBV_WC_SUCCESS);
		else
			sched_yield();
	node_close(&u);
	node_close(&b);
}

/* A frame of its own kind, to see that nothing comes before it. */
static void send_marker(struct station *s)
{
	uint8_t f[60] = { 0 };

	put_eth(f, 0, 0xffffffffffff, 0x020000000001, 0x88b5);
	station_send(s, f, sizeof(f), 0);
}

static void elsewhere(const char *device, const char *other)
{
	struct watch w = watch_start("sniffer", device), w2 = { 0 };
	struct watch all = watch_start("default", device);
	struct node_attr attr = attr_of(IBV_QPT_RC, TEST_GID_INDEX);
	struct address to, ud;
	struct station s;
	struct node a;
	struct pair p;
	static struct roce r;
	char role[64];
	pid_t pid;
	int fd;

	if (strcmp(device, other))
		w2 = watch_start("sniffer", other);
	snprintf(role, sizeof(role), "target %s", other);
	pid = spawn_self(role, &fd);
	open_on(&a, device, &attr);
	node_meet(&a, fd, &to);
	msg_recv(fd, &ud, sizeof(ud));
	p = pair_of(&a, &to, &w);
	rc_all(&p);
	datagrams(device, TEST_GID_INDEX, &w, &ud);
	if (w2.pid) { /* the same again, where it is received */
		watch_get(&w2, &r, RC_SEND_ONLY, to.qpn);
		watch_get(&w2, &r, UD_SEND_ONLY_IMM, ud.qpn);
		watch_get(&w2, &r, RC_READ, to.qpn);
		watch_get(&w2, &r, RC_RESPONSE_ONLY, p.own.qpn);
		watch_get(&w2, &r, RC_ATOMIC_ACK, p.own.qpn);
		watch_get(&w2, &r, RC_ATOMIC_ACK, p.own.qpn);
		w2.stashed = 0;
		watch_stop(&w2);
	}
	close(fd);
	spawn_wait(pid);
	node_close(&a);
	station_open(&s, device);
	send_marker(&s);
	watch_next(&all, &r);
	check_eq(get16(r.bytes + 12), 0x88b5);
	station_close(&s);
	watch_stop(&all);
	watch_stop(&w);
}

/* --- sniffers that come and go --------------------------------------------------------------------- */

static atomic_bool stop;

static void *chatter(void *arg)
{
	struct node *a = arg;
	const uint32_t sizes[] = { 8, 5000 };
	unsigned int i = 0;

	while (!atomic_load(&stop)) {
		struct address to = *(struct address *)(a + 1);

		check_eq(node_rdma(a, 1, IBV_WR_RDMA_WRITE, 0, sizes[i++ % 2], &to, 0), 0);
		cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	}
	return NULL;
}

static void under_traffic(const char *device)
{
	struct node_attr attr = attr_of(IBV_QPT_RC, TEST_GID_INDEX);
	struct {
		struct node a;
		struct address to;
	} x;
	struct node b;
	struct watch w;
	struct station s;
	pthread_t thread;
	struct got got;
	int status;

	attr.sig_all = true;
	setenv("VERBATIM_TEST_DEVICE", device, 1);
	node_pair(&x.a, &b, &attr);
	node_address(&b, &x.to);
	station_open(&s, device);
	check_eq(pthread_create(&thread, NULL, chatter, &x), 0);
	for (int i = 0; i < campaign(50, 2000); i++) {
		struct ibv_flow *flow = make_flow(&s, IBV_FLOW_ATTR_SNIFFER);

		station_get(&s, &got);
		check_eq(ibv_destroy_flow(flow), 0);
		while (station_poll(&s, &got))
			check_eq(got.status, IBV_WC_SUCCESS);
		station_quiet(&s);
	}
	/* One that is killed harms nobody. */
	if (spawn_is_process()) {
		w = watch_start("sniffer", device);
		check(recv(w.fd, (uint8_t[FRAME_MAX]){ 0 }, FRAME_MAX, 0) > 0);
		kill(w.pid, SIGKILL);
		check_eq(waitpid(w.pid, &status, 0), w.pid);
		close(w.fd);
		sleep_ms(50);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	station_quiet(&s);
	station_close(&s);
	node_close(&x.a);
	node_close(&b);
}

/* Two of the adapters have one address, so that a GID does not tell them apart. */
static void write_config(void)
{
	static const char text[] = "[adapter mlx5_0]\naddress = 10.0.0.1\nmtu = 4096\n"
				   "[adapter mlx5_1]\naddress = 10.0.0.1\nmtu = 4096\n"
				   "[adapter mlx4_0]\naddress = 10.0.0.2\nmtu = 4096\n";
	static char path[] = "/tmp/verbatim-test-sniff.XXXXXX";
	int fd = mkstemp(path);

	check(fd >= 0 && write(fd, text, sizeof(text) - 1) == sizeof(text) - 1);
	close(fd);
	setenv("VERBATIM_CONFIG", path, 1);
}

int main(int argc, char **argv)
{
	const char *device = argc > 1 ? argv[1] : "mlx5_0";
	const char *other = strcmp(device, "mlx5_0") ? "mlx5_0" : "mlx5_1";

	if (!strncmp(device, "sniffer ", 8)) {
		report(device + 8, IBV_FLOW_ATTR_SNIFFER);
	} else if (!strncmp(device, "default ", 8)) {
		report(device + 8, IBV_FLOW_ATTR_ALL_DEFAULT);
	} else if (!strncmp(device, "target ", 7)) {
		target(device + 7);
	} else {
		if (!enter_namespaces(CLONE_NEWNET))
			test_skip("no network namespace: %s", strerror(errno));
		write_config();
		bound(device);
		here(device, other);
		elsewhere(device, device);
		elsewhere(device, other);
		under_traffic(device);
		unlink(getenv("VERBATIM_CONFIG"));
	}
	return 0;
}

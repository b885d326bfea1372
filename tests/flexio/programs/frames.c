// SPDX-License-Identifier: MIT
/*
 * Frames that device code sends and receives, against what the manual says of its flags and attributes.
 *
 *	process on mlx5_0: SQ --> cable --> mlx5_1: station of the host, which judges every byte
 *	                   RQ <-- rule <-- cable <-- mlx5_1
 *	                   `--> CQ --> event handler
 */
#include "frames_host.h"

#include "frames.h"

extern struct flexio_app *framedev;
extern flexio_func_t send_wqe, take_frames;

#define MAC_HOST 0x0200fe000001ull /* the station */
#define MAC_DEV  0x0200fe000002ull /* device code */

enum { LOG = 6, MEMORY = 8192, BUFFER = 2048 };
enum {
	L4CS = 0x8000,
	L3CS = 0x4000,
	L4CS_INNER = 0x2000,
	L3CS_INNER = 0x1000,
	TRAILER_ALIGN = 0x0200
};
enum {
	SWP_OUTER_L4_UDP = 0x40,
	SWP_OUTER_L3_IPV6 = 0x20,
	SWP_INNER_L4_UDP = 2,
	SWP_INNER_L3_IPV6 = 1
};
enum { REQUESTER_OK = 0, REQUESTER_ERROR = 13, LOCAL_QP_OP = 2 };
enum { PUT_TAG = 0x8000, PUT_S_TAG = 0x8001 };

static struct ibv_context *ctx;
static struct flexio_process *process;
static struct station station;
static struct kit_mem memory;
static flexio_uintptr_t job_daddr;
static uint8_t f[MEMORY], got[STATION_SLOT];

/* ---- sending ---- */

static struct flexio_sq *make_sq(struct frames_send *job, const struct kit_cq *cq, uint8_t several)
{
	struct flexio_wq_attr attr = { .log_wq_depth = LOG,

				       .sq = { .allow_multi_pkt_send_wqe = several } };
	struct flexio_sq *sq;

	*job = (struct frames_send){ .cq = cq->work, .lkey = memory.key };
	attr.wq_ring_qmem.daddr = job->sq.sq = dev_alloc(process, 64 << LOG);
	attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	OK(flexio_sq_create(process, NULL, cq->work.number, &attr, &sq));
	job->sq.number = flexio_sq_get_wq_num(sq);
	job->sq.log_sq = LOG;
	return sq;
}

/* A WQE as the job says; returns the opcode of its completion. Fields of the next one begin with 0. */
static uint32_t send(struct frames_send *job)
{
	struct frames_send clean = { .lkey = job->lkey };
	uint64_t opcode;

	dev_write(process, job_daddr, job, sizeof(*job));
	OK(flexio_process_call(process, &send_wqe, &opcode, job_daddr));
	dev_get(process, job, job_daddr, sizeof(*job));
	clean.cq = job->cq;
	clean.sq = job->sq;
	clean.cqe = job->cqe;
	*job = clean;
	return (uint32_t)opcode;
}

/* len bytes of f by one pointer, with flags; what comes is in got, of that length. */
static void send_frame(struct frames_send *job, uint32_t len, uint32_t flags)
{
	dev_write(process, memory.addr, f, len);
	job->flags = flags;
	job->parts = 1;
	job->part[0].addr = memory.addr;
	job->part[0].len = len;
	memset(got, 0, sizeof(got));
	CHECK(send(job) == REQUESTER_OK);
	CHECK(station_take(&station, got) == (len < 60 ? 60 : len));
}

/* got is f but for two bytes at each of these places (0: none). */
static void same_but(uint32_t len, uint32_t a, uint32_t b)
{
	for (uint32_t i = 0; i < len; i++)
		CHECK(got[i] == f[i] || (a && i - a < 2) || (b && i - b < 2));
}

static uint32_t make_l4(uint32_t version, uint32_t protocol, uint32_t payload)
{
	uint32_t at = put_eth(f, MAC_HOST, MAC_DEV, version == 6 ? 0x86dd : 0x0800);

	at = put_ip(f, at, version, protocol, (protocol == 6 ? 20 : 8) + payload);
	at = protocol == 6 ? put_tcp(f, at, 1, 0x10) : put_udp(f, at, 7777, payload);
	return put_bytes(f, at, payload, payload);
}

static void checksums(struct frames_send *job)
{
	static const uint32_t sizes[] = { 0, 1, 100, 101, 1400 }, protocols[] = { 6, 17 };

	for (uint32_t i = 0; i < 20; i++) {
		uint32_t version = i & 1 ? 6 : 4, protocol = protocols[i / 2 % 2];
		uint32_t len = make_l4(version, protocol, sizes[i / 4]);
		uint32_t l3 = version == 4 ? 24 : 0, l4 = version == 4 ? 34 : 54;

		l4 += protocol == 6 ? 16 : 6;
		send_frame(job, len, 0);
		same_but(len, 0, 0);
		send_frame(job, len, TRAILER_ALIGN); /* there is no trailer to align */
		same_but(len, 0, 0);
		send_frame(job, len, L3CS);
		same_but(len, l3, 0);
		CHECK(version == 6 || l3_right(got + 14));
		send_frame(job, len, L4CS);
		same_but(len, 0, l4);
		CHECK(l4_right(got + 14, protocol));
		send_frame(job, len, L3CS | L4CS);
		same_but(len, l3, l4);
		CHECK((version == 6 || l3_right(got + 14)) && l4_right(got + 14, protocol));
	}
}

/* VXLAN: Ethernet, IPv4, UDP, 8 bytes, Ethernet, IPv4, TCP. */
enum { VXLAN_L3 = 14, VXLAN_L4 = 34, VXLAN_INNER_L3 = 64, VXLAN_INNER_L4 = 84 };

static uint32_t make_vxlan(uint32_t payload)
{
	uint32_t at = put_eth(f, MAC_HOST, MAC_DEV, 0x0800);

	at = put_ip(f, at, 4, 17, 8 + 8 + 14 + 40 + payload);
	at = put_udp(f, at, 4789, 8 + 14 + 40 + payload);
	memset(f + at, 0, 8);
	f[at] = 8;
	at += 8;
	put_eth(f + at, 1, 2, 0x0800);
	at = put_ip(f, at + 14, 4, 6, 20 + payload);
	return put_bytes(f, put_tcp(f, at, 1, 0x10), payload, 3);
}

static void inner(struct frames_send *job)
{
	uint32_t len = make_vxlan(77);

	send_frame(job, len, L3CS_INNER);
	same_but(len, VXLAN_INNER_L3 + 10, 0);
	CHECK(l3_right(got + VXLAN_INNER_L3));
	send_frame(job, len, L4CS_INNER);
	same_but(len, VXLAN_INNER_L4 + 16, 0);
	CHECK(l4_right(got + VXLAN_INNER_L3, 6));
	send_frame(job, len, L3CS | L4CS | L3CS_INNER | L4CS_INNER);
	CHECK(l3_right(got + VXLAN_L3) && l3_right(got + VXLAN_INNER_L3));
	CHECK(l4_right(got + VXLAN_L3, 17) && l4_right(got + VXLAN_INNER_L3, 6));
}

/* Headers behind one that no parser knows, of an EtherType for experiments: only their offsets tell where they are. */
static void software_parser(struct frames_send *job)
{
	enum { L3 = 14 + 10 };

	for (uint32_t i = 0; i < 4; i++) {
		uint32_t version = i & 1 ? 6 : 4, protocol = i & 2 ? 17 : 6, l4, len;
		uint32_t flags = (version == 6 ? SWP_OUTER_L3_IPV6 : 0) |
				 (protocol == 17 ? SWP_OUTER_L4_UDP : 0);
		uint32_t field = protocol == 17 ? 6 : 16;

		put_eth(f, MAC_HOST, MAC_DEV, 0x88b5);
		memset(f + 14, 0x77, 10);
		l4 = put_ip(f, L3, version, protocol, (protocol == 17 ? 8 : 20) + 51);
		len = protocol == 17 ? put_udp(f, l4, 9, 51) : put_tcp(f, l4, 9, 0x10);
		len = put_bytes(f, len, 51, i);
		job->swp = l4 / 2 << 24 | L3 / 2 << 16;
		send_frame(job, len, L3CS | L4CS | flags);
		same_but(len, version == 4 ? L3 + 10 : 0, l4 + field);
		CHECK((version == 6 || l3_right(got + L3)) && l4_right(got + L3, protocol));
		/* The same as inner headers. */
		flags = (version == 6 ? SWP_INNER_L3_IPV6 : 0) |
			(protocol == 17 ? SWP_INNER_L4_UDP : 0);
		job->swp = l4 / 2 << 8 | L3 / 2;
		send_frame(job, len, L3CS_INNER | L4CS_INNER | flags);
		same_but(len, version == 4 ? L3 + 10 : 0, l4 + field);
		CHECK((version == 6 || l3_right(got + L3)) && l4_right(got + L3, protocol));
	}
}

static void vlan_insert(struct frames_send *job)
{
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t len = make_l4(4, 17, 200);

		dev_write(process, memory.addr, f, len);
		job->inline_size = i ? PUT_S_TAG : PUT_TAG;
		put16(job->header, 0x6123);
		job->flags = L3CS | L4CS;
		job->parts = 1;
		job->part[0].addr = memory.addr;
		job->part[0].len = len;
		CHECK(send(job) == REQUESTER_OK);
		CHECK(station_take(&station, got) == len + 4);
		CHECK(!memcmp(got, f, 12) && !memcmp(got + 16, f + 12, 12));
		CHECK(get16(got + 12) == (i ? 0x88a8 : 0x8100) && get16(got + 14) == 0x6123);
		CHECK(l3_right(got + 18) && l4_right(got + 18, 17));
	}
}

static void inline_header(struct frames_send *job)
{
	uint32_t len = make_l4(4, 17, 200);

	/* 18 bytes in the WQE, as drivers do for old cards; the rest in two pieces. */
	dev_write(process, memory.addr, f, len);
	memcpy(job->header, f, 18);
	job->inline_size = 18;
	job->mss = 100; /* of no meaning but for large sends */
	job->parts = 2;
	job->part[0].addr = memory.addr + 18;
	job->part[0].len = 33;
	job->part[1].addr = memory.addr + 18 + 33;
	job->part[1].len = len - 18 - 33;
	CHECK(send(job) == REQUESTER_OK);
	CHECK(station_take(&station, got) == len);
	same_but(len, 0, 0);
}

static void large(struct frames_send *job)
{
	enum { HEADER = 54, MSS = 500, PAYLOAD = 1234 };
	uint32_t at = put_eth(f, MAC_HOST, MAC_DEV, 0x0800), done = 0;

	at = put_ip(f, at, 4, 6, 20 + PAYLOAD);
	at = put_tcp(f, at, 1000000, 0x19); /* FIN, PSH, ACK */
	put_bytes(f, at, PAYLOAD, 9);
	dev_write(process, memory.addr, f + HEADER, PAYLOAD);
	job->type = SEG_LSO;
	memcpy(job->header, f, HEADER);
	job->inline_size = HEADER;
	job->mss = MSS;
	job->flags = L3CS | L4CS;
	job->parts = 1;
	job->part[0].addr = memory.addr;
	job->part[0].len = PAYLOAD;
	CHECK(send(job) == REQUESTER_OK);
	for (uint32_t i = 0; done < PAYLOAD; i++) {
		uint32_t part = PAYLOAD - done < MSS ? PAYLOAD - done : MSS;

		CHECK(station_take(&station, got) == HEADER + part);
		CHECK(get16(got + 16) == 40 + part && get16(got + 18) == i);
		CHECK(get32(got + 38) == 1000000 + done);
		CHECK((got[47] & 9) == (done + part == PAYLOAD ? 9 : 0));
		CHECK(l3_right(got + 14) && l4_right(got + 14, 6));
		CHECK(!memcmp(got + HEADER, f + HEADER + done, part));
		done += part;
	}
	CHECK(!station_take(&station, got));
}

/* Several frames of one WQE: each with a pointer of its own, or all of one length in one piece. */
static void several(struct frames_send *job, struct frames_send *single)
{
	enum { MPSW = 0x29, MPW = 1 << 24 | 0x0e, COUNT = 4, LEN = 128 };

	for (uint32_t i = 0; i < COUNT; i++) {
		put_eth(f + i * LEN, MAC_HOST, MAC_DEV, 0x88b5);
		put_bytes(f + i * LEN, 14, LEN - 14, i);
	}
	dev_write(process, memory.addr, f, COUNT * LEN);
	job->opcode = MPSW;
	job->parts = COUNT;
	for (uint32_t i = 0; i < COUNT; i++) {
		job->part[i].addr = memory.addr + i * LEN;
		job->part[i].len = LEN - 16 * i;
	}
	single->parts = 1;
	single->opcode = MPSW;
	single->part[0] = job->part[0];
	CHECK(send(job) == REQUESTER_OK);
	for (uint32_t i = 0; i < COUNT; i++) {
		CHECK(station_take(&station, got) == LEN - 16 * i);
		CHECK(!memcmp(got, f + i * LEN, LEN - 16 * i));
	}
	job->opcode = MPW;
	job->mss = LEN;
	job->parts = 1;
	job->part[0].addr = memory.addr;
	job->part[0].len = COUNT * LEN;
	CHECK(send(job) == REQUESTER_OK);
	for (uint32_t i = 0; i < COUNT; i++) {
		CHECK(station_take(&station, got) == LEN);
		CHECK(!memcmp(got, f + i * LEN, LEN));
	}
	/* A queue that was not made for it refuses. */
	CHECK(send(single) == REQUESTER_ERROR && single->cqe.syndrome == LOCAL_QP_OP);
	CHECK(!station_take(&station, got));
}

static void sends(void)
{
	struct frames_send job, single;
	struct flexio_sq *sq, *single_sq;
	struct kit_cq cq, single_cq;

	cq_simple(process, LOG, NULL, &cq);
	cq_simple(process, LOG, NULL, &single_cq);
	sq = make_sq(&job, &cq, 1);
	single_sq = make_sq(&single, &single_cq, 0);
	checksums(&job);
	inner(&job);
	software_parser(&job);
	vlan_insert(&job);
	inline_header(&job);
	large(&job);
	several(&job, &single);
	OK(flexio_sq_destroy(sq));
	OK(flexio_sq_destroy(single_sq));
	OK(flexio_cq_destroy(cq.cq));
	OK(flexio_cq_destroy(single_cq.cq));
}

/* ---- receiving ---- */

/* A receive queue of four entries behind a rule, with its handler. */
enum { ENTRIES_LOG = 2, ENTRIES = 1 << ENTRIES_LOG };

struct receiver {
	struct flexio_event_handler *handler;
	struct kit_cq cq;
	struct flexio_rq *rq;
	struct flexio_wq_attr attr;
	flexio_uintptr_t seen; /* struct frames_seen */
	struct mlx5dv_dr_domain *domain;
	struct mlx5dv_dr_table *table;
	struct mlx5dv_dr_matcher *matcher;
	struct mlx5dv_dr_action *to_rq;
	struct mlx5dv_dr_rule *rule;
};

static void steer(struct receiver *r)
{
	struct {
		size_t match_sz;
		uint8_t bytes[64];
	} mask = { .match_sz = 64 }, value = { .match_sz = 64 };

	put_mac(mask.bytes + 8, ~0ull);
	put_mac(value.bytes + 8, MAC_DEV);
	r->domain = mlx5dv_dr_domain_create(ctx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	r->table = mlx5dv_dr_table_create(r->domain, 0);
	r->matcher = mlx5dv_dr_matcher_create(r->table, 0, 1, (void *)&mask);
	r->to_rq = mlx5dv_dr_action_create_dest_devx_tir(flexio_rq_get_tir(r->rq));
	r->rule = mlx5dv_dr_rule_create(r->matcher, (void *)&value, 1, &r->to_rq);
	CHECK(r->rule);
}

/* entry: what the ring has in each place, stride bytes. */
static void receiver_make(struct receiver *r, const struct flexio_wq_attr *attr, const void *ring,
			  size_t size)
{
	struct flexio_event_handler_attr handler = { .host_stub_func = take_frames };
	__be32 record[2] = { htobe32(ENTRIES), 0 };
	struct frames_seen seen = { 0 };

	OK(flexio_event_handler_create(process, &handler, &r->handler));
	cq_simple(process, LOG, r->handler, &r->cq);
	r->attr = *attr;
	r->attr.log_wq_depth = ENTRIES_LOG;
	OK(flexio_copy_from_host(process, (void *)ring, size, &r->attr.wq_ring_qmem.daddr));
	OK(flexio_copy_from_host(process, record, sizeof(record), &r->attr.wq_dbr_qmem.daddr));
	OK(flexio_rq_create(process, NULL, r->cq.work.number, &r->attr, &r->rq));
	seen.cq = r->cq.work;
	OK(flexio_copy_from_host(process, &seen, sizeof(seen), &r->seen));
	steer(r);
}

static void receiver_open(struct receiver *r, const struct flexio_wq_attr *attr, const void *ring,
			  size_t size)
{
	receiver_make(r, attr, ring, size);
	OK(flexio_event_handler_run(r->handler, r->seen));
}

static void receiver_close(struct receiver *r)
{
	CHECK(!mlx5dv_dr_rule_destroy(r->rule) && !mlx5dv_dr_action_destroy(r->to_rq));
	CHECK(!mlx5dv_dr_matcher_destroy(r->matcher) && !mlx5dv_dr_table_destroy(r->table));
	CHECK(!mlx5dv_dr_domain_destroy(r->domain));
	OK(flexio_rq_destroy(r->rq));
	OK(flexio_cq_destroy(r->cq.cq));
	OK(flexio_event_handler_destroy(r->handler));
}

/* The handler has seen so many frames; one at a time wakes it each time. */
static struct frames_seen await(struct receiver *r, uint64_t frames)
{
	struct frames_seen seen;

	dev_await(process, r->seen + offsetof(struct frames_seen, frames), frames);
	dev_get(process, &seen, r->seen, sizeof(seen));
	CHECK(seen.frames == frames && seen.runs >= 1);
	return seen;
}

static struct mlx5_wqe_data_seg seg(uint64_t offset, uint32_t len)
{
	return (struct mlx5_wqe_data_seg){ htobe32(len), htobe32(memory.key),
					   htobe64(memory.addr + offset) };
}

static uint32_t make_for_device(uint32_t tag, uint32_t payload)
{
	uint32_t at = put_eth(f, MAC_DEV, MAC_HOST, tag ? 0x8100 : 0x88b5);

	if (tag) {
		put16(f + at, tag);
		put16(f + at + 2, 0x88b5);
		at += 4;
	}
	return put_bytes(f, at, payload, payload);
}

static void read_memory(uint64_t offset, uint32_t len)
{
	dev_get(process, got, memory.addr + offset, len);
}

/* A frame for device code with right or wrong checksums; fields begin with wrong ones. */
static uint32_t make_summed(uint32_t version, uint32_t protocol, bool l3, bool l4)
{
	uint32_t field = protocol == 6 ? 16 : 6, len = make_l4(version, protocol, 333);
	uint8_t *ip = f + 14, *l4_sum = ip + (version == 6 ? 40 : 20) + field;

	put_mac(f, MAC_DEV);
	put_mac(f + 6, MAC_HOST);
	if (l4) {
		put16(l4_sum, 0);
		for (uint32_t sum = 1; !l4_right(ip, protocol); sum++)
			put16(l4_sum, sum);
	}
	if (l3 && version == 4) {
		put16(ip + 10, 0);
		put16(ip + 10, ~sum_of(ip, 20, 0));
	}
	return len;
}

/* Device code reads of a completion which checksums are right: bit 1 that of IP, bit 2 that of TCP or UDP. */
static void checksums_seen(const struct flexio_wq_attr *attr)
{
	enum { L2_OK = 1, L3_OK = 2, L4_OK = 4, CASES = 16 };
	struct mlx5_wqe_data_seg ring[ENTRIES];
	struct frames_seen seen;
	struct receiver r;

	for (uint32_t i = 0; i < ENTRIES; i++)
		ring[i] = seg(BUFFER * i, BUFFER);
	receiver_open(&r, attr, ring, sizeof(ring));
	for (uint32_t i = 0; i < CASES; i++) {
		uint32_t version = i & 1 ? 6 : 4, protocol = i & 2 ? 17 : 6;
		bool l3 = i & 4, l4 = i & 8;

		dev_write(process, r.attr.wq_dbr_qmem.daddr, &(__be32){ htobe32(ENTRIES + i) }, 4);
		station_send(&station, f, make_summed(version, protocol, l3, l4));
		seen = await(&r, i + 1);
		/* IPv6 has no checksum of its own that could be wrong. */
		CHECK(seen.csum_ok[i] ==
		      (L2_OK | (l3 || version == 6 ? L3_OK : 0u) | (l4 ? L4_OK : 0u)));
	}
	/* Neither IP nor what it carries: nothing to be right. */
	dev_write(process, r.attr.wq_dbr_qmem.daddr, &(__be32){ htobe32(ENTRIES + CASES) }, 4);
	station_send(&station, f, make_for_device(0, 100));
	seen = await(&r, CASES + 1);
	CHECK(seen.csum_ok[CASES % FRAMES_SEEN] == L2_OK);
	receiver_close(&r);
}

/* Type 0 and stride 0, as most programs have it: a ring of 16-byte entries, used in order. Frames wake the handler. */
static void ring_in_order(const struct flexio_wq_attr *attr)
{
	struct mlx5_wqe_data_seg ring[ENTRIES];
	struct frames_seen seen;
	struct receiver r;
	uint32_t len = 0;

	for (uint32_t i = 0; i < ENTRIES; i++)
		ring[i] = seg(BUFFER * (ENTRIES - 1 - i), BUFFER);
	receiver_open(&r, attr, ring, sizeof(ring));
	for (uint32_t i = 0; i < ENTRIES; i++) {
		OK(flexio_buf_dev_memset(process, 0x99, BUFFER,
					 memory.addr + BUFFER * (ENTRIES - 1 - i)));
		len = make_for_device(0, 100 + 111 * i);
		station_send(&station, f, len);
		seen = await(&r, i + 1);
		CHECK(get16(seen.cqe[i] + 60) == i && get32(seen.cqe[i] + 44) == len);
		read_memory(BUFFER * (ENTRIES - 1 - i), BUFFER);
		CHECK(!memcmp(got, f, len));
		/* What is behind the frame stays, whatever end_pad_mode says. */
		for (uint32_t at = len; at < BUFFER; at++)
			CHECK(got[at] == 0x99);
	}
	/* Nothing is posted any more, so a frame is lost and nobody is woken for it; then one more. */
	station_send(&station, f, len);
	dev_write(process, r.attr.wq_dbr_qmem.daddr, &(__be32){ htobe32(ENTRIES + 1) }, 4);
	len = make_for_device(0, 900);
	station_send(&station, f, len);
	seen = await(&r, ENTRIES + 1);
	CHECK(get16(seen.cqe[ENTRIES] + 60) == ENTRIES && get32(seen.cqe[ENTRIES] + 44) == len);
	CHECK(seen.runs > 1);
	receiver_close(&r);
}

/* A ring of entries with two buffers. */
static void ring_of_pairs(void)
{
	struct flexio_wq_attr attr = { .log_wq_stride = 5,
				       .rq = { .wq_type = FLEXIO_WQ_TYPE_CYCLIC } };
	struct mlx5_wqe_data_seg ring[ENTRIES][2];
	struct receiver r;
	uint32_t len;

	for (uint32_t i = 0; i < ENTRIES; i++) {
		ring[i][0] = seg(BUFFER * i, 50);
		ring[i][1] = seg(BUFFER * i + 100, BUFFER - 100);
	}
	receiver_open(&r, &attr, ring, sizeof(ring));
	for (uint32_t i = 0; i < ENTRIES; i++) {
		len = make_for_device(0, 200 + i);
		station_send(&station, f, len);
		await(&r, i + 1);
		read_memory(BUFFER * i, BUFFER);
		CHECK(!memcmp(got, f, 50) && !memcmp(got + 100, f + 50, len - 50));
	}
	receiver_close(&r);
}

/* Type 0 and 32 bytes: a list in an order of its own, each entry names the next. */
static void linked(void)
{
	static const uint16_t order[ENTRIES] = { 0, 2, 3, 1 };
	struct flexio_wq_attr attr = { .log_wq_stride = 5 };
	struct {
		struct mlx5_wqe_srq_next_seg next;
		struct mlx5_wqe_data_seg data;
	} ring[ENTRIES] = { 0 };
	struct frames_seen seen;
	struct receiver r;
	uint32_t len;

	for (uint32_t i = 0; i < ENTRIES; i++) {
		ring[order[i]].next.next_wqe_index = htobe16(order[(i + 1) % ENTRIES]);
		ring[i].data = seg(BUFFER * i, BUFFER);
	}
	receiver_open(&r, &attr, ring, sizeof(ring));
	/* The last entry is never used: the list ends before it. */
	for (uint32_t i = 0; i < ENTRIES - 1; i++) {
		len = make_for_device(0, 300 + i);
		station_send(&station, f, len);
		seen = await(&r, i + 1);
		CHECK(get16(seen.cqe[i] + 60) == order[i]);
		read_memory((uint64_t)BUFFER * order[i], BUFFER);
		CHECK(!memcmp(got, f, len));
	}
	receiver_close(&r);
}

static void vlan_strip(uint8_t disable)
{
	struct flexio_wq_attr attr = { .rq = { .vlan_strip_disable = disable } };
	struct mlx5_wqe_data_seg ring[ENTRIES];
	struct frames_seen seen;
	struct receiver r;
	uint32_t len;

	for (uint32_t i = 0; i < ENTRIES; i++)
		ring[i] = seg(BUFFER * i, BUFFER);
	receiver_open(&r, &attr, ring, sizeof(ring));
	len = make_for_device(0x6123, 400);
	station_send(&station, f, len);
	seen = await(&r, 1);
	CHECK(get32(seen.cqe[0] + 44) == (disable ? len : len - 4));
	CHECK((seen.cqe[0][29] & 1) == !disable && get16(seen.cqe[0] + 30) == 0x6123);
	read_memory(0, BUFFER);
	if (disable)
		CHECK(!memcmp(got, f, len));
	else
		CHECK(!memcmp(got, f, 12) && !memcmp(got + 12, f + 16, len - 16));
	/* One without a tag stays as it is. */
	len = make_for_device(0, 100);
	station_send(&station, f, len);
	seen = await(&r, 2);
	CHECK(get32(seen.cqe[1] + 44) == len && !(seen.cqe[1][29] & 1));
	read_memory(BUFFER, BUFFER);
	CHECK(!memcmp(got, f, len));
	receiver_close(&r);
}

/* A frame that comes before the handler runs is its first one. */
static void before_run(void)
{
	struct flexio_wq_attr attr = { 0 };
	struct mlx5_wqe_data_seg ring[ENTRIES];
	struct receiver r;

	for (uint32_t i = 0; i < ENTRIES; i++)
		ring[i] = seg(BUFFER * i, BUFFER);
	receiver_make(&r, &attr, ring, sizeof(ring));
	station_send(&station, f, make_for_device(0, 100));
	OK(flexio_event_handler_run(r.handler, r.seen));
	for (uint64_t i = 1; i < ENTRIES; i++) {
		await(&r, i);
		station_send(&station, f, make_for_device(0, 100));
	}
	await(&r, ENTRIES);
	receiver_close(&r);
}

static void receives(void)
{
	ring_in_order(&(struct flexio_wq_attr){ 0 });
	checksums_seen(&(struct flexio_wq_attr){ 0 });
	ring_in_order(&(struct flexio_wq_attr){ .log_wq_stride = 4 });
	ring_in_order(&(struct flexio_wq_attr){ .rq = { .wq_type = FLEXIO_WQ_TYPE_CYCLIC } });
	ring_in_order(
		&(struct flexio_wq_attr){ .rq = { .end_pad_mode = FLEXIO_WQ_END_PAD_ALIGN } });
	ring_of_pairs();
	linked();
	vlan_strip(0);
	vlan_strip(1);
	before_run();
}

/*
 * The program closes the context of its process. What device code has goes on, and a context that is
 * opened then has the rules; those end with theirs.
 */
static void closed_early(void)
{
	struct flexio_wq_attr attr = { 0 };
	struct mlx5_wqe_data_seg ring[ENTRIES];
	struct frames_seen seen;
	struct receiver r, gone;
	uint32_t len;

	CHECK(!ibv_close_device(ctx));
	ctx = open_named("mlx5_0");
	sends();
	receives();
	for (uint32_t i = 0; i < ENTRIES; i++)
		ring[i] = seg(BUFFER * i, BUFFER);
	receiver_open(&r, &attr, ring, sizeof(ring));
	station_send(&station, f, make_for_device(0, 100));
	await(&r, 1);
	CHECK(!ibv_close_device(ctx));
	station_send(&station, f, make_for_device(0, 200));
	gone = r;
	ctx = open_named("mlx5_0");
	steer(&r);
	len = make_for_device(0, 300);
	station_send(&station, f, len);
	seen = await(&r, 2);
	CHECK(get32(seen.cqe[1] + 44) == len);
	/* The program's handles of what ended with its context. */
	CHECK(!mlx5dv_dr_rule_create(gone.matcher, NULL, 1, &gone.to_rq));
	CHECK(!mlx5dv_dr_matcher_create(gone.table, 0, 0, NULL));
	CHECK(!mlx5dv_dr_table_create(gone.domain, 0));
	CHECK(!mlx5dv_dr_rule_destroy(gone.rule) && !mlx5dv_dr_action_destroy(gone.to_rq));
	CHECK(!mlx5dv_dr_matcher_destroy(gone.matcher) && !mlx5dv_dr_table_destroy(gone.table));
	CHECK(!mlx5dv_dr_domain_destroy(gone.domain));
	receiver_close(&r);
}

int main(void)
{
	ctx = open_named("mlx5_0");
	OK(flexio_process_create(ctx, framedev, NULL, &process));
	mem_make(process, MEMORY, &memory);
	job_daddr = dev_alloc(process, sizeof(struct frames_send));
	station_open(&station, "mlx5_1", MAC_HOST);
	sends();
	receives();
	closed_early();
	station_close(&station);
	mem_end(&memory);
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
	return 0;
}

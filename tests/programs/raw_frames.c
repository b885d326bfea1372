// SPDX-License-Identifier: MIT
/*
 * Raw frames between queue pairs of one process: which lengths go, what is padded, who hears whom, checksums, tags, large
 * sends, buffers that are too small. The argument is the device.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "station.h"

enum { LONGEST = 9216 };

/* Frames between stations of one port: to a group, since others' unicast addresses are not on the port itself. */
static const uint64_t here = 0x030000000001, there = 0x020000000002;
static const char *device;
static bool mlx5;

static void fill(uint8_t *f, uint32_t len)
{
	put_eth(f, 0, here, there, 0x88b5);
	if (len > 14)
		pattern_fill(f + 14, len - 14, len);
}

static void lengths(void)
{
	static const uint32_t lens[] = { 14, 15, 59, 60, 61, 1500, 9000, LONGEST };
	static uint8_t f[LONGEST];
	struct station tx, rx;
	struct ibv_flow *flow;
	struct got got;

	station_open(&tx, device);
	station_open(&rx, device);
	fill(f, 100);
	station_send(&tx, f, 100, 0);
	station_quiet(&rx); /* without a flow nobody gets it */
	flow = flow_all(rx.qp);
	for (unsigned int i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		uint32_t len = lens[i] < 60 ? 60 : lens[i];

		memset(f, 0, 60);
		fill(f, lens[i]);
		station_send(&tx, f, lens[i], 0);
		station_get(&rx, &got);
		check_eq(got.len, len);
		check_eq(got.qpn, rx.qp->qp_num);
		check(!memcmp(got.data, f, len), "%u bytes", lens[i]);
	}
	check_eq(ibv_destroy_flow(flow), 0);
	station_send(&tx, f, 100, 0);
	station_quiet(&rx);
	station_quiet(&tx);
	station_close(&rx);
	station_close(&tx);
}

static void wrong_lengths(void)
{
	static const uint32_t lens[] = { 0, 13, LONGEST + 1 };
	static uint8_t f[LONGEST + 1];

	for (unsigned int i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		struct station tx, rx;
		struct ibv_flow *flow;

		station_open(&tx, device);
		station_open(&rx, device);
		flow = flow_all(rx.qp);
		check_eq(station_try_send(&tx, f, lens[i], 0), IBV_WC_LOC_LEN_ERR);
		station_quiet(&rx);
		check_eq(ibv_destroy_flow(flow), 0);
		station_close(&tx);
		station_close(&rx);
	}
}

/* mlx5: what a context sends, its own queue pairs do not hear. mlx4: only the sender itself does not. */
static void own_context(void)
{
	struct station a, b;
	struct ibv_flow *to_a, *to_b;
	uint8_t f[64];

	station_open(&a, device);
	station_open_in(&b, a.ctx);
	to_a = flow_all(a.qp);
	to_b = flow_all(b.qp);
	fill(f, sizeof(f));
	station_send(&a, f, sizeof(f), 0);
	station_quiet(&a);
	if (mlx5)
		station_quiet(&b);
	else
		station_expect(&b, f, sizeof(f));
	check_eq(ibv_destroy_qp(b.qp), EBUSY);
	check_eq(ibv_destroy_flow(to_a), 0);
	check_eq(ibv_destroy_flow(to_b), 0);
	station_close(&b);
	station_close(&a);
}

static uint32_t make_ip4(uint8_t *f, bool tcp, uint32_t payload)
{
	uint32_t at = put_eth(f, 0, here, there, 0x0800);

	at = put_ip4(f, at, tcp ? 6 : 17, 0x0a000001, 0x0a000002, (tcp ? 20 : 8) + payload);
	at = tcp ? put_tcp(f, at, 1000, 2000, 0x10) : put_udp(f, at, 1000, 2000, payload);
	pattern_fill(f + at, payload, 7);
	return at + payload;
}

static void checksums(void)
{
	struct station tx, rx;
	struct ibv_flow *flow;
	struct got got;
	uint8_t f[256];

	station_open(&tx, device);
	station_open(&rx, device);
	flow = flow_all(rx.qp);
	for (int tcp = 0; tcp < 2; tcp++) {
		uint32_t len = make_ip4(f, tcp, 101);

		put16(f + 24, 0); /* no sum: the card fills it in */
		station_send(&tx, f, len, IBV_SEND_IP_CSUM);
		station_get(&rx, &got);
		check(ip4_right(got.data, 14) && l4_right(got.data, 14));
		check(got.flags & IBV_WC_IP_CSUM_OK);
		put16(f + 24, 0x1234); /* a wrong one stays wrong, and is told */
		station_send(&tx, f, len, 0);
		station_get(&rx, &got);
		check(!memcmp(got.data, f, len));
		check(!(got.flags & IBV_WC_IP_CSUM_OK));
	}
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&tx);
	station_close(&rx);
}

/* A buffer that is too small ends the queue pair with a length error. */
static void small_buffer(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RAW_PACKET);
	struct station tx;
	struct ibv_flow *flow;
	struct node rx;
	uint8_t f[200];

	station_open(&tx, device);
	node_open(&rx, &attr);
	raw_to_rts(rx.qp);
	flow = flow_all(rx.qp);
	check_eq(node_recv(&rx, 1, 0, 199), 0);
	check_eq(node_recv(&rx, 2, 0, 200), 0);
	fill(f, sizeof(f));
	station_send(&tx, f, sizeof(f), 0);
	cq_expect(rx.recv_cq, 1, IBV_WC_LOC_LEN_ERR);
	cq_expect(rx.recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
	check_eq(qp_get_state(rx.qp), IBV_QPS_ERR);
	station_send(&tx, f, sizeof(f), 0); /* nobody is waited for */
	check_eq(ibv_destroy_flow(flow), 0);
	node_close(&rx);
	station_close(&tx);
}

/* --- mlx5 only ----------------------------------------------------------------------------------- */

/* The FCS of IEEE 802.3, bit by bit; on the wire its lowest byte comes first. */
static uint32_t crc_of(const uint8_t *p, uint32_t len)
{
	uint32_t crc = 0xffffffff;

	while (len--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

static void check_fcs(const uint8_t *at, const uint8_t *frame, uint32_t len)
{
	uint32_t crc = crc_of(frame, len);
	uint8_t want[] = { (uint8_t)crc, (uint8_t)(crc >> 8), (uint8_t)(crc >> 16),
			   (uint8_t)(crc >> 24) };

	check(!memcmp(at, want, 4));
}

static void stripping(void)
{
	struct station tx, rx, plain;
	struct ibv_flow *flow, *other;
	struct got got;
	uint8_t f[128];
	uint32_t at;

	station_open(&tx, device);
	station_open_with(&rx, device, IBV_QP_CREATE_CVLAN_STRIPPING, 0);
	station_open_with(&plain, device, IBV_QP_CREATE_SCATTER_FCS, 0);
	flow = flow_all(rx.qp);
	other = flow_all(plain.qp);
	at = put_tag(f, put_eth(f, 0, here, there, 0x8100), 3 << 13 | 77, 0x88b5);
	pattern_fill(f + at, sizeof(f) - at, 1);
	station_send(&tx, f, sizeof(f), 0);
	station_get(&rx, &got);
	check_eq(got.len, sizeof(f) - 4);
	check_eq(got.vlan, 3 << 13 | 77);
	check(!memcmp(got.data, f, 12) && !memcmp(got.data + 12, f + 16, sizeof(f) - 16));
	station_get(&plain, &got);
	check_eq(got.len, sizeof(f) + 4);
	check_eq(got.vlan, 3 << 13 | 77);
	check(!memcmp(got.data, f, sizeof(f)));
	check_fcs(got.data + sizeof(f), f, sizeof(f));
	check_eq(ibv_destroy_flow(flow), 0);
	check_eq(ibv_destroy_flow(other), 0);
	station_close(&plain);
	station_close(&rx);
	station_close(&tx);
}

/*
 * Bytes behind the IP packet belong to the frame, not to what checksums are over. Padding of the card's writes to memory is
 * not seen in the frame or its length, nor behind the buffer's end.
 */
static void trailers(void)
{
	enum { TRAILER = 9 };
	struct station tx, rx, fcs;
	struct ibv_flow *flow, *other;
	struct got got;
	uint8_t f[256];
	uint32_t len;

	station_open(&tx, device);
	station_open_with(&rx, device, IBV_QP_CREATE_PCI_WRITE_END_PADDING, 0);
	station_open_with(&fcs, device, IBV_QP_CREATE_SCATTER_FCS, 0);
	flow = flow_all(rx.qp);
	other = flow_all(fcs.qp);
	for (uint32_t payload = 30; payload < 95; payload += 13) {
		len = make_ip4(f, payload % 2, payload);
		pattern_fill(f + len, TRAILER, 3);
		len += TRAILER;
		put16(f + 24, 0);
		station_send(&tx, f, len, IBV_SEND_IP_CSUM);
		station_get(&rx, &got);
		check_eq(got.len, len);
		check(got.flags & IBV_WC_IP_CSUM_OK);
		check(ip4_right(got.data, 14) && l4_right(got.data, 14));
		check(!memcmp(got.data + len - TRAILER, f + len - TRAILER, TRAILER));
		memcpy(f, got.data, len);
		station_get(&fcs, &got);
		check_eq(got.len, len + 4);
		check(!memcmp(got.data, f, len));
		check_fcs(got.data + len, f, len);
	}
	/* The FCS of a short frame is over its padding, too. */
	memset(f, 0, 60);
	fill(f, 20);
	station_send(&tx, f, 20, 0);
	station_get(&fcs, &got);
	check_eq(got.len, 64);
	check_fcs(got.data + 60, f, 60);
	check_eq(ibv_destroy_flow(flow), 0);
	check_eq(ibv_destroy_flow(other), 0);
	station_close(&fcs);
	station_close(&rx);
	station_close(&tx);
}

static void post_tso(struct station *tx, const uint8_t *header, uint16_t header_len, uint16_t mss,
		     uint32_t payload, enum ibv_wc_status want)
{
	uint8_t *from = tx->buf + (size_t)STATION_SLOTS * STATION_SLOT;
	struct ibv_sge sge = { (uintptr_t)from, payload, tx->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 5,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_TSO,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	wr.tso.hdr = (void *)(uintptr_t)header;
	wr.tso.hdr_sz = header_len;
	wr.tso.mss = mss;
	pattern_fill(from, payload, 3);
	check_eq(ibv_post_send(tx->qp, &wr, &bad), 0);
	check(cq_wait(tx->send_cq, &wc, PATIENCE_MS));
	check_eq(wc.status, want);
	if (want == IBV_WC_SUCCESS)
		check_eq(wc.opcode, IBV_WC_TSO);
}

static void large_sends(void)
{
	enum { MSS = 1400, PAYLOAD = 50 * MSS + 17, HEADER = 54 };
	static uint8_t whole[PAYLOAD], want[PAYLOAD];
	struct station tx, rx;
	struct ibv_flow *flow;
	struct got got;
	uint8_t f[HEADER];

	station_open_with(&tx, device, 0, 64);
	station_open(&rx, device);
	flow = flow_all(rx.qp);
	/* Often enough to meet the end of the ring. */
	for (int round = 0; round < 40; round++) {
		make_ip4(f, true, 0);
		post_tso(&tx, f, HEADER, MSS, PAYLOAD, IBV_WC_SUCCESS);
		for (uint32_t at = 0; at < PAYLOAD; at += MSS) {
			uint32_t n = PAYLOAD - at < MSS ? PAYLOAD - at : MSS;

			station_get(&rx, &got);
			check_eq(got.len, HEADER + n);
			check(ip4_right(got.data, 14) && l4_right(got.data, 14));
			check_eq(got.data[38] << 24 | got.data[39] << 16 | got.data[40] << 8 |
					 got.data[41],
				 1000 + at);
			memcpy(whole + at, got.data + HEADER, n);
		}
		pattern_fill(want, PAYLOAD, 3);
		check(!memcmp(whole, want, PAYLOAD));
		station_quiet(&rx);
	}
	make_ip4(f, false, 0); /* no TCP */
	post_tso(&tx, f, 42, MSS, 3000, IBV_WC_LOC_QP_OP_ERR);
	station_quiet(&rx);
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&tx);
	station_close(&rx);
}

static void bad_tso(void)
{
	struct station tx;
	struct ibv_sge sge = { 0 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_TSO }, *bad;
	uint8_t header[256] = { 0 };

	station_open_with(&tx, device, 0, 64);
	wr.tso.hdr = header;
	wr.tso.mss = 100;
	wr.tso.hdr_sz = 65; /* more than max_tso_header */
	check_eq(ibv_post_send(tx.qp, &wr, &bad), EINVAL);
	wr.tso.hdr_sz = 0;
	check_eq(ibv_post_send(tx.qp, &wr, &bad), EINVAL);
	wr.tso.hdr_sz = 54;
	wr.tso.mss = 0;
	check_eq(ibv_post_send(tx.qp, &wr, &bad), EINVAL);
	station_close(&tx);
}

static void new_api(void)
{
	struct station tx, rx;
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.cap = { .max_send_wr = 8, .max_send_sge = 2, .max_inline_data = 128 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
			     IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO,
		.max_tso_header = 64,
	};
	struct ibv_flow *flow;
	struct ibv_qp_ex *ex;
	struct ibv_qp *qp;
	struct got got;
	uint8_t f[128], *from;
	uint32_t len;

	station_open(&tx, device);
	station_open(&rx, device);
	flow = flow_all(rx.qp);
	attr.pd = tx.pd;
	attr.send_cq = attr.recv_cq = tx.send_cq;
	qp = ibv_create_qp_ex(tx.ctx, &attr);
	check(qp, "%s", strerror(errno));
	raw_to_rts(qp);
	ex = ibv_qp_to_qp_ex(qp);
	len = make_ip4(f, false, 60);
	from = tx.buf + (size_t)STATION_SLOTS * STATION_SLOT;
	memcpy(from, f, len);
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = 0;
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, f, len);
	ex->wr_flags = IBV_SEND_IP_CSUM | IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, tx.mr->lkey, (uintptr_t)from, len);
	check_eq(ibv_wr_complete(ex), 0);
	station_get(&rx, &got);
	check_eq(got.len, len);
	check(!memcmp(got.data, f, len));
	station_get(&rx, &got);
	check(l4_right(got.data, 14));
	cq_expect(tx.send_cq, 1, IBV_WC_SUCCESS);
	make_ip4(f, true, 0);
	ibv_wr_start(ex);
	ibv_wr_send_tso(ex, f, 54, 40);
	ibv_wr_set_sge(ex, tx.mr->lkey, (uintptr_t)from, 100);
	check_eq(ibv_wr_complete(ex), 0);
	for (int i = 0; i < 3; i++) {
		station_get(&rx, &got);
		check_eq(got.len, i < 2 ? 94 : 74);
		check(l4_right(got.data, 14));
	}
	cq_expect(tx.send_cq, 1, IBV_WC_SUCCESS);
	ibv_wr_start(ex);
	ibv_wr_send_tso(ex, f, 65, 40);
	check_eq(ibv_wr_complete(ex), EINVAL);
	check_eq(ibv_destroy_flow(flow), 0);
	check_eq(ibv_destroy_qp(qp), 0);
	station_close(&rx);
	station_close(&tx);
}

/* Frames of a paced queue take at least the time that the rate allows. */
static void pacing(void)
{
	enum { FRAMES = 40, LEN = 1250, KBPS = 10000, BURST = 2 * LEN };
	struct ibv_qp_rate_limit_attr limit = { .rate_limit = KBPS, .max_burst_sz = BURST };
	struct ibv_qp_attr attr = { .rate_limit = 0 };
	static uint8_t f[LEN];
	struct station tx, rx;
	struct ibv_flow *flow;
	struct got got;
	uint64_t start, least = (FRAMES - 4) * LEN * 8ull * 1000 / KBPS;

	station_open(&tx, device);
	station_open(&rx, device);
	flow = flow_all(rx.qp);
	check_eq(ibv_modify_qp_rate_limit(tx.qp, &limit), 0);
	fill(f, LEN);
	start = now_us();
	for (int i = 0; i < FRAMES; i++) {
		station_send(&tx, f, LEN, 0);
		station_get(&rx, &got);
		check(!memcmp(got.data, f, LEN));
	}
	check(now_us() - start >= least, "%llu us, not %llu",
	      (unsigned long long)(now_us() - start), (unsigned long long)least);
	/* Several at once: the card goes on by itself. */
	for (int round = 0; round < 20; round++) {
		struct ibv_sge sge = { (uintptr_t)tx.buf, LEN, tx.mr->lkey };
		struct ibv_send_wr wr[10] = { 0 }, *bad;

		for (int i = 0; i < 10; i++)
			wr[i] = (struct ibv_send_wr){ .next = i < 9 ? &wr[i + 1] : NULL,
						      .wr_id = 4,
						      .sg_list = &sge,
						      .num_sge = 1,
						      .opcode = IBV_WR_SEND,
						      .send_flags = i < 9 ? 0 : IBV_SEND_SIGNALED };
		limit.rate_limit = 100000 << round % 10;
		check_eq(ibv_modify_qp_rate_limit(tx.qp, &limit), 0);
		check_eq(ibv_post_send(tx.qp, wr, &bad), 0);
		for (int i = 0; i < 10; i++)
			station_get(&rx, &got);
		cq_expect(tx.send_cq, 4, IBV_WC_SUCCESS);
	}
	check_eq(ibv_modify_qp(tx.qp, &attr, IBV_QP_RATE_LIMIT), 0); /* no limit any more */
	station_send(&tx, f, LEN, 0);
	limit.rate_limit = UINT32_MAX;
	check_eq(ibv_modify_qp_rate_limit(tx.qp, &limit), EINVAL);
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&rx);
	station_close(&tx);
}

static void capabilities(void)
{
	struct ibv_context *ctx = open_device(device);
	struct ibv_device_attr_ex attr;

	check_eq(ibv_query_device_ex(ctx, NULL, &attr), 0);
	check(attr.raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM);
	check(attr.rss_caps.supported_qpts & 1 << IBV_QPT_RAW_PACKET);
	check(attr.max_wq_type_rq);
	check(attr.orig_attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING);
	check_eq(!!attr.tso_caps.max_tso, mlx5);
	check_eq(!!attr.packet_pacing_caps.qp_rate_limit_max, mlx5);
	check_eq(!!(attr.raw_packet_caps & IBV_RAW_PACKET_CAP_CVLAN_STRIPPING), mlx5);
	check_eq(ibv_close_device(ctx), 0);
}

int main(int argc, char **argv)
{
	if (!enter_namespaces(CLONE_NEWNET))
		test_skip("no network namespace: %s", strerror(errno));
	device = argc > 1 ? argv[1] : "mlx5_0";
	mlx5 = !strncmp(device, "mlx5", 4);
	capabilities();
	lengths();
	wrong_lengths();
	own_context();
	checksums();
	small_buffer();
	if (mlx5) {
		stripping();
		trailers();
		large_sends();
		bad_tso();
		new_api();
		pacing();
	}
	return 0;
}

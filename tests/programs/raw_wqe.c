// SPDX-License-Identifier: MIT
/*
 * Frames by WQEs and CQEs that the program writes and reads itself (mlx5dv_init_obj): every field of the Ethernet segment,
 * several frames in one WQE in both ways, large sends; every field of a frame's CQE; WQEs that cannot be.
 */
#include <endian.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <infiniband/mlx5dv.h>

#include "station.h"

enum { L3_INNER = 0x10, L4_INNER = 0x20, L3_OUTER = 0x40, L4_OUTER = 0x80, ALL = 0xf0 };
enum { OP_LSO = 0x0e, OP_MPW = 0x0e | 1 << 24, OP_EMPW = 0x29 };
enum { UNIT = 16, INSERT_VLAN = 0x8000 };

/* Frames between stations of one port: to a group, since others' unicast addresses are not on the port itself. */
static const uint64_t here = 0x030000000001, there = 0x020000000002;
static struct station tx, rx;
static struct ibv_flow *flow;
static struct mlx5dv_qp ring;
static struct mlx5dv_cq cq;
static uint32_t pi, ci, send_ci;
static uint8_t *mem; /* registered, to send from */

static void open_all(void)
{
	struct mlx5dv_obj obj = { .qp = { .out = &ring } };

	station_open(&tx, "mlx5_0");
	station_open(&rx, "mlx5_0");
	flow = flow_all(rx.qp);
	obj.qp.in = tx.qp;
	memset(&ring, 0, sizeof(ring));
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), 0);
	obj.cq.in = ibv_cq_ex_to_cq(rx.recv_cq);
	obj.cq.out = &cq;
	memset(&cq, 0, sizeof(cq));
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), 0);
	pi = ci = send_ci = 0;
	mem = tx.buf + (size_t)STATION_SLOTS * STATION_SLOT;
}

static void close_all(void)
{
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&rx);
	station_close(&tx);
}

/* --- WQEs ------------------------------------------------------------------------------------------- */

struct wqe {
	_Alignas(16) uint8_t bytes[1024];
	uint32_t size;
	uint32_t opcode; /* and its modifier << 24 */
};

static void *take(struct wqe *w, uint32_t size)
{
	void *at = w->bytes + w->size;

	check(w->size + size <= sizeof(w->bytes));
	w->size += (size + UNIT - 1) / UNIT * UNIT;
	return at;
}

/* Control and Ethernet segment, with a header inlined. */
static struct mlx5_wqe_eth_seg *begin(struct wqe *w, uint32_t opcode, const void *header,
				      uint16_t len)
{
	struct mlx5_wqe_eth_seg *eth;

	memset(w, 0, sizeof(*w));
	take(w, UNIT);
	w->opcode = opcode;
	eth = take(w, len > 2 ? 14u + len : UNIT);
	eth->inline_hdr_sz = htobe16(len);
	memcpy(eth->inline_hdr_start, header, len);
	return eth;
}

static void pointer(struct wqe *w, const void *addr, uint32_t len)
{
	struct mlx5_wqe_data_seg *seg = take(w, UNIT);

	mlx5dv_set_data_seg(seg, len, tx.mr->lkey, (uintptr_t)addr);
}

static void inlined(struct wqe *w, const void *data, uint32_t len)
{
	struct mlx5_wqe_inl_data_seg *seg = take(w, 4 + len);

	seg->byte_count = htobe32(len | MLX5_INLINE_SEG);
	memcpy(seg + 1, data, len);
}

/* Into the ring, with a doorbell; ds in the place of its true size where that is not 0. */
static void post_as(struct wqe *w, uint32_t ds)
{
	struct mlx5_wqe_ctrl_seg *ctrl = (void *)w->bytes;
	uint32_t bytes = ring.sq.wqe_cnt * 64, at = pi * 64;
	uint64_t first;

	ctrl->opmod_idx_opcode = htobe32((w->opcode & 0xff0000ff) | (pi & 0xffff) << 8);
	ctrl->qpn_ds = htobe32(tx.qp->qp_num << 8 | (ds ? ds : w->size / UNIT));
	ctrl->fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
	for (uint32_t i = 0; i < w->size; i++)
		((uint8_t *)ring.sq.buf)[(at + i) % bytes] = w->bytes[i];
	memcpy(&first, ctrl, sizeof(first));
	pi += (w->size + 63) / 64;
	__atomic_store_n(&ring.dbrec[1], htobe32(pi & 0xffff), __ATOMIC_RELEASE);
	*(volatile uint64_t *)ring.bf.reg = first;
}

/* The completion of the WQE, read by hand: the library knows nothing of it. */
static uint8_t completed(void)
{
	struct mlx5dv_cq send;
	struct mlx5dv_obj obj = { .cq = { .in = tx.send_cq, .out = &send } };
	struct mlx5_cqe64 *cqe;
	uint8_t op_own;

	memset(&send, 0, sizeof(send));
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), 0);
	cqe = (struct mlx5_cqe64 *)send.buf + (send_ci & (send.cqe_cnt - 1));
	do {
		op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);
	} while (op_own >> 4 == MLX5_CQE_INVALID || (op_own & 1) != !!(send_ci & send.cqe_cnt));
	send_ci++;
	send.dbrec[0] = htobe32(send_ci & 0xffffff);
	return op_own >> 4 == MLX5_CQE_REQ ? 0 : ((struct mlx5_err_cqe *)cqe)->syndrome;
}

static void post(struct wqe *w)
{
	post_as(w, 0);
	check_eq(completed(), 0);
}

/* --- received CQEs ------------------------------------------------------------------------------------- */

static struct mlx5_cqe64 *next_cqe(void)
{
	struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)cq.buf + (ci & (cq.cqe_cnt - 1));
	uint8_t op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);

	check(op_own >> 4 == MLX5_CQE_RESP_SEND && (op_own & 1) == !!(ci & cq.cqe_cnt));
	ci++;
	return cqe;
}

/* --- tests ---------------------------------------------------------------------------------------------- */

static uint32_t make(uint8_t *f, bool tcp, uint32_t payload)
{
	uint32_t at = put_ip4(f, put_eth(f, 0, here, there, 0x0800), tcp ? 6 : 17, 1, 2,
			      (tcp ? 20 : 8) + payload);

	at = tcp ? put_tcp(f, at, 1, 2, 0x10) : put_udp(f, at, 1, 2, payload);
	pattern_fill(f + at, payload, payload);
	return at + payload;
}

/* A header of any length in the WQE, the rest by pointer: the frame is the same. */
static void inline_headers(void)
{
	uint32_t len;
	struct wqe w;

	open_all();
	len = make(mem, false, 150);
	for (uint16_t n = 0; n <= 150; n++) {
		begin(&w, MLX5_OPCODE_SEND, mem, n);
		pointer(&w, mem + n, len - n);
		post(&w);
		station_expect(&rx, mem, len);
	}
	close_all();
}

static void inserted_tags(void)
{
	uint32_t len;
	uint8_t f[256];

	open_all();
	len = make(mem, false, 100);
	for (int s = 0; s < 2; s++) {
		struct wqe w;
		struct mlx5_wqe_eth_seg *eth = begin(&w, MLX5_OPCODE_SEND, "", 0);

		eth->inline_hdr_sz = htobe16((uint16_t)(INSERT_VLAN | s));
		put16(eth->inline_hdr_start, 0x6123);
		pointer(&w, mem, len);
		post(&w);
		memcpy(f, mem, 12);
		put16(f + 12, s ? 0x88a8 : 0x8100);
		put16(f + 14, 0x6123);
		memcpy(f + 16, mem + 12, len - 12);
		station_expect(&rx, f, len + 4);
	}
	close_all();
}

static uint32_t make_tunnel(uint8_t *f)
{
	uint32_t at = put_eth(f, 0, here, there, 0x0800);

	at = put_ip4(f, at, 17, 1, 2, 8 + 8 + 14 + 20 + 20 + 30);
	put16(f + 24, 0);
	at = put_udp(f, at, 9, 4789, 8 + 14 + 20 + 20 + 30);
	memset(f + at, 0, 8);
	f[at] = 8;
	at = put_eth(f, at + 8, 5, 6, 0x0800);
	at = put_ip4(f, at, 6, 3, 4, 50);
	put16(f + 50 + 14 + 10, 0);
	at = put_tcp(f, at, 7, 8, 0x10);
	pattern_fill(f + at, 30, 1);
	return at + 30;
}

/* Inner and outer sums, found by the card, or where the software parser's offsets say. */
static void checksums(void)
{
	enum { IN_IP = 64, IN_TCP = 84 };
	struct got got;
	uint32_t len;

	open_all();
	len = make_tunnel(mem);
	for (int swp = 0; swp < 2; swp++) {
		struct wqe w;
		struct mlx5_wqe_eth_seg *eth = begin(&w, MLX5_OPCODE_SEND, "", 0);

		eth->cs_flags = ALL;
		if (swp) {
			uint8_t offsets[4] = { 34 / 2, 14 / 2, IN_TCP / 2, IN_IP / 2 };

			memcpy(&eth->rsvd0, offsets, 4);
			eth->rsvd1 = 0x20; /* the outer L4 is UDP */
		}
		pointer(&w, mem, len);
		post(&w);
		station_get(&rx, &got);
		check_eq(got.len, len);
		check(ip4_right(got.data, 14) && ip4_right(got.data, IN_IP));
		check(l4_right(got.data, 14) && l4_right(got.data, IN_IP));
	}
	close_all();
}

/* Several frames in a WQE, by pointers and inlined. */
static void multi_packet(void)
{
	static uint8_t f[8][256];
	uint32_t lens[8];
	struct got got;
	struct wqe w;

	open_all();
	for (int round = 0; round < 20; round++) {
		begin(&w, OP_EMPW, "", 0)->cs_flags = L3_OUTER | L4_OUTER;
		for (uint32_t i = 0; i < 8; i++) {
			lens[i] = make(f[i], false, 30 + i * 7);
			memcpy(mem + i * 256, f[i], lens[i]);
			if (i & 1)
				inlined(&w, f[i], lens[i]);
			else
				pointer(&w, mem + i * 256, lens[i]);
		}
		post(&w);
		for (uint32_t i = 0; i < 8; i++) {
			station_get(&rx, &got);
			check_eq(got.len, lens[i]);
			check(l4_right(got.data, 14));
			check(!memcmp(got.data + 42, f[i] + 42, lens[i] - 42));
		}
		station_quiet(&rx);
		/* The older kind: all of one length. */
		begin(&w, OP_MPW, "", 0)->mss = htobe16(100);
		for (uint32_t i = 0; i < 5; i++) {
			make(f[i], false, 58);
			f[i][99] = (uint8_t)i;
			memcpy(mem + i * 100, f[i], 100);
		}
		pointer(&w, mem, 100);
		pointer(&w, mem + 100, 400);
		post(&w);
		for (uint32_t i = 0; i < 5; i++) {
			station_get(&rx, &got);
			check_eq(got.len, 100);
			check(!memcmp(got.data, f[i], 100));
		}
		station_quiet(&rx);
	}
	close_all();
}

static void large_send(void)
{
	struct mlx5_wqe_eth_seg *eth;
	uint8_t header[54];
	struct got got;
	struct wqe w;

	open_all();
	make(header, true, 0);
	pattern_fill(mem, 2500, 2);
	eth = begin(&w, OP_LSO, header, sizeof(header));
	eth->mss = htobe16(1000);
	eth->cs_flags = L3_OUTER | L4_OUTER;
	pointer(&w, mem, 700);
	pointer(&w, mem + 700, 1800);
	post(&w);
	for (uint32_t i = 0; i < 3; i++) {
		station_get(&rx, &got);
		check_eq(got.len, i < 2 ? 1054 : 554);
		check(ip4_right(got.data, 14) && l4_right(got.data, 14));
		check(!memcmp(got.data + 54, mem + i * 1000, got.len - 54));
	}
	station_quiet(&rx);
	close_all();
}

/* Offsets of the software parser say where sums go, not what the receiver sees: that the segments have a tag. */
static void large_send_by_offsets(void)
{
	enum { IP = 18, TCP = IP + 20, HEADER = TCP + 20, TAG = 0x123 };
	static const uint8_t offsets[4] = { TCP / 2, IP / 2, 0, 0 };
	uint8_t header[HEADER];
	struct mlx5_wqe_eth_seg *eth;
	struct got got;
	struct wqe w;
	uint32_t at;

	open_all();
	at = put_tag(header, put_eth(header, 0, here, there, 0x8100), TAG, 0x0800);
	put_tcp(header, put_ip4(header, at, 6, 1, 2, 20), 1, 2, 0x10);
	pattern_fill(mem, 2000, 2);
	eth = begin(&w, OP_LSO, header, sizeof(header));
	eth->mss = htobe16(1000);
	eth->cs_flags = L3_OUTER | L4_OUTER;
	memcpy(&eth->rsvd0, offsets, sizeof(offsets));
	pointer(&w, mem, 2000);
	post(&w);
	for (uint32_t i = 0; i < 2; i++) {
		station_get(&rx, &got);
		check_eq(got.len, HEADER + 1000);
		check_eq(got.vlan, TAG);
		check(ip4_right(got.data, IP) && l4_right(got.data, IP));
	}
	station_quiet(&rx);
	close_all();
}

/* The bytes of a frame's CQE. */
static void cqe_fields(void)
{
	static const struct {
		bool tcp, bad_sum, tunnel;
		uint8_t types, right, tunneled;
	} cases[] = {
		{ false, false, false, 2 << 2 | 2 << 4, 7, 0 },
		{ true, false, false, 2 << 2 | 4 << 4, 7, 0 },
		{ true, true, false, 2 << 2 | 4 << 4, 3, 0 },
		{ true, false, true, 2 << 2 | 4 << 4, 7, 1 },
	};

	open_all();
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t len = cases[i].tunnel ? make_tunnel(mem) : make(mem, cases[i].tcp, 100);
		const uint8_t *bytes, *data = rx.buf + (size_t)i * STATION_SLOT;
		struct mlx5_cqe64 *cqe;
		struct wqe w;

		begin(&w, MLX5_OPCODE_SEND, "", 0)->cs_flags =
			(uint8_t)(cases[i].bad_sum ? L3_OUTER : ALL);
		pointer(&w, mem, len);
		post(&w);
		cqe = next_cqe();
		bytes = (const uint8_t *)cqe;
		check_eq(be32toh(cqe->byte_cnt), len);
		check_eq(bytes[0], cases[i].tunneled);
		check_eq(cqe->hds_ip_ext, cases[i].right);
		check_eq(cqe->l4_hdr_type_etc, cases[i].types);
		check_eq(bytes[20] << 8 | bytes[21], sum_of(data + 14, len - 14, 0));
		check_eq(be32toh(cqe->srqn_uidx) & 0xffffff, rx.qp->qp_num);
		check_eq(be32toh(cqe->sop_drop_qpn) & 0xffffff, 0); /* no flow tag */
		check_eq(be32toh(cqe->imm_inval_pkey), 0);          /* no metadata */
		check_eq(be16toh(cqe->wqe_counter), i);
	}
	close_all();
}

/* --- WQEs that cannot be ------------------------------------------------------------------------------- */

static void refused(struct wqe *w, uint32_t ds, uint8_t syndrome)
{
	post_as(w, ds);
	check_eq(completed(), syndrome);
	station_quiet(&rx);
	check_eq(qp_get_state(tx.qp), IBV_QPS_SQE);
	close_all();
}

static void bad_wqes(void)
{
	enum { LENGTH = 1, OPERATION = 2, PROTECTION = 4 };
	struct mlx5_wqe_eth_seg *eth;
	uint8_t header[100] = { 0 };
	struct wqe w;

	open_all();
	begin(&w, MLX5_OPCODE_SEND, "", 0); /* no data */
	refused(&w, 0, LENGTH);
	open_all();
	begin(&w, MLX5_OPCODE_SEND, "", 0)->inline_hdr_sz = htobe16(1000); /* beyond the WQE */
	pointer(&w, mem, 100);
	refused(&w, 0, OPERATION);
	open_all();
	begin(&w, MLX5_OPCODE_SEND, "", 0);
	refused(&w, 1, OPERATION); /* no Ethernet segment */
	open_all();
	begin(&w, MLX5_OPCODE_SEND, "", 0);
	mlx5dv_set_data_seg(take(&w, UNIT), 100, 0x1234, (uintptr_t)mem);
	refused(&w, 0, PROTECTION);
	open_all();
	begin(&w, OP_MPW, "", 0); /* no length */
	pointer(&w, mem, 100);
	refused(&w, 0, LENGTH);
	open_all();
	begin(&w, OP_MPW, "", 0)->mss = htobe16(60);
	pointer(&w, mem, 100); /* no multiple of it */
	refused(&w, 0, LENGTH);
	open_all();
	begin(&w, OP_EMPW, "", 0);
	pointer(&w, mem, 13);
	refused(&w, 0, LENGTH);
	open_all();
	begin(&w, OP_LSO, "", 0)->mss = htobe16(100); /* no header */
	pointer(&w, mem, 300);
	refused(&w, 0, OPERATION);
	open_all();
	make(header, true, 0);
	begin(&w, OP_LSO, header, 54); /* no mss */
	pointer(&w, mem, 300);
	refused(&w, 0, OPERATION);
	open_all();
	eth = begin(&w, OP_LSO, header, 20); /* the header ends before TCP */
	eth->mss = htobe16(100);
	pointer(&w, mem, 300);
	refused(&w, 0, OPERATION);
	open_all();
	eth = begin(&w, OP_LSO, header, 54);
	eth->mss = htobe16(9200); /* segments that are too long */
	pointer(&w, mem, 20000);
	refused(&w, 0, LENGTH);
	open_all();
	eth = begin(&w, MLX5_OPCODE_SEND, "", 0);
	eth->rsvd0 = htobe32(0xff000000); /* the L4 header is outside of the frame */
	eth->cs_flags = L4_OUTER;
	pointer(&w, mem, 100);
	refused(&w, 0, OPERATION);
	open_all();
	begin(&w, MLX5_OPCODE_RDMA_WRITE, "", 0);
	pointer(&w, mem, 100);
	refused(&w, 0, OPERATION);
}

int main(void)
{
	if (!enter_namespaces(CLONE_NEWNET))
		test_skip("no network namespace: %s", strerror(errno));
	inline_headers();
	inserted_tags();
	checksums();
	multi_packet();
	large_send();
	large_send_by_offsets();
	cqe_fields();
	bad_wqes();
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * Unreliable datagrams: the GRH in front of what is received, answers with ibv_create_ah_from_wc(), and all that is
 * dropped without a word (wrong qkey, no receive, no such QP, longer than the MTU).
 */
#include "end.h"

#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

enum { GRH = 40 };

static void open_pair(struct end *a, struct end *b, enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_UD);

	end_pair_open(a, b, place, attr);
}

static int mtu_bytes(struct end *end)
{
	return 128 << end->node->mtu;
}

static struct end_wr datagram(struct end *a, struct end *b, uint64_t wr_id, uint32_t len)
{
	struct end_wr wr = end_wr_send(a, wr_id, len);

	wr.to = b->self;
	return wr;
}

static void post_recv(struct end *end, uint64_t wr_id, uint32_t len)
{
	check_eq(end_post_recv(end, wr_id, end->self.addr + 8192, len, end->lkey), 0);
}

/* mlx5 tells the network in wc.sl (ud_networks.c has all of them): here over UDP. */
static int expected_sl(struct end *a)
{
	enum { PART_MLX4 = 4099 };
	struct ibv_device_attr attr;

	check_eq(ibv_query_device(a->node->ctx, &attr), 0);
	if (attr.vendor_part_id == PART_MLX4)
		return 0;
	return IN6_IS_ADDR_V4MAPPED((struct in6_addr *)&a->node->gid) ? 10 : 9;
}

static void deliver(enum end_place place)
{
	struct end a, b;

	open_pair(&a, &b, place);
	for (int i = 0; i < 14; i++) {
		static const int sizes[] = { 0,   1,   7,   8,    63,   64,   65,
					     255, 256, 512, 1000, 1023, 1024, -1 };
		uint32_t len = (uint32_t)(sizes[i] < 0 ? mtu_bytes(&a) : sizes[i]);
		struct end_wr wr = datagram(&a, &b, 1, len);
		struct ibv_wc wc;

		end_fill(&a, a.self.addr, len, (uint32_t)i);
		if (i % 2) {
			wr.opcode = IBV_WR_SEND_WITH_IMM;
			wr.imm = htobe32((uint32_t)i);
		}
		post_recv(&b, 2, len + GRH + (uint32_t)i);
		check_eq(end_post_send(&a, &wr), 0);
		end_expect_wc(&a, SQ, 1, IBV_WC_SUCCESS, &wc);
		check_eq(wc.opcode, IBV_WC_SEND);
		end_expect_wc(&b, RQ, 2, IBV_WC_SUCCESS, &wc);
		check_eq(wc.byte_len, len + GRH);
		check_eq(wc.opcode, IBV_WC_RECV);
		check_eq(wc.src_qp, a.self.qpn);
		check(wc.wc_flags & IBV_WC_GRH, "no GRH");
		check_eq(wc.sl, expected_sl(&a));
		check_eq(wc.wc_flags & IBV_WC_WITH_IMM, i % 2 ? IBV_WC_WITH_IMM : 0);
		if (i % 2)
			check_eq(be32toh(wc.imm_data), i);
		end_check(&b, b.self.addr + 8192 + GRH, len, (uint32_t)i);
	}
	end_pair_close(&a, &b);
}

/* The receiver makes its answer's address from what it received; both ends of this one are nodes here. */
static void answer(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_UD);
	struct end a;
	struct node b;
	struct end_wr wr;
	struct ibv_wc wc;
	struct ibv_ah *ah;
	struct ibv_sge sge;
	struct ibv_send_wr send = { .wr_id = 5,
				    .sg_list = &sge,
				    .num_sge = 1,
				    .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	end_open(&a, place, &attr);
	end_connect_to(&a, &a.self, IBV_QPS_RTS);
	node_open(&b, &attr);
	node_connect(&b, NULL);
	check_eq(node_recv(&b, 1, 0, 100 + GRH), 0);
	wr = end_wr_send(&a, 2, 100);
	node_address(&b, &wr.to);
	check_eq(end_post_send(&a, &wr), 0);
	cq_expect_at(__FILE__, __LINE__, b.recv_cq, 1, IBV_WC_SUCCESS, &wc);
	ah = ibv_create_ah_from_wc(b.pd, &wc, (struct ibv_grh *)b.buf, 1);
	check(ah, "%s", strerror(errno));
	post_recv(&a, 6, 50 + GRH);
	sge = (struct ibv_sge){ (uintptr_t)b.buf + 4096, 50, b.mr->lkey };
	send.wr.ud.ah = ah;
	send.wr.ud.remote_qpn = wc.src_qp;
	send.wr.ud.remote_qkey = TEST_QKEY;
	check_eq(ibv_post_send(b.qp, &send, &bad), 0);
	cq_expect(b.send_cq, 5, IBV_WC_SUCCESS);
	end_expect_wc(&a, RQ, 6, IBV_WC_SUCCESS, &wc);
	check_eq(wc.byte_len, 50 + GRH);
	check_eq(ibv_destroy_ah(ah), 0);
	node_close(&b);
	end_close(&a);
}

/* Send the bad one, then a good one: only the good one arrives, both senders succeed. */
static void expect_dropped(struct end *a, struct end *b, struct end_wr bad)
{
	struct end_wr good = datagram(a, b, 9, 33);
	struct ibv_wc wc;

	check_eq(end_post_send(a, &bad), 0);
	end_expect(a, SQ, bad.wr_id, IBV_WC_SUCCESS);
	/* The receiver looks, so that what is on its way arrives before there is a receive for it. */
	check(!end_poll(b, RQ, &wc, 20), "it arrived");
	post_recv(b, 10, 4096);
	check_eq(end_post_send(a, &good), 0);
	end_expect(a, SQ, 9, IBV_WC_SUCCESS);
	end_expect_wc(b, RQ, 10, IBV_WC_SUCCESS, &wc);
	check_eq(wc.byte_len, 33 + GRH);
	check(!end_poll(b, RQ, &wc, 5), "something more arrived");
}

static void dropped(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;
	struct ibv_wc wc;

	open_pair(&a, &b, place);
	wr = datagram(&a, &b, 1, 64); /* no receive is posted */
	expect_dropped(&a, &b, wr);
	wr.to.qpn ^= 0x400; /* no such QP */
	expect_dropped(&a, &b, wr);
	wr.to = b.self;
	wr.qkey = TEST_QKEY + 1;
	/* With a receive posted for it, which the wrong qkey must not take. */
	post_recv(&b, 10, 4096);
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 1, IBV_WC_SUCCESS);
	wr = datagram(&a, &b, 9, 33);
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 9, IBV_WC_SUCCESS);
	end_expect_wc(&b, RQ, 10, IBV_WC_SUCCESS, &wc);
	check_eq(wc.byte_len, 33 + GRH);
	end_pair_close(&a, &b);
}

/* The most significant bit of the qkey means: use the QP's own. IB specification 10.2.5. */
static void controlled_qkey(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	open_pair(&a, &b, place);
	wr = datagram(&a, &b, 1, 64);
	wr.qkey = 0x80000000u;
	post_recv(&b, 2, 4096);
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 1, IBV_WC_SUCCESS);
	end_expect(&b, RQ, 2, IBV_WC_SUCCESS);
	end_pair_close(&a, &b);
}

static void recv_too_small(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	open_pair(&a, &b, place);
	wr = datagram(&a, &b, 1, 64);
	post_recv(&b, 2, 64 + GRH - 1); /* the GRH was forgotten, as in many first programs */
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 1, IBV_WC_SUCCESS);
	end_expect(&b, RQ, 2, IBV_WC_LOC_LEN_ERR);
	end_pair_close(&a, &b);
}

/* Longer than the MTU: refused, or completed with or without an error, but never delivered (C10-93.1.1). */
static void too_long(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;
	struct ibv_wc wc;

	open_pair(&a, &b, place);
	post_recv(&b, 2, 16384);
	wr = datagram(&a, &b, 1, (uint32_t)mtu_bytes(&a) + 1);
	if (end_post_send(&a, &wr) == 0) {
		check(end_poll(&a, SQ, &wc, PATIENCE_MS), "no completion");
		check(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_LOC_LEN_ERR, "%s",
		      ibv_wc_status_str(wc.status));
	}
	check(!end_poll(&b, RQ, &wc, 10), "it was delivered");
	end_pair_close(&a, &b);
}

/* Only SEND exists here. */
static void no_rdma(enum end_place place)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						  IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct end a, b;

	open_pair(&a, &b, place);
	for (int i = 0; i < 3; i++) {
		struct end_wr wr = datagram(&a, &b, 1, 8);
		struct ibv_wc wc;

		wr.opcode = ops[i];
		if (end_post_send(&a, &wr))
			continue;
		check(end_poll(&a, SQ, &wc, PATIENCE_MS), "no completion");
		check_status(&wc, IBV_WC_LOC_QP_OP_ERR);
		end_connect(&a, &b);
	}
	end_pair_close(&a, &b);
}

int main(int argc, char **argv)
{
	static const struct end_case cases[] = {
		{ "delivery with GRH", deliver },
		{ "answer by ah_from_wc", answer },
		{ "dropped datagrams", dropped },
		{ "controlled qkey", controlled_qkey },
		{ "receive too small", recv_too_small },
		{ "longer than the MTU", too_long },
		{ "no RDMA", no_rdma },
	};

	end_main(argc, argv);
	return end_run_cases("ud", cases, sizeof(cases) / sizeof(cases[0]));
}

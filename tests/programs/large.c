// SPDX-License-Identifier: MIT
/*
 * Messages so large that the target fetches them itself instead of having them sent: that they arrive, whole and in
 * order, and that what can go wrong on either side ends as it does for small ones. End a is the requester.
 */
#include "end.h"

#include <string.h>
#include <sys/mman.h>

enum { SMALL = 4096, LARGE = 3 << 20, SIZE = 2 * LARGE + SMALL };
enum { WR_SEND = 100, WR_RECV = 200 };

static void open_pair(struct end *a, struct end *b, enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = SIZE;
	attr.rnr_retry = 7;
	attr.min_rnr_timer = 1;
	end_open(a, HERE, &attr);
	end_open(b, place, &attr);
	end_connect(a, b);
}

static void close_pair(struct end *a, struct end *b)
{
	end_close(a);
	end_close(b);
}

static void post_recv(struct end *end, uint64_t wr_id, uint32_t len)
{
	check_eq(end_post_recv(end, wr_id, end->self.addr + LARGE, len, end->lkey), 0);
}

static struct end_wr large_send(struct end *a, uint64_t wr_id, uint32_t len, uint32_t seed)
{
	struct end_wr wr = end_wr_send(a, wr_id, len);

	end_fill(a, wr.sge[0].addr, len, seed);
	return wr;
}

/* A large request and a small one behind it arrive in this order, with all bytes. */
static void one_size(struct end *a, struct end *b, enum ibv_wr_opcode opcode, uint32_t len)
{
	struct end_wr wr = large_send(a, WR_SEND, len, len);
	struct end_wr last = end_wr_send(a, WR_SEND + 1, 8);
	uint64_t to = b->self.addr + LARGE;
	struct ibv_wc wc;

	wr.opcode = opcode;
	wr.remote = to;
	wr.rkey = b->self.rkey;
	if (opcode != IBV_WR_RDMA_WRITE)
		post_recv(b, WR_RECV, len);
	check_eq(end_post_recv(b, WR_RECV + 1, b->self.addr, 8, b->lkey), 0);
	check_eq(end_post_send(a, &wr), 0);
	check_eq(end_post_send(a, &last), 0);
	if (opcode != IBV_WR_RDMA_WRITE) {
		end_expect_wc(b, RQ, WR_RECV, IBV_WC_SUCCESS, &wc);
		check_eq(wc.byte_len, len);
	}
	end_expect(b, RQ, WR_RECV + 1, IBV_WC_SUCCESS);
	end_check(b, to, len, len);
	end_expect(a, SQ, WR_SEND, IBV_WC_SUCCESS);
	end_expect(a, SQ, WR_SEND + 1, IBV_WC_SUCCESS);
}

static void sizes(enum end_place place)
{
	static const uint32_t len[] = { 65535,   65536,         65537,   100000,
					1 << 20, (1 << 20) + 1, 2 << 20, (2 << 20) + 5000,
					LARGE };
	struct end a, b;

	open_pair(&a, &b, place);
	for (size_t i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
		one_size(&a, &b, IBV_WR_SEND, len[i]);
		one_size(&a, &b, IBV_WR_RDMA_WRITE, len[i]);
		one_size(&a, &b, IBV_WR_RDMA_WRITE_WITH_IMM, len[i]);
	}
	close_pair(&a, &b);
}

/* A receive that comes late: nothing is lost, and nothing done twice. */
static void receive_comes_late(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	open_pair(&a, &b, place);
	wr = large_send(&a, WR_SEND, LARGE, 1);
	check_eq(end_post_send(&a, &wr), 0);
	sleep_ms(5);
	post_recv(&b, WR_RECV, LARGE);
	end_expect(&b, RQ, WR_RECV, IBV_WC_SUCCESS);
	end_expect(&a, SQ, WR_SEND, IBV_WC_SUCCESS);
	end_check(&b, b.self.addr + LARGE, LARGE, 1);
	close_pair(&a, &b);
}

/*
 * WRITE with immediate data behind a message that is in flight, so that it goes in packets, and no receive for it when
 * its last packet comes. The second try must not take another way: the packets that have arrived are not sent twice.
 */
static void immediate_comes_late(enum end_place place)
{
	static const uint32_t len[] = { 9000, 60000, 100000, LARGE };
	struct end a, b;

	open_pair(&a, &b, place);
	for (int i = 0; i < 4; i++) {
		struct end_wr first = end_wr_send(&a, WR_SEND, 8), wr;
		struct ibv_wc wc;

		wr = large_send(&a, WR_SEND + 1, len[i], len[i]);
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.imm = 7;
		wr.remote = b.self.addr + LARGE;
		wr.rkey = b.self.rkey;
		check_eq(end_post_recv(&b, WR_RECV, b.self.addr, 8, b.lkey), 0);
		check_eq(end_post_send(&a, &first), 0);
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&b, RQ, WR_RECV, IBV_WC_SUCCESS);
		sleep_ms(5);
		check_eq(end_post_recv(&b, WR_RECV + 1, 0, 0, 0), 0);
		end_expect_wc(&b, RQ, WR_RECV + 1, IBV_WC_SUCCESS, &wc);
		check_eq(wc.byte_len, len[i]);
		end_expect(&a, SQ, WR_SEND, IBV_WC_SUCCESS);
		end_expect(&a, SQ, WR_SEND + 1, IBV_WC_SUCCESS);
		end_check(&b, b.self.addr + LARGE, len[i], len[i]);
	}
	close_pair(&a, &b);
}

/* The sender's memory is gone. */
static void source_missing(enum end_place place)
{
	struct end a, b;
	struct end_mr mr;
	struct end_wr wr;
	uint64_t mem;

	open_pair(&a, &b, place);
	mem = end_map(&a, LARGE, PROT_READ | PROT_WRITE);
	check_eq(end_reg(&a, mem, LARGE, mem, IBV_ACCESS_LOCAL_WRITE, false, &mr), 0);
	end_unmap(&a, mem + LARGE / 2, LARGE / 2, true);
	post_recv(&b, WR_RECV, LARGE);
	wr = end_wr_send(&a, WR_SEND, LARGE);
	wr.sge[0].addr = mem;
	wr.sge[0].lkey = mr.key;
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, WR_SEND, IBV_WC_LOC_PROT_ERR);
	end_expect_state(&a, IBV_QPS_ERR);
	check_eq(end_state(&b), IBV_QPS_RTS);
	close_pair(&a, &b);
}

/* The receiver's memory is gone, or was made read-only. */
static void buffer_missing(enum end_place place)
{
	struct end a, b;
	struct end_mr mr;
	struct end_wr wr;
	uint64_t mem;

	open_pair(&a, &b, place);
	mem = end_map(&b, LARGE, PROT_READ | PROT_WRITE);
	check_eq(end_reg(&b, mem, LARGE, mem, ACCESS_ALL, false, &mr), 0);
	end_unmap(&b, mem + LARGE / 2, LARGE / 2, true);
	check_eq(end_post_recv(&b, WR_RECV, mem, LARGE, mr.key), 0);
	wr = large_send(&a, WR_SEND, LARGE, 1);
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&b, RQ, WR_RECV, IBV_WC_LOC_PROT_ERR);
	end_expect(&a, SQ, WR_SEND, IBV_WC_REM_OP_ERR);
	end_connect(&a, &b);
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.remote = mem;
	wr.rkey = mr.key;
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, WR_SEND, IBV_WC_REM_ACCESS_ERR);
	end_expect_state(&b, IBV_QPS_ERR);
	close_pair(&a, &b);
}

/* IBTA 9.7.5.2.3: longer than the receive. Nothing is written behind its end. */
static void receive_too_small(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	open_pair(&a, &b, place);
	end_fill(&b, b.self.addr + LARGE, LARGE, 2);
	post_recv(&b, WR_RECV, LARGE - 1);
	wr = large_send(&a, WR_SEND, LARGE, 1);
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&b, RQ, WR_RECV, IBV_WC_LOC_LEN_ERR);
	end_expect(&a, SQ, WR_SEND, IBV_WC_REM_INV_REQ_ERR);
	close_pair(&a, &b);
}

/* Memory that was deregistered is not read any more, whatever becomes of the message. */
static void deregistered(enum end_place place)
{
	struct end a, b;
	uint64_t mem;

	open_pair(&a, &b, place);
	mem = end_map(&a, LARGE, PROT_READ | PROT_WRITE);
	for (int i = 0; i < campaign(20, 500); i++) {
		struct end_wr wr = end_wr_send(&a, WR_SEND, LARGE);
		struct end_mr mr;
		struct ibv_wc wc;

		end_fill(&a, mem, LARGE, 1);
		check_eq(end_reg(&a, mem, LARGE, mem, IBV_ACCESS_LOCAL_WRITE, false, &mr), 0);
		wr.sge[0].addr = mem;
		wr.sge[0].lkey = mr.key;
		post_recv(&b, WR_RECV, LARGE);
		check_eq(end_post_send(&a, &wr), 0);
		check_eq(end_dereg(&a, &mr), 0);
		end_fill(&a, mem, LARGE, 2);
		check(end_poll(&a, SQ, &wc, PATIENCE_MS), "no completion");
		if (wc.status == IBV_WC_SUCCESS) {
			end_expect(&b, RQ, WR_RECV, IBV_WC_SUCCESS);
			end_check(&b, b.self.addr + LARGE, LARGE, 1);
		} else {
			check_status(&wc, IBV_WC_LOC_PROT_ERR);
			end_connect(&a, &b);
		}
	}
	close_pair(&a, &b);
}

int main(int argc, char **argv)
{
	static const struct end_case cases[] = {
		{ "sizes", sizes },
		{ "receive comes late", receive_comes_late },
		{ "receive for immediate data comes late", immediate_comes_late },
		{ "source missing", source_missing },
		{ "buffer missing", buffer_missing },
		{ "receive too small", receive_too_small },
		{ "source deregistered", deregistered },
	};

	end_main(argc, argv);
	return end_run_cases("large", cases, sizeof(cases) / sizeof(cases[0]));
}

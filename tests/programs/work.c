// SPDX-License-Identifier: MIT
/*
 * Every work request that ibv_post_send() has, on RC and UC, over the sizes where implementations break: nothing, one
 * byte, around cache lines, around the MTU, around what fits inline, around the chunk sizes of shared memory, 1 MiB.
 */
#include "end.h"

#include <errno.h>
#include <endian.h>

enum { BIG = 1024 * 1024, AREA = 2 * BIG + 65536 };

static const uint32_t sizes[] = { 0,     1,     2,      3,      4,       7,     8,     63,    64,
				  65,    127,   128,    129,    255,     256,   257,   511,   512,
				  513,   1023,  1024,   1025,   2047,    2048,  2049,  4095,  4096,
				  4097,  8191,  8192,   8193,   16383,   16384, 16385, 32768, 65535,
				  65536, 65537, 131072, 262143, 1000003, BIG };
enum { NUM_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void open_pair(struct end *a, struct end *b, enum end_place place, enum ibv_qp_type type)
{
	struct node_attr attr = node_attr(type);

	attr.size = AREA;
	attr.cap.max_inline_data = 256;
	end_pair_open(a, b, place, attr);
}

/* Where message i lies, so that source and destination have different and odd alignments. */
static uint64_t place_of(const struct end *end, int i, bool destination)
{
	return end->self.addr + 64 + (uint64_t)(destination ? i * 5 % 61 : i * 7 % 59);
}

static void expect_recv(struct end *b, uint64_t wr_id, uint32_t len, enum ibv_wc_opcode opcode,
			const uint32_t *imm)
{
	struct ibv_wc wc;

	end_expect_wc(b, RQ, wr_id, IBV_WC_SUCCESS, &wc);
	check_eq(wc.byte_len, len);
	check_eq(wc.opcode, opcode);
	check_eq(wc.qp_num, b->self.qpn);
	check_eq(wc.wc_flags & IBV_WC_WITH_IMM, imm ? IBV_WC_WITH_IMM : 0);
	if (imm)
		check_eq(be32toh(wc.imm_data), *imm);
}

static void expect_send(struct end *a, uint64_t wr_id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	end_expect_wc(a, SQ, wr_id, IBV_WC_SUCCESS, &wc);
	check_eq(wc.opcode, opcode);
	check_eq(wc.qp_num, a->self.qpn);
}

/* A message at the edge: the bytes before and behind it stay as they were. */
static void expect_bytes(struct end *end, uint64_t addr, uint32_t len, uint32_t seed)
{
	end_check(end, addr, len, seed);
	check_eq(end_read64(end, addr - 8), 0x1122334455667788);
	check_eq(end_read64(end, addr + len), 0x1122334455667788);
}

static void prepare(struct end *from, uint64_t src, struct end *to, uint64_t dst, uint32_t len,
		    uint32_t seed)
{
	end_fill(from, src, len, seed);
	end_fill(to, dst, len, ~seed);
	end_write64(to, dst - 8, 0x1122334455667788);
	end_write64(to, dst + len, 0x1122334455667788);
}

static void all_sends(enum end_place place, enum ibv_qp_type type)
{
	struct end a, b;

	open_pair(&a, &b, place, type);
	for (int i = 0; i < NUM_SIZES * 2; i++) {
		uint32_t len = sizes[i / 2], imm = 0xc0000000u + (uint32_t)i;
		uint64_t src = place_of(&a, i, false), dst = place_of(&b, i, true);
		struct end_wr wr = end_wr_send(&a, (uint64_t)i, len);

		prepare(&a, src, &b, dst, len, (uint32_t)i);
		wr.sge[0].addr = src;
		if (i % 2) {
			wr.opcode = IBV_WR_SEND_WITH_IMM;
			wr.imm = htobe32(imm);
		}
		/* Alternately a buffer that just fits and one with room. */
		check_eq(
			end_post_recv(&b, 1000 + (uint64_t)i, dst, len + (i % 2 ? 100 : 0), b.lkey),
			0);
		check_eq(end_post_send(&a, &wr), 0);
		expect_send(&a, (uint64_t)i, IBV_WC_SEND);
		expect_recv(&b, 1000 + (uint64_t)i, len, IBV_WC_RECV, i % 2 ? &imm : NULL);
		expect_bytes(&b, dst, len, (uint32_t)i);
	}
	end_pair_close(&a, &b);
}

static void sends_rc(enum end_place place)
{
	all_sends(place, IBV_QPT_RC);
}

static void sends_uc(enum end_place place)
{
	all_sends(place, IBV_QPT_UC);
}

static void all_writes(enum end_place place, enum ibv_qp_type type)
{
	struct end a, b;

	open_pair(&a, &b, place, type);
	for (int i = 0; i < NUM_SIZES * 2; i++) {
		uint32_t len = sizes[i / 2], imm = 0xd0000000u + (uint32_t)i;
		uint64_t src = place_of(&a, i, false), dst = place_of(&b, i, true);
		bool with_imm = i % 2 || type == IBV_QPT_UC; /* the only way to see UC arrive */
		struct end_wr wr = end_wr_rdma(&a, (uint64_t)i, IBV_WR_RDMA_WRITE, len, &b);

		prepare(&a, src, &b, dst, len, (uint32_t)i);
		wr.sge[0].addr = src;
		wr.remote = dst;
		if (with_imm) {
			wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
			wr.imm = htobe32(imm);
			/* The receive's own buffer is not touched: it needs none. */
			check_eq(end_post_recv(&b, 1000, 0, 0, 0), 0);
		}
		check_eq(end_post_send(&a, &wr), 0);
		expect_send(&a, (uint64_t)i, IBV_WC_RDMA_WRITE);
		if (with_imm)
			expect_recv(&b, 1000, len, IBV_WC_RECV_RDMA_WITH_IMM, &imm);
		expect_bytes(&b, dst, len, (uint32_t)i);
	}
	end_pair_close(&a, &b);
}

static void writes_rc(enum end_place place)
{
	all_writes(place, IBV_QPT_RC);
}

static void writes_uc(enum end_place place)
{
	all_writes(place, IBV_QPT_UC);
}

static void reads(enum end_place place)
{
	struct end a, b;

	open_pair(&a, &b, place, IBV_QPT_RC);
	for (int i = 0; i < NUM_SIZES; i++) {
		uint64_t dst = place_of(&a, i, true), src = place_of(&b, i, false);
		struct end_wr wr = end_wr_rdma(&a, (uint64_t)i, IBV_WR_RDMA_READ, sizes[i], &b);

		prepare(&b, src, &a, dst, sizes[i], (uint32_t)i);
		wr.sge[0].addr = dst;
		wr.remote = src;
		check_eq(end_post_send(&a, &wr), 0);
		expect_send(&a, (uint64_t)i, IBV_WC_RDMA_READ);
		expect_bytes(&a, dst, sizes[i], (uint32_t)i);
	}
	end_pair_close(&a, &b);
}

/* The old value comes back, the new one is there, and both are in the host's byte order. */
static void atomics(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;
	struct ibv_wc wc;

	open_pair(&a, &b, place, IBV_QPT_RC);
	end_write64(&b, b.self.addr, 1000);
	for (uint64_t i = 0; i < 100; i++) {
		wr = end_wr_rdma(&a, i, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, &b);
		wr.compare_add = i % 2 ? 0x100000001ull : (uint64_t)-1;
		check_eq(end_post_send(&a, &wr), 0);
		expect_send(&a, i, IBV_WC_FETCH_ADD);
		check_eq(end_read64(&a, a.self.addr), 1000 + i / 2 * 0x100000000ull - i % 2);
	}
	check_eq(end_read64(&b, b.self.addr), 1000 + 50 * 0x100000000ull);
	for (uint64_t i = 0; i < 4; i++) {
		uint64_t before = end_read64(&b, b.self.addr), fits = i % 2;

		wr = end_wr_rdma(&a, i, IBV_WR_ATOMIC_CMP_AND_SWP, 8, &b);
		wr.compare_add = before ^ !fits;
		wr.swap = 0x0123456789abcdefull + i;
		check_eq(end_post_send(&a, &wr), 0);
		end_expect_wc(&a, SQ, i, IBV_WC_SUCCESS, &wc);
		check_eq(wc.opcode, IBV_WC_COMP_SWAP);
		check_eq(end_read64(&a, a.self.addr), before);
		check_eq(end_read64(&b, b.self.addr), fits ? wr.swap : before);
	}
	end_pair_close(&a, &b);
}

/* Inline data is taken at posting: the buffer may change at once, and needs no key. */
static void inline_data(enum end_place place)
{
	struct end a, b;

	open_pair(&a, &b, place, IBV_QPT_RC);
	for (int i = 0; i < 257; i++) {
		struct end_wr wr =
			i % 2 ? end_wr_rdma(&a, 1, IBV_WR_RDMA_WRITE_WITH_IMM, (uint32_t)i, &b)
			      : end_wr_send(&a, 1, (uint32_t)i);
		uint64_t dst = b.self.addr + 64;

		prepare(&a, a.self.addr, &b, dst, (uint32_t)i, (uint32_t)i);
		wr.remote = dst;
		wr.flags |= IBV_SEND_INLINE;
		wr.sge[0].lkey = 0;
		/* Posted before the receive is there, changed behind its back, received then. */
		check_eq(end_post_send(&a, &wr), 0);
		end_fill(&a, a.self.addr, (uint64_t)i, 999);
		check_eq(end_post_recv(&b, 2, dst, (uint32_t)i, b.lkey), 0);
		end_expect(&a, SQ, 1, IBV_WC_SUCCESS);
		end_expect(&b, RQ, 2, IBV_WC_SUCCESS);
		expect_bytes(&b, dst, (uint32_t)i, (uint32_t)i);
	}
	end_pair_close(&a, &b);
}

/* More than the QP was created for is refused at posting. */
static void inline_too_long(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr qa;
	struct end a, b;
	struct end_wr wr;

	attr.cap.max_inline_data = 64;
	end_open(&a, HERE, &attr);
	end_open(&b, place, &attr);
	end_connect(&a, &b);
	check_eq(ibv_query_qp(a.node->qp, &qa, IBV_QP_CAP, &init), 0);
	check(init.cap.max_inline_data >= 64, "%u", init.cap.max_inline_data);
	wr = end_wr_send(&a, 1, init.cap.max_inline_data + 1);
	wr.flags |= IBV_SEND_INLINE;
	check(end_post_send(&a, &wr) != 0, "inline beyond the limit was accepted");
	wr = end_wr_rdma(&a, 2, IBV_WR_RDMA_WRITE, init.cap.max_inline_data, &b);
	wr.flags |= IBV_SEND_INLINE;
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 2, IBV_WC_SUCCESS);
	end_pair_close(&a, &b);
}

/* The key goes with the message, and is dead at the receiver when the message is there. */
static void send_with_invalidate(enum end_place place)
{
	struct end a, b;
	struct end_mr mr;
	struct end_wr wr;
	struct ibv_wc wc;

	open_pair(&a, &b, place, IBV_QPT_RC);
	check_eq(end_reg(&b, b.self.addr, 4096, b.self.addr, ACCESS_ALL, false, &mr), 0);
	wr = end_wr_rdma(&a, 1, IBV_WR_RDMA_WRITE, 8, &b);
	wr.rkey = mr.key;
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 1, IBV_WC_SUCCESS);
	check_eq(end_post_recv(&b, 2, b.self.addr + 8192, 64, b.lkey), 0);
	wr = end_wr_send(&a, 3, 8);
	wr.opcode = IBV_WR_SEND_WITH_INV;
	wr.imm = mr.key;
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 3, IBV_WC_SUCCESS);
	end_expect_wc(&b, RQ, 2, IBV_WC_SUCCESS, &wc);
	check(wc.wc_flags & IBV_WC_WITH_INV, "flags %#x", wc.wc_flags);
	check_eq(wc.invalidated_rkey, mr.key);
	wr = end_wr_rdma(&a, 4, IBV_WR_RDMA_WRITE, 8, &b);
	wr.rkey = mr.key;
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 4, IBV_WC_REM_ACCESS_ERR);
	end_pair_close(&a, &b);
}

static void local_invalidate(enum end_place place)
{
	struct end a, b;
	struct end_mr mr;
	struct end_wr wr,
		inv = { .wr_id = 1, .opcode = IBV_WR_LOCAL_INV, .flags = IBV_SEND_SIGNALED };

	open_pair(&a, &b, place, IBV_QPT_RC);
	check_eq(end_reg(&a, a.self.addr, 4096, a.self.addr, ACCESS_ALL, false, &mr), 0);
	inv.imm = mr.key;
	check_eq(end_post_send(&a, &inv), 0);
	expect_send(&a, 1, IBV_WC_LOCAL_INV);
	wr = end_wr_rdma(&a, 2, IBV_WR_RDMA_WRITE, 8, &b);
	wr.sge[0].lkey = mr.key;
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 2, IBV_WC_LOC_PROT_ERR);
	end_pair_close(&a, &b);
}

/* A fenced request waits for earlier READs; what it sends is what they brought. */
static void fence(enum end_place place)
{
	struct end a, b;

	open_pair(&a, &b, place, IBV_QPT_RC);
	for (int i = 0; i < 50; i++) {
		struct end_wr get = end_wr_rdma(&a, 1, IBV_WR_RDMA_READ, 32768, &b);
		struct end_wr put = end_wr_rdma(&a, 2, IBV_WR_RDMA_WRITE, 32768, &b);

		end_fill(&b, b.self.addr, 32768, (uint32_t)i);
		put.remote += BIG;
		put.flags |= IBV_SEND_FENCE;
		check_eq(end_post_send(&a, &get), 0);
		check_eq(end_post_send(&a, &put), 0);
		end_expect(&a, SQ, 1, IBV_WC_SUCCESS);
		end_expect(&a, SQ, 2, IBV_WC_SUCCESS);
		end_check(&b, b.self.addr + BIG, 32768, (uint32_t)i);
	}
	end_pair_close(&a, &b);
}

/* Only what is signalled completes, and its completion covers what was before it. */
static void unsignalled(enum end_place place)
{
	struct end a, b;
	struct ibv_wc wc;

	open_pair(&a, &b, place, IBV_QPT_RC);
	/* Many times around the queue of 64: unsignalled work gives its slots back. */
	for (uint64_t i = 0; i < 1000; i++) {
		struct end_wr wr = end_wr_rdma(&a, i, IBV_WR_RDMA_WRITE, 8, &b);

		end_write64(&a, a.self.addr, i);
		wr.flags = i % 10 == 9 ? IBV_SEND_SIGNALED | IBV_SEND_INLINE : IBV_SEND_INLINE;
		check_eq(end_post_send(&a, &wr), 0);
		if (i % 10 == 9) {
			end_expect(&a, SQ, i, IBV_WC_SUCCESS);
			check_eq(end_read64(&b, b.self.addr), i);
		}
	}
	check(!end_poll(&a, SQ, &wc, 0), "unsignalled work completed");
	end_pair_close(&a, &b);
}

/* Over the limits: refused at posting, and the queue still works. */
static void posting_limits(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;
	int posted = 0;

	open_pair(&a, &b, place, IBV_QPT_RC);
	wr = end_wr_send(&a, 1, 8);
	wr.num_sge = END_MAX_SGE;
	for (int i = 1; i < END_MAX_SGE; i++)
		wr.sge[i] = wr.sge[0];
	check(end_post_send(&a, &wr) != 0, "more entries than the QP has were accepted");
	/* Waiting sends fill the queue until it says ENOMEM. */
	wr = end_wr_send(&a, 2, 8);
	while (posted < 100000 && end_post_send(&a, &wr) == 0)
		posted++;
	check(posted >= 64 && posted < 100000, "%d posted", posted);
	check_eq(end_post_send(&a, &wr), ENOMEM);
	for (int i = 0; i < posted; i++) {
		check_eq(end_post_recv(&b, 3, b.self.addr, 8, b.lkey), 0);
		end_expect(&a, SQ, 2, IBV_WC_SUCCESS);
		end_expect(&b, RQ, 3, IBV_WC_SUCCESS);
	}
	check_eq(end_post_send(&a, &wr), 0);
	end_pair_close(&a, &b);
}

int main(int argc, char **argv)
{
	static const struct end_case cases[] = {
		{ "SEND on RC", sends_rc },
		{ "SEND on UC", sends_uc },
		{ "WRITE on RC", writes_rc },
		{ "WRITE on UC", writes_uc },
		{ "READ", reads },
		{ "atomics", atomics },
		{ "inline", inline_data },
		{ "inline too long", inline_too_long },
		{ "SEND with invalidate", send_with_invalidate },
		{ "local invalidate", local_invalidate },
		{ "fence", fence },
		{ "unsignalled", unsignalled },
		{ "posting limits", posting_limits },
	};

	end_main(argc, argv);
	return end_run_cases("work", cases, sizeof(cases) / sizeof(cases[0]));
}

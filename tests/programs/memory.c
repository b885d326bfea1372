// SPDX-License-Identifier: MIT
/*
 * Memory regions in every shape, and memory that goes away under one: unmapped, truncated, deregistered. A protection
 * error for whoever used it, and never a crash.
 */
#include "end.h"

#include <errno.h>
#include <sys/mman.h>

enum { PAGE = 4096, REGION = 512 * 1024, HOLE = 256 * 1024 };

static void open_pair(struct end *a, struct end *b, enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = REGION;
	end_pair_open(a, b, place, attr);
}

/* A region whose second half is no longer there: [addr, addr + HOLE) is, the rest is not. */
static struct end_mr make_hole(struct end *end, bool file)
{
	struct end_mr mr;
	uint64_t addr =
		file ? end_map_file(end, REGION) : end_map(end, REGION, PROT_READ | PROT_WRITE);

	check(addr != 0, "no memory");
	end_fill(end, addr, REGION, 77);
	check_eq(end_reg(end, addr, REGION, addr, ACCESS_ALL, false, &mr), 0);
	if (file)
		end_truncate(end);
	else
		end_unmap(end, addr + HOLE, REGION - HOLE, true);
	return mr;
}

static const uint32_t sizes[] = { 8, 2000, 70000, 200000 };

/* Local use of memory that is gone: entirely, and only the end of the message. */
static void local_hole(struct end *a, struct end *b, bool file)
{
	struct end_mr mr = make_hole(a, file);

	for (int i = 0; i < 8; i++) {
		uint32_t len = sizes[i / 2];
		uint64_t start = i % 2 ? mr.addr + HOLE - 4 : mr.addr + HOLE;
		struct end_wr wr = end_wr_send(a, 1, len);

		end_connect(a, b);
		check_eq(end_post_recv(b, 2, b->self.addr, REGION, b->lkey), 0);
		wr.sge[0] = (struct ibv_sge){ start, len, mr.key };
		check_eq(end_post_send(a, &wr), 0);
		end_expect(a, SQ, 1, IBV_WC_LOC_PROT_ERR);
		end_expect_state(a, IBV_QPS_ERR);
		/* As the place where a READ puts its data. */
		end_connect(a, b);
		wr = end_wr_rdma(a, 3, IBV_WR_RDMA_READ, len, b);
		wr.sge[0] = (struct ibv_sge){ start, len, mr.key };
		check_eq(end_post_send(a, &wr), 0);
		end_expect(a, SQ, 3, IBV_WC_LOC_PROT_ERR);
		end_expect_state(a, IBV_QPS_ERR);
	}
	check_eq(end_dereg(a, &mr), 0);
}

static void unmapped_local(enum end_place place)
{
	struct end a, b;

	open_pair(&a, &b, place);
	local_hole(&a, &b, false);
	end_pair_close(&a, &b);
}

static void truncated_local(enum end_place place)
{
	struct end a, b;

	open_pair(&a, &b, place);
	local_hole(&a, &b, true);
	end_pair_close(&a, &b);
}

/* A receive buffer that is gone. */
static void unmapped_receive(enum end_place place)
{
	struct end a, b;
	struct end_mr mr;

	open_pair(&a, &b, place);
	mr = make_hole(&b, false);
	for (int i = 0; i < 4; i++) {
		struct end_wr wr = end_wr_send(&a, 1, sizes[i]);

		end_connect(&a, &b);
		check_eq(end_post_recv(&b, 2, mr.addr + HOLE - 4, 250000, mr.key), 0);
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&b, RQ, 2, IBV_WC_LOC_PROT_ERR);
		end_expect(&a, SQ, 1, IBV_WC_REM_OP_ERR);
		end_expect_state(&a, IBV_QPS_ERR);
		end_expect_state(&b, IBV_QPS_ERR);
	}
	end_pair_close(&a, &b);
}

/* The target of one-sided work is gone: an error for who asked, and the owner lives on. */
static void remote_hole(struct end *a, struct end *b, bool file)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						  IBV_WR_ATOMIC_FETCH_AND_ADD,
						  IBV_WR_ATOMIC_CMP_AND_SWP };
	struct end_mr mr = make_hole(b, file);
	struct end_wr wr;
	struct ibv_wc wc;

	for (int i = 0; i < 16; i++) {
		bool atomic = i / 4 >= 2;

		end_connect(a, b);
		wr = end_wr_rdma(a, 1, ops[i / 4], atomic ? 8 : sizes[i % 4], b);
		wr.rkey = mr.key;
		wr.remote = mr.addr + HOLE - (!atomic && i % 2 ? 4 : 0);
		check_eq(end_post_send(a, &wr), 0);
		check(end_poll(a, SQ, &wc, PATIENCE_MS), "no completion");
		check(wc.status == IBV_WC_REM_ACCESS_ERR, "opcode %d, %u bytes: %s",
		      (int)ops[i / 4], wr.sge[0].length, ibv_wc_status_str(wc.status));
		end_expect_state(a, IBV_QPS_ERR);
		end_expect_state(b, IBV_QPS_ERR);
	}
	if (!file) {
		/* What is left of the region still works. */
		end_connect(a, b);
		end_fill(a, a->self.addr, 4096, 3);
		wr = end_wr_rdma(a, 1, IBV_WR_RDMA_WRITE, 4096, b);
		wr.rkey = mr.key;
		wr.remote = mr.addr;
		check_eq(end_post_send(a, &wr), 0);
		end_expect(a, SQ, 1, IBV_WC_SUCCESS);
		end_check(b, mr.addr, 4096, 3);
	}
	check_eq(end_dereg(b, &mr), 0);
}

static void unmapped_remote(enum end_place place)
{
	struct end a, b;

	open_pair(&a, &b, place);
	remote_hole(&a, &b, false);
	end_pair_close(&a, &b);
}

static void truncated_remote(enum end_place place)
{
	struct end a, b;

	open_pair(&a, &b, place);
	remote_hole(&a, &b, true);
	end_pair_close(&a, &b);
}

/* A write of 8 bytes to the region at iova + 16 arrives at real + 16. */
static void write_through(struct end *a, struct end *b, const struct end_mr *mr, uint64_t real,
			  enum ibv_wc_status want)
{
	struct end_wr wr = end_wr_rdma(a, 1, IBV_WR_RDMA_WRITE, 8, b);

	end_connect(a, b);
	end_write64(a, a->self.addr, 0xabcdef);
	end_write64(b, real + 16, 0);
	wr.rkey = mr->key;
	wr.remote = mr->addr + 16;
	check_eq(end_post_send(a, &wr), 0);
	end_expect(a, SQ, 1, want);
	check_eq(end_read64(b, real + 16), want == IBV_WC_SUCCESS ? 0xabcdef : 0);
}

/* The region's own addresses: any start, zero, several views of the same bytes. */
static void iova(enum end_place place)
{
	struct end a, b;
	struct end_mr moved, zero, whole, part;

	open_pair(&a, &b, place);
	check_eq(end_reg(&b, b.self.addr, 2 * PAGE, 0x7000123000ull, ACCESS_ALL, false, &moved), 0);
	write_through(&a, &b, &moved, b.self.addr, IBV_WC_SUCCESS);
	moved.addr = b.self.addr; /* the process's own address is no address of this region */
	write_through(&a, &b, &moved, b.self.addr, IBV_WC_REM_ACCESS_ERR);
	check_eq(end_reg(&b, b.self.addr + PAGE, PAGE, b.self.addr + PAGE,
			 ACCESS_ALL | IBV_ACCESS_ZERO_BASED, false, &zero),
		 0);
	zero.addr = 0;
	write_through(&a, &b, &zero, b.self.addr + PAGE, IBV_WC_SUCCESS);
	/* Two regions over the same memory, with rights of their own. */
	check_eq(end_reg(&b, b.self.addr, 4 * PAGE, b.self.addr, IBV_ACCESS_REMOTE_READ, false,
			 &whole),
		 0);
	check_eq(
		end_reg(&b, b.self.addr + PAGE, PAGE, b.self.addr + PAGE, ACCESS_ALL, false, &part),
		0);
	write_through(&a, &b, &part, b.self.addr + PAGE, IBV_WC_SUCCESS);
	whole.addr = b.self.addr + PAGE;
	write_through(&a, &b, &whole, b.self.addr + PAGE, IBV_WC_REM_ACCESS_ERR);
	check_eq(end_dereg(&b, &part), 0);
	write_through(&a, &b, &part, b.self.addr + PAGE, IBV_WC_REM_ACCESS_ERR);
	end_pair_close(&a, &b);
}

/* A start in the middle of a page, and a length that is no multiple of anything. */
static void odd_bounds(enum end_place place)
{
	struct end a, b;
	struct end_mr mr;
	struct end_wr wr;

	open_pair(&a, &b, place);
	check_eq(end_reg(&b, b.self.addr + 37, 1001, b.self.addr + 37, ACCESS_ALL, false, &mr), 0);
	for (int i = 0; i < 4; i++) {
		static const int from[] = { 0, -1, 0, 1 }, len[] = { 1001, 1001, 1002, 1001 };

		end_connect(&a, &b);
		wr = end_wr_rdma(&a, 1, IBV_WR_RDMA_WRITE, (uint32_t)len[i], &b);
		wr.rkey = mr.key;
		wr.remote = (uint64_t)((int64_t)mr.addr + from[i]);
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&a, SQ, 1, i ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
	}
	end_pair_close(&a, &b);
}

static void rereg(enum end_place place)
{
	struct end a, b;
	struct end_mr mr, old;
	uint32_t key;

	open_pair(&a, &b, place);
	check_eq(end_reg(&b, b.self.addr, PAGE, b.self.addr, IBV_ACCESS_LOCAL_WRITE, false, &mr),
		 0);
	key = mr.key;
	write_through(&a, &b, &mr, b.self.addr, IBV_WC_REM_ACCESS_ERR);
	check_eq(end_rereg(&b, &mr, IBV_REREG_MR_CHANGE_ACCESS, 0, 0, ACCESS_ALL, false), 0);
	write_through(&a, &b, &mr, b.self.addr, IBV_WC_SUCCESS);
	check_eq(mr.key, key); /* peers know it, so it stays */
	old = mr;
	check_eq(end_rereg(&b, &mr, IBV_REREG_MR_CHANGE_TRANSLATION, b.self.addr + 8 * PAGE, PAGE,
			   0, false),
		 0);
	write_through(&a, &b, &mr, b.self.addr + 8 * PAGE, IBV_WC_SUCCESS);
	check_eq(mr.key, key);
	write_through(&a, &b, &old, b.self.addr,
		      IBV_WC_REM_ACCESS_ERR); /* the old place is closed */
	check_eq(end_rereg(&b, &mr, IBV_REREG_MR_CHANGE_PD, 0, 0, 0, true), 0);
	write_through(&a, &b, &mr, b.self.addr + 8 * PAGE, IBV_WC_REM_ACCESS_ERR);
	check_eq(end_rereg(&b, &mr, IBV_REREG_MR_CHANGE_PD, 0, 0, 0, false), 0);
	write_through(&a, &b, &mr, b.self.addr + 8 * PAGE, IBV_WC_SUCCESS);
	check_eq(mr.key, key);
	/* What is refused changes nothing. */
	check(end_rereg(&b, &mr, 0, 0, 0, 0, false) != 0, "nothing to change was accepted");
	check(end_rereg(&b, &mr, 0x80, 0, 0, 0, false) != 0, "an unknown change was accepted");
	write_through(&a, &b, &mr, b.self.addr + 8 * PAGE, IBV_WC_SUCCESS);
	end_pair_close(&a, &b);
}

/* What cannot be registered: EFAULT as from a driver that pins pages. */
static void refused(enum end_place place)
{
	struct end a, b;
	struct end_mr mr;
	uint64_t addr;

	open_pair(&a, &b, place);
	addr = end_map(&b, 4 * PAGE, PROT_READ);
	check_eq(end_reg(&b, addr, 4 * PAGE, addr, ACCESS_ALL, false, &mr), EFAULT);
	check_eq(end_reg(&b, addr, 4 * PAGE, addr, IBV_ACCESS_REMOTE_READ, false, &mr), 0);
	check_eq(end_dereg(&b, &mr), 0);
	end_unmap(&b, addr + PAGE, PAGE, false);
	check_eq(end_reg(&b, addr, 4 * PAGE, addr, IBV_ACCESS_REMOTE_READ, false, &mr), EFAULT);
	end_unmap(&b, addr, 4 * PAGE, false);
	check_eq(end_reg(&b, addr, 4 * PAGE, addr, IBV_ACCESS_REMOTE_READ, false, &mr), EFAULT);
	addr = end_map(&b, PAGE, PROT_NONE);
	check_eq(end_reg(&b, addr, PAGE, addr, IBV_ACCESS_REMOTE_READ, false, &mr), EFAULT);
	check(end_reg(&b, b.self.addr, UINT64_MAX - 100, b.self.addr, ACCESS_ALL, false, &mr) != 0,
	      "a region around the end of the address space was accepted");
	check_eq(end_reg(&b, b.self.addr, PAGE, b.self.addr, 1 << 19, false, &mr), EINVAL);
	end_pair_close(&a, &b);
}

/* A key is dead once its region is, and comes not to life by the next registrations. */
static void deregistered(enum end_place place)
{
	struct end a, b;
	struct end_mr mr, more[20];

	open_pair(&a, &b, place);
	check_eq(end_reg(&b, b.self.addr, PAGE, b.self.addr, ACCESS_ALL, false, &mr), 0);
	write_through(&a, &b, &mr, b.self.addr, IBV_WC_SUCCESS);
	check_eq(end_dereg(&b, &mr), 0);
	write_through(&a, &b, &mr, b.self.addr, IBV_WC_REM_ACCESS_ERR);
	for (int i = 0; i < 20; i++) {
		check_eq(end_reg(&b, b.self.addr, PAGE, b.self.addr, ACCESS_ALL, false, &more[i]),
			 0);
		check(more[i].key != mr.key, "the key was given again at once");
	}
	write_through(&a, &b, &mr, b.self.addr, IBV_WC_REM_ACCESS_ERR);
	end_pair_close(&a, &b);
}

int main(int argc, char **argv)
{
	static const struct end_case cases[] = {
		{ "unmapped, local use", unmapped_local },
		{ "truncated, local use", truncated_local },
		{ "unmapped, receive buffer", unmapped_receive },
		{ "unmapped, remote target", unmapped_remote },
		{ "truncated, remote target", truncated_remote },
		{ "iova, zero based, overlapping", iova },
		{ "odd bounds", odd_bounds },
		{ "rereg", rereg },
		{ "refused registrations", refused },
		{ "deregistered keys", deregistered },
	};

	end_main(argc, argv);
	return end_run_cases("memory", cases, sizeof(cases) / sizeof(cases[0]));
}

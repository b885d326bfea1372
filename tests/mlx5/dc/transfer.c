// SPDX-License-Identifier: MIT
/*
 * Messages of the DC transport: every kind of request, small and large, from one initiator to many targets in turn and from
 * many initiators to one, in the order in which they were posted; within a process and between two, by direct copies and in packets.
 */
#include "dc.h"

#include <string.h>

enum { INITIATORS = 6, ROUNDS = 200, LARGE = 1 << 20 };

static struct dc dc;

static void send(struct dci *dci, struct ibv_ah *ah, struct dc_side *side, unsigned int which,
		 uint32_t len, uint32_t seed, uint32_t imm)
{
	struct dc_wr wr = { .wr_id = seed,
			    .opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
			    .len = len,
			    .imm = imm };

	pattern_fill(dc.buf, len, seed);
	check_eq(dci_post(dci, ah, &side->target[which], &wr), 0);
	dc_side_tell(side, &(struct dc_command){ .order = DC_EXPECT,
						 .which = which,
						 .len = len,
						 .imm = imm,
						 .seed = seed,
						 .src_qpn = dci->qp->qp_num });
	dc_expect_send(&dc, seed, IBV_WC_SUCCESS);
}

static void write(struct dci *dci, struct ibv_ah *ah, struct dc_side *side, unsigned int which,
		  uint32_t len, uint32_t seed, uint32_t imm)
{
	struct dc_wr wr = { .wr_id = seed,
			    .opcode = imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
			    .len = len,
			    .remote = DC_SIZE / 4,
			    .imm = imm };
	struct dc_command command = { .order = imm ? DC_EXPECT : DC_CHECK,
				      .which = which,
				      .len = len,
				      .imm = imm,
				      .seed = seed,
				      .offset = wr.remote,
				      .src_qpn = dci->qp->qp_num,
				      .written = true };

	pattern_fill(dc.buf, len, seed);
	check_eq(dci_post(dci, ah, &side->target[which], &wr), 0);
	if (imm)
		dc_side_tell(side, &command);
	dc_expect_send(&dc, seed, IBV_WC_SUCCESS);
	if (!imm)
		dc_side_tell(side, &command);
}

static void read(struct dci *dci, struct ibv_ah *ah, struct dc_side *side, unsigned int which,
		 uint32_t len, uint32_t seed)
{
	struct dc_wr wr = {
		.wr_id = seed, .opcode = IBV_WR_RDMA_READ, .len = len, .remote = DC_SIZE / 4
	};

	dc_side_tell(side,
		     &(struct dc_command){
			     .order = DC_FILL, .len = len, .seed = seed, .offset = wr.remote });
	check_eq(dci_post(dci, ah, &side->target[which], &wr), 0);
	dc_expect_send(&dc, seed, IBV_WC_SUCCESS);
	check_eq(pattern_check(dc.buf, len, seed), len);
}

static void atomics(struct dci *dci, struct ibv_ah *ah, struct dc_side *side)
{
	struct dc_wr add = { .wr_id = 1,
			     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			     .len = 8,
			     .remote = DC_SIZE / 4,
			     .swap_add = 3 };
	struct dc_wr swap = { .wr_id = 2,
			      .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
			      .len = 8,
			      .remote = DC_SIZE / 4,
			      .swap_add = 7 };
	uint64_t first = 0;

	for (unsigned int i = 0; i < 2 * side->count; i++) {
		check_eq(dci_post(dci, ah, &side->target[i % side->count], &add), 0);
		dc_expect_send(&dc, 1, IBV_WC_SUCCESS);
		if (!i)
			memcpy(&first, dc.buf, 8);
		check_eq(*(uint64_t *)dc.buf, first + 3 * i);
	}
	swap.compare = first + 3 * (2 * side->count);
	check_eq(dci_post(dci, ah, &side->target[0], &swap), 0);
	dc_expect_send(&dc, 2, IBV_WC_SUCCESS);
	check_eq(*(uint64_t *)dc.buf, swap.compare);
	check_eq(dci_post(dci, ah, &side->target[0], &swap), 0);
	dc_expect_send(&dc, 2, IBV_WC_SUCCESS);
	check_eq(*(uint64_t *)dc.buf, 7);
}

static void kinds(struct dc_side *side)
{
	static const uint32_t sizes[] = { 1, 8, 64, 1000, 4096, 4097, DC_BLOCK };
	struct dci_attr attr = dci_attr();
	struct ibv_ah *ah = dc_ah(&dc, &side->target[0].gid);
	uint32_t seed = 1;
	struct dci dci;

	dci_open(&dci, &dc, &attr);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (unsigned int which = 0; which < side->count; which++) {
			send(&dci, ah, side, which, sizes[i], seed++, 0);
			send(&dci, ah, side, which, sizes[i], seed++, 0xabc);
			write(&dci, ah, side, which, sizes[i], seed++, 0);
			write(&dci, ah, side, which, sizes[i], seed++, 0xdef);
			read(&dci, ah, side, which, sizes[i], seed++);
		}
	write(&dci, ah, side, 0, LARGE, seed++, 0);
	write(&dci, ah, side, 0, LARGE, seed++, 1);
	read(&dci, ah, side, 0, LARGE, seed++);
	atomics(&dci, ah, side);
	check_eq(ibv_destroy_qp(dci.qp), 0);
	check_eq(ibv_destroy_ah(ah), 0);
}

/* Posted together, to targets in turn: each target gets its own, in order. */
static void in_turn(struct dc_side *side)
{
	struct ibv_ah *ah = dc_ah(&dc, &side->target[0].gid);
	struct dci_attr attr = dci_attr();
	enum { BATCH = 24 };
	struct dci dci;

	dci_open(&dci, &dc, &attr);
	for (uint32_t round = 0; round < ROUNDS; round += BATCH) {
		for (uint32_t i = 0; i < BATCH; i++) {
			struct dc_wr wr = {
				.wr_id = i, .opcode = IBV_WR_SEND, .offset = i * 64, .len = 64
			};

			pattern_fill(dc.buf + i * 64, 64, round + i);
			check_eq(dci_post(&dci, ah, &side->target[i / 3 % side->count], &wr), 0);
		}
		for (uint32_t i = 0; i < BATCH; i++) {
			dc_side_tell(side, &(struct dc_command){ .order = DC_EXPECT,
								 .which = i / 3 % side->count,
								 .len = 64,
								 .seed = round + i,
								 .src_qpn = dci.qp->qp_num });
			dc_expect_send(&dc, i, IBV_WC_SUCCESS);
		}
	}
	check_eq(ibv_destroy_qp(dci.qp), 0);
	check_eq(ibv_destroy_ah(ah), 0);
}

static void many_initiators(struct dc_side *side)
{
	struct ibv_ah *ah = dc_ah(&dc, &side->target[0].gid);
	struct dci_attr attr = dci_attr();
	struct dci dci[INITIATORS];

	for (int i = 0; i < INITIATORS; i++)
		dci_open(&dci[i], &dc, &attr);
	for (uint32_t round = 0; round < ROUNDS / 10; round++)
		for (uint32_t i = 0; i < INITIATORS; i++)
			send(&dci[i], ah, side, 0, 5000, 100 * round + i, round);
	for (int i = 0; i < INITIATORS; i++)
		check_eq(ibv_destroy_qp(dci[i].qp), 0);
	check_eq(ibv_destroy_ah(ah), 0);
}

int main(int argc, char **argv)
{
	struct dc_side side;

	if (argc > 1) {
		dc_side_serve(ROLE_FD);
		return 0;
	}
	dc_open(&dc);
	for (int other = 0; other < 2; other++) {
		if (other)
			dc_side_spawn(&side, 3);
		else
			dc_side_open(&side, &dc, 3);
		kinds(&side);
		in_turn(&side);
		many_initiators(&side);
		dc_side_close(&side);
	}
	dc_close(&dc);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * Unreliable connections: what the receiver cannot take is dropped whole, the sender succeeds, and the next message is
 * received as if nothing had been. What UC has no protocol for (READ, atomics) is refused.
 */
#include "end.h"

#include <errno.h>

static void open_pair(struct end *a, struct end *b, enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_UC);

	end_pair_open(a, b, place, attr);
}

static void no_receive(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;
	struct ibv_wc wc;

	open_pair(&a, &b, place);
	for (uint64_t i = 0; i < 5; i++) {
		wr = end_wr_send(&a, i, i % 2 ? 20000 : 20);
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&a, SQ, i, IBV_WC_SUCCESS);
	}
	/* The receiver looks, so that what is on its way arrives before there is a receive for it. */
	check(!end_poll(&b, RQ, &wc, 20), "it arrived");
	check_eq(end_post_recv(&b, 9, b.self.addr, 30000, b.lkey), 0);
	end_fill(&a, a.self.addr, 100, 4);
	wr = end_wr_send(&a, 6, 100);
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 6, IBV_WC_SUCCESS);
	end_expect_wc(&b, RQ, 9, IBV_WC_SUCCESS, &wc);
	check_eq(wc.byte_len, 100);
	end_check(&b, b.self.addr, 100, 4);
	check_eq(end_state(&b), IBV_QPS_RTS);
	end_close(&a);
	end_close(&b);
}

static void no_peer(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	open_pair(&a, &b, place);
	end_destroy_qp(&b);
	for (uint64_t i = 0; i < 10; i++) {
		wr = i % 2 ? end_wr_send(&a, i, 20000)
			   : end_wr_rdma(&a, i, IBV_WR_RDMA_WRITE, 8, &b);
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&a, SQ, i, IBV_WC_SUCCESS);
	}
	check_eq(end_state(&a), IBV_QPS_RTS);
	end_close(&a);
	end_close(&b);
}

static void no_responder_operations(enum end_place place)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
						  IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct end a, b;

	open_pair(&a, &b, place);
	for (int i = 0; i < 3; i++) {
		struct end_wr wr = end_wr_rdma(&a, 1, ops[i], 8, &b);
		struct ibv_wc wc;

		end_connect(&a, &b);
		end_fill(&b, b.self.addr, 64, 1);
		if (end_post_send(&a, &wr) == 0) {
			check(end_poll(&a, SQ, &wc, PATIENCE_MS), "no completion");
			check_status(&wc, IBV_WC_LOC_QP_OP_ERR);
		}
		end_check(&b, b.self.addr, 64, 1);
	}
	end_close(&a);
	end_close(&b);
}

int main(int argc, char **argv)
{
	static const struct end_case cases[] = {
		{ "no receive posted", no_receive },
		{ "no peer", no_peer },
		{ "no READ, no atomics", no_responder_operations },
	};

	end_main(argc, argv);
	return end_run_cases("uc_drop", cases, sizeof(cases) / sizeof(cases[0]));
}

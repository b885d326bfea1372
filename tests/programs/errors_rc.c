// SPDX-License-Identifier: MIT
/*
 * Every completion error of a reliable connection, provoked and seen on both sides: status of requester and
 * responder, what becomes of the other work, the state of both QPs and the async event. End a is the requester.
 */
#include "end.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { WR_FIRST = 100, WR_RECV = 200 };

/* Short timers for peers that do not answer: 3 tries of 4.2 ms. */
static struct node_attr impatient(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.timeout = 10;
	attr.retry_cnt = 2;
	return attr;
}

static void post_recv(struct end *end, uint64_t wr_id, uint32_t len)
{
	check_eq(end_post_recv(end, wr_id, end->self.addr + 4096, len, end->lkey), 0);
}

static void post_send(struct end *end, const struct end_wr *wr)
{
	check_eq(end_post_send(end, wr), 0);
}

/* IB specification 9.7.5.2.3 and 11.6.2: the message does not fit the receive buffer. */
static void recv_too_small(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	post_recv(&b, WR_RECV, 63);
	post_recv(&b, WR_RECV + 1, 64);
	wr = end_wr_send(&a, WR_FIRST, 64);
	post_send(&a, &wr);
	end_expect(&b, RQ, WR_RECV, IBV_WC_LOC_LEN_ERR);
	end_expect(&a, SQ, WR_FIRST, IBV_WC_REM_INV_REQ_ERR);
	end_expect(&b, RQ, WR_RECV + 1, IBV_WC_WR_FLUSH_ERR);
	end_expect_state(&a, IBV_QPS_ERR);
	end_expect_state(&b, IBV_QPS_ERR);
	end_pair_close(&a, &b);
}

/* The same for a message of many packets, where the shortage shows late. */
static void recv_too_small_long(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	post_recv(&b, WR_RECV, 40000);
	wr = end_wr_send(&a, WR_FIRST, 40001);
	post_send(&a, &wr);
	end_expect(&b, RQ, WR_RECV, IBV_WC_LOC_LEN_ERR);
	end_expect(&a, SQ, WR_FIRST, IBV_WC_REM_INV_REQ_ERR);
	end_expect_state(&a, IBV_QPS_ERR);
	end_expect_state(&b, IBV_QPS_ERR);
	end_pair_close(&a, &b);
}

/* A local protection error stops the requester before anything leaves: the responder stays as it was. */
static void expect_loc_prot(struct end *a, struct end *b, struct end_wr wr)
{
	struct ibv_wc wc;

	end_connect(a, b);
	post_recv(b, WR_RECV, 4096);
	wr.flags &= ~IBV_SEND_SIGNALED; /* errors are reported all the same */
	post_send(a, &wr);
	end_expect_wc(a, SQ, wr.wr_id, IBV_WC_LOC_PROT_ERR, &wc);
	check_eq(wc.vendor_err, 0x51);
	end_expect_state(a, IBV_QPS_ERR);
	check_eq(end_state(b), IBV_QPS_RTS);
	check(!end_poll(b, RQ, &wc, 0), "the receive was used");
}

static void send_bad_memory(enum end_place place)
{
	struct end a, b;
	struct end_mr other;
	struct end_wr good, wr;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	good = end_wr_send(&a, WR_FIRST, 64);
	wr = good;
	wr.sge[0].lkey ^= 0x12300; /* no such key */
	expect_loc_prot(&a, &b, wr);
	wr = good;
	wr.sge[0].addr = a.self.addr - 1; /* begins before the region */
	expect_loc_prot(&a, &b, wr);
	wr = good;
	wr.sge[0].addr = a.self.addr + a.self.size - 63; /* ends one byte behind it */
	expect_loc_prot(&a, &b, wr);
	wr = good;
	wr.sge[0].addr = UINT64_MAX - 31; /* wraps around */
	expect_loc_prot(&a, &b, wr);
	check_eq(end_reg(&a, a.self.addr, 4096, a.self.addr, ACCESS_ALL, true, &other), 0);
	wr = good;
	wr.sge[0].lkey = other.key; /* of another protection domain */
	expect_loc_prot(&a, &b, wr);
	check_eq(end_dereg(&a, &other), 0);
	expect_loc_prot(&a, &b, wr); /* the key of a region that is gone */
	end_pair_close(&a, &b);
}

/* A bad entry in the middle of a gather list counts like one at its start. */
static void send_bad_entry(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct end a, b;
	struct end_wr wr;

	attr.cap.max_send_sge = 4;
	end_pair_open(&a, &b, place, attr);
	wr = end_wr_send(&a, WR_FIRST, 16);
	wr.num_sge = 4;
	for (int i = 1; i < 4; i++)
		wr.sge[i] = wr.sge[0];
	wr.sge[2].lkey ^= 0x4500;
	expect_loc_prot(&a, &b, wr);
	end_pair_close(&a, &b);
}

/* What comes back from a READ or atomic needs LOCAL_WRITE here. */
static void read_into_readonly(enum end_place place)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
						  IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct end a, b;
	struct end_mr readonly;
	struct end_wr wr;
	struct ibv_wc wc;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	check_eq(end_reg(&a, a.self.addr, 4096, a.self.addr, IBV_ACCESS_REMOTE_READ, false,
			 &readonly),
		 0);
	for (int i = 0; i < 3; i++) {
		end_connect(&a, &b);
		wr = end_wr_rdma(&a, WR_FIRST, ops[i], 8, &b);
		wr.sge[0].lkey = readonly.key;
		post_send(&a, &wr);
		end_expect_wc(&a, SQ, WR_FIRST, IBV_WC_LOC_PROT_ERR, &wc);
		check_eq(wc.vendor_err, 0x33);
		end_expect_state(&a, IBV_QPS_ERR);
	}
	end_pair_close(&a, &b);
}

/* The receiver's own memory is wrong: its error, and "remote operation error" for the sender. */
static void expect_rem_op(struct end *a, struct end *b, uint64_t addr, uint32_t lkey)
{
	struct end_wr wr = end_wr_send(a, WR_FIRST, 64);
	struct ibv_wc wc;

	end_connect(a, b);
	check_eq(end_post_recv(b, WR_RECV, addr, 64, lkey), 0);
	post_recv(b, WR_RECV + 1, 64);
	post_send(a, &wr);
	end_expect_wc(b, RQ, WR_RECV, IBV_WC_LOC_PROT_ERR, &wc);
	check_eq(wc.vendor_err, 0x32);
	end_expect(a, SQ, WR_FIRST, IBV_WC_REM_OP_ERR);
	end_expect(b, RQ, WR_RECV + 1, IBV_WC_WR_FLUSH_ERR);
	end_expect_state(a, IBV_QPS_ERR);
	end_expect_state(b, IBV_QPS_ERR);
}

static void recv_bad_memory(enum end_place place)
{
	struct end a, b;
	struct end_mr mr;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	expect_rem_op(&a, &b, b.self.addr, b.lkey ^ 0x77700);
	expect_rem_op(&a, &b, b.self.addr + b.self.size - 32, b.lkey);
	check_eq(end_reg(&b, b.self.addr, 4096, b.self.addr, ACCESS_ALL, true, &mr), 0);
	expect_rem_op(&a, &b, b.self.addr, mr.key);
	check_eq(end_reg(&b, b.self.addr, 4096, b.self.addr, IBV_ACCESS_REMOTE_READ, false, &mr),
		 0);
	expect_rem_op(&a, &b, b.self.addr, mr.key);
	end_pair_close(&a, &b);
}

static const enum ibv_wr_opcode one_sided[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
						IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
						IBV_WR_ATOMIC_FETCH_AND_ADD };

/* One-sided work at the wrong place: both QPs stop, and the owner of the memory is told by an event. */
static void expect_rem_access(struct end *a, struct end *b, enum ibv_wr_opcode op, uint64_t remote,
			      uint32_t rkey)
{
	struct end_wr wr = end_wr_rdma(a, WR_FIRST, op, 8, b),
		      next = end_wr_send(a, WR_FIRST + 1, 8);

	end_connect(a, b);
	post_recv(b, WR_RECV, 64);
	wr.remote = remote;
	wr.rkey = rkey;
	post_send(a, &wr);
	end_expect(a, SQ, WR_FIRST, IBV_WC_REM_ACCESS_ERR);
	end_expect_state(a, IBV_QPS_ERR);
	end_expect_state(b, IBV_QPS_ERR);
	end_expect(b, RQ, WR_RECV, IBV_WC_WR_FLUSH_ERR);
	check_eq(end_event(b, PATIENCE_MS), IBV_EVENT_QP_ACCESS_ERR);
	post_send(a, &next);
	end_expect(a, SQ, WR_FIRST + 1, IBV_WC_WR_FLUSH_ERR);
}

static void remote_bad_memory(enum end_place place)
{
	struct end a, b;
	struct end_mr other;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	check_eq(end_reg(&b, b.self.addr, 4096, b.self.addr, ACCESS_ALL, true, &other), 0);
	end_fill(&b, b.self.addr, b.self.size, 3);
	for (int i = 0; i < 5; i++) {
		enum ibv_wr_opcode op = one_sided[i];

		expect_rem_access(&a, &b, op, b.self.addr, b.self.rkey ^ 0x9900);
		expect_rem_access(&a, &b, op, b.self.addr, 0);
		expect_rem_access(&a, &b, op, b.self.addr - 8, b.self.rkey);
		expect_rem_access(&a, &b, op, b.self.addr + b.self.size, b.self.rkey);
		if (op != IBV_WR_ATOMIC_CMP_AND_SWP && op != IBV_WR_ATOMIC_FETCH_AND_ADD)
			expect_rem_access(&a, &b, op, b.self.addr + b.self.size - 7, b.self.rkey);
		expect_rem_access(&a, &b, op, UINT64_MAX - 7, b.self.rkey);
		expect_rem_access(&a, &b, op, b.self.addr, other.key);
	}
	/* Nothing of all that arrived. */
	end_check(&b, b.self.addr, b.self.size, 3);
	end_pair_close(&a, &b);
}

/* IB specification 9.4.5: the address of an atomic is a multiple of 8. */
static void atomic_misaligned(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	for (int i = 3; i < 5; i++) {
		end_connect(&a, &b);
		end_fill(&b, b.self.addr, 64, 9);
		wr = end_wr_rdma(&a, WR_FIRST, one_sided[i], 8, &b);
		wr.remote += 4;
		post_send(&a, &wr);
		end_expect(&a, SQ, WR_FIRST, IBV_WC_REM_INV_REQ_ERR);
		end_expect_state(&a, IBV_QPS_ERR);
		end_expect_state(&b, IBV_QPS_ERR);
		end_check(&b, b.self.addr, 64, 9);
	}
	end_pair_close(&a, &b);
}

static void expect_retry_exceeded(struct end *a)
{
	struct end_wr wr = end_wr_send(a, WR_FIRST, 64);

	post_send(a, &wr);
	wr.wr_id++;
	post_send(a, &wr);
	end_expect(a, SQ, WR_FIRST, IBV_WC_RETRY_EXC_ERR);
	end_expect(a, SQ, WR_FIRST + 1, IBV_WC_WR_FLUSH_ERR);
	end_expect_state(a, IBV_QPS_ERR);
}

/* A peer that is not there, or not ready for anything, does not answer. */
static void retry_exceeded(enum end_place place)
{
	static const enum ibv_qp_state deaf[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_ERR };
	struct end a, b;
	struct address nobody;

	end_pair_open(&a, &b, place, impatient());
	for (int i = 0; i < 3; i++) {
		end_connect(&a, &b);
		if (deaf[i] == IBV_QPS_ERR)
			check_eq(end_set_state(&b, IBV_QPS_ERR), 0);
		else
			end_connect_to(&b, &a.self, deaf[i]);
		expect_retry_exceeded(&a);
	}
	end_connect(&a, &b);
	end_destroy_qp(&b);
	expect_retry_exceeded(&a);
	nobody = b.self;
	nobody.qpn ^= 0x800; /* of the same process, but never created */
	end_connect_to(&a, &nobody, IBV_QPS_RTS);
	expect_retry_exceeded(&a);
	end_pair_close(&a, &b);
}

/* One-sided work meets the same silence. */
static void retry_exceeded_rdma(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	end_pair_open(&a, &b, place, impatient());
	for (int i = 0; i < 5; i++) {
		end_connect(&a, &b);
		end_connect_to(&b, &a.self, IBV_QPS_INIT);
		wr = end_wr_rdma(&a, WR_FIRST, one_sided[i], 8, &b);
		post_send(&a, &wr);
		end_expect(&a, SQ, WR_FIRST, IBV_WC_RETRY_EXC_ERR);
		end_expect_state(&a, IBV_QPS_ERR);
	}
	end_pair_close(&a, &b);
}

/* No receive is posted: the requester gives up after rnr_retry tries, the responder is not in error. */
static void rnr_exceeded(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct end a, b;
	struct end_wr wr;

	end_pair_open(&a, &b, place, attr);
	for (uint8_t retry = 0; retry < 4; retry++) {
		attr.rnr_retry = retry;
		end_set_attr(&a, &attr);
		end_connect(&a, &b);
		wr = end_wr_send(&a, WR_FIRST, retry % 2 ? 20000 : 64);
		post_send(&a, &wr);
		end_expect(&a, SQ, WR_FIRST, IBV_WC_RNR_RETRY_EXC_ERR);
		end_expect_state(&a, IBV_QPS_ERR);
		check_eq(end_state(&b), IBV_QPS_RTS);
	}
	/* A WRITE needs no receive, one with immediate data does. */
	attr.rnr_retry = 0;
	end_set_attr(&a, &attr);
	end_connect(&a, &b);
	wr = end_wr_rdma(&a, WR_FIRST, IBV_WR_RDMA_WRITE, 64, &b);
	post_send(&a, &wr);
	end_expect(&a, SQ, WR_FIRST, IBV_WC_SUCCESS);
	wr = end_wr_rdma(&a, WR_FIRST + 1, IBV_WR_RDMA_WRITE_WITH_IMM, 64, &b);
	post_send(&a, &wr);
	end_expect(&a, SQ, WR_FIRST + 1, IBV_WC_RNR_RETRY_EXC_ERR);
	end_pair_close(&a, &b);
}

/* A receive that comes while the requester retries makes all well, and in order. */
static void rnr_then_success(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct end a, b;
	struct end_wr wr;
	struct ibv_wc wc;

	for (int limited = 0; limited < 2; limited++) {
		/* Limited: six tries that are 164 ms apart; the receive comes within the first. */
		attr.rnr_retry = limited ? 6 : 7;
		attr.min_rnr_timer = limited ? 28 : 12;
		end_pair_open(&a, &b, place, attr);
		end_fill(&a, a.self.addr, 3000, 21);
		for (uint64_t i = 0; i < 4; i++) {
			wr = end_wr_send(&a, WR_FIRST + i, 3000);
			post_send(&a, &wr);
		}
		check(!end_poll(&a, SQ, &wc, 5), "completed without a receive");
		for (uint64_t i = 0; i < 4; i++)
			post_recv(&b, WR_RECV + i, 4096);
		for (uint64_t i = 0; i < 4; i++) {
			end_expect_wc(&b, RQ, WR_RECV + i, IBV_WC_SUCCESS, &wc);
			check_eq(wc.byte_len, 3000);
			end_expect(&a, SQ, WR_FIRST + i, IBV_WC_SUCCESS);
		}
		end_check(&b, b.self.addr + 4096, 3000, 21);
		check_eq(end_state(&a), IBV_QPS_RTS);
		check_eq(end_state(&b), IBV_QPS_RTS);
		end_pair_close(&a, &b);
	}
}

/* Each "not ready" is an answer: the wait may be longer than all retries of what is not answered. */
static void rnr_for_long(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct end a, b;
	struct end_wr wr;
	struct ibv_wc wc;

	attr.timeout = 13; /* 34 ms, 8 tries */
	attr.min_rnr_timer = 1;
	end_pair_open(&a, &b, place, attr);
	wr = end_wr_send(&a, WR_FIRST, 3000);
	post_send(&a, &wr);
	check(!end_poll(&a, SQ, &wc, 800), "completed without a receive: %s",
	      ibv_wc_status_str(wc.status));
	post_recv(&b, WR_RECV, 4096);
	end_expect(&b, RQ, WR_RECV, IBV_WC_SUCCESS);
	end_expect(&a, SQ, WR_FIRST, IBV_WC_SUCCESS);
	end_pair_close(&a, &b);
}

/* READ and atomics with no resources for them: refused at once, or by completion. */
static void loc_qp_op(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct end a, b;

	attr.rd_atomic = 0;
	end_pair_open(&a, &b, place, attr);
	for (int i = 2; i < 5; i++) {
		struct end_wr wr = end_wr_rdma(&a, WR_FIRST, one_sided[i], 8, &b);
		int err;

		end_connect(&a, &b);
		err = end_post_send(&a, &wr);
		if (err) {
			check_eq(err, EINVAL);
			check_eq(end_state(&a), IBV_QPS_RTS);
			continue;
		}
		end_expect(&a, SQ, WR_FIRST, IBV_WC_LOC_QP_OP_ERR);
		end_expect_state(&a, IBV_QPS_ERR);
		check_eq(end_state(&b), IBV_QPS_RTS);
	}
	end_pair_close(&a, &b);
}

/* More READs at once than the responder was configured for are an invalid request. */
static void too_many_reads(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct end a, b;
	struct end_wr wr;

	end_pair_open(&a, &b, place, attr);
	attr.dest_rd_atomic = 0;
	end_set_attr(&b, &attr);
	end_connect(&a, &b);
	wr = end_wr_rdma(&a, WR_FIRST, IBV_WR_RDMA_READ, 8, &b);
	post_send(&a, &wr);
	end_expect(&a, SQ, WR_FIRST, IBV_WC_REM_INV_REQ_ERR);
	end_expect_state(&a, IBV_QPS_ERR);
	end_expect_state(&b, IBV_QPS_ERR);
	end_pair_close(&a, &b);
}

/* Work before the bad request is done, work behind it is flushed in order, signalled or not. */
static void error_in_the_middle(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;
	struct ibv_wc wc;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	/* Held back by a missing receive, so that all eight wait when the third fails. */
	for (uint64_t i = 0; i < 8; i++) {
		wr = end_wr_send(&a, WR_FIRST + i, 64);
		if (i == 2)
			wr = end_wr_rdma(&a, WR_FIRST + i, IBV_WR_RDMA_WRITE, 64, &b);
		if (i == 2)
			wr.rkey ^= 0x100;
		if (i >= 2)
			wr.flags = 0;
		post_send(&a, &wr);
	}
	for (uint64_t i = 0; i < 4; i++)
		post_recv(&b, WR_RECV + i, 64);
	end_expect(&a, SQ, WR_FIRST, IBV_WC_SUCCESS);
	end_expect(&a, SQ, WR_FIRST + 1, IBV_WC_SUCCESS);
	end_expect(&a, SQ, WR_FIRST + 2, IBV_WC_REM_ACCESS_ERR);
	for (uint64_t i = 3; i < 8; i++)
		end_expect(&a, SQ, WR_FIRST + i, IBV_WC_WR_FLUSH_ERR);
	check(!end_poll(&a, SQ, &wc, 0), "one completion too many");
	end_expect(&b, RQ, WR_RECV, IBV_WC_SUCCESS);
	end_expect(&b, RQ, WR_RECV + 1, IBV_WC_SUCCESS);
	end_expect(&b, RQ, WR_RECV + 2, IBV_WC_WR_FLUSH_ERR);
	end_expect(&b, RQ, WR_RECV + 3, IBV_WC_WR_FLUSH_ERR);
	end_pair_close(&a, &b);
}

/* A local error behind messages that are still on their way: those complete first, none is forgotten. */
static void local_error_behind_others(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;
	struct ibv_wc wc;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	for (int round = 0; round < 20; round++) {
		end_connect(&a, &b);
		for (uint64_t i = 0; i < 8; i++)
			post_recv(&b, WR_RECV + i, 4096);
		for (uint64_t i = 0; i < 6; i++) {
			wr = end_wr_send(&a, WR_FIRST + i, round % 2 ? 4000 : 8);
			if (i == 3)
				wr.sge[0].lkey ^= 0x12300;
			post_send(&a, &wr);
		}
		for (uint64_t i = 0; i < 6; i++)
			end_expect(&a, SQ, WR_FIRST + i,
				   i < 3    ? IBV_WC_SUCCESS
				   : i == 3 ? IBV_WC_LOC_PROT_ERR
					    : IBV_WC_WR_FLUSH_ERR);
		check(!end_poll(&a, SQ, &wc, 0), "one completion too many");
		for (uint64_t i = 0; i < 3; i++)
			end_expect(&b, RQ, WR_RECV + i, IBV_WC_SUCCESS);
		check(!end_poll(&b, RQ, &wc, 0), "the bad message arrived");
	}
	end_pair_close(&a, &b);
}

int main(int argc, char **argv)
{
	static const struct end_case cases[] = {
		{ "receive too small", recv_too_small },
		{ "receive too small for a long message", recv_too_small_long },
		{ "send from bad memory", send_bad_memory },
		{ "bad entry in a gather list", send_bad_entry },
		{ "read into read-only memory", read_into_readonly },
		{ "receive into bad memory", recv_bad_memory },
		{ "remote memory at fault", remote_bad_memory },
		{ "misaligned atomic", atomic_misaligned },
		{ "retries exceeded", retry_exceeded },
		{ "retries exceeded, one-sided", retry_exceeded_rdma },
		{ "receiver not ready", rnr_exceeded },
		{ "receiver ready later", rnr_then_success },
		{ "receiver ready much later", rnr_for_long },
		{ "no read resources here", loc_qp_op },
		{ "no read resources there", too_many_reads },
		{ "error in the middle", error_in_the_middle },
		{ "local error behind others", local_error_behind_others },
	};

	end_main(argc, argv);
	return end_run_cases("errors_rc", cases, sizeof(cases) / sizeof(cases[0]));
}

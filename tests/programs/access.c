// SPDX-License-Identifier: MIT
/*
 * Access rights, as a complete matrix: every combination of rights on the memory region and on the QP against every
 * operation that needs one. What is allowed arrives, what is not changes no byte.
 */
#include "end.h"

#include <errno.h>

static const struct {
	enum ibv_wr_opcode opcode;
	int needs; /* the right, on the region and on the QP alike */
	const char *name;
} ops[] = {
	{ IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE, "write" },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, IBV_ACCESS_REMOTE_WRITE, "write with immediate" },
	{ IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ, "read" },
	{ IBV_WR_ATOMIC_CMP_AND_SWP, IBV_ACCESS_REMOTE_ATOMIC, "compare and swap" },
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC, "fetch and add" },
};
enum { NUM_OPS = sizeof(ops) / sizeof(ops[0]) };

/* The i-th combination of the remote rights. */
static int remote_rights(int i)
{
	return (i & 1 ? IBV_ACCESS_REMOTE_WRITE : 0) | (i & 2 ? IBV_ACCESS_REMOTE_READ : 0) |
	       (i & 4 ? IBV_ACCESS_REMOTE_ATOMIC : 0);
}

/* Run one operation and return its status; *changed tells whether the target's word was touched. */
static enum ibv_wc_status run_op(struct end *a, struct end *b, int op, uint32_t rkey, bool *changed)
{
	struct end_wr wr = end_wr_rdma(a, 7, ops[op].opcode, 8, b);
	struct ibv_wc wc;

	end_write64(a, a->self.addr, 0x1111);
	end_write64(b, b->self.addr, 0x2222);
	wr.rkey = rkey;
	wr.compare_add = ops[op].opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? 0x2222 : 1;
	wr.swap = 0x3333;
	/* Writing with immediate takes a receive. */
	check_eq(end_post_recv(b, 8, b->self.addr + 4096, 64, b->lkey), 0);
	check_eq(end_post_send(a, &wr), 0);
	check(end_poll(a, SQ, &wc, PATIENCE_MS), "%s did not complete", ops[op].name);
	check_eq(wc.wr_id, 7);
	*changed = end_read64(b, b->self.addr) != 0x2222;
	if (wc.status == IBV_WC_SUCCESS && ops[op].needs != IBV_ACCESS_REMOTE_WRITE)
		check_eq(end_read64(a, a->self.addr), 0x2222);
	else
		check_eq(end_read64(a, a->self.addr), 0x1111);
	return wc.status;
}

static void region_rights(enum end_place place)
{
	struct end a, b;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	for (int i = 0; i < 16; i++) {
		int rights = remote_rights(i) | (i & 8 ? IBV_ACCESS_LOCAL_WRITE : 0);
		struct end_mr mr;
		int err = end_reg(&b, b.self.addr, 4096, b.self.addr, rights, false, &mr);

		/* Who may be written from afar must be writable at home. */
		if ((rights & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(i & 8)) {
			check(err == EINVAL, "rights %#x: returned %d", rights, err);
			continue;
		}
		check(err == 0, "rights %#x: refused with %d", rights, err);
		for (int op = 0; op < NUM_OPS; op++) {
			bool allowed = rights & ops[op].needs, changed;
			enum ibv_wc_status status = run_op(&a, &b, op, mr.key, &changed);

			check(status == (allowed ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR),
			      "%s with rights %#x: %s", ops[op].name, rights,
			      ibv_wc_status_str(status));
			check(changed == (allowed && ops[op].needs != IBV_ACCESS_REMOTE_READ),
			      "%s with rights %#x: memory", ops[op].name, rights);
			if (!allowed) {
				end_expect_state(&a, IBV_QPS_ERR);
				end_expect_state(&b, IBV_QPS_ERR);
			}
			end_connect(&a, &b);
		}
		check_eq(end_dereg(&b, &mr), 0);
	}
	end_close(&a);
	end_close(&b);
}

/*
 * The QP itself must be enabled for the operation. The specification calls it an invalid request (11.6.2: "not
 * supported by this receive queue"), adapters also report an access error.
 */
static void qp_rights(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct end a, b;

	end_pair_open(&a, &b, place, attr);
	for (int i = 0; i < 8; i++) {
		attr.qp_access = remote_rights(i);
		end_set_attr(&b, &attr);
		for (int op = 0; op < NUM_OPS; op++) {
			bool allowed = attr.qp_access & ops[op].needs, changed;
			enum ibv_wc_status status;

			end_connect(&a, &b);
			status = run_op(&a, &b, op, b.self.rkey, &changed);
			/* Not a matter of keys: the queue does not support the operation (IBTA 11.6.2). */
			check(status == (allowed ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR),
			      "%s with QP rights %#x: %s", ops[op].name, attr.qp_access,
			      ibv_wc_status_str(status));
			check(changed == (allowed && ops[op].needs != IBV_ACCESS_REMOTE_READ),
			      "%s with QP rights %#x: memory", ops[op].name, attr.qp_access);
			if (!allowed) {
				end_expect_state(&a, IBV_QPS_ERR);
				end_expect_state(&b, IBV_QPS_ERR);
			}
		}
	}
	end_close(&a);
	end_close(&b);
}

/* Local use: reading needs no right, being written needs LOCAL_WRITE. */
static void local_rights(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct end a, b;
	struct end_mr readonly, writable;
	struct end_wr wr;

	end_pair_open(&a, &b, place, attr);
	check_eq(end_reg(&a, a.self.addr, 4096, a.self.addr, 0, false, &readonly), 0);
	check_eq(end_reg(&b, b.self.addr, 4096, b.self.addr, IBV_ACCESS_LOCAL_WRITE, false,
			 &writable),
		 0);
	end_fill(&a, a.self.addr, 64, 5);
	check_eq(end_post_recv(&b, 1, b.self.addr, 64, writable.key), 0);
	wr = end_wr_send(&a, 2, 64);
	wr.sge[0].lkey = readonly.key;
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 2, IBV_WC_SUCCESS);
	end_expect(&b, RQ, 1, IBV_WC_SUCCESS);
	end_check(&b, b.self.addr, 64, 5);
	/* And as the source of a WRITE. */
	wr = end_wr_rdma(&a, 3, IBV_WR_RDMA_WRITE, 64, &b);
	wr.sge[0].lkey = readonly.key;
	wr.remote += 128;
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 3, IBV_WC_SUCCESS);
	end_check(&b, b.self.addr + 128, 64, 5);
	end_close(&a);
	end_close(&b);
}

/* With no byte to move there is no key to check: IB specification, 9.7.4.1.5 and 10.6.3.3. */
static void zero_length_needs_no_key(enum end_place place)
{
	static const enum ibv_wr_opcode zero[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	struct end a, b;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	for (int i = 0; i < 2; i++) {
		struct end_wr wr = end_wr_rdma(&a, 1, zero[i], 0, &b);

		wr.num_sge = 0;
		wr.rkey = 0;
		wr.remote = 0;
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&a, SQ, 1, IBV_WC_SUCCESS);
	}
	end_close(&a);
	end_close(&b);
}

/* UC has the same rights but nobody to tell: what is not allowed is dropped and the sender never knows. */
static void uc_rights(enum end_place place)
{
	struct end a, b;
	struct end_mr mr;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_UC));
	check_eq(end_reg(&b, b.self.addr, 4096, b.self.addr, IBV_ACCESS_REMOTE_READ, false, &mr),
		 0);
	end_write64(&b, b.self.addr, 0x2222);
	end_write64(&a, a.self.addr, 0x1111);
	for (int good = 0; good < 2; good++) {
		struct end_wr wr = end_wr_rdma(&a, 1, IBV_WR_RDMA_WRITE, 8, &b);

		end_connect(&a, &b);
		wr.rkey = good ? b.self.rkey : mr.key;
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&a, SQ, 1, IBV_WC_SUCCESS);
		check_eq(end_state(&a), IBV_QPS_RTS);
		/* A SEND behind it tells when the WRITE would have been there. */
		check_eq(end_post_recv(&b, 2, b.self.addr + 4096, 64, b.lkey), 0);
		wr = end_wr_send(&a, 3, 8);
		if (good) {
			check_eq(end_post_send(&a, &wr), 0);
			end_expect(&b, RQ, 2, IBV_WC_SUCCESS);
		}
		check_eq(end_read64(&b, b.self.addr), good ? 0x1111 : 0x2222);
	}
	end_close(&a);
	end_close(&b);
}

int main(int argc, char **argv)
{
	static const struct end_case cases[] = {
		{ "rights of the region", region_rights },
		{ "rights of the QP", qp_rights },
		{ "local rights", local_rights },
		{ "zero length needs no key", zero_length_needs_no_key },
		{ "rights on UC", uc_rights },
	};

	end_main(argc, argv);
	return end_run_cases("access", cases, sizeof(cases) / sizeof(cases[0]));
}

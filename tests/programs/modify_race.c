// SPDX-License-Identifier: MIT
/*
 * A queue pair that meets an error while its program modifies it stays in the error state: the modification comes before
 * the error, or is refused, but never takes the error back.
 *
 * The error is that of a READ whose memory is gone. Its requester finds that out, in another thread than the one that
 * modifies the responder. A modification to ERR or RESET is never refused, because those have no state before them.
 */
#include "common.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static struct node a, b;
static _Atomic bool stop;
static _Atomic unsigned int modified; /* calls that have returned, whatever they said */

/* RTS to RTS, all the time; refused in other states. */
static void *modify(void *arg)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .qp_access_flags = ACCESS_REMOTE };

	(void)arg;
	while (!atomic_load(&stop)) {
		ibv_modify_qp(b.qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS);
		atomic_fetch_add(&modified, 1);
	}
	return NULL;
}

/* An error of its own, when the number changes. */
static void *post_bad(void *arg)
{
	_Atomic int *go = arg;
	struct ibv_sge sge = { (uintptr_t)b.buf, 8, ~b.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	for (int seen = 0, now; (now = atomic_load(go)) >= 0;) {
		if (now == seen)
			continue;
		seen = now;
		ibv_post_send(b.qp, &wr, &bad);
	}
	return NULL;
}

/* To ERR and to RESET one comes from every state, whatever the queue pair meets meanwhile. */
static void reach_always(const struct address *to_a)
{
	_Atomic int go = 0;
	struct ibv_wc wc;
	pthread_t thread;

	check_eq(pthread_create(&thread, NULL, post_bad, &go), 0);
	for (int i = 0; i < campaign(2000, 20000); i++) {
		node_connect(&b, to_a);
		atomic_fetch_add(&go, 1);
		for (volatile int delay = 0; delay < i * 7 % 4000; delay++)
			;
		check_eq(qp_set_state(b.qp, i % 2 ? IBV_QPS_ERR : IBV_QPS_RESET), 0);
		while (ibv_poll_cq(b.send_cq, 1, &wc) > 0)
			;
	}
	atomic_store(&go, -1);
	check_eq(pthread_join(thread, NULL), 0);
}

/* A call that begins after this one has begun is over. */
static void let_it_modify(void)
{
	unsigned int before = atomic_load(&modified);

	while (atomic_load(&modified) - before < 2)
		sched_yield();
}

static void race(const struct address *target)
{
	let_it_modify();
	check_eq(node_rdma(&a, 1, IBV_WR_RDMA_READ, 0, 8, target, 0), 0);
	cq_expect(a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	let_it_modify();
	check_eq(qp_get_state(b.qp), IBV_QPS_ERR);
}

int main(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address to_a, to_b, gone;
	struct ibv_mr *mr;
	pthread_t thread;
	void *page;

	node_pair(&a, &b, &attr);
	node_address(&a, &to_a);
	node_address(&b, &to_b);
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mr = ibv_reg_mr(b.pd, page, PAGE, ACCESS_ALL);
	check(mr);
	check_eq(mprotect(page, PAGE, PROT_NONE), 0);
	gone = to_b;
	gone.rkey = mr->rkey;
	gone.addr = (uintptr_t)page;
	check_eq(pthread_create(&thread, NULL, modify, NULL), 0);
	for (int i = 0; i < campaign(600, 20000); i++) {
		race(&gone);
		node_connect(&a, &to_b);
		node_connect(&b, &to_a);
	}
	atomic_store(&stop, true);
	check_eq(pthread_join(thread, NULL), 0);
	check_eq(ibv_dereg_mr(mr), 0);
	munmap(page, PAGE);
	reach_always(&to_a);
	node_close(&a);
	node_close(&b);
	return 0;
}

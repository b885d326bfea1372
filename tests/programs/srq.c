// SPDX-License-Identifier: MIT
/*
 * Shared receive queues: several QPs take from one, in the order of posting; the limit event comes once per arming;
 * an empty SRQ means "receiver not ready"; the queue is refilled around its ring many times.
 */
#include "common.h"

#include <errno.h>
#include <string.h>

enum { PAIRS = 4, DEPTH = 64 };

static struct node sender[PAIRS], receiver[PAIRS];

/* All receivers share the SRQ, PD, CQ and buffer of receiver 0. */
static void open_all(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address at[PAIRS];

	attr.srq = true;
	attr.cap.max_recv_wr = DEPTH;
	node_open(&receiver[0], &attr);
	for (int i = 1; i < PAIRS; i++) {
		receiver[i] = receiver[0];
		receiver[i].qp = node_create_qp(&receiver[i]);
		check(receiver[i].qp, "%s", strerror(errno));
	}
	attr.srq = false;
	for (int i = 0; i < PAIRS; i++) {
		node_open_other(&sender[i], &attr);
		node_address(&receiver[i], &at[i]);
		node_connect(&sender[i], &at[i]);
		node_address(&sender[i], &at[i]);
		node_connect(&receiver[i], &at[i]);
	}
}

static void post(uint64_t wr_id)
{
	check_eq(node_recv(&receiver[0], wr_id, (size_t)(wr_id % DEPTH) * 512, 512), 0);
}

/* Three thousand messages over four QPs, each into the oldest receive of the one queue. */
static void shared(void)
{
	uint64_t posted = 0;
	struct ibv_wc wc;

	while (posted < DEPTH / 2)
		post(posted++);
	for (uint64_t i = 0; i < 3000; i++) {
		int from = (int)(i * 7 % PAIRS);

		pattern_fill(sender[from].buf, 300, (uint32_t)i);
		check_eq(node_send(&sender[from], i, 0, 300, IBV_SEND_SIGNALED), 0);
		cq_expect(sender[from].send_cq, i, IBV_WC_SUCCESS);
		cq_expect_at(__FILE__, __LINE__, receiver[0].recv_cq, i, IBV_WC_SUCCESS, &wc);
		check_eq(wc.qp_num, receiver[from].qp->qp_num);
		check_eq(pattern_check(receiver[0].buf + i % DEPTH * 512, 300, (uint32_t)i), 300);
		post(posted++);
	}
	/* Empty it again. */
	for (uint64_t i = 3000; i < posted; i++) {
		check_eq(node_send(&sender[0], i, 0, 8, IBV_SEND_SIGNALED), 0);
		cq_expect(sender[0].send_cq, i, IBV_WC_SUCCESS);
		cq_expect(receiver[0].recv_cq, i, IBV_WC_SUCCESS);
	}
}

static uint32_t query_limit(void)
{
	struct ibv_srq_attr attr;

	check_eq(ibv_query_srq(receiver[0].srq, &attr), 0);
	check(attr.max_wr >= DEPTH, "max_wr %u", attr.max_wr);
	return attr.srq_limit;
}

/* Nine receives, limit eight: the second message leaves seven, and that is the one event. */
static void limit(void)
{
	struct ibv_srq_attr attr = { .srq_limit = 8 };

	for (uint64_t i = 0; i < 9; i++)
		post(i);
	check_eq(ibv_modify_srq(receiver[0].srq, &attr, IBV_SRQ_LIMIT), 0);
	check_eq(query_limit(), 8);
	for (uint64_t i = 0; i < 9; i++) {
		check_eq(node_send(&sender[1], i, 0, 8, IBV_SEND_SIGNALED), 0);
		cq_expect(sender[1].send_cq, i, IBV_WC_SUCCESS);
		cq_expect(receiver[0].recv_cq, i, IBV_WC_SUCCESS);
		if (i == 0)
			check_eq(event_wait(receiver[0].ctx, 10), -1);
		if (i == 1)
			check_eq(event_wait(receiver[0].ctx, PATIENCE_MS),
				 IBV_EVENT_SRQ_LIMIT_REACHED);
	}
	check_eq(event_wait(receiver[0].ctx, 10), -1);
	check_eq(query_limit(), 0); /* disarmed by the event */
	attr.srq_limit = 1u << 20;
	check(ibv_modify_srq(receiver[0].srq, &attr, IBV_SRQ_LIMIT) != 0,
	      "a limit above the depth");
}

/* An empty SRQ is "receiver not ready": the send waits, and runs when a receive is posted. */
static void empty(void)
{
	struct ibv_wc wc;

	check_eq(node_send(&sender[2], 1, 0, 8, IBV_SEND_SIGNALED), 0);
	check(!cq_wait(sender[2].send_cq, &wc, 5), "sent without a receive");
	post(5);
	cq_expect(sender[2].send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(receiver[0].recv_cq, 5, IBV_WC_SUCCESS);
}

static void refused(void)
{
	struct ibv_sge sge = { (uintptr_t)receiver[0].buf, 8, receiver[0].mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	int posted = 0;

	/* A QP on an SRQ has no receive queue of its own. */
	check(ibv_post_recv(receiver[0].qp, &wr, &bad) != 0, "ibv_post_recv on an SRQ's QP");
	check_eq(ibv_destroy_srq(receiver[0].srq), EBUSY);
	while (posted <= 100000 && node_recv(&receiver[0], 0, 0, 8) == 0)
		posted++;
	check(posted >= DEPTH && posted < 100000, "%d posted", posted);
	check_eq(ibv_post_srq_recv(receiver[0].srq, &wr, &bad), ENOMEM);
	check(bad == &wr, "bad_wr");
}

int main(void)
{
	open_all();
	shared();
	limit();
	empty();
	refused();
	for (int i = 1; i < PAIRS; i++)
		check_eq(ibv_destroy_qp(receiver[i].qp), 0);
	for (int i = 0; i < PAIRS; i++)
		node_close(&sender[i]);
	node_close(&receiver[0]);
	return 0;
}

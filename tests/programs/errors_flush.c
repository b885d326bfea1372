// SPDX-License-Identifier: MIT
/*
 * What happens to outstanding work when a QP leaves RTS: flushed in order on ERR, gone without a trace on RESET, and
 * for the unreliable types the send queue error state. Also the async events that go with it.
 */
#include "end.h"

#include <errno.h>
#include <string.h>

enum { COUNT = 16, WR_SEND = 100, WR_RECV = 200 };

static void post_recvs(struct end *end, uint64_t first, int count)
{
	for (int i = 0; i < count; i++)
		check_eq(end_post_recv(end, first + (uint64_t)i, end->self.addr, 256, end->lkey),
			 0);
}

/* Sends that wait for a receive which the peer does not have. */
static void post_waiting_sends(struct end *a)
{
	struct ibv_wc wc;

	for (uint64_t i = 0; i < COUNT; i++) {
		struct end_wr wr = end_wr_send(a, WR_SEND + i, 64);

		if (i % 2)
			wr.flags = 0; /* flushed work completes, signalled or not */
		check_eq(end_post_send(a, &wr), 0);
	}
	check(!end_poll(a, SQ, &wc, 0), "a send completed without a receive");
}

static void flush_all(struct end *end, enum end_queue queue, uint64_t first)
{
	struct ibv_wc wc;

	for (uint64_t i = 0; i < COUNT; i++) {
		end_expect_wc(end, queue, first + i, IBV_WC_WR_FLUSH_ERR, &wc);
		check_eq(wc.qp_num, end->self.qpn);
	}
	check(!end_poll(end, queue, &wc, 0), "one completion too many");
}

static void flush_on_error(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	post_recvs(&a, WR_RECV, COUNT);
	post_waiting_sends(&a);
	check_eq(end_set_state(&a, IBV_QPS_ERR), 0);
	flush_all(&a, SQ, WR_SEND);
	flush_all(&a, RQ, WR_RECV);
	/* Work posted to a QP in error is flushed as well. */
	wr = end_wr_send(&a, 1, 8);
	wr.flags = 0;
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 1, IBV_WC_WR_FLUSH_ERR);
	post_recvs(&a, 2, 1);
	end_expect(&a, RQ, 2, IBV_WC_WR_FLUSH_ERR);
	/* And the pair works again after a round through RESET. */
	end_connect(&a, &b);
	post_recvs(&b, 3, 1);
	wr = end_wr_send(&a, 4, 8);
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 4, IBV_WC_SUCCESS);
	end_expect(&b, RQ, 3, IBV_WC_SUCCESS);
	end_pair_close(&a, &b);
}

/* RESET empties the queues without completions; what was queued is never sent later. */
static void reset_forgets(enum end_place place)
{
	struct end a, b;
	struct ibv_wc wc;
	struct end_wr wr;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	post_recvs(&a, WR_RECV, COUNT);
	post_waiting_sends(&a);
	check_eq(end_set_state(&a, IBV_QPS_RESET), 0);
	check(!end_poll(&a, SQ, &wc, 10), "a send completed after RESET");
	check(!end_poll(&a, RQ, &wc, 0), "a receive completed after RESET");
	end_connect(&a, &b);
	post_recvs(&b, 3, 2);
	wr = end_wr_send(&a, 4, 8);
	check_eq(end_post_send(&a, &wr), 0);
	end_expect_wc(&b, RQ, 3, IBV_WC_SUCCESS, &wc);
	check_eq(wc.byte_len, 8);
	end_expect(&a, SQ, 4, IBV_WC_SUCCESS);
	check(!end_poll(&b, RQ, &wc, 10), "a message from before RESET arrived");
	end_pair_close(&a, &b);
}

/* Completions of a QP that is reset or destroyed before they were polled are dropped from the CQ. */
static void reset_cleans_cq(enum end_place place)
{
	struct end a, b;
	struct ibv_wc wc;
	struct end_wr wr;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	post_recvs(&b, 1, 1);
	wr = end_wr_send(&a, 2, 8);
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&b, RQ, 1, IBV_WC_SUCCESS);
	/* The responder had the message; give the requester's completion time to be written. */
	sleep_ms(20);
	check_eq(end_set_state(&a, IBV_QPS_RESET), 0);
	check(!end_poll(&a, SQ, &wc, 0), "an old completion survived RESET");
	end_pair_close(&a, &b);
}

/* A local error of an unreliable QP stops its send queue only: SQE, and RTS again when told. */
static void send_queue_error(enum end_place place, enum ibv_qp_type type)
{
	struct end a, b;
	struct end_wr bad, good;

	end_pair_open(&a, &b, place, node_attr(type));
	post_recvs(&b, WR_RECV, 2);
	post_recvs(&a, WR_RECV, 1);
	good = end_wr_send(&a, 2, 8);
	good.to = b.self;
	bad = good;
	bad.wr_id = 1;
	bad.sge[0].lkey ^= 0xab00;
	check_eq(end_post_send(&a, &bad), 0);
	end_expect(&a, SQ, 1, IBV_WC_LOC_PROT_ERR);
	end_expect_state(&a, IBV_QPS_SQE);
	check_eq(end_post_send(&a, &good), 0);
	end_expect(&a, SQ, 2, IBV_WC_WR_FLUSH_ERR);
	/* The receive side never stopped: the peer can still send here. */
	good = end_wr_send(&b, 3, 8);
	good.to = a.self;
	check_eq(end_post_send(&b, &good), 0);
	end_expect(&b, SQ, 3, IBV_WC_SUCCESS);
	end_expect(&a, RQ, WR_RECV, IBV_WC_SUCCESS);
	check_eq(end_set_state(&a, IBV_QPS_RTS), 0);
	good = end_wr_send(&a, 4, 8);
	good.to = b.self;
	check_eq(end_post_send(&a, &good), 0);
	end_expect(&a, SQ, 4, IBV_WC_SUCCESS);
	end_expect(&b, RQ, WR_RECV, IBV_WC_SUCCESS);
	end_pair_close(&a, &b);
}

static void send_queue_error_ud(enum end_place place)
{
	send_queue_error(place, IBV_QPT_UD);
}

static void send_queue_error_uc(enum end_place place)
{
	send_queue_error(place, IBV_QPT_UC);
}

/* Draining: in SQD no new send starts, receives go on; back in RTS the held sends run. */
static void drain_holds_sends(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;
	struct ibv_wc wc;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	post_recvs(&b, WR_RECV, 1);
	post_recvs(&a, WR_RECV, 1);
	check_eq(end_set_state(&a, IBV_QPS_SQD), 0);
	wr = end_wr_send(&a, 1, 8);
	check_eq(end_post_send(&a, &wr), 0);
	check(!end_poll(&a, SQ, &wc, 10), "a send ran in SQD");
	wr = end_wr_send(&b, 2, 8);
	check_eq(end_post_send(&b, &wr), 0);
	end_expect(&a, RQ, WR_RECV, IBV_WC_SUCCESS);
	end_expect(&b, SQ, 2, IBV_WC_SUCCESS);
	check_eq(end_set_state(&a, IBV_QPS_RTS), 0);
	end_expect(&a, SQ, 1, IBV_WC_SUCCESS);
	end_expect(&b, RQ, WR_RECV, IBV_WC_SUCCESS);
	end_pair_close(&a, &b);
}

/* What was begun is drained when it is complete: not while a receiver that is not ready makes it wait. */
static void drain_ends_what_was_begun(enum end_place place)
{
	struct node_attr init = node_attr(IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct ibv_qp_init_attr unused;
	struct end a, b;
	struct end_wr wr;
	struct ibv_wc wc;

	init.rnr_retry = 7;
	init.min_rnr_timer = 1;
	end_pair_open(&a, &b, place, init);
	wr = end_wr_send(&a, 1, 8);
	check_eq(end_post_send(&a, &wr), 0);
	check(!end_poll(&a, SQ, &wc, 20), "a send without a receive is complete");
	check_eq(ibv_modify_qp(a.node->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	check_eq(event_wait(a.node->ctx, 50), -1);
	check_eq(ibv_query_qp(a.node->qp, &attr, IBV_QP_STATE, &unused), 0);
	check_eq(attr.sq_draining, 1);
	post_recvs(&b, WR_RECV, 1);
	end_expect(&b, RQ, WR_RECV, IBV_WC_SUCCESS);
	end_expect(&a, SQ, 1, IBV_WC_SUCCESS);
	check_eq(event_wait(a.node->ctx, PATIENCE_MS), IBV_EVENT_SQ_DRAINED);
	check_eq(ibv_query_qp(a.node->qp, &attr, IBV_QP_STATE, &unused), 0);
	check_eq(attr.sq_draining, 0);
	end_pair_close(&a, &b);
}

/* The first message that reaches a QP in RTR says so with an event. */
static void communication_established(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct end a, b;
	struct end_wr wr;

	end_open(&a, HERE, &attr);
	end_open(&b, place, &attr);
	end_connect_to(&b, &a.self, IBV_QPS_RTR);
	end_connect_to(&a, &b.self, IBV_QPS_RTS);
	post_recvs(&b, WR_RECV, 1);
	wr = end_wr_send(&a, 1, 8);
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 1, IBV_WC_SUCCESS);
	end_expect(&b, RQ, WR_RECV, IBV_WC_SUCCESS);
	check_eq(end_event(&b, PATIENCE_MS), IBV_EVENT_COMM_EST);
	end_pair_close(&a, &b);
}

/* The event's object is counted: ibv_destroy_* waits for its acknowledgement, so polls must see each just once. */
static void no_event_without_cause(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	post_recvs(&b, WR_RECV, 1);
	wr = end_wr_send(&a, 1, 8);
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, 1, IBV_WC_SUCCESS);
	end_expect(&b, RQ, WR_RECV, IBV_WC_SUCCESS);
	check_eq(end_event(&a, 20), -1);
	check_eq(end_event(&b, 0), -1);
	end_pair_close(&a, &b);
}

/* More completions than a CQ holds: an error event for the CQ, never a completion overwritten in silence. */
static void cq_overrun(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct end a, b;
	int event;

	attr.cap.max_recv_wr = 512;
	attr.cqe = 1;
	end_pair_open(&a, &b, place, attr);
	post_recvs(&b, WR_RECV, 512);
	check_eq(end_set_state(&b, IBV_QPS_ERR), 0);
	do {
		event = end_event(&b, PATIENCE_MS);
	} while (event == IBV_EVENT_QP_FATAL);
	check_eq(event, IBV_EVENT_CQ_ERR);
	end_pair_close(&a, &b);
}

/*
 * IBTA 11.6.3.2: nothing is posted to a CQ any more that was overrun, and a queue whose completion is lost fails with
 * it. One that completes nothing there stays as it is.
 */
static void cq_overrun_fails_queues(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	unsigned int posted, taken = 0;
	bool cq_failed = false, qp_failed = false;
	struct end a, b;
	struct end_wr wr;
	struct ibv_wc wc;

	attr.cqe = 1;
	end_pair_open(&a, &b, place, attr);
	for (posted = 0; posted < 16; posted++) {
		wr = end_wr_rdma(&a, posted, IBV_WR_RDMA_WRITE, 8, &b);
		if (end_post_send(&a, &wr))
			break;
	}
	while (!cq_failed || !qp_failed) {
		int event = end_event(&a, PATIENCE_MS);

		check(event == IBV_EVENT_CQ_ERR ? !cq_failed
						: event == IBV_EVENT_QP_FATAL && !qp_failed,
		      "event %d", event);
		cq_failed |= event == IBV_EVENT_CQ_ERR;
		qp_failed |= event == IBV_EVENT_QP_FATAL;
	}
	end_expect_state(&a, IBV_QPS_ERR);
	end_expect_state(&b, IBV_QPS_RTS);
	/* Those that had room are there; polling makes none of it for later ones. */
	for (; end_poll(&a, SQ, &wc, 0); taken++)
		check_eq(wc.wr_id, taken);
	check(taken && taken < posted, "%u of %u", taken, posted);
	wr = end_wr_rdma(&a, posted, IBV_WR_RDMA_WRITE, 8, &b);
	check_eq(end_post_send(&a, &wr), 0);
	check(!end_poll(&a, SQ, &wc, 50), "a CQE of an overrun CQ");
	check_eq(end_event(&a, 0), -1);
	end_pair_close(&a, &b);
}

/* At the receiver: the sender learns it, as a remote operational error. */
static void recv_cq_overrun(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct end a, b;
	struct end_wr wr;
	struct ibv_wc wc;
	uint64_t sent = 0;

	attr.cqe = 1;
	end_pair_open(&a, &b, place, attr);
	post_recvs(&b, WR_RECV, 16);
	do {
		check(sent < 16, "no overrun");
		wr = end_wr_send(&a, sent, 8);
		check_eq(end_post_send(&a, &wr), 0);
		check(end_poll(&a, SQ, &wc, PATIENCE_MS), "no completion");
		check_eq(wc.wr_id, sent);
	} while (wc.status == IBV_WC_SUCCESS && ++sent);
	check_eq(wc.status, IBV_WC_REM_OP_ERR);
	end_expect_state(&a, IBV_QPS_ERR);
	end_expect_state(&b, IBV_QPS_ERR);
	for (uint64_t i = 0; i < sent; i++)
		end_expect(&b, RQ, WR_RECV + i, IBV_WC_SUCCESS);
	check(!end_poll(&b, RQ, &wc, 20), "a CQE of an overrun CQ");
	end_pair_close(&a, &b);
}

/* A QP on an SRQ that goes to ERR takes no more from it and says when it was the last time. */
static void last_wqe_reached(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct end a, b;

	attr.srq = true;
	end_pair_open(&a, &b, place, attr);
	post_recvs(&b, WR_RECV, 4);
	check_eq(end_set_state(&b, IBV_QPS_ERR), 0);
	check_eq(end_event(&b, PATIENCE_MS), IBV_EVENT_QP_LAST_WQE_REACHED);
	end_pair_close(&a, &b);
}

int main(int argc, char **argv)
{
	static const struct end_case cases[] = {
		{ "flush on error", flush_on_error },
		{ "reset forgets", reset_forgets },
		{ "reset cleans the CQ", reset_cleans_cq },
		{ "send queue error of UD", send_queue_error_ud },
		{ "send queue error of UC", send_queue_error_uc },
		{ "drain holds sends", drain_holds_sends },
		{ "drain ends what was begun", drain_ends_what_was_begun },
		{ "communication established", communication_established },
		{ "no event without a cause", no_event_without_cause },
		{ "CQ overrun", cq_overrun },
		{ "CQ overrun fails its queues", cq_overrun_fails_queues },
		{ "CQ overrun of receives", recv_cq_overrun },
		{ "last WQE reached", last_wqe_reached },
	};

	end_main(argc, argv);
	return end_run_cases("errors_flush", cases, sizeof(cases) / sizeof(cases[0]));
}

// SPDX-License-Identifier: MIT
/*
 * Completion channels: one event per arming, at once where a completion is already there, only for solicited or
 * failed work where asked so; the descriptor works with poll(2), O_NONBLOCK and a thread that blocks in it.
 */
#include "end.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

/* a sends from wherever; b waits here. */
static void open_pair(struct end *a, struct node *b, enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address at;

	end_open(a, place, &attr);
	attr.events = true;
	node_open(b, &attr);
	node_address(b, &at);
	node_connect(b, &a->self);
	end_connect_to(a, &at, IBV_QPS_RTS);
}

static void close_pair(struct end *a, struct node *b)
{
	end_close(a);
	node_close(b);
}

static void send_one(struct end *a, int flags)
{
	struct end_wr wr = end_wr_send(a, 1, 8);

	wr.flags |= flags;
	check_eq(end_post_send(a, &wr), 0);
	end_expect(a, SQ, 1, IBV_WC_SUCCESS);
}

static bool readable(struct node *b, int timeout_ms)
{
	struct pollfd pfd = { .fd = b->channel->fd, .events = POLLIN };

	return poll(&pfd, 1, timeout_ms) == 1;
}

/* Take one event for the receive CQ. */
static void take_event(struct node *b)
{
	struct ibv_cq *cq = NULL;
	void *context = NULL;

	check(readable(b, PATIENCE_MS), "no event");
	check_eq(ibv_get_cq_event(b->channel, &cq, &context), 0);
	check(cq == b->recv_cq && context == b, "the event names another CQ");
	ibv_ack_cq_events(cq, 1);
}

static void post_recvs(struct node *b, int count)
{
	for (int i = 0; i < count; i++)
		check_eq(node_recv(b, (uint64_t)i, 0, 64), 0);
}

static void drain(struct node *b, int count)
{
	struct ibv_wc wc;

	for (int i = 0; i < count; i++) {
		check(cq_wait(b->recv_cq, &wc, PATIENCE_MS), "no completion");
		check_status(&wc, IBV_WC_SUCCESS);
	}
	check_eq(ibv_poll_cq(b->recv_cq, 1, &wc), 0);
}

static void once_per_arming(enum end_place place)
{
	struct end a;
	struct node b;

	open_pair(&a, &b, place);
	post_recvs(&b, 10);
	send_one(&a, 0); /* not armed */
	check(!readable(&b, 10), "an event without arming");
	drain(&b, 1);
	check_eq(ibv_req_notify_cq(b.recv_cq, 0), 0);
	for (int i = 0; i < 3; i++)
		send_one(&a, 0);
	take_event(&b);
	check(!readable(&b, 10), "two events for one arming");
	drain(&b, 3);
	for (int i = 0; i < 6; i++) {
		check_eq(ibv_req_notify_cq(b.recv_cq, 0), 0);
		send_one(&a, 0);
		take_event(&b);
		drain(&b, 1);
	}
	close_pair(&a, &b);
}

/* The race that every event loop has: a completion arrives between the last poll and the arming. */
static void armed_late(enum end_place place)
{
	struct end a;
	struct node b;

	open_pair(&a, &b, place);
	post_recvs(&b, 2);
	send_one(&a, 0);
	sleep_ms(20);
	check_eq(ibv_req_notify_cq(b.recv_cq, 0), 0);
	send_one(&a, 0);
	take_event(&b);
	drain(&b, 2);
	close_pair(&a, &b);
}

static void solicited_only(enum end_place place)
{
	struct end a;
	struct node b;

	open_pair(&a, &b, place);
	post_recvs(&b, 6);
	check_eq(ibv_req_notify_cq(b.recv_cq, 1), 0);
	send_one(&a, 0);
	check(!readable(&b, 20), "an event for what was not solicited");
	send_one(&a, IBV_SEND_SOLICITED);
	take_event(&b);
	drain(&b, 2);
	/* Asking for all overrides asking for solicited. */
	check_eq(ibv_req_notify_cq(b.recv_cq, 1), 0);
	check_eq(ibv_req_notify_cq(b.recv_cq, 0), 0);
	send_one(&a, 0);
	take_event(&b);
	drain(&b, 1);
	/* And is not weakened by asking for solicited ones afterwards. */
	check_eq(ibv_req_notify_cq(b.recv_cq, 0), 0);
	check_eq(ibv_req_notify_cq(b.recv_cq, 1), 0);
	send_one(&a, 0);
	take_event(&b);
	drain(&b, 1);
	/* An error is always worth an event. */
	check_eq(ibv_req_notify_cq(b.recv_cq, 1), 0);
	check_eq(qp_set_state(b.qp, IBV_QPS_ERR), 0);
	take_event(&b);
	close_pair(&a, &b);
}

static void nonblocking(enum end_place place)
{
	struct end a;
	struct node b;
	struct ibv_cq *cq;
	void *context;
	int flags;

	open_pair(&a, &b, place);
	flags = fcntl(b.channel->fd, F_GETFL);
	check_eq(fcntl(b.channel->fd, F_SETFL, flags | O_NONBLOCK), 0);
	errno = 0;
	check_eq(ibv_get_cq_event(b.channel, &cq, &context), -1);
	check_eq(errno, EAGAIN);
	post_recvs(&b, 1);
	check_eq(ibv_req_notify_cq(b.recv_cq, 0), 0);
	send_one(&a, 0);
	take_event(&b);
	errno = 0;
	check_eq(ibv_get_cq_event(b.channel, &cq, &context), -1);
	check_eq(errno, EAGAIN);
	close_pair(&a, &b);
}

static void *wait_event(void *arg)
{
	struct node *b = arg;
	struct ibv_cq *cq = NULL;
	void *context;

	if (ibv_get_cq_event(b->channel, &cq, &context) || cq != b->recv_cq)
		return NULL;
	ibv_ack_cq_events(cq, 1);
	return b;
}

/* Nobody polls at the receiver: the event must come by the card's own doing. */
static void blocked_thread(enum end_place place)
{
	struct end a;
	struct node b;
	pthread_t thread;
	void *result;

	open_pair(&a, &b, place);
	post_recvs(&b, 1);
	check_eq(ibv_req_notify_cq(b.recv_cq, 0), 0);
	check_eq(pthread_create(&thread, NULL, wait_event, &b), 0);
	sleep_ms(20); /* likely asleep in the descriptor now; not needed for the outcome */
	send_one(&a, 0);
	check_eq(pthread_join(thread, &result), 0);
	check(result == &b, "the wrong event");
	drain(&b, 1);
	close_pair(&a, &b);
}

/* Events on the send side: a READ that completes later. */
static void send_side(enum end_place place)
{
	struct end a;
	struct node b;
	struct ibv_cq *cq;
	void *context;

	open_pair(&a, &b, place);
	for (int i = 0; i < 20; i++) {
		check_eq(ibv_req_notify_cq(b.send_cq, 0), 0);
		check_eq(node_rdma(&b, 3, IBV_WR_RDMA_READ, 0, 30000, &a.self, 0), 0);
		check(readable(&b, PATIENCE_MS), "no event");
		check_eq(ibv_get_cq_event(b.channel, &cq, &context), 0);
		check(cq == b.send_cq, "the event names another CQ");
		ibv_ack_cq_events(cq, 1);
		cq_expect(b.send_cq, 3, IBV_WC_SUCCESS);
	}
	close_pair(&a, &b);
}

int main(int argc, char **argv)
{
	static const struct end_case cases[] = {
		{ "one event per arming", once_per_arming }, { "armed late", armed_late },
		{ "solicited only", solicited_only },        { "nonblocking", nonblocking },
		{ "a blocked thread", blocked_thread },      { "send side", send_side },
	};

	end_main(argc, argv);
	return end_run_cases("cq_notify", cases, sizeof(cases) / sizeof(cases[0]));
}

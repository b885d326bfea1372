// SPDX-License-Identifier: MIT
/*
 * Nobody polls: in both of two processes some threads wait for events of the completion queues of many connections, and a
 * message that arrives is answered by the thread that the event woke. One event that is lost, or one acknowledgement that
 * nobody sends, stops a connection for good. Each connection has its own CQs, and all have one channel.
 */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { LINKS = 12, WAITERS = 3, BALLS = 4, TURNS = 1600, SMALL = 32, LONG = 20000, SLOT = 20480 };

/* One queue pair and its two CQs; the node is the first's, and has PD, buffer and channel of all. */
struct link {
	struct ibv_cq *cq[2]; /* send, receive */
	struct ibv_qp *qp;
	pthread_mutex_t lock; /* two threads may take two events of one connection */
	uint32_t received;
	struct side *side;
};

/* One side, which may be in the other one's process. */
struct side {
	struct node node;
	struct link links[LINKS];
	_Atomic uint32_t done,
		left; /* links that have received all; completions of sends to come */
	bool first;   /* it began */
};

static uint32_t length_of(uint32_t turn)
{
	return turn % 16 ? SMALL
			 : LONG; /* a long copy must not keep what is complete from its waiter */
}

static size_t slot(const struct link *link, uint32_t i)
{
	return ((size_t)(link - link->side->links) * 2 * BALLS + i) * SLOT;
}

static void post_recv(struct link *link, uint32_t i)
{
	struct node own = link->side->node;

	own.qp = link->qp;
	check_eq(node_recv(&own, i, slot(link, i), SLOT), 0);
}

static void serve(struct link *link, uint32_t turn)
{
	struct node own = link->side->node;

	own.qp = link->qp;
	check_eq(node_send(&own, turn, slot(link, BALLS + turn % BALLS), length_of(turn),
			   IBV_SEND_SIGNALED),
		 0);
}

/* The two sides answer each other until each has received TURNS messages. */
static void take(struct link *link, const struct ibv_wc *wc)
{
	struct side *side = link->side;

	check_status(wc, IBV_WC_SUCCESS);
	if (wc->opcode == IBV_WC_SEND) {
		atomic_fetch_sub(&side->left, 1);
		return;
	}
	check_eq(wc->byte_len, length_of(link->received));
	link->received++;
	post_recv(link, (uint32_t)wc->wr_id);
	/* Who began has sent BALLS without having received. */
	if (!side->first || link->received + BALLS <= TURNS)
		serve(link, side->first ? link->received + BALLS - 1 : link->received - 1);
	if (link->received == TURNS)
		atomic_fetch_add(&side->done, 1);
}

static int poll_some(struct link *link, int i)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(link->cq[i], 4, wc);

	check(n >= 0, "ibv_poll_cq: %d", n);
	for (int k = 0; k < n; k++)
		take(link, &wc[k]);
	return n;
}

/*
 * The send CQ before every look at the other: a send keeps its place in the queue until its completion was polled, and the
 * other side may answer as fast as this one takes.
 */
static void poll_all(struct link *link)
{
	pthread_mutex_lock(&link->lock);
	do {
		while (poll_some(link, 0))
			;
	} while (poll_some(link, 1));
	pthread_mutex_unlock(&link->lock);
}

static bool is_over(struct side *side)
{
	return atomic_load(&side->done) == LINKS && !atomic_load(&side->left);
}

static void *wait_for_events(void *arg)
{
	struct side *side = arg;
	struct pollfd pfd = { .fd = side->node.channel->fd, .events = POLLIN };
	uint64_t end = now_us() + 3 * PATIENCE_MS * 1000ull;

	while (!is_over(side)) {
		struct ibv_cq *cq;
		void *context;

		check(now_us() < end, "%u of %d connections are done, %u sends are not complete",
		      atomic_load(&side->done), LINKS, atomic_load(&side->left));
		if (poll(&pfd, 1, 100) <= 0)
			continue;
		if (ibv_get_cq_event(side->node.channel, &cq, &context)) {
			check_eq(errno, EAGAIN); /* another waiter was faster */
			continue;
		}
		ibv_ack_cq_events(cq, 1);
		check_eq(ibv_req_notify_cq(cq, 0), 0);
		poll_all(cq->cq_context);
	}
	return NULL;
}

static void open_link(struct link *link)
{
	struct node *node = &link->side->node;

	pthread_mutex_init(&link->lock, NULL);
	for (int i = 0; i < 2; i++) {
		link->cq[i] = ibv_create_cq(node->ctx, 64, link, node->channel, 0);
		check(link->cq[i], "%s", strerror(errno));
		check_eq(ibv_req_notify_cq(link->cq[i], 0), 0);
	}
	node->send_cq = link->cq[0];
	node->recv_cq = link->cq[1];
	link->qp = node->qp = node_create_qp(node);
	check(node->qp, "%s", strerror(errno));
}

static void connect_link(struct link *link, int fd)
{
	struct address peer;

	open_link(link);
	node_meet(&link->side->node, fd, &peer);
	for (uint32_t i = 0; i < BALLS; i++)
		post_recv(link, i);
}

static void run_side(struct side *side, int fd)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct link *links = side->links;
	struct node own;
	pthread_t threads[WAITERS];
	char ready = 1;

	attr.events = true;
	attr.size = (size_t)LINKS * 2 * BALLS * SLOT;
	node_open(&side->node, &attr);
	check_eq(fcntl(side->node.channel->fd, F_SETFL, O_NONBLOCK), 0);
	own = side->node;
	for (int i = 0; i < LINKS; i++) {
		links[i].side = side;
		connect_link(&links[i], fd);
	}
	atomic_store(&side->left, LINKS * TURNS);
	msg_send(fd, &ready, 1);
	msg_recv(fd, &ready, 1);
	for (int i = 0; i < WAITERS; i++)
		check_eq(pthread_create(&threads[i], NULL, wait_for_events, side), 0);
	for (int i = 0; side->first && i < LINKS; i++) {
		pthread_mutex_lock(&links[i].lock);
		for (uint32_t turn = 0; turn < BALLS; turn++)
			serve(&links[i], turn);
		pthread_mutex_unlock(&links[i].lock);
	}
	for (int i = 0; i < WAITERS; i++)
		check_eq(pthread_join(threads[i], NULL), 0);
	msg_send(fd, &ready,
		 1); /* the other side's acknowledgements come from queues that are there */
	msg_recv(fd, &ready, 1);
	for (int i = 0; i < LINKS; i++) {
		check_eq(ibv_destroy_qp(links[i].qp), 0);
		check_eq(ibv_destroy_cq(links[i].cq[0]), 0);
		check_eq(ibv_destroy_cq(links[i].cq[1]), 0);
	}
	node_close(&own);
}

int main(int argc, char **argv)
{
	static struct side sides[2];
	pid_t pid;
	int fd;

	if (argc > 1) {
		run_side(&sides[1], ROLE_FD);
		return 0;
	}
	(void)argv;
	sides[0].first = true;
	pid = spawn_self("other", &fd);
	run_side(&sides[0], fd);
	spawn_wait(pid);
	return 0;
}

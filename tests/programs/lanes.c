// SPDX-License-Identifier: MIT
/*
 * Two processes, and between them more queue pairs than there are rings, each with a thread of its own at both ends. All
 * send to each other at once: SEND, WRITE with immediate data and READ, of sizes that are carried and of sizes that are
 * fetched. On each queue pair everything comes in order, once, and whole.
 *
 *	lanes         that
 *	lanes kill    one of the processes is killed in the middle: every queue pair of the other one hears of it, and
 *	              the next process works
 *	lanes short   with a /dev/shm that has no room for more than one ring for each pair of processes
 *
 * What a side sends follows from the lane, the side and the number of the message, so both know it.
 */
#include "common.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * A receive is posted again when its message was looked at, so a sender is never more than RECEIVES and WINDOW of those
 * messages ahead, and what it writes lies in one of SLOTS.
 */
enum {
	LANES = 12,
	MESSAGES = 400,
	FEW = 100,
	RECEIVES = 16,
	WINDOW = 8,
	SLOTS = 32,
	SLOT = 24 * 1024
};

/* The parts of a buffer, SLOTS of SLOT bytes each. */
enum { FROM, INTO, WRITTEN, CONSTANT, PARTS };

struct lane {
	struct node node;
	struct address peer;
	uint32_t number, side; /* 0: the first process */
	uint32_t messages;     /* of each side */
	bool mortal;           /* the other side may die */
	bool died;
	pthread_t thread;
	uint32_t posted, done;
	uint32_t pushed;         /* posted messages that take a receive */
	uint32_t event, arrived; /* the same of the peer: behind the last that came, and how many */
};

static const uint32_t sizes[] = { 0, 8, 64, 1000, 4096, 9000, SLOT };

struct message {
	enum ibv_wr_opcode opcode;
	uint32_t len, seed;
};

static struct message message_of(uint32_t lane, uint32_t side, uint32_t number)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM,
						      IBV_WR_RDMA_READ, IBV_WR_SEND };
	uint64_t state = (uint64_t)lane << 40 | (uint64_t)side << 32 | number;
	struct message m = { .opcode = opcodes[next_random(&state) % 4],
			     .len = sizes[next_random(&state) % 7] };

	m.seed = next_random(&state);
	return m;
}

static size_t place(unsigned int part, uint32_t number)
{
	return ((size_t)part * SLOTS + number % SLOTS) * SLOT;
}

static uint32_t constant_seed(uint32_t lane, uint32_t side)
{
	return 1000 * (side + 1) + lane;
}

/* --- a lane ----------------------------------------------------------------------------------- */

static void open_lane(struct lane *lane, uint32_t number, uint32_t side, bool mortal)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	*lane = (struct lane){ .number = number,
			       .side = side,
			       .mortal = mortal,
			       .messages = mortal                ? UINT32_MAX
					   : getenv("LANES_FEW") ? FEW
								 : MESSAGES };
	attr.cap.max_send_wr = WINDOW;
	attr.cap.max_recv_wr = RECEIVES;
	attr.size = (size_t)PARTS * SLOTS * SLOT;
	if (mortal) {
		attr.timeout = 12;
		attr.retry_cnt = 3;
	}
	node_open(&lane->node, &attr);
	pattern_fill(lane->node.buf + place(CONSTANT, 0), (size_t)SLOTS * SLOT,
		     constant_seed(number, side));
}

static void connect_lane(struct lane *lane, int fd)
{
	node_meet(&lane->node, fd, &lane->peer);
	for (uint32_t i = 0; i < RECEIVES; i++)
		check_eq(node_recv(&lane->node, i, place(INTO, i), SLOT), 0);
}

static void post(struct lane *lane, uint32_t number)
{
	struct message m = message_of(lane->number, lane->side, number);
	struct node *node = &lane->node;
	size_t from = place(FROM, number);
	struct ibv_sge sge = { (uintptr_t)node->buf + from, m.len, node->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = number,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = m.opcode,
				  .send_flags = IBV_SEND_SIGNALED,
				  .imm_data = number };
	struct ibv_send_wr *bad;

	wr.wr.rdma.rkey = lane->peer.rkey;
	if (m.opcode == IBV_WR_RDMA_READ) {
		memset(node->buf + from, 0, m.len);
		wr.wr.rdma.remote_addr = lane->peer.addr + place(CONSTANT, 0);
	} else {
		pattern_fill(node->buf + from, m.len, m.seed);
		wr.wr.rdma.remote_addr = lane->peer.addr + place(WRITTEN, lane->pushed++);
	}
	check_eq(ibv_post_send(node->qp, &wr, &bad), 0);
}

static void take_done(struct lane *lane)
{
	struct message m = message_of(lane->number, lane->side, lane->done);
	struct node *node = &lane->node;
	struct ibv_wc wc;
	int n = ibv_poll_cq(node->send_cq, 1, &wc);

	check(n >= 0, "poll_cq: %d", n);
	if (!n)
		return;
	check(wc.wr_id == lane->done, "lane %u: %llu is done, not %u", lane->number,
	      (unsigned long long)wc.wr_id, lane->done);
	if (lane->mortal && wc.status != IBV_WC_SUCCESS) {
		check_status(&wc, IBV_WC_RETRY_EXC_ERR);
		lane->died = true;
		return;
	}
	check_status(&wc, IBV_WC_SUCCESS);
	if (m.opcode == IBV_WR_RDMA_READ)
		check_eq(pattern_check(node->buf + place(FROM, lane->done), m.len,
				       constant_seed(lane->number, !lane->side)),
			 m.len);
	lane->done++;
}

/* The next of the peer's messages that takes a receive. */
static struct message next_event(struct lane *lane)
{
	struct message m;

	do
		m = message_of(lane->number, !lane->side, lane->event++);
	while (m.opcode == IBV_WR_RDMA_READ);
	return m;
}

static void take_arrived(struct lane *lane)
{
	struct node *node = &lane->node;
	struct message m;
	struct ibv_wc wc;
	int n = ibv_poll_cq(node->recv_cq, 1, &wc);
	bool writes;
	size_t at;

	check(n >= 0, "poll_cq: %d", n);
	if (!n || (lane->mortal && wc.status == IBV_WC_WR_FLUSH_ERR))
		return;
	check_status(&wc, IBV_WC_SUCCESS);
	m = next_event(lane);
	writes = m.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	check(wc.wr_id == lane->arrived % RECEIVES, "lane %u: receive %llu, not %u", lane->number,
	      (unsigned long long)wc.wr_id, lane->arrived % RECEIVES);
	check(wc.opcode == (writes ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV),
	      "lane %u, message %u: opcode %d", lane->number, lane->event - 1, wc.opcode);
	check_eq(wc.byte_len, m.len);
	if (writes)
		check_eq(wc.imm_data, lane->event - 1);
	at = place(writes ? WRITTEN : INTO, writes ? lane->arrived : (uint32_t)wc.wr_id);
	check(pattern_check(node->buf + at, m.len, m.seed) == m.len,
	      "lane %u, message %u: wrong bytes", lane->number, lane->event - 1);
	lane->arrived++;
	check_eq(node_recv(node, wc.wr_id, place(INTO, (uint32_t)wc.wr_id), SLOT), 0);
}

static uint32_t count_events(const struct lane *lane)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < lane->messages; i++)
		count += message_of(lane->number, !lane->side, i).opcode != IBV_WR_RDMA_READ;
	return count;
}

static void *run_lane(void *arg)
{
	struct lane *lane = arg;
	uint32_t to_come = lane->mortal ? UINT32_MAX : count_events(lane);

	while (!lane->died && (lane->done < lane->messages || lane->arrived < to_come)) {
		while (lane->posted < lane->messages && lane->posted - lane->done < WINDOW)
			post(lane, lane->posted++);
		take_done(lane);
		take_arrived(lane);
	}
	return NULL;
}

/* --- both processes --------------------------------------------------------------------------- */

static _Thread_local struct lane lanes[LANES]; /* of one side, which may be a thread */

static void run_lanes(int fd, uint32_t side, bool mortal)
{
	for (uint32_t i = 0; i < LANES; i++) {
		open_lane(&lanes[i], i, side, mortal);
		connect_lane(&lanes[i], fd);
	}
	for (uint32_t i = 0; i < LANES; i++)
		check_eq(pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]), 0);
}

static void end_lanes(void)
{
	for (uint32_t i = 0; i < LANES; i++)
		check_eq(pthread_join(lanes[i].thread, NULL), 0);
}

static void close_lanes(void)
{
	for (uint32_t i = 0; i < LANES; i++)
		node_close(&lanes[i].node);
}

static int peer(bool mortal)
{
	char word;

	run_lanes(ROLE_FD, 1, mortal);
	end_lanes();
	msg_send(ROLE_FD, "e", 1);
	msg_recv(ROLE_FD, &word, 1);
	close_lanes();
	return 0;
}

static void all_of_it(void)
{
	char word;
	int fd;
	pid_t pid = spawn_self("peer", &fd);

	run_lanes(fd, 0, false);
	end_lanes();
	/* Nobody closes while the other still waits for an answer. */
	msg_recv(fd, &word, 1);
	msg_send(fd, "e", 1);
	close_lanes();
	spawn_wait(pid);
	close(fd);
}

static void kill_one(unsigned int after_ms)
{
	int fd, status;
	pid_t pid = spawn_self("victim", &fd);

	run_lanes(fd, 0, true);
	sleep_ms(after_ms);
	check_eq(kill(pid, SIGKILL), 0);
	check_eq(waitpid(pid, &status, 0), pid);
	check(WIFSIGNALED(status), "the victim ended by itself: %#x", status);
	end_lanes();
	for (uint32_t i = 0; i < LANES; i++)
		check_eq(qp_get_state(lanes[i].node.qp), IBV_QPS_ERR);
	close_lanes();
	close(fd);
}

int main(int argc, char **argv)
{
	const char *role = argc > 1 ? argv[1] : "";
	uint64_t seed = 1;

	if (!strcmp(role, "peer") || !strcmp(role, "victim"))
		return peer(!strcmp(role, "victim"));
	/* All wait for room most of the time. */
	if (!strcmp(role, "short")) {
		enter_small_shm("size=16m,mode=1777");
		setenv("LANES_FEW", "1", 1);
	}
	for (int i = 0; !strcmp(role, "kill") && i < campaign(4, 40); i++)
		kill_one(next_random(&seed) % 40);
	all_of_it();
	return 0;
}

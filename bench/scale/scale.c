// SPDX-License-Identifier: MIT
/*
 * What a message costs where many pairs of queue pairs work at the same time, each pair with a thread and CQs of its own.
 *
 *	processes   each pair is two processes
 *	threads     two processes; each pair is a thread of one and a thread of the other
 *	loop        one process; each pair is one thread that has both queue pairs
 *
 * The parent measures nothing itself. It starts the sides, hands their addresses over, and gives orders:
 *
 *	parent                      side: one process, a thread for each of its lanes
 *	setup  ----- socket ------> opens its queue pairs
 *	addresses <---------------> connects them
 *	order  -------------------> threads wait at the gate
 *	go     -------------------> all begin
 *	result <------------------- wall time of its lanes, CPU time of the process
 *
 * All numbers of pairs are set up at once and measured in turns, so that what else the machine does meets all of them.
 * One line for each measurement, fields separated by tabs:
 *
 *	operation  place  pairs  what (wall, cpu)  median  lowest  highest        ns per message
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../tests/programs/common.h"

enum { REPEATS = 7, MAX_PAIRS = 8, COUNTS = 4, DEPTH = 128, WINDOW = 64, STEP = 16, BYTES = 8 };

enum part { SENDS, RECEIVES, LOOPS };
enum place { PROCESSES, THREADS, LOOP, PLACES };

static const char *const place_names[PLACES] = { "processes", "threads", "loop" };
static const unsigned int counts[COUNTS] = { 1, 2, 4, MAX_PAIRS };

struct setup {
	enum part part;
	unsigned int lanes;
};

struct order {
	bool write, end;
	uint64_t count; /* messages of each lane */
};

struct result {
	double wall; /* ns, the mean of its lanes */
	double cpu;  /* ns, of the whole process */
};

/* One end of a pair, or both where the pair is a loop. */
struct lane {
	struct node node, other;
	struct address peer;
	const struct order *order;
	enum part part;
	pthread_t thread;
	double wall;
};

static pthread_barrier_t gate;

static double clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/* --- a lane ------------------------------------------------------------------------------------------------------- */

static void post(struct lane *lane, bool signalled)
{
	struct node *node = &lane->node;
	struct ibv_sge sge = { (uintptr_t)node->buf, BYTES, node->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = lane->order->write ? IBV_WR_RDMA_WRITE : IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE | (signalled ? IBV_SEND_SIGNALED : 0u),
		.wr.rdma = { lane->peer.addr + BYTES, lane->peer.rkey },
	};
	struct ibv_send_wr *bad;

	check_eq(ibv_post_send(node->qp, &wr, &bad), 0);
}

/* Take up to 16 completions. */
static uint64_t take(struct node *node, struct ibv_cq *cq, bool receives)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(cq, 16, wc);

	check(n >= 0, "poll_cq: %d", n);
	for (int i = 0; i < n; i++) {
		check_status(&wc[i], IBV_WC_SUCCESS);
		if (receives)
			check_eq(node_recv(node, 1, BYTES, BYTES), 0);
	}
	return (uint64_t)n;
}

static void run_sends(struct lane *lane)
{
	uint64_t posted = 0, done = 0, count = lane->order->count;

	while (done < count) {
		while (posted < count && posted - done < WINDOW) {
			posted++;
			post(lane, posted % STEP == 0);
		}
		done += STEP * take(&lane->node, lane->node.send_cq, false);
	}
}

static void run_receives(struct lane *lane)
{
	uint64_t got = 0;

	while (got < lane->order->count)
		got += take(&lane->node, lane->node.recv_cq, true);
}

static void run_loop(struct lane *lane)
{
	uint64_t posted = 0, done = 0, got = 0, count = lane->order->count;
	bool receives = !lane->order->write;

	while (done < count || (receives && got < count)) {
		for (unsigned int i = 0; i < STEP && posted < count; i++) {
			posted++;
			post(lane, posted % STEP == 0);
		}
		if (receives)
			got += take(&lane->other, lane->other.recv_cq, true);
		done += STEP * take(&lane->node, lane->node.send_cq, false);
	}
}

static void *run_lane(void *arg)
{
	struct lane *lane = arg;
	double start;

	pthread_barrier_wait(&gate); /* all are there */
	pthread_barrier_wait(&gate); /* go */
	start = clock_ns(CLOCK_MONOTONIC);
	if (lane->part == SENDS)
		run_sends(lane);
	else if (lane->part == LOOPS)
		run_loop(lane);
	else if (!lane->order->write)
		run_receives(lane);
	lane->wall = clock_ns(CLOCK_MONOTONIC) - start;
	return NULL;
}

/* --- a side ------------------------------------------------------------------------------------------------------- */

static void open_end(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.cap.max_send_wr = attr.cap.max_recv_wr = DEPTH;
	attr.cap.max_inline_data = BYTES;
	attr.size = 4096;
	node_open(node, &attr);
}

static void fill(struct node *node)
{
	for (int i = 0; i < DEPTH; i++)
		check_eq(node_recv(node, 1, BYTES, BYTES), 0);
}

static void open_lane(struct lane *lane, enum part part)
{
	struct address own;

	lane->part = part;
	open_end(&lane->node);
	if (part == LOOPS) {
		open_end(&lane->other);
		node_address(&lane->node, &own);
		node_address(&lane->other, &lane->peer);
		node_connect(&lane->node, &lane->peer);
		node_connect(&lane->other, &own);
		fill(&lane->other);
		return;
	}
	node_address(&lane->node, &own);
	msg_send(ROLE_FD, &own, sizeof(own));
}

static void connect_lane(struct lane *lane)
{
	if (lane->part == LOOPS)
		return;
	msg_recv(ROLE_FD, &lane->peer, sizeof(lane->peer));
	node_connect(&lane->node, &lane->peer);
	if (lane->part == RECEIVES)
		fill(&lane->node);
}

static void follow(struct lane *lanes, unsigned int count, const struct order *order)
{
	struct result result = { 0, 0 };
	char go;

	for (unsigned int i = 0; i < count; i++) {
		lanes[i].order = order;
		check_eq(pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]), 0);
	}
	pthread_barrier_wait(&gate);
	msg_send(ROLE_FD, "", 1);
	msg_recv(ROLE_FD, &go, 1);
	result.cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	pthread_barrier_wait(&gate);
	for (unsigned int i = 0; i < count; i++) {
		check_eq(pthread_join(lanes[i].thread, NULL), 0);
		result.wall += lanes[i].wall / count;
	}
	/* What the background thread does for our peer counts, too: until the peer is through. */
	msg_send(ROLE_FD, "", 1);
	msg_recv(ROLE_FD, &go, 1);
	result.cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - result.cpu;
	msg_send(ROLE_FD, &result, sizeof(result));
}

static int side(void)
{
	static struct lane lanes[MAX_PAIRS];
	struct setup setup;
	struct order order;

	msg_recv(ROLE_FD, &setup, sizeof(setup));
	check_eq(pthread_barrier_init(&gate, NULL, setup.lanes + 1), 0);
	for (unsigned int i = 0; i < setup.lanes; i++)
		open_lane(&lanes[i], setup.part);
	for (unsigned int i = 0; i < setup.lanes; i++)
		connect_lane(&lanes[i]);
	msg_send(ROLE_FD, "", 1);
	for (;;) {
		msg_recv(ROLE_FD, &order, sizeof(order));
		if (order.end)
			break;
		follow(lanes, setup.lanes, &order);
	}
	for (unsigned int i = 0; i < setup.lanes; i++) {
		node_close(&lanes[i].node);
		if (setup.part == LOOPS)
			node_close(&lanes[i].other);
	}
	return 0;
}

/* --- the parent --------------------------------------------------------------------------------------------------- */

/* The sides of one number of pairs: senders and receivers alternate. */
struct group {
	unsigned int pairs, sides;
	pid_t pid[2 * MAX_PAIRS];
	int fd[2 * MAX_PAIRS];
	double wall[2][REPEATS], cpu[2][REPEATS]; /* SEND, WRITE */
};

/* Hand the addresses of two sides over, lane by lane. */
static void introduce(int a, int b, unsigned int lanes)
{
	struct address from_a[MAX_PAIRS], from_b[MAX_PAIRS];

	for (unsigned int i = 0; i < lanes; i++) {
		msg_recv(a, &from_a[i], sizeof(from_a[i]));
		msg_recv(b, &from_b[i], sizeof(from_b[i]));
	}
	for (unsigned int i = 0; i < lanes; i++) {
		msg_send(a, &from_b[i], sizeof(from_b[i]));
		msg_send(b, &from_a[i], sizeof(from_a[i]));
	}
}

static void tell_all(const struct group *group, const void *msg, size_t len)
{
	for (unsigned int i = 0; i < group->sides; i++)
		msg_send(group->fd[i], msg, len);
}

static void await_all(const struct group *group)
{
	char ready;

	for (unsigned int i = 0; i < group->sides; i++)
		msg_recv(group->fd[i], &ready, 1);
}

static void start(struct group *group, enum place place, unsigned int pairs)
{
	unsigned int lanes = place == PROCESSES ? 1 : pairs;

	group->pairs = pairs;
	group->sides = place == PROCESSES ? 2 * pairs : place == THREADS ? 2 : 1;
	for (unsigned int i = 0; i < group->sides; i++) {
		struct setup setup = { place == LOOP ? LOOPS : i % 2 ? RECEIVES : SENDS, lanes };

		group->pid[i] = spawn_self("side", &group->fd[i]);
		msg_send(group->fd[i], &setup, sizeof(setup));
	}
	for (unsigned int i = 0; place != LOOP && i < group->sides; i += 2)
		introduce(group->fd[i], group->fd[i + 1], lanes);
	await_all(group);
}

static void stop(struct group *group)
{
	struct order end = { .end = true };

	tell_all(group, &end, sizeof(end));
	for (unsigned int i = 0; i < group->sides; i++) {
		spawn_wait(group->pid[i]);
		close(group->fd[i]);
	}
}

/* One repetition; the wall time is that of who sends. */
static void measure(struct group *group, bool write, uint64_t total, double *wall, double *cpu)
{
	/* A multiple of STEP, so that the last one is signalled. */
	struct order order = { .write = write, .count = total / group->pairs / STEP * STEP };
	double all = (double)(order.count * group->pairs);
	struct result result;

	tell_all(group, &order, sizeof(order));
	await_all(group);
	tell_all(group, "", 1);
	await_all(group);
	tell_all(group, "", 1);
	*wall = *cpu = 0;
	for (unsigned int i = 0; i < group->sides; i++) {
		msg_recv(group->fd[i], &result, sizeof(result));
		*cpu += result.cpu / all;
		if (i % 2 == 0) /* senders and loops; each side's is a mean already */
			*wall += result.wall / (double)order.count /
				 (group->sides > 1 ? group->sides / 2 : 1);
	}
}

static int compare(const void *x, const void *y)
{
	double a = *(const double *)x, b = *(const double *)y;

	return a < b ? -1 : a > b;
}

static void print(const char *operation, const char *place, unsigned int pairs, const char *what,
		  double *samples, int count)
{
	qsort(samples, (size_t)count, sizeof(samples[0]), compare);
	printf("%s\t%s\t%u\t%s\t%.4g\t%.4g\t%.4g\n", operation, place, pairs, what,
	       samples[count / 2], samples[0], samples[count - 1]);
}

static void measure_place(enum place place, uint64_t total, int repeats)
{
	static const char *const operations[] = { "send", "write" };
	static struct group groups[COUNTS];
	double wall, cpu;

	for (int g = 0; g < COUNTS; g++)
		start(&groups[g], place, counts[g]);
	for (int op = 0; op < 2; op++) {
		for (int r = -1; r < repeats; r++) { /* the first one warms up */
			for (int g = 0; g < COUNTS; g++) {
				measure(&groups[g], op, total, &wall, &cpu);
				if (r < 0)
					continue;
				groups[g].wall[op][r] = wall;
				groups[g].cpu[op][r] = cpu;
			}
		}
		for (int g = 0; g < COUNTS; g++) {
			print(operations[op], place_names[place], counts[g], "wall",
			      groups[g].wall[op], repeats);
			print(operations[op], place_names[place], counts[g], "cpu",
			      groups[g].cpu[op], repeats);
		}
		fflush(stdout);
	}
	for (int g = 0; g < COUNTS; g++)
		stop(&groups[g]);
}

int main(int argc, char **argv)
{
	bool quick = argc > 1 && !strcmp(argv[1], "--quick");

	if (argc > 1 && !strcmp(argv[1], "side"))
		return side();
	for (int place = 0; place < PLACES; place++)
		measure_place((enum place)place, quick ? 1024 : 400000, quick ? 1 : REPEATS);
	return 0;
}

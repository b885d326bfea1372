// SPDX-License-Identifier: MIT
/*
 * kill -9 of either side at random moments. The survivor gets an error completion within its configured retry time,
 * nothing of the dead process stays in the registry, and the next run starts clean.
 *
 *	parent (never opens the card)
 *	  |-- survivor: meets the victim, runs traffic, reports when its work failed
 *	  '-- victim:   meets the survivor, runs traffic until it is killed
 *
 * All of it in a network namespace of its own where that is allowed, so that the registry's directory is ours alone
 * and "empty" can be checked.
 */
#include "../programs/common.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* 16.8 ms and four tries: 67 ms. The bound adds what a busy machine of two cores may take to notice. */
enum { TIMEOUT = 12, RETRIES = 3, BOUND_US = 67000 + 5000000 };

/* Fetched by its target, or half by each side. */
enum { LONGEST = 300000 };

/* What the two do with each other. */
enum traffic {
	SENDS,
	WRITES,
	READS,
	ATOMICS,
	RECEIVES, /* from here on the victim is the active one */
	WRITTEN_TO,
	READ_FROM,
	ADDED_TO,
	NUM_TRAFFIC
};

struct result {
	enum ibv_wc_status status;
	uint64_t completed; /* requests that succeeded before */
	uint64_t failed_at; /* now_us() of the first error */
};

static void open_node(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.timeout = TIMEOUT;
	attr.retry_cnt = RETRIES;
	attr.rnr_retry = 7;
	attr.size = 1024 * 1024;
	node_open(node, &attr);
}

static void meet(struct node *node, struct address *peer, enum traffic *traffic)
{
	struct address mine;
	char go;

	node_address(node, &mine);
	msg_send(ROLE_FD, &mine, sizeof(mine));
	msg_recv(ROLE_FD, peer, sizeof(*peer));
	node_connect(node, peer);
	for (uint64_t i = 0; i < 64; i++)
		check_eq(node_recv(node, i, 512 * 1024, LONGEST), 0);
	msg_send(ROLE_FD, "r", 1);
	msg_recv(ROLE_FD, &go, 1);
	*traffic = (enum traffic)go;
}

static int post(struct node *node, const struct address *peer, enum traffic traffic, uint64_t i)
{
	static const uint32_t sizes[] = { 8, 64, 3000, 65536, LONGEST };
	uint32_t len = sizes[i % 5];

	switch (traffic) {
	case WRITES:
	case WRITTEN_TO:
		return node_rdma(node, i, IBV_WR_RDMA_WRITE, 0, len, peer, 0);
	case READS:
	case READ_FROM:
		return node_rdma(node, i, IBV_WR_RDMA_READ, 0, len, peer, 0);
	case ATOMICS:
	case ADDED_TO:
		return node_rdma(node, i, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, peer, 0);
	default:
		return node_send(node, i, 0, len, IBV_SEND_SIGNALED);
	}
}

/* Give back every receive that was used. */
static void refill(struct node *node)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(node->recv_cq, 1, &wc) > 0) {
		if (wc.status == IBV_WC_SUCCESS)
			node_recv(node, wc.wr_id, 512 * 1024, LONGEST);
	}
}

static void __attribute__((noreturn)) victim(void)
{
	struct node node;
	struct address peer;
	enum traffic traffic;
	uint64_t i = 0;
	struct ibv_wc wc;

	open_node(&node);
	meet(&node, &peer, &traffic);
	for (;;) {
		/* As a responder it only receives. A full queue refuses, and is polled. */
		if (traffic >= RECEIVES)
			post(&node, &peer, traffic, i++);
		ibv_poll_cq(node.send_cq, 1, &wc);
		refill(&node);
	}
}

/*
 * Keep some requests on the way until one fails. Where the victim was the active one, this begins only when told of
 * its end; closing then shows that nothing the dead one held on to is waited for.
 */
static int survivor(void)
{
	struct node node;
	struct address peer;
	struct result result = { 0 };
	enum traffic traffic;
	uint64_t posted = 0;
	struct ibv_wc wc;
	char word;

	open_node(&node);
	meet(&node, &peer, &traffic);
	if (traffic >= RECEIVES) {
		uint64_t end = now_us() + 15000;

		while (now_us() < end)
			refill(&node);
		msg_recv(ROLE_FD, &word, 1); /* the victim is dead */
	}
	for (;;) {
		while (posted - result.completed < 16)
			check_eq(post(&node, &peer, traffic, posted++), 0);
		refill(&node);
		if (ibv_poll_cq(node.send_cq, 1, &wc) == 0)
			continue;
		if (wc.status != IBV_WC_SUCCESS)
			break;
		result.completed++;
	}
	result.failed_at = now_us();
	result.status = wc.status;
	check_eq(qp_get_state(node.qp), IBV_QPS_ERR);
	for (uint64_t i = result.completed + 1; i < posted; i++)
		cq_expect(node.send_cq, i, IBV_WC_WR_FLUSH_ERR);
	msg_send(ROLE_FD, &result, sizeof(result));
	node_close(&node);
	return 0;
}

/* Brings the two together; both are running traffic when this returns. */
static void introduce(int s, int v, enum traffic traffic)
{
	struct address at[2];
	char word = (char)traffic;

	msg_recv(s, &at[0], sizeof(at[0]));
	msg_recv(v, &at[1], sizeof(at[1]));
	msg_send(s, &at[1], sizeof(at[1]));
	msg_send(v, &at[0], sizeof(at[0]));
	msg_recv(s, &at[0], 1);
	msg_recv(v, &at[0], 1);
	msg_send(v, &word, 1);
	msg_send(s, &word, 1);
}

static void kill_during_traffic(uint64_t *seed, int round)
{
	enum traffic traffic = (enum traffic)(round % NUM_TRAFFIC);
	struct result result;
	uint64_t killed;
	pid_t survivor_pid, victim_pid;
	int s, v;

	survivor_pid = spawn_self("survivor", &s);
	victim_pid = spawn_self("victim", &v);
	introduce(s, v, traffic);
	sleep_ms(next_random(seed) % 12);
	killed = now_us();
	check_eq(kill(victim_pid, SIGKILL), 0);
	check_eq(waitpid(victim_pid, NULL, 0), victim_pid);
	if (traffic >= RECEIVES)
		msg_send(s, "d", 1);
	msg_recv(s, &result, sizeof(result));
	check(result.status == IBV_WC_RETRY_EXC_ERR, "traffic %d: %s", (int)traffic,
	      ibv_wc_status_str(result.status));
	check(result.failed_at < killed + BOUND_US, "traffic %d: the error came after %llu us",
	      (int)traffic, (unsigned long long)(result.failed_at - killed));
	spawn_wait(survivor_pid);
	close(s);
	close(v);
}

/* At any moment from exec on: while it joins, maps, registers, connects. */
static void kill_early(uint64_t *seed)
{
	pid_t pid;
	int fd;
	struct timespec ts = { 0, (long)(next_random(seed) % 12000) * 1000 };

	pid = spawn_self("victim", &fd);
	nanosleep(&ts, NULL);
	check_eq(kill(pid, SIGKILL), 0);
	check_eq(waitpid(pid, NULL, 0), pid);
	close(fd);
}

/* A run as any other: what the dead left behind must not matter. */
static int clean(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node a, b;

	node_pair(&a, &b, &attr);
	check_eq(node_recv(&b, 1, 0, 64), 0);
	check_eq(node_send(&a, 2, 0, 64, IBV_SEND_SIGNALED), 0);
	cq_expect(a.send_cq, 2, IBV_WC_SUCCESS);
	cq_expect(b.recv_cq, 1, IBV_WC_SUCCESS);
	node_close(&a);
	node_close(&b);
	return 0;
}

static void run_clean(void)
{
	int fd;
	pid_t pid = spawn_self("clean", &fd);

	spawn_wait(pid);
	close(fd);
}

/* Files of processes in the registry of our network namespace; the registry itself is one file more. */
static int count_segments(void)
{
	struct stat net;
	struct dirent *entry;
	char mine[64], path[512];
	DIR *shm = opendir(shm_path()), *dir;
	int count = 0;

	check_eq(stat("/proc/self/ns/net", &net), 0);
	check(shm, "%s: %s", shm_path(), strerror(errno));
	snprintf(mine, sizeof(mine), "-%llu-", (unsigned long long)net.st_ino);
	path[0] = 0;
	while ((entry = readdir(shm))) {
		if (!strncmp(entry->d_name, "verbatim-", 9) && strstr(entry->d_name, mine))
			snprintf(path, sizeof(path), "%s/%s", shm_path(), entry->d_name);
	}
	closedir(shm);
	dir = path[0] ? opendir(path) : NULL;
	if (!dir)
		return 0;
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] != '.' && strcmp(entry->d_name, "registry"))
			count++;
	}
	closedir(dir);
	return count;
}

int main(int argc, char **argv)
{
	int rounds = campaign(20, 500);
	uint64_t seed = 7;
	bool alone;

	if (argc > 1 && !strcmp(argv[1], "victim"))
		victim();
	if (argc > 1 && !strcmp(argv[1], "survivor"))
		return survivor();
	if (argc > 1 && !strcmp(argv[1], "clean"))
		return clean();
	alone = enter_namespaces(CLONE_NEWNET);
	if (!alone)
		printf("no right to make a network namespace: leftovers in the registry not checked\n");
	for (int i = 0; i < rounds; i++) {
		kill_during_traffic(&seed, i);
		kill_early(&seed);
		if (i % 5 == 4)
			run_clean();
	}
	run_clean();
	if (alone)
		check_eq(count_segments(), 0);
	return 0;
}

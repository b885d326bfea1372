// SPDX-License-Identifier: MIT
/*
 * READs from a process that is stopped at the wrong moment: in the middle of an answer, for longer than the timeout, so
 * that it answers twice; and before it has seen any of many requests.
 */
#include "common.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { ROUNDS = 20, LEN = 8 << 20, READS = 16, NEVER = 0, MS16 = 12 };

static void open_node(struct node *node, uint8_t timeout)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = 2 * LEN;
	attr.timeout = timeout;
	attr.rd_atomic = attr.dest_rd_atomic = READS;
	attr.cap.max_send_wr = READS + 1;
	attr.rnr_retry = 7;
	attr.min_rnr_timer = 1;
	attr.retry_cnt = 7;
	node_open(node, &attr);
}

static int target(uint8_t timeout)
{
	struct node node;
	struct address peer;
	char word;

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody lets it go on if the test fails */
	open_node(&node, timeout);
	pattern_fill(node.buf, LEN, 1);
	node_meet(&node, ROLE_FD, &peer);
	msg_recv(ROLE_FD, &word, 1);
	check_eq(node_recv(&node, 1, LEN, 8), 0);
	msg_recv(ROLE_FD, &word, 1);
	node_close(&node);
	return 0;
}

static void stop(pid_t pid)
{
	kill(pid, SIGSTOP);
	check_eq(waitpid(pid, NULL, WUNTRACED), pid);
}

/*
 * Stop the target when its answer has begun to arrive, until the request was sent again. What is left of the first answer
 * is not taken for the second one.
 */
static void read_all(struct node *node, const struct address *peer, pid_t pid)
{
	volatile uint8_t *first = node->buf + LEN;
	struct ibv_wc wc;
	int n;

	memset(node->buf + LEN, 0, LEN);
	check_eq(node_rdma(node, 1, IBV_WR_RDMA_READ, LEN, LEN, peer, 0), 0);
	while (!(n = ibv_poll_cq(node->send_cq, 1, &wc)) && !*first)
		;
	if (n) { /* all of it while we did not run */
		check_status(&wc, IBV_WC_SUCCESS);
		return;
	}
	stop(pid);
	sleep_ms(60);
	kill(pid, SIGCONT);
	cq_expect(node->send_cq, 1, IBV_WC_SUCCESS);
	check_eq(pattern_check(node->buf + LEN, LEN, 1), LEN);
}

static void answered_twice(struct node *node, const struct address *peer, pid_t pid, int fd)
{
	for (int i = 0; i < ROUNDS; i++)
		read_all(node, peer, pid);
	msg_send(fd, "", 1);
}

/*
 * As many READs as may be outstanding and a SEND, all taken at once: the SEND finds no receive, and the refusal is not
 * lost behind the answers. There is no timeout that would make up for it.
 */
static void refused_behind_reads(struct node *node, const struct address *peer, pid_t pid, int fd)
{
	stop(pid);
	for (uint64_t i = 0; i < READS; i++)
		check_eq(node_rdma(node, i, IBV_WR_RDMA_READ, LEN, 8, peer, 0), 0);
	check_eq(node_send(node, READS, 0, 8, IBV_SEND_SIGNALED), 0);
	kill(pid, SIGCONT);
	for (uint64_t i = 0; i < READS; i++)
		cq_expect(node->send_cq, i, IBV_WC_SUCCESS);
	msg_send(fd, "", 1); /* now it posts the receive */
	cq_expect(node->send_cq, READS, IBV_WC_SUCCESS);
}

static void run(const char *role, uint8_t timeout,
		void (*body)(struct node *node, const struct address *peer, pid_t pid, int fd))
{
	struct address peer;
	struct node node;
	int fd;
	pid_t pid = spawn_self(role, &fd);

	open_node(&node, timeout);
	node_meet(&node, fd, &peer);
	body(&node, &peer, pid, fd);
	msg_send(fd, "", 1);
	spawn_wait(pid);
	close(fd);
	node_close(&node);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return target(!strcmp(argv[1], "patient") ? NEVER : MS16);
	run("impatient", MS16, answered_twice);
	run("patient", NEVER, refused_behind_reads);
	return 0;
}

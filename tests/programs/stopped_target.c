/* SPDX-License-Identifier: MIT */
/*
 * READs from a process that is stopped in the middle of its answer for longer than the timeout. What is asked for a
 * second time is answered twice, and what is left of the first answer is not taken for the second one.
 */
#include "common.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>

enum { ROUNDS = 20, LEN = 8 << 20 };

static void open_node(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = 2 * LEN;
	attr.timeout = 10; /* 4 ms */
	attr.retry_cnt = 7;
	node_open(node, &attr);
}

static int target(void)
{
	struct node node;
	struct address peer;
	char end;

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody lets it go on if the test fails */
	open_node(&node);
	pattern_fill(node.buf, LEN, 1);
	node_meet(&node, ROLE_FD, &peer);
	msg_recv(ROLE_FD, &end, 1);
	node_close(&node);
	return 0;
}

/* Stop the target when its answer has begun to arrive, until the request was sent again. */
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
	kill(pid, SIGSTOP);
	sleep_ms(20);
	kill(pid, SIGCONT);
	cq_expect(node->send_cq, 1, IBV_WC_SUCCESS);
	check_eq(pattern_check(node->buf + LEN, LEN, 1), LEN);
}

int main(int argc, char **argv)
{
	struct address peer;
	struct node node;
	pid_t pid;
	int fd;

	if (argc > 1)
		return target();
	pid = spawn_self("target", &fd);
	open_node(&node);
	node_meet(&node, fd, &peer);
	for (int i = 0; i < ROUNDS; i++)
		read_all(&node, &peer, pid);
	msg_send(fd, "", 1);
	spawn_wait(pid);
	close(fd);
	node_close(&node);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * A process that is stopped now and then, as a debugger or a crowded machine does it, in the middle of long messages and for
 * longer than its own timeout. The target has taken all that was sent and owes no answer yet: that is no reason to send
 * again, and none to give up.
 */
#include "common.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 3, LEN = 64 << 20, MS16 = 12, RUN_US = 1000, STOP_US = 40000 };

static void open_node(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = LEN;
	attr.timeout = MS16;
	attr.retry_cnt = 7;
	node_open(node, &attr);
}

static int sender(void)
{
	struct node node;
	struct address peer;
	char word = 0;

	open_node(&node);
	node_meet(&node, ROLE_FD, &peer);
	for (uint64_t i = 0; i < COUNT; i++) {
		struct ibv_wc wc;

		memset(node.buf, (int)i + 1, LEN);
		check_eq(node_rdma(&node, i, IBV_WR_RDMA_WRITE, 0, LEN, &peer, 0), 0);
		check(cq_wait(node.send_cq, &wc, 10 * PATIENCE_MS), "no completion");
		check_status(&wc, IBV_WC_SUCCESS);
	}
	msg_send(ROLE_FD, &word, 1);
	node_close(&node);
	return 0;
}

/* Take what comes for so long. */
static void poll_for(struct node *node, uint64_t us)
{
	uint64_t end = now_us() + us;
	struct ibv_wc wc;

	while (now_us() < end)
		check_eq(ibv_poll_cq(node->recv_cq, 1, &wc), 0);
}

int main(int argc, char **argv)
{
	struct node node;
	struct address peer;
	char word;
	pid_t pid;
	int fd;

	if (argc > 1 && !strcmp(argv[1], "sender"))
		return sender();
	pid = spawn_self("sender", &fd);
	open_node(&node);
	node_meet(&node, fd, &peer);
	while (recv(fd, &word, 1, MSG_DONTWAIT) < 0) {
		poll_for(&node, RUN_US);
		kill(pid, SIGSTOP);
		poll_for(&node, STOP_US);
		kill(pid, SIGCONT);
	}
	spawn_wait(pid);
	for (size_t i = 0; i < LEN; i += 4096)
		check_eq(node.buf[i], COUNT);
	close(fd);
	node_close(&node);
	return 0;
}

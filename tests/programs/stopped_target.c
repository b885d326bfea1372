/* SPDX-License-Identifier: MIT */
/*
 * READs from a process that is stopped again and again for longer than the timeout. What is asked for a second time is
 * answered twice, and what is left of the first answer is not taken for the second one.
 */
#include "common.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>

enum { ROUNDS = 40, LEN = 1 << 20 };

struct stopper {
	pid_t pid;
	_Atomic bool end;
};

static void *stop_and_go(void *arg)
{
	struct stopper *s = arg;

	while (!s->end) {
		kill(s->pid, SIGSTOP);
		sleep_ms(8);
		kill(s->pid, SIGCONT);
		sleep_ms(4);
	}
	return NULL;
}

static void open_node(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = 2 * LEN;
	attr.timeout = 8; /* 1 ms */
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

int main(int argc, char **argv)
{
	struct stopper stopper = { 0 };
	struct address peer;
	struct node node;
	pthread_t thread;
	int fd;

	if (argc > 1)
		return target();
	stopper.pid = spawn_self("target", &fd);
	open_node(&node);
	node_meet(&node, fd, &peer);
	check_eq(pthread_create(&thread, NULL, stop_and_go, &stopper), 0);
	for (int i = 0; i < ROUNDS; i++) {
		memset(node.buf + LEN, 0, LEN);
		check_eq(node_rdma(&node, 1, IBV_WR_RDMA_READ, LEN, LEN, &peer, 0), 0);
		cq_expect(node.send_cq, 1, IBV_WC_SUCCESS);
		check_eq(pattern_check(node.buf + LEN, LEN, 1), LEN);
	}
	stopper.end = true;
	pthread_join(thread, NULL);
	msg_send(fd, "", 1);
	spawn_wait(stopper.pid);
	close(fd);
	node_close(&node);
	return 0;
}

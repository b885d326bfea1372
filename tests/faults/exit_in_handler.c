// SPDX-License-Identifier: MIT
/*
 * A program that is flooded with messages exits in the handler of a signal, wherever that meets it: in the middle of a
 * packet, with locks of its own queues. It ends, with its status.
 */
#include "../programs/common.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 40, RECEIVES = 128, LEN = 64, STATUS = 7 };

static void leave(int sig)
{
	(void)sig;
	exit(STATUS); /* not allowed there, and usual */
}

static struct node_attr deep(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.cap.max_send_wr = attr.cap.max_recv_wr = RECEIVES;
	attr.cqe = 2 * RECEIVES;
	return attr;
}

static void receiver(int fd)
{
	struct itimerval timer = { .it_value = { 0, 3000 + (getpid() * 7919) % 4000 } };
	struct node_attr attr = deep();
	struct address peer;
	struct node node;
	struct ibv_wc wc;

	node_open(&node, &attr);
	node_meet(&node, fd, &peer);
	for (int i = 0; i < RECEIVES; i++)
		check(!node_recv(&node, 0, 0, LEN));
#ifdef __SANITIZE_THREAD__
	/* It loses a signal that comes while it makes a thread's record of signals, at its first sleep or setjmp(). */
	sleep_ms(1);
#endif
	signal(SIGALRM, leave);
	msg_send(fd, "", 1);
	check(!setitimer(ITIMER_REAL, &timer, NULL));
	for (;;)
		if (ibv_poll_cq(node.recv_cq, 1, &wc) > 0 && wc.status == IBV_WC_SUCCESS)
			node_recv(&node, 0, 0, LEN);
}

/* Send until the peer is gone. */
static void flood(struct node *node)
{
	uint32_t posted = 0;
	struct ibv_wc wc;

	for (;;) {
		while (posted < RECEIVES / 2 && !node_send(node, 0, 0, LEN, IBV_SEND_SIGNALED))
			posted++;
		if (ibv_poll_cq(node->send_cq, 1, &wc) < 1)
			continue;
		if (wc.status != IBV_WC_SUCCESS)
			return;
		posted--;
	}
}

int main(int argc, char **argv)
{
	struct node_attr attr = deep();
	struct address peer;
	struct node node;
	int fd, status;
	char ready;
	pid_t pid;

	if (argc == 2 && !strcmp(argv[1], "receiver"))
		receiver(ROLE_FD);
	for (int i = 0; i < ROUNDS; i++) {
		pid = spawn_self("receiver", &fd);
		node_open(&node, &attr);
		node_meet(&node, fd, &peer);
		msg_recv(fd, &ready, 1);
		flood(&node);
		check(waitpid(pid, &status, 0) == pid);
		check(WIFEXITED(status) && WEXITSTATUS(status) == STATUS);
		node_close(&node);
		close(fd);
	}
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * Processes that are killed, one after the other, more of them than the registry has slots: the last ones have the slots
 * of the first, and queue pairs of the same numbers. A process that still has its connection to the dead one reaches
 * the new one at once.
 */
#include "common.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 256, ROUNDS = SLOTS + 20, LEN = 4096 };

static struct node_attr attributes(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = 2 * LEN;
	attr.rnr_retry = 7;
	attr.min_rnr_timer = 1;
	return attr;
}

/* Send, receive, then wait for the end. */
static int peer(void)
{
	struct node_attr attr = attributes();
	struct address other;
	struct node node;
	char word;

	node_open(&node, &attr);
	node_meet(&node, ROLE_FD, &other);
	check_eq(node_recv(&node, 1, 0, LEN), 0);
	cq_expect(node.recv_cq, 1, IBV_WC_SUCCESS);
	check_eq(node_send(&node, 2, 0, LEN, IBV_SEND_SIGNALED), 0); /* what came goes back */
	cq_expect(node.send_cq, 2, IBV_WC_SUCCESS);
	msg_send(ROLE_FD, &word, 1);
	msg_recv(ROLE_FD, &word, 1); /* never */
	return 1;
}

int main(int argc, char **argv)
{
	struct ibv_qp *qp[ROUNDS];
	struct node_attr attr = attributes();
	struct address other;
	struct node node;
	uint32_t number[ROUNDS];
	int same = 0;

	if (argc > 1 && !strcmp(argv[1], "peer"))
		return peer();
	node_open(&node, &attr);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		char word;
		int fd, status;
		pid_t pid = spawn_self("peer", &fd);

		qp[i] = i ? node_create_qp(&node) : node.qp;
		check(qp[i], "no queue pair");
		node.qp = qp[i];
		pattern_fill(node.buf, LEN, i);
		node_meet(&node, fd, &other);
		check_eq(node_recv(&node, i, LEN, LEN), 0);
		number[i] = other.qpn;
		for (uint32_t j = 0; j < i; j++)
			same += number[j] == number[i];
		check_eq(node_send(&node, ROUNDS + i, 0, LEN, IBV_SEND_SIGNALED), 0);
		cq_expect(node.send_cq, ROUNDS + i, IBV_WC_SUCCESS);
		cq_expect(node.recv_cq, i, IBV_WC_SUCCESS);
		check_eq(pattern_check(node.buf + LEN, LEN, i), LEN);
		msg_recv(fd, &word, 1);
		kill(pid, SIGKILL);
		check_eq(waitpid(pid, &status, 0), pid);
		close(fd);
	}
	check(same, "no number came back");
	for (uint32_t i = 0; i < ROUNDS - 1; i++)
		check_eq(ibv_destroy_qp(qp[i]), 0);
	node_close(&node);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * A target that never calls verbs after its setup is read, written and added to all the same: while it sleeps in a
 * system call, and while it computes with every signal blocked.
 */
#include "common.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 1 << 20 };

static void open_node(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = SIZE;
	node_open(node, &attr);
}

/* Set up, then either wait for the end in read(), or spin until a word in memory says stop. */
static int target(bool spinning)
{
	struct node node;
	struct address peer;
	sigset_t all;
	char end;

	sigfillset(&all);
	if (spinning)
		sigprocmask(SIG_BLOCK, &all, NULL);
	open_node(&node);
	memset(node.buf, 0, SIZE);
	node_meet(&node, ROLE_FD, &peer);
	if (spinning) {
		volatile uint64_t *stop = (volatile uint64_t *)(node.buf + SIZE - 8);

		while (*stop == 0)
			;
	}
	msg_recv(ROLE_FD, &end, 1);
	node_close(&node);
	return 0;
}

static void write_and_read(struct node *node, const struct address *peer)
{
	static const uint32_t sizes[] = { 1, 8, 64, 1000, 4096, 65536, 300000 };

	for (uint32_t i = 0; i < 7 * 20; i++) {
		uint32_t len = sizes[i % 7];

		pattern_fill(node->buf, len, i);
		check_eq(node_rdma(node, 1, IBV_WR_RDMA_WRITE, 0, len, peer, 64), 0);
		cq_expect(node->send_cq, 1, IBV_WC_SUCCESS);
		memset(node->buf + SIZE / 2, 0, len);
		check_eq(node_rdma(node, 2, IBV_WR_RDMA_READ, SIZE / 2, len, peer, 64), 0);
		cq_expect(node->send_cq, 2, IBV_WC_SUCCESS);
		check(pattern_check(node->buf + SIZE / 2, len, i) == len, "%u bytes", len);
	}
}

static void add(struct node *node, const struct address *peer)
{
	for (uint64_t i = 0; i < 50; i++) {
		check_eq(node_rdma(node, 3, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, peer, SIZE - 64), 0);
		cq_expect(node->send_cq, 3, IBV_WC_SUCCESS);
		check_eq(*(uint64_t *)node->buf, i);
	}
}

static void run(const char *role)
{
	struct node node;
	struct address peer;
	pid_t pid;
	int fd;

	pid = spawn_self(role, &fd);
	open_node(&node);
	node_meet(&node, fd, &peer);
	write_and_read(&node, &peer);
	add(&node, &peer);
	*(uint64_t *)node.buf = 1;
	check_eq(node_rdma(&node, 4, IBV_WR_RDMA_WRITE, 0, 8, &peer, SIZE - 8), 0);
	cq_expect(node.send_cq, 4, IBV_WC_SUCCESS);
	msg_send(fd, "", 1);
	spawn_wait(pid);
	close(fd);
	node_close(&node);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return target(!strcmp(argv[1], "spinning"));
	run("sleeping");
	run("spinning");
	return 0;
}

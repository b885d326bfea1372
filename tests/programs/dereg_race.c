// SPDX-License-Identifier: MIT
/*
 * ibv_dereg_mr() against a peer that never stops writing: when it has returned, nobody touches the memory any more.
 * The same for a QP that is destroyed under fire. The peer sees an error, not a crash.
 */
#include "common.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 30, SIZE = 128 * 1024 };

static struct node_attr quick_attr(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = SIZE;
	attr.timeout = 10;
	attr.retry_cnt = 2;
	return attr;
}

/* Writes to all of the peer's memory until an error comes; answers with its status. */
static int writer(void)
{
	struct node_attr attr = quick_attr();
	struct node node;
	struct address peer;
	char word;

	node_open(&node, &attr);
	memset(node.buf, 0xff, SIZE);
	for (int round = 0; round < ROUNDS; round++) {
		static const uint32_t sizes[] = { 8, 2000, 65536, SIZE };
		struct ibv_wc wc;
		uint64_t n = 0;

		node_meet(&node, ROLE_FD, &peer);
		do {
			int err = node_rdma(&node, n, IBV_WR_RDMA_WRITE, 0, sizes[n % 4], &peer, 0);

			n++;
			check_eq(err, 0);
			while (ibv_poll_cq(node.send_cq, 1, &wc) == 0)
				;
		} while (wc.status == IBV_WC_SUCCESS);
		msg_send(ROLE_FD, &wc.status, sizeof(wc.status));
		msg_recv(ROLE_FD, &word, 1);
	}
	node_close(&node);
	return 0;
}

static void check_untouched(const struct node *node, const char *what)
{
	for (int look = 0; look < 20; look++) {
		for (int i = 0; i < SIZE; i += 8)
			check(*(volatile uint64_t *)(node->buf + i) == 0, "written after %s", what);
		sleep_ms(1);
	}
}

int main(int argc, char **argv)
{
	struct node_attr attr = quick_attr();
	enum ibv_wc_status status;
	uint64_t seed = 3;
	struct node node;
	struct address peer;
	pid_t pid;
	int fd;

	if (argc > 1 && !strcmp(argv[1], "writer"))
		return writer();
	pid = spawn_self("writer", &fd);
	node_open(&node, &attr);
	for (int round = 0; round < ROUNDS; round++) {
		bool destroy = round % 2;

		node_meet(&node, fd, &peer);
		/* Some rounds end the work before it began, most in the middle of it. */
		if (round % 5)
			sleep_ms(next_random(&seed) % 5);
		if (destroy) {
			check_eq(ibv_destroy_qp(node.qp), 0);
		} else {
			check_eq(ibv_dereg_mr(node.mr), 0);
			node.mr = NULL;
		}
		memset(node.buf, 0, SIZE);
		check_untouched(&node, destroy ? "ibv_destroy_qp" : "ibv_dereg_mr");
		msg_recv(fd, &status, sizeof(status));
		check(status == (destroy ? IBV_WC_RETRY_EXC_ERR : IBV_WC_REM_ACCESS_ERR), "%s",
		      ibv_wc_status_str(status));
		if (destroy) {
			node.qp = node_create_qp(&node);
			check(node.qp, "%s", strerror(errno));
		} else {
			node.mr = ibv_reg_mr(node.pd, node.buf, SIZE, ACCESS_ALL);
			check(node.mr, "%s", strerror(errno));
		}
		msg_send(fd, "", 1);
	}
	spawn_wait(pid);
	close(fd);
	node_close(&node);
	return 0;
}

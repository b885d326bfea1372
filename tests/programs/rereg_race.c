// SPDX-License-Identifier: MIT
/*
 * ibv_rereg_mr() against a peer that never stops writing. The key stays, so the peer goes on with the one it knows: while
 * it may write all is well, when the right is taken away nobody touches the memory once the call has returned, and what
 * it tried ends with a remote access error. The right comes back by the same key.
 */
#include "common.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 30, SIZE = 1 << 20, NO_ACCESS = IBV_ACCESS_LOCAL_WRITE };

static struct node_attr quick_attr(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = SIZE;
	return attr;
}

/* Writes to all of the peer's memory until it is told to stop or an error comes; answers with the last status. */
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

			check_eq(err, 0);
			while (ibv_poll_cq(node.send_cq, 1, &wc) == 0)
				;
			if (!n++)
				msg_send(ROLE_FD, &wc.status, sizeof(wc.status));
		} while (wc.status == IBV_WC_SUCCESS);
		msg_send(ROLE_FD, &wc.status, sizeof(wc.status));
		msg_recv(ROLE_FD, &word, 1);
	}
	node_close(&node);
	return 0;
}

static enum ibv_wc_status next_status(struct node *node, int fd)
{
	enum ibv_wc_status status;
	struct ibv_wc wc;

	/* It polls, so that it has its part in what is written to it. */
	for (int i = 0; i < 100; i++)
		check_eq(ibv_poll_cq(node->send_cq, 1, &wc), 0);
	msg_recv(fd, &status, sizeof(status));
	return status;
}

static void set_access(struct node *node, int access)
{
	uint32_t key = node->mr->rkey;

	check_eq(ibv_rereg_mr(node->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, access), 0);
	check_eq(node->mr->rkey, key);
	check_eq(node->mr->lkey, key);
}

static void check_untouched(const struct node *node)
{
	for (int look = 0; look < 5; look++) {
		for (int i = 0; i < SIZE; i += 8)
			check(*(volatile uint64_t *)(node->buf + i) == 0,
			      "written after ibv_rereg_mr");
		sleep_ms(1);
	}
}

/* What is refused leaves the right to write, to the same memory. */
static void refused(struct node *node)
{
	check(ibv_rereg_mr(node->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			   IBV_ACCESS_REMOTE_WRITE) != 0,
	      "remote without local");
	check(ibv_rereg_mr(node->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)16, 4096, 0) !=
		      0,
	      "memory that is not there");
	check(ibv_rereg_mr(node->mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0) != 0, "no domain");
}

int main(int argc, char **argv)
{
	struct node_attr attr = quick_attr();
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
		node_meet(&node, fd, &peer);
		check_eq(next_status(&node, fd), IBV_WC_SUCCESS);
		refused(&node);
		for (uint64_t end = now_us() + next_random(&seed) % 3000; now_us() < end;) {
			struct ibv_wc wc;

			check_eq(ibv_poll_cq(node.send_cq, 1, &wc), 0);
		}
		set_access(&node, NO_ACCESS);
		memset(node.buf, 0, SIZE);
		check_untouched(&node);
		check_eq(next_status(&node, fd), IBV_WC_REM_ACCESS_ERR);
		/* Back and forth, with nobody at work; it ends with the right to write. */
		set_access(&node, ACCESS_ALL);
		set_access(&node, NO_ACCESS);
		set_access(&node, ACCESS_ALL);
		msg_send(fd, "", 1);
	}
	spawn_wait(pid);
	close(fd);
	node_close(&node);
	return 0;
}

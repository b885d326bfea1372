// SPDX-License-Identifier: MIT
/*
 * A process that has ended is not there, from the moment on in which its parent hears of it: a WRITE, a READ or an atomic to
 * its memory fails, also where that memory is still mapped here and could be stored to.
 */
#include "../programs/common.h"

#include <signal.h>
#include <unistd.h>
#include <sys/wait.h>

enum { ROUNDS = 3 };

static void open_node(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.timeout = 12;
	attr.retry_cnt = 1;
	node_open(node, &attr);
}

static int target(void)
{
	struct address peer;
	struct node node;

	open_node(&node);
	node_meet(&node, ROLE_FD, &peer);
	pause();
	return 1;
}

static void ask(struct node *node, enum ibv_wr_opcode opcode, const struct address *peer,
		enum ibv_wc_status status)
{
	check_eq(node_rdma(node, 1, opcode, 0, 8, peer, 0), 0);
	cq_expect(node->send_cq, 1, status);
}

static void end_and_ask(enum ibv_wr_opcode opcode)
{
	struct address peer;
	struct node node;
	int fd;
	pid_t pid = spawn_self("target", &fd);

	open_node(&node);
	node_meet(&node, fd, &peer);
	ask(&node, opcode, &peer, IBV_WC_SUCCESS);
	check_eq(kill(pid, SIGKILL), 0);
	check_eq(waitpid(pid, NULL, 0), pid);
	ask(&node, opcode, &peer, IBV_WC_RETRY_EXC_ERR);
	close(fd);
	node_close(&node);
}

int main(int argc, char **argv)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };

	if (argc > 1)
		return target();
	for (int round = 0; round < ROUNDS; round++)
		for (int i = 0; i < 3; i++)
			end_and_ask(opcodes[i]);
	return 0;
}

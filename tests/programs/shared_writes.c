// SPDX-License-Identifier: MIT
/*
 * Large WRITEs to a process that polls, where both sides copy at the same time: areas that overlap end up as if the
 * WRITEs had been done one after the other. Once more with a target that may not fetch anything itself.
 */
#include "common.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 40, BURST = 6, AREA = 1 << 20, SIZE = 2 * AREA + 4096 };

static void open_node(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = SIZE;
	node_open(node, &attr);
}

/* Polls all the time; echoes each message, which says that a burst is over. */
static int target(void)
{
	struct node node;
	struct address peer;
	char end;

	open_node(&node);
	memset(node.buf, 0, SIZE);
	node_meet(&node, ROLE_FD, &peer);
	check_eq(node_recv(&node, 1, 2 * AREA, 8), 0);
	msg_send(ROLE_FD, "", 1);
	for (int i = 0; i < ROUNDS; i++) {
		cq_expect(node.recv_cq, 1, IBV_WC_SUCCESS);
		check_eq(node_recv(&node, 1, 2 * AREA, 8), 0);
		check_eq(node_send(&node, 2, 2 * AREA, 8, IBV_SEND_SIGNALED), 0);
		cq_expect(node.send_cq, 2, IBV_WC_SUCCESS);
	}
	msg_recv(ROLE_FD, &end, 1); /* the last READ is done */
	node_close(&node);
	return 0;
}

/* WRITEs from places of our buffer to overlapping places of the target's; model: what they make of it. */
static void burst(struct node *node, const struct address *peer, uint8_t *model, uint64_t *random)
{
	for (int i = 0; i < BURST; i++) {
		uint32_t len = next_random(random) % 4 ? 65536 + next_random(random) % 800000 : 100;
		uint32_t from = next_random(random) % (AREA - len);
		uint32_t to = next_random(random) % (AREA - len);

		memcpy(model + to, node->buf + from, len);
		check_eq(node_rdma(node, (uint64_t)i, IBV_WR_RDMA_WRITE, from, len, peer, to), 0);
	}
	check_eq(node_recv(node, 1, 2 * AREA, 8), 0);
	check_eq(node_send(node, BURST, 2 * AREA, 8, IBV_SEND_SIGNALED), 0);
	for (uint64_t i = 0; i <= BURST; i++)
		cq_expect(node->send_cq, i, IBV_WC_SUCCESS);
	cq_expect(node->recv_cq, 1, IBV_WC_SUCCESS);
}

static void run(const char *role)
{
	uint8_t *model = calloc(1, AREA);
	struct address peer;
	uint64_t random = 1;
	struct node node;
	char ready;
	int fd;
	pid_t pid = spawn_self(role, &fd);

	check(model != NULL, "memory");
	open_node(&node);
	node_meet(&node, fd, &peer);
	msg_recv(fd, &ready, 1);
	for (int round = 0; round < ROUNDS; round++) {
		pattern_fill(node.buf, AREA, (uint32_t)round);
		burst(&node, &peer, model, &random);
		check_eq(node_rdma(&node, 3, IBV_WR_RDMA_READ, AREA, AREA, &peer, 0), 0);
		cq_expect(node.send_cq, 3, IBV_WC_SUCCESS);
		check(!memcmp(node.buf + AREA, model, AREA), "%s, round %d: not as written", role,
		      round);
	}
	msg_send(fd, "", 1);
	spawn_wait(pid);
	close(fd);
	node_close(&node);
	free(model);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		if (!strcmp(argv[1], "no copies"))
			setenv("VERBATIM_DIRECT", "off", 1);
		return target();
	}
	run("target");
	if (spawn_is_process())
		run("no copies");
	return 0;
}

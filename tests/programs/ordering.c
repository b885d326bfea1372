// SPDX-License-Identifier: MIT
/*
 * What a completion promises about memory: when a message has been received, all WRITEs posted before it are visible;
 * a READ posted after a WRITE sees it; a completed READ or atomic brought the value of its time. Between two processes,
 * with sizes that take different paths.
 */
#include "common.h"

#include <endian.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 3000, SIZE = 1024 * 1024 };

static const uint32_t sizes[] = { 8, 64, 500, 4096, 20000, 100000, 300000 };

static void open_node(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = SIZE;
	node_open(node, &attr);
}

/* What orders these reads before the next round's writes is in the other process, where TSan does not look. */
__attribute__((no_sanitize("thread"))) static bool has_round(const uint8_t *buf, uint32_t len,
							     uint32_t round)
{
	return buf[0] == (uint8_t)round && buf[len - 1] == (uint8_t)round &&
	       buf[len / 2] == (uint8_t)round;
}

__attribute__((no_sanitize("thread"))) static uint32_t number_at(const uint8_t *buf)
{
	return *(const uint32_t *)buf;
}

/* For every immediate value that arrives, the area that was written before it must hold the value. */
static int receiver(void)
{
	struct node node;
	struct address peer;
	struct ibv_wc wc;
	char end;

	open_node(&node);
	node_meet(&node, ROLE_FD, &peer);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t len = sizes[i % 7];

		check_eq(node_recv(&node, i, SIZE - 64, 64), 0);
		cq_expect_at(__FILE__, __LINE__, node.recv_cq, i, IBV_WC_SUCCESS, &wc);
		/* Every other round the notice is a SEND, which carries its number as data. */
		if (i % 2)
			check_eq(number_at(node.buf + SIZE - 64), i);
		else
			check_eq(be32toh(wc.imm_data), i);
		check(has_round(node.buf, len, i), "round %u: the notice came before the data", i);
		/* The writer waits for this, so that the next round does not overwrite what is looked at. */
		check_eq(node_rdma(&node, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, SIZE - 128, 8, &peer,
				   SIZE - 8),
			 0);
		cq_expect(node.send_cq, 1, IBV_WC_SUCCESS);
	}
	/* The writer may still read. */
	msg_recv(ROLE_FD, &end, 1);
	node_close(&node);
	return 0;
}

static void post_notice(struct node *node, uint32_t i, const struct address *peer)
{
	struct ibv_sge sge = { (uintptr_t)node->buf + SIZE - 64, sizeof(i), node->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 2,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = i % 2 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM,
				  .send_flags = IBV_SEND_SIGNALED,
				  .imm_data = htobe32(i) };
	struct ibv_send_wr *bad;

	memcpy(node->buf + SIZE - 64, &i, sizeof(i));
	wr.wr.rdma.remote_addr = peer->addr + SIZE - 256;
	wr.wr.rdma.rkey = peer->rkey;
	check_eq(ibv_post_send(node->qp, &wr, &bad), 0);
}

int main(int argc, char **argv)
{
	struct node node;
	struct address peer;
	pid_t pid;
	int fd;

	if (argc > 1 && !strcmp(argv[1], "receiver"))
		return receiver();
	pid = spawn_self("receiver", &fd);
	open_node(&node);
	node_meet(&node, fd, &peer);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t len = sizes[i % 7];
		volatile uint64_t *seen = (volatile uint64_t *)(node.buf + SIZE - 8);

		memset(node.buf, (uint8_t)i, len);
		/* Posted together: the WRITE, the notice of it, and a READ of what was written. */
		check_eq(node_rdma(&node, 1, IBV_WR_RDMA_WRITE, 0, len, &peer, 0), 0);
		post_notice(&node, i, &peer);
		check_eq(node_rdma(&node, 3, IBV_WR_RDMA_READ, SIZE / 2, len, &peer, 0), 0);
		cq_expect(node.send_cq, 1, IBV_WC_SUCCESS);
		cq_expect(node.send_cq, 2, IBV_WC_SUCCESS);
		cq_expect(node.send_cq, 3, IBV_WC_SUCCESS);
		check(!memcmp(node.buf, node.buf + SIZE / 2, len),
		      "round %u: READ passed the WRITE", i);
		while (*seen != i + 1)
			ibv_poll_cq(node.send_cq, 0, NULL);
	}
	msg_send(fd, "", 1);
	spawn_wait(pid);
	close(fd);
	node_close(&node);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * One word that everybody counts up: its owner by C11 atomics, four processes by fetch-and-add or compare-and-swap, in
 * the word's memory where they reach it and in packets where not. No count is lost. And where the memory is shared, its
 * owner need not even run.
 */
#include "common.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { INITIATORS = 4, COUNTS = 3000, OWN = 200000 };

static uint64_t change(struct node *node, enum ibv_wr_opcode opcode, const struct address *peer,
		       uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge sge = { (uintptr_t)node->buf, 8, node->mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = 7,
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = opcode,
					.send_flags = IBV_SEND_SIGNALED };

	wr.wr.atomic.remote_addr = peer->addr;
	wr.wr.atomic.rkey = peer->rkey;
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	check_eq(ibv_post_send(node->qp, &wr, &bad), 0);
	cq_expect(node->send_cq, 7, IBV_WC_SUCCESS);
	return *(volatile uint64_t *)node->buf;
}

/* Count by compare-and-swap; the old value that was found is the next to try. */
static void swap_up(struct node *node, const struct address *peer)
{
	uint64_t seen = 0;

	for (int i = 0; i < COUNTS; i++) {
		for (;;) {
			uint64_t old =
				change(node, IBV_WR_ATOMIC_CMP_AND_SWP, peer, seen, seen + 1);

			if (old == seen)
				break;
			seen = old;
		}
		seen++;
	}
}

static int initiator(const char *role)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node node;
	struct address peer;
	char go;

	/* One of them has nothing but packets. */
	if (!strcmp(role, "packets") && spawn_is_process())
		setenv("VERBATIM_DIRECT", "off", 1);
	node_open(&node, &attr);
	node_meet(&node, ROLE_FD, &peer);
	msg_recv(ROLE_FD, &peer.rkey, sizeof(peer.rkey));
	msg_recv(ROLE_FD, &peer.addr, sizeof(peer.addr));
	msg_recv(ROLE_FD, &go, 1);
	if (!strcmp(role, "swap"))
		swap_up(&node, &peer);
	else
		for (int i = 0; i < COUNTS; i++)
			change(&node, IBV_WR_ATOMIC_FETCH_AND_ADD, &peer, 1, 0);
	msg_send(ROLE_FD, "", 1);
	msg_recv(ROLE_FD, &go, 1);
	node_close(&node);
	return 0;
}

static void count_together(void)
{
	static const char *const roles[INITIATORS] = { "add", "add", "swap", "packets" };
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node nodes[INITIATORS];
	struct address peer;
	struct ibv_mr *mr[INITIATORS];
	pid_t pid[INITIATORS];
	_Atomic uint64_t *word = kind_map(4096, PROT_READ | PROT_WRITE);
	uint64_t addr = (uintptr_t)word;
	int fd[INITIATORS];
	char done;

	check(word, "%s", strerror(errno));
	for (int i = 0; i < INITIATORS; i++) {
		pid[i] = spawn_self(roles[i], &fd[i]);
		node_open(&nodes[i], &attr);
		mr[i] = ibv_reg_mr(nodes[i].pd, (void *)word, 4096, ACCESS_ALL);
		check(mr[i], "%s", strerror(errno));
		node_meet(&nodes[i], fd[i], &peer);
		msg_send(fd[i], &mr[i]->rkey, sizeof(mr[i]->rkey));
		msg_send(fd[i], &addr, sizeof(addr));
	}
	for (int i = 0; i < INITIATORS; i++)
		msg_send(fd[i], "", 1);
	for (int i = 0; i < OWN; i++)
		atomic_fetch_add(word, 1);
	for (int i = 0; i < INITIATORS; i++)
		msg_recv(fd[i], &done, 1);
	check_eq(atomic_load(word), OWN + INITIATORS * COUNTS);
	for (int i = 0; i < INITIATORS; i++) {
		msg_send(fd[i], "", 1);
		spawn_wait(pid[i]);
		close(fd[i]);
		check_eq(ibv_dereg_mr(mr[i]), 0);
		node_close(&nodes[i]);
	}
	kind_unmap((void *)word, 4096);
}

static int stopped(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node node;
	struct address peer;
	char go;

	node_open(&node, &attr);
	node_meet(&node, ROLE_FD, &peer);
	msg_recv(ROLE_FD, &go, 1);
	check_eq(*(uint64_t *)node.buf, 5 * 10 + 77);
	check_eq(pattern_check(node.buf + 64, 5000, 3), 5000);
	node_close(&node);
	return 0;
}

/* The owner of the memory stands still, and all of it goes on. */
static void reach_stopped(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node node;
	struct address peer;
	pid_t pid;
	int fd;

	pid = spawn_self("stopped", &fd);
	node_open(&node, &attr);
	node_meet(&node, fd, &peer);
	kill(pid, SIGSTOP);
	check_eq(waitpid(pid, NULL, WUNTRACED), pid);
	for (uint64_t i = 0; i < 10; i++)
		check_eq(change(&node, IBV_WR_ATOMIC_FETCH_AND_ADD, &peer, 5, 0), i * 5);
	check_eq(change(&node, IBV_WR_ATOMIC_CMP_AND_SWP, &peer, 1, 2), 50);
	check_eq(change(&node, IBV_WR_ATOMIC_CMP_AND_SWP, &peer, 50, 127), 50);
	pattern_fill(node.buf + 64, 5000, 3);
	check_eq(node_rdma(&node, 1, IBV_WR_RDMA_WRITE, 64, 5000, &peer, 64), 0);
	cq_expect(node.send_cq, 1, IBV_WC_SUCCESS);
	memset(node.buf, 0, 8192);
	check_eq(node_rdma(&node, 2, IBV_WR_RDMA_READ, 0, 8192, &peer, 0), 0);
	cq_expect(node.send_cq, 2, IBV_WC_SUCCESS);
	check_eq(*(uint64_t *)node.buf, 127);
	check_eq(pattern_check(node.buf + 64, 5000, 3), 5000);
	kill(pid, SIGCONT);
	msg_send(fd, "", 1);
	spawn_wait(pid);
	close(fd);
	node_close(&node);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return !strcmp(argv[1], "stopped") ? stopped() : initiator(argv[1]);
	count_together();
	if (kind_is_shared() && spawn_is_process())
		reach_stopped();
	return 0;
}

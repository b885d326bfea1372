// SPDX-License-Identifier: MIT
/*
 * A receive buffer whose region changes while a message arrives in it: the message is all in the old memory, all in the
 * new one, or it ends with an error on both sides. Half here and half there is none of them.
 */
#include "common.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROUNDS = 60, LEN = 1 << 20, STEP = 512 };

static uint8_t *place[2];
static struct ibv_mr *mr;
static atomic_bool stop;

/* When the message has begun to arrive: a look at memory that the card writes, as TSan does not like it. */
__attribute__((no_sanitize("thread"))) static void *change(void *arg)
{
	while (!*(volatile uint8_t *)place[0] && !atomic_load(&stop))
		;
	check_eq(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, place[1], LEN, 0), 0);
	return arg;
}

static void open_node(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = LEN;
	attr.rnr_retry = 7;
	node_open(node, &attr);
}

static int sender(void)
{
	struct address peer;
	struct node node;
	struct ibv_wc wc;
	char word;

	open_node(&node);
	memset(node.buf, 'm', LEN);
	for (int i = 0; i < ROUNDS; i++) {
		node_meet(&node, ROLE_FD, &peer);
		msg_recv(ROLE_FD, &word, 1);
		check_eq(node_send(&node, 1, 0, LEN, IBV_SEND_SIGNALED), 0);
		check(cq_wait(node.send_cq, &wc, PATIENCE_MS), "no completion");
		if (wc.status != IBV_WC_SUCCESS)
			check_eq(wc.status, IBV_WC_REM_OP_ERR);
	}
	node_close(&node);
	return 0;
}

__attribute__((no_sanitize("thread"))) static size_t filled(const uint8_t *mem)
{
	size_t n = 0;

	for (size_t i = 0; i < LEN; i += STEP)
		n += mem[i] == 'm';
	return n;
}

static void receive(struct node *node, int fd)
{
	struct ibv_sge sge;
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	size_t old, new;
	pthread_t thread;
	struct ibv_wc wc;
	char word = 0;

	memset(place[0], 0, LEN);
	memset(place[1], 0, LEN);
	/* Both have the addresses of the second. */
	mr = ibv_reg_mr_iova(node->pd, place[0], LEN, (uintptr_t)place[1], ACCESS_ALL);
	check(mr);
	sge = (struct ibv_sge){ (uintptr_t)place[1], LEN, mr->lkey };
	check_eq(ibv_post_recv(node->qp, &wr, &bad), 0);
	atomic_store(&stop, false);
	check_eq(pthread_create(&thread, NULL, change, NULL), 0);
	msg_send(fd, &word, 1);
	check(cq_wait(node->recv_cq, &wc, PATIENCE_MS), "no completion");
	atomic_store(&stop, true);
	check_eq(pthread_join(thread, NULL), 0);
	old = filled(place[0]);
	new = filled(place[1]);
	check_eq(ibv_dereg_mr(mr), 0);
	if (wc.status == IBV_WC_SUCCESS)
		check(!old || !new, "%zu parts in the old memory, %zu in the new one", old, new);
	else
		check_eq(wc.status, IBV_WC_LOC_PROT_ERR);
}

int main(int argc, char **argv)
{
	struct address peer;
	struct node node;
	int fd;
	pid_t pid;

	if (argc > 1 && !strcmp(argv[1], "sender"))
		return sender();
	pid = spawn_self("sender", &fd);
	open_node(&node);
	for (int i = 0; i < 2; i++) {
		place[i] =
			mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		check(place[i] != MAP_FAILED);
	}
	for (int i = 0; i < ROUNDS; i++) {
		node_meet(&node, fd, &peer);
		receive(&node, fd);
	}
	spawn_wait(pid);
	close(fd);
	node_close(&node);
	return 0;
}

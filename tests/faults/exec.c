// SPDX-License-Identifier: MIT
/*
 * A process that executes another program without closing its device. The process keeps its id, but
 * the memory behind its keys is gone: no peer reads or writes the memory of the new program, and no
 * peer waits for a copy that the old one had begun. The end of the first thread (pthread_exit) is
 * neither: the program goes on.
 */
#include "../programs/common.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Where no program has anything, and the sanitizers expect memory of the program. */
#define PLACE ((char *)0x7ea000000000)

enum { SIZE = 65536, LEN = 64, ROUNDS = 5, LONG_COPY = 32 << 20, MS4 = 10 };

static const char secret[LEN] = "memory of another program";

static char *map_place(void)
{
	char *at = mmap(PLACE, SIZE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	check(at == PLACE, "%p", (void *)at);
	return at;
}

static void execute(const char *role)
{
	execl("/proc/self/exe", "exec", role, (char *)NULL);
	check(0, "not executed");
}

static void open_node(struct node *node, size_t size)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = size;
	attr.timeout = MS4;
	attr.retry_cnt = 7;
	node_open(node, &attr);
}

/* A node whose buffer, as its peer gets to know it, is the place. */
static void target_meet(struct node *node)
{
	struct address own, peer;
	struct ibv_mr *mr;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_node(node, SIZE);
	mr = ibv_reg_mr(node->pd, map_place(), SIZE, ACCESS_ALL);
	check(mr, "not registered");
	node_address(node, &own);
	own.addr = (uintptr_t)mr->addr;
	own.rkey = mr->rkey;
	msg_send(ROLE_FD, &own, sizeof(own));
	msg_recv(ROLE_FD, &peer, sizeof(peer));
	node_connect(node, &peer);
	msg_send(ROLE_FD, "", 1);
}

static void peer_meet(struct node *node, int fd, struct address *peer)
{
	struct address own;
	char word;

	open_node(node, SIZE);
	node_address(node, &own);
	msg_recv(fd, peer, sizeof(*peer));
	msg_send(fd, &own, sizeof(own));
	node_connect(node, peer);
	msg_recv(fd, &word, 1);
}

static int target(void)
{
	struct node node;
	char word;

	target_meet(&node);
	msg_recv(ROLE_FD, &word, 1);
	execute("other");
	return 1;
}

/* The other program: it has no device, and its memory stays as it is. */
static int other(void)
{
	char *at = map_place(), word;

	memcpy(at, secret, LEN);
	msg_send(ROLE_FD, "", 1);
	msg_recv(ROLE_FD, &word, 1);
	check(!memcmp(at, secret, LEN), "it has: %.*s", LEN, at);
	return 0;
}

static void memory_of_another_program(enum ibv_wr_opcode opcode)
{
	static const uint8_t nothing[LEN];
	struct address peer;
	struct node node;
	char word;
	int fd;
	pid_t pid = spawn_self("target", &fd);

	peer_meet(&node, fd, &peer);
	check_eq(node_rdma(&node, 1, IBV_WR_RDMA_WRITE, 0, LEN, &peer, 0), 0);
	cq_expect(node.send_cq, 1, IBV_WC_SUCCESS);
	msg_send(fd, "", 1);
	msg_recv(fd, &word, 1); /* the other program runs */
	check_eq(node_rdma(&node, 2, opcode, LEN, LEN, &peer, 0), 0);
	cq_expect(node.send_cq, 2, IBV_WC_RETRY_EXC_ERR);
	check(!memcmp(node.buf + LEN, nothing, LEN), "read: %.*s", LEN, node.buf + LEN);
	msg_send(fd, "", 1);
	spawn_wait(pid);
	close(fd);
	node_close(&node);
}

static struct node writer_node;
static struct address writer_peer;

static void *write_all_the_time(void *arg)
{
	struct ibv_wc wc;

	for (;;) {
		if (node_rdma(&writer_node, 1, IBV_WR_RDMA_WRITE, 0, LONG_COPY, &writer_peer, 0))
			return arg;
		while (!ibv_poll_cq(writer_node.send_cq, 1, &wc))
			;
	}
}

static int writer(void)
{
	pthread_t thread;
	char word;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_node(&writer_node, LONG_COPY);
	pattern_fill(writer_node.buf, LONG_COPY, 1);
	node_meet(&writer_node, ROLE_FD, &writer_peer);
	check_eq(pthread_create(&thread, NULL, write_all_the_time, NULL), 0);
	msg_recv(ROLE_FD, &word, 1);
	execute("idle");
	return 1;
}

static int idle(void)
{
	char word;

	msg_send(ROLE_FD, "", 1);
	msg_recv(ROLE_FD, &word, 1);
	return 0;
}

/* The thread that copies ends where it is; deregistration does not wait for it. */
static void copy_left_behind(void)
{
	struct address peer;
	struct node node;
	char word;
	int fd;
	pid_t pid = spawn_self("writer", &fd);

	open_node(&node, LONG_COPY);
	node_meet(&node, fd, &peer);
	while (!*(volatile uint8_t *)node.buf)
		; /* until the copies have begun */
	msg_send(fd, "", 1);
	msg_recv(fd, &word, 1);
	check_eq(ibv_dereg_mr(node.mr), 0);
	node.mr = NULL;
	msg_send(fd, "", 1);
	spawn_wait(pid);
	close(fd);
	check_eq(qp_set_state(node.qp, IBV_QPS_RESET), 0);
	node_close(&node);
}

static void *wait_for_end(void *arg)
{
	char word;

	msg_recv(ROLE_FD, &word, 1);
	_exit(memcmp(PLACE, secret, LEN) != 0);
	return arg;
}

static int leader(void)
{
	struct node node;
	pthread_t thread;

	target_meet(&node);
	check_eq(pthread_create(&thread, NULL, wait_for_end, NULL), 0);
	pthread_exit(NULL);
}

/* /proc/PID/stat has a Z when the first thread has ended. */
static void wait_zombie(pid_t pid)
{
	char path[32], state = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	while (state != 'Z') {
		FILE *file = fopen(path, "re");

		check(file, "%s", path);
		check_eq(fscanf(file, "%*d %*s %c", &state), 1);
		fclose(file);
		sleep_ms(1);
	}
}

static void first_thread_ended(void)
{
	struct address peer;
	struct node node;
	int fd;
	pid_t pid = spawn_self("leader", &fd);

	peer_meet(&node, fd, &peer);
	wait_zombie(pid);
	memcpy(node.buf, secret, LEN);
	check_eq(node_rdma(&node, 1, IBV_WR_RDMA_WRITE, 0, LEN, &peer, 0), 0);
	cq_expect(node.send_cq, 1, IBV_WC_SUCCESS);
	msg_send(fd, "", 1);
	spawn_wait(pid);
	close(fd);
	node_close(&node);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*body)(void);
	} roles[] = { { "target", target },
		      { "other", other },
		      { "writer", writer },
		      { "idle", idle },
		      { "leader", leader } };

	for (size_t i = 0; argc > 1 && i < sizeof(roles) / sizeof(roles[0]); i++)
		if (!strcmp(argv[1], roles[i].name))
			return roles[i].body();
	first_thread_ended();
	for (int i = 0; i < ROUNDS; i++) {
		memory_of_another_program(IBV_WR_RDMA_READ);
		memory_of_another_program(IBV_WR_RDMA_WRITE);
	}
	for (int i = 0; i < ROUNDS; i++)
		copy_left_behind();
	return 0;
}

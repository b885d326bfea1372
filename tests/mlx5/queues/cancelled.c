// SPDX-License-Identifier: MIT
/*
 * Doorbells of threads whose cancellation has begun: they may be cancelled anywhere, and the signal that does it is on its
 * way. The store does its work all the same, whatever it is the first to need: a peer that nobody has looked for yet, its
 * shared memory, an eventfd that is to be counted up. Then the thread ends. Nobody waits in libc for that signal, and no
 * lock is left behind.
 */
#include "hand.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { COMPLETION = 0, CANCEL_SIGNAL = 32 /* libc's */ };

static struct hand hand;
static struct hand_cq cq, recv_cq;
static struct hand_qp qp;
static _Atomic bool ready, begun, rung;

static void mask(int how)
{
	const uint64_t set = 1ull << (CANCEL_SIGNAL - 1);

	check_eq(syscall(SYS_rt_sigprocmask, how, &set, NULL, 8), 0);
}

static void *ring(void *arg)
{
	mask(SIG_BLOCK); /* until the store is over: as if it came in the middle of it */
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	atomic_store(&ready, true);
	while (!atomic_load(&begun))
		;
	hand_ring(arg);
	atomic_store(&rung, true);
	mask(SIG_UNBLOCK);
	for (;;)
		pause();
	return NULL;
}

/* A WRITE whose doorbell such a thread rings. */
static void write_cancelled(const struct hand_address *to)
{
	struct mlx5_cqe64 cqe;
	pthread_t thread;
	struct wqe wqe;
	void *result;

	atomic_store(&ready, false);
	atomic_store(&begun, false);
	atomic_store(&rung, false);
	wqe_begin(&wqe, MLX5_OPCODE_RDMA_WRITE, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	wqe_put_raddr(&wqe, to->addr, to->rkey);
	wqe_put_data(&wqe, hand.buf, 64, hand.mr->lkey);
	hand_post(&qp, &wqe);
	check_eq(pthread_create(&thread, NULL, ring, &qp), 0);
	while (!atomic_load(&ready))
		sched_yield();
	check_eq(pthread_cancel(thread), 0);
	atomic_store(&begun, true);
	check_eq(pthread_join(thread, &result), 0);
	check(result == PTHREAD_CANCELED && atomic_load(&rung));
	hand_expect(&cq, &qp, MLX5_CQE_REQ, &cqe);
}

/* --- events -------------------------------------------------------------------------------------- */

static void counts_event(void)
{
	struct mlx5dv_devx_event_channel *channel = mlx5dv_devx_create_event_channel(hand.ctx, 0);
	struct hand_address own;
	int fd = eventfd(0, EFD_CLOEXEC);
	uint64_t count = 0;

	check(channel && fd >= 0);
	hand_qp(&hand, &qp, IBV_QPT_RC, &cq, &recv_cq);
	hand_address(&qp, &own);
	hand_connect(&qp, &own);
	check_eq(mlx5dv_devx_subscribe_devx_event_fd(channel, fd, cq.obj, COMPLETION), 0);
	for (int i = 0; i < 3; i++) {
		hand_arm(&cq, false);
		write_cancelled(&own);
		check_eq(read(fd, &count, sizeof(count)), (ssize_t)sizeof(count));
		check_eq(count, 1);
	}
	hand_qp_end(&qp);
	mlx5dv_devx_destroy_event_channel(channel);
	close(fd);
}

/* --- a peer -------------------------------------------------------------------------------------- */

static int target(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct hand_address peer, self = { 0 };
	struct address mine, other = { 0 };
	struct node node;
	char word;

	node_open(&node, &attr);
	node_address(&node, &mine);
	self.qpn = mine.qpn;
	self.psn = mine.psn;
	self.rkey = mine.rkey;
	self.addr = mine.addr;
	self.gid = mine.gid;
	msg_send(ROLE_FD, &self, sizeof(self));
	msg_recv(ROLE_FD, &peer, sizeof(peer));
	other.qpn = peer.qpn;
	other.psn = peer.psn;
	other.gid = peer.gid;
	node_connect(&node, &other);
	msg_send(ROLE_FD, "", 1);
	msg_recv(ROLE_FD, &word, 1);
	check_eq(pattern_check(node.buf, 64, 7), 64);
	node_close(&node);
	return 0;
}

/* Memory that is reached by loads and stores, by the kernel or in packets: kind is of the target's buffer. */
static void first_to_look(const char *kind)
{
	struct hand_address peer, own;
	pid_t pid;
	char word;
	int fd;

	setenv("VERBATIM_TEST_MEMORY", kind, 1);
	pid = spawn_self("target", &fd);
	hand_qp(&hand, &qp, IBV_QPT_RC, &cq, &recv_cq);
	hand_address(&qp, &own);
	msg_recv(fd, &peer, sizeof(peer));
	msg_send(fd, &own, sizeof(own));
	hand_connect(&qp, &peer);
	msg_recv(fd, &word, 1);
	pattern_fill(hand.buf, 64, 7);
	write_cancelled(&peer);
	msg_send(fd, "", 1);
	spawn_wait(pid);
	close(fd);
	hand_qp_end(&qp);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "target"))
		return target();
#ifdef __SANITIZE_ADDRESS__
	/* It keeps what it knows of the frames that a cancellation leaves, and calls the next ones there wrong. */
	test_skip("no cancellation inside of frames with AddressSanitizer");
#endif
	alarm(50); /* a thread that waits for ever */
	hand_open(&hand);
	hand_cq(&hand, &cq, 4);
	hand_cq(&hand, &recv_cq, 4);
	counts_event();
	for (int i = 0; i < 3; i++) {
		first_to_look("shared");
		first_to_look("private");
	}
	hand_cq_end(&cq);
	hand_cq_end(&recv_cq);
	hand_close(&hand);
	return 0;
}

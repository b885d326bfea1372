// SPDX-License-Identifier: MIT
/*
 * fork() in a program that uses verbs leaves the parent whole: children that exit, that call exit handlers, that
 * execute something, that open the device themselves, that poll their parent's queues, that a handler forks in the
 * middle of a fork, and many of them while messages run.
 */
#include "common.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct node a, b;
static struct address to;

static void ping(uint64_t i)
{
	uint32_t len = (uint32_t)(i * 97 % 30000);

	pattern_fill(a.buf, len, (uint32_t)i);
	check_eq(node_recv(&b, i, 0, 30000), 0);
	check_eq(node_send(&a, i, 0, len, IBV_SEND_SIGNALED), 0);
	cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
	cq_expect(b.recv_cq, i, IBV_WC_SUCCESS);
	check_eq(pattern_check(b.buf, len, (uint32_t)i), len);
	check_eq(node_rdma(&a, i, IBV_WR_RDMA_READ, 32768, 100, &to, 0), 0);
	cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
}

static void reap(pid_t pid)
{
	int status;

	check_eq(waitpid(pid, &status, 0), pid);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: wait status %#x", status);
}

/* By libc's function, by the one that calls no handlers, and past libc. */
static pid_t fork_by(uint64_t way)
{
	return way == 0   ? fork()
	       : way == 1 ? _Fork()
			  : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* exit() runs the library's own exit handlers in the child: they must not end the parent's membership. */
static void children_exit(void)
{
	for (uint64_t i = 0; i < 12; i++) {
		pid_t pid = fork_by(i / 2 % 3);

		check(pid >= 0, "%s", strerror(errno));
		if (pid == 0) {
			if (i % 2)
				exit(0);
			_exit(0);
		}
		ping(i);
		reap(pid);
		ping(i + 1);
	}
}

static void children_exec(void)
{
	for (uint64_t i = 0; i < 5; i++) {
		pid_t pid = fork();

		check(pid >= 0, "%s", strerror(errno));
		if (pid == 0) {
			execlp("true", "true", (char *)NULL);
			_exit(127);
		}
		reap(pid);
		ping(i);
	}
}

/* --- a handler that forks ---------------------------------------------------------------------------- */

static _Atomic bool raise_in_fork;
static _Atomic int forked_in_handler;

static void fork_in_handler(int sig)
{
	pid_t pid = fork();

	(void)sig;
	check(pid >= 0, "%s", strerror(errno));
	if (pid == 0)
		_exit(0);
	reap(pid);
	forked_in_handler++;
}

static void in_fork(void)
{
	if (atomic_exchange(&raise_in_fork, false))
		raise(SIGUSR1);
}

/* Registered before those of any library, so it is called after theirs. */
static void register_first(void)
{
	pthread_atfork(in_fork, NULL, NULL);
}

__attribute__((section(".preinit_array"),
	       used)) static void (*const before_libraries)(void) = register_first;

/* A signal comes when the library is prepared for a fork, and its handler forks, too. */
static void handler_forks(void)
{
	struct sigaction sa = { .sa_handler = fork_in_handler }, old;
	sigset_t mask;

	check_eq(sigaction(SIGUSR1, &sa, &old), 0);
	forked_in_handler = 0;
	for (uint64_t i = 0; i < 5; i++) {
		pid_t pid;

		raise_in_fork = true;
		pid = fork();
		check(pid >= 0, "%s", strerror(errno));
		if (pid == 0) {
			check_eq(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
			_exit(sigismember(&mask, SIGUSR1));
		}
		reap(pid);
		check_eq(forked_in_handler, (int)i + 1);
		check_eq(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
		check_eq(sigismember(&mask, SIGUSR1), 0);
		ping(i);
	}
	check_eq(sigaction(SIGUSR1, &old, NULL), 0);
}

/* The child is a process like any other: it may open the device and talk to itself. */
static void child_opens(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	pid_t pid = fork();

	check(pid >= 0, "%s", strerror(errno));
	if (pid == 0) {
		struct node x, y;

		node_pair(&x, &y, &attr);
		check(x.qp->qp_num != a.qp->qp_num && x.qp->qp_num != b.qp->qp_num,
		      "the child has a QP number of its parent");
		check_eq(node_recv(&y, 1, 0, 64), 0);
		check_eq(node_send(&x, 2, 0, 64, IBV_SEND_SIGNALED), 0);
		cq_expect(x.send_cq, 2, IBV_WC_SUCCESS);
		cq_expect(y.recv_cq, 1, IBV_WC_SUCCESS);
		node_close(&x);
		node_close(&y);
		exit(0);
	}
	ping(1);
	reap(pid);
	ping(2);
}

static atomic_bool done;

static void *forker(void *arg)
{
	int *count = arg;

	while (!done) {
		pid_t pid = fork();

		check(pid >= 0, "%s", strerror(errno));
		if (pid == 0)
			_exit(0);
		reap(pid);
		(*count)++;
		sleep_ms(1);
	}
	return NULL;
}

static void forks_during_traffic(void)
{
	int count = 0;
	pthread_t thread;

	done = false;
	check_eq(pthread_create(&thread, NULL, forker, &count), 0);
	for (uint64_t i = 0; i < 2000; i++)
		ping(i);
	done = true;
	pthread_join(thread, NULL);
	check(count > 0, "no fork happened");
}

static void *poller(void *arg)
{
	struct ibv_wc wc;

	while (!done) {
		ibv_poll_cq(b.recv_cq, 1, &wc);
		ibv_poll_cq(b.send_cq, 1, &wc);
	}
	return arg;
}

/*
 * A thread may hold the lock of a queue at the moment of a fork, and in the child there is no such thread. What the child
 * does to its parent's objects has no effect, but it returns.
 */
static void children_poll(void)
{
	enum { POLLERS = 4, CHILDREN = 200 };
	pthread_t thread[POLLERS];

	done = false;
	for (int i = 0; i < POLLERS; i++)
		check_eq(pthread_create(&thread[i], NULL, poller, NULL), 0);
	for (int i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();

		check(pid >= 0, "%s", strerror(errno));
		if (pid == 0) {
			struct ibv_wc wc;

			alarm(PATIENCE_MS / 1000);
			for (int n = 0; n < 10; n++) {
				check_eq(ibv_poll_cq(b.recv_cq, 1, &wc), 0);
				check_eq(ibv_poll_cq(b.send_cq, 1, &wc), 0);
				check_eq(ibv_req_notify_cq(b.recv_cq, 0), 0);
			}
			_exit(0);
		}
		reap(pid);
	}
	done = true;
	for (int i = 0; i < POLLERS; i++)
		pthread_join(thread[i], NULL);
}

/* Events of a message to itself, and objects that come and go, on the context of a node. */
static void *events(void *arg)
{
	struct node *node = arg;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	for (uint64_t i = 0; !done; i++) {
		check_eq(ibv_req_notify_cq(node->recv_cq, 0), 0);
		check_eq(node_recv(node, i, 0, 64), 0);
		check_eq(node_send(node, i, 0, 64, IBV_SEND_SIGNALED), 0);
		check_eq(ibv_get_cq_event(node->channel, &cq, &context), 0);
		ibv_ack_cq_events(cq, 1);
		cq_expect(node->send_cq, i, IBV_WC_SUCCESS);
		cq_expect_at(__FILE__, __LINE__, node->recv_cq, i, IBV_WC_SUCCESS, &wc);
	}
	return NULL;
}

static void *churn(void *arg)
{
	struct node *node = arg;

	while (!done) {
		struct ibv_cq *cq = ibv_create_cq(node->ctx, 10, NULL, node->channel, 0);
		struct ibv_mr *mr = ibv_reg_mr(node->pd, node->buf, 64, 0);
		struct ibv_context *ctx = device_open();
		struct ibv_qp *qp = node_create_qp(node);

		check(cq && mr && qp, "%s", strerror(errno));
		check_eq(ibv_destroy_qp(qp), 0);
		check_eq(ibv_dereg_mr(mr), 0);
		check_eq(ibv_destroy_cq(cq), 0);
		check_eq(ibv_close_device(ctx), 0);
	}
	return NULL;
}

/* What its parent's threads were about to do may show: only that each call returns is certain. */
static void destroy_all(struct node *node)
{
	check_eq(ibv_destroy_qp(node->qp), 0);
	check_eq(ibv_dereg_mr(node->mr), 0);
	ibv_destroy_cq(node->recv_cq);
	ibv_destroy_cq(node->send_cq);
	ibv_destroy_comp_channel(node->channel);
	ibv_dealloc_pd(node->pd);
	check_eq(ibv_close_device(node->ctx), 0);
}

/*
 * The same with the locks of contexts and event queues: threads of the parent get events, make objects and destroy them at
 * the moment of a fork. The child destroys what it has from its parent and makes its own.
 */
__attribute__((unused)) static void children_destroy(void)
{
	enum { CHILDREN = 100 };
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address self;
	struct node node;
	pthread_t thread[2];

	attr.events = true;
	node_open(&node, &attr);
	node_address(&node, &self);
	node_connect(&node, &self);
	done = false;
	check_eq(pthread_create(&thread[0], NULL, events, &node), 0);
	check_eq(pthread_create(&thread[1], NULL, churn, &node), 0);
	for (int i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();

		check(pid >= 0, "%s", strerror(errno));
		if (pid == 0) {
			struct node own;

			alarm(PATIENCE_MS / 1000);
			if (i % 2)
				destroy_all(&node);
			node_open(&own, &attr);
			node_close(&own);
			_exit(0);
		}
		reap(pid);
	}
	done = true;
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
	node_close(&node);
}

static void run(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	node_pair(&a, &b, &attr);
	node_address(&b, &to);
	children_exit();
	children_exec();
	handler_forks();
	child_opens();
	forks_during_traffic();
	children_poll();
	/* AddressSanitizer's own allocator does not know forks: a child hangs there on a lock of its parent's threads. */
#ifndef __SANITIZE_ADDRESS__
	children_destroy();
#endif
	node_close(&a);
	node_close(&b);
}

int main(void)
{
	run();
	/* And once more with the promise that a program may ask for. */
	check_eq(ibv_fork_init(), 0);
	run();
	check(ibv_is_fork_initialized() != IBV_FORK_DISABLED, "ibv_fork_init() had no effect");
	return 0;
}

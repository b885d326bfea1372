// SPDX-License-Identifier: MIT
/*
 * Threads that are cancelled in a call of the verbs, none of which is a cancellation point: the
 * thread comes through the call and ends at the next point of its own. So it leaves no lock behind.
 */
#include "../programs/common.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct node node;
static struct address other;
static bool came_through;

static void *run_cancelled(void *body)
{
	pthread_cancel(pthread_self());
	((void (*)(void))body)();
	came_through = true;
	pthread_testcancel();
	return body;
}

static void in_cancelled_thread(void (*body)(void))
{
	pthread_t thread;
	void *result;

	came_through = false;
	check_eq(pthread_create(&thread, NULL, run_cancelled, (void *)body), 0);
	check_eq(pthread_join(thread, &result), 0);
	check(came_through, "it ended in the call");
	check(result == PTHREAD_CANCELED, "it was not cancelled");
}

/* A refusal, with a line in the log. */
static void post_bad_key(void)
{
	struct ibv_sge sge = { (uintptr_t)node.buf, 8, 0 };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };

	check_eq(ibv_post_send(node.qp, &wr, &bad), 0);
}

/* As cq_expect(), which sleeps: a cancellation point. */
static void poll_success(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		;
	check_status(&wc, IBV_WC_SUCCESS);
}

/* A completion whose event wakes the descriptor of the channel. */
static void post_with_event(void)
{
	check_eq(node_send(&node, 1, 0, 8, IBV_SEND_SIGNALED), 0);
	poll_success(node.recv_cq);
}

/* The first direct access asks the system whether the peer is alive, and maps what it shows. */
static void write_to_peer(void)
{
	check_eq(node_rdma(&node, 1, IBV_WR_RDMA_WRITE, 0, 8, &other, 0), 0);
	poll_success(node.send_cq);
}

/* The first device of a process: files, a thread. */
static void open_and_close(void)
{
	struct ibv_context *ctx = device_open();

	check_eq(ibv_close_device(ctx), 0);
}

static void connected_to_itself(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address own;

	attr.events = true;
	node_open(&node, &attr);
	node_address(&node, &own);
	node_connect(&node, &own);
	check_eq(node_recv(&node, 1, 64, 8), 0);
	check_eq(ibv_req_notify_cq(node.recv_cq, 0), 0);
	in_cancelled_thread(post_with_event);
	in_cancelled_thread(post_bad_key);
	check_eq(qp_set_state(node.qp, IBV_QPS_RESET), 0);
	node_close(&node);
}

static int target(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	char word;

	node_open(&node, &attr);
	node_meet(&node, ROLE_FD, &other);
	msg_send(ROLE_FD, "", 1);
	msg_recv(ROLE_FD, &word, 1);
	node_close(&node);
	return 0;
}

static void connected_to_peer(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	char word;
	int fd;
	pid_t pid = spawn_self("target", &fd);

	node_open(&node, &attr);
	node_meet(&node, fd, &other);
	msg_recv(fd, &word, 1);
	in_cancelled_thread(write_to_peer);
	msg_send(fd, "", 1);
	spawn_wait(pid);
	close(fd);
	node_close(&node);
}

static int silent(void)
{
	close(STDERR_FILENO);
	check_eq(dup2(ROLE_FD, STDERR_FILENO), STDERR_FILENO);
	connected_to_itself();
	return 0;
}

int main(int argc, char **argv)
{
	char line[1024];
	pid_t pid;
	int fd;

	if (argc > 1 && !strcmp(argv[1], "target"))
		return target();
	if (argc > 1)
		return silent();
	in_cancelled_thread(open_and_close);
	connected_to_peer();
	setenv("VERBATIM_LOG", "info", 1);
	pid = spawn_self("silent", &fd);
	spawn_wait(pid);
	/* There was a line, or nothing was tested. */
	check(recv(fd, line, sizeof(line), MSG_DONTWAIT) > 0, "no line");
	close(fd);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * A forked child has the same descriptors as its parent. Whatever it does to its parent's objects, what the descriptors
 * announce stays for the parent, and no event comes that the parent's card did not cause. The child itself does not wait
 * for its parent's threads.
 */
#include "common.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>

static struct node a, b;

static bool is_readable(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 0) == 1;
}

static void get_cq_event(void)
{
	struct ibv_cq *cq;
	void *context;

	check_eq(ibv_get_cq_event(b.channel, &cq, &context), 0);
	check(cq == b.recv_cq, "an event of another CQ");
}

static void get_async_event(void)
{
	struct ibv_async_event event;

	check_eq(ibv_get_async_event(b.ctx, &event), 0);
	check_eq(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	ibv_ack_async_event(&event);
}

/* One message, which is an event of the CQ and one of the SRQ. */
static void message(uint64_t i)
{
	struct ibv_srq_attr attr = { .srq_limit = 1 };

	check_eq(node_recv(&b, i, 0, 64), 0);
	check_eq(ibv_modify_srq(b.srq, &attr, IBV_SRQ_LIMIT), 0);
	check_eq(ibv_req_notify_cq(b.recv_cq, 0), 0);
	check_eq(node_send(&a, i, 0, 64, IBV_SEND_SIGNALED), 0);
	cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
	cq_expect(b.recv_cq, i, IBV_WC_SUCCESS);
}

static void child_gets(void)
{
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;

	check_eq(ibv_get_cq_event(b.channel, &cq, &context), -1);
	check_eq(errno, EINVAL);
	check_eq(ibv_get_async_event(b.ctx, &event), -1);
	check_eq(errno, EINVAL);
	ibv_ack_cq_events(b.recv_cq, 1);
}

static void child_arms(void)
{
	struct ibv_srq_attr attr = { .srq_limit = 5 };

	check_eq(ibv_req_notify_cq(b.recv_cq, 0), 0);
	check_eq(ibv_modify_srq(b.srq, &attr, IBV_SRQ_LIMIT), EINVAL);
}

static void child_destroys(void)
{
	node_close(&b);
}

static void in_child(void (*act)(void))
{
	pid_t pid = fork();
	int status;

	check(pid >= 0, "%s", strerror(errno));
	if (pid == 0) {
		alarm(PATIENCE_MS / 1000);
		act();
		_exit(0);
	}
	check_eq(waitpid(pid, &status, 0), pid);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: wait status %#x", status);
}

int main(void)
{
	static void (*const acts[])(void) = { child_gets, child_arms, child_destroys };
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.events = true;
	attr.srq = true;
	node_pair(&a, &b, &attr);
	for (unsigned int i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
		/* Of the three events of the CQ one was acknowledged, one fetched and one is unread. */
		message(1);
		get_cq_event();
		get_async_event();
		ibv_ack_cq_events(b.recv_cq, 1);
		message(2);
		get_cq_event();
		get_async_event();
		in_child(acts[i]);
		check(!is_readable(b.channel->fd), "an event of the CQ that nobody caused");
		check(!is_readable(b.ctx->async_fd), "an asynchronous event that nobody caused");
		message(3);
		in_child(acts[i]);
		check(is_readable(b.channel->fd), "the event of the CQ is lost");
		check(is_readable(b.ctx->async_fd), "the asynchronous event is lost");
		get_cq_event();
		get_async_event();
		check(!is_readable(b.channel->fd), "one event too many of the CQ");
		check(!is_readable(b.ctx->async_fd), "one asynchronous event too many");
		ibv_ack_cq_events(b.recv_cq, 2);
	}
	node_close(&a);
	node_close(&b);
	return 0;
}

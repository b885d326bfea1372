// SPDX-License-Identifier: MIT
/*
 * Between getting an event and acknowledging it a thread may use the object that the event names, though another thread
 * destroys it: the destruction waits for the acknowledgement. In that time the object has no further events, and its number
 * is not given to another. What is in use is refused at once, not after the wait.
 */
#include "common.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static struct node a, b;
static atomic_int result;

static bool is_readable(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 0) == 1;
}

/* No event is there, or it is one from before the destruction began, and goes. */
static void expect_quiet(int fd)
{
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;

	while (is_readable(fd))
		check(now_us() < end, "an event of an object that goes");
}

static void get_async(struct ibv_context *ctx, enum ibv_event_type type,
		      struct ibv_async_event *event)
{
	check_eq(ibv_get_async_event(ctx, event), 0);
	check_eq(event->event_type, type);
}

static void *destroy_cq(void *arg)
{
	atomic_store(&result, ibv_destroy_cq(arg));
	return NULL;
}

static void *destroy_qp(void *arg)
{
	atomic_store(&result, ibv_destroy_qp(arg));
	return NULL;
}

static void *destroy_srq(void *arg)
{
	atomic_store(&result, ibv_destroy_srq(arg));
	return NULL;
}

/* Where the thread is late, the test sees less and does not fail. */
static pthread_t begin(void *(*destroy)(void *arg), void *object)
{
	pthread_t thread;

	atomic_store(&result, -1);
	check_eq(pthread_create(&thread, NULL, destroy, object), 0);
	sleep_ms(100);
	check_eq(atomic_load(&result), -1); /* it waits */
	return thread;
}

static void end(pthread_t thread)
{
	check_eq(pthread_join(thread, NULL), 0);
	check_eq(atomic_load(&result), 0);
}

static void use_cq(void)
{
	struct ibv_cq *cq = b.recv_cq, *event_cq, *other;
	struct ibv_wc wc;
	pthread_t thread;
	void *context;

	check_eq(ibv_req_notify_cq(cq, 0), 0);
	for (uint64_t i = 0; i < 2; i++) {
		check_eq(node_recv(&b, i, 0, 64), 0);
		check_eq(node_send(&a, i, 0, 64, IBV_SEND_SIGNALED), 0);
		cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
	}
	check_eq(ibv_get_cq_event(b.channel, &event_cq, &context), 0);
	check(event_cq == cq, "an event of another CQ");
	check_eq(ibv_req_notify_cq(cq, 0), 0); /* the second message: an event that nobody gets */
	check(is_readable(b.channel->fd), "no event of the second message");
	check_eq(ibv_destroy_cq(cq), EBUSY);
	check(is_readable(b.channel->fd), "what was refused has dropped an event");
	check_eq(ibv_destroy_qp(b.qp), 0);
	b.qp = NULL;
	b.recv_cq = NULL;
	thread = begin(destroy_cq, cq);
	check_eq(ibv_poll_cq(cq, 1, &wc), 0); /* they went with the QP */
	check_eq(ibv_req_notify_cq(cq, 0), 0);
	check_eq(ibv_resize_cq(cq, 200), 0);
	other = ibv_create_cq(b.ctx, 10, NULL, b.channel, 0);
	check(other, "%s", strerror(errno));
	check(other->handle != cq->handle, "two CQs have number %u", cq->handle);
	expect_quiet(b.channel->fd);
	ibv_ack_cq_events(cq, 1);
	end(thread);
	check_eq(ibv_destroy_cq(other), 0);
}

static void to_sqd(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	check_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
}

static void use_qp(void)
{
	struct ibv_async_event event;
	struct ibv_qp *qp = a.qp, *other;
	pthread_t thread;

	to_sqd(qp);
	get_async(a.ctx, IBV_EVENT_SQ_DRAINED, &event);
	check(event.element.qp == qp, "an event of another QP");
	thread = begin(destroy_qp, qp);
	check_eq(qp_get_state(qp), IBV_QPS_SQD);
	other = node_create_qp(&a);
	check(other, "%s", strerror(errno));
	check(other->qp_num != qp->qp_num, "two QPs have number %u", qp->qp_num);
	check_eq(qp_set_state(qp, IBV_QPS_RTS), 0);
	to_sqd(qp);
	check_eq(qp_set_state(qp, IBV_QPS_ERR), 0);
	expect_quiet(a.ctx->async_fd);
	ibv_ack_async_event(&event);
	end(thread);
	a.qp = other;
}

static void use_srq(void)
{
	struct ibv_srq_attr attr = { .srq_limit = 2 };
	struct ibv_async_event event;
	struct ibv_srq *srq = b.srq;
	pthread_t thread;

	check_eq(node_recv(&b, 1, 0, 64), 0);
	check_eq(node_recv(&b, 2, 0, 64), 0);
	check_eq(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
	check_eq(node_send(&a, 1, 0, 64, IBV_SEND_SIGNALED), 0);
	get_async(b.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, &event);
	check(event.element.srq == srq, "an event of another SRQ");
	check_eq(ibv_destroy_srq(srq), EBUSY);
	check_eq(ibv_destroy_qp(b.qp), 0);
	b.qp = NULL;
	thread = begin(destroy_srq, srq);
	check_eq(node_recv(&b, 3, 0, 64), 0);
	attr.srq_limit = 5;
	check_eq(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0); /* is reached at once */
	memset(&attr, 0xff, sizeof(attr));
	check_eq(ibv_query_srq(srq, &attr), 0);
	check_eq(attr.srq_limit, 0);
	expect_quiet(b.ctx->async_fd);
	ibv_ack_async_event(&event);
	end(thread);
	b.srq = NULL;
}

static void run(void (*use)(void), bool srq)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.events = true;
	attr.srq = srq;
	node_pair(&a, &b, &attr);
	use();
	node_close(&a);
	node_close(&b);
}

int main(void)
{
	run(use_cq, false);
	run(use_qp, false);
	run(use_srq, true);
	return 0;
}

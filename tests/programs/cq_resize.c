// SPDX-License-Identifier: MIT
/*
 * A CQ is resized up and down while messages complete on it: none is lost, none comes twice, the order stays. One that
 * holds more than the new size keeps its ring.
 */
#include "common.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

enum { MESSAGES = 20000 };

static struct node a, b;
static atomic_bool done;
static atomic_int resizes;

/* Another thread changes the size while the main thread sends and polls. */
static void *resizer(void *arg)
{
	static const int sizes[] = { 300, 1000, 257, 4000, 512 };

	(void)arg;
	for (int i = 0; !done; i++) {
		int err = ibv_resize_cq(b.recv_cq, sizes[i % 5]);

		check(err == 0, "resize to %d: %d", sizes[i % 5], err);
		check(b.recv_cq->cqe >= sizes[i % 5], "cqe %d", b.recv_cq->cqe);
		resizes++;
	}
	return NULL;
}

static void under_load(void)
{
	uint64_t sent = 0, received = 0;
	struct ibv_wc wc;
	pthread_t thread;

	check_eq(pthread_create(&thread, NULL, resizer, NULL), 0);
	while (received < MESSAGES) {
		/* At most 32 on the way, so that the smallest size has room for all. */
		if (sent < MESSAGES && sent - received < 32) {
			check_eq(node_recv(&b, sent, 0, 64), 0);
			check_eq(node_send(&a, sent, 0, 8, sent % 16 ? 0 : IBV_SEND_SIGNALED), 0);
			if (sent % 16 == 0)
				cq_expect(a.send_cq, sent, IBV_WC_SUCCESS);
			sent++;
		}
		if (ibv_poll_cq(b.recv_cq, 1, &wc) > 0) {
			check_status(&wc, IBV_WC_SUCCESS);
			check_eq(wc.wr_id, received);
			received++;
		}
	}
	/* A busy machine may not have let the other thread run yet. */
	while (resizes == 0)
		sleep_ms(1);
	done = true;
	pthread_join(thread, NULL);
	check(!cq_wait(b.recv_cq, &wc, 5), "a completion came twice");
}

/* Unpolled completions move to the new ring, and too small a ring is refused. */
static void with_content(void)
{
	struct ibv_wc wc;
	int err;

	check_eq(ibv_resize_cq(b.recv_cq, 255), 0);
	for (uint64_t i = 0; i < 40; i++) {
		check_eq(node_recv(&b, i, 0, 64), 0);
		check_eq(node_send(&a, i, 0, 8, IBV_SEND_SIGNALED), 0);
		cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
	}
	sleep_ms(20); /* the receiver's completions are in the ring now */
	err = ibv_resize_cq(b.recv_cq, 1);
	check(err != 0 || b.recv_cq->cqe >= 40, "40 completions in a ring of %d", b.recv_cq->cqe);
	check_eq(ibv_resize_cq(b.recv_cq, 2000), 0);
	check(b.recv_cq->cqe >= 2000, "cqe %d", b.recv_cq->cqe);
	for (uint64_t i = 0; i < 40; i++)
		cq_expect(b.recv_cq, i, IBV_WC_SUCCESS);
	check(!cq_wait(b.recv_cq, &wc, 1), "a completion came twice");
}

static void refused(void)
{
	struct ibv_device_attr device;

	check_eq(ibv_query_device(a.ctx, &device), 0);
	check_eq(ibv_resize_cq(b.recv_cq, 0), EINVAL);
	check_eq(ibv_resize_cq(b.recv_cq, -1), EINVAL);
	if (device.max_cqe < 0x7fffffff)
		check_eq(ibv_resize_cq(b.recv_cq, device.max_cqe + 1), EINVAL);
}

int main(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	node_pair(&a, &b, &attr);
	under_load();
	with_content();
	refused();
	node_close(&a);
	node_close(&b);
	return 0;
}

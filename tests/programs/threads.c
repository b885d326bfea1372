// SPDX-License-Identifier: MIT
/*
 * libibverbs is thread-safe: four threads post to one send queue, two poll its CQ, while two others post receives and
 * poll on the receiving side. Every message arrives once.
 */
#include "common.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sched.h>
#include <string.h>

enum { POSTERS = 4, PER_POSTER = 5000, TOTAL = POSTERS * PER_POSTER, WINDOW = 48 };

static struct node a, b;
static atomic_uint outstanding, completed, received;
static atomic_uchar seen_send[TOTAL], seen_recv[TOTAL];

/* The message carries its own number, so that the receiver knows what came. */
static void *poster(void *arg)
{
	uint32_t first = (uint32_t)(uintptr_t)arg * PER_POSTER;

	for (uint32_t i = first; i < first + PER_POSTER; i++) {
		struct ibv_sge sge = { (uintptr_t)&i, sizeof(i), 0 };
		struct ibv_send_wr wr = { .wr_id = i,
					  .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE };
		struct ibv_send_wr *bad;

		while (atomic_fetch_add(&outstanding, 1) >= WINDOW) {
			atomic_fetch_sub(&outstanding, 1);
			sched_yield();
		}
		check_eq(ibv_post_send(a.qp, &wr, &bad), 0);
	}
	return NULL;
}

static void *send_poller(void *arg)
{
	struct ibv_wc wc[8];

	(void)arg;
	while (completed < TOTAL) {
		int n = ibv_poll_cq(a.send_cq, 8, wc);

		check(n >= 0, "poll");
		for (int i = 0; i < n; i++) {
			check_status(&wc[i], IBV_WC_SUCCESS);
			check(wc[i].wr_id < TOTAL, "wr_id");
			check_eq(atomic_fetch_add(&seen_send[wc[i].wr_id], 1), 0);
			atomic_fetch_sub(&outstanding, 1);
			atomic_fetch_add(&completed, 1);
		}
		if (!n)
			sched_yield();
	}
	return NULL;
}

/* Each takes completions and puts the buffer back; wr_id is the buffer's number. */
static void *recv_worker(void *arg)
{
	struct ibv_wc wc;

	(void)arg;
	while (received < TOTAL) {
		uint32_t number;

		if (ibv_poll_cq(b.recv_cq, 1, &wc) == 0) {
			sched_yield();
			continue;
		}
		check_status(&wc, IBV_WC_SUCCESS);
		check_eq(wc.byte_len, sizeof(number));
		memcpy(&number, b.buf + wc.wr_id * 64, sizeof(number));
		check(number < TOTAL, "message %u", number);
		check_eq(atomic_fetch_add(&seen_recv[number], 1), 0);
		atomic_fetch_add(&received, 1);
		check_eq(node_recv(&b, wc.wr_id, wc.wr_id * 64, 64), 0);
	}
	return NULL;
}

/* Objects are made and destroyed by all threads at once. */
static void *creator(void *arg)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	(void)arg;
	attr.size = 8192;
	for (int i = 0; i < 20; i++) {
		struct node x, y;

		node_pair(&x, &y, &attr);
		check_eq(node_recv(&y, 1, 0, 64), 0);
		check_eq(node_send(&x, 2, 0, 64, IBV_SEND_SIGNALED), 0);
		cq_expect(x.send_cq, 2, IBV_WC_SUCCESS);
		cq_expect(y.recv_cq, 1, IBV_WC_SUCCESS);
		node_close(&x);
		node_close(&y);
	}
	return NULL;
}

static void run_threads(void *(*const body[])(void *), int count)
{
	pthread_t threads[16];

	for (int i = 0; i < count; i++)
		check_eq(pthread_create(&threads[i], NULL, body[i], (void *)(uintptr_t)i), 0);
	for (int i = 0; i < count; i++)
		check_eq(pthread_join(threads[i], NULL), 0);
}

int main(void)
{
	static void *(*const traffic[])(void *) = { poster,      poster,      poster,
						    poster,      send_poller, send_poller,
						    recv_worker, recv_worker };
	static void *(*const creators[])(void *) = { creator, creator, creator, creator };
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.cap.max_inline_data = 16;
	attr.cap.max_recv_wr = 64;
	node_pair(&a, &b, &attr);
	for (uint64_t i = 0; i < 64; i++)
		check_eq(node_recv(&b, i, i * 64, 64), 0);
	run_threads(traffic, 8);
	for (int i = 0; i < TOTAL; i++)
		check(seen_send[i] == 1 && seen_recv[i] == 1, "message %d", i);
	run_threads(creators, 4);
	node_close(&a);
	node_close(&b);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * An idle process with an open card uses no CPU: less than 5 ms in a second, with queues set up, used and left alone,
 * a receive waiting and a CQ armed.
 */
#include "common.h"

#include <stdio.h>
#include <sys/resource.h>

static uint64_t cpu_us(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return (uint64_t)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec);
}

int main(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node a, b;
	uint64_t used;

	attr.events = true;
	node_pair(&a, &b, &attr);
	for (uint64_t i = 0; i < 1000; i++) {
		check_eq(node_recv(&b, i, 0, 64), 0);
		check_eq(node_send(&a, i, 0, 64, IBV_SEND_SIGNALED), 0);
		cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
		cq_expect(b.recv_cq, i, IBV_WC_SUCCESS);
	}
	check_eq(node_recv(&b, 1, 0, 64), 0);
	check_eq(ibv_req_notify_cq(b.recv_cq, 0), 0);
	sleep_ms(200); /* a thread that was busy may look around once more before it sleeps */
	used = cpu_us();
	sleep_ms(1000);
	used = cpu_us() - used;
	printf("idle: %llu us of CPU time in a second\n", (unsigned long long)used);
	check(used < 5000, "%llu us", (unsigned long long)used);
	/* It still wakes up. */
	check_eq(node_send(&a, 2, 0, 64, IBV_SEND_SIGNALED), 0);
	cq_expect(a.send_cq, 2, IBV_WC_SUCCESS);
	cq_expect(b.recv_cq, 1, IBV_WC_SUCCESS);
	node_close(&a);
	node_close(&b);
	return 0;
}

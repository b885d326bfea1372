// SPDX-License-Identifier: MIT
/*
 * How long an event takes: from the moment before it is made to the first instruction of the handler it wakes. Beside it
 * what the machine needs at best, with the same pauses in between: a cache line that another thread waits for (the
 * handler's host thread is awake), or a futex wake-up (it sleeps).
 *
 *	pause ... t0, make the event -----> t1, first instruction ... pause
 *
 * All stamps are of CLOCK_MONOTONIC, which is also what device code's counter shows, and cost the same on either side.
 */
#include "bench.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "queue_kit.h"

#include "shared.h"

extern flexio_func_t stamp_activated, stamp_completed, ping_activated, ping_completed;

enum { MAX_EVENTS = 4096, LOG_CQ = 6 };

/* ---- ours ---- */

static struct side {
	struct flexio_event_handler *handler;
	struct kit_cq cq;
	flexio_uintptr_t daddr;
} sides[2];

static flexio_uintptr_t results;

static void side_make(struct side *side, flexio_func_t *func, bool completed)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = func };
	struct stamps stamps = { 0 };

	OK(flexio_event_handler_create(process, &attr, &side->handler));
	stamps.activation = flexio_event_handler_get_activation_id(side->handler);
	if (completed) {
		cq_simple(process, LOG_CQ, side->handler, &side->cq);
		stamps.ring = side->cq.work.ring;
		stamps.dbr = side->cq.work.dbr;
		stamps.cqn = side->cq.work.number;
	}
	OK(flexio_copy_from_host(process, &stamps, sizeof(stamps), &side->daddr));
	OK(flexio_event_handler_run(side->handler, side->daddr));
}

static double measure_side(struct side *side, flexio_func_t *func, unsigned long n, size_t pause_ns)
{
	static uint64_t ticks[MAX_EVENTS];
	static double ns[MAX_EVENTS];

	n = n < MAX_EVENTS ? n : MAX_EVENTS;
	if (!results)
		OK(flexio_buf_dev_alloc(process, sizeof(ticks), &results));
	OK(flexio_process_call(process, func, NULL, side->daddr, (uint64_t)n,
			       (uint64_t)((double)pause_ns * DEVICE_GHZ), results));
	dev_get(process, ticks, results, n * sizeof(ticks[0]));
	for (unsigned long i = 0; i < n; i++)
		ns[i] = (double)ticks[i] / DEVICE_GHZ;
	return median(ns, (unsigned int)n);
}

double events_activated(unsigned long n, size_t pause_ns)
{
	if (!sides[0].handler)
		side_make(&sides[0], stamp_activated, false);
	return (double)n * measure_side(&sides[0], ping_activated, n, pause_ns);
}

double events_completed(unsigned long n, size_t pause_ns)
{
	if (!sides[1].handler)
		side_make(&sides[1], stamp_completed, true);
	return (double)n * measure_side(&sides[1], ping_completed, n, pause_ns);
}

void events_end(void)
{
	for (unsigned int i = 0; i < 2; i++) {
		if (sides[i].cq.cq)
			OK(flexio_cq_destroy(sides[i].cq.cq));
		if (sides[i].handler)
			OK(flexio_event_handler_destroy(sides[i].handler));
	}
}

/* ---- the machine's ---- */

static _Alignas(64) atomic_uint ball;
static _Alignas(64) atomic_uint answer;
static double seen;

struct partner {
	unsigned long n;
	bool sleeps;
};

static void *partner_main(void *arg)
{
	const struct partner *p = arg;

	for (unsigned int i = 1; i <= p->n; i++) {
		while (atomic_load_explicit(&ball, memory_order_acquire) != i)
			if (p->sleeps)
				syscall(SYS_futex, &ball, FUTEX_WAIT_PRIVATE, i - 1, NULL, NULL, 0);
		seen = now();
		atomic_store_explicit(&answer, i, memory_order_release);
	}
	return NULL;
}

static double measure_partner(unsigned long n, size_t pause_ns, bool sleeps)
{
	static double ns[MAX_EVENTS];
	struct partner partner = { .n = n < MAX_EVENTS ? n : MAX_EVENTS, .sleeps = sleeps };
	pthread_t thread;

	atomic_store(&ball, 0);
	atomic_store(&answer, 0);
	CHECK(!pthread_create(&thread, NULL, partner_main, &partner));
	for (unsigned int i = 1; i <= partner.n; i++) {
		double start = now();

		while (now() - start < (double)pause_ns)
			;
		start = now();
		atomic_store_explicit(&ball, i, memory_order_release);
		if (sleeps)
			syscall(SYS_futex, &ball, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
		while (atomic_load_explicit(&answer, memory_order_acquire) != i)
			;
		ns[i - 1] = seen - start;
	}
	pthread_join(thread, NULL);
	return (double)n * median(ns, (unsigned int)partner.n);
}

double events_hop(unsigned long n, size_t pause_ns)
{
	return measure_partner(n, pause_ns, false);
}

double events_futex(unsigned long n, size_t pause_ns)
{
	return measure_partner(n, pause_ns, true);
}

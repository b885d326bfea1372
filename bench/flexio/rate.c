// SPDX-License-Identifier: MIT
/*
 * How many RDMA writes device code makes, on one execution unit and on as many as there are host threads for them, beside a
 * host loop that does the same with ibv_post_send and ibv_poll_cq on as many threads. Both sides: RC queue pairs of this
 * program connected to each other, 64 bytes, at most 32 outstanding, one completion for each doorbell.
 */
#include "bench.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "../../tests/programs/common.h"
#include "queue_kit.h"

#include "shared.h"

extern flexio_func_t write_on, kick;

enum { MAX_WORKERS = 4 };

static unsigned int cores(size_t arg)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return !(arg & RATE_ALL) || n < 2 ? 1 : n > MAX_WORKERS ? MAX_WORKERS : (unsigned int)n;
}

static uint32_t batch_of(size_t arg)
{
	return (uint32_t)(arg & ~(size_t)RATE_ALL);
}

/* ---- device code ---- */

static struct worker {
	struct flexio_event_handler *handler;
	struct kit_cq cq;
	struct kit_qp a, b;
	struct kit_mem mem;
	flexio_uintptr_t daddr;
	struct writer writer;
} workers[MAX_WORKERS];

static void worker_make(struct worker *w, uint32_t eu)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = write_on,
						  .affinity = { FLEXIO_AFFINITY_STRICT, eu } };
	struct flexio_qp_attr qp;

	OK(flexio_event_handler_create(process, &attr, &w->handler));
	cq_simple(process, RATE_LOG, NULL, &w->cq);
	qp = qp_attr(process, RATE_LOG, 0, w->cq.work.number, w->cq.work.number);
	qp_make(process, NULL, &qp, &w->a);
	qp = qp_attr(process, RATE_LOG, 0, w->cq.work.number, w->cq.work.number);
	qp_make(process, NULL, &qp, &w->b);
	qp_pair(&w->a, &w->b);
	mem_make(process, 4096, &w->mem);
	w->writer = (struct writer){
		.sq = w->a.work.sq,
		.cq_ring = w->cq.work.ring,
		.cq_dbr = w->cq.work.dbr,
		.qpn = w->a.work.number,
		.cqn = w->cq.work.number,
		.from = w->mem.addr,
		.to = w->mem.addr + 2048,
		.lkey = w->mem.key,
		.rkey = w->mem.key,
	};
	w->daddr = dev_alloc(process, sizeof(w->writer));
	dev_write(process, w->daddr, &w->writer, sizeof(w->writer));
	OK(flexio_event_handler_run(w->handler, w->daddr));
}

/* Device code has moved the indices of the rings since, also in calls (watched.c). */
static void worker_start(struct worker *w, unsigned long n, uint32_t batch)
{
	dev_get(process, &w->writer, w->daddr, sizeof(w->writer));
	w->writer.total = n;
	w->writer.batch = batch;
	w->writer.end = 0;
	dev_write(process, w->daddr, &w->writer, sizeof(w->writer));
	OK(flexio_process_call(process, kick, NULL,
			       flexio_event_handler_get_activation_id(w->handler)));
}

static void worker_wait(struct worker *w)
{
	do {
		usleep(500);
		dev_get(process, &w->writer, w->daddr, sizeof(w->writer));
	} while (!w->writer.end);
	CHECK(!w->writer.errors);
}

flexio_uintptr_t rate_writer(void)
{
	struct worker *w = &workers[0];

	if (!w->handler)
		worker_make(w, 10);
	dev_get(process, &w->writer, w->daddr, sizeof(w->writer));
	w->writer.batch = 1;
	dev_write(process, w->daddr, &w->writer, sizeof(w->writer));
	return w->daddr;
}

double rate_device(unsigned long n, size_t arg)
{
	unsigned int count = cores(arg);
	uint64_t start = UINT64_MAX, end = 0;

	n -= n % batch_of(arg);
	for (unsigned int i = 0; i < count; i++) {
		if (!workers[i].handler)
			worker_make(&workers[i], 10 + i);
		worker_start(&workers[i], n, batch_of(arg));
	}
	for (unsigned int i = 0; i < count; i++) {
		worker_wait(&workers[i]);
		start = workers[i].writer.start < start ? workers[i].writer.start : start;
		end = workers[i].writer.end > end ? workers[i].writer.end : end;
	}
	return (double)(end - start) / DEVICE_GHZ;
}

void rate_end(void)
{
	for (struct worker *w = workers; w < workers + MAX_WORKERS && w->handler; w++) {
		OK(flexio_qp_destroy(w->a.qp));
		OK(flexio_qp_destroy(w->b.qp));
		OK(flexio_cq_destroy(w->cq.cq));
		mem_end(&w->mem);
		OK(flexio_event_handler_destroy(w->handler));
	}
}

/* ---- the host ---- */

static struct loop {
	struct node a, b;
	bool made;
	pthread_t thread;
	unsigned long n;
	uint32_t batch;
	double start, end;
} loops[MAX_WORKERS];

static void loop_make(struct loop *l)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.cap.max_send_wr = 1u << RATE_LOG;
	attr.cqe = 1 << RATE_LOG;
	attr.size = 4096;
	node_pair(&l->a, &l->b, &attr);
	l->made = true;
}

static void *loop_main(void *arg)
{
	enum { DEPTH = 1 << (RATE_LOG - 1) };
	struct loop *l = arg;
	struct ibv_sge sge = { (uintptr_t)l->a.buf, RATE_BYTES, l->a.mr->lkey };
	struct ibv_send_wr wr[DEPTH] = { 0 }, *bad;
	unsigned long posted = 0, completed = 0;
	struct ibv_wc wc;

	for (uint32_t i = 0; i < l->batch; i++) {
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].sg_list = &sge;
		wr[i].num_sge = 1;
		wr[i].wr.rdma.remote_addr = (uintptr_t)l->b.buf;
		wr[i].wr.rdma.rkey = l->b.mr->rkey;
		wr[i].next = i + 1 < l->batch ? &wr[i + 1] : NULL;
		wr[i].send_flags = i + 1 < l->batch ? 0 : IBV_SEND_SIGNALED;
	}
	l->start = now();
	while (completed < l->n) {
		while (posted < l->n && posted - completed + l->batch <= DEPTH) {
			CHECK(!ibv_post_send(l->a.qp, wr, &bad));
			posted += l->batch;
		}
		if (!ibv_poll_cq(l->a.send_cq, 1, &wc))
			continue;
		CHECK(wc.status == IBV_WC_SUCCESS);
		completed += l->batch;
	}
	l->end = now();
	return NULL;
}

double rate_host(unsigned long n, size_t arg)
{
	unsigned int count = cores(arg);
	double start = 0, end = 0;

	for (unsigned int i = 0; i < count; i++) {
		if (!loops[i].made)
			loop_make(&loops[i]);
		loops[i].n = n - n % batch_of(arg);
		loops[i].batch = batch_of(arg);
	}
	for (unsigned int i = 0; i < count; i++)
		CHECK(!pthread_create(&loops[i].thread, NULL, loop_main, &loops[i]));
	for (unsigned int i = 0; i < count; i++) {
		pthread_join(loops[i].thread, NULL);
		start = !i || loops[i].start < start ? loops[i].start : start;
		end = loops[i].end > end ? loops[i].end : end;
	}
	return end - start;
}

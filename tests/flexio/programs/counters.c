// SPDX-License-Identifier: MIT
/* Counters of the port: what frames and RDMA add to them, and what ends the process. */
#include "queue_kit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

extern struct flexio_app *count;
extern flexio_func_t run_work, configure, sample, on_stack, unknown, too_many, replaced;

static struct ibv_context *ctx;
static struct flexio_process *process;

struct bytes {
	uint32_t rx, tx, rx_other, tx_other;
};

static struct bytes now(void)
{
	struct bytes b;
	uint64_t word[2];

	for (uint64_t i = 0; i < 2; i++)
		OK(flexio_process_call(process, sample, &word[i], i));
	memcpy(&b, word, sizeof(b));
	return b;
}

/* RDMA between two queue pairs of the process: what one sends the other receives. */
static void rdma(bool look)
{
	struct kit_mem mem;
	struct kit_cq cq;
	struct kit_qp a, b;
	struct flexio_qp_attr attr;
	struct work w = { .nops = 3, .expect = 3 };
	flexio_uintptr_t at = dev_alloc(process, sizeof(w));
	struct bytes before = { 0 }, after = { 0 };

	mem_make(process, 4096, &mem);
	cq_simple(process, 6, NULL, &cq);
	attr = qp_attr(process, 4, 4, cq.work.number, cq.work.number);
	attr.transport_type = FLEXIO_QPC_ST_RC;
	qp_make(process, NULL, &attr, &a);
	qp_make(process, NULL, &attr, &b);
	qp_pair(&a, &b);
	if (look)
		before = now();
	w.cq = cq.work;
	w.qp = a.work;
	w.ops[0] = (struct work_op){ .type = SEG_WRITE,
				     .ce = CE_ALWAYS,
				     .lkey = mem.key,
				     .rkey = mem.key,
				     .laddr = mem.addr,
				     .raddr = mem.addr + 2048,
				     .len = 1000 };
	w.ops[1] = w.ops[2] = w.ops[0];
	w.ops[1].type = SEG_READ;
	w.ops[1].len = 300;
	w.ops[2].type = SEG_LDMA; /* stays on the card */
	w.ops[2].to_len = w.ops[2].len;
	work_run(process, run_work, at, &w);
	CHECK(!w.cqes[0].syndrome && !w.cqes[1].syndrome && !w.cqes[2].syndrome);
	if (look) {
		after = now();
		CHECK(after.tx - before.tx == 1300 && after.rx - before.rx == 1300);
	}
	OK(flexio_qp_destroy(a.qp));
	OK(flexio_qp_destroy(b.qp));
	if (look) {
		before = now();
		/* queues that are gone count on */
		CHECK(before.tx == after.tx && before.rx == after.rx);
	}
	OK(flexio_cq_destroy(cq.cq));
	mem_end(&mem);
	OK(flexio_buf_dev_free(process, at));
}

static void *rdma_main(void *arg)
{
	atomic_bool *done = arg;

	for (unsigned int i = 0; i < 100; i++)
		rdma(false);
	atomic_store(done, true);
	return NULL;
}

/* No counter goes back while queues come and go. */
static void forward(void)
{
	struct bytes last = now(), next;
	atomic_bool done = false;
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, rdma_main, &done));
	while (!atomic_load(&done)) {
		next = now();
		CHECK((int32_t)(next.tx - last.tx) >= 0 && (int32_t)(next.rx - last.rx) >= 0);
		last = next;
	}
	CHECK(!pthread_join(thread, NULL));
}

/* A frame counts with its padding. */
static void frames(void)
{
	struct kit_mem mem;
	struct kit_cq cq;
	struct flexio_transport_domain *td;
	struct flexio_sq_tis *tis;
	struct flexio_sq *sq;
	struct work w = { .nops = 2, .expect = 2 };
	flexio_uintptr_t at = dev_alloc(process, sizeof(w));
	struct flexio_wq_attr attr = {
		.log_wq_depth = 4,
		.uar_id = flexio_uar_get_id(flexio_process_get_uar(process)),
		.wq_ring_qmem = { .daddr = dev_alloc(process, 64 << 4) },
		.wq_dbr_qmem = { .daddr = dev_alloc(process, 8) },
	};
	struct bytes before = now(), after;

	mem_make(process, 4096, &mem);
	cq_simple(process, 6, NULL, &cq);
	OK(flexio_transport_domain_create(ctx, &td));
	OK(flexio_sq_tis_create(ctx, td, &tis));
	attr.sq.tis = tis;
	OK(flexio_sq_create(process, NULL, cq.work.number, &attr, &sq));
	w.cq = cq.work;
	w.qp = (struct work_qp){ .sq = attr.wq_ring_qmem.daddr,
				 .number = flexio_sq_get_wq_num(sq),
				 .log_sq = 4 };
	w.ops[0] = (struct work_op){
		.type = SEG_SEND_EN, .ce = CE_ALWAYS, .lkey = mem.key, .laddr = mem.addr, .len = 20
	};
	w.ops[1] = w.ops[0];
	w.ops[1].len = 1000;
	work_run(process, run_work, at, &w);
	after = now();
	CHECK(after.tx - before.tx == 1060 && after.rx == before.rx);
	CHECK(!after.rx_other && !after.tx_other);
	OK(flexio_sq_destroy(sq));
	OK(flexio_sq_tis_destroy(tis));
	OK(flexio_transport_domain_destroy(td));
	OK(flexio_cq_destroy(cq.cq));
	mem_end(&mem);
}

/* Each in a process of its own, which it ends. */
static void ends(flexio_func_t *func)
{
	struct flexio_process *p;
	uint64_t result;

	OK(flexio_process_create(ctx, count, NULL, &p));
	CHECK(flexio_process_call(p, func, &result, (uint64_t)0) == FLEXIO_STATUS_FATAL_ERR);
	CHECK(flexio_err_status_get(p) == 9);
	OK(flexio_process_destroy(p));
}

int main(void)
{
	uint64_t result;

	ctx = open_device();
	OK(flexio_process_create(ctx, count, NULL, &process));
	OK(flexio_process_call(process, configure, &result, (uint64_t)0));
	rdma(true);
	forward();
	frames();
	now();
	OK(flexio_process_call(process, replaced, &result, (uint64_t)0));
	CHECK(result == 3);
	now();
	OK(flexio_process_destroy(process));
	ends(sample);
	ends(on_stack);
	ends(unknown);
	ends(too_many);
	CHECK(!ibv_close_device(ctx));
	return 0;
}

// SPDX-License-Identifier: MIT
/* Device code on one adapter that rings queues of another. */
#include "queue_kit.h"

#include <errno.h>

extern struct flexio_app *crossdev;
extern flexio_func_t run_cross, receive;

enum { LOG = 4, SIZE = 64, DIRECT = 2, EXTENDED = 1, PLAIN = 0 };

static struct ibv_context *here, *there;
static struct flexio_process *process; /* here */
static struct flexio_uar *extended;
static struct work work;
static flexio_uintptr_t daddr;

/* What the queues there need: a domain and memory of that adapter. */
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static uint64_t *host;

static void open_all(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	here = open_device();
	for (int i = 0; list && list[i] && !there; i++)
		if (i && mlx5dv_is_supported(list[i]))
			there = ibv_open_device(list[i]);
	CHECK(there);
	ibv_free_device_list(list);
	OK(flexio_process_create(here, crossdev, NULL, &process));
	daddr = dev_alloc(process, sizeof(work));
	host = aligned_alloc(64, 2 * SIZE);
	pd = ibv_alloc_pd(there);
	mr = ibv_reg_mr(pd, host, 2 * SIZE,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(pd && mr);
}

static void close_all(void)
{
	CHECK(flexio_process_destroy(process) == FLEXIO_STATUS_FAILED);
	OK(flexio_uar_destroy(extended));
	OK(flexio_process_destroy(process));
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(there) && !ibv_close_device(here));
	free(host);
}

/* Without the right to ring there, there are no queues there. */
static void extend(void)
{
	struct flexio_uar *own = flexio_process_get_uar(process), *twice;
	struct flexio_cq_attr attr = cq_attr(process, LOG);
	struct flexio_cq *cq;

	CHECK(flexio_cq_create(process, there, &attr, &cq) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_uar_extend(own, here, &extended) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_uar_extend(NULL, there, &extended) == FLEXIO_STATUS_FAILED);
	OK(flexio_uar_extend(own, there, &extended));
	CHECK(flexio_uar_extend(own, there, &twice) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_uar_get_extended_id(extended) != UINT32_MAX);
	CHECK(flexio_uar_get_extended_id(NULL) == UINT32_MAX);
	CHECK(flexio_uar_get_extended_id(flexio_process_get_uar(process)) == UINT32_MAX);
}

static void make_pair(const struct kit_cq *cq, struct kit_qp *a, struct kit_qp *b)
{
	struct flexio_qp_attr attr = qp_attr(process, LOG, LOG, cq->work.number, cq->work.number);

	CHECK(flexio_qp_create(process, there, &attr, &a->qp) == FLEXIO_STATUS_FAILED); /* no pd */
	attr.pd = pd;
	qp_make(process, there, &attr, a); /* the process's UAR means its extension there */
	attr = qp_attr(process, LOG, LOG, cq->work.number, cq->work.number);
	attr.pd = pd;
	attr.uar_id = flexio_uar_get_id(extended);
	qp_make(process, there, &attr, b);
	qp_pair(a, b);
	CHECK(flexio_uar_destroy(extended) == FLEXIO_STATUS_FAILED);
}

static uint64_t ring(uint32_t how, uint32_t device_id, uint32_t expect)
{
	uint64_t result;

	work.nops = 1;
	work.expect = expect;
	dev_write(process, daddr, &work, sizeof(work));
	OK(flexio_process_call(process, run_cross, &result, daddr, how, device_id));
	dev_get(process, &work, daddr, sizeof(work));
	return result;
}

static void rings(const struct kit_cq *cq, const struct kit_qp *qp)
{
	uint32_t id = flexio_uar_get_extended_id(extended);

	work = (struct work){ .cq = cq->work, .qp = qp->work };
	work.ops[0] = (struct work_op){ .type = SEG_WRITE,
					.ce = CE_ALWAYS,
					.lkey = mr->lkey,
					.rkey = mr->rkey,
					.laddr = (uintptr_t)host,
					.raddr = (uintptr_t)host + SIZE,
					.len = SIZE };
	memset(host, 0x5a, SIZE);
	memset(host + SIZE / 8, 0, SIZE);
	/* the outbox is the process's: a number of the other adapter means nothing to it */
	CHECK(ring(PLAIN, 0, 0) == 0 && work.os_errno == EINVAL);
	CHECK(ring(EXTENDED, 4242, 0) == UINT64_MAX && work.os_errno == EINVAL);
	CHECK(ring(DIRECT, 4242, 0) == UINT64_MAX);
	CHECK(host[SIZE / 8] == 0);
	/* the WQEs that were written so far go with the next doorbell */
	CHECK(ring(DIRECT, id, 4) == 4);
	CHECK(!memcmp(host, host + SIZE / 8, SIZE));
	work.arm = 1;
	CHECK(ring(EXTENDED, id, 1) == 1 && work.os_errno == 0);
}

static void raw_queues(uint32_t cqn)
{
	struct flexio_wq_attr wq = {
		.log_wq_depth = LOG,
		.pd = pd,
		.uar_id = flexio_uar_get_id(extended),
		.wq_ring_qmem = { .daddr = dev_alloc(process, 64 << LOG) },
		.wq_dbr_qmem = { .daddr = dev_alloc(process, 8) },
	};
	struct flexio_sq *sq;
	struct flexio_rq *rq;

	CHECK(flexio_sq_create_cross_dev(process, NULL, cqn, &wq, &sq) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_sq_create_cross_dev(process, here, cqn, &wq, &sq) == FLEXIO_STATUS_FAILED);
	OK(flexio_sq_create_cross_dev(process, there, cqn, &wq, &sq));
	wq.rq = (struct flexio_wq_rq_attr){ .wq_type = FLEXIO_WQ_TYPE_CYCLIC };
	CHECK(flexio_rq_create_cross_dev(process, here, cqn, &wq, &rq) == FLEXIO_STATUS_FAILED);
	OK(flexio_rq_create_cross_dev(process, there, cqn, &wq, &rq));
	OK(flexio_rq_destroy(rq));
	OK(flexio_sq_destroy(sq));
}

int main(void)
{
	struct flexio_cq_attr attr;
	struct kit_cq cq;
	struct kit_qp a, b;

	open_all();
	extend();
	attr = cq_attr(process, LOG);
	attr.uar_id = flexio_uar_get_id(extended);
	cq_make(process, there, &attr, &cq);
	make_pair(&cq, &a, &b);
	rings(&cq, &a);
	raw_queues(cq.work.number);
	OK(flexio_qp_destroy(a.qp));
	OK(flexio_qp_destroy(b.qp));
	OK(flexio_cq_destroy(cq.cq));
	close_all();
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* Device code on one adapter that rings queues of another. */
#include "queue_kit.h"

#include <errno.h>

extern struct flexio_app *crossdev;
extern flexio_func_t run_cross, receive;

enum { LOG = 4, SIZE = 64, DIRECT = 2, EXTENDED = 1, PLAIN = 0 };

static struct flexio_process *process;
static struct work work;
static flexio_uintptr_t daddr;

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

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *here, *there = NULL;
	struct flexio_cq_attr cq;
	struct flexio_qp_attr attr;
	struct flexio_wq_attr wq = { .log_wq_depth = LOG };
	struct flexio_uar *extended, *twice;
	struct flexio_sq *sq;
	struct flexio_rq *rq;
	struct kit_cq kit;
	struct kit_qp a, b;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint64_t *host = aligned_alloc(64, 2 * SIZE);
	uint32_t id;

	here = open_device();
	for (int i = 0; list && list[i] && !there; i++)
		if (i && mlx5dv_is_supported(list[i]))
			there = ibv_open_device(list[i]);
	CHECK(there);
	ibv_free_device_list(list);
	OK(flexio_process_create(here, crossdev, NULL, &process));
	daddr = dev_alloc(process, sizeof(work));

	/* without the right to ring there, there are no queues there */
	cq = cq_attr(process, LOG);
	CHECK(flexio_cq_create(process, there, &cq, &kit.cq) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_uar_extend(flexio_process_get_uar(process), here, &extended) ==
	      FLEXIO_STATUS_FAILED);
	CHECK(flexio_uar_extend(NULL, there, &extended) == FLEXIO_STATUS_FAILED);
	OK(flexio_uar_extend(flexio_process_get_uar(process), there, &extended));
	CHECK(flexio_uar_extend(flexio_process_get_uar(process), there, &twice) ==
	      FLEXIO_STATUS_FAILED);
	id = flexio_uar_get_extended_id(extended);
	CHECK(id != UINT32_MAX && flexio_uar_get_extended_id(NULL) == UINT32_MAX);

	pd = ibv_alloc_pd(there);
	mr = ibv_reg_mr(pd, host, 2 * SIZE,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(pd && mr);
	cq.uar_id = flexio_uar_get_id(extended);
	cq_make(process, there, &cq, &kit);
	attr = qp_attr(process, LOG, LOG, kit.work.number, kit.work.number);
	CHECK(flexio_qp_create(process, there, &attr, &a.qp) == FLEXIO_STATUS_FAILED); /* no pd */
	attr.pd = pd;
	qp_make(process, there, &attr, &a); /* the process's UAR means its extension there */
	attr = qp_attr(process, LOG, LOG, kit.work.number, kit.work.number);
	attr.pd = pd;
	attr.uar_id = flexio_uar_get_id(extended);
	qp_make(process, there, &attr, &b);
	qp_pair(&a, &b);
	CHECK(flexio_uar_destroy(extended) == FLEXIO_STATUS_FAILED);

	work = (struct work){ .cq = kit.work, .qp = a.work };
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

	/* queues of raw frames */
	wq.pd = pd;
	wq.uar_id = flexio_uar_get_id(extended);
	wq.wq_ring_qmem.daddr = dev_alloc(process, 64 << LOG);
	wq.wq_dbr_qmem.daddr = dev_alloc(process, 8);
	CHECK(flexio_sq_create_cross_dev(process, NULL, kit.work.number, &wq, &sq) ==
	      FLEXIO_STATUS_FAILED);
	CHECK(flexio_sq_create_cross_dev(process, here, kit.work.number, &wq, &sq) ==
	      FLEXIO_STATUS_FAILED);
	OK(flexio_sq_create_cross_dev(process, there, kit.work.number, &wq, &sq));
	wq.rq = (struct flexio_wq_rq_attr){ .wq_type = FLEXIO_WQ_TYPE_CYCLIC };
	CHECK(flexio_rq_create_cross_dev(process, here, kit.work.number, &wq, &rq) ==
	      FLEXIO_STATUS_FAILED);
	OK(flexio_rq_create_cross_dev(process, there, kit.work.number, &wq, &rq));
	OK(flexio_rq_destroy(rq));
	OK(flexio_sq_destroy(sq));

	OK(flexio_qp_destroy(a.qp));
	OK(flexio_qp_destroy(b.qp));
	OK(flexio_cq_destroy(kit.cq));
	CHECK(flexio_process_destroy(process) == FLEXIO_STATUS_FAILED);
	OK(flexio_uar_destroy(extended));
	OK(flexio_process_destroy(process));
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(there) && !ibv_close_device(here));
	free(host);
	return 0;
}

// SPDX-License-Identifier: MIT
/* What FlexIO objects keep of libibverbs: protection domains stay, and a context that is closed lives on inside. */
#include "bed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/mlx5dv.h>

#include "../../src/device/rtos.h"

static struct ibv_context *again(void)
{
	struct ibv_context *ctx = ibv_open_device(bed_ctx->device);

	assert_non_null(ctx);
	return ctx;
}

static void test_process_pd(void **state)
{
	struct flexio_process_attr attr = { .pd = ibv_alloc_pd(bed_ctx) };
	struct flexio_mkey_attr mkey_attr = { .len = 64 };
	struct flexio_process *process;
	struct flexio_mkey *mkey;

	assert_ok(flexio_process_create(bed_ctx, bed_app, &attr, &process));
	assert_ptr_equal(flexio_process_get_pd(process), attr.pd);
	assert_int_equal(ibv_dealloc_pd(attr.pd), EBUSY);
	mkey_attr.daddr = bed_alloc(process, 64);
	assert_ok(flexio_device_mkey_create(process, &mkey_attr, &mkey)); /* in that domain */
	assert_ok(flexio_device_mkey_destroy(mkey));
	assert_int_equal(ibv_dealloc_pd(attr.pd), EBUSY);
	bed_process_end(process);
	assert_int_equal(ibv_dealloc_pd(attr.pd), 0);

	process = bed_process();
	assert_int_equal(ibv_dealloc_pd(flexio_process_get_pd(process)), EBUSY); /* its own */
	mkey_attr.daddr = bed_alloc(process, 64);
	assert_ok(flexio_device_mkey_create(process, &mkey_attr, &mkey));
	assert_ok(flexio_device_mkey_destroy(mkey));
	bed_process_end(process);
}

static unsigned int open_files(void)
{
	unsigned int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/*
 * A context is closed whatever FlexIO has on it: its descriptors and what verbs made are gone. The
 * structs of the program stay, as after a close of the real library.
 */
static void close_early(struct ibv_context *ctx)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	static char memory[4096];
	unsigned int files = open_files();
	int cmd = ctx->cmd_fd, async = ctx->async_fd;
	struct ibv_mr *mr;

	assert_non_null(pd);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	assert_int_equal(ibv_close_device(ctx), 0);
	assert_int_equal(open_files(), files - 2);
	assert_int_equal(fcntl(cmd, F_GETFD), -1);
	assert_int_equal(fcntl(async, F_GETFD), -1);
	free(mr);
	free(pd);
}

static void test_process_context(void **state)
{
	struct ibv_context *ctx = again();
	struct flexio_process *process;

	assert_ok(flexio_process_create(ctx, bed_app, NULL, &process));
	close_early(ctx);
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	ctx = again(); /* the device can be opened meanwhile */
	close_early(ctx);
	assert_int_equal(bed_value(process, "add_one", 2), 3);
	bed_process_end(process);
}

/* The process works in a domain of the program: what is registered there stays as long as the process. */
static void test_kept_memory(void **state)
{
	static uint64_t memory[512] __attribute__((aligned(4096)));
	struct ibv_context *ctx = again();
	struct flexio_process_attr attr = { .pd = ibv_alloc_pd(ctx) };
	struct flexio_process *process;
	struct flexio_window *window;
	struct ibv_mr *mr = ibv_reg_mr(attr.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	uint64_t words[5] = { VB_RTOS_WINDOW_CONFIG, 0 }, at;

	assert_non_null(mr);
	assert_ok(flexio_process_create(ctx, bed_app, &attr, &process));
	assert_ok(flexio_window_create(process, attr.pd, &window));
	words[2] = flexio_window_get_id(window);
	words[3] = mr->lkey;
	close_early(ctx);
	assert_int_equal(bed_words(process, "raw_call", words, 5), 0);
	words[0] = VB_RTOS_WINDOW_PTR;
	words[2] = (uintptr_t)memory;
	words[3] = 0;
	memory[0] = 4711;
	at = bed_words(process, "raw_call", words, 5);
	assert_int_equal(bed_words(process, "peek", (uint64_t[]){ at, 8 }, 2), 4711);
	assert_ok(flexio_window_destroy(window));
	bed_process_end(process);
	free(mr);
	free(attr.pd);
}

static struct flexio_cq_attr cq_at(struct flexio_process *process, uint32_t umem, uint64_t offset)
{
	struct flexio_cq_attr attr = { .element_type = FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ };

	attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	attr.cq_ring_qmem = (struct flexio_qmem){ .memtype = FLEXIO_MEMTYPE_HOST,
						  .humem_offset = offset,
						  .umem_id = umem };
	attr.cq_dbr_daddr = bed_alloc(process, 8);
	return attr;
}

/* Host memory under a device queue stays registered while the queue is there. */
static void test_kept_umem(void **state)
{
	static char ring[4096] __attribute__((aligned(4096)));
	struct ibv_context *ctx = again();
	struct mlx5dv_devx_umem *umem = mlx5dv_devx_umem_reg(ctx, ring, sizeof(ring), 1);
	struct flexio_process *process;
	struct flexio_cq_attr attr;
	struct flexio_cq *cq;

	assert_non_null(umem);
	assert_ok(flexio_process_create(ctx, bed_app, NULL, &process));
	attr = cq_at(process, umem->umem_id, 0);
	assert_ok(flexio_cq_create(process, NULL, &attr, &cq));
	close_early(ctx);
	assert_int_equal(mlx5dv_devx_umem_dereg(umem), EBUSY);
	assert_ok(flexio_cq_destroy(cq));
	bed_process_end(process);
	assert_int_equal(mlx5dv_devx_umem_dereg(umem), 0);
}

static void test_failed_process(void **state)
{
	struct ibv_context *ctx = again();
	struct flexio_process_attr attr = { .pd = ibv_alloc_pd(bed_ctx) };
	struct flexio_process *process;

	assert_failed(flexio_process_create(ctx, bed_app, &attr, &process)); /* another's domain */
	assert_int_equal(ibv_dealloc_pd(attr.pd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
}

/* Mkeys and windows may have the domain of another context of the device. */
static void test_domains_of_others(void **state)
{
	struct flexio_process *process = bed_process();
	struct ibv_context *ctx = again();
	struct flexio_mkey_attr attr = { .pd = ibv_alloc_pd(ctx), .len = 64 };
	struct flexio_window *window;
	struct flexio_mkey *mkey;

	attr.daddr = bed_alloc(process, 64);
	assert_ok(flexio_device_mkey_create(process, &attr, &mkey));
	assert_int_equal(ibv_dealloc_pd(attr.pd), EBUSY);
	assert_ok(flexio_window_create(process, attr.pd, &window));
	close_early(ctx);
	assert_int_equal(ibv_dealloc_pd(attr.pd), EBUSY);
	assert_ok(flexio_device_mkey_destroy(mkey));
	assert_int_equal(ibv_dealloc_pd(attr.pd), EBUSY);
	assert_ok(flexio_window_destroy(window));
	free(attr.pd);
	bed_process_end(process);
}

static void test_queue_context(void **state)
{
	struct flexio_process *process = bed_process();
	struct ibv_context *ctx = again();
	struct flexio_transport_domain *td;
	struct flexio_sq_tis *tis;
	struct flexio_cq_attr attr = { .element_type = FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ };
	struct flexio_cq *cq;

	attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	attr.cq_ring_qmem.daddr = bed_alloc(process, 64);
	attr.cq_dbr_daddr = bed_alloc(process, 8);
	assert_ok(flexio_cq_create(process, ctx, &attr, &cq));
	close_early(ctx);
	assert_ok(flexio_cq_destroy(cq));
	ctx = again();
	assert_ok(flexio_transport_domain_create(ctx, &td));
	assert_ok(flexio_sq_tis_create(ctx, td, &tis));
	close_early(ctx);
	assert_ok(flexio_sq_tis_destroy(tis));
	assert_ok(flexio_transport_domain_destroy(td));
	ctx = again();
	attr.cq_dbr_daddr = 16; /* what fails holds nothing */
	assert_failed(flexio_cq_create(process, ctx, &attr, &cq));
	close_early(ctx);
	bed_process_end(process);
}

/* The number of a process's memory is one of the device's umems: what stays of its memory can be named by it. */
static void test_dumem(void **state)
{
	struct flexio_process *process = bed_process(), *second = bed_process();
	uint32_t id = flexio_process_get_dumem_id(process);
	uint64_t memory = bed_alloc(process, 64);
	struct flexio_cq_attr attr = cq_at(process, id, memory);
	struct flexio_cq *cq;

	assert_int_not_equal(id, flexio_process_get_dumem_id(second));
	assert_ok(flexio_cq_create(process, NULL, &attr, &cq));
	assert_ok(flexio_cq_destroy(cq));
	attr = cq_at(process, id, 0); /* page 0 */
	assert_failed(flexio_cq_create(process, NULL, &attr, &cq));
	attr = cq_at(process, id, UINT64_MAX - 63);
	assert_failed(flexio_cq_create(process, NULL, &attr, &cq));
	/* a thread's context, and the text of the program */
	attr = cq_at(process, id, bed_value(process, "context", 9) & ~63UL);
	assert_failed(flexio_cq_create(process, NULL, &attr, &cq));
	attr = cq_at(process, id, bed_value(process, "global_addr", 2) & ~63UL);
	assert_failed(flexio_cq_create(process, NULL, &attr, &cq));
	/* a queue of another process keeps the memory that it lies in */
	attr = cq_at(second, id, memory);
	assert_ok(flexio_cq_create(second, NULL, &attr, &cq));
	assert_failed(flexio_process_destroy(process));
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	assert_ok(flexio_cq_destroy(cq));
	bed_process_end(process);
	attr = cq_at(second, id, memory); /* not any more */
	assert_failed(flexio_cq_create(second, NULL, &attr, &cq));
	bed_process_end(second);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_process_pd),     cmocka_unit_test(test_process_context),
		cmocka_unit_test(test_failed_process), cmocka_unit_test(test_domains_of_others),
		cmocka_unit_test(test_queue_context),  cmocka_unit_test(test_dumem),
		cmocka_unit_test(test_kept_memory),    cmocka_unit_test(test_kept_umem),
	};

	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

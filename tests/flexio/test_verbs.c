// SPDX-License-Identifier: MIT
/* What FlexIO objects keep of libibverbs: neither protection domains nor contexts go away under them. */
#include "bed.h"

#include <errno.h>
#include <string.h>

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

/* A context is closed when nothing of FlexIO is left on it, and refused as a whole before: what verbs made stays. */
static void close_refused(struct ibv_context *ctx)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	static char memory[4096];
	struct ibv_mr *mr;

	assert_non_null(pd);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	assert_int_equal(ibv_close_device(ctx), EBUSY);
	assert_int_equal(errno, EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void test_process_context(void **state)
{
	struct ibv_context *ctx = again();
	struct flexio_process *process;

	assert_ok(flexio_process_create(ctx, bed_app, NULL, &process));
	close_refused(ctx);
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	bed_process_end(process);
	assert_int_equal(ibv_close_device(ctx), 0);
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
	close_refused(ctx);
	assert_int_equal(ibv_dealloc_pd(attr.pd), EBUSY);
	assert_ok(flexio_device_mkey_destroy(mkey));
	assert_ok(flexio_window_create(process, attr.pd, &window));
	close_refused(ctx);
	assert_int_equal(ibv_dealloc_pd(attr.pd), EBUSY);
	assert_ok(flexio_window_destroy(window));
	assert_int_equal(ibv_dealloc_pd(attr.pd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
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
	close_refused(ctx);
	assert_ok(flexio_cq_destroy(cq));
	assert_ok(flexio_transport_domain_create(ctx, &td));
	close_refused(ctx);
	assert_ok(flexio_sq_tis_create(ctx, td, &tis));
	close_refused(ctx);
	assert_ok(flexio_sq_tis_destroy(tis));
	assert_ok(flexio_transport_domain_destroy(td));
	attr.cq_dbr_daddr = 16; /* what fails holds nothing */
	assert_failed(flexio_cq_create(process, ctx, &attr, &cq));
	assert_int_equal(ibv_close_device(ctx), 0);
	bed_process_end(process);
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
	};

	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
/*
 * Sentences of the manual's host chapter that are nobody else's subject. docs/coverage.md says for every other one which test
 * shows it.
 */
#include "bed.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>

#include "../../src/device/rtos.h"

/* As in bare/device.c. */
struct shared {
	uint64_t runs, arg, seen_tls, id, how, next, hops, hold, in, continued;
};

#define AT(base, field) ((base) + offsetof(struct shared, field))

static char junk[64]; /* no object of the library */

/* ---- apps and functions ---- */

static void stub(void)
{
}

static void pack(void *argbuf, va_list ap)
{
	*(uint64_t *)argbuf = va_arg(ap, uint64_t);
}

static struct flexio_app *make_app(const char *name)
{
	struct flexio_app_attr attr = { .app_name = name };
	struct flexio_app *app = NULL;

	attr.app_ptr = bed_elf(&attr.app_bsize);
	assert_ok(flexio_app_create(&attr, &app));
	free(attr.app_ptr);
	return app;
}

static flexio_status info_of(struct flexio_app *app, flexio_func_t *func)
{
	return flexio_func_get_register_info(app, func, NULL, NULL, NULL, 0, NULL, NULL, NULL,
					     NULL);
}

/* The functions of an app go with it: neither it nor the next one knows them. */
static void test_app_end(void **state)
{
	struct flexio_app *app = make_app("first"), *next;
	flexio_func_t *func;

	assert_ok(flexio_func_register(app, "add_one", &func));
	assert_ok(flexio_func_pup_register(app, "many", "unpack_many", stub, 40, pack));
	assert_ok(info_of(app, func));
	assert_ok(flexio_app_destroy(app));
	assert_failed(info_of(app, func));
	assert_failed(flexio_func_register(app, "add_one", &func));
	next = make_app("second");
	assert_failed(info_of(next, stub));
	assert_ok(flexio_func_pup_register(next, "many", "unpack_many", stub, 40, pack));
	assert_ok(flexio_app_destroy(next));
}

/* A signature that has no bytes is none, wherever it points; versions are the program's own to say. */
static void test_app_attributes(void **state)
{
	uint64_t versions[] = { 1, UINT64_MAX };
	struct flexio_app_attr attr = { .app_name = "signed",
					.sig_ptr = (void *)1,
					.flexio_dev_versions = versions,
					.flexio_dev_versions_len_size = 2,
					.dpa_api_version = UINT64_MAX };
	struct flexio_process *process;
	struct flexio_app *app;

	attr.app_ptr = bed_elf(&attr.app_bsize);
	assert_ok(flexio_app_create(&attr, &app));
	free(attr.app_ptr);
	assert_ok(flexio_process_create(bed_ctx, app, NULL, &process));
	bed_process_end(process);
	assert_ok(flexio_app_destroy(app));
}

/* Names of FLEXIO_MAX_NAME_LEN bytes, in buffers that have one more. */
static void test_longest_names(void **state)
{
	char name[FLEXIO_MAX_NAME_LEN + 1], seen[FLEXIO_MAX_NAME_LEN + 2];
	struct flexio_process *process = bed_process();
	flexio_func_t *func;
	uint64_t result;

	memset(name, 'f', FLEXIO_MAX_NAME_LEN);
	name[FLEXIO_MAX_NAME_LEN] = 0;
	memset(seen, 'x', sizeof(seen));
	assert_ok(flexio_func_register(bed_app, name, &func));
	assert_ok(flexio_process_call(process, func, &result, UINT64_C(1)));
	assert_int_equal(result, 257);
	assert_failed(flexio_func_get_register_info(bed_app, func, NULL, seen, NULL,
						    FLEXIO_MAX_NAME_LEN, NULL, NULL, NULL, NULL));
	assert_int_equal(seen[0], 'x');
	assert_ok(flexio_func_get_register_info(bed_app, func, NULL, seen, NULL,
						FLEXIO_MAX_NAME_LEN + 1, NULL, NULL, NULL, NULL));
	assert_string_equal(seen, name);
	assert_int_equal(seen[FLEXIO_MAX_NAME_LEN + 1], 'x');
	bed_process_end(process);
}

/* What does not apply to a function without pack and unpack is empty. */
static void test_plain_function(void **state)
{
	char name[FLEXIO_MAX_NAME_LEN + 1], unpack[FLEXIO_MAX_NAME_LEN + 1] = "old";
	flexio_func_arg_pack_fn_t *packer = pack;
	flexio_uintptr_t addr = 0, unpack_addr = 5;
	size_t argbuf = 5;
	uint32_t pup = 5;

	assert_ok(flexio_func_get_register_info(bed_app, bed_func("add_one"), &pup, name, unpack,
						sizeof(name), &argbuf, &packer, &addr,
						&unpack_addr));
	assert_int_equal(pup, 0);
	assert_string_equal(name, "add_one");
	assert_string_equal(unpack, "");
	assert_true(!argbuf && !packer && addr && !unpack_addr);
}

/* ---- the log ---- */

/* How many lines of an overrun async stream, which are of level WARN, this level shows. */
static unsigned int lines_at(struct flexio_process *process, enum flexio_log_lvl level)
{
	flexio_msg_stream_attr_t attr = { .data_bsize = 2048,
					  .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_ASYNC,
					  .level = FLEXIO_MSG_DEV_INFO };
	FILE *out = fopen("/dev/null", "w"), *log = tmpfile();
	int saved = dup(STDERR_FILENO);
	struct flexio_msg_stream *stream;
	unsigned int warnings = 0, errors = 0;
	char line[512];

	flexio_log_lvl_set(level);
	assert_ok(flexio_msg_stream_create(process, &attr, out, NULL, &stream));
	bed_words(process, "say_many", (uint64_t[]){ 0, FLEXIO_MSG_DEV_INFO, 0, 1000 }, 4);
	dup2(fileno(log), STDERR_FILENO);
	assert_ok(flexio_msg_stream_flush(stream));
	assert_failed(flexio_msg_stream_flush(NULL)); /* of level ERR, which every level shows */
	dup2(saved, STDERR_FILENO);
	close(saved);
	rewind(log);
	while (fgets(line, sizeof(line), log)) {
		warnings += strstr(line, "messages were lost") != NULL;
		errors += strstr(line, "is NULL") != NULL;
	}
	fclose(log);
	assert_int_equal(errors, 1);
	assert_ok(flexio_msg_stream_destroy(stream));
	fclose(out);
	return warnings;
}

static void test_log_levels(void **state)
{
	struct flexio_process *process = bed_process();

	assert_int_equal(lines_at(process, FLEXIO_LOG_LVL_ERR), 0);
	assert_int_equal(lines_at(process, FLEXIO_LOG_LVL_WARN), 1);
	assert_int_equal(lines_at(process, FLEXIO_LOG_LVL_INFO), 1);
	assert_int_equal(lines_at(process, FLEXIO_LOG_LVL_DBG), 1);
	assert_int_equal(lines_at(process, FLEXIO_LOG_LVL_ERR), 0);
	bed_process_end(process);
}

/* ---- messages of device code by the older names ---- */

static void test_log_dev(void **state)
{
	static const flexio_msg_dev_sync_mode modes[] = { FLEXIO_LOG_DEV_SYNC_MODE_SYNC,
							  FLEXIO_LOG_DEV_SYNC_MODE_ASYNC };

	for (unsigned int i = 0; i < 2; i++) {
		flexio_msg_stream_attr_t attr = { .data_bsize = 2048, .sync_mode = modes[i] };
		struct flexio_process *process = bed_process();
		pthread_t thread = pthread_self();
		char *text = NULL;
		size_t len = 0, before;
		FILE *out = open_memstream(&text, &len);

		assert_ok(flexio_log_dev_init(process, &attr, out, &thread));
		/* a synchronous stream has a thread, the other one has none */
		assert_int_equal(pthread_equal(thread, pthread_self()) != 0, i);
		bed_words(process, "say", (uint64_t[]){ 0, FLEXIO_MSG_DEV_INFO, 1 }, 3);
		fflush(out);
		before = len;
		assert_int_equal(before != 0, !i);
		assert_ok(flexio_log_dev_flush(process));
		fflush(out);
		assert_int_equal(len != before, i); /* there is nothing to do in synchronous mode */
		assert_non_null(strstr(text, "message 1\n"));
		bed_words(process, "say", (uint64_t[]){ 0, FLEXIO_MSG_DEV_INFO, 2 }, 3);
		bed_process_end(process); /* takes the stream along, and shows what it has */
		fclose(out);
		assert_non_null(strstr(text, "message 1\n"));
		assert_non_null(strstr(text, "message 2\n"));
		free(text);
	}
}

/* The older flush is of the default stream, not of the others. */
static void test_flush_of_default(void **state)
{
	flexio_msg_stream_attr_t attr = { .data_bsize = 2048,
					  .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_ASYNC,
					  .level = FLEXIO_MSG_DEV_INFO };
	struct flexio_process *process = bed_process();
	struct flexio_msg_stream *streams[2];
	char *text[2] = { NULL };
	size_t len[2] = { 0 };
	FILE *out[2];

	for (int i = 0; i < 2; i++) {
		out[i] = open_memstream(&text[i], &len[i]);
		assert_ok(flexio_msg_stream_create(process, &attr, out[i], NULL, &streams[i]));
	}
	bed_words(process, "say",
		  (uint64_t[]){ FLEXIO_MSG_DEV_BROADCAST_STREAM, FLEXIO_MSG_DEV_INFO, 1 }, 3);
	assert_ok(flexio_log_dev_flush(process));
	for (int i = 0; i < 2; i++) {
		fflush(out[i]);
		assert_int_equal(len[i] != 0, !i);
	}
	assert_ok(flexio_msg_stream_flush(streams[1]));
	assert_string_equal(text[0], text[1]);
	bed_process_end(process);
	for (int i = 0; i < 2; i++) {
		fclose(out[i]);
		free(text[i]);
	}
}

/* ---- attributes that count for nothing ---- */

static void test_unused_attributes(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_outbox_attr outbox_attr = { .uar = (struct flexio_uar *)junk };
	flexio_msg_stream_attr_t stream_attr = {
		.uar = (struct flexio_uar *)junk,
		.data_bsize = 2048,
		.level = FLEXIO_MSG_DEV_INFO,
		.mgmt_affinity = { FLEXIO_AFFINITY_NONE, UINT32_MAX },
	};
	struct flexio_event_handler_attr handler_attr = {
		.host_stub_func = bed_func("handler"),
		.affinity = { FLEXIO_AFFINITY_NONE, UINT32_MAX },
	};
	flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
	struct flexio_event_handler *handler;
	struct flexio_msg_stream *stream;
	struct flexio_outbox *outbox;

	assert_ok(flexio_outbox_create(process, &outbox_attr, &outbox));
	assert_ptr_equal(flexio_outbox_get_uar(outbox), flexio_process_get_uar(process));
	assert_ok(flexio_outbox_destroy(outbox));
	assert_ok(flexio_msg_stream_create(process, &stream_attr, stdout, NULL, &stream));
	assert_ok(flexio_event_handler_create(process, &handler_attr, &handler));
	assert_ok(flexio_event_handler_run(handler, s));
	bed_value(process, "activate", flexio_event_handler_get_activation_id(handler));
	bed_await(process, AT(s, runs), 1);
	assert_ok(flexio_event_handler_destroy(handler));
	bed_process_end(process);
}

/* Which kinds of objects there need not be to be destroyed. */
static void test_destroy_null(void **state)
{
	assert_ok(flexio_process_destroy(NULL));
	assert_ok(flexio_device_mkey_destroy(NULL));
	assert_ok(flexio_uar_destroy(NULL));
	assert_ok(flexio_outbox_destroy(NULL));
	assert_ok(flexio_cq_destroy(NULL));
	assert_ok(flexio_qp_destroy(NULL));
	assert_ok(flexio_sq_destroy(NULL));
	assert_ok(flexio_rq_destroy(NULL));
	assert_ok(flexio_rmp_destroy(NULL));
	assert_ok(flexio_sq_tis_destroy(NULL));
	assert_ok(flexio_transport_domain_destroy(NULL));
	assert_failed(flexio_app_destroy(NULL));
	assert_failed(flexio_window_destroy(NULL));
	assert_failed(flexio_event_handler_destroy(NULL));
	assert_failed(flexio_cmdq_destroy(NULL));
	assert_failed(flexio_msg_stream_destroy(NULL));
}

/* ---- processes ---- */

/* Without a domain of the program's there is one of the process's own. */
static void test_own_domain(void **state)
{
	struct flexio_process *a = bed_process(), *b = bed_process();
	struct ibv_pd *pd = flexio_process_get_pd(a);

	assert_non_null(pd);
	assert_ptr_equal(pd->context, bed_ctx);
	assert_ptr_not_equal(pd, flexio_process_get_pd(b));
	bed_process_end(a);
	bed_process_end(b);
}

/* An activation id names a handler of the own process, whatever others have. */
static void test_activation_of_others(void **state)
{
	struct flexio_process *a = bed_process(), *b = bed_process();
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("handler") };
	flexio_uintptr_t s = bed_alloc(b, sizeof(struct shared));
	struct flexio_event_handler *handler;
	uint32_t id;

	assert_ok(flexio_event_handler_create(b, &attr, &handler));
	assert_ok(flexio_event_handler_run(handler, s));
	id = flexio_event_handler_get_activation_id(handler);
	assert_int_equal(bed_value(a, "activate", id), UINT64_MAX);
	usleep(20000);
	assert_int_equal(bed_read(b, AT(s, in)), 0);
	assert_int_equal(bed_value(b, "activate", id), 0);
	bed_await(b, AT(s, runs), 1);
	assert_ok(flexio_event_handler_destroy(handler));
	bed_process_end(a);
	bed_process_end(b);
}

static bool readable(int fd)
{
	struct timeval now = { 0, 0 };
	fd_set fds;

	FD_ZERO(&fds);
	FD_SET(fd, &fds);
	return select(fd + 1, &fds, NULL, NULL, &now) == 1;
}

/* flexio_dev_process_finish(): all threads stop, none is triggered any more, and the file descriptor tells. */
static void test_process_finish(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("forever") };
	struct flexio_cq_attr cq_attr = { .element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD };
	flexio_uintptr_t word = bed_alloc(process, 8), args;
	struct flexio_event_handler *spinner, *waiting;
	struct flexio_cq *cq;
	uint64_t at = 0;

	assert_ok(flexio_event_handler_create(process, &attr, &spinner));
	assert_ok(flexio_event_handler_create(process, &attr, &waiting));
	assert_ok(flexio_event_handler_run(spinner, word));
	cq_attr.thread = flexio_event_handler_get_thread(waiting);
	cq_attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	cq_attr.cq_ring_qmem.daddr = bed_alloc(process, 64);
	cq_attr.cq_dbr_daddr = bed_alloc(process, 8);
	assert_ok(flexio_cq_create(process, NULL, &cq_attr, &cq));
	bed_value(process, "activate", flexio_event_handler_get_activation_id(spinner));
	bed_await(process, word, 1);
	assert_false(readable(flexio_err_handler_fd(process)));
	assert_ok(
		flexio_copy_from_host(process, (uint64_t[5]){ VB_RTOS_PROCESS_FINISH }, 40, &args));
	assert_int_equal(bed_call(process, "raw_call", args, NULL), FLEXIO_STATUS_FATAL_ERR);
	assert_int_equal(flexio_err_status_get(process), 0x40);
	assert_true(readable(flexio_err_handler_fd(process)));
	for (unsigned int i = 0; i < 500 && at != bed_read(process, word); i++) {
		at = bed_read(process, word);
		usleep(20000);
	}
	assert_int_equal(bed_read(process, word), at);
	assert_int_equal(flexio_event_handler_run(waiting, word), FLEXIO_STATUS_FATAL_ERR);
	assert_ok(flexio_cq_destroy(cq));
	assert_ok(flexio_event_handler_destroy(spinner));
	assert_ok(flexio_event_handler_destroy(waiting));
	bed_process_end(process);
}

/* ---- queues ---- */

static uint32_t own_uar(struct flexio_process *process)
{
	return flexio_uar_get_id(flexio_process_get_uar(process));
}

static struct flexio_cq_attr cq_attr(struct flexio_process *process)
{
	return (struct flexio_cq_attr){ .element_type = FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ,
					.uar_id = own_uar(process),
					.cq_ring_qmem.daddr = bed_alloc(process, 64),
					.cq_dbr_daddr = bed_alloc(process, 8) };
}

static struct ibv_context *other_adapter(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "mlx5_1"))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	assert_non_null(ctx);
	return ctx;
}

/* A base address is that of the host's page which uar_id names; with a UAR of the process it must be NULL. */
static void test_uar_base(void **state)
{
	struct flexio_process *process = bed_process();
	struct mlx5dv_devx_uar *page = mlx5dv_devx_alloc_uar(bed_ctx, MLX5DV_UAR_ALLOC_TYPE_NC);
	struct ibv_context *other = other_adapter();
	struct mlx5dv_devx_uar *theirs = mlx5dv_devx_alloc_uar(other, MLX5DV_UAR_ALLOC_TYPE_NC);
	struct flexio_cq_attr attr = cq_attr(process);
	struct flexio_cq *cq = (void *)16;

	if (!page)
		skip(); /* a processor whose stores cannot be seen */
	attr.uar_base_addr = page->base_addr;
	assert_failed(flexio_cq_create(process, NULL, &attr, &cq));
	attr.uar_base_addr = junk;
	assert_failed(flexio_cq_create(process, NULL, &attr, &cq));
	attr.uar_id = page->page_id;
	assert_failed(flexio_cq_create(process, NULL, &attr, &cq));
	attr.uar_base_addr = NULL;
	assert_failed(flexio_cq_create(process, NULL, &attr, &cq));
	attr.uar_base_addr = theirs->base_addr; /* the page of another one, or of another adapter */
	assert_failed(flexio_cq_create(process, NULL, &attr, &cq));
	attr.uar_id = theirs->page_id;
	assert_failed(flexio_cq_create(process, NULL, &attr, &cq));
	assert_ptr_equal(cq, (void *)16);
	attr.uar_id = page->page_id;
	attr.uar_base_addr = page->base_addr;
	assert_ok(flexio_cq_create(process, NULL, &attr, &cq));
	assert_ok(flexio_cq_destroy(cq));
	mlx5dv_devx_free_uar(page);
	assert_failed(flexio_cq_create(process, NULL, &attr, &cq)); /* not any more */
	mlx5dv_devx_free_uar(theirs);
	assert_int_equal(ibv_close_device(other), 0);
	bed_process_end(process);
}

/* A TIS is for queues of its own device context, made with a domain of that context; the same for an RQ's domain. */
static void test_contexts(void **state)
{
	struct ibv_context *again = ibv_open_device(bed_ctx->device);
	struct flexio_process *process = bed_process();
	struct flexio_cq_attr attr = cq_attr(process);
	struct flexio_wq_attr wq = { .uar_id = own_uar(process),
				     .wq_ring_qmem.daddr = bed_alloc(process, 64),
				     .wq_dbr_qmem.daddr = bed_alloc(process, 8) };
	struct flexio_transport_domain *td;
	struct flexio_sq_tis *tis = NULL;
	struct flexio_sq *sq;
	struct flexio_rq *rq;
	struct flexio_cq *cq;
	uint32_t cqn;

	assert_ok(flexio_cq_create(process, NULL, &attr, &cq));
	cqn = flexio_cq_get_cq_num(cq);
	assert_ok(flexio_transport_domain_create(again, &td));
	assert_failed(flexio_sq_tis_create(bed_ctx, td, &tis));
	assert_ok(flexio_sq_tis_create(again, td, &tis));
	wq.sq.tis = tis;
	assert_failed(flexio_sq_create(process, NULL, cqn, &wq, &sq));
	assert_ok(flexio_sq_tis_destroy(tis));
	wq.rq = (struct flexio_wq_rq_attr){ .td = td };
	assert_failed(flexio_rq_create(process, NULL, cqn, &wq, &rq));
	assert_ok(flexio_transport_domain_destroy(td));
	assert_ok(flexio_cq_destroy(cq));
	bed_process_end(process);
	assert_int_equal(ibv_close_device(again), 0);
}

/* The default of log_wq_stride may be named, and a send queue's entries are blocks of 64 bytes all the same. */
static void test_default_stride(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_cq_attr attr = cq_attr(process);
	struct flexio_wq_attr wq = { .uar_id = own_uar(process),
				     .log_wq_depth = 1,
				     .wq_ring_qmem.daddr = bed_alloc(process, 128) };
	struct flexio_heap_mem_info heap;
	struct flexio_cq *cq;
	struct flexio_sq *sq;

	assert_ok(flexio_process_mem_info_get(process, &heap));
	assert_ok(flexio_cq_create(process, NULL, &attr, &cq));
	for (unsigned int stride = 0; stride < 12; stride++) {
		bool good = stride == 0 || stride == 4 || stride == 6;

		wq.log_wq_stride = (uint8_t)stride;
		assert_int_equal(
			flexio_sq_create(process, NULL, flexio_cq_get_cq_num(cq), &wq, &sq),
			good ? FLEXIO_STATUS_SUCCESS : FLEXIO_STATUS_FAILED);
		if (good)
			assert_ok(flexio_sq_destroy(sq));
	}
	wq.log_wq_stride = 4;
	wq.wq_ring_qmem.daddr = heap.base_addr + heap.size - 64; /* room for one of the two */
	assert_failed(flexio_sq_create(process, NULL, flexio_cq_get_cq_num(cq), &wq, &sq));
	assert_ok(flexio_cq_destroy(cq));
	bed_process_end(process);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_app_end),
		cmocka_unit_test(test_app_attributes),
		cmocka_unit_test(test_longest_names),
		cmocka_unit_test(test_plain_function),
		cmocka_unit_test(test_log_levels),
		cmocka_unit_test(test_log_dev),
		cmocka_unit_test(test_flush_of_default),
		cmocka_unit_test(test_unused_attributes),
		cmocka_unit_test(test_destroy_null),
		cmocka_unit_test(test_own_domain),
		cmocka_unit_test(test_activation_of_others),
		cmocka_unit_test(test_process_finish),
		cmocka_unit_test(test_uar_base),
		cmocka_unit_test(test_contexts),
		cmocka_unit_test(test_default_stride),
	};

	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1); /* a busy machine may be slow */
	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

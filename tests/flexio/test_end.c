// SPDX-License-Identifier: MIT
/*
 * Objects that one thread destroys while others work with them: every function finishes or is refused, none reads what
 * is gone. It is the sanitizers (build-aux/check with asan, tsan) that would see it.
 */
#include "bed.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORKERS = 4, ROUNDS = 30 };

/* What a worker does again and again with the objects of the present round. */
typedef void work_fn(void);

static _Atomic bool no_more, rest;
static struct flexio_process *_Atomic process;
static flexio_func_t *add_one, *nothing;
static FILE *out;

/* ---- work ---- */

static void memory(void)
{
	struct flexio_process *p = atomic_load(&process);
	struct flexio_heap_mem_info info;
	flexio_uintptr_t addr, copied;
	char text[4096] = { 1 };

	flexio_process_mem_info_get(p, &info);
	if (flexio_buf_dev_alloc(p, sizeof(text), &addr))
		return;
	flexio_buf_dev_memset(p, 7, sizeof(text), addr);
	flexio_host2dev_memcpy(p, text, sizeof(text), addr);
	flexio_memcpy(
		p,
		&(struct flexio_mem){ .mem_type = FLEXIO_MEMTYPE_HOST, .haddr = (uintptr_t)text },
		&(struct flexio_mem){ .mem_type = FLEXIO_MEMTYPE_DPA, .daddr = addr },
		sizeof(text));
	if (!flexio_copy_from_host(p, text, sizeof(text), &copied))
		flexio_buf_dev_free(p, copied);
	flexio_buf_dev_free(p, addr);
}

static void questions(void)
{
	struct flexio_process *p = atomic_load(&process);

	flexio_process_get_pd(p);
	flexio_process_get_dumem_id(p);
	flexio_process_udbg_token_get(p);
	flexio_uar_get_id(flexio_process_get_uar(p));
	flexio_err_handler_fd(p);
	flexio_err_status_get(p);
}

static void calls(void)
{
	uint64_t result = 0;
	flexio_status status =
		flexio_process_call(atomic_load(&process), add_one, &result, (uint64_t)1);

	assert_true(status == FLEXIO_STATUS_SUCCESS ? result == 2 : status == FLEXIO_STATUS_FAILED);
}

static void streams(void)
{
	flexio_msg_stream_attr_t attr = { .data_bsize = 2048, .level = FLEXIO_MSG_DEV_INFO };
	struct flexio_process *p = atomic_load(&process);
	struct flexio_msg_stream *stream;

	attr.sync_mode = (flexio_msg_dev_sync_mode)(rand() % 3);
	if (flexio_msg_stream_create(p, &attr, out, NULL, &stream))
		return;
	flexio_msg_stream_get_id(stream);
	flexio_msg_stream_level_set(stream, FLEXIO_MSG_DEV_DEBUG);
	flexio_msg_stream_flush(stream);
	flexio_log_dev_flush(p);
	if (rand() % 2) /* or the process takes it along */
		flexio_msg_stream_destroy(stream);
}

static void parts(void)
{
	struct flexio_process *p = atomic_load(&process);
	struct flexio_event_handler_attr eh = { .host_stub_func = nothing };
	struct flexio_mkey_attr attr = { .len = 64, .access = IBV_ACCESS_LOCAL_WRITE };
	struct flexio_outbox_attr outbox_attr = { 0 };
	struct flexio_event_handler *handler;
	struct flexio_outbox *outbox;
	struct flexio_mkey *mkey;
	struct flexio_uar *uar;

	if (!flexio_buf_dev_alloc(p, 64, &attr.daddr) &&
	    !flexio_device_mkey_create(p, &attr, &mkey)) {
		flexio_mkey_get_id(mkey);
		flexio_device_mkey_destroy(mkey);
	}
	if (!flexio_event_handler_create(p, &eh, &handler)) {
		flexio_event_handler_run(handler, 0);
		flexio_event_handler_destroy(handler);
	}
	if (!flexio_uar_create(p, &uar))
		flexio_uar_destroy(uar);
	if (!flexio_outbox_create(p, &outbox_attr, &outbox))
		flexio_outbox_destroy(outbox);
}

/* ---- objects that all workers share ---- */

static struct flexio_mkey *_Atomic shared_mkey;
static struct flexio_msg_stream *_Atomic shared_stream;
static struct flexio_event_handler *_Atomic shared_handler;
static struct flexio_window *_Atomic shared_window;
static struct flexio_outbox *_Atomic shared_outbox;
static struct flexio_uar *_Atomic shared_uar;
static struct flexio_app *_Atomic shared_app;
static struct flexio_transport_domain *_Atomic shared_td;

static void use_shared(void)
{
	struct flexio_sq_tis *tis;
	flexio_func_t *func;
	uint64_t word;

	flexio_mkey_get_id(atomic_load(&shared_mkey));
	flexio_msg_stream_flush(atomic_load(&shared_stream));
	flexio_msg_stream_get_id(atomic_load(&shared_stream));
	flexio_event_handler_get_id(atomic_load(&shared_handler));
	flexio_event_handler_get_activation_id(atomic_load(&shared_handler));
	flexio_event_handler_run(atomic_load(&shared_handler), 0);
	flexio_window_get_id(atomic_load(&shared_window));
	flexio_outbox_get_id(atomic_load(&shared_outbox));
	flexio_outbox_get_uar(atomic_load(&shared_outbox));
	flexio_uar_get_id(atomic_load(&shared_uar));
	flexio_app_get_elf_size(atomic_load(&shared_app));
	flexio_app_get_elf(atomic_load(&shared_app), &word, sizeof(word));
	flexio_func_register(atomic_load(&shared_app), "add_one", &func);
	if (!flexio_sq_tis_create(bed_ctx, atomic_load(&shared_td), &tis))
		flexio_sq_tis_destroy(tis);
}

/* Of two that destroy one object one succeeds. */
static void end_shared(void)
{
	static _Atomic unsigned int turn;

	switch (atomic_fetch_add(&turn, 1) % 8) {
	case 0:
		flexio_device_mkey_destroy(atomic_load(&shared_mkey));
		break;
	case 1:
		flexio_msg_stream_destroy(atomic_load(&shared_stream));
		break;
	case 2:
		flexio_event_handler_destroy(atomic_load(&shared_handler));
		break;
	case 3:
		flexio_window_destroy(atomic_load(&shared_window));
		break;
	case 4:
		flexio_outbox_destroy(atomic_load(&shared_outbox));
		break;
	case 5:
		flexio_uar_destroy(atomic_load(&shared_uar));
		break;
	case 6:
		flexio_app_destroy(atomic_load(&shared_app));
		break;
	default:
		flexio_transport_domain_destroy(atomic_load(&shared_td));
	}
}

/* ---- rounds ---- */

static void *worker(void *arg)
{
	work_fn *work = *(work_fn **)arg;

	while (!atomic_load(&no_more)) {
		work();
		while (atomic_load(&rest))
			usleep(20);
	}
	return NULL;
}

static void start(pthread_t *threads, work_fn **work)
{
	atomic_store(&no_more, false);
	for (unsigned int i = 0; i < WORKERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, worker, &work[i]), 0);
}

static void stop(pthread_t *threads)
{
	atomic_store(&no_more, true);
	for (unsigned int i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
}

/* Processes come and go under the hands of the workers. */
static void run(work_fn *a, work_fn *b)
{
	work_fn *work[WORKERS] = { a, b, a, b };
	pthread_t threads[WORKERS];

	atomic_store(&process, bed_process());
	start(threads, work);
	for (unsigned int i = 0; i < ROUNDS; i++) {
		struct flexio_process *old = atomic_load(&process), *next = bed_process();

		usleep(300);
		/* The workers still have the old one, which goes in a moment when they own nothing of it. */
		for (unsigned int n = 0; flexio_process_destroy(old) != FLEXIO_STATUS_SUCCESS;
		     n++) {
			atomic_store(&rest, n > 10);
			usleep(50);
		}
		atomic_store(&process, next);
		atomic_store(&rest, false);
	}
	stop(threads);
	bed_process_end(atomic_load(&process));
}

static void test_memory(void **state)
{
	run(memory, questions);
}

static void test_streams(void **state)
{
	run(streams, memory);
}

static void test_parts(void **state)
{
	run(parts, questions);
}

static void test_calls(void **state)
{
	run(calls, streams);
}

static void make_shared(struct flexio_process *p)
{
	flexio_msg_stream_attr_t attr = { .data_bsize = 2048, .level = FLEXIO_MSG_DEV_INFO };
	struct flexio_event_handler_attr eh = { .host_stub_func = nothing };
	struct flexio_mkey_attr mkey_attr = { .len = 64, .access = IBV_ACCESS_LOCAL_WRITE };
	struct flexio_outbox_attr outbox_attr = { 0 };
	struct flexio_app_attr app_attr = { .app_name = "shared" };
	struct flexio_transport_domain *td;
	struct flexio_event_handler *handler;
	struct flexio_msg_stream *stream;
	struct flexio_outbox *outbox;
	struct flexio_window *window;
	struct flexio_mkey *mkey;
	struct flexio_uar *uar;
	struct flexio_app *app;

	mkey_attr.daddr = bed_alloc(p, 64);
	app_attr.app_ptr = bed_elf(&app_attr.app_bsize);
	assert_ok(flexio_device_mkey_create(p, &mkey_attr, &mkey));
	assert_ok(flexio_msg_stream_create(p, &attr, out, NULL, &stream));
	assert_ok(flexio_event_handler_create(p, &eh, &handler));
	assert_ok(flexio_window_create(p, flexio_process_get_pd(p), &window));
	assert_ok(flexio_outbox_create(p, &outbox_attr, &outbox));
	assert_ok(flexio_uar_create(p, &uar));
	assert_ok(flexio_app_create(&app_attr, &app));
	assert_ok(flexio_transport_domain_create(bed_ctx, &td));
	free(app_attr.app_ptr);
	atomic_store(&shared_mkey, mkey);
	atomic_store(&shared_stream, stream);
	atomic_store(&shared_handler, handler);
	atomic_store(&shared_window, window);
	atomic_store(&shared_outbox, outbox);
	atomic_store(&shared_uar, uar);
	atomic_store(&shared_app, app);
	atomic_store(&shared_td, td);
}

static unsigned int count_apps(void)
{
	struct flexio_app **list;
	uint32_t n;

	assert_ok(flexio_app_get_list(&list, &n));
	assert_ok(flexio_app_list_free(list));
	return n;
}

/* Every object ends once, whoever ends it, and nobody sees half of one. */
static void test_shared(void **state)
{
	work_fn *work[WORKERS] = { use_shared, end_shared, use_shared, end_shared };
	unsigned int apps = count_apps();
	pthread_t threads[WORKERS];

	for (unsigned int i = 0; i < ROUNDS; i++) {
		struct flexio_process *p = bed_process();

		make_shared(p);
		start(threads, work);
		/* The workers end all that stands on the process, and then the app. */
		while (flexio_process_destroy(p) != FLEXIO_STATUS_SUCCESS)
			usleep(50);
		while (count_apps() != apps)
			usleep(50);
		stop(threads);
		flexio_transport_domain_destroy(atomic_load(&shared_td));
	}
	assert_int_equal(count_apps(), apps);
}

/* A process is not finished before those are that work with it: here a flush into a pipe that nobody reads. */
static void *flush(void *arg)
{
	return (void *)(uintptr_t)flexio_msg_stream_flush(arg);
}

static void *destroy(void *arg)
{
	return (void *)(uintptr_t)flexio_process_destroy(arg);
}

static void *drain_pipe(void *arg)
{
	char text[4096];

	while (read(*(int *)arg, text, sizeof(text)) > 0)
		;
	return NULL;
}

static void test_order(void **state)
{
	flexio_msg_stream_attr_t attr = { .data_bsize = 1 << 20,
					  .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_ASYNC,
					  .level = FLEXIO_MSG_DEV_INFO };
	/* stream, level, from, to: more than a pipe takes */
	const uint64_t lines[] = { 0, FLEXIO_MSG_DEV_INFO, 0, 20000 };
	struct flexio_process *p = bed_process();
	pthread_t flusher, destroyer, reader;
	struct flexio_msg_stream *stream;
	void *status;
	int ends[2];
	FILE *file;

	assert_int_equal(pipe(ends), 0);
	file = fdopen(ends[1], "w");
	assert_ok(flexio_msg_stream_create(p, &attr, file, NULL, &stream));
	bed_words(p, "say_many", lines, 4);
	assert_int_equal(pthread_create(&flusher, NULL, flush, stream), 0);
	usleep(1000); /* most often it is in the flush now; else less is shown */
	assert_int_equal(pthread_create(&destroyer, NULL, destroy, p), 0);
	usleep(1000);
	assert_int_equal(pthread_create(&reader, NULL, drain_pipe, &ends[0]), 0);
	pthread_join(flusher, NULL); /* either status: the destroyer may have been first */
	pthread_join(destroyer, &status);
	assert_int_equal((uintptr_t)status, FLEXIO_STATUS_SUCCESS);
	fclose(file);
	pthread_join(reader, NULL);
	close(ends[0]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory), cmocka_unit_test(test_streams),
		cmocka_unit_test(test_parts),  cmocka_unit_test(test_calls),
		cmocka_unit_test(test_shared), cmocka_unit_test(test_order),
	};

	bed_init(argc, argv);
	add_one = bed_func("add_one");
	nothing = bed_func("handler");
	out = fopen("/dev/null", "w");
	/* What is refused says so, thousands of times. */
	if (!out || !freopen("/dev/null", "w", stderr))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

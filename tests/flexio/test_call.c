// SPDX-License-Identifier: MIT
/*
 * Calls: arguments and results, many callers, faults of every kind, endless loops, ends by hand.
 */
#include "bed.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../src/device/rtos.h"

static void many_stub(void)
{
}

static void many_pack(void *argbuf, va_list ap)
{
	uint64_t *a = argbuf;

	a[0] = (uint64_t)(int64_t)va_arg(ap, int);
	a[1] = (uint64_t)va_arg(ap, int);
	a[2] = (uint64_t)(int64_t)va_arg(ap, int);
	a[3] = va_arg(ap, uint64_t);
	a[4] = (uint64_t)va_arg(ap, void *);
}

static void test_arguments(void **state)
{
	struct flexio_process *process = bed_process();
	uint64_t result = 0;

	assert_int_equal(bed_value(process, "add_one", 41), 42);
	assert_int_equal(bed_value(process, "add_one", UINT64_MAX), 0);
	assert_ok(
		flexio_func_pup_register(bed_app, "many", "unpack_many", many_stub, 40, many_pack));
	assert_ok(flexio_process_call(process, many_stub, &result, -3, 65535, -70000,
				      UINT64_C(1) << 40, (void *)0x1000));
	assert_int_equal(result, (uint64_t)-3 * 1000003 + 65535 * 1009 + (uint64_t)-70000 * 31 +
					 (UINT64_C(1) << 40) + 0x1000);
	assert_ok(flexio_process_call(process, many_stub, NULL, 1, 2, 3, UINT64_C(4), NULL));
	bed_process_end(process);
}

static void test_refusals(void **state)
{
	struct flexio_process *process = bed_process();
	uint64_t result = 77;

	assert_failed(flexio_process_call(NULL, bed_func("add_one"), &result, UINT64_C(1)));
	assert_failed(
		flexio_process_call((void *)&result, bed_func("add_one"), &result, UINT64_C(1)));
	assert_failed(flexio_process_call(process, NULL, &result, UINT64_C(1)));
	assert_failed(
		flexio_process_call(process, (flexio_func_t *)test_refusals, &result, UINT64_C(1)));
	assert_int_equal(result, 77);
	bed_process_end(process);
	assert_failed(flexio_process_call(process, bed_func("add_one"), &result, UINT64_C(1)));
	assert_failed(flexio_process_destroy(process));
}

static void test_memory_of_processes(void **state)
{
	struct flexio_process *a = bed_process(), *b = bed_process();

	/* Globals and heap are each process's own; they live from call to call. */
	assert_int_equal(bed_value(a, "count", 5), 5);
	assert_int_equal(bed_value(a, "count", 5), 10);
	assert_int_equal(bed_value(b, "count", 1), 1);
	bed_process_end(a);
	assert_int_equal(bed_value(b, "count", 1), 2);
	bed_process_end(b);
}

static void test_context(void **state)
{
	struct flexio_process *process = bed_process();
	uint64_t addr = bed_value(process, "context", 9);

	assert_int_not_equal(bed_value(process, "context", 0), 0);
	assert_int_equal(bed_value(process, "context", 1), VB_RTOS_THREAD_RPC);
	assert_int_equal(bed_value(process, "context", 2), 0);
	assert_int_equal(bed_value(process, "context", 3), 1);
	assert_int_equal(bed_value(process, "context", 9), addr); /* stays where it is */
	assert_int_equal(bed_value(process, "count_mine", 1), 8); /* TLS */
	bed_process_end(process);
}

/* Ending the thread by hand ends the call, with result 0. */
static void test_ends(void **state)
{
	struct flexio_process *process = bed_process();
	static const uint64_t ends[] = { VB_RTOS_RESCHEDULE, VB_RTOS_FINISH, VB_RTOS_RETRIGGER };

	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(bed_words(process, "raw_call", (uint64_t[5]){ ends[i], 9 }, 5), 0);
	/* a yield has no effect in a call */
	assert_int_equal(bed_words(process, "raw_call", (uint64_t[5]){ VB_RTOS_YIELD, 0 }, 5), 0);
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	assert_int_equal(flexio_err_status_get(process), 0);
	bed_process_end(process);
}

/* ---- the limit ---- */

/* A process whose calls may take 400 ms; the limit is read with the first process on an adapter. */
static struct flexio_process *hasty_process(void)
{
	struct flexio_process *process;

	setenv("VERBATIM_RPC_TIMEOUT_MS", "400", 1);
	process = bed_process();
	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1);
	return process;
}

static void test_timeout(void **state)
{
	struct flexio_process *process = hasty_process();
	uint64_t result = 5;

	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(bed_call(process, "forever", 0, &result), FLEXIO_STATUS_TIMEOUT);
		assert_int_equal(result, 5);
		assert_int_equal(flexio_err_status_get(process), 0);
		assert_int_equal(bed_value(process, "add_one", i), i + 1);
		/* the guest thread is a new one */
		assert_int_equal(bed_value(process, "count_mine", 1), 8);
	}
	bed_process_end(process);
}

/* One that always gives its turn away, too. */
static void test_timeout_relaxing(void **state)
{
	struct flexio_process *process = hasty_process();
	flexio_uintptr_t args;

	assert_ok(flexio_copy_from_host(process, (uint64_t[]){ bed_alloc(process, 8), 1 }, 16,
					&args));
	assert_int_equal(bed_call(process, "wait_for", args, NULL), FLEXIO_STATUS_TIMEOUT);
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	bed_process_end(process);
}

/* A thread that says that it holds a lock of the library gets a little time, not for ever. */
static void test_timeout_held(void **state)
{
	struct flexio_process *process = hasty_process();
	uint64_t ctx = bed_value(process, "context", 9), result;

	bed_write(process, ctx + offsetof(struct vb_rtos_thread, line), 0);
	bed_write(process, ctx + offsetof(struct vb_rtos_thread, line_len), UINT64_C(1) << 32);
	assert_int_equal(bed_call(process, "forever", 0, &result), FLEXIO_STATUS_TIMEOUT);
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	bed_process_end(process);
}

/* Few instructions, much work of the host: it ends when the time is over, and not when all is done. */
static void expect_late(struct flexio_process *process, const uint64_t call[5], uint64_t times)
{
	flexio_uintptr_t count = bed_alloc(process, 64), args;
	uint64_t words[7] = { times, call[0], call[1], call[2], call[3], call[4], count };

	assert_ok(flexio_copy_from_host(process, words, sizeof(words), &args));
	assert_int_equal(bed_call(process, "repeat", args, NULL), FLEXIO_STATUS_TIMEOUT);
	assert_in_range(bed_read(process, count), 0, times - 1);
	assert_int_equal(bed_value(process, "add_one", 1), 2);
}

/* Copies of 32 MiB, a thousand of them. */
static void test_timeout_copying(void **state)
{
	enum { LEN = 32 << 20 };
	struct flexio_process *process = hasty_process();
	struct ibv_pd *pd = ibv_alloc_pd(bed_ctx);
	void *mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, mem, LEN, IBV_ACCESS_LOCAL_WRITE);
	flexio_uintptr_t device = bed_alloc(process, LEN), args;
	struct flexio_window *window;
	uint64_t words[7];

	assert_non_null(mr);
	assert_ok(flexio_window_create(process, pd, &window));
	for (unsigned int i = 0; i < 2; i++) {
		/* Windows are a thread's own: configure and copy in one call. */
		memcpy(words,
		       (uint64_t[7]){ flexio_window_get_id(window), mr->lkey, (uintptr_t)mem,
				      device, LEN, bed_alloc(process, 64), 1000 },
		       sizeof(words));
		assert_ok(flexio_copy_from_host(process, words, sizeof(words), &args));
		assert_int_equal(bed_call(process, "copy_some", args, NULL), FLEXIO_STATUS_TIMEOUT);
		assert_in_range(bed_read(process, words[5]), 0, 999);
	}
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	assert_ok(flexio_window_destroy(window));
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(mem, LEN);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	bed_process_end(process);
}

/* Messages of a megabyte through a small buffer. */
static void test_timeout_printing(void **state)
{
	enum { LEN = 1 << 20 };
	struct flexio_process *process = hasty_process();
	flexio_msg_stream_attr_t attr = { .data_bsize = 2048,
					  .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_SYNC,
					  .level = FLEXIO_MSG_DEV_INFO };
	FILE *out = fopen("/dev/null", "w");
	struct flexio_msg_stream *stream;

	assert_non_null(out);
	assert_ok(flexio_msg_stream_create(process, &attr, out, NULL, &stream));
	expect_late(process,
		    (uint64_t[5]){ VB_RTOS_MSG, (uint64_t)flexio_msg_stream_get_id(stream),
				   FLEXIO_MSG_DEV_INFO, bed_alloc(process, LEN), LEN },
		    5000);
	assert_ok(flexio_msg_stream_destroy(stream));
	fclose(out);
	bed_process_end(process);
}

/* Doorbells: so many in one slice of instructions take longer than a millisecond on any machine. */
static void test_timeout_ringing(void **state)
{
	enum { TIMES = 100000 };
	struct flexio_process *process;
	flexio_uintptr_t count, args;

	setenv("VERBATIM_RPC_TIMEOUT_MS", "1", 1);
	process = bed_process();
	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1);
	count = bed_alloc(process, 64);
	assert_ok(flexio_copy_from_host(process, (uint64_t[]){ TIMES, count }, 16, &args));
	assert_int_equal(bed_call(process, "ring_often", args, NULL), FLEXIO_STATUS_TIMEOUT);
	assert_in_range(bed_read(process, count), 0, TIMES - 1);
	bed_process_end(process);
}

/* The limit of the configuration, or the default; the log tells which. */
static void test_timeout_of_config(void **state)
{
	const char *want = getenv("VERBATIM_CONFIG") ? "longer than 500 ms" : "longer than 6000 ms";
	int saved = dup(STDERR_FILENO), fds[2];
	struct flexio_process *process;
	char line[256] = "";

	if (!getenv("VERBATIM_CONFIG") && !getenv("VERBATIM_TEST_LONG"))
		skip(); /* six seconds */
	unsetenv("VERBATIM_RPC_TIMEOUT_MS");
	process = bed_process();
	assert_int_equal(pipe(fds), 0);
	dup2(fds[1], STDERR_FILENO);
	assert_int_equal(bed_call(process, "forever", 0, NULL), FLEXIO_STATUS_TIMEOUT);
	dup2(saved, STDERR_FILENO);
	assert_true(read(fds[0], line, sizeof(line) - 1) > 0);
	assert_non_null(strstr(line, want));
	close(saved);
	close(fds[0]);
	close(fds[1]);
	bed_process_end(process);
	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1);
}

/* ---- fatal errors ---- */

static bool fd_readable(struct flexio_process *process)
{
	struct pollfd fd = { .fd = flexio_err_handler_fd(process), .events = POLLIN };

	assert_true(fd.fd >= 0);
	return poll(&fd, 1, 0) == 1 && fd.revents == POLLIN;
}

static void expect_dead(struct flexio_process *process, int status)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("handler") };
	struct flexio_event_handler *handler;
	uint64_t result = 3;

	assert_int_equal(flexio_err_status_get(process), status);
	assert_true(fd_readable(process));
	assert_int_equal(bed_call(process, "add_one", 1, &result), FLEXIO_STATUS_FATAL_ERR);
	assert_int_equal(flexio_event_handler_create(process, &attr, &handler),
			 FLEXIO_STATUS_FATAL_ERR);
	assert_int_equal(result, 3);
	assert_int_equal(flexio_err_status_get(process), status);
	bed_process_end(process);
}

static void test_faults(void **state)
{
	for (uint64_t kind = 1; kind <= 8; kind++) {
		struct flexio_process *process = bed_process();
		uint64_t result = 5;

		assert_false(fd_readable(process));
		assert_int_equal(flexio_err_status_get(process), 0);
		assert_int_equal(bed_call(process, "fault", kind, &result),
				 FLEXIO_STATUS_FATAL_ERR);
		assert_int_equal(result, 5);
		expect_dead(process, 1 + (int)kind);
	}
}

/* Edge-triggered watchers get their edge. */
static void test_epoll(void **state)
{
	struct flexio_process *process = bed_process();
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int ep[2] = { epoll_create1(0), epoll_create1(0) };

	for (unsigned int i = 0; i < 2; i++) {
		assert_int_equal(
			epoll_ctl(ep[i], EPOLL_CTL_ADD, flexio_err_handler_fd(process), &event), 0);
		assert_int_equal(epoll_wait(ep[i], &event, 1, 0), 0);
	}
	assert_int_equal(bed_call(process, "fault", 2, NULL), FLEXIO_STATUS_FATAL_ERR);
	for (unsigned int i = 0; i < 2; i++) {
		assert_int_equal(epoll_wait(ep[i], &event, 1, 0), 1);
		close(ep[i]);
	}
	bed_process_end(process);
}

static void test_overflow(void **state)
{
	struct flexio_process *process = bed_process();

	assert_int_equal(bed_call(process, "overflow", 0, NULL), FLEXIO_STATUS_FATAL_ERR);
	expect_dead(process, VB_RTOS_STATUS_STACK);
}

static void test_errors_by_hand(void **state)
{
	static const struct {
		uint64_t call, code;
		int status;
	} cases[] = {
		{ VB_RTOS_PROCESS_FINISH, 0, 0x40 }, { VB_RTOS_ERROR, 0x80, 0x80 },
		{ VB_RTOS_ERROR, 0xff, 0xff },       { VB_RTOS_ERROR, 0x7f, 0x42 },
		{ VB_RTOS_ERROR, 0x100, 0x42 },      { VB_RTOS_ERROR, 0, 0x42 },
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct flexio_process *process = bed_process();
		uint64_t args[5] = { cases[i].call, cases[i].code }, addr;

		assert_ok(flexio_copy_from_host(process, args, sizeof(args), &addr));
		assert_int_equal(bed_call(process, "raw_call", addr, NULL),
				 FLEXIO_STATUS_FATAL_ERR);
		expect_dead(process, cases[i].status);
	}
}

/* One process dies, its neighbour on the same adapter does not notice. */
static void test_neighbour(void **state)
{
	struct flexio_process *a = bed_process(), *b = bed_process();

	assert_int_equal(bed_call(a, "fault", 5, NULL), FLEXIO_STATUS_FATAL_ERR);
	assert_int_equal(bed_value(b, "add_one", 1), 2);
	assert_int_equal(flexio_err_status_get(b), 0);
	/* memory of a dead process can still be looked at */
	assert_int_equal(bed_read(a, bed_value(b, "global_addr", 0)), 0);
	expect_dead(a, 6);
	bed_process_end(b);
}

/* ---- hostile calls of the run-time system ---- */

static void test_hostile_calls(void **state)
{
	struct flexio_process *process = bed_process();
	static const uint64_t msg[][4] = {
		{ 0, 4, 0, 8 },
		{ 0, 4, UINT64_MAX, 8 },
		{ 0, 4, 0x10000, UINT64_MAX },
		{ 0, 4, 0x10000, 1U << 30 },
		{ 0, 4, UINT64_C(1) << 40, 8 },
		{ 0, 4, (UINT64_C(2) << 30) - 65536 - 4, 8 }, /* the end of device memory */
		{ 0, 4, (UINT64_C(2) << 30) - 4, 8 },
	};

	for (unsigned int i = 0; i < sizeof(msg) / sizeof(msg[0]); i++)
		assert_int_equal(bed_words(process, "raw_call",
					   (uint64_t[5]){ VB_RTOS_MSG, msg[i][0], msg[i][1],
							  msg[i][2], msg[i][3] },
					   5),
				 UINT64_MAX);
	assert_int_equal(bed_words(process, "raw_call",
				   (uint64_t[5]){ VB_RTOS_MSG, 1234, 99, 0x10000, 8 }, 5),
			 8); /* no such stream: no effect */
	for (uint64_t id = 0; id < 64; id++)
		assert_int_equal(bed_value(process, "activate", id * id * id), UINT64_MAX);
	assert_int_equal(bed_value(process, "activate", UINT64_MAX), UINT64_MAX);
	for (uint64_t call = VB_RTOS_WINDOW_CONFIG; call <= VB_RTOS_CROSS_DB; call++)
		assert_int_equal(
			bed_words(process, "raw_call", (uint64_t[5]){ call, 1, 2, 3, 4 }, 5),
			call == VB_RTOS_WINDOW_PTR ? 0 : UINT64_MAX);
	/* a line of output that points nowhere */
	bed_write(process, bed_value(process, "context", 9) + offsetof(struct vb_rtos_thread, line),
		  16);
	bed_write(process,
		  bed_value(process, "context", 9) + offsetof(struct vb_rtos_thread, line_len),
		  0xffffffff);
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	assert_int_equal(flexio_err_status_get(process), 0);
	bed_process_end(process);
}

/* ---- many callers ---- */

struct caller {
	pthread_t thread;
	struct flexio_process *process;
	flexio_func_t *func;
	unsigned int calls;
	flexio_status status;
};

static void *call_loop(void *arg)
{
	struct caller *c = arg;
	uint64_t result;

	for (unsigned int i = 0; i < c->calls && !c->status; i++) {
		c->status = flexio_process_call(c->process, c->func, &result, (uint64_t)1);
		if (!c->status && !result)
			c->status = FLEXIO_STATUS_FAILED;
	}
	return NULL;
}

static void run_callers(struct caller *c, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		assert_int_equal(pthread_create(&c[i].thread, NULL, call_loop, &c[i]), 0);
	for (unsigned int i = 0; i < n; i++) {
		pthread_join(c[i].thread, NULL);
		assert_ok(c[i].status);
	}
}

static void test_many_callers(void **state)
{
	struct flexio_process *process = bed_process();
	struct caller c[16];

	for (unsigned int i = 0; i < 16; i++)
		c[i] = (struct caller){ .process = process,
					.func = bed_func("count"),
					.calls = 2000 };
	run_callers(c, 16);
	assert_int_equal(bed_value(process, "count", 0), 32000);
	bed_process_end(process);
}

static void *call_wait(void *arg)
{
	struct caller *c = arg;
	uint64_t result;

	c->status = flexio_process_call(c->process, c->func, &result, (uint64_t)c->calls);
	return NULL;
}

/* More calls at a time than the library has device threads for, all waiting for the same word. */
static void test_too_many_callers(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t word = bed_alloc(process, 64), args;
	enum { CALLERS = 300 };
	static struct caller c[CALLERS];

	assert_ok(flexio_copy_from_host(process, (uint64_t[]){ word, 1 }, 16, &args));
	for (unsigned int i = 0; i < CALLERS; i++) {
		c[i] = (struct caller){ .process = process,
					.func = bed_func("wait_for"),
					.calls = (unsigned int)args };
		assert_int_equal(pthread_create(&c[i].thread, NULL, call_wait, &c[i]), 0);
	}
	usleep(20000);
	assert_failed(flexio_process_destroy(process)); /* calls are under way */
	bed_write(process, word, 1);
	for (unsigned int i = 0; i < CALLERS; i++) {
		pthread_join(c[i].thread, NULL);
		assert_ok(c[i].status);
	}
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	bed_process_end(process);
}

/* A fault while others are in endless calls: all come back. */
static void test_fault_among_callers(void **state)
{
	struct flexio_process *process = bed_process();
	struct caller c[4];

	for (unsigned int i = 0; i < 4; i++) {
		c[i] = (struct caller){ .process = process, .func = bed_func("forever") };
		assert_int_equal(pthread_create(&c[i].thread, NULL, call_wait, &c[i]), 0);
	}
	usleep(5000);
	assert_int_equal(bed_call(process, "fault", 2, NULL), FLEXIO_STATUS_FATAL_ERR);
	for (unsigned int i = 0; i < 4; i++) {
		pthread_join(c[i].thread, NULL);
		assert_int_equal(c[i].status, FLEXIO_STATUS_FATAL_ERR);
	}
	expect_dead(process, 3);
}

/* ---- processes themselves ---- */

/* A thread that is cancelled ends its call first. */
static void test_cancelled_caller(void **state)
{
	struct flexio_process *process = hasty_process();
	struct caller c = { .process = process, .func = bed_func("forever") };

	assert_int_equal(pthread_create(&c.thread, NULL, call_wait, &c), 0);
	usleep(5000);
	assert_int_equal(pthread_cancel(c.thread), 0);
	pthread_join(c.thread, NULL);
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	bed_process_end(process);
}

static struct flexio_process *_Atomic current;
static _Atomic bool no_more;

static void *call_current(void *arg)
{
	flexio_func_t *func = bed_func("add_one");
	_Atomic unsigned int *wrong = arg;

	while (!atomic_load(&no_more)) {
		uint64_t result = 0;
		flexio_status status =
			flexio_process_call(atomic_load(&current), func, &result, (uint64_t)1);

		if (status == FLEXIO_STATUS_SUCCESS ? result != 2 : status != FLEXIO_STATUS_FAILED)
			atomic_fetch_add(wrong, 1);
	}
	return NULL;
}

/* A process goes while others begin calls: they get a result or an error, and one of the two waits. */
static void test_destroy_among_callers(void **state)
{
	enum { CALLERS = 4, PROCESSES = 100 };
	_Atomic unsigned int wrong = 0;
	pthread_t threads[CALLERS];

	atomic_store(&no_more, false);
	atomic_store(&current, bed_process());
	for (unsigned int i = 0; i < CALLERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, call_current, &wrong), 0);
	for (unsigned int i = 0; i < PROCESSES; i++) {
		struct flexio_process *old = atomic_exchange(&current, bed_process());

		while (flexio_process_destroy(old) != FLEXIO_STATUS_SUCCESS)
			usleep(50);
	}
	atomic_store(&no_more, true);
	for (unsigned int i = 0; i < CALLERS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(wrong, 0);
	bed_process_end(atomic_load(&current));
}

static void test_process_attributes(void **state)
{
	struct flexio_process *process = (void *)16;
	struct flexio_process_attr attr = { .name = "with a name" };
	char name[FLEXIO_MAX_NAME_LEN + 2];
	struct ibv_pd *pd = ibv_alloc_pd(bed_ctx);

	attr.pd = pd;
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	attr.name = name;
	assert_failed(flexio_process_create(bed_ctx, bed_app, &attr, &process));
	assert_failed(flexio_process_create(NULL, bed_app, NULL, &process));
	assert_failed(flexio_process_create(bed_ctx, NULL, NULL, &process));
	assert_failed(flexio_process_create(bed_ctx, bed_app, NULL, NULL));
	assert_ptr_equal(process, (void *)16);
	name[FLEXIO_MAX_NAME_LEN] = 0;
	assert_ok(flexio_process_create(bed_ctx, bed_app, &attr, &process));
	assert_ptr_equal(flexio_process_get_pd(process), pd);
	assert_non_null(flexio_process_get_uar(process));
	assert_int_not_equal(flexio_uar_get_id(flexio_process_get_uar(process)), UINT32_MAX);
	assert_int_not_equal(flexio_process_get_dumem_id(process), UINT32_MAX);
	bed_process_end(process);
	assert_int_equal(ibv_dealloc_pd(pd), 0); /* ours stays ours */
	assert_ok(flexio_process_destroy(NULL));
}

/* A token names one process: the same each time, and no other one's. */
static void test_debug_tokens(void **state)
{
	struct flexio_process *processes[3];
	uint64_t tokens[3], last = 0;

	for (unsigned int i = 0; i < 3; i++) {
		processes[i] = bed_process();
		tokens[i] = flexio_process_udbg_token_get(processes[i]);
		assert_int_not_equal(tokens[i], 0);
		assert_int_equal(tokens[i], flexio_process_udbg_token_get(processes[i]));
		for (unsigned int k = 0; k < i; k++)
			assert_int_not_equal(tokens[i], tokens[k]);
	}
	for (unsigned int i = 0; i < 3; i++)
		bed_process_end(processes[i]);
	processes[0] = bed_process();
	last = flexio_process_udbg_token_get(processes[0]);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_not_equal(last, tokens[i]);
	bed_process_end(processes[0]);
}

static unsigned int entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned int n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* File descriptors and threads of processes that are gone are gone, too. */
static void test_nothing_stays(void **state)
{
	flexio_msg_stream_attr_t attr = { .data_bsize = 2048, .level = FLEXIO_MSG_DEV_INFO };
	unsigned int fds = 0, threads = 0;

	for (unsigned int i = 0; i < 60; i++) {
		struct flexio_process *process = bed_process();
		struct flexio_event_handler_attr eh = { .host_stub_func = bed_func("forever") };
		struct flexio_event_handler *handler;
		struct flexio_msg_stream *stream;

		assert_ok(flexio_msg_stream_create(process, &attr, stderr, NULL, &stream));
		assert_ok(flexio_event_handler_create(process, &eh, &handler));
		assert_ok(flexio_event_handler_run(handler, bed_alloc(process, 64)));
		bed_value(process, "activate", flexio_event_handler_get_activation_id(handler));
		if (i % 3 == 0)
			bed_call(process, "fault", 5, NULL);
		assert_ok(flexio_event_handler_destroy(handler));
		bed_process_end(process);
		if (i == 5) {
			fds = entries("/proc/self/fd");
			threads = entries("/proc/self/task");
		}
	}
	assert_int_equal(entries("/proc/self/fd"), fds);
	assert_int_equal(entries("/proc/self/task"), threads);
}

static void test_bad_handles(void **state)
{
	struct flexio_process *gone = bed_process(), *bad[3] = { NULL, (void *)&gone, NULL };
	struct flexio_uar *uar = flexio_process_get_uar(gone);

	bed_process_end(gone);
	bad[2] = gone;
	for (unsigned int i = 0; i < 3; i++) {
		assert_null(flexio_process_get_pd(bad[i]));
		assert_null(flexio_process_get_uar(bad[i]));
		assert_int_equal(flexio_process_get_dumem_id(bad[i]), UINT32_MAX);
		assert_int_equal(flexio_process_udbg_token_get(bad[i]), 0);
		assert_int_equal(flexio_err_handler_fd(bad[i]), -1);
		assert_int_equal(flexio_err_status_get(bad[i]), i ? -1 : 0);
		assert_int_equal(flexio_process_destroy(bad[i]),
				 i ? FLEXIO_STATUS_FAILED : FLEXIO_STATUS_SUCCESS);
	}
	assert_int_equal(flexio_uar_get_id(uar), UINT32_MAX);
	assert_int_equal(flexio_uar_get_id(NULL), UINT32_MAX);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_memory_of_processes),
		cmocka_unit_test(test_context),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_timeout_relaxing),
		cmocka_unit_test(test_timeout_held),
		cmocka_unit_test(test_timeout_copying),
		cmocka_unit_test(test_timeout_printing),
		cmocka_unit_test(test_timeout_ringing),
		cmocka_unit_test(test_timeout_of_config),
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_epoll),
		cmocka_unit_test(test_overflow),
		cmocka_unit_test(test_errors_by_hand),
		cmocka_unit_test(test_neighbour),
		cmocka_unit_test(test_hostile_calls),
		cmocka_unit_test(test_many_callers),
		cmocka_unit_test(test_too_many_callers),
		cmocka_unit_test(test_fault_among_callers),
		cmocka_unit_test(test_cancelled_caller),
		cmocka_unit_test(test_destroy_among_callers),
		cmocka_unit_test(test_process_attributes),
		cmocka_unit_test(test_nothing_stays),
		cmocka_unit_test(test_debug_tokens),
		cmocka_unit_test(test_bad_handles),
	};

	/* A busy machine may be slow; only tests of the limit have a low one. */
	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1);
	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

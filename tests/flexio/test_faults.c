// SPDX-License-Identifier: MIT
/* Error handlers: which faults they get, on which thread, how they end, and what becomes of the process. */
#include "bed.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../src/device/rtos.h"

/* As in bare/device.c. */
struct errors {
	uint64_t how, count, ctx, code, error, thread, stack;
};

static flexio_uintptr_t errors; /* of the process that recovering() made */

static uint64_t seen(struct flexio_process *process, size_t offset)
{
	return bed_read(process, errors + offset);
}

#define SEEN(process, field) seen(process, offsetof(struct errors, field))

/* A process with an error handler that ends like this. */
static struct flexio_process *recovering(const char *handler, uint64_t how)
{
	struct flexio_process *process = bed_process();

	assert_ok(flexio_process_error_handler_set(process, bed_func(handler)));
	errors = bed_value(process, "errors_addr", 0);
	bed_write(process, errors, how);
	return process;
}

static bool readable(struct flexio_process *process, int ms)
{
	struct pollfd fd = { .fd = flexio_err_handler_fd(process), .events = POLLIN };

	return poll(&fd, 1, ms) == 1;
}

static void expect_alive(struct flexio_process *process)
{
	assert_int_equal(flexio_err_status_get(process), 0);
	assert_false(readable(process, 0));
	assert_int_equal(bed_value(process, "add_one", 1), 2);
}

static void expect_dead(struct flexio_process *process, int status)
{
	assert_int_equal(flexio_err_status_get(process), status);
	assert_true(readable(process, 20000)); /* at the latest soon after the status */
	assert_int_equal(bed_call(process, "add_one", 1, NULL), FLEXIO_STATUS_FATAL_ERR);
}

static void await_dead(struct flexio_process *process)
{
	for (unsigned int i = 0; i < 40000 && !flexio_err_status_get(process); i++)
		usleep(500);
}

static struct flexio_event_handler *started(struct flexio_process *process, const char *func,
					    uint64_t arg)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func(func),
						  .continuable = 1 };
	struct flexio_event_handler *handler = NULL;

	assert_ok(flexio_event_handler_create(process, &attr, &handler));
	assert_ok(flexio_event_handler_run(handler, arg));
	return handler;
}

static void trigger(struct flexio_process *process, struct flexio_event_handler *handler)
{
	bed_call(process, "activate", flexio_event_handler_get_activation_id(handler), NULL);
}

/* ---- calls ---- */

/* Every fault reaches the handler; the call fails, and the process goes on. */
static void test_recover_call(void **state)
{
	struct flexio_process *process = recovering("on_error", VB_RTOS_RESCHEDULE);
	uint64_t result = 77;

	for (unsigned int kind = 1; kind <= 8; kind++) {
		assert_int_equal(bed_call(process, "fault", kind, &result), FLEXIO_STATUS_FAILED);
		assert_int_equal(result, 77);
		assert_int_equal(SEEN(process, count), kind);
		assert_int_equal(SEEN(process, code), 1 + kind);
		assert_int_equal(SEEN(process, error), 1 + kind);
		assert_int_not_equal(SEEN(process, ctx), 0);
		expect_alive(process);
	}
	/* a stack that has run over does not keep the handler from running */
	assert_int_equal(bed_call(process, "overflow", 0, &result), FLEXIO_STATUS_FAILED);
	assert_int_equal(SEEN(process, code), VB_RTOS_STATUS_STACK);
	expect_alive(process);
	bed_process_end(process);
}

/* A handler with one parameter. */
static void test_one_parameter(void **state)
{
	struct flexio_process *process = recovering("on_error_one", VB_RTOS_RESCHEDULE);

	assert_int_equal(bed_call(process, "fault", 2, NULL), FLEXIO_STATUS_FAILED);
	assert_int_equal(SEEN(process, count), 1);
	assert_int_equal(SEEN(process, error), 3);
	expect_alive(process);
	bed_process_end(process);
}

/* Ends of the handler other than by rescheduling are the end of the process, with the status of the fault. */
static void test_other_ends(void **state)
{
	static const struct {
		uint64_t how;
		int status;
	} cases[] = {
		{ 0, 3 },
		{ VB_RTOS_FINISH, 3 },
		{ VB_RTOS_RETRIGGER, 3 },
		{ 100, 3 },                       /* faults itself */
		{ 103, 3 },                       /* and by recursion */
		{ VB_RTOS_PROCESS_FINISH, 0x40 }, /* what it says itself comes first */
		{ VB_RTOS_ERROR, 0x91 },
		{ 12345, 3 }, /* no such call */
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct flexio_process *process = recovering("on_error", cases[i].how);

		assert_int_equal(bed_call(process, "fault", 2, NULL), FLEXIO_STATUS_FATAL_ERR);
		expect_dead(process, cases[i].status);
		assert_int_equal(SEEN(process, count), 1);
		bed_process_end(process);
	}
}

static void test_without_handler(void **state)
{
	struct flexio_process *process = bed_process();

	assert_int_equal(bed_call(process, "fault", 5, NULL), FLEXIO_STATUS_FATAL_ERR);
	expect_dead(process, 6);
	bed_process_end(process);
}

/* flexio_dev_error and flexio_dev_process_finish are ends by will: no handler is asked. */
static void test_errors_by_will(void **state)
{
	struct flexio_process *process = recovering("on_error", VB_RTOS_RESCHEDULE);
	uint64_t args[5] = { VB_RTOS_ERROR, 0x99 };
	flexio_uintptr_t at;

	assert_ok(flexio_copy_from_host(process, args, sizeof(args), &at));
	assert_int_equal(bed_call(process, "raw_call", at, NULL), FLEXIO_STATUS_FATAL_ERR);
	expect_dead(process, 0x99);
	assert_int_equal(SEEN(process, count), 0);
	bed_process_end(process);
}

/* ---- other threads ---- */

static void test_recover_handler(void **state)
{
	struct flexio_process *process =
		recovering("on_error", 104); /* after a yield that is none */
	flexio_uintptr_t a = bed_alloc(process, 16), b = bed_alloc(process, 16);
	struct flexio_event_handler *h = started(process, "faulty", a);
	struct flexio_event_handler *other = started(process, "faulty", b);

	for (uint64_t i = 1; i <= 9; i++) {
		bed_write(process, a, i);
		trigger(process, h);
		bed_await(process, errors + offsetof(struct errors, count), i);
		assert_int_equal(SEEN(process, code), i == 9 ? VB_RTOS_STATUS_STACK : 1 + i);
		assert_int_equal(SEEN(process, thread), flexio_event_handler_get_id(h));
		trigger(process, other);
		bed_await(process, b + 8, i);
	}
	bed_write(process, a, 0); /* and a run without a fault */
	trigger(process, h);
	bed_await(process, a + 8, 10);
	expect_alive(process);
	assert_ok(flexio_event_handler_destroy(h));
	assert_ok(flexio_event_handler_destroy(other));
	bed_process_end(process);
}

/* Lines about error handlers in the file, those that were only counted, and the file's size. */
static unsigned int count_lines(FILE *log, unsigned long *counted)
{
	unsigned int lines = 0;
	char line[1024];

	rewind(log);
	*counted = 0;
	while (fgets(line, sizeof(line), log)) {
		char *more = strrchr(line, '[');

		if (!strstr(line, "the error handler runs"))
			continue;
		lines++;
		if (more)
			*counted += strtoul(more + 1, NULL, 10);
	}
	return lines;
}

/* A handler that faults again and again does not fill the log: some lines a second, and a count. */
static void test_lines(void **state)
{
	enum { FAULTS = 2000, EACH_SECOND = 10 };
	struct flexio_process *process = recovering("on_error", VB_RTOS_RESCHEDULE);
	enum flexio_log_lvl level = flexio_log_lvl_set(FLEXIO_LOG_LVL_WARN);
	flexio_uintptr_t a = bed_alloc(process, 16);
	struct flexio_event_handler *h = started(process, "faulty", a);
	time_t start = time(NULL), seconds;
	int saved = dup(STDERR_FILENO);
	unsigned long counted, later;
	FILE *log = tmpfile();
	unsigned int lines;

	assert_true(log && saved >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
	bed_write(process, a, 7);
	for (uint64_t i = 1; i <= FAULTS; i++) {
		trigger(process, h);
		bed_await(process, errors + offsetof(struct errors, count), i);
	}
	seconds = time(NULL) - start + 2;
	lines = count_lines(log, &counted);
	sleep(2); /* the next line tells of those that were held back */
	trigger(process, h);
	bed_await(process, errors + offsetof(struct errors, count), FAULTS + 1);
	assert_ok(flexio_event_handler_destroy(h));
	assert_int_equal(count_lines(log, &later), lines + 1);
	assert_true(dup2(saved, STDERR_FILENO) >= 0);
	assert_in_range(lines, EACH_SECOND, (unsigned long)seconds * EACH_SECOND);
	assert_int_equal(lines + 1 + later, FAULTS + 1);
	close(saved);
	fclose(log);
	flexio_log_lvl_set(level);
	expect_alive(process);
	bed_process_end(process);
}

/* Checked mode has all of the stacks from the start. */
static bool checked(void)
{
	return getenv("VERBATIM_DPA_CHECK") != NULL;
}

/* How often a process was told that its stacks are too small for a card. */
static unsigned int count_beyond(FILE *log)
{
	unsigned int lines = 0;
	char line[1024];

	rewind(log);
	while (fgets(line, sizeof(line), log))
		lines += strstr(line, "needs more than its stack of 8192 bytes") != NULL;
	return lines;
}

/* A card's 8 KiB are there; more is, too, but not without a word, and not without end. */
static void test_stack(void **state)
{
	struct flexio_process *process = bed_process(), *other = bed_process(),
			      *third = bed_process();
	int saved = dup(STDERR_FILENO);
	FILE *log = tmpfile();

	assert_true(log && saved >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
	assert_int_equal(bed_value(process, "use_stack", 7500), 7500);
	assert_int_equal(count_beyond(log), 0);
	for (uint64_t bytes = 8192; bytes < 65000; bytes += 8192) {
		assert_int_equal(bed_value(process, "use_stack", bytes), bytes);
		assert_int_equal(count_beyond(log), checked() ? 0 : 1);
	}
	/* The card finds there what device code finds: here a buffer that is lent untouched. */
	assert_int_equal(bed_value(third, "lend_stack", 20000), bed_value(third, "lend_stack", 64));
	bed_process_end(third);
	assert_int_equal(count_beyond(log), checked() ? 0 : 2);
	assert_int_equal(bed_value(other, "use_stack", 40000), 40000);
	assert_int_equal(count_beyond(log), checked() ? 0 : 3);
	assert_int_equal(bed_call(other, "use_stack", 66000, NULL), FLEXIO_STATUS_FATAL_ERR);
	assert_int_equal(flexio_err_status_get(other), VB_RTOS_STATUS_STACK);
	assert_true(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	fclose(log);
	bed_process_end(process);
	bed_process_end(other);
}

/* Of tasks that fault the queue is rid, too. */
static void test_recover_tasks(void **state)
{
	enum { N = 200 };
	struct flexio_process *process = recovering("on_error", VB_RTOS_RESCHEDULE);
	struct flexio_cmdq_attr attr = { 4, 3, FLEXIO_CMDQ_STATE_RUNNING, NULL };
	flexio_uintptr_t bad = bed_alloc(process, 16), good = bed_alloc(process, 16);
	struct flexio_cmdq *q;

	bed_write(process, bad, 5);
	assert_ok(flexio_cmdq_create(process, &attr, &q));
	for (unsigned int i = 0; i < N; i++)
		assert_ok(flexio_cmdq_task_add(q, bed_func("faulty"), i % 2 ? good : bad));
	for (unsigned int i = 0; i < 20000 && !flexio_cmdq_is_empty(q); i++)
		usleep(500);
	assert_true(flexio_cmdq_is_empty(q));
	assert_int_equal(bed_read(process, good + 8), N / 2);
	assert_int_equal(bed_read(process, bad + 8), N / 2);
	assert_int_equal(SEEN(process, count), N / 2);
	expect_alive(process);
	assert_ok(flexio_cmdq_destroy(q));
	bed_process_end(process);
}

/* ---- handlers that never end ---- */

static void test_endless(void **state)
{
	static const uint64_t how[] = { 101, 102, 105 };

	for (unsigned int i = 0; i < 3; i++) {
		struct flexio_process *process = recovering("on_error", how[i]);
		flexio_uintptr_t a = bed_alloc(process, 16);
		struct flexio_event_handler *h = started(process, "faulty", a);
		struct flexio_cmdq_attr attr = { 1, 1, FLEXIO_CMDQ_STATE_RUNNING, NULL };
		struct flexio_cmdq *q;

		assert_ok(flexio_cmdq_create(process, &attr, &q));
		bed_write(process, a, 5);
		switch (i) {
		case 0:
			assert_int_equal(bed_call(process, "fault", 5, NULL),
					 FLEXIO_STATUS_FATAL_ERR);
			break;
		case 1:
			trigger(process, h);
			break;
		case 2:
			assert_ok(flexio_cmdq_task_add(q, bed_func("faulty"), a));
			break;
		}
		await_dead(process);
		expect_dead(process, VB_RTOS_STATUS_WATCHDOG);
		assert_true(flexio_cmdq_is_empty(q));
		assert_ok(flexio_event_handler_destroy(h));
		assert_ok(flexio_cmdq_destroy(q));
		bed_process_end(process);
	}
}

/* A pure loop on an execution unit, where nobody looks at the clock. */
static void test_endless_loop(void **state)
{
	struct flexio_process *process = recovering("on_error", 101);
	flexio_uintptr_t a = bed_alloc(process, 16);
	struct flexio_event_handler *h = started(process, "faulty", a);

	bed_write(process, a, 7);
	trigger(process, h);
	await_dead(process);
	expect_dead(process, VB_RTOS_STATUS_WATCHDOG);
	assert_ok(flexio_event_handler_destroy(h));
	bed_process_end(process);
}

/* Threads are destroyed while their error handlers run. */
static void test_destroy_in_handler(void **state)
{
	for (unsigned int i = 0; i < 20; i++) {
		struct flexio_process *process = recovering("on_error", 101 + (i & 1));
		flexio_uintptr_t a = bed_alloc(process, 16);
		struct flexio_event_handler *h = started(process, "faulty", a);
		struct flexio_cmdq_attr attr = { 2, 1, FLEXIO_CMDQ_STATE_RUNNING, NULL };
		struct flexio_cmdq *q;

		assert_ok(flexio_cmdq_create(process, &attr, &q));
		bed_write(process, a, 5);
		trigger(process, h);
		for (unsigned int k = 0; k < 4; k++)
			flexio_cmdq_task_add(q, bed_func("faulty"), a);
		bed_await(process, errors + offsetof(struct errors, count), 3);
		assert_ok(flexio_cmdq_destroy(q));
		assert_ok(flexio_event_handler_destroy(h));
		expect_alive(process);
		bed_process_end(process);
	}
}

/* ---- many at once ---- */

struct caller {
	pthread_t thread;
	struct flexio_process *process;
	flexio_func_t *func;
	unsigned int wrong;
};

static void *fault_loop(void *arg)
{
	struct caller *c = arg;

	for (unsigned int i = 0; i < 300; i++)
		c->wrong += flexio_process_call(c->process, c->func, NULL, (uint64_t)(i % 9)) !=
			    (i % 9 ? FLEXIO_STATUS_FAILED : FLEXIO_STATUS_SUCCESS);
	return NULL;
}

static void test_threads(void **state)
{
	struct flexio_process *process = recovering("on_error", VB_RTOS_RESCHEDULE);
	struct caller c[4];

	for (unsigned int i = 0; i < 4; i++) {
		c[i] = (struct caller){ .process = process, .func = bed_func("fault") };
		assert_int_equal(pthread_create(&c[i].thread, NULL, fault_loop, &c[i]), 0);
	}
	for (unsigned int i = 0; i < 4; i++) {
		pthread_join(c[i].thread, NULL);
		assert_int_equal(c[i].wrong, 0);
	}
	expect_alive(process);
	bed_process_end(process);
}

struct breaker {
	pthread_t thread;
	struct flexio_process *process;
	flexio_func_t *func;
	struct flexio_cmdq *q;
	uint64_t arg;
};

/* Calls and tasks that fault, until the process has died. */
static void *break_loop(void *arg)
{
	struct breaker *b = arg;

	while (flexio_process_call(b->process, b->func, NULL, (uint64_t)5) !=
	       FLEXIO_STATUS_FATAL_ERR)
		if (flexio_cmdq_task_add(b->q, b->func, 5) == FLEXIO_STATUS_FATAL_ERR)
			break;
	return NULL;
}

/* Threads of all kinds fault, their handlers run, and one of them ends the process in the middle of it. */
static void test_storm(void **state)
{
	for (unsigned int round = 0; round < 15; round++) {
		struct flexio_process *process = recovering("on_error", VB_RTOS_RESCHEDULE);
		struct flexio_cmdq_attr attr = { 4, 2, FLEXIO_CMDQ_STATE_RUNNING, NULL };
		flexio_uintptr_t a = bed_alloc(process, 16);
		struct flexio_event_handler *h = started(process, "faulty", a);
		struct breaker b[3];
		struct flexio_cmdq *q;

		bed_write(process, a, 7);
		assert_ok(flexio_cmdq_create(process, &attr, &q));
		for (unsigned int i = 0; i < 3; i++) {
			b[i] = (struct breaker){ .process = process,
						 .func = bed_func("fault"),
						 .q = q };
			assert_int_equal(pthread_create(&b[i].thread, NULL, break_loop, &b[i]), 0);
		}
		for (unsigned int i = 0; i < 20; i++)
			trigger(process, h);
		bed_await(process, errors + offsetof(struct errors, count), 200);
		/* from now on handlers end in another way, or not at all */
		bed_write(process, errors, (uint64_t[]){ 0, 100, VB_RTOS_ERROR }[round % 3]);
		for (unsigned int i = 0; i < 3; i++)
			pthread_join(b[i].thread, NULL);
		assert_int_not_equal(flexio_err_status_get(process), 0);
		assert_true(flexio_cmdq_is_empty(q));
		assert_ok(flexio_crash_data(process, "/tmp/storm"));
		assert_ok(flexio_cmdq_destroy(q));
		assert_ok(flexio_event_handler_destroy(h));
		bed_process_end(process);
	}
}

/* A process that is ended by will has no crash, though a thread was in its error handler. */
static void test_end_in_handler(void **state)
{
	struct flexio_process *process = recovering("on_error", 102);
	flexio_uintptr_t a = bed_alloc(process, 16), args;
	struct flexio_event_handler *h = started(process, "faulty", a);

	bed_write(process, a, 5);
	trigger(process, h);
	bed_await(process, errors + offsetof(struct errors, count), 1);
	assert_failed(flexio_crash_data(process, "/tmp/none"));
	assert_ok(flexio_copy_from_host(process, (uint64_t[]){ VB_RTOS_PROCESS_FINISH, 0, 0, 0, 0 },
					40, &args));
	assert_int_equal(bed_call(process, "raw_call", args, NULL), FLEXIO_STATUS_FATAL_ERR);
	expect_dead(process, 0x40);
	assert_failed(flexio_crash_data(process, "/tmp/none"));
	assert_ok(flexio_event_handler_destroy(h));
	bed_process_end(process);
}

/* ---- what is refused ---- */

static void test_refusals(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("handler") };
	struct flexio_cmdq_attr cmdq_attr = { 1, 1, FLEXIO_CMDQ_STATE_PENDING, NULL };
	flexio_func_t *func = bed_func("on_error");
	struct flexio_event_handler *h;
	struct flexio_cmdq *q;

	assert_failed(flexio_process_error_handler_set(NULL, func));
	assert_failed(flexio_process_error_handler_set(process, NULL));
	assert_failed(flexio_process_error_handler_set(process, (flexio_func_t *)test_refusals));
	assert_ok(flexio_process_error_handler_set(process, func));
	bed_value(process, "add_one", 1); /* threads of calls are the library's own */
	assert_ok(flexio_process_error_handler_set(process, bed_func("on_error_one")));
	assert_ok(flexio_event_handler_create(process, &attr, &h));
	assert_failed(flexio_process_error_handler_set(process, func));
	assert_ok(flexio_event_handler_destroy(h));
	assert_failed(flexio_process_error_handler_set(process, func)); /* there was a thread */
	bed_process_end(process);

	process = bed_process(); /* in the memory of the one before */
	cmdq_attr.batch_size = 0;
	assert_failed(flexio_cmdq_create(process, &cmdq_attr, &q));
	assert_ok(flexio_process_error_handler_set(process, func));
	cmdq_attr.batch_size = 1;
	assert_ok(flexio_cmdq_create(process, &cmdq_attr, &q));
	assert_failed(flexio_process_error_handler_set(process, func));
	assert_ok(flexio_cmdq_destroy(q));
	bed_process_end(process);

	process = bed_process();
	assert_int_equal(bed_call(process, "fault", 2, NULL), FLEXIO_STATUS_FATAL_ERR);
	assert_int_equal(flexio_process_error_handler_set(process, func), FLEXIO_STATUS_FATAL_ERR);
	bed_process_end(process);
	assert_int_equal(flexio_err_status_get(NULL), 0);
	assert_failed(flexio_process_error_handler_set(process, func));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_recover_call),   cmocka_unit_test(test_one_parameter),
		cmocka_unit_test(test_other_ends),     cmocka_unit_test(test_without_handler),
		cmocka_unit_test(test_errors_by_will), cmocka_unit_test(test_recover_handler),
		cmocka_unit_test(test_lines),          cmocka_unit_test(test_stack),
		cmocka_unit_test(test_recover_tasks),  cmocka_unit_test(test_threads),
		cmocka_unit_test(test_storm),          cmocka_unit_test(test_end_in_handler),
		cmocka_unit_test(test_refusals),       cmocka_unit_test(test_destroy_in_handler),
	};
	const struct CMUnitTest endless[] = {
		cmocka_unit_test(test_endless),
		cmocka_unit_test(test_endless_loop),
	};
	bool loops = argc > 2; /* these wait for the time limit, and want a short one */

	setenv("VERBATIM_RPC_TIMEOUT_MS", loops ? "300" : "60000", 1);
	bed_init(argc, argv);
	return loops ? cmocka_run_group_tests(endless, NULL, NULL)
		     : cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
/* Event handlers: triggers by other device threads, ends of runs, yields, destruction in the middle of it all. */
#include "bed.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../src/api/devx.h"
#include "../../src/device/rtos.h"

/* As in bare/device.c. */
struct shared {
	uint64_t runs, arg, seen_tls, id, how, next, hops, hold, in, continued;
};

#define AT(base, field) ((base) + offsetof(struct shared, field))

static struct flexio_event_handler *create(struct flexio_process *process, const char *func,
					   struct flexio_event_handler_attr attr)
{
	struct flexio_event_handler *handler = NULL;

	attr.host_stub_func = bed_func(func);
	assert_ok(flexio_event_handler_create(process, &attr, &handler));
	return handler;
}

static struct flexio_event_handler *started(struct flexio_process *process, const char *func,
					    flexio_uintptr_t shared, uint64_t how)
{
	struct flexio_event_handler *handler =
		create(process, func, (struct flexio_event_handler_attr){ .continuable = 1 });

	bed_write(process, AT(shared, how), how);
	assert_ok(flexio_event_handler_run(handler, shared));
	return handler;
}

static void trigger(struct flexio_process *process, struct flexio_event_handler *handler)
{
	assert_int_equal(
		bed_value(process, "activate", flexio_event_handler_get_activation_id(handler)), 0);
}

/* Long enough for a run that should not happen. */
static void settle(void)
{
	usleep(20000);
}

static void test_life(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
	struct flexio_event_handler *h =
		create(process, "handler",
		       (struct flexio_event_handler_attr){ .thread_local_storage_daddr = s + 8,
							   .name = "worker" });
	struct flexio_event_handler *other =
		create(process, "handler", (struct flexio_event_handler_attr){ 0 });

	assert_int_not_equal(flexio_event_handler_get_id(h), flexio_event_handler_get_id(other));
	assert_int_not_equal(flexio_event_handler_get_obj_id(h),
			     flexio_event_handler_get_obj_id(other));
	assert_int_not_equal(flexio_event_handler_get_activation_id(h),
			     flexio_event_handler_get_activation_id(other));
	assert_non_null(flexio_event_handler_get_thread(h));
	assert_ptr_not_equal(flexio_event_handler_get_thread(h),
			     flexio_event_handler_get_thread(other));
	assert_non_null(flexio_event_handler_get_thread_obj(h));
	assert_int_equal(flexio_event_handler_get_thread_obj(h)->number,
			 flexio_event_handler_get_obj_id(h));
	assert_int_equal(flexio_event_handler_get_thread_obj(other)->number,
			 flexio_event_handler_get_obj_id(other));

	trigger(process, h); /* not running yet: lost */
	settle();
	assert_ok(flexio_event_handler_run(h, s));
	assert_failed(flexio_event_handler_run(h, s)); /* it does already */
	settle();
	assert_int_equal(bed_read(process, AT(s, runs)), 0);
	for (unsigned int i = 1; i <= 10; i++) {
		trigger(process, h);
		bed_await(process, AT(s, runs), i);
	}
	assert_int_equal(bed_read(process, AT(s, arg)), s);
	assert_int_equal(bed_read(process, AT(s, seen_tls)), s + 8);
	assert_int_equal(bed_read(process, AT(s, id)), flexio_event_handler_get_id(h));
	assert_failed(flexio_process_destroy(process)); /* handlers live */
	assert_ok(flexio_event_handler_destroy(h));
	assert_failed(flexio_event_handler_destroy(h));
	assert_failed(flexio_event_handler_run(h, s));
	assert_int_equal(flexio_event_handler_get_id(h), UINT32_MAX);
	assert_int_equal(flexio_event_handler_get_obj_id(h), UINT32_MAX);
	assert_int_equal(flexio_event_handler_get_activation_id(h), UINT32_MAX);
	assert_null(flexio_event_handler_get_thread(h));
	assert_null(flexio_event_handler_get_thread_obj(h));
	assert_ok(flexio_event_handler_destroy(other));
	bed_process_end(process);
}

/* Which argument arrives: that of run, or else the attribute. */
static void test_argument(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t a = bed_alloc(process, sizeof(struct shared));
	flexio_uintptr_t b = bed_alloc(process, sizeof(struct shared));
	struct flexio_event_handler *h =
		create(process, "handler", (struct flexio_event_handler_attr){ .arg = a });
	struct flexio_event_handler *g =
		create(process, "handler", (struct flexio_event_handler_attr){ .arg = a });

	assert_ok(flexio_event_handler_run(h, 0));
	assert_ok(flexio_event_handler_run(g, b));
	trigger(process, h);
	trigger(process, g);
	bed_await(process, AT(a, runs), 1);
	bed_await(process, AT(b, runs), 1);
	assert_ok(flexio_event_handler_destroy(h));
	assert_ok(flexio_event_handler_destroy(g));
	bed_process_end(process);
}

static void test_refusals(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("handler") };
	struct flexio_event_handler *h = (void *)16;
	char name[FLEXIO_MAX_NAME_LEN + 2];

	assert_failed(flexio_event_handler_create(NULL, &attr, &h));
	assert_failed(flexio_event_handler_create(process, NULL, &h));
	assert_failed(flexio_event_handler_create(process, &attr, NULL));
	attr.host_stub_func = NULL;
	assert_failed(flexio_event_handler_create(process, &attr, &h));
	attr.host_stub_func = (flexio_func_t *)test_refusals;
	assert_failed(flexio_event_handler_create(process, &attr, &h));
	attr.host_stub_func = bed_func("handler");
	attr.affinity = (struct flexio_affinity){ FLEXIO_AFFINITY_STRICT, 1U << 20 };
	assert_failed(flexio_event_handler_create(process, &attr, &h));
	attr.affinity = (struct flexio_affinity){ FLEXIO_AFFINITY_GROUP, 3 };
	assert_failed(flexio_event_handler_create(process, &attr, &h));
	attr.affinity = (struct flexio_affinity){ (enum flexio_affinity_type)9, 0 };
	assert_failed(flexio_event_handler_create(process, &attr, &h));
	attr.affinity = (struct flexio_affinity){ 0 };
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	attr.name = name;
	assert_failed(flexio_event_handler_create(process, &attr, &h));
	assert_ptr_equal(h, (void *)16);
	assert_failed(flexio_event_handler_run(NULL, 0));
	assert_failed(flexio_event_handler_destroy(NULL));
	assert_int_equal(flexio_event_handler_get_id(NULL), UINT32_MAX);
	bed_process_end(process);
}

/* ---- the ends of a run ---- */

static void test_reschedule_and_return(void **state)
{
	static const uint64_t ends[] = { 0, VB_RTOS_RESCHEDULE };

	for (unsigned int k = 0; k < 2; k++) {
		struct flexio_process *process = bed_process();
		flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
		struct flexio_event_handler *h = started(process, "handler", s, ends[k]);

		for (unsigned int i = 1; i <= 20; i++) {
			trigger(process, h);
			bed_await(process, AT(s, runs), i);
		}
		settle();
		assert_int_equal(bed_read(process, AT(s, runs)), 20);
		assert_ok(flexio_event_handler_destroy(h));
		bed_process_end(process);
	}
}

/* Of the triggers that come during a run one is kept. */
static void test_pending(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
	struct flexio_event_handler *h = started(process, "handler", s, VB_RTOS_RESCHEDULE);

	bed_write(process, AT(s, hold), 1);
	trigger(process, h);
	bed_await(process, AT(s, in), 1);
	for (unsigned int i = 0; i < 5; i++)
		trigger(process, h);
	bed_write(process, AT(s, hold), 0);
	bed_await(process, AT(s, runs), 2);
	settle();
	assert_int_equal(bed_read(process, AT(s, runs)), 2);
	assert_ok(flexio_event_handler_destroy(h));
	bed_process_end(process);
}

static void test_finish(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
	struct flexio_event_handler *h = started(process, "handler", s, VB_RTOS_FINISH);

	trigger(process, h);
	bed_await(process, AT(s, runs), 1);
	settle();
	trigger(process, h); /* ignored, and no error */
	settle();
	assert_int_equal(bed_read(process, AT(s, runs)), 1);
	assert_failed(flexio_event_handler_run(h, s));
	assert_ok(flexio_event_handler_destroy(h));
	bed_process_end(process);
}

static void test_retrigger(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
	struct flexio_event_handler *h = started(process, "handler", s, VB_RTOS_RETRIGGER);

	trigger(process, h); /* runs five times, see bare/device.c */
	bed_await(process, AT(s, runs), 5);
	settle();
	assert_int_equal(bed_read(process, AT(s, runs)), 5);
	assert_ok(flexio_event_handler_destroy(h));
	bed_process_end(process);
}

static void test_yield(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
	struct flexio_event_handler *h = started(process, "continuing", s, 0);

	for (unsigned int i = 1; i <= 20; i++) {
		trigger(process, h);
		/* it goes on where it was: the register counts */
		bed_await(process, AT(s, continued), i);
	}
	settle();
	assert_int_equal(bed_read(process, AT(s, runs)), 20);
	assert_ok(flexio_event_handler_destroy(h)); /* in its yield */
	bed_process_end(process);
}

static void test_yield_and_retrigger(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
	struct flexio_event_handler *h = started(process, "continuing", s, 1);

	trigger(process, h);
	bed_await(process, AT(s, continued), 1000); /* by itself */
	bed_write(process, AT(s, how), 2);
	assert_ok(flexio_event_handler_destroy(h));
	bed_process_end(process);
}

/* Without the flag a yield has no effect: the loop runs to its end. */
static void test_yield_not_continuable(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
	struct flexio_event_handler *h =
		create(process, "continuing", (struct flexio_event_handler_attr){ 0 });

	assert_ok(flexio_event_handler_run(h, s));
	trigger(process, h);
	bed_await(process, AT(s, runs), 1000000);
	assert_ok(flexio_event_handler_destroy(h));
	bed_process_end(process);
}

/* ---- no wake-up is lost ---- */

static void test_ping_pong(void **state)
{
	struct flexio_process *process = bed_process();
	enum { HOPS = 3000 };
	flexio_uintptr_t s[2];
	struct flexio_event_handler *h[2];

	for (unsigned int i = 0; i < 2; i++) {
		s[i] = bed_alloc(process, sizeof(struct shared));
		h[i] = started(process, "handler", s[i], i ? VB_RTOS_RESCHEDULE : 0);
	}
	for (unsigned int i = 0; i < 2; i++) {
		bed_write(process, AT(s[i], next),
			  flexio_event_handler_get_activation_id(h[1 - i]) + 1);
		bed_write(process, AT(s[i], hops), HOPS);
	}
	trigger(process, h[0]);
	bed_await(process, AT(s[0], runs), HOPS);
	bed_await(process, AT(s[1], runs), HOPS);
	for (unsigned int i = 0; i < 2; i++)
		assert_ok(flexio_event_handler_destroy(h[i]));
	bed_process_end(process);
}

/* A ring of handlers on one EU each, several tokens at a time. */
static void test_ring(void **state)
{
	struct flexio_process *process = bed_process();
	enum { N = 32, HOPS = 100 };
	flexio_uintptr_t s[N];
	struct flexio_event_handler *h[N];

	for (unsigned int i = 0; i < N; i++) {
		s[i] = bed_alloc(process, sizeof(struct shared));
		h[i] = create(process, "handler",
			      (struct flexio_event_handler_attr){
				      .affinity = { FLEXIO_AFFINITY_STRICT, i % 5 } });
		assert_ok(flexio_event_handler_run(h[i], s[i]));
	}
	for (unsigned int i = 0; i < N; i++) {
		bed_write(process, AT(s[i], next),
			  flexio_event_handler_get_activation_id(h[(i + 1) % N]) + 1);
		bed_write(process, AT(s[i], hops), HOPS);
	}
	trigger(process, h[0]);
	for (unsigned int i = 0; i < N; i++)
		bed_await(process, AT(s[i], runs), HOPS);
	for (unsigned int i = 0; i < N; i++)
		assert_ok(flexio_event_handler_destroy(h[i]));
	bed_process_end(process);
}

/* Triggers race with the end of runs: after the last one there is always a run. */
static void test_storm(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
	struct flexio_event_handler *h = started(process, "handler", s, VB_RTOS_RESCHEDULE);
	uint64_t id = flexio_event_handler_get_activation_id(h);

	for (unsigned int i = 0; i < 300; i++) {
		uint64_t before;

		bed_words(process, "activate_many", (uint64_t[]){ id, i % 7 }, 2);
		before = bed_read(process, AT(s, in));
		trigger(process, h); /* makes a run that begins now or later */
		bed_await(process, AT(s, in), before + (before == bed_read(process, AT(s, in))));
	}
	bed_await(process, AT(s, runs), bed_read(process, AT(s, in))); /* every run ends */
	assert_ok(flexio_event_handler_destroy(h));
	bed_process_end(process);
}

/* ---- ends of all kinds in the middle ---- */

struct storm {
	pthread_t thread;
	struct flexio_process *process;
	flexio_func_t *func;
	flexio_uintptr_t args;
	_Atomic int stop;
};

static void *trigger_loop(void *arg)
{
	struct storm *s = arg;

	while (!s->stop)
		if (flexio_process_call(s->process, s->func, NULL, s->args))
			return s;
	return NULL;
}

static void test_destroy_in_storm(void **state)
{
	struct flexio_process *process = bed_process();
	struct storm storm = { .process = process, .func = bed_func("activate_many") };
	static const char *const func[] = { "handler", "continuing", "forever" };
	void *failed;

	assert_ok(flexio_copy_from_host(process, (uint64_t[]){ 0, 50 }, 16, &storm.args));
	assert_int_equal(pthread_create(&storm.thread, NULL, trigger_loop, &storm), 0);
	for (unsigned int i = 0; i < 200; i++) {
		flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
		struct flexio_event_handler *h = started(process, func[i % 3], s, 0);

		assert_int_equal(flexio_event_handler_get_activation_id(h), 0);
		if (i % 2)
			usleep(i % 5 * 100);
		assert_ok(flexio_event_handler_destroy(h));
		assert_ok(flexio_buf_dev_free(process, s));
	}
	storm.stop = 1;
	pthread_join(storm.thread, &failed);
	assert_null(failed);
	assert_int_equal(flexio_err_status_get(process), 0);
	bed_process_end(process);
}

/* The process ends: endless handlers stop, later triggers and calls do nothing. */
static void end_process(const char *func, uint64_t arg, int status)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t s[4];
	struct flexio_event_handler *h[4];
	uint64_t at = 0;

	for (unsigned int i = 0; i < 4; i++) {
		s[i] = bed_alloc(process, sizeof(struct shared));
		h[i] = started(process, i % 2 ? "forever" : "continuing", s[i], 0);
		trigger(process, h[i]);
		bed_await(process, s[i], 1);
	}
	assert_int_equal(bed_call(process, func, arg, NULL), FLEXIO_STATUS_FATAL_ERR);
	assert_int_equal(flexio_err_status_get(process), status);
	/* it stands still, soon */
	for (unsigned int i = 0; i < 500 && at != bed_read(process, s[1]); i++) {
		at = bed_read(process, s[1]);
		settle();
	}
	assert_int_equal(bed_read(process, s[1]), at);
	assert_int_equal(flexio_event_handler_run(h[0], 0), FLEXIO_STATUS_FATAL_ERR);
	for (unsigned int i = 0; i < 4; i++)
		assert_ok(flexio_event_handler_destroy(h[i]));
	bed_process_end(process);
}

static void test_fault_stops_handlers(void **state)
{
	end_process("fault", 2, 3);
}

/* A handler ends the process while a call waits for it. */
static void test_handler_ends_process(void **state)
{
	static const struct {
		uint64_t how;
		int status;
	} cases[] = { { VB_RTOS_PROCESS_FINISH, 0x40 }, { VB_RTOS_ERROR, 0x42 }, { 12345, 9 } };

	for (unsigned int i = 0; i < 3; i++) {
		struct flexio_process *process = bed_process();
		flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
		struct flexio_event_handler *h = started(process, "handler", s, cases[i].how);
		flexio_uintptr_t args;

		assert_ok(flexio_copy_from_host(process, (uint64_t[]){ s, 100 }, 16, &args));
		bed_write(process, AT(s, hold), 1); /* not before the trigger's own call is over */
		trigger(process, h);
		bed_write(process, AT(s, hold), 0);
		assert_int_equal(bed_call(process, "wait_for", args, NULL),
				 FLEXIO_STATUS_FATAL_ERR);
		assert_int_equal(flexio_err_status_get(process), cases[i].status);
		assert_ok(flexio_event_handler_destroy(h));
		bed_process_end(process);
	}
}

/* Several threads fault at once: nobody waits for anybody. */
static void test_faults_at_once(void **state)
{
	for (unsigned int round = 0; round < 10; round++) {
		struct flexio_process *process = bed_process();
		flexio_uintptr_t s[8];
		struct flexio_event_handler *h[8];

		for (unsigned int i = 0; i < 8; i++) {
			s[i] = bed_alloc(process, sizeof(struct shared));
			h[i] = started(process, "handler", s[i], 12345); /* no such call: a trap */
			bed_write(process, AT(s[i], hold), 1);
		}
		for (unsigned int i = 0; i < 8; i++)
			trigger(process, h[i]);
		for (unsigned int i = 0; i < 8; i++)
			bed_write(process, AT(s[i], hold), 0);
		for (unsigned int i = 0; i < 5000 && !flexio_err_status_get(process); i++)
			usleep(1000);
		assert_int_equal(flexio_err_status_get(process), 9);
		for (unsigned int i = 0; i < 8; i++)
			assert_ok(flexio_event_handler_destroy(h[i]));
		bed_process_end(process);
	}
}

/* ---- affinity ---- */

/* One EU, and a handler that polls for ever on it: calls and other handlers get their turn. */
static void test_one_eu(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_event_handler_attr attr = { .affinity = { FLEXIO_AFFINITY_STRICT, 3 } };
	flexio_uintptr_t a = bed_alloc(process, sizeof(struct shared));
	flexio_uintptr_t b = bed_alloc(process, sizeof(struct shared));
	struct flexio_event_handler *spinner = create(process, "forever", attr);
	struct flexio_event_handler *h = create(process, "handler", attr);

	assert_ok(flexio_event_handler_run(spinner, a));
	assert_ok(flexio_event_handler_run(h, b));
	trigger(process, spinner);
	for (unsigned int i = 1; i <= 20; i++) {
		trigger(process, h);
		bed_await(process, AT(b, runs), i);
	}
	assert_ok(flexio_event_handler_destroy(spinner));
	assert_ok(flexio_event_handler_destroy(h));
	bed_process_end(process);
}

static void test_many_handlers(void **state)
{
	struct flexio_process *process = bed_process();
	enum { N = 600 };
	static flexio_uintptr_t s[N];
	static struct flexio_event_handler *h[N];

	for (unsigned int i = 0; i < N; i++) {
		s[i] = bed_alloc(process, sizeof(struct shared));
		h[i] = started(process, "handler", s[i], 0);
		assert_int_equal(flexio_event_handler_get_activation_id(h[i]), i);
	}
	for (unsigned int i = 0; i < N; i++)
		trigger(process, h[i]);
	for (unsigned int i = 0; i < N; i++)
		bed_await(process, AT(s[i], runs), 1);
	for (unsigned int i = 0; i < N; i++)
		assert_ok(flexio_event_handler_destroy(h[i]));
	assert_int_equal(bed_value(process, "activate", N - 1), UINT64_MAX);
	bed_process_end(process);
}

/* Until there is no device memory left for stacks; afterwards everything can be had again. */
static void test_exhaustion(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("handler") };
	enum { MOST = 20000 };
	static struct flexio_event_handler *h[MOST];
	unsigned int n = 0, again = 0;

	while (n < MOST &&
	       flexio_event_handler_create(process, &attr, &h[n]) == FLEXIO_STATUS_SUCCESS)
		n++;
	assert_true(n >= 1000 && n < MOST);
	for (unsigned int i = 0; i < n; i++)
		assert_ok(flexio_event_handler_destroy(h[i]));
	while (again < n &&
	       flexio_event_handler_create(process, &attr, &h[again]) == FLEXIO_STATUS_SUCCESS)
		again++;
	assert_int_equal(again, n);
	for (unsigned int i = 0; i < n; i++)
		assert_ok(flexio_event_handler_destroy(h[i]));
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	bed_process_end(process);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life),
		cmocka_unit_test(test_argument),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_reschedule_and_return),
		cmocka_unit_test(test_pending),
		cmocka_unit_test(test_finish),
		cmocka_unit_test(test_retrigger),
		cmocka_unit_test(test_yield),
		cmocka_unit_test(test_yield_and_retrigger),
		cmocka_unit_test(test_yield_not_continuable),
		cmocka_unit_test(test_ping_pong),
		cmocka_unit_test(test_ring),
		cmocka_unit_test(test_storm),
		cmocka_unit_test(test_destroy_in_storm),
		cmocka_unit_test(test_fault_stops_handlers),
		cmocka_unit_test(test_handler_ends_process),
		cmocka_unit_test(test_faults_at_once),
		cmocka_unit_test(test_one_eu),
		cmocka_unit_test(test_many_handlers),
		cmocka_unit_test(test_exhaustion),
	};

	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1); /* a busy machine may be slow */
	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

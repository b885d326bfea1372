// SPDX-License-Identifier: MIT
/* verbatim inject on execution units: stuck, slow, and as they were; what device code and its callers see. */
#include "bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* As in bare/device.c. */
struct shared {
	uint64_t runs, arg, seen_tls, id, how, next, hops, hold, in, continued;
};

#define AT(base, field) ((base) + offsetof(struct shared, field))

/* Calls take the EUs in turn: so far away none of them comes. */
enum { FAR = 170, FEW = 5 };

static int inject(const char *fault)
{
	char command[512];
	int status;

	snprintf(command, sizeof(command), "exec %s inject --pid %d %s >/dev/null 2>&1",
		 getenv("VERBATIM_TEST_TOOL"), (int)getpid(), fault);
	status = system(command);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static struct flexio_event_handler *start_handler(struct flexio_process *process,
						  flexio_uintptr_t s)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("handler"),
						  .affinity = { FLEXIO_AFFINITY_STRICT, FAR } };
	struct flexio_event_handler *handler = NULL;

	assert_ok(flexio_event_handler_create(process, &attr, &handler));
	assert_ok(flexio_event_handler_run(handler, s));
	return handler;
}

static void trigger(struct flexio_process *process, struct flexio_event_handler *handler)
{
	assert_int_equal(
		bed_value(process, "activate", flexio_event_handler_get_activation_id(handler)), 0);
}

static void test_stuck(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
	struct flexio_event_handler *h = start_handler(process, s);

	trigger(process, h);
	bed_await(process, AT(s, runs), 1);
	assert_int_equal(inject("mlx5_0 eu 170 stuck"), 0);
	trigger(process, h);
	usleep(50000);
	assert_int_equal(bed_read(process, AT(s, runs)), 1);
	assert_int_equal(bed_value(process, "add_one", 41), 42); /* others go on */
	assert_int_equal(inject("mlx5_0 eu 170 normal"), 0);
	bed_await(process, AT(s, runs), 2);
	/* What is stuck can be destroyed. */
	assert_int_equal(inject("mlx5_0 eu 170 stuck"), 0);
	trigger(process, h);
	assert_ok(flexio_event_handler_destroy(h));
	bed_process_end(process);
	/* And it stays so for the next process. */
	process = bed_process();
	s = bed_alloc(process, sizeof(struct shared));
	h = start_handler(process, s);
	trigger(process, h);
	usleep(50000);
	assert_int_equal(bed_read(process, AT(s, runs)), 0);
	assert_int_equal(inject("mlx5_0 eu 170 normal"), 0);
	bed_await(process, AT(s, runs), 1);
	assert_ok(flexio_event_handler_destroy(h));
	bed_process_end(process);
}

static void test_slow(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
	struct flexio_event_handler *h = start_handler(process, s);

	assert_int_equal(inject("mlx5_0 eu 170 slow 10"), 0);
	for (unsigned int i = 1; i <= 5; i++) {
		trigger(process, h);
		bed_await(process, AT(s, runs), i);
	}
	assert_ok(flexio_event_handler_destroy(h));
	assert_int_equal(inject("mlx5_0 eu 170 normal"), 0);
	bed_process_end(process);
}

static void test_refused(void **state)
{
	struct flexio_process *process = bed_process();

	assert_int_equal(inject("mlx5_0 eu 4000 stuck"), 1);
	assert_int_equal(inject("mlx4_0 eu 1 stuck"), 1);
	assert_int_equal(inject("mlx5_0 eu 1 slow 0"), 2);
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	bed_process_end(process);
}

/* With all EUs stuck a call times out, and works again when one is free. */
static void test_all_stuck(void **state)
{
	struct flexio_process *process = bed_process();
	char fault[64];
	uint64_t result = 5;

	for (unsigned int i = 0; i < FEW; i++) {
		snprintf(fault, sizeof(fault), "mlx5_0 eu %u stuck", i);
		assert_int_equal(inject(fault), 0);
	}
	assert_int_equal(bed_call(process, "add_one", 1, &result), FLEXIO_STATUS_TIMEOUT);
	assert_int_equal(result, 5);
	for (unsigned int i = 0; i < FEW; i++) {
		snprintf(fault, sizeof(fault), "mlx5_0 eu %u normal", i);
		assert_int_equal(inject(fault), 0);
	}
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	bed_process_end(process);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest many[] = {
		cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_refused),
	};
	static const struct CMUnitTest few[] = { cmocka_unit_test(test_all_stuck) };

	bed_init(argc, argv);
	return argc > 2 ? cmocka_run_group_tests(few, NULL, NULL)
			: cmocka_run_group_tests(many, NULL, NULL);
}

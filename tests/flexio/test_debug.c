// SPDX-License-Identifier: MIT
/*
 * A process that a debugger holds: its calls do not run out of time, and the program destroys what
 * it has without waiting. The debugger is src/dpa/observe/debug.h, so the library is linked by its objects.
 */
#undef FLEXIO_ALLOW_EXPERIMENTAL_API /* defined there */
#include "../../src/api/flexio/process.h"
#undef fail

#include "bed.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "dpa/observe/debug.h"

#define LIMIT_MS 700

static struct vb_dpa_debug *attach(struct flexio_process *process)
{
	struct vb_dpa_debug *d;

	assert_int_equal(vb_dpa_debug_attach(process->dpa, &d), 0);
	return d;
}

static void hold(struct vb_dpa_debug *d)
{
	struct pollfd fd = { .fd = vb_dpa_debug_fd(d), .events = POLLIN };

	vb_dpa_debug_hold(d);
	assert_int_equal(poll(&fd, 1, 60000), 1);
}

static void go_on(struct vb_dpa_debug *d)
{
	assert_int_equal(vb_dpa_debug_resume(d, &(struct vb_dpa_resume){ .go = VB_DPA_GO_ON }, 1),
			 0);
}

/* Instructions of the threads that are in the middle of something. */
static uint64_t under_way(struct vb_dpa_debug *d)
{
	uint32_t numbers[64];
	unsigned int n = vb_dpa_debug_threads(d, numbers, 64);
	uint64_t sum = 0;

	for (unsigned int i = 0; i < n && i < 64; i++) {
		struct vb_dpa_thread_info info;
		struct vb_dpa_state s;

		assert_int_equal(vb_dpa_debug_info(d, numbers[i], &info), 0);
		assert_int_equal(vb_dpa_debug_state(d, numbers[i], &s), 0);
		sum += info.idle ? 0 : s.instret;
	}
	return sum;
}

/* Let it run until something is on its way, and hold it there. */
static void hold_under_way(struct vb_dpa_debug *d)
{
	hold(d);
	while (under_way(d) < 100) {
		go_on(d);
		usleep(1000);
		hold(d);
	}
}

struct caller {
	struct flexio_process *process;
	flexio_uintptr_t args;
	flexio_status status;
};

static void *call_main(void *arg)
{
	struct caller *c = arg;

	c->status = bed_call(c->process, "wait_for", c->args, NULL);
	return NULL;
}

/* One call that is held for longer than it may take. */
static flexio_status call_held(struct flexio_process *process, struct vb_dpa_debug *d)
{
	flexio_uintptr_t word = bed_alloc(process, 8);
	struct caller c = { process, 0, FLEXIO_STATUS_FAILED };
	pthread_t host;

	assert_ok(flexio_copy_from_host(process, (uint64_t[]){ word, 1 }, 16, &c.args));
	assert_int_equal(pthread_create(&host, NULL, call_main, &c), 0);
	hold_under_way(d);
	usleep(LIMIT_MS * 1500);
	go_on(d);
	usleep(20000); /* it looks at its deadline in every turn */
	bed_write(process, word, 1);
	pthread_join(host, NULL);
	return c.status;
}

static struct flexio_process *hasty_process(void)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", LIMIT_MS);
	setenv("VERBATIM_RPC_TIMEOUT_MS", text, 1);
	return bed_process();
}

static void test_limit(void **state)
{
	struct flexio_process *process = hasty_process();
	struct vb_dpa_debug *d = attach(process);
	flexio_status status = FLEXIO_STATUS_FAILED;

	/* Again if the machine was too busy to run it at all. */
	for (int i = 0; i < 5 && status != FLEXIO_STATUS_SUCCESS; i++)
		status = call_held(process, d);
	assert_int_equal(status, FLEXIO_STATUS_SUCCESS);
	/* The time that it runs counts as before. */
	assert_int_equal(bed_call(process, "forever", 0, NULL), FLEXIO_STATUS_TIMEOUT);
	vb_dpa_debug_detach(d);
	bed_process_end(process);
}

/* Every thread says that it holds a lock of the library. */
static int say_held(struct vb_dpa_thread *thread, void *arg)
{
	struct guest *guest = vb_dpa_thread_user(thread);

	ctx_put(guest, held, 1);
	return 0;
}

/* A task and a handler that are held, and whose locks nobody can release, go; so does all else. */
static void test_destroy(void **state)
{
	struct flexio_cmdq_attr attr = { 1, 1, FLEXIO_CMDQ_STATE_RUNNING, NULL };
	struct flexio_event_handler_attr handler_attr = { .host_stub_func = bed_func("forever") };
	struct flexio_process *process = bed_process();
	struct flexio_event_handler *handler;
	struct vb_dpa_debug *d;
	struct flexio_cmdq *q;

	assert_ok(flexio_cmdq_create(process, &attr, &q));
	assert_ok(flexio_cmdq_task_add(q, bed_func("forever"), 0));
	assert_ok(flexio_event_handler_create(process, &handler_attr, &handler));
	d = attach(process);
	hold_under_way(d);
	assert_ok(flexio_event_handler_run(handler, 0));
	vb_handler_trigger(process, flexio_event_handler_get_activation_id(handler));
	vb_dpa_threads_each(process->dpa, say_held, NULL);
	assert_ok(flexio_cmdq_destroy(q));
	assert_ok(flexio_event_handler_destroy(handler));
	bed_process_end(process);
	assert_false(vb_dpa_debug_stopped(d, NULL));
	vb_dpa_debug_detach(d);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_destroy),
	};

	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

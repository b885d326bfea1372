// SPDX-License-Identifier: MIT
/*
 * Work in the background: the host fills a command queue, lets its workers run and polls until all tasks are done. An
 * RPC then fetches the results.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <libflexio/flexio.h>

enum { TASKS = 10000, WORKERS = 8, BATCH = 32 };

extern struct flexio_app *command_queue;
extern flexio_func_t collatz, get_steps, get_longest;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "command-queue: %s failed\n", what);
	exit(1);
}

static struct ibv_context *open_first_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;

	need(list && list[0], "finding an RDMA device (did you say verbatim run?)");
	ctx = ibv_open_device(list[0]);
	need(ctx != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	return ctx;
}

int main(void)
{
	/* Pending: tasks are collected, and nothing runs before flexio_cmdq_state_running. */
	struct flexio_cmdq_attr attr = {
		.workers = WORKERS,
		.batch_size = BATCH,
		.state = FLEXIO_CMDQ_STATE_PENDING,
	};
	struct ibv_context *ctx = open_first_device();
	struct flexio_process *process;
	struct flexio_cmdq *queue;
	uint64_t steps, longest;

	need(!flexio_process_create(ctx, command_queue, NULL, &process), "flexio_process_create");
	need(!flexio_cmdq_create(process, &attr, &queue), "flexio_cmdq_create");
	for (uint64_t n = 1; n <= TASKS; n++)
		need(!flexio_cmdq_task_add(queue, &collatz, n), "flexio_cmdq_task_add");
	need(!flexio_cmdq_state_running(queue), "flexio_cmdq_state_running");
	while (!flexio_cmdq_is_empty(queue))
		usleep(1000);
	/* A queue whose process has died is empty, too. */
	need(!flexio_err_status_get(process), "a task");

	need(!flexio_process_call(process, &get_steps, &steps), "flexio_process_call");
	need(!flexio_process_call(process, &get_longest, &longest), "flexio_process_call");
	printf("%d tasks, %lu steps; the longest way to 1 has %lu and begins at %lu\n", TASKS,
	       (unsigned long)steps, (unsigned long)(longest >> 32),
	       (unsigned long)(longest & 0xffffffff));

	need(!flexio_cmdq_destroy(queue), "flexio_cmdq_destroy");
	need(!flexio_process_destroy(process), "flexio_process_destroy");
	ibv_close_device(ctx);
	return 0;
}

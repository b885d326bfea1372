// SPDX-License-Identifier: MIT
/*
 * An event handler as a worker on host memory: the host registers a table of jobs and wakes the worker, which works
 * in the table itself, through a window. Nothing is copied to the device and back.
 */
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>
#include <libflexio/flexio.h>

#include "shared.h"

extern struct flexio_app *window_worker;
extern flexio_func_t worker, wake;

static struct job jobs[JOBS] = {
	{ .text = "host memory, seen by the card" },
	{ .text = "no copy, no queue" },
	{ .text = "a key says what may be touched" },
	{ .text = "42" },
};

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "window-worker: %s failed\n", what);
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

/* A handler that runs worker() with its description in device memory. */
static struct flexio_event_handler *start_worker(struct flexio_process *process,
						 struct flexio_window *window, struct ibv_mr *mr)
{
	struct worker description = { flexio_window_get_id(window), mr->lkey, (uintptr_t)jobs };
	struct flexio_event_handler_attr attr = { .host_stub_func = &worker, .name = "worker" };
	struct flexio_event_handler *handler;
	flexio_uintptr_t daddr;

	need(!flexio_copy_from_host(process, &description, sizeof(description), &daddr),
	     "flexio_copy_from_host");
	need(!flexio_event_handler_create(process, &attr, &handler), "flexio_event_handler_create");
	need(!flexio_event_handler_run(handler, daddr), "flexio_event_handler_run");
	return handler;
}

static void give_and_wait(struct flexio_process *process, struct flexio_event_handler *handler,
			  int first, int count)
{
	for (int i = first; i < first + count; i++)
		__atomic_store_n(&jobs[i].state, JOB_READY, __ATOMIC_RELEASE);
	need(!flexio_process_call(process, &wake, NULL,
				  flexio_event_handler_get_activation_id(handler)),
	     "flexio_process_call");
	for (int i = first; i < first + count; i++) {
		while (__atomic_load_n(&jobs[i].state, __ATOMIC_ACQUIRE) != JOB_DONE)
			;
		printf("job %d: %2u letters: %s\n", i, jobs[i].letters, jobs[i].text);
	}
}

int main(void)
{
	struct ibv_context *ctx = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, jobs, sizeof(jobs), IBV_ACCESS_LOCAL_WRITE);
	struct flexio_event_handler *handler;
	struct flexio_process *process;
	struct flexio_window *window;

	need(mr != NULL, "ibv_reg_mr");
	need(!flexio_process_create(ctx, window_worker, NULL, &process), "flexio_process_create");
	need(!flexio_window_create(process, pd, &window), "flexio_window_create");
	handler = start_worker(process, window, mr);

	give_and_wait(process, handler, 0, 1);
	give_and_wait(process, handler, 1, JOBS - 1);

	need(!flexio_event_handler_destroy(handler), "flexio_event_handler_destroy");
	need(!flexio_window_destroy(window), "flexio_window_destroy");
	need(!flexio_process_destroy(process), "flexio_process_destroy");
	need(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd), "ibv_dereg_mr");
	ibv_close_device(ctx);
	return 0;
}

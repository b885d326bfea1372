// SPDX-License-Identifier: MIT
/*
 * Device code that fails, and what the host can find out: the status, crash data and a core file for gdb. The process
 * is over then; the program goes on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>
#include <libflexio/flexio.h>

extern struct flexio_app *crash;
extern flexio_func_t null_pointer, overrun, stack_overflow, by_will;

static uint64_t array[100];

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "crash: %s failed\n", what);
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

/* Device code fills 150 words; the region has 100. */
static flexio_status call_overrun(struct flexio_process *process)
{
	struct ibv_pd *pd = flexio_process_get_pd(process);
	struct ibv_mr *mr = ibv_reg_mr(pd, array, sizeof(array), IBV_ACCESS_LOCAL_WRITE);
	struct flexio_window *window;
	flexio_status status;

	need(mr != NULL, "ibv_reg_mr");
	need(!flexio_window_create(process, pd, &window), "flexio_window_create");
	status = flexio_process_call(process, &overrun, NULL, flexio_window_get_id(window),
				     mr->lkey, (uint64_t)(uintptr_t)array, (uint64_t)150);
	need(!flexio_window_destroy(window), "flexio_window_destroy");
	ibv_dereg_mr(mr);
	return status;
}

static flexio_status call(struct flexio_process *process, const char *how)
{
	if (!strcmp(how, "null"))
		return flexio_process_call(process, &null_pointer, NULL, (uint64_t)3);
	if (!strcmp(how, "overrun"))
		return call_overrun(process);
	if (!strcmp(how, "stack"))
		return flexio_process_call(process, &stack_overflow, NULL, (uint64_t)1);
	if (!strcmp(how, "error"))
		return flexio_process_call(process, &by_will, NULL, (uint64_t)0x90);
	fprintf(stderr, "usage: crash null|overrun|stack|error\n");
	exit(2);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "null";
	struct flexio_msg_stream_attr stream = { .data_bsize = 4096,
						 .sync_mode = FLEXIO_LOG_DEV_SYNC_MODE_SYNC,
						 .level = FLEXIO_MSG_DEV_INFO };
	struct flexio_msg_stream *messages;
	struct ibv_context *ctx = open_first_device();
	struct flexio_process *process;

	need(!flexio_process_create(ctx, crash, NULL, &process), "flexio_process_create");
	need(!flexio_msg_stream_create(process, &stream, stdout, NULL, &messages),
	     "flexio_msg_stream_create");
	/* A fatal error ends the device process: this call fails, and so do all that follow. */
	need(call(process, how) == FLEXIO_STATUS_FATAL_ERR, "failing");
	fflush(stdout);

	/* In a program with event handlers, which fail while nobody calls: poll flexio_err_handler_fd(). */
	printf("the device process has ended with status 0x%x\n",
	       (unsigned int)flexio_err_status_get(process));
	fflush(stdout);
	need(!flexio_crash_data(process, how), "flexio_crash_data");
	need(!flexio_coredump_create(process, how), "flexio_coredump_create");
	/* In place of * is the id of the process, as dpa-ps shows it. */
	printf("more about it is in %s.*.crash and %s.*.core\n", how, how);

	need(!flexio_process_destroy(process), "flexio_process_destroy");
	ibv_close_device(ctx);
	return 0;
}

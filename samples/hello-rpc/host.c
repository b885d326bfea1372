// SPDX-License-Identifier: MIT
/*
 * The smallest FlexIO program: load device code into a process on the accelerator, call a function
 * of it, print what it returned.
 */
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>
#include <libflexio/flexio.h>

/* Both are made by dpacc: the application (its -app-name) and a stub for each device function. */
extern struct flexio_app *hello_rpc;
extern flexio_func_t add;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "hello-rpc: %s failed\n", what);
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
	flexio_msg_stream_attr_t stream_attr = {
		.data_bsize = 4 * 2048,
		.sync_mode = FLEXIO_LOG_DEV_SYNC_MODE_SYNC,
		.level = FLEXIO_MSG_DEV_INFO,
	};
	struct ibv_context *ctx = open_first_device();
	struct flexio_msg_stream *stream;
	struct flexio_process *process;
	uint64_t sum = 0;

	need(!flexio_process_create(ctx, hello_rpc, NULL, &process), "flexio_process_create");
	/* Where flexio_dev_print goes; without a stream the text is dropped. */
	need(!flexio_msg_stream_create(process, &stream_attr, stdout, NULL, &stream),
	     "flexio_msg_stream_create");

	need(!flexio_process_call(process, &add, &sum, (uint64_t)44, (uint64_t)55),
	     "flexio_process_call");
	printf("The accelerator says: %lu\n", (unsigned long)sum);

	need(!flexio_msg_stream_destroy(stream), "flexio_msg_stream_destroy");
	need(!flexio_process_destroy(process), "flexio_process_destroy");
	ibv_close_device(ctx);
	return 0;
}

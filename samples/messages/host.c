// SPDX-License-Identifier: MIT
/*
 * Two message streams of one process: the default one, written while the device code runs, and one
 * that collects text until it is flushed and lets only warnings and errors through.
 */
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>
#include <libflexio/flexio.h>

extern struct flexio_app *messages;
extern flexio_func_t talk, announce;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "messages: %s failed\n", what);
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

static struct flexio_msg_stream *open_stream(struct flexio_process *process, const char *name,
					     flexio_msg_dev_sync_mode mode)
{
	flexio_msg_stream_attr_t attr = {
		.data_bsize = 8192, /* a power of two, at least 2 KiB */
		.sync_mode = mode,
		.stream_name = name,
		.level = FLEXIO_MSG_DEV_INFO,
	};
	struct flexio_msg_stream *stream;

	need(!flexio_msg_stream_create(process, &attr, stdout, NULL, &stream),
	     "flexio_msg_stream_create");
	return stream;
}

static void call(struct flexio_process *process, flexio_func_t *func, int arg)
{
	uint64_t result;

	need(!flexio_process_call(process, func, &result, arg), "flexio_process_call");
}

int main(void)
{
	struct ibv_context *ctx = open_first_device();
	struct flexio_msg_stream *now, *later;
	struct flexio_process *process;

	need(!flexio_process_create(ctx, messages, NULL, &process), "flexio_process_create");
	now = open_stream(process, "now",
			  FLEXIO_MSG_DEV_SYNC_MODE_SYNC); /* the first: the default */
	later = open_stream(process, "later", FLEXIO_MSG_DEV_SYNC_MODE_ASYNC);

	printf("-- the default stream shows up to INFO\n");
	call(process, &talk, flexio_msg_stream_get_id(now));

	need(!flexio_msg_stream_level_set(later, FLEXIO_MSG_DEV_WARN),
	     "flexio_msg_stream_level_set");
	call(process, &talk, flexio_msg_stream_get_id(later));
	printf("-- the other stream, up to WARN, now that it is flushed\n");
	need(!flexio_msg_stream_flush(later), "flexio_msg_stream_flush");

	printf("-- both at once\n");
	call(process, &announce, 7);
	need(!flexio_msg_stream_flush(later), "flexio_msg_stream_flush");

	need(!flexio_msg_stream_destroy(later), "flexio_msg_stream_destroy");
	need(!flexio_msg_stream_destroy(now), "flexio_msg_stream_destroy");
	need(!flexio_process_destroy(process), "flexio_process_destroy");
	ibv_close_device(ctx);
	return 0;
}

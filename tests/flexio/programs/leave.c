// SPDX-License-Identifier: MIT
/* A program that leaves everything as it is and exits, while device code runs and prints. */
#include "check.h"

extern struct flexio_app *busy;
extern flexio_func_t forever, start;

int main(void)
{
	struct ibv_context *ctx = open_device();
	flexio_msg_stream_attr_t attr = { .data_bsize = 4096, .level = FLEXIO_MSG_DEV_INFO };
	struct flexio_msg_stream *stream;
	struct flexio_process *process;
	flexio_uintptr_t word;

	OK(flexio_process_create(ctx, busy, NULL, &process));
	OK(flexio_msg_stream_create(process, &attr, fopen("/dev/null", "w"), NULL, &stream));
	OK(flexio_buf_dev_alloc(process, 8, &word));
	for (int i = 0; i < 3; i++) {
		struct flexio_event_handler_attr eh = { .host_stub_func = forever, .arg = word };
		struct flexio_event_handler *handler;

		OK(flexio_event_handler_create(process, &eh, &handler));
		OK(flexio_event_handler_run(handler, 0));
		OK(flexio_process_call(process, start, NULL,
				       flexio_event_handler_get_activation_id(handler)));
	}
	dev_await(process, word, 1000);
	return 0;
}

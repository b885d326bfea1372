// SPDX-License-Identifier: MIT
/* Host half of kinds.c; C, and C++ with the same file. */
#include "need.h"

#ifdef __cplusplus
extern "C" {
#endif
extern struct flexio_app *kinds_app;
extern flexio_func_t widths, negative, half, nothing, sum, hidden, on_event, wake, say;
#ifdef __cplusplus
}
#endif

static void check_arguments(struct flexio_process *process)
{
	uint64_t result = 0;
	double d;

	need(!flexio_process_call(process, &widths, &result, -1, 0xff, -2, 0xfffe, -3, 0xfffffffdu,
				  (int64_t)-4, ~UINT64_C(3), 1, -1));
	need(result == 0x3ff);
	need(!flexio_process_call(process, &negative, &result, 5));
	need((int32_t)result == -5);
	need(!flexio_process_call(process, &half, &result, 3.0));
	memcpy(&d, &result, sizeof(d));
	need(d == 1.5);
	result = 99;
	need(!flexio_process_call(process, &nothing, &result));
	need(result == 0);
	need(!flexio_process_call(process, &nothing, NULL));
	need(!flexio_process_call(process, &hidden, &result, (uint64_t)40));
	need(result == 42);
}

static void check_memory(struct flexio_process *process)
{
	uint32_t numbers[1000];
	flexio_uintptr_t daddr = 0;
	uint64_t result = 0;

	for (uint32_t i = 0; i < 1000; i++)
		numbers[i] = i;
	need(!flexio_copy_from_host(process, numbers, sizeof(numbers), &daddr));
	need(!flexio_process_call(process, &sum, &result, daddr, (size_t)1000));
	need(result == 499500);
	need(!flexio_buf_dev_free(process, daddr));
}

static uint64_t word_at(struct flexio_process *process, flexio_uintptr_t addr)
{
	uint64_t word = 0;
	struct flexio_mem to, from;

	to.mem_type = FLEXIO_MEMTYPE_HOST;
	to.haddr = (uintptr_t)&word;
	from.mem_type = FLEXIO_MEMTYPE_DPA;
	from.daddr = addr;
	need(!flexio_memcpy(process, &to, &from, sizeof(word)));
	return word;
}

static void check_handler(struct flexio_process *process)
{
	struct flexio_event_handler_attr attr;
	struct flexio_event_handler *handler;
	flexio_uintptr_t word;

	need(!flexio_buf_dev_alloc(process, 64, &word));
	need(!flexio_buf_dev_memset(process, 0, 64, word));
	memset(&attr, 0, sizeof(attr));
	attr.host_stub_func = &on_event;
	need(!flexio_event_handler_create(process, &attr, &handler));
	need(!flexio_event_handler_run(handler, word));
	need(!flexio_process_call(process, &wake, NULL,
				  flexio_event_handler_get_activation_id(handler)));
	while (word_at(process, word) != 1)
		;
	need(!flexio_event_handler_destroy(handler));
	need(!flexio_buf_dev_free(process, word));
}

int main(void)
{
	struct ibv_context *ctx = open_device("mlx5_0");
	flexio_msg_stream_attr_t stream_attr;
	struct flexio_msg_stream *stream;
	struct flexio_process *process;

	need(kinds_app);
	need(!strcmp(flexio_app_get_name(kinds_app), "kinds_app"));
	need(!flexio_process_create(ctx, kinds_app, NULL, &process));
	check_arguments(process);
	check_memory(process);
	check_handler(process);
	memset(&stream_attr, 0, sizeof(stream_attr));
	stream_attr.data_bsize = 4096;
	stream_attr.level = FLEXIO_MSG_DEV_INFO;
	need(!flexio_msg_stream_create(process, &stream_attr, stdout, NULL, &stream));
	need(!flexio_process_call(process, &say, NULL, -17));
	need(!flexio_msg_stream_destroy(stream));
	need(!flexio_process_destroy(process));
	need(!ibv_close_device(ctx));
	puts("done");
	return 0;
}

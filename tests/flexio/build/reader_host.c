// SPDX-License-Identifier: MIT
/* Calls what is in the app and what is in the device library behind it. */
#include "need.h"

extern struct flexio_app *reader_app;
extern flexio_func_t four_times, calls_of_twice;

int main(void)
{
	struct ibv_context *ctx = open_device("mlx5_0");
	struct flexio_process *process;
	uint64_t result;

	need(!flexio_process_create(ctx, reader_app, NULL, &process));
	need(!flexio_process_call(process, &four_times, &result, (uint64_t)11) && result == 44);
	need(!flexio_process_call(process, &calls_of_twice, &result) && result == 2);
	need(!flexio_process_destroy(process));
	ibv_close_device(ctx);
	puts("done");
	return 0;
}

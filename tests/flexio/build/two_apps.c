// SPDX-License-Identifier: MIT
/* Two apps in one program: each process has the functions of its own app only. */
#include "need.h"

extern struct flexio_app *ones_app, *tens_app;
extern flexio_func_t ones, tens;

int main(void)
{
	struct ibv_context *ctx = open_device("mlx5_0");
	struct flexio_process *a, *b;
	struct flexio_app **list;
	uint64_t result;
	uint32_t count;

	need(ones_app && tens_app && ones_app != tens_app);
	need(!flexio_app_get_list(&list, &count) && count == 2);
	need((list[0] == ones_app && list[1] == tens_app) ||
	     (list[1] == ones_app && list[0] == tens_app));
	need(!flexio_app_list_free(list));
	need(!flexio_process_create(ctx, ones_app, NULL, &a));
	need(!flexio_process_create(ctx, tens_app, NULL, &b));
	for (uint64_t i = 1; i <= 3; i++) {
		need(!flexio_process_call(a, &ones, &result, (uint64_t)1) && result == i);
		need(!flexio_process_call(b, &tens, &result, (uint64_t)1) && result == 10 * i);
	}
	need(flexio_process_call(a, &tens, &result, (uint64_t)1) == FLEXIO_STATUS_FAILED);
	need(flexio_process_call(b, &ones, &result, (uint64_t)1) == FLEXIO_STATUS_FAILED);
	need(flexio_app_destroy(ones_app) == FLEXIO_STATUS_FAILED); /* in use */
	need(!flexio_process_destroy(a));
	need(!flexio_process_call(b, &tens, &result, (uint64_t)1) && result == 40);
	need(!flexio_process_destroy(b));
	ibv_close_device(ctx);
	puts("done");
	return 0;
}

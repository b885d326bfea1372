// SPDX-License-Identifier: MIT
/* An app compiled for several targets: the one of our adapters is found, the others stay what they are. */
#include "need.h"

extern struct flexio_app *ones_app;
extern flexio_func_t ones;

int main(void)
{
	struct ibv_context *ctx = open_device("mlx5_1");
	struct flexio_app_select_attr select = { .app_name = "ones_app", .ibv_ctx = ctx };
	struct flexio_process *process;
	struct flexio_app *app = NULL, *other = NULL;
	uint64_t result;

	need(!flexio_app_get(&select, &app) && app == ones_app);
	select.hw_model_id = FLEXIO_HW_MODEL_BF3;
	need(!flexio_app_get(&select, &app) && app == ones_app);
	select.hw_model_id = FLEXIO_HW_MODEL_CX7;
	need(!flexio_app_get(&select, &other) && other != ones_app);
	select.hw_model_id = FLEXIO_HW_MODEL_CX9;
	need(flexio_app_get(&select, &app) == FLEXIO_STATUS_FAILED);
	need(!flexio_process_create(ctx, ones_app, NULL, &process));
	need(!flexio_process_call(process, &ones, &result, (uint64_t)5) && result == 5);
	need(!flexio_process_destroy(process));
	ibv_close_device(ctx);
	puts("done");
	return 0;
}

// SPDX-License-Identifier: MIT
/* A shared library with an app, APP, inside: NAME is what it exports. */
#include "need.h"

extern struct flexio_app *APP;
extern flexio_func_t work;

__attribute__((visibility("default"))) uint64_t NAME(struct ibv_context *ctx, uint64_t times);

uint64_t NAME(struct ibv_context *ctx, uint64_t times)
{
	struct flexio_process *process;
	uint64_t result = 0;

	need(APP);
	need(!flexio_process_create(ctx, APP, NULL, &process));
	need(!flexio_process_call(process, &work, &result, times));
	need(!flexio_process_destroy(process));
	return result;
}

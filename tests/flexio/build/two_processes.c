// SPDX-License-Identifier: MIT
/* Processes of one app share nothing: on one adapter, on two, while others come and go. */
#include "need.h"

#include <pthread.h>

extern struct flexio_app *ones_app;
extern flexio_func_t ones;

static struct ibv_context *ctx[2];

static uint64_t add(struct flexio_process *process, uint64_t n)
{
	uint64_t result = 0;

	need(!flexio_process_call(process, &ones, &result, n));
	return result;
}

static void *churn(void *arg)
{
	for (unsigned int i = 0; i < 20; i++) {
		struct flexio_process *process;

		need(!flexio_process_create(ctx[i & 1], ones_app, NULL, &process));
		need(add(process, i) == i);
		need(add(process, 1) == i + 1);
		need(!flexio_process_destroy(process));
	}
	return arg;
}

int main(void)
{
	struct flexio_process *process[4];
	uint32_t id[4];
	pthread_t thread;

	ctx[0] = open_device("mlx5_0");
	ctx[1] = open_device("mlx5_1");
	for (unsigned int i = 0; i < 4; i++) {
		need(!flexio_process_create(ctx[i / 2], ones_app, NULL, &process[i]));
		id[i] = flexio_process_get_dumem_id(process[i]);
		for (unsigned int j = 0; j < i; j++)
			need(id[i] != id[j]);
	}
	need(!pthread_create(&thread, NULL, churn, NULL));
	for (uint64_t n = 1; n <= 200; n++)
		for (uint64_t i = 0; i < 4; i++)
			need(add(process[i], i + 1) == n * (i + 1));
	pthread_join(thread, NULL);
	/* The last one is not hurt by the end of the others. */
	for (unsigned int i = 0; i < 3; i++)
		need(!flexio_process_destroy(process[i]));
	need(add(process[3], 0) == 800);
	need(!flexio_process_destroy(process[3]));
	ibv_close_device(ctx[0]);
	ibv_close_device(ctx[1]);
	puts("done");
	return 0;
}

// SPDX-License-Identifier: MIT
/* A program that knows nothing of apps, linked with two libraries that each have one, under the same names. */
#include <stdint.h>

#include "need.h"

uint64_t count_ones(struct ibv_context *ctx, uint64_t times);
uint64_t count_tens(struct ibv_context *ctx, uint64_t times);

int main(void)
{
	struct ibv_context *ctx = open_device("mlx5_0");

	need(count_ones(ctx, 7) == 7);
	need(count_tens(ctx, 7) == 70);
	need(count_ones(ctx, 1) == 1);
	ibv_close_device(ctx);
	puts("done");
	return 0;
}

// SPDX-License-Identifier: MIT
/* Two apps in one program, several processes of each, on two adapters. */
#include "check.h"

extern struct flexio_app *one, *two;
extern flexio_func_t one_add, two_add;

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx[2];
	struct flexio_process *p[4];
	struct flexio_app **apps;
	uint64_t result = 0;
	uint32_t n = 0;

	CHECK(list && list[0] && list[1]);
	ctx[0] = ibv_open_device(list[0]);
	ctx[1] = ibv_open_device(list[1]);
	CHECK(ctx[0] && ctx[1]);
	ibv_free_device_list(list);
	OK(flexio_app_get_list(&apps, &n));
	CHECK(n == 2 && ((apps[0] == one && apps[1] == two) || (apps[0] == two && apps[1] == one)));
	OK(flexio_app_list_free(apps));
	for (int i = 0; i < 4; i++)
		OK(flexio_process_create(ctx[i / 2], i % 2 ? two : one, NULL, &p[i]));
	for (uint64_t round = 1; round <= 3; round++) {
		for (int i = 0; i < 4; i++) {
			OK(flexio_process_call(p[i], i % 2 ? two_add : one_add, &result,
					       (uint64_t)(i + 1)));
			CHECK(result == (i % 2 ? 5000U : 100U) + round * (uint64_t)(i + 1));
		}
	}
	/* a function of the other app */
	CHECK(flexio_process_call(p[0], two_add, &result, (uint64_t)1) == FLEXIO_STATUS_FAILED);
	for (int i = 0; i < 4; i++)
		OK(flexio_process_destroy(p[i]));
	CHECK(!ibv_close_device(ctx[0]) && !ibv_close_device(ctx[1]));
	return 0;
}

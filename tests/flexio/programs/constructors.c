// SPDX-License-Identifier: MIT
/* Constructors of device programs: run once per process; one that fails refuses the process and leaves nothing behind. */
#include "check.h"

extern struct flexio_app *good, *bad, *stuck;
extern flexio_func_t get_made;

int main(void)
{
	struct flexio_process *a, *b, *none = NULL;
	struct ibv_context *ctx;
	uint64_t result = 0;

	setenv("VERBATIM_RPC_TIMEOUT_MS", "300", 1);
	ctx = open_device();
	for (int i = 0; i < 3; i++) {
		CHECK(flexio_process_create(ctx, bad, NULL, &none) == FLEXIO_STATUS_FAILED);
		CHECK(flexio_process_create(ctx, stuck, NULL, &none) == FLEXIO_STATUS_FAILED);
	}
	CHECK(!none);
	OK(flexio_process_create(ctx, good, NULL, &a));
	OK(flexio_process_create(ctx, good, NULL, &b));
	for (uint64_t i = 0; i < 3; i++) {
		OK(flexio_process_call(a, get_made, &result));
		CHECK(result == 1234 + i);
	}
	OK(flexio_process_call(b, get_made, &result));
	CHECK(result == 1234);
	OK(flexio_process_destroy(a));
	OK(flexio_process_destroy(b));
	OK(flexio_app_destroy(bad)); /* nobody uses it */
	CHECK(!ibv_close_device(ctx));
	return 0;
}

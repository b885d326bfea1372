// SPDX-License-Identifier: MIT
/* Device half of faults.c. */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>

static uint64_t seen[4]; /* calls of the handler, its code, the thread's error number, the thread */

__dpa_global__ void on_error(uint64_t arg1, uint64_t arg2)
{
	struct flexio_dev_thread_ctx *ctx = (struct flexio_dev_thread_ctx *)arg1;

	seen[0]++;
	seen[1] = arg2;
	seen[2] = flexio_dev_get_errno(ctx);
	seen[3] = flexio_dev_get_thread_id(ctx);
	flexio_dev_print("DPA error handler: %lu\n", flexio_dev_get_and_rst_errno(ctx));
	flexio_dev_thread_reschedule();
}

__dpa_global__ void on_error_short(uint64_t error_dtctx)
{
	flexio_dev_print("context %d\n", error_dtctx != 0);
	seen[0]++;
	flexio_dev_thread_reschedule();
}

__dpa_global__ void on_error_back(uint64_t error_dtctx)
{
	(void)error_dtctx;
	seen[0]++;
}

__dpa_rpc__ uint64_t get_seen(uint64_t index)
{
	return seen[index];
}

__dpa_rpc__ uint64_t store(uint64_t addr)
{
	*(volatile uint64_t *)addr = 1;
	return addr;
}

__dpa_rpc__ uint64_t fail_with(uint64_t code)
{
	flexio_dev_error((uint8_t)code);
}

__dpa_rpc__ uint64_t finish(void)
{
	flexio_dev_process_finish();
	return 0;
}

/* An error from which the thread goes on: no such handler. */
__dpa_rpc__ uint64_t stumble(void)
{
	struct flexio_dev_thread_ctx *ctx;
	uint64_t first, second;

	flexio_dev_get_thread_ctx(&ctx);
	flexio_dev_event_handler_activate(12345);
	first = flexio_dev_get_errno(ctx);
	second = flexio_dev_get_and_rst_errno(ctx);
	return first | second << 16 | flexio_dev_get_errno(ctx) << 32;
}

__dpa_global__ void store_event(uint64_t arg)
{
	uint64_t *a = (uint64_t *)arg;

	__atomic_add_fetch(&a[1], 1, __ATOMIC_SEQ_CST);
	if (a[0])
		*(volatile uint64_t *)a[0] = 1;
	flexio_dev_thread_reschedule();
}

__dpa_rpc__ uint64_t kick(uint32_t id)
{
	flexio_dev_event_handler_activate(id);
	return 0;
}

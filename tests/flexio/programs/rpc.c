// SPDX-License-Identifier: MIT
/* Calls of functions that dpacc found: every integer type, threads, errors of the device library. */
#include "check.h"

#include <poll.h>
#include <pthread.h>

extern struct flexio_app *calc;
extern flexio_func_t nothing, no_result, widths, negative, allocate, use_after, endless;

static void arguments(struct flexio_process *process)
{
	uint64_t result = 0;
	flexio_uintptr_t where;

	OK(flexio_process_call(process, nothing, &result));
	CHECK(result == 1);
	OK(flexio_process_call(process, &nothing, NULL));
	OK(flexio_process_call(process, nothing, &result));
	CHECK(result == 3);
	OK(flexio_buf_dev_alloc(process, 8, &where));
	OK(flexio_process_call(process, no_result, &result, where));
	CHECK(result == 0 && dev_read(process, where) == 4711);
	OK(flexio_buf_dev_free(process, where));
	OK(flexio_process_call(process, widths, &result, (int8_t)-5, (uint8_t)250, (int16_t)-30000,
			       (uint16_t)65000, (int32_t)-2000000000, (uint32_t)4000000000U,
			       (int64_t)-1234567890123, (uint64_t)1 << 50, 'z', (_Bool)1, -1,
			       (uint32_t)77));
	CHECK((int64_t)result == -5 + 3 * 250L + 5 * -30000L + 7 * 65000L + 11 * -2000000000L +
					 13 * 4000000000L + 17 * -1234567890123L +
					 19 * (int64_t)(1UL << 50) + 23 * 'z' + 29 + 31 * -1 +
					 37 * 77);
	OK(flexio_process_call(process, negative, &result, 17));
	CHECK((int32_t)result == -17);
}

struct caller {
	pthread_t thread;
	struct flexio_process *process;
	uint64_t result;
};

static void *call_allocate(void *arg)
{
	struct caller *c = arg;

	OK(flexio_process_call(c->process, allocate, &c->result, (uint64_t)3000));
	return NULL;
}

static void threads(struct flexio_process *process)
{
	struct caller c[8];

	for (int i = 0; i < 8; i++) {
		c[i].process = process;
		CHECK(!pthread_create(&c[i].thread, NULL, call_allocate, &c[i]));
	}
	for (int i = 0; i < 8; i++) {
		pthread_join(c[i].thread, NULL);
		CHECK(c[i].result && c[i].result == c[0].result);
	}
}

static void errors(struct ibv_context *ctx)
{
	static const int status[] = { 0x86, 0x40, 0xab, 0x42, 0x40, 0x87 };

	for (uint64_t kind = 1; kind <= 6; kind++) {
		struct flexio_process *process;
		struct pollfd fd;
		uint64_t result = 1;

		OK(flexio_process_create(ctx, calc, NULL, &process));
		CHECK(flexio_process_call(process, use_after, &result, kind) ==
		      FLEXIO_STATUS_FATAL_ERR);
		CHECK(result == 1);
		CHECK(flexio_err_status_get(process) == status[kind - 1]);
		fd = (struct pollfd){ flexio_err_handler_fd(process), POLLIN, 0 };
		CHECK(poll(&fd, 1, 0) == 1);
		CHECK(flexio_process_call(process, nothing, &result) == FLEXIO_STATUS_FATAL_ERR);
		OK(flexio_process_destroy(process));
	}
}

static void time_limit(struct ibv_context *ctx)
{
	struct flexio_process *process;
	uint64_t result;

	setenv("VERBATIM_RPC_TIMEOUT_MS", "2000", 1);
	OK(flexio_process_create(ctx, calc, NULL, &process));
	CHECK(flexio_process_call(process, endless, &result) == FLEXIO_STATUS_TIMEOUT);
	OK(flexio_process_call(process, nothing, &result));
	OK(flexio_process_destroy(process));
}

int main(void)
{
	struct flexio_process_attr attr = { .name = "calculator" };
	struct flexio_process *process, *second;
	struct ibv_context *ctx;

	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1); /* a busy machine may be slow */
	ctx = open_device();
	CHECK(!strcmp(flexio_app_get_name(calc), "calc"));
	OK(flexio_process_create(ctx, calc, &attr, &process));
	OK(flexio_process_create(ctx, calc, NULL, &second));
	arguments(process);
	arguments(second); /* has its own variables */
	threads(process);
	OK(flexio_process_destroy(second));
	OK(flexio_process_destroy(process));
	errors(ctx);
	time_limit(ctx);
	CHECK(!ibv_close_device(ctx));
	return 0;
}

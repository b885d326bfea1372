// SPDX-License-Identifier: MIT
/*
 * Checked mode with device code that is out to hurt it: odd return addresses, stacks, pointers and
 * sizes, more blocks than there is room for, work that takes the host long, threads that free what
 * others use. The process recovers from each fault, and works afterwards.
 */
#include "check.h"

#include <pthread.h>

extern struct flexio_app *wild;
extern flexio_func_t num_odd, odd_return, odd_stack, odd_free, odd_realloc, odd_memalign, odd_sizes,
	odd_access, use_up, search, work, race, fine, recover;

static struct ibv_context *ctx;

static struct flexio_process *make(const char *checks)
{
	struct flexio_process *process;

	setenv("VERBATIM_DPA_CHECK", checks, 1);
	OK(flexio_process_create(ctx, wild, NULL, &process));
	OK(flexio_process_error_handler_set(process, recover));
	return process;
}

static void works(struct flexio_process *process)
{
	uint64_t result;

	OK(flexio_process_call(process, &fine, &result, (uint64_t)100));
	CHECK(result == 101);
}

static void odd_ones(const char *checks)
{
	flexio_func_t *const funcs[] = { &odd_return,   &odd_stack, &odd_free,  &odd_realloc,
					 &odd_memalign, &odd_sizes, &odd_access };
	struct flexio_process *process = make(checks);
	uint64_t n, result;

	OK(flexio_process_call(process, &num_odd, &n));
	for (unsigned int f = 0; f < sizeof(funcs) / sizeof(funcs[0]); f++) {
		for (uint64_t i = 0; i < n * n; i++)
			CHECK(flexio_process_call(process, funcs[f], &result, i) !=
			      FLEXIO_STATUS_FATAL_ERR);
		works(process);
	}
	OK(flexio_process_destroy(process));
}

static void all_memory(void)
{
	struct flexio_process *process = make("heap,continue");
	uint64_t n;

	OK(flexio_process_call(process, &use_up, &n, (uint64_t)1000));
	CHECK(n > 50000 && n < 140000);
	OK(flexio_process_call(process, &use_up, &n, (uint64_t)(100 << 20)));
	CHECK(n == 1); /* what was freed can be had again, in one piece */
	works(process);
	OK(flexio_process_destroy(process));
}

static void long_search(void)
{
	struct flexio_process *process = make("heap");
	uint64_t n;

	OK(flexio_process_call(process, &search, &n, (uint64_t)500000));
	CHECK(n <= 1);
	OK(flexio_process_destroy(process));
}

/* Time limits hold, though the host does all the work. */
static void long_work(void)
{
	struct flexio_process *process;
	uint64_t n;

	setenv("VERBATIM_RPC_TIMEOUT_MS", "300", 1);
	process = make("heap,uninit");
	CHECK(flexio_process_call(process, &work, &n, 1UL << 40) != FLEXIO_STATUS_SUCCESS);
	OK(flexio_process_destroy(process));
	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1);
}

static struct flexio_process *raced;

static void *race_one(void *seed)
{
	uint64_t result;

	for (unsigned int i = 0; i < 3; i++)
		CHECK(flexio_process_call(raced, &race, &result,
					  (uint64_t)(uintptr_t)seed * 12345 + i) !=
		      FLEXIO_STATUS_FATAL_ERR);
	return NULL;
}

static void races(const char *checks)
{
	pthread_t threads[4];

	raced = make(checks);
	for (uintptr_t i = 0; i < 4; i++)
		CHECK(!pthread_create(&threads[i], NULL, race_one, (void *)(i + 1)));
	for (unsigned int i = 0; i < 4; i++)
		CHECK(!pthread_join(threads[i], NULL));
	works(raced);
	OK(flexio_process_destroy(raced));
}

int main(void)
{
	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1); /* a busy machine may be slow */
	ctx = open_device();
	odd_ones("heap,uninit");
	odd_ones("heap,uninit,continue");
	all_memory();
	races("heap,uninit");
	races("heap,uninit,continue");
	long_search();
	CHECK(!ibv_close_device(ctx));
	ctx = open_device(); /* the accelerator reads the limit when it is made */
	long_work();
	CHECK(!ibv_close_device(ctx));
	return 0;
}

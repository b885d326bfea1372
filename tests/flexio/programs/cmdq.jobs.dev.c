// SPDX-License-Identifier: MIT
/* Device half of cmdq.c. */
#include <libflexio-dev/flexio_dev.h>
#include <stdlib.h>
#include <string.h>

#include "cmdq.h"

static uint64_t total;

/* A row of the product, as an RPC. */
__dpa_rpc__ uint64_t row(uint64_t arg)
{
	struct row *r = (struct row *)arg;
	const uint32_t *a = (const uint32_t *)r->a, *b = (const uint32_t *)r->b;
	uint32_t *out = (uint32_t *)r->out;

	for (unsigned int j = 0; j < SIDE; j++) {
		uint32_t sum = 0;

		for (unsigned int k = 0; k < SIDE; k++)
			sum += a[k] * b[k * SIDE + j];
		out[j] = sum;
	}
	return 0;
}

/* The same of a __dpa_global__ function; uses malloc, so that workers meet there. */
__dpa_global__ void add(uint64_t arg)
{
	uint64_t *copy = malloc(64 + arg % 1000);

	*copy = arg;
	__atomic_add_fetch(&total, *copy, __ATOMIC_RELAXED);
	free(copy);
}

/* Never without malloc's lock for long. */
__dpa_global__ void churn(uint64_t word)
{
	for (;;) {
		free(malloc(100));
		__atomic_add_fetch((uint64_t *)word, 1, __ATOMIC_RELAXED);
	}
}

__dpa_rpc__ uint64_t get_total(void)
{
	void *p = malloc(10); /* hangs if somebody died with the lock */

	free(p);
	return __atomic_load_n(&total, __ATOMIC_RELAXED);
}

__dpa_global__ void end_early(uint64_t arg)
{
	__atomic_add_fetch(&total, arg, __ATOMIC_RELAXED);
	flexio_dev_thread_reschedule();
}

__dpa_global__ void stumble(uint64_t arg)
{
	*(volatile uint64_t *)arg = 1;
}

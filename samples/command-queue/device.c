// SPDX-License-Identifier: MIT
/* What runs on the accelerator: a task each. */
#include <libflexio-dev/flexio_dev.h>

static uint64_t steps, longest;

/* How many steps of the Collatz sequence lead from start to 1. */
__dpa_global__ void collatz(uint64_t start)
{
	uint64_t n = start, count = 0, most;

	for (; n != 1; count++)
		n = n & 1 ? 3 * n + 1 : n / 2;
	__atomic_add_fetch(&steps, count, __ATOMIC_RELAXED);
	/* Several workers may be here at once: keep the larger one, the start in the lower half. */
	most = __atomic_load_n(&longest, __ATOMIC_RELAXED);
	while (count > most >> 32 &&
	       !__atomic_compare_exchange_n(&longest, &most, count << 32 | start, 0,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

__dpa_rpc__ uint64_t get_steps(void)
{
	return steps;
}

__dpa_rpc__ uint64_t get_longest(void)
{
	return longest;
}

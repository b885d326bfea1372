// SPDX-License-Identifier: MIT
/* Device half of crash.c: ways to fall, each a few calls deep. */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>

static const volatile uint64_t fixed = 5;

static __attribute__((noinline)) uint64_t innermost(volatile uint64_t *at)
{
	*at = 1; /* the line of the fault */
	return *at + 1;
}

static __attribute__((noinline)) uint64_t middle(uint64_t at)
{
	return innermost((volatile uint64_t *)at) + 1;
}

__dpa_rpc__ uint64_t tumble(uint64_t at)
{
	return middle(at ? at : (uint64_t)&fixed) + 1;
}

static __attribute__((noinline)) uint64_t deeper(uint64_t n)
{
	volatile uint64_t frame[32];

	frame[n % 32] = n;
	return n ? deeper(n + 1) + frame[n % 32] : 0;
}

__dpa_rpc__ uint64_t run_over(void)
{
	return deeper(1);
}

__dpa_rpc__ uint64_t give_up(uint64_t code)
{
	if (code == 0x40)
		flexio_dev_process_finish();
	flexio_dev_error((uint8_t)code);
}

__dpa_global__ void fall_in_background(uint64_t at)
{
	middle(at);
}

__dpa_global__ void on_error(uint64_t ctx, uint64_t code)
{
	volatile uint64_t scratch[512]; /* overwrites what was on the stack */

	for (unsigned int i = 0; i < 512; i++)
		scratch[i] = ctx + code;
}

// SPDX-License-Identifier: MIT
/* Device half of constructors.c: a constructor that never ends. */
#include <libflexio-dev/flexio_dev.h>

__attribute__((constructor)) static void forever(void)
{
	for (;;)
		__asm__ volatile("");
}

__dpa_rpc__ uint64_t stuck_call(void)
{
	return 0;
}

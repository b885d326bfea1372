// SPDX-License-Identifier: MIT
/* Device half of limits.c: a call that never returns. */
#include <libflexio-dev/flexio_dev.h>

__dpa_rpc__ uint64_t endless(void)
{
	for (;;)
		__asm__ volatile("");
}

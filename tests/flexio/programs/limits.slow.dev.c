/* SPDX-License-Identifier: MIT */
#include <libflexio-dev/flexio_dev.h>

__dpa_rpc__ uint64_t endless(void)
{
	for (;;)
		__asm__ volatile("");
}

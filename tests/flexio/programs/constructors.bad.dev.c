// SPDX-License-Identifier: MIT
/* Device half of constructors.c: a constructor that faults. */
#include <libflexio-dev/flexio_dev.h>

__attribute__((constructor)) static void fault(void)
{
	*(volatile uint64_t *)64 = 1;
}

__dpa_rpc__ uint64_t bad_call(void)
{
	return 0;
}

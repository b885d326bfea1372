// SPDX-License-Identifier: MIT
/* Device half of apps.c: the other application. */
#include <libflexio-dev/flexio_dev.h>

static uint64_t state = 5000;

__dpa_rpc__ uint64_t two_add(uint64_t n)
{
	return state += n;
}

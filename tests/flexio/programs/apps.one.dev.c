// SPDX-License-Identifier: MIT
/* Device half of apps.c: one of two applications in one program, each with state of its own. */
#include <libflexio-dev/flexio_dev.h>

static uint64_t state = 100;

__dpa_rpc__ uint64_t one_add(uint64_t n)
{
	return state += n;
}

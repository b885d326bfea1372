// SPDX-License-Identifier: MIT
/* A device library: ordinary functions for other device code, and one that the host calls. */
#include <libflexio-dev/flexio_dev.h>

static uint64_t seen;

uint64_t twice(uint64_t a)
{
	seen++;
	return 2 * a;
}

__dpa_rpc__ uint64_t calls_of_twice(void)
{
	return seen;
}

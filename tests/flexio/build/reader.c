// SPDX-License-Identifier: MIT
/* Device code that uses the library of shelf.c. */
#include <libflexio-dev/flexio_dev.h>

uint64_t twice(uint64_t a);

__dpa_rpc__ uint64_t four_times(uint64_t a)
{
	return twice(twice(a));
}

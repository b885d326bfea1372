// SPDX-License-Identifier: MIT
/* What runs on the accelerator. */
#include <libflexio-dev/flexio_dev.h>

__dpa_rpc__ uint64_t add(uint64_t a, uint64_t b)
{
	flexio_dev_print("Calculate: %lu + %lu = %lu\n", a, b, a + b);
	return a + b;
}

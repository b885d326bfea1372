// SPDX-License-Identifier: MIT
/* Device half of versions.c: ends its process with an error of its own. */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>

__dpa_rpc__ uint64_t die(uint64_t code)
{
	flexio_dev_error((uint8_t)code);
}

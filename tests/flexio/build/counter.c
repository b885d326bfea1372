// SPDX-License-Identifier: MIT
/* Device half that is compiled several times: FUNC names its function, STEP says what it does. */
#include <libflexio-dev/flexio_dev.h>

uint64_t counted;

__dpa_rpc__ uint64_t FUNC(uint64_t times)
{
	return counted += times * STEP;
}

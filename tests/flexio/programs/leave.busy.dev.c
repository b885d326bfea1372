// SPDX-License-Identifier: MIT
/* Device half of leave.c: handlers that never end and talk while they run. */
#include <libflexio-dev/flexio_dev.h>

__dpa_global__ void forever(uint64_t arg)
{
	for (uint64_t n = 0;; n++) {
		*(volatile uint64_t *)arg = n;
		if (n % 1000 == 0)
			flexio_dev_print("busy %lu\n", n);
	}
}

__dpa_rpc__ uint64_t start(uint32_t id)
{
	flexio_dev_event_handler_activate(id);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* The device half of the FlexIO benchmark. */
#include <libflexio-dev/flexio_dev.h>

#include "shared.h"

__dpa_rpc__ uint64_t empty(uint64_t arg)
{
	return arg;
}

__dpa_rpc__ uint64_t print_many(uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		flexio_dev_print("message %lu of the benchmark\n", i);
	return 0;
}

/* Two of them pass a trigger to and fro. */
__dpa_global__ void relay(uint64_t arg)
{
	struct relay *r = (struct relay *)arg;

	if (r->left) {
		r->left--;
		flexio_dev_event_handler_activate(r->next);
	} else {
		__atomic_store_n(&r->done, 1, __ATOMIC_RELEASE);
	}
	flexio_dev_thread_reschedule();
}

__dpa_rpc__ uint64_t kick(uint32_t id)
{
	flexio_dev_event_handler_activate(id);
	return 0;
}

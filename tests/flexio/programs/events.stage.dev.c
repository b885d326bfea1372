// SPDX-License-Identifier: MIT
/* Device half of events.c: handlers that pass a trigger on and end in every way there is. */
#include <libflexio-dev/flexio_dev.h>
#include <string.h>

#include "events.h"

__dpa_global__ void relay(uint64_t arg)
{
	struct relay_data *d = (struct relay_data *)arg;
	struct flexio_dev_thread_ctx *ctx;

	flexio_dev_get_thread_ctx(&ctx);
	d->id = flexio_dev_get_thread_id(ctx);
	d->tls = flexio_dev_get_thread_local_storage(ctx);
	strncpy(d->name, flexio_dev_get_current_thread_name(), sizeof(d->name) - 1);
	if (d->left) {
		d->left--;
		flexio_dev_event_handler_activate(d->next);
	}
	__atomic_add_fetch(&d->runs, 1, __ATOMIC_SEQ_CST);
	switch (d->end) {
	case 1:
		flexio_dev_thread_reschedule();
	case 2:
		flexio_dev_thread_finish();
	case 3:
		if (d->runs < 10)
			flexio_dev_thread_retrigger();
		break;
	default:
		break;
	}
}

__dpa_global__ void stepwise(uint64_t arg)
{
	struct relay_data *d = (struct relay_data *)arg;
	struct flexio_dev_thread_ctx *ctx;
	uint64_t step = 0;

	flexio_dev_get_thread_ctx(&ctx);
	while (step < 5) {
		__atomic_store_n(&d->runs, ++step, __ATOMIC_SEQ_CST);
		flexio_dev_yield(ctx);
	}
	__atomic_store_n(&d->runs, 100, __ATOMIC_SEQ_CST);
}

__dpa_global__ void last(uint64_t arg)
{
	(void)arg;
	flexio_dev_process_finish();
}

__dpa_rpc__ uint64_t kick(uint32_t id)
{
	flexio_dev_event_handler_activate(id);
	return 0;
}

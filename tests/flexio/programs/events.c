// SPDX-License-Identifier: MIT
/* Event handlers that wake each other, with the device library's thread ends. */
#include "check.h"

#include "events.h"

#include <poll.h>

extern struct flexio_app *stage;
extern flexio_func_t relay, stepwise, last, kick;

static struct flexio_event_handler *start(struct flexio_process *process, flexio_func_t *func,
					  const struct relay_data *data, flexio_uintptr_t *daddr)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = func,
						  .continuable = 1,
						  .name = "relay" };
	struct flexio_event_handler *handler;

	OK(flexio_copy_from_host(process, (void *)data, sizeof(*data), daddr));
	attr.thread_local_storage_daddr = *daddr + 8;
	OK(flexio_event_handler_create(process, &attr, &handler));
	OK(flexio_event_handler_run(handler, *daddr));
	return handler;
}

static void trigger(struct flexio_process *process, struct flexio_event_handler *handler)
{
	uint64_t result;

	OK(flexio_process_call(process, kick, &result,
			       flexio_event_handler_get_activation_id(handler)));
}

/* Four handlers in a ring pass one trigger on, 200 rounds. */
static void ring(struct flexio_process *process)
{
	struct relay_data data, copy;
	struct flexio_mem to = { FLEXIO_MEMTYPE_HOST, { .haddr = (uintptr_t)&copy } };
	struct flexio_mem from = { .mem_type = FLEXIO_MEMTYPE_DPA };
	struct flexio_event_handler *h[4];
	flexio_uintptr_t d[4];

	for (uint32_t i = 0; i < 4; i++) {
		/* a ring: activation ids are given in order */
		data = (struct relay_data){ .left = 200, .next = (i + 1) % 4, .end = i % 2 };
		h[i] = start(process, relay, &data, &d[i]);
		CHECK(flexio_event_handler_get_activation_id(h[i]) == i);
	}
	trigger(process, h[0]);
	for (int i = 0; i < 4; i++)
		dev_await(process, d[i], 200);
	from.daddr = d[2];
	OK(flexio_memcpy(process, &to, &from, sizeof(copy)));
	CHECK(copy.id == flexio_event_handler_get_id(h[2]));
	CHECK(copy.tls == d[2] + 8);
	CHECK(!strcmp(copy.name, "relay"));
	for (int i = 0; i < 4; i++)
		OK(flexio_event_handler_destroy(h[i]));
}

int main(void)
{
	struct ibv_context *ctx = open_device();
	struct flexio_event_handler *h[4];
	struct flexio_process *process;
	flexio_uintptr_t d[4];
	struct relay_data data;
	struct pollfd fd;

	OK(flexio_process_create(ctx, stage, NULL, &process));
	ring(process);

	data = (struct relay_data){ .end = 3 };
	h[0] = start(process, relay, &data, &d[0]);
	trigger(process, h[0]);
	dev_await(process, d[0], 10); /* runs again by itself */
	data = (struct relay_data){ .end = 2 };
	h[1] = start(process, relay, &data, &d[1]);
	trigger(process, h[1]);
	dev_await(process, d[1], 1);
	h[2] = start(process, stepwise, &data, &d[2]);
	for (uint64_t step = 1; step <= 5; step++) {
		trigger(process, h[2]);
		dev_await(process, d[2], step);
	}
	trigger(process, h[2]);
	dev_await(process, d[2], 100);
	CHECK(dev_read(process, d[1]) == 1); /* finished */

	h[3] = start(process, last, &data, &d[3]);
	CHECK(flexio_err_status_get(process) == 0);
	/* the process may be over before the call that triggers its end is back */
	flexio_process_call(process, kick, NULL, flexio_event_handler_get_activation_id(h[3]));
	fd = (struct pollfd){ flexio_err_handler_fd(process), POLLIN, 0 };
	CHECK(poll(&fd, 1, 10000) == 1);
	CHECK(flexio_err_status_get(process) == 0x40);
	for (int i = 0; i < 4; i++)
		OK(flexio_event_handler_destroy(h[i]));
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
	return 0;
}

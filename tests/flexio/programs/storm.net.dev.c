// SPDX-License-Identifier: MIT
/* Device half of storm.c: handlers that trigger each other. */
#include <dpaintrin.h>
#include <libflexio-dev/flexio_dev.h>

#include "storm.h"

static void send(struct cell *to, uint32_t activation)
{
	__atomic_add_fetch(&to->inbox, 1, __ATOMIC_SEQ_CST);
	flexio_dev_event_handler_activate(activation);
}

/* A message goes on to each target while there are messages left to send. */
static void handle(struct cell *c)
{
	uint64_t messages = __atomic_exchange_n(&c->inbox, 0, __ATOMIC_SEQ_CST);

	c->runs++;
	for (uint64_t i = 0; i < messages * c->targets; i++) {
		uint64_t t = i % c->targets;

		if ((int64_t)__atomic_sub_fetch((uint64_t *)c->remaining, 1, __ATOMIC_RELAXED) < 0)
			break;
		send((struct cell *)c->target[t], (uint32_t)c->activation[t]);
	}
	__atomic_add_fetch(&c->handled, messages, __ATOMIC_RELEASE);
}

__dpa_global__ void node(uint64_t arg)
{
	struct cell *c = (struct cell *)arg;
	struct flexio_dev_thread_ctx *ctx;

	flexio_dev_get_thread_ctx(&ctx);
	handle(c);
	while (c->end == 2) {
		flexio_dev_yield(ctx);
		handle(c);
	}
	if (c->end == 1)
		flexio_dev_thread_reschedule();
}

__dpa_rpc__ void post(struct cell *to, uint32_t activation, uint64_t times)
{
	while (times--)
		send(to, activation);
}

__dpa_global__ void spin(uint64_t arg)
{
	volatile struct spinner *s = (volatile struct spinner *)arg;
	uint64_t start = __dpa_thread_inst_ret();

	while (!s->stop) {
		s->turns++;
		s->instructions = __dpa_thread_inst_ret() - start;
	}
}

__dpa_rpc__ void activate(uint32_t activation)
{
	flexio_dev_event_handler_activate(activation);
}

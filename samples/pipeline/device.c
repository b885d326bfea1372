// SPDX-License-Identifier: MIT
/* Stages that wake each other: the next one when there is something for it, the one before when there is room again. */
#include <libflexio-dev/flexio_dev.h>

#include "shared.h"

/* False: the queue is full. */
static int put(struct stage *queue, uint64_t number)
{
	uint64_t at = queue->put;

	if (at - __atomic_load_n(&queue->taken, __ATOMIC_ACQUIRE) == SLOTS)
		return 0;
	queue->slot[at % SLOTS] = number;
	__atomic_store_n(&queue->put, at + 1, __ATOMIC_RELEASE);
	return 1;
}

/* False: it is empty. */
static int look(const struct stage *queue, uint64_t *number)
{
	if (queue->taken == __atomic_load_n(&queue->put, __ATOMIC_ACQUIRE))
		return 0;
	*number = queue->slot[queue->taken % SLOTS];
	return 1;
}

static void taken(struct stage *queue)
{
	__atomic_store_n(&queue->taken, queue->taken + 1, __ATOMIC_RELEASE);
}

static uint64_t work(uint32_t stage, uint64_t number)
{
	return stage == 1 ? number * number : number + 1;
}

/* The first stage makes numbers, for as long as there is room. */
__dpa_global__ void source(uint64_t arg)
{
	struct stage *me = (struct stage *)arg, *next = (struct stage *)me->to;
	uint64_t before = me->taken;

	while (me->taken < me->total && put(next, me->taken + 1))
		me->taken++;
	if (me->taken != before)
		flexio_dev_event_handler_activate(me->next);
	flexio_dev_thread_reschedule();
}

/* A trigger that comes while we run is kept and runs us again: what we did not see any more is not forgotten. */
__dpa_global__ void middle(uint64_t arg)
{
	struct stage *me = (struct stage *)arg, *next = (struct stage *)me->to;
	uint64_t number, before = me->taken;

	while (look(me, &number) && put(next, work(me->index, number)))
		taken(me);
	if (me->taken != before) {
		flexio_dev_event_handler_activate(me->previous);
		flexio_dev_event_handler_activate(me->next);
	}
	flexio_dev_thread_reschedule();
}

__dpa_global__ void sink(uint64_t arg)
{
	struct stage *me = (struct stage *)arg;
	uint64_t number, before = me->taken;

	while (look(me, &number)) {
		me->total += number;
		taken(me);
	}
	if (me->taken != before)
		flexio_dev_event_handler_activate(me->previous);
	flexio_dev_thread_reschedule();
}

__dpa_rpc__ void begin(uint32_t activation_id)
{
	flexio_dev_event_handler_activate(activation_id);
}

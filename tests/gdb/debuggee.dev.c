// SPDX-License-Identifier: MIT
/* Device half of debuggee.c. The tests find lines by the words in their comments: line("name"). */
#include <dpaintrin.h>
#include <stdlib.h>
#include <libflexio-dev/flexio_dev.h>

struct corner {
	int x, y;
	const char *label;
};

uint64_t counter;
volatile uint64_t spinning = 1;
struct corner corner = { 3, -4, "lower left" };

static __attribute__((noinline)) uint64_t square(uint64_t value)
{
	uint64_t result = value * value; /* line: square */

	counter += result; /* line: count */
	return result;     /* line: squared */
}

__dpa_rpc__ uint64_t sum_of_squares(uint64_t a, uint64_t b)
{
	uint64_t first = square(a);  /* line: first */
	uint64_t second = square(b); /* line: second */

	return first + second; /* line: sum */
}

/* An event handler that polls until somebody says stop. */
__dpa_global__ void spin(uint64_t turns)
{
	uint64_t mine = 0;

	while (spinning) /* line: spin */
		__atomic_store_n((uint64_t *)turns, ++mine, __ATOMIC_RELAXED);
	spinning = 1;
	__atomic_store_n((uint64_t *)turns, UINT64_MAX, __ATOMIC_RELAXED);
	flexio_dev_thread_reschedule();
}

__dpa_rpc__ uint64_t stop_spinning(void)
{
	spinning = 0;
	return 0;
}

__dpa_rpc__ uint64_t kick(uint32_t id)
{
	flexio_dev_event_handler_activate(id);
	return 0;
}

/* A task of a command queue. */
__dpa_global__ void work(uint64_t done)
{
	uint64_t value = square(12); /* line: work */

	__atomic_store_n((uint64_t *)done, value, __ATOMIC_RELAXED);
}

__dpa_rpc__ uint64_t store_null(uint64_t value)
{
	volatile uint64_t *nowhere = NULL;

	*nowhere = value; /* line: null */
	return 1;
}

__dpa_rpc__ uint64_t on_heap(uint64_t value)
{
	uint64_t *block = malloc(sizeof(*block));

	*block = value; /* line: block */
	value = *block;
	free(block);
	return value;
}

__dpa_rpc__ uint64_t illegal(void)
{
	__asm__ volatile(".word 0"); /* line: illegal */
	return 0;
}

__dpa_rpc__ uint64_t look(uint16_t window, uint32_t mkey, uint64_t haddr)
{
	flexio_uintptr_t at = 0;
	uint64_t *words;

	if (flexio_dev_window_config(FLEXIO_DEV_WINDOW_ENTITY_0, window, mkey) ||
	    flexio_dev_window_ptr_acquire(FLEXIO_DEV_WINDOW_ENTITY_0, haddr, &at))
		return UINT64_MAX;
	words = (uint64_t *)at;
	return words[0] + words[1]; /* line: window */
}

/* Before main of the host. */
__attribute__((constructor)) static void begin(void)
{
	counter = 1000; /* line: constructor */
}

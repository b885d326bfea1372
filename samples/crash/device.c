// SPDX-License-Identifier: MIT
/* What runs on the accelerator, and should not: four ways to fail. */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>

struct node {
	uint64_t value;
	struct node *next;
};

static struct node nodes[3] = { { 10, &nodes[1] }, { 20, &nodes[2] }, { 30, NULL } };

/* Makes the node number `count` the last one. Nobody looks whether there are so many. */
static __attribute__((noinline)) void cut(struct node *node, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		node = node->next;
	node->next = NULL; /* node is NULL itself */
}

__dpa_rpc__ uint64_t null_pointer(uint64_t count)
{
	cut(nodes, count);
	return nodes[0].value;
}

/* Fills an array in host memory, which is not as long as its caller says. */
static __attribute__((noinline)) void fill(uint64_t *array, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		array[i] = i;
}

__dpa_rpc__ uint64_t overrun(uint32_t window, uint32_t mkey, uint64_t haddr, uint64_t count)
{
	flexio_uintptr_t array;

	flexio_dev_window_config(FLEXIO_DEV_WINDOW_ENTITY_0, (uint16_t)window, mkey);
	flexio_dev_window_ptr_acquire(FLEXIO_DEV_WINDOW_ENTITY_0, haddr, &array);
	fill((uint64_t *)array, count);
	return count;
}

/* The sum from 1 to n, without an end to it. */
static __attribute__((noinline)) uint64_t sum(uint64_t n)
{
	volatile uint64_t mine = n;

	return sum(n - 1) + mine;
}

__dpa_rpc__ uint64_t stack_overflow(uint64_t n)
{
	return sum(n);
}

/* Device code that finds out itself that something is wrong. */
__dpa_rpc__ uint64_t by_will(uint64_t code)
{
	flexio_dev_print("this cannot be: %lu\n", code);
	flexio_dev_error((uint8_t)code);
}

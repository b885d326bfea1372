// SPDX-License-Identifier: MIT
/* Device half of exits.c. */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_tracer.h>
#include <libflexio-libc/stdio.h>

__dpa_rpc__ uint64_t start(uint32_t id)
{
	flexio_dev_event_handler_activate(id);
	return 0;
}

__dpa_global__ void last_words(uint64_t null)
{
	for (uint64_t i = 0; i < 9; i++)
		flexio_dev_print("word %lu\n", i);
	printf("the end");
	*(volatile uint64_t *)null = 1;
}

__dpa_global__ void forever(uint64_t word)
{
	for (;;)
		*(volatile uint64_t *)word = 1;
}

__dpa_rpc__ uint64_t flood(uint64_t lines)
{
	for (uint64_t i = 0; i < lines; i++)
		flexio_dev_print("line %lu of a flood that fills a pipe\n", i);
	return lines;
}

__dpa_rpc__ uint64_t trace(uint64_t id, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		flexio_dev_trace_1(id, FLEXIO_MSG_DEV_INFO, 0, i);
	return n;
}

__dpa_rpc__ uint64_t to_all(uint64_t n)
{
	flexio_dev_msg_broadcast(FLEXIO_MSG_DEV_INFO, "for all, %lu\n", n);
	return n;
}

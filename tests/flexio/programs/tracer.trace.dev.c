// SPDX-License-Identifier: MIT
/* Device half of tracer.c. */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_tracer.h>

__dpa_rpc__ uint64_t all_kinds(uint64_t id, uint64_t a, uint64_t b)
{
	(void)a;
	(void)b;
	flexio_dev_trace_0(id, FLEXIO_MSG_DEV_INFO, 0);
	flexio_dev_trace_1(id, FLEXIO_MSG_DEV_INFO, 1, -1);
	flexio_dev_trace_2(id, FLEXIO_MSG_DEV_INFO, 2, 0xfe, 0xffffffff);
	flexio_dev_trace_3(id, FLEXIO_MSG_DEV_INFO, 3, 0x0123456789abcdef, 0x0123456789abcdef,
			   0xdead);
	flexio_dev_trace_4(id, FLEXIO_MSG_DEV_INFO, 4, 'o', 'k', 42, 42);
	flexio_dev_trace_5(id, FLEXIO_MSG_DEV_INFO, 5, 1, 2, 3, 4, 0x5000);
	flexio_dev_trace_6(id, FLEXIO_MSG_DEV_INFO, 6, 1, 2, 3, 4, 5, -6);
	flexio_dev_trace_0(id, FLEXIO_MSG_DEV_INFO, 99);
	flexio_dev_trace_0(id, FLEXIO_MSG_DEV_DEBUG, 0);
	flexio_dev_trace_0(255, FLEXIO_MSG_DEV_INFO, 0);
	flexio_dev_trace_0((uint8_t)(id + 1), FLEXIO_MSG_DEV_INFO, 0);
	return 0;
}

__dpa_rpc__ uint64_t count(uint64_t id, uint64_t from, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		flexio_dev_trace_2(id, FLEXIO_MSG_DEV_INFO, 7, from + i, n);
	return n;
}

__dpa_rpc__ uint64_t flush(uint64_t id, uint64_t a, uint64_t b)
{
	flexio_dev_tracer_flush(id);
	return a + b;
}

__dpa_rpc__ uint64_t notify(uint64_t id, uint64_t n, uint64_t b)
{
	(void)b;
	flexio_dev_tracer_notify_host(id, 0);
	flexio_dev_tracer_notify_host(255, n);
	return 0;
}

__dpa_rpc__ uint64_t levels(uint64_t id, uint64_t a, uint64_t b)
{
	static const flexio_msg_dev_level all[] = { FLEXIO_MSG_DEV_ALWAYS_PRINT,
						    FLEXIO_MSG_DEV_ERROR, FLEXIO_MSG_DEV_WARN,
						    FLEXIO_MSG_DEV_INFO, FLEXIO_MSG_DEV_DEBUG };

	for (unsigned int i = 0; i < 5; i++)
		flexio_dev_trace_1(id, all[i], 1, all[i]);
	return a + b;
}

__dpa_rpc__ uint64_t tell(uint64_t id, uint64_t n, uint64_t b)
{
	flexio_dev_tracer_notify_host(id, n);
	return b;
}

__dpa_rpc__ uint64_t count_and_flush(uint64_t id, uint64_t from, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		flexio_dev_trace_2(id, FLEXIO_MSG_DEV_INFO, 7, from + i, n);
	flexio_dev_tracer_flush(id);
	return n;
}

// SPDX-License-Identifier: MIT
/* Device half: a function for each kind of argument and result, and state that belongs to the process. */
#include <stddef.h>
#include <libflexio-dev/flexio_dev.h>

typedef uint16_t port_t;
enum colour { RED = -1, GREEN = 7 };

static uint64_t total;

__dpa_rpc__ uint64_t widths(int8_t a, uint8_t b, int16_t c, port_t d, int32_t e, uint32_t f,
			    int64_t g, uint64_t h, _Bool i, enum colour j)
{
	return (a == -1) | (b == 0xff) << 1 | (c == -2) << 2 | (d == 0xfffe) << 3 | (e == -3) << 4 |
	       (f == 0xfffffffdu) << 5 | (g == -4) << 6 | (h == ~UINT64_C(3)) << 7 | i << 8 |
	       (j == RED) << 9;
}

__dpa_rpc__ int32_t negative(int32_t a)
{
	return -a;
}

__dpa_rpc__ double half(double a)
{
	return a / 2;
}

__dpa_rpc__ void nothing(void)
{
	__atomic_add_fetch(&total, 1, __ATOMIC_RELAXED);
}

__dpa_rpc__ uint64_t sum(const uint32_t *numbers, size_t count)
{
	uint64_t s = 0;

	while (count--)
		s += *numbers++;
	return s;
}

static __dpa_rpc__ uint64_t hidden(uint64_t a)
{
	return __atomic_add_fetch(&total, a, __ATOMIC_RELAXED);
}

__dpa_global__ void on_event(uint64_t word)
{
	__atomic_add_fetch((uint64_t *)word, 1, __ATOMIC_RELEASE);
	flexio_dev_thread_reschedule();
}

__dpa_rpc__ void wake(uint32_t id)
{
	flexio_dev_event_handler_activate(id);
}

__dpa_rpc__ void say(int number)
{
	flexio_dev_print("said %d\n", number);
}

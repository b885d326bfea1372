// SPDX-License-Identifier: MIT
/* Device half of rpc.c: calls with arguments and results of every kind, and calls that fail. */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>
#include <stdlib.h>
#include <string.h>

enum color { RED = -1, GREEN = 200 };
typedef uint32_t key_t32;

static uint64_t calls;

__dpa_rpc__ uint64_t nothing(void)
{
	return ++calls;
}

__dpa_rpc__ void no_result(uint64_t *where)
{
	*where = 4711;
}

__dpa_rpc__ int64_t widths(int8_t a, uint8_t b, int16_t c, uint16_t d, int32_t e, uint32_t f,
			   int64_t g, uint64_t h, char i, _Bool j, enum color k, key_t32 l)
{
	return a + 3 * (int64_t)b + 5 * (int64_t)c + 7 * (int64_t)d + 11 * (int64_t)e +
	       13 * (int64_t)f + 17 * g + 19 * (int64_t)h + 23 * i + 29 * j + 31 * (int64_t)k +
	       37 * (int64_t)l;
}

__dpa_rpc__ int32_t negative(int32_t n)
{
	return -n;
}

/* The heap of the C library, from several calls at once. */
__dpa_rpc__ uint64_t allocate(uint64_t rounds)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < rounds; i++) {
		uint8_t *p = malloc(1 + i % 3000);

		if (!p)
			return 0;
		memset(p, (int)i, 1 + i % 3000);
		sum += p[i % 3000];
		free(p);
	}
	return sum;
}

__dpa_rpc__ uint64_t use_after(uint64_t kind)
{
	if (kind == 1)
		abort();
	if (kind == 2)
		flexio_dev_process_finish();
	if (kind == 3)
		flexio_dev_error(0xab);
	if (kind == 4)
		flexio_dev_error(3);
	if (kind == 5)
		exit(0);
	if (kind == 6)
		exit(7);
	return kind;
}

__dpa_rpc__ uint64_t endless(void)
{
	for (;;)
		__asm__ volatile("");
}

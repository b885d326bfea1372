// SPDX-License-Identifier: MIT
/*
 * Copies in units of one width. The accesses are volatile, so that the compiler does not make a
 * memcpy of them: that is why a program calls these.
 */
#include <libflexio-dev/flexio_dev.h>

#define COPY(to, from, num)                                                      \
	do {                                                                     \
		for (uint64_t i = 0; i < (num); i++)                             \
			((volatile __typeof__(*(to)) *)(to))[i] =                \
				((const volatile __typeof__(*(to)) *)(from))[i]; \
	} while (0)

void flexio_dev_memcpy64(uint64_t *dest, const uint64_t *src, uint64_t num)
{
	COPY(dest, src, num);
}

void flexio_dev_memcpy32(uint32_t *dest, const uint32_t *src, uint64_t num)
{
	COPY(dest, src, num);
}

void flexio_dev_memcpy16(uint16_t *dest, const uint16_t *src, uint64_t num)
{
	COPY(dest, src, num);
}

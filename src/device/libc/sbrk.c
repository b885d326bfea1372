// SPDX-License-Identifier: MIT
/*
 * Where malloc's memory comes from: the run-time system, page by page. Called with malloc's lock
 * held.
 */
#include <stddef.h>
#include <unistd.h>

#include "../dev/ecall.h"

void *sbrk(ptrdiff_t increment)
{
	int64_t before = ecall1(VB_RTOS_SBRK, (uint64_t)increment);

	if (before == -1)
		errno = ENOMEM;
	return (void *)before;
}

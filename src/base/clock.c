// SPDX-License-Identifier: MIT
/* Owns what may stand in for the system's clock, and sleeping; see clock.h. */
#include "base/clock.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

vb_clock_source *_Atomic vb_clock_replaced;

void vb_sleep_ns(uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	syscall(SYS_nanosleep, &ts, NULL);
}

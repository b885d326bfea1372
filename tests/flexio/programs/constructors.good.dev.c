// SPDX-License-Identifier: MIT
/* Device half of constructors.c: a constructor that runs once, before the first call. */
#include <libflexio-dev/flexio_dev.h>

static uint64_t made;

__attribute__((constructor)) static void make(void)
{
	made = 1234;
}

__dpa_rpc__ uint64_t get_made(void)
{
	return made++;
}

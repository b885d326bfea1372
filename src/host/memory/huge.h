/* SPDX-License-Identifier: MIT */
/* Huge pages that the machine does not have: huge.c says for whom, and what there is instead. */
#pragma once

#include <stddef.h>

/*
 * The kernel has refused a mapping of huge pages, errno says why. Ordinary pages in their place, with
 * errno as it was before the call; or MAP_FAILED, and errno stays.
 */
void *huge_map_ordinary(void *base, size_t len, int prot, int flags, int before,
			const void *caller);

/* SPDX-License-Identifier: MIT */
/* For functions that stand in front of the C library's: its own, found once. */
#pragma once

#include <dlfcn.h>
#include <stdatomic.h>

#define REAL(name)                                    \
	({                                            \
		static _Atomic(void *) found;         \
		void *fn = atomic_load(&found);       \
                                                      \
		if (!fn) {                            \
			fn = dlsym(RTLD_NEXT, #name); \
			atomic_store(&found, fn);     \
		}                                     \
		(__typeof__(&name))fn;                \
	})

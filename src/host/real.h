/* SPDX-License-Identifier: MIT */
/* For functions that stand in front of the C library's: its own, found once. */
#pragma once

#include <dlfcn.h>
#include <stdatomic.h>

#define REAL(name)                                                               \
	({                                                                       \
		static _Atomic(void *) found;                                    \
		void *fn = atomic_load_explicit(&found, memory_order_acquire);   \
                                                                                 \
		if (!fn) {                                                       \
			fn = dlsym(RTLD_NEXT, #name);                            \
			atomic_store_explicit(&found, fn, memory_order_release); \
		}                                                                \
		(__typeof__(&name))fn;                                           \
	})

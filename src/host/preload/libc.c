// SPDX-License-Identifier: MIT
/* Finds libc's own functions. */
#include "libc.h"

#include <dlfcn.h>

_Atomic(void *) libc_found[LIBC_COUNT];

void *libc_find(enum libc_function function)
{
	static const char *const names[] = {
#define LIBC_NAME(name) #name,
		LIBC_FUNCTIONS(LIBC_NAME)
#undef LIBC_NAME
	};
	void *found = dlsym(RTLD_NEXT, names[function]);

	atomic_store_explicit(&libc_found[function], found, memory_order_relaxed);
	return found;
}

__attribute__((constructor)) static void preload_libc_find_all(void)
{
	for (unsigned int i = 0; i < LIBC_COUNT; i++)
		libc_find((enum libc_function)i);
}

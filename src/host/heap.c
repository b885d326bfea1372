// SPDX-License-Identifier: MIT
/* Owns the count of freed bytes, and the moment of their return. */
#include "host/heap.h"

#include <malloc.h>
#include <stdatomic.h>

#include "base/time.h"

enum {
	MANY = 4 << 20,       /* bytes that are worth it */
	QUIET_NS = 100000000, /* a program that destroys objects goes on doing so for a while */
};

static _Atomic size_t freed; /* since the last return */
static _Atomic uint64_t due; /* 0: not */

bool vb_heap_freed(size_t bytes)
{
	if (atomic_fetch_add_explicit(&freed, bytes, memory_order_relaxed) + bytes < MANY)
		return false;
	return !atomic_exchange_explicit(&due, vb_now_ns() + QUIET_NS, memory_order_relaxed);
}

uint64_t vb_heap_due(void)
{
	uint64_t when = atomic_load_explicit(&due, memory_order_relaxed);

	return when ? when : UINT64_MAX;
}

void vb_heap_return(void)
{
	if (!atomic_exchange_explicit(&due, 0, memory_order_relaxed))
		return;
	atomic_store_explicit(&freed, 0, memory_order_relaxed);
	malloc_trim(0);
}

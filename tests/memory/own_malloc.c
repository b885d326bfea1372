// SPDX-License-Identifier: MIT
/* An allocator that a program brings with it: never frees, as some do. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* For libraries, too. */
#pragma GCC visibility push(default)

static char space[64 << 20] __attribute__((aligned(4096)));
static _Atomic size_t used;

static void *take(size_t size, size_t align)
{
	size_t need = size + align + 16;
	size_t at = atomic_fetch_add(&used, need);
	uintptr_t p = (uintptr_t)space + at + 16;

	if (at + need > sizeof(space)) {
		errno = ENOMEM;
		return NULL;
	}
	p = (p + align - 1) & ~(uintptr_t)(align - 1);
	memcpy((char *)p - 16, &size, sizeof(size));
	return (void *)p;
}

void *malloc(size_t size)
{
	return take(size, 16);
}

void *calloc(size_t count, size_t size)
{
	return take(count * size, 16);
}

void free(void *p)
{
	(void)p;
}

void *realloc(void *p, size_t size)
{
	void *new = take(size, 16);
	size_t before;

	if (p && new) {
		memcpy(&before, (char *)p - 16, sizeof(before));
		memcpy(new, p, before < size ? before : size);
	}
	return new;
}

int posix_memalign(void **to, size_t align, size_t size)
{
	*to = take(size, align);
	return *to ? 0 : ENOMEM;
}

void *aligned_alloc(size_t align, size_t size)
{
	return take(size, align);
}

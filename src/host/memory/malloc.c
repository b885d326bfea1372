// SPDX-License-Identifier: MIT
/*
 * malloc() and its relatives, in front of libc's: blocks at page boundaries are pages of the range,
 * once that is open, and so are large ones where the configuration wants all; all others are libc's.
 * Whatever the range cannot give, libc is asked for, so that failures, and errno, are libc's.
 *
 * A block of ours starts at a page and has no header, so free() knows it by its address.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "host/memory/libc.h"
#include "host/memory/memory.h"

static bool is_large(size_t size)
{
	return size >= MEMORY_LARGE && memory_is_open() &&
	       atomic_load_explicit(&memory.all, memory_order_relaxed);
}

static void *malloc_take(size_t size, size_t align)
{
	bool dirty;

	return memory_take(size, align, true, &dirty);
}

/* As libc does with what it never gave out. */
__attribute__((noreturn)) static void malloc_refuse(const char *text)
{
	RAW(SYS_write, STDERR_FILENO, text, strlen(text));
	abort();
}

/*
 * Whether the page is in a block of ours. In a mapping may be one of libc's: where a library has written a
 * jump over libc's mmap(), malloc() in there comes to our mappings, too.
 */
static bool is_in_block(uint32_t page)
{
	uint32_t head = page;

	while (!(memory.pages.state[head] & PAGE_HEAD)) {
		if (!head || (memory.pages.state[head] & PAGE_KIND) == PAGE_FREE ||
		    (memory.pages.state[head] & PAGE_KIND) == PAGE_GONE)
			return false;
		head--;
	}
	return page - head < memory.pages.info[head].len;
}

/* Whether the address is one that only we know about. */
static bool malloc_is_ours(const void *p)
{
	uint32_t page;
	uint8_t state;

	if (!memory_has(p))
		return false;
	page = (uint32_t)(((uintptr_t)p - memory.base) / MEMORY_PAGE);
	state = memory.pages.state[page];
	if (state == PAGE_KEPT || state == PAGE_FREE)
		return true;
	return (state & PAGE_KIND) != PAGE_GONE && is_in_block(page);
}

PUBLIC void *malloc(size_t size)
{
	void *p = is_large(size) ? malloc_take(size, 1) : NULL;

	return p ? p : LIBC(malloc)(size);
}

PUBLIC void *calloc(size_t count, size_t size)
{
	size_t bytes;
	bool dirty;
	void *p;

	if (!__builtin_mul_overflow(count, size, &bytes) && is_large(bytes)) {
		p = memory_take(bytes, 1, true, &dirty);
		if (p)
			return dirty ? memset(p, 0, bytes) : p;
	}
	return LIBC(calloc)(count, size);
}

PUBLIC void free(void *p)
{
	if (!malloc_is_ours(p))
		LIBC(free)(p);
	else if (!memory_free(p))
		malloc_refuse("free(): invalid pointer\n");
}

/* To a block elsewhere, with the first bytes of what it had: in the range if that has room. */
static void *malloc_move(void *p, size_t size, size_t bytes)
{
	void *new = size >= MEMORY_LARGE &&memory_is_open() ? malloc_take(size, 1) : NULL;

	if (!new)
		new = LIBC(malloc)(size);
	if (new) {
		memcpy(new, p, bytes < size ? bytes : size);
		free(p);
	}
	return new;
}

PUBLIC void *realloc(void *p, size_t size)
{
	size_t bytes;
	void *new;

	if (!p)
		return malloc(size);
	if (malloc_is_ours(p)) {
		bytes = memory_block_bytes(p);
		if (!bytes)
			malloc_refuse("realloc(): invalid pointer\n");
		if (!size) {
			free(p);
			return NULL;
		}
		return memory_resize(p, size) ? p : malloc_move(p, size, bytes);
	}
	/* One of libc's grows out of it. */
	if (is_large(size)) {
		bytes = LIBC(malloc_usable_size)(p);
		new = size > bytes ? malloc_take(size, 1) : NULL;
		if (new) {
			memcpy(new, p, bytes);
			LIBC(free)(p);
			return new;
		}
	}
	return LIBC(realloc)(p, size);
}

PUBLIC void *reallocarray(void *p, size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(p, bytes);
}

PUBLIC size_t malloc_usable_size(void *p)
{
	return malloc_is_ours(p) ? memory_block_bytes(p) : LIBC(malloc_usable_size)(p);
}

/* --- at a boundary ---------------------------------------------------------------------------- */

static void *take_aligned(size_t align, size_t size)
{
	if (!align || align & (align - 1) || (align < MEMORY_PAGE && !is_large(size)) ||
	    !memory_is_open())
		return NULL;
	return malloc_take(size, align);
}

PUBLIC int posix_memalign(void **to, size_t align, size_t size)
{
	void *p = align % sizeof(void *) ? NULL : take_aligned(align, size);

	if (!p)
		return LIBC(posix_memalign)(to, align, size);
	*to = p;
	return 0;
}

PUBLIC void *aligned_alloc(size_t align, size_t size)
{
	void *p = take_aligned(align, size);

	return p ? p : LIBC(aligned_alloc)(align, size);
}

PUBLIC void *memalign(size_t align, size_t size)
{
	void *p = take_aligned(align, size);

	return p ? p : LIBC(memalign)(align, size);
}

PUBLIC void *valloc(size_t size)
{
	void *p = take_aligned(MEMORY_PAGE, size);

	return p ? p : LIBC(valloc)(size);
}

PUBLIC void *pvalloc(size_t size)
{
	void *p = take_aligned(MEMORY_PAGE, size);

	return p ? p : LIBC(pvalloc)(size);
}

PUBLIC int malloc_trim(size_t pad)
{
	bool kept = memory.kept_blocks;

	if (kept)
		memory_drop_kept();
	return LIBC(malloc_trim)(pad) || kept;
}

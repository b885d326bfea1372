// SPDX-License-Identifier: MIT
/*
 * Rings on huge pages, where the environment asks for them (pd.c).
 *
 * A huge page is cut into 64 chunks, so that many small rings share one; a ring of more than a page
 * has pages of its own.
 *
 *	region: [ chunk 0 | chunk 1 | ... | chunk 63 ]      used: one bit for each chunk
 *
 * Under the lock: rings come and go with their objects, never on the data path.
 */
#include "objects.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGE_SHIFT = 21, PAGE = 1 << PAGE_SHIFT, CHUNKS = 64, CHUNK = PAGE / CHUNKS };

struct region {
	char *base;
	uint64_t used;
	struct region *next;
};

static struct region *regions;
static struct vb_lock lock;

/* Past mmap(): `verbatim run` gives programs ordinary pages in place of huge ones, and here they count. */
static void *verbs_huge_map(size_t size)
{
	void *ptr = (void *)syscall(
		SYS_mmap, NULL, size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | PAGE_SHIFT << MAP_HUGE_SHIFT, -1, 0ul);

	if (ptr == MAP_FAILED)
		return NULL;
	/* A container may allow the mapping and not the pages: that must not end in a SIGBUS. */
	if (madvise(ptr, size, MADV_POPULATE_WRITE) && errno != EINVAL) {
		munmap(ptr, size);
		return NULL;
	}
	return ptr;
}

static size_t verbs_huge_whole_pages(size_t size)
{
	return (size + PAGE - 1) & ~(size_t)(PAGE - 1);
}

static uint64_t chunk_mask(size_t size)
{
	size_t n = (size + CHUNK - 1) / CHUNK;

	return n == CHUNKS ? UINT64_MAX : (1ull << n) - 1;
}

/* The first place where all bits of the mask are free, or -1. */
static int verbs_huge_find_room(uint64_t used, uint64_t mask)
{
	for (int at = 0; at < CHUNKS; at++) {
		if ((mask << at) >> at != mask)
			return -1;
		if (!(used & mask << at))
			return at;
	}
	return -1;
}

static struct region *new_region(void)
{
	struct region *region = calloc(1, sizeof(*region));

	if (!region)
		return NULL;
	region->base = verbs_huge_map(PAGE);
	if (!region->base) {
		free(region);
		return NULL;
	}
	region->next = regions;
	regions = region;
	return region;
}

void *api_huge_alloc(size_t size)
{
	uint64_t mask;
	struct region *region;
	void *ptr = NULL;
	int at = -1;

	if (!size || size > PAGE)
		return size ? verbs_huge_map(verbs_huge_whole_pages(size)) : NULL;
	mask = chunk_mask(size);
	vb_lock(&lock);
	for (region = regions; region; region = region->next) {
		at = verbs_huge_find_room(region->used, mask);
		if (at >= 0)
			break;
	}
	if (!region) {
		region = new_region();
		at = 0;
	}
	if (region) {
		region->used |= mask << at;
		ptr = region->base + (size_t)at * CHUNK;
	}
	vb_unlock(&lock);
	return ptr;
}

void api_huge_free(void *ptr, size_t size)
{
	struct region **link, *empty = NULL;

	if (size > PAGE) {
		munmap(ptr, verbs_huge_whole_pages(size));
		return;
	}
	vb_lock(&lock);
	for (link = &regions; (uintptr_t)ptr - (uintptr_t)(*link)->base >= PAGE;
	     link = &(*link)->next)
		;
	(*link)->used &= ~(chunk_mask(size) << ((char *)ptr - (*link)->base) / CHUNK);
	if (!(*link)->used) {
		empty = *link;
		*link = empty->next;
	}
	vb_unlock(&lock);
	if (empty) {
		munmap(empty->base, PAGE);
		free(empty);
	}
}

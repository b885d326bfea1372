// SPDX-License-Identifier: MIT
/*
 * Owns the device heap of a process: which parts of one range of guest memory are given out.
 * Nothing of the bookkeeping lies in guest memory, so device code cannot damage it.
 *
 *	blocks by address:   [ used ][ free ][ used ][ used ][      free      ]
 *	                        `-prev/next-'                     no two free ones side by side
 *	bins[n]:   free blocks of 2^n to 2^(n+1) - 1 bytes
 *	table:     used blocks by address, open addressing, at most half full
 *	freed:     what was freed last, a ring; only for words about a crash
 */
#include "internal.h"

#include <stdlib.h>

struct heap_block {
	uint64_t addr, size;
	uint64_t requested;             /* 0: free */
	struct heap_block *prev, *next; /* by address */
	struct heap_block *bin_prev, *bin_next;
};

/* ---- bins ---- */

static unsigned int bin_of(uint64_t size)
{
	return 63 - (unsigned int)__builtin_clzll(size);
}

static void bin_insert(struct heap *heap, struct heap_block *block)
{
	struct heap_block **bin = &heap->bins[bin_of(block->size)];

	block->bin_prev = NULL;
	block->bin_next = *bin;
	if (*bin)
		(*bin)->bin_prev = block;
	*bin = block;
}

static void bin_remove(struct heap *heap, struct heap_block *block)
{
	if (block->bin_prev)
		block->bin_prev->bin_next = block->bin_next;
	else
		heap->bins[bin_of(block->size)] = block->bin_next;
	if (block->bin_next)
		block->bin_next->bin_prev = block->bin_prev;
}

static bool block_fits(const struct heap_block *block, uint64_t size, uint64_t align)
{
	uint64_t front = -block->addr & (align - 1);

	return front <= block->size && size <= block->size - front;
}

/* The first block of a bin that fits, of at most `most` blocks looked at. */
static struct heap_block *find_in_bin(struct heap *heap, unsigned int bin, uint64_t size,
				      uint64_t align, size_t most)
{
	for (struct heap_block *b = heap->bins[bin]; b && most--; b = b->bin_next)
		if (block_fits(b, size, align))
			return b;
	return NULL;
}

/*
 * Blocks in the bin of this size may be too small; those in higher bins are large enough, apart
 * from the alignment. So try a few of the own bin, then the higher bins, then all of the own bin.
 */
static struct heap_block *find_free(struct heap *heap, uint64_t size, uint64_t align)
{
	unsigned int own = bin_of(size);
	struct heap_block *b = find_in_bin(heap, own, size, align, 32);

	for (unsigned int bin = own + 1; bin < ARRAY_SIZE(heap->bins) && !b; bin++)
		b = find_in_bin(heap, bin, size, align, SIZE_MAX);
	return b ? b : find_in_bin(heap, own, size, align, SIZE_MAX);
}

/* ---- used blocks by address ---- */

static size_t slot_of(const struct heap *heap, uint64_t addr)
{
	return (addr / HEAP_ALIGN * 0x9e3779b97f4a7c15ULL >> 20) & (heap->table_size - 1);
}

static void table_put(struct heap *heap, struct heap_block *block)
{
	size_t i = slot_of(heap, block->addr);

	while (heap->table[i])
		i = (i + 1) & (heap->table_size - 1);
	heap->table[i] = block;
}

static bool table_reserve(struct heap *heap)
{
	struct heap_block **old = heap->table;
	size_t old_size = heap->table_size;

	if (2 * (heap->used + 1) <= heap->table_size)
		return true;
	heap->table = calloc(2 * old_size, sizeof(*heap->table));
	if (!heap->table) {
		heap->table = old;
		return false;
	}
	heap->table_size = 2 * old_size;
	for (size_t i = 0; i < old_size; i++)
		if (old[i])
			table_put(heap, old[i]);
	free(old);
	return true;
}

static struct heap_block *table_take(struct heap *heap, uint64_t addr)
{
	size_t mask = heap->table_size - 1, hole = slot_of(heap, addr);
	struct heap_block *block;

	while (heap->table[hole] && heap->table[hole]->addr != addr)
		hole = (hole + 1) & mask;
	block = heap->table[hole];
	if (!block)
		return NULL;
	/* Close the gap, so that what was put behind it is still found. */
	for (size_t i = (hole + 1) & mask; heap->table[i]; i = (i + 1) & mask) {
		size_t home = slot_of(heap, heap->table[i]->addr);

		if (((i - home) & mask) >= ((i - hole) & mask)) {
			heap->table[hole] = heap->table[i];
			hole = i;
		}
	}
	heap->table[hole] = NULL;
	return block;
}

/* ---- blocks ---- */

/* A new free block for the end of block, from size on; not in a bin yet. */
static struct heap_block *split(struct heap_block *block, uint64_t size)
{
	struct heap_block *rest = calloc(1, sizeof(*rest));

	if (!rest)
		return NULL;
	rest->addr = block->addr + size;
	rest->size = block->size - size;
	rest->prev = block;
	rest->next = block->next;
	if (rest->next)
		rest->next->prev = rest;
	block->next = rest;
	block->size = size;
	return rest;
}

/* Append the free block behind it; neither is in a bin. */
static void join(struct heap_block *block)
{
	struct heap_block *gone = block->next;

	block->size += gone->size;
	block->next = gone->next;
	if (block->next)
		block->next->prev = block;
	free(gone);
}

/* Cut [aligned, aligned + size) out of a free block. Both splits are made, or none. */
static struct heap_block *cut(struct heap *heap, struct heap_block *block, uint64_t size,
			      uint64_t align)
{
	uint64_t front = -block->addr & (align - 1);
	struct heap_block *start = block, *rest;

	bin_remove(heap, block);
	if (front) {
		block = split(start, front);
		if (!block) {
			bin_insert(heap, start);
			return NULL;
		}
	}
	if (block->size > size) {
		rest = split(block, size);
		if (!rest) {
			if (front)
				join(start);
			bin_insert(heap, start);
			return NULL;
		}
		bin_insert(heap, rest);
	}
	if (front)
		bin_insert(heap, start);
	return block;
}

/* ---- the interface ---- */

int vb_heap_init(struct heap *heap, uint64_t base, uint64_t size)
{
	struct heap_block *all = calloc(1, sizeof(*all));

	heap->table_size = 64;
	heap->table = calloc(heap->table_size, sizeof(*heap->table));
	if (!all || !heap->table) {
		free(all);
		free(heap->table);
		heap->table = NULL;
		return -ENOMEM;
	}
	heap->base = base;
	heap->size = size;
	pthread_mutex_init(&heap->lock, NULL);
	*all = (struct heap_block){ .addr = base, .size = size };
	heap->first = all; /* blocks are cut off at its end, and joined to it */
	bin_insert(heap, all);
	return 0;
}

void vb_heap_destroy(struct heap *heap)
{
	struct heap_block *next;

	if (!heap->table)
		return;
	for (struct heap_block *block = heap->first; block; block = next) {
		next = block->next;
		free(block);
	}
	free(heap->table);
	pthread_mutex_destroy(&heap->lock);
}

void vb_heap_info(struct heap *heap, struct flexio_heap_mem_info *info)
{
	pthread_mutex_lock(&heap->lock);
	*info = (struct flexio_heap_mem_info){ .base_addr = heap->base,
					       .size = heap->size,
					       .requested = heap->requested,
					       .allocated = heap->allocated };
	pthread_mutex_unlock(&heap->lock);
}

uint64_t vb_heap_alloc(struct heap *heap, uint64_t size, uint64_t align)
{
	struct heap_block *block = NULL;
	uint64_t rounded = (size + HEAP_ALIGN - 1) & ~(uint64_t)(HEAP_ALIGN - 1);

	if (!size || size > heap->size || align > heap->size)
		return 0;
	pthread_mutex_lock(&heap->lock);
	if (table_reserve(heap))
		block = find_free(heap, rounded, align);
	if (block)
		block = cut(heap, block, rounded, align);
	if (block) {
		block->requested = size;
		heap->requested += size;
		heap->allocated += block->size;
		heap->used++;
		table_put(heap, block);
	}
	pthread_mutex_unlock(&heap->lock);
	return block ? block->addr : 0;
}

bool vb_heap_free(struct heap *heap, uint64_t addr)
{
	struct heap_block *block;

	pthread_mutex_lock(&heap->lock);
	block = table_take(heap, addr);
	if (block) {
		heap->used--;
		heap->requested -= block->requested;
		heap->allocated -= block->size;
		heap->freed[heap->frees++ % HEAP_FREED] =
			(struct heap_freed){ block->addr, block->requested };
		block->requested = 0;
		if (block->next && !block->next->requested) {
			bin_remove(heap, block->next);
			join(block);
		}
		if (block->prev && !block->prev->requested) {
			block = block->prev;
			bin_remove(heap, block);
			join(block);
		}
		bin_insert(heap, block);
	}
	pthread_mutex_unlock(&heap->lock);
	return block;
}

/* The newest of the freed buffers that held addr. */
static bool find_freed(const struct heap *heap, uint64_t addr, struct heap_place *out)
{
	for (size_t i = heap->frees; i > 0 && i + HEAP_FREED > heap->frees; i--) {
		const struct heap_freed *f = &heap->freed[(i - 1) % HEAP_FREED];

		if (addr >= f->addr && addr - f->addr < f->size) {
			*out = (struct heap_place){ f->addr, f->size, true };
			return true;
		}
	}
	return false;
}

bool vb_heap_find(struct heap *heap, uint64_t addr, struct heap_place *out)
{
	const struct heap_block *block, *used = NULL;
	bool found = false;

	pthread_mutex_lock(&heap->lock);
	for (block = heap->first; block && block->addr <= addr; block = block->next)
		if (block->requested)
			used = block;
	if (used && addr - used->addr < used->size) {
		found = true;
	} else {
		found = find_freed(heap, addr, out);
		if (found)
			used = NULL;
		else
			found = used;
	}
	if (used)
		*out = (struct heap_place){ used->addr, used->requested, false };
	pthread_mutex_unlock(&heap->lock);
	return found;
}

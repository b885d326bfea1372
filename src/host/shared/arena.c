// SPDX-License-Identifier: MIT
/*
 * Owns arenas: which parts of one range of addresses are given out, as device heaps are. Nothing of
 * the bookkeeping lies in the range, so device code cannot damage it.
 *
 *	blocks by address:   [ used ][ free ][ used ][ used ][      free      ]
 *	                        `-prev/next-'                     no two free ones side by side
 *	bins[n]:   free blocks of 2^n to 2^(n+1) - 1 bytes
 *	table:     used blocks by address, open addressing, at most half full
 *	freed:     what was freed last, a ring; only for words about a crash
 */
#include "host/shared/arena.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

struct vb_arena_block {
	uint64_t addr, size;
	uint64_t requested;                 /* 0: free */
	struct vb_arena_block *prev, *next; /* by address */
	struct vb_arena_block *bin_prev, *bin_next;
};

/* ---- bins ---- */

static unsigned int arena_bin_of(uint64_t size)
{
	return 63 - (unsigned int)__builtin_clzll(size);
}

static void bin_insert(struct vb_arena *arena, struct vb_arena_block *block)
{
	struct vb_arena_block **bin = &arena->bins[arena_bin_of(block->size)];

	block->bin_prev = NULL;
	block->bin_next = *bin;
	if (*bin)
		(*bin)->bin_prev = block;
	*bin = block;
}

static void bin_remove(struct vb_arena *arena, struct vb_arena_block *block)
{
	if (block->bin_prev)
		block->bin_prev->bin_next = block->bin_next;
	else
		arena->bins[arena_bin_of(block->size)] = block->bin_next;
	if (block->bin_next)
		block->bin_next->bin_prev = block->bin_prev;
}

static bool block_fits(const struct vb_arena_block *block, uint64_t size, uint64_t align)
{
	uint64_t front = -block->addr & (align - 1);

	return front <= block->size && size <= block->size - front;
}

/* The first block of a bin that fits, of at most `most` blocks looked at. */
static struct vb_arena_block *find_in_bin(struct vb_arena *arena, unsigned int bin, uint64_t size,
					  uint64_t align, size_t most)
{
	for (struct vb_arena_block *b = arena->bins[bin]; b && most--; b = b->bin_next)
		if (block_fits(b, size, align))
			return b;
	return NULL;
}

/*
 * Blocks in the bin of this size may be too small; those in higher bins are large enough, apart
 * from the alignment. So try a few of the own bin, then the higher bins, then all of the own bin.
 */
static struct vb_arena_block *arena_find_free(struct vb_arena *arena, uint64_t size, uint64_t align)
{
	unsigned int own = arena_bin_of(size);
	struct vb_arena_block *b = find_in_bin(arena, own, size, align, 32);

	for (unsigned int bin = own + 1; bin < ARRAY_SIZE(arena->bins) && !b; bin++)
		b = find_in_bin(arena, bin, size, align, SIZE_MAX);
	return b ? b : find_in_bin(arena, own, size, align, SIZE_MAX);
}

/* ---- used blocks by address ---- */

static size_t arena_slot_of(const struct vb_arena *arena, uint64_t addr)
{
	return (addr / VB_ARENA_ALIGN * 0x9e3779b97f4a7c15ULL >> 20) & (arena->table_size - 1);
}

static void arena_table_put(struct vb_arena *arena, struct vb_arena_block *block)
{
	size_t i = arena_slot_of(arena, block->addr);

	while (arena->table[i])
		i = (i + 1) & (arena->table_size - 1);
	arena->table[i] = block;
}

static bool table_reserve(struct vb_arena *arena)
{
	struct vb_arena_block **old = arena->table;
	size_t old_size = arena->table_size;

	if (2 * (arena->used + 1) <= arena->table_size)
		return true;
	arena->table = calloc(2 * old_size, sizeof(*arena->table));
	if (!arena->table) {
		arena->table = old;
		return false;
	}
	arena->table_size = 2 * old_size;
	for (size_t i = 0; i < old_size; i++)
		if (old[i])
			arena_table_put(arena, old[i]);
	free(old);
	return true;
}

static struct vb_arena_block *arena_table_take(struct vb_arena *arena, uint64_t addr)
{
	size_t mask = arena->table_size - 1, hole = arena_slot_of(arena, addr);
	struct vb_arena_block *block;

	while (arena->table[hole] && arena->table[hole]->addr != addr)
		hole = (hole + 1) & mask;
	block = arena->table[hole];
	if (!block)
		return NULL;
	/* Close the gap, so that what was put behind it is still found. */
	for (size_t i = (hole + 1) & mask; arena->table[i]; i = (i + 1) & mask) {
		size_t home = arena_slot_of(arena, arena->table[i]->addr);

		if (((i - home) & mask) >= ((i - hole) & mask)) {
			arena->table[hole] = arena->table[i];
			hole = i;
		}
	}
	arena->table[hole] = NULL;
	return block;
}

/* ---- blocks ---- */

/* A new free block for the end of block, from size on; not in a bin yet. */
static struct vb_arena_block *arena_split(struct vb_arena_block *block, uint64_t size)
{
	struct vb_arena_block *rest = calloc(1, sizeof(*rest));

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
static void arena_join(struct vb_arena_block *block)
{
	struct vb_arena_block *gone = block->next;

	block->size += gone->size;
	block->next = gone->next;
	if (block->next)
		block->next->prev = block;
	free(gone);
}

/* Cut [aligned, aligned + size) out of a free block. Both splits are made, or none. */
static struct vb_arena_block *arena_cut(struct vb_arena *arena, struct vb_arena_block *block,
					uint64_t size, uint64_t align)
{
	uint64_t front = -block->addr & (align - 1);
	struct vb_arena_block *start = block, *rest;

	bin_remove(arena, block);
	if (front) {
		block = arena_split(start, front);
		if (!block) {
			bin_insert(arena, start);
			return NULL;
		}
	}
	if (block->size > size) {
		rest = arena_split(block, size);
		if (!rest) {
			if (front)
				arena_join(start);
			bin_insert(arena, start);
			return NULL;
		}
		bin_insert(arena, rest);
	}
	if (front)
		bin_insert(arena, start);
	return block;
}

/* ---- the interface ---- */

int vb_arena_init(struct vb_arena *arena, uint64_t base, uint64_t size)
{
	struct vb_arena_block *all = calloc(1, sizeof(*all));

	arena->table_size = 64;
	arena->table = calloc(arena->table_size, sizeof(*arena->table));
	if (!all || !arena->table) {
		free(all);
		free(arena->table);
		arena->table = NULL;
		return -ENOMEM;
	}
	arena->base = base;
	arena->size = size;
	pthread_mutex_init(&arena->lock, NULL);
	*all = (struct vb_arena_block){ .addr = base, .size = size };
	arena->first = all; /* blocks are cut off at its end, and joined to it */
	bin_insert(arena, all);
	return 0;
}

void vb_arena_destroy(struct vb_arena *arena)
{
	struct vb_arena_block *next;

	if (!arena->table)
		return;
	for (struct vb_arena_block *block = arena->first; block; block = next) {
		next = block->next;
		free(block);
	}
	free(arena->table);
	pthread_mutex_destroy(&arena->lock);
}

void vb_arena_usage(struct vb_arena *arena, struct vb_arena_usage *usage)
{
	pthread_mutex_lock(&arena->lock);
	*usage = (struct vb_arena_usage){ arena->requested, arena->allocated };
	pthread_mutex_unlock(&arena->lock);
}

uint64_t vb_arena_alloc(struct vb_arena *arena, uint64_t size, uint64_t align)
{
	struct vb_arena_block *block = NULL;
	uint64_t rounded = (size + VB_ARENA_ALIGN - 1) & ~(uint64_t)(VB_ARENA_ALIGN - 1);

	if (!size || size > arena->size || align > arena->size)
		return 0;
	pthread_mutex_lock(&arena->lock);
	if (table_reserve(arena))
		block = arena_find_free(arena, rounded, align);
	if (block)
		block = arena_cut(arena, block, rounded, align);
	if (block) {
		block->requested = size;
		arena->requested += size;
		arena->allocated += block->size;
		arena->used++;
		arena_table_put(arena, block);
	}
	pthread_mutex_unlock(&arena->lock);
	return block ? block->addr : 0;
}

static void remember_freed(struct vb_arena *arena, const struct vb_arena_block *block)
{
	size_t at = arena->frees++ % VB_ARENA_FREED;

	arena->freed[at].addr = block->addr;
	arena->freed[at].size = block->requested;
}

bool vb_arena_free(struct vb_arena *arena, uint64_t addr)
{
	struct vb_arena_block *block;

	pthread_mutex_lock(&arena->lock);
	block = arena_table_take(arena, addr);
	if (block) {
		arena->used--;
		arena->requested -= block->requested;
		arena->allocated -= block->size;
		remember_freed(arena, block);
		block->requested = 0;
		if (block->next && !block->next->requested) {
			bin_remove(arena, block->next);
			arena_join(block);
		}
		if (block->prev && !block->prev->requested) {
			block = block->prev;
			bin_remove(arena, block);
			arena_join(block);
		}
		bin_insert(arena, block);
	}
	pthread_mutex_unlock(&arena->lock);
	return block;
}

/* The newest of the freed blocks that held addr. */
static bool find_freed(const struct vb_arena *arena, uint64_t addr, struct vb_arena_place *out)
{
	for (size_t i = arena->frees; i > 0 && i + VB_ARENA_FREED > arena->frees; i--) {
		uint64_t start = arena->freed[(i - 1) % VB_ARENA_FREED].addr;
		uint64_t size = arena->freed[(i - 1) % VB_ARENA_FREED].size;

		if (addr >= start && addr - start < size) {
			*out = (struct vb_arena_place){ start, size, true };
			return true;
		}
	}
	return false;
}

bool vb_arena_find(struct vb_arena *arena, uint64_t addr, struct vb_arena_place *out)
{
	const struct vb_arena_block *used = NULL;
	bool found = true;

	pthread_mutex_lock(&arena->lock);
	for (const struct vb_arena_block *block = arena->first; block && block->addr <= addr;
	     block = block->next)
		if (block->requested)
			used = block;
	/* One that holds it now comes before one that did, and that before a neighbour. */
	if (!(used && addr - used->addr < used->size) && find_freed(arena, addr, out))
		used = NULL;
	else
		found = used;
	if (used)
		*out = (struct vb_arena_place){ used->addr, used->requested, false };
	pthread_mutex_unlock(&arena->lock);
	return found;
}

// SPDX-License-Identifier: MIT
/*
 * Owns the blocks of the heaps in checked mode: the device program's malloc, and what the host
 * gives out of the device heap.
 *
 *	| block     | zone | block | zone |          accesses to zones, to freed blocks and to what
 *	                                             nobody has are findings
 *
 *	given --> table --> freed: quarantine, the oldest leave it first --> arena
 *
 * A freed block stays in the table, with both traces, until its memory can be given out again.
 */
#include "dpa/observe/check.h"

#include <errno.h>
#include <stdlib.h>

#define ZONE_MIN    64
#define ZONE_MAX    2048
#define NEAR        4096 /* how far away a block still says something */
#define TABLE_FIRST 1024

/* Bytes behind a block that belong to nobody: the more, the larger it is. */
static uint64_t zone_of(uint64_t size)
{
	uint64_t zone = size / 8 & ~(uint64_t)(ZONE_MIN - 1);

	return zone < ZONE_MIN ? ZONE_MIN : zone > ZONE_MAX ? ZONE_MAX : zone;
}

static uint64_t rounded(uint64_t size)
{
	return (size + VB_ARENA_ALIGN - 1) & ~(uint64_t)(VB_ARENA_ALIGN - 1);
}

/* ---- the table ---- */

static struct block **check_blocks_bucket_of(struct check *c, uint64_t addr)
{
	return &c->table[(addr / VB_ARENA_ALIGN * 0x9e3779b97f4a7c15ULL >> 20) &
			 (c->table_size - 1)];
}

static void check_blocks_table_put(struct check *c, struct block *b)
{
	struct block **bucket = check_blocks_bucket_of(c, b->addr);

	b->next = *bucket;
	*bucket = b;
}

/* Longer chains are slower, and nothing else: no memory is no error. */
static void check_blocks_table_grow(struct check *c)
{
	struct block **old = c->table, *b;
	size_t size = c->table_size;

	if (c->count < c->table_size)
		return;
	c->table = calloc(2 * size, sizeof(*c->table));
	if (!c->table) {
		c->table = old;
		return;
	}
	c->table_size = 2 * size;
	for (size_t i = 0; i < size; i++)
		while ((b = old[i])) {
			old[i] = b->next;
			check_blocks_table_put(c, b);
		}
	free(old);
}

static struct block *table_find(struct check *c, uint64_t addr)
{
	struct block *b = *check_blocks_bucket_of(c, addr);

	while (b && b->addr != addr)
		b = b->next;
	return b;
}

static void check_blocks_table_remove(struct check *c, struct block *gone)
{
	struct block **link = check_blocks_bucket_of(c, gone->addr);

	while (*link != gone)
		link = &(*link)->next;
	*link = gone->next;
	c->count--;
}

/* ---- quarantine ---- */

static bool evict(struct check *c, struct check_heap *heap)
{
	struct block *b = heap->oldest;

	if (!b)
		return false;
	heap->oldest = b->queue_next;
	if (!heap->oldest)
		heap->youngest = NULL;
	heap->quarantine -= b->size + zone_of(b->size);
	vb_check_clear_reach(c, b->addr, b->size + zone_of(b->size), 0);
	check_blocks_table_remove(c, b);
	vb_arena_free(heap->arena, b->addr);
	free(b);
	return true;
}

static void put_away(struct check *c, struct check_heap *heap, struct block *b)
{
	b->queue_next = NULL;
	if (heap->youngest)
		heap->youngest->queue_next = b;
	else
		heap->oldest = b;
	heap->youngest = b;
	heap->quarantine += b->size + zone_of(b->size);
	while (heap->quarantine > heap->quarantine_max && evict(c, heap))
		;
}

/* ---- giving and taking ---- */

/*
 * A search in a heap of many pieces is long, and device code can make it search in vain: twice as
 * many blocks leave quarantine each time, so that the searches are few.
 */
static uint64_t check_blocks_find_room(struct check *c, struct check_heap *heap, uint64_t size,
				       uint64_t align)
{
	uint64_t addr;

	for (uint64_t n = 1; !(addr = vb_arena_alloc(heap->arena, size, align)); n *= 2) {
		if (!heap->oldest)
			return 0;
		for (uint64_t i = 0; i < n && evict(c, heap); i++)
			;
	}
	return addr;
}

uint64_t vb_block_give(struct check *c, enum check_owner owner, uint64_t size, uint64_t align,
		       const struct trace *by)
{
	struct check_heap *heap = &c->heaps[owner];
	struct block *b;
	uint64_t addr = 0;

	if (!heap->arena || size > heap->len || align > heap->len)
		return 0;
	b = calloc(1, sizeof(*b));
	if (!b)
		return 0;
	if (align < VB_ARENA_ALIGN)
		align = VB_ARENA_ALIGN;
	pthread_mutex_lock(&c->lock);
	addr = check_blocks_find_room(c, heap, size + zone_of(size), align);
	if (addr) {
		*b = (struct block){ .addr = addr, .size = size, .given = *by, .owner = owner };
		check_blocks_table_grow(c);
		check_blocks_table_put(c, b);
		c->count++;
		heap->requested += size;
		heap->allocated += rounded(size);
		vb_check_set_reach(c, addr, size);
		vb_check_clear_reach(c, (addr + size + 7) & ~7ULL, zone_of(size) & ~7ULL,
				     REACH_ZONE);
	}
	pthread_mutex_unlock(&c->lock);
	if (!addr)
		free(b);
	return addr;
}

bool vb_block_take(struct check *c, enum check_owner owner, uint64_t addr, const struct trace *by,
		   struct finding *f)
{
	struct check_heap *heap = &c->heaps[owner];
	struct block *b;
	bool good;

	pthread_mutex_lock(&c->lock);
	b = table_find(c, addr);
	good = b && !b->is_freed && b->owner == owner;
	if (good) {
		b->is_freed = true;
		b->freed = *by;
		heap->requested -= b->size;
		heap->allocated -= rounded(b->size);
		vb_check_clear_reach(c, addr, b->size, REACH_FREED);
		put_away(c, heap, b);
	} else if (b) {
		f->kind = b->is_freed ? FIND_DOUBLE_FREE : FIND_WRONG_FREE;
	} else {
		f->kind = FIND_BAD_FREE;
	}
	pthread_mutex_unlock(&c->lock);
	return good;
}

bool vb_block_size(struct check *c, enum check_owner owner, uint64_t addr, uint64_t *size)
{
	struct block *b;
	bool good;

	pthread_mutex_lock(&c->lock);
	b = table_find(c, addr);
	good = b && !b->is_freed && b->owner == owner;
	if (good)
		*size = b->size;
	pthread_mutex_unlock(&c->lock);
	return good;
}

/* Bytes between addr and the block. */
static uint64_t check_blocks_distance(const struct block *b, uint64_t addr)
{
	if (addr < b->addr)
		return b->addr - addr;
	return addr - b->addr < b->size ? 0 : addr - b->addr - b->size + 1;
}

/* Slow: a finding is rare, and there are few. */
struct block *vb_block_near(struct check *c, uint64_t addr)
{
	struct block *best = NULL;

	for (size_t i = 0; i < c->table_size; i++)
		for (struct block *b = c->table[i]; b; b = b->next)
			if (check_blocks_distance(b, addr) <
			    (best ? check_blocks_distance(best, addr) : NEAR))
				best = b;
	return best;
}

bool vb_dpa_check_find(struct vb_dpa_process *process, uint64_t addr, struct vb_arena_place *out)
{
	struct check *c = process->check;
	struct block *best = NULL;

	pthread_mutex_lock(&c->lock);
	for (size_t i = 0; i < c->table_size; i++)
		for (struct block *b = c->table[i]; b; b = b->next)
			if (b->owner == OWNER_HEAP && b->addr <= addr &&
			    (!best || b->addr > best->addr))
				best = b;
	if (best)
		*out = (struct vb_arena_place){ .addr = best->addr,
						.size = best->size,
						.freed = best->is_freed };
	pthread_mutex_unlock(&c->lock);
	return best;
}

/* ---- all of them ---- */

int vb_blocks_init(struct check *c)
{
	c->table_size = TABLE_FIRST;
	c->table = calloc(c->table_size, sizeof(*c->table));
	return c->table ? 0 : -ENOMEM;
}

void vb_blocks_free(struct check *c)
{
	for (size_t i = 0; c->table && i < c->table_size; i++)
		for (struct block *b = c->table[i], *next; b; b = next) {
			next = b->next;
			free(b);
		}
	free(c->table);
}

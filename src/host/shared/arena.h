/* SPDX-License-Identifier: MIT */
/* A range of addresses that is given out in blocks, with all bookkeeping outside of it. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/public.h"

struct vb_arena_block;

enum { VB_ARENA_FREED = 64 }; /* blocks that are remembered after they were freed */

struct vb_arena {
	pthread_mutex_t lock;
	uint64_t base, size;
	size_t requested, allocated;
	struct vb_arena_block *bins[48]; /* free blocks by the logarithm of their size */
	struct vb_arena_block **table;   /* used blocks by address */
	size_t table_size, used;
	struct vb_arena_block *first; /* the one with the lowest address */
	struct {
		uint64_t addr, size;
	} freed[VB_ARENA_FREED]; /* a ring */
	size_t frees;            /* so far */
};

#define VB_ARENA_ALIGN 64

/* Of blocks in use: bytes that were asked for, and that they take. */
struct vb_arena_usage {
	size_t requested, allocated;
};

/* -ENOMEM. */
VB_PUBLIC int vb_arena_init(struct vb_arena *arena, uint64_t base, uint64_t size);
/* Also of one that is all zero. */
VB_PUBLIC void vb_arena_destroy(struct vb_arena *arena);
/* align: a power of two, at least VB_ARENA_ALIGN. 0: no room, or no memory for the bookkeeping. */
VB_PUBLIC uint64_t vb_arena_alloc(struct vb_arena *arena, uint64_t size, uint64_t align);
VB_PUBLIC void vb_arena_usage(struct vb_arena *arena, struct vb_arena_usage *usage);
/* False: not the address of a block in use. */
VB_PUBLIC bool vb_arena_free(struct vb_arena *arena, uint64_t addr);

/* A block, in use or freed. */
struct vb_arena_place {
	uint64_t addr, size; /* as it was asked for */
	bool freed;
};

/*
 * The block that holds addr, or held it and was freed not long ago, or the last one in use before
 * it. False: none. Walks over all blocks.
 */
VB_PUBLIC bool vb_arena_find(struct vb_arena *arena, uint64_t addr, struct vb_arena_place *out);

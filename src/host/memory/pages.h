/* SPDX-License-Identifier: MIT */
/*
 * Which pages of the range are free, and what the others are.
 *
 * Pages that are free lie in runs. A run has its length at its first and at its last page, so that
 * a neighbour that becomes free finds both ends, and hangs in the bin of its size:
 *
 *	state:  used | free free free free | used used | free | gone
 *	len:           4                 4               1
 *	bins:          [4] -> ...                        [1] -> ...
 *
 * All of it is bookkeeping: no page is touched here, and no lock is taken. The arrays are made
 * by the caller, zero, and only those parts of them are touched that stand for pages in use.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What a page is: one of the first four, with any of the marks. */
enum page_state {
	PAGE_FREE = 0,    /* nobody's; not mapped */
	PAGE_SHARED = 1,  /* the program's, in the memfd at the same offset */
	PAGE_PRIVATE = 2, /* the program's: private memory, or what it has mapped over its own */
	PAGE_GONE = 3,    /* not in our hands: unmapped, or mapped by others */
	PAGE_KIND = 3,
	PAGE_HEAD = 4, /* the first page of a block of malloc(), or, with length 0, of a mapping */
	PAGE_ODD = 8,  /* the mapping has marks of its own: locked, advice, nodes */
	PAGE_NOFORK = 16,   /* MADV_DONTFORK */
	PAGE_PROT = 7 << 5, /* PROT_READ, PROT_WRITE, PROT_EXEC */
};

#define PAGE_PROT_SHIFT 5
#define PAGE_RW         (3 << PAGE_PROT_SHIFT)
#define PAGES_NONE      UINT32_MAX

enum { PAGES_BINS = 128, PAGES_LOOKS = 16 };

struct page_info {
	uint32_t len;        /* of the free run, at both ends; of the block, at its head */
	uint32_t next, prev; /* first pages of runs in the same bin, plus 1; 0: none */
};

struct pages {
	uint32_t count;
	uint64_t number; /* of the first page: its address divided by the size of a page */
	uint8_t *state;
	struct page_info *info;
	uint32_t bin[PAGES_BINS]; /* first page of a run, plus 1 */
	uint64_t full[PAGES_BINS / 64];
};

/* All are free. state and info are zero. */
void pages_init(struct pages *pages, uint64_t number, uint32_t count, uint8_t *state,
		struct page_info *info);

/*
 * count pages in a row, the first of them at a multiple of align pages (a power of two) of the
 * address space. They leave the free ones with a state. PAGES_NONE: there are none.
 */
uint32_t pages_take(struct pages *pages, uint32_t count, uint32_t align, uint8_t state);
/* Just these; false where one of them is not free. */
bool pages_take_at(struct pages *pages, uint32_t first, uint32_t count, uint8_t state);
/* They are free again. */
void pages_give(struct pages *pages, uint32_t first, uint32_t count);

/* How many pages, up to end, are as the first is in the bits of mask. */
uint32_t pages_alike(const struct pages *pages, uint32_t first, uint32_t end, uint8_t mask);

// SPDX-License-Identifier: MIT
/*
 * Owns the search for leaks: blocks of the device's malloc that no word of memory leads to any more.
 * Roots are all memory of the process that can be written, apart from malloc's own, and blocks of
 * the device heap; then what reachable blocks lead to.
 *
 * Nothing runs: the process is about to be destroyed.
 */
#include "dpa/observe/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "host/fault.h"

#define SHOWN 20 /* places */

struct hunt {
	struct check *c;
	struct block **blocks; /* in use, of malloc, by address */
	size_t n;
	struct block **todo; /* reached, not yet looked into */
	size_t ntodo;
	uint64_t lo, hi; /* where they are */
};

static int check_leaks_by_address(const void *a, const void *b)
{
	const struct block *x = *(struct block *const *)a, *y = *(struct block *const *)b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

static void check_leaks_look_at(struct hunt *h, uint64_t word)
{
	size_t lo = 0, hi = h->n;
	struct block *b;

	if (word - h->lo >= h->hi - h->lo)
		return;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (h->blocks[mid]->addr <= word)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return;
	b = h->blocks[lo - 1];
	/* One past the end is a pointer to it as well. */
	if (b->reached || word - b->addr > b->size)
		return;
	b->reached = true;
	h->todo[h->ntodo++] = b;
}

static void check_leaks_look_into(struct hunt *h, uint64_t addr, uint64_t len)
{
	uint64_t words[512];

	addr = (addr + 7) & ~7ULL;
	for (uint64_t part; len >= 8; addr += part, len -= part) {
		part = sizeof(words) - addr % sizeof(words);
		part = part < (len & ~7ULL) ? part : len & ~7ULL;
		if (vb_view_read(vb_space_view(&h->c->process->space, addr), words, part))
			continue;
		for (uint64_t i = 0; i < part / 8; i++)
			check_leaks_look_at(h, words[i]);
	}
}

/* Pages that nobody has touched are zero, and reading would make them. */
static void look_into_pages(struct hunt *h, uint64_t addr, uint64_t len)
{
	uint64_t page = h->c->process->space.page;
	unsigned char there[1024];

	for (uint64_t part; len; addr += part, len -= part) {
		part = len < sizeof(there) * page ? len : sizeof(there) * page;
		if (mincore(h->c->process->space.base + addr, part, there))
			memset(there, 1, sizeof(there));
		for (uint64_t i = 0; i < part / page; i++)
			if (there[i] & 1)
				check_leaks_look_into(h, addr + i * page, page);
	}
}

static void look_into_roots(struct hunt *h)
{
	const struct check_heap *own = &h->c->heaps[OWNER_MALLOC];
	struct vb_dpa_range range;

	for (uint64_t at = 0; vb_dpa_mem_next(h->c->process, at, &range);
	     at = range.addr + range.len) {
		uint64_t end = range.addr + range.len;

		if (!(range.rights & VB_DPA_WRITE))
			continue;
		/* The arena may be one range with its neighbours. */
		if (range.addr < own->base + own->len && end > own->base) {
			if (range.addr < own->base)
				look_into_pages(h, range.addr, own->base - range.addr);
			if (end > own->base + own->len)
				look_into_pages(h, own->base + own->len,
						end - own->base - own->len);
			continue;
		}
		look_into_pages(h, range.addr, range.len);
	}
}

/* ---- words ---- */

struct leak {
	const struct trace *given;
	uint64_t blocks, bytes;
};

static int by_trace(const void *a, const void *b)
{
	const struct block *x = *(struct block *const *)a, *y = *(struct block *const *)b;

	return memcmp(x->given.frames, y->given.frames, sizeof(x->given.frames));
}

static int by_bytes(const void *a, const void *b)
{
	const struct leak *x = a, *y = b;

	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static size_t sum_up(struct block **blocks, size_t n, struct leak *leaks)
{
	size_t places = 0;

	qsort(blocks, n, sizeof(*blocks), by_trace);
	for (size_t i = 0; i < n; i++) {
		if (!i || by_trace(&blocks[i - 1], &blocks[i]))
			leaks[places++] = (struct leak){ .given = &blocks[i]->given };
		leaks[places - 1].blocks++;
		leaks[places - 1].bytes += blocks[i]->size;
	}
	qsort(leaks, places, sizeof(*leaks), by_bytes);
	return places;
}

static void check_leaks_report(struct check *c, struct block **blocks, size_t n)
{
	struct leak *leaks = calloc(n, sizeof(*leaks));
	char line[128], *text = NULL;
	uint64_t bytes = 0;
	size_t places, len;
	FILE *out = leaks ? open_memstream(&text, &len) : NULL;

	if (!out) {
		free(leaks);
		return;
	}
	places = sum_up(blocks, n, leaks);
	for (size_t i = 0; i < places; i++)
		bytes += leaks[i].bytes;
	snprintf(line, sizeof(line),
		 "leak: %" PRIu64 " bytes in %zu blocks, by malloc of the device", bytes, n);
	fprintf(out, "Check of device code, process %s\n  %s\n", c->process->name, line);
	for (size_t i = 0; i < places && i < SHOWN; i++) {
		fprintf(out, "  %" PRIu64 " bytes in %" PRIu64 " blocks, allocated at:\n",
			leaks[i].bytes, leaks[i].blocks);
		vb_report_trace(out, c, leaks[i].given);
	}
	if (places > SHOWN)
		fprintf(out, "  and at %zu more places\n", places - SHOWN);
	if (!fclose(out))
		vb_report_give(c, VB_DPA_FOUND_LEAK, line, text);
	free(text);
	free(leaks);
}

/* ---- the search ---- */

static bool check_leaks_collect(struct hunt *h)
{
	struct check *c = h->c;

	h->blocks = calloc(c->count + 1, sizeof(*h->blocks));
	h->todo = calloc(c->count + 1, sizeof(*h->todo));
	if (!h->blocks || !h->todo)
		return false;
	for (size_t i = 0; i < c->table_size; i++)
		for (struct block *b = c->table[i]; b; b = b->next)
			if (b->owner == OWNER_MALLOC && !b->is_freed) {
				b->reached = false;
				h->blocks[h->n++] = b;
			}
	qsort(h->blocks, h->n, sizeof(*h->blocks), check_leaks_by_address);
	return h->n;
}

static void kept(struct check *c)
{
	char line[160];
	size_t n = 0;

	for (size_t i = 0; i < c->table_size; i++)
		for (struct block *b = c->table[i]; b; b = b->next)
			n += b->owner == OWNER_HEAP && !b->is_freed;
	if (!n)
		return;
	snprintf(line, sizeof(line),
		 "%zu buffers of the device heap, %" PRIu64 " bytes, were not freed", n,
		 c->heaps[OWNER_HEAP].requested);
	vb_report_give(c, VB_DPA_FOUND_KEPT, line, "");
}

void vb_dpa_check_leaks(struct vb_dpa_process *process)
{
	struct hunt h = { .c = process->check };
	size_t lost = 0;

	if (!h.c || !(h.c->checks & VB_CHECK_HEAP))
		return;
	if (check_leaks_collect(&h)) {
		h.lo = h.blocks[0]->addr;
		h.hi = h.blocks[h.n - 1]->addr + h.blocks[h.n - 1]->size + 1;
		look_into_roots(&h);
		while (h.ntodo) {
			struct block *b = h.todo[--h.ntodo];

			check_leaks_look_into(&h, b->addr, b->size);
		}
		for (size_t i = 0; i < h.n; i++)
			if (!h.blocks[i]->reached)
				h.blocks[lost++] = h.blocks[i];
		if (lost)
			check_leaks_report(h.c, h.blocks, lost);
	}
	kept(h.c);
	free(h.blocks);
	free(h.todo);
}

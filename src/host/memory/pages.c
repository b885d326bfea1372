// SPDX-License-Identifier: MIT
/* Owns the runs of free pages: pages.h. */
#include "host/memory/pages.h"

#include <string.h>

/* Sizes of one bin differ by less than a quarter. */
static uint32_t pages_bin_of(uint32_t count)
{
	uint32_t log = 31 - (uint32_t)__builtin_clz(count);

	return log < 2 ? count : log * 4 + (count >> (log - 2) & 3);
}

static void put(struct pages *pages, uint32_t first, uint32_t count)
{
	uint32_t bin = pages_bin_of(count), next = pages->bin[bin];

	pages->info[first] = (struct page_info){ .len = count, .next = next };
	pages->info[first + count - 1].len = count;
	if (next)
		pages->info[next - 1].prev = first + 1;
	pages->bin[bin] = first + 1;
	pages->full[bin / 64] |= 1ull << bin % 64;
}

static void pages_cut(struct pages *pages, uint32_t first)
{
	struct page_info *run = &pages->info[first];
	uint32_t bin = pages_bin_of(run->len);

	if (run->next)
		pages->info[run->next - 1].prev = run->prev;
	if (run->prev)
		pages->info[run->prev - 1].next = run->next;
	else
		pages->bin[bin] = run->next;
	if (!pages->bin[bin])
		pages->full[bin / 64] &= ~(1ull << bin % 64);
}

void pages_init(struct pages *pages, uint64_t number, uint32_t count, uint8_t *state,
		struct page_info *info)
{
	*pages = (struct pages){ .count = count, .number = number, .state = state, .info = info };
	put(pages, 0, count);
}

/* A run of at least so many pages; PAGES_NONE: none was found. */
static uint32_t pages_find(const struct pages *pages, uint32_t count)
{
	uint32_t bin = pages_bin_of(count), run = pages->bin[bin];
	uint64_t rest;

	/* Some of the first bin may be too short; all of those that follow are long enough. */
	for (int i = 0; run && i < PAGES_LOOKS; i++, run = pages->info[run - 1].next)
		if (pages->info[run - 1].len >= count)
			return run - 1;
	for (uint32_t i = (bin + 1) / 64; bin + 1 < PAGES_BINS && i < PAGES_BINS / 64; i++) {
		rest = pages->full[i];
		if (i == (bin + 1) / 64)
			rest &= ~0ull << (bin + 1) % 64;
		if (rest)
			return pages->bin[i * 64 + (uint32_t)__builtin_ctzll(rest)] - 1;
	}
	return PAGES_NONE;
}

/* Take pages out of the run that starts at run. */
static void carve(struct pages *pages, uint32_t run, uint32_t first, uint32_t count, uint8_t state)
{
	uint32_t end = run + pages->info[run].len;

	pages_cut(pages, run);
	if (first > run)
		put(pages, run, first - run);
	if (first + count < end)
		put(pages, first + count, end - first - count);
	memset(&pages->state[first], state, count);
}

uint32_t pages_take(struct pages *pages, uint32_t count, uint32_t align, uint8_t state)
{
	uint32_t run, first;

	if (!count || count > pages->count || align > pages->count - count + 1)
		return PAGES_NONE;
	run = pages_find(pages, count + align - 1);
	if (run == PAGES_NONE)
		return PAGES_NONE;
	first = run + (uint32_t)(-(pages->number + run) & (align - 1));
	carve(pages, run, first, count, state);
	return first;
}

bool pages_take_at(struct pages *pages, uint32_t first, uint32_t count, uint8_t state)
{
	uint32_t run = first;

	if (!count || first >= pages->count || count > pages->count - first)
		return false;
	for (uint32_t i = 0; i < count; i++)
		if ((pages->state[first + i] & PAGE_KIND) != PAGE_FREE)
			return false;
	while (run && (pages->state[run - 1] & PAGE_KIND) == PAGE_FREE)
		run--;
	carve(pages, run, first, count, state);
	return true;
}

void pages_give(struct pages *pages, uint32_t first, uint32_t count)
{
	uint32_t end = first + count;

	memset(&pages->state[first], PAGE_FREE, count);
	if (end < pages->count && pages->state[end] == PAGE_FREE) {
		count += pages->info[end].len;
		pages_cut(pages, end);
	}
	if (first && pages->state[first - 1] == PAGE_FREE) {
		first -= pages->info[first - 1].len;
		count += pages->info[first].len;
		pages_cut(pages, first);
	}
	put(pages, first, count);
}

uint32_t pages_alike(const struct pages *pages, uint32_t first, uint32_t end, uint8_t mask)
{
	const uint64_t all = 0x0101010101010101ull;
	uint64_t like = (pages->state[first] & mask) * all, eight;
	uint32_t i = first + 1;

	/* Runs are long. */
	for (; end - i >= 8; i += 8) {
		memcpy(&eight, &pages->state[i], 8);
		if ((eight & mask * all) != like)
			break;
	}
	while (i < end && !((pages->state[i] ^ pages->state[first]) & mask))
		i++;
	return i - first;
}

// SPDX-License-Identifier: MIT
/*
 * Owns the pages of the range: how they come to the program and go back.
 *
 * A free page is not mapped, as any other that the program does not have, and it is a hole in the
 * memfd: its content is zero when it is taken. It is mapped, and the hole punched again, through the
 * mirror (mirror.c), so nothing needs the descriptor, which the program may have closed.
 */
#include <errno.h>
#include <string.h>

#include "host/memory/libc.h"
#include "host/memory/memory.h"

struct memory memory = { .file = { .fd = -1 } };

#define PLAIN (PAGE_SHARED | PAGE_RW)

static size_t range_bytes_of(uint32_t count)
{
	return (size_t)count * MEMORY_PAGE;
}

static uint32_t page_of(const void *p)
{
	return (uint32_t)(((uintptr_t)p - atomic_load(&memory.base)) / MEMORY_PAGE);
}

static uint32_t range_kind_of(uint32_t page)
{
	return memory.pages.state[page] & PAGE_KIND;
}

bool memory_part(uintptr_t base, size_t len, uint32_t *first, uint32_t *count)
{
	size_t size = atomic_load_explicit(&memory.size, memory_order_acquire);
	uintptr_t start = atomic_load_explicit(&memory.base, memory_order_relaxed);
	uintptr_t end;

	if (!size || !len || __builtin_add_overflow(base, len - 1, &end) || end < start ||
	    base > start + size - 1)
		return false;
	if (base < start)
		base = start;
	if (end > start + size - 1)
		end = start + size - 1;
	*first = (uint32_t)((base - start) / MEMORY_PAGE);
	*count = (uint32_t)((end - start) / MEMORY_PAGE) - *first + 1;
	return true;
}

/* --- peers ------------------------------------------------------------------------------------ */

/*
 * Waits for peers that are in the middle of a copy, so the lock is not held: others go on
 * allocating.
 */
void memory_hide(uint32_t first, uint32_t count)
{
	enum memory_mode mode = atomic_load_explicit(&memory.mode, memory_order_acquire);

	if (count && (mode == MEMORY_OPEN || mode == MEMORY_CLOSED))
		memory.hooks.remove(memory_page(first), range_bytes_of(count));
}

void memory_show(uint32_t first, uint32_t count)
{
	uint32_t end = first + count, n;

	for (; first < end; first += n) {
		n = pages_alike(&memory.pages, first, end, PAGE_KIND | PAGE_RW);
		if ((memory.pages.state[first] & (PAGE_KIND | PAGE_RW)) == PLAIN)
			memory.hooks.add(memory_page(first), range_bytes_of(n), &memory.file,
					 (off_t)range_bytes_of(first));
	}
}

void memory_show_again(uint32_t first, uint32_t count)
{
	uint32_t shows = atomic_load_explicit(&memory.shows, memory_order_relaxed);

	if (memory.mode != MEMORY_OPEN && memory.mode != MEMORY_CLOSED)
		return;
	memory_show(first, count);
	memory.shown[shows % MEMORY_SHOWN] = (struct memory_pages){ first, count };
	/* Pairs with memory_hide_and_lock: a thread that reads this number hides pages afterwards. */
	atomic_store_explicit(&memory.shows, shows + 1, memory_order_release);
}

/* Whether one of the calls since then has shown some of these pages, or may have. */
static bool is_shown_since(uint32_t since, const struct memory_pages *part)
{
	uint32_t shows = atomic_load_explicit(&memory.shows, memory_order_relaxed);

	if (!part->count)
		return false;
	if (shows - since > MEMORY_SHOWN)
		return true;
	for (; since != shows; since++) {
		const struct memory_pages *shown = &memory.shown[since % MEMORY_SHOWN];

		if (shown->first < part->first + part->count &&
		    part->first < shown->first + shown->count)
			return true;
	}
	return false;
}

/* After some tries with the lock: nobody waits for ever. */
void memory_hide_and_lock(const struct memory_pages part[2], sigset_t *before)
{
	enum { TRIES = 8 };
	uint32_t since;

	for (int i = 0; i < TRIES; i++) {
		since = atomic_load_explicit(&memory.shows, memory_order_acquire);
		memory_hide(part[0].first, part[0].count);
		memory_hide(part[1].first, part[1].count);
		memory_lock(before);
		if (!is_shown_since(since, &part[0]) && !is_shown_since(since, &part[1]))
			return;
		if (i + 1 < TRIES)
			memory_unlock(before);
	}
	memory_hide(part[0].first, part[0].count);
	memory_hide(part[1].first, part[1].count);
}

/* --- pages come and go ------------------------------------------------------------------------ */

/* These pages begin no run any more that became private. */
static void lose_runs(uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++)
		memory.runs -= memory.pages.state[i] & PAGE_ODD && memory.marks[i] & MARK_RUN;
}

/* These pages, of the program until now, begin no block or mapping any more. */
static void lose_heads(uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++)
		memory.heads -= (memory.pages.state[i] & PAGE_HEAD) != 0;
}

/* What is left of a mapping begins at this page. */
static void begin_rest(uint32_t page)
{
	if (page >= memory.high || range_kind_of(page) != PAGE_SHARED ||
	    memory.pages.state[page] & PAGE_HEAD)
		return;
	memory.pages.state[page] |= PAGE_HEAD;
	memory.pages.info[page].len = 0;
	memory.heads++;
}

void memory_unmapped(uint32_t first, uint32_t count)
{
	uint32_t end = first + count, n;

	for (; first < end; first += n) {
		n = pages_alike(&memory.pages, first, end, PAGE_KIND);
		if (range_kind_of(first) == PAGE_FREE)
			continue;
		if (range_kind_of(first) != PAGE_GONE) {
			memory.used -= n;
			lose_heads(first, n);
			lose_runs(first, n);
		}
		pages_give(&memory.pages, first, n);
	}
	begin_rest(end);
}

/*
 * What a program has told the kernel of the nodes stays with the file. The kernel skips a policy that
 * this mapping has already, so it gets another one first.
 */
static void forget_policy(char *beside, size_t len)
{
	enum { DEFAULT = 0, PREFERRED = 1 };

	RAW(SYS_mbind, beside, len, PREFERRED, NULL, 0, 0);
	RAW(SYS_mbind, beside, len, DEFAULT, NULL, 0, 0);
}

void memory_punch_shared(uint32_t first, uint32_t count, char *beside)
{
	uint32_t end = first + count, at = first, n;
	char *there;

	for (; at < end; at += n) {
		n = pages_alike(&memory.pages, at, end, PAGE_KIND);
		if (range_kind_of(at) != PAGE_SHARED)
			continue;
		there = beside + range_bytes_of(at - first);
		if (memory.has_policies)
			forget_policy(there, range_bytes_of(n));
		memory_punch_at(there, n);
	}
}

/* The first shared page of these, or end. */
static uint32_t find_shared(uint32_t first, uint32_t end)
{
	while (first < end && range_kind_of(first) != PAGE_SHARED)
		first += pages_alike(&memory.pages, first, end, PAGE_KIND);
	return first;
}

/* Pages are found elsewhere first: without a mirror nothing leads to them afterwards. */
int memory_replace(uint32_t first, uint32_t count, memory_call *call, void *arg)
{
	uint32_t end = first + count, shared = find_shared(first, end);
	char *beside = shared < end ? memory_begin_beside(shared, end - shared) : NULL;
	int ret;

	if (shared < end && !beside)
		return -ENOMEM;
	ret = call(arg);
	if (!ret && beside)
		memory_punch_shared(shared, end - shared, beside);
	if (beside)
		memory_end_beside(beside, end - shared);
	return ret;
}

struct area {
	char *base;
	size_t len;
};

static int unmap_area(void *arg)
{
	const struct area *area = arg;

	return RAW(SYS_munmap, area->base, area->len) ? -errno : 0;
}

/* Where a limit leaves no room to find them elsewhere: what was written goes first. */
static int unmap_in_place(struct area *area, uint32_t first, uint32_t count)
{
	uint32_t end = first + count, n;

	for (; first < end; first += n) {
		n = pages_alike(&memory.pages, first, end, PAGE_KIND);
		if (range_kind_of(first) == PAGE_SHARED)
			RAW(SYS_madvise, memory_page(first), range_bytes_of(n), MADV_REMOVE);
	}
	return unmap_area(area);
}

/* One call for all of it, of which the kernel refuses the whole or nothing. */
int memory_unmap(char *base, size_t len, uint32_t first, uint32_t count)
{
	struct area area = { base, len };
	int ret = memory_replace(first, count, unmap_area, &area);

	if (ret == -ENOMEM && !memory.mirror)
		ret = unmap_in_place(&area, first, count);
	if (!ret)
		memory_unmapped(first, count);
	return ret;
}

void memory_release(uint32_t first, uint32_t count)
{
	if (!memory_unmap(memory_page(first), range_bytes_of(count), first, count))
		return;
	/* Sealed, or too many mappings: they stay, and are no block any more. */
	lose_heads(first, count);
	for (uint32_t i = first; i < first + count; i++)
		memory.pages.state[i] &= (uint8_t)~PAGE_HEAD;
}

/* Number i of the kept blocks goes back. Hidden: peers have lost it already. */
static void release_one(uint32_t i, bool hidden)
{
	uint32_t first = memory.kept[i].first, count = memory.kept[i].count;

	if (!hidden)
		memory_hide(first, count);
	memory.kept_blocks--;
	memory.kept_pages -= count;
	memmove(&memory.kept[i], &memory.kept[i + 1],
		(memory.kept_blocks - i) * sizeof(memory.kept[0]));
	memset(&memory.pages.state[first], PLAIN, count);
	memory_release(first, count);
}

void memory_release_kept(void)
{
	while (memory.kept_blocks)
		release_one(0, false);
}

void memory_release_kept_in(uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < memory.kept_blocks; i++)
		if (memory.kept[i].first < first + count &&
		    first < memory.kept[i].first + memory.kept[i].count) {
			memory_release_kept();
			return;
		}
}

/*
 * The smallest of the kept blocks with so many pages or a quarter more, at a multiple of align; or
 * PAGES_NONE. It stays as long as it is.
 */
static uint32_t take_kept(uint32_t *count, size_t align)
{
	uint32_t best = MEMORY_KEPT, first, n;

	for (uint32_t i = memory.kept_blocks; i-- > 0;) {
		n = memory.kept[i].count;
		if (n < *count || n - *count > *count / 4 || memory.kept[i].leaving ||
		    (uintptr_t)memory_page(memory.kept[i].first) & (align - 1))
			continue;
		if (best == MEMORY_KEPT || n < memory.kept[best].count)
			best = i;
		if (n == *count)
			break;
	}
	if (best == MEMORY_KEPT)
		return PAGES_NONE;
	first = memory.kept[best].first;
	*count = memory.kept[best].count;
	memory.kept[best] = memory.kept[--memory.kept_blocks];
	memory.kept_pages -= *count;
	memset(&memory.pages.state[first], PLAIN, *count);
	return first;
}

/* Whether the block can wait for the next one of about its size. */
static bool can_keep(uint32_t first, uint32_t count)
{
	if (count > MEMORY_KEPT_EACH || memory.mode != MEMORY_OPEN ||
	    memory.pages.state[first] != (PLAIN | PAGE_HEAD))
		return false;
	for (uint32_t i = 1; i < count; i++)
		if (memory.pages.state[first + i] != PLAIN)
			return false;
	return true;
}

/*
 * The block that was kept longest, or nearly so, makes room. It is hidden without the lock, so nobody
 * takes it meanwhile; others may release it. False: there is none.
 */
static bool range_make_room(sigset_t *before)
{
	uint32_t first, count, i = 0;

	while (i < memory.kept_blocks && memory.kept[i].leaving)
		i++;
	if (i == memory.kept_blocks)
		return false;
	memory.kept[i].leaving = true;
	first = memory.kept[i].first;
	count = memory.kept[i].count;
	memory_unlock(before);
	memory_hide(first, count);
	memory_lock(before);
	for (i = 0; i < memory.kept_blocks; i++)
		if (memory.kept[i].first == first && memory.kept[i].leaving) {
			release_one(i, true);
			break;
		}
	return true;
}

/* It stays shown to peers: its pages do not change. True: it waits. */
static bool range_keep(void *p, uint32_t first, uint32_t count, sigset_t *before)
{
	while (can_keep(first, count) && memory_block_bytes(p) == range_bytes_of(count)) {
		if (memory.kept_blocks < MEMORY_KEPT &&
		    memory.kept_pages + count <= MEMORY_KEPT_PAGES) {
			memory.kept[memory.kept_blocks].first = first;
			memory.kept[memory.kept_blocks].leaving = false;
			memory.kept[memory.kept_blocks++].count = count;
			memory.kept_pages += count;
			lose_heads(first, count);
			memset(&memory.pages.state[first], PAGE_KEPT, count);
			return true;
		}
		if (!range_make_room(before))
			return false;
	}
	return false;
}

/* Something was mapped past libc's functions at addresses that are free. */
static void note_strangers(uint32_t first, uint32_t count)
{
	unsigned char in;

	for (uint32_t i = first; i < first + count; i++)
		if (!RAW(SYS_mincore, memory_page(i), MEMORY_PAGE, &in))
			memory_forget(i, 1);
}

static uint32_t take_new(uint32_t count, size_t align)
{
	enum { TRIES = 8 };
	uint32_t first = PAGES_NONE;
	int ret = -ENOMEM;

	if (memory.heads >= MEMORY_HEADS)
		return PAGES_NONE;
	if (memory.used + count > memory.limit)
		memory_release_kept();
	if (memory.used + count > memory.limit)
		return PAGES_NONE;
	for (int i = 0; i < TRIES; i++) {
		first = pages_take(&memory.pages, count,
				   align > MEMORY_PAGE ? (uint32_t)(align / MEMORY_PAGE) : 1,
				   PLAIN);
		if (first == PAGES_NONE)
			return first;
		ret = memory_map_pages(first, count);
		if (!ret)
			break;
		pages_give(&memory.pages, first, count);
		if (ret == -EEXIST)
			note_strangers(first, count);
	}
	if (ret)
		return PAGES_NONE;
	memory.used += count;
	if (memory.high < first + count)
		memory.high = first + count;
	return first;
}

void *memory_take(size_t bytes, size_t align, bool block, bool *dirty)
{
	uint32_t count, first = PAGES_NONE;
	int err = errno;
	sigset_t before;

	*dirty = false;
	if (bytes > SIZE_MAX / 2 || align > SIZE_MAX / 2 ||
	    (bytes + align) / MEMORY_PAGE >= memory.pages.count)
		return NULL;
	count = bytes ? (uint32_t)((bytes + MEMORY_PAGE - 1) / MEMORY_PAGE) : 1;
	memory_lock(&before);
	if (memory.mode == MEMORY_OPEN && block) {
		first = take_kept(&count, align);
		*dirty = first != PAGES_NONE;
	}
	if (memory.mode == MEMORY_OPEN && first == PAGES_NONE)
		first = take_new(count, align);
	if (first != PAGES_NONE) {
		memory.pages.state[first] |= PAGE_HEAD;
		memory.pages.info[first].len = block ? count : 0;
		memory.heads++;
	}
	/* One that was kept is shown already. */
	if (first != PAGES_NONE && !*dirty)
		memory_show(first, count);
	memory_unlock(&before);
	errno = err;
	return first == PAGES_NONE ? NULL : memory_page(first);
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* No lock: it is the program's, which keeps it while it asks. */
size_t memory_block_bytes(const void *p)
{
	uint32_t page = page_of(p);

	if ((uintptr_t)p % MEMORY_PAGE || !(memory.pages.state[page] & PAGE_HEAD) ||
	    memory.pages.state[page] == PAGE_KEPT)
		return 0;
	return range_bytes_of(memory.pages.info[page].len);
}

bool memory_free(void *p)
{
	uint32_t first = page_of(p), count = (uint32_t)(memory_block_bytes(p) / MEMORY_PAGE);
	int err = errno;
	sigset_t before;
	bool there;

	if (!count)
		return false;
	memory_lock(&before);
	there = memory_block_bytes(p) == range_bytes_of(count);
	if (there && !range_keep(p, first, count, &before)) {
		memory_unlock(&before);
		memory_hide(first, count);
		memory_lock(&before);
		there = memory_block_bytes(p) == range_bytes_of(count);
		if (there)
			memory_release(first, count);
	}
	memory_unlock(&before);
	errno = err;
	return there;
}

static bool range_grow(uint32_t first, uint32_t count, uint32_t more)
{
	if (memory.mode != MEMORY_OPEN || range_kind_of(first) != PAGE_SHARED ||
	    memory.used + more > memory.limit ||
	    !pages_take_at(&memory.pages, first + count, more, PLAIN))
		return false;
	if (memory_map_pages(first + count, more)) {
		pages_give(&memory.pages, first + count, more);
		return false;
	}
	memory.used += more;
	if (memory.high < first + count + more)
		memory.high = first + count + more;
	memory_show(first + count, more);
	return true;
}

bool memory_resize(void *p, size_t bytes)
{
	uint32_t first = page_of(p), count = (uint32_t)(memory_block_bytes(p) / MEMORY_PAGE);
	int err = errno;
	sigset_t before;
	uint32_t want;
	bool done = true;

	if (bytes > range_bytes_of(memory.pages.count))
		return false;
	want = (uint32_t)((bytes + MEMORY_PAGE - 1) / MEMORY_PAGE);
	if (want < count)
		memory_hide(first + want, count - want);
	memory_lock(&before);
	if (want < count)
		memory_release(first + want, count - want);
	else if (want > count)
		done = range_grow(first, count, want - count);
	if (done)
		memory.pages.info[first].len = want;
	memory_unlock(&before);
	errno = err;
	return done;
}

void memory_drop_kept(void)
{
	sigset_t before;

	memory_lock(&before);
	memory_release_kept();
	memory_unlock(&before);
}

/* --- pages that others have ------------------------------------------------------------------- */

void memory_forget(uint32_t first, uint32_t count)
{
	uint32_t end = first + count, n;

	if (memory.high < end)
		memory.high = end;
	for (; first < end; first += n) {
		n = pages_alike(&memory.pages, first, end, PAGE_KIND);
		if (range_kind_of(first) == PAGE_FREE) {
			pages_take_at(&memory.pages, first, n, PAGE_GONE);
		} else if (range_kind_of(first) != PAGE_GONE) {
			memory.used -= n;
			lose_heads(first, n);
			lose_runs(first, n);
			memset(&memory.pages.state[first], PAGE_GONE, n);
		}
	}
	begin_rest(end);
}

/* A block is still one, and free() takes it. */
void memory_replaced(uint32_t first, uint32_t count, int prot, uint16_t marks)
{
	uint8_t state = (uint8_t)(PAGE_PRIVATE | prot << PAGE_PROT_SHIFT);
	uint32_t end = first + count, n;

	if (memory.high < end)
		memory.high = end;
	for (uint32_t at = first; at < end; at += n) {
		n = pages_alike(&memory.pages, at, end, PAGE_KIND);
		if (range_kind_of(at) == PAGE_FREE || range_kind_of(at) == PAGE_GONE)
			memory.used += n;
		if (range_kind_of(at) == PAGE_FREE)
			pages_take_at(&memory.pages, at, n, state);
		lose_runs(at, n);
		for (uint32_t i = at; i < at + n; i++)
			memory.pages.state[i] = (memory.pages.state[i] & PAGE_HEAD) | state;
	}
	memory_mark(first, count, 0, marks);
	begin_rest(end);
}

// SPDX-License-Identifier: MIT
/*
 * Owns the way of a page from the memfd to private memory, with all that the program has said of it:
 * content, rights, advice, locks, nodes. Called where the kernel does with private memory what it does
 * not do with a file: mmap.c, remap.c, fork_copy.c.
 *
 * The copy is made elsewhere, gets its marks before its content, and is then moved over the pages in one
 * system call. What other threads write to the pages in that moment may be lost, unless they have lost
 * the right before.
 */
#include <errno.h>
#include <string.h>

#include "host/memory/libc.h"
#include "host/memory/memory.h"

static size_t memory_private_bytes_of(uint32_t count)
{
	return (size_t)count * MEMORY_PAGE;
}

static uint32_t memory_private_kind_of(uint32_t page)
{
	return memory.pages.state[page] & PAGE_KIND;
}

static int memory_private_prot_of(uint32_t page)
{
	return (memory.pages.state[page] & PAGE_PROT) >> PAGE_PROT_SHIFT;
}

/* --- marks ------------------------------------------------------------------------------------ */

uint16_t memory_marks(uint32_t page)
{
	uint16_t marks = memory.pages.state[page] & PAGE_ODD ? memory.marks[page] & ~MARK_RUN : 0;

	return memory.locked_all ? marks | MARK_LOCKED : marks;
}

void memory_mark(uint32_t first, uint32_t count, uint16_t clear, uint16_t set)
{
	for (uint32_t i = first; i < first + count; i++) {
		uint8_t *state = &memory.pages.state[i];

		if (memory_private_kind_of(i) != PAGE_SHARED &&
		    memory_private_kind_of(i) != PAGE_PRIVATE)
			continue;
		if (!(*state & PAGE_ODD)) {
			if (!set)
				continue;
			memory.marks[i] = 0;
			*state |= PAGE_ODD;
		}
		memory.marks[i] = (uint16_t)((memory.marks[i] & ~clear) | set);
	}
}

uint32_t memory_alike(uint32_t first, uint32_t end, uint8_t mask)
{
	uint32_t n = pages_alike(&memory.pages, first, end, mask | PAGE_ODD), i = 1;

	if (!(memory.pages.state[first] & PAGE_ODD))
		return n;
	while (i < n && memory.marks[first + i] == memory.marks[first])
		i++;
	return i;
}

int memory_mark_copy(char *at, size_t len, uint32_t page)
{
	static const struct {
		uint16_t mark;
		int advice;
	} advices[] = {
		{ MARK_DONTDUMP, MADV_DONTDUMP }, { MARK_HUGE, MADV_HUGEPAGE },
		{ MARK_NOHUGE, MADV_NOHUGEPAGE }, { MARK_SEQUENTIAL, MADV_SEQUENTIAL },
		{ MARK_RANDOM, MADV_RANDOM },     { MARK_MERGEABLE, MADV_MERGEABLE },
		{ MARK_WIPE, MADV_WIPEONFORK },
	};
	uint16_t marks = memory_marks(page);

	for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++)
		if (marks & advices[i].mark && RAW(SYS_madvise, at, len, advices[i].advice))
			return -errno;
	if (memory.pages.state[page] & PAGE_NOFORK && RAW(SYS_madvise, at, len, MADV_DONTFORK))
		return -errno;
	return 0;
}

static bool lock_copy(char *at, size_t len, uint32_t page)
{
	uint16_t marks = memory_marks(page);
	int flags = marks & MARK_ONFAULT ? MLOCK_ONFAULT : 0;

	return !(marks & MARK_LOCKED) || !RAW(SYS_mlock2, at, len, flags);
}

/* Which nodes have the memory: asked for page by page, as the kernel answers. */
static void copy_policy(uint32_t first, uint32_t count, char *to)
{
	enum { OF_ADDRESS = 2, NODES = 1024 };
	unsigned long nodes[NODES / (8 * sizeof(long))];
	int mode;

	for (uint32_t i = 0; memory.has_policies && i < count; i++) {
		memset(nodes, 0, sizeof(nodes));
		if (!RAW(SYS_get_mempolicy, &mode, nodes, NODES, memory_page(first + i),
			 OF_ADDRESS) &&
		    mode)
			RAW(SYS_mbind, to + memory_private_bytes_of(i), MEMORY_PAGE, mode, nodes,
			    NODES, 0);
	}
}

/* --- pages leave ------------------------------------------------------------------------------ */

/* One run of shared pages, and their copy. */
struct leaving {
	uint32_t first, count;
	char *to;
};

/* What can be said of the copy before it has content. */
static int memory_private_mark_all(const struct leaving *run)
{
	uint32_t n;
	int ret = 0;

	for (uint32_t i = 0; i < run->count && !ret; i += n) {
		n = memory_alike(run->first + i, run->first + run->count, PAGE_NOFORK);
		ret = memory_mark_copy(run->to + memory_private_bytes_of(i),
				       memory_private_bytes_of(n), run->first + i);
	}
	copy_policy(run->first, run->count, run->to);
	return ret;
}

/* Pages with the same rights and marks, which the kernel moves in one call. */
static int move_alike(const struct leaving *run, uint32_t at, uint32_t n)
{
	char *copy = run->to + memory_private_bytes_of(at), *page = memory_page(run->first + at);
	bool locked = lock_copy(copy, memory_private_bytes_of(n), run->first + at);
	int prot = memory_private_prot_of(run->first + at);

	if (prot != (PROT_READ | PROT_WRITE) &&
	    RAW(SYS_mprotect, copy, memory_private_bytes_of(n), prot))
		return -errno;
	if (RAW(SYS_mremap, copy, memory_private_bytes_of(n), memory_private_bytes_of(n),
		MREMAP_MAYMOVE | MREMAP_FIXED, page) != (long)page)
		return -errno;
	/* Both together may have been more than may be locked. */
	if (!locked)
		lock_copy(page, memory_private_bytes_of(n), run->first + at);
	return 0;
}

/* So many pages at the beginning of the run became private; -errno: why not all. */
static int memory_private_move_all(const struct leaving *run, char *beside, uint32_t *moved)
{
	uint32_t n;
	int ret;

	for (*moved = 0; *moved < run->count; *moved += n) {
		uint32_t at = run->first + *moved;

		/* Pages with policies may each be a mapping of its own. */
		n = memory_marks(at) & MARK_NODES
			    ? 1
			    : memory_alike(at, run->first + run->count, PAGE_PROT | PAGE_NOFORK);
		ret = move_alike(run, *moved, n);
		if (ret)
			return ret;
		memory_punch_shared(at, n, beside + memory_private_bytes_of(*moved));
		for (uint32_t i = at; i < at + n; i++)
			memory.pages.state[i] ^= PAGE_SHARED ^ PAGE_PRIVATE;
		memory_mark(at, 1, 0, MARK_RUN);
		memory.runs++;
	}
	return 0;
}

static int make_run_private(uint32_t first, uint32_t count)
{
	struct leaving run = { first, count, NULL };
	size_t len = memory_private_bytes_of(count);
	uint32_t moved = 0;
	char *beside;
	int ret;

	run.to = (char *)RAW(SYS_mmap, NULL, len, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (run.to == MAP_FAILED)
		return -ENOMEM;
	ret = memory_private_mark_all(&run);
	if (!ret)
		ret = memory_copy(first, count, run.to);
	beside = ret ? NULL : memory_begin_beside(first, count);
	if (!ret && !beside)
		ret = -ENOMEM;
	if (!ret)
		ret = memory_private_move_all(&run, beside, &moved);
	if (beside)
		memory_end_beside(beside, count);
	if (moved < count)
		RAW(SYS_munmap, run.to + memory_private_bytes_of(moved),
		    len - memory_private_bytes_of(moved));
	return ret;
}

int memory_make_private(uint32_t first, uint32_t count)
{
	uint32_t end = first + count, n;
	int ret = 0;

	for (; first < end && !ret; first += n) {
		n = pages_alike(&memory.pages, first, end, PAGE_KIND);
		if (memory_private_kind_of(first) == PAGE_SHARED)
			ret = make_run_private(first, n);
	}
	return ret;
}

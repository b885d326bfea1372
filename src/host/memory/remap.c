// SPDX-License-Identifier: MIT
/*
 * Owns mremap() of pages of the range.
 *
 *	smaller            the kernel unmaps what is behind
 *	larger, with room  the kernel makes the last mapping longer: behind page N of the file is page N + 1
 *	moved              page N of the range is page N of the file, and peers rely on it: so the pages
 *	                   become private, and the kernel moves those
 *
 * What is one mapping to the program may be several to the kernel, where some of its pages were private
 * before others. Then they are copied.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "host/memory/libc.h"
#include "host/memory/memory.h"

/* A call, and the pages of the range that it names. */
struct remap {
	char *base;
	size_t old_len, new_len; /* whole pages */
	int flags;
	char *to;              /* with MREMAP_FIXED, or where it came to */
	bool has_old, has_new; /* there are pages of the range there */
	uint32_t first, count; /* of old */
	uint32_t new_first, new_count;
};

static size_t remap_round_up(size_t len)
{
	return (len + MEMORY_PAGE - 1) & ~((size_t)MEMORY_PAGE - 1);
}

static uint32_t remap_kind_of(uint32_t page)
{
	return memory.pages.state[page] & PAGE_KIND;
}

static int remap_call_kernel(const struct remap *call, char **at)
{
	*at = (char *)RAW(SYS_mremap, call->base, call->old_len, call->new_len, call->flags,
			  call->to);
	return *at == MAP_FAILED ? -errno : 0;
}

/* Whether all of it is one mapping to the program: anonymous memory with the same rights and marks. */
static bool is_one(const struct remap *call)
{
	const uint8_t *state = &memory.pages.state[call->first];
	uint16_t marks = memory_marks(call->first);

	if ((size_t)call->count * MEMORY_PAGE != call->old_len || marks & MARK_OTHER)
		return false;
	for (uint32_t i = 0; i < call->count; i++) {
		uint32_t kind = remap_kind_of(call->first + i);

		if ((kind != PAGE_SHARED && kind != PAGE_PRIVATE) ||
		    (state[i] ^ state[0]) & (PAGE_PROT | PAGE_NOFORK) ||
		    memory_marks(call->first + i) != marks)
			return false;
	}
	return true;
}

/* --- in place --------------------------------------------------------------------------------- */

static int call_shrink(void *arg)
{
	const struct remap *call = arg;
	char *at;

	return remap_call_kernel(call, &at);
}

/* Or the length that it has: the kernel says whether anything is there. */
static int shrink(struct remap *call)
{
	uint32_t first, count;
	int ret;

	if (!memory_part((uintptr_t)call->base + call->new_len, call->old_len - call->new_len,
			 &first, &count))
		return call_shrink(call);
	ret = memory_replace(first, count, call_shrink, call);
	if (!ret)
		memory_unmapped(first, count);
	return ret;
}

/* The pages behind the last one are as that is. */
static void note_growth(uint32_t last, uint32_t more)
{
	uint8_t state = memory.pages.state[last] & (uint8_t)~PAGE_HEAD;

	pages_take_at(&memory.pages, last + 1, more, state & (uint8_t)~PAGE_ODD);
	memory_mark(last + 1, more, 0,
		    memory.pages.state[last] & PAGE_ODD ? memory.marks[last] & ~MARK_RUN : 0);
	memory.used += more;
	if (memory.high < last + 1 + more)
		memory.high = last + 1 + more;
	if (memory.mode == MEMORY_OPEN)
		memory_show(last + 1, more);
}

/* Whether the pages behind it are free, in the range. */
static bool remap_has_room(const struct remap *call)
{
	uint32_t more = (uint32_t)((call->new_len - call->old_len) / MEMORY_PAGE);
	uint32_t end = call->first + call->count;

	if (call->new_len > memory.size || more > memory.pages.count - end)
		return false;
	memory_release_kept_in(end, more);
	for (uint32_t i = end; i < end + more; i++)
		if (remap_kind_of(i) != PAGE_FREE)
			return false;
	return true;
}

/* False: it is not possible there. */
static bool grow_in_place(const struct remap *call)
{
	uint32_t more = (uint32_t)((call->new_len - call->old_len) / MEMORY_PAGE);
	uint32_t last = call->first + call->count - 1;
	char *at = memory_page(last);

	if (memory.used + more > memory.limit)
		return false;
	if (RAW(SYS_mremap, at, MEMORY_PAGE, (size_t)(more + 1) * MEMORY_PAGE, 0) != (long)at)
		return false;
	note_growth(last, more);
	return true;
}

/* --- moves ------------------------------------------------------------------------------------ */

/* Pages that are private already; what is zero there, and perhaps nothing, is zero in the copy. */
static int copy_private(char *to, uint32_t first, uint32_t count)
{
	static const char zeros[MEMORY_PAGE];
	char *at = memory_page(first);

	/* They are about to go, so nobody minds that they can be read for a moment. */
	if (!(memory.pages.state[first] >> PAGE_PROT_SHIFT & PROT_READ) &&
	    RAW(SYS_mprotect, at, (size_t)count * MEMORY_PAGE, PROT_READ))
		return -errno;
	for (; count; count--, at += MEMORY_PAGE, to += MEMORY_PAGE)
		if (memcmp(at, zeros, MEMORY_PAGE) != 0)
			memcpy(to, at, MEMORY_PAGE);
	return 0;
}

static int remap_copy_all(const struct remap *call, char *to)
{
	size_t bytes = call->old_len < call->new_len ? call->old_len : call->new_len;
	uint32_t first = call->first, end = first + (uint32_t)(bytes / MEMORY_PAGE), n;
	int ret = 0;

	for (; first < end && !ret; first += n, to += (size_t)n * MEMORY_PAGE) {
		n = pages_alike(&memory.pages, first, end, PAGE_KIND);
		ret = remap_kind_of(first) == PAGE_SHARED ? memory_copy(first, n, to)
							  : copy_private(to, first, n);
	}
	return ret;
}

/* What is left where the program wants to keep the addresses: zeros. */
static int empty(const struct remap *call)
{
	uint32_t first = call->first, end = first + call->count, n;
	int ret = 0;

	for (; first < end && !ret; first += n) {
		n = pages_alike(&memory.pages, first, end, PAGE_KIND);
		if (remap_kind_of(first) == PAGE_SHARED)
			ret = memory_punch(first, n);
		else
			RAW(SYS_madvise, memory_page(first), (size_t)n * MEMORY_PAGE,
			    MADV_DONTNEED);
	}
	return ret;
}

/*
 * One mapping to the program, and several to the kernel, which never joins what it has mapped at different
 * places: a copy is one for both.
 */
static int move_by_copy(const struct remap *call, char **at)
{
	int prot = (memory.pages.state[call->first] & PAGE_PROT) >> PAGE_PROT_SHIFT;
	uint16_t marks = memory_marks(call->first);
	char *to = (char *)RAW(SYS_mmap, NULL, call->new_len, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int ret;

	if (to == MAP_FAILED)
		return -ENOMEM;
	ret = memory_mark_copy(to, call->new_len, call->first);
	if (!ret)
		ret = remap_copy_all(call, to);
	if (!ret && prot != (PROT_READ | PROT_WRITE) && RAW(SYS_mprotect, to, call->new_len, prot))
		ret = -errno;
	*at = call->flags & MREMAP_FIXED ? call->to : to;
	if (!ret && *at != to &&
	    RAW(SYS_mremap, to, call->new_len, call->new_len, MREMAP_MAYMOVE | MREMAP_FIXED, *at) !=
		    (long)*at)
		ret = -errno;
	if (ret) {
		RAW(SYS_munmap, to, call->new_len);
		return ret;
	}
	ret = call->flags & MREMAP_DONTUNMAP
		      ? empty(call)
		      : memory_unmap(call->base, call->old_len, call->first, call->count);
	if (marks & MARK_LOCKED) /* now that the first is not, both would count */
		RAW(SYS_mlock2, *at, call->new_len, marks & MARK_ONFAULT ? MLOCK_ONFAULT : 0);
	return ret;
}

/* Whether some of it are private already. */
static bool is_mixed(const struct remap *call)
{
	return pages_alike(&memory.pages, call->first, call->first + call->count, PAGE_KIND) <
	       call->count;
}

/*
 * Whether the kernel sees several mappings. Since Linux 6.17 it moves those as they are where the length stays,
 * and could never again make what is one to the program longer. Growing by a page asks: what is refused for
 * another reason is one.
 */
static bool is_split(const struct remap *call)
{
	size_t more = call->old_len + MEMORY_PAGE;

	if (RAW(SYS_mremap, call->base, call->old_len, more, 0) != (long)call->base)
		return errno == EFAULT;
	RAW(SYS_mremap, call->base, more, call->old_len, 0);
	return false;
}

/* To another place, by the kernel. */
static int remap_move(const struct remap *call, char **at)
{
	bool one = call->has_old && is_one(call);
	int ret;

	if (one && is_mixed(call))
		return move_by_copy(call, at);
	if (call->has_old) {
		ret = memory_make_private(call->first, call->count);
		if (ret)
			return ret == -EPERM ? ret : -ENOMEM;
	}
	if (one && call->old_len == call->new_len && is_split(call))
		return move_by_copy(call, at);
	ret = remap_call_kernel(call, at);
	return ret == -EFAULT && one ? move_by_copy(call, at) : ret;
}

struct move_call {
	const struct remap *call;
	char **at;
};

static int call_move(void *arg)
{
	struct move_call *move_call = arg;

	return remap_move(move_call->call, move_call->at);
}

/* The kernel may have unmapped what it was to map over, and then have refused. */
static void note_lost(uint32_t first, uint32_t count)
{
	unsigned char in;

	for (uint32_t i = first; i < first + count; i++)
		if (remap_kind_of(i) != PAGE_FREE && remap_kind_of(i) != PAGE_GONE &&
		    RAW(SYS_mincore, memory_page(i), MEMORY_PAGE, &in) && errno == ENOMEM) {
			if (remap_kind_of(i) == PAGE_SHARED)
				memory_punch(i, 1);
			memory_unmapped(i, 1);
		}
}

/* The kernel has found room behind private pages. */
static void note_private_growth(const struct remap *call, int prot, uint16_t marks)
{
	uint32_t first, count;

	if (memory_part((uintptr_t)call->base + call->old_len, call->new_len - call->old_len,
			&first, &count))
		memory_replaced(first, count, prot, marks);
}

static int move_with_notes(const struct remap *call, char **at)
{
	struct move_call move_call = { call, at };
	int prot = PROT_READ | PROT_WRITE;
	uint16_t marks = MARK_OTHER;
	int ret;

	/* What is moved into the range is as it was. */
	if (call->has_old && is_one(call)) {
		marks = memory_marks(call->first);
		prot = (memory.pages.state[call->first] & PAGE_PROT) >> PAGE_PROT_SHIFT;
	}
	ret = call->has_new
		      ? memory_replace(call->new_first, call->new_count, call_move, &move_call)
		      : call_move(&move_call);
	if (ret && call->has_new)
		note_lost(call->new_first, call->new_count);
	if (ret)
		return ret;
	if (call->has_old && *at == call->base)
		note_private_growth(call, prot, marks);
	else if (call->has_old && !(call->flags & MREMAP_DONTUNMAP))
		memory_unmapped(call->first, call->count);
	if (call->has_new)
		memory_replaced(call->new_first, call->new_count, prot, marks);
	return 0;
}

/* --- the call --------------------------------------------------------------------------------- */

/* A length of 0 asks for the same pages once more, which only shared memory grants. */
static bool is_refused(const char *base, size_t old_len)
{
	uint32_t first, count;

	return !old_len && memory_part((uintptr_t)base, 1, &first, &count) &&
	       remap_kind_of(first) == PAGE_SHARED;
}

/* With the lock. */
static int remap(struct remap *call, char **at)
{
	if (!call->has_old || call->flags & ~MREMAP_MAYMOVE)
		return move_with_notes(call, at);
	*at = call->base;
	if (call->new_len <= call->old_len)
		return shrink(call);
	if (is_one(call)) {
		bool room = remap_has_room(call);

		if (room && grow_in_place(call))
			return 0;
		if (!room && !(call->flags & MREMAP_MAYMOVE))
			return -ENOMEM;
	}
	return move_with_notes(call, at);
}

/* Whether the kernel would look at the pages at all. */
static bool remap_is_sound(const struct remap *call)
{
	bool moves = call->flags & (MREMAP_FIXED | MREMAP_DONTUNMAP);

	if ((moves && !(call->flags & MREMAP_MAYMOVE)) ||
	    (call->flags & MREMAP_DONTUNMAP && call->old_len != call->new_len) ||
	    (call->flags & MREMAP_FIXED && call->base < call->to + call->new_len &&
	     call->to < call->base + call->old_len))
		return false;
	return !((uintptr_t)call->base % MEMORY_PAGE) && call->new_len &&
	       call->old_len <= SIZE_MAX / 4 && call->new_len <= SIZE_MAX / 4 &&
	       !(call->flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)) &&
	       (!(call->flags & MREMAP_FIXED) || !((uintptr_t)call->to % MEMORY_PAGE));
}

static void show_again(const struct remap *call)
{
	if (call->has_old)
		memory_show_again(call->first, call->count);
	if (call->has_new)
		memory_show_again(call->new_first, call->new_count);
}

bool memory_remap(void *base, size_t old_len, size_t new_len, int flags, void *to, void **result)
{
	struct remap call = { base, remap_round_up(old_len), remap_round_up(new_len), flags, to };
	struct memory_pages part[2] = { 0 };
	int err = errno, ret;
	sigset_t before;
	char *at;

	if (remap_is_sound(&call)) {
		call.has_old = memory_part((uintptr_t)base, call.old_len, &call.first, &call.count);
		call.has_new =
			flags & MREMAP_FIXED &&
			memory_part((uintptr_t)to, call.new_len, &call.new_first, &call.new_count);
		if (is_refused(base, old_len)) {
			errno = EINVAL;
			*result = MAP_FAILED;
			return true;
		}
	}
	if (!call.has_old && !call.has_new)
		return false;
	if (call.has_old)
		part[0] = (struct memory_pages){ call.first, call.count };
	if (call.has_new)
		part[1] = (struct memory_pages){ call.new_first, call.new_count };
	memory_hide_and_lock(part, &before);
	if (call.has_new)
		memory_release_kept_in(call.new_first, call.new_count);
	ret = remap(&call, &at);
	show_again(&call);
	memory_unlock(&before);
	errno = ret ? -ret : err;
	*result = ret ? MAP_FAILED : at;
	return true;
}

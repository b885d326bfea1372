// SPDX-License-Identifier: MIT
/*
 * Owns the pages of the range: how they come to the program, go back, and become private.
 *
 * A free page is mapped from the memfd without rights, and it is a hole there: so taking one is one
 * mprotect(), its content is zero, and nothing needs the descriptor, which the program may have
 * closed. Giving it back is punching the hole again (MADV_REMOVE) and taking the rights. Only pages
 * whose mapping has other marks than that are mapped anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "memory/libc.h"
#include "memory/memory.h"

struct memory memory = { .file = { .fd = -1 } };

#define PLAIN (PAGE_SHARED | PAGE_RW)

static size_t bytes_of(uint32_t count)
{
	return (size_t)count * MEMORY_PAGE;
}

static uint32_t page_of(const void *p)
{
	return (uint32_t)(((uintptr_t)p - atomic_load(&memory.base)) / MEMORY_PAGE);
}

static uint32_t kind_of(uint32_t page)
{
	return memory.pages.state[page] & PAGE_KIND;
}

static bool is_ours(int fd)
{
	struct stat st;

	return fd >= 0 && !fstat(fd, &st) && st.st_dev == memory.file.dev &&
	       st.st_ino == memory.file.ino;
}

bool memory_fd_is_ours(void)
{
	return is_ours(memory.file.fd);
}

/*
 * The memfd under a number that no other thread knows: one could put another file at the first one
 * between a look and a use. -1: the program has closed it.
 */
static int borrow_fd(void)
{
	enum { HIGH = 400 }; /* where nobody expects the number that he opens next */
	int fd = (int)RAW(SYS_fcntl, memory.file.fd, F_DUPFD_CLOEXEC, HIGH);

	if (fd < 0)
		fd = (int)RAW(SYS_fcntl, memory.file.fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (fd < 0 || is_ours(fd))
		return fd;
	RAW(SYS_close, fd);
	return -1;
}

static void return_fd(int fd)
{
	if (is_ours(fd))
		RAW(SYS_close, fd);
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
		memory.hooks.remove(memory_page(first), bytes_of(count));
}

void memory_show(uint32_t first, uint32_t count)
{
	uint32_t end = first + count, n;

	for (; first < end; first += n) {
		n = pages_alike(&memory.pages, first, end, PAGE_KIND | PAGE_RW);
		if ((memory.pages.state[first] & (PAGE_KIND | PAGE_RW)) == PLAIN)
			memory.hooks.add(memory_page(first), bytes_of(n), &memory.file,
					 (off_t)bytes_of(first));
	}
}

/* --- content ---------------------------------------------------------------------------------- */

static int prot_of(uint32_t page)
{
	return (memory.pages.state[page] & PAGE_PROT) >> PAGE_PROT_SHIFT;
}

/*
 * The same pages of the file once more, elsewhere: what the program has forbidden at their own
 * address, to others of its threads as well, is allowed here. No descriptor is needed. NULL: no room.
 */
static char *map_again(uint32_t first, uint32_t count)
{
	size_t len = bytes_of(count);
	char *at = (char *)RAW(SYS_mremap, memory_page(first), 0, len, MREMAP_MAYMOVE);

	if (at == MAP_FAILED)
		return NULL;
	RAW(SYS_munlock, at, len); /* as the first, perhaps */
	if (!RAW(SYS_mprotect, at, len, PROT_READ | PROT_WRITE))
		return at;
	RAW(SYS_munmap, at, len);
	return NULL;
}

/* Pages of one state in the bits of PAGE_PROT. */
static int copy_alike(char *to, uint32_t first, uint32_t count)
{
	char *again;

	if (prot_of(first) & PROT_READ) {
		memcpy(to, memory_page(first), bytes_of(count));
		return 0;
	}
	again = map_again(first, count);
	if (!again)
		return -ENOMEM;
	memcpy(to, again, bytes_of(count));
	RAW(SYS_munmap, again, bytes_of(count));
	return 0;
}

/*
 * In pieces that stay in the cache between the kernel's making of the pages, one call for all
 * instead of a fault for each, and the copy.
 */
static int copy_extent(char *to, uint32_t first, uint32_t count)
{
	enum { PIECE = 32 };
	uint32_t end = first + count, n;
	int ret = 0;

	for (; first < end && !ret; first += n, to += bytes_of(n)) {
		n = pages_alike(&memory.pages, first, end - first > PIECE ? first + PIECE : end,
				PAGE_PROT);
#ifdef MADV_POPULATE_WRITE
		RAW(SYS_madvise, to, bytes_of(n), MADV_POPULATE_WRITE);
#endif
		ret = copy_alike(to, first, n);
	}
	return ret;
}

/* Only what was written: the rest is holes, and to is zero. */
static int copy_data(int fd, uint32_t first, uint32_t count, char *to)
{
	off_t start = (off_t)bytes_of(first), end = start + (off_t)bytes_of(count);
	off_t data, hole;
	int ret;

	for (off_t at = start; at < end; at = hole) {
		data = RAW(SYS_lseek, fd, at, SEEK_DATA);
		if (data < 0)
			return errno == ENXIO ? 0 : -errno; /* nothing but a hole to the end */
		if (data >= end)
			return 0;
		hole = RAW(SYS_lseek, fd, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		hole = hole > end ? end : hole;
		ret = copy_extent(to + (data - start), (uint32_t)(data / MEMORY_PAGE),
				  (uint32_t)((hole - data) / MEMORY_PAGE));
		if (ret)
			return ret;
	}
	return 0;
}

int memory_copy(uint32_t first, uint32_t count, char *to)
{
	int fd = borrow_fd(), ret;

	/* Nobody knows what was written, so all of it is copied. */
	if (fd < 0)
		return copy_extent(to, first, count);
	ret = copy_data(fd, first, count, to);
	if (ret == -EBADF) /* another thread closes all there is */
		ret = copy_extent(to, first, count);
	return_fd(fd);
	return ret;
}

/* By the mapping alone: the descriptor could be another file, whose content would be lost. */
int memory_punch(uint32_t first, uint32_t count)
{
	char *at = memory_page(first), *again;
	size_t len = bytes_of(count);
	int err;

	if (!RAW(SYS_madvise, at, len, MADV_REMOVE))
		return 0;
	/* Some kernels want the right to write, and none does it with locked pages. */
	again = map_again(first, count);
	if (!again)
		return -ENOMEM;
	err = RAW(SYS_madvise, again, len, MADV_REMOVE) ? errno : 0;
	RAW(SYS_munmap, again, len);
	return -err;
}

/* --- pages come and go ------------------------------------------------------------------------ */

/* A mapping without marks for pages that the program has left. False: there is none any more. */
static bool map_anew(uint32_t first, uint32_t count)
{
	char *at = memory_page(first);
	size_t len = bytes_of(count);
	int fd = memory.mode == MEMORY_OPEN ? borrow_fd() : -1;
	bool mapped = false;

	if (fd >= 0)
		mapped = RAW(SYS_mmap, at, len, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
			     fd, bytes_of(first)) == (long)at;
	else if (memory.mode == MEMORY_INHERITED)
		mapped = RAW(SYS_mmap, at, len, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
			     0) == (long)at;
	if (!mapped)
		RAW(SYS_munmap, at, len);
	else
		RAW(SYS_madvise, at, len, MADV_DONTDUMP);
	return_fd(fd);
	return mapped;
}

/*
 * Rights, and a place in core dumps, which would otherwise fill the file: the kernel makes every page
 * that it dumps.
 */
static bool open_pages(uint32_t first, uint32_t count)
{
	if (RAW(SYS_mprotect, memory_page(first), bytes_of(count), PROT_READ | PROT_WRITE))
		return false;
	RAW(SYS_madvise, memory_page(first), bytes_of(count), MADV_DODUMP);
	return true;
}

/* What a program has told the kernel of the nodes for these pages stays with the file. */
static void forget_policy(uint32_t first, uint32_t count)
{
	if (memory.has_policies)
		RAW(SYS_mbind, memory_page(first), bytes_of(count), 0, NULL, 0, 0);
}

/* Pages of one state go back to the system. False: they are not ours any more. */
static bool give_back(uint32_t first, uint32_t count, uint8_t state)
{
	char *at = memory_page(first);
	size_t len = bytes_of(count);

	if (memory.mode == MEMORY_OPEN && (state & (uint8_t)~PAGE_HEAD) == PLAIN &&
	    !RAW(SYS_madvise, at, len, MADV_REMOVE)) {
		/* Where that fails, for too many mappings, they are free all the same. */
		RAW(SYS_mprotect, at, len, PROT_NONE);
		RAW(SYS_madvise, at, len, MADV_DONTDUMP);
		return true;
	}
	if ((state & PAGE_KIND) == PAGE_SHARED) {
		if (state & PAGE_ODD)
			RAW(SYS_munlock, at, len);
		forget_policy(first, count);
		if (memory_punch(first, count)) {
			/* What was written there is still there. */
			RAW(SYS_munmap, at, len);
			return false;
		}
	}
	return map_anew(first, count);
}

/* These pages, of the program until now, begin no block or mapping any more. */
static void lose_heads(uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++)
		memory.heads -= (memory.pages.state[i] & PAGE_HEAD) != 0;
}

void memory_release(uint32_t first, uint32_t count)
{
	uint32_t end = first + count, n;
	uint8_t state;

	for (; first < end; first += n) {
		state = memory.pages.state[first];
		n = pages_alike(&memory.pages, first, end, (uint8_t)~PAGE_HEAD);
		if ((state & PAGE_KIND) == PAGE_FREE || (state & PAGE_KIND) == PAGE_GONE)
			continue;
		memory.used -= n;
		lose_heads(first, n);
		if (give_back(first, n, state))
			pages_give(&memory.pages, first, n);
		else
			memset(&memory.pages.state[first], PAGE_GONE, n);
	}
	/* What is left of a mapping begins here. */
	if (end < memory.high && kind_of(end) == PAGE_SHARED &&
	    !(memory.pages.state[end] & PAGE_HEAD)) {
		memory.pages.state[end] |= PAGE_HEAD;
		memory.pages.info[end].len = 0;
		memory.heads++;
	}
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

/* One of the kept blocks with just so many pages, at a multiple of align; or PAGES_NONE. */
static uint32_t take_kept(uint32_t count, size_t align)
{
	uint32_t first;

	for (uint32_t i = memory.kept_blocks; i-- > 0;) {
		first = memory.kept[i].first;
		if (memory.kept[i].count != count || memory.kept[i].leaving ||
		    (uintptr_t)memory_page(first) & (align - 1))
			continue;
		memory.kept[i] = memory.kept[--memory.kept_blocks];
		memory.kept_pages -= count;
		memset(&memory.pages.state[first], PLAIN, count);
		return first;
	}
	return PAGES_NONE;
}

/* Whether the block can wait for the next malloc() of its size. */
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
static bool make_room(sigset_t *before)
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
static bool keep(void *p, uint32_t first, uint32_t count, sigset_t *before)
{
	while (can_keep(first, count) && memory_block_bytes(p) == bytes_of(count)) {
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
		if (!make_room(before))
			return false;
	}
	return false;
}

static uint32_t take_new(uint32_t count, size_t align)
{
	uint32_t first;

	if (memory.heads >= MEMORY_HEADS)
		return PAGES_NONE;
	if (memory.used + count > memory.limit)
		memory_release_kept();
	if (memory.used + count > memory.limit)
		return PAGES_NONE;
	first = pages_take(&memory.pages, count,
			   align > MEMORY_PAGE ? (uint32_t)(align / MEMORY_PAGE) : 1, PLAIN);
	if (first == PAGES_NONE)
		return first;
	if (!open_pages(first, count)) {
		pages_give(&memory.pages, first, count);
		return PAGES_NONE;
	}
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
		first = take_kept(count, align);
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
	return bytes_of(memory.pages.info[page].len);
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
	there = memory_block_bytes(p) == bytes_of(count);
	if (there && !keep(p, first, count, &before)) {
		memory_unlock(&before);
		memory_hide(first, count);
		memory_lock(&before);
		there = memory_block_bytes(p) == bytes_of(count);
		if (there)
			memory_release(first, count);
	}
	memory_unlock(&before);
	errno = err;
	return there;
}

static bool grow(uint32_t first, uint32_t count, uint32_t more)
{
	if (memory.mode != MEMORY_OPEN || kind_of(first) != PAGE_SHARED ||
	    memory.used + more > memory.limit ||
	    !pages_take_at(&memory.pages, first + count, more, PLAIN))
		return false;
	if (!open_pages(first + count, more)) {
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

	if (bytes > bytes_of(memory.pages.count))
		return false;
	want = (uint32_t)((bytes + MEMORY_PAGE - 1) / MEMORY_PAGE);
	if (want < count)
		memory_hide(first + want, count - want);
	memory_lock(&before);
	if (want < count)
		memory_release(first + want, count - want);
	else if (want > count)
		done = grow(first, count, want - count);
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

/* --- pages leave ------------------------------------------------------------------------------ */

/* Rights, and the one mark that counts, as they were. */
static int mark_private(uint32_t first, uint32_t count)
{
	uint32_t end = first + count, n;

	for (; first < end; first += n) {
		n = pages_alike(&memory.pages, first, end, PAGE_PROT | PAGE_NOFORK);
		if (prot_of(first) != (PROT_READ | PROT_WRITE) &&
		    RAW(SYS_mprotect, memory_page(first), bytes_of(n), prot_of(first)))
			return -errno;
		if (memory.pages.state[first] & PAGE_NOFORK &&
		    RAW(SYS_madvise, memory_page(first), bytes_of(n), MADV_DONTFORK))
			return -errno;
	}
	return 0;
}

/* In one piece: what the program knows as one mapping is still one for the kernel. */
static int make_run_private(uint32_t first, uint32_t count)
{
	char *at = memory_page(first), *to, *again;
	size_t len = bytes_of(count);
	int ret;

	to = (char *)RAW(SYS_mmap, NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	if (to == MAP_FAILED)
		return -ENOMEM;
	ret = memory_copy(first, count, to);
	if (!ret)
		forget_policy(first, count);
	/* Punched through a mapping of its own, when no thread can write there any more. */
	again = ret ? NULL : map_again(first, count);
	if (!ret && !again)
		ret = -ENOMEM;
	if (!ret && RAW(SYS_mremap, to, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at) != (long)at)
		ret = -errno;
	if (ret) {
		RAW(SYS_munmap, to, len);
		if (again)
			RAW(SYS_munmap, again, len);
		return ret;
	}
	if (RAW(SYS_madvise, again, len, MADV_REMOVE))
		memset(again, 0, len); /* whoever has the page next relies on it */
	RAW(SYS_munmap, again, len);
	for (uint32_t i = first; i < first + count; i++)
		memory.pages.state[i] =
			(uint8_t)((memory.pages.state[i] & ~(PAGE_KIND | PAGE_ODD)) | PAGE_PRIVATE);
	return mark_private(first, count);
}

int memory_make_private(uint32_t first, uint32_t count)
{
	uint32_t end = first + count, n;
	int ret = 0;

	for (; first < end && !ret; first += n) {
		n = pages_alike(&memory.pages, first, end, PAGE_KIND);
		if (kind_of(first) == PAGE_SHARED)
			ret = make_run_private(first, n);
	}
	return ret;
}

void memory_unmap_free(uint32_t first, uint32_t count)
{
	uint32_t end = first + count, n;

	/* All of the range, or a part that others now use. */
	if (count < memory.pages.count && memory.high < end)
		memory.high = end;
	for (; first < end; first += n) {
		n = pages_alike(&memory.pages, first, end, PAGE_KIND);
		if (kind_of(first) == PAGE_FREE) {
			pages_take_at(&memory.pages, first, n, PAGE_GONE);
			RAW(SYS_munmap, memory_page(first), bytes_of(n));
		}
	}
}

void memory_forget(uint32_t first, uint32_t count)
{
	uint32_t end = first + count, n;

	if (memory.high < end)
		memory.high = end;
	for (; first < end; first += n) {
		n = pages_alike(&memory.pages, first, end, PAGE_KIND);
		if (kind_of(first) == PAGE_FREE) {
			pages_take_at(&memory.pages, first, n, PAGE_GONE);
		} else if (kind_of(first) != PAGE_GONE) {
			memory.used -= n;
			lose_heads(first, n);
			memset(&memory.pages.state[first], PAGE_GONE, n);
		}
	}
}

/* Marks were those of the mapping that is gone; a block is still one, and free() takes it. */
void memory_replaced(uint32_t first, uint32_t count)
{
	uint32_t end = first + count, n;

	for (; first < end; first += n) {
		n = pages_alike(&memory.pages, first, end, PAGE_KIND);
		if (kind_of(first) == PAGE_FREE || kind_of(first) == PAGE_GONE) {
			memory_forget(first, n);
			continue;
		}
		for (uint32_t i = first; i < first + n; i++)
			memory.pages.state[i] = (uint8_t)((memory.pages.state[i] & PAGE_HEAD) |
							  PAGE_PRIVATE | PAGE_RW);
	}
}

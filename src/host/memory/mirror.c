// SPDX-License-Identifier: MIT
/*
 * Owns the memfd and its mirror: all of the file mapped once more, at addresses that the program does
 * not know, readable and writable. Pages are mapped at their own address, copied and punched through it,
 * whatever the program has forbidden or locked there, and whatever it has done with the descriptor.
 *
 *	range    | page 0 | free   | page 2 | free ...     free: nothing is mapped
 *	mirror   | page 0 | page 1 | page 2 | page 3 ...   all of it, not in core dumps
 *
 * Where limits have closed the range there is no mirror, whose addresses would count: then pages are
 * mapped again for the moment.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "host/memory/libc.h"
#include "host/memory/memory.h"

static size_t mirror_bytes_of(uint32_t count)
{
	return (size_t)count * MEMORY_PAGE;
}

static int mirror_prot_of(uint32_t page)
{
	return (memory.pages.state[page] & PAGE_PROT) >> PAGE_PROT_SHIFT;
}

/* --- the descriptor --------------------------------------------------------------------------- */

static bool mirror_is_ours(int fd)
{
	struct stat st;

	return fd >= 0 && !fstat(fd, &st) && st.st_dev == memory.file.dev &&
	       st.st_ino == memory.file.ino;
}

bool memory_fd_is_ours(void)
{
	return mirror_is_ours(memory.file.fd);
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
	if (fd < 0 || mirror_is_ours(fd))
		return fd;
	RAW(SYS_close, fd);
	return -1;
}

static void return_fd(int fd)
{
	if (mirror_is_ours(fd))
		RAW(SYS_close, fd);
}

/* --- the mirror ------------------------------------------------------------------------------- */

char *memory_open_mirror(size_t size)
{
	char *at = (char *)RAW(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_NORESERVE, memory.file.fd, 0);

	if (at == MAP_FAILED)
		return NULL;
	RAW(SYS_madvise, at, size, MADV_DONTDUMP);
	memory.mirror = at;
	return at;
}

void memory_close_mirror(void)
{
	if (memory.mirror)
		RAW(SYS_munmap, memory.mirror, memory.size);
	memory.mirror = NULL;
}

char *memory_begin_beside(uint32_t first, uint32_t count)
{
	size_t len = mirror_bytes_of(count);
	char *at;

	if (memory.mirror)
		return memory.mirror + mirror_bytes_of(first);
	at = (char *)RAW(SYS_mremap, memory_page(first), 0, len, MREMAP_MAYMOVE);
	if (at == MAP_FAILED)
		return NULL;
	RAW(SYS_munlock, at, len); /* as the first, perhaps */
	if (!RAW(SYS_mprotect, at, len, PROT_READ | PROT_WRITE))
		return at;
	RAW(SYS_munmap, at, len);
	return NULL;
}

void memory_end_beside(char *beside, uint32_t count)
{
	if (!memory.mirror)
		RAW(SYS_munmap, beside, mirror_bytes_of(count));
}

/* Pages that were touched there would count twice. */
static void forget_beside(char *beside, uint32_t count)
{
	RAW(SYS_madvise, beside, mirror_bytes_of(count), MADV_DONTNEED);
}

int memory_map_pages(uint32_t first, uint32_t count)
{
	char *at = memory_page(first);
	size_t len = mirror_bytes_of(count);
	char *place = (char *)RAW(SYS_mmap, at, len, PROT_NONE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
				  -1, 0);

	if (place != at) {
		if (place == MAP_FAILED)
			return -errno;
		RAW(SYS_munmap, place, len); /* by a kernel that takes it for a wish */
		return -EEXIST;
	}
	if (RAW(SYS_mremap, memory.mirror + mirror_bytes_of(first), 0, len,
		MREMAP_MAYMOVE | MREMAP_FIXED, at) != (long)at) {
		RAW(SYS_munmap, at, len);
		return -ENOMEM;
	}
	RAW(SYS_madvise, at, len, MADV_DODUMP); /* the mirror's are not in core dumps */
	return 0;
}

/* --- content ---------------------------------------------------------------------------------- */

/* Pages of one state in the bits of PAGE_PROT. */
static int copy_alike(char *to, uint32_t first, uint32_t count)
{
	char *beside;

	if (mirror_prot_of(first) & PROT_READ) {
		memcpy(to, memory_page(first), mirror_bytes_of(count));
		return 0;
	}
	beside = memory_begin_beside(first, count);
	if (!beside)
		return -ENOMEM;
	memcpy(to, beside, mirror_bytes_of(count));
	forget_beside(beside, count);
	memory_end_beside(beside, count);
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

	for (; first < end && !ret; first += n, to += mirror_bytes_of(n)) {
		n = pages_alike(&memory.pages, first, end - first > PIECE ? first + PIECE : end,
				PAGE_PROT);
#ifdef MADV_POPULATE_WRITE
		RAW(SYS_madvise, to, mirror_bytes_of(n), MADV_POPULATE_WRITE);
#endif
		ret = copy_alike(to, first, n);
	}
	return ret;
}

/*
 * Whether more shared pages lie behind these than there are of them. The kernel looks at every page of the
 * file until the next hole: behind one page of a large mapping that takes longer than the copy.
 */
static bool is_small_part(uint32_t first, uint32_t count)
{
	uint32_t end = first + count, left = memory.pages.count - end;

	return left > count && (memory.pages.state[end] & PAGE_KIND) == PAGE_SHARED &&
	       pages_alike(&memory.pages, end, end + count, PAGE_KIND) == count;
}

/* Where what was written ends, up to end; or -1. */
static off_t find_hole(int fd, off_t data, off_t end, bool small)
{
	off_t at = data + MEMORY_PAGE;

	if (!small)
		return RAW(SYS_lseek, fd, data, SEEK_HOLE);
	while (at < end && RAW(SYS_lseek, fd, at, SEEK_DATA) == at)
		at += MEMORY_PAGE;
	return at;
}

/* Only what was written: the rest is holes, and to is zero. */
static int copy_data(int fd, uint32_t first, uint32_t count, char *to)
{
	off_t start = (off_t)mirror_bytes_of(first), end = start + (off_t)mirror_bytes_of(count);
	bool small = is_small_part(first, count);
	off_t data, hole;
	int ret;

	for (off_t at = start; at < end; at = hole) {
		data = RAW(SYS_lseek, fd, at, SEEK_DATA);
		if (data < 0)
			return errno == ENXIO ? 0 : -errno; /* nothing but a hole to the end */
		if (data >= end)
			return 0;
		hole = find_hole(fd, data, end, small);
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

/*
 * By a mapping: the descriptor could be another file, whose content would be lost. Where the kernel
 * punches nothing, zeros are written: the next user of the pages relies on them.
 */
void memory_punch_at(char *beside, uint32_t count)
{
	if (!RAW(SYS_madvise, beside, mirror_bytes_of(count), MADV_REMOVE))
		return;
	memset(beside, 0, mirror_bytes_of(count));
	forget_beside(beside, count);
}

int memory_punch(uint32_t first, uint32_t count)
{
	char *beside = memory_begin_beside(first, count);

	if (!beside)
		return -ENOMEM;
	memory_punch_at(beside, count);
	memory_end_beside(beside, count);
	return 0;
}

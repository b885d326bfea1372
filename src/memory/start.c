// SPDX-License-Identifier: MIT
/*
 * Owns the beginning and the end: which processes get a range, and which limits close it.
 *
 * A range needs addresses and a file, and both are limited by what a process or its user may have
 * forbidden. Wherever such a limit could make another call of the program fail, or succeed, that
 * did not before, there is no range.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/env.h"
#include "memory/libc.h"
#include "memory/memory.h"

/* What is free of it may be twice what is used of it: blocks of other sizes do not fit. */
enum { SPARE = 2, HUGE_PAGE = 2 << 20 };

static bool is_limited(int resource)
{
	struct rlimit limit;

	return getrlimit((__rlimit_resource_t)resource, &limit) || limit.rlim_cur != RLIM_INFINITY;
}

/* Private memory is then refused when it is mapped, but that of a memfd when it is touched. */
static bool is_overcommit_off(void)
{
	char text[4];

	libc_read_text("/proc/sys/vm/overcommit_memory", text, sizeof(text));
	return text[0] == '2';
}

#define HUGE "/sys/kernel/mm/transparent_hugepage/"

/* Whether MADV_HUGEPAGE helps private memory, and not that of a memfd. */
static bool is_huge_private(void)
{
	char text[128];

	libc_read_text(HUGE "enabled", text, sizeof(text));
	if (!text[0] || strstr(text, "[never]"))
		return false;
	libc_read_text(HUGE "shmem_enabled", text, sizeof(text));
	return !text[0] || strstr(text, "[never]") || strstr(text, "[deny]");
}

/* What speaks against a range in this process; NULL: nothing. */
static const char *find_reason(void)
{
	const char *other = vb_getenv("LD_PRELOAD");
	const char *which;

#ifndef MEMORY_CAN_SWITCH
	return "there is no fork with shared stacks on this processor";
#endif
	if (sysconf(_SC_PAGESIZE) != MEMORY_PAGE)
		return "pages have other sizes than 4 KiB";
	if (other && strstr(other, "vgpreload"))
		return "valgrind looks at the memory";
	if (is_limited(RLIMIT_AS) || is_limited(RLIMIT_DATA))
		return "memory is limited (ulimit -v, -d)";
	if (is_overcommit_off())
		return "the kernel does not overcommit memory (vm.overcommit_memory=2)";
	if (!libc_is_next(&which))
		return !strcmp(which, "mmap") ? "another library has mmap()"
					      : "another library has functions of malloc()";
	return NULL;
}

/* --- start ------------------------------------------------------------------------------------ */

static int open_file(const struct vb_born_hooks *hooks, uint64_t size)
{
	int fd = hooks->memfd("verbatim-memory", size);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st)) {
		close(fd);
		return -EIO;
	}
	memory.file = (struct vb_file){ .fd = fd, .dev = st.st_dev, .ino = st.st_ino };
	return 0;
}

/* size bytes of addresses that start at a multiple of HUGE_PAGE, mapped from the file. */
static char *map_range(size_t size)
{
	char *place, *base;

	place = (char *)RAW(SYS_mmap, NULL, size + HUGE_PAGE, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (place == MAP_FAILED)
		return NULL;
	base = (char *)(((uintptr_t)place + HUGE_PAGE - 1) & ~((uintptr_t)HUGE_PAGE - 1));
	if (RAW(SYS_mmap, base, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
		memory.file.fd, 0) != (long)base) {
		RAW(SYS_munmap, place, size + HUGE_PAGE);
		return NULL;
	}
	if (base > place)
		RAW(SYS_munmap, place, base - place);
	RAW(SYS_munmap, base + size, place + HUGE_PAGE - base);
	RAW(SYS_madvise, base, size, MADV_DONTDUMP);
	return base;
}

static int make_range(const struct vb_born_hooks *hooks, uint64_t limit)
{
	uint64_t size = (limit * SPARE + HUGE_PAGE - 1) & ~((uint64_t)HUGE_PAGE - 1);
	uint32_t count = (uint32_t)(size / MEMORY_PAGE);
	size_t notes = count * (sizeof(struct page_info) + 1);
	char *base, *info;
	int ret;

	ret = open_file(hooks, size);
	if (ret)
		return ret;
	info = (char *)RAW(SYS_mmap, NULL, notes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	base = info == MAP_FAILED ? NULL : map_range(size);
	if (!base) {
		if (info != MAP_FAILED)
			RAW(SYS_munmap, info, notes);
		close(memory.file.fd);
		memory.file.fd = -1;
		return -ENOMEM;
	}
	pages_init(&memory.pages, (uintptr_t)base / MEMORY_PAGE, count,
		   (uint8_t *)(info + count * sizeof(struct page_info)), (struct page_info *)info);
	memory.limit = (uint32_t)(limit / MEMORY_PAGE);
	memory.hooks = *hooks;
	atomic_store_explicit(&memory.base, (uintptr_t)base, memory_order_relaxed);
	/* Pairs with memory_has. */
	atomic_store_explicit(&memory.size, size, memory_order_release);
	return 0;
}

/* A forked child has opened a card: what is free becomes its own file's. */
static int take_over_range(const struct vb_born_hooks *hooks)
{
	uint32_t n;
	char *at;
	int ret;

	ret = open_file(hooks, memory.size);
	if (ret)
		return ret;
	memory.hooks = *hooks;
	for (uint32_t first = 0; first < memory.pages.count; first += n) {
		n = pages_alike(&memory.pages, first, memory.pages.count, PAGE_KIND);
		at = memory_page(first);
		if (memory.pages.state[first] != PAGE_FREE)
			continue;
		if (RAW(SYS_mmap, at, (size_t)n * MEMORY_PAGE, PROT_NONE,
			MAP_SHARED | MAP_NORESERVE | MAP_FIXED, memory.file.fd,
			(off_t)first * MEMORY_PAGE) != (long)at)
			memory_unmap_free(first, n);
		else
			RAW(SYS_madvise, at, (size_t)n * MEMORY_PAGE, MADV_DONTDUMP);
	}
	return 0;
}

PUBLIC vb_born_start_function verbatim_memory_start;

PUBLIC int verbatim_memory_start(const struct vb_born_hooks *hooks, const char **why)
{
	uint64_t limit = hooks->limit;
	sigset_t before;
	int ret = -EALREADY;

	*why = NULL;
	if (memory_is_open())
		return 0;
	*why = find_reason();
	if (*why)
		return -ENOTSUP;
	if (!limit)
		limit = (uint64_t)sysconf(_SC_PHYS_PAGES) * MEMORY_PAGE / 8;
	if (limit > (uint64_t)UINT32_MAX / SPARE / 2 * MEMORY_PAGE)
		limit = (uint64_t)UINT32_MAX / SPARE / 2 * MEMORY_PAGE;
	limit &= ~((uint64_t)MEMORY_PAGE - 1);
	memory_watch_forks();
	memory_lock(&before);
	if (memory.mode == MEMORY_NONE)
		ret = make_range(hooks, limit);
	else if (memory.mode == MEMORY_INHERITED)
		ret = take_over_range(hooks);
	else if (memory.mode == MEMORY_CLOSED)
		*why = "memory was limited or locked before (setrlimit, mlockall)";
	if (!ret) {
		memory.pid = (pid_t)RAW(SYS_getpid);
		memory.huge_private = is_huge_private();
		atomic_store_explicit(&memory.all, hooks->all, memory_order_relaxed);
		atomic_store_explicit(&memory.mode, MEMORY_OPEN, memory_order_release);
	}
	memory_unlock(&before);
	return ret == -EALREADY && memory_is_open() ? 0 : ret;
}

/* --- end -------------------------------------------------------------------------------------- */

void memory_close(void)
{
	int err = errno;
	sigset_t before;

	/* A child of vfork() limits itself alone. */
	if (memory.mode != MEMORY_NONE && memory.pid != RAW(SYS_getpid))
		return;
	memory_lock(&before);
	if (memory.mode != MEMORY_CLOSED) {
		memory_release_kept();
		atomic_store_explicit(&memory.mode, MEMORY_CLOSED, memory_order_release);
		if (memory.size)
			memory_unmap_free(0, memory.pages.count);
	}
	memory_unlock(&before);
	errno = err;
}

static void note_limit(int resource, const struct rlimit *limit)
{
	/* One that is set before there is a range is seen when it starts. */
	if (limit && limit->rlim_cur != RLIM_INFINITY && memory.mode != MEMORY_NONE &&
	    (resource == RLIMIT_AS || resource == RLIMIT_DATA))
		memory_close();
}

_Static_assert(sizeof(struct rlimit) == sizeof(struct rlimit64), "one struct");

PUBLIC int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	note_limit((int)resource, limit);
	return LIBC(setrlimit)(resource, limit);
}

PUBLIC int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit)
{
	note_limit((int)resource, (const struct rlimit *)limit);
	return LIBC(setrlimit64)(resource, limit);
}

static void note_process_limit(pid_t pid, int resource, const struct rlimit *limit)
{
	if (!pid || pid == getpid())
		note_limit(resource, limit);
}

PUBLIC int prlimit(pid_t pid, enum __rlimit_resource resource, const struct rlimit *limit,
		   struct rlimit *old)
{
	note_process_limit(pid, (int)resource, limit);
	return LIBC(prlimit)(pid, resource, limit, old);
}

PUBLIC int prlimit64(pid_t pid, enum __rlimit_resource resource, const struct rlimit64 *limit,
		     struct rlimit64 *old)
{
	note_process_limit(pid, (int)resource, (const struct rlimit *)limit);
	return LIBC(prlimit64)(pid, resource, limit, old);
}

/* Every address of the range would be locked, and count. */
PUBLIC int mlockall(int flags)
{
	memory_close();
	return LIBC(mlockall)(flags);
}

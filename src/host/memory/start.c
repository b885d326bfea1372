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
#include "host/memory/libc.h"
#include "host/memory/memory.h"

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

static int start_open_file(const struct vb_born_hooks *hooks, uint64_t size)
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

/*
 * size bytes of addresses that start at a multiple of HUGE_PAGE, and of which the kernel gives none to
 * others before all are in use: an eighth or more below where it stands now. It goes down from the
 * highest addresses, 16 TiB until there; or up from a third of all, where the stack has no limit. 0: none
 * are free.
 */
static uintptr_t find_range(size_t size, uintptr_t now)
{
	uintptr_t wish;
	char *place;

	for (uintptr_t i = 1; i <= 5; i++) {
		wish = (now - i * (now / 8)) & ~((uintptr_t)HUGE_PAGE - 1);
		place = (char *)RAW(SYS_mmap, wish, size, PROT_NONE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (place == MAP_FAILED)
			continue;
		RAW(SYS_munmap, place, size);
		if ((uintptr_t)place == wish)
			return wish;
	}
	return 0;
}

static int make_range(const struct vb_born_hooks *hooks, uint64_t limit)
{
	uint64_t size = (limit * SPARE + HUGE_PAGE - 1) & ~((uint64_t)HUGE_PAGE - 1);
	uint32_t count = (uint32_t)(size / MEMORY_PAGE);
	size_t notes = count * (sizeof(struct page_info) + sizeof(uint16_t) + 1);
	uintptr_t base;
	char *info;
	int ret;

	ret = start_open_file(hooks, size);
	if (ret)
		return ret;
	info = (char *)RAW(SYS_mmap, NULL, notes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	base = info == MAP_FAILED || !memory_open_mirror(size)
		       ? 0
		       : find_range(size, (uintptr_t)memory.mirror);
	if (!base) {
		if (memory.mirror)
			RAW(SYS_munmap, memory.mirror, size);
		memory.mirror = NULL;
		if (info != MAP_FAILED)
			RAW(SYS_munmap, info, notes);
		close(memory.file.fd);
		memory.file.fd = -1;
		return -ENOMEM;
	}
	memory.marks = (uint16_t *)(info + count * sizeof(struct page_info));
	pages_init(&memory.pages, base / MEMORY_PAGE, count, (uint8_t *)(memory.marks + count),
		   (struct page_info *)info);
	memory.limit = (uint32_t)(limit / MEMORY_PAGE);
	memory.hooks = *hooks;
	atomic_store_explicit(&memory.base, base, memory_order_relaxed);
	/* Pairs with memory_has. */
	atomic_store_explicit(&memory.size, size, memory_order_release);
	return 0;
}

/* A forked child has opened a card: what is free is its own file's from now on. */
static int take_over_range(const struct vb_born_hooks *hooks)
{
	int ret = start_open_file(hooks, memory.size);

	if (ret)
		return ret;
	if (!memory_open_mirror(memory.size)) {
		close(memory.file.fd);
		memory.file.fd = -1;
		return -ENOMEM;
	}
	memory.hooks = *hooks;
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
		memory_close_mirror();
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

/* Every address of the mirror would be locked, and count. */
int memory_lock_all(int flags)
{
	int ret;

	memory_close();
	ret = atomic_load(&memory.size) ? (int)RAW(SYS_mlockall, flags) : LIBC(mlockall)(flags);
	if (!ret && flags & MCL_CURRENT)
		memory.locked_all = true;
	return ret;
}

int memory_unlock_all(void)
{
	int ret = atomic_load(&memory.size) ? (int)RAW(SYS_munlockall) : LIBC(munlockall)();
	sigset_t before;

	if (ret || !atomic_load(&memory.size))
		return ret;
	memory_lock(&before);
	memory.locked_all = false;
	memory_mark(0, memory.high, MARK_LOCKED | MARK_ONFAULT, 0);
	memory_unlock(&before);
	return ret;
}

PUBLIC int mlockall(int flags)
{
	return memory_lock_all(flags);
}

PUBLIC int munlockall(void)
{
	return memory_unlock_all();
}

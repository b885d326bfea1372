// SPDX-License-Identifier: MIT
/*
 * mmap() and its relatives, in front of libc's. Private anonymous memory that a program wants at no
 * certain place comes from the range; what the program then does with pages of the range behaves as
 * it does with private memory, or they become private first, and the kernel does the rest:
 *
 *	munmap              the pages are free
 *	mprotect            as it is; peers have only what can be read and written
 *	madvise             DONTNEED and FREE punch a hole, so that zeros are read; most others as they are
 *	mlock               as it is
 *	mremap, MAP_FIXED   private first
 *
 * An address of the range that is free looks unmapped, although it is not.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>

#include "memory/libc.h"
#include "memory/memory.h"

static int fail(int err)
{
	errno = err;
	return -1;
}

/* Pages of a call, and the lock. */
struct part {
	uint32_t first, count;
	sigset_t before;
};

/* The pages of the range among those of a call, hidden from peers and locked. False: there are none. */
static bool begin(struct part *part, const void *base, size_t len)
{
	if (!memory_part((uintptr_t)base, len, &part->first, &part->count))
		return false;
	memory_hide(part->first, part->count);
	memory_lock(&part->before);
	memory_release_kept_in(part->first, part->count);
	return true;
}

/* What can be shown to peers is shown again. */
static void end(struct part *part)
{
	int err = errno;

	if (memory.mode == MEMORY_OPEN || memory.mode == MEMORY_CLOSED)
		memory_show(part->first, part->count);
	memory_unlock(&part->before);
	errno = err;
}

static uint32_t kind_of(uint32_t page)
{
	return memory.pages.state[page] & PAGE_KIND;
}

static size_t round_up(size_t len)
{
	return (len + MEMORY_PAGE - 1) & ~((size_t)MEMORY_PAGE - 1);
}

/* An address and a length that the kernel takes. */
static bool is_sound(const void *base, size_t len)
{
	return !((uintptr_t)base % MEMORY_PAGE) && len && len <= SIZE_MAX / 2;
}

static void change(uint32_t first, uint32_t count, uint8_t clear, uint8_t set)
{
	for (uint32_t i = first; i < first + count; i++)
		memory.pages.state[i] = (uint8_t)((memory.pages.state[i] & ~clear) | set);
}

/*
 * call for each piece of [base, base + len): pages of one kind, or what lies outside of the range
 * (kind PAGE_GONE). Ends with the first error, but pages that are free count as unmapped: where
 * over_holes, the rest goes on, and ENOMEM comes at the end, as with madvise().
 */
typedef int piece_function(char *base, size_t len, uint32_t kind, int arg);

static int for_pieces(struct part *part, char *base, size_t len, bool over_holes, int arg,
		      piece_function *call)
{
	char *from = memory_page(part->first), *to = memory_page(part->first + part->count);
	uint32_t page = part->first, last = part->first + part->count, n;
	char *stop = base + round_up(len);
	bool hole = false;
	int ret = 0;

	if (base < from)
		ret = call(base, (size_t)(from - base), PAGE_GONE, arg);
	for (; !ret && page < last; page += n) {
		n = pages_alike(&memory.pages, page, last, PAGE_KIND);
		if (kind_of(page) != PAGE_FREE)
			ret = call(memory_page(page), (size_t)n * MEMORY_PAGE, kind_of(page), arg);
		else if (over_holes)
			hole = true;
		else
			ret = fail(ENOMEM);
	}
	if (!ret && stop > to)
		ret = call(to, (size_t)(stop - to), PAGE_GONE, arg);
	return ret || !hole ? ret : fail(ENOMEM);
}

static uint32_t page_at(const char *base)
{
	return (uint32_t)((uintptr_t)(base - (uintptr_t)memory.base) / MEMORY_PAGE);
}

/* --- mmap ------------------------------------------------------------------------------------- */

static void *map_ours(size_t len, int flags)
{
	bool dirty;
	void *p = memory_take(len, 1, false, &dirty);

#ifdef MADV_POPULATE_WRITE
	if (p && flags & MAP_POPULATE)
		RAW(SYS_madvise, p, round_up(len), MADV_POPULATE_WRITE);
#endif
	return p;
}

/* Over pages of the range. take: what is there is replaced; otherwise all of it has to be free. */
static bool make_room(struct part *part, bool replace)
{
	if (replace)
		return !memory_make_private(part->first, part->count);
	for (uint32_t i = part->first; i < part->first + part->count; i++)
		if (kind_of(i) == PAGE_PRIVATE || kind_of(i) == PAGE_SHARED)
			return true; /* the kernel will say so */
	memory_unmap_free(part->first, part->count);
	return true;
}

/* With the address that the program names: false where that is not in the range. */
static bool map_over(void *base, size_t len, int prot, int flags, int fd, off_t offset, void **p)
{
	struct part part;

	if (!begin(&part, base, len))
		return false;
	*p = MAP_FAILED;
	if (!make_room(&part, !(flags & MAP_FIXED_NOREPLACE)))
		errno = ENOMEM;
	else
		*p = (void *)RAW(SYS_mmap, base, len, prot, flags, fd, offset);
	if (*p == base)
		memory_replaced(part.first, part.count);
	end(&part);
	return true;
}

/* False: it is libc's, or the kernel's, to do. */
static bool map_here(void *base, size_t len, int prot, int flags, int fd, off_t offset, void **p)
{
	if (!base && !(flags & ~MAP_POPULATE & ~(MAP_PRIVATE | MAP_ANONYMOUS)) &&
	    flags & MAP_ANONYMOUS && flags & MAP_PRIVATE && prot == (PROT_READ | PROT_WRITE) &&
	    !offset && len && memory_is_open()) {
		*p = map_ours(len, flags);
		return *p;
	}
	return base && is_sound(base, len) && flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) &&
	       map_over(base, len, prot, flags, fd, offset, p);
}

static void *do_mmap(void *base, size_t len, int prot, int flags, int fd, off_t offset)
{
	void *p;

	return map_here(base, len, prot, flags, fd, offset, &p)
		       ? p
		       : LIBC(mmap)(base, len, prot, flags, fd, offset);
}

static int unmap_piece(char *base, size_t len, uint32_t kind, int arg)
{
	if (kind == PAGE_GONE)
		return (int)RAW(SYS_munmap, base, len);
	memory_release(page_at(base), (uint32_t)(len / MEMORY_PAGE));
	return 0;
}

static int do_munmap(void *base, size_t len)
{
	struct part part;
	int ret;

	if (!is_sound(base, len) || !begin(&part, base, len))
		return LIBC(munmap)(base, len);
	ret = for_pieces(&part, base, len, true, 0, unmap_piece);
	if (ret && errno == ENOMEM)
		ret = 0; /* nothing was mapped there, which is no error */
	end(&part);
	return ret;
}

/* --- mremap ----------------------------------------------------------------------------------- */

/* With the lock of both parts, if both are in the range. */
static void *remap(struct part *old, struct part *new, void *base, size_t old_len, size_t new_len,
		   int flags, void *to)
{
	void *p;

	if ((old && memory_make_private(old->first, old->count)) ||
	    (new &&memory_make_private(new->first, new->count))) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	p = (void *)RAW(SYS_mremap, base, old_len, new_len, flags, to);
	if (p != MAP_FAILED && new)
		memory_replaced(new->first, new->count);
	if (p != MAP_FAILED && old && p != base)
		memory_forget(old->first, old->count);
	return p;
}

/* A length of 0 asks for the same pages once more, which only shared memory grants. */
static bool is_refused(const void *base, size_t old_len)
{
	uint32_t first, count;

	return !old_len && !((uintptr_t)base % MEMORY_PAGE) &&
	       memory_part((uintptr_t)base, 1, &first, &count) &&
	       (kind_of(first) == PAGE_SHARED || kind_of(first) == PAGE_FREE);
}

static void *do_mremap(void *base, size_t old_len, size_t new_len, int flags, void *to)
{
	struct part old, new;
	bool has_old, has_new = false;
	void *p;

	if (is_refused(base, old_len)) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	has_old = is_sound(base, old_len) &&
		  memory_part((uintptr_t)base, old_len, &old.first, &old.count);
	if (flags & MREMAP_FIXED && is_sound(to, new_len))
		has_new = memory_part((uintptr_t)to, new_len, &new.first, &new.count);
	if (!has_old && !has_new)
		return LIBC(mremap)(base, old_len, new_len, flags, to);
	if (has_old && !(flags & ~MREMAP_MAYMOVE) && new_len &&
	    round_up(new_len) <= round_up(old_len))
		return round_up(new_len) < round_up(old_len) &&
				       do_munmap((char *)base + round_up(new_len),
						 round_up(old_len) - round_up(new_len))
			       ? MAP_FAILED
			       : base;
	if (has_old)
		memory_hide(old.first, old.count);
	if (has_new)
		memory_hide(new.first, new.count);
	memory_lock(&old.before);
	if (has_new)
		memory_release_kept_in(new.first, new.count);
	p = remap(has_old ? &old : NULL, has_new ? &new : NULL, base, old_len, new_len, flags, to);
	new.before = old.before;
	if (p == MAP_FAILED && has_old && memory.mode == MEMORY_OPEN)
		memory_show(old.first, old.count);
	if (has_new)
		end(&new);
	else
		memory_unlock(&old.before);
	return p;
}

PUBLIC void *shmat(int id, const void *base, int flags)
{
	struct shmid_ds info;
	struct part part;
	uintptr_t at = (uintptr_t)base & ~((uintptr_t)(flags & SHM_RND ? MEMORY_PAGE - 1 : 0));
	void *p;

	if (!base || at % MEMORY_PAGE || !memory_part(at, 1, &part.first, &part.count) ||
	    shmctl(id, IPC_STAT, &info) || !begin(&part, (void *)at, info.shm_segsz))
		return LIBC(shmat)(id, base, flags);
	if (!make_room(&part, flags & SHM_REMAP)) {
		end(&part);
		errno = ENOMEM;
		return (void *)-1;
	}
	p = (void *)RAW(SYS_shmat, id, base, flags);
	if (p != (void *)-1)
		memory_forget(part.first, part.count);
	end(&part);
	return p;
}

/* --- rights ----------------------------------------------------------------------------------- */

static int protect_piece(char *base, size_t len, uint32_t kind, int prot)
{
	uint32_t first = page_at(base), count = (uint32_t)(len / MEMORY_PAGE);
	int ret = (int)RAW(SYS_mprotect, base, len, prot);

	/* A kernel may forbid code in memfds. */
	if (ret && errno == EACCES && kind == PAGE_SHARED && !memory_make_private(first, count))
		ret = (int)RAW(SYS_mprotect, base, len, prot);
	if (!ret && kind != PAGE_GONE)
		change(first, count, PAGE_PROT,
		       (uint8_t)((prot & (PROT_READ | PROT_WRITE | PROT_EXEC)) << PAGE_PROT_SHIFT));
	return ret;
}

static int do_mprotect(void *base, size_t len, int prot)
{
	struct part part;
	int ret;

	if (!is_sound(base, len) || prot & ~(PROT_READ | PROT_WRITE | PROT_EXEC) ||
	    !begin(&part, base, len))
		return LIBC(mprotect)(base, len, prot);
	ret = for_pieces(&part, base, len, false, prot, protect_piece);
	end(&part);
	return ret;
}

PUBLIC int pkey_mprotect(void *base, size_t len, int prot, int key)
{
	struct part part;
	int ret;

	if (key == -1)
		return do_mprotect(base, len, prot);
	if (!is_sound(base, len) || !begin(&part, base, len))
		return LIBC(pkey_mprotect)(base, len, prot, key);
	ret = memory_make_private(part.first, part.count)
		      ? fail(ENOMEM)
		      : (int)RAW(SYS_pkey_mprotect, base, len, prot, key);
	end(&part);
	return ret;
}

/* --- advice ----------------------------------------------------------------------------------- */

/* Of kernels newer than the headers. */
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#define MADV_GUARDS        102
#define MADV_GUARDS_REMOVE 103

/* What private memory does, and a memfd does not, or not in the same way. */
static int advise_shared(char *base, size_t len, int advice)
{
	uint32_t first = page_at(base), count = (uint32_t)(len / MEMORY_PAGE);
	int ret;

	switch (advice) {
	case MADV_DONTNEED:
	case MADV_FREE:
		/* The kernel refuses locked pages; its word on these is ours. */
		if ((int)RAW(SYS_madvise, base, len, MADV_DONTNEED))
			return -1;
		ret = memory_punch(first, count);
		return ret ? fail(-ret) : 0;
	case MADV_REMOVE:
		return fail(EINVAL);
	case MADV_HUGEPAGE:
		if (!memory.huge_private)
			break;
		/* fall through */
	case MADV_WIPEONFORK:
	case MADV_KEEPONFORK:
	case MADV_DONTNEED_LOCKED:
	case MADV_GUARDS:
	case MADV_GUARDS_REMOVE:
		return memory_make_private(first, count) ? fail(ENOMEM)
							 : (int)RAW(SYS_madvise, base, len, advice);
	}
	ret = (int)RAW(SYS_madvise, base, len, advice);
	if (!ret)
		change(first, count, 0, PAGE_ODD);
	return ret;
}

static int advise_piece(char *base, size_t len, uint32_t kind, int advice)
{
	uint32_t first = page_at(base), count = (uint32_t)(len / MEMORY_PAGE);
	int ret = kind == PAGE_SHARED ? advise_shared(base, len, advice)
				      : (int)RAW(SYS_madvise, base, len, advice);

	if (!ret && kind != PAGE_GONE && advice == MADV_DONTFORK)
		change(first, count, 0, PAGE_NOFORK);
	if (!ret && kind != PAGE_GONE && advice == MADV_DOFORK)
		change(first, count, PAGE_NOFORK, 0);
	return ret;
}

static int do_madvise(void *base, size_t len, int advice)
{
	struct part part;
	int ret;

	if (!is_sound(base, len) || !begin(&part, base, len))
		return LIBC(madvise)(base, len, advice);
	ret = for_pieces(&part, base, len, true, advice, advise_piece);
	end(&part);
	return ret;
}

/* --- locks ------------------------------------------------------------------------------------ */

/* A free page is mapped without rights, which would count as locked. */
static bool note_locked(const void *base, size_t len)
{
	uintptr_t at = (uintptr_t)base & ~((uintptr_t)MEMORY_PAGE - 1);
	sigset_t before;
	uint32_t first, count;
	bool mapped = true;

	if (!len || len > SIZE_MAX / 2 ||
	    !memory_part(at, (uintptr_t)base + len - at, &first, &count))
		return true;
	memory_lock(&before);
	for (uint32_t i = first; i < first + count; i++) {
		if (kind_of(i) == PAGE_FREE)
			mapped = false;
		else if (kind_of(i) != PAGE_GONE)
			memory.pages.state[i] |= PAGE_ODD;
	}
	memory_unlock(&before);
	return mapped;
}

static int do_mlock(const void *base, size_t len)
{
	return note_locked(base, len) ? LIBC(mlock)(base, len) : fail(ENOMEM);
}

PUBLIC int mlock2(const void *base, size_t len, unsigned int flags)
{
	return note_locked(base, len) ? LIBC(mlock2)(base, len, flags) : fail(ENOMEM);
}

/* Freed pages were never locked, or have a new mapping since. */
PUBLIC int munlock(const void *base, size_t len)
{
	return note_locked(base, len) ? LIBC(munlock)(base, len) : fail(ENOMEM);
}

/* --- system calls ----------------------------------------------------------------------------- */

/* Which nodes have the memory: the kernel keeps that with the file. */
static long bind_pages(const long *arg)
{
	struct part part;
	long ret;

	if (!begin(&part, (void *)arg[1], (size_t)arg[2]))
		return RAW(arg[0], arg[1], arg[2], arg[3], arg[4], arg[5], arg[6]);
	ret = RAW(arg[0], arg[1], arg[2], arg[3], arg[4], arg[5], arg[6]);
	if (!ret) {
		memory.has_policies = true;
		for (uint32_t i = part.first; i < part.first + part.count; i++)
			if (kind_of(i) == PAGE_SHARED)
				memory.pages.state[i] |= PAGE_ODD;
	}
	end(&part);
	return ret;
}

/* What ours do not leave to libc's. */
static bool is_about_pages(const long *arg)
{
	uint32_t first, count;

	switch (arg[0]) {
	case SYS_mmap:
		return true;
	case SYS_munmap:
	case SYS_mprotect:
	case SYS_madvise:
	case SYS_mlock:
	case SYS_mbind:
		break;
	case SYS_mremap:
		if (arg[4] & MREMAP_FIXED && is_sound((void *)arg[5], (size_t)arg[3]) &&
		    memory_part((uintptr_t)arg[5], (size_t)arg[3], &first, &count))
			return true;
		break;
	default:
		return false;
	}
	return is_sound((void *)arg[1], (size_t)arg[2]) &&
	       memory_part((uintptr_t)arg[1], (size_t)arg[2], &first, &count);
}

/*
 * Libraries that watch the mappings of a program write a jump over the first bytes of libc's
 * functions, or of ours, tell themselves, and make the system call: Open MPI and UCX. So nothing here
 * calls one of ours by its name, and none of libc's with the lock.
 */
bool memory_syscall(const long *arg, long *ret)
{
	void *base = (void *)arg[1], *p;
	size_t len = (size_t)arg[2];

	if (!is_about_pages(arg))
		return false;
	switch (arg[0]) {
	case SYS_mmap:
		if (!map_here(base, len, (int)arg[3], (int)arg[4], (int)arg[5], arg[6], &p))
			return false;
		*ret = (long)p;
		return true;
	case SYS_munmap:
		*ret = do_munmap(base, len);
		return true;
	case SYS_mprotect:
		*ret = do_mprotect(base, len, (int)arg[3]);
		return true;
	case SYS_madvise:
		*ret = do_madvise(base, len, (int)arg[3]);
		return true;
	case SYS_mlock:
		*ret = do_mlock(base, len);
		return true;
	case SYS_mbind:
		*ret = bind_pages(arg);
		return true;
	default:
		*ret = (long)do_mremap(base, len, (size_t)arg[3], (int)arg[4], (void *)arg[5]);
		return true;
	}
}

/* --- by their names --------------------------------------------------------------------------- */

PUBLIC void *mmap(void *base, size_t len, int prot, int flags, int fd, off_t offset)
{
	return do_mmap(base, len, prot, flags, fd, offset);
}

_Static_assert(sizeof(off_t) == sizeof(off64_t), "one function");

PUBLIC void *mmap64(void *base, size_t len, int prot, int flags, int fd, off64_t offset)
{
	return do_mmap(base, len, prot, flags, fd, offset);
}

PUBLIC int munmap(void *base, size_t len)
{
	return do_munmap(base, len);
}

PUBLIC void *mremap(void *base, size_t old_len, size_t new_len, int flags, ...)
{
	void *to = NULL;
	va_list args;

	va_start(args, flags);
	if (flags & MREMAP_FIXED)
		to = va_arg(args, void *);
	va_end(args);
	return do_mremap(base, old_len, new_len, flags, to);
}

PUBLIC int mprotect(void *base, size_t len, int prot)
{
	return do_mprotect(base, len, prot);
}

PUBLIC int madvise(void *base, size_t len, int advice)
{
	return do_madvise(base, len, advice);
}

PUBLIC int mlock(const void *base, size_t len)
{
	return do_mlock(base, len);
}

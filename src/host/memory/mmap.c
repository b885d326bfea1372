// SPDX-License-Identifier: MIT
/*
 * mmap() and its relatives, in front of libc's. Private anonymous memory that a program wants at no
 * certain place comes from the range; what the program then does with pages of the range behaves as
 * it does with private memory, or they become private first, and the kernel does the rest:
 *
 *	munmap              the pages are free
 *	mprotect            as it is; what cannot be written becomes private
 *	madvise             DONTNEED and FREE punch a hole, so that zeros are read; most others as they are
 *	mlock               as it is
 *	mseal, keys         private first
 *	MAP_FIXED           what was there leaves the file
 *	mremap              remap.c
 */
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>

#include "host/memory/huge.h"
#include "host/memory/libc.h"
#include "host/memory/memory.h"

static int mmap_fail(int err)
{
	errno = err;
	return -1;
}

/* Pages of a call, and the lock. */
struct part {
	uint32_t first, count;
	int err; /* errno before: a call that succeeds leaves it alone */
	sigset_t before;
};

/* The pages of the range among those of a call, hidden from peers and locked. False: there are none. */
static bool mmap_begin(struct part *part, const void *base, size_t len)
{
	struct memory_pages pages[2] = { 0 };

	part->err = errno;
	if (!memory_part((uintptr_t)base, len, &part->first, &part->count))
		return false;
	pages[0] = (struct memory_pages){ part->first, part->count };
	memory_hide_and_lock(pages, &part->before);
	memory_release_kept_in(part->first, part->count);
	return true;
}

/* What can be shown to peers is shown again. err: what errno shall be, or 0: the call has succeeded. */
static void mmap_end(struct part *part, int err)
{
	memory_show_again(part->first, part->count);
	memory_unlock(&part->before);
	errno = err ? err : part->err;
}

static uint32_t mmap_kind_of(uint32_t page)
{
	return memory.pages.state[page] & PAGE_KIND;
}

static size_t mmap_round_up(size_t len)
{
	return (len + MEMORY_PAGE - 1) & ~((size_t)MEMORY_PAGE - 1);
}

/* An address and a length that the kernel takes. */
static bool mmap_is_sound(const void *base, size_t len)
{
	return !((uintptr_t)base % MEMORY_PAGE) && len && len <= SIZE_MAX / 2;
}

static void mmap_change(uint32_t first, uint32_t count, uint8_t clear, uint8_t set)
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
	char *stop = base + mmap_round_up(len);
	bool hole = false;
	int ret = 0;

	if (base < from)
		ret = call(base, (size_t)(from - base), PAGE_GONE, arg);
	for (; !ret && page < last; page += n) {
		n = pages_alike(&memory.pages, page, last, PAGE_KIND);
		if (mmap_kind_of(page) != PAGE_FREE)
			ret = call(memory_page(page), (size_t)n * MEMORY_PAGE, mmap_kind_of(page),
				   arg);
		else if (over_holes)
			hole = true;
		else
			ret = mmap_fail(ENOMEM);
	}
	if (!ret && stop > to)
		ret = call(to, (size_t)(stop - to), PAGE_GONE, arg);
	return ret || !hole ? ret : mmap_fail(ENOMEM);
}

static uint32_t mmap_page_at(const char *base)
{
	return (uint32_t)((uintptr_t)(base - (uintptr_t)memory.base) / MEMORY_PAGE);
}

/* --- mmap ------------------------------------------------------------------------------------- */

static void *map_ours(size_t len, int flags)
{
	bool dirty;
	void *p = memory_take(len, 1, false, &dirty);
	int err = errno;

#ifdef MADV_POPULATE_WRITE
	if (p && flags & MAP_POPULATE)
		RAW(SYS_madvise, p, mmap_round_up(len), MADV_POPULATE_WRITE);
#endif
	errno = err;
	return p;
}

struct map_call {
	void *base;
	size_t len;
	int prot, flags, fd;
	off_t offset;
	void *result;
};

static int call_mmap(void *arg)
{
	struct map_call *call = arg;

	call->result = (void *)RAW(SYS_mmap, call->base, call->len, call->prot, call->flags,
				   call->fd, call->offset);
	return call->result == MAP_FAILED ? -errno : call->result == call->base ? 0 : -EEXIST;
}

/* What pages are that the program has mapped itself: memory as ours, once it is private, or not. */
static void note_mapped(const struct part *part, int prot, int flags)
{
	int plain = MAP_PRIVATE | MAP_ANONYMOUS;
	int place = MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_POPULATE;

	memory_replaced(part->first, part->count, prot & (PROT_READ | PROT_WRITE | PROT_EXEC),
			(flags & ~place) == plain ? 0 : MARK_OTHER);
}

/* At the address that the program names: false where that is not in the range. */
static bool map_over(struct map_call *call, void **p)
{
	struct part part;
	int ret;

	if (!mmap_begin(&part, call->base, call->len))
		return false;
	ret = memory_replace(part.first, part.count, call_mmap, call);
	if (!ret)
		note_mapped(&part, call->prot, call->flags);
	mmap_end(&part, call->result == MAP_FAILED ? -ret : 0);
	*p = call->result;
	return true;
}

/* The kernel takes the address for a wish, and grants it if nothing is there: free pages of ours. */
static bool map_wish(struct map_call *call, void **p)
{
	struct part part;

	if (!memory_part((uintptr_t)call->base, call->len, &part.first, &part.count))
		return false;
	memory_lock(&part.before);
	call_mmap(call);
	*p = call->result;
	if (*p != MAP_FAILED && memory_part((uintptr_t)*p, call->len, &part.first, &part.count))
		note_mapped(&part, call->prot, call->flags);
	memory_unlock(&part.before);
	return true;
}

/* False: it is libc's, or the kernel's, to do. */
static bool map_here(void *base, size_t len, int prot, int flags, int fd, off_t offset, void **p)
{
	struct map_call call = { base, len, prot, flags, fd, offset, MAP_FAILED };

	if (!base && !(flags & ~MAP_POPULATE & ~(MAP_PRIVATE | MAP_ANONYMOUS)) &&
	    flags & MAP_ANONYMOUS && flags & MAP_PRIVATE && prot == (PROT_READ | PROT_WRITE) &&
	    !offset && len && memory_is_open()) {
		*p = map_ours(len, flags);
		return *p;
	}
	if (!base || !mmap_is_sound(base, len))
		return false;
	return flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) ? map_over(&call, p) : map_wish(&call, p);
}

static void *do_mmap(void *base, size_t len, int prot, int flags, int fd, off_t offset)
{
	void *p;

	return map_here(base, len, prot, flags, fd, offset, &p)
		       ? p
		       : LIBC(mmap)(base, len, prot, flags, fd, offset);
}

static int do_munmap(void *base, size_t len)
{
	struct part part;
	int ret;

	if (!mmap_is_sound(base, len) || !mmap_begin(&part, base, len))
		return LIBC(munmap)(base, len);
	ret = memory_unmap(base, mmap_round_up(len), part.first, part.count);
	mmap_end(&part, -ret);
	return ret ? -1 : 0;
}

struct attach_call {
	int id, flags;
	const void *base;
	void *result;
};

static int call_shmat(void *arg)
{
	struct attach_call *call = arg;

	call->result = (void *)RAW(SYS_shmat, call->id, call->base, call->flags);
	return call->result == (void *)-1 ? -errno : 0;
}

PUBLIC void *shmat(int id, const void *base, int flags)
{
	struct attach_call call = { id, flags, base, (void *)-1 };
	struct shmid_ds info;
	struct part part;
	uintptr_t at = (uintptr_t)base & ~((uintptr_t)(flags & SHM_RND ? MEMORY_PAGE - 1 : 0));
	int ret;

	if (!base || at % MEMORY_PAGE || !memory_part(at, 1, &part.first, &part.count) ||
	    shmctl(id, IPC_STAT, &info) || !mmap_begin(&part, (void *)at, info.shm_segsz))
		return LIBC(shmat)(id, base, flags);
	ret = memory_replace(part.first, part.count, call_shmat, &call);
	if (!ret)
		memory_forget(part.first, part.count);
	mmap_end(&part, -ret);
	return call.result;
}

/* --- rights ----------------------------------------------------------------------------------- */

/*
 * What cannot be written becomes private: debuggers write there all the same, by ptrace() and
 * /proc/PID/mem, which the kernel allows only with private memory. The right is taken first, so no
 * thread's store is lost. A kernel may forbid code in memfds, too.
 */
static int protect_piece(char *base, size_t len, uint32_t kind, int prot)
{
	uint32_t first = mmap_page_at(base), count = (uint32_t)(len / MEMORY_PAGE);
	int ret = (int)RAW(SYS_mprotect, base, len, prot);

	if (ret && errno == EACCES && kind == PAGE_SHARED && !memory_make_private(first, count))
		ret = (int)RAW(SYS_mprotect, base, len, prot);
	if (ret || kind == PAGE_GONE)
		return ret;
	mmap_change(first, count, PAGE_PROT,
		    (uint8_t)((prot & (PROT_READ | PROT_WRITE | PROT_EXEC)) << PAGE_PROT_SHIFT));
	if (!(prot & PROT_WRITE) && memory.runs < MEMORY_RUNS)
		memory_make_private(first, count); /* without memory for that it is shared */
	return 0;
}

static int do_mprotect(void *base, size_t len, int prot)
{
	struct part part;
	int ret;

	if (!mmap_is_sound(base, len) || prot & ~(PROT_READ | PROT_WRITE | PROT_EXEC) ||
	    !mmap_begin(&part, base, len))
		return LIBC(mprotect)(base, len, prot);
	ret = for_pieces(&part, base, len, false, prot, protect_piece);
	mmap_end(&part, ret ? errno : 0);
	return ret;
}

static int do_pkey_mprotect(void *base, size_t len, int prot, int key)
{
	struct part part;
	int ret;

	if (key == -1)
		return do_mprotect(base, len, prot);
	if (!mmap_is_sound(base, len) || !mmap_begin(&part, base, len))
		return LIBC(pkey_mprotect)(base, len, prot, key);
	ret = memory_make_private(part.first, part.count)
		      ? mmap_fail(ENOMEM)
		      : (int)RAW(SYS_pkey_mprotect, base, len, prot, key);
	if (!ret) {
		mmap_change(part.first, part.count, PAGE_PROT,
			    (uint8_t)((prot & (PROT_READ | PROT_WRITE | PROT_EXEC))
				      << PAGE_PROT_SHIFT));
		memory_mark(part.first, part.count, 0, MARK_OTHER);
	}
	mmap_end(&part, ret ? errno : 0);
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
	uint32_t first = mmap_page_at(base), count = (uint32_t)(len / MEMORY_PAGE);
	int ret;

	switch (advice) {
	case MADV_DONTNEED:
	case MADV_FREE:
		/* The kernel refuses locked pages; its word on these is ours. */
		if ((int)RAW(SYS_madvise, base, len, MADV_DONTNEED))
			return -1;
		ret = memory_punch(first, count);
		return ret ? mmap_fail(-ret) : 0;
	case MADV_REMOVE:
		return mmap_fail(EINVAL);
	case MADV_HUGEPAGE:
		if (!memory.huge_private)
			break;
		/* fall through */
	case MADV_WIPEONFORK:
	case MADV_KEEPONFORK:
	case MADV_DONTNEED_LOCKED:
	case MADV_GUARDS:
	case MADV_GUARDS_REMOVE:
		return memory_make_private(first, count) ? mmap_fail(ENOMEM)
							 : (int)RAW(SYS_madvise, base, len, advice);
	}
	return (int)RAW(SYS_madvise, base, len, advice);
}

/* What the kernel keeps of an advice with the mapping. */
static void note_advice(uint32_t first, uint32_t count, int advice)
{
	static const struct {
		int advice;
		uint16_t clear, set;
	} notes[] = {
		{ MADV_NORMAL, MARK_SEQUENTIAL | MARK_RANDOM, 0 },
		{ MADV_SEQUENTIAL, MARK_RANDOM, MARK_SEQUENTIAL },
		{ MADV_RANDOM, MARK_SEQUENTIAL, MARK_RANDOM },
		{ MADV_DONTDUMP, 0, MARK_DONTDUMP },
		{ MADV_DODUMP, MARK_DONTDUMP, 0 },
		{ MADV_HUGEPAGE, MARK_NOHUGE, MARK_HUGE },
		{ MADV_NOHUGEPAGE, MARK_HUGE, MARK_NOHUGE },
		{ MADV_MERGEABLE, 0, MARK_MERGEABLE },
		{ MADV_UNMERGEABLE, MARK_MERGEABLE, 0 },
		{ MADV_WIPEONFORK, 0, MARK_WIPE },
		{ MADV_KEEPONFORK, MARK_WIPE, 0 },
	};

	for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++)
		if (notes[i].advice == advice)
			memory_mark(first, count, notes[i].clear, notes[i].set);
	if (advice == MADV_DONTFORK)
		mmap_change(first, count, 0, PAGE_NOFORK);
	if (advice == MADV_DOFORK)
		mmap_change(first, count, PAGE_NOFORK, 0);
}

static int advise_piece(char *base, size_t len, uint32_t kind, int advice)
{
	int ret = kind == PAGE_SHARED ? advise_shared(base, len, advice)
				      : (int)RAW(SYS_madvise, base, len, advice);

	if (!ret && kind != PAGE_GONE)
		note_advice(mmap_page_at(base), (uint32_t)(len / MEMORY_PAGE), advice);
	return ret;
}

static int do_madvise(void *base, size_t len, int advice)
{
	struct part part;
	int ret;

	if (!mmap_is_sound(base, len) || !mmap_begin(&part, base, len))
		return LIBC(madvise)(base, len, advice);
	ret = for_pieces(&part, base, len, true, advice, advise_piece);
	mmap_end(&part, ret ? errno : 0);
	return ret;
}

/* --- locks ------------------------------------------------------------------------------------ */

/* The kernel has locked these pages, or, where it said ENOMEM, those before the first that is not mapped. */
static int note_locked(int ret, const void *base, size_t len, uint16_t clear, uint16_t set)
{
	uintptr_t at = (uintptr_t)base & ~((uintptr_t)MEMORY_PAGE - 1);
	uint32_t first, count, n = 0;
	int err = errno;
	sigset_t before;

	if ((ret && err != ENOMEM) || !len || len > SIZE_MAX / 2 ||
	    !memory_part(at, (uintptr_t)base + len - at, &first, &count))
		return ret;
	memory_lock(&before);
	while (n < count && mmap_kind_of(first + n) != PAGE_FREE)
		n++;
	memory_mark(first, n, clear, set);
	memory_unlock(&before);
	errno = err;
	return ret;
}

static int do_mlock(const void *base, size_t len)
{
	if (!atomic_load(&memory.size))
		return LIBC(mlock)(base, len);
	return note_locked((int)RAW(SYS_mlock, base, len), base, len, MARK_ONFAULT, MARK_LOCKED);
}

static int do_mlock2(const void *base, size_t len, unsigned int flags)
{
	if (!atomic_load(&memory.size))
		return LIBC(mlock2)(base, len, flags);
	return note_locked((int)RAW(SYS_mlock2, base, len, flags), base, len, MARK_ONFAULT,
			   flags & MLOCK_ONFAULT ? MARK_LOCKED | MARK_ONFAULT : MARK_LOCKED);
}

static int do_munlock(const void *base, size_t len)
{
	if (!atomic_load(&memory.size))
		return LIBC(munlock)(base, len);
	return note_locked((int)RAW(SYS_munlock, base, len), base, len, MARK_LOCKED | MARK_ONFAULT,
			   0);
}

/* --- what is for files, and what is for good --------------------------------------------------- */

/* Whether it is a page of the program's, which is not a file to it, or none. */
static bool is_no_file(const void *base)
{
	uint32_t first, count;

	return memory_part((uintptr_t)base, 1, &first, &count) &&
	       mmap_kind_of(first) != PAGE_GONE && !(memory_marks(first) & MARK_OTHER);
}

static int do_remap_file_pages(void *base, size_t len, int prot, size_t page, int flags)
{
	return is_no_file(base) ? mmap_fail(EINVAL)
				: LIBC(remap_file_pages)(base, len, prot, page, flags);
}

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

/* What is sealed can never become private, and is asked for nothing that only private memory does. */
static int do_mseal(void *base, size_t len, unsigned long flags)
{
	struct part part;
	int ret = 0;

	if (!mmap_is_sound(base, len) || !mmap_begin(&part, base, len))
		return (int)RAW(SYS_mseal, base, len, flags);
	/* A kernel without it, or flags that it does not know. */
	if (!RAW(SYS_mseal, base, 0, flags))
		ret = memory_make_private(part.first, part.count) ? mmap_fail(ENOMEM) : 0;
	if (!ret)
		ret = (int)RAW(SYS_mseal, base, len, flags);
	if (!ret)
		memory_mark(part.first, part.count, 0, MARK_OTHER);
	mmap_end(&part, ret ? errno : 0);
	return ret;
}

/* --- system calls ----------------------------------------------------------------------------- */

/* Which nodes have the memory: the kernel keeps that with the file. */
static long bind_pages(const long *arg)
{
	struct part part;
	long ret;

	if (!mmap_begin(&part, (void *)arg[1], (size_t)arg[2]))
		return RAW(arg[0], arg[1], arg[2], arg[3], arg[4], arg[5], arg[6]);
	ret = RAW(arg[0], arg[1], arg[2], arg[3], arg[4], arg[5], arg[6]);
	if (!ret) {
		memory.has_policies = true;
		memory_mark(part.first, part.count, 0, MARK_NODES);
	}
	mmap_end(&part, ret ? errno : 0);
	return ret;
}

/*
 * Whether a call names pages of the range, and ours would not leave it to libc's. Only locks take
 * addresses that are no page's.
 */
static bool is_about_pages(const long *arg)
{
	uint32_t first, count;
	size_t len = (size_t)arg[2];

	switch (arg[0]) {
	case SYS_mmap:
	case SYS_mremap:
	case SYS_mlockall:
	case SYS_munlockall:
		return true;
	case SYS_mlock:
	case SYS_mlock2:
	case SYS_munlock:
	case SYS_remap_file_pages:
		break;
	case SYS_mprotect:
		if (!mmap_is_sound((void *)arg[1], len) ||
		    arg[3] & ~(PROT_READ | PROT_WRITE | PROT_EXEC))
			return false;
		break;
	case SYS_munmap:
	case SYS_pkey_mprotect:
	case SYS_madvise:
	case SYS_mbind:
	case SYS_mseal:
		if (!mmap_is_sound((void *)arg[1], len))
			return false;
		break;
	default:
		return false;
	}
	return len && len <= SIZE_MAX / 2 && memory_part((uintptr_t)arg[1], len, &first, &count);
}

static bool call_locks(const long *arg, long *ret)
{
	void *base = (void *)arg[1];
	size_t len = (size_t)arg[2];

	switch (arg[0]) {
	case SYS_mlock:
		*ret = do_mlock(base, len);
		return true;
	case SYS_mlock2:
		*ret = do_mlock2(base, len, (unsigned int)arg[3]);
		return true;
	case SYS_munlock:
		*ret = do_munlock(base, len);
		return true;
	case SYS_mlockall:
		*ret = memory_lock_all((int)arg[1]);
		return true;
	case SYS_munlockall:
		*ret = memory_unlock_all();
		return true;
	default:
		return false;
	}
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
	case SYS_pkey_mprotect:
		*ret = do_pkey_mprotect(base, len, (int)arg[3], (int)arg[4]);
		return true;
	case SYS_madvise:
		*ret = do_madvise(base, len, (int)arg[3]);
		return true;
	case SYS_mbind:
		*ret = bind_pages(arg);
		return true;
	case SYS_mseal:
		*ret = do_mseal(base, len, (unsigned long)arg[3]);
		return true;
	case SYS_remap_file_pages:
		*ret = do_remap_file_pages(base, len, (int)arg[3], (size_t)arg[4], (int)arg[5]);
		return true;
	case SYS_mremap:
		if (!memory_remap(base, len, (size_t)arg[3], (int)arg[4], (void *)arg[5], &p))
			return false;
		*ret = (long)p;
		return true;
	default:
		return call_locks(arg, ret);
	}
}

/* --- by their names --------------------------------------------------------------------------- */

static void *map_pages(void *base, size_t len, int prot, int flags, int fd, off_t offset,
		       const void *caller)
{
	int before = errno;
	void *p = do_mmap(base, len, prot, flags, fd, offset);

	return p == MAP_FAILED && flags & MAP_HUGETLB
		       ? huge_map_ordinary(base, len, prot, flags, before, caller)
		       : p;
}

PUBLIC void *mmap(void *base, size_t len, int prot, int flags, int fd, off_t offset)
{
	return map_pages(base, len, prot, flags, fd, offset, __builtin_return_address(0));
}

_Static_assert(sizeof(off_t) == sizeof(off64_t), "one function");

PUBLIC void *mmap64(void *base, size_t len, int prot, int flags, int fd, off64_t offset)
{
	return map_pages(base, len, prot, flags, fd, offset, __builtin_return_address(0));
}

PUBLIC int munmap(void *base, size_t len)
{
	return do_munmap(base, len);
}

PUBLIC void *mremap(void *base, size_t old_len, size_t new_len, int flags, ...)
{
	void *to = NULL, *p;
	va_list args;

	va_start(args, flags);
	if (flags & MREMAP_FIXED)
		to = va_arg(args, void *);
	va_end(args);
	return memory_remap(base, old_len, new_len, flags, to, &p)
		       ? p
		       : LIBC(mremap)(base, old_len, new_len, flags, to);
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

PUBLIC int mlock2(const void *base, size_t len, unsigned int flags)
{
	return do_mlock2(base, len, flags);
}

PUBLIC int munlock(const void *base, size_t len)
{
	return do_munlock(base, len);
}

PUBLIC int pkey_mprotect(void *base, size_t len, int prot, int key)
{
	return do_pkey_mprotect(base, len, prot, key);
}

PUBLIC int remap_file_pages(void *base, size_t len, int prot, size_t page, int flags)
{
	return do_remap_file_pages(base, len, prot, page, flags);
}

/* Newer than many C libraries. */
PUBLIC int mseal(void *base, size_t len, unsigned long flags);

PUBLIC int mseal(void *base, size_t len, unsigned long flags)
{
	return do_mseal(base, len, flags);
}

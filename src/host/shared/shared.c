// SPDX-License-Identifier: MIT
/*
 * Owns the table of shared pages (shared.h has its form and what peers rely on).
 *
 * The table is made with the first range. Its file has its full size from the start and is sparse,
 * so nobody meets its end. Tables in it are given out one after the other and stay: they are a
 * 512th of the memory that was ever shared. Changes are made under one lock.
 *
 * A forked child starts without a table, because what it inherits is its parent's: the mapping of
 * the table does not go to a child, and what we know of it lies in a page that is zero there. Both
 * are the kernel's doing, so a child of clone() has none either.
 */
#include "host/shared/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/config.h"
#include "base/env.h"
#include "base/file.h"
#include "base/fork.h"
#include "base/lock.h"
#include "base/mask.h"

enum { MAP_BYTES = VB_SHARED_FIRST + VB_SHARED_TABLES * VB_SHARED_TABLE_BYTES };

#define LEAF_BYTES   ((uint64_t)VB_SHARED_LEAF * VB_SHARED_PAGE)
#define MIDDLE_BYTES (LEAF_BYTES * VB_SHARED_MIDDLE)
#define TOP          (MIDDLE_BYTES * VB_SHARED_ROOT) /* addresses are below */

/* In a page that a forked child finds zero. */
struct state {
	struct vb_lock lock;
	bool failed;                         /* the table could not be made: not tried again */
	uint32_t tables;                     /* given out */
	_Atomic(struct vb_shared_map *) map; /* NULL: not made yet */
	_Atomic(const struct vb_shared_hooks *) hooks;
	_Atomic uint32_t calling;        /* threads that call one */
	uint32_t era;                    /* of the process, once it has called one; 0 in a child */
	uint32_t next_generation;        /* of files */
	uint64_t pages[VB_SHARED_FILES]; /* shared ones, of each file */
	_Atomic uint32_t leaving;        /* ranges that peers may still be using, though removed */
};

_Static_assert(sizeof(struct state) <= 4096, "one page");

static struct state *own;                        /* NULL: the kernel cannot do that */
static struct vb_file table_file = { .fd = -1 }; /* under the lock */

static void shared_start(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return;
	if (madvise(at, page, MADV_WIPEONFORK))
		munmap(at, page);
	else
		own = at;
}

VB_STAGE(SHARED, .start = shared_start);

/*
 * Handlers of signals may map, unmap and fork, so none runs in a thread that has the lock. The faults
 * stay: libverbatim answers some of them, and none happens here.
 */
static void lock_table(sigset_t *before)
{
	vb_signal_block(before);
	vb_lock(&own->lock);
}

static void unlock_table(const sigset_t *before)
{
	vb_unlock(&own->lock);
	vb_signal_unblock(before);
}

/* --- the switch -------------------------------------------------------------------------------- */

static bool shared_switched_off(void)
{
	static _Atomic int off = -1;
	int is = atomic_load_explicit(&off, memory_order_relaxed);

	if (is < 0) {
		const char *value = vb_getenv("VERBATIM_SHARE");
		const struct vb_config *config = vb_config_get();

		is = (value && !strcmp(value, "off")) || (config && config->share_off);
		atomic_store_explicit(&off, is, memory_order_relaxed);
	}
	return is;
}

bool vb_shared_wanted(void)
{
	return own && !own->failed && !shared_switched_off();
}

/* --- files ------------------------------------------------------------------------------------- */

/* Growing beyond the limit would be a SIGXFSZ. */
static bool may_have(uint64_t bytes)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
	       bytes <= limit.rlim_cur;
}

int vb_shared_memfd(const char *name, uint64_t bytes)
{
	VB_NO_CANCEL;
	int fd, ret;

	if (!may_have(bytes))
		return -EFBIG;
	fd = vb_file_above_stdio(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (fd < 0)
		return -errno;
	if (fchmod(fd, 0600) || ftruncate(fd, (off_t)bytes) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)) {
		ret = -errno;
		close(fd);
		return ret;
	}
	return fd;
}

static int make_map(void)
{
	struct vb_shared_map *map;
	int fd, ret;

	vb_file_close(&table_file); /* the parent's, in a forked child */
	fd = vb_shared_memfd("verbatim-shared", MAP_BYTES);
	if (fd < 0)
		return fd;
	ret = vb_file_keep(&table_file, fd);
	if (ret)
		return ret;
	map = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (map == MAP_FAILED || madvise(map, MAP_BYTES, MADV_DONTFORK)) {
		ret = -errno;
		if (map != MAP_FAILED)
			munmap(map, MAP_BYTES);
		vb_file_close(&table_file);
		return ret;
	}
	madvise(map, MAP_BYTES, MADV_DONTDUMP); /* a dump would make all of its pages */
	map->magic = VB_SHARED_MAGIC;
	/* Pairs with vb_shared_find(). */
	atomic_store_explicit(&own->map, map, memory_order_release);
	return 0;
}

/*
 * Whether another file may come to this place. A peer that has read an entry before it was removed
 * looks the file up by its place: until its pin is awaited that must be the old one, or none.
 */
static bool shared_is_free(struct vb_shared_map *map, int file)
{
	return !own->pages[file] &&
	       (!atomic_load_explicit(&map->files[file].generation, memory_order_relaxed) ||
		/* Pairs with end_range(). */
		!atomic_load_explicit(&own->leaving, memory_order_acquire));
}

/* With the lock. The number of the file, or -ENOSPC. */
static int shared_take_file(struct vb_shared_map *map, const struct vb_file *of)
{
	int empty = -ENOSPC;

	for (int i = 0; i < VB_SHARED_FILES; i++) {
		struct vb_shared_file *file = &map->files[i];

		if (!own->pages[i]) {
			if (empty < 0 && shared_is_free(map, i))
				empty = i;
		} else if (file->dev == of->dev && file->ino == of->ino) {
			atomic_store_explicit(&file->fd, of->fd, memory_order_relaxed);
			return i;
		}
	}
	if (empty >= 0) {
		struct vb_shared_file *file = &map->files[empty];

		atomic_store_explicit(&file->fd, of->fd, memory_order_relaxed);
		atomic_store_explicit(&file->dev, of->dev, memory_order_relaxed);
		atomic_store_explicit(&file->ino, of->ino, memory_order_relaxed);
		if (!++own->next_generation)
			own->next_generation = 1;
		/* No entry leads here yet; those to come are stored with release. */
		atomic_store_explicit(&file->generation, own->next_generation,
				      memory_order_relaxed);
	}
	return empty;
}

/* --- tables ------------------------------------------------------------------------------------ */

static void *shared_table_at(struct vb_shared_map *map, uint32_t number)
{
	return (char *)map + VB_SHARED_FIRST + (size_t)(number - 1) * VB_SHARED_TABLE_BYTES;
}

/* What an entry leads to; where there is nothing and make, a new table; or NULL. */
static void *shared_follow(struct vb_shared_map *map, _Atomic uint32_t *entry, bool make)
{
	uint32_t number = atomic_load_explicit(entry, memory_order_acquire);

	if (!number && make && own->tables < VB_SHARED_TABLES) {
		number = ++own->tables;
		atomic_store_explicit(entry, number, memory_order_release);
	}
	return number ? shared_table_at(map, number) : NULL;
}

/*
 * The entry of a page, or NULL; *skip is then how far there is none. make: with the lock, and NULL
 * means that the table is full.
 */
static _Atomic uint64_t *entry_of(struct vb_shared_map *map, uint64_t addr, bool make,
				  uint64_t *skip)
{
	_Atomic uint32_t *middle;
	_Atomic uint64_t *leaf;

	*skip = MIDDLE_BYTES - addr % MIDDLE_BYTES;
	if (addr >= TOP)
		return NULL;
	middle = shared_follow(map, &map->root[addr / MIDDLE_BYTES], make);
	if (!middle)
		return NULL;
	*skip = LEAF_BYTES - addr % LEAF_BYTES;
	leaf = shared_follow(map, &middle[addr / LEAF_BYTES % VB_SHARED_MIDDLE], make);
	return leaf ? &leaf[addr / VB_SHARED_PAGE % VB_SHARED_LEAF] : NULL;
}

/* With the lock. Make pages shared; how many bytes of it could be, and *ret says why not all. */
static uint64_t shared_fill(struct vb_shared_map *map, uint64_t base, uint64_t len, uint32_t file,
			    uint64_t page, int *ret)
{
	uint64_t done = 0, skip;

	*ret = 0;
	for (; done < len; done += VB_SHARED_PAGE, page++) {
		_Atomic uint64_t *entry = entry_of(map, base + done, true, &skip);

		if (!entry || atomic_load_explicit(entry, memory_order_relaxed) > VB_SHARED_LEFT) {
			*ret = entry ? -EEXIST : -ENOSPC;
			break;
		}
		/* Pairs with the readers, here and in peers. */
		atomic_store_explicit(entry, VB_SHARED_ENTRY(file, page), memory_order_release);
		own->pages[file]++;
	}
	return done;
}

/* What becomes of the pages of a range. */
enum ending { LEAVE, FORGET };

/* With the lock. */
static bool end_page(_Atomic uint64_t *entry, enum ending ending)
{
	uint64_t was = atomic_load_explicit(entry, memory_order_relaxed);

	if (!was)
		return false;
	if (ending == FORGET) {
		if (was == VB_SHARED_LEFT)
			atomic_store_explicit(entry, 0, memory_order_release);
		return false;
	}
	if (was == VB_SHARED_LEFT)
		return false;
	atomic_store_explicit(entry, VB_SHARED_LEFT, memory_order_release);
	own->pages[vb_shared_entry_file(was)]--;
	return true;
}

/* With the lock. Whether any page was shared. */
static bool end_pages(struct vb_shared_map *map, uint64_t base, uint64_t end, enum ending ending)
{
	bool any = false;
	uint64_t skip;

	while (base < end) {
		_Atomic uint64_t *entry = entry_of(map, base, false, &skip);

		if (entry) {
			any |= end_page(entry, ending);
			skip = VB_SHARED_PAGE;
		}
		if (end - base <= skip)
			break;
		base += skip;
	}
	return any;
}

/* --- what others call -------------------------------------------------------------------------- */

/*
 * A call of a hook. Handlers of signals run meanwhile, because it may wait for peers, and one may fork: what the
 * child returns to is a call of its parent, which its counts know nothing of.
 */
struct call {
	const struct vb_shared_hooks *hooks; /* NULL: it is not called */
	uint32_t era;                        /* 0: there is nothing to call for */
};

/* With the lock. */
static struct call call_begin(void)
{
	static uint32_t eras; /* goes on in a child, where that of the page begins anew */

	if (!own->era)
		own->era = ++eras;
	/* Pairs with vb_shared_set_hooks(): it sees that we call, or we see that there are none. */
	atomic_fetch_add_explicit(&own->calling, 1, memory_order_seq_cst);
	return (struct call){ atomic_load_explicit(&own->hooks, memory_order_seq_cst), own->era };
}

/* leaves: ranges that left with it. */
static void call_end(const struct call *call, uint32_t leaves)
{
	sigset_t before;

	vb_signal_block(&before);
	if (own->era == call->era) {
		atomic_fetch_sub_explicit(&own->leaving, leaves, memory_order_release);
		atomic_fetch_sub_explicit(&own->calling, 1, memory_order_release);
	}
	vb_signal_unblock(&before);
}

/* With the lock. undo: how much of it has to be taken back, outside of the lock; made: the table was made. */
static int add_locked(uint64_t base, uint64_t len, const struct vb_file *of, uint64_t page,
		      struct call *made, uint64_t *undo)
{
	int file, ret;

	if (!atomic_load_explicit(&own->map, memory_order_relaxed)) {
		if (own->failed)
			return -ENOTSUP;
		ret = make_map();
		own->failed = ret;
		if (ret)
			return ret;
		*made = call_begin();
	}
	file = shared_take_file(own->map, of);
	if (file < 0)
		return file;
	*undo = shared_fill(own->map, base, len, (uint32_t)file, page, &ret);
	return ret;
}

int vb_shared_add_file(void *base, size_t len, const struct vb_file *file, off_t offset)
{
	uint64_t at = (uintptr_t)base, done = 0;
	struct call made = { 0 };
	sigset_t before;
	int ret;

	if (!vb_shared_wanted())
		return -ENOTSUP;
	if (!len || (at | len | (uint64_t)offset) % VB_SHARED_PAGE || offset < 0 || at >= TOP ||
	    len > TOP - at)
		return -EINVAL;
	lock_table(&before);
	ret = add_locked(at, len, file, (uint64_t)offset / VB_SHARED_PAGE, &made, &done);
	unlock_table(&before);
	if (made.hooks)
		made.hooks->made();
	if (made.era)
		call_end(&made, 0);
	if (ret && done)
		vb_shared_remove(base, done);
	return ret;
}

int vb_shared_add(void *base, size_t len, int fd, off_t offset)
{
	struct vb_file file = { .fd = fd };
	struct stat st;

	if (fstat(fd, &st))
		return vb_shared_wanted() ? -errno : -ENOTSUP;
	file.dev = st.st_dev;
	file.ino = st.st_ino;
	return vb_shared_add_file(base, len, &file, offset);
}

static void end_range(void *base, size_t len, enum ending ending)
{
	uint64_t first = (uintptr_t)base & ~(uint64_t)(VB_SHARED_PAGE - 1);
	uint64_t end = (uintptr_t)base + len;
	struct vb_shared_map *map;
	struct call call = { 0 };
	sigset_t before;

	map = own ? atomic_load_explicit(&own->map, memory_order_acquire) : NULL;
	if (!map || !len)
		return;
	if (end > TOP || end < first)
		end = TOP;
	end = (end + VB_SHARED_PAGE - 1) & ~(uint64_t)(VB_SHARED_PAGE - 1);
	lock_table(&before);
	/* A handler may have forked since the map was found. */
	if (map == atomic_load_explicit(&own->map, memory_order_relaxed) &&
	    end_pages(map, first, end, ending)) {
		atomic_fetch_add_explicit(&own->leaving, 1, memory_order_relaxed);
		call = call_begin();
	}
	unlock_table(&before);
	if (!call.era)
		return;
	/* The entries are cleared before pins are looked at; pairs with pin_take() in direct.c. */
	atomic_thread_fence(memory_order_seq_cst);
	if (call.hooks)
		call.hooks->wait(first, end - first);
	call_end(&call, 1);
}

void vb_shared_remove(void *base, size_t len)
{
	end_range(base, len, LEAVE);
}

void vb_shared_forget(void *base, size_t len)
{
	end_range(base, len, FORGET);
}

/* With signals blocked: the map is not mapped in a child that a handler forks. */
static bool shared_find(const void *addr, size_t len, struct vb_shared_piece *out)
{
	struct vb_shared_map *map = atomic_load_explicit(&own->map, memory_order_acquire);
	uint64_t at = (uintptr_t)addr, end = at + len, skip, next;
	uint64_t first = 0;

	*out = (struct vb_shared_piece){ .fd = -1, .len = len };
	if (!map || !len || end < at)
		return false;
	for (; at < end; at = at + skip < at ? end : at + skip) {
		_Atomic uint64_t *entry = entry_of(map, at, false, &skip);

		next = 0;
		if (entry) {
			next = atomic_load_explicit(entry, memory_order_acquire);
			next = next == VB_SHARED_LEFT ? 0 : next;
			skip = VB_SHARED_PAGE - at % VB_SHARED_PAGE;
		}
		if (at == (uintptr_t)addr) {
			first = next;
		} else if (!next != !first ||
			   (first && next != first + (at / VB_SHARED_PAGE -
						      (uintptr_t)addr / VB_SHARED_PAGE))) {
			out->len = at - (uintptr_t)addr;
			break;
		}
	}
	if (first) {
		struct vb_shared_file *file = &map->files[vb_shared_entry_file(first)];

		out->fd = atomic_load_explicit(&file->fd, memory_order_relaxed);
		out->dev = atomic_load_explicit(&file->dev, memory_order_relaxed);
		out->ino = atomic_load_explicit(&file->ino, memory_order_relaxed);
		out->offset = vb_shared_entry_page(first) * VB_SHARED_PAGE +
			      (uintptr_t)addr % VB_SHARED_PAGE;
	}
	return first;
}

/* Whether anything is: most programs that ask share nothing, and pay for no system call. */
static bool shared_is_any(void)
{
	return own && atomic_load_explicit(&own->map, memory_order_relaxed);
}

bool vb_shared_find(const void *addr, size_t len, struct vb_shared_piece *out)
{
	sigset_t before;
	bool found;

	if (!shared_is_any()) {
		*out = (struct vb_shared_piece){ .fd = -1, .len = len };
		return false;
	}
	vb_signal_block(&before);
	found = shared_find(addr, len, out);
	vb_signal_unblock(&before);
	return found;
}

bool vb_shared_covers(const void *addr, size_t len)
{
	struct vb_shared_piece piece;
	sigset_t before;

	if (!len || !shared_is_any())
		return !len;
	vb_signal_block(&before);
	while (len && shared_find(addr, len, &piece)) {
		addr = (const char *)addr + piece.len;
		len -= piece.len;
	}
	vb_signal_unblock(&before);
	return !len;
}

int vb_shared_table(struct vb_file *file)
{
	sigset_t before;
	int ret = -ENOENT;

	if (!own)
		return ret;
	lock_table(&before);
	if (atomic_load_explicit(&own->map, memory_order_relaxed)) {
		*file = table_file;
		ret = 0;
	}
	unlock_table(&before);
	return ret;
}

void vb_shared_set_hooks(const struct vb_shared_hooks *hooks)
{
	if (!own)
		return;
	atomic_store_explicit(&own->hooks, hooks, memory_order_seq_cst);
	while (!hooks && atomic_load_explicit(&own->calling, memory_order_seq_cst))
		sched_yield();
}

// SPDX-License-Identifier: MIT
/*
 * Owns mappings of peers' shared memory: finding the files through /proc, and the windows onto them.
 *
 *	address --> table of the peer --> file, page --> window (16 MiB of the file) --> our address
 *
 * A file is named by a descriptor of the peer, and the peer's program may have closed that, or have
 * another file there by now. So it is first opened without touching what it is (O_PATH), compared by
 * device and inode with what the peer said when it was ours, and only then opened to be mapped. The
 * pages are in use by the peer while they are in its table, so the inode cannot have become another
 * file's.
 *
 * The peer's tables are read, never trusted: numbers are checked, and the file that holds them must
 * be sealed against shrinking, so that reading it cannot fault. Nothing that was mapped is unmapped
 * while the peer may be used: a peer that lies about its files may fool us into its own memory, not
 * into ours. Files must be memfds of ordinary pages, which have a device of their own: others could
 * let us wait (a file system that a program serves), or have no page for what was read (huge pages).
 *
 * A doorbell can lead here, so no function is called that is a cancellation point (base/cancel.h).
 */
#include "fabric/reach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/file.h"
#include "base/fork.h"
#include "base/log.h"
#include "fabric/peer.h"
#include "fabric/running.h"
#include "fabric/state.h"

struct vb_reach_file {
	uint32_t generation; /* the peer's file in this place */
	int fd;              /* of the peer, and which file it was */
	uint64_t dev, ino;
	struct vb_reach_file *next;                /* retired */
	_Atomic(char *) windows[VB_REACH_WINDOWS]; /* NULL: not mapped, REFUSED: cannot be */
};

#define REFUSED      ((char *)-1)

#define LEAF_BYTES   ((uint64_t)VB_SHARED_LEAF * VB_SHARED_PAGE)
#define MIDDLE_BYTES (LEAF_BYTES * VB_SHARED_MIDDLE)

/* Of all peers: 256 GiB, and a quarter of the mappings that the kernel gives a process. */
enum { MOST_WINDOWS = 16384 };

static _Atomic uint32_t num_windows;

/* No mapping goes to a forked child. */
static void reach_forked(void)
{
	atomic_store_explicit(&num_windows, 0, memory_order_relaxed);
}

VB_STAGE(REACH, .child = reach_forked);

/* --- files of the peer ------------------------------------------------------------------------- */

/* The device that all memfds of the system have; 0: there are none. */
static uint64_t memfd_device(void)
{
	static _Atomic uint64_t known;
	uint64_t dev = atomic_load_explicit(&known, memory_order_relaxed);
	struct stat st;
	int fd;

	if (dev)
		return dev;
	fd = memfd_create("verbatim-device", MFD_CLOEXEC);
	if (fd < 0)
		return 0;
	dev = fstat(fd, &st) ? 0 : st.st_dev;
	vb_sys_close(fd);
	atomic_store_explicit(&known, dev, memory_order_relaxed);
	return dev;
}

/* Whether it is the memfd that is meant, of our own user. Never waits for a file system. */
static bool reach_is_meant(int fd, uint64_t dev, uint64_t ino)
{
	struct statx st;

	return !statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &st) &&
	       makedev(st.stx_dev_major, st.stx_dev_minor) == dev && st.stx_ino == ino &&
	       S_ISREG(st.stx_mode) && st.stx_uid == geteuid() && dev == memfd_device();
}

/* Open what is surely the file that is meant. -errno; -ESTALE: the descriptor is another file. */
static int reach_open_file(const struct vb_peer *peer, int fd, uint64_t dev, uint64_t ino, int mode)
{
	char path[64];
	int there, ret;

	/* By its thread: /proc has no descriptors of a process whose first thread has ended. */
	snprintf(path, sizeof(path), "/proc/%d/task/%d/fd/%d", (int)peer->pid, (int)peer->thread,
		 fd);
	there = vb_sys_open(path, O_PATH | O_CLOEXEC);
	if (there < 0)
		return -errno;
	ret = -ESTALE;
	if (reach_is_meant(there, dev, ino)) {
		/* Not blocking: the peer may have a lease on it, which open() would wait for. */
		snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", there);
		ret = vb_file_above_stdio(vb_sys_open(path, mode | O_CLOEXEC | O_NONBLOCK));
		if (ret < 0)
			ret = -errno;
	}
	vb_sys_close(there);
	return ret;
}

static const char *why(int err)
{
	return err == -ESTALE   ? "it closed the descriptor"
	       : err == -ENOENT ? "it closed the descriptor, or is gone"
				: strerror(-err);
}

/* Whether it can be read without a fault, for ever. */
static bool is_table(int fd)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & F_SEAL_SHRINK) && !fstat(fd, &st) &&
	       (uint64_t)st.st_size >=
		       VB_SHARED_FIRST + (uint64_t)VB_SHARED_TABLES * VB_SHARED_TABLE_BYTES;
}

/* Open it, map a part, close it: descriptors are the program's to count. */
static int reach_map_file(const struct vb_peer *peer, int fd, uint64_t dev, uint64_t ino,
			  bool writable, uint64_t offset, size_t bytes, void **at)
{
	int mine = reach_open_file(peer, fd, dev, ino, writable ? O_RDWR : O_RDONLY), ret = 0;
	void *map;

	if (mine < 0)
		return mine;
	map = mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
		   MAP_SHARED | MAP_NORESERVE, mine, (off_t)offset);
	if (map == MAP_FAILED)
		ret = -errno;
	else if (!writable && !is_table(mine)) {
		munmap(map, bytes);
		ret = -EUCLEAN;
	}
	vb_sys_close(mine);
	if (ret)
		return ret;
	madvise(map, bytes, MADV_DONTFORK);
	madvise(map, bytes,
		MADV_DONTDUMP); /* it is the peer's, and a dump would make all of its pages */
	*at = map;
	return 0;
}

/* A part of the peer's table; with the lock. */
static int map_table(const struct vb_peer *peer, uint64_t offset, size_t bytes, void **at)
{
	const struct vb_segment *segment = peer->segment;

	return reach_map_file(peer, segment->shared_fd, segment->shared_dev, segment->shared_ino,
			      false, offset, bytes, at);
}

/* With the lock. */
static int map_head(struct vb_peer *peer)
{
	void *map;
	int ret = map_table(peer, 0, VB_SHARED_FIRST, &map);

	if (ret)
		return ret;
	if (((struct vb_shared_map *)map)->magic != VB_SHARED_MAGIC) {
		munmap(map, VB_SHARED_FIRST);
		return -EUCLEAN;
	}
	atomic_store_explicit(&peer->reach.map, map, memory_order_release);
	return 0;
}

static __attribute__((noinline, cold)) struct vb_shared_map *get_head(struct vb_peer *peer)
{
	VB_NO_CANCEL;
	struct vb_reach *reach = &peer->reach;
	int ret = 0;

	/* Pairs with show_table(). */
	if (!atomic_load_explicit(&peer->segment->shared, memory_order_acquire))
		return NULL;
	vb_lock(&reach->lock);
	if (!atomic_load_explicit(&reach->map, memory_order_relaxed) &&
	    !atomic_load_explicit(&reach->refused, memory_order_relaxed)) {
		ret = map_head(peer);
		if (ret)
			atomic_store_explicit(&reach->refused, true, memory_order_relaxed);
	}
	vb_unlock(&reach->lock);
	if (ret)
		vb_info("shared memory of process %d cannot be mapped: %s; system calls or packets take its place",
			(int)peer->pid, why(ret));
	return atomic_load_explicit(&reach->map, memory_order_acquire);
}

/* Tables, a chunk at a time; NULL where that cannot be mapped. */
static __attribute__((noinline, cold)) const char *map_tables(struct vb_peer *peer, uint32_t chunk)
{
	VB_NO_CANCEL;
	size_t bytes = (size_t)VB_REACH_CHUNK * VB_SHARED_TABLE_BYTES;
	struct vb_reach *reach = &peer->reach;
	const char *tables;
	void *map;

	vb_lock(&reach->lock);
	tables = atomic_load_explicit(&reach->tables[chunk], memory_order_relaxed);
	if (!tables) {
		if (map_table(peer, VB_SHARED_FIRST + chunk * bytes, bytes, &map))
			map = REFUSED;
		atomic_store_explicit(&reach->tables[chunk], map, memory_order_release);
		tables = map;
	}
	vb_unlock(&reach->lock);
	return tables;
}

/*
 * The file in this place of the peer's table, as it is now; NULL where too many have come and gone.
 */
static __attribute__((noinline, cold)) struct vb_reach_file *
reach_get_file(struct vb_reach *reach, struct vb_shared_file *entry, uint32_t number,
	       uint32_t generation)
{
	struct vb_reach_file *old, *file;

	vb_lock(&reach->lock);
	old = file = atomic_load_explicit(&reach->files[number], memory_order_relaxed);
	if (old && old->generation == generation)
		goto unlock;
	file = !old || reach->num_retired < VB_REACH_RETIRED ? calloc(1, sizeof(*file)) : NULL;
	if (!file)
		goto unlock;
	file->generation = generation;
	file->fd = atomic_load_explicit(&entry->fd, memory_order_relaxed);
	file->dev = atomic_load_explicit(&entry->dev, memory_order_relaxed);
	file->ino = atomic_load_explicit(&entry->ino, memory_order_relaxed);
	if (old) {
		old->next = reach->retired;
		reach->retired = old;
		reach->num_retired++;
	}
	atomic_store_explicit(&reach->files[number], file, memory_order_release);
unlock:
	vb_unlock(&reach->lock);
	return file;
}

static __attribute__((noinline, cold)) char *map_window(struct vb_peer *peer,
							struct vb_reach_file *file, uint64_t n)
{
	VB_NO_CANCEL;
	void *window;
	int ret = 0;

	vb_lock(&peer->reach.lock);
	window = atomic_load_explicit(&file->windows[n], memory_order_relaxed);
	if (!window) {
		/* Each may cost a mapping, of which the program's own allocator needs some, too. */
		if (atomic_fetch_add_explicit(&num_windows, 1, memory_order_relaxed) >=
		    MOST_WINDOWS)
			ret = -ENOSPC;
		else
			ret = reach_map_file(peer, file->fd, file->dev, file->ino, true,
					     n * VB_REACH_WINDOW, VB_REACH_WINDOW, &window);
		if (ret) {
			atomic_fetch_sub_explicit(&num_windows, 1, memory_order_relaxed);
			window = REFUSED;
		}
		atomic_store_explicit(&file->windows[n], window, memory_order_release);
	}
	vb_unlock(&peer->reach.lock);
	if (ret)
		vb_info("a part of the memory of process %d cannot be mapped: %s; system calls or packets take its place",
			(int)peer->pid, why(ret));
	return window;
}

/* --- the peer's table --------------------------------------------------------------------------- */

/* A table by its number, which is the peer's word. */
static inline const char *reach_table_at(struct vb_peer *peer, uint32_t number)
{
	struct vb_reach *reach = &peer->reach;
	uint32_t at = number - 1;
	const char *tables;

	if (at >= VB_SHARED_TABLES)
		return NULL; /* 0 as well: there is none */
	/* Pairs with map_tables(). */
	tables = atomic_load_explicit(&reach->tables[at / VB_REACH_CHUNK], memory_order_acquire);
	if (__builtin_expect(!tables, 0))
		tables = map_tables(peer, at / VB_REACH_CHUNK);
	return tables != REFUSED ? tables + (size_t)(at % VB_REACH_CHUNK) * VB_SHARED_TABLE_BYTES
				 : NULL;
}

/* The leaf for an address, or NULL. */
static inline _Atomic uint64_t *leaf_of(struct vb_peer *peer, struct vb_shared_map *map,
					uint64_t addr)
{
	_Atomic uint32_t *middle;

	if (addr / MIDDLE_BYTES >= VB_SHARED_ROOT)
		return NULL;
	/* Acquire: pairs with follow() in host/shared/shared.c, which made the table before. */
	middle = (_Atomic uint32_t *)(uintptr_t)reach_table_at(
		peer, atomic_load_explicit(&map->root[addr / MIDDLE_BYTES], memory_order_acquire));
	if (!middle)
		return NULL;
	return (_Atomic uint64_t *)(uintptr_t)reach_table_at(
		peer, atomic_load_explicit(&middle[addr / LEAF_BYTES % VB_SHARED_MIDDLE],
					   memory_order_acquire));
}

/* A page of a file of the peer, or NULL where it cannot be mapped. */
static inline char *reach_page_at(struct vb_peer *peer, struct vb_shared_map *map, uint64_t entry)
{
	struct vb_reach *reach = &peer->reach;
	uint64_t offset = vb_shared_entry_page(entry) * VB_SHARED_PAGE;
	uint32_t number = vb_shared_entry_file(entry), generation;
	struct vb_reach_file *file;
	char *window;

	if (number >= VB_SHARED_FILES || offset / VB_REACH_WINDOW >= VB_REACH_WINDOWS)
		return NULL;
	generation = atomic_load_explicit(&map->files[number].generation, memory_order_relaxed);
	file = atomic_load_explicit(&reach->files[number], memory_order_acquire);
	if (__builtin_expect(!file || file->generation != generation, 0))
		file = reach_get_file(reach, &map->files[number], number, generation);
	if (!file)
		return NULL;
	window = atomic_load_explicit(&file->windows[offset / VB_REACH_WINDOW],
				      memory_order_acquire);
	if (__builtin_expect(!window, 0))
		window = map_window(peer, file, offset / VB_REACH_WINDOW);
	return window == REFUSED ? NULL : window + offset % VB_REACH_WINDOW;
}

/*
 * How far the entries behind the first one go on with it: pages of the same file in line, or none.
 * Not beyond the leaf.
 */
static uint64_t run_length(_Atomic uint64_t *leaf, uint64_t addr, uint64_t len, uint64_t first)
{
	uint32_t at = (uint32_t)(addr / VB_SHARED_PAGE % VB_SHARED_LEAF);
	uint64_t run = VB_SHARED_PAGE - addr % VB_SHARED_PAGE;

	for (uint32_t n = 1; run < len && at + n < VB_SHARED_LEAF; n++, run += VB_SHARED_PAGE) {
		uint64_t entry = atomic_load_explicit(&leaf[at + n], memory_order_relaxed);

		if (entry != (first ? first + n : 0))
			break;
	}
	return run < len ? run : len;
}

char *vb_reach_at(struct vb_peer *peer, uint64_t addr, uint64_t len, uint64_t *piece)
{
	struct vb_reach *reach = &peer->reach;
	struct vb_shared_map *map = atomic_load_explicit(&reach->map, memory_order_acquire);
	uint64_t entry, in_window;
	_Atomic uint64_t *leaf;
	char *page;

	*piece = len;
	if (__builtin_expect(!map, 0)) {
		map = vb_reach_works(peer) ? get_head(peer) : NULL;
		if (!map)
			return NULL;
	}
	leaf = leaf_of(peer, map, addr);
	if (!leaf) {
		if (LEAF_BYTES - addr % LEAF_BYTES < len)
			*piece = LEAF_BYTES - addr % LEAF_BYTES;
		return NULL;
	}
	/* Pairs with fill() in host/shared/shared.c: the file is known by now. */
	entry = atomic_load_explicit(&leaf[addr / VB_SHARED_PAGE % VB_SHARED_LEAF],
				     memory_order_acquire);
	*piece = run_length(leaf, addr, len, entry);
	if (entry == VB_SHARED_LEFT)
		return VB_REACH_NOT;
	page = entry ? reach_page_at(peer, map, entry) : NULL;
	if (!page)
		return NULL;
	in_window = VB_REACH_WINDOW -
		    vb_shared_entry_page(entry) * VB_SHARED_PAGE % VB_REACH_WINDOW -
		    addr % VB_SHARED_PAGE;
	if (*piece > in_window)
		*piece = in_window;
	return page + addr % VB_SHARED_PAGE;
}

bool vb_reach_works(const struct vb_peer *peer)
{
	return !atomic_load_explicit(&peer->reach.refused, memory_order_relaxed) &&
	       atomic_load_explicit(&peer->segment->shared, memory_order_relaxed) &&
	       vb_shared_wanted();
}

static void free_file(struct vb_reach_file *file)
{
	for (uint32_t i = 0; i < VB_REACH_WINDOWS; i++) {
		char *window = atomic_load_explicit(&file->windows[i], memory_order_relaxed);

		if (window && window != REFUSED) {
			munmap(window, VB_REACH_WINDOW);
			atomic_fetch_sub_explicit(&num_windows, 1, memory_order_relaxed);
		}
	}
	free(file);
}

void vb_reach_close(struct vb_reach *reach)
{
	struct vb_shared_map *map = atomic_load_explicit(&reach->map, memory_order_relaxed);
	struct vb_reach_file *file;

	for (uint32_t i = 0; i < VB_SHARED_FILES; i++) {
		file = atomic_load_explicit(&reach->files[i], memory_order_relaxed);
		if (file)
			free_file(file);
	}
	while ((file = reach->retired)) {
		reach->retired = file->next;
		free_file(file);
	}
	for (uint32_t i = 0; i < VB_REACH_CHUNKS; i++) {
		const char *tables = atomic_load_explicit(&reach->tables[i], memory_order_relaxed);

		if (tables && tables != REFUSED)
			munmap((void *)(uintptr_t)tables,
			       (size_t)VB_REACH_CHUNK * VB_SHARED_TABLE_BYTES);
	}
	if (map)
		munmap(map, VB_SHARED_FIRST);
}

/* --- the own side ------------------------------------------------------------------------------- */

/* Tell peers where the table is, once there is one. */
static void show_table(struct vb_fabric *fabric)
{
	struct vb_segment *segment = fabric->segment;
	struct vb_file file;

	vb_lock(&fabric->show_lock);
	if (!vb_shared_table(&file) &&
	    !atomic_load_explicit(&segment->shared, memory_order_relaxed)) {
		segment->shared_fd = file.fd;
		segment->shared_dev = file.dev;
		segment->shared_ino = file.ino;
		/* Pairs with get_head(). */
		atomic_store_explicit(&segment->shared, 1, memory_order_release);
	}
	vb_unlock(&fabric->show_lock);
}

/* Memory is the process's: what is shared is shown by each of its hosts, and peers of each may use it. */
static void show_tables(void)
{
	for (struct vb_fabric *f = vb_running_begin(); f; f = vb_running_next(f))
		show_table(f);
	vb_running_end();
}

static void wait_range(uintptr_t base, size_t len)
{
	for (struct vb_fabric *f = vb_running_begin(); f; f = vb_running_next(f)) {
		vb_segment_wait_range(f, base, len);
		vb_window_wait_range(f, base, len);
	}
	vb_running_end();
}

static const struct vb_shared_hooks hooks = { .made = show_tables, .wait = wait_range };

void vb_reach_start(struct vb_fabric *fabric)
{
	vb_shared_set_hooks(&hooks);
	show_table(fabric);
}

void vb_reach_stop(void)
{
	vb_shared_set_hooks(NULL);
}

// SPDX-License-Identifier: MIT
/*
 * Owns device memory: HBM buffers, and the table from device virtual addresses to host memory.
 *
 * HBM buffers are ranges of the accelerator's file (a memory file), so that the program can map the
 * descriptor itself at the offset that is the buffer's handle. Device addresses are given out in
 * slots of 4 GiB, a buffer at the start of its slots: the low 32 bits of every address are then no
 * larger than the buffer (a known program cuts them to 16 bits). Buffers are shared with the processes
 * of the user (host/shared/shared.h), which may keep the file mapped: what is freed is punched out of it.
 *
 *	device address   slot << 32            slot + 1 << 32
 *	                 [ buffer ]            [ page offset | host buffer ]
 */
#include "card/hbl/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cancel.h"
#include "host/fault.h"
#include "base/file.h"
#include "base/rcu.h"
#include "host/shared/shared.h"

#define SLOT     (1ull << 32)
#define VA_FIRST (1ull << 44)
#define VA_LAST  (1ull << 48)
#define MAX_SIZE (1ull << 40)
/* Of larger buffers the table of shared pages would have no room for others. */
#define MAX_SHARED (4ull << 30)

static uint64_t hbl_memory_page_up(uint64_t n)
{
	return (n + VB_HBL_PAGE - 1) & ~(uint64_t)(VB_HBL_PAGE - 1);
}

int vb_hbl_memory_init(struct vb_hbl_memory *memory, int fd, struct vb_fabric *fabric,
		       struct vb_window *window)
{
	struct vb_hbl_maps *maps;
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	maps = calloc(1, sizeof(*maps));
	if (!maps)
		return -ENOMEM;
	pthread_mutex_init(&memory->lock, NULL);
	memory->fd = fd;
	memory->fabric = fabric;
	memory->inode = st.st_ino;
	memory->file_dev = st.st_dev;
	memory->file_size = VB_HBL_PAGE; /* no handle is 0 */
	memory->buffers = NULL;
	memory->window = window;
	atomic_store_explicit(&memory->maps, maps, memory_order_release);
	return 0;
}

/* Programs that close what they do not know may get our number for a file of theirs. */
bool vb_hbl_memory_is_file(const struct vb_hbl_memory *memory, int fd)
{
	struct stat st;

	return !fstat(fd, &st) && st.st_ino == memory->inode && st.st_dev == memory->file_dev;
}

static void hbl_memory_share(const struct vb_hbl_memory *memory, const struct vb_hbl_buffer *buffer)
{
	uint64_t bytes = hbl_memory_page_up(buffer->size);

	/* Where that fails, all of it is like any other memory. */
	if (bytes <= MAX_SHARED &&
	    vb_shared_add(buffer->host, bytes, memory->fd, (off_t)buffer->handle))
		vb_shared_forget(buffer->host, bytes);
}

/* Waits for peers that use it. */
static void hbl_memory_release(const struct vb_hbl_memory *memory, struct vb_hbl_buffer *buffer)
{
	uint64_t bytes = hbl_memory_page_up(buffer->size);

	vb_shared_remove(buffer->host, bytes);
	munmap(buffer->host, bytes);
	vb_shared_forget(buffer->host, bytes);
	/* Handles are not given out again: give back only the pages. */
	if (vb_hbl_memory_is_file(memory, memory->fd))
		fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (off_t)buffer->handle, (off_t)bytes);
	free(buffer);
}

void vb_hbl_memory_destroy(struct vb_hbl_memory *memory)
{
	VB_NO_CANCEL;
	struct vb_hbl_buffer *buffer;

	if (memory->window) {
		vb_window_begin_maps(memory->window);
		vb_window_end_maps(memory->window, 0);
	}
	while ((buffer = memory->buffers)) {
		memory->buffers = buffer->next;
		hbl_memory_release(memory, buffer);
	}
	free(atomic_exchange_explicit(&memory->maps, NULL, memory_order_acq_rel));
	if (vb_hbl_memory_is_file(memory, memory->fd))
		close(memory->fd);
	pthread_mutex_destroy(&memory->lock);
}

/* --- the table -------------------------------------------------------------------------------- */

/* The first map that ends behind va. */
static uint32_t hbl_memory_find(const struct vb_hbl_maps *maps, uint64_t va)
{
	uint32_t low = 0, high = maps->count;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (maps->map[middle].va + maps->map[middle].size <= va)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void *vb_hbl_memory_at(struct vb_hbl_memory *memory, uint64_t va, uint64_t len)
{
	const struct vb_hbl_maps *maps =
		atomic_load_explicit(&memory->maps, memory_order_acquire); /* pairs with replace */
	const struct vb_hbl_map *map;
	uint32_t i;

	if (!maps)
		return NULL;
	i = hbl_memory_find(maps, va);
	if (i == maps->count)
		return NULL;
	map = &maps->map[i];
	if (va < map->va || len > map->size - (va - map->va))
		return NULL;
	return map->host + (va - map->va);
}

static bool hbl_memory_is_free(const struct vb_hbl_maps *maps, uint64_t va, uint64_t size)
{
	uint32_t i = hbl_memory_find(maps, va);

	return va >= SLOT && va < VA_LAST && size <= VA_LAST - va &&
	       (i == maps->count || maps->map[i].va >= va + size);
}

/* The lowest slots that are free in one piece; 0 where there are none. */
static uint64_t hbl_memory_choose(const struct vb_hbl_maps *maps, uint64_t size)
{
	uint64_t va = VA_FIRST;

	while (va < VA_LAST) {
		uint32_t i = hbl_memory_find(maps, va);

		if (hbl_memory_is_free(maps, va, size))
			return va;
		if (i == maps->count)
			break;
		va = (maps->map[i].va + maps->map[i].size + SLOT - 1) & ~(SLOT - 1);
	}
	return 0;
}

/* Peers see the first ones, and reach the others by packets. */
static void hbl_memory_show(struct vb_window *window, const struct vb_hbl_maps *maps)
{
	uint32_t count = maps->count < VB_WINDOW_MAPS ? maps->count : VB_WINDOW_MAPS;

	vb_window_begin_maps(window);
	for (uint32_t i = 0; i < count; i++) {
		const struct vb_hbl_map *map = &maps->map[i];

		atomic_store_explicit(&window->map[i].va, map->va, memory_order_relaxed);
		atomic_store_explicit(&window->map[i].size, map->size, memory_order_relaxed);
		atomic_store_explicit(&window->map[i].memory, (uintptr_t)map->host,
				      memory_order_relaxed);
	}
	vb_window_end_maps(window, count);
}

static void hbl_memory_replace(struct vb_hbl_memory *memory, struct vb_hbl_maps *maps)
{
	struct vb_hbl_maps *old =
		atomic_exchange_explicit(&memory->maps, maps, memory_order_acq_rel);

	if (memory->window)
		hbl_memory_show(memory->window, maps);
	/* Nobody uses what is not in the new table once this returns. */
	vb_read_wait();
	if (memory->window)
		vb_window_wait(memory->fabric, memory->window);
	free(old);
}

static int hbl_memory_insert(struct vb_hbl_memory *memory, struct vb_hbl_map *map, uint64_t hint,
			     bool forced)
{
	struct vb_hbl_maps *old = atomic_load_explicit(&memory->maps, memory_order_acquire), *maps;
	uint64_t offset = map->va, size = hbl_memory_page_up(offset + map->size), va = 0;
	uint32_t at;

	hint &= ~(uint64_t)(VB_HBL_PAGE - 1);
	if (hint && hbl_memory_is_free(old, hint, size))
		va = hint;
	else if (!forced)
		va = hbl_memory_choose(old, size);
	if (!va)
		return forced ? -EINVAL : -ENOMEM;
	map->va = va + offset;
	maps = malloc(sizeof(*maps) + (old->count + 1) * sizeof(*map));
	if (!maps)
		return -ENOMEM;
	at = hbl_memory_find(old, va);
	maps->count = old->count + 1;
	memcpy(maps->map, old->map, at * sizeof(*map));
	maps->map[at] = *map;
	memcpy(&maps->map[at + 1], &old->map[at], (old->count - at) * sizeof(*map));
	hbl_memory_replace(memory, maps);
	return 0;
}

int vb_hbl_memory_unmap(struct vb_hbl_memory *memory, uint64_t va)
{
	struct vb_hbl_maps *old, *maps;
	struct vb_hbl_buffer *buffer;
	int ret = -EINVAL;
	uint32_t at;

	pthread_mutex_lock(&memory->lock);
	old = atomic_load_explicit(&memory->maps, memory_order_acquire);
	at = hbl_memory_find(old, va);
	if (at == old->count || old->map[at].va != va)
		goto unlock;
	ret = -ENOMEM;
	maps = malloc(sizeof(*maps) + old->count * sizeof(maps->map[0]));
	if (!maps)
		goto unlock;
	for (buffer = memory->buffers; buffer; buffer = buffer->next)
		if (buffer->handle == old->map[at].handle)
			buffer->maps--;
	maps->count = old->count - 1;
	memcpy(maps->map, old->map, at * sizeof(maps->map[0]));
	memcpy(&maps->map[at], &old->map[at + 1], (maps->count - at) * sizeof(maps->map[0]));
	hbl_memory_replace(memory, maps);
	ret = 0;
unlock:
	pthread_mutex_unlock(&memory->lock);
	return ret;
}

/* --- buffers ---------------------------------------------------------------------------------- */

/* Room in the file and in the program for a buffer behind all others. */
static int back(struct vb_hbl_memory *memory, struct vb_hbl_buffer *buffer)
{
	uint64_t bytes = hbl_memory_page_up(buffer->size);

	if (!vb_hbl_memory_is_file(memory, memory->fd))
		return -EBADF;
	if (vb_file_allowed(memory->file_size + bytes))
		return -EFBIG;
	if (ftruncate(memory->fd, (off_t)(memory->file_size + bytes)))
		return -errno;
	buffer->handle = memory->file_size;
	buffer->host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd,
			    (off_t)buffer->handle);
	if (buffer->host == MAP_FAILED)
		return -errno;
	memory->file_size += bytes;
	hbl_memory_share(memory, buffer);
	return 0;
}

int vb_hbl_memory_alloc(struct vb_hbl_memory *memory, uint64_t size, uint64_t *handle)
{
	struct vb_hbl_buffer *buffer;
	int ret;

	if (!size || size > MAX_SIZE)
		return -EINVAL;
	buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return -ENOMEM;
	buffer->size = size;
	pthread_mutex_lock(&memory->lock);
	ret = back(memory, buffer);
	if (!ret) {
		buffer->next = memory->buffers;
		memory->buffers = buffer;
		*handle = buffer->handle;
	}
	pthread_mutex_unlock(&memory->lock);
	if (ret)
		free(buffer);
	return ret;
}

int vb_hbl_memory_free(struct vb_hbl_memory *memory, uint64_t handle)
{
	struct vb_hbl_buffer **at, *buffer;
	int ret = -EINVAL;

	pthread_mutex_lock(&memory->lock);
	for (at = &memory->buffers; *at && (*at)->handle != handle; at = &(*at)->next)
		;
	buffer = *at;
	if (buffer && !buffer->maps) {
		*at = buffer->next;
		hbl_memory_release(memory, buffer);
		ret = 0;
	}
	pthread_mutex_unlock(&memory->lock);
	return ret;
}

int vb_hbl_memory_map(struct vb_hbl_memory *memory, uint64_t handle, uint64_t hint, bool forced,
		      uint64_t *va)
{
	struct vb_hbl_map map = { .handle = handle };
	struct vb_hbl_buffer *buffer;
	int ret = -EINVAL;

	pthread_mutex_lock(&memory->lock);
	for (buffer = memory->buffers; buffer && buffer->handle != handle; buffer = buffer->next)
		;
	if (buffer) {
		map.host = buffer->host;
		map.size = buffer->size;
		ret = hbl_memory_insert(memory, &map, hint, forced);
	}
	if (!ret) {
		buffer->maps++;
		*va = map.va;
	}
	pthread_mutex_unlock(&memory->lock);
	return ret;
}

int vb_hbl_memory_map_host(struct vb_hbl_memory *memory, void *host, uint64_t size, uint64_t hint,
			   bool forced, uint64_t *va)
{
	struct vb_hbl_map map = { .host = host, .size = size };
	int ret;

	if (!host || !size || size > MAX_SIZE || (uintptr_t)host > UINTPTR_MAX - size)
		return -EINVAL;
	/*
	 * As at every registration: the program may have put a handler of its own in front since.
	 */
	ret = vb_fault_arm();
	if (ret)
		return ret;
	if (!vb_fault_readable(host, size))
		return -EFAULT;
	map.va = (uintptr_t)host & (VB_HBL_PAGE - 1); /* the offset in the page stays */
	pthread_mutex_lock(&memory->lock);
	ret = hbl_memory_insert(memory, &map, hint, forced);
	pthread_mutex_unlock(&memory->lock);
	if (!ret)
		*va = map.va;
	return ret;
}

// SPDX-License-Identifier: MIT
/*
 * Owns how a peer's segment is mapped: piece by piece, each checked when it is mapped and never
 * looked up again, so that a peer that changes its directories later moves nothing.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/log.h"
#include "base/time.h"
#include "fabric/fabric.h"
#include "fabric/segment.h"

enum { PAGE = 4096 };

/*
 * Map [offset, offset + bytes) of a segment file: whole pages around it. The range must be in the
 * file, or the first access would be a SIGBUS.
 */
static int map_range(int fd, uint64_t offset, size_t bytes, void **at)
{
	uint64_t first = offset & ~(uint64_t)(PAGE - 1);
	off_t size = lseek(fd, 0, SEEK_END);
	size_t len = offset - first + bytes;
	char *map;

	if (size < 0)
		return -errno;
	if (offset > (uint64_t)size || bytes > (uint64_t)size - offset)
		return -ENOENT;
	map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)first);
	if (map == MAP_FAILED)
		return -errno;
	madvise(map, len, MADV_DONTFORK);
	*at = map + (offset - first);
	return 0;
}

static void unmap_range(void *at, size_t bytes)
{
	size_t before = (uintptr_t)at & (PAGE - 1);

	if (at)
		munmap((char *)at - before, before + bytes);
}

/* A file that is gone belonged to a process that is. */
static int fabric_view_open_file(const struct vb_view *view)
{
	int fd = vb_registry_open_segment(view->registry, view->slot, view->generation);

	return fd == -ENOENT ? -ESRCH : fd;
}

/* Of a segment file, which is closed. */
static int open_view(struct vb_view *view, int fd)
{
	uint64_t magic;
	void *head;
	int ret;

	ret = map_range(fd, 0, sizeof(*view->head), &head);
	vb_sys_close(fd);
	if (ret)
		return ret == -ENOENT ? -ESRCH : ret; /* it has not grown to this size yet */
	view->head = head;
	/* Pairs with vb_segment_create(). */
	magic = atomic_load_explicit(&view->head->magic, memory_order_acquire);
	if (magic == VB_SEG_MAGIC && view->head->slot == view->slot &&
	    view->head->generation == view->generation)
		return 0;
	vb_view_close(view);
	return magic ? -EUCLEAN : -ESRCH;
}

int vb_view_open(struct vb_view *view, const struct vb_registry *registry, uint32_t slot,
		 uint32_t generation)
{
	VB_NO_CANCEL;
	int fd;

	*view = (struct vb_view){ .registry = registry, .slot = slot, .generation = generation };
	fd = fabric_view_open_file(view);
	return fd < 0 ? fd : open_view(view, fd);
}

void vb_view_close(struct vb_view *view)
{
	for (uint32_t i = 0; i < VB_SEG_QP_CHUNKS; i++)
		unmap_range(atomic_load_explicit(&view->qp[i], memory_order_relaxed),
			    VB_SEG_QP_CHUNK * sizeof(struct vb_seg_qp));
	for (uint32_t i = 0; i < VB_SEG_MR_CHUNKS; i++)
		unmap_range(atomic_load_explicit(&view->mr[i], memory_order_relaxed),
			    VB_SEG_MR_CHUNK * sizeof(struct vb_seg_mr));
	for (uint32_t i = 0; i < VB_WINDOWS; i++)
		unmap_range(atomic_load_explicit(&view->window[i], memory_order_relaxed),
			    sizeof(struct vb_window));
	for (uint32_t i = 0; i < VB_RINGS; i++)
		unmap_range(view->ring[i].at, view->ring[i].bytes);
	unmap_range(view->head, sizeof(*view->head));
	*view = (struct vb_view){ 0 };
}

/* With the lock: a range of the part that the owner allocates. */
static int map_allocated(const struct vb_view *view, uint64_t offset, size_t bytes, void **at)
{
	VB_NO_CANCEL;
	int fd, ret;

	if (offset < sizeof(*view->head) || (offset & 63))
		return -ENOENT;
	fd = fabric_view_open_file(view);
	if (fd < 0)
		return fd;
	ret = map_range(fd, offset, bytes, at);
	vb_sys_close(fd);
	return ret;
}

int vb_view_map_ring(struct vb_view *view, uint32_t ring, uint64_t offset, size_t bytes)
{
	int ret = 0;

	vb_lock(&view->lock);
	if (!view->ring[ring].at) {
		ret = map_allocated(view, offset, bytes, &view->ring[ring].at);
		view->ring[ring].bytes = bytes;
	}
	vb_unlock(&view->lock);
	return ret;
}

int vb_view_map_qps(struct vb_view *view, uint32_t index)
{
	uint32_t n = index / VB_SEG_QP_CHUNK;
	uint64_t offset = atomic_load_explicit(&view->head->qp_chunk[n], memory_order_acquire);
	void *at;
	int ret = 0;

	vb_lock(&view->lock);
	if (!atomic_load_explicit(&view->qp[n], memory_order_relaxed)) {
		ret = map_allocated(view, offset, VB_SEG_QP_CHUNK * sizeof(struct vb_seg_qp), &at);
		if (!ret)
			atomic_store_explicit(&view->qp[n], at, memory_order_release);
	}
	vb_unlock(&view->lock);
	return ret;
}

int vb_view_map_mrs(struct vb_view *view, uint32_t index)
{
	uint32_t n = index / VB_SEG_MR_CHUNK;
	uint64_t offset = atomic_load_explicit(&view->head->mr_chunk[n], memory_order_acquire);
	void *at;
	int ret = 0;

	vb_lock(&view->lock);
	if (!atomic_load_explicit(&view->mr[n], memory_order_relaxed)) {
		ret = map_allocated(view, offset, VB_SEG_MR_CHUNK * sizeof(struct vb_seg_mr), &at);
		if (!ret)
			atomic_store_explicit(&view->mr[n], at, memory_order_release);
	}
	vb_unlock(&view->lock);
	return ret;
}

int vb_view_map_window(struct vb_view *view, uint32_t device)
{
	uint64_t offset = atomic_load_explicit(&view->head->window[device], memory_order_acquire);
	void *at;
	int ret = 0;

	if (!offset)
		return -ENOENT;
	vb_lock(&view->lock);
	if (!atomic_load_explicit(&view->window[device], memory_order_relaxed)) {
		ret = map_allocated(view, offset, sizeof(struct vb_window), &at);
		if (!ret)
			atomic_store_explicit(&view->window[device], at, memory_order_release);
	}
	vb_unlock(&view->lock);
	return ret;
}

int vb_fabric_ask(const struct vb_slot_info *info)
{
	VB_NO_CANCEL;
	struct vb_view view = { .slot = info->slot, .generation = info->generation };
	uint32_t sleeping = VB_WAKE_SLEEP;
	int fd = vb_registry_open_listed(info), ret;

	if (fd < 0)
		return fd == -ENOENT ? -ESRCH : fd;
	ret = open_view(&view, fd);
	if (ret)
		return ret;
	/* Pairs with nothing_left() in progress.c: it writes the wake word first. */
	atomic_fetch_add_explicit(&view.head->asked, 1, memory_order_seq_cst);
	if (atomic_compare_exchange_strong_explicit(&view.head->wake, &sleeping, VB_WAKE_BUSY,
						    memory_order_seq_cst, memory_order_seq_cst))
		vb_futex_wake(&view.head->wake, 1, VB_FUTEX_SHARED);
	vb_view_close(&view);
	return 0;
}

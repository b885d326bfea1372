// SPDX-License-Identifier: MIT
/*
 * Owns the process's segment file: its growth, its mapping and the mapping of others' segments.
 */
#include "fabric/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

#define SEGMENT_MAGIC 0x3167657362657672ull

struct vb_segment *vb_segment_self;

static pthread_mutex_t grow_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * A forked child must not reach into shared memory that its parent owns, so the mapping is not inherited: like the
 * doorbell pages of real hardware.
 */
static void *map_shared(int fd)
{
	void *map = mmap(NULL, VB_SEG_MAP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		return NULL;
	madvise(map, VB_SEG_MAP_SIZE, MADV_DONTFORK);
	return map;
}

/* The file is the registry's, and must still be the one that it opened: the program may have closed the descriptor. */
static int grow(uint64_t from, uint64_t to)
{
	struct vb_file file;
	int ret = vb_registry_segment(&file);

	return ret ? ret : vb_file_reserve(file.fd, from, to, vb_registry_root());
}

int vb_segment_create(const struct vb_slot_info *self)
{
	uint64_t size = (sizeof(struct vb_segment) + 4095) & ~4095ull;
	struct vb_segment *segment;
	struct vb_file file;
	int ret;

	ret = vb_registry_segment(&file);
	if (!ret)
		ret = grow(0, size);
	if (ret)
		return ret;
	segment = map_shared(file.fd);
	if (!segment)
		return -ENOMEM;
	segment->slot = self->slot;
	segment->generation = self->generation;
	segment->pid = (uint32_t)self->pid;
	segment->wake = VB_WAKE_BUSY;
	segment->wants_fence = 1; /* until we know better */
	atomic_store_explicit(&segment->size, size, memory_order_relaxed);
	atomic_thread_fence(memory_order_release); /* a peer that sees the magic sees the rest */
	segment->magic = SEGMENT_MAGIC;
	vb_segment_self = segment;
	return 0;
}

void vb_segment_destroy(void)
{
	munmap(vb_segment_self, VB_SEG_MAP_SIZE);
	vb_segment_self = NULL;
}

uint64_t vb_segment_alloc(size_t bytes)
{
	uint64_t offset, size;

	bytes = (bytes + 63) & ~(size_t)63;
	pthread_mutex_lock(&grow_lock);
	offset = atomic_load_explicit(&vb_segment_self->size, memory_order_relaxed);
	size = offset + bytes;
	if (size > VB_SEG_MAP_SIZE || grow(offset, size))
		offset = 0;
	else
		atomic_store_explicit(&vb_segment_self->size, size, memory_order_release);
	pthread_mutex_unlock(&grow_lock);
	return offset;
}

struct vb_segment *vb_segment_map(uint32_t slot, uint32_t generation)
{
	struct vb_segment *segment;
	off_t size;
	int fd;

	fd = vb_registry_open_segment(slot, generation);
	if (fd < 0)
		return NULL;
	size = lseek(fd, 0, SEEK_END);
	segment = size >= (off_t)sizeof(*segment) ? map_shared(fd) : NULL;
	close(fd);
	if (!segment)
		return NULL;
	if (segment->magic != SEGMENT_MAGIC || segment->slot != slot ||
	    segment->generation != generation) {
		vb_segment_unmap(segment);
		return NULL;
	}
	return segment;
}

void vb_segment_unmap(struct vb_segment *segment)
{
	munmap(segment, VB_SEG_MAP_SIZE);
}

void *vb_segment_at(struct vb_segment *segment, uint64_t offset, size_t bytes)
{
	uint64_t size = atomic_load_explicit(
		&segment->size, memory_order_acquire); /* pairs with vb_segment_alloc */

	if (offset < sizeof(*segment) || (offset & 63) || size > VB_SEG_MAP_SIZE || offset > size ||
	    bytes > size - offset)
		return NULL;
	return (char *)segment + offset;
}

/* Entry index of a directory of chunks. */
static void *entry(struct vb_segment *segment, _Atomic uint64_t *chunks, uint32_t chunk_entries,
		   uint32_t index, bool create)
{
	_Atomic uint64_t *chunk = &chunks[index / chunk_entries];
	uint64_t offset = atomic_load_explicit(chunk, memory_order_acquire);
	char *base;

	if (!offset && create) {
		uint64_t none = 0, fresh = vb_segment_alloc((size_t)chunk_entries * 64);

		/* Two threads may both have made one; the loser's is wasted, which happens at most once a chunk. */
		if (fresh && !atomic_compare_exchange_strong(chunk, &none, fresh))
			fresh = none;
		offset = fresh;
	}
	if (!offset)
		return NULL;
	base = vb_segment_at(segment, offset, (size_t)chunk_entries * 64);
	return base ? base + (size_t)(index % chunk_entries) * 64 : NULL;
}

struct vb_seg_qp *vb_segment_qp(struct vb_segment *segment, uint32_t index, bool create)
{
	if (index >= VB_SEG_QP_CHUNK * VB_SEG_QP_CHUNKS)
		return NULL;
	return entry(segment, segment->qp_chunk, VB_SEG_QP_CHUNK, index, create);
}

struct vb_seg_mr *vb_segment_mr(struct vb_segment *segment, uint32_t index, bool create)
{
	if (index >= VB_SEG_MR_CHUNK * VB_SEG_MR_CHUNKS)
		return NULL;
	return entry(segment, segment->mr_chunk, VB_SEG_MR_CHUNK, index, create);
}

/* Wait until no pin has `want` in the bits of `mask`; a pin left by a dead process is cleared. */
static void wait_unpinned(uint64_t want, uint64_t mask)
{
	atomic_thread_fence(
		memory_order_seq_cst); /* pairs with the fence of the pinning side, see direct.c */
	for (uint32_t slot = 0; slot < VB_SLOTS; slot++) {
		for (unsigned int i = 0; i < VB_SEG_PINS; i++) {
			_Atomic uint64_t *pin = &vb_segment_self->pins[slot][i];
			uint64_t value;

			for (unsigned int spins = 0;; spins++) {
				value = atomic_load_explicit(pin, memory_order_acquire);
				if (!value || (value & mask) != want)
					break;
				if ((value >> 49) != (vb_registry_generation(slot) & 0x7fff) ||
				    (spins % 1024 == 1023 &&
				     !vb_registry_alive(slot, vb_registry_generation(slot)))) {
					atomic_compare_exchange_strong(pin, &value, 0);
					break;
				}
				sched_yield();
			}
		}
	}
}

void vb_segment_wait_qp(uint32_t qp_index)
{
	wait_unpinned(1ull << 48 | (uint64_t)(qp_index & 0xffff) << 24,
		      1ull << 48 | 0xffffull << 24);
}

void vb_segment_wait_mr(uint32_t mr_index)
{
	wait_unpinned(1ull << 48 | (mr_index & 0xffffff), 1ull << 48 | 0xffffff);
}

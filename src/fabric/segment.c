// SPDX-License-Identifier: MIT
/*
 * Owns the process's segment file: its growth, its mapping; and waiting for pins.
 */
#include "fabric/segment.h"

#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/barrier.h"
#include "base/time.h"
#include "base/log.h"
#include "fabric/running.h"
#include "fabric/state.h"

_Static_assert(sizeof(struct vb_segment) +
			       (uint64_t)VB_SEG_QP_CHUNK * VB_SEG_QP_CHUNKS *
				       sizeof(struct vb_seg_qp) +
			       (uint64_t)VB_SEG_MR_CHUNK * VB_SEG_MR_CHUNKS *
				       sizeof(struct vb_seg_mr) +
			       VB_SLOTS * (sizeof(struct vb_ring_shared) + VB_RING_MAX) +
			       VB_WINDOWS * sizeof(struct vb_window) + VB_SEG_SPARE + 4096 <=
		       VB_SEG_MAX_SIZE,
	       "everything that can be allocated fits");

/*
 * The file is the registry's, and must still be the one that it opened: the program may have closed
 * the descriptor.
 */
static int fabric_segment_grow(struct vb_fabric *fabric, uint64_t from, uint64_t to)
{
	struct vb_file file;
	int ret = vb_registry_segment(fabric->registry, &file);

	return ret ? ret : vb_file_reserve(file.fd, from, to, vb_registry_root(fabric->registry));
}

int vb_segment_create(struct vb_fabric *fabric, const struct vb_slot_info *self)
{
	uint64_t size = (sizeof(struct vb_segment) + 4095) & ~4095ull;
	struct vb_segment *segment;
	struct vb_file file;
	int ret;

	atomic_store_explicit(&fabric->grow_lock.held, 0,
			      memory_order_relaxed); /* a thread of our parent's may have had it */
	fabric->spare_used = 0;
	ret = vb_registry_segment(fabric->registry, &file);
	if (!ret)
		ret = fabric_segment_grow(fabric, 0, size);
	if (ret)
		return ret;
	segment = mmap(NULL, VB_SEG_MAX_SIZE, PROT_NONE, MAP_SHARED, file.fd, 0);
	if (segment == MAP_FAILED) {
		ret = -errno;
		vb_error("cannot map %d MiB of address space: %s; raise the limit (ulimit -v)",
			 VB_SEG_MAX_SIZE >> 20, strerror(-ret));
		return ret;
	}
	/*
	 * A forked child must not reach into shared memory that its parent owns, so the mapping is
	 * not inherited: like the doorbell pages of real hardware.
	 */
	madvise(segment, VB_SEG_MAX_SIZE, MADV_DONTFORK);
	ret = vb_file_uncover(segment, 0, size);
	if (ret) {
		munmap(segment, VB_SEG_MAX_SIZE);
		return ret;
	}
	segment->slot = self->slot;
	segment->generation = self->generation;
	segment->pid = (uint32_t)self->pid;
	atomic_store_explicit(&segment->wake, VB_WAKE_BUSY, memory_order_relaxed);
	/* until we know better */
	atomic_store_explicit(&segment->wants_fence, 1, memory_order_relaxed);
	atomic_store_explicit(&segment->size, size, memory_order_relaxed);
	/* A peer that sees the magic sees the rest: pairs with vb_view_open(). */
	atomic_store_explicit(&segment->magic, VB_SEG_MAGIC, memory_order_release);
	/* of an earlier segment, or of our parent's */
	memset((void *)&fabric->shown.entries, 0, sizeof(fabric->shown.entries));
	fabric->segment = segment;
	fabric->shown.told = &segment->functions;
	return 0;
}

void vb_segment_destroy(struct vb_fabric *fabric)
{
	munmap(fabric->segment, VB_SEG_MAX_SIZE);
	fabric->shown.told = NULL;
	fabric->segment = NULL;
}

/* With fabric->grow_lock. */
static uint64_t alloc_locked(struct vb_fabric *fabric, size_t bytes)
{
	uint64_t offset = atomic_load_explicit(&fabric->segment->size, memory_order_relaxed), size;

	bytes = (bytes + 63) & ~(size_t)63;
	size = offset + bytes;
	if (size > VB_SEG_MAX_SIZE || fabric_segment_grow(fabric, offset, size) ||
	    vb_file_uncover(fabric->segment, offset, size))
		return 0;
	atomic_store_explicit(&fabric->segment->size, size, memory_order_release);
	return offset;
}

uint64_t vb_segment_alloc(struct vb_fabric *fabric, size_t bytes)
{
	uint64_t offset;

	vb_lock(&fabric->grow_lock);
	offset = alloc_locked(fabric, bytes);
	vb_unlock(&fabric->grow_lock);
	return offset;
}

uint64_t vb_segment_alloc_spare(struct vb_fabric *fabric, size_t bytes)
{
	uint64_t offset = 0;

	vb_lock(&fabric->grow_lock);
	if (bytes <= VB_SEG_SPARE - fabric->spare_used)
		offset = alloc_locked(fabric, bytes);
	if (offset)
		fabric->spare_used += (uint32_t)bytes;
	vb_unlock(&fabric->grow_lock);
	return offset;
}

void *vb_segment_at(struct vb_fabric *fabric, uint64_t offset, size_t bytes)
{
	uint64_t size = atomic_load_explicit(&fabric->segment->size, memory_order_acquire);

	if (offset < sizeof(*fabric->segment) || offset > size || bytes > size - offset)
		return NULL;
	return (char *)fabric->segment + offset;
}

/* Entry index of a directory of chunks. */
static void *fabric_segment_entry(struct vb_fabric *fabric, _Atomic uint64_t *chunks,
				  uint32_t chunk_entries, size_t bytes, uint32_t index)
{
	_Atomic uint64_t *chunk = &chunks[index / chunk_entries];
	uint64_t offset = atomic_load_explicit(chunk, memory_order_acquire);

	if (!offset) {
		vb_lock(&fabric->grow_lock);
		offset = atomic_load_explicit(chunk, memory_order_acquire);
		if (!offset) {
			offset = alloc_locked(fabric, chunk_entries * bytes);
			atomic_store_explicit(chunk, offset, memory_order_release);
		}
		vb_unlock(&fabric->grow_lock);
	}
	return offset ? (char *)fabric->segment + offset + index % chunk_entries * bytes : NULL;
}

struct vb_seg_qp *vb_segment_qp(struct vb_fabric *fabric, uint32_t index)
{
	if (index >= VB_SEG_QP_CHUNK * VB_SEG_QP_CHUNKS)
		return NULL;
	return fabric_segment_entry(fabric, fabric->segment->qp_chunk, VB_SEG_QP_CHUNK,
				    sizeof(struct vb_seg_qp), index);
}

struct vb_seg_mr *vb_segment_mr(struct vb_fabric *fabric, uint32_t index)
{
	struct vb_seg_mr *found;

	if (index >= VB_SEG_MR_CHUNK * VB_SEG_MR_CHUNKS)
		return NULL;
	found = fabric_segment_entry(fabric, fabric->segment->mr_chunk, VB_SEG_MR_CHUNK,
				     sizeof(*found), index);
	if (found)
		atomic_store_explicit(&fabric->shown.entries.mrs[index / VB_SEG_MR_CHUNK],
				      found - index % VB_SEG_MR_CHUNK, memory_order_release);
	return found;
}

/* A copy takes microseconds to milliseconds, unless its process is stopped. */
struct patience {
	uint64_t began; /* ns; 0: not yet */
	uint64_t pause_ns;
	unsigned int spins;
	bool said;
};

enum { SPINS = 1024, FIRST_PAUSE_NS = 50000, LAST_PAUSE_NS = 5000000, SAY_NS = 1000000000 };

/*
 * Let others run before the next look at a pin of that slot. After a second the log says for whom we
 * wait.
 */
static void fabric_segment_wait_more(struct vb_fabric *fabric, struct patience *p, uint32_t slot)
{
	struct vb_slot_info info;
	uint64_t now;

	if (p->spins++ < SPINS) {
		sched_yield();
		return;
	}
	now = vb_now_ns();
	if (!p->began) {
		p->began = now;
		p->pause_ns = FIRST_PAUSE_NS;
	}
	if (!p->said && now - p->began >= SAY_NS &&
	    vb_registry_lookup(fabric->registry, slot, &info)) {
		vb_warn("process %d has been copying to or from memory of this one for over a second, which has to wait; is it stopped? Let it go on, or end it",
			(int)info.pid);
		p->said = true;
	}
	vb_pause_ns(p->pause_ns);
	if (p->pause_ns < LAST_PAUSE_NS)
		p->pause_ns *= 2;
}

/*
 * Wait until no pin has `want` in the bits of `mask`. False: its process is dead, and left it; what
 * it was is in *left.
 */
static bool wait_owner(struct vb_fabric *fabric, uint32_t slot, _Atomic uint64_t *pin,
		       uint64_t want, uint64_t mask, uint64_t *left)
{
	struct patience patience = { 0 };

	for (;;) {
		uint64_t value = atomic_load_explicit(pin, memory_order_acquire);
		uint32_t generation = vb_registry_generation(fabric->registry, slot);

		if (!value || (value & mask) != want)
			return true;
		if (((value >> 49) != (generation & 0x7fff) &&
		     !vb_registry_lingers(fabric->registry, slot)) ||
		    (generation && patience.spins >= SPINS &&
		     !vb_registry_alive(fabric->registry, slot, generation))) {
			*left = value;
			return false;
		}
		fabric_segment_wait_more(fabric, &patience, slot);
		if (!vb_running_let_in())
			return true; /* nothing of it is mapped here */
	}
}

/* The same, and a pin left by a dead process is cleared. */
static bool wait_pin(struct vb_fabric *fabric, uint32_t slot, _Atomic uint64_t *pin, uint64_t want,
		     uint64_t mask)
{
	uint64_t left;

	if (wait_owner(fabric, slot, pin, want, mask, &left))
		return true;
	atomic_compare_exchange_strong_explicit(pin, &left, 0, memory_order_acq_rel,
						memory_order_acquire);
	return false;
}

bool vb_segment_wait_pin(struct vb_fabric *fabric, uint32_t slot, _Atomic uint64_t *pin)
{
	return wait_pin(fabric, slot, pin, 1ull << 48, 1ull << 48);
}

void vb_segment_wait_owner(struct vb_fabric *fabric, uint32_t slot, _Atomic uint64_t *pin)
{
	uint64_t left;

	wait_owner(fabric, slot, pin, 1ull << 48, 1ull << 48, &left);
}

static void wait_unpinned(struct vb_fabric *fabric, uint64_t want, uint64_t mask)
{
	atomic_thread_fence(
		memory_order_seq_cst); /* pairs with the fence of the pinning side, see direct.c */
	for (uint32_t slot = 0; slot < VB_SLOTS; slot++)
		for (unsigned int i = 0; i < VB_SEG_PINS; i++)
			wait_pin(fabric, slot, &fabric->segment->pins[slot][i], want, mask);
}

void vb_segment_wait_qp(struct vb_fabric *fabric, uint32_t qp_index)
{
	wait_unpinned(fabric, 1ull << 48 | (uint64_t)(qp_index & 0xffff) << 24,
		      1ull << 48 | 0xffffull << 24);
}

void vb_segment_wait_mr(struct vb_fabric *fabric, uint32_t mr_index)
{
	wait_unpinned(fabric, 1ull << 48 | (mr_index & 0xffffff), 1ull << 48 | 0xffffff);
}

/* Whether a pin is of a key that covers a byte of the range. What a pin names stays as it is. */
static bool is_within(struct vb_fabric *fabric, uint64_t pin, uint64_t base, uint64_t len)
{
	const struct vb_seg_mr *mr = vb_segment_find_mr(fabric, pin & 0xffffff);

	return mr && mr->length && mr->addr < base + len && base < mr->addr + mr->length;
}

void vb_segment_wait_range(struct vb_fabric *fabric, uintptr_t base, size_t len)
{
	atomic_thread_fence(memory_order_seq_cst); /* pairs with pin_take() in direct.c */
	for (uint32_t slot = 0; slot < VB_SLOTS; slot++)
		for (unsigned int i = 0; i < VB_SEG_PINS && vb_running_goes_on(); i++) {
			_Atomic uint64_t *pin = &fabric->segment->pins[slot][i];
			uint64_t value = atomic_load_explicit(pin, memory_order_acquire);

			if (__builtin_expect(value != 0, 0) && is_within(fabric, value, base, len))
				wait_pin(fabric, slot, pin, value, ~0ull);
		}
}

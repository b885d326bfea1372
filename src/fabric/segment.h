/* SPDX-License-Identifier: MIT */
/*
 * What a process shows the others: its segment, a shared-memory file.
 *
 *	+--------------------+ 0
 *	| head               |  identity, size; wake word (peers write it)
 *	| inbound[256]       |  peers write: "slot p has a ring to you"
 *	| pins[256][8]       |  peers write: "slot p is using this QP and key of yours right now"
 *	| outbound[256]      |  where in this segment the first ring to slot p lies
 *	| qp, mr directories |  offsets of the chunks below; the same of windows (lend.h)
 *	+--------------------+ fixed part
 *	| chunks as needed   |  QP entries, MR entries, rings; further rings to slot p, which the first one names
 *	+--------------------+ size (grows, never shrinks; reserved when it grows)
 *
 * Everything but the words marked "peers write" is written by the owner alone, and only the owner
 * allocates, so there is no lock between processes here. What a peer reads it does not trust:
 * offsets and sizes are checked against the file.
 *
 * The owner has all of it mapped in one piece. A peer maps what it needs, when it first needs it:
 * the fixed part, the ring that leads to it, a chunk of entries (struct vb_view). With many peers,
 * or little address space, all of each would be too much.
 *
 * QP and MR entries follow one protocol. Reader: store pin, full fence, check the entry is live,
 * use it, clear the pin. Owner: mark the entry dead, full fence, wait until no pin names it, then
 * change or reuse it.
 */
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "meet/registry.h"
#include "fabric/entries.h"
#include "fabric/ring.h"
#include "fabric/lend.h"

enum {
	VB_SEG_MAX_SIZE =
		100 << 20,      /* address space of the owner; the file is as large as it needs */
	VB_SEG_SPARE = 8 << 20, /* of it, for what can be done without: further rings */
	VB_SEG_PINS = 8,        /* concurrent direct accesses of one peer */
};

enum vb_wake {
	VB_WAKE_POLLED = 0, /* a thread polls: do not wake */
	VB_WAKE_SLEEP = 1,  /* the background thread sleeps: wake it */
	VB_WAKE_BUSY = 2,   /* it is awake and will look again before it sleeps */
};

struct vb_seg_outbound {
	_Atomic uint32_t generation; /* of the process the first ring leads to; 0: none */
	uint32_t size;               /* of the ring's data */
	uint64_t offset;
};

#define VB_SEG_MAGIC 0x3867657362657672ull

struct vb_segment {
	_Atomic uint64_t magic;
	uint32_t slot, generation;
	uint32_t pid;
	_Atomic uint32_t wants_fence; /* senders to the owner use a real fence; see barrier.h */
	_Atomic uint64_t size;        /* bytes that exist */
	_Atomic uint32_t shared;      /* 1: the next three name the table of shared memory, */
	int32_t shared_fd;            /* a descriptor of the owner (reach.h) */
	uint64_t shared_dev, shared_ino;
	/*
	 * The id of the background thread, by which peers name the memory; 0: it has not started, and
	 * no peer knows the process. The kernel takes the id away and marks the word when that thread
	 * ends, and nothing else ends it before the program does.
	 */
	_Atomic uint32_t life;
	_Atomic uint32_t frames; /* what the owner does with raw frames: enum vb_frame_use */
	/* peers write */
	_Alignas(64) _Atomic uint32_t wake; /* enum vb_wake; a futex */
	_Atomic uint32_t inbound_epoch;     /* counts announcements below */
	_Atomic uint64_t frames_lost;       /* raw frames that found no room */
	_Atomic uint32_t
		functions;      /* 1: something happened to an emulated function, see function.h */
	_Atomic uint32_t asked; /* counts vb_fabric_ask() */
	_Alignas(64) _Atomic uint32_t inbound[VB_SLOTS]; /* generation of the peer */
	_Alignas(64) _Atomic uint64_t pins[VB_SLOTS][VB_SEG_PINS];
	/* owner writes */
	struct vb_seg_outbound outbound[VB_SLOTS];
	_Atomic uint64_t qp_chunk[VB_SEG_QP_CHUNKS];
	_Atomic uint64_t mr_chunk[VB_SEG_MR_CHUNKS];
	_Atomic uint64_t window[VB_WINDOWS]; /* by device, see lend.h */
};

_Static_assert(offsetof(struct vb_segment, wake) == 64, "the wake word has its own line");

/*
 * Whether the program has ended, or ends now, as the kernel has noted in `life` before the parent of
 * the process can hear of it: killed, by an exit, or by executing another program. Its memory may still
 * be there to be written to, but nothing reads it: from here on nothing succeeds with this process. A
 * plain load, for the data path. Threads other than the one of `life` may still run; when all are gone
 * the registry says (slot_lock.h), and only then is the slot given to another.
 */
static inline bool vb_segment_has_ended(const struct vb_segment *segment)
{
	return atomic_load_explicit(&((struct vb_segment *)segment)->life, memory_order_relaxed) &
	       FUTEX_OWNER_DIED;
}

/* Wait for the pins of keys that cover one of these pages of ours, as they are now. */
void vb_segment_wait_range(struct vb_fabric *fabric, uintptr_t base, size_t len);

int vb_segment_create(struct vb_fabric *fabric, const struct vb_slot_info *self);
void vb_segment_destroy(struct vb_fabric *fabric);
/*
 * Allocate in the own segment (64-byte aligned, zeroed); the offset, or 0 where shared memory is
 * full.
 */
uint64_t vb_segment_alloc(struct vb_fabric *fabric, size_t bytes);
/* The same for what can be done without: 0 also where it would take what others must have. */
uint64_t vb_segment_alloc_spare(struct vb_fabric *fabric, size_t bytes);

/* [offset, offset + bytes) of the own segment. */
void *vb_segment_at(struct vb_fabric *fabric, uint64_t offset, size_t bytes);
/*
 * A peer's segment, as far as this process has mapped it. Mappings stay until the view is closed.
 */
struct vb_view {
	struct vb_segment *head;            /* the fixed part */
	const struct vb_registry *registry; /* in which it was found */
	uint32_t slot, generation;
	struct vb_lock lock; /* held while more is mapped */
	_Atomic(struct vb_seg_qp *) qp[VB_SEG_QP_CHUNKS];
	_Atomic(struct vb_seg_mr *) mr[VB_SEG_MR_CHUNKS];
	_Atomic(struct vb_window *) window[VB_WINDOWS];
	struct {
		void *at;
		size_t bytes;
	} ring[VB_RINGS];
};

/*
 * 0; -ESRCH where the process is gone or not there yet, -EUCLEAN where the segment is damaged, or
 * -errno of the mapping.
 */
int vb_view_open(struct vb_view *view, const struct vb_registry *registry, uint32_t slot,
		 uint32_t generation);
void vb_view_close(struct vb_view *view);
/*
 * Map a ring, which is at this offset, once; the same errors, and -ENOENT where it is outside of the
 * segment.
 */
int vb_view_map_ring(struct vb_view *view, uint32_t ring, uint64_t offset, size_t bytes);
int vb_view_map_qps(struct vb_view *view, uint32_t index);
int vb_view_map_mrs(struct vb_view *view, uint32_t index);
int vb_view_map_window(struct vb_view *view, uint32_t device);

/* The entry of a QP or MR index; the same errors, and -ENOENT where the peer has no such entry. */
static inline int vb_view_qp(struct vb_view *view, uint32_t index, struct vb_seg_qp **entry)
{
	struct vb_seg_qp *chunk;
	int ret;

	if (index >= VB_SEG_QP_CHUNK * VB_SEG_QP_CHUNKS)
		return -ENOENT;
	/* Pairs with vb_view_map_qps(). */
	while (!(chunk = atomic_load_explicit(&view->qp[index / VB_SEG_QP_CHUNK],
					      memory_order_acquire))) {
		ret = vb_view_map_qps(view, index);
		if (ret)
			return ret;
	}
	*entry = &chunk[index % VB_SEG_QP_CHUNK];
	return 0;
}

static inline int vb_view_mr(struct vb_view *view, uint32_t index, struct vb_seg_mr **entry)
{
	struct vb_seg_mr *chunk;
	int ret;

	if (index >= VB_SEG_MR_CHUNK * VB_SEG_MR_CHUNKS)
		return -ENOENT;
	while (!(chunk = atomic_load_explicit(&view->mr[index / VB_SEG_MR_CHUNK],
					      memory_order_acquire))) {
		ret = vb_view_map_mrs(view, index);
		if (ret)
			return ret;
	}
	*entry = &chunk[index % VB_SEG_MR_CHUNK];
	return 0;
}

/* The window of a device; NULL where the peer has none, or it cannot be mapped. */
static inline struct vb_window *vb_view_window(struct vb_view *view, uint32_t device)
{
	/* Pairs with vb_view_map_window(). */
	struct vb_window *window =
		atomic_load_explicit(&view->window[device], memory_order_acquire);

	if (window || vb_view_map_window(view, device))
		return window;
	return atomic_load_explicit(&view->window[device], memory_order_acquire);
}

/*
 * A pin: who uses which QP and key. Layout: generation of the pinning process (15 bits), 1, a count
 * of the pinning thread (8), QP index (16), MR index (24), so that one aligned store publishes it.
 * The count tells two uses of the same key from one another.
 */
static inline uint64_t vb_pin(uint32_t generation, uint8_t count, uint32_t qp_index,
			      uint32_t mr_index)
{
	return (uint64_t)(generation & 0x7fff) << 49 | 1ull << 48 | (uint64_t)count << 40 |
	       (uint64_t)(qp_index & 0xffff) << 24 | (mr_index & 0xffffff);
}

/* Wait until a pin in that slot's name is gone, or its process: false, and it is cleared. */
bool vb_segment_wait_pin(struct vb_fabric *fabric, uint32_t slot, _Atomic uint64_t *pin);
/* The same, but it stays. */
void vb_segment_wait_owner(struct vb_fabric *fabric, uint32_t slot, _Atomic uint64_t *pin);

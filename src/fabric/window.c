// SPDX-License-Identifier: MIT
/*
 * Owns windows, see window.h: the owner's side of lending, and delivery into a peer's queue.
 */
#include "fabric/window.h"

#include <endian.h>
#include <errno.h>
#include <sys/uio.h>

#include "fabric/direct.h"
#include "fabric/peer.h"
#include "fabric/segment.h"
#include "fabric/state.h"

/* --- the owner -------------------------------------------------------------------------------- */

struct vb_window *vb_window_own(uint32_t device)
{
	_Atomic uint64_t *place = &vb_segment_self->window[device];
	uint64_t offset = atomic_load_explicit(place, memory_order_acquire);

	if (!offset) {
		offset = vb_segment_alloc(sizeof(struct vb_window));
		/* Pairs with vb_view_map_window(). */
		atomic_store_explicit(place, offset, memory_order_release);
	}
	return offset ? vb_segment_at(offset, sizeof(struct vb_window)) : NULL;
}

void vb_window_begin_maps(struct vb_window *window)
{
	atomic_fetch_add_explicit(&window->version, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release); /* pairs with find_memory() */
}

void vb_window_end_maps(struct vb_window *window, uint32_t count)
{
	atomic_store_explicit(&window->count, count, memory_order_relaxed);
	atomic_fetch_add_explicit(&window->version, 1, memory_order_release);
}

/*
 * A pin of ours has the slot where others have the index of a queue. False: the process that was
 * busy is gone.
 */
static bool wait_idle(struct vb_window_queue *queue)
{
	uint64_t busy = atomic_load_explicit(&queue->busy, memory_order_acquire);
	uint32_t slot = busy >> 24 & 0xffff;

	if (!busy)
		return true;
	if (slot < VB_SLOTS)
		return vb_segment_wait_pin(slot, &queue->busy);
	atomic_store_explicit(&queue->busy, 0, memory_order_relaxed); /* it is forged */
	return false;
}

void vb_window_wait(struct vb_window *window)
{
	atomic_thread_fence(memory_order_seq_cst); /* pairs with take() */
	for (uint32_t i = 0; i < VB_WINDOW_QUEUES; i++)
		wait_idle(&window->queue[i]);
}

bool vb_window_close(struct vb_window_queue *queue)
{
	atomic_store_explicit(&queue->open, 0, memory_order_seq_cst);
	atomic_thread_fence(memory_order_seq_cst); /* pairs with take() */
	return !wait_idle(queue);
}

/* The kernel's copies are where stores are. */
#if defined(__x86_64__)
enum { COPIES_IN_ORDER = true };
#else
enum { COPIES_IN_ORDER = false };
#endif

/* --- a peer ----------------------------------------------------------------------------------- */

/* Where the message goes in the target's memory; false where it has no such mapping. */
static bool find_memory(struct vb_window *window, uint64_t va, uint32_t len, uint64_t *memory)
{
	uint32_t version = atomic_load_explicit(&window->version, memory_order_acquire);
	uint32_t count = atomic_load_explicit(&window->count, memory_order_relaxed);
	bool found = false;

	for (uint32_t i = 0; !found && i < count && i < VB_WINDOW_MAPS; i++) {
		struct vb_window_map *map = &window->map[i];
		uint64_t at = atomic_load_explicit(&map->va, memory_order_relaxed);
		uint64_t size = atomic_load_explicit(&map->size, memory_order_relaxed);

		if (va < at || va - at >= size || len > size - (va - at))
			continue;
		*memory = atomic_load_explicit(&map->memory, memory_order_relaxed) + (va - at);
		found = true;
	}
	atomic_thread_fence(memory_order_acquire); /* pairs with vb_window_begin_maps() */
	return found && !(version & 1) &&
	       atomic_load_explicit(&window->version, memory_order_relaxed) == version;
}

static bool is_meant(const struct vb_window_queue *queue, const struct vb_delivery *d)
{
	return queue->self == d->to && queue->peer == d->from;
}

/* Keep the owner from taking it back; false where it is not lent to us. */
static bool take(struct vb_window_queue *queue, const struct vb_delivery *d)
{
	uint32_t open = atomic_load_explicit(&queue->open, memory_order_acquire);
	uint64_t none = 0;

	if (!open || !is_meant(queue, d))
		return false;
	/* seq_cst: busy before open is read again. Pairs with vb_window_close() and vb_window_wait(). */
	if (!atomic_compare_exchange_strong_explicit(
		    &queue->busy, &none,
		    vb_pin(vb_segment_self->generation, 0, vb_segment_self->slot, 0),
		    memory_order_seq_cst, memory_order_relaxed))
		return false;
	if (atomic_load_explicit(&queue->open, memory_order_seq_cst) == open &&
	    is_meant(queue, d) && queue->key == d->key &&
	    atomic_load_explicit(&queue->psn, memory_order_relaxed) == d->psn)
		return true;
	atomic_store_explicit(&queue->busy, 0, memory_order_release);
	return false;
}

/* A place in the CQ. How far the program is, is looked up when it is full as far as we know. */
static bool has_room(struct vb_peer *peer, struct vb_window_queue *queue, uint32_t produced)
{
	uint32_t entries = queue->entries;
	struct iovec far = { (void *)(uintptr_t)queue->taken, sizeof(uint64_t) }, near;
	uint64_t taken;

	if (produced - atomic_load_explicit(&queue->seen, memory_order_relaxed) < entries)
		return true;
	near = (struct iovec){ &taken, sizeof(taken) };
	if (process_vm_readv(peer->thread, &near, 1, &far, 1, 0) != sizeof(taken))
		return false;
	taken = le64toh(taken) >> (queue->taken_shift & 63);
	atomic_store_explicit(&queue->seen, (uint32_t)taken, memory_order_relaxed);
	return produced - (uint32_t)taken < entries;
}

/*
 * All of it in one call, which copies piece after piece: the valid word of the CQE after the rest of
 * it, and the index last. Part of it is no delivery: packets do it again, from the beginning.
 */
static bool write_all(struct vb_peer *peer, const struct vb_window_queue *queue,
		      const struct vb_delivery *d, uint64_t memory, uint32_t produced)
{
	uint64_t at = queue->cq + (uint64_t)(produced & (queue->entries - 1)) * VB_WINDOW_CQE;
	uint64_t index = htole64((uint64_t)(uint32_t)(produced + 1));
	struct iovec near[VB_DIRECT_MAX_IOV + 3], far[4];
	uint32_t nears = 0, fars = 0;
	size_t bytes = d->len;
	ssize_t n;

	for (uint32_t i = 0; i < d->iov_cnt; i++)
		near[nears++] = d->iov[i];
	if (d->len)
		far[fars++] = (struct iovec){ (void *)(uintptr_t)memory, d->len };
	if (d->completes) {
		near[nears++] = (struct iovec){ (char *)d->cqe + 4, VB_WINDOW_CQE - 4 };
		far[fars++] = (struct iovec){ (void *)(uintptr_t)(at + 4), VB_WINDOW_CQE - 4 };
		near[nears++] = (struct iovec){ (char *)d->cqe, 4 };
		far[fars++] = (struct iovec){ (void *)(uintptr_t)at, 4 };
		near[nears++] = (struct iovec){ &index, sizeof(index) };
		far[fars++] = (struct iovec){ (void *)(uintptr_t)queue->index, sizeof(index) };
		bytes += VB_WINDOW_CQE + sizeof(index);
	}
	if (!bytes)
		return true;
	n = process_vm_writev(peer->thread, near, nears, far, fars, 0);
	if (n < 0 && errno == ESRCH)
		atomic_store_explicit(&peer->checked, 0, memory_order_relaxed);
	else if (n < 0 && errno != EFAULT)
		atomic_store_explicit(&peer->no_direct, true, memory_order_relaxed);
	return n == (ssize_t)bytes;
}

static bool deliver(struct vb_peer *peer, struct vb_window *window, struct vb_window_queue *queue,
		    const struct vb_delivery *d)
{
	uint32_t produced = atomic_load_explicit(&queue->produced, memory_order_relaxed);
	uint64_t memory = 0;

	if ((d->len && !find_memory(window, d->va, d->len, &memory)) ||
	    (d->completes && !has_room(peer, queue, produced)) ||
	    !write_all(peer, queue, d, memory, produced))
		return false;
	if (d->completes)
		atomic_store_explicit(&queue->produced, produced + 1, memory_order_relaxed);
	atomic_store_explicit(&queue->psn, (d->psn + 1) & 0xffffff, memory_order_relaxed);
	atomic_store_explicit(&queue->messages,
			      atomic_load_explicit(&queue->messages, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	atomic_store_explicit(&queue->bytes,
			      atomic_load_explicit(&queue->bytes, memory_order_relaxed) + d->len,
			      memory_order_relaxed);
	return true;
}

bool vb_window_deliver(struct vb_path *path, const struct vb_delivery *d)
{
	struct vb_peer *peer = path->peer;
	struct vb_window_queue *queue;
	struct vb_window *window;
	bool done;

	/* Whoever impairs or captures packets wants to see them. */
	if (!COPIES_IN_ORDER || !vb_direct_works(path) || d->device >= VB_WINDOWS ||
	    d->iov_cnt > VB_DIRECT_MAX_IOV ||
	    atomic_load_explicit(&vb_fabric_hook, memory_order_relaxed) ||
	    !vb_peer_known_alive(peer))
		return false;
	window = vb_view_window(&peer->view, d->device);
	if (!window)
		return false;
	queue = &window->queue[vb_window_place(d->to)];
	if (!take(queue, d))
		return false;
	done = deliver(peer, window, queue, d);
	/* Pairs with wait_idle(), and with the owner's look at what was left here. */
	atomic_store_explicit(&queue->busy, 0, memory_order_release);
	return done;
}

// SPDX-License-Identifier: MIT
/*
 * Owns windows, see lend.h: the owner's side of lending, and delivery into a peer's queue.
 */
#include "fabric/lend.h"

#include <endian.h>
#include <errno.h>
#include <sys/uio.h>

#include "host/fault.h"
#include "fabric/direct.h"
#include "fabric/peer.h"
#include "fabric/segment.h"
#include "fabric/running.h"
#include "fabric/state.h"

/* --- the owner -------------------------------------------------------------------------------- */

struct vb_window *vb_window_own(struct vb_fabric *fabric, uint32_t device)
{
	_Atomic uint64_t *place = &fabric->segment->window[device];
	uint64_t offset = atomic_load_explicit(place, memory_order_acquire);

	if (!offset) {
		offset = vb_segment_alloc(fabric, sizeof(struct vb_window));
		/* Pairs with vb_view_map_window(). */
		atomic_store_explicit(place, offset, memory_order_release);
	}
	return offset ? vb_segment_at(fabric, offset, sizeof(struct vb_window)) : NULL;
}

void vb_window_begin_maps(struct vb_window *window)
{
	atomic_fetch_add_explicit(&window->version, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release); /* pairs with fabric_window_find_memory() */
}

void vb_window_end_maps(struct vb_window *window, uint32_t count)
{
	atomic_store_explicit(&window->count, count, memory_order_relaxed);
	atomic_fetch_add_explicit(&window->version, 1, memory_order_release);
}

/* A pin of ours has the slot where others have the index of a queue; VB_SLOTS or more: it is forged. */
static uint32_t fabric_window_slot_of(uint64_t busy)
{
	return busy >> 24 & 0xffff;
}

/* False: the process that was busy is gone. */
static bool fabric_window_wait_idle(struct vb_fabric *fabric, struct vb_window_queue *queue)
{
	uint64_t busy = atomic_load_explicit(&queue->busy, memory_order_acquire);

	if (!busy)
		return true;
	if (fabric_window_slot_of(busy) < VB_SLOTS)
		return vb_segment_wait_pin(fabric, fabric_window_slot_of(busy), &queue->busy);
	atomic_store_explicit(&queue->busy, 0, memory_order_relaxed);
	return false;
}

/* The same, but that a process ended in the middle is left for vb_window_close() to see. */
static void wait_unused(struct vb_fabric *fabric, struct vb_window_queue *queue)
{
	uint64_t busy = atomic_load_explicit(&queue->busy, memory_order_acquire);

	if (__builtin_expect(busy != 0, 0) && fabric_window_slot_of(busy) < VB_SLOTS)
		vb_segment_wait_owner(fabric, fabric_window_slot_of(busy), &queue->busy);
}

void vb_window_wait(struct vb_fabric *fabric, struct vb_window *window)
{
	atomic_thread_fence(memory_order_seq_cst); /* pairs with fabric_window_take() */
	for (uint32_t i = 0; i < VB_WINDOW_QUEUES; i++)
		wait_unused(fabric, &window->queue[i]);
}

/* Whether somebody who is at work may be using one of these pages, as far as the maps say. */
static bool fabric_window_is_mapped(struct vb_window *window, uint64_t base, uint64_t len)
{
	uint32_t version = atomic_load_explicit(&window->version, memory_order_acquire);
	uint32_t count = atomic_load_explicit(&window->count, memory_order_relaxed);

	for (uint32_t i = 0; i < count && i < VB_WINDOW_MAPS; i++) {
		uint64_t at = atomic_load_explicit(&window->map[i].memory, memory_order_relaxed);
		uint64_t size = atomic_load_explicit(&window->map[i].size, memory_order_relaxed);

		if (at < base + len && base < at + size)
			return true;
	}
	atomic_thread_fence(memory_order_acquire);
	/* They change: whoever takes one away waits, too, but that may be still to come. */
	return (version & 1) ||
	       atomic_load_explicit(&window->version, memory_order_relaxed) != version;
}

static bool is_of_cq(const struct vb_window_queue *queue, uint64_t base, uint64_t len)
{
	uint64_t bytes = (uint64_t)queue->entries * VB_WINDOW_CQE;

	return (queue->cq < base + len && base < queue->cq + bytes) || queue->index - base < len ||
	       queue->taken - base < len;
}

void vb_window_wait_range(struct vb_fabric *fabric, uintptr_t base, size_t len)
{
	atomic_thread_fence(memory_order_seq_cst); /* pairs with fabric_window_take() */
	for (uint32_t d = 0; d < VB_WINDOWS && vb_running_goes_on(); d++) {
		uint64_t offset =
			atomic_load_explicit(&fabric->segment->window[d], memory_order_acquire);
		struct vb_window *window =
			offset ? vb_segment_at(fabric, offset, sizeof(*window)) : NULL;

		for (uint32_t i = 0; window && i < VB_WINDOW_QUEUES && vb_running_goes_on(); i++) {
			struct vb_window_queue *queue = &window->queue[i];

			if (__builtin_expect(
				    atomic_load_explicit(&queue->busy, memory_order_acquire) != 0,
				    0) &&
			    (is_of_cq(queue, base, len) ||
			     fabric_window_is_mapped(window, base, len)))
				wait_unused(fabric, queue);
		}
	}
}

bool vb_window_close(struct vb_fabric *fabric, struct vb_window_queue *queue)
{
	atomic_store_explicit(&queue->open, 0, memory_order_seq_cst);
	atomic_thread_fence(memory_order_seq_cst); /* pairs with fabric_window_take() */
	return !fabric_window_wait_idle(fabric, queue);
}

/* The kernel's copies are where stores are. */
#if defined(__x86_64__)
enum { COPIES_IN_ORDER = true };
#else
enum { COPIES_IN_ORDER = false };
#endif

/* --- a peer ----------------------------------------------------------------------------------- */

/* Where the bytes are in the target's memory; false where it has no such mapping. */
static bool fabric_window_find_memory(struct vb_window *window, uint64_t va, uint32_t len,
				      uint64_t *memory)
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

static bool fabric_window_is_meant(const struct vb_window_queue *queue, const struct vb_delivery *d)
{
	return queue->self == d->to && queue->peer == d->from && (queue->takes & d->op);
}

/* Keep the owner from taking it back; false where it is not lent to us. */
static bool fabric_window_take(const struct vb_segment *self, struct vb_window_queue *queue,
			       const struct vb_delivery *d)
{
	uint32_t open = atomic_load_explicit(&queue->open, memory_order_acquire);
	uint64_t none = 0;

	if (!open || !fabric_window_is_meant(queue, d))
		return false;
	/* seq_cst: busy before open is read again. Pairs with vb_window_close() and vb_window_wait(). */
	if (!atomic_compare_exchange_strong_explicit(&queue->busy, &none,
						     vb_pin(self->generation, 0, self->slot, 0),
						     memory_order_seq_cst, memory_order_relaxed))
		return false;
	if (atomic_load_explicit(&queue->open, memory_order_seq_cst) == open &&
	    fabric_window_is_meant(queue, d) && queue->key == d->key &&
	    atomic_load_explicit(&queue->psn, memory_order_relaxed) == d->psn)
		return true;
	atomic_store_explicit(&queue->busy, 0, memory_order_release);
	return false;
}

/* Where the CQ is, as the owner says: read once. */
struct cq {
	uint64_t entry; /* the next one */
	uint64_t index, taken;
	uint32_t entries, taken_shift, produced;
};

static struct cq read_cq(struct vb_window_queue *queue)
{
	const volatile struct vb_window_queue *shown = queue;
	struct cq cq = {
		.index = shown->index,
		.taken = shown->taken,
		.entries = shown->entries,
		.taken_shift = shown->taken_shift & 63,
		.produced = atomic_load_explicit(&queue->produced, memory_order_relaxed),
	};

	cq.entry = shown->cq + (uint64_t)(cq.produced & (cq.entries - 1)) * VB_WINDOW_CQE;
	return cq;
}

/* Few bytes of the peer: as vb_reach_at(). What is not in one piece is left to the peer itself. */
static char *fabric_window_reach(struct vb_peer *peer, uint64_t addr, uint64_t len)
{
	uint64_t piece;
	char *there = vb_reach_at(peer, addr, len, &piece);

	return piece == len ? there : VB_REACH_NOT;
}

static bool is_reached(const char *there)
{
	return there && there != VB_REACH_NOT;
}

static bool may_call(struct vb_peer *peer)
{
	return !atomic_load_explicit(&peer->no_direct, memory_order_relaxed);
}

/* The index of the program. */
static bool look_up(struct vb_peer *peer, const struct cq *cq, uint64_t *taken)
{
	struct iovec near = { taken, sizeof(*taken) };
	struct iovec far = { (void *)(uintptr_t)cq->taken, sizeof(*taken) };
	char *there = fabric_window_reach(peer, cq->taken, sizeof(*taken));

	if (is_reached(there) ? vb_fault_copy(taken, there, sizeof(*taken)) != 0
			      : !may_call(peer) || process_vm_readv(peer->thread, &near, 1, &far, 1,
								    0) != sizeof(*taken))
		return false;
	*taken = le64toh(*taken) >> cq->taken_shift;
	/* The program has read the entries before it says so: ours are written after this. */
	atomic_thread_fence(memory_order_acquire);
	return true;
}

/* A place in the CQ. How far the program is, is looked up when it is full as far as we know. */
static bool fabric_window_has_room(struct vb_peer *peer, struct vb_window_queue *queue,
				   const struct cq *cq)
{
	uint64_t taken;

	if (cq->produced - atomic_load_explicit(&queue->seen, memory_order_relaxed) < cq->entries)
		return true;
	if (!look_up(peer, cq, &taken))
		return false;
	atomic_store_explicit(&queue->seen, (uint32_t)taken, memory_order_relaxed);
	return cq->produced - (uint32_t)taken < cq->entries;
}

/* How bytes of the peer are reached: the slowest of the ways that a part of them takes. */
enum way { STORES, CALLS, PACKETS };

static enum way way_to(struct vb_peer *peer, const struct vb_delivery *d, uint64_t memory)
{
	enum way way = STORES;

	for (uint64_t done = 0, n; done < d->len; done += n) {
		char *there = vb_reach_at(peer, memory + done, d->len - done, &n);

		/* To read is no risk, whoever has the page meanwhile: host/shared/shared.h. */
		if (there == VB_REACH_NOT && d->op != VB_WINDOW_READ)
			return PACKETS;
		if (!is_reached(there))
			way = CALLS;
	}
	return way;
}

/* The valid word of the CQE after the rest of it, and the index last. False: they are not there. */
static bool store_cqe(const struct vb_delivery *d, char *entry, char *index, uint32_t produced)
{
	uint64_t next = htole64((uint64_t)(uint32_t)(produced + 1));

	/* Release, three times: the program that sees the later store sees the earlier one. */
	atomic_thread_fence(memory_order_release);
	if (vb_fault_copy(entry + 4, d->cqe + 4, VB_WINDOW_CQE - 4))
		return false;
	atomic_thread_fence(memory_order_release);
	if (vb_fault_copy(entry, d->cqe, 4))
		return false;
	atomic_thread_fence(memory_order_release);
	return !vb_fault_copy(index, &next, sizeof(next));
}

/*
 * A write whose CQE is not shared, in one call, which copies piece after piece. Part of it is no
 * delivery: packets do it again, from the beginning.
 */
static bool call_all(struct vb_peer *peer, const struct vb_delivery *d, uint64_t memory,
		     const struct cq *cq)
{
	uint64_t index = htole64((uint64_t)(uint32_t)(cq->produced + 1));
	struct iovec near[VB_DIRECT_MAX_IOV + 3], far[4];
	uint32_t nears = 0, fars = 0;
	ssize_t n;

	for (uint32_t i = 0; i < d->iov_cnt; i++)
		near[nears++] = d->iov[i];
	if (d->len)
		far[fars++] = (struct iovec){ (void *)(uintptr_t)memory, d->len };
	near[nears++] = (struct iovec){ (char *)d->cqe + 4, VB_WINDOW_CQE - 4 };
	far[fars++] = (struct iovec){ (void *)(uintptr_t)(cq->entry + 4), VB_WINDOW_CQE - 4 };
	near[nears++] = (struct iovec){ (char *)d->cqe, 4 };
	far[fars++] = (struct iovec){ (void *)(uintptr_t)cq->entry, 4 };
	near[nears++] = (struct iovec){ &index, sizeof(index) };
	far[fars++] = (struct iovec){ (void *)(uintptr_t)cq->index, sizeof(index) };
	n = process_vm_writev(peer->thread, near, nears, far, fars, 0);
	if (n < 0 && errno == ESRCH)
		atomic_store_explicit(&peer->checked, 0, memory_order_relaxed);
	else if (n < 0 && errno != EFAULT)
		atomic_store_explicit(&peer->no_direct, true, memory_order_relaxed);
	return n == (ssize_t)(d->len + VB_WINDOW_CQE + sizeof(index));
}

/* The data alone. */
static bool fabric_window_move(struct vb_peer *peer, struct vb_delivery *d, uint64_t memory)
{
	char *word;

	if (d->op != VB_WINDOW_ADD)
		return !d->len || vb_direct_move(peer, d->op == VB_WINDOW_WRITE, d->iov, d->iov_cnt,
						 memory, d->len) == VB_DIRECT_OK;
	word = memory % 8 ? NULL : fabric_window_reach(peer, memory, 8);
	return is_reached(word) && !vb_fault_fetch_add((uint64_t *)word, d->add, &d->old);
}

static enum vb_delivered fabric_window_move_all(struct vb_peer *peer, struct vb_window_queue *queue,
						struct vb_delivery *d, uint64_t memory)
{
	struct cq cq = read_cq(queue);
	char *entry = NULL, *index = NULL;
	enum way way = way_to(peer, d, memory);

	if (d->completes) {
		entry = fabric_window_reach(peer, cq.entry, VB_WINDOW_CQE);
		index = fabric_window_reach(peer, cq.index, sizeof(uint64_t));
		if (entry == VB_REACH_NOT || index == VB_REACH_NOT ||
		    !fabric_window_has_room(peer, queue, &cq))
			return VB_DELIVERED_NOT;
	}
	if (way == PACKETS || (way == CALLS && (d->stores_only || !may_call(peer))))
		return VB_DELIVERED_NOT;
	if (!d->completes || (entry && index)) {
		if (!fabric_window_move(peer, d, memory))
			return VB_DELIVERED_NOT;
		/* An addition is done once: a CQE that is not there is lost, as the owner would. */
		if (d->completes && !store_cqe(d, entry, index, cq.produced) &&
		    d->op != VB_WINDOW_ADD)
			return VB_DELIVERED_NOT;
	} else {
		if (!COPIES_IN_ORDER || d->op != VB_WINDOW_WRITE || d->stores_only ||
		    !may_call(peer) || !call_all(peer, d, memory, &cq))
			return VB_DELIVERED_NOT;
		way = CALLS;
	}
	if (d->completes)
		atomic_store_explicit(&queue->produced, cq.produced + 1, memory_order_relaxed);
	return way == CALLS ? VB_DELIVERED_COPIED : VB_DELIVERED_STORED;
}

static enum vb_delivered fabric_window_deliver(struct vb_peer *peer, struct vb_window *window,
					       struct vb_window_queue *queue, struct vb_delivery *d)
{
	enum vb_delivered done;
	uint64_t memory = 0;

	if (d->len && !fabric_window_find_memory(window, d->va, d->len, &memory))
		return VB_DELIVERED_NOT;
	done = fabric_window_move_all(peer, queue, d, memory);
	if (!done)
		return done;
	atomic_store_explicit(&queue->psn, (d->psn + d->psns) & 0xffffff, memory_order_relaxed);
	atomic_store_explicit(&queue->messages,
			      atomic_load_explicit(&queue->messages, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	if (d->op == VB_WINDOW_WRITE)
		atomic_store_explicit(&queue->bytes,
				      atomic_load_explicit(&queue->bytes, memory_order_relaxed) +
					      d->len,
				      memory_order_relaxed);
	return done;
}

enum vb_delivered vb_window_deliver(struct vb_path *path, struct vb_delivery *d)
{
	struct vb_peer *peer = path->peer;
	struct vb_window_queue *queue;
	struct vb_window *window;
	enum vb_delivered done;

	if (!vb_path_can(path, VB_PATH_DELIVERS) || !vb_direct_works(path) ||
	    d->device >= VB_WINDOWS || d->iov_cnt > VB_DIRECT_MAX_IOV || !vb_peer_known_alive(peer))
		return VB_DELIVERED_NOT;
	window = vb_view_window(&peer->view, d->device);
	if (!window)
		return VB_DELIVERED_NOT;
	queue = &window->queue[vb_window_place(d->to)];
	if (!fabric_window_take(peer->self, queue, d))
		return VB_DELIVERED_NOT;
	done = fabric_window_deliver(peer, window, queue, d);
	if (__builtin_expect(vb_segment_has_ended(peer->segment), 0))
		done = VB_DELIVERED_NOT;
	/* Pairs with fabric_window_wait_idle(), and with the owner's look at what was left here. */
	atomic_store_explicit(&queue->busy, 0, memory_order_release);
	return done;
}

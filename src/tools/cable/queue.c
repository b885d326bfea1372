// SPDX-License-Identifier: MIT
/*
 * Owns the queue of frames that were seen.
 *
 *	   head (taker)            published (those who put, one at a time)
 *	     v                       v
 *	[ .. | record | record | pad ] record .. free
 *
 * A record does not wrap: where it would, a pad record fills the rest.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/cable/cable.h"

enum { ALIGN = 16 };

#define PAD UINT32_MAX /* as a length */

static uint64_t record_size(uint32_t len)
{
	return (sizeof(struct queued) + len + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
}

static struct queued *record_at(struct queue *q, uint64_t position)
{
	return (struct queued *)(q->area + (position & (q->size - 1)));
}

int queue_create(struct queue *q, uint64_t size)
{
	void *area = mmap(NULL, size, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (area == MAP_FAILED)
		return -errno;
	*q = (struct queue){ .area = area, .size = size };
	q->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (q->ready < 0) {
		munmap(area, size);
		return -errno;
	}
	return 0;
}

void queue_destroy(struct queue *q)
{
	close(q->ready);
	munmap(q->area, q->size);
}

/* The lock is held. Where the record may be written, or NULL; its size in *bytes, with padding. */
static struct queued *reserve(struct queue *q, uint32_t len, uint64_t *bytes)
{
	uint64_t need = record_size(len), to_end = q->size - (q->tail & (q->size - 1));
	uint64_t pad = need > to_end ? to_end : 0;

	*bytes = need + pad;
	/* Pairs with the release in queue_pop(). */
	if (q->tail + *bytes - atomic_load_explicit(&q->head, memory_order_acquire) > q->size)
		return NULL;
	if (pad)
		record_at(q, q->tail)->len = PAD;
	return record_at(q, q->tail + pad);
}

void queue_put(struct queue *q, const struct vb_frame *frame, bool sent)
{
	struct queued *record;
	uint64_t bytes;

	vb_lock(&q->lock);
	record = reserve(q, frame->len, &bytes);
	if (record) {
		record->len = frame->len;
		record->sent = sent;
		record->ns = cable_wall_ns();
		memcpy(record->data, frame->data, frame->len);
		q->tail += bytes;
		/* Before the look at asleep, as queue_wait() has it the other way round. */
		atomic_store_explicit(&q->published, q->tail, memory_order_seq_cst);
	} else {
		atomic_fetch_add_explicit(&q->lost, 1, memory_order_relaxed);
	}
	vb_unlock(&q->lock);
	if (atomic_load_explicit(&q->asleep, memory_order_seq_cst) &&
	    atomic_exchange_explicit(&q->asleep, 0, memory_order_relaxed))
		eventfd_write(q->ready, 1);
}

struct queued *queue_peek(struct queue *q)
{
	uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
	struct queued *record;

	/* Pairs with the store in queue_put(). */
	if (head == atomic_load_explicit(&q->published, memory_order_acquire))
		return NULL;
	record = record_at(q, head);
	if (record->len != PAD)
		return record;
	head += q->size - (head & (q->size - 1));
	atomic_store_explicit(&q->head, head, memory_order_release);
	return record_at(q, head);
}

void queue_pop(struct queue *q)
{
	uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);

	atomic_store_explicit(&q->head, head + record_size(record_at(q, head)->len),
			      memory_order_release);
}

void queue_wait(struct queue *q)
{
	struct pollfd fd = { .fd = q->ready, .events = POLLIN };
	eventfd_t value;

	atomic_store_explicit(&q->asleep, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&q->head, memory_order_relaxed) ==
		    atomic_load_explicit(&q->published, memory_order_seq_cst) &&
	    !cable_stopped())
		poll(&fd, 1, -1);
	atomic_store_explicit(&q->asleep, 0, memory_order_relaxed);
	eventfd_read(q->ready, &value);
}

// SPDX-License-Identifier: MIT
/*
 * Owns the queue of frames that were seen.
 *
 *	   head (taker)            published (those who put, one at a time)
 *	     v                       v
 *	[ .. | record | record | pad ] record .. free
 *
 * A record does not wrap: where it would, a pad record fills the rest. The taker holds records in a heap, by the time at which their
 * frames were sent, and leaves them in their place until it has written them.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/time.h"
#include "tools/cable/cable.h"

enum { ALIGN = 16 };

#define PAD UINT32_MAX /* as a length */

static uint64_t cable_queue_record_size(uint32_t len)
{
	return (sizeof(struct queued) + len + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
}

static struct queued *cable_queue_record_at(struct queue *q, uint64_t position)
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
	free(q->heap);
	munmap(q->area, q->size);
}

/* The lock is held. Where the record may be written, or NULL; its size in *bytes, with padding. */
static struct queued *cable_queue_reserve(struct queue *q, uint32_t len, uint64_t *bytes)
{
	uint64_t need = cable_queue_record_size(len), to_end = q->size - (q->tail & (q->size - 1));
	uint64_t pad = need > to_end ? to_end : 0;

	*bytes = need + pad;
	/* Pairs with the release in queue_pop(). */
	if (q->tail + *bytes - atomic_load_explicit(&q->head, memory_order_acquire) > q->size)
		return NULL;
	if (pad)
		cable_queue_record_at(q, q->tail)->len = PAD;
	return cable_queue_record_at(q, q->tail + pad);
}

void queue_put(struct queue *q, const struct vb_frame *frame, bool sent, uint64_t ns)
{
	struct queued *record;
	uint64_t bytes;

	vb_lock(&q->lock);
	record = cable_queue_reserve(q, frame->len, &bytes);
	if (record) {
		record->len = frame->len;
		record->sent = sent;
		record->taken = false;
		record->ns = ns;
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

/* --- the order -------------------------------------------------------------------------------- */

static bool is_before(const struct queued *a, const struct queued *b)
{
	return a->ns != b->ns ? a->ns < b->ns : a->position < b->position;
}

static void swap(struct queued **a, struct queued **b)
{
	struct queued *was = *a;

	*a = *b;
	*b = was;
}

static void rise(struct queue *q, size_t at)
{
	for (; at && is_before(q->heap[at], q->heap[(at - 1) / 2]); at = (at - 1) / 2)
		swap(&q->heap[at], &q->heap[(at - 1) / 2]);
}

static void sink(struct queue *q)
{
	for (size_t at = 0, next; (next = 2 * at + 1) < q->held; at = next) {
		if (next + 1 < q->held && is_before(q->heap[next + 1], q->heap[next]))
			next++;
		if (!is_before(q->heap[next], q->heap[at]))
			return;
		swap(&q->heap[next], &q->heap[at]);
	}
}

/* Room for one more; false: there is no memory, and what is held must go first. */
static bool cable_queue_grow(struct queue *q)
{
	size_t more = q->capacity ? 2 * q->capacity : 1024;
	struct queued **heap;

	if (q->held < q->capacity)
		return true;
	heap = realloc(q->heap, more * sizeof(*heap));
	if (!heap)
		return false;
	q->heap = heap;
	q->capacity = more;
	return true;
}

/* The position behind the record there. */
static uint64_t cable_queue_behind(struct queue *q, uint64_t at)
{
	struct queued *record = cable_queue_record_at(q, at);

	return record->len == PAD ? at + q->size - (at & (q->size - 1))
				  : at + cable_queue_record_size(record->len);
}

/* What has been published since the last look. */
static bool cable_queue_collect(struct queue *q)
{
	/* Pairs with the store in queue_put(). */
	uint64_t end = atomic_load_explicit(&q->published, memory_order_acquire);

	while (q->looked != end) {
		struct queued *record = cable_queue_record_at(q, q->looked);

		if (record->len != PAD) {
			if (!cable_queue_grow(q))
				return false;
			record->position = q->looked;
			q->heap[q->held++] = record;
			rise(q, q->held - 1);
		}
		q->looked = cable_queue_behind(q, q->looked);
	}
	return true;
}

struct queued *queue_peek(struct queue *q, bool all)
{
	uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);

	if (!cable_queue_collect(q) || q->looked - head > q->size / 2)
		all = true;
	if (!q->held || (!all && vb_now_ns() - q->heap[0]->ns < QUEUE_HOLD_NS))
		return NULL;
	return q->heap[0];
}

/* The room of records that are taken is free from the oldest on. */
void queue_pop(struct queue *q)
{
	uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);

	q->heap[0]->taken = true;
	q->heap[0] = q->heap[--q->held];
	sink(q);
	while (head != q->looked && (cable_queue_record_at(q, head)->len == PAD ||
				     cable_queue_record_at(q, head)->taken))
		head = cable_queue_behind(q, head);
	atomic_store_explicit(&q->head, head, memory_order_release);
}

void queue_wait(struct queue *q)
{
	struct pollfd fd = { .fd = q->ready, .events = POLLIN };
	eventfd_t value;

	atomic_store_explicit(&q->asleep, 1, memory_order_seq_cst);
	if (q->looked == atomic_load_explicit(&q->published, memory_order_seq_cst) &&
	    !cable_stopped())
		vb_poll_until(vb_time_card(), &fd, 1,
			      q->held ? q->heap[0]->ns + QUEUE_HOLD_NS : VB_NEVER, NULL);
	atomic_store_explicit(&q->asleep, 0, memory_order_relaxed);
	eventfd_read(q->ready, &value);
}

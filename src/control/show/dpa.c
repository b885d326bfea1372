// SPDX-License-Identifier: MIT
/*
 * Owns what the accelerator shows: entries of processes and threads, and the buffers of the event
 * tracer.
 *
 *	buffer:  [in][out][in] ... [in][FULL]     filled once, in the order of taking a place
 *
 * Host threads take places of a buffer by counting, and write them on their own. Behind the last
 * place nothing is recorded, until somebody resets the samples: readers do not consume them, so
 * several can read. A place carries the number of the reset that it belongs to. One that is still
 * being written when its number is over stays as it is, and its successor is lost: readers find it
 * empty.
 */
#include "control/show/dpa.h"

#include <stdio.h>
#include <string.h>

/* Ids have the slot of the program in front: no two programs of a user have the same. */
enum { ID_BITS = 20 };

/* ---- entries ---- */

/*
 * What an earlier process in this entry was asked for does not count. A reader that has looked at the
 * former process fails to swap: the numbers of changes and resets.
 */
static void clear_request(struct vb_monitor_request *request)
{
	uint64_t state = atomic_load_explicit(&request->state, memory_order_relaxed);

	atomic_fetch_add_explicit(&request->resets, (1ull << 32) + 1, memory_order_relaxed);
	atomic_store_explicit(&request->state,
			      (state + VB_MONITOR_CHANGE) & ~(uint64_t)(VB_MONITOR_CHANGE - 1),
			      memory_order_relaxed);
}

void vb_shown_process_begin(struct vb_shown_process *process, const char *name, const char *adapter,
			    uint32_t number, bool deterministic)
{
	struct vb_monitor_process *entry;

	memset(process, 0, sizeof(*process));
	if (vb_monitor_add(VB_MONITOR_DPA_PROCESS, &process->place))
		return;
	process->id =
		vb_monitor_slot(&process->place) << ID_BITS | (number & ((1u << ID_BITS) - 1));
	process->request = &vb_monitor_requests(&process->place)->process[process->place.index];
	clear_request(process->request);
	entry = process->place.entry;
	entry->id = process->id;
	entry->flags = deterministic ? VB_MONITOR_DETERMINISTIC : 0;
	entry->samples = VB_MONITOR_SAMPLES;
	snprintf(entry->name, sizeof(entry->name), "%s", name);
	snprintf(entry->adapter, sizeof(entry->adapter), "%s", adapter);
	vb_monitor_show(&process->place);
}

void vb_shown_process_end(struct vb_shown_process *process)
{
	struct vb_monitor_sample *samples =
		atomic_load_explicit(&process->samples, memory_order_relaxed);

	process->request = NULL;
	/* The next process may use the buffer at once. */
	vb_monitor_hide(&process->place);
	if (samples)
		vb_monitor_give(&process->place, samples,
				VB_MONITOR_SAMPLES * sizeof(struct vb_monitor_sample),
				process->offset);
	vb_monitor_remove(&process->place);
}

void vb_shown_thread_begin(struct vb_shown_thread *thread, struct vb_shown_process *process,
			   uint32_t id, const char *name)
{
	struct vb_monitor_process *shown = process->place.entry;
	struct vb_monitor_thread *entry;

	memset(thread, 0, sizeof(*thread));
	if (!process->request || vb_monitor_add(VB_MONITOR_DPA_THREAD, &thread->place))
		return;
	entry = thread->place.entry;
	thread->process = process;
	thread->request = process->request;
	thread->counters = &entry->counters;
	thread->id = id;
	entry->process = process->place.index;
	entry->process_id = process->id;
	entry->id = id;
	snprintf(entry->name, sizeof(entry->name), "%s", name);
	atomic_fetch_add_explicit(&shown->nthreads, 1, memory_order_relaxed);
	vb_monitor_show(&thread->place);
}

void vb_shown_thread_end(struct vb_shown_thread *thread)
{
	struct vb_monitor_process *shown;

	if (!thread->request)
		return;
	shown = thread->process->place.entry;
	atomic_fetch_sub_explicit(&shown->nthreads, 1, memory_order_relaxed);
	thread->request = NULL;
	vb_monitor_remove(&thread->place);
}

/* ---- counters ---- */

void vb_shown_counting_begin(struct vb_shown_counting *counting,
			     const struct vb_shown_thread *thread)
{
	static const struct vb_monitor_request nobody;

	*counting = (struct vb_shown_counting){ .request = &nobody };
	if (!thread || !thread->request)
		return;
	counting->request = thread->request;
	counting->counters = thread->counters;
}

void vb_shown_change(struct vb_shown_counting *counting, uint64_t state)
{
	uint64_t resets = atomic_load_explicit(&counting->request->resets, memory_order_relaxed);
	struct vb_monitor_counters *c = counting->counters;

	counting->state = state;
	counting->resets = (uint32_t)resets;
	if ((uint32_t)c->resets == (uint32_t)resets)
		return;
	vb_monitor_write_begin(&c->seq);
	c->resets = resets;
	atomic_store_explicit(&c->ticks, 0, memory_order_relaxed);
	atomic_store_explicit(&c->instructions, 0, memory_order_relaxed);
	atomic_store_explicit(&c->executions, 0, memory_order_relaxed);
	vb_monitor_write_end(&c->seq);
}

/* ---- samples ---- */

/* Make the buffer, once. Where somebody else is about to, this slice is not traced. */
static struct vb_monitor_sample *make_buffer(struct vb_shown_process *process)
{
	struct vb_monitor_process *entry = process->place.entry;
	struct vb_monitor_sample *samples;

	if (atomic_exchange_explicit(&process->busy, 1, memory_order_acquire))
		return atomic_load_explicit(&process->samples, memory_order_acquire);
	samples = vb_monitor_alloc(&process->place,
				   VB_MONITOR_SAMPLES * sizeof(struct vb_monitor_sample),
				   &process->offset);
	if (!samples)
		return NULL; /* the log has said why; busy stays */
	atomic_store_explicit(&process->samples, samples, memory_order_release);
	atomic_store_explicit(&entry->buffer, process->offset, memory_order_release);
	return samples;
}

/* A place for a sample of this reset; VB_MONITOR_SAMPLES or more: none. */
static uint32_t take_place(struct vb_shown_process *process, uint32_t reset)
{
	uint64_t next = atomic_load_explicit(&process->next, memory_order_relaxed), take;

	do {
		bool anew = next >> 32 != reset;

		if (anew && (int32_t)((uint32_t)(next >> 32) - reset) > 0)
			return UINT32_MAX; /* this reset is over */
		take = anew ? (uint64_t)reset << 32 : next;
		if ((uint32_t)take >= VB_MONITOR_SAMPLES)
			return UINT32_MAX;
	} while (!atomic_compare_exchange_weak_explicit(
		&process->next, &next, take + 1, memory_order_relaxed, memory_order_relaxed));
	return (uint32_t)take;
}

/* False: there is no place, or no buffer. */
static bool put(struct vb_shown_thread *thread, const struct vb_shown_slice *slice,
		enum vb_monitor_sample_type type, const struct vb_shown_stamp *stamp)
{
	struct vb_monitor_sample *samples =
		atomic_load_explicit(&thread->process->samples, memory_order_acquire);
	uint32_t reset = (uint32_t)(slice->resets >> 32), index, number;
	struct vb_monitor_sample *s;

	if (!samples)
		samples = make_buffer(thread->process);
	if (!samples)
		return false;
	index = take_place(thread->process, reset);
	if (index >= VB_MONITOR_SAMPLES)
		return false;
	s = &samples[index];
	number = atomic_load_explicit(&s->seq.number, memory_order_relaxed);
	/* Acquire, so that nothing below is written before; and see the top of this file. */
	if ((number & 1) ||
	    !atomic_compare_exchange_strong_explicit(&s->seq.number, &number, (2 + 2 * reset) | 1,
						     memory_order_acquire, memory_order_relaxed))
		return false;
	atomic_thread_fence(memory_order_release);
	s->thread = thread->id;
	s->eu = slice->eu;
	s->id = slice->id;
	s->type = index == VB_MONITOR_SAMPLES - 1 ? VB_MONITOR_FULL : type;
	s->instructions = (uint32_t)stamp->instructions;
	s->ticks = stamp->ticks;
	s->time = stamp->time;
	atomic_store_explicit(&s->seq.number, 2 + 2 * reset, memory_order_release);
	return true;
}

void vb_shown_in(struct vb_shown_thread *thread, struct vb_shown_slice *slice,
		 const struct vb_shown_stamp *stamp)
{
	slice->resets = atomic_load_explicit(&thread->request->resets, memory_order_relaxed);
	slice->in = put(thread, slice, VB_MONITOR_IN, stamp);
}

void vb_shown_out(struct vb_shown_thread *thread, const struct vb_shown_slice *slice,
		  const struct vb_shown_stamp *stamp)
{
	uint64_t state = atomic_load_explicit(&thread->request->state, memory_order_relaxed);
	uint64_t resets = atomic_load_explicit(&thread->request->resets, memory_order_relaxed);

	if (slice->in && state == slice->state && resets >> 32 == slice->resets >> 32)
		put(thread, slice, VB_MONITOR_OUT, stamp);
}

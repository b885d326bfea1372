/* SPDX-License-Identifier: MIT */
/*
 * What the accelerator shows: its processes and threads, their counters, and the slices that they
 * ran. Of the owner; readers use monitor.h and layout.h.
 *
 * The host thread that runs a device thread counts by itself, at the end of each slice, on a line
 * that nobody else writes. Whether anything is counted is said by two words of the file that readers
 * write (struct vb_monitor_request). A slice counts as a whole: if it began and ended while counters
 * were active, with no change and no reset in between. So counters are exact for what ran between two
 * requests, and what a request falls into is not counted at all.
 */
#pragma once

#include "monitor/monitor.h"

struct vb_shown_process {
	struct vb_monitor_place place;
	struct vb_monitor_request *request; /* NULL: not shown */
	uint32_t id;
	/* The event tracer. The buffer is made when a slice begins and somebody wants samples. */
	_Atomic(struct vb_monitor_sample *) samples;
	uint64_t offset;       /* of the buffer in the file */
	_Atomic uint64_t next; /* upper half: resets of samples; lower half: places taken since */
	_Atomic int busy;      /* a thread makes the buffer, or tried in vain */
};

struct vb_shown_thread {
	struct vb_monitor_request *request; /* of its process; NULL: not shown */
	struct vb_monitor_counters *counters;
	struct vb_shown_process *process;
	struct vb_monitor_place place;
	uint32_t id;
	uint16_t lent; /* slices that a caller ran, as far as they were traced */
};

/* Begin to show; name and adapter are copied, number is that of the process in this program. */
VB_PUBLIC void vb_shown_process_begin(struct vb_shown_process *process, const char *name,
				      const char *adapter, uint32_t number, bool deterministic);
/* None of its threads is shown any more. */
VB_PUBLIC void vb_shown_process_end(struct vb_shown_process *process);
VB_PUBLIC void vb_shown_thread_begin(struct vb_shown_thread *thread,
				     struct vb_shown_process *process, uint32_t id,
				     const char *name);
/* It does not run any more. */
VB_PUBLIC void vb_shown_thread_end(struct vb_shown_thread *thread);

/* ---- slices ---- */

/* What was asked for when a slice began. */
struct vb_shown_slice {
	uint64_t state, resets;
	uint16_t eu, id; /* of samples */
};

/* Where an EU stands; ticks are of the clock that the process shows. */
struct vb_shown_stamp {
	uint64_t time, ticks, instructions;
};

/* The word that says whether somebody wants its slices; thread may be NULL. */
static inline const _Atomic uint64_t *vb_shown_word(const struct vb_shown_thread *thread)
{
	static const _Atomic uint64_t nobody;

	return thread && thread->request ? &thread->request->state : &nobody;
}

/* Whether a slice that begins now is to be counted or traced: all that it costs otherwise. */
static inline bool vb_shown_wanted(const _Atomic uint64_t *word, struct vb_shown_slice *slice)
{
	slice->state = atomic_load_explicit(word, memory_order_relaxed);
	return __builtin_expect(slice->state & VB_MONITOR_ACTIVE, 0);
}

/* In front of a slice that is wanted. */
static inline void vb_shown_begin(const struct vb_shown_thread *thread,
				  struct vb_shown_slice *slice)
{
	slice->resets = atomic_load_explicit(&thread->request->resets, memory_order_relaxed);
}

/* ... by the tracer; slice->eu and id are set. And behind it. */
VB_PUBLIC void vb_shown_in(struct vb_shown_thread *thread, struct vb_shown_slice *slice,
			   const struct vb_shown_stamp *stamp);
VB_PUBLIC void vb_shown_out(struct vb_shown_thread *thread, const struct vb_shown_slice *slice,
			    const struct vb_shown_stamp *stamp);

static inline bool vb_shown_traces(const struct vb_shown_slice *slice)
{
	return slice->state & VB_MONITOR_TRACER;
}

static inline void vb_shown_add(_Atomic uint64_t *counter, uint64_t value, bool anew)
{
	uint64_t old = anew ? 0 : atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, old + value, memory_order_relaxed);
}

/* Behind a slice that is wanted, but not by the tracer. */
static inline void vb_shown_count(struct vb_shown_thread *thread,
				  const struct vb_shown_slice *slice, uint64_t ticks,
				  uint64_t instructions, uint64_t executions)
{
	struct vb_monitor_counters *c = thread->counters;
	uint64_t resets = atomic_load_explicit(&thread->request->resets, memory_order_relaxed);
	bool anew;

	if (atomic_load_explicit(&thread->request->state, memory_order_relaxed) != slice->state ||
	    (uint32_t)resets != (uint32_t)slice->resets)
		return;
	anew = (uint32_t)c->resets != (uint32_t)resets;
	vb_monitor_write_begin(&c->seq);
	c->resets = resets;
	vb_shown_add(&c->ticks, ticks, anew);
	vb_shown_add(&c->instructions, instructions, anew);
	vb_shown_add(&c->executions, executions, anew);
	vb_monitor_write_end(&c->seq);
}

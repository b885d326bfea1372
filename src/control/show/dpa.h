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

#include "control/show/monitor.h"

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

/* What counting needs of it, in a place of who runs the thread: one line, not three. */
struct vb_shown_counting {
	const struct vb_monitor_request *request;
	struct vb_monitor_counters *counters;
	/* What was asked for when the last slice began that was counted. */
	uint64_t state;
	uint32_t resets;
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

/* Where an EU stands; ticks are of the clock that the process shows. */
struct vb_shown_stamp {
	uint64_t time, ticks, instructions;
};

/* thread may be NULL: nobody wants its slices. */
VB_PUBLIC void vb_shown_counting_begin(struct vb_shown_counting *counting,
				       const struct vb_shown_thread *thread);

/*
 * Whether a slice that begins now is to be counted or traced: all that it costs otherwise. The state
 * is for the functions below.
 */
static inline bool vb_shown_wanted(const struct vb_shown_counting *counting, uint64_t *state)
{
	*state = atomic_load_explicit(&counting->request->state, memory_order_relaxed);
	return __builtin_expect(*state & VB_MONITOR_ACTIVE, 0);
}

/* Whether the tracer wants it, or the counters. */
static inline bool vb_shown_traces(uint64_t state)
{
	return state & VB_MONITOR_TRACER;
}

/* ---- the tracer ---- */

struct vb_shown_slice {
	uint64_t state, resets; /* what was asked for when it began */
	uint16_t eu, id;        /* of samples */
	bool in;                /* the first of both was recorded */
};

/* In front of a slice; state, eu and id are set. And behind it. */
VB_PUBLIC void vb_shown_in(struct vb_shown_thread *thread, struct vb_shown_slice *slice,
			   const struct vb_shown_stamp *stamp);
VB_PUBLIC void vb_shown_out(struct vb_shown_thread *thread, const struct vb_shown_slice *slice,
			    const struct vb_shown_stamp *stamp);

/* ---- counters ---- */

/* By the one who writes it: no locked instruction. */
static inline void vb_shown_add(_Atomic uint64_t *counter, uint64_t value)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + value,
			      memory_order_relaxed);
}

/* True if the requested counters are unchanged since the last slice. */
static inline bool vb_shown_same(const struct vb_shown_counting *counting, uint64_t state)
{
	return __builtin_expect(counting->state == state &&
					counting->resets == (uint32_t)atomic_load_explicit(
								    &counting->request->resets,
								    memory_order_relaxed),
				1);
}

/* Something else is asked for as of the slice that begins: after a reset, counters are 0. */
VB_PUBLIC void vb_shown_change(struct vb_shown_counting *counting, uint64_t state);

/* In front of a slice. */
static inline void vb_shown_begin(struct vb_shown_counting *counting, uint64_t state)
{
	if (!vb_shown_same(counting, state))
		vb_shown_change(counting, state);
}

/*
 * Behind a slice. Counting reads no clock and takes nothing along from the begin of the slice: words
 * of the request are compared before and after, and three words grow.
 */
static inline void vb_shown_count(struct vb_shown_counting *counting, uint64_t ticks,
				  uint64_t instructions, uint64_t executions)
{
	struct vb_monitor_counters *c = counting->counters;

	if (!vb_shown_same(counting,
			   atomic_load_explicit(&counting->request->state, memory_order_relaxed)))
		return;
	vb_monitor_write_begin(&c->seq);
	vb_shown_add(&c->ticks, ticks);
	vb_shown_add(&c->instructions, instructions);
	vb_shown_add(&c->executions, executions);
	vb_monitor_write_end(&c->seq);
}

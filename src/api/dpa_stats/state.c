// SPDX-License-Identifier: MIT
/*
 * Owns requests: what a process counts. The words are in the file of the program, and take effect
 * with the next slice of each thread; nobody has to answer. Several readers may ask at a time: each
 * word changes as a whole, and the last one counts.
 */
#include "internal.h"

/* What is asked for, on the way through vb_gather(). */
struct asking {
	struct gather gather; /* first */
	dpa_stats_counter_state state;
	dpa_stats_sample_type type;
};

/* Bounded, because a damaged program may write to the word all the time. */
enum { TRIES = 1000 };

static void set_state(struct vb_monitor_view *view, size_t word, bool active, bool tracer)
{
	uint64_t flags = (active ? VB_MONITOR_ACTIVE : 0) | (tracer ? VB_MONITOR_TRACER : 0), old,
		 value;

	if (vb_monitor_load(view, word, &old))
		return;
	for (unsigned int i = 0; i < TRIES; i++) {
		if ((old & (VB_MONITOR_CHANGE - 1)) == flags)
			return; /* slices that run now count on */
		value = ((old + VB_MONITOR_CHANGE) & ~(uint64_t)(VB_MONITOR_CHANGE - 1)) | flags;
		if (vb_monitor_swap(view, word, &old, value) != -EAGAIN)
			return;
	}
}

static void reset(struct vb_monitor_view *view, size_t word, bool tracer)
{
	uint64_t old, value;

	if (vb_monitor_load(view, word, &old))
		return;
	for (unsigned int i = 0; i < TRIES; i++) {
		value = tracer ? old + (1ull << 32) : (old & ~0xffffffffull) | (uint32_t)(old + 1);
		if (vb_monitor_swap(view, word, &old, value) != -EAGAIN)
			return;
	}
}

static void ask(struct gather *g, const struct seen *seen)
{
	const struct asking *a = (const struct asking *)g;
	bool tracer = a->type == DPA_STATS_SAMPLE_TYPE_EVENT_TRACER;
	size_t word = vb_stats_request(seen);

	if (a->state == DPA_STATS_COUNTER_STATE_RESET)
		reset(seen->view, word + offsetof(struct vb_monitor_request, resets), tracer);
	else
		set_state(seen->view, word + offsetof(struct vb_monitor_request, state),
			  a->state == DPA_STATS_COUNTER_STATE_ACTIVE, tracer);
}

dpa_stats_status dpa_stats_set_counter_state(dpa_stats_handler_t *dpa_handler, uint32_t process_id,
					     dpa_stats_counter_state state,
					     dpa_stats_sample_type type)
{
	struct asking a = {
		.gather = { dpa_handler, { process_id, DPA_STATS_ALL_THREADS, NULL }, ask },
		.state = state,
		.type = type,
	};

	CALL(dpa_handler);
	/* An enum may be signed or not. */
	if ((int)state < DPA_STATS_COUNTER_STATE_ACTIVE ||
	    (int)state > DPA_STATS_COUNTER_STATE_RESET)
		return fail(dpa_handler, VALUE_OUT_OF_ENUM, "%d is not a state of counters",
			    (int)state);
	if ((int)type < DPA_STATS_SAMPLE_TYPE_CUMULATIVE_EVENT ||
	    (int)type > DPA_STATS_SAMPLE_TYPE_EVENT_TRACER)
		return fail(dpa_handler, VALUE_OUT_OF_ENUM, "%d is not a type of counters",
			    (int)type);
	return vb_gather(&a.gather, __func__);
}

static void look(struct gather *g, const struct seen *seen)
{
	struct asking *a = (struct asking *)g;
	uint64_t state = 0;

	vb_monitor_load(seen->view,
			vb_stats_request(seen) + offsetof(struct vb_monitor_request, state),
			&state);
	a->state = state & VB_MONITOR_ACTIVE ? DPA_STATS_COUNTER_STATE_ACTIVE
					     : DPA_STATS_COUNTER_STATE_INACTIVE;
	a->type = state & VB_MONITOR_TRACER ? DPA_STATS_SAMPLE_TYPE_EVENT_TRACER
					    : DPA_STATS_SAMPLE_TYPE_CUMULATIVE_EVENT;
}

dpa_stats_status dpa_stats_get_counter_state(dpa_stats_handler_t *dpa_handler, uint32_t process_id,
					     dpa_stats_counter_state *state,
					     dpa_stats_sample_type *type)
{
	struct asking a = {
		.gather = { dpa_handler, { process_id, DPA_STATS_ALL_THREADS, NULL }, look },
	};
	dpa_stats_status status;

	CALL(dpa_handler);
	if (!state || !type)
		return fail(dpa_handler, NULL_POINTER, "%s is NULL", state ? "type" : "state");
	if (process_id == DPA_STATS_ALL_PROCESSES)
		return fail(dpa_handler, INVALID_PARAMS,
			    "each process has a state: process_id must be one");
	status = vb_gather(&a.gather, __func__);
	if (status)
		return status;
	*state = a.state;
	*type = a.type;
	return DPA_STATS_STATUS_OK;
}

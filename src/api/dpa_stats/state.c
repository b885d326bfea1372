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

/* What the word becomes; the same where nothing is to be changed. */
static uint64_t changed(const struct asking *a, uint64_t old)
{
	bool tracer = a->type == DPA_STATS_SAMPLE_TYPE_EVENT_TRACER;
	uint64_t flags = (a->state == DPA_STATS_COUNTER_STATE_ACTIVE ? VB_MONITOR_ACTIVE : 0) |
			 (tracer ? VB_MONITOR_TRACER : 0);

	if (a->state == DPA_STATS_COUNTER_STATE_RESET)
		return tracer ? old + (1ull << 32) : (old & ~0xffffffffull) | (uint32_t)(old + 1);
	if ((old & (VB_MONITOR_CHANGE - 1)) == flags)
		return old; /* slices that run now count on */
	return ((old + VB_MONITOR_CHANGE) & ~(uint64_t)(VB_MONITOR_CHANGE - 1)) | flags;
}

/*
 * The next process in its place changes both words before it is seen: what was loaded while the one that
 * is meant was there can be swapped only then.
 */
static bool dpa_stats_state_ask(struct gather *g, const struct seen *seen)
{
	const struct asking *a = (const struct asking *)g;
	size_t word =
		vb_stats_request(seen) + (a->state == DPA_STATS_COUNTER_STATE_RESET
						  ? offsetof(struct vb_monitor_request, resets)
						  : offsetof(struct vb_monitor_request, state));
	uint64_t old;

	if (vb_monitor_load(seen->view, word, &old))
		return false;
	for (unsigned int i = 0; i < TRIES && vb_stats_is_there(seen); i++) {
		uint64_t value = changed(a, old);

		if (value == old || vb_monitor_swap(seen->view, word, &old, value) != -EAGAIN)
			return true;
	}
	return false;
}

dpa_stats_status dpa_stats_set_counter_state(dpa_stats_handler_t *dpa_handler, uint32_t process_id,
					     dpa_stats_counter_state state,
					     dpa_stats_sample_type type)
{
	struct asking a = {
		.gather = { dpa_handler,
			    { process_id, DPA_STATS_ALL_THREADS, NULL },
			    dpa_stats_state_ask },
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

static bool dpa_stats_state_look(struct gather *g, const struct seen *seen)
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
	return vb_stats_is_there(seen);
}

dpa_stats_status dpa_stats_get_counter_state(dpa_stats_handler_t *dpa_handler, uint32_t process_id,
					     dpa_stats_counter_state *state,
					     dpa_stats_sample_type *type)
{
	struct asking a = {
		.gather = { dpa_handler,
			    { process_id, DPA_STATS_ALL_THREADS, NULL },
			    dpa_stats_state_look },
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

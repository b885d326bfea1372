// SPDX-License-Identifier: MIT
/* Owns lists of samples: what the event tracer of a process has recorded since its last reset. */
#include "internal.h"

/* A buffer that a file speaks of; larger ones are not ours. */
enum { SAMPLES_MAX = 65536 };

static void add_sample(struct gather *g, const struct seen *seen, const struct vb_monitor_sample *s)
{
	dpa_stats_perf_event_sample *out = vb_rows_add(&g->rows);

	if (!out)
		return;
	*out = (dpa_stats_perf_event_sample){
		.time = vb_stats_time(seen, s->time),
		.cycles = vb_stats_cycles(seen, s->ticks),
		.dpa_process_id = seen->process.id,
		.dpa_thread_id = s->thread,
		.instructions = s->instructions,
		.eu_id = s->eu,
		.sample_id_in_eu = s->id,
		.type = (enum dpa_stats_event_sample_type)s->type,
	};
}

static bool is_type(uint32_t type)
{
	return type == VB_MONITOR_IN || type == VB_MONITOR_OUT || type == VB_MONITOR_FULL;
}

/* Places that belong to an earlier reset, or that nobody has written, are empty. */
static bool add_samples(struct gather *g, const struct seen *seen)
{
	size_t before = g->rows.count;
	uint64_t buffer = atomic_load_explicit(&seen->process.buffer, memory_order_relaxed), resets;
	uint32_t places = seen->process.samples, number;
	struct vb_monitor_sample s;

	if (!buffer || places > SAMPLES_MAX ||
	    vb_monitor_load(seen->view,
			    vb_stats_request(seen) + offsetof(struct vb_monitor_request, resets),
			    &resets))
		return vb_stats_is_there(seen);
	number = 2 + 2 * (uint32_t)(resets >> 32);
	for (uint32_t i = 0; i < places; i++) {
		if (vb_monitor_read_at(seen->view, buffer + i * sizeof(s), &s, sizeof(s)))
			continue;
		if (atomic_load_explicit(&s.seq.number, memory_order_relaxed) != number ||
		    !is_type(s.type))
			continue;
		/* That the buffer is full is said of all threads. */
		if (g->filter.thread == DPA_STATS_ALL_THREADS || g->filter.thread == s.thread ||
		    s.type == VB_MONITOR_FULL)
			add_sample(g, seen, &s);
	}
	/* The buffer goes to the next process, and so do its samples. */
	if (vb_stats_is_there(seen))
		return true;
	g->rows.count = before;
	return false;
}

static void ignore_thread(struct gather *g, const struct seen_thread *seen)
{
}

/* Samples outlive their thread, so only where there are none it matters whether it exists. */
static dpa_stats_status read_events(struct gather *g, const char *function,
				    dpa_stats_perf_event_list **list)
{
	dpa_stats_status status;

	g->process = add_samples;
	g->rows.size = sizeof(dpa_stats_perf_event_sample);
	status = vb_gather(g, function);
	if (!status && !g->rows.count) {
		g->process = NULL;
		g->thread = ignore_thread;
		status = vb_gather(g, function);
		if (!status)
			status = vb_stats_fail(g->handle, DPA_STATS_STATUS_NO_SUCH_EVENTS, function,
					       __FILE_NAME__, __LINE__,
					       "the event tracer has recorded nothing");
	}
	return vb_stats_list(g, status, function, (void **)list);
}

dpa_stats_status dpa_stats_read_process_perf_event_list(dpa_stats_handler_t *dpa_handler,
							uint32_t process_id, uint32_t thread_id,
							dpa_stats_perf_event_list **perf_event_list)
{
	struct gather g = { dpa_handler, { process_id, thread_id, NULL } };

	CALL(dpa_handler);
	if (!perf_event_list)
		return fail(dpa_handler, NULL_POINTER, "perf_event_list is NULL");
	return read_events(&g, __func__, perf_event_list);
}

dpa_stats_status dpa_stats_read_perf_event_list(dpa_stats_handler_t *dpa_handler,
						dpa_stats_process_list *process_list,
						dpa_stats_perf_event_list **perf_event_list)
{
	struct gather g = { dpa_handler, { 0, DPA_STATS_ALL_THREADS, process_list } };

	CALL(dpa_handler);
	if (!process_list || !perf_event_list)
		return fail(dpa_handler, NULL_POINTER, "%s is NULL",
			    process_list ? "perf_event_list" : "process_list");
	return read_events(&g, __func__, perf_event_list);
}

// SPDX-License-Identifier: MIT
/* Owns lists of processes, threads and counters, and the freeing of all. */
#include "internal.h"

/* ---- making lists ---- */

/* On success *list = { count, rows }; all lists have this form. */
struct any_list {
	uint32_t count;
	void *rows;
};

_Static_assert(sizeof(struct any_list) == sizeof(dpa_stats_process_list) &&
		       sizeof(struct any_list) == sizeof(dpa_stats_thread_list) &&
		       sizeof(struct any_list) == sizeof(dpa_stats_perf_cumul_list) &&
		       sizeof(struct any_list) == sizeof(dpa_stats_perf_event_list) &&
		       offsetof(struct any_list, rows) ==
			       offsetof(dpa_stats_perf_event_list, samples),
	       "one form");

dpa_stats_status vb_stats_list(struct gather *g, dpa_stats_status status, const char *function,
			       void **list)
{
	struct any_list *made = status ? NULL : malloc(sizeof(*made));

	if (!made) {
		free(g->rows.at);
		return status ? status
			      : vb_stats_fail(g->handle, DPA_STATS_STATUS_ERROR_IN_ALLOC, function,
					      __FILE_NAME__, __LINE__, "no memory");
	}
	*made = (struct any_list){ (uint32_t)g->rows.count, g->rows.at };
	*list = made;
	return DPA_STATS_STATUS_OK;
}

static void free_list(void *list)
{
	struct any_list *l = list;

	if (!l)
		return;
	free(l->rows);
	free(l);
}

/* ---- processes ---- */

static bool add_process(struct gather *g, const struct seen *seen)
{
	dpa_stats_process_info *info = vb_rows_add(&g->rows);

	if (!info)
		return true; /* rows->failed says it */
	info->dpa_process_id = seen->process.id;
	info->num_of_threads = atomic_load_explicit(&seen->process.nthreads, memory_order_relaxed);
	memcpy(info->process_name, seen->process.name, sizeof(info->process_name));
	return true;
}

dpa_stats_status dpa_stats_read_processes_list(dpa_stats_handler_t *dpa_handler,
					       uint32_t process_id,
					       dpa_stats_process_list **process_list)
{
	struct gather g = { dpa_handler, { process_id, DPA_STATS_ALL_THREADS, NULL }, add_process };

	CALL(dpa_handler);
	if (!process_list)
		return fail(dpa_handler, NULL_POINTER, "process_list is NULL");
	g.rows.size = sizeof(dpa_stats_process_info);
	return vb_stats_list(&g, vb_gather(&g, __func__), __func__, (void **)process_list);
}

/* ---- threads ---- */

static void lists_add_thread(struct gather *g, const struct seen_thread *seen)
{
	dpa_stats_thread_info *info = vb_rows_add(&g->rows);

	if (!info)
		return;
	info->dpa_process_id = seen->thread.process_id;
	info->dpa_thread_id = seen->thread.id;
	memcpy(info->thread_name, seen->thread.name, sizeof(info->thread_name));
}

dpa_stats_status dpa_stats_read_process_thread_list(dpa_stats_handler_t *dpa_handler,
						    uint32_t process_id, uint32_t thread_id,
						    dpa_stats_thread_list **thread_list)
{
	struct gather g = { dpa_handler, { process_id, thread_id, NULL }, NULL, lists_add_thread };

	CALL(dpa_handler);
	if (!thread_list)
		return fail(dpa_handler, NULL_POINTER, "thread_list is NULL");
	g.rows.size = sizeof(dpa_stats_thread_info);
	return vb_stats_list(&g, vb_gather(&g, __func__), __func__, (void **)thread_list);
}

dpa_stats_status dpa_stats_read_thread_list(dpa_stats_handler_t *dpa_handler,
					    dpa_stats_process_list *process_list,
					    dpa_stats_thread_list **thread_list)
{
	struct gather g = {
		dpa_handler, { 0, DPA_STATS_ALL_THREADS, process_list }, NULL, lists_add_thread
	};

	CALL(dpa_handler);
	if (!process_list || !thread_list)
		return fail(dpa_handler, NULL_POINTER, "%s is NULL",
			    process_list ? "thread_list" : "process_list");
	g.rows.size = sizeof(dpa_stats_thread_info);
	return vb_stats_list(&g, vb_gather(&g, __func__), __func__, (void **)thread_list);
}

/* ---- counters ---- */

/* Counters of before the last reset are 0: the thread has not run since. */
static void add_counters(struct gather *g, const struct seen_thread *seen)
{
	size_t word = vb_stats_request(seen->of) + offsetof(struct vb_monitor_request, resets);
	const struct vb_monitor_counters *c = &seen->counters;
	dpa_stats_thread_cumul_info *info = vb_rows_add(&g->rows);
	uint64_t resets = 0;

	if (!info)
		return;
	info->dpa_process_id = seen->thread.process_id;
	info->dpa_thread_id = seen->thread.id;
	if (vb_monitor_load(seen->of->view, word, &resets) ||
	    (uint32_t)resets != (uint32_t)c->resets)
		return;
	info->cycles =
		vb_stats_cycles(seen->of, atomic_load_explicit(&c->ticks, memory_order_relaxed));
	info->time = info->cycles;
	info->instructions = atomic_load_explicit(&c->instructions, memory_order_relaxed);
	info->num_executions = atomic_load_explicit(&c->executions, memory_order_relaxed);
}

dpa_stats_status dpa_stats_read_process_cumul_info_list(dpa_stats_handler_t *dpa_handler,
							uint32_t process_id, uint32_t thread_id,
							dpa_stats_perf_cumul_list **cumul_info_list)
{
	struct gather g = { dpa_handler, { process_id, thread_id, NULL }, NULL, add_counters };

	CALL(dpa_handler);
	if (!cumul_info_list)
		return fail(dpa_handler, NULL_POINTER, "cumul_info_list is NULL");
	g.rows.size = sizeof(dpa_stats_thread_cumul_info);
	return vb_stats_list(&g, vb_gather(&g, __func__), __func__, (void **)cumul_info_list);
}

dpa_stats_status dpa_stats_read_cumul_info_list(dpa_stats_handler_t *dpa_handler,
						dpa_stats_process_list *process_list,
						dpa_stats_perf_cumul_list **cumul_info_list)
{
	struct gather g = {
		dpa_handler, { 0, DPA_STATS_ALL_THREADS, process_list }, NULL, add_counters
	};

	CALL(dpa_handler);
	if (!process_list || !cumul_info_list)
		return fail(dpa_handler, NULL_POINTER, "%s is NULL",
			    process_list ? "cumul_info_list" : "process_list");
	g.rows.size = sizeof(dpa_stats_thread_cumul_info);
	return vb_stats_list(&g, vb_gather(&g, __func__), __func__, (void **)cumul_info_list);
}

/* ---- freeing ---- */

void dpa_stats_free_process_list(dpa_stats_process_list *process_list)
{
	free_list(process_list);
}

void dpa_stats_free_thread_list(dpa_stats_thread_list *thread_list)
{
	free_list(thread_list);
}

void dpa_stats_free_cumul_info_list(dpa_stats_perf_cumul_list *cumul_info_list)
{
	free_list(cumul_info_list);
}

void dpa_stats_free_perf_event_list(dpa_stats_perf_event_list *perf_event_list)
{
	free_list(perf_event_list);
}

// SPDX-License-Identifier: MIT
/* Owns the order of lists: by process, then by thread. NULL comes first, and is no list to sort. */
#include "internal.h"

static int compare_ids(uint32_t process1, uint32_t thread1, uint32_t process2, uint32_t thread2)
{
	if (process1 != process2)
		return process1 < process2 ? -1 : 1;
	return thread1 == thread2 ? 0 : thread1 < thread2 ? -1 : 1;
}

static int compare_null(const void *elem1, const void *elem2)
{
	return (elem1 != NULL) - (elem2 != NULL);
}

int dpa_stats_compare_4_processes(const void *elem1, const void *elem2)
{
	const dpa_stats_process_info *a = elem1, *b = elem2;

	return a && b ? compare_ids(a->dpa_process_id, 0, b->dpa_process_id, 0)
		      : compare_null(a, b);
}

int dpa_stats_compare_4_threads(const void *elem1, const void *elem2)
{
	const dpa_stats_thread_info *a = elem1, *b = elem2;

	return a && b ? compare_ids(a->dpa_process_id, a->dpa_thread_id, b->dpa_process_id,
				    b->dpa_thread_id)
		      : compare_null(a, b);
}

int dpa_stats_compare_4_perf_cumul(const void *elem1, const void *elem2)
{
	const dpa_stats_thread_cumul_info *a = elem1, *b = elem2;

	return a && b ? compare_ids(a->dpa_process_id, a->dpa_thread_id, b->dpa_process_id,
				    b->dpa_thread_id)
		      : compare_null(a, b);
}

void dpa_stats_sort_process_list(dpa_stats_process_list *process_list)
{
	if (process_list && process_list->processes)
		qsort(process_list->processes, process_list->process_num,
		      sizeof(*process_list->processes), dpa_stats_compare_4_processes);
}

void dpa_stats_sort_thread_list(dpa_stats_thread_list *thread_list)
{
	if (thread_list && thread_list->threads)
		qsort(thread_list->threads, thread_list->threads_num, sizeof(*thread_list->threads),
		      dpa_stats_compare_4_threads);
}

void dpa_stats_sort_perf_cumul_list(dpa_stats_perf_cumul_list *cumul_list)
{
	if (cumul_list && cumul_list->samples)
		qsort(cumul_list->samples, cumul_list->samples_num, sizeof(*cumul_list->samples),
		      dpa_stats_compare_4_perf_cumul);
}

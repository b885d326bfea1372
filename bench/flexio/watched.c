// SPDX-License-Identifier: MIT
/*
 * What it costs a call that somebody looks: with counters or the event tracer on, beside the same with both off. An empty
 * function is the worst case: all that is counted is the counting. A call of some microseconds is the usual one.
 */
#include "bench.h"

#include <stdio.h>
#include <time.h>
#include <dpa_stats.h>

extern flexio_func_t empty, busy;

static dpa_stats_handler_t *handle;

/* The calling thread runs the device code itself, so its own time is what counts: other programs do not disturb it. */
static double own_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define OK(expr)                                                      \
	do {                                                          \
		if (expr) {                                           \
			fprintf(stderr, "bench-flexio: " #expr "\n"); \
			exit(1);                                      \
		}                                                     \
	} while (0)

static void ask(dpa_stats_counter_state state, dpa_stats_sample_type type)
{
	if (!handle)
		handle = dpa_stats_open("mlx5_0");
	OK(!handle || dpa_stats_set_counter_state(handle, DPA_STATS_ALL_PROCESSES, state, type));
}

/* arg: instructions of the call; 0: an empty one. The buffer of samples is emptied before it is full, untimed. */
static double calls(unsigned long n, size_t arg)
{
	double passed = 0, start;
	uint64_t result;

	for (unsigned long i = 0; i < n;) {
		unsigned long end = i + 1000 < n ? i + 1000 : n;

		ask(DPA_STATS_COUNTER_STATE_RESET, DPA_STATS_SAMPLE_TYPE_EVENT_TRACER);
		start = own_time();
		for (; i < end; i++)
			OK(flexio_process_call(process, arg ? busy : empty, &result,
					       (uint64_t)arg));
		passed += own_time() - start;
	}
	return passed;
}

double watched_off(unsigned long n, size_t arg)
{
	ask(DPA_STATS_COUNTER_STATE_INACTIVE, DPA_STATS_SAMPLE_TYPE_CUMULATIVE_EVENT);
	return calls(n, arg);
}

double watched_counters(unsigned long n, size_t arg)
{
	double passed;

	ask(DPA_STATS_COUNTER_STATE_ACTIVE, DPA_STATS_SAMPLE_TYPE_CUMULATIVE_EVENT);
	passed = calls(n, arg);
	ask(DPA_STATS_COUNTER_STATE_INACTIVE, DPA_STATS_SAMPLE_TYPE_CUMULATIVE_EVENT);
	return passed;
}

double watched_tracer(unsigned long n, size_t arg)
{
	double passed;

	ask(DPA_STATS_COUNTER_STATE_ACTIVE, DPA_STATS_SAMPLE_TYPE_EVENT_TRACER);
	passed = calls(n, arg);
	ask(DPA_STATS_COUNTER_STATE_INACTIVE, DPA_STATS_SAMPLE_TYPE_EVENT_TRACER);
	return passed;
}

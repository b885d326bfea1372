// SPDX-License-Identifier: MIT
/*
 * What it costs a call that somebody looks: with counters or the event tracer on, beside the same with both off. An empty
 * function is the worst case: all that is counted is the counting. A call that takes one completion and sends one write is
 * the least that an event handler does; one of some microseconds is a usual one.
 *
 * And what it costs that the timeline is recorded, as verbatim trace does it. That is decided when a program starts, so both
 * sides are other processes: this program again, which prints what its calls took.
 */
#include "bench.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <dpa_stats.h>

extern flexio_func_t empty, busy, serve;

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
			fprintf(stderr, "bench-flexio: %s\n", #expr); \
			exit(1);                                      \
		}                                                     \
	} while (0)

static void ask(dpa_stats_counter_state state, dpa_stats_sample_type type)
{
	if (!handle)
		handle = dpa_stats_open("mlx5_0");
	OK(!handle || dpa_stats_set_counter_state(handle, DPA_STATS_ALL_PROCESSES, state, type));
}

static double calls(flexio_func_t *func, uint64_t arg, unsigned long n)
{
	double start = own_time();
	uint64_t result;

	for (unsigned long i = 0; i < n; i++)
		OK(flexio_process_call(process, func, &result, arg));
	return own_time() - start;
}

/* The buffer of samples is emptied before it is full, untimed. */
static double measured(unsigned long n, size_t arg, bool tracer)
{
	flexio_func_t *func = arg == WATCHED_SERVE ? serve : arg ? busy : empty;
	uint64_t value = arg == WATCHED_SERVE ? rate_writer() : arg;
	double passed = 0;

	if (!tracer)
		return calls(func, value, n);
	for (unsigned long i = 0; i < n; i += 1000) {
		ask(DPA_STATS_COUNTER_STATE_RESET, DPA_STATS_SAMPLE_TYPE_EVENT_TRACER);
		passed += calls(func, value, i + 1000 < n ? 1000 : n - i);
	}
	return passed;
}

double watched_off(unsigned long n, size_t arg)
{
	ask(DPA_STATS_COUNTER_STATE_INACTIVE, DPA_STATS_SAMPLE_TYPE_CUMULATIVE_EVENT);
	return measured(n, arg, false);
}

double watched_counters(unsigned long n, size_t arg)
{
	double passed;

	ask(DPA_STATS_COUNTER_STATE_ACTIVE, DPA_STATS_SAMPLE_TYPE_CUMULATIVE_EVENT);
	passed = measured(n, arg, false);
	ask(DPA_STATS_COUNTER_STATE_INACTIVE, DPA_STATS_SAMPLE_TYPE_CUMULATIVE_EVENT);
	return passed;
}

/* Beside the tracer: its samples are reset as often, so that what that does to the caches is in both. */
double watched_untraced(unsigned long n, size_t arg)
{
	ask(DPA_STATS_COUNTER_STATE_INACTIVE, DPA_STATS_SAMPLE_TYPE_EVENT_TRACER);
	return measured(n, arg, true);
}

double watched_tracer(unsigned long n, size_t arg)
{
	double passed;

	ask(DPA_STATS_COUNTER_STATE_ACTIVE, DPA_STATS_SAMPLE_TYPE_EVENT_TRACER);
	passed = measured(n, arg, true);
	ask(DPA_STATS_COUNTER_STATE_INACTIVE, DPA_STATS_SAMPLE_TYPE_EVENT_TRACER);
	return passed;
}

/* ---- the timeline ---- */

double watched_plain(unsigned long n, size_t arg)
{
	(void)arg;
	calls(empty, 0, n / 10); /* all is there */
	return calls(empty, 0, n);
}

static void empty_folder(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir)
		closedir(dir);
	rmdir(path);
}

static double other_process(unsigned long n, const char *folder)
{
	char self[PATH_MAX] = "", command[2 * PATH_MAX];
	double took = 0;
	FILE *out;

	OK(readlink("/proc/self/exe", self, sizeof(self) - 1) < 0);
	snprintf(command, sizeof(command), "VERBATIM_TRACE='%s' '%s' --plain=%lu", folder, self, n);
	out = popen(command, "r");
	OK(!out || fscanf(out, "%lf", &took) != 1 || pclose(out));
	return took;
}

double recorded_off(unsigned long n, size_t arg)
{
	(void)arg;
	return other_process(n, "");
}

double recorded_on(unsigned long n, size_t arg)
{
	char folder[] = "/tmp/verbatim-bench-XXXXXX";
	double took;

	(void)arg;
	OK(!mkdtemp(folder));
	took = other_process(n, folder);
	empty_folder(folder);
	return took;
}

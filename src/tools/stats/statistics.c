// SPDX-License-Identifier: MIT
/*
 * dpa-statistics: counters of DPA threads over a while, or what they have counted so far, with the
 * vendor's commands, options and columns; and the samples of the event tracer.
 *
 *	collect               count until Ctrl-C, then stop and print
 *	collect -t MS         the same for that time
 *	collect -e, -x        only begin; only stop
 *	show                  print
 */
#include "tools/stats/stats.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/public.h"
#include "base/time.h"

/* How often processes that came meanwhile are made to count, too. */
#define LOOK_NS 50000000u

enum mode { MODE_WAIT, MODE_ENABLE, MODE_DISABLE, MODE_SHOW };

struct arguments {
	struct stats_common common;
	const char *command;
	enum mode mode;
	uint64_t timeout_ns; /* 0: until Ctrl-C */
	bool reset, tracer;
	double waited_ms;
};

enum { OPT_DISABLE = 'x', OPT_TRACER = 'T' };

static void statistics_set_mode(struct argp_state *state, struct arguments *args, enum mode mode)
{
	if (args->mode != MODE_WAIT || args->timeout_ns)
		argp_error(state, "one of -e, -x and -t at a time");
	args->mode = mode;
}

static void set_command(struct argp_state *state, struct arguments *args, const char *text)
{
	if (args->command)
		argp_error(state, "'%s' after the command %s", text, args->command);
	if (strcmp(text, "collect") && strcmp(text, "show"))
		argp_error(state, "unknown command '%s'; there are collect and show", text);
	args->command = text;
}

static void set_timeout(struct argp_state *state, struct arguments *args, const char *text)
{
	unsigned long ms;
	char *end;

	errno = 0;
	ms = strtoul(text, &end, 10);
	if (errno || *end || end == text || *text == '-' || !ms || ms > 1000000000)
		argp_error(state, "'%s' is not a time in milliseconds; allowed: 1 to 1000000000",
			   text);
	statistics_set_mode(state, args, MODE_WAIT);
	args->timeout_ns = ms * 1000000ull;
}

static void check_command(struct argp_state *state, struct arguments *args)
{
	if (!args->command)
		argp_error(state, "which command? collect or show");
	if (strcmp(args->command, "show"))
		return;
	if (args->mode != MODE_WAIT || args->timeout_ns || args->reset)
		argp_error(state, "-e, -x, -t and -r are options of collect");
	args->mode = MODE_SHOW;
}

static error_t statistics_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	switch (key) {
	case 't':
		set_timeout(state, args, arg);
		return 0;
	case 'e':
		statistics_set_mode(state, args, MODE_ENABLE);
		return 0;
	case OPT_DISABLE:
		statistics_set_mode(state, args, MODE_DISABLE);
		return 0;
	case 'r':
		args->reset = true;
		return 0;
	case OPT_TRACER:
		args->tracer = true;
		return 0;
	case ARGP_KEY_ARG:
		set_command(state, args, arg);
		return 0;
	case ARGP_KEY_END:
		check_command(state, args);
		return 0;
	}
	return stats_parse(key, arg, state, &args->common);
}

/* ---- printing ---- */

struct answer {
	dpa_stats_process_list *processes;
	dpa_stats_thread_list *threads; /* for their names */
	dpa_stats_perf_cumul_list *counters;
	dpa_stats_perf_event_list *samples;
};

static const char *statistics_name_of(const struct answer *a, uint32_t process, uint32_t thread)
{
	dpa_stats_thread_info key = { .dpa_process_id = process, .dpa_thread_id = thread }, *found;

	found = a->threads->threads_num
			? bsearch(&key, a->threads->threads, a->threads->threads_num, sizeof(key),
				  dpa_stats_compare_4_threads)
			: NULL;
	return found ? found->thread_name : "";
}

static const char *statistics_type_name(enum dpa_stats_event_sample_type type)
{
	return type == DPA_STATS_EVENT_SAMPLE_TYPE_SCHEDULE_IN    ? "in"
	       : type == DPA_STATS_EVENT_SAMPLE_TYPE_SCHEDULE_OUT ? "out"
	       : type == DPA_STATS_EVENT_SAMPLE_TYPE_BUFFER_FULL  ? "full"
								  : "empty";
}

static void print_counters(const struct answer *a, uint32_t process)
{
	for (uint32_t i = 0; i < a->counters->samples_num; i++) {
		const dpa_stats_thread_cumul_info *c = &a->counters->samples[i];

		if (c->dpa_process_id != process)
			continue;
		printf("  %-12x %-15" PRIu64 " %-15" PRIu64 " %-15" PRIu64 " %-12" PRIu64 " ",
		       c->dpa_thread_id, c->cycles, c->instructions, c->time, c->num_executions);
		stats_print_name(statistics_name_of(a, process, c->dpa_thread_id));
		putchar('\n');
	}
}

static void print_eu(uint16_t eu)
{
	if (eu == DPA_STATS_NO_EU)
		printf("%-5s ", "-");
	else
		printf("%-5u ", eu);
}

static void print_samples(const struct answer *a, uint32_t process)
{
	for (uint32_t i = 0; a->samples && i < a->samples->samples_num; i++) {
		const dpa_stats_perf_event_sample *s = &a->samples->samples[i];

		if (s->dpa_process_id != process)
			continue;
		printf("  %-12x %-5s ", s->dpa_thread_id, statistics_type_name(s->type));
		print_eu(s->eu_id);
		printf("%-8u %-15" PRIu64 " %-12u %-15" PRIu64 " ", s->sample_id_in_eu, s->cycles,
		       s->instructions, s->time);
		stats_print_name(statistics_name_of(a, process, s->dpa_thread_id));
		putchar('\n');
	}
}

static void statistics_print_table(const struct arguments *args, const struct answer *a)
{
	if (!args->common.bare && args->mode == MODE_WAIT)
		printf("Collected for %.0f ms\n", args->waited_ms);
	if (!args->common.bare)
		printf("%-12s Process Name\n", "ProcessID");
	if (!args->common.bare && args->tracer)
		printf("  %-12s %-5s %-5s %-8s %-15s %-12s %-15s Thread Name\n", "ThreadID",
		       "Event", "EU", "SampleID", "Cycles", "Instruction", "Time[us]");
	else if (!args->common.bare)
		printf("  %-12s %-15s %-15s %-15s %-12s Thread Name\n", "ThreadID", "Cycles",
		       "Instruction", "Time", "Executions");
	for (uint32_t i = 0; i < a->processes->process_num; i++) {
		const dpa_stats_process_info *p = &a->processes->processes[i];

		stats_print_process(p);
		if (args->tracer)
			print_samples(a, p->dpa_process_id);
		else
			print_counters(a, p->dpa_process_id);
	}
}

static void json_counters(const struct answer *a, uint32_t process)
{
	const char *comma = "";

	printf(", \"threads\": [");
	for (uint32_t i = 0; i < a->counters->samples_num; i++) {
		const dpa_stats_thread_cumul_info *c = &a->counters->samples[i];

		if (c->dpa_process_id != process)
			continue;
		printf("%s\n    {\"id\": %u, \"name\": ", comma, c->dpa_thread_id);
		stats_print_json(statistics_name_of(a, process, c->dpa_thread_id));
		printf(", \"cycles\": %" PRIu64 ", \"instructions\": %" PRIu64
		       ", \"time\": %" PRIu64 ", \"executions\": %" PRIu64 "}",
		       c->cycles, c->instructions, c->time, c->num_executions);
		comma = ",";
	}
	putchar(']');
}

static void json_samples(const struct answer *a, uint32_t process)
{
	const char *comma = "";

	printf(", \"samples\": [");
	for (uint32_t i = 0; a->samples && i < a->samples->samples_num; i++) {
		const dpa_stats_perf_event_sample *s = &a->samples->samples[i];

		if (s->dpa_process_id != process)
			continue;
		printf("%s\n    {\"type\": \"%s\", \"thread\": %u, \"eu\": ", comma,
		       statistics_type_name(s->type), s->dpa_thread_id);
		if (s->eu_id == DPA_STATS_NO_EU)
			printf("null");
		else
			printf("%u", s->eu_id);
		printf(", \"sample_id\": %u, \"cycles\": %" PRIu64
		       ", \"instructions\": %u, \"time_us\": %" PRIu64 "}",
		       s->sample_id_in_eu, s->cycles, s->instructions, s->time);
		comma = ",";
	}
	putchar(']');
}

static void statistics_print_json(const struct arguments *args, const struct answer *a)
{
	printf("{\"device\": ");
	stats_print_json(args->common.device);
	if (args->mode == MODE_WAIT)
		printf(", \"collected_ms\": %.3f", args->waited_ms);
	printf(", \"processes\": [");
	for (uint32_t i = 0; i < a->processes->process_num; i++) {
		const dpa_stats_process_info *p = &a->processes->processes[i];

		stats_json_process(p, !i);
		if (args->tracer)
			json_samples(a, p->dpa_process_id);
		else
			json_counters(a, p->dpa_process_id);
		putchar('}');
	}
	printf("]}\n");
}

/* ---- asking ---- */

/* A process that has ended is no error: there may be others, and its numbers are gone with it. */
static bool statistics_set_state(dpa_stats_handler_t *handle, const struct arguments *args,
				 dpa_stats_counter_state state)
{
	dpa_stats_sample_type type = args->tracer ? DPA_STATS_SAMPLE_TYPE_EVENT_TRACER
						  : DPA_STATS_SAMPLE_TYPE_CUMULATIVE_EVENT;
	dpa_stats_status status = DPA_STATS_STATUS_OK;

	for (unsigned int i = 0; i < args->common.ids.count && !status; i++) {
		status = dpa_stats_set_counter_state(handle, args->common.ids.id[i], state, type);
		if (status == DPA_STATS_STATUS_NO_SUCH_PROCESS)
			status = DPA_STATS_STATUS_OK;
	}
	if (!args->common.ids.count)
		status = dpa_stats_set_counter_state(handle, DPA_STATS_ALL_PROCESSES, state, type);
	if (status)
		stats_failed(handle);
	return !status;
}

/* Until the time is over or somebody presses Ctrl-C. Processes that begin meanwhile count, too. */
static bool wait_collecting(dpa_stats_handler_t *handle, struct arguments *args,
			    const sigset_t *ends)
{
	uint64_t begun = vb_machine_ns(), passed = 0;

	do {
		uint64_t left = args->timeout_ns ? args->timeout_ns - passed : LOOK_NS;
		struct timespec look = { .tv_nsec = left < LOOK_NS ? (long)left : (long)LOOK_NS };
		int sig = sigtimedwait(ends, NULL, &look);

		passed = vb_machine_ns() - begun;
		if (sig > 0)
			break;
		if (!args->common.ids.count &&
		    !statistics_set_state(handle, args, DPA_STATS_COUNTER_STATE_ACTIVE))
			return false;
	} while (!args->timeout_ns || passed < args->timeout_ns);
	args->waited_ms = (double)passed / 1e6;
	return true;
}

static bool read_answer(dpa_stats_handler_t *handle, const struct arguments *args, struct answer *a)
{
	dpa_stats_status status;

	a->processes = stats_processes(handle, &args->common.ids, true);
	if (!a->processes)
		return false;
	status = dpa_stats_read_process_thread_list(handle, DPA_STATS_ALL_PROCESSES,
						    DPA_STATS_ALL_THREADS, &a->threads);
	if (!status && args->tracer) {
		status = dpa_stats_read_process_perf_event_list(handle, DPA_STATS_ALL_PROCESSES,
								DPA_STATS_ALL_THREADS, &a->samples);
		if (status == DPA_STATS_STATUS_NO_SUCH_EVENTS)
			status = DPA_STATS_STATUS_OK;
	} else if (!status) {
		status = dpa_stats_read_process_cumul_info_list(
			handle, DPA_STATS_ALL_PROCESSES, DPA_STATS_ALL_THREADS, &a->counters);
	}
	if (status)
		stats_failed(handle);
	dpa_stats_sort_thread_list(a->threads);
	dpa_stats_sort_perf_cumul_list(a->counters);
	return !status;
}

static bool statistics_show(dpa_stats_handler_t *handle, const struct arguments *args)
{
	struct answer a = { 0 };
	bool ok = read_answer(handle, args, &a);

	if (ok && args->common.json)
		statistics_print_json(args, &a);
	else if (ok)
		statistics_print_table(args, &a);
	dpa_stats_free_process_list(a.processes);
	dpa_stats_free_thread_list(a.threads);
	dpa_stats_free_cumul_info_list(a.counters);
	dpa_stats_free_perf_event_list(a.samples);
	return ok;
}

static bool statistics_run(dpa_stats_handler_t *handle, struct arguments *args)
{
	dpa_stats_process_list *processes = stats_processes(handle, &args->common.ids, false);
	struct sigaction hangup;
	sigset_t ends;

	if (!processes)
		return false; /* an id that is wrong from the beginning */
	dpa_stats_free_process_list(processes);
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN)
		sigaddset(&ends, SIGHUP); /* not below nohup */
	sigprocmask(SIG_BLOCK, &ends, NULL);
	if (args->reset && !statistics_set_state(handle, args, DPA_STATS_COUNTER_STATE_RESET))
		return false;
	switch (args->mode) {
	case MODE_ENABLE:
		return statistics_set_state(handle, args, DPA_STATS_COUNTER_STATE_ACTIVE);
	case MODE_DISABLE:
		return statistics_set_state(handle, args, DPA_STATS_COUNTER_STATE_INACTIVE);
	case MODE_WAIT:
		if (!statistics_set_state(handle, args, DPA_STATS_COUNTER_STATE_ACTIVE) ||
		    !wait_collecting(handle, args, &ends) ||
		    !statistics_set_state(handle, args, DPA_STATS_COUNTER_STATE_INACTIVE))
			return false;
		break;
	case MODE_SHOW:
		break;
	}
	return statistics_show(handle, args);
}

static const struct argp_option options[] = {
	STATS_OPTIONS_WHICH,
	{ "timeout", 't', "MS", 0, "collect: for so many milliseconds; default: until Ctrl-C", 0 },
	{ "enable", 'e', NULL, 0, "collect: only begin to count", 0 },
	{ "disable", OPT_DISABLE, NULL, 0, "collect: only stop", 0 },
	{ "reset", 'r', NULL, 0, "collect: begin at 0", 0 },
	{ "tracer", OPT_TRACER, NULL, 0, "When threads got and left an EU, in place of sums", 0 },
	STATS_OPTIONS_HOW,
	{ 0 },
};

VB_PUBLIC const char *argp_program_version = "dpa-statistics (Verbatim) " VERBATIM_VERSION;

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = statistics_parse_opt,
		.args_doc = "collect\nshow",
		.doc = "Count what DPA threads of your programs execute: cycles, instructions, time, "
		       "executions.",
	};
	struct arguments args = { 0 };
	dpa_stats_handler_t *handle;
	bool ok;

	stats_begin(&argp, argc, argv, &args);
	handle = stats_open(&args.common);
	ok = statistics_run(handle, &args);
	dpa_stats_close(handle);
	return ok ? STATS_OK : STATS_FAILED;
}

// SPDX-License-Identifier: MIT
/*
 * libdpa_stats: device code whose instructions are known, and every field of what is read about it.
 *
 * counted(n) of bare/device.c retires 2n + 1 instructions. Called with N it fits into one slice in the
 * modes without a seed, so at any moment a thread that ran nothing else has executions * COST.
 */
#include "bed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <dpa_stats.h>

enum { N = 1000, COST = 2 * N + 1 };

#define CUMUL                       DPA_STATS_SAMPLE_TYPE_CUMULATIVE_EVENT
#define TRACER                      DPA_STATS_SAMPLE_TYPE_EVENT_TRACER
#define ON                          DPA_STATS_COUNTER_STATE_ACTIVE
#define OFF                         DPA_STATS_COUNTER_STATE_INACTIVE
#define ZERO                        DPA_STATS_COUNTER_STATE_RESET
#define ALL                         DPA_STATS_ALL_PROCESSES

#define assert_status(expr, status) assert_int_equal((expr), DPA_STATS_STATUS_##status)

static dpa_stats_handler_t *h;
static bool deterministic; /* VERBATIM_DPA_SEED: calls queue for an EU, cycles are instructions */
static const char *self;

/* ---- shorter words ---- */

static struct flexio_process *named(const char *name)
{
	struct flexio_process_attr attr = { .name = name };
	struct flexio_process *process = NULL;

	assert_ok(flexio_process_create(bed_ctx, bed_app, &attr, &process));
	return process;
}

static uint32_t id_of(const char *name)
{
	dpa_stats_process_list *list = NULL;
	uint32_t id = ALL;

	assert_status(dpa_stats_read_processes_list(h, ALL, &list), OK);
	for (uint32_t i = 0; i < list->process_num; i++)
		if (!strcmp(list->processes[i].process_name, name))
			id = list->processes[i].dpa_process_id;
	dpa_stats_free_process_list(list);
	assert_int_not_equal(id, ALL);
	return id;
}

static void set(uint32_t id, dpa_stats_counter_state state, dpa_stats_sample_type type)
{
	assert_status(dpa_stats_set_counter_state(h, id, state, type), OK);
}

static void call(struct flexio_process *process, uint64_t n)
{
	assert_int_equal(bed_value(process, "counted", n), 0);
}

/* The counters of the only thread of a process that has run since the last reset. */
static dpa_stats_thread_cumul_info ran(uint32_t id)
{
	dpa_stats_thread_cumul_info found = { .dpa_thread_id = UINT32_MAX };
	dpa_stats_perf_cumul_list *list = NULL;

	assert_status(dpa_stats_read_process_cumul_info_list(h, id, DPA_STATS_ALL_THREADS, &list),
		      OK);
	for (uint32_t i = 0; i < list->samples_num; i++) {
		assert_int_equal(list->samples[i].dpa_process_id, id);
		if (!list->samples[i].num_executions && !list->samples[i].instructions)
			continue;
		assert_int_equal(found.dpa_thread_id, UINT32_MAX);
		found = list->samples[i];
	}
	dpa_stats_free_cumul_info_list(list);
	return found;
}

/* ---- lists ---- */

static void test_lists(void **state)
{
	struct flexio_process *a, *b;
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("counted"),
						  .name = "beta" };
	struct flexio_event_handler *handler = NULL;
	dpa_stats_process_list *processes = NULL, *one = NULL;
	dpa_stats_thread_list *threads = NULL;
	dpa_stats_handler_t *other = dpa_stats_open("mlx5_1");
	char longer[FLEXIO_MAX_NAME_LEN + 1] = "";
	uint32_t id;

	assert_non_null(other);
	assert_status(dpa_stats_read_processes_list(h, ALL, &processes), OK);
	assert_int_equal(processes->process_num, 0);
	dpa_stats_free_process_list(processes);

	a = named("alpha");
	assert_ok(flexio_event_handler_create(a, &attr, &handler));
	memset(longer, 'x', sizeof(longer) - 1);
	b = named(longer);
	assert_status(dpa_stats_read_processes_list(h, ALL, &processes), OK);
	assert_int_equal(processes->process_num, 2);
	dpa_stats_sort_process_list(processes);
	assert_true(processes->processes[0].dpa_process_id <
		    processes->processes[1].dpa_process_id);
	assert_string_equal(processes->processes[0].process_name, "alpha");
	assert_int_equal(processes->processes[0].num_of_threads, 1);
	assert_int_equal(strlen(processes->processes[1].process_name), DPA_STATS_NAME_SIZE - 1);
	assert_int_equal(processes->processes[1].num_of_threads, 0);
	id = processes->processes[0].dpa_process_id;

	/* Another card shows none of them. */
	assert_status(dpa_stats_read_processes_list(other, ALL, &one), OK);
	assert_int_equal(one->process_num, 0);
	dpa_stats_free_process_list(one);
	assert_status(dpa_stats_read_processes_list(other, id, &one), NO_SUCH_PROCESS);
	dpa_stats_close(other);

	assert_status(dpa_stats_read_processes_list(h, id, &one), OK);
	assert_int_equal(one->process_num, 1);
	assert_string_equal(one->processes->process_name, "alpha");
	dpa_stats_free_process_list(one);

	assert_status(dpa_stats_read_process_thread_list(h, id, DPA_STATS_ALL_THREADS, &threads),
		      OK);
	assert_int_equal(threads->threads_num, 1);
	assert_int_equal(threads->threads->dpa_process_id, id);
	assert_int_equal(threads->threads->dpa_thread_id, flexio_event_handler_get_id(handler));
	assert_string_equal(threads->threads->thread_name, "beta");
	dpa_stats_free_thread_list(threads);
	call(b, N); /* makes a thread */
	assert_status(dpa_stats_read_thread_list(h, processes, &threads), OK);
	assert_int_equal(threads->threads_num, 2);
	dpa_stats_sort_thread_list(threads);
	assert_string_equal(threads->threads[0].thread_name, "beta");
	assert_string_equal(threads->threads[1].thread_name, "RPC");
	dpa_stats_free_thread_list(threads);
	assert_status(dpa_stats_read_process_thread_list(h, id, 9999, &threads), NO_SUCH_THREADS);

	assert_ok(flexio_event_handler_destroy(handler));
	bed_process_end(a);
	/* One of two is gone, then both. */
	assert_status(dpa_stats_read_thread_list(h, processes, &threads), OK);
	assert_int_equal(threads->threads_num, 1);
	bed_process_end(b);
	dpa_stats_free_thread_list(threads);
	threads = NULL;
	assert_status(dpa_stats_read_thread_list(h, processes, &threads), NO_SUCH_PROCESS);
	assert_null(threads);
	dpa_stats_free_process_list(processes);
}

/* ---- counters ---- */

static void test_counters(void **state)
{
	struct flexio_process *process = named("alpha");
	dpa_stats_thread_cumul_info first, then;
	dpa_stats_counter_state is;
	dpa_stats_sample_type type;
	uint32_t id = id_of("alpha");

	assert_status(dpa_stats_get_counter_state(h, id, &is, &type), OK);
	assert_int_equal(is, OFF);
	assert_int_equal(type, CUMUL);
	call(process, N);
	assert_int_equal(ran(id).num_executions, 0); /* nobody asked */
	set(id, ON, CUMUL);
	assert_status(dpa_stats_get_counter_state(h, id, &is, &type), OK);
	assert_int_equal(is, ON);
	call(process, N);
	first = ran(id);
	assert_int_equal(first.dpa_process_id, id);
	assert_int_equal(first.num_executions, 1);
	assert_int_equal(first.instructions, COST);
	assert_true(first.cycles > 0);
	assert_int_equal(first.time, first.cycles);
	if (deterministic)
		assert_int_equal(first.cycles, COST);
	/* More than one slice, in any mode. */
	call(process, 5000000);
	then = ran(id);
	assert_int_equal(then.dpa_thread_id, first.dpa_thread_id);
	assert_int_equal(then.num_executions, 2);
	assert_int_equal(then.instructions, COST + 10000001);
	assert_true(then.cycles > first.cycles);
	set(id, OFF, CUMUL);
	call(process, N);
	assert_int_equal(ran(id).instructions, then.instructions);
	assert_int_equal(ran(id).num_executions, 2);
	set(ALL, ON, CUMUL);
	call(process, 1);
	assert_int_equal(ran(id).instructions, then.instructions + 3);
	assert_int_equal(ran(id).num_executions, 3);
	set(ALL, ZERO, CUMUL);
	assert_status(dpa_stats_get_counter_state(h, id, &is, &type), OK);
	assert_int_equal(is, ON); /* a reset is not a state */
	assert_int_equal(ran(id).instructions, 0);
	assert_int_equal(ran(id).dpa_thread_id, UINT32_MAX);
	call(process, N);
	assert_int_equal(ran(id).instructions, COST);
	assert_int_equal(ran(id).num_executions, 1);
	/* While samples are taken, sums stand still; a reset of samples is none of theirs. */
	set(id, ON, TRACER);
	set(id, ZERO, TRACER);
	call(process, N);
	assert_int_equal(ran(id).instructions, COST);
	bed_process_end(process);
	assert_status(dpa_stats_get_counter_state(h, id, &is, &type), NO_SUCH_PROCESS);
}

/* A process in the place of one that was counted begins with nothing. */
static void test_successor(void **state)
{
	struct flexio_process *process = named("alpha");
	dpa_stats_counter_state is;
	dpa_stats_sample_type type;
	uint32_t id = id_of("alpha"), next;

	set(id, ON, TRACER);
	call(process, N);
	bed_process_end(process);
	process = named("alpha");
	next = id_of("alpha");
	assert_int_not_equal(id, next);
	assert_status(dpa_stats_get_counter_state(h, next, &is, &type), OK);
	assert_int_equal(is, OFF);
	assert_int_equal(type, CUMUL);
	assert_status(dpa_stats_set_counter_state(h, id, ON, CUMUL), NO_SUCH_PROCESS);
	set(next, ON, CUMUL);
	call(process, N);
	assert_int_equal(ran(next).instructions, COST);
	bed_process_end(process);
}

/* A process that a fault has ended is there until it is destroyed, with what it counted. */
static void test_dead(void **state)
{
	struct flexio_process *process = named("alpha"), *other = named("beta");
	uint32_t id = id_of("alpha");
	uint64_t result = 0;

	set(ALL, ON, CUMUL);
	assert_int_equal(bed_call(process, "fault", 2, &result), FLEXIO_STATUS_FATAL_ERR);
	assert_int_equal(ran(id).num_executions, 1);
	assert_true(ran(id).instructions > 0);
	assert_int_equal(bed_call(process, "counted", N, &result), FLEXIO_STATUS_FATAL_ERR);
	assert_int_equal(ran(id).num_executions, 1);
	call(other, N);
	assert_int_equal(ran(id_of("beta")).instructions, COST);
	bed_process_end(process);
	bed_process_end(other);
}

/* Handlers: one execution a trigger, each on its own line. */
static void test_handlers(void **state)
{
	enum { HANDLERS = 3, RUNS = 20 };
	struct flexio_process *process = named("alpha");
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("counted") };
	struct flexio_event_handler *handlers[HANDLERS];
	dpa_stats_perf_cumul_list *list = NULL;
	uint32_t id = id_of("alpha");

	for (unsigned int i = 0; i < HANDLERS; i++) {
		assert_ok(flexio_event_handler_create(process, &attr, &handlers[i]));
		assert_ok(flexio_event_handler_run(handlers[i], N + i));
	}
	set(id, ON, CUMUL);
	for (unsigned int i = 0; i < HANDLERS; i++) {
		uint32_t thread = flexio_event_handler_get_id(handlers[i]);
		uint64_t runs = 0;

		for (unsigned int run = 1; run <= RUNS; run++) {
			bed_value(process, "activate",
				  flexio_event_handler_get_activation_id(handlers[i]));
			for (unsigned int tries = 0; tries < 100000 && runs < run; tries++) {
				assert_status(dpa_stats_read_process_cumul_info_list(h, id, thread,
										     &list),
					      OK);
				assert_int_equal(list->samples_num, 1);
				assert_int_equal(list->samples->dpa_thread_id, thread);
				/* Done when its instructions are all there. */
				if (list->samples->instructions == run * (2 * (N + i) + 1))
					runs = list->samples->num_executions;
				dpa_stats_free_cumul_info_list(list);
			}
			assert_int_equal(runs, run);
		}
	}
	for (unsigned int i = 0; i < HANDLERS; i++)
		assert_ok(flexio_event_handler_destroy(handlers[i]));
	bed_process_end(process);
}

/* ---- the event tracer ---- */

static dpa_stats_perf_event_list *events(uint32_t id)
{
	dpa_stats_perf_event_list *list = NULL;

	assert_status(dpa_stats_read_process_perf_event_list(h, id, DPA_STATS_ALL_THREADS, &list),
		      OK);
	return list;
}

/* Pairs of in and out, in the order of time, that account for all instructions. */
static uint64_t check_pairs(const dpa_stats_perf_event_list *list, uint32_t id, uint16_t eu)
{
	uint64_t retired = 0;

	assert_int_equal(list->samples_num % 2, 0);
	for (uint32_t i = 0; i < list->samples_num; i += 2) {
		const dpa_stats_perf_event_sample *in = &list->samples[i], *out = in + 1;

		assert_int_equal(in->type, DPA_STATS_EVENT_SAMPLE_TYPE_SCHEDULE_IN);
		assert_int_equal(out->type, DPA_STATS_EVENT_SAMPLE_TYPE_SCHEDULE_OUT);
		assert_int_equal(in->dpa_process_id, id);
		assert_int_equal(out->dpa_process_id, id);
		assert_int_equal(in->dpa_thread_id, out->dpa_thread_id);
		assert_int_equal(in->eu_id, out->eu_id);
		assert_int_equal(in->eu_id, eu);
		assert_int_equal(in->sample_id_in_eu, out->sample_id_in_eu);
		assert_int_equal(in->sample_id_in_eu,
				 (uint16_t)(list->samples[0].sample_id_in_eu + i / 2));
		assert_true(out->time >= in->time);
		assert_true(out->cycles >= in->cycles);
		if (i) {
			assert_true(in->time >= in[-1].time);
			assert_int_equal(in->instructions, in[-1].instructions);
			assert_int_equal(in->cycles, in[-1].cycles);
		}
		if (deterministic)
			assert_int_equal(out->cycles - in->cycles,
					 out->instructions - in->instructions);
		retired += out->instructions - in->instructions;
	}
	return retired;
}

static void test_tracer(void **state)
{
	struct flexio_process *process = named("alpha");
	dpa_stats_process_list *processes = NULL;
	dpa_stats_perf_event_list *list = NULL;
	uint32_t id = id_of("alpha"), thread;

	assert_status(dpa_stats_read_process_perf_event_list(h, id, DPA_STATS_ALL_THREADS, &list),
		      NO_SUCH_EVENTS);
	call(process, N); /* makes a thread */
	set(id, ON, TRACER);
	call(process, N);
	list = events(id);
	if (!deterministic) { /* the caller ran it */
		assert_int_equal(list->samples_num, 2);
		assert_int_equal(check_pairs(list, id, DPA_STATS_NO_EU), COST);
	}
	thread = list->samples->dpa_thread_id;
	dpa_stats_free_perf_event_list(list);
	assert_status(dpa_stats_read_process_perf_event_list(h, id, thread, &list), OK);
	dpa_stats_free_perf_event_list(list);
	assert_status(dpa_stats_read_process_perf_event_list(h, id, 9999, &list), NO_SUCH_THREADS);
	assert_status(dpa_stats_read_processes_list(h, id, &processes), OK);
	assert_status(dpa_stats_read_perf_event_list(h, processes, &list), OK);
	dpa_stats_free_perf_event_list(list);
	/* Off: nothing more; a reset: nothing at all, and then only what is new. */
	list = events(id);
	thread = list->samples_num;
	dpa_stats_free_perf_event_list(list);
	set(id, OFF, TRACER);
	call(process, N);
	list = events(id);
	assert_int_equal(list->samples_num, thread);
	dpa_stats_free_perf_event_list(list);
	set(id, ZERO, TRACER);
	assert_status(dpa_stats_read_perf_event_list(h, processes, &list), NO_SUCH_EVENTS);
	set(id, ON, TRACER);
	call(process, 1);
	list = events(id);
	assert_int_equal(list->samples_num, 2);
	assert_int_equal(list->samples[1].instructions - list->samples[0].instructions, 3);
	dpa_stats_free_perf_event_list(list);
	dpa_stats_free_process_list(processes);
	bed_process_end(process);
}

/* A handler that stays on one EU, with more slices than one. */
static void test_schedule(void **state)
{
	enum { EU = 3, MANY = 1000000 };
	struct flexio_process *process = named("alpha");
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("counted"),
						  .affinity = { .type = FLEXIO_AFFINITY_STRICT,
								.id = EU } };
	struct flexio_event_handler *handler = NULL;
	dpa_stats_perf_event_list *list = NULL;
	uint32_t id = id_of("alpha");

	assert_ok(flexio_event_handler_create(process, &attr, &handler));
	assert_ok(flexio_event_handler_run(handler, MANY));
	call(process, 1);
	set(id, ON, TRACER);
	bed_value(process, "activate", flexio_event_handler_get_activation_id(handler));
	for (unsigned int tries = 0; tries < 100000; tries++) {
		if (!dpa_stats_read_process_perf_event_list(
			    h, id, flexio_event_handler_get_id(handler), &list)) {
			const dpa_stats_perf_event_sample *last =
				&list->samples[list->samples_num - 1];

			if (last->type == DPA_STATS_EVENT_SAMPLE_TYPE_SCHEDULE_OUT &&
			    last->instructions - list->samples->instructions == 2 * MANY + 1)
				break;
			dpa_stats_free_perf_event_list(list);
			list = NULL;
		}
		usleep(100);
	}
	assert_non_null(list);
	assert_int_equal(check_pairs(list, id, EU), 2 * MANY + 1);
	assert_true(list->samples_num > 2);
	dpa_stats_free_perf_event_list(list);
	assert_ok(flexio_event_handler_destroy(handler));
	bed_process_end(process);
}

static void test_full(void **state)
{
	struct flexio_process *process = named("alpha");
	dpa_stats_perf_event_list *list = NULL;
	uint32_t id = id_of("alpha"), full;

	set(id, ON, TRACER);
	for (unsigned int i = 0; i < 2500; i++)
		call(process, 1);
	list = events(id);
	full = list->samples_num;
	assert_int_equal(full, 4096);
	for (uint32_t i = 0; i < full; i++)
		assert_int_equal(list->samples[i].type == DPA_STATS_EVENT_SAMPLE_TYPE_BUFFER_FULL,
				 i == full - 1);
	dpa_stats_free_perf_event_list(list);
	call(process, 1);
	list = events(id);
	assert_int_equal(list->samples_num, full);
	dpa_stats_free_perf_event_list(list);
	set(id, ZERO, TRACER);
	call(process, 1);
	list = events(id);
	assert_int_equal(list->samples_num, 2);
	dpa_stats_free_perf_event_list(list);
	bed_process_end(process);
}

/* ---- one seed, one schedule ---- */

static int print_samples(void)
{
	struct flexio_process *process = named("alpha");
	dpa_stats_perf_event_list *list;
	uint32_t id = id_of("alpha");

	set(id, ON, TRACER);
	for (unsigned int i = 1; i < 5; i++)
		call(process, 3000 * i);
	list = events(id);
	for (uint32_t i = 0; i < list->samples_num; i++)
		printf("%d %u %u %u %u %llu %llu\n", list->samples[i].type,
		       list->samples[i].dpa_thread_id, list->samples[i].eu_id,
		       list->samples[i].sample_id_in_eu, list->samples[i].instructions,
		       (unsigned long long)list->samples[i].cycles,
		       (unsigned long long)list->samples[i].time);
	dpa_stats_free_perf_event_list(list);
	bed_process_end(process);
	return 0;
}

static size_t run_self(char *text, size_t size)
{
	char command[512];
	size_t n;
	FILE *f;

	snprintf(command, sizeof(command), "VERBATIM_DPA_SEED=11 '%s' '%s' samples", self,
		 bed_elf_path);
	f = popen(command, "r");
	assert_non_null(f);
	n = fread(text, 1, size - 1, f);
	text[n] = 0;
	assert_int_equal(pclose(f), 0);
	return n;
}

static void test_repeated(void **state)
{
	static char first[65536], second[65536];

	assert_true(run_self(first, sizeof(first)) > 1000);
	run_self(second, sizeof(second));
	assert_string_equal(first, second);
}

/* ---- arguments ---- */

static void check_error(dpa_stats_status status)
{
	assert_int_equal(dpa_stats_get_error_code(h), status);
	assert_int_equal(!*dpa_stats_get_error_message(h), !status);
	assert_int_equal(!*dpa_stats_get_error_location(h), !status);
}

#define refused(expr, status)                           \
	do {                                            \
		assert_status(expr, status);            \
		check_error(DPA_STATS_STATUS_##status); \
	} while (0)

static void test_no_handle(void **state)
{
	dpa_stats_process_list none = { 0 }, *processes = (void *)&none;
	dpa_stats_thread_list *threads = (void *)&none;
	dpa_stats_perf_cumul_list *cumul = (void *)&none;
	dpa_stats_perf_event_list *samples = (void *)&none;
	dpa_stats_counter_state is = ON;
	dpa_stats_capabilities caps;
	dpa_stats_sample_type type;

	assert_null(dpa_stats_open(NULL));
	assert_null(dpa_stats_open("mlx5_99"));
	assert_null(dpa_stats_open(""));
	dpa_stats_close(NULL);
	assert_status(dpa_stats_get_error_code(NULL), NULL_POINTER);
	assert_string_equal(dpa_stats_get_error_message(NULL), "");
	assert_string_equal(dpa_stats_get_error_location(NULL), "");
	assert_status(dpa_stats_read_caps(NULL, &caps), NULL_POINTER);
	assert_status(dpa_stats_read_processes_list(NULL, ALL, &processes), NULL_POINTER);
	assert_status(dpa_stats_read_process_thread_list(NULL, ALL, ALL, &threads), NULL_POINTER);
	assert_status(dpa_stats_read_thread_list(NULL, &none, &threads), NULL_POINTER);
	assert_status(dpa_stats_read_process_cumul_info_list(NULL, ALL, ALL, &cumul), NULL_POINTER);
	assert_status(dpa_stats_read_cumul_info_list(NULL, &none, &cumul), NULL_POINTER);
	assert_status(dpa_stats_read_process_perf_event_list(NULL, ALL, ALL, &samples),
		      NULL_POINTER);
	assert_status(dpa_stats_read_perf_event_list(NULL, &none, &samples), NULL_POINTER);
	assert_status(dpa_stats_set_counter_state(NULL, ALL, ON, CUMUL), NULL_POINTER);
	assert_status(dpa_stats_get_counter_state(NULL, 1, &is, &type), NULL_POINTER);
	assert_ptr_equal(processes, &none);
	dpa_stats_free_process_list(NULL);
	dpa_stats_free_thread_list(NULL);
	dpa_stats_free_cumul_info_list(NULL);
	dpa_stats_free_perf_event_list(NULL);
	dpa_stats_sort_process_list(NULL);
	dpa_stats_sort_thread_list(NULL);
	dpa_stats_sort_perf_cumul_list(NULL);
	dpa_stats_sort_process_list(&none);
}

/* The number of a core file is the id. */
static void test_core_file(void **state)
{
	struct flexio_process *process = named("alpha");
	char path[64], base[] = "/tmp/flexio-stats-XXXXXX";
	int fd = mkstemp(base);

	assert_true(fd >= 0);
	assert_ok(flexio_coredump_create(process, base));
	snprintf(path, sizeof(path), "%s.%x.core", base, id_of("alpha"));
	assert_int_equal(unlink(path), 0);
	close(fd);
	unlink(base);
	bed_process_end(process);
}

/* A handle that was closed, and what never was one. */
static void test_closed_handle(void **state)
{
	dpa_stats_process_list none = { 0 }, *processes = (void *)&none;
	dpa_stats_thread_list *threads = (void *)&none;
	dpa_stats_perf_cumul_list *cumul = (void *)&none;
	dpa_stats_perf_event_list *samples = (void *)&none;
	dpa_stats_handler_t *closed = dpa_stats_open("mlx5_0");
	dpa_stats_handler_t *bad[] = { closed, (void *)&none, (void *)4096 };
	dpa_stats_counter_state is = ON;
	dpa_stats_capabilities caps;
	dpa_stats_sample_type type;

	assert_non_null(closed);
	dpa_stats_close(closed);
	for (unsigned int i = 0; i < 3; i++) {
		assert_status(dpa_stats_get_error_code(bad[i]), INVALID_PARAMS);
		assert_string_equal(dpa_stats_get_error_message(bad[i]), "");
		assert_string_equal(dpa_stats_get_error_location(bad[i]), "");
		assert_status(dpa_stats_read_caps(bad[i], &caps), INVALID_PARAMS);
		assert_status(dpa_stats_read_processes_list(bad[i], ALL, &processes),
			      INVALID_PARAMS);
		assert_status(dpa_stats_read_process_thread_list(bad[i], ALL, ALL, &threads),
			      INVALID_PARAMS);
		assert_status(dpa_stats_read_thread_list(bad[i], &none, &threads), INVALID_PARAMS);
		assert_status(dpa_stats_read_process_cumul_info_list(bad[i], ALL, ALL, &cumul),
			      INVALID_PARAMS);
		assert_status(dpa_stats_read_cumul_info_list(bad[i], &none, &cumul),
			      INVALID_PARAMS);
		assert_status(dpa_stats_read_process_perf_event_list(bad[i], ALL, ALL, &samples),
			      INVALID_PARAMS);
		assert_status(dpa_stats_read_perf_event_list(bad[i], &none, &samples),
			      INVALID_PARAMS);
		assert_status(dpa_stats_set_counter_state(bad[i], ALL, ON, CUMUL), INVALID_PARAMS);
		assert_status(dpa_stats_get_counter_state(bad[i], 1, &is, &type), INVALID_PARAMS);
		dpa_stats_close(bad[i]);
	}
	assert_ptr_equal(processes, &none);
	assert_status(dpa_stats_get_error_code(h), OK);
}

/* There is no handle to ask for the reason: it is in the log. */
static void test_unknown_card(void **state)
{
	int saved = dup(STDERR_FILENO);
	FILE *log = tmpfile();
	char text[512] = { 0 };

	assert_non_null(log);
	dup2(fileno(log), STDERR_FILENO);
	assert_null(dpa_stats_open("mlx5_99"));
	dup2(saved, STDERR_FILENO);
	close(saved);
	rewind(log);
	assert_true(fread(text, 1, sizeof(text) - 1, log) > 0);
	fclose(log);
	assert_non_null(strstr(text, "there is no card \"mlx5_99\""));
}

static void test_arguments(void **state)
{
	dpa_stats_process_list none = { 0 }, broken = { 1, NULL }, *processes = (void *)&none;
	dpa_stats_thread_list *threads = (void *)&none;
	dpa_stats_perf_cumul_list *cumul = (void *)&none;
	dpa_stats_perf_event_list *samples = (void *)&none;
	dpa_stats_counter_state is = ON;
	dpa_stats_sample_type type = TRACER;
	dpa_stats_capabilities caps;

	check_error(DPA_STATS_STATUS_OK);
	refused(dpa_stats_read_caps(h, NULL), NULL_POINTER);
	assert_status(dpa_stats_read_caps(h, &caps), OK);
	check_error(DPA_STATS_STATUS_OK); /* of the last call */
	assert_int_equal(caps.dpa_supported, 1);
	assert_int_equal(caps.process_performance_counters, 1);
	assert_int_equal(caps.performance_sample_type, 1 << CUMUL | 1 << TRACER);
	refused(dpa_stats_read_processes_list(h, ALL, NULL), NULL_POINTER);
	refused(dpa_stats_read_processes_list(h, 0x0fffffff, &processes), NO_SUCH_PROCESS);
	refused(dpa_stats_read_process_thread_list(h, ALL, ALL, NULL), NULL_POINTER);
	refused(dpa_stats_read_process_thread_list(h, ALL, 1, &threads), INVALID_PARAMS);
	refused(dpa_stats_read_process_thread_list(h, 5, ALL, &threads), NO_SUCH_PROCESS);
	refused(dpa_stats_read_thread_list(h, NULL, &threads), NULL_POINTER);
	refused(dpa_stats_read_thread_list(h, &none, NULL), NULL_POINTER);
	refused(dpa_stats_read_thread_list(h, &broken, &threads), NULL_POINTER);
	refused(dpa_stats_read_process_cumul_info_list(h, ALL, 1, &cumul), INVALID_PARAMS);
	refused(dpa_stats_read_process_cumul_info_list(h, 5, ALL, &cumul), NO_SUCH_PROCESS);
	refused(dpa_stats_read_process_cumul_info_list(h, 5, ALL, NULL), NULL_POINTER);
	refused(dpa_stats_read_cumul_info_list(h, NULL, &cumul), NULL_POINTER);
	refused(dpa_stats_read_cumul_info_list(h, &none, NULL), NULL_POINTER);
	refused(dpa_stats_read_cumul_info_list(h, &broken, &cumul), NULL_POINTER);
	refused(dpa_stats_read_process_perf_event_list(h, ALL, 1, &samples), INVALID_PARAMS);
	refused(dpa_stats_read_process_perf_event_list(h, 5, ALL, &samples), NO_SUCH_PROCESS);
	refused(dpa_stats_read_process_perf_event_list(h, ALL, ALL, &samples), NO_SUCH_EVENTS);
	refused(dpa_stats_read_process_perf_event_list(h, ALL, ALL, NULL), NULL_POINTER);
	refused(dpa_stats_read_perf_event_list(h, NULL, &samples), NULL_POINTER);
	refused(dpa_stats_read_perf_event_list(h, &none, NULL), NULL_POINTER);
	for (int bad = -1; bad < 6; bad++) {
		if (bad < ON || bad > ZERO)
			refused(dpa_stats_set_counter_state(h, ALL, (dpa_stats_counter_state)bad,
							    CUMUL),
				VALUE_OUT_OF_ENUM);
		if (bad < CUMUL || bad > TRACER)
			refused(dpa_stats_set_counter_state(h, ALL, ON, (dpa_stats_sample_type)bad),
				VALUE_OUT_OF_ENUM);
	}
	refused(dpa_stats_set_counter_state(h, 5, ON, CUMUL), NO_SUCH_PROCESS);
	assert_status(dpa_stats_set_counter_state(h, ALL, OFF, CUMUL), OK); /* of no process */
	refused(dpa_stats_get_counter_state(h, 5, NULL, &type), NULL_POINTER);
	refused(dpa_stats_get_counter_state(h, 5, &is, NULL), NULL_POINTER);
	refused(dpa_stats_get_counter_state(h, ALL, &is, &type), INVALID_PARAMS);
	refused(dpa_stats_get_counter_state(h, 5, &is, &type), NO_SUCH_PROCESS);
	assert_int_equal(is, ON);
	assert_int_equal(type, TRACER);
	/* Outputs are those of before. */
	assert_ptr_equal(processes, &none);
	assert_ptr_equal(threads, &none);
	assert_ptr_equal(cumul, &none);
	assert_ptr_equal(samples, &none);
}

/* A card without an accelerator can be opened, and says so. */
static void test_no_accelerator(void **state)
{
	dpa_stats_handler_t *other = dpa_stats_open("mlx4_0");
	dpa_stats_capabilities caps = { 9, 9, 9 };

	if (!other)
		skip(); /* this configuration has none */
	assert_status(dpa_stats_read_caps(other, &caps), OK);
	assert_int_equal(caps.dpa_supported, 0);
	assert_int_equal(caps.process_performance_counters, 0);
	assert_int_equal(caps.performance_sample_type, 0);
	dpa_stats_close(other);
}

static void test_order(void **state)
{
	dpa_stats_thread_cumul_info c[] = {
		{ 2, 1 }, { 1, 0xfffffffe }, { 0xfffffffe, 0 }, { 1, 2 }
	};
	dpa_stats_perf_cumul_list list = { 4, c };

	assert_true(dpa_stats_compare_4_perf_cumul(&c[0], &c[1]) > 0);
	assert_true(dpa_stats_compare_4_perf_cumul(&c[1], &c[3]) > 0);
	assert_true(dpa_stats_compare_4_perf_cumul(&c[0], &c[2]) < 0);
	assert_int_equal(dpa_stats_compare_4_perf_cumul(&c[0], &c[0]), 0);
	assert_true(dpa_stats_compare_4_perf_cumul(NULL, &c[0]) < 0);
	assert_int_equal(dpa_stats_compare_4_threads(NULL, NULL), 0);
	assert_true(dpa_stats_compare_4_processes(
			    &(dpa_stats_process_info){ .dpa_process_id = 3 },
			    &(dpa_stats_process_info){ .dpa_process_id = 2 }) > 0);
	assert_true(dpa_stats_compare_4_threads(&(dpa_stats_thread_info){ 3, 1 },
						&(dpa_stats_thread_info){ 3, 2 }) < 0);
	dpa_stats_sort_perf_cumul_list(&list);
	assert_int_equal(c[0].dpa_process_id, 1);
	assert_int_equal(c[0].dpa_thread_id, 2);
	assert_int_equal(c[1].dpa_thread_id, 0xfffffffe);
	assert_int_equal(c[3].dpa_process_id, 0xfffffffe);
}

/* Lists outlive their handle. */
static void test_after_close(void **state)
{
	struct flexio_process *process = named("alpha");
	dpa_stats_handler_t *own = dpa_stats_open("mlx5_0");
	dpa_stats_process_list *processes = NULL;
	dpa_stats_perf_cumul_list *cumul = NULL;

	call(process, 1);
	assert_status(dpa_stats_read_processes_list(own, ALL, &processes), OK);
	assert_status(dpa_stats_read_cumul_info_list(own, processes, &cumul), OK);
	dpa_stats_close(own);
	bed_process_end(process);
	assert_string_equal(processes->processes->process_name, "alpha");
	assert_int_equal(cumul->samples_num, 1);
	dpa_stats_free_cumul_info_list(cumul);
	dpa_stats_free_process_list(processes);
}

/* ---- other processes ---- */

/* Open files of this process. */
static unsigned int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* A child of its own program, which calls until it is killed. */
static pid_t start_caller(void)
{
	pid_t child = fork();

	assert_true(child >= 0);
	if (!child) {
		execl(self, self, bed_elf_path, "caller", NULL);
		_exit(127);
	}
	return child;
}

/* Processes come, are called with N, and go, until somebody kills this. */
static void caller(void)
{
	for (;;) {
		struct flexio_process *process = named("gamma");

		set(ALL, ON, CUMUL);
		for (unsigned int i = 0; i < 300; i++)
			call(process, N);
		bed_process_end(process);
	}
}

/* What is read is never of two moments. True: something was. */
static bool read_all(void)
{
	dpa_stats_process_list *processes = NULL;
	dpa_stats_thread_list *threads = NULL;
	dpa_stats_perf_cumul_list *cumul = NULL;
	dpa_stats_perf_event_list *samples = NULL;
	bool some = false;

	assert_status(dpa_stats_read_processes_list(h, ALL, &processes), OK);
	for (uint32_t i = 0; i < processes->process_num; i++)
		assert_string_equal(processes->processes[i].process_name, "gamma");
	dpa_stats_free_process_list(processes);
	assert_status(dpa_stats_read_process_thread_list(h, ALL, ALL, &threads), OK);
	for (uint32_t i = 0; i < threads->threads_num; i++)
		assert_string_equal(threads->threads[i].thread_name, "RPC");
	dpa_stats_free_thread_list(threads);
	assert_status(dpa_stats_read_process_cumul_info_list(h, ALL, ALL, &cumul), OK);
	for (uint32_t i = 0; i < cumul->samples_num; i++) {
		if (!deterministic)
			assert_int_equal(cumul->samples[i].instructions,
					 cumul->samples[i].num_executions * COST);
		some |= cumul->samples[i].num_executions > 0;
	}
	dpa_stats_free_cumul_info_list(cumul);
	if (!dpa_stats_read_process_perf_event_list(h, ALL, ALL, &samples))
		dpa_stats_free_perf_event_list(samples);
	return some;
}

static void test_killed(void **state)
{
	enum { ROUNDS = 100 };
	dpa_stats_process_list *left = NULL;
	unsigned int files = 0;

	for (unsigned int round = 0; round < ROUNDS; round++) {
		pid_t child = start_caller();
		int status;

		while (!read_all())
			usleep(200);
		for (unsigned int i = 0; i < 5; i++)
			read_all();
		set(ALL, round % 2 ? ON : OFF, round % 3 ? CUMUL : TRACER);
		read_all();
		kill(child, SIGKILL);
		assert_int_equal(waitpid(child, &status, 0), child);
		/* What the dead one showed is gone with it. */
		assert_status(dpa_stats_read_processes_list(h, ALL, &left), OK);
		assert_int_equal(left->process_num, 0);
		dpa_stats_free_process_list(left);
		if (!round)
			files = open_files();
	}
	assert_int_equal(open_files(), files);
}

/* A forked child that goes on calling does not count for its parent. */
static void test_forked(void **state)
{
	struct flexio_process *process;
	uint32_t id;
	int status;
	pid_t child;

	if (deterministic)
		skip(); /* calls wait for a host thread that a child does not have */
	process = named("alpha");
	id = id_of("alpha");
	set(id, ON, CUMUL);
	call(process, N);
	child = fork();
	if (!child) {
		uint64_t result = 1;

		/* Whether it works is no question here; it must not end in a crash. */
		(void)!bed_call(process, "counted", N, &result);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(ran(id).num_executions, 1);
	assert_int_equal(ran(id).instructions, COST);
	bed_process_end(process);
}

/* For test_stats.py: calls as often as lines say, with a name that has to be quoted. */
static int serve(void)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("counted"),
						  .name = "beta" };
	struct flexio_process *process = named("al\"pha\x1b[1m");
	struct flexio_event_handler *handler = NULL;
	char line[32];

	assert_ok(flexio_event_handler_create(process, &attr, &handler));
	call(process, N);
	do {
		puts("ready");
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin))
			break;
		for (unsigned long n = strtoul(line, NULL, 10); n; n--)
			call(process, N);
	} while (1);
	assert_ok(flexio_event_handler_destroy(handler));
	bed_process_end(process);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_handle),   cmocka_unit_test(test_closed_handle),
		cmocka_unit_test(test_core_file),   cmocka_unit_test(test_unknown_card),
		cmocka_unit_test(test_arguments),   cmocka_unit_test(test_no_accelerator),
		cmocka_unit_test(test_order),       cmocka_unit_test(test_lists),
		cmocka_unit_test(test_counters),    cmocka_unit_test(test_successor),
		cmocka_unit_test(test_dead),        cmocka_unit_test(test_handlers),
		cmocka_unit_test(test_tracer),      cmocka_unit_test(test_schedule),
		cmocka_unit_test(test_full),        cmocka_unit_test(test_repeated),
		cmocka_unit_test(test_after_close), cmocka_unit_test(test_forked),
		cmocka_unit_test(test_killed),
	};

	self = argv[0];
	bed_elf_path = argc > 1 ? argv[1] : NULL;
	deterministic = getenv("VERBATIM_DPA_SEED");
	bed_init(argc, argv);
	h = dpa_stats_open("mlx5_0");
	if (!h)
		return 1;
	if (argc > 2 && !strcmp(argv[2], "caller"))
		caller();
	if (argc > 2 && !strcmp(argv[2], "serve"))
		return serve();
	if (argc > 2)
		return print_samples();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * libdpa_stats: what runs on the accelerators of this user's programs, and how much of it. A card is
 * opened by its name, from any program; what is read there are the DPA processes of all programs.
 *
 *	h = dpa_stats_open("mlx5_0");
 *	dpa_stats_set_counter_state(h, DPA_STATS_ALL_PROCESSES, DPA_STATS_COUNTER_STATE_ACTIVE,
 *				    DPA_STATS_SAMPLE_TYPE_CUMULATIVE_EVENT);
 *	...
 *	dpa_stats_read_process_cumul_info_list(h, DPA_STATS_ALL_PROCESSES, DPA_STATS_ALL_THREADS,
 *					       &list);
 *
 * A handle is used by one thread at a time. Lists are the caller's, and may outlive it. Outputs are
 * written on success only.
 */
#pragma once

#include <stdint.h>

#define DPA_STATS_STABLE __attribute__((visibility("default")))

/* The compiler warns of these functions unless DPA_STATS_ALLOW_EXPERIMENTAL_API is defined. */
#ifdef DPA_STATS_ALLOW_EXPERIMENTAL_API
#define DPA_STATS_EXPERIMENTAL __attribute__((section(".text.experimental"))) DPA_STATS_STABLE
#else
#pragma GCC diagnostic warning "-Wdeprecated-declarations"
#define DPA_STATS_EXPERIMENTAL                                          \
	__attribute__((deprecated("Symbol is defined as experimental"), \
		       section(".text.experimental"))) DPA_STATS_STABLE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* In place of an id. With all processes, threads must be all threads. */
#define DPA_STATS_ALL_PROCESSES UINT32_MAX
#define DPA_STATS_ALL_THREADS   UINT32_MAX

/* Bytes of a name, the 0 at its end included; longer ones are cut. */
#define DPA_STATS_NAME_SIZE 64

/* eu_id of an RPC that its calling host thread runs by itself. */
#define DPA_STATS_NO_EU UINT16_MAX

typedef struct dpa_stats_handler dpa_stats_handler_t;

typedef enum dpa_stats_status {
	DPA_STATS_STATUS_OK = 0,
	DPA_STATS_STATUS_ERROR_IN_MFT = 1, /* what programs show cannot be read */
	DPA_STATS_STATUS_NO_SUCH_PROCESS = 2,
	DPA_STATS_STATUS_NO_SUCH_THREADS = 3,
	DPA_STATS_STATUS_NO_SUCH_EVENTS = 4, /* the event tracer has no sample of them */
	DPA_STATS_STATUS_ERROR_IN_ALLOC = 10,
	DPA_STATS_STATUS_INVALID_PARAMS = 20,
	DPA_STATS_STATUS_NULL_POINTER = 21,
	DPA_STATS_STATUS_VALUE_OUT_OF_ENUM = 22,
} dpa_stats_status;

typedef enum dpa_stats_counter_state {
	DPA_STATS_COUNTER_STATE_ACTIVE = 1,   /* count */
	DPA_STATS_COUNTER_STATE_INACTIVE = 2, /* do not count; values stay. At first. */
	DPA_STATS_COUNTER_STATE_RESET = 3,    /* begin at 0, or without samples; go on as before */
} dpa_stats_counter_state;

/* What a process counts; one of them at a time. */
typedef enum dpa_stats_sample_type {
	DPA_STATS_SAMPLE_TYPE_CUMULATIVE_EVENT = 0, /* sums per thread */
	DPA_STATS_SAMPLE_TYPE_EVENT_TRACER =
		1, /* a sample whenever a thread gets or leaves an EU */
} dpa_stats_sample_type;

typedef enum dpa_stats_event_sample_type {
	DPA_STATS_EVENT_SAMPLE_TYPE_EMPTY_SAMPLE = 0x0,
	DPA_STATS_EVENT_SAMPLE_TYPE_SCHEDULE_IN = 0x1,
	DPA_STATS_EVENT_SAMPLE_TYPE_SCHEDULE_OUT = 0x2,
	DPA_STATS_EVENT_SAMPLE_TYPE_BUFFER_FULL = 0xff, /* nothing is recorded behind it */
} dpa_stats_event_sample_type;

typedef struct dpa_stats_capabilities {
	uint8_t dpa_supported;                /* 1: the card has an accelerator */
	uint8_t process_performance_counters; /* 1: its processes have counters */
	uint32_t performance_sample_type;     /* bits: 1 << dpa_stats_sample_type */
} dpa_stats_capabilities;

typedef struct dpa_stats_process_info {
	uint32_t dpa_process_id; /* no two programs have the same */
	uint32_t num_of_threads;
	char process_name[DPA_STATS_NAME_SIZE];
} dpa_stats_process_info;

typedef struct dpa_stats_process_list {
	uint32_t process_num;
	dpa_stats_process_info *processes;
} dpa_stats_process_list;

typedef struct dpa_stats_thread_info {
	uint32_t dpa_process_id;
	uint32_t dpa_thread_id; /* in its process: what flexio_dev_get_thread_id() says there */
	char thread_name[DPA_STATS_NAME_SIZE];
} dpa_stats_thread_info;

typedef struct dpa_stats_thread_list {
	uint32_t threads_num;
	dpa_stats_thread_info *threads;
} dpa_stats_thread_list;

typedef struct dpa_stats_thread_cumul_info {
	uint32_t dpa_process_id;
	uint32_t dpa_thread_id;
	uint64_t time;           /* ticks of the accelerator's clock (1.8 GHz) on an EU */
	uint64_t cycles;         /* of its EU */
	uint64_t instructions;   /* retired; exact */
	uint64_t num_executions; /* begun: calls and triggers */
} dpa_stats_thread_cumul_info;

typedef struct dpa_stats_perf_cumul_list {
	uint32_t samples_num;
	dpa_stats_thread_cumul_info *samples;
} dpa_stats_perf_cumul_list;

typedef struct dpa_stats_perf_event_sample {
	uint64_t time;   /* microseconds of CLOCK_MONOTONIC */
	uint64_t cycles; /* of the EU so far */
	uint32_t dpa_process_id;
	uint32_t dpa_thread_id;
	uint32_t instructions;    /* of the EU so far, modulo 2^32 */
	uint16_t eu_id;           /* or DPA_STATS_NO_EU */
	uint16_t sample_id_in_eu; /* the same of in and out; modulo 2^16 */
	enum dpa_stats_event_sample_type type;
} dpa_stats_perf_event_sample;

typedef struct dpa_stats_perf_event_list {
	uint32_t samples_num;
	dpa_stats_perf_event_sample *samples;
} dpa_stats_perf_event_list;

/* Open a card by its name. NULL, after a log line: there is none. */
DPA_STATS_EXPERIMENTAL dpa_stats_handler_t *dpa_stats_open(const char *dpa_device);
DPA_STATS_EXPERIMENTAL void dpa_stats_close(dpa_stats_handler_t *dpa_handler);

/* Of the last call with this handle: OK and empty strings where it succeeded. */
DPA_STATS_EXPERIMENTAL dpa_stats_status dpa_stats_get_error_code(dpa_stats_handler_t *dpa_handler);
DPA_STATS_EXPERIMENTAL char *dpa_stats_get_error_message(dpa_stats_handler_t *dpa_handler);
DPA_STATS_EXPERIMENTAL char *dpa_stats_get_error_location(dpa_stats_handler_t *dpa_handler);

DPA_STATS_EXPERIMENTAL dpa_stats_status dpa_stats_read_caps(dpa_stats_handler_t *dpa_handler,
							    dpa_stats_capabilities *caps);

DPA_STATS_EXPERIMENTAL dpa_stats_status
dpa_stats_read_processes_list(dpa_stats_handler_t *dpa_handler, uint32_t process_id,
			      dpa_stats_process_list **process_list);
DPA_STATS_EXPERIMENTAL dpa_stats_status
dpa_stats_read_process_thread_list(dpa_stats_handler_t *dpa_handler, uint32_t process_id,
				   uint32_t thread_id, dpa_stats_thread_list **thread_list);
DPA_STATS_EXPERIMENTAL dpa_stats_status
dpa_stats_read_thread_list(dpa_stats_handler_t *dpa_handler, dpa_stats_process_list *process_list,
			   dpa_stats_thread_list **thread_list);

/* For a process, or for all of them. */
DPA_STATS_EXPERIMENTAL dpa_stats_status
dpa_stats_set_counter_state(dpa_stats_handler_t *dpa_handler, uint32_t process_id,
			    dpa_stats_counter_state state, dpa_stats_sample_type type);
DPA_STATS_EXPERIMENTAL dpa_stats_status
dpa_stats_get_counter_state(dpa_stats_handler_t *dpa_handler, uint32_t process_id,
			    dpa_stats_counter_state *state, dpa_stats_sample_type *type);

DPA_STATS_EXPERIMENTAL dpa_stats_status dpa_stats_read_process_cumul_info_list(
	dpa_stats_handler_t *dpa_handler, uint32_t process_id, uint32_t thread_id,
	dpa_stats_perf_cumul_list **cumul_info_list);
DPA_STATS_EXPERIMENTAL dpa_stats_status dpa_stats_read_cumul_info_list(
	dpa_stats_handler_t *dpa_handler, dpa_stats_process_list *process_list,
	dpa_stats_perf_cumul_list **cumul_info_list);

DPA_STATS_EXPERIMENTAL dpa_stats_status dpa_stats_read_process_perf_event_list(
	dpa_stats_handler_t *dpa_handler, uint32_t process_id, uint32_t thread_id,
	dpa_stats_perf_event_list **perf_event_list);
DPA_STATS_EXPERIMENTAL dpa_stats_status dpa_stats_read_perf_event_list(
	dpa_stats_handler_t *dpa_handler, dpa_stats_process_list *process_list,
	dpa_stats_perf_event_list **perf_event_list);

/* NULL is allowed. */
DPA_STATS_EXPERIMENTAL void dpa_stats_free_process_list(dpa_stats_process_list *process_list);
DPA_STATS_EXPERIMENTAL void dpa_stats_free_thread_list(dpa_stats_thread_list *thread_list);
DPA_STATS_EXPERIMENTAL void
dpa_stats_free_cumul_info_list(dpa_stats_perf_cumul_list *cumul_info_list);
DPA_STATS_EXPERIMENTAL void
dpa_stats_free_perf_event_list(dpa_stats_perf_event_list *perf_event_list);

/* For qsort(3): by process, then by thread. */
DPA_STATS_EXPERIMENTAL int dpa_stats_compare_4_processes(const void *elem1, const void *elem2);
DPA_STATS_EXPERIMENTAL int dpa_stats_compare_4_threads(const void *elem1, const void *elem2);
DPA_STATS_EXPERIMENTAL int dpa_stats_compare_4_perf_cumul(const void *elem1, const void *elem2);
DPA_STATS_EXPERIMENTAL void dpa_stats_sort_process_list(dpa_stats_process_list *process_list);
DPA_STATS_EXPERIMENTAL void dpa_stats_sort_thread_list(dpa_stats_thread_list *thread_list);
DPA_STATS_EXPERIMENTAL void dpa_stats_sort_perf_cumul_list(dpa_stats_perf_cumul_list *cumul_list);

#ifdef __cplusplus
}
#endif

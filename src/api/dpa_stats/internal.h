/* SPDX-License-Identifier: MIT */
/*
 * What the files of libdpa_stats share. A public function begins with CALL(), which keeps the handle
 * for the time of the call and forgets its last error; whoever decides to fail returns
 * fail(handle, status, "...").
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifndef DPA_STATS_ALLOW_EXPERIMENTAL_API
#define DPA_STATS_ALLOW_EXPERIMENTAL_API
#endif
#include <dpa_stats.h>

#include "control/show/monitor.h"

struct dpa_stats_handler {
	struct dpa_stats_handler
		*next;      /* of all that are open; this and users under the lock of them */
	unsigned int users; /* calls that it is in */
	char adapter[32];
	bool has_dpa;
	dpa_stats_status error;
	char message[256];
	char location[128];
};

/* handler.c */
/* OK: the handle stays until vb_stats_end(). NULL_POINTER, or INVALID_PARAMS: it is not open. */
dpa_stats_status vb_stats_begin(dpa_stats_handler_t *h, const char *function);
void vb_stats_end(dpa_stats_handler_t **h);
dpa_stats_status vb_stats_fail(dpa_stats_handler_t *h, dpa_stats_status status,
			       const char *function, const char *file, int line, const char *fmt,
			       ...) __attribute__((format(printf, 6, 7)));

#define CALL(h)                                                                                  \
	dpa_stats_status begun_ = vb_stats_begin(h, __func__);                                   \
	dpa_stats_handler_t *kept_ __attribute__((cleanup(vb_stats_end))) = begun_ ? NULL : (h); \
	if (!kept_)                                                                              \
	return begun_
#define fail(h, status, ...) \
	vb_stats_fail(h, DPA_STATS_STATUS_##status, __func__, __FILE_NAME__, __LINE__, __VA_ARGS__)

/* ---- gather.c: what programs show, filtered ---- */

/* Which processes and threads are meant. */
struct filter {
	uint32_t process, thread;
	const dpa_stats_process_list *list; /* in place of process; NULL: none */
};

/* A growing array. */
struct rows {
	size_t size; /* of an element */
	size_t count, room;
	void *at;
	bool failed; /* no memory */
};

/* An element, zeroed; NULL: no memory, and rows->failed. */
void *vb_rows_add(struct rows *rows);

/* A process of a program, while its file is open. */
struct seen {
	struct vb_monitor_view *view;
	uint64_t rate;          /* cycles of the accelerator per tick, times 2^32 */
	uint32_t index, number; /* of its entry, and of this use of it */
	struct vb_monitor_process process;
};

/* A thread, and its counters at one moment. */
struct seen_thread {
	const struct seen *of;
	struct vb_monitor_thread thread;
	struct vb_monitor_counters counters;
};

struct gather {
	dpa_stats_handler_t *handle;
	struct filter filter;
	/*
	 * Called for each process that is meant, and for each thread; either may be NULL. False: it
	 * has gone meanwhile.
	 */
	bool (*process)(struct gather *g, const struct seen *seen);
	void (*thread)(struct gather *g, const struct seen_thread *seen);
	struct rows rows; /* for the callbacks */
	/* found */
	uint32_t processes, threads;
};

/* OK, or the status of the failure: a process that does not exist, for one. */
dpa_stats_status vb_gather(struct gather *g, const char *function);

/*
 * Whether the process still has its entry. What lies elsewhere and was read before this is of the
 * process, and not of the next one in its place.
 */
bool vb_stats_is_there(const struct seen *seen);
/* The accelerator's cycles in ticks of this process. */
uint64_t vb_stats_cycles(const struct seen *seen, uint64_t ticks);
/* A moment in microseconds. */
uint64_t vb_stats_time(const struct seen *seen, uint64_t ticks);
/* Where the request of a process is in the page of requests. */
static inline size_t vb_stats_request(const struct seen *seen)
{
	return offsetof(struct vb_monitor_requests, process) +
	       seen->index * sizeof(struct vb_monitor_request);
}

/* ---- lists.c ---- */

/* What was gathered as a list, or its memory freed; returns status, or that of its own failure. */
dpa_stats_status vb_stats_list(struct gather *g, dpa_stats_status status, const char *function,
			       void **list);

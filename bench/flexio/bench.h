/* SPDX-License-Identifier: MIT */
/* What the parts of the FlexIO benchmark share: the table (bench.c), events (events.c), rates (rate.c), calls
 * that somebody watches (watched.c). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <libflexio/flexio.h>

/* Nanoseconds for n times. */
typedef double measure(unsigned long n, size_t arg);

extern struct ibv_context *bench_ctx;
extern struct flexio_process *process;

double now(void); /* nanoseconds */
double median(double *v, unsigned int n);

/* ---- events.c: arg is the pause before each, in nanoseconds; n times the median ---- */

measure events_activated, events_completed; /* ours */
measure events_hop, events_futex;           /* the machine's */
void events_end(void);

/* ---- rate.c: arg is the number of WQEs for each doorbell, with RATE_ALL as a flag: on all cores ---- */

#define RATE_ALL (1u << 31)

measure rate_device, rate_host;
flexio_uintptr_t rate_writer(void); /* a struct writer that is ready for single writes */
void rate_end(void);

/* ---- watched.c: arg is the length of a call, in turns of a loop; 0: an empty one; or WATCHED_SERVE ---- */

#define WATCHED_SERVE SIZE_MAX /* one completion is taken, one write is sent */

measure watched_off, watched_counters, watched_untraced, watched_tracer;
measure watched_plain;             /* empty calls */
measure recorded_on, recorded_off; /* those, in another process; arg is not used */

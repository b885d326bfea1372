/* SPDX-License-Identifier: MIT */
/* Messages and traces of device code, on their way to files of the program. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#define FLEXIO_ALLOW_EXPERIMENTAL_API
#include <libflexio/flexio.h>

#include "api/flexio/guest.h"

/* ---- out.c: text on its way to a file of the program ----------------------------------------- */

struct out {
	FILE *file;
	size_t chunk; /* bytes that go out at a time where writing can block; 0: it cannot */
	bool socket;
	const char *at; /* what is not written yet */
	size_t left;
};

void vb_out_init(struct out *out, FILE *file);
/* The next text, when nothing is left. It must stay until then. */
void vb_out_fill(struct out *out, const char *text, size_t len);
/* Write without waiting. False: the file does not take all now. *err: an errno, and nothing is left. */
bool vb_out_write(struct out *out, int *err);
/* Wait for at most ns until the file takes something. */
bool vb_out_wait(const struct out *out, uint64_t ns);
/* For the time of exit(): false where the program may have closed the file. */
bool vb_out_is_open(const struct out *out);

/* ---- stream.c -------------------------------------------------------------------------------- */

struct flexio_msg_stream;

/* Bytes of one message; no line of the C library is longer either. */
#define MESSAGE_MAX (1U << 20)

/*
 * A message from device code; text is the host's view of device memory. -EFAULT: it was unmapped
 * meanwhile.
 */
int vb_streams_message(struct guest *guest, uint64_t stream, uint64_t level,
		       struct vb_dpa_view text, size_t len);
/* So many traces are in a buffer of a tracer stream; -EINVAL: no such stream or buffer. */
int vb_streams_traces(struct guest *guest, uint64_t stream, uint64_t count, uint64_t buffer,
		      bool full);
/* Write out what synchronous streams still hold. */
void vb_streams_wait_written(struct flexio_process *process);
void vb_streams_destroy(struct flexio_process *process);
/* The program exits: what streams still hold goes out, but for asynchronous ones. */
void vb_streams_leave(void);

/* ---- tracer.c -------------------------------------------------------------------------------- */

struct tracer;

enum { TRACER_BUFFERS = 4 };

/* Whether the attributes of a tracer stream can be met; logs why not. */
flexio_status vb_tracer_check(const flexio_msg_stream_attr_t *attr);
/* Under streams_lock for writing. NULL: no memory. Device code stores nothing before a level is set. */
struct tracer *vb_tracer_open(struct flexio_process *process, const flexio_msg_stream_attr_t *attr,
			      int id);
void vb_tracer_level(struct tracer *t, unsigned int level);
/* Level 0, for good; device code that is at a message ends it. Without locks. */
void vb_tracer_stop(struct tracer *t);
/* Under streams_lock for writing. */
void vb_tracer_close(struct tracer *t);
void vb_tracers_free(struct flexio_process *process);
/* So many messages are in a buffer; full: the next one is begun. -EINVAL. */
int vb_tracer_take(struct tracer *t, uint64_t buffer, uint64_t count, bool full);
/* Take what device code has stored and not told. */
void vb_tracer_collect(struct tracer *t);
bool vb_tracer_pending(const struct tracer *t);
/* Messages of one buffer, and how many were lost before; there is room for a buffer. */
uint32_t vb_tracer_out(struct tracer *t, struct vb_rtos_trace *to, uint64_t *lost);
void vb_tracer_print(const struct tracer *t, const struct vb_rtos_trace *msg, FILE *out);

/* SPDX-License-Identifier: MIT */
/*
 * What the files of `verbatim trace` share: the notes of all processes, found in a directory, and
 * their JSON form.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "control/record/timeline.h"

/*
 * The file of one process, mapped. It is the program's, which may still write to it or cut it, so
 * nothing in it is trusted, and what is looked at is a copy.
 */
struct trace_file {
	const struct vb_timeline_head *head;    /* the copy */
	const struct vb_timeline_piece *pieces; /* mapped; the first ones are the head */
	uint32_t num_pieces;                    /* that were written */
	uint64_t lost;
};

/* Looks at a file's bytes, which stay mapped. False: it is none of ours. */
bool trace_open(struct trace_file *file, const void *bytes, size_t size);
/* The text of a name's number, cut to what is there; "?" where there is none. */
void trace_name(const struct trace_file *file, uint16_t name, char text[VB_TIMELINE_NAME_BYTES]);
/* Calls back for each note of a piece that is whole. */
typedef void trace_visit(void *arg, const struct trace_file *file,
			 const struct vb_timeline_piece *piece, const struct vb_note *note);
void trace_each(const struct trace_file *file, trace_visit *visit, void *arg);

/* Chrome's trace format, which Perfetto opens. 0 or -errno. */
int trace_write_json(FILE *out, const struct trace_file *files, size_t count);

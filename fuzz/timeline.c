// SPDX-License-Identifier: MIT
/*
 * Random bytes as the file that a program left of its timeline: verbatim trace writes JSON of it, and reads nothing beyond
 * its end. The input is put over a file that has a head and two pieces, at the place that its first bytes name, so that
 * most inputs reach the notes.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/trace/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PIECES = 2, HEADER = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t bytes = VB_TIMELINE_HEAD + PIECES * (size_t)VB_TIMELINE_PIECE;
	struct trace_file files[1];
	struct vb_timeline_head *head;
	uint32_t at;
	char *copy;
	FILE *out;

	if (size < HEADER)
		return 0;
	memcpy(&at, data, sizeof(at));
	data += HEADER;
	size -= HEADER;
	/* Exactly as long as it is: the sanitizer sees a read behind it. */
	copy = calloc(1, bytes);
	head = (struct vb_timeline_head *)copy;
	head->magic = VB_TIMELINE_MAGIC;
	atomic_store_explicit(&head->pieces, at >> 24, memory_order_relaxed);
	/* Mostly into the pieces, which are the smaller part. */
	at = at & 3 ? VB_TIMELINE_HEAD + at % (PIECES * VB_TIMELINE_PIECE) : at % VB_TIMELINE_HEAD;
	memcpy(copy + at, data, size < bytes - at ? size : bytes - at);
	if (trace_open(&files[0], copy, bytes)) {
		out = fopen("/dev/null", "w");
		trace_write_json(out, files, 1);
		fclose(out);
		free((void *)files[0].head);
	}
	free(copy);
	return 0;
}

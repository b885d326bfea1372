// SPDX-License-Identifier: MIT
/*
 * fflush: a stream's own function, or 0. NULL means all streams, and those that a program made by
 * itself are known to it alone: the standard ones, and the line that a thread has begun.
 */
#include "line.h"

static int flush_one(FILE *stream)
{
	return stream && stream->flush ? stream->flush(stream) : 0;
}

int fflush(FILE *stream)
{
	int err;

	if (stream)
		return flush_one(stream);
	err = flush_one(stdout);
	err |= flush_one(stderr);
	err |= flush_one(&__flexio_libc_line);
	return err ? EOF : 0;
}

// SPDX-License-Identifier: MIT
/*
 * The default stdout: collects a line per thread and sends it as one message, so that lines of
 * several threads do not mix. What lacks its newline is sent by fflush, before another message of
 * the thread, and when the thread's run ends (the library's end functions do it, the host does
 * where a handler just returns or faults).
 *
 *	thread context: line, line_len -----> first[] in thread local memory, or a larger buffer if the line is long
 *
 * A line that is longer than the larger buffer, or for which there is no memory, goes in pieces.
 */
#include "line.h"

#include <stdlib.h>
#include <string.h>

#include "../dev/ecall.h"

#define FIRST_SIZE 248
#define LARGE_SIZE 4096

static __thread struct {
	char *large;
	char first[FIRST_SIZE];
} held;

static void release_large(void)
{
	char *large = held.large;

	held.large = NULL;
	free(large);
}

/* Room for one more character. */
static char *room(struct vb_rtos_thread *thread)
{
	uint32_t used = thread->line_len;

	if (!used)
		thread->line = (uintptr_t)(held.large ? held.large : held.first);
	if (thread->line == (uintptr_t)held.first && used == FIRST_SIZE) {
		held.large = malloc(LARGE_SIZE);
		if (held.large) {
			memcpy(held.large, held.first, used);
			thread->line = (uintptr_t)held.large;
		} else {
			__flexio_dev_line_flush(thread);
		}
	} else if (used == LARGE_SIZE) {
		__flexio_dev_line_flush(thread);
	}
	return (char *)(uintptr_t)thread->line;
}

static int line_put(char c, FILE *file)
{
	struct vb_rtos_thread *thread = this_thread();
	char *text = room(thread);

	(void)file;
	text[thread->line_len++] = c;
	if (c == '\n') {
		__flexio_dev_line_flush(thread);
		if (held.large)
			release_large();
	}
	return (unsigned char)c;
}

static int line_flush(FILE *file)
{
	(void)file;
	__flexio_dev_line_flush(this_thread());
	return 0;
}

FILE __flexio_libc_line = FDEV_SETUP_STREAM(line_put, NULL, line_flush, _FDEV_SETUP_WRITE);

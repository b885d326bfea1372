// SPDX-License-Identifier: MIT
/*
 * Messages to the streams of the host.
 *
 * A message is one call into the run-time system, whatever its length: that is what keeps messages
 * of different threads apart. Short ones are formatted on the stack, which is small; for longer
 * ones memory is allocated, and where there is none they go in pieces.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libflexio-dev/flexio_dev.h>

#include "ecall.h"

#define SHORT 256

/*
 * Level of each stream, 0 for those that do not exist; at 255 (FLEXIO_MSG_DEV_BROADCAST_STREAM) the
 * highest of all. The host writes it, at any time.
 */
__attribute__((used, retain)) volatile uint8_t __flexio_dev_msg_levels[256];

static bool wanted(int stream, flexio_msg_dev_level level)
{
	return level != FLEXIO_MSG_DEV_NO_PRINT && __flexio_dev_msg_levels[stream] >= level;
}

static int64_t send(int stream, flexio_msg_dev_level level, const char *text, size_t length)
{
	int64_t sent = ecall4(VB_RTOS_MSG, (uint64_t)stream, level, (uintptr_t)text, length);

	if (sent < 0)
		set_errno(EFAULT);
	return sent;
}

void __flexio_dev_line_flush(struct vb_rtos_thread *thread)
{
	uint32_t length = thread->line_len;

	if (!length)
		return;
	thread->line_len = 0;
	ecall4(VB_RTOS_MSG, FLEXIO_MSG_DEV_DEFAULT_STREAM_ID, FLEXIO_MSG_DEV_ALWAYS_PRINT,
	       thread->line, length);
}

/* A stream that sends what it gets in pieces. */
struct pieces {
	struct __file file;
	int stream;
	flexio_msg_dev_level level;
	bool failed;
	size_t used;
	char *text;
};

static void pieces_send(struct pieces *p)
{
	if (p->used && send(p->stream, p->level, p->text, p->used) < 0)
		p->failed = true;
	p->used = 0;
}

static int pieces_put(char c, FILE *file)
{
	struct pieces *p = (struct pieces *)file;

	p->text[p->used++] = c;
	if (p->used == SHORT)
		pieces_send(p);
	return (unsigned char)c;
}

static int send_pieces(int stream, flexio_msg_dev_level level, char *text, const char *format,
		       va_list ap)
{
	struct pieces p = {
		.file = FDEV_SETUP_STREAM(pieces_put, NULL, NULL, _FDEV_SETUP_WRITE),
		.stream = stream,
		.level = level,
		.text = text,
	};
	int length = vfprintf(&p.file, format, ap);

	pieces_send(&p);
	return p.failed ? -1 : length;
}

static int format_long(int stream, flexio_msg_dev_level level, char *text, int length,
		       const char *format, va_list ap)
{
	char *whole = malloc((size_t)length + 1);

	if (!whole)
		return send_pieces(stream, level, text, format, ap);
	length = vsnprintf(whole, (size_t)length + 1, format, ap);
	if (length > 0 && send(stream, level, whole, (size_t)length) < 0)
		length = -1;
	free(whole);
	return length;
}

int flexio_dev_msg(int stream_id, flexio_msg_dev_level level, const char *format, ...)
{
	char text[SHORT];
	va_list ap;
	int length;

	if (stream_id < 0 || stream_id > FLEXIO_MSG_DEV_BROADCAST_STREAM || !format) {
		set_errno(EINVAL);
		return -1;
	}
	if (!wanted(stream_id, level))
		return 0;
	__flexio_dev_line_flush(this_thread());
	va_start(ap, format);
	length = vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (length <= 0)
		return length;
	if ((size_t)length < sizeof(text))
		return send(stream_id, level, text, (size_t)length) < 0 ? -1 : length;
	va_start(ap, format);
	length = format_long(stream_id, level, text, length, format, ap);
	va_end(ap);
	return length;
}

int flexio_dev_puts(struct flexio_dev_thread_ctx *dtctx, char *str)
{
	size_t length;

	(void)dtctx;
	if (!str || !wanted(FLEXIO_MSG_DEV_DEFAULT_STREAM_ID, FLEXIO_MSG_DEV_ALWAYS_PRINT))
		return 0;
	__flexio_dev_line_flush(this_thread());
	length = strlen(str);
	if (length &&
	    send(FLEXIO_MSG_DEV_DEFAULT_STREAM_ID, FLEXIO_MSG_DEV_ALWAYS_PRINT, str, length) < 0)
		return -1;
	return (int)length;
}

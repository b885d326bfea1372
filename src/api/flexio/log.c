// SPDX-License-Identifier: MIT
/*
 * Owns the host log: lines "<function> <line> - <text>" on standard error, one write(2) each, so
 * that lines of several threads do not mix. A line about a call that fails names the public
 * function.
 */
#include "api/flexio/process.h"

#include <stdio.h>
#include <unistd.h>

#include "base/file.h"

_Atomic int vb_flexio_log_level = FLEXIO_LOG_LVL_ERR;
_Thread_local struct vb_api_call vb_api_call;

static void write_line(const char *function, int line, const char *fmt, va_list args)
{
	int saved_errno = errno; /* an error path may log before it reads errno */
	char text[1024];
	int n, m;

	n = snprintf(text, sizeof(text), "%s %d - ", function, line);
	m = vsnprintf(text + n, sizeof(text) - (size_t)n - 1, fmt, args);
	n += m < 0 ? 0 : m;
	if (n > (int)sizeof(text) - 2)
		n = (int)sizeof(text) - 2;
	text[n] = '\n';
	if (vb_file_write(STDERR_FILENO, text, (size_t)n + 1) < 0) {
		/* nowhere left to say it */
	}
	errno = saved_errno;
}

void vb_api_note(const struct api_span *span)
{
	vb_timeline_write(&(struct vb_note){ .kind = VB_NOTE_CALL,
					     .name = vb_timeline_name(span->function),
					     .time = span->start,
					     .duration = vb_timeline_now() - span->start });
}

void vb_flexio_log(const char *function, int line, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	write_line(function, line, fmt, args);
	va_end(args);
}

flexio_status vb_flexio_fail(const char *function, int line, const char *fmt, ...)
{
	va_list args;

	if (vb_api_call.said)
		return FLEXIO_STATUS_FAILED;
	if (vb_api_call.function) {
		function = vb_api_call.function;
		vb_api_call.said = true;
	}
	va_start(args, fmt);
	write_line(function, line, fmt, args);
	va_end(args);
	return FLEXIO_STATUS_FAILED;
}

flexio_status vb_flexio_bad_handle(const char *function, int line, const void *handle,
				   const char *what)
{
	if (!handle)
		return vb_flexio_fail(function, line, "the %s is NULL", what);
	return vb_flexio_fail(function, line, "%p is no %s, or not any more", handle, what);
}

enum flexio_log_lvl flexio_log_lvl_set(enum flexio_log_lvl lvl)
{
	API_CALL();
	if ((unsigned int)lvl > FLEXIO_LOG_LVL_DBG) {
		fail("%u is not a log level; allowed: 0 to %u", (unsigned int)lvl,
		     FLEXIO_LOG_LVL_DBG);
		return (enum flexio_log_lvl)atomic_load_explicit(&vb_flexio_log_level,
								 memory_order_relaxed);
	}
	return (enum flexio_log_lvl)atomic_exchange_explicit(&vb_flexio_log_level, (int)lvl,
							     memory_order_relaxed);
}

// SPDX-License-Identifier: MIT
/*
 * Owns where log lines go. One write(2) a line, so that lines of several processes do not mix.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/file.h"

static enum vb_log_level threshold = VB_LOG_WARN;
static int log_fd = STDERR_FILENO;
static bool bad_level;
static int file_error;

static const char *const level_names[] = {
	[VB_LOG_ERROR] = "error",
	[VB_LOG_WARN] = "warn",
	[VB_LOG_INFO] = "info",
};

__attribute__((constructor)) static void log_init(void)
{
	const char *level = vb_getenv("VERBATIM_LOG");
	const char *file = vb_getenv("VERBATIM_LOG_FILE");

	bad_level = level && *level;
	for (unsigned int i = 0; bad_level && i < sizeof(level_names) / sizeof(level_names[0]);
	     i++) {
		if (strcmp(level, level_names[i]))
			continue;
		threshold = (enum vb_log_level)i;
		bad_level = false;
	}
	if (file && *file) {
		int fd = vb_file_above_stdio(
			open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));

		if (fd >= 0)
			log_fd = fd;
		else
			file_error = errno;
	}
}

void vb_log_check_environment(void)
{
	if (bad_level)
		vb_warn("VERBATIM_LOG=%s is not a level; allowed: error, warn, info",
			vb_getenv("VERBATIM_LOG"));
	if (file_error)
		vb_warn("VERBATIM_LOG_FILE: %s: %s; the log goes to standard error",
			vb_getenv("VERBATIM_LOG_FILE"), strerror(file_error));
}

bool vb_log_enabled(enum vb_log_level level)
{
	return level <= threshold;
}

void vb_log(enum vb_log_level level, const char *fmt, ...)
{
	int saved_errno = errno; /* an error path may log before it reads errno */
	char line[1024];
	va_list args;
	int n, m;

	if (level > threshold)
		return;
	n = snprintf(line, sizeof(line), "verbatim[%d] %s: ", (int)getpid(), level_names[level]);
	va_start(args, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, args);
	va_end(args);
	n += m < 0 ? 0 : m;
	if (n > (int)sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	line[n] = '\n';
	if (vb_file_write(log_fd, line, (size_t)n + 1) < 0) {
		/* nowhere left to say it */
	}
	errno = saved_errno;
}

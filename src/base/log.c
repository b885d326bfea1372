// SPDX-License-Identifier: MIT
/*
 * Owns where log lines go. One write(2) a line, so that lines of several processes do not mix.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum vb_log_level vb_log_threshold = VB_LOG_WARN;

static int log_fd = STDERR_FILENO;

static const char *const level_names[] = {
	[VB_LOG_ERROR] = "error",
	[VB_LOG_WARN] = "warn",
	[VB_LOG_INFO] = "info",
	[VB_LOG_DEBUG] = "debug",
};

__attribute__((constructor)) static void log_init(void)
{
	const char *level = getenv("VERBATIM_LOG");
	const char *file = getenv("VERBATIM_LOG_FILE");

	for (unsigned int i = 0; level && i < sizeof(level_names) / sizeof(level_names[0]); i++)
		if (!strcmp(level, level_names[i]))
			vb_log_threshold = (enum vb_log_level)i;
	if (file && *file) {
		int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

		if (fd >= 0)
			log_fd = fd;
	}
}

void vb_log(enum vb_log_level level, const char *fmt, ...)
{
	int saved_errno = errno; /* an error path may log before it reads errno */
	char line[1024];
	va_list args;
	int n, m;

	if (level > vb_log_threshold)
		return;
	n = snprintf(line, sizeof(line), "verbatim[%d] %s: ", (int)getpid(), level_names[level]);
	va_start(args, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, args);
	va_end(args);
	n += m < 0 ? 0 : m;
	if (n > (int)sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	line[n] = '\n';
	if (write(log_fd, line, (size_t)n + 1) < 0) {
		/* nowhere left to say it */
	}
	errno = saved_errno;
}

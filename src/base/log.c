// SPDX-License-Identifier: MIT
/*
 * Owns where log lines go. One write(2) a line, so that lines of several processes do not mix.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/env.h"
#include "base/file.h"
#include "base/fork.h"
#include "base/lock.h"
#include "base/mask.h"

static enum vb_log_level threshold = VB_LOG_WARN;
static char log_path[PATH_MAX]; /* empty: the log goes to standard error */
static struct vb_file log_file = { .fd = -1 };
static struct vb_lock log_lock; /* of the file; taken with signals blocked */
static bool bad_level;
static int file_error;

static const char *const level_names[] = {
	[VB_LOG_ERROR] = "error",
	[VB_LOG_WARN] = "warn",
	[VB_LOG_INFO] = "info",
};

static int log_open_file(void)
{
	int fd = vb_sys_openat(AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : vb_file_keep(&log_file, fd);
}

/* The file has to be found again in whatever directory the program is by then. */
static int set_path(const char *file)
{
	size_t len = 0;

	if (*file != '/') {
		if (!getcwd(log_path, sizeof(log_path) - 1))
			return -errno;
		len = strlen(log_path);
		log_path[len++] = '/';
	}
	if (strlen(file) >= sizeof(log_path) - len)
		return -ENAMETOOLONG;
	strcpy(log_path + len, file);
	return 0;
}

/*
 * The program may have closed the descriptor, and the number be that of a file of its own: then
 * open the log again.
 */
static int log_fd(void)
{
	VB_NO_CANCEL;
	sigset_t before;
	int fd;

	if (!*log_path)
		return STDERR_FILENO;
	vb_signal_block(&before); /* a handler that logs, too, would wait for itself */
	vb_lock(&log_lock);
	if (!vb_file_is_open(&log_file) && log_open_file())
		log_file = VB_NO_FILE;
	fd = log_file.fd;
	vb_unlock(&log_lock);
	vb_signal_unblock(&before);
	return fd;
}

static void log_start(void)
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
		file_error = -set_path(file);
		if (!file_error)
			file_error = -log_open_file();
		if (file_error)
			*log_path = '\0';
	}
}

VB_STAGE(LOG, .start = log_start);

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
	if (vb_file_write(log_fd(), line, (size_t)n + 1) < 0) {
		/* nowhere left to say it */
	}
	errno = saved_errno;
}

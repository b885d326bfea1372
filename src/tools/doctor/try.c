// SPDX-License-Identifier: MIT
/* Owns the children of `verbatim doctor`: what may be refused, or kill, happens in one of them. */
#include "tools/doctor/doctor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/env.h"
#include "base/time.h"

enum { PATIENCE_MS = 60000 };

bool doctor_find(const char *name, char path[PATH_MAX])
{
	const char *dir = vb_getenv("PATH"), *end;

	for (dir = dir ? dir : "/bin:/usr/bin";; dir = end + 1) {
		end = strchrnul(dir, ':');
		if (snprintf(path, PATH_MAX, "%.*s%s%s", (int)(end - dir), dir,
			     end > dir ? "/" : "", name) < PATH_MAX &&
		    !access(path, X_OK))
			return true;
		if (!*end)
			return false;
	}
}

/* Keep the last whole line that has something in it. */
static void keep_line(char *line, size_t *len, char *output, size_t size)
{
	line[*len] = '\0';
	if (*len)
		snprintf(output, size, "%s", line);
	*len = 0;
}

/* What the child writes until it closes its end; false: it took too long. */
static bool read_output(int fd, char *output, size_t size)
{
	uint64_t until = vb_machine_ns() + PATIENCE_MS * 1000000ull;
	char line[1024], bytes[512];
	size_t len = 0;

	for (;;) {
		struct pollfd ready = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (vb_machine_ns() >= until)
			return false;
		if (vb_poll_until(VB_MACHINE_TIME, &ready, 1, until, NULL) <= 0)
			continue;
		n = read(fd, bytes, sizeof(bytes));
		if (n <= 0)
			break;
		for (ssize_t i = 0; i < n; i++) {
			if (bytes[i] == '\n')
				keep_line(line, &len, output, size);
			else if (len < sizeof(line) - 1)
				line[len++] = bytes[i];
		}
	}
	keep_line(line, &len, output, size);
	return true;
}

static int try_wait_for(pid_t pid, bool in_time, char *output, size_t size)
{
	int status;

	if (!in_time)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	if (!in_time)
		snprintf(output, size, "no answer within a minute");
	else
		snprintf(output, size, "killed by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	return -1;
}

int doctor_try(int (*try)(void *arg), void *arg, char *output, size_t size)
{
	static const struct rlimit no_core = { 0, 0 };
	int fds[2];
	pid_t pid;
	bool in_time;

	output[0] = '\0';
	if (pipe(fds)) {
		snprintf(output, size, "pipe: %s", strerror(errno));
		return -1;
	}
	fflush(NULL);
	pid = fork();
	if (!pid) {
		setrlimit(RLIMIT_CORE, &no_core);
		dup2(fds[1], STDOUT_FILENO);
		dup2(fds[1], STDERR_FILENO);
		close(fds[0]);
		close(fds[1]);
		setvbuf(stdout, NULL, _IOLBF, 0);
		_exit(try(arg));
	}
	close(fds[1]);
	if (pid < 0) {
		snprintf(output, size, "fork: %s", strerror(errno));
		close(fds[0]);
		return -1;
	}
	in_time = read_output(fds[0], output, size);
	close(fds[0]);
	return try_wait_for(pid, in_time, output, size);
}

static int try_become(void *arg)
{
	char *const *argv = arg;

	execvp(argv[0], argv);
	fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
	return 127;
}

int doctor_run(char *const argv[], char *output, size_t size)
{
	return doctor_try(try_become, (void *)argv, output, size);
}

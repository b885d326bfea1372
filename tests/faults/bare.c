// SPDX-License-Identifier: MIT
/*
 * A machine with nearly nothing on it, as sandboxes are. Without /dev/null a device opens all the same; without /proc it
 * does not, and the log says what is missing.
 */
#include "../programs/common.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a child with mounts of its own: errno of opening a device, and what was logged. */
static int open_in_child(const char *without, char *said, size_t size)
{
	int pipes[2], status;
	size_t len = 0;
	ssize_t n;
	pid_t pid;

	check_eq(pipe(pipes), 0);
	pid = fork();
	check(pid >= 0, "%s", strerror(errno));
	if (pid == 0) {
		struct ibv_device **list;
		struct ibv_context *ctx;

		dup2(pipes[1], STDERR_FILENO);
		close(pipes[0]);
		close(pipes[1]);
		if (mount("none", without, "tmpfs", 0, NULL))
			_exit(254);
		if (!strcmp(without, "/dev") &&
		    (mkdir("/dev/shm", 0777) || mount("none", "/dev/shm", "tmpfs", 0, NULL)))
			_exit(253);
		unsetenv("VERBATIM_SHM_DIR");
		list = ibv_get_device_list(NULL);
		errno = 0;
		ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
		_exit(ctx ? ibv_close_device(ctx) : errno ? errno : 252);
	}
	close(pipes[1]);
	while ((n = read(pipes[0], said + len, size - 1 - len)) > 0)
		len += (size_t)n;
	said[len] = '\0';
	close(pipes[0]);
	check_eq(waitpid(pid, &status, 0), pid);
	check(WIFEXITED(status), "wait status %#x", status);
	return WEXITSTATUS(status);
}

int main(void)
{
	char said[4096];

	if (!enter_namespaces(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		test_skip("hiding /dev and /proc needs the right to make a mount namespace (%s)",
			  strerror(errno));
	check_eq(open_in_child("/dev", said, sizeof(said)), 0);
	check(!*said, "said: %s", said);
	check_eq(open_in_child("/proc", said, sizeof(said)), ENOENT);
	check(strstr(said, "is /proc mounted?"), "said: %s", said);
	check(strchr(said, '\n') == strrchr(said, '\n'), "more than one line: %s", said);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * A limit on the size of files (ulimit -f). The kernel's answer to a larger one is a signal that ends the program; ours is
 * an error of ibv_open_device() and a line in the log. Where the log is such a file itself, the line is lost.
 */
#include "../programs/common.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT = 4096 };

static int opener(void)
{
	struct rlimit limit = { LIMIT, LIMIT };
	struct ibv_device **list;
	sigset_t pending;

	check_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	list = ibv_get_device_list(NULL);
	check(list && list[0], "no device");
	errno = 0;
	check(!ibv_open_device(list[0]), "opened, though its file is too large");
	check_eq(errno, EFBIG);
	ibv_free_device_list(list);
	/* No signal waits for a program that blocks it. */
	check_eq(sigpending(&pending), 0);
	check_eq(sigismember(&pending, SIGXFSZ), 0);
	return 0;
}

/* Run the opener with standard error appended to a file of this size; what it appended. */
static void run(off_t size, char *said, size_t len)
{
	char path[] = "/tmp/verbatim-small-XXXXXX";
	int fd = mkstemp(path), status;
	ssize_t n;
	pid_t pid;

	check(fd >= 0, "%s: %s", path, strerror(errno));
	check_eq(ftruncate(fd, size), 0);
	pid = fork();
	check(pid >= 0, "%s", strerror(errno));
	if (pid == 0) {
		dup2(fd, STDERR_FILENO);
		fcntl(STDERR_FILENO, F_SETFL, O_APPEND);
		execl("/proc/self/exe", "small_files", "opener", (char *)NULL);
		_exit(127);
	}
	check_eq(waitpid(pid, &status, 0), pid);
	n = pread(fd, said, len - 1, size);
	check(n >= 0, "%s", strerror(errno));
	said[n] = '\0';
	close(fd);
	unlink(path);
	check(WIFEXITED(status) && !WEXITSTATUS(status), "wait status %#x, said: %s", status, said);
}

int main(int argc, char **argv)
{
	char said[4096];

	if (argc > 1 && !strcmp(argv[1], "opener"))
		return opener();
	run(0, said, sizeof(said));
	check(strstr(said, "(ulimit -f)"), "said: %s", said);
	check(strchr(said, '\n') == strrchr(said, '\n'), "more than one line: %s", said);
	run(LIMIT, said, sizeof(said));
	check(!*said, "said: %s", said);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * Log lines in programs that do not expect any. A program may close every descriptor that it did not
 * open and use the numbers for files of its own: no line goes there, and none is lost. Nobody may
 * read standard error any more: a line is lost then, and the program goes on.
 */
#include "../programs/common.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MY_FILES = 32 };

/* A call that fails, with a line in the log. */
static void make_line(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node node;

	node_open(&node, &attr);
	check(!ibv_reg_mr(node.pd, NULL, 4096, IBV_ACCESS_REMOTE_WRITE), "registered");
	node_close(&node);
}

static int closes_all(void)
{
	const char *path = getenv("MY_FILE");
	struct stat st;

	closefrom(STDERR_FILENO + 1);
	for (int i = 0; i < MY_FILES; i++)
		check(open(path, O_RDWR | O_CREAT, 0600) >= 0, "%s", strerror(errno));
	make_line();
	check_eq(stat(path, &st), 0);
	check_eq(st.st_size, 0);
	return 0;
}

static int has_no_reader(void)
{
	sigset_t pipe_signal, pending;
	int ends[2];

	check_eq(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	close(ends[0]);
	close(ends[1]);
	make_line();
	/* No signal waits for a program that blocks it, and the program's own stays. */
	sigemptyset(&pipe_signal);
	sigaddset(&pipe_signal, SIGPIPE);
	sigprocmask(SIG_BLOCK, &pipe_signal, NULL);
	make_line();
	check_eq(sigpending(&pending), 0);
	if (sigismember(&pending, SIGPIPE))
		return 2;
	raise(SIGPIPE);
	make_line();
	check_eq(sigpending(&pending), 0);
	return sigismember(&pending, SIGPIPE) ? 0 : 3;
}

static size_t lines_of(const char *path)
{
	FILE *file = fopen(path, "re");
	char line[2048];
	size_t count = 0;

	check(file, "%s", strerror(errno));
	while (fgets(line, sizeof(line), file))
		count++;
	fclose(file);
	return count;
}

static void run(const char *role)
{
	int fd;
	pid_t pid = spawn_self(role, &fd);

	spawn_wait(pid);
	close(fd);
}

static void files_of_the_program(void)
{
	char dir[] = "/tmp/verbatim-log-XXXXXX", log[64], mine[64];

	check(mkdtemp(dir), "%s", strerror(errno));
	snprintf(log, sizeof(log), "%s/log", dir);
	snprintf(mine, sizeof(mine), "%s/mine", dir);
	setenv("VERBATIM_LOG_FILE", log, 1);
	setenv("MY_FILE", mine, 1);
	run("closes_all");
	check_eq(lines_of(log), 1);
	unsetenv("VERBATIM_LOG_FILE");
	unlink(log);
	unlink(mine);
	rmdir(dir);
}

int main(int argc, char **argv)
{
	setenv("VERBATIM_LOG", "info", 1);
	if (argc > 1 && !strcmp(argv[1], "closes_all"))
		return closes_all();
	if (argc > 1 && !strcmp(argv[1], "has_no_reader"))
		return has_no_reader();
	files_of_the_program();
	run("has_no_reader");
	return 0;
}
